"""What a machine has not the memory for is refused by a typed error before it is taken."""

from __future__ import annotations

import pytest
import torch

from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError, PlacementError, UnsupportedOp
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.ops import ConvRows
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
    wide = ConvRows((16, 16), (5, 5), (1, 1), (2, 2, 2, 2), (1, 1), 1)
    graph = build(wide, (1, 1, 256, 8), (8, 8, 5, 5), parameters=(1,))
    lower(graph, load_device("n150"), CompileOptions())
    with_memory(monkeypatch, 25 * 256 * 100)  # which may be taken to three quarters
    with pytest.raises(UnsupportedOp, match=r"5 x 5 reads 6,400 pixels.*smaller kernel"):
        lower(graph, load_device("n150"), CompileOptions())
