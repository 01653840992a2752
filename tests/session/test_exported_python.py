"""Whatever stands in an edit, its Python is Python that does nothing but calls with literals.

The oracle is Python's own parser: the text parses, every statement is one call on `pybuda.config`, and its arguments
evaluate to what the edit holds.
"""

from __future__ import annotations

import ast
import dataclasses
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.compiler import Request
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import FIDELITIES, DataFormat
from tbuda_lab.core.overrides import OVERRIDE_KINDS, Each, Override, from_json, named_python, override_python
from tbuda_lab.core.session.command import Command, Restore
from tbuda_lab.core.session.commands import ClearOp, Constrain, EpochBreak, PlaceOp, ResizeOp, SetOverride

SLY = "1)\nimport os; os.system('touch PWNED')  #"
TEXT = st.one_of(st.text(st.characters(), max_size=12), st.sampled_from([SLY, "'''", "\\", "\u2028", "\r", "a\x00b"]))
VALUE = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-(10**30), 10**30), st.floats(), TEXT),
    lambda v: st.one_of(st.lists(v, max_size=3), st.dictionaries(TEXT, v, max_size=3)),
    max_leaves=6,
)
PAIR = st.lists(st.integers(0, 99), min_size=2, max_size=2)
NUMBER = st.integers(1, 9)
FITTING: dict[str, st.SearchStrategy[Any]] = {
    "op_size": PAIR,
    "t_stream_dir": st.sampled_from(["n", "r", "c"]),
    "t_stream_shape": PAIR,
    "u_kt": NUMBER,
    "input_buffer_multiplier": st.dictionaries(st.sampled_from(["0", "1"]), st.integers(1, 9), min_size=1),
    "output_buffer_multiplier": st.integers(1, 9),
    "dram_parameters": st.booleans(),
    "op_placement": st.fixed_dictionaries({"start": PAIR}, optional={"transpose": st.booleans(), "chip": NUMBER}),
    "epoch_break": st.just(True),
    "chip_break": st.just(True),
    "queue_channel": st.fixed_dictionaries({"chip": st.integers(0, 3)}, optional={"channel": st.integers(0, 7)}),
    "insert_nop": st.one_of(st.just(True), st.fixed_dictionaries({"dest": TEXT}, optional={"nop_count": NUMBER})),
    "insert_queue": st.fixed_dictionaries({"dest": st.lists(TEXT, min_size=1, max_size=2)}),
    "schedule_constraint": st.just(True),
    "prologue": st.booleans(),
    "data_format": st.sampled_from([f.name for f in DataFormat]),
    "math_fidelity": st.sampled_from([f.name for f in FIDELITIES]),
}


@st.composite
def records(draw: st.DrawFn) -> dict[str, Any]:
    """Overrides as a session file has them: half of them with values that fit their kind, the others with any."""
    kind = draw(st.sampled_from(OVERRIDE_KINDS))
    target = draw(st.one_of(TEXT, st.lists(TEXT, min_size=1, max_size=3)))
    value = draw(st.one_of(FITTING[kind], VALUE))
    each = {"each": True} if isinstance(target, list) and draw(st.booleans()) else {}
    return {"kind": kind, "target": target, "value": value, **each}


def called(text: str) -> list[tuple[str, list[Any], dict[str, Any]]]:
    """(function, arguments, keywords) of every call; fails for a text that holds anything else."""
    calls = []
    for statement in ast.parse(text).body:
        assert isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call), ast.dump(statement)
        call = statement.value
        name = ast.unparse(call.func)
        assert re.fullmatch(
            r"pybuda\.config\.\w+|pybuda\.config\._get_global_compiler_config\(\)"
            r"\.insert_queues\.append",
            name,
        ), name
        calls.append(
            (
                name.rpartition(".")[2],
                [literal(a) for a in call.args],
                {k.arg or "": literal(k.value) for k in call.keywords},
            )
        )
    return calls


def literal(node: ast.expr) -> Any:
    text = ast.unparse(node)
    if re.fullmatch(r"pybuda\.(DataFormat|MathFidelity)\.\w+", text):
        return text.rpartition(".")[2]
    return ast.literal_eval(node)


def texts_of(value: Any) -> set[str]:
    if isinstance(value, str):
        return {value}
    if isinstance(value, dict):
        return set().union(*(texts_of(k) | texts_of(v) for k, v in value.items()))
    return set().union(*map(texts_of, value)) if isinstance(value, list | tuple) else set()


@given(records())
@settings(max_examples=500, deadline=None, derandomize=True)
def test_any_record_of_a_file_exports_as_calls_with_its_own_literals(record: dict[str, Any]) -> None:
    try:
        override = from_json(record)
        command = SetOverride(override)
    except TbudaError:
        return
    target = override.target.names if isinstance(override.target, Each) else override.target
    allowed = texts_of([target, override.value])
    allowed |= {re.escape(t) for t in allowed}
    for text in (
        override_python(override),
        command.python(),
        named_python(override, ["a"]),
        Restore(Request(None, (), ()), command).python(),
    ):  # type: ignore[arg-type]
        for _, arguments, keywords in called(text):
            assert texts_of([arguments, list(keywords.values())]) <= allowed


@given(TEXT, st.integers(1, 9))
@settings(max_examples=100, deadline=None, derandomize=True)
def test_edits_of_any_name_are_one_call(name: str, number: int) -> None:
    edits: list[Command] = [ResizeOp(name, (number, 1)), PlaceOp(name, start=(number, 0)), EpochBreak(name)]
    for edit in edits:
        ((_, arguments, _),) = called(edit.python())
        assert arguments[0] == name
    for gone in (EpochBreak(name, on=False), ClearOp(name), *([Constrain((name, "b"), on=False)] if name else [])):
        assert called(gone.python()) == []


def test_values_that_fit_come_out_whole() -> None:
    for kind, value, arguments, keywords in (
        ("op_size", (2, 3), ["m", (2, 3)], {}),
        ("data_format", "Bfp8_b", [], {"name_regex": "m", "output_df": "Bfp8_b"}),
        ("input_buffer_multiplier", {0: 4}, ["m", 0], {"multiplier": 4}),
        ("op_placement", {"start": (1, 2), "transpose": True}, ["m"], {"start": (1, 2), "transpose_op": True}),
    ):
        ((_, given_arguments, given_keywords),) = called(override_python(Override(kind, "m", value)))
        assert (given_arguments, given_keywords) == (arguments, keywords)


def test_a_nop_to_all_readers_has_a_text() -> None:
    assert called(override_python(Override("insert_nop", "m", True))) == []


def test_the_undone_edit_of_several_calls_stays_a_comment() -> None:
    several = SetOverride(Override("op_size", ("a", "b"), (1, 1)))
    undone = Restore(Request(None, (), ()), several)  # type: ignore[arg-type]
    assert called(undone.python()) == [] and dataclasses.is_dataclass(undone)
