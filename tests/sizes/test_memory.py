"""What a machine has not the memory for is refused by a typed error before it is taken."""

from __future__ import annotations

import pytest
import torch

from tbuda_lab.core import ops
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError, PlacementError, UnsupportedOp
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.lowering.test_lowering import build

BATCH = 16


def with_memory(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    monkeypatch.setattr("tbuda_lab.sim.arrays.physical", lambda: size)


def tanh_of_a_tile() -> Session:
    return Session(torch.nn.Tanh(), [torch.randn(1, 32, 32)], "n150", CompileOptions(microbatch=BATCH), name="one")


def test_a_run_is_refused_by_what_its_queues_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    session = tanh_of_a_tile()
    session.compile()
    need = 2 * BATCH * 32 * 32 * 4  # a tile of each input and output, float32
    with_memory(monkeypatch, need * 4 // 3 - 4)
    with pytest.raises(InputError, match=f"2 queues for {BATCH} inputs.*this machine has") as refused:
        session.run()
    assert all(f"fewer than {BATCH} inputs" in found.fix for found in refused.value.diagnostics)
    with_memory(monkeypatch, need * 4 // 3 + 4)
    session.run()


@pytest.mark.uncached
def test_a_simulation_is_refused_before_its_times_are_made(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 64)
    with pytest.raises(PlacementError, match=r"steps of \d+ inputs.*GB are needed"):
        tanh_of_a_tile().compile()


def test_a_kernel_is_refused_by_the_pixels_that_it_reads(monkeypatch: pytest.MonkeyPatch) -> None:
    wide = ops.ConvRows((16, 16), (5, 5), (1, 1), (2, 2, 2, 2), (1, 1), 1)
    graph = build(wide, (1, 1, 256, 8), (8, 8, 5, 5), parameters=(1,))
    lower(graph, load_device("n150"), CompileOptions())
    with_memory(monkeypatch, 25 * 256 * 100)  # which may be taken to three quarters
    with pytest.raises(UnsupportedOp, match=r"5 x 5 reads 6,400 pixels.*smaller kernel"):
        lower(graph, load_device("n150"), CompileOptions())


class Weight(torch.nn.Module):
    """A product with weights that are one number, so that they take no memory here."""

    def __init__(self, cols: int) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(1).expand(32, cols), requires_grad=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.weight


def test_weights_larger_than_dram_are_refused_before_they_are_copied() -> None:
    cols = 2 * 10**8
    size = 32 * cols // 1024 * (1024 * 2 + 32)  # tiles of two bytes a number, with a header
    spec = load_device("n150")
    room = sum(spec.dram_end(channel) - spec.dram_start(channel) for channel in range(spec.dram_channels))
    assert room < size
    with pytest.raises(PlacementError, match=rf"{size:,} bytes in Float16_b.*{room:,}") as refused:
        Session(Weight(cols), [torch.ones(1, 32)], "n150", name="weights").compile()
    assert [found.rule for found in refused.value.diagnostics] == ["dram-full"]


class Counted(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, :1] + torch.arange(10_000)


def test_a_constant_is_refused_by_its_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    with_memory(monkeypatch, 10_000 * 80)  # of which it may take three quarters
    with pytest.raises(UnsupportedOp, match=r"test_memory.py:\d+.*constant of 10,000 elements.*this machine has"):
        Session(Counted().eval(), [torch.ones(1, 32)], "n150", name="counted").compile()


@pytest.mark.parametrize(
    ("move", "shape", "places"),
    [
        (ops.Pad(((0, 0), (0, 0), (3, 1000))), (1, 40, 32), "1,035 rows or columns"),
        (ops.Pad(((0, 0), (3, 1000), (0, 0))), (1, 40, 32), "1,043 rows or columns"),
        (ops.Index(-1, 1, 1001), (1, 32, 1002), "1,000 rows or columns"),
        (ops.Reshape((1, 1000, 5)), (1, 1, 5000), "32,000 rows or columns"),
        (ops.Transpose(-3, -2), (100, 10, 32), "1,000 rows or columns"),
    ],
)
def test_a_move_is_refused_by_the_places_that_it_lists(
    monkeypatch: pytest.MonkeyPatch, move: ops.NdOp, shape: tuple[int, ...], places: str
) -> None:
    graph = build(move, shape)
    with_memory(monkeypatch, 64 * 1000)
    with pytest.raises(UnsupportedOp, match=rf"{places} one by one.*fewer of them"):
        lower(graph, load_device("n150"), CompileOptions())
