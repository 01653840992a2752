"""Lower bounds against brute force: every way to cut a short schedule and every choice of candidates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

from tbuda_lab.core import passes
from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.balancer.bandwidth import EpochLoad
from tbuda_lab.core.device import load_device
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwUnary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer.model.batch_bound import Ways, time_bound
from tbuda_lab.core.placer.model.bounds import NoPacking, least_runs, no_packing
from tbuda_lab.core.placer.model.costs import CostCache
from tbuda_lab.core.placer.model.filling_bound import FillingBound
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure, place_rows
from tbuda_lab.core.placer.stalls.epoch_throughput import batch_cycles, throughput
from tests import pairs
from tests.placer.graphs import Sketch, convolutions, encoder, linear, residuals
from tests.placer.test_place import DEVICES, GRAPHS, placed


def _fork() -> Graph:
    s = Sketch()
    x = s.input("x", 1, 1, 256, 128)
    y = linear(s, "mm", x, 256, 128, 256)
    a = s.op("a", HwUnary("exp"), (1, 1, 256, 256), y)
    b = s.op("b", HwBinary("add"), (1, 1, 256, 256), a, y)
    return s.output(b)


def _problem(graph: Graph, device: str, microbatch: int, rng: np.random.Generator, count: int = 5) -> Problem:
    """The problem of a graph with a few random candidates per op, among them large grids and small ones."""
    options, spec = CompileOptions(microbatch=microbatch), load_device(device)
    problem = Problem.of(graph, op_models(graph, spec, options), spec, options, schedule(graph))
    problem.costs.legal.update(
        {key: np.sort(rng.choice(rows, min(count, len(rows)), replace=False)) for key, rows in problem.legal.items()}
    )
    return problem


def _least(problem: Problem, first: int, last: int) -> float:
    """The fastest choice of candidates for one epoch that has enough cores, whether or not it packs."""
    ops = range(first, last)
    best = np.inf
    for rows in itertools.product(*(problem.legal[problem.tables[op].signature].tolist() for op in ops)):
        chosen = dict(zip(ops, rows, strict=True))
        if sum(int(problem.tables[op].rows["cores"][row]) for op, row in chosen.items()) <= problem.cores:
            best = min(best, measure(problem, first, last, chosen)[1])
    return best


def _brute(problem: Problem) -> float:
    n = len(problem.order)
    least = [0.0] + [np.inf] * n
    for last in range(1, n + 1):
        for first in range(last):
            least[last] = min(least[last], least[first] + _least(problem, first, last))
    return least[n]


@pytest.mark.parametrize(("seed", "device", "microbatch"), pairs(range(4), DEVICES, [1, 16]))
def test_no_choice_of_epochs_and_candidates_beats_the_bound_and_some_come_near(
    device: str, microbatch: int, seed: int
) -> None:
    for graph in (_fork(), convolutions(8, 32, 1)):
        problem = _problem(graph, device, microbatch, np.random.default_rng(seed))
        exact = _brute(problem)
        bound = no_packing(problem)
        assert bound <= exact
        # steps between targets, and candidates with few cores on DRAM that are not those with few cores
        assert bound >= 0.6 * exact


@pytest.mark.parametrize(
    ("device", "policy", "name", "microbatch"),
    pairs(DEVICES, ["Optimal", "Ribbon", "SingleOpPerEpoch"], GRAPHS, [1, 64]),
)
def test_no_policy_beats_the_bound(device: str, policy: str, name: str, microbatch: int) -> None:
    p = placed(GRAPHS[name](), load_device(device), balancer_policy=policy, microbatch=microbatch)
    assert p.report is not None
    bounds = p.report.bounds
    assert bounds.no_packing <= bounds.achieved_limiter
    assert bounds.no_packing >= 0.9 * bounds.critical_op
    if (value := p.report.objective) is not None:
        assert 0 < value.bound <= value.time


def _simulated(problem: Problem, first: int, last: int) -> float:
    """Cycles per input of the fastest choice of candidates for one epoch that edges and packing allow, by the simulator
    of epochs."""
    ops = range(first, last)
    best = np.inf
    for rows in itertools.product(*(problem.legal[problem.tables[op].signature].tolist() for op in ops)):
        expected = dict(zip(ops, rows, strict=True))
        if sum(int(problem.tables[op].rows["cores"][row]) for op, row in expected.items()) > problem.cores:
            continue
        if choose_rows(problem, first, last, expected, 0, 0.0, {})[0] != expected:
            continue
        segment = place_rows(problem, first, last, expected)
        if segment is not None:
            best = min(best, throughput(problem, segment).cycles / problem.options.inputs_counted)
    return best


@pytest.mark.parametrize(("device", "microbatch", "seed"), pairs(DEVICES, [1, 16], range(2)))
def test_no_choice_beats_the_bound_of_the_time(device: str, microbatch: int, seed: int) -> None:
    """Against the simulator, which the bound asks nothing: all cuts, all candidates."""
    for graph in (_fork(), convolutions(8, 32, 1)):
        problem = _problem(graph, device, microbatch, np.random.default_rng(seed), 3)
        switch = problem.options.epoch_switch_cycles / microbatch
        least = [0.0] + [np.inf] * len(problem.order)
        for last in range(1, len(least)):
            for first in range(last):
                least[last] = min(least[last], least[first] + switch + _simulated(problem, first, last))
        assert np.isfinite(least[-1])
        bound = time_bound(problem)
        assert bound <= least[-1]
        assert bound >= 0.4 * least[-1]
        assert bound >= no_packing(problem) + switch


def test_bounds_known_of_one_end_of_a_schedule_hold_at_an_equal_one(monkeypatch: pytest.MonkeyPatch) -> None:
    options, spec = CompileOptions(), load_device("wormhole_b0")
    swept: list[int] = []
    sweep = NoPacking.sweep
    monkeypatch.setattr(NoPacking, "sweep", lambda self, first: swept.append(first) or sweep(self, first))

    def chain(count: int, costs: CostCache) -> Problem:
        s = Sketch()
        at = s.input("x", 1, 1, 256, 256)
        for i in range(count):
            at = s.op(f"op{i}", HwUnary("exp"), (1, 1, 256, 256), at)
        graph = s.output(at)
        models = op_models(graph, spec, options)
        return Problem.of(graph, models, spec, options, schedule(graph), costs=costs)

    shared = CostCache(spec, options)
    for count, known in ((3, False), (5, False), (5, True), (3, True), (4, False)):
        expected = least_runs(chain(count, CostCache(spec, options)))
        swept.clear()
        for mine, theirs in zip(least_runs(chain(count, shared)), expected, strict=True):
            assert all((a == b).all() for a, b in zip(mine, theirs, strict=True))
        assert bool(swept) != known


def test_the_bound_of_a_chain_counts_the_way_of_its_first_input() -> None:
    """At a batch of one a chain of matmuls, none of which streams, takes all of their work one after the other."""
    s = Sketch()
    x = s.input("x", 1, 1, 64, 64)
    for i in range(6):
        x = s.op(f"n{i}", HwMatmul(), (1, 1, 64, 64), x, s.parameter(f"w{i}", 1, 1, 64, 64))
    options, spec = CompileOptions(enable_t_streaming=False), load_device("wormhole_b0")
    graph = s.output(x)
    problem = Problem.of(graph, op_models(graph, spec, options), spec, options, schedule(graph))
    legal = problem.costs.legal
    work = 0
    for table in problem.tables:
        if table.profile is not None and table.profile.kind == "matmul":
            rows = legal[table.signature]
            legal[table.signature] = rows = rows[table.rows["m_k"][rows] > 1]  # adds up over k, gives all at the end
            work += int(table.rows["cycles"][rows].min())
    assert time_bound(problem) >= work + options.epoch_switch_cycles


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("microbatch", [2, 64])
def test_no_epoch_drawn_at_random_beats_the_bound_of_its_run(device: str, microbatch: int) -> None:
    """The simulator runs legal epochs of all lengths, with small and large grids, streamed and not."""
    rng, close = np.random.default_rng(7), 0.0
    for graph in (_fork(), convolutions(16, 32, 2)):
        options, spec = CompileOptions(microbatch=microbatch), load_device(device)
        problem = Problem.of(graph, op_models(graph, spec, options), spec, options, schedule(graph))
        ways, runs, seen = Ways(problem), least_runs(problem), 0
        for _ in range(70):
            first = int(rng.integers(len(problem.order)))
            lengths, cycles = runs[first]
            at = int(rng.integers(len(lengths)))
            last = first + int(lengths[at])
            segment = _drawn(problem, first, last, float(cycles[at]) * float(rng.choice([1.05, 1.5, 4.0])), rng)
            if segment is None or (run := throughput(problem, segment)).deadlocked:
                continue
            seen += 1
            bound = ways.least(first, last, float(cycles[at]))
            assert microbatch * float(cycles[at]) <= bound <= run.cycles
            close = max(close, bound / run.cycles)
        assert seen > 10
    assert close > 0.9


def _drawn(problem: Problem, first: int, last: int, limit: float, rng: np.random.Generator) -> Segment | None:
    """An epoch of candidates within a limit that are drawn, the small ones more often; None where they do not go."""
    picked = {}
    for op in range(first, last):
        table = problem.tables[op]
        rows = problem.legal[table.signature]
        rows = rows[table.rows["cycles"][rows] <= limit]
        rows = rows[np.argsort(table.rows["cores"][rows], kind="stable")][: int(rng.choice([4, 40, 4000]))]
        if not len(rows):
            return None
        picked[op] = int(rng.choice(rows))
    chosen = choose_rows(problem, first, last, picked, 40, limit, {})[0]
    return None if chosen is None else place_rows(problem, first, last, chosen)


class _Pictures(torch.nn.Module):
    """Convolutions with strides, groups and full kernels, pooling, growing, joining and a mean: what has pickers."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(32, 64, 3, padding=1)
        self.deep = torch.nn.Conv2d(64, 64, 3, padding=1, groups=64)
        self.down = torch.nn.Conv2d(64, 96, 3, stride=2, padding=1)
        self.point = torch.nn.Conv2d(96, 64, 1)
        self.joined = torch.nn.Conv2d(128, 32, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.first(x))
        z = torch.nn.functional.max_pool2d(torch.relu(self.deep(y)) + y, 2)
        z = torch.relu(self.point(torch.relu(self.down(torch.nn.functional.interpolate(z, scale_factor=2.0)))))
        z = torch.nn.functional.interpolate(z, scale_factor=2.0)
        return self.joined(torch.cat([y, z], dim=1)).mean(dim=(2, 3))


def _pictures(device: str, options: CompileOptions) -> Graph:
    torch.manual_seed(0)
    passed = passes.run(from_torch(_Pictures().eval(), (torch.rand(1, 32, 16, 16),)), options).graph
    return lower(passed, load_device(device), options)


@pytest.mark.parametrize("device", DEVICES[:2])
@pytest.mark.parametrize("name", ["pictures", "convolutions", "encoder", "residuals"])
def test_no_epoch_is_excluded_at_the_time_that_the_simulator_says(device: str, name: str) -> None:
    """Where no other rows are legal than those of the epoch all that is left is when each op does what."""
    rng, options, spec = np.random.default_rng(11), CompileOptions(microbatch=64), load_device(device)
    graphs = {
        "convolutions": lambda: convolutions(32, 64, 2),
        "encoder": lambda: encoder(1),
        "residuals": lambda: residuals(2, 128),
        "pictures": lambda: _pictures(device, options),
    }
    graph = graphs[name]()
    problem = Problem.of(graph, op_models(graph, spec, options), spec, options, schedule(graph))
    runs, legal, close = least_runs(problem), dict(problem.costs.legal), []
    for _ in range(40):
        first = int(rng.integers(len(problem.order)))
        lengths, cycles = runs[first]
        at = int(rng.integers(min(len(lengths), 12)))
        last = first + int(lengths[at])
        segment = _drawn(problem, first, last, float(cycles[at]) * float(rng.choice([1.05, 1.5, 4.0])), rng)
        if segment is None or throughput(problem, segment).deadlocked:
            continue
        time = batch_cycles(problem, segment)
        rows: dict[str, set[int]] = {}
        for op, row in zip(range(first, last), segment.rows, strict=True):
            rows.setdefault(problem.tables[op].signature, set()).add(row)
        problem.costs.legal.update({key: np.array(sorted(some)) for key, some in rows.items()})
        bound = FillingBound(problem, np.inf)
        assert not bound.excludes(first, last, time)
        parts = np.linspace(0.5, 1.0, 51)[:-1]
        close.append(max((part for part in parts if bound.excludes(first, last, part * time)), default=0.0))
        problem.costs.legal.update(legal)
    assert len(close) > 10 and max(close) > 0.9


@pytest.mark.parametrize("microbatch", [2, 64])
def test_filling_a_chain_that_hands_on_whole_outputs_takes_all_of_its_work(microbatch: int) -> None:
    """Each op of a chain adds up over k and gives all at the end: the first input takes the sum of their cycles, every
    other one the most of them."""
    s = Sketch()
    x = s.input("x", 1, 1, 64, 64)
    for i, width in enumerate((64, 128, 64, 256, 64)):
        x = s.op(f"n{i}", HwMatmul(), (1, 1, 64, width), x, s.parameter(f"w{i}", 1, 1, s.graph[x].shape[3], width))
    options, spec = CompileOptions(enable_t_streaming=False, microbatch=microbatch), load_device("wormhole_b0")
    graph = s.output(x)
    problem = Problem.of(graph, op_models(graph, spec, options), spec, options, schedule(graph))
    last = len(problem.order) - 1  # without the nop of the output
    least = []
    for op in range(last):
        table = problem.tables[op]
        rows = problem.costs.legal[table.signature]
        rows = rows[table.rows["m_k"][rows] > 1]
        row = rows[problem.row_limits(op, *problem.places(op, 0, last), EpochLoad(0, 0))[rows].argmin()]
        problem.costs.legal[table.signature] = np.array([row])
        least.append(int(table.rows["cycles"][row]))
    work = sum(least) + (microbatch - 1) * max(least)
    bound = FillingBound(problem, np.inf)
    assert bound.excludes(0, last, 0.999 * work)
    assert not bound.excludes(0, last, 1.5 * work + 40 * last * 100)


def test_what_filling_costs_is_in_the_bound_of_a_batch() -> None:
    """Of convolutions one after the other, against their slowest op alone."""
    options, spec = CompileOptions(microbatch=64), load_device("grayskull")
    graph = convolutions(32, 64, 6)
    problem = Problem.of(graph, op_models(graph, spec, options), spec, options, schedule(graph))
    result = placed(graph, spec, microbatch=64, objective="auto").report
    assert result is not None and result.objective is not None
    slowest = no_packing(problem) + options.epoch_switch_cycles / 64
    assert 1.01 * slowest < time_bound(problem) <= result.objective.time
