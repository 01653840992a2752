"""Nops, queues and schedule constraints as edits of a session: records, undo, journal, PyBuda's words."""

from __future__ import annotations

import warnings
from pathlib import Path

import pytest

import tbuda_lab as pybuda
from tbuda_lab.core.errors import OverrideError
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import Session, edits
from tbuda_lab.core.session.commands import ClearOp, InsertNop, InsertQueue, SetOverride
from tbuda_lab.pybuda import config
from tests.session.models import perceptron


def opened(**settings: object) -> Session:
    model, inputs = perceptron()
    return Session(model, inputs, "wormhole_b0", **settings)  # type: ignore[arg-type]


def pair(session: Session) -> tuple[str, str]:
    """The first edge between two ops."""
    graph = session.compile().lowered
    ops = {n.name for n in graph.ops}
    return next((s, n.name) for n in graph.ops for s in n.sources if s in ops)


def test_records_undo_and_the_names_of_what_was_inserted() -> None:
    session = opened()
    source, reader = pair(session)
    plain = session.result
    session.apply(InsertNop(source, (reader,), count=2), InsertQueue(source, (reader,)))
    result = session.compile()
    names = (f"buffer_0_{source}_{reader}", f"buffer_1_{source}_{reader}")
    nops, queues = session.records
    assert (nops.state, nops.matched, nops.obtained) == ("obtained", (source,), {source: names})
    assert (queues.state, queues.obtained) == ("obtained", {source: ((reader, 0),)})
    assert set(names) <= set(result.placement.ops) and f"e2e_{names[1]}_0" in result.placement.queues
    assert all(c.pcc is not None and c.pcc > 0.99 for c in session.verify())
    session.undo()
    assert session.compile() is plain
    session.redo()
    session.apply(ClearOp(source, ("insert_nop",)))
    assert set(session.compile().placement.ops) == set(plain.placement.ops)
    assert [r.kind for r in session.records] == ["insert_queue"]


def test_two_edges_of_one_op_are_two_edits_and_the_same_edge_one() -> None:
    session = opened()
    source, reader = pair(session)
    session.apply(InsertNop(source, (reader,)))
    session.apply(InsertNop(source, (reader,), count=3))
    session.apply(InsertNop(source))
    assert [o.value["nop_count"] for o in session.overrides] == [3, 1]


def test_an_impossible_edit_is_vetoed_and_the_last_result_stays() -> None:
    session = opened()
    source, reader = pair(session)
    session.apply(InsertNop(reader, (source,)))
    with pytest.raises(OverrideError):
        session.compile()
    (record,) = session.records
    assert record.state == "vetoed" and "does not read it" in record.because
    with pytest.raises(OverrideError, match="number of nops"):
        InsertNop(source, (reader,), count=0)
    with pytest.raises(OverrideError, match="readers are names"):
        InsertQueue(source, (1,))  # type: ignore[arg-type]


def test_the_journal_holds_them_and_whatif_prices_them(tmp_path: Path) -> None:
    path = tmp_path / "edits.buda.json"
    session = opened(journal=path)
    source, reader = pair(session)
    result = session.whatif(InsertQueue(source, (reader,)))
    assert result.kernel_cycles[0] == sum(e.kernel_cycles for e in session.compile().placement.report.epochs)  # type: ignore[union-attr]
    session.apply(InsertNop(source, (reader,), hoist_tms=False), InsertQueue(source, (reader,), 0))
    names = sorted(session.compile().placement.ops)
    session.apply(SetOverride(Override("schedule_constraint", (source, reader))))
    model, inputs = perceptron()
    again = Session.open(path, model, inputs)
    assert again.overrides == tuple(
        Override(o.kind, o.target, o.value, a.source) for o, a in zip(session.overrides, again.overrides, strict=True)
    )
    assert sorted(again.compile().placement.ops) == names


def test_python_of_a_session_is_understood_by_the_config_module() -> None:
    session = opened()
    source, reader = pair(session)
    session.apply(
        InsertNop(source, (reader,), count=2, daisy_chain=True),
        InsertQueue(source, (reader,), 0),
        SetOverride(Override("schedule_constraint", (source, reader))),
    )
    text = session.to_python()
    config._clear_global_compiler_config()
    try:
        exec(text, {"pybuda": pybuda})
        result = config._get_global_compiler_config().resolve_overrides(session.graph("traced"))
    finally:
        config._clear_global_compiler_config()
    assert sorted((o.kind, o.target) for o in result) == sorted((o.kind, o.target) for o in session.overrides)
    by_kind = {o.kind: o.value for o in result}
    assert by_kind["insert_nop"] == {"dest": (reader,), "hoist_tms": True, "nop_count": 2, "daisy_chain": True}
    assert by_kind["insert_queue"] == {"dest": reader, "port": 0}


@pytest.mark.parametrize(
    ("text", "command"),
    [
        ("nop between a and b.c", InsertNop("a", ("b.c",))),
        ("3 nops between 'a b' and \"c\"", InsertNop("a b", ("c",), 3)),
        ("queue between a and b", InsertQueue("a", ("b",))),
    ],
)
def test_gestures(text: str, command: object) -> None:
    assert edits.parse_sentence(text) == command


def test_the_old_name_of_insert_nop_warns() -> None:
    config._clear_global_compiler_config()
    with warnings.catch_warnings(record=True) as message:
        warnings.simplefilter("always")
        pybuda.config.insert_buffering_nop("a", ["b", "c"], nop_count=2)
    (record,) = config._get_global_compiler_config().overrides
    config._clear_global_compiler_config()
    assert record.kind == "insert_nop" and record.value["dest"] == ("b", "c")
    assert [w.category for w in message] == [DeprecationWarning]
