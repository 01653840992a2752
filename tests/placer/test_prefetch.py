"""Streams that keep parameters in L1, counted from the netlist text alone (`tests/placer/router.py`)."""

from __future__ import annotations

import pytest
import torch

from tbuda_lab.core.balancer.l1 import ENCODING, preloads
from tbuda_lab.core.compiler import compile_graph
from tbuda_lab.core.compiler.result import CompileResult
from tbuda_lab.core.device import load_device
from tbuda_lab.core.emit import emit
from tbuda_lab.core.errors import OverrideError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import TM
from tbuda_lab.core.graph.tm import hslice, vslice
from tbuda_lab.core.lowering.hw_ops import HwBinary
from tbuda_lab.core.netlist import check, dumps
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tests import pairs
from tests.placer.graphs import Sketch, placed_as_chosen
from tests.placer.router import prefetched
from tests.placer.test_objective import trained

LIMIT = 24  # placement.md#device-limits: kMaxPrefetchBufStreams
TMS: list[tuple[TM, ...]] = [(vslice(8), hslice(4)), (vslice(4), hslice(4)), (hslice(8),), ()]


@pytest.mark.parametrize("operands", [1, 2])
@pytest.mark.parametrize("tms", TMS, ids=str)
def test_a_core_has_streams_for_what_is_preloaded(tms: tuple[TM, ...], operands: int) -> None:
    """A sum on 8x4 cores whose slices are cut from all over its parameters. With eight slices of rows and four of
    columns every core reads from every part, and 32 tiles are more than its buffer holds: they stay as they lie, and a
    core that has a part sends it to all 32."""
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
    if tms == TMS[0]:
        with pytest.raises(OverrideError, match="24 extra streams of a core"):
            placed_as_chosen(graph, device, options, sizes)
        return
    placement = placed_as_chosen(graph, device, options, sizes)
    counted = prefetched(dumps(emit(graph, placement, device, 64).netlist))
    selected = [q for q in placement.queues.values() if q.kind == "parameter" and q.prologue]
    assert all(counted[f"add{i}"] <= LIMIT for i in range(operands))
    assert sum(counted.values()) > 0 and len(selected) == operands, "preloaded, or the test says nothing"
    assert all(q.grid == (8, 4) for q in selected)


def feed_forward(device: str, batch: int) -> CompileResult:
    """The part of a BERT layer after its attention: in Float32 an erf of eleven scalars, each more than its buffer."""
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(768, 3072), torch.nn.GELU(), torch.nn.Linear(3072, 768)).eval()
    graph = from_torch(module, (torch.randn(1, 128, 768),), name="m")
    options = CompileOptions(default_df_override=DataFormat.Float32, microbatch=batch)
    return compile_graph(graph, device, options)


def wanted(result: CompileResult, written: bool) -> list[tuple[str, bool]]:
    """(queue, whether it is preloaded) of all that candidates want preloaded. written: also what ops write."""
    placement, wanted = result.placement, []
    for op, spot in placement.ops.items():
        profile, rows = placement.models[op].profile, placement.models[op].rows[spot.row : spot.row + 1]
        assert profile is not None
        for port, edge in enumerate(result.lowered[op].inputs):
            queue = placement.queues.get(edge.source)
            if queue is not None and bool(preloads(profile, port, rows)[0]) and (written or not queue.writer):
                wanted.append((queue.name, queue.prologue))
    return wanted


# one input is searched on, and what its epochs preload is chosen by the time to its end
@pytest.mark.parametrize(("device", "batch"), pairs(["grayskull", "wormhole_b0"], [4, 8]))
def test_scalars_of_float32_are_preloaded_as_far_as_cores_have_streams(device: str, batch: int) -> None:
    result = feed_forward(device, batch)
    assert not [f for f in check(result.netlist, device) if f.rule in ("N17", "R6")]
    assert wanted(result, True) and all(preloaded for _, preloaded in wanted(result, True))


@pytest.mark.parametrize(("device", "batch"), pairs(["grayskull", "wormhole_b0"], [1, 8]))
def test_an_optimizer_preloads_as_far_as_cores_have_streams(device: str, batch: int) -> None:
    result = trained(device, batch, "adamw")
    assert not [f for f in check(result.netlist, device) if f.rule in ("N17", "R6")]
    assert wanted(result, False) and all(preloaded for _, preloaded in wanted(result, False))


def test_an_encoding_that_l1_has_no_room_for_counts_as_its_reads_enlarge_it() -> None:
    """Two convolutions and a pool on 128 x 128 pixels in Float32: the pool's pickers fill a core but for a few KiB, and
    their encodings are streamed. The check of the netlist counts by itself (rule R6)."""
    convolutions = [torch.nn.Conv2d(c, 32, 3, padding=1, bias=False) for c in (3, 32)]
    layers = [m for c in convolutions for m in (c, torch.nn.BatchNorm2d(32), torch.nn.ReLU())]
    module = torch.nn.Sequential(*layers, torch.nn.MaxPool2d(2, 2)).eval()
    options = CompileOptions(default_df_override=DataFormat.Float32)
    result = compile_graph(from_torch(module, (torch.zeros(1, 3, 128, 128),)), "grayskull", options)
    pickers = [n for n in result.placement.ops if "max_pool2d_rows" in n and result.placement.candidate(n)["m_k"]]
    assert not all(result.placement.candidate(n)["prologue"] & ENCODING for n in pickers)
    assert not [f for f in check(result.netlist, load_device("grayskull")) if f.rule in ("N17", "R6")]
