"""Streams that keep parameters in L1, counted from the netlist text alone (`tests/placer/router.py`)."""

from __future__ import annotations

import pytest

from tbuda_lab.core.device import load_device
from tbuda_lab.core.emit import emit
from tbuda_lab.core.graph import TM
from tbuda_lab.core.graph.tm import hslice, vslice
from tbuda_lab.core.lowering.hw_ops import HwBinary
from tbuda_lab.core.netlist import dumps
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tests.placer.graphs import Sketch, placed_as_chosen
from tests.placer.router import prefetched

LIMIT = 24  # placement.md#device-limits: kMaxPrefetchBufStreams
TMS: list[tuple[TM, ...]] = [(vslice(8), hslice(4)), (vslice(4), hslice(4)), (hslice(8),), ()]


@pytest.mark.parametrize("operands", [1, 2])
@pytest.mark.parametrize("tms", TMS, ids=str)
def test_a_core_has_streams_for_what_is_preloaded(tms: tuple[TM, ...], operands: int) -> None:
    """A sum on 8x4 cores whose slices are cut from all over its parameters: with eight slices of rows and four of
    columns, every core takes from every part of a parameter that lies in as many parts as the op has cores."""
    rows = cols = 1
    for tm in tms:
        rows, cols = (rows * int(tm.args[0]), cols) if tm.name == "vslice" else (rows, cols * int(tm.args[0]))
    s = Sketch()
    shape = (1, rows * cols, 256, 128)
    last = s.input("x", *shape)
    for i in range(operands):
        weight = s.parameter(f"w{i}", 1, 1, rows * 256, cols * 128)
        last = s.op(f"add{i}", HwBinary("add"), shape, last, (weight, tms))
    graph = s.output(last)
    device = load_device("wormhole_b0")
    options = CompileOptions(microbatch=64)
    sizes = [Override("op_size", f"add{i}", (8, 4), "code") for i in range(operands)]
    sizes += [Override("prologue", f"add{i}", {1: True}, "code") for i in range(operands)]
    placement = placed_as_chosen(graph, device, options, sizes)
    counted = prefetched(dumps(emit(graph, placement, device, 64).netlist))
    selected = [q for q in placement.queues.values() if q.kind == "parameter" and q.prologue]
    assert all(counted[f"add{i}"] <= LIMIT for i in range(operands))
    assert sum(counted.values()) > 0 and len(selected) == operands, "preloaded, or the test says nothing"
    if tms == TMS[0]:
        assert all(q.grid != (8, 4) for q in selected)
    else:
        assert all(q.grid == (8, 4) for q in selected)
