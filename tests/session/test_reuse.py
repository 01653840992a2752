"""What an edit of each kind runs again, counted: no more than what depends on it."""

from __future__ import annotations

import pathlib
import re
from collections.abc import Callable

import pytest
import torch

from tbuda_lab.core import balancer
from tbuda_lab.core.compiler.pipeline import CHOOSING
from tbuda_lab.core.lowering.data_formats import legal_fidelities, legal_formats
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import (
    Command,
    EpochBreak,
    PlaceOp,
    QueueChannel,
    ResizeOp,
    Session,
    SetUkt,
    StreamOp,
)
from tbuda_lab.core.session.commands import FormatOp, InsertNop, InsertQueue, SetOptions, SetOverride
from tbuda_lab.core.session.legal import inner_steps, streams_of
from tests.session.models import encoder


@pytest.fixture(scope="module")
def session() -> Session:
    """Three layers in at least three epochs; one op has wide tiles, so that a second one brings no further size."""
    model, inputs = encoder(3)
    breaks = tuple(Override("epoch_break", f"{i}.key.matmul") for i in (1, 2))
    wide = Override("data_format", "0.up.matmul", "Float32")
    session = Session(model, inputs, "wormhole_b0", overrides=(*breaks, wide))
    session.compile()
    return session


OP = "1.up.matmul"


def _resize(session: Session) -> Command:
    table = session.legal(OP)
    return ResizeOp(OP, next(s for s in table.legal if s != table.grid))


def _step(session: Session) -> Command:
    now = int(session.compile().placement.candidate(OP)["u_kt"])
    return SetUkt(OP, next(v for v, _ in inner_steps(session.compiles, OP) if v != now))


def _stream(session: Session) -> Command:
    way = next(w for w, _ in streams_of(session.compiles, OP) if w[0] != "n")
    return StreamOp(OP, way[0], way[1:])


def _move(session: Session) -> Command:
    placement = session.compile().placement
    epoch = placement.ops[OP].epoch
    one, other = [op for op, place in placement.ops.items() if place.epoch == epoch and place.size == (2, 1)][-2:]
    return PlaceOp(one, placement.ops[other].start)  # the grid is full: the other op makes room


def _channel(session: Session) -> Command:
    queues = session.compile().placement.queues.values()
    queue = next(q for q in queues if q.location == "dram" and q.kind == "parameter")
    return QueueChannel(queue.name, channel=(queue.buffers[0][0] + 1) % session.device.dram_channels)


def _nop(session: Session) -> Command:
    return InsertNop(session.compile().lowered[OP].sources[0], (OP,))


def _queue(session: Session) -> Command:
    return InsertQueue(session.compile().lowered[OP].sources[0], (OP,))


def _format(session: Session) -> Command:
    graph = session.compile().lowered
    formats = legal_formats(graph, OP, session.device)
    return FormatOp(OP, data_format=next(f.name for f in formats if f.name == "Float32"))


def _fidelity(session: Session) -> Command:
    graph = session.compile().lowered
    now = str(graph[OP].attrs.get("fidelity"))
    return FormatOp(OP, fidelity=next(f.name for f in legal_fidelities(graph, OP) if f.name != now))


# what is made again at most: epochs, tables of candidates (an edit of the graph: of the op and those around it)
EDITS: list[tuple[Callable[[Session], Command], int, int]] = [
    (_resize, 1, 1),
    (_step, 1, 1),
    (_stream, 1, 1),
    (lambda _: SetOverride(Override("input_buffer_multiplier", OP, {0: 4})), 1, 1),
    (lambda _: SetOverride(Override("output_buffer_multiplier", OP, 2)), 1, 1),
    (_move, 1, 0),
    (lambda _: EpochBreak(OP), 1, 0),
    (_channel, 0, 0),
    (_nop, 2, 4),
    (_queue, 2, 2),
    (_format, 2, 6),
    (_fidelity, 1, 1),
]


@pytest.mark.parametrize(("make", "epochs", "tables"), EDITS)
def test_an_edit_runs_again_what_depends_on_it(
    session: Session, make: Callable[[Session], Command], epochs: int, tables: int
) -> None:
    plain = session.placed()
    home = plain.epoch_of(plain.problem.number[OP])
    edit = make(session)
    session.legal(OP)
    before = session.work
    session.attempt(edit)
    done = {name: count - before.get(name, 0) for name, count in session.work.items()}
    assert not any(done.get(name) for name in ("passes", "lower", "place"))
    assert done.get("epoch", 0) <= epochs and done.get("table", 0) <= tables
    # what else there was is taken over
    now = session.placed()
    assert len(plain.segments) > 2
    if now.problem.order == plain.problem.order:
        retained = sum(any(s is old for old in plain.segments) for s in now.segments)
        assert retained >= len(plain.segments) - max(1, epochs)
    assert all(a is b for a, b in zip(plain.segments[: home - 1], now.segments[: home - 1], strict=True))
    session.undo()
    again = session.work
    session.compile()
    assert session.work == again, "what was there before the edit is looked up"


def test_a_policy_chooses_anew_from_the_tables_there_are(session: Session) -> None:
    session.attempt(SetOptions(default_dram_parameters=True))  # else the policy decides which parameters may load
    before = session.work
    session.attempt(SetOptions(balancer_policy="Ribbon"))
    done = {name: count - before.get(name, 0) for name, count in session.work.items()}
    assert done["place"] == 1 and not done.get("passes") and not done.get("lower") and not done.get("table")
    session.undo()
    session.undo()
    session.compile()


def test_a_policy_that_counts_no_loads_streams_at_batch_1() -> None:
    session = Session(torch.nn.Linear(512, 1024), (torch.zeros(64, 512),), "wormhole_b0")

    def weight_may_load() -> bool:
        problem = session.placed().problem
        return bool((problem.tables[problem.order.index("matmul")].rows["prologue"] & 0b10).any())

    assert weight_may_load()
    session.attempt(SetOptions(balancer_policy="Ribbon"))
    assert not weight_may_load(), "the candidates are worked out anew"


def test_tables_do_not_depend_on_what_only_chooses() -> None:
    """The balancer reads none of the options that tables are shared over."""
    folder = pathlib.Path(balancer.__file__).parent
    read = {name for path in folder.glob("*.py") for name in re.findall(r"options\.(\w+)", path.read_text())}
    assert len(read) > 5 and not read & set(CHOOSING)
