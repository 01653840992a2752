"""Records as plain data and back, every value checked against the type of its field.

A record is a dataclass of numbers, texts, members of enums (by name), tuples and such dataclasses. Where a value may be
one of several, a field of theirs with a `Literal` of its own in each tells them apart. It is the one reader of plain
data for images, options, journals, host programs and messages of pages.
"""

from __future__ import annotations

import dataclasses
import enum
import functools
import sys
import types
import typing
from collections.abc import Mapping
from typing import Any, Literal, TypeVar, cast

from tbuda_lab.core.errors import InputError

T = TypeVar("T")


def to_plain(record: Any) -> Any:
    """A record, or a value of one, as JSON has it."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_plain(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, tuple | list):
        return [to_plain(item) for item in record]
    return record.name if isinstance(record, enum.Enum) else record


def of_plain(kind: type[T], data: Any, where: str) -> T:
    """The inverse of `to_plain`; `where` names the data in errors. Raises `InputError` for what does not fit."""
    try:
        return cast(T, value_of(kind, data, where))
    except RecursionError as error:
        raise InputError(f"{where} is nested too deeply") from error


def value_of(kind: Any, data: Any, where: str) -> Any:
    """A value of a type as annotations write it (`tuple[int, ...]`, `str | None`). Raises `InputError`."""
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return kind(**fields_of(kind, data, where))
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if isinstance(data, list):
            kinds = [inner[0]] * len(data) if inner[1:] == (...,) else list(inner)
            if len(kinds) == len(data):
                items = enumerate(zip(kinds, data, strict=True))
                return tuple(value_of(k, v, f"{where}[{i}]") for i, (k, v) in items)
    elif origin in (typing.Union, types.UnionType):
        return _of_union(inner, data, where)
    elif origin is Literal:
        if isinstance(data, str) and data in inner:
            return data
        raise InputError(f"{where} is {' or '.join(map(repr, inner))}, not {_short(data)}")
    elif isinstance(kind, type) and issubclass(kind, enum.Enum):
        if isinstance(data, str) and data in kind.__members__:
            return kind[data]
        raise InputError(f"{where} is one of {', '.join(m.name for m in kind)}, not {_short(data)}")
    elif kind is float:
        if type(data) in (int, float) and abs(data) <= sys.float_info.max:  # no NaN, no infinity
            return float(data)
    elif type(data) is kind and (kind is not int or abs(data) < 1 << 63):
        return data
    raise InputError(f"{where} is {type_name(kind)}, not {_short(data)}")


def _of_union(kinds: tuple[Any, ...], data: Any, where: str) -> Any:
    """A value of the first type that takes it. Where none does, a list or an object has the refusal of the last type
    that is no plain value, which says what in it is wrong."""
    if data is None and type(None) in kinds:
        return None
    if isinstance(data, Mapping) and (told := _told_apart(kinds)) is not None:
        field, by_word = told
        word = data.get(field)
        if isinstance(word, str) and word in by_word:
            return value_of(by_word[word], data, where)
        raise InputError(f"{where}.{field} is one of {', '.join(by_word)}, not {_short(word)}")
    refusal = InputError(f"{where} is {' or '.join(map(type_name, kinds))}, not {_short(data)}")
    for kind in (k for k in kinds if k is not type(None)):
        try:
            return value_of(kind, data, where)
        except InputError as error:
            if isinstance(data, list | dict) and kind not in (int, float, str, bool):
                refusal = error
    raise refusal


@functools.cache
def _told_apart(kinds: tuple[Any, ...]) -> tuple[str, dict[str, Any]] | None:
    """The field by which records are told apart, and by its word the record; None where they have none."""
    if not all(dataclasses.is_dataclass(kind) for kind in kinds):
        return None
    hints = [typing.get_type_hints(kind) for kind in kinds]
    for field in hints[0]:
        if all(typing.get_origin(own.get(field)) is Literal for own in hints):
            return field, {w: k for k, own in zip(kinds, hints, strict=True) for w in typing.get_args(own[field])}
    return None


def fields_of(kind: type[Any], data: Any, where: str, partly: bool = False) -> dict[str, Any]:
    """The fields of a dataclass by name, of the types that it says.

    partly: those without a default may be missing. Raises `InputError` for what is no object, for unknown and missing
    fields, and for values of another type.
    """
    if not isinstance(data, Mapping):
        raise InputError(f"{where} is an object of names and values, not {_short(data)}")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    required = (
        n for n, f in fields.items() if f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING
    )
    missing = [] if partly else [name for name in required if name not in data]
    unknown = [name for name in data if name not in fields]
    if unknown or missing:
        what = f"has no field {unknown[0]!r}" if unknown else f"lacks {', '.join(missing)}"
        raise InputError(f"{where} {what}; its fields: {', '.join(fields)}")
    return {name: value_of(hints[name], value, f"{where}.{name}") for name, value in data.items()}


def type_name(kind: Any) -> str:
    """A type in the words of JSON: "a whole number", "a list of texts"."""
    words = {int: "a whole number", float: "a number", str: "text", bool: "true or false", type(None): "null"}
    inner = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        if inner[1:] == (...,):
            return f"a list, each {type_name(inner[0])}"
        return f"a list of {len(inner)}: {', '.join(map(type_name, inner))}"
    if typing.get_origin(kind) in (typing.Union, types.UnionType):
        return " or ".join(map(type_name, inner))
    return words.get(kind, str(getattr(kind, "__name__", kind)))


def _short(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else text[:57] + "..."
