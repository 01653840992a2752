"""Records as plain data and back, every value checked against the type of its field."""

from __future__ import annotations

import dataclasses
import math
import types
import typing
from typing import Any, TypeVar, cast

from tbuda_lab.core.errors import InputError

T = TypeVar("T")


def to_plain(record: Any) -> Any:
    """A dataclass of numbers, texts, tuples and such dataclasses as JSON has it."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_plain(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, tuple | list):
        return [to_plain(item) for item in record]
    return record


def of_plain(kind: type[T], data: Any, where: str) -> T:
    """The inverse of `to_plain`; `where` names the data in errors. Raises `InputError` for what does not fit."""
    return cast(T, _value(kind, data, where))


def _value(kind: Any, data: Any, where: str) -> Any:
    if dataclasses.is_dataclass(kind) and isinstance(kind, type):
        return _record(kind, data, where)
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if origin is tuple:
        if isinstance(data, list):
            kinds = [inner[0]] * len(data) if inner[1:] == (...,) else list(inner)
            if len(kinds) == len(data):
                return tuple(_value(k, v, f"{where}[{i}]") for i, (k, v) in enumerate(zip(kinds, data, strict=True)))
    elif origin in (typing.Union, types.UnionType):
        if data is None and type(None) in inner:
            return None
        for other in [k for k in inner if k is not type(None)]:
            try:
                return _value(other, data, where)
            except InputError as error:
                refusal = error
        raise refusal
    elif kind is float and type(data) in (int, float) and math.isfinite(data):
        return float(data)
    elif type(data) is kind and (kind is not int or abs(data) < 1 << 63):
        return data
    raise InputError(f"{where} is {_short(data)}, not {getattr(kind, '__name__', kind)}")


def _record(kind: type[Any], data: Any, where: str) -> Any:
    if not isinstance(data, dict):
        raise InputError(f"{where} is {_short(data)}, not an object")
    hints = typing.get_type_hints(kind)
    fields = {f.name: f for f in dataclasses.fields(kind)}
    unknown = [k for k in data if k not in fields]
    missing = [n for n, f in fields.items()
               if n not in data and f.default is dataclasses.MISSING and f.default_factory is dataclasses.MISSING]
    if unknown or missing:
        what = f"has {', '.join(map(str, unknown))}, which is unknown" if unknown else f"lacks {', '.join(missing)}"
        raise InputError(f"{where} {what}")
    return kind(**{name: _value(hints[name], value, f"{where}.{name}") for name, value in data.items()})


def _short(data: Any) -> str:
    text = repr(data)
    return text if len(text) <= 60 else text[:57] + "..."
