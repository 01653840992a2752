"""A module runs in the mode that it is in, or what its mode asks for is refused by name: against torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from tbuda_lab.core.errors import ModelError, UnsupportedOp
from tbuda_lab.core.frontend import feeds, from_any
from tbuda_lab.core.ops.evaluate import evaluate


class Behind(nn.Module):
    """A layer, and something behind it that may look at the mode."""

    def __init__(self, function: Callable[[nn.Module, torch.Tensor], torch.Tensor], *layers: nn.Module) -> None:
        super().__init__()
        self.first, self.layers, self.function = nn.Linear(16, 16), nn.ModuleList(layers), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(self, self.first(x))


def _first(module: nn.Module, y: torch.Tensor) -> torch.Tensor:
    result = module.layers[0](y)
    return result[0] if isinstance(result, tuple) else result


SAME = {
    "a layer": Behind(lambda m, y: y),
    "its flag": Behind(lambda m, y: 2 * y if m.training else y),
    "the flag of a layer": Behind(lambda m, y: 2 * y if m.layers[0].training else y, nn.Dropout().eval()),
    "a dropout of nothing": Behind(_first, nn.Dropout(0.0)),
    "a dropout in eval mode": Behind(_first, nn.Dropout().eval()),
    "a function that asks": Behind(lambda m, y: F.dropout(y, 0.5, not m.training)),
    "statistics of the batch": Behind(_first, nn.BatchNorm1d(8, track_running_stats=False)),
    "statistics that stand": Behind(_first, nn.BatchNorm1d(8).eval()),
    "a recurrent layer of one": Behind(_first, nn.GRU(16, 16, batch_first=True)),
    "attention": Behind(_first, nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True)),
}
REFUSED = {
    "dropout": Behind(_first, nn.Dropout()),
    "dropout of channels": Behind(lambda m, y: m.layers[0](y.reshape(2, 4, 8, 4)), nn.Dropout2d()),
    "alpha dropout": Behind(_first, nn.AlphaDropout()),
    "a dropout that a function asks for": Behind(lambda m, y: F.dropout(y, 0.5, m.training)),
    "a random slope": Behind(_first, nn.RReLU()),
    "noise": Behind(lambda m, y: y + torch.randn_like(y) if m.training else y),
    "dropout of a recurrent layer": Behind(_first, nn.LSTM(16, 16, 2, dropout=0.4, batch_first=True)),
    "dropout in attention": Behind(_first, nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)),
    "dropout in a function": Behind(lambda m, y: F.scaled_dot_product_attention(y, y, y, dropout_p=0.3 * m.training)),
    "a mean over all batches": Behind(_first, nn.BatchNorm1d(8, momentum=None)),
}


@pytest.mark.parametrize("name", SAME)
def test_the_mode_is_kept(name: str) -> None:
    torch.manual_seed(0)
    module, x = SAME[name], torch.randn(2, 8, 16)
    modes = [layer.training for layer in module.modules()]
    graph = from_any(module, (x,))
    assert module.training and modes == [layer.training for layer in module.modules()]
    feed = feeds(graph, (x,))
    rows = [feed] if graph.inputs[0].shape[0] == 2 else [{n: v[k : k + 1] for n, v in feed.items()} for k in range(2)]
    have = torch.cat([value for row in rows for value in evaluate(graph, row).values()])
    torch.testing.assert_close(have, module(x).detach(), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("name", REFUSED)
def test_what_no_mode_of_ours_is_like_is_refused(name: str) -> None:
    module = REFUSED[name]
    with pytest.raises((UnsupportedOp, ModelError), match=r"is in training mode: call \.eval\(\) on it") as error:
        from_any(module, (torch.randn(2, 8, 16),))
    assert "test_modes.py" in str(error.value)
    module.eval()
    try:
        from_any(module, (torch.randn(2, 8, 16),))
    finally:
        module.train()
