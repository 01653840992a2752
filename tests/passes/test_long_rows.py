"""Rows that no grid divides are cut into pieces; what comes out is what torch has, whatever stands in the padding."""

from __future__ import annotations

import copy
import dataclasses

import pytest
import torch

from tbuda_lab.core import passes
from tbuda_lab.core.errors import PlacementError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes.long_rows import Pieces, tiles
from tbuda_lab.core.session import Session

LONG = 67 * 32 - 5  # a prime number of tiles, the last one not full
FLOAT32 = CompileOptions(default_df_override=DataFormat.Float32)


class Head(torch.nn.Module):
    """The product that makes the row, and the softmax over it."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, size)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.log_softmax(self.linear(x), -1)


class Root(torch.nn.Module):
    """A mean of squares, and a largest element that an output and the row read."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        largest = x.amax(-1, keepdim=True)
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) - largest, largest


class Scale(torch.nn.Module):
    """A stored row and a stored column."""

    def __init__(self, size: int) -> None:
        super().__init__()
        generator = torch.Generator().manual_seed(1)
        self.weight = torch.nn.Parameter(torch.randn(size, generator=generator))
        self.bias = torch.nn.Parameter(torch.randn(3, 1, generator=generator))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x * self.weight + self.bias) - x.mean(-1, keepdim=True)


class OverRows(torch.nn.Module):
    """A sum over the rows, which leaves the long row as it is."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return x.tanh().sum(-2, keepdim=True) * 0.5, x.amax(-2, keepdim=True) - 1.0


class Moved(torch.nn.Module):
    """Nothing for the device to do: the row itself, a part of it, and the row among zeros."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return (
            x,
            x[..., 7:],
            torch.nn.functional.pad(x, (3, 5)),
            torch.relu(x)[..., :-2],
            torch.nn.functional.pad(-x, (1, 0)),
        )


class Rows(torch.nn.Module):
    """Whole rows one after the other, stacked, repeated, picked and exchanged."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        y = torch.tanh(x)
        joined = torch.cat([y, x, y], -2)
        return (
            joined.abs(),
            torch.stack([y, -x], -3).mean(-1),
            y[..., :1, :].expand(x.shape) + x,
            torch.softmax(joined.flip(-2), -1),
            torch.relu(y.unsqueeze(-3).transpose(-2, -3)) - 1.0,
            torch.nn.functional.pad(y, (0, 0, 1, 2)).amax(-1),
            joined[..., 1::2, :] * 2.0,
        )


class Mean(torch.nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.mean(self.dim, keepdim=True)


MODELS = {
    "rows": Rows(),
    "moved": Moved(),
    "over_rows": OverRows(),
    "softmax": torch.nn.Softmax(-1),
    "log_softmax": torch.nn.LogSoftmax(-1),
    "relu": torch.nn.ReLU(),
    "layernorm": torch.nn.LayerNorm(LONG),
    "root": Root(),
    "scale": Scale(LONG),
    "head": Head(LONG),
}
CASES = [
    ("softmax", (1,), 0.0),
    ("softmax", (40,), -90.0),
    ("softmax", (2, 3, 5), 0.0),
    ("log_softmax", (3,), -500.0),
    ("relu", (1,), 0.0),
    ("rows", (3,), 0.0),
    ("rows", (40,), 1.0),
    ("rows", (2, 5), -1.0),
    ("moved", (1,), 0.0),
    ("moved", (2, 40), 0.0),
    ("layernorm", (1,), -70.0),
    ("layernorm", (2, 40), 5.0),
    ("root", (3,), 2.0),
    ("root", (33,), -2.0),
    ("scale", (3,), 0.0),
    ("scale", (2, 3), 0.0),
    ("over_rows", (3,), 0.0),
    ("over_rows", (40,), -5.0),
    ("head", (1,), 0.0),
    ("head", (40,), 0.0),
    ("head", (40,), 1.0),
]


@pytest.mark.parametrize(
    ("name", "lead", "offset", "device"),
    [(*case, ("grayskull", "wormhole_b0", "blackhole")[k % 3]) for k, case in enumerate(CASES)],
)
def test_a_long_row_agrees_with_torch(name: str, lead: tuple[int, ...], offset: float, device: str) -> None:
    model = MODELS[name]
    x = torch.randn(*lead, 64 if name == "head" else LONG, generator=torch.Generator().manual_seed(0)) * 3 + offset
    session = Session(model, [x], device, FLOAT32, name="long")
    (found,) = session.run()
    wanted = copy.deepcopy(model).double()(x.double())
    for have, want in zip(found, wanted if isinstance(wanted, tuple) else (wanted,), strict=True):
        assert have.shape == want.shape
        torch.testing.assert_close(have.double(), want, rtol=1e-4, atol=1e-5 * float(want.detach().abs().max()))
    assert session.result is not None
    assert not any(node.shape[-1] == LONG for node in session.result.lowered.ops)


@pytest.mark.parametrize("size", [50257, 51865, 128256, 151936, 256000])
def test_vocabularies_are_cut_with_little_padding(size: int) -> None:
    graph = from_torch(torch.nn.Softmax(-1), (torch.zeros(1, size),), name="vocabulary")
    result = passes.run(graph)
    report = next(r for r in result.reports if r.name == "long_rows")
    rows, cols = result.graph.inputs[0].shape[-2:]
    assert report.rewrites and report.notes and rows * cols >= size
    assert rows % 32 == cols % 32 == 0 and rows * cols <= 1.15 * 1024 * tiles(tiles(size))


def test_what_else_reads_the_row_leaves_it_whole() -> None:
    model = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(LONG, 8))  # sums the row against weights
    report = next(
        r for r in passes.run(from_torch(model, (torch.zeros(1, LONG),), name="whole")).reports if r.name == "long_rows"
    )
    assert report.rewrites == 0


def test_shapes_of_pieces() -> None:
    matrix, slices = Pieces("matrix", 100, 4, 32), Pieces("slices", 100, 4, 32)
    assert matrix.shape((2, 100)) == (1, 2, 4, 32) and matrix.shape((1, 1, 2, 1)) == (1, 2, 1, 1)
    assert slices.shape((2, 100)) == (1, 4, 2, 32) and slices.shape((100,)) == (1, 4, 1, 32)


@pytest.mark.parametrize("shape", [(1, 40, 20000), (1, 1, 60000), (1, 20000, 40)])
def test_a_mean_of_more_numbers_than_float16_counts(shape: tuple[int, ...]) -> None:
    """1 / n is zero in Float16, and the sum is infinite."""
    x = torch.rand(shape, generator=torch.Generator().manual_seed(0)) + 1
    dim = -2 if shape[-1] == 40 else -1
    ((found,),) = Session(Mean(dim), [x], "n150", CompileOptions(default_df_override=DataFormat.Float16)).run()
    torch.testing.assert_close(found, x.mean(dim, keepdim=True), rtol=0.005, atol=0)


ALONG = {
    "joined": lambda x: torch.cat([torch.relu(x), torch.tanh(x)], -1).abs(),
    "joined_columns": lambda x: torch.relu(torch.cat([torch.relu(x), torch.tanh(x)], -2)),
    "shifted": lambda x: torch.relu(x)[..., 1:].tanh(),
    "every_second": lambda x: torch.relu(x)[..., ::2].tanh(),
    "rolled": lambda x: torch.tanh(torch.roll(torch.relu(x), 7, -1)),
    "turned": lambda x: torch.relu(x).transpose(-1, -2).tanh(),
    "turned_back": lambda x: torch.tanh(torch.relu(x).transpose(-1, -2)),
    "running": lambda x: torch.cumsum(torch.relu(x), -1),
}
PRIME = 1571 * 32  # tiles of a row or a column that no core holds


class Along(torch.nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = ALONG[self.kind](x)
        return result


@pytest.mark.parametrize(
    ("kind", "shape", "device"),
    [
        ("joined", (1, PRIME), "wormhole_b0"),
        ("joined_columns", (PRIME, 1), "grayskull"),
        ("shifted", (3, PRIME), "blackhole"),
        ("every_second", (1, PRIME), "grayskull"),
        ("rolled", (1, PRIME), "wormhole_b0"),
        ("turned", (PRIME, 1), "blackhole"),
        ("turned_back", (1, PRIME), "grayskull"),
        ("running", (1, 601 * 32), "grayskull"),
    ],
)
def test_a_move_along_a_row_that_no_core_holds_is_the_hosts(kind: str, shape: tuple[int, int], device: str) -> None:
    model, x = Along(kind), torch.randn(1, *shape, generator=torch.Generator().manual_seed(0))
    session = Session(model, [x], device, FLOAT32, name="along")
    ((found,),) = session.run()
    torch.testing.assert_close(found.double(), ALONG[kind](x.double()), rtol=1e-5, atol=1e-5)
    assert session.result is not None


def test_a_move_along_a_row_that_no_core_holds_is_told_or_refused() -> None:
    x = torch.ones(1).expand(1, 1, PRIME)
    session = Session(Along("shifted"), [x], "n150", FLOAT32, name="along")
    session.compile()
    assert session.result is not None
    (note,) = [found for found in session.result.diagnostics if found.rule == "cpu-fallback"]
    assert "test_long_rows.py" in note.where and "1 x 1571 tiles" in note.message
    device_alone = dataclasses.replace(FLOAT32, cpu_fallback="none")
    with pytest.raises(PlacementError, match="1 x 1 x 1571 tiles"):
        Session(Along("shifted"), [x], "n150", device_alone, name="along").compile()
