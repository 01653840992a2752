"""The placements of a session: noted when they are compiled, kept in the journal, compared, gone back to; a search that
is followed and ended early, and its changes one by one."""

from __future__ import annotations

import threading

import pytest

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import ResizeOp, Session
from tbuda_lab.core.session.changes import changes_of
from tbuda_lab.core.session.whatif import time_of
from tests.session.models import encoder, perceptron

OP = "first.matmul"


@pytest.fixture
def session(tmp_path):
    session = Session(*perceptron(), "n150", name="mlp", journal=tmp_path / "mlp.buda.json")
    session.compile()
    return session


def names(session: Session) -> list[tuple[str, str, bool]]:
    return [(row.name, row.kind, row.current) for row in session.placements]


def test_each_state_is_one_row_whatever_led_to_it(session, tmp_path):
    assert names(session) == [("start", "start", True)]
    session.apply(ResizeOp(OP, (1, 1)))
    small = session.compile()
    session.undo()
    session.redo()
    session.compile()
    label = session.history[-1].label
    assert names(session) == [("start", "start", False), (label, "compile", True)]
    session.checkpoint("A")
    session.verify()
    row = session.placements[1]
    assert (row.name, row.kind) == ("A", "checkpoint") and row.facts.pcc > 0.99
    assert row.facts.cycles == session.time().per_input and row.facts.epochs == len(small.placement.epochs)
    again = Session.open(tmp_path / "mlp.buda.json", session.model, session.sample_inputs)
    assert again.placements == session.placements


def test_back_is_one_step_and_its_result_is_looked_up(session, tmp_path):
    first = session.result
    session.apply(ResizeOp(OP, (1, 1)))
    session.compile()
    assert session.go_back("start") == "back to start" and session.unedited
    assert session.compile() is first and not session.go_back("start")
    again = Session.open(tmp_path / "mlp.buda.json", session.model, session.sample_inputs)
    assert again.unedited and [s.label for s in again.history] == [s.label for s in session.history]
    session.undo()
    assert session.overrides and again.undo() and again.overrides == session.overrides
    with pytest.raises(InputError, match="start"):
        session.go_back("nowhere")


@pytest.mark.parametrize(
    "line",
    [
        '{"do": "placement", "kind": "compile"}',
        '{"do": "placement", "name": "a", "kind": "file"}',
        '{"do": "placement", "name": "a", "kind": "compile", "epochs": -1}',
        '{"do": "placement", "name": "a", "kind": "compile", "cycles": "many"}',
        '{"do": "placement", "name": "a", "kind": "compile", "pcc": 1e999}',
        '{"do": "placement", "name": "a", "kind": "compile", "path": "/etc/passwd"}',
    ],
)
def test_a_damaged_row_names_its_line(session, tmp_path, line):
    path = tmp_path / "bad.buda.json"
    assert not (tmp_path / "mlp.buda.json").exists(), "a compile alone writes nothing"
    session.save(tmp_path / "mlp.buda.json")
    text = (tmp_path / "mlp.buda.json").read_text().splitlines()
    text[2] = f"  {line}"
    path.write_text("\n".join(text))
    with pytest.raises(InputError, match=r"bad.buda.json:3"):
        Session.open(path, session.model, session.sample_inputs)


def test_a_netlist_file_is_compared_with_any_of_them(session, tmp_path):
    session.export_netlist(tmp_path / "other.yaml")
    session.apply(ResizeOp(OP, (1, 1)))
    session.compile()
    assert session.open_placement(tmp_path / "other.yaml").kind == "file"
    assert OP in [c.op for c in session.diff("other.yaml", "now").resized]
    assert not session.diff("start", "other.yaml").resized
    with pytest.raises(InputError):
        session.open_placement(tmp_path / "none.yaml")
    with pytest.raises(InputError):
        session.go_back("other.yaml")


@pytest.mark.slow
def test_a_search_is_followed_ended_early_and_made_again_by_its_steps():
    session = Session(*encoder(), "n150", name="encoder", cache=False)
    session.compile()
    before, start = session.request, session.time().per_input
    enough, heard = threading.Event(), []

    def found(steps, cycles, placed):
        heard.append((steps, cycles, time_of(placed()).per_input))
        enough.set()

    session.optimise(seconds=60, found=found, enough=enough)
    assert heard and session.time().per_input < start
    assert all(cycles == pytest.approx(simulated) for _, cycles, simulated in heard)
    assert session.placements[-1].kind == "optimise"
    again = Session(session.model, session.sample_inputs, "n150", session.options, cache=False)
    again.compile()
    assert again.time().per_input == session.time().per_input

    changes = changes_of(session.compiles, before, session.request)
    assert changes and {c.kind for c in changes} <= {"lowering", "shape", "epoch"}
    alone = next(c for c in changes if c.gain is not None and c.gain > 0)
    session.undo()
    session.apply(alone.command)
    session.compile()
    assert session.time().per_input == pytest.approx(start - alone.gain)


@pytest.mark.slow
@pytest.mark.parametrize(("layers", "batch", "steps"), [(2, 1, 2), (1, 1, 12), (2, 4, 4)])
def test_a_search_goes_on_from_the_edited_placement_that_there_is(layers, batch, steps, tmp_path):
    session = Session(*encoder(layers), "n150", CompileOptions(microbatch=batch), name="encoder", cache=False)
    op = next(name for name, placed in session.compile().placement.ops.items() if placed.size[0] > 1)
    session.apply(ResizeOp(op, (1, 1)))
    before = session.time().per_input
    curve = session.optimise(steps=steps)
    assert curve[0][1] <= before and session.time().per_input <= before
    assert session.time().per_input == pytest.approx(curve[-1][1])
    assert session.result.placement.ops[op].size == (1, 1)
    opened = Session.open(session.save(tmp_path / "session.json"), *encoder(layers))
    assert opened.compile().placement.ops == session.compile().placement.ops


def test_what_follows_a_search_needs_seconds(session):
    with pytest.raises(InputError, match="seconds"):
        session.optimise(steps=4, enough=threading.Event())
