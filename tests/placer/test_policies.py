"""What the policies' names promise, checked on the placements they give."""

from __future__ import annotations

import dataclasses
import functools
import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.balancer.bandwidth import EpochLoad
from tbuda_lab.core.balancer.types import Placement
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import PlacementError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.chip_stages import SWITCH_CYCLES, slowest_stage
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule, sparse_pairs
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies import OTHERS, POLICIES, op_runs
from tbuda_lab.core.placer.policies.candidates import Candidates
from tbuda_lab.core.placer.policies.op_runs import CheapestCuts, CostBound, forget_searches
from tbuda_lab.core.placer.policies.optimal import Optimal
from tbuda_lab.core.placer.policies.portfolio import never_worse
from tbuda_lab.core.placer.policies.preferences import nlp_target
from tbuda_lab.core.placer.policies.ribbon import CandidateFacts, Ribbon, prefers
from tbuda_lab.core.placer.stalls.stall_repair import with_stall_cycles
from tests import pairs
from tests.placer.graphs import Sketch, convolutions, encoder, linear, placed_as_chosen
from tests.placer.test_place import GRAPHS, check, placed


def problem_of(graph: Graph, device: str = "wormhole_b0", **options: object) -> Problem:
    o, spec = CompileOptions(**{"objective": "throughput", **options}), load_device(device)  # type: ignore[arg-type]
    return Problem.of(graph, op_models(graph, spec, o), spec, o, schedule(graph))


def quiet(fraction: float) -> None:
    assert 0.0 <= fraction <= 1.0


def objective(p: Placement, microbatch: int) -> float:
    """Cycles per input, with what waiting for full buffers costs and filling, where the policy counts them."""
    assert p.report is not None
    if p.report.objective is not None:
        return p.report.objective.time
    return sum(e.limiter_cycles for e in p.report.epochs) + len(p.epochs) * SWITCH_CYCLES / microbatch


def with_waits(graph: Graph, device: str, policy: str, microbatch: int) -> float:
    """The same of another policy, its epochs priced as they would be repaired."""
    problem = problem_of(graph, device, microbatch=microbatch)
    segments = [with_stall_cycles(problem, s) for s in POLICIES[policy](problem, quiet)]
    return slowest_stage(problem, segments)


def cores(p: Placement, name: str) -> int:
    return int(p.candidate(name)["cores"])


@functools.cache
def best_objective(name: str, device: str, microbatch: int) -> float:
    """What the default policy reaches."""
    return objective(placed(GRAPHS[name](), load_device(device), microbatch=microbatch), microbatch)


@pytest.mark.parametrize(
    ("policy", "device", "name", "microbatch"),
    pairs([p for p in POLICIES if p != "Optimal"], ["grayskull", "wormhole_b0"], GRAPHS, (1, 16)),
)
def test_every_policy_keeps_every_rule_and_optimal_is_no_worse(
    policy: str, device: str, name: str, microbatch: int
) -> None:
    graph, spec = GRAPHS[name](), load_device(device)
    p = placed(graph, spec, balancer_policy=policy, microbatch=microbatch)
    check(graph, spec, p)
    other = objective(p, microbatch) if microbatch == 1 else with_waits(graph, device, policy, microbatch)
    assert best_objective(name, device, microbatch) <= other


def test_minimize_grid_puts_every_op_on_its_fewest_cores() -> None:
    p = placed(encoder(1), load_device("wormhole_b0"), balancer_policy="MinimizeGrid")
    fewest = [int(m.rows["cores"][m.legal()].min()) for m in (p.models[n] for n in p.ops)]
    assert sum(cores(p, n) for n in p.ops) <= 1.1 * sum(fewest)


def test_single_op_takes_the_largest_grid_for_each() -> None:
    p = placed(encoder(1), load_device("wormhole_b0"), balancer_policy="SingleOpPerEpoch")
    assert len(p.epochs) == len(p.ops)
    largest = {n: int(m.rows["cores"][m.legal()].max()) for n, m in p.models.items()}
    assert sum(cores(p, n) == largest[n] for n in p.ops) >= 0.9 * len(p.ops)


def test_maximize_t_takes_the_largest_t_and_then_the_smallest_grid() -> None:
    """Where no edge has a say: at the first op of an epoch."""
    graph = encoder(1)
    p = placed(graph, load_device("wormhole_b0"), balancer_policy="MaximizeTMinimizeGrid")
    problem = problem_of(graph)
    existing = Candidates(problem)
    assert len(p.epochs) > 1
    for epoch in p.epochs:
        op = problem.number[epoch.ops[0]]
        ranks = [(-r["t"], r["grid_r"] + r["grid_c"], r["grid_r"]) for r in existing.data(op, existing.rows(op))]
        chosen = p.candidate(epoch.ops[0])
        assert (-chosen["t"], chosen["grid_r"] + chosen["grid_c"], chosen["grid_r"]) == min(ranks)


def test_cnn_takes_the_tallest_grids() -> None:
    graph = convolutions(64, 64, 2)
    p = placed(graph, load_device("wormhole_b0"), balancer_policy="CNN")
    problem = problem_of(graph)
    existing = Candidates(problem)
    tallest = {name: int(existing.data(i, existing.rows(i))["grid_r"].max()) for i, name in enumerate(problem.order)}
    assert sum(int(p.candidate(n)["grid_r"]) == tallest[n] for n in p.ops) >= 0.6 * len(p.ops)


def test_random_depends_on_the_seed_alone() -> None:
    spec = load_device("wormhole_b0")

    def rows(seed: int) -> list[int]:
        p = placed(encoder(1), spec, balancer_policy="Random", seed=seed)
        return [p.ops[n].row for n in p.schedule]

    assert rows(3) == rows(3) and rows(3) != rows(4)


def test_upstream_sees_one_ublock_per_grid_and_stream() -> None:
    problem = problem_of(encoder(1), microbatch=16)
    existing = Candidates(problem)
    for op in range(len(problem.order)):
        rows = existing.rows(op)
        data, legal = existing.data(op, rows), problem.tables[op].rows[problem.legal[problem.tables[op].signature]]
        blocks: dict[tuple[object, ...], set[tuple[int, int]]] = {}
        for r in data:
            shape = (int(r["grid_r"]), int(r["grid_c"]), str(r["stream"]), int(r["stream_r"]), int(r["stream_c"]))
            blocks.setdefault(shape, set()).add((int(r["ublock_r"]), int(r["ublock_c"])))
        assert all(len(b) == 1 for b in blocks.values())
        assert len(blocks) == len(np.unique(legal[["grid_r", "grid_c", "stream", "stream_r", "stream_c"]]))


# -- NLP -------------------------------------------------------------------------------------------------------------
def test_nlp_target_is_clamped_and_can_be_set() -> None:
    for graph in (encoder(1), convolutions(32, 64, 2), Sketch().graph):
        problem = problem_of(graph) if list(graph.ops) else None
        if problem is not None:
            assert 45_000 <= nlp_target(problem, Candidates(problem)) <= 125_000
    problem = problem_of(encoder(1), target_cycles=7_000)
    assert nlp_target(problem, Candidates(problem)) == 7_000


@pytest.mark.parametrize("target", [3_000, 60_000])
def test_nlp_is_within_its_target_where_a_candidate_is(target: int) -> None:
    p = placed(encoder(1), load_device("wormhole_b0"), balancer_policy="NLP", target_cycles=target)
    over = [
        n
        for n in p.ops
        if p.candidate(n)["cycles"] > target and (p.models[n].rows["cycles"][p.models[n].legal()] <= target).any()
    ]
    assert len(over) <= 0.1 * len(p.ops)


# -- Ribbon ----------------------------------------------------------------------------------------------------------
BASE = CandidateFacts(0, 4, 90.0, 0, True, True, 0, 8, 1.0)


@pytest.mark.parametrize(
    ("better", "worse"),
    [
        (dataclasses.replace(BASE, cols=2), BASE),  # both within the target: fewer columns, whatever the rest
        (dataclasses.replace(BASE, cols=2, deep=False), BASE),
        (BASE, dataclasses.replace(BASE, cycles=250.0, proximity=1, cols=1)),
        (BASE, dataclasses.replace(BASE, deep=False)),
        (dataclasses.replace(BASE, roomy=False), dataclasses.replace(BASE, deep=False)),
        (BASE, dataclasses.replace(BASE, roomy=False, volume=99)),
        (BASE, dataclasses.replace(BASE, closeness=1, volume=99)),
        (
            dataclasses.replace(BASE, cycles=130.0, closeness=3),
            dataclasses.replace(BASE, cycles=140.0, closeness=3, volume=99),
        ),
        (BASE, dataclasses.replace(BASE, volume=4)),
        (BASE, dataclasses.replace(BASE, bound_by_kernel=0.5)),
        (BASE, dataclasses.replace(BASE, row=1)),
    ],
)
def test_the_ribbon_preference_is_lexicographic(better: CandidateFacts, worse: CandidateFacts) -> None:
    assert prefers(better, worse, 100.0) < 0 < prefers(worse, better, 100.0)


FACTS = st.builds(
    CandidateFacts,
    row=st.integers(0, 50),
    cols=st.integers(1, 3),
    cycles=st.sampled_from([50.0, 90.0, 110.0, 130.0, 250.0]),
    proximity=st.just(0),
    deep=st.booleans(),
    roomy=st.booleans(),
    closeness=st.integers(0, 3),
    volume=st.integers(1, 3),
    bound_by_kernel=st.sampled_from([0.5, 1.0]),
)


@given(st.lists(FACTS, min_size=2, max_size=6, unique_by=lambda f: f.row))
def test_the_ribbon_preference_always_decides(facts: list[CandidateFacts]) -> None:
    for a, b in itertools.permutations(facts, 2):
        assert prefers(a, b, 100.0) * prefers(b, a, 100.0) < 0


def test_ribbon_starts_with_grids_as_near_the_ribbon_as_the_op_allows() -> None:
    problem = problem_of(encoder(1))
    policy = Ribbon(problem, quiet)
    for op in range(len(problem.order)):
        tall = problem.tables[op].rows["grid_r"][policy.pruned[op]]
        for ribbon in (1, 3, 8):
            first = next(iter(policy.preference(op, ribbon, op, None)))
            assert abs(int(problem.tables[op].rows["grid_r"][first]) - ribbon) == int(np.abs(tall - ribbon).min())


def test_ribbon_pairs_sparse_and_dense_matmuls_with_equal_rows_in_one_epoch() -> None:
    graph = convolutions(64, 64, 3)
    p = placed(graph, load_device("wormhole_b0"), balancer_policy="Ribbon")
    pairs = sparse_pairs(graph)
    assert len(pairs) == 3
    for sparse, dense in pairs.items():
        assert p.candidate(sparse)["grid_c"] == 1
        if p.ops[sparse].epoch == p.ops[dense].epoch:
            assert p.candidate(sparse)["grid_r"] == p.candidate(dense)["grid_r"]
    assert any(p.ops[s].epoch == p.ops[d].epoch for s, d in pairs.items())


def test_conservative_optimisation_never_makes_an_epoch_slower() -> None:
    problem = problem_of(encoder(2))
    policy = Ribbon(problem, quiet)
    gained = 0
    for ribbon in range(1, 9):
        epoch = policy.fill_epoch(0, ribbon, {})
        before = epoch.segment()
        after = policy.improve(epoch, ribbon)
        assert (after.first, after.last) == (before.first, before.last)
        assert after.limiter_cycles <= before.limiter_cycles
        gained += after.limiter_cycles < before.limiter_cycles
    assert gained


# -- the guard -------------------------------------------------------------------------------------------------------
def test_the_guard_takes_the_best_even_when_the_main_policy_fails() -> None:
    problem = problem_of(encoder(1))
    cheapest = min(slowest_stage(problem, run(problem, quiet)) for run in OTHERS.values())

    def failing(problem: Problem, report: object) -> list[Segment]:
        raise PlacementError("nothing found")

    for main in (OTHERS["SingleOpPerEpoch"], OTHERS["MaximizeTMinimizeGrid"], failing):
        assert slowest_stage(problem, never_worse(main, OTHERS)(problem, quiet)) == cheapest
    with pytest.raises(PlacementError, match="nothing found"):
        never_worse(failing, {"other": failing})(problem, quiet)


def test_on_two_chips_the_slowest_one_counts() -> None:
    problem = problem_of(encoder(2), "n300")
    assert len(problem.device.chips) == 2
    best = slowest_stage(problem, POLICIES["Optimal"](problem, quiet))
    assert all(best <= slowest_stage(problem, run(problem, quiet)) for run in OTHERS.values())


def test_the_guard_stops_what_can_no_longer_win() -> None:
    problem = problem_of(encoder(2))
    seen: list[float] = []

    def slow(problem: Problem, report: functools.partial[None]) -> list[Segment]:
        result = OTHERS["SingleOpPerEpoch"](problem, report)
        seen.append(1.0)
        return result

    never_worse(OTHERS["Ribbon"], {"slow": slow})(problem, quiet)
    assert not seen


def test_pins_and_breaks_hold_for_every_policy() -> None:
    graph, spec = encoder(1), load_device("wormhole_b0")
    overrides = (
        Override("op_size", "l0.up", (2, 8)),
        Override("op_placement", "l0.up", {"start": (4, 0)}),
        Override("op_placement", "l0.q", {"transpose": True}),
        Override("epoch_break", "l0.exp"),
    )
    for name in POLICIES:
        options = CompileOptions(balancer_policy=name, objective="throughput")
        p = placed_as_chosen(graph, spec, options, overrides)
        check(graph, spec, p)
        assert p.ops["l0.up"].start == (4, 0) and p.ops["l0.up"].size == (2, 8)
        assert p.ops["l0.q"].transposed
        assert "l0.exp" in {e.ops[0] for e in p.epochs}


@pytest.mark.parametrize("price", [0, 4, 8])
def test_a_frontier_is_what_all_rows_say(price: int) -> None:
    problem = problem_of(convolutions(32, 64, 3), "grayskull")
    for op in range(len(problem.order)):
        where, output = problem.places(op, op, op + 1)
        front = problem.costs.frontier(problem.tables[op], where, output, 26, dram_price=price)
        rows = problem.legal[problem.tables[op].signature]
        cycles = np.ceil(problem.row_limits(op, where, output, EpochLoad(26, 0))[rows])
        dram = problem.dram_cores(op, where, output)[rows]
        costs = problem.tables[op].rows["cores"][rows] + price * dram
        for target in np.quantile(cycles, [0.0, 0.1, 0.5, 1.0], method="lower"):
            at = int(np.searchsorted(-front.cycles, -target, side="left"))
            assert front.cycles[at] <= target
            assert front.cores[at] + price * front.dram[at] == costs[cycles <= target].min()


def _streams(layers: int) -> Graph:
    """Parameters that larger grids keep in L1, beside some that no grid can."""
    s = Sketch()
    x = s.input("x", 1, 1, 64, 160)
    for i in range(layers):
        x = linear(s, f"up{i}", x, 64, 160, 960)
        x = linear(s, f"down{i}", x, 64, 960, 160)
    x = linear(s, "wide", x, 64, 160, 2560)
    return s.output(linear(s, "back", x, 64, 2560, 160))


@pytest.mark.parametrize(("device", "at_most"), [("grayskull", 0.95), ("wormhole_b0", 1.0)])
def test_an_epoch_pays_in_cores_for_dram_where_that_makes_it_faster(
    device: str, at_most: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, spec = _streams(4), load_device(device)
    priced = placed(graph, spec)
    check(graph, spec, priced)
    monkeypatch.setattr(Optimal, "lighter", lambda self, segment, upstream_rows: segment)
    assert objective(priced, 1) <= at_most * objective(placed(graph, spec), 1)


def test_the_cheapest_cuts_of_runs_are_those_of_all_cuts() -> None:
    problem = problem_of(encoder(1))
    count, switch = 9, problem.options.epoch_switch_cycles
    drawn = np.random.default_rng(5)
    cost = {(a, b): float(drawn.integers(1, 90_000)) for a in range(count) for b in range(a + 1, count + 1)}
    cuts = CheapestCuts(problem)
    for first in reversed(range(count)):
        cuts.add(first, {last - first: CostBound(cost[first, last], 0, 0) for last in range(first + 1, count + 1)})

    @functools.cache
    def least(first: int, last: int) -> float:
        ends = [cost[first, at] + switch + (least(at, last) if at < last else 0.0) for at in range(first + 1, last + 1)]
        return min(ends)

    for first, last in cost:
        assert cuts.cost(first, last) == least(first, last)


def test_runs_that_are_far_behind_their_cuts_change_no_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = problem_of(encoder(4, 512, 256), microbatch=1, epoch_switch_cycles=2_000)
    near = Optimal(problem, quiet)
    result = near.run()
    forget_searches(problem.costs)
    monkeypatch.setattr(op_runs, "FAR_BEHIND", float("inf"))
    every = Optimal(problem, quiet)
    assert result == every.run()
    assert sum(map(len, near.bounds.values())) < sum(map(len, every.bounds.values()))


def test_a_search_that_shares_the_costs_of_another_one_chooses_as_if_it_were_alone() -> None:
    first, second = problem_of(encoder(2)), problem_of(encoder(3))
    shared = Problem.of(second.graph, second.models, first.device, first.options, second.order, costs=first.costs)
    alone = Optimal(second, quiet).run()
    one = Optimal(first, quiet)
    one.run()
    two = Optimal(shared, quiet)
    assert np.array_equal(one.runs.targets, two.runs.targets)
    known = set(one.runs.memory.finished_epochs)
    assert two.run() == alone and known & set(two.runs.memory.finished_epochs) == known
    forget_searches(first.costs)
    assert not Optimal(first, quiet).runs.memory.finished_epochs


def test_a_long_model_is_placed_with_fewer_prices_and_nearly_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    graph = convolutions()
    usual = problem_of(graph, microbatch=1, objective="latency")
    best = slowest_stage(usual, POLICIES["Optimal"](usual, quiet))
    monkeypatch.setattr("tbuda_lab.core.placer.model.problem.LONG", len(usual.order))
    long = problem_of(graph, microbatch=1, objective="latency")
    assert long.is_long and not usual.is_long
    segments = [with_stall_cycles(long, s) for s in POLICIES["Optimal"](long, quiet)]
    assert [s.first for s in segments] == [0, *(s.last for s in segments[:-1])] and segments[-1].last == len(long.order)
    assert slowest_stage(long, segments) <= 1.1 * best
    several = problem_of(graph, microbatch=8)
    assert not several.is_long
