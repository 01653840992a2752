"""Whole placements in time."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from tbuda_lab.core.emit import emit, graph_name
from tbuda_lab.core.epochsim import (
    EpochConstants,
    WaitKind,
    cycles_csv,
    cycles_path,
    op_costs,
    simulate,
    simulated_cycles,
    write_cycles_csv,
)
from tbuda_lab.core.graph import Graph, Payload
from tbuda_lab.core.lowering.hw_ops import HwMatmul, HwSparseMatmul, HwUnary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tests.epochsim.compiled import placed
from tests.placer.graphs import Sketch, convolutions, encoder

BARE = EpochConstants(switch=0, noc_latency=0, dram_latency=0)


@pytest.fixture(scope="module")
def result() -> SimpleNamespace:
    breaks = (Override("epoch_break", ("l1.q", "l2.q")),)
    return placed(encoder(3, seq=128, hidden=256), overrides=breaks)


def unary_chain(length: int) -> Graph:
    s = Sketch()
    x = s.input("x", 1, 1, 128, 128)
    for i in range(length):
        x = s.op(f"e{i}", HwUnary("exp"), (1, 1, 128, 128), x)
    return s.output(x)


def test_a_chain_of_equal_ops_on_a_device() -> None:
    """Ublock by ublock: the last of k equal ops with s steps is done after k + s - 1 of them, plus the way out."""
    overrides = (Override("op_size", tuple(f"e{i}" for i in range(6)), (1, 1)),)
    result = placed(unary_chain(6), overrides=overrides, options=CompileOptions(objective="throughput"))
    costs = op_costs(result)  # type: ignore[arg-type]
    cycles = costs["e1"].cycles
    assert all(costs[f"e{i}"].cycles == cycles for i in range(6))
    matches = simulate(result, 40, BARE)  # type: ignore[arg-type]
    rows = {o.op: i for i, o in enumerate(matches.ops)}
    first, last = matches.start[rows["e0"], 0], matches.end[rows["e5"]]
    row = result.placement.candidate("e1")
    steps = int(row["mblock_m"]) * int(row["mblock_n"])
    assert steps <= BARE.steps
    assert first == 0
    assert last[0] == pytest.approx(cycles * (6 + steps - 1) / steps, abs=20)
    assert last[-1] - last[0] == pytest.approx(39 * cycles, abs=20)


def test_costs_are_those_the_placer_reports(result: SimpleNamespace) -> None:
    for other in (result, placed(convolutions()), placed(encoder(2), options=CompileOptions(microbatch=8))):
        costs, report = op_costs(other), other.placement.report  # type: ignore[arg-type]
        for name, (kernel, limiter, what) in report.op_limiters.items():
            cost = costs[name]
            assert cost.kernel == kernel
            once = math.ceil(cost.preload / other.options.microbatch)
            assert cost.cycles - 1 <= limiter <= max(cost.cycles, once) + 1  # loads share DRAM in time
            assert cost.limiter == what or once >= cost.cycles


@pytest.mark.parametrize("batch", [1, 5, 64])
def test_an_epoch_is_switch_fill_inputs_and_stall(result: SimpleNamespace, batch: int) -> None:
    matches = simulate(result, batch)
    assert len(matches.epochs) == len(result.placement.epochs)
    costs = op_costs(result)
    for epoch in matches.epochs:
        assert epoch.cycles == epoch.switch + epoch.fill + batch * epoch.slowest + epoch.stall
        assert epoch.fill >= 0 and epoch.stall >= 0
        ops = result.placement.epochs[epoch.index].ops
        assert epoch.slowest == max(costs[name].cycles for name in ops) == costs[epoch.slowest_op].cycles
        # inputs that pile up before an op whose weights come late leave faster than the slowest op at first
        assert epoch.period >= epoch.slowest - 1e-9 or batch < 64
    assert matches.cycles == sum(e.cycles for e in matches.epochs) == simulated_cycles(result, batch)
    assert matches.epochs[0].start == matches.constants.switch


def test_a_long_batch_runs_at_the_slowest_op_or_says_what_holds_it_up(result: SimpleNamespace) -> None:
    short, long = simulate(result, 100), simulate(result, 200)
    for a, b in zip(short.epochs, long.epochs, strict=True):
        pace = (b.cycles - a.cycles) / 100
        if pace > 1.01 * b.slowest:
            ops = set(result.placement.epochs[b.index].ops)
            assert any(d.where in ops and d.rule in ("fork-join-stall", "buffer-stall") for d in long.diagnostics)
        else:
            assert pace == pytest.approx(b.slowest, rel=0.01)


def test_waits_and_work_fill_the_time_between(result: SimpleNamespace) -> None:
    """For each op and input: from the end of the input before to the end of this one, all cycles are accounted for."""
    matches = simulate(result, 12)
    costs = op_costs(result)
    starts = {e.index: e.start for e in matches.epochs}
    epoch_start = np.array([starts[result.placement.ops[o.op].epoch] for o in matches.ops])
    if len(matches.trace.ops) == len(matches.ops):
        spent = matches.waits.sum(axis=2)
        between = np.diff(matches.end, axis=1, prepend=epoch_start[:, None])
        assert np.allclose(spent, between)
    for i, op in enumerate(matches.ops):
        assert op.compute == 12 * costs[op.op].kernel
        assert (matches.waits[i, :, WaitKind.COMPUTE] == costs[op.op].kernel).all()
        overhead = 12 * (costs[op.op].cycles - costs[op.op].kernel)
        assert op.wait_dram >= overhead * costs[op.op].limiter.endswith("dram")
        assert op.wait_host >= overhead * costs[op.op].limiter.endswith("host")


def test_no_input_is_taken_before_it_was_made(result: SimpleNamespace) -> None:
    matches = simulate(result, 6)
    row = {o.op: i for i, o in enumerate(matches.ops)}
    for node in result.lowered.ops:
        for source in node.sources:
            if source in row:
                # an op cannot be done with an input before its producer is, nor begin before that began
                assert (matches.end[row[node.name]] >= matches.end[row[source]]).all()
                assert (matches.start[row[node.name]] >= matches.start[row[source]]).all()
    assert (np.diff(matches.start, axis=1) >= 0).all()


def test_the_program_as_emitted_goes_round_its_loop(result: SimpleNamespace) -> None:
    once = simulate(result, 4)
    each = simulate(result, 7, per_run=2)
    assert once.per_run == 4 and each.per_run == 2
    runs = [simulate(result, n).cycles for n in (2, 2, 2, 1)]
    assert each.cycles == sum(runs)
    assert len(each.trace.epochs) == 4 * len(result.placement.epochs)
    assert each.start.shape == (len(each.ops), 7)
    assert (each.start[:, 2:4] - each.start[:, :2] == runs[0]).all()
    assert set(each.trace.input.tolist()) == set(range(7))


def test_constants_do_what_they_say(result: SimpleNamespace) -> None:
    base = simulate(result, 8, BARE)
    switched = simulate(result, 8, dataclasses.replace(BARE, switch=1000))
    assert switched.cycles - base.cycles == 1000 * len(base.epochs)
    slow = simulate(result, 8, dataclasses.replace(BARE, noc_latency=500))
    assert slow.cycles > base.cycles
    late = simulate(result, 8, dataclasses.replace(BARE, dram_latency=5000))
    assert late.cycles > base.cycles
    with pytest.raises(ValueError, match="switch"):
        EpochConstants(switch=-1)
    with pytest.raises(ValueError, match="steps"):
        EpochConstants(steps=0)


def test_a_slow_host_sets_the_pace() -> None:
    result = placed(unary_chain(3))
    assert len(result.placement.epochs) == 1
    free = simulate(result, 50, BARE)
    pace = 3 * free.epochs[0].slowest
    fed = simulate(result, 50, dataclasses.replace(BARE, host_input=pace))
    assert fed.cycles == pytest.approx(50 * pace, rel=0.05)
    popped = simulate(result, 50, dataclasses.replace(BARE, host_output=pace))
    # the queue of outputs holds some; the device runs ahead by as many
    entries = next(q.entries for q in result.placement.queues.values() if q.kind == "output")
    assert popped.cycles == pytest.approx((50 - entries) * pace, rel=0.05)
    waits = {o.op: o for o in fed.ops}
    assert waits["e0"].wait_host > 40 * pace / 2 > waits["e0"].wait_dram + waits["e0"].wait_input
    last = popped.ops[-1]
    assert last.wait_host > 40 * pace / 2 and last.wait_space == 0, "the host pops too late"


def test_waits_for_the_host_are_told_from_those_for_dram() -> None:
    """One op whose input lies in host memory or in DRAM: what it waits for has the name of that place."""
    late = dataclasses.replace(BARE, dram_latency=5000)
    for place, mine, other in (("host", WaitKind.HOST, WaitKind.DRAM), ("dram", WaitKind.DRAM, WaitKind.HOST)):
        result = placed(unary_chain(1), options=CompileOptions(input_queues_on_host=place == "host"))
        simulation = simulate(result, 4, late)
        assert {q.location for q in result.placement.queues.values() if q.kind == "input"} == {place}
        assert simulation.waits[0, 0, mine] >= 5000 and simulation.waits[0, :, other].sum() == 0


def test_preloaded_parameters_delay_the_first_input() -> None:
    s = Sketch()
    x, w = s.input("x", 1, 1, 64, 1024), s.parameter("w", 1, 1, 1024, 1024)
    s.op("mm", HwMatmul(), (1, 1, 64, 1024), x, w)
    result = placed(s.output("mm"), options=CompileOptions(microbatch=32))
    cost = op_costs(result)["mm"]  # type: ignore[arg-type]
    assert result.placement.candidate("mm")["prologue"] and cost.preload > 0
    matches = simulate(result, 4, BARE)  # type: ignore[arg-type]
    row = [o.op for o in matches.ops].index("mm")
    assert matches.start[row, 0] >= cost.preload
    assert matches.waits[row, 0, WaitKind.DRAM] >= cost.preload


def test_deadlocks_are_reported_not_run_into(result: SimpleNamespace, monkeypatch: pytest.MonkeyPatch) -> None:
    """With output buffers of no size nothing can be handed on in one piece."""
    from tbuda_lab.core.epochsim import build as module

    monkeypatch.setattr(module.NetworkBuilder, "capacity_of", lambda self, source, name, port: 0)
    matches = simulate(result, 3)
    assert matches.deadlocked
    errors = [d for d in matches.diagnostics if d.severity == "error"]
    assert errors and all(d.rule == "epoch-deadlock" for d in errors)
    assert matches.cycles > 0


def test_nothing_deadlocks_in_what_the_placer_makes(result: SimpleNamespace) -> None:
    for graph in (encoder(1), convolutions(), convolutions(32, 64, 2)):
        for device in ("wormhole_b0", "grayskull"):
            assert not simulate(placed(graph, device), 3).deadlocked  # type: ignore[arg-type]
    assert not simulate(result, 3).deadlocked


def test_epochs_on_several_chips_run_side_by_side(result: SimpleNamespace) -> None:
    """The same placement, its epochs two by two in one temporal epoch on two chips."""
    placement = result.placement
    assert len(placement.epochs) > 1
    epochs = tuple(dataclasses.replace(e, temporal=e.index // 2, chip=e.index % 2) for e in placement.epochs)
    twin = SimpleNamespace(**{**vars(result), "placement": dataclasses.replace(placement, epochs=epochs)})
    one, two = simulate(result, 32, BARE), simulate(twin, 32, BARE)
    assert two.cycles < one.cycles
    first, second = two.epochs[:2]
    assert first.start == second.start and second.end >= first.end
    row = {o.op: i for i, o in enumerate(two.ops)}
    for node in result.lowered.ops:
        for source in node.sources:
            if source in row:
                assert (two.end[row[node.name]] >= two.end[row[source]]).all()


@pytest.mark.parametrize("batch", [0, -1])
def test_a_batch_has_an_input(result: SimpleNamespace, batch: int) -> None:
    with pytest.raises(ValueError, match="one input"):
        simulate(result, batch)


def test_the_same_again(result: SimpleNamespace) -> None:
    a, b = simulate(result, 9), simulate(result, 9)
    assert (a.cycles, a.epochs, a.ops, a.stalls, a.diagnostics) == (b.cycles, b.epochs, b.ops, b.stalls, b.diagnostics)
    for column in ("op", "input", "start", "end", "kind", "cause"):
        assert (getattr(a.trace, column) == getattr(b.trace, column)).all()


# -- cycles beside a netlist ------------------------------------------------------------------------------------------
def test_cycles_beside_a_netlist(result: SimpleNamespace, tmp_path: Path) -> None:
    path = cycles_path(tmp_path / "model.yaml")
    assert path == tmp_path / "model.cycles.csv"
    write_cycles_csv(result, path)
    with path.open(newline="") as stream:
        rows = list(csv.DictReader(stream))
    assert list(rows[0]) == ["op", "graph", "kernel_cycles", "limiter_cycles", "limiter"]
    assert [r["op"] for r in rows] == [n for e in result.placement.epochs for n in e.ops]
    for row in rows:
        kernel, limiter, what = result.placement.report.op_limiters[row["op"]]
        assert (int(row["kernel_cycles"]), int(row["limiter_cycles"]), row["limiter"]) == (kernel, limiter, what)
        epoch = result.placement.epochs[result.placement.ops[row["op"]].epoch]
        assert row["graph"] == graph_name(epoch)
        assert limiter >= kernel > 0
    bare = SimpleNamespace(**{**vars(result), "placement": dataclasses.replace(result.placement, report=None)})
    write_cycles_csv(bare, tmp_path / "bare.csv")  # type: ignore[arg-type]
    assert (tmp_path / "bare.csv").read_text().count("\n") == len(rows) + 1
    assert [p.name for p in tmp_path.iterdir() if p.name.startswith(".")] == []


def test_cycles_count_inputs_as_the_netlist_does() -> None:
    sketch = Sketch()
    image = sketch.input("image", 1, 1, 4096, 64)
    few = Payload(np.array([(0, k, 128 * k) for k in range(32)]))  # one row of four tiles, of all of which it reads
    result = placed(sketch.output(sketch.op("pick", HwSparseMatmul(few), (1, 1, 32, 64), image)))
    net = emit(result.lowered, result.placement, result.device, 1).netlist
    rows = {r["op"]: r["limiter"] for r in csv.DictReader(io.StringIO(cycles_csv(result)))}  # type: ignore[arg-type]
    (op,) = (graph.ops["pick"] for graph in net.graphs.values())
    subject, port, way = rows["pick"].split()
    assert (subject, op.inputs[int(port)].source) == ("input", "image")
    assert result.placement.report.op_limiters["pick"][2] == f"input 0 {way}"  # of the graph: its one operand


def test_cycles_are_written_whole_or_not_at_all(result: SimpleNamespace, tmp_path: Path) -> None:
    from tbuda_lab.core.errors import OutputError

    with pytest.raises(OutputError, match="missing"):
        write_cycles_csv(result, tmp_path / "missing" / "x.cycles.csv")
    broken = SimpleNamespace(**{**vars(result), "lowered": None})
    with pytest.raises(TypeError):
        write_cycles_csv(broken, tmp_path / "x.cycles.csv")  # type: ignore[arg-type]
    assert list(tmp_path.iterdir()) == []
