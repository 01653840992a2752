"""What the choice of epochs charges for forks, filling and the host link: against the event-driven simulator, against
brute force, and against what repairing then does."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import sys

import numpy as np
import pytest

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.balancer.bandwidth import HOST
from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.device import load_device
from tbuda_lab.core.epochsim.build import build
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.tm import broadcast
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwReduce, HwUnary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer import PlaceContext, choose_epochs
from tbuda_lab.core.placer.memory.host_link import uses_host
from tbuda_lab.core.placer.model.chip_stages import epoch_cost, overhead, slowest_stage
from tbuda_lab.core.placer.model.costs import Needs
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure, place_rows
from tbuda_lab.core.placer.policies import OTHERS, POLICIES
from tbuda_lab.core.placer.policies.op_runs import KERNEL_WEIGHT, objective, policy_cost
from tbuda_lab.core.placer.policies.optimal import Optimal
from tbuda_lab.core.placer.stalls.epoch_throughput import throughput, trial
from tbuda_lab.core.placer.stalls.fork_join import reconvergences
from tbuda_lab.core.placer.stalls.stall_model import RunStalls, StallModel
from tbuda_lab.core.placer.stalls.stall_repair import repair_stalls, with_stall_cycles
from tests import pairs
from tests.epochsim.oracle import EventDriven
from tests.placer.graphs import Sketch, convolutions, encoder, residuals

BATCH = 8
SHAPE = (1, 1, 64, 256)


def quiet(fraction: float) -> None:
    """Nobody asks how far it is."""


def problem_of(graph: Graph, device: str = "grayskull", **options: object) -> Problem:
    o, spec = CompileOptions(**options), load_device(device)  # type: ignore[arg-type]
    return Problem.of(graph, op_models(graph, spec, o), spec, o, schedule(graph))


def chosen(graph: Graph, device: str, batch: int) -> tuple[Problem, list[Segment]]:
    spec, options = load_device(device), CompileOptions(microbatch=batch)
    state = choose_epochs(PlaceContext.of(graph, spec, options))
    return state.problem, list(state.segments)


def event_driven(problem: Problem, segment: Segment, batch: int) -> tuple[float, float]:
    """(end of the first input, end of the last) by counting tiles in a heap of times; infinite where it hangs."""
    built = build(trial(problem, segment), EpochConstants())
    run = EventDriven(built.network, batch)
    if built.diagnostics or not run.finished:
        return np.inf, np.inf
    ops = built.network.ops[: len(built.parts)]
    ends = [
        max(run.start[op, turn, o.steps - 1] + run.durations[op][-1] for op, o in enumerate(ops))
        for turn in (0, batch - 1)
    ]
    return ends[0], ends[1]


# -- reconvergence ---------------------------------------------------------------------------------------------------
def ways(problem: Problem, fork: int, op: int) -> list[tuple[int, ...]]:
    """Every path of ops from a fork to an op, both left out; one entry for each."""
    result: list[tuple[int, ...]] = []
    for producer in problem.facts[op].producers:
        if producer == fork:
            result.append(())
        elif producer > fork:
            result += [(*way, producer) for way in ways(problem, fork, producer)]
    return result


@pytest.mark.parametrize("graph", [encoder(1), convolutions(16, 16, 2)], ids=["encoder", "convolutions"])
def test_meetings_are_pairs_of_disjoint_paths_and_every_op_where_paths_part_and_meet_has_one(graph: Graph) -> None:
    problem = problem_of(graph)
    result = reconvergences(problem)
    for join, some in result.items():
        for m in some:
            assert m.join == join == m.short[-1][0] == m.long[-1][0]
            paths = ways(problem, m.fork, join)
            short, long = (tuple(op for op, _ in branch[:-1]) for branch in (m.short, m.long))
            assert short in paths and long in paths and not set(short) & set(long) and m.short[-1] != m.long[-1]
    for fork, join in itertools.combinations(range(len(problem.order)), 2):
        paths = ways(problem, fork, join)
        first = [p for p in paths if p] + ([()] if () in paths else [])
        apart = any(not set(a) & set(b) and a != b for a, b in itertools.combinations(first, 2))
        if apart:  # a pair of paths with nothing in common but the ends: fork and join stand among the meetings
            assert any(m.fork == fork for m in result.get(join, ())), (problem.order[fork], problem.order[join])


# -- filling ---------------------------------------------------------------------------------------------------------
def chain(kinds: str) -> Graph:
    """e: element-wise, m: matmul with itself kept small, r: reduce and spread again."""
    s = Sketch()
    x = s.input("x", *SHAPE)
    for i, kind in enumerate(kinds):
        if kind == "e":
            x = s.op(f"e{i}", HwUnary("exp"), SHAPE, x)
        elif kind == "m":
            x = s.op(f"m{i}", HwMatmul(), SHAPE, x, s.parameter(f"w{i}", 1, 1, 256, 256))
        else:
            top = s.op(f"r{i}", HwReduce("c"), (1, 1, 64, 32), x)
            x = s.op(f"s{i}", HwUnary("exp"), SHAPE, (top, (broadcast("c", 8),)))
    return s.output(x)


def at_rows(problem: Problem, segment: Segment) -> list[Needs]:
    """One level and target: the rows that the epoch has."""
    at_rows = []
    load = measure(problem, segment.first, segment.last, dict(enumerate(segment.rows)))[2]
    for op, row in enumerate(segment.rows):
        where = problem.places(op, segment.first, segment.last)
        limiter = float(problem.row_limits(op, *where, load)[row])
        at = int(np.flatnonzero(problem.legal[problem.tables[op].signature] == row)[0])
        kernel = float(problem.tables[op].rows[row]["cycles"])
        one = np.array([[[limiter]], [[kernel]]])
        at_rows.append(Needs(np.ones((2, 1, 1), np.int32), one, np.array([[at]])))
    return at_rows


@pytest.mark.parametrize("kinds", ["ee", "eeeeee", "mem", "mmmm", "rer", "emremre"])
def test_the_fill_of_a_chain_is_what_the_event_driven_simulator_says(kinds: str) -> None:
    problem = problem_of(chain(kinds), microbatch=BATCH)
    (segment,) = Optimal(problem, quiet).run()
    needs = at_rows(problem, segment)
    gathered = RunStalls(StallModel(problem, [0], np.ones(1)), 0, lambda op: needs[op])
    for op in range(segment.last):
        gathered.add(op)
    assert gathered.whole is not None
    first, _ = event_driven(problem, segment, 2)
    assert 0.7 * first <= float(gathered.whole[0, 0]) <= 1.3 * first, (first, gathered.whole)


def test_filling_counts_as_the_options_say() -> None:
    graph = chain("emrem")
    fill = []
    for cycles in (None, 0, 1_000):
        problem = problem_of(graph, microbatch=BATCH, epoch_fill_cycles=cycles)
        segments = Optimal(problem, quiet).run()
        now = [throughput(problem, s) for s in segments]
        waits = sum(epoch_cost(problem, s) - s.limiter_cycles - 20_000 / BATCH for s in segments)
        fill.append((waits, sum(f.period - s.limiter_cycles for f, s in zip(now, segments, strict=True)), segments))
    assert fill[0][0] > fill[1][0] == pytest.approx(fill[1][1])
    problem = problem_of(graph, microbatch=BATCH, epoch_fill_cycles=1_000)
    deep = sum(overhead(problem, s.first, s.last) - 20_000 / BATCH for s in fill[2][2])
    assert deep >= 1_000 / BATCH and fill[2][0] == pytest.approx(fill[2][1] + deep)


def test_bounds_charge_nothing_where_epochs_are_not_charged() -> None:
    """Or runs would be passed over for what they never cost."""
    problem = problem_of(chain("emrem"), microbatch=BATCH, enable_fork_join_buffering=False)
    policy = Optimal(problem, quiet)
    assert all(s.stall_cycles == 0.0 for s in policy.run())
    assert {bound.stall_cycles for ends in policy.bounds.values() for bound in ends.values()} == {0.0}


# -- forks -----------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("rows", [64, 512, 2048, 4096])
def test_nops_are_asked_for_where_a_fork_would_hang(rows: int) -> None:
    """As far as one fork goes: the pace does not count, so room for the first result of the long branch is enough."""
    problem = problem_of(residuals(1, rows), microbatch=BATCH)
    policy, count = Optimal(problem, quiet), len(problem.order)
    segment = next(s for at in range(len(policy.runs.targets)) if (s := policy.attempt(0, count, 0, at, {}).segment))
    needs = at_rows(problem, segment)
    gathered = RunStalls(StallModel(problem, [0], np.full(1, np.inf)), 0, lambda op: needs[op])
    for op in range(segment.last):
        gathered.add(op)
    assert gathered.nops is not None
    assert (int(gathered.nops[0, 0]) > 0) == throughput(problem, segment).deadlocked


def diamond(width: int = 256) -> Graph:
    """A residual around a matmul and an element-wise op."""
    s = Sketch()
    shape = (1, 1, 64, width)
    x = s.op("fork", HwUnary("exp"), shape, s.input("x", *shape))
    y = s.op("up", HwMatmul(), shape, x, s.parameter("w", 1, 1, width, width))
    return s.output(s.op("join", HwBinary("add"), shape, x, s.op("act", HwUnary("gelu"), shape, y)))


def few_rows(models: dict[str, OpModels], count: int) -> dict[str, OpModels]:
    """Only so many candidates of every op, spread over its legal ones."""
    few_rows = {}
    for name, table in models.items():
        legal = table.legal()
        cores = table.rows["cores"][legal]
        single = legal[np.lexsort((-table.rows["buf_size_mb"][legal], cores))]
        rows = table.rows[single[np.unique(np.linspace(0, len(single) - 1, count).astype(int))]].copy()
        rows.setflags(write=False)
        few_rows[name] = OpModels(f"{table.signature}/few", rows, table.profile)
    return few_rows


def reduced() -> Graph:
    """A softmax without its maximum: the sum of a row has to be there before the row is taken again."""
    s = Sketch()
    x = s.op("fork", HwUnary("exp"), SHAPE, s.input("x", *SHAPE))
    top = s.op("sum", HwReduce("c"), (1, 1, 64, 32), x)
    inverse = s.op("inverse", HwUnary("reciprocal"), (1, 1, 64, 32), top)
    return s.output(s.op("join", HwBinary("multiply"), SHAPE, x, (inverse, (broadcast("c", 8),))))


@functools.cache
def small(name: str, batch: int, count: int = 3) -> Problem:
    graph = {"diamond": diamond, "reduced": reduced}[name]()
    device, options = load_device("grayskull"), CompileOptions(microbatch=batch)
    models = few_rows(op_models(graph, device, options), count)
    return Problem.of(graph, models, device, options, schedule(graph))


def best_by_brute_force(problem: Problem, batch: int) -> float:
    """The least objective over all cuts and all candidates without a repair, each epoch by the event-driven
    simulator."""
    n = len(problem.order)
    least = np.full((n + 1, n + 1), np.inf)
    for first, last in itertools.combinations(range(n + 1), 2):
        options = [range(len(problem.tables[op].rows)) for op in range(first, last)]
        for rows in itertools.product(*options):
            expected = dict(zip(range(first, last), rows, strict=True))
            if choose_rows(problem, first, last, expected, 0, 0.0, {})[0] != expected:
                continue
            segment = place_rows(problem, first, last, expected)
            if segment is None:
                continue
            bound = segment.limiter_cycles + KERNEL_WEIGHT * segment.kernel_cycles
            if bound + overhead(problem, first, last) >= least[first, last]:
                continue
            cycles = event_driven(problem, segment, batch)[1]
            cost = cycles / batch + KERNEL_WEIGHT * segment.kernel_cycles + overhead(problem, first, last)
            least[first, last] = min(least[first, last], cost)
    best = np.full(n + 1, np.inf)
    best[0] = 0.0
    for last in range(1, n + 1):
        best[last] = (best[:last] + least[:last, last]).min()
    return float(best[n])


@pytest.mark.parametrize("batch", [2, 8])
@pytest.mark.parametrize("name", ["diamond", "reduced"])
def test_no_cut_and_no_shapes_are_better_than_those_chosen(name: str, batch: int) -> None:
    """Within 2 %: rows are the cheapest in cores for some target. The oracle has no repairs, the placer may have
    some."""
    problem = small(name, batch)
    segments = Optimal(problem, quiet).run()
    reached = objective(problem, segments).total
    best = best_by_brute_force(problem, batch)
    assert np.isfinite(best) and reached <= 1.02 * best
    blind = dataclasses.replace(problem.options, enable_fork_join_buffering=False)
    other = Problem.of(problem.graph, problem.models, problem.device, blind, problem.order)
    plain = [with_stall_cycles(problem, s) for s in Optimal(other, quiet).run()]
    assert reached <= objective(problem, plain).total + 1e-6


@pytest.mark.parametrize(
    ("name", "batch", "device"), pairs(["diamond", "encoder", "convolutions"], [1, 24], ["grayskull", "wormhole_b0"])
)
def test_mending_takes_what_the_choice_of_epochs_charged(name: str, device: str, batch: int) -> None:
    result = {"diamond": diamond(), "encoder": encoder(2, 128, 256), "convolutions": convolutions(32, 64, 3)}
    problem, segments = chosen(result[name], device, batch)
    repaired = repair_stalls(problem, segments)
    charged = sum(epoch_cost(problem, s) for s in segments)
    assert sum(epoch_cost(repaired.problem, s) for s in repaired.segments) == pytest.approx(charged, rel=1e-9)
    options = problem.options
    switches = len(repaired.segments) * options.epoch_switch_cycles
    flows = [throughput(repaired.problem, s) for s in repaired.segments]
    assert not any(f.deadlocked for f in flows)
    if batch > 1:
        assert charged == pytest.approx((switches + sum(f.cycles for f in flows)) / batch)


def test_parts_of_a_run_that_cannot_be_held_as_one_know_the_rows_before_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every path is refused in the end, and every epoch of more than three ops."""
    problem = problem_of(encoder(1), "wormhole_b0", microbatch=BATCH)
    policy = Optimal(problem, quiet)
    path = [(s.first, s.last) for s in policy.run()]
    realise, ready = policy.realise, policy.ready
    existing: list[tuple[int, list[int]]] = []

    def refused(*args: object, **named: object) -> object:
        return (None, None) if args[5] == np.inf else choose_rows(*args, **named)  # type: ignore[arg-type]

    def noted(segment: Segment, upstream_rows: dict[int, int]) -> Segment:
        existing.append((segment.first, sorted(upstream_rows)))
        return ready(segment, upstream_rows)

    monkeypatch.setattr(sys.modules[Optimal.__module__], "choose_rows", refused)
    monkeypatch.setattr(
        policy, "realise", lambda a, b, upstream_rows: realise(a, b, upstream_rows) if b - a <= 3 else None
    )
    monkeypatch.setattr(policy, "ready", noted)
    parts = policy.settle(path)
    assert len(parts) > len(path) and len(existing) == len(parts)
    assert all(before == list(range(first)) for first, before in existing)
    upstream_rows: dict[int, int] = {}
    for part in parts:
        rows = dict(zip(range(part.first, part.last), part.rows, strict=True))
        assert choose_rows(problem, part.first, part.last, rows, 0, 0.0, upstream_rows)[0] == rows
        upstream_rows.update(rows)


# -- the host link ---------------------------------------------------------------------------------------------------
def test_ops_that_read_one_input_share_the_link_in_the_bound_and_in_the_rows() -> None:
    s = Sketch()
    shape = (1, 1, 256, 256)
    x = s.input("x", *shape)
    parts = [s.op(f"part{i}", HwUnary(f), shape, x) for i, f in enumerate(("exp", "gelu", "nop", "sqrt"))]
    a, b = (s.op(f"sum{i}", HwBinary("add"), shape, *parts[2 * i : 2 * i + 2]) for i in range(2))
    problem = problem_of(s.output(s.op("all", HwBinary("add"), shape, a, b)), "wormhole_b0", microbatch=1)
    policy = Optimal(problem, quiet)
    segments = policy.run()
    readers = [op for op, f in enumerate(problem.facts) if HOST in f.queue_place]
    assert len(readers) == 4
    for segment in segments:
        bound = policy.runs.bound(segment.first, segment.last)
        used = [op for op in range(segment.first, segment.last) if uses_host(problem, op)]
        total = 0.0
        for op in used:
            legal = problem.legal[problem.tables[op].signature]
            total += float(problem.host_bytes(op, *problem.places(op, segment.first, segment.last)).min())
            assert segment.rows[op - segment.first] in legal
        floor = total / problem.device.pcie_bytes_per_cycle
        assert bound is not None and segment.limiter_cycles >= floor - 1
        if len(used) > 1:
            assert bound.cost >= floor and segment.limiter_cycles <= 1.5 * floor


# -- anytime ---------------------------------------------------------------------------------------------------------
def test_more_time_never_gives_a_worse_value_of_the_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock is a count of how often it was looked at."""
    graph = encoder(3, 64, 256)
    reached = []
    for looks in (0, 1, 4, 1000):
        problem = problem_of(graph, "wormhole_b0", microbatch=16)
        left = iter(range(looks))
        monkeypatch.setattr(Problem, "late", property(lambda self, left=left: next(left, None) is None))
        reached.append(objective(problem, POLICIES["Optimal"](problem, quiet)).total)
    assert reached == sorted(reached, reverse=True)


def test_no_time_at_all_still_gives_nothing_worse_than_another_policy() -> None:
    for graph, batch in ((encoder(1), 1), (convolutions(32, 64, 3), 16)):
        problem = problem_of(graph, "wormhole_b0", microbatch=batch, time_budget=0.0)
        best = slowest_stage(problem, POLICIES["Optimal"](problem, quiet))
        for run in OTHERS.values():
            other = [with_stall_cycles(problem, s) for s in run(problem, quiet)]
            assert best <= slowest_stage(problem, other)


def test_the_report_states_the_objective() -> None:
    problem, segments = chosen(diamond(), "wormhole_b0", 16)
    message = objective(problem, segments)
    assert message.total == pytest.approx(sum(policy_cost(s) + overhead(problem, s.first, s.last) for s in segments))
    assert message.time == pytest.approx(message.slowest_chip) and message.kernel > 0 and message.waiting > 0
