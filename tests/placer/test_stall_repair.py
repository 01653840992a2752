"""Epochs that do not flow: the pace agrees with the whole simulation, repairs pay, results stay right."""

from __future__ import annotations

import dataclasses
import functools

import pytest
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.balancer.types import OpModels, Placement
from tbuda_lab.core.compiler import CompileResult, compile_graph
from tbuda_lab.core.constraints import FREE, resolve
from tbuda_lab.core.device import load_device
from tbuda_lab.core.epochsim import simulate
from tbuda_lab.core.errors import PlacementError
from tbuda_lab.core.frontend.pybuda import PyTorchModule, from_pybuda
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.phases import by_phase, phases
from tbuda_lab.core.lowering.edits import edit, queued_ports
from tbuda_lab.core.lowering.hw_ops import HwUnary
from tbuda_lab.core.options import CompileOptions, TrainingOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.passes.autograd.optimizers import optimizer_options
from tbuda_lab.core.placer import PlaceContext, choose_epochs, place_and_repair
from tbuda_lab.core.placer.model.costs import CostCache
from tbuda_lab.core.placer.model.problem import Problem, Schedule, op_facts
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, cores_of, measure
from tbuda_lab.core.placer.policies.optimal import Optimal
from tbuda_lab.core.placer.stalls.epoch_throughput import full_edges, throughput, throughputs
from tbuda_lab.core.placer.stalls.fork_join import nop_cores
from tbuda_lab.core.placer.stalls.repairs import Repairs, with_edits, with_queues
from tbuda_lab.core.placer.stalls.stall_repair import repair_stalls
from tbuda_lab.core.placer.state import PlacementState, ProgressCheck
from tbuda_lab.core.placer.steps import refuse_hanging
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.commands import ResizeOp
from tests.placer.graphs import Sketch, encoder, residuals
from tests.placer.test_place import check

BATCH = 24
GRAYSKULL = load_device("grayskull")


class FeedForward(torch.nn.Module):
    """A residual around two matmuls and a gelu: the residual has to wait for all of it."""

    def __init__(self, inner: int) -> None:
        super().__init__()
        self.norm, self.up, self.down = (
            torch.nn.LayerNorm(512),
            torch.nn.Linear(512, inner),
            torch.nn.Linear(inner, 512),
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        z: torch.Tensor = self.down(torch.nn.functional.gelu(self.up(y))) + y
        return z


@functools.cache
def model(inner: int = 2048) -> tuple[FeedForward, torch.Tensor, Graph]:
    torch.manual_seed(0)
    module, x = FeedForward(inner).eval(), torch.randn(1, 256, 512)
    return module, x, frontend.from_torch(module, (x,), name="ff")


@functools.cache
def compiled(on: bool) -> CompileResult:
    return compile_graph(model()[2], GRAYSKULL, CompileOptions(microbatch=BATCH, enable_fork_join_buffering=on))


def chosen(graph: Graph, batch: int = BATCH, device: str = "grayskull") -> tuple[Problem, tuple[Segment, ...]]:
    spec, options = load_device(device), CompileOptions(microbatch=batch)
    state = choose_epochs(PlaceContext.of(graph, spec, options))
    problem, segments = state.problem, state.segments
    return problem, tuple(segments)


def total(problem: Problem, segments: tuple[Segment, ...]) -> float:
    return sum(throughput(problem, s).cycles for s in segments)


def test_epochs_simulated_side_by_side_flow_as_they_do_alone() -> None:
    """Also where one of them would hang: every run of ops of a residual block, each epoch in a network of its own."""
    problem, segments = chosen(compiled(False).lowered)
    whole = segments[0]
    epochs = []
    for last in range(whole.first + 1, whole.last + 1):
        size = last - whole.first
        epochs.append(dataclasses.replace(whole, last=last, rows=whole.rows[:size], spots=whole.spots[:size]))
    together = throughputs([(problem, epoch) for epoch in epochs])
    assert len({t.period for t in together}) > 1
    reasons = [full_edges(problem, epoch) for epoch in epochs]
    assert len(set(reasons)) > 1
    for epoch, side_by_side, full in zip(epochs, together, reasons, strict=True):
        alone = dataclasses.replace(problem, costs=CostCache(problem.device, problem.options))
        assert throughput(alone, epoch) == side_by_side
        assert full_edges(alone, epoch) == full
        alone.costs.recent_runs.clear()  # of a simulation that is not there any more
        alone.costs.answers.clear()
        assert full_edges(alone, epoch) == full


def test_the_edges_that_hold_an_epoch_up_are_those_that_the_whole_simulation_names() -> None:
    """Of every fork that stalls an epoch of a compile the full buffer is among them; an epoch that flows may have
    none."""
    result = compiled(False)
    p, trace = result.placement, simulate(compiled(False), BATCH)
    critical = [stall for stall in trace.stalls if stall.critical]
    assert critical
    order = [n for e in p.epochs for n in e.ops]
    problem = Problem.of(result.lowered, p.models, result.device, result.options, order)
    at = 0
    for epoch in p.epochs:
        rows = {at + i: p.ops[n].row for i, n in enumerate(epoch.ops)}
        spots = tuple((*p.ops[n].start, p.ops[n].transposed) for n in epoch.ops)
        kernel, limiter, _ = measure(problem, at, at + len(rows), rows)
        segment = Segment(at, at + len(rows), tuple(rows.values()), spots, kernel, limiter)
        forks = {epoch.ops[producer] for producer, _, _ in full_edges(problem, segment)}
        assert {stall.fork for stall in critical if stall.epoch == epoch.index} <= forks
        at += len(rows)


def test_a_queue_changes_the_facts_of_its_two_ops_alone() -> None:
    problem, _ = chosen(compiled(False).lowered)
    reader, producer = next((r, p) for r, fact in enumerate(problem.facts) for p in fact.producers if p >= 0)
    names = problem.order[producer], problem.order[reader]
    port = problem.facts[reader].producers.index(producer)
    edits = (Override("insert_queue", names[0], {"dest": (names[1],), "port": port}, "placer"),)
    queued = with_queues(problem, with_edits(problem, edits))
    assert queued.facts[reader].queued_in == (port,)
    assert queued.facts == op_facts(queued.graph, problem.number, problem.device, problem.options)
    assert [i for i, f in enumerate(queued.facts) if f != problem.facts[i]] == sorted([producer, reader])


def test_the_pace_of_an_epoch_is_that_of_the_whole_simulation() -> None:
    """`throughput` builds one epoch from a problem; `simulate` builds all of them from a compile result."""
    for on in (False, True):
        result = compiled(on)
        times = simulate(result, BATCH).epochs
        p = result.placement
        order = [n for e in p.epochs for n in e.ops]
        problem = Problem.of(result.lowered, p.models, result.device, result.options, order)
        at = 0
        for epoch, seen in zip(p.epochs, times, strict=True):
            rows = {at + i: p.ops[n].row for i, n in enumerate(epoch.ops)}
            spots = tuple((*p.ops[n].start, p.ops[n].transposed) for n in epoch.ops)
            kernel, limiter, _ = measure(problem, at, at + len(rows), rows)
            matches = throughput(problem, Segment(at, at + len(rows), tuple(rows.values()), spots, kernel, limiter))
            assert matches.period == seen.period
            assert abs(matches.cycles - (seen.end - seen.start)) <= 1000  # the way of the last result to DRAM
            at += len(rows)


def test_a_mend_pays_in_the_whole_simulation_and_changes_no_result() -> None:
    module, x, _ = model()
    plain, repaired = compiled(False), compiled(True)
    assert simulate(repaired, BATCH).cycles < 0.9 * simulate(plain, BATCH).cycles
    (note,) = (d for d in repaired.diagnostics if d.rule == "repair")
    assert "a DRAM queue between" in note.message and "cycles a batch" in note.message
    assert not [d for d in plain.diagnostics if d.rule == "repair"]
    assert sum(len(queued_ports(n)) for n in repaired.lowered.ops) == 1
    assert not any(queued_ports(n) for n in plain.lowered.ops)
    check(repaired.lowered, GRAYSKULL, repaired.placement)
    samples = [(x * k,) for k in torch.linspace(-2, 2, BATCH)]
    got = [o[0].float() for o in Runner(repaired, "golden").run(samples)]
    for g, (sample,) in zip(got, samples, strict=True):
        want = module(sample).detach()
        assert torch.corrcoef(torch.stack([g.flatten(), want.flatten()]))[0, 1] > 0.999


def test_of_several_forks_that_hang_each_is_mended() -> None:
    """No single nop or queue lets the epoch run."""
    problem, segment = hanging_epoch()
    policy = Optimal(problem, lambda fraction: None)
    result = repair_stalls(problem, (segment,))
    assert len(result.edits) > 1
    assert all(not throughput(result.problem, part).deadlocked for part in result.segments)
    lacking = nop_cores(problem, segment)
    assert lacking > 0
    roomy = policy.apart(segment, lacking, {})
    assert roomy is not None and cores_of(problem, roomy) <= problem.cores - lacking


@functools.cache
def hanging_parts() -> tuple[Graph, dict[str, OpModels], tuple[str, ...], Segment]:
    graph, options = residuals(3, 2048), CompileOptions(microbatch=BATCH)
    models, order = op_models(graph, GRAYSKULL, options), tuple(schedule(graph))
    policy = Optimal(Problem.of(graph, models, GRAYSKULL, options, order), lambda fraction: None)
    tries = (policy.attempt(0, len(order), 0, at, {}).segment for at in range(len(policy.runs.targets)))
    return graph, models, order, next(segment for segment in tries if segment)


def hanging_epoch() -> tuple[Problem, Segment]:
    """Residuals that hang, as one epoch of a problem of its own."""
    graph, models, order, segment = hanging_parts()
    problem = Problem.of(graph, models, GRAYSKULL, CompileOptions(microbatch=BATCH), order)
    assert throughput(problem, segment).deadlocked
    return problem, segment


def test_an_epoch_that_no_repair_helps_is_cut_until_nothing_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, segment = hanging_epoch()
    monkeypatch.setattr(Repairs, "possible", lambda self, state, now: iter(()))
    result = repair_stalls(problem, (segment,))
    assert len(result.segments) > 1 and not result.edits
    assert [part.first for part in result.segments[1:]] == [part.last for part in result.segments[:-1]]
    assert all(not throughput(problem, part).deadlocked for part in result.segments)
    (note,) = result.notes
    assert "ends a deadlock" in note.message and all(
        problem.order[p.first] in note.message for p in result.segments[1:]
    )


def test_an_epoch_that_hangs_all_the_same_is_refused_by_its_buffers(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, segment = hanging_epoch()
    monkeypatch.setattr(Repairs, "apply", lambda self, *arguments: None)
    result = repair_stalls(problem, (segment,))
    assert result.segments[0].rows == segment.rows
    context = PlaceContext(
        problem.graph, problem.models, GRAYSKULL, problem.options, FREE, problem.costs, ProgressCheck()
    )
    state = PlacementState(context, problem, 0, problem, result.segments, "Optimal")
    with pytest.raises(PlacementError, match="would wait for ever") as refused:
        refuse_hanging(state)
    stuck = {(problem.order[a], problem.order[b]) for a, b, _ in throughput(problem, segment).stuck}
    assert all(any(a in d.fix and b in d.fix for d in refused.value.diagnostics) for a, b in stuck)


@pytest.mark.parametrize("device", ["grayskull", "wormhole_b0"])
def test_mended_epochs_are_legal_never_slower_and_need_no_more_mending(device: str) -> None:
    problem, segments = chosen(encoder(2, 128, 256), device=device)
    result = repair_stalls(problem, segments)
    assert total(result.problem, result.segments) <= total(problem, segments)
    upstream_rows: dict[int, int] = {}
    at = 0
    for segment in result.segments:
        assert segment.first == at
        rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
        assert choose_rows(result.problem, segment.first, segment.last, rows, 0, 0.0, upstream_rows)[0] == rows
        kernel, limiter, _ = measure(result.problem, segment.first, segment.last, rows)
        assert (kernel, limiter) == (segment.kernel_cycles, segment.limiter_cycles)
        cells = [
            (top + r, left + c)
            for op, (top, left, turned) in zip(rows, segment.spots, strict=True)
            for h, w in [(result.problem.tables[op].rows[rows[op]][f] for f in ("grid_r", "grid_c"))]
            for r in range(w if turned else h)
            for c in range(h if turned else w)
        ]
        assert len(cells) == len(set(cells))
        upstream_rows.update(rows)
        at = segment.last
    assert at == len(result.problem.order)
    again = repair_stalls(result.problem, result.segments)
    assert again.segments == result.segments and not again.edits
    # the edits asked for by the user give the same graph
    same = edit(problem.graph, problem.device, problem.options, result.edits).graph
    assert {n.name: n.inputs for n in same} == {n.name: n.inputs for n in result.problem.graph}


def test_no_single_queue_anywhere_in_the_epoch_beats_what_was_found() -> None:
    """Every edge of every epoch tried: the search looks at full buffers only, and misses nothing by that."""
    problem, segments = chosen(encoder(1, 96, 768))
    result = repair_stalls(problem, segments)
    best = total(problem, segments)
    assert total(result.problem, result.segments) < best
    for op, fact in enumerate(problem.facts):
        for port, producer in enumerate(fact.producers):
            if producer < 0:
                continue
            value = {"dest": (fact.name,), "port": port}
            graph = edit(
                problem.graph,
                problem.device,
                problem.options,
                [Override("insert_queue", problem.order[producer], value)],
            ).graph
            trial = Problem.of(graph, problem.models, problem.device, problem.options, problem.order)
            parts = []
            for s in segments:
                kernel, limiter, _ = measure(
                    trial, s.first, s.last, dict(zip(range(s.first, s.last), s.rows, strict=True))
                )
                parts.append(dataclasses.replace(s, kernel_cycles=kernel, limiter_cycles=limiter))
            best = min(best, total(trial, tuple(parts)))
        assert op < len(problem.order)
    assert total(result.problem, result.segments) <= best


def test_one_input_at_a_time_is_left_alone() -> None:
    problem, segments = chosen(encoder(1, 128, 256), batch=1)
    result = repair_stalls(problem, segments)
    assert result.segments == segments and result.problem is problem and not result.notes


# -- ops that fit no epoch ---------------------------------------------------------------------------------------------
def crowded(streams: bool = False) -> tuple[Graph, tuple[Override, ...]]:
    """An op on 64 cores, read in the next epoch by one core, which may not read more than 39 buffers (all at once, or
    eight of them at each t)."""
    s = Sketch()
    shape = (1, 1, 256, 256)
    wide = s.op("wide", HwUnary("exp"), shape, s.input("x", *shape))
    graph = s.output(s.op("narrow", HwUnary("gelu"), shape, wide))
    return graph, (
        Override("op_size", "wide", (8, 8)),
        Override("op_size", "narrow", (1, 1)),
        Override("t_stream_shape", "narrow", (8, 1) if streams else (1, 1)),
        Override("epoch_break", "narrow"),
    )


@pytest.mark.parametrize("streams", [False, True])
def test_an_op_that_would_read_too_many_buffers_gets_a_nop_and_that_is_said(streams: bool) -> None:
    graph, overrides = crowded(streams)
    spec, options = load_device("wormhole_b0"), CompileOptions()
    constraints = resolve(overrides, graph, spec, options)
    models = op_models(graph, spec, options, constraints.choices)
    with pytest.raises(PlacementError):
        choose_epochs(PlaceContext.of(graph, spec, options, overrides))
    outcome = place_and_repair(graph, models, spec, options, constraints)
    nop = outcome.placement.ops["buffer_0_wide_narrow"]
    assert nop.size[0] * nop.size[1] <= 39
    assert outcome.placement.ops["wide"].size == (8, 8) and outcome.placement.ops["narrow"].size == (1, 1)
    check(outcome.graph, spec, outcome.placement)
    (note,) = (d for d in outcome.placement.diagnostics if d.rule == "repair")
    assert note.where == "narrow" and "39 DRAM buffers" in note.message


def test_what_no_nop_can_help_keeps_its_own_error() -> None:
    graph, overrides = crowded()
    spec, options = load_device("wormhole_b0"), CompileOptions()
    pin = Override("op_placement", "wide", {"start": (0, 0), "chip": 0})
    constraints = resolve((*overrides, pin), graph, spec, options)
    models = op_models(graph, spec, options, constraints.choices)
    with pytest.raises(PlacementError, match="unknown balancer policy"):
        place_and_repair(graph, models, spec, dataclasses.replace(options, balancer_policy="no"), constraints)


# -- tensors on several grayskull chips --------------------------------------------------------------------------------
class Spread(torch.nn.Module):
    """An input and an early result that are read again at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.up, self.down, self.out = torch.nn.Linear(128, 256), torch.nn.Linear(256, 128), torch.nn.Linear(128, 128)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.exp(x * 0.1)
        z: torch.Tensor = self.out(self.down(torch.nn.functional.gelu(self.up(y))) + y) * x + y
        return z


@pytest.mark.parametrize("breaks", [("down.matmul",), ("down.matmul", "out.matmul")])
def test_hop_nops_carry_what_several_grayskull_chips_read(breaks: tuple[str, ...]) -> None:
    torch.manual_seed(1)
    module, x = Spread().eval(), torch.randn(1, 64, 128)
    device = load_device("grayskull", chips=len(breaks) + 1)
    graph = frontend.from_torch(module, (x,), name="spread")
    result = compile_graph(graph, device, CompileOptions(), tuple(Override("chip_break", b) for b in breaks))
    p = result.placement
    assert len({e.chip for e in p.epochs}) == len(breaks) + 1
    check(result.lowered, device, p)
    low, high = device.p2p_window
    users = result.lowered.users()
    for q in p.queues.values():
        readers = {p.ops[n].chip for n, _ in users[q.source] if n in p.ops and p.ops[n].epoch != _epoch(p, q.source)}
        if q.kind in ("input", "e2e", "parameter", "constant"):
            assert readers == {q.chip}, "a grayskull chip reads its own DRAM only"
        if q.kind == "e2e" and p.ops[q.source].chip != q.chip:
            assert all(c == 0 and low <= a and a + q.bytes_per_buffer <= high for c, a in q.buffers)
    assert [d for d in result.diagnostics if d.rule == "repair"]
    got, want = Runner(result, "golden").run([(x,)])[0][0].float(), module(x).detach()
    assert torch.corrcoef(torch.stack([got.flatten(), want.flatten()]))[0, 1] > 0.999


def _epoch(placement: Placement, source: str) -> int:
    return placement.ops[source].epoch if source in placement.ops else -1


# -- sessions ----------------------------------------------------------------------------------------------------------
class WideNarrow(torch.nn.Module):
    """What `crowded` is, for a session."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.gelu(torch.exp(x))


def test_a_session_shows_edits_and_explains_the_nops_of_the_placer() -> None:
    x = torch.randn(1, 1, 256, 256) / 4
    options = CompileOptions(enable_auto_fusing=False)
    first, second = (n.name for n in Session(WideNarrow(), (x,), "wormhole_b0", options).compile().lowered.ops)
    sizes = Override("op_size", first, (8, 8)), Override("op_size", second, (1, 1)), Override("epoch_break", second)
    plain = Override("t_stream_shape", second, (1, 1))
    session = Session(WideNarrow(), (x,), "wormhole_b0", options, overrides=(*sizes, plain))
    result = session.compile()
    (nop,) = (n.name for n in result.lowered.ops if n.name.startswith("buffer_0_"))
    assert session.legal(nop).op == nop and session.why(nop)
    grid = next(g for g in ((2, 1), (1, 2), (4, 1)) if result.placement.ops[nop].size != g)
    session.apply(ResizeOp(nop, grid))
    assert session.compile().placement.ops[nop].size in (grid, grid[::-1])
    assert session.records[-1].state == "obtained"
    assert all(c.pcc is not None and c.pcc > 0.999 for c in session.verify())


@pytest.mark.parametrize("parts", ["inference", "training"])
def test_a_schedule_with_a_nop_is_what_a_new_one_says(parts: str) -> None:
    """Of every edge between two ops, with another operand of the reader through a queue where it has one."""
    module, x, traced = model()
    options = CompileOptions()
    if parts == "training":
        traced = from_pybuda(PyTorchModule("ff", module), (x,), training=True)
        options = CompileOptions(training=TrainingOptions(optimizer_options("adam", learning_rate=0.1)))
    graph = compile_graph(traced, "grayskull", options).lowered
    order = by_phase(schedule(graph), phases(graph))
    before = Schedule.of(graph, order, GRAYSKULL, options)
    edges = {(source, node.name) for node in graph.ops for source in node.sources if source in before.number}
    assert len(edges) > 8
    for source, reader in sorted(edges):
        queue = Override("insert_queue", source, {"dest": (reader,)})
        for first in ((), (queue,)):
            cut = edit(graph, GRAYSKULL, options, first).graph
            nopped = edit(cut, GRAYSKULL, options, (Override("insert_nop", source, {"dest": (reader,)}),)).graph
            (nop,) = set(nopped.nodes) - set(cut.nodes)
            at = order.index(reader)
            whole = Schedule.of(nopped, (*order[:at], nop, *order[at:]), GRAYSKULL, options)
            assert Schedule.of(cut, order, GRAYSKULL, options).with_nop(nopped, nop, source, reader) == whole
    assert before == Schedule.of(graph, order, GRAYSKULL, options)
