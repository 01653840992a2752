"""Header and cells of a CSV file, by the names of columns; what cannot be read is said with its line and column.

Two ways to read: strict, where the first cell that cannot be read is an error; or row by row, where such a row is set
aside with a note and the others are read on.
"""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np

from tbuda_lab.core.cost.blocks import F64
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.files import bounded_text

MAX_BYTES = 256 << 20
SMALL = 1 << 20  # cells that a sheet may have, however short its text
_T = TypeVar("_T")
_NOTES = 20  # notes that are listed one by one


@dataclasses.dataclass
class Cells:
    """rows: the cells under the header, as many in each; lines: of the file, of each row; refused: rows set aside."""

    path: Path
    header: list[str]
    rows: list[list[str]]
    lines: list[int]
    strict: bool
    refused: set[int] = dataclasses.field(default_factory=set)
    _lines_of: dict[str, list[int]] = dataclasses.field(default_factory=dict)  # lines by what is said of them

    def say(self, line: int, message: str) -> None:
        """A note on a line; `message` follows "line N"."""
        self._lines_of.setdefault(message, []).append(line)

    @property
    def notes(self) -> tuple[str, ...]:
        """What was noted, once for all lines of which the same is said (line 0: the whole file); of many different
        notes those on most lines."""
        often = sorted(self._lines_of.items(), key=lambda item: -len(item[1]))[:_NOTES]
        texts = []
        for message, lines in often if len(self._lines_of) > _NOTES else self._lines_of.items():
            more = f" (and {len(lines) - 1} more such lines)" if len(lines) > 1 else ""
            texts.append(f"line {lines[0]}{message}{more}" if lines[0] else message)
        rest = len(self._lines_of) - len(texts)
        return (*texts, f"and {rest} different notes more") if rest else tuple(texts)

    def texts(self, names: tuple[str, ...]) -> list[str] | None:
        """In every row the first cell of the named columns that is not empty; None where there is no such column."""
        columns = [self.header.index(name) for name in names if name in self.header]
        if not columns:
            return None
        return [next(filter(None, (row[index].strip() for index in columns)), "") for row in self.rows]

    def parsed(self, texts: list[str], parse: Callable[[str], _T], instead: _T, column: str = "") -> list[_T]:
        """Every text parsed, each different one once. A row that cannot be is an `InputError`, or is refused and has
        `instead`."""
        results: dict[str, _T | Exception] = {}
        result = []
        for row, text in enumerate(texts):
            if text not in results:
                try:
                    results[text] = parse(text)
                except (ValueError, TbudaError) as error:
                    results[text] = error
            value = results[text]
            if isinstance(value, Exception):
                self._refuse(row, column, value)
                value = instead
            result.append(value)
        return result

    def numbers(self, names: tuple[str, ...], default: float | None, least: int = 1) -> F64:
        """The counts in the named columns; `default` where there is no such column, or, unless strict, where its cell
        is empty. None: it has to be there."""
        numbers = self.texts(names)
        if numbers is None:
            if default is None:
                raise InputError(f"{self.path}: no column {' or '.join(names)}")
            return np.full(len(self.rows), default)
        name = next(name for name in names if name in self.header)
        if default is not None and not self.strict:
            for row in [row for row, text in enumerate(numbers) if not text]:
                self.say(self.lines[row], f": column {name} is empty, taken as {default:g}")
                numbers[row] = f"{default:g}"
        return np.array(self.parsed(numbers, lambda text: _count(text, least), 1.0, name), np.float64)

    def _refuse(self, row: int, column: str, error: Exception) -> None:
        what = f"column {column} {error}" if column else str(error)
        if self.strict:
            raise InputError(f"{self.path}:{self.lines[row]}: {what}") from error
        if row not in self.refused:
            self.refused.add(row)
            self.say(self.lines[row], f": {what}; no estimate")


def open_cells(path: Path, strict: bool) -> Cells:
    """Header and rows of a file. Cells missing at the end of a row are empty; lines that repeat the header, as in
    joined sheets, are left out. Raises `InputError` when the file is none."""
    text = bounded_text(path, MAX_BYTES, "is not a sheet of measurements")
    source = csv.reader(io.StringIO(text, newline=""))
    try:
        rows = [(source.line_num, row) for row in source if _holds_a_row(row, strict)]
    except csv.Error as error:
        raise InputError(f"{path}:{source.line_num}: cannot read the sheet: {error}") from error
    if not rows:
        raise InputError(f"{path}: the sheet is empty")
    header = [name.strip() for name in rows[0][1]]
    if len(header) * len(rows) > SMALL + 4 * len(text):  # rows are as wide as the header, whatever they hold
        raise InputError(f"{path}: {len(header)} columns over {len(rows)} rows, most of them empty: that is not a "
                         "sheet of measurements")
    cells = Cells(path, header, [], [], strict)
    for line, row in rows[1:]:
        if [name.strip() for name in row] == header:
            cells.say(line, " repeats the header and is left out")
            continue
        if any(cell.strip() for cell in row[len(header):]):
            if strict:
                raise InputError(f"{path}:{line}: {len(row)} cells under {len(header)} columns")
            cells.say(line, f": {len(row)} cells under {len(header)} columns; those beyond them are left out")
        cells.rows.append([*row, *[""] * (len(header) - len(row))][:len(header)])
        cells.lines.append(line)
    return cells


def _holds_a_row(row: list[str], strict: bool) -> bool:
    """Row by row, even a row of empty cells is a row of the sheet; a blank line never is."""
    return any(cell.strip() for cell in row) or (not strict and len(row) > 1)


def _count(text: str, least: int) -> float:
    if not text:
        raise ValueError("is empty")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not least <= value < 2**31:
        raise ValueError(f"{text!r} is not a count")
    return value
