"""What is broadcast along a dim lies in the padding of its last tile, too: sums and products of matrices along that dim
are torch's, whatever it is. Oracle: the function itself, called by torch."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session

INF, NAN = torch.inf, torch.nan
OPTIONS = CompileOptions(default_df_override=DataFormat.Float32)
X = torch.rand(1, 3, 5, generator=torch.Generator().manual_seed(0)) + 0.5
WEIGHTS = torch.rand(5, 4, generator=torch.Generator().manual_seed(1)) + 0.1

Function = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
COLUMN: dict[str, Function] = {
    "a sum": lambda x, a: (x + a).sum(-1),
    "a mean": lambda x, a: (x + a).mean(-1),
    "of all": lambda x, a: (x + a).sum(),
    "a running sum": lambda x, a: (x + a).cumsum(-1),
    "a product": lambda x, a: (x + a).prod(-1),
    "a norm": lambda x, a: (x + a).norm(dim=-1),
    "a variance": lambda x, a: (x + a).var(-1),
    "a matmul with weights": lambda x, a: (x + a) @ WEIGHTS,
    "a matmul with a bias": lambda x, a: functional.linear(x + a, WEIGHTS.T, WEIGHTS[0]),
    "a matmul": lambda x, a: x @ (x + a).transpose(-1, -2),
    "both of a matmul": lambda x, a: (x + a) @ (x * a + 1).transpose(-1, -2),
    "a convolution": lambda x, a: functional.conv1d((x + a).transpose(-1, -2), WEIGHTS.T[:2, :, None]),
    "the larger one": lambda x, a: torch.maximum(x, a).sum(-1),
    "a selection": lambda x, a: torch.where(x > 0, x, a).exp().sum(-1),
    "a softmax": lambda x, a: (x + a).softmax(-1).sum(-2),
    "a logsumexp": lambda x, a: (x + a).logsumexp(-1),
    "a layer norm": lambda x, a: functional.layer_norm(x + a, (5,)).sum(-2),
}
"""Of (1, 3, 5) and (1, 3, 1)."""
ROW: dict[str, Function] = {
    "a sum of rows": lambda x, a: (x + a).sum(-2),
    "a mean of rows": lambda x, a: (x + a).mean(-2),
    "a matmul of columns": lambda x, a: x.transpose(-1, -2) @ (x + a),
    "rows of a matmul": lambda x, a: ((x + WEIGHTS[:, 0]) @ a.transpose(-1, -2)).sum(-2),
    "masked attention": lambda x, a: (x @ x.transpose(-1, -2) + a[..., :3]).softmax(-1) @ x,
}
"""Of (1, 3, 5) and (1, 1, 5)."""


class All(torch.nn.Module):
    """All functions of a table at once."""

    def __init__(self, functions: dict[str, Function]) -> None:
        super().__init__()
        self.functions = functions

    def forward(self, x: torch.Tensor, a: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return tuple(f(x, a) for f in self.functions.values())


@pytest.mark.parametrize(("functions", "shape"), [(COLUMN, (1, 3, 1)), (ROW, (1, 1, 5))], ids=["column", "row"])
def test_what_is_broadcast_is_not_summed_in_the_padding(functions: dict[str, Function], shape: tuple[int, ...]) -> None:
    session = Session(All(functions), (X, torch.ones(shape)), options=OPTIONS, cache=False)
    for value in (1.0, INF, -INF, NAN, 1e30):
        a = torch.ones(shape)
        a.view(-1)[1] = value
        (got,) = session.run([(X, a)])
        for (name, function), ours in zip(functions.items(), got, strict=True):
            squares = value == 1e30 and name in ("a layer norm", "a variance", "a norm")
            if not squares:  # beyond float32 (docs/numbers.md)
                assert torch.allclose(ours, function(X, a), 1e-4, 1e-4, equal_nan=True), (name, value)
