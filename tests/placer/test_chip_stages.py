"""Pipelines over chips: the best division by brute force, and placements on clusters checked from outside."""

from __future__ import annotations

import itertools
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.constraints import resolve
from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.epochsim import simulated_cycles
from tbuda_lab.core.errors import OverrideError, PlacementError
from tbuda_lab.core.formats import DataFormat, tile_bytes
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwUnary, tile_shape
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer import Outcome, place_and_repair
from tbuda_lab.core.placer.interactive.engine import IncrementalPlacer
from tbuda_lab.core.placer.model.chip_stages import Rules, divide, link_cycles, temporal_epochs
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.record import from_record, to_record
from tbuda_lab.core.placer.stalls.epoch_throughput import Trial
from tests.placer.graphs import Sketch, encoder, linear
from tests.placer.test_place import check, placed


def brute(costs: dict[tuple[int, int], int], n: int, rule: Rules) -> int | None:
    """The least slowest stage over all ways to cut n ops into epochs and to give these to stages in order."""
    best: int | None = None
    for cuts in itertools.product((False, True), repeat=n - 1):
        ends = [i + 1 for i, cut in enumerate(cuts) if cut] + [n]
        path = list(zip([0, *ends[:-1]], ends, strict=True))
        if any(e not in costs for e in path):
            continue
        for stages in itertools.combinations_with_replacement(range(rule.stages), len(path)):
            broken = any(f in rule.breaks and f and stages[i] == stages[i - 1] for i, (f, _) in enumerate(path))
            spans = [rule.span(*e) for e in path]
            if broken or any(s is None or not s[0] <= g <= s[1] for s, g in zip(spans, stages, strict=True)):
                continue
            sums = [sum(costs[e] for e, g in zip(path, stages, strict=True) if g == k) for k in range(rule.stages)]
            sums += [rule.link(path[i][0]) for i in range(1, len(path)) if stages[i] != stages[i - 1]]
            best = max(sums) if best is None else min(best, max(sums))
    return best


@given(st.data(), st.integers(1, 6), st.integers(1, 4))
def test_the_division_is_the_best_there_is(data: st.DataObject, n: int, stages: int) -> None:
    spans = [(i, j) for i in range(n) for j in range(i + 1, n + 1)]
    keep = data.draw(st.sets(st.sampled_from(spans))) | {(i, i + 1) for i in range(n)}
    costs = {span: data.draw(st.integers(1, 60)) * 100 for span in sorted(keep)}
    ops, stage = st.integers(0, n - 1), st.integers(0, stages - 1)
    rule = Rules(
        stages,
        frozenset(data.draw(st.sets(ops, max_size=1))),
        data.draw(st.dictionaries(ops, stage, max_size=2)),
        data.draw(st.dictionaries(ops, stage, max_size=1)),
        tuple(100.0 * c for c in data.draw(st.lists(st.integers(0, 80), min_size=n, max_size=n))),
    )
    lists = []
    for first in range(n):
        ends = [last for f, last in sorted(keep) if f == first]
        lists.append((np.array(ends, dtype=np.int64), np.array([float(costs[first, e]) for e in ends])))
    result, expected = divide(lists, rule), brute(costs, n, rule)
    if expected is None:
        assert result is None
        return
    assert result is not None
    assert [first for first, _, _ in result] == [0, *(last for _, last, _ in result)][:-1] and result[-1][1] == n
    numbers = [g for _, _, g in result]
    assert numbers == sorted(numbers)
    sums = [sum(costs[f, e] for f, e, g in result if g == k) for k in range(stages)]
    sums += [rule.link(b[0]) for a, b in itertools.pairwise(result) if a[2] != b[2]]
    assert expected <= max(sums) <= expected * 1.002 + 2


def test_temporal_epochs_end_where_a_chip_comes_again() -> None:
    assert temporal_epochs([1, 1, 0, 0], "wormhole_b0") == [0, 1, 1, 2]
    assert temporal_epochs([0, 1, 2, 0, 2, 2], "wormhole_b0") == [0, 0, 0, 1, 1, 2]
    assert temporal_epochs([0, 1], "grayskull") == [0, 1]


@pytest.mark.parametrize("chips", [2, 8, 32])
@pytest.mark.parametrize("policy", ["MMIO_LAST", "SNAKE"])
def test_a_model_goes_through_the_chips_once_and_ends_at_the_host(chips: int, policy: str) -> None:
    graph, device = encoder(4), load_device("wormhole_b0", chips=chips)
    overrides = tuple(Override("epoch_break", f"l{i}.q") for i in range(1, 4))
    p = placed(graph, device, overrides, chip_placement_policy=policy)
    check(graph, device, p)
    used = [e.chip for e in p.epochs]
    assert [c for c, _ in itertools.groupby(used)] == list(dict.fromkeys(used))
    assert used[-1] in device.mmio_chips and len(set(used)) == min(chips, len(p.epochs))
    assert [e.temporal for e in p.epochs] == temporal_epochs(used, device.arch)
    for q in p.queues.values():
        readers = {p.ops[n].chip for n, _ in graph.users()[q.source] if n in p.ops} if q.kind != "output" else set()
        assert not readers or q.chip in readers or q.kind.startswith("sparse")


def test_links_carry_what_is_made_before_a_stage_and_read_in_it_or_later() -> None:
    """Counted tensor by tensor, for every op that a stage could begin with."""
    graph, device, options = encoder(2), load_device("n300"), CompileOptions()
    order = schedule(graph)
    problem = Problem.of(graph, op_models(graph, device, options), device, options, order)
    at = {name: i for i, name in enumerate(order)}
    result = link_cycles(problem, device.chips)
    links = device.neighbours(device.chips[0])[device.chips[1]]
    for begin in range(len(order)):
        size = 0
        for name in order[:begin]:
            if any(at[u] >= begin for u, _ in graph.users()[name] if u in at):
                z, rt, ct = tile_shape(graph[name].shape)
                size += z * rt * ct * tile_bytes(DataFormat.Float16_b)
        assert result[begin] == pytest.approx(size / (0.9 * links * device.eth_bytes_per_cycle))
    assert link_cycles(problem, device.chips[:1]) == ()


def test_a_stage_begins_where_little_crosses() -> None:
    """Two epochs of equal cycles on either side of a narrow and a wide cut: the wide one would hold the pipeline up."""
    lists = [
        (np.array([1]), np.array([100.0])),
        (np.array([2]), np.array([90.0])),
        (np.array([3]), np.array([100.0])),
    ]
    free, tight = Rules(2), Rules(2, links=(0.0, 500.0, 20.0))
    assert [s for _, _, s in divide(lists, free) or ()] in ([0, 1, 1], [0, 0, 1])
    assert [s for _, _, s in divide(lists, tight) or ()] == [0, 0, 1]
    assert [s for _, _, s in divide(lists, Rules(2, links=(0.0, 20.0, 500.0))) or ()] == [0, 1, 1]
    assert [s for _, _, s in divide(lists, Rules(2, links=(0.0, 900.0, 900.0))) or ()] == [0, 0, 0]


def test_outputs_leave_from_a_chip_that_the_host_reaches() -> None:
    s = Sketch()
    s.output(s.input("x", 1, 1, 64, 64), "early")
    graph = s.output(encoder_on(s), "late")
    device = load_device("n300")
    p = placed(graph, device, (Override("epoch_break", "up"), Override("epoch_break", "down")))
    check(graph, device, p)
    for node in graph.of_kind(NodeKind.OUTPUT):
        assert p.queues[node.name].chip in device.mmio_chips


def encoder_on(s: Sketch) -> str:
    return linear(s, "down", linear(s, "up", "x", 64, 64, 512), 64, 512, 64)


def test_chip_breaks_and_chip_pins_make_stages() -> None:
    graph, device = encoder(3), load_device("wormhole_b0", chips=4)
    p = placed(graph, device, (Override("chip_break", "l1.q"), Override("chip_break", "l2.q")))
    stages = [p.ops[f"l{i}.q"].chip for i in range(3)]
    assert len(set(stages)) == 3 and p.ops["l0.add2"].chip == stages[0] != p.ops["l1.o"].chip
    pinned = placed(graph, device, (Override("op_placement", "l1.q", {"chip": 2}),))
    check(graph, device, pinned)
    assert pinned.ops["l1.q"].chip == 2
    with pytest.raises(OverrideError, match="5 chips"):
        placed(graph, device, tuple(Override("chip_break", f"l1.{n}") for n in ("q", "k", "v", "score")))


def test_pins_that_go_back_to_a_chip_are_kept() -> None:
    graph, device = encoder(3), load_device("n300")
    overrides = tuple(Override("op_placement", f"l{i}.q", {"chip": i % 2}) for i in range(3))
    p = placed(graph, device, overrides)
    check(graph, device, p)
    assert [p.ops[f"l{i}.q"].chip for i in range(3)] == [0, 1, 0]


def test_queues_between_chips_hold_a_batch_for_every_stage_they_pass() -> None:
    graph, device = encoder(3), load_device("wormhole_b0", chips=4)
    p = placed(graph, device, (Override("chip_break", "l1.q"), Override("chip_break", "l2.q")), microbatch=4)
    crossing = [q for q in p.queues.values() if q.kind == "e2e" and p.ops[q.source].chip != q.chip]
    assert crossing and all(q.entries == 8 for q in crossing)


def as_chosen(graph: Graph, overrides: tuple[Override, ...] = (), arch: str = "n300", **given: object) -> Outcome:
    device, options = load_device(arch, chips=2), CompileOptions(**given)  # type: ignore[arg-type]
    constraints = resolve(overrides, graph, device, options).checked()
    return place_and_repair(graph, op_models(graph, device, options, constraints.choices), device, options, constraints)


def batch_cycles(outcome: Outcome) -> int:
    problem = outcome.problem
    inputs = problem.options.microbatch
    return simulated_cycles(Trial(outcome.graph, outcome.placement, problem.device, {}), inputs)


def chips_in(outcome: Outcome) -> set[int]:
    return {epoch.chip for epoch in outcome.placement.epochs}


def perceptron() -> Graph:
    s = Sketch()
    up = linear(s, "up", s.input("x", 1, 1, 32, 1024), 32, 1024, 1024)
    return s.output(linear(s, "down", up, 32, 1024, 64))


@pytest.mark.parametrize("arch", ["n300", "grayskull"])
@pytest.mark.parametrize("batch", [1, 16])
def test_a_batch_is_not_slower_than_on_one_chip_or_on_several(batch: int, arch: str) -> None:
    graph = perceptron()
    chosen = as_chosen(graph, arch=arch, microbatch=batch)
    stages = as_chosen(graph, (Override("chip_break", "down"),), arch, microbatch=batch)
    pins = tuple(Override("op_placement", node.name, {"chip": 0}) for node in graph.ops)
    alone = as_chosen(graph, pins, arch, microbatch=batch)
    assert len(chips_in(stages)) == 2 and chips_in(alone) == {0}
    assert 0.97 * batch_cycles(chosen) <= min(batch_cycles(stages), batch_cycles(alone))


@pytest.mark.parametrize("batch", [1, 16])
def test_a_chip_more_costs_no_more_than_3_percent(batch: int) -> None:
    graph = perceptron()
    two, one = (as_chosen(graph, arch=arch, microbatch=batch) for arch in ("n300", "n150"))
    assert 0.97 * batch_cycles(two) <= batch_cycles(one)


def test_why_one_of_two_chips_has_all_ops_is_said_and_it_stays_so() -> None:
    graph, options = perceptron(), CompileOptions()
    outcome = as_chosen(graph)
    assert chips_in(outcome) == {0}
    read = outcome.placement.queues["x"]  # as one chip without others reads its inputs
    assert read.location == "host" and read.chip in load_device("n300").mmio_chips
    (note,) = [d for d in outcome.decisions.notes if d.rule == "stages"]
    alone, several = (int(n.replace(",", "")) for n in re.findall(r"[\d,]{5,}", note.message)[:2])
    assert alone == batch_cycles(outcome) < 0.97 * several
    record = json.loads(json.dumps(to_record(outcome, graph, options)))
    again = from_record(record, graph, op_models(graph, load_device("n300"), options), load_device("n300"), options)
    assert again.placement.epochs == outcome.placement.epochs
    placer = IncrementalPlacer(load_device("n300"), resolve((), graph, load_device("n300"), options), outcome)
    size = next(s for s in ((1, 1), (2, 1), (1, 2)) if s != outcome.placement.ops["down"].size)
    edited = placer.edit((Override("op_size", "down", size),))
    assert edited is not None and set(edited.chips) == {0}


@pytest.mark.parametrize(
    ("overrides", "options"),
    [
        ((), {"objective": "throughput"}),
        ((Override("chip_break", "down"),), {}),
        ((Override("op_placement", "up", {"chip": 1}),), {}),
        ((Override("epoch_break", "down"),), {"balancer_policy": "Ribbon"}),
    ],
)
def test_chips_that_are_asked_for_are_taken(overrides: tuple[Override, ...], options: dict[str, str]) -> None:
    assert chips_in(as_chosen(perceptron(), overrides, **options)) == {0, 1}


def test_grayskull_chips_share_nothing() -> None:
    s = Sketch()
    s.input("x", 1, 1, 64, 64)
    graph = s.output(encoder_on(s))
    device = load_device("grayskull", chips=2)
    p = placed(graph, device, (Override("chip_break", "down"),))
    low, high = device.p2p_window
    crossing = [q for q in p.queues.values() if q.kind == "e2e"]
    assert crossing
    for q in crossing:
        assert p.ops[q.source].chip != q.chip
        assert all(c == 0 and low <= a and a + q.bytes_per_buffer <= high for c, a in q.buffers)
    with pytest.raises(PlacementError, match="reach of a grayskull chip") as caught:
        placed(encoder(2), device, (Override("chip_break", "l0.exp"),))
    # the input is read by the first ops and by the residual
    assert "x" in [d.where for d in caught.value.diagnostics]
    # an op may feed its own epoch and, through a queue, the other chip
    forked = placed(encoder(2), device, (Override("chip_break", "l0.add2"),))
    assert forked.ops["l0.up"].chip == forked.ops["l0.add"].chip != forked.ops["l0.add2"].chip
    assert forked.queues["e2e_l0.add_0"].chip == forked.ops["l0.add2"].chip


def repaired(graph: Graph, device: DeviceSpec, *overrides: Override) -> Outcome:
    options = CompileOptions(objective="throughput")
    constraints = resolve(overrides, graph, device, options)
    models = op_models(graph, device, options, constraints.choices)
    return place_and_repair(graph, models, device, options, constraints)


@pytest.mark.parametrize("chips", [3, 4])
def test_grayskull_chips_pass_on_what_is_read_further_away(chips: int) -> None:
    """The first sum of the first layer is read on every chip."""
    s = Sketch()
    x = s.input("x", 1, 1, 64, 64)
    first = last = s.op("first", HwUnary("exp"), (1, 1, 64, 64), x)
    for i in range(1, chips):
        last = s.op(f"sum{i}", HwBinary("add"), (1, 1, 64, 64), linear(s, f"up{i}", last, 64, 64, 64), first)
    graph, device = s.output(last), load_device("grayskull", chips=chips)
    outcome = repaired(graph, device, *(Override("chip_break", f"up{i}") for i in range(1, chips)))
    p = outcome.placement
    assert [p.ops[name].chip for name in ("first", *(f"sum{i}" for i in range(1, chips)))] == list(range(chips))
    users = outcome.graph.users()
    crossing = [q for q in p.queues.values() if q.kind == "e2e"]
    assert crossing
    for q in crossing:
        assert {p.ops[n].chip for n, _ in users[q.source] if p.ops[n].epoch != p.ops[q.source].epoch} == {q.chip}
        assert abs(p.ops[q.source].chip - q.chip) <= 1


def test_what_passes_by_a_chip_takes_no_epoch_of_its_own() -> None:
    """`left` is read two chips on: the nop on chip 1 runs with `right`, which begins there."""
    s = Sketch()
    shape = (1, 1, 64, 64)
    left = s.op("left", HwUnary("exp"), shape, s.input("x", *shape))
    right = s.op("right", HwUnary("exp"), shape, s.input("y", *shape))
    graph = s.output(s.op("sum", HwBinary("add"), shape, left, right))
    breaks = (Override("chip_break", "right"), Override("chip_break", "sum"))
    outcome = repaired(graph, load_device("grayskull", chips=3), *breaks)
    spots = {name: (spot.chip, spot.epoch) for name, spot in outcome.placement.ops.items()}
    want = {"left": (0, 0), "right": (1, 1), "buffer_0_left_sum": (1, 1), "sum": (2, 2)}
    assert {name: spots[name] for name in want} == want


def test_chips_of_grayskull_are_used_from_the_first_on() -> None:
    graph, device = encoder(1), load_device("grayskull", chips=4)
    used = {e.chip for e in repaired(graph, device).placement.epochs}
    assert used == set(range(len(used))) and len(used) < 4


def test_a_nop_of_few_cores_crosses_where_streams_are_few() -> None:
    """n300 has two ethernet cores between its chips, of 7 streams each: an op on 64 cores may not write across."""
    s = Sketch()
    s.input("x", 1, 1, 512, 1024)
    wide = s.op("wide", HwUnary("gelu"), (1, 1, 512, 1024), "x")
    graph = s.output(s.op("far", HwUnary("exp"), (1, 1, 512, 1024), wide))
    device = load_device("n300")
    size, cut = Override("op_size", "wide", (8, 8)), Override("chip_break", "far")
    outcome = repaired(graph, device, size, cut)
    p = outcome.placement
    pipes = [len(q.buffers) for q in p.queues.values() if q.kind == "e2e" and p.ops[q.source].chip != q.chip]
    assert 0 < sum(pipes) <= 7 * 2 and math.prod(p.ops["wide"].size) == 64
    assert any("ethernet core" in d.message for d in p.diagnostics)
    free = repaired(graph, load_device("n300"), Override("op_size", "wide", (2, 4)), cut)
    assert not free.edits and {q.source for q in free.placement.queues.values() if q.kind == "e2e"} == {"wide"}


def test_no_grayskull_stage_begins_where_a_batch_does_not_fit_the_window() -> None:
    """640x4096 values in Float16_b are 2560 tiles, 5.3 MB an input: of 64 and the next 64, 682 MB cross to a chip
    whose window has 256. One input at a time fits."""
    s = Sketch()
    x = s.input("x", 1, 1, 640, 1024)
    up = linear(s, "up", x, 640, 1024, 4096)
    g = s.op("gelu", HwUnary("gelu"), (1, 1, 640, 4096), up)
    graph = s.output(linear(s, "down", g, 640, 4096, 1024))
    device = load_device("grayskull", chips=2)
    low, high = device.p2p_window
    assert 2 * 64 * 2560 * tile_bytes(DataFormat.Float16_b) > high - low > 2 * 2560 * tile_bytes(DataFormat.Float16_b)
    for batch in (1, 64):
        p = placed(graph, device, microbatch=batch)
        crossing = [q for q in p.queues.values() if q.kind == "e2e" and p.ops[q.source].chip != q.chip]
        assert all(c == 0 and low <= a and a + q.bytes_per_buffer <= high for q in crossing for c, a in q.buffers)
        assert batch == 1 or not {q.source for q in crossing} & {"up", "gelu"}
    with pytest.raises(PlacementError, match="find no room"):  # where the user asks for it, that is said
        placed(graph, device, (Override("chip_break", "down"),), microbatch=64)


def test_queues_stay_on_their_chip_where_only_a_channel_is_asked_for_and_on_grayskull_always() -> None:
    s = Sketch()
    s.input("x", 1, 1, 64, 64)
    graph = s.output(encoder_on(s))
    for arch in ("grayskull", "wormhole_b0"):
        device = load_device(arch, chips=2)
        cut = Override("chip_break", "down")
        plain = placed(graph, device, (cut,))
        moved = placed(graph, device, (cut, Override("queue_channel", re.compile(r"(up|down)\.w"), {"channel": 3})))
        for name in ("up.w", "down.w"):
            assert moved.queues[name].chip == plain.queues[name].chip
            assert {c for c, _ in moved.queues[name].buffers} == {3}
        other = next(c for c in device.chips if c != plain.queues["up.w"].chip)
        overrides = (cut, Override("queue_channel", "up.w", {"chip": other}))
        if arch == "grayskull":
            with pytest.raises(OverrideError) as caught:
                placed(graph, device, overrides)
            assert "own DRAM only" in caught.value.diagnostics[0].message
        else:
            assert plain.queues["up.w"].prologue
            with pytest.raises(OverrideError, match="queues of their own chip only"):
                placed(graph, device, overrides)
            streamed = placed(graph, device, (*overrides, Override("prologue", "up", {1: False})))
            assert streamed.queues["up.w"].chip == other and not streamed.queues["up.w"].prologue
