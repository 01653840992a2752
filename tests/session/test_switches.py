"""Overrides switched off and on, against a plain dictionary, and over a journal; moves in time that make no sense."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tbuda_lab.core.errors import InputError, OverrideError
from tbuda_lab.core.session import ClearOp, EpochBreak, ResizeOp, Session, SetUkt
from tbuda_lab.core.session.commands import Disable
from tbuda_lab.core.session.history import disabled_overrides, sources
from tbuda_lab.core.session.temporal import into_epoch, shift_break, stops
from tests.session.models import perceptron

SIZES = [(1, 1), (2, 2), (2, 4), (4, 4)]


@pytest.mark.parametrize("seed", range(6))
def test_what_is_off_is_what_a_dictionary_says(seed: int) -> None:
    rng = random.Random(seed)
    session = Session(*perceptron(), "e300")
    on: dict[tuple[str, str], object] = {}
    off: dict[tuple[str, str], object] = {}
    for _ in range(60):
        op, what = rng.choice("ab"), rng.randrange(5)
        if what == 0:
            size = rng.choice(SIZES)
            session.apply(ResizeOp(op, size))
            on["op_size", op] = size
            off.pop(("op_size", op), None)
        elif what == 1:
            session.apply(SetUkt(op, 2))
            on["u_kt", op] = 2
            off.pop(("u_kt", op), None)
        elif what == 2:
            kind = rng.choice(["op_size", "u_kt"])
            session.apply(Disable(op, (kind,)))
            if (kind, op) in on:
                off[kind, op] = on.pop((kind, op))
        elif what == 3:
            session.apply(ClearOp(op))
            on = {k: v for k, v in on.items() if k[1] != op}
            off = {k: v for k, v in off.items() if k[1] != op}
        else:
            for override in disabled_overrides(session.history)[:1]:
                session.apply(override)
                on[override.kind, str(override.target)] = off.pop((override.kind, str(override.target)))
        assert {(o.kind, o.target): o.value for o in session.overrides} == on
        assert {(o.kind, o.target): o.value for o in disabled_overrides(session.history)} == off


def test_what_is_off_stays_known_in_a_journal_and_through_undo(tmp_path: Path) -> None:
    model, inputs = perceptron()
    path = tmp_path / "edits.buda.json"
    session = Session(model, inputs, "e300", journal=path)
    session.apply(ResizeOp("a", (2, 4)), source="page")
    session.apply(Disable("a", ("op_size",)))
    again = Session.open(path, model, inputs)
    assert [(o.kind, o.target, o.value) for o in disabled_overrides(again.history)] == [("op_size", "a", (2, 4))]
    again.undo()
    assert disabled_overrides(again.history) == () and [o.value for o in again.overrides] == [(2, 4)]
    assert sources(again.history) == {("op_size", "a"): "page"}
    again.redo()
    assert len(disabled_overrides(again.history)) == 1 and again.overrides == ()


def test_moves_in_time_that_the_schedule_does_not_have() -> None:
    session = Session(*perceptron(), "e300")
    order = session.placed().problem.order
    assert into_epoch(session.compiles, order[0], 0) == ()
    for op, epoch in (("nobody", 0), (order[0], 5), (order[0], -1)):
        with pytest.raises(InputError):
            into_epoch(session.compiles, op, epoch)
    for name in order[1:]:
        session.apply(EpochBreak(name))
    last = len(session.placed().segments) - 1
    assert last >= 2
    with pytest.raises(OverrideError, match="legal for it alone"):
        into_epoch(session.compiles, order[0], last)
    with pytest.raises(InputError):
        shift_break(order[1], order[2], "coffee_break")
    with pytest.raises(InputError):
        list(stops(session.compiles, "nobody"))
    assert [s.op for s in stops(session.compiles, order[1], names=order[1:2])] == [order[1]]


def test_which_step_picked_an_op() -> None:
    session = Session(*perceptron(), "e300")
    assert "for the whole model" in session.queries.provenance("first.matmul")
    now = session.placed().ops()["first.matmul"].size
    session.apply(ResizeOp("first.matmul", next(s for s in session.legal("first.matmul").legal if s != now)))
    picked = session.queries.provenance("first.matmul")
    assert "set by an override" in picked and "placed its epoch again" in picked
    with pytest.raises(InputError):
        session.queries.provenance("nobody")
