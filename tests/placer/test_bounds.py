"""Lower bounds against brute force: every way to cut a short schedule and every choice of candidates."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.device import load_device
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering.hwops import HwBinary, HwMatmul, HwUnary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer.model.bounds import no_packing, time_bound
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.model.segment import choose_rows, measure, place_rows
from tbuda_lab.core.placer.stalls.epoch_throughput import flow
from tests.placer.graphs import Sketch, convolutions, linear
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
    problem = Problem.of(graph, op_models(graph, spec, options), spec, options, schedule(graph), {}, frozenset())
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


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("microbatch", [1, 16])
@pytest.mark.parametrize("seed", range(4))
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


@pytest.mark.parametrize("policy", ["Optimal", "Ribbon", "SingleOpPerEpoch"])
@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("name", GRAPHS)
def test_no_policy_beats_the_bound(name: str, device: str, policy: str) -> None:
    for microbatch in (1, 64):
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
        wanted = dict(zip(ops, rows, strict=True))
        if sum(int(problem.tables[op].rows["cores"][row]) for op, row in wanted.items()) > problem.cores:
            continue
        if choose_rows(problem, first, last, wanted, 0, 0.0, {})[0] != wanted:
            continue
        segment = place_rows(problem, first, last, wanted)
        if segment is not None:
            best = min(best, flow(problem, segment).cycles / problem.options.inputs_counted)
    return best


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("microbatch", [1, 16])
@pytest.mark.parametrize("seed", range(2))
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


def test_the_bound_of_a_chain_counts_the_way_of_its_first_input() -> None:
    """At a batch of one a chain of matmuls, none of which streams, takes all of their work one after the other."""
    s = Sketch()
    x = s.input("x", 1, 1, 64, 64)
    for i in range(6):
        x = s.op(f"n{i}", HwMatmul(), (1, 1, 64, 64), x, s.parameter(f"w{i}", 1, 1, 64, 64))
    options, spec = CompileOptions(enable_t_streaming=False), load_device("wormhole_b0")
    graph = s.output(x)
    problem = Problem.of(graph, op_models(graph, spec, options), spec, options, schedule(graph), {}, frozenset())
    legal = problem.costs.legal
    work = 0
    for table in problem.tables:
        if table.profile is not None and table.profile.kind == "matmul":
            rows = legal[table.signature]
            legal[table.signature] = rows = rows[table.rows["m_k"][rows] > 1]  # adds up over k, gives all at the end
            work += int(table.rows["cycles"][rows].min())
    assert time_bound(problem) >= work + options.epoch_switch_cycles
