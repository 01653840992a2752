"""Chains of moves that make an image of an image stay in rows, and compute what torch computes."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional as F

from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.ops import Reshape
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes import run

Tensor = torch.Tensor


def shuffled(x: Tensor, groups: int) -> Tensor:
    n, c, h, w = x.shape
    return x.view(n, groups, c // groups, h, w).transpose(1, 2).reshape(n, c, h, w)


def tripled(x: Tensor) -> Tensor:
    n, c, h, w = x.shape
    return x[:, :, :, None, :, None].expand(n, c, h, 3, w, 3).reshape(n, c, 3 * h, 3 * w)


MOVES: dict[str, Callable[[Tensor], Tensor]] = {
    "channel shuffle": lambda x: shuffled(x, 3),
    "shuffled twice": lambda x: shuffled(shuffled(x, 3), 4),
    "halves of a shuffle": lambda x: torch.cat([-shuffled(x, 2)[:, :5], shuffled(x, 2)[:, 5:]], 1),
    "repeated": lambda x: x.repeat_interleave(2, 2).repeat_interleave(2, 3),
    "expanded": tripled,
    "looked up": lambda x: x[:, :, torch.tensor([3, 0, 2, 2])[:, None], torch.tensor([4, 1, 0])],
    "turned": lambda x: x.transpose(2, 3),
    "turned and mirrored": lambda x: x.flip(2).transpose(2, 3).flip(2),
    "nearest": lambda x: F.interpolate(x, (11, 7), mode="nearest-exact"),
    "cubic": lambda x: F.interpolate(x, scale_factor=2, mode="bicubic"),
    "tokens": lambda x: x.flatten(2).transpose(1, 2).reshape(1, 5, 6, 12).permute(0, 3, 1, 2),
    "normed with channels last": lambda x: 0.1 * F.layer_norm(x.permute(0, 2, 3, 1), (12,)).permute(0, 3, 1, 2) + x,
    "in strips": lambda x: x.view(1, 12, 1, 30),
}
DEPENDENT: dict[str, Callable[[Tensor], Tensor]] = {
    "channels as rows": lambda x: x.permute(0, 2, 1, 3),
    "regrouped": lambda x: x.reshape(1, 6, 10, 6),
    "weighed": lambda x: torch.softmax(x @ x.transpose(2, 3), -1) @ x,
    "sheared": lambda x: x.flatten(2).transpose(1, 2).reshape(1, 12, 5, 6),
}


class Between(torch.nn.Module):
    """Moves between two convolutions."""

    def __init__(self, move: Callable[[Tensor], Tensor], channels: int) -> None:
        super().__init__()
        self.move = move
        self.first, self.last = torch.nn.Conv2d(3, 12, 3, padding=1), torch.nn.Conv2d(channels, 4, 1)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.last(self.move(self.first(x)))
        return result


def passed(move: Callable[[Tensor], Tensor]) -> Graph:
    torch.manual_seed(0)
    x = torch.randn(1, 3, 5, 6)
    with torch.no_grad():
        model = Between(move, move(torch.zeros(1, 12, 5, 6)).shape[1]).eval()
        expected = model(x)
    traced = from_torch(model, (x,), name="moves")
    graph = run(traced, CompileOptions()).graph
    for g in (traced, graph):
        (source,), (got,) = g.inputs, evaluate(g, {g.inputs[0].name: x}).values()
        assert source.name and torch.allclose(got.reshape(expected.shape), expected, rtol=1e-4, atol=1e-4)
    return graph


@pytest.mark.parametrize("name", MOVES)
def test_images_of_images_stay_in_rows(name: str) -> None:
    graph = passed(MOVES[name])
    assert all(n.shape[:2] == (1, 1) for n in graph.ops)
    assert not [n.name for n in graph.ops if isinstance(n.op, Reshape)]


@pytest.mark.parametrize("name", DEPENDENT)
def test_what_mixes_channels_and_pixels_is_moved_as_before(name: str) -> None:
    assert passed(DEPENDENT[name]).outputs
