"""Patterns of names: the same answers as Python's, in a time that the sizes of name and pattern limit."""

from __future__ import annotations

import re
import time
import types

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.name_patterns import MAX_LENGTH, NamePattern, name_pattern
from tbuda_lab.core.ops import Exp
from tbuda_lab.core.options import CompileOptions, PrecisionRule, options_from_json, pattern_fault
from tbuda_lab.core.session.find_error.runs import asked_format

SINGLE = st.sampled_from(["a", "b", "ab", ".", r"\d", r"\W", "[ab]", "[^a]", "[a-c1]", r"\.", "1", "é", "^", "$"])
PATTERNS = st.recursive(
    SINGLE,
    lambda inner: st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map("({0[0]}|{0[1]})".format),
        inner.map("(?:{})*".format),
        inner.map("({})+?".format),
        inner.map("(?:{}){{1,3}}".format),
        inner.map("(?:{})?".format),
    ),
    max_leaves=9,
)


@settings(max_examples=400, deadline=None)
@given(PATTERNS, st.text("ab1.c\né", max_size=7), st.booleans())
def test_answers_are_those_of_python(text: str, name: str, long: bool) -> None:
    """Long names are followed through the states, however few choices there are."""
    name *= 1 + long * MAX_LENGTH if len(name) < 2 and "{" not in text and text.count("*") + text.count("+") < 2 else 1
    assert NamePattern(text).fullmatch(name) == (re.fullmatch(text, name) is not None)


BOMBS = [
    r"(a|a)*b",
    r"(a+)+",
    r"(a*)*c",
    r".*.*.*.*.*.*x",
    r"(.*)*(.*)*x",
    r"(a?){60}a{60}",
    r"([a-z]+)*\.x",
    r"(a|aa)+$",
    r"((((a*)*)*)*)*b",
    r"(?:a{1,30}){1,30}b",
    r"(x+x+)+y|(a|a)*b",
]


@pytest.mark.parametrize("text", BOMBS)
def test_no_pattern_takes_without_limit(text: str) -> None:
    begin = time.process_time()
    for name in ("a" * 300, "a" * 299 + "!", "x" * 300):
        name_pattern(text).fullmatch(name)
    assert time.process_time() - begin < 20  # Python's own matcher needs longer than there is time


@pytest.mark.parametrize(
    "text",
    [
        r"(a)\1*(b|cc)*(d|ee)*",
        r"(?=a*a*a*)a*",
        r"(?i)a*b*c*",
        r"\ba*b*c*",
        "(",
        "a{2,1}",
        "(?:(?:a|bb){1,99}){1,99}",
        "(" * 5000,
    ],
)
def test_what_has_no_limit_or_is_none_is_refused(text: str) -> None:
    with pytest.raises(ValueError):
        NamePattern(text)
    assert "is not a regular expression" in pattern_fault(text)
    with pytest.raises(TbudaError):
        CompileOptions(**options_from_json({"op_names_manual_fuse": [text]}))


@pytest.mark.parametrize("text", [r"(?!.*bias).*weight", r"(?i)LAYER.*", r"(a|b)\1", r"\blayer", r"(?P<n>x)(?P=n)"])
def test_look_around_and_references_are_known_where_choices_are_few(text: str) -> None:
    for name in ("layer.0.weight", "layer.0.bias", "aa", "ab", "xx", "layer"):
        assert name_pattern(text).fullmatch(name) == (re.fullmatch(text, name) is not None)


def test_the_options_of_a_file_cannot_hang_a_compile() -> None:
    """What a session file may say of what is fused."""
    options = CompileOptions(**options_from_json({"op_names_manual_fuse": [r"(.|.)*x", r"(\w+\w+)+!"]}))
    graph = Graph("g")
    last = graph.add(Node("a" * 120, NodeKind.INPUT, (1, 1, 32, 32))).name
    for k in range(3):
        last = graph.add(Node("a" * 121 + str(k), NodeKind.OP, (1, 1, 32, 32), Exp(), (Edge(last),))).name
    graph.add(Node("y", NodeKind.OUTPUT, (1, 1, 32, 32), inputs=(Edge(last),)))
    begin = time.process_time()
    lower(graph, load_device("n150"), options)
    assert time.process_time() - begin < 20


def test_the_rules_of_a_file_cannot_hang_the_look_for_an_error() -> None:
    """What a session file may say of formats, read again by *Find error*."""
    options = CompileOptions(
        precision=(PrecisionRule(reason="of a file", name=r"(a|a)*!", output_df=DataFormat.Float16_b),)
    )
    result = types.SimpleNamespace(options=options, overrides=())
    node = Node("a" * 120, NodeKind.OP, (1, 1, 32, 32), Exp(), (Edge("x"),), df=DataFormat.Float32)
    assert asked_format(result, node) is DataFormat.Float32  # type: ignore[arg-type]
