"""How far a session has come, and the card of an op."""

from __future__ import annotations

import pytest

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session import REACHED, ResizeOp, Session
from tests.session.models import perceptron


def test_compile_stops_where_it_is_told_and_goes_on_from_there() -> None:
    model, inputs = perceptron()
    session = Session(model, inputs, "e300")
    assert session.stage == "empty"
    for upto in ("traced", "lowered", "balanced", "placed"):
        assert session.compile(upto=upto) is None
        assert session.stage == upto and session.result is None
    done = session.work
    result = session.compile()
    assert session.stage == "netlisted" and session.compile(upto="placed") is result
    assert session.work == done  # nothing of it is done again
    session.run()
    assert session.stage == "ran"
    op = next(n for n in result.placement.ops if len(session.legal(n).legal) > 1)
    session.apply(ResizeOp(op, next(s for s in session.legal(op).legal if s != session.legal(op).grid)))
    assert session.stage == "lowered"  # the graphs are those there were
    assert session.compile(upto="placed") is None and session.stage == "placed"
    session.undo()
    assert session.stage == "ran" and session.result is result
    with pytest.raises(InputError, match="traced, passed, lowered"):
        session.compile(upto="shipped")
    assert set(REACHED) > {"empty", "ran"}


def test_a_card_says_what_the_placement_says(mlp: Session) -> None:
    placement = mlp.compile().placement
    op = next(n for n in placement.ops if len(mlp.legal(n).legal) > 1)
    size = next(s for s in mlp.legal(op).legal if s != mlp.legal(op).grid)
    mlp.apply(ResizeOp(op, size))
    card = mlp[op]
    spot, row = mlp.compile().placement.ops[op], mlp.compile().placement.candidate(op)
    assert card["place"].startswith(f"{spot.size[0]} rows x {spot.size[1]} columns at row {spot.start[0]}")
    assert card["kernel cycles"].startswith(f"{int(row['cycles']):,} ")
    assert card["epoch"] == f"{spot.epoch} of {len(mlp.compile().placement.epochs)}, chip 0"
    assert op in repr(card) and "override_op_size" in repr(card) and "obtained" in card._repr_html_()
    assert "models.py" in card["source"]
    assert op in mlp._ipython_key_completions_()
    with pytest.raises(InputError, match=f"near it: .*{op}"):
        mlp[op + "x"]


def test_a_netlist_is_no_session(tmp_path) -> None:
    with pytest.raises(InputError, match="open_netlist"):
        Session.open(tmp_path / "netlist.yaml")
    with pytest.raises(InputError, match="give the model"):
        Session.open(tmp_path / "s.buda.json")


@pytest.mark.parametrize("inputs", [None, 5, "x"])
def test_what_is_no_sample_is_refused(mlp: Session, inputs: object) -> None:
    with pytest.raises(InputError, match="sample inputs are a tensor, several, or a mapping"):
        Session(mlp.model, inputs)
