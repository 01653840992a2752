"""Values written as Python source parse back to themselves: the oracle is Python's own parser."""

from __future__ import annotations

import ast
import enum
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.literals import python_comment, python_literal

PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.text(st.characters(), max_size=20),
    st.binary(max_size=8),
)
VALUES = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.one_of(st.text(max_size=8), st.integers()), inner, max_size=4),
    ),
    max_leaves=12,
)


@given(VALUES)
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_literal_parses_back_to_its_value(value: object) -> None:
    text = python_literal(value)
    back = ast.literal_eval(text)
    assert back == value and type(back) is type(value)
    assert len(text.splitlines()) == 1


@given(st.text(st.characters()))
@settings(max_examples=300, deadline=None, derandomize=True)
def test_a_comment_is_one_line_without_code(text: str) -> None:
    line = python_comment(text)
    assert len(line.splitlines()) == 1
    assert ast.parse(line).body == []


def test_subclasses_are_written_as_what_they_are() -> None:
    class Sly(str):
        def __repr__(self) -> str:
            return "__import__('os')"

    class Count(enum.IntEnum):
        TWO = 2

    assert python_literal(Sly("x")) == "'x'"
    assert python_literal(Count.TWO) == "2"
    assert python_literal(np.int32(7)) == "7" and python_literal(np.float64(0.5)) == "0.5"
    assert python_literal(DataFormat.Bfp8_b) == "pybuda.DataFormat.Bfp8_b"


def test_large_and_not_finite_numbers() -> None:
    assert ast.literal_eval(python_literal(-(10**5000))) == -(10**5000)
    assert ast.literal_eval(python_literal([-math.inf, math.inf])) == [-math.inf, math.inf]


def test_what_has_no_literal_is_refused() -> None:
    nested: list[object] = []
    for _ in range(100):
        nested = [nested]
    for value in (object(), lambda: 0, math.nan, np.zeros(3), nested):
        with pytest.raises(InputError):
            python_literal(value)
