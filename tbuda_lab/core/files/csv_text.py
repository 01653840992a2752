"""Tables as CSV text that reads back as it was, and of which a spreadsheet makes no formula."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterable, Iterator
from typing import Any

_FORMULA = tuple("=+-@\t\r'＝＋－＠")
"""A text that begins so gets a `'` in front. Spreadsheets take the others for formulas; and what begins with `'` would
lose it."""
_QUOTED = re.compile(r'[",;\r\n\v\f\x1c-\x1e\x85\u2028\u2029]|^\s|\s$')


def csv_text(rows: Iterable[Iterable[Any]]) -> str:
    """Rows of texts and numbers as CSV. A text that a spreadsheet would take for a formula has `'` in front."""
    return "".join(",".join(map(_cell, row)) + "\n" for row in rows)


def csv_rows(text: str) -> Iterator[tuple[int, list[str]]]:
    """(line, cells) of every row of such a text, cells as they were before. Raises `csv.Error`."""
    reader = csv.reader(io.StringIO(text, newline=""))
    for row in reader:
        if row:  # an empty line is no row
            yield reader.line_num, [cell[1:] if cell.startswith("'") else cell for cell in row]


def _cell(value: Any) -> str:
    text = str(value)
    if isinstance(value, str) and text.startswith(_FORMULA):
        text = f"'{text}"
    if _QUOTED.search(text):
        return '"' + text.replace('"', '""') + '"'
    return text or '""'
