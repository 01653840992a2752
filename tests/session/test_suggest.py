"""Suggestions: what each promises is what applying it gives, whatever the kind; bounds are no lower than gains."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch

from tbuda_lab.core.epochsim import simulate
from tbuda_lab.core.errors import Cancelled
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import EpochBreak, ResizeOp, Session
from tbuda_lab.core.session.suggest import alike, simulate_placement, split_bounds
from tbuda_lab.core.session.whatif import epoch_cycles_of
from tests.session.models import encoder
from tests.session.test_edits import check_placement


@pytest.fixture(scope="module")
def crowded() -> Session:
    """Two large matmuls that a policy of small grids puts into one epoch."""
    torch.manual_seed(0)
    return perceptron(768, 3072, rows=128)


def perceptron(width: int, inner: int, rows: int, batch: int = 64) -> Session:
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(width, inner), torch.nn.ReLU(), torch.nn.Linear(inner, width)).eval()
    options = CompileOptions(microbatch=batch, balancer_policy="MinimizeGrid")
    session = Session(model, (torch.randn(1, rows, width),), "n150", options)
    session.compile()
    return session


def cost(session: Session) -> float:
    """Cycles per input of the batch, by the simulator on the netlist's placement."""
    batch = session.options.microbatch
    return simulate(session.compile(), batch).cycles / batch


@pytest.mark.parametrize(("policy", "device"), [("Random", "e300"), ("MinimizeGrid", "wormhole_b0")])
def test_every_promise_is_kept(traced, policy: str, device: str) -> None:
    graph, inputs = traced["encoder"]
    options = CompileOptions(microbatch=64, balancer_policy=policy)
    session = Session(graph, inputs, device, options)
    before = cost(session)
    result = session.suggest(6)
    assert len(result) >= 5 and len({s.kind for s in result}) >= 2
    for one in result:
        session.apply(*one.commands)
        if one.batch is None:
            assert before - cost(session) == pytest.approx(one.gain) and one.gain > 0
        session.undo()
    assert [s.gain for s in result] == sorted((s.gain for s in result), reverse=True)
    assert [s.commands for s in session.suggest(6)] == [s.commands for s in result]


def test_a_split_is_the_best_edit_where_two_ops_crowd_each_other(crowded: Session) -> None:
    """Each of the two matmuls takes as long as the other: alone neither can gain much, apart both have all cores."""
    best = crowded.suggest(8)[0]
    assert best.kind == "split" and best.commands == (EpochBreak(best.commands[0].op),)
    before = cost(crowded)
    crowded.apply(*best.commands)
    assert before - cost(crowded) == pytest.approx(best.gain) and best.gain > before / 4
    check_placement(crowded)
    crowded.undo()
    crowded.compile()


def test_a_resize_is_found_behind_several_that_gain_nothing() -> None:
    """A matmul cut in two halves: the six sizes that the tables put first gain nothing once they are placed."""
    session = perceptron(1024, 4096, rows=384)
    best = session.suggest(8)[0]
    before = cost(session)
    assert [c.op for c in best.commands] == ["0.matmul", "0.matmul.lc1"] and best.gain > before / 4
    session.apply(*best.commands)
    assert before - cost(session) == pytest.approx(best.gain)


def test_with_one_input_the_op_on_the_critical_chain_is_resized() -> None:
    """The matmuls take equally long, one after the other. With many inputs both would have to be faster."""
    session = perceptron(512, 256, rows=64, batch=1)
    gains = {}
    for op in ("0.matmul", "2.matmul"):
        for row, col in np.argwhere(session.legal(op).shapes["verdict"] == 0).tolist():
            gains[op, (row + 1, col + 1)] = session.whatif(ResizeOp(op, (row + 1, col + 1))).gain
    best = session.suggest(1)[0]
    (command,) = best.commands
    assert isinstance(command, ResizeOp) and command.op == "2.matmul"
    assert best.gain == max(gains.values()) > max(gain for (op, _), gain in gains.items() if op == "0.matmul")


class Fork(torch.nn.Module):
    """A value that waits for what four matmuls make of it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Linear(64, 64)
        self.longer = torch.nn.ModuleList(torch.nn.Linear(64, 64) for _ in range(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = y = torch.relu(self.first(x))
        for layer in self.longer:
            y = torch.exp(-layer(y))
        return x + y


def test_a_stall_of_the_timeline_is_a_suggestion() -> None:
    torch.manual_seed(0)
    options = CompileOptions(microbatch=64, enable_fork_join_buffering=False)
    session = Session(Fork().eval(), (torch.randn(1, 128, 64),), "n150", options)
    (stall,) = [s for s in simulate(session.compile(), 64).stalls if s.critical]
    best, before = session.suggest(3)[0], cost(session)
    assert best.kind == "nop" and best.label == f"nop between {stall.fork} and {stall.join}"
    session.apply(*best.commands)
    assert before - cost(session) == pytest.approx(best.gain) and best.gain > 0.5 * stall.cycles / 64


def test_no_cut_gains_more_than_its_bound(crowded: Session, traced) -> None:
    graph, inputs = traced["encoder"]
    random = Session(graph, inputs, "e300", CompileOptions(microbatch=64, balancer_policy="Random"))
    for session in (crowded, random):
        session.compile()
        placed = session.placed()
        for index, segment in enumerate(placed.segments[:3]):
            if segment.last - segment.first < 2:
                continue
            least = split_bounds(placed, index)
            for cut in range(segment.first + 1, segment.last, 4):
                effect = session.whatif(EpochBreak(placed.problem.order[cut]), queues=False)
                assert effect.epoch_cycles[1] >= np.floor(least[cut - segment.first - 1])


def test_it_tells_the_best_so_far_and_can_be_stopped(crowded: Session) -> None:
    told: list[tuple[list[str], float]] = []
    result = crowded.suggest(8, progress=lambda best, part: told.append(([s.label for s in best], part)))
    parts = [part for _, part in told]
    assert parts == sorted(parts) and parts[0] > 0 and parts[-1] < 1 and len(told) > 4
    assert len(told[-1][0]) > 0 and told[-1][0][0] == result[0].label
    stop = threading.Event()

    def enough(best: list, _: float) -> None:
        if best:
            stop.set()

    state = crowded.request
    with pytest.raises(Cancelled):
        crowded.suggest(8, progress=enough, cancel=stop)
    assert crowded.request is state and not crowded.stale
    assert crowded.suggest(8, seconds=0.0) == crowded.suggest(0) == []
    assert [s.label for s in crowded.suggest(8, seconds=600.0)] == [s.label for s in result]


def test_epochs_that_are_alike_are_looked_at_once() -> None:
    """Layers that are placed alike get the same advice, each for its own ops."""
    model, inputs = encoder(4)
    starts = tuple(Override("epoch_break", f"{i}.key.matmul") for i in (1, 2, 3))  # the ops that begin a layer
    options = CompileOptions(microbatch=64, balancer_policy="MinimizeGrid")
    session = Session(model, inputs, "wormhole_b0", options, starts)
    session.compile()
    same = max(alike(session.placed()), key=len)
    assert len(same) > 1
    resizes = [s for s in session.suggest(20) if s.kind == "resize" and s.epoch in same]
    by_epoch = {e: {s.gain for s in resizes if s.epoch == e} for e in same}
    assert all(by_epoch.values()) and len({max(gains) for gains in by_epoch.values()}) == 1


def test_paces_of_epochs_add_up_to_the_whole_simulation(traced) -> None:
    graph, inputs = traced["encoder"]
    for overrides in ((), (Override("input_buffer_multiplier", "1.up.matmul", {0: 4}),)):
        starts = (Override("epoch_break", "1.key.matmul"),)
        session = Session(graph, inputs, "wormhole_b0", CompileOptions(microbatch=24), (*starts, *overrides))
        result, placed = session.compile(), session.placed()
        for batch in (2, 8):
            whole = simulate(result, batch)
            assert [p.cycles for p in epoch_cycles_of(placed, batch)] == [e.cycles for e in whole.epochs]
            total, stalls = simulate_placement(session.compiles, placed, None, batch)
            assert total == whole.cycles
            assert sorted((s.epoch, s.fork, s.cycles) for s in stalls) == sorted(
                (s.epoch, s.fork, s.cycles) for s in whole.stalls if s.critical
            )
