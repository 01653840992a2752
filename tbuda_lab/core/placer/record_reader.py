"""Reads records of decisions, which may come from a file: everything is checked before it is used."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tbuda_lab.core.errors import InputError


class Reader:
    """Fields of a record by name, each of the kind that it is read as. Raises `InputError`."""

    def __init__(self, record: Any) -> None:
        if not isinstance(record, dict):
            raise InputError("a record is an object")
        self._fields: dict[str, Any] = record

    def __getitem__(self, name: str) -> Any:
        if name not in self._fields:
            raise InputError(f"a record without {name!r}")
        return self._fields[name]

    def text(self, name: str) -> str:
        return text_of(self[name])

    def list(self, name: str) -> list[Any]:
        result = self[name]
        if not isinstance(result, list):
            raise InputError(f"a record whose {name!r} is no list")
        return result

    def texts(self, name: str) -> tuple[str, ...]:
        return tuple(map(text_of, self.list(name)))

    def map(self, name: str) -> dict[str, Any]:
        result = self[name]
        if not isinstance(result, dict):
            raise InputError(f"a record whose {name!r} is no object")
        return result


def rows_of(values: Sequence[Any], count: int) -> Sequence[Sequence[Any]]:
    if not all(isinstance(v, list | tuple) and len(v) == count for v in values):
        raise InputError(f"a record with a list that has not {count} parts")
    return values


def text_of(value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"a record with {value!r} where a text belongs")
    return value


def whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise InputError(f"a record with {value!r} where a whole number belongs")
    return value


def number(value: Any) -> Any:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise InputError(f"a record with {value!r} where a number belongs")
    return value
