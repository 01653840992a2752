"""Which operands of a candidate wait in L1: every combination once, overrides operand by operand, shared DRAM."""

from __future__ import annotations

import numpy as np
import pytest

from tbuda_lab.core.balancer import OpModels, op_models
from tbuda_lab.core.balancer.l1 import load_times, preloads
from tbuda_lab.core.constraints import resolve
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import OverrideError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tests.placer.graphs import Sketch

BATCH = CompileOptions(microbatch=64)


def matmul(rows: int = 512, inner: int = 1024, cols: int = 1024):
    """A matmul with a weight and a bias that are both too large to be small."""
    s = Sketch()
    x, w, b = (s.input("x", 1, 1, rows, inner), s.parameter("w", 1, 1, inner, cols), s.parameter("b", 1, 1, rows, cols))
    return s.output(s.op("mm", HwMatmul(bias=True), (1, 1, rows, cols), x, w, b))


def table_with(graph: Graph, op: str, prologue: object, options: CompileOptions = BATCH) -> OpModels:
    """The candidates of an op of which an override says what is preloaded."""
    device = load_device("wormhole_b0")
    constraints = resolve([Override("prologue", op, prologue)], graph, device, options)
    return op_models(graph, device, options, constraints.checked().choices)[op]


def masks(rows: np.ndarray) -> set[int]:
    return set(rows["prologue"].tolist())


def test_every_combination_of_parameters_is_a_candidate_once() -> None:
    rows = op_models(matmul(), load_device("wormhole_b0"), BATCH)["mm"].rows
    one_core = rows[rows["cores"] == 1]  # nothing is small there
    assert masks(one_core) == {0b000, 0b010, 0b100, 0b110}
    names = [n for n in rows.dtype.names if n not in ("reason",) and not n.startswith(("l1", "nz"))]
    assert len(np.unique(rows[names])) == len(rows)


def test_four_parameters_are_tried_together_and_one_by_one() -> None:
    """Of many parameters not every combination: all, none, all but one, one alone."""
    from tbuda_lab.core.balancer.l1 import preload_choices

    assert len(preload_choices([0, 1])) == 4 and len(set(preload_choices([0, 1, 2]))) == 8
    assert set(preload_choices([0, 1, 2, 3])) == {0b1111, 0b0111, 0b1011, 0b1101, 0b1110, 1, 2, 4, 8, 0}


@pytest.mark.parametrize(
    ("value", "left"), [({1: False}, {0b000, 0b100}), ({1: True}, {0b010, 0b110}), ({1: True, 2: False}, {0b010})]
)
def test_an_override_decides_one_operand_and_leaves_the_others(value: dict[int, bool], left: set[int]) -> None:
    table = table_with(matmul(), "mm", value)
    rows = table.rows
    assert masks(rows[rows["cores"] == 1]) == left
    for port, on in value.items():
        assert (preloads(table.profile, port, rows) == on).all()


def test_a_small_parameter_may_be_streamed_and_a_batch_of_one_may_preload() -> None:
    s = Sketch()
    x, w = s.input("x", 1, 1, 64, 64), s.parameter("w", 1, 1, 64, 64)
    graph = s.output(s.op("add", HwBinary("add"), (1, 1, 64, 64), x, w))
    device = load_device("wormhole_b0")
    free = op_models(graph, device, BATCH)["add"].rows
    streamed = table_with(graph, "add", {1: False}).rows
    assert masks(free) == {0b10} and masks(streamed) == {0}
    assert (streamed["l1_param"] == 0).all() and (free["l1_param"] > 0).all()
    single = table_with(matmul(), "mm", {1: True}, CompileOptions()).rows
    assert preloads(op_models(matmul(), device, CompileOptions())["mm"].profile, 1, single).all()


@pytest.mark.parametrize("value", [{0: True}, {7: True}, {}, {1: 3}, True, {"1": True}])
def test_what_is_no_parameter_cannot_be_preloaded(value: object) -> None:
    with pytest.raises(OverrideError) as caught:
        table_with(matmul(), "mm", value)
    assert "operand 1" in caught.value.diagnostics[0].fix


def test_loads_share_dram_evenly_and_no_core_gets_more_than_half_an_access() -> None:
    """Against the same race in small steps of time."""
    device = load_device("grayskull")
    together = device.dram_bytes_per_cycle * device.dram_channels * device.dram_subchannels / 1.5
    sizes, cores = [3_000.0, 90_000.0, 20_000.0, 20_000.0], [40, 3, 12, 1]
    left, now, ended = np.array(sizes), 0.0, np.zeros(4)
    while (left > 0).any():
        active = sum(c for c, rest in zip(cores, left, strict=True) if rest > 0)
        rate = min(device.dram_bytes_per_cycle / 2, together / active)
        left, now = left - rate * (left > 0), now + 1.0
        ended[(left <= 0) & (ended == 0)] = now
    assert load_times(sizes, cores, device) == pytest.approx(ended, abs=4)
    one = load_times([5_500.0], [1], device)
    assert one == pytest.approx([5_500 / (device.dram_bytes_per_cycle / 2)])
