"""Which softmaxes can see no infinity: what a layernorm, a sigmoid or another softmax bounds, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import nn

from tbuda_lab.core import passes
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes.base import Report
from tbuda_lab.core.session import Session

FORMATS = CompileOptions(default_df_override=DataFormat.Float16)


class Rows(nn.Module):
    """A softmax of what `make` gives of x and of x normalised."""

    def __init__(self, make: Callable[..., torch.Tensor]) -> None:
        super().__init__()
        self.norm, self.linear, self.make = nn.LayerNorm(32), nn.Linear(32, 32), make

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.make(self, x, self.norm(x)).softmax(-1)


def report(module: nn.Module, options: CompileOptions | None = None) -> Report:
    graph = from_torch(module.eval(), {"x": torch.randn(1, 8, 32)})
    (found,) = (r for r in passes.run(graph, options or CompileOptions()).reports if r.name == "finite_rows")
    return found


@pytest.mark.parametrize(
    ("make", "finite"),
    [
        (lambda m, x, n: n, True),
        (lambda m, x, n: x, False),
        (lambda m, x, n: x - n, False),
        (lambda m, x, n: m.linear(x), False),
        (lambda m, x, n: m.linear(n) @ m.linear(n).transpose(-1, -2) / 4, True),
        (lambda m, x, n: m.linear(n) @ m.linear(x).transpose(-1, -2), False),
        (lambda m, x, n: torch.where(torch.ones(8, 32).tril().bool(), n, torch.tensor(-torch.inf)), True),
        (lambda m, x, n: x.sigmoid() * 3 + x.tanh(), True),
        (lambda m, x, n: x.clamp(-5, 5), True),
        (lambda m, x, n: x.clamp(min=-5), False),
        (lambda m, x, n: n.exp(), False),
        (lambda m, x, n: torch.cat([n, x], -1), False),
        (lambda m, x, n: x.softmax(-1) * 2, True),
    ],
)
def test_what_is_bounded(make: Callable[..., torch.Tensor], finite: bool) -> None:
    names = report(Rows(make)).notes
    assert any("softmax" in name for name in names) is finite


def test_large_weights_and_small_formats_are_not_bounded() -> None:
    square = Rows(lambda m, x, n: m.linear(n) @ m.linear(n).transpose(-1, -2))
    assert report(square).rewrites == 1
    assert report(square, FORMATS).rewrites == 0, "65,504 is soon reached"
    with torch.no_grad():
        square.linear.weight[0, 0] = 1e18
    assert report(square).rewrites == 0


def test_two_ops_fewer_and_an_infinity_before_the_layernorm_is_still_torchs() -> None:
    module, x = Rows(lambda m, x, n: n * 3).eval(), torch.randn(1, 8, 32)
    x[0, 2, 5], x[0, 3, 1] = torch.inf, -torch.inf
    session = Session(module, (x,), options=CompileOptions(default_df_override=DataFormat.Float32))
    (got,) = session.run()[0]
    torch.testing.assert_close(got, module(x), rtol=1e-3, atol=1e-4, equal_nan=True)
    careful = Session(Rows(lambda m, x, n: x), (x,), options=session.options)
    ops = [
        sum(".softmax" in n.name or n.name.startswith("softmax") for n in s.graph("passed").ops)
        for s in (session, careful)
    ]
    assert ops[0] == ops[1] - 2
