"""Measurement sheets: one CSV of silicon runs of one op, read by the names of columns into arrays. What cannot be read
is reported with its line and column."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.cost.model import F64, KINDS, Block, cycles, format_class
from tbuda_lab.core.cost.tables import Key, Table
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.files import bounded_text
from tbuda_lab.core.formats import DataFormat, MathFidelity, parse_fidelity, parse_format

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

    def parse(self, texts: list[str], parse: Callable[[str], _T], instead: _T, column: str = "") -> list[_T]:
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
        return np.array(self.parse(numbers, lambda text: _count(text, least), 1.0, name), np.float64)

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
        raise InputError(
            f"{path}: {len(header)} columns over {len(rows)} rows, most of them empty: that is not a "
            "sheet of measurements"
        )
    cells = Cells(path, header, [], [], strict)
    for line, row in rows[1:]:
        if [name.strip() for name in row] == header:
            cells.say(line, " repeats the header and is left out")
            continue
        if any(cell.strip() for cell in row[len(header) :]):
            if strict:
                raise InputError(f"{path}:{line}: {len(row)} cells under {len(header)} columns")
            cells.say(line, f": {len(row)} cells under {len(header)} columns; those beyond them are left out")
        cells.rows.append([*row, *[""] * (len(header) - len(row))][: len(header)])
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


INPUTS_PER_RUN = 128
"""Sheets with `total-runtime` timed this many inputs; `runtime` is cycles of one."""

_COLUMNS = {
    "t": ("output_t", "t", "input0_t"),
    "mblock_m": ("output_mb_r", "mblock_m"),
    "mblock_n": ("output_mb_c", "mblock_n"),
    "ublock_r": ("output_ub_r", "ublock_rt", "ublock_r"),
    "ublock_c": ("output_ub_c", "ublock_ct", "ublock_c"),
    "m_k": ("mblock_k", "m_k"),
    "u_kt": ("ublock_kt", "u_kt"),
    "z": ("z",),
    "nz_tiles": ("nz_tiles",),
    "nz_ublocks": ("nz_ublocks",),
    "nz_strips": ("nz_strips",),
}
_REQUIRED = ("mblock_m", "mblock_n", "ublock_r", "ublock_c")
_OP = ("Unary-Type", "Binary-Type", "quant_type", "op_type", "type")
_FORMAT = ("input0_df", "input0", "input_df", "output_df")
_VECTOR = ("Vector-Mode", "vector_mode")
_FIDELITY = ("math_fidelity",)
_TRUE = ("true", "1", "yes")
_ASSUMED = DataFormat.Float16_b  # of a sheet that does not say, unless that is an error


@dataclasses.dataclass(frozen=True)
class Sheet:
    """A sheet of n runs: header and cells as read, and per run what decides its cycles. notes: what was read in a way
    that its writer may not have meant. A run of an unknown op type is priced as a nop, and not taken as measured."""

    path: Path
    header: list[str]
    cells: list[list[str]]
    keys: list[Key]
    formats: list[DataFormat]
    vectors: list[str]
    counts: dict[str, F64]
    measured: F64 | None  # cycles per input, NaN where a run has none
    notes: tuple[str, ...] = ()
    refused: tuple[int, ...] = ()  # rows that were not understood

    def block(self, rows: npt.NDArray[np.intp]) -> Block:
        """The blocks of some rows."""
        c = {name: values[rows] for name, values in self.counts.items()}
        return Block(
            c["t"],
            c["mblock_m"],
            c["mblock_n"],
            c["ublock_r"],
            c["ublock_c"],
            c["m_k"],
            c["u_kt"],
            c["z"],
            c["fidelity"].astype(np.int64),
            c["nz_tiles"],
            c["nz_ublocks"],
            c["nz_strips"],
        )

    def estimate(self, arch: str, table: Table | None = None) -> npt.NDArray[np.int64]:
        """Estimated cycles per input of every run, 0 of those refused: one call of the model per kind of run."""
        estimate = np.zeros(len(self.cells), np.int64)
        groups: dict[tuple[Key, DataFormat, str], list[int]] = {}
        for row, group in enumerate(zip(self.keys, self.formats, self.vectors, strict=True)):
            groups.setdefault(group, []).append(row)
        for (key, df, vector), members in groups.items():
            rows = np.array(members)
            b = self.block(rows)
            estimate[rows] = cycles(
                key.kind,
                arch=arch,
                df=df,
                fidelity=np.asarray(b.fidelity),
                t=b.t,
                mblock_m=b.mblock_m,
                mblock_n=b.mblock_n,
                ublock_r=b.ublock_r,
                ublock_c=b.ublock_c,
                m_k=b.m_k,
                u_kt=b.u_kt,
                z=b.z,
                dim=key.variant if key.kind == "reduce" else None,
                approximate=key.variant == "approximate",
                vector=vector,
                l1_acc=key.variant == "l1_acc",
                sparse=(b.nz_tiles, b.nz_ublocks, b.nz_strips),
                table=table,
            )
        estimate[list(self.refused)] = 0
        return estimate


def read_sheet(path: Path, kind: str | None = None, *, strict: bool = True) -> Sheet:
    """Reads a sheet; `kind` overrides the op type that columns or file name give.

    Cells that are missing at the end of a row are empty; lines that repeat the header, as in joined sheets, are left
    out. Raises `InputError` naming file, line and column of what is missing or not understood; unless `strict`, a row
    that is not understood has no estimate instead, and a note says why.
    """
    cells = open_cells(path, strict)
    count = len(cells.rows)
    counts = {
        name: cells.numbers(names, None if name in _REQUIRED else _least(name), _least(name))
        for name, names in _COLUMNS.items()
    }
    fidelity = [text or "LoFi" for text in cells.texts(_FIDELITY) or [""] * count]
    counts["fidelity"] = np.array(
        [f.passes for f in cells.parse(fidelity, parse_fidelity, MathFidelity.LoFi)], dtype=np.float64
    )
    texts = cells.texts(_FORMAT)
    if texts is None:
        texts = _assumed_formats(cells)
    kinds, unknown = _kinds(cells, kind)
    if "sparse_matmul" in kinds:  # the sparse operand is not what moves
        texts = cells.texts(("input1_df", "output_df")) or texts
    formats = cells.parse(texts, parse_format, _ASSUMED)
    variants = _variants(cells, kinds)
    keys = [Key(k, format_class(df), v) for k, df, v in zip(kinds, formats, variants, strict=True)]
    _reductions(counts, kinds, variants)
    vectors = [text.lower() or "rc" for text in cells.texts(_VECTOR) or ["rc"] * count]
    measured = _measured_cycles(cells)
    refused = sorted(cells.refused)
    if measured is not None:
        measured[[*unknown, *refused]] = math.nan
    return Sheet(path, cells.header, cells.rows, keys, formats, vectors, counts, measured, cells.notes, tuple(refused))


def _assumed_formats(cells: Cells) -> list[str]:
    columns = " or ".join(_FORMAT)
    if cells.strict:
        raise InputError(f"{cells.path}: no column gives the input format; it is called {columns}")
    cells.say(0, f"no column gives the input format ({columns}): taken as {_ASSUMED.name}")
    return [_ASSUMED.name] * len(cells.rows)


def _least(name: str) -> int:
    return 0 if name.startswith("nz_") else 1


def _kinds(cells: Cells, kind: str | None) -> tuple[list[str], list[int]]:
    """The op type of every row, and the rows of types that nobody knows."""
    count = len(cells.rows)
    if kind is not None:
        if kind not in KINDS:
            raise InputError(f"unknown op type {kind!r}; one of {', '.join(KINDS)}")
        return [kind] * count, []
    named = cells.texts(_OP)
    if named is not None and (not count or any(named)):
        kinds = [text.lower().replace("-", "_") for text in named]
        unknown = [row for row, text in enumerate(kinds) if text not in KINDS]
        for row in unknown:
            cells.say(cells.lines[row], f": unknown op type {named[row]!r}, priced as nop")
        return ["nop" if text not in KINDS else text for text in kinds], unknown
    stem = _stem(cells)
    if "sparse" in stem or {"nz_tiles", "nz_ublocks"} & set(cells.header):
        return ["sparse_matmul"] * count, []
    in_name = [name for name in KINDS if re.search(rf"(?:^|_){name}(?:_|\d|$)", stem)]
    if in_name:
        return [max(in_name, key=len)] * count, []
    for columns, existing in (({"m_k", "u_kt"}, "matmul"), ({"z"}, "reduce")):
        if columns <= set(cells.header):
            cells.say(
                0,
                f"neither a column nor the file name gives the op type: taken as {existing}, which has "
                f"columns {' and '.join(sorted(columns))}",
            )
            return [existing] * count, []
    raise InputError(
        f"{cells.path}: neither a column ({', '.join(_OP)}) nor the file name gives the op type; "
        f"name it with --op: {', '.join(KINDS)}"
    )


def _variants(cells: Cells, kinds: list[str]) -> list[str]:
    stem = _stem(cells)
    l1_acc = cells.texts(("l1_acc",))
    approximate = cells.texts(("approximate_mode", "approx"))
    variants = []
    for row, kind in enumerate(kinds):
        if kind == "reduce":
            match = re.search(r"(?:^|_)reduce_([rcz])(?:_|$)", stem)
            variants.append(match[1] if match else "z" if "z" in cells.header else "r")
        elif kind in ("matmul", "depthwise"):
            on = l1_acc[row].lower() in _TRUE if l1_acc is not None else "l1_acc" in stem
            variants.append("l1_acc" if on else "")
        else:
            on = approximate[row].lower() in _TRUE if approximate is not None else "approx" in stem
            variants.append("approximate" if on else "")
    return variants


def _reductions(counts: dict[str, F64], kinds: list[str], variants: list[str]) -> None:
    """Sheets of reductions over r or c give the block that is read: along the reduced dimension it is m_k x u_kt."""
    for dim, outer, inner in (("r", "mblock_m", "ublock_r"), ("c", "mblock_n", "ublock_c")):
        rows = np.array([k == "reduce" and v == dim for k, v in zip(kinds, variants, strict=True)], np.bool_)
        for reduced, factor in ((outer, "m_k"), (inner, "u_kt")):
            counts[factor] = np.where(rows, counts[reduced], counts[factor])
            counts[reduced] = np.where(rows, 1.0, counts[reduced])


def _stem(cells: Cells) -> str:
    return re.sub(r"[-\s.]+", "_", cells.path.stem.lower())


def _measured_cycles(cells: Cells) -> F64 | None:
    """Cycles per input, NaN where a cell holds no number (a run that failed); None without such a column."""
    measured: F64 | None = None
    for name, inputs in (("total-runtime", INPUTS_PER_RUN), ("runtime", 1)):
        texts = cells.texts((name,))
        if texts is not None:
            mine = np.array([_number_or_nan(text) for text in texts], np.float64) / inputs
            measured = mine if measured is None else np.where(np.isnan(mine), measured, mine)
    return measured


def _number_or_nan(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if value > 0 and math.isfinite(value) else math.nan
