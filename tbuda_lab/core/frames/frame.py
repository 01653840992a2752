"""A frame: what a view is sent. A small JSON header, strings once in a table, one little-endian buffer of columns."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

COLUMN_DTYPES = ("u1", "u2", "u4", "i2", "i4", "f4", "f8")
"""Column types a page can view without copying. Cycles and bytes go as f8: exact up to 2**53."""


class Strings:
    """Interns strings; the index of "" is 0."""

    def __init__(self, table: Sequence[str] = ("",)) -> None:
        """table: to go on with; its first string is ""."""
        self.table: list[str] = list(table)
        self._index: dict[str, int] = {text: k for k, text in enumerate(self.table)}

    def __call__(self, text: str) -> int:
        index = self._index.get(text)
        if index is None:
            index = self._index[text] = len(self.table)
            self.table.append(text)
        return index

    def column(self, texts: Iterable[str]) -> np.ndarray:
        """Indices of many strings, as a u4 column."""
        return np.fromiter((self(t) for t in texts), dtype="<u4")


@dataclasses.dataclass(frozen=True)
class Frame:
    """One columnar snapshot.

    key: what it shows ("summary", "graph:lowered", "ops", "netlist", "problems"). meta: small JSON values.
    columns: 1-D arrays of a dtype in COLUMN_DTYPES. strings: the table that string columns index.
    """

    key: str
    meta: dict[str, Any]
    columns: dict[str, np.ndarray] = dataclasses.field(default_factory=dict)
    strings: Sequence[str] = ("",)

    def pack(self) -> tuple[dict[str, Any], bytes]:
        """(header, buffer): every column starts on a multiple of eight bytes."""
        described: list[dict[str, Any]] = []
        parts: list[bytes] = []
        offset = 0
        for name, column in self.columns.items():
            code = column.dtype.str[1:]
            if code not in COLUMN_DTYPES or column.ndim != 1:
                raise TypeError(f"column {name!r} of frame {self.key!r} is {column.ndim}-D {column.dtype}")
            raw = column.astype(f"<{code}", copy=False).tobytes()
            described.append({"name": name, "dtype": code, "offset": offset, "length": int(column.size)})
            padding = -len(raw) % 8
            parts += [raw, b"\0" * padding]
            offset += len(raw) + padding
        header = {"key": self.key, "meta": self.meta, "strings": list(self.strings), "columns": described}
        return header, b"".join(parts)

    @classmethod
    def unpack(cls, header: dict[str, Any], buffer: bytes) -> Frame:
        """The inverse of `pack`."""
        columns = {
            c["name"]: np.frombuffer(buffer, dtype=f"<{c['dtype']}", count=c["length"], offset=c["offset"])
            for c in header["columns"]
        }
        return cls(header["key"], header["meta"], columns, tuple(header["strings"]))

    def text(self, column: str) -> list[str]:
        """A string column as strings."""
        return [self.strings[i] for i in self.columns[column]]
