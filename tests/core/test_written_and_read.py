"""Every format that is written reads back what was written, for any name and value: one property for all writers."""

from __future__ import annotations

import dataclasses
import json
import math
import re
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.errors import OutputError
from tbuda_lab.core.files import csv_rows, csv_text, parse_json, parse_yaml, read_npz
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Origin, parse_graph, print_graph
from tbuda_lab.core.graph.text import array_table
from tbuda_lab.core.netlist.schema import Queue
from tbuda_lab.core.ops import Add
from tbuda_lab.core.options import CompileOptions, PrecisionRule, options_from_json, options_to_json
from tbuda_lab.core.overrides import Override, from_json, to_json
from tbuda_lab.core.session.commands import EpochBreak, InsertNop, ResizeOp, SetOverride
from tbuda_lab.core.session.history import EditStep, Entry
from tbuda_lab.core.session.journal import OVERRIDES_FORMAT, Header, journal_text, parse_journal, parse_overrides
from tbuda_lab.dialects.program import read_record
from tbuda_lab.dialects.program import write_archive as write_pef
from tbuda_lab.sim.files import write_archive
from tests.netlist.builders import unary

ODD = [
    "a\\b",
    "C:\\models\\net",
    "a\tb",
    "a\nb",
    "a\rb",
    "\u202eabc",
    "\u200b",
    "\ufeffx",
    "'",
    '"',
    'it\'s "both"',
    "a\\",
    "\\n",
    "=1+1",
    "+a",
    "-a",
    "@a",
    "'=a",
    "a,b",
    "a;=b",
    "{x}",
    "[1]",
    "a: b",
    "# a",
    "- a",
    "null",
    "true",
    "1e3",
    "0x10",
    "inf",
    "nan",
    "recipe",
    "df",
    "//",
    "a/../b",
    "é",
    "\u2028",
    "\x85",
    "\x1f",
    "\x7f",
    "~",
    "!tag",
    "&a",
    "*a",
    "%",
    "|",
    "<<<<<<< x",
    "=======",
    "😀",
    "a" * 400,
    " a ",
    ".npy",
    "a.npy",
    "日本",
]
LETTERS = st.characters(exclude_categories=("Cs",), exclude_characters="\0")
NAMES = st.one_of(st.sampled_from(ODD), st.text(LETTERS, min_size=1, max_size=12))
NUMBERS = st.one_of(st.integers(-(2**70), 2**70), st.floats(allow_nan=False), st.sampled_from([-0.0, 1e-320, math.inf]))
VALUES = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, NAMES),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3), st.lists(inner, max_size=3).map(tuple), st.dictionaries(NAMES, inner, max_size=3)
    ),
    max_leaves=6,
)


@settings(max_examples=150)
@given(
    st.lists(NAMES, min_size=4, max_size=4, unique=True),
    NAMES,
    VALUES,
    st.lists(st.floats(width=32), min_size=1, max_size=20),
)
def test_graphs(names: list[str], text: str, value: Any, numbers: list[float]) -> None:
    graph = Graph(text)
    origin = Origin(module=text, module_class=names[0], source_op=names[1], location=text)
    graph.add(Node(names[0], NodeKind.INPUT, (2, 3), attrs={"dtype": text, text: value}, origin=origin))
    array = np.array(numbers, np.float32)
    graph.add(Node(names[1], NodeKind.CONSTANT, array.shape, value=array))
    both = (Edge(names[0]), Edge(names[0]))
    graph.add(Node(names[2], NodeKind.OP, (2, 3), Add(), both, attrs={"x": [value, (value,)]}))
    graph.add(Node(names[3], NodeKind.OUTPUT, (2, 3), inputs=(Edge(names[2]),)))
    printed = print_graph(graph)
    again = parse_graph(printed.encode().decode(), array_table(graph))
    assert print_graph(again) == printed and again.name == text and list(again.nodes) == names
    for node, twin in zip(graph, again, strict=True):
        assert (twin.inputs, twin.origin, twin.op, twin.shape, twin.kind) == (
            node.inputs,
            node.origin,
            node.op,
            node.shape,
            node.kind,
        )
        assert repr(twin.attrs) == repr(node.attrs)
    assert again[names[1]].value.tobytes() == array.tobytes() or np.isnan(array).any()


@settings(max_examples=150)
@given(st.lists(st.lists(st.one_of(NAMES, st.just(""), st.integers(-99, 2**60)), min_size=1, max_size=4), max_size=5))
@example([["=cmd|' /C calc'!A0", "@SUM(1)", "\t=1", "\r=1", "＝1"]])
def test_tables(rows: list[list[Any]]) -> None:
    """... and no cell that was a text is a formula to a spreadsheet."""
    text = csv_text(rows)
    assert [cells for _, cells in csv_rows(text)] == [[str(cell) for cell in row] for row in rows]
    for row, raw in zip(rows, _raw_cells(text), strict=True):
        for cell, written in zip(row, raw, strict=True):
            assert isinstance(cell, int) or not written.startswith(("=", "+", "-", "@", "\t", "\r", "＝"))


def _raw_cells(text: str) -> list[list[str]]:
    """What a spreadsheet sees, by another reader than ours (RFC 4180)."""
    rows: list[list[str]] = []
    for match in re.finditer(r'(?:"((?:[^"]|"")*)"|([^,"\n]*))(,|\n)', text):
        if match.start() == 0 or (text[match.start() - 1] == "\n" and rows and rows[-1] and rows[-1][-1] is None):
            rows.append([])
        cell = match[1].replace('""', '"') if match[1] is not None else match[2]
        rows[-1] = [*(c for c in rows[-1] if c is not None), cell]
        if match[3] == "\n":
            rows[-1].append(None)  # type: ignore[arg-type]
    return [[cell for cell in row if cell is not None] for row in rows]


@settings(max_examples=60)
@given(st.lists(NAMES, min_size=1, max_size=4, unique=True), st.sampled_from(["f4", "f8", "i8", "u1", "b1"]))
def test_arrays(names: list[str], dtype: str) -> None:
    arrays = {name: np.arange(6).reshape(2, 3).astype(dtype) for name in names}
    with tempfile.TemporaryDirectory() as folder:
        write_archive(Path(folder) / "x.npz", arrays)
        again = read_npz(Path(folder) / "x.npz")
    assert list(again) == names and all(again[n].dtype == a.dtype and (again[n] == a).all() for n, a in arrays.items())


@settings(max_examples=100)
@given(
    NAMES,
    NAMES,
    st.one_of(
        st.tuples(st.integers(1, 9), st.integers(1, 9)).map(lambda size: ("op_size", size)),
        st.just(("epoch_break", True)),
        st.integers(0, 7).map(lambda n: ("queue_channel", {"channel": n})),
        st.just(("dram_parameters", False)),
        st.sampled_from(["n", "rz"]).map(lambda d: ("t_stream_dir", d)),
    ),
)
def test_overrides(name: str, other: str, record: tuple[str, Any]) -> None:
    kind, value = record
    for target in (name, (name, other)):
        override = Override(kind, target, value)
        data = json.loads(json.dumps(to_json(override, lambda o: ())))
        again = from_json(data)
        assert (again.kind, again.target if isinstance(target, str) else tuple(again.target), again.value) == (
            kind,
            target,
            value,
        )
        text = json.dumps({"format": OVERRIDES_FORMAT, "overrides": [data]}, ensure_ascii=False)
        assert [to_json(o, lambda o: ()) for o in parse_overrides(text)] == [to_json(override, lambda o: ())]


@settings(max_examples=100)
@given(NAMES, NAMES, st.lists(NAMES, max_size=3))
def test_sessions(name: str, op: str, more: list[str]) -> None:
    options = CompileOptions(op_names_dont_fuse=tuple(more), default_df_override=DataFormat.Bfp8_b)
    header = Header(name, "n150", (1, 2), options, (Override("op_size", op, (1, 1)),))
    override = SetOverride(Override("u_kt", op, 2, "file"))
    commands = (ResizeOp(op, (2, 1)), EpochBreak(op), InsertNop(op, (name,)), override)
    state: Any = None
    log = [
        Entry("do", EditStep(commands, name, "page", state, state)),
        *(Entry("do", EditStep((c,), c.label, "code", state, state)) for c in commands),
    ]
    text = journal_text(header, log, lambda o: ())
    again = parse_journal(text.encode().decode())
    assert again.header == dataclasses.replace(header, overrides=again.header.overrides)
    assert journal_text(again.header, log, lambda o: ()) == text
    assert [action[1] for action in again.actions] == [commands, *((c,) for c in commands)]
    assert again.actions[0][2] == name


@settings(max_examples=80)
@given(st.lists(NAMES, max_size=3), NAMES, NUMBERS)
def test_options(names: list[str], op: str, number: float) -> None:
    rule = PrecisionRule(op, re.escape(op), "matmul", DataFormat.Bfp8_b)
    options = CompileOptions(
        op_names_dont_fuse=tuple(names),
        op_names_pad=tuple(names),
        precision=(rule,),
        op_names_manual_fuse=tuple(map(re.escape, names)),
        op_parts=((op, 2),),
    )
    data = parse_json(json.dumps(options_to_json(options), ensure_ascii=False), "x")
    assert CompileOptions(**options_from_json(data)) == options


@settings(max_examples=60)
@given(st.lists(NAMES, min_size=1, max_size=3, unique=True))
def test_netlists(names: list[str]) -> None:
    """Names of queues and of the entries of their maps."""
    n = unary()
    first: Queue = next(iter(n.queues.values()))
    for name in names:
        n.queues.setdefault(name, dataclasses.replace(first, name=name))
    text = netlists.dumps(n)
    again = netlists.loads(text.encode().decode(), lenient=True)
    assert list(again.queues) == list(n.queues) and netlists.dumps(again) == text
    assert isinstance(parse_yaml(text, "x"), dict)


@settings(max_examples=40)
@given(NAMES, VALUES, st.binary(max_size=40))
def test_program_archives(name: str, value: Any, data: bytes) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x.pef"
        write_pef(path, {"version": 1, "graphs": [], "x": {name: value}}, {"a.bin": data})
        again = read_record(path)
    assert again["x"] == json.loads(json.dumps({name: value}))


HALF: dict[str, Callable[[Path], Any]] = {
    "arrays": lambda path: write_archive(path, {"a\ud800": np.zeros(2)}),
    "arrays, a zero": lambda path: write_archive(path, {"a\0b": np.zeros(2)}),
    "arrays, too long": lambda path: write_archive(path, {"a" * 70_000: np.zeros(2)}),
}


@pytest.mark.parametrize("what", HALF)
def test_what_a_format_cannot_hold_is_refused_when_it_is_written(what: str, tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        HALF[what](tmp_path / "x")
    assert list(tmp_path.iterdir()) == []
