"""Overrides of a form that no model could take are refused at once; none of them is ignored or ends in a raw error."""

from __future__ import annotations

import dataclasses
import json
import re
from pathlib import Path
from typing import Any

import pytest
import torch

import tbuda_lab.pybuda as pybuda
from tbuda_lab.core.errors import InputError, OverrideError, TbudaError
from tbuda_lab.core.overrides import (
    FIRST,
    KINDS,
    Each,
    Override,
    form_fault,
    from_json,
    override_python,
    refuse_malformed,
    to_json,
)
from tbuda_lab.core.session import Session

BAD: list[tuple[str, Any]] = [
    ("op_placement", (0, 0)),
    ("op_placement", {"strat": (0, 0)}),  # a slip of the pen is no wish without effect
    ("op_placement", {}),
    ("op_placement", {"start": None}),
    ("queue_channel", 3),
    ("queue_channel", {"chanel": 3}),
    ("insert_nop", None),
    ("insert_nop", {"dst": "b"}),
    ("insert_nop", {"dest": ()}),
    ("insert_nop", {"dest": 5}),
    ("insert_nop", {"dest": (5,)}),
    ("insert_nop", {"dest": "b", "hoist_tms": 3}),
    ("insert_nop", {"dest": "b", "daisy_chain": "yes"}),
    ("insert_queue", "b"),
    ("insert_queue", {"dest": "b", "operand": 0}),
    ("dram_parameters", {}),
    ("dram_parameters", "yes"),
    ("epoch_break", "before"),
    ("chip_break", None),
]


@pytest.mark.parametrize(("kind", "value"), BAD)
def test_what_no_model_could_take_is_refused_with_what_would_do(kind: str, value: Any) -> None:
    with pytest.raises(OverrideError) as caught:
        refuse_malformed([Override("op_size", "b", (1, 1)), Override(kind, "a", value)])
    assert [(d.where, d.rule) for d in caught.value.diagnostics] == [("a", f"override-{kind}")]
    assert caught.value.diagnostics[0].fix


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        ("op_placement", {"start": (0, 0)}),
        ("op_placement", {"chip": 0, "transpose": False, "start": None}),
        ("queue_channel", {"channel": 0}),
        ("insert_nop", True),
        ("insert_nop", {"dest": None}),
        ("insert_nop", {"dest": ["b", "c"], "hoist_tms": False, "nop_count": 2, "daisy_chain": True}),
        ("insert_queue", {"dest": "b", "port": None}),
        ("dram_parameters", False),
        ("epoch_break", FIRST),
        ("chip_break", False),
    ],
)
def test_what_a_model_could_take_is_not(kind: str, value: Any) -> None:
    for target in ("a", ("a", "b"), ["a", "b"], Each(("a",)), re.compile("a.*"), lambda name: name == "a"):
        assert form_fault(Override(kind, target, value)) is None  # type: ignore[arg-type]


@pytest.mark.parametrize("target", [None, 5, ("a", 5), {"a": 1}])
def test_targets_are_names_patterns_or_predicates(target: Any) -> None:
    with pytest.raises(OverrideError, match="target"):
        refuse_malformed([Override("epoch_break", target)])


def test_a_list_of_names_is_a_tuple_of_names() -> None:
    record = Override("epoch_break", ["b", "a"])  # type: ignore[arg-type]
    assert record == Override("epoch_break", ("b", "a")) and record.is_named
    assert record.matches(["a", "b", "c"]) == ["a", "b"]


def small() -> Session:
    torch.manual_seed(0)
    return Session(torch.nn.Linear(32, 64), (torch.randn(1, 32, 32),))


def test_a_session_refuses_them_before_it_traces_and_stays_as_it_was() -> None:
    session = small()
    for kind, value in BAD:
        record = Override(kind, "matmul", value)
        with pytest.raises(OverrideError):
            Session(session.model, session.sample_inputs, overrides=[record])
        for ask in (session.apply, session.attempt, session.whatif):
            with pytest.raises(OverrideError):
                ask(record)
    assert session.stage == "empty" and session.overrides == () and session.history == ()


@pytest.mark.parametrize("value", [None, 3, {"0": 2}, {0: 2, "1": 2}, {0: 0}, {7: 2}, (1, 2)])
def test_a_vetoed_buffer_multiplier_has_its_record(value: Any) -> None:
    """Which operands there are is known with the graph, so the compile refuses it; the record says why."""
    session = small()
    op = next(iter(session.compile().placement.ops))
    session.apply(Override("input_buffer_multiplier", op, value))
    with pytest.raises(OverrideError, match="operands 0 to"):
        session.compile()
    (record,) = session.records
    assert record.state == "vetoed" and record.matched == (op,) and "operand index" in record.because


@pytest.mark.parametrize("kind", ["input_buffer_multiplier", "op_placement", "queue_channel", "insert_nop", "nonsense"])
@pytest.mark.parametrize("value", [None, 3, "x", (1, 2), {"0": 2}])
def test_what_no_call_can_say_is_a_comment(kind: str, value: Any) -> None:
    text = override_python(Override(kind, "a", value))
    assert all(line.startswith("#") for line in text.splitlines())


def test_a_session_file_is_refused_by_its_line(tmp_path: Path) -> None:
    session = small()
    session.apply(Override("epoch_break", "matmul"))
    good = json.loads(session.save(tmp_path / "good.buda.json").read_text())
    for kind, value in BAD:
        bad = json.loads(json.dumps(good))
        bad["overrides"] = [{"kind": kind, "target": "matmul", "value": value}]
        path = tmp_path / "bad.buda.json"
        path.write_text(json.dumps(bad))
        with pytest.raises(InputError, match=rf"bad\.buda\.json:\d+: {kind}"):
            Session.open(path, session.model, session.sample_inputs)
    bad["overrides"] = [{"kind": "u_kt", "target": "matmul", "value": {}}]  # refused by the compile, not by the form
    path.write_text(json.dumps(bad))
    with pytest.raises(TbudaError):
        Session.open(path, session.model, session.sample_inputs).compile()


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("nothing", "nothing"),
        (["nothing", "neither"], "nothing"),
        (re.compile("no.*ing"), "/no.*ing/"),
        (lambda name: name == "nothing", "a predicate"),
    ],
)
def test_what_addresses_nothing_is_said_in_the_same_words_in_every_run(target: Any, message: str) -> None:
    """Diagnostics of two sessions are equal: a predicate is not told by the address that it has in one of them."""
    matches = []
    for _ in range(2):
        session = small()
        session.apply(Override("u_kt", target, 1))
        result = session.compile()
        assert [record.state for record in session.records] == ["unmatched"] and session.records[0].because
        matches.append([d for d in result.diagnostics if d.rule == "override-unmatched"])
    assert matches[0] == matches[1]
    assert matches[0][0].where == message and matches[0][0].severity == "warning" and matches[0][0].fix


def test_questions_about_ops_that_there_are_not_name_near_ones() -> None:
    session = small()
    op = next(iter(session.compile().placement.ops))
    for ask in (session.legal, session.why, session.__getitem__):
        with pytest.raises(InputError, match=f"near it: {re.escape(op)}"):
            ask(op + "x")


EXAMPLES: dict[str, Any] = {
    "op_size": (2, 3),
    "t_stream_dir": "r",
    "t_stream_shape": (4, 1),
    "u_kt": 2,
    "input_buffer_multiplier": {0: 2, 1: 3},
    "output_buffer_multiplier": 2,
    "dram_parameters": True,
    "op_placement": {"start": (1, 2), "transpose": True, "chip": 0},
    "epoch_break": True,
    "chip_break": True,
    "queue_channel": {"chip": 0, "channel": 3},
    "data_format": "Bfp8_b",
    "math_fidelity": "LoFi",
    "insert_nop": {"dest": ("b",), "hoist_tms": False, "nop_count": 2, "daisy_chain": False},
    "insert_queue": {"dest": ("b",), "port": 1},
    "schedule_constraint": True,
}


def test_every_kind_reads_what_it_writes() -> None:
    assert set(EXAMPLES) <= set(KINDS)
    for kind, value in EXAMPLES.items():
        typed = KINDS[kind].parse(value)
        assert typed.value == value and KINDS[kind].parse(typed.value) == typed
        record = Override(kind, "a", value)
        assert from_json(json.loads(json.dumps(to_json(record, lambda _: ())))) == dataclasses.replace(
            record, source="file"
        )
        assert "a" in typed.label("a")


@pytest.mark.parametrize("kind", sorted(set(EXAMPLES) - {"insert_queue"}))
def test_its_python_asks_pybudas_functions_for_the_same(kind: str) -> None:
    """The text is run: what PyBuda's `config` then holds is the override again."""
    value = EXAMPLES[kind]
    listed = kind == "schedule_constraint"
    text = override_python(Override(kind, ("a", "b") if listed else "a", value))
    pybuda.config._clear_global_compiler_config()
    try:
        exec(text, {"pybuda": pybuda})  # our own text
        records = pybuda.config._get_global_compiler_config().overrides
        assert {r.kind for r in records} == {kind}
        got = [r.value for r in records]
        expected = [{k: v} for k, v in value.items()] if kind == "input_buffer_multiplier" else [value]
        assert [KINDS[kind].parse(g) for g in got] == [KINDS[kind].parse(w) for w in expected]
    finally:
        pybuda.config._clear_global_compiler_config()
