"""torch.compile with our backend: torch's own answers, graphs at breaks, shapes kept, sessions to look at."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.pybuda.torch_compile import compile_torch
from tbuda_lab.serving.torch_backend import sessions, tbuda
from tests.frontend.ops_zoo import Fn

OPTIONS = {"df": "Float32"}


class Broken(nn.Module):
    """Two graphs with a break between them; a shape is returned too."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(16, 32), nn.Sequential(nn.Linear(32, 8), nn.BatchNorm1d(8))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, int]:
        y = torch.relu(self.first(x))
        torch._dynamo.graph_break()
        return self.second(y), x.shape[0]


@pytest.fixture(autouse=True)
def _fresh() -> None:
    torch._dynamo.reset()
    torch.manual_seed(0)


def test_graphs_at_breaks_and_shapes_that_are_kept() -> None:
    model = Broken().eval()
    compiled = torch.compile(model, backend=tbuda, options=OPTIONS)
    before = len(sessions())
    with torch.no_grad():
        for rows in (3, 3, 5):
            x = torch.randn(rows, 16)
            (got, count), (want, _) = compiled(x), model(x)
            torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
            assert count == rows
    result = sessions()[before:]
    assert len(result) == 4  # two graphs, two shapes
    named = {name for session in result for name in (n.name for n in session.trace())}
    assert {"first.weight", "second.0.bias", "second.1.running_mean"} <= named
    assert {n.origin.module for session in result for n in session.trace().ops} >= {"first", "second.0", "second.1"}
    assert all(session.compile().placement.ops for session in result)


def test_graphs_of_several_inputs() -> None:
    class Sums(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return torch.tanh(x) @ y

    x, y = torch.randn(2, 4, 8), torch.randn(2, 8, 3)
    with torch.no_grad():
        got = torch.compile(Sums(), backend=tbuda, options=OPTIONS)(x, y)
    torch.testing.assert_close(got, torch.tanh(x) @ y, rtol=1e-4, atol=1e-4)


def test_new_weights_are_seen() -> None:
    model = nn.Linear(8, 8).eval()
    compiled = torch.compile(model, backend=compile_torch, options=OPTIONS)
    x = torch.randn(2, 8)
    with torch.no_grad():
        compiled(x)
        model.weight.mul_(2)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)


def test_without_no_grad_it_says_that_it_infers() -> None:
    compiled = torch.compile(nn.Linear(8, 8).eval(), backend=tbuda)
    with pytest.warns(UserWarning, match="no gradient"):
        compiled(torch.randn(2, 8))


def test_unknown_options_and_ops_are_refused() -> None:
    with pytest.raises(Exception, match="has no option 'chips'") as caught:
        torch.compile(nn.Linear(8, 8), backend=tbuda, options={"chips": 2})(torch.randn(2, 8))
    assert isinstance(getattr(caught.value, "inner_exception", caught.value), InputError)

    class Noisy(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.bernoulli(x)

    with torch.no_grad(), pytest.raises(TbudaError, match=r"test_torch_backend\.py.*random numbers"):
        torch.compile(Noisy(), backend=tbuda)(torch.eye(4)[None])


def test_ops_that_only_the_host_has_run_there() -> None:
    class Inverse(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.linalg.inv(torch.relu(x) + torch.eye(4))

    x = torch.randn(1, 4, 4)
    with torch.no_grad():
        have = torch.compile(Inverse(), backend=tbuda, options=OPTIONS)(x)
        torch.testing.assert_close(have, Inverse()(x), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    "model",
    [
        Fn(lambda x: (x + 1, x.argmax(-1), (x > 0).long(), x * 2)),  # whole numbers between floats
        Fn(lambda x: (torch.linalg.inv(x + 9 * torch.eye(4)), (x > 0).long(), x.relu())),  # and an op of the host
        Fn(lambda x: (x > 0).sum(-1)),  # nothing that a device holds exactly
    ],
)
def test_outputs_of_whole_numbers_keep_their_place(model: nn.Module) -> None:
    x = torch.randn(2, 4, 4)
    with torch.no_grad():
        have, want = torch.compile(model, backend=tbuda, options=OPTIONS)(x), model(x)
    for one, other in zip(pytree.tree_leaves(have), pytree.tree_leaves(want), strict=True):
        assert one.dtype == other.dtype
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def test_a_graph_of_weights_alone_is_computed_once() -> None:
    class Gated(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line, self.gate = nn.Linear(4, 4), nn.Parameter(torch.ones(3))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            table = self.gate * 3
            torch._dynamo.graph_break()
            return self.line(x) * table.sum()

    x, model = torch.randn(2, 4), Gated().eval()
    with torch.no_grad():
        have = torch.compile(model, backend=tbuda, options=OPTIONS)(x)
        torch.testing.assert_close(have, model(x), rtol=1e-4, atol=1e-4)


def test_torch_finds_it_by_name() -> None:
    """By the entry point that the package declares."""
    declared = tomllib.loads((Path(__file__).parents[2] / "pyproject.toml").read_text(encoding="utf-8"))
    entry = declared["project"]["entry-points"]["torch_dynamo_backends"]["tbuda"]
    module, _, name = entry.partition(":")
    assert getattr(__import__(module, fromlist=[name]), name) is tbuda


class OwnAttributes(nn.Module):
    """Looks attributes up itself, as the models of diffusers do."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.gain = nn.Linear(8, 8), nn.Parameter(torch.ones(8))
        self.register_buffer("shift", torch.ones(8))

    def __getattr__(self, name: str) -> Any:
        return 2.0 if name == "factor" else super().__getattr__(name)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.layer(x) * self.factor + self.shift * self.gain


def test_modules_with_a_getattr_of_their_own() -> None:
    model, x = OwnAttributes().eval(), torch.randn(1, 8)
    compiled = torch.compile(model, backend="tbuda", options={"df": "Float32"})
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-4, atol=1e-4)
