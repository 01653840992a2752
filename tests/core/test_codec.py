"""Records as plain data: what is written is read again, and what does not fit is refused by name."""

from __future__ import annotations

import dataclasses
import json
from typing import Any, Literal

import pytest

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files.codec import fields_of, of_plain, to_plain
from tbuda_lab.core.formats import DataFormat


@dataclasses.dataclass(frozen=True)
class Inner:
    sizes: tuple[int, ...] = ()
    pair: tuple[str, float] | None = None


@dataclasses.dataclass(frozen=True)
class Outer:
    name: str
    df: DataFormat = DataFormat.Bfp8_b
    inner: tuple[Inner, ...] = ()
    limit: int | None = None
    on: bool = False


@pytest.mark.parametrize(
    "record",
    [Outer("a"), Outer("b", DataFormat.Float32, (Inner((1, 2), ("x", 0.5)), Inner()), 7, True), Outer("é\n", limit=0)],
)
def test_a_record_is_read_as_it_was_written(record: Outer) -> None:
    assert of_plain(Outer, json.loads(json.dumps(to_plain(record))), "outer") == record


@pytest.mark.parametrize(
    ("data", "text"),
    [
        ([], "outer is an object of names and values, not \\[\\]"),
        ({}, "outer lacks name; its fields: name, df, inner, limit, on"),
        ({"name": "a", "size": 1}, "outer has no field 'size'"),
        ({"name": 1}, "outer.name is text, not 1"),
        ({"name": "a", "on": 1}, "outer.on is true or false, not 1"),
        ({"name": "a", "limit": True}, "outer.limit is a whole number or null, not True"),
        ({"name": "a", "limit": 1 << 63}, "outer.limit is a whole number or null"),
        ({"name": "a", "df": "Float64"}, "outer.df is one of Float32, .*, not 'Float64'"),
        ({"name": "a", "inner": {}}, "outer.inner is a list, each Inner, not {}"),
        ({"name": "a", "inner": [{"sizes": [1, "2"]}]}, "inner\\[0\\].sizes\\[1\\] is a whole number, not '2'"),
        ({"name": "a", "inner": [{"pair": ["x", float("nan")]}]}, "pair\\[1\\] is a number, not nan"),
        ({"name": "a", "inner": [{"pair": ["x"]}]}, "pair is a list of 2: text, a number, not \\['x'\\]"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(data: Any, text: str) -> None:
    with pytest.raises(InputError, match=text):
        of_plain(Outer, data, "outer")


def test_some_fields_of_a_record() -> None:
    assert fields_of(Outer, {"limit": 3}, "outer", partly=True) == {"limit": 3}


@dataclasses.dataclass(frozen=True)
class Named:
    kind: Literal["named"] = "named"
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Block:
    parts: tuple[Named | Block, ...]
    kind: Literal["block"] = "block"


def test_records_are_told_apart_by_a_word_of_theirs() -> None:
    record = Block((Named(), Block((Named(text="x"),))))
    assert of_plain(Block, json.loads(json.dumps(to_plain(record))), "block") == record
    for data, text in (
        ({"kind": "named", "parts": []}, "block.kind is 'block', not 'named'"),
        ({"parts": [{"kind": "other"}]}, "parts\\[0\\].kind is one of named, block, not 'other'"),
        ({"parts": [{"text": "x"}]}, "kind is one of named, block, not None"),
        ({"parts": [{"kind": "named", "parts": []}]}, "parts\\[0\\] has no field 'parts'"),
    ):
        with pytest.raises(InputError, match=text):
            of_plain(Block, data, "block")
