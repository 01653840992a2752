"""Measurement sheets: one CSV of silicon runs of one op, read into arrays.

The sheets come in several layouts; columns are found by what they are called in any of them. What a sheet does not
say in columns (op type, approximation, L1 accumulation, reduced dimension) its file name says, as in `exp-approx.csv`
or `matmul-l1-acc-fp16.csv`.
"""

from __future__ import annotations

import csv
import dataclasses
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.cost.blocks import F64, Block, format_class
from tbuda_lab.core.cost.model import KINDS, cycles
from tbuda_lab.core.cost.tables import Key, Table
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.formats import DataFormat, parse_fidelity, parse_format

INPUTS_PER_RUN = 128
"""Sheets with `total-runtime` timed this many inputs; `runtime` is cycles of one."""

_COLUMNS = {
    "t": ("output_t", "t", "input0_t"),
    "mblock_m": ("output_mb_r", "mblock_m"), "mblock_n": ("output_mb_c", "mblock_n"),
    "ublock_r": ("output_ub_r", "ublock_rt", "ublock_r"), "ublock_c": ("output_ub_c", "ublock_ct", "ublock_c"),
    "m_k": ("mblock_k", "m_k"), "u_kt": ("ublock_kt", "u_kt"), "z": ("z",), "nz_tiles": ("nz_tiles",),
    "nz_ublocks": ("nz_ublocks",), "nz_strips": ("nz_strips",),
}
_REQUIRED = ("mblock_m", "mblock_n", "ublock_r", "ublock_c")
_OP = ("Unary-Type", "Binary-Type", "quant_type", "op_type", "type")
_FORMAT = ("input0_df", "input0", "input_df", "output_df")
_VECTOR = ("Vector-Mode", "vector_mode")
_FIDELITY = ("math_fidelity",)
_TRUE = ("true", "1", "yes")


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

    def block(self, rows: npt.NDArray[np.intp]) -> Block:
        """The blocks of some rows."""
        c = {name: values[rows] for name, values in self.counts.items()}
        return Block(c["t"], c["mblock_m"], c["mblock_n"], c["ublock_r"], c["ublock_c"], c["m_k"], c["u_kt"], c["z"],
                     c["fidelity"].astype(np.int64), c["nz_tiles"], c["nz_ublocks"], c["nz_strips"])

    def estimate(self, arch: str, table: Table | None = None) -> npt.NDArray[np.int64]:
        """Estimated cycles per input of every run: one call of the model per kind of run."""
        found = np.zeros(len(self.cells), np.int64)
        groups: dict[tuple[Key, DataFormat, str], list[int]] = {}
        for row, group in enumerate(zip(self.keys, self.formats, self.vectors, strict=True)):
            groups.setdefault(group, []).append(row)
        for (key, df, vector), members in groups.items():
            rows = np.array(members)
            b = self.block(rows)
            found[rows] = cycles(
                key.kind, arch=arch, df=df, fidelity=np.asarray(b.fidelity), t=b.t, mblock_m=b.mblock_m,
                mblock_n=b.mblock_n, ublock_r=b.ublock_r, ublock_c=b.ublock_c, m_k=b.m_k, u_kt=b.u_kt, z=b.z,
                dim=key.variant if key.kind == "reduce" else None, approximate=key.variant == "approximate",
                vector=vector, l1_acc=key.variant == "l1_acc", sparse=(b.nz_tiles, b.nz_ublocks, b.nz_strips),
                table=table,
            )
        return found


def read_sheet(path: Path, kind: str | None = None) -> Sheet:
    """Reads a sheet; `kind` overrides the op type that columns or file name give.

    Cells that are missing at the end of a row are empty; lines that repeat the header, as in joined sheets, are left
    out. Raises `InputError` naming file, line and column of what is missing or not understood.
    """
    reader = _opened(path)
    header, cells = reader.header, reader.cells
    counts = {name: reader.numbers(names, None if name in _REQUIRED else _default(name))
              for name, names in _COLUMNS.items()}
    fidelity = [text or "LoFi" for text in reader.texts(_FIDELITY) or [""] * len(cells)]
    counts["fidelity"] = np.array([reader.parsed(parse_fidelity, text, i).value for i, text in enumerate(fidelity)],
                                  dtype=np.float64)
    texts = reader.texts(_FORMAT)
    if texts is None:
        raise InputError(f"{path}: no column gives the input format; it is called {' or '.join(_FORMAT)}")
    kinds, unknown = _kinds(reader, kind)
    if "sparse_matmul" in kinds:  # the sparse operand is not what moves
        texts = reader.texts(("input1_df", "output_df")) or texts
    formats = [reader.parsed(parse_format, text, i) for i, text in enumerate(texts)]
    variants = _variants(reader, kinds)
    keys = [Key(k, format_class(df), v) for k, df, v in zip(kinds, formats, variants, strict=True)]
    _reductions(counts, kinds, variants)
    vectors = [text or "rc" for text in reader.texts(_VECTOR) or ["rc"] * len(cells)]
    measured = _measured(reader)
    if measured is not None and unknown:
        measured[unknown] = math.nan
    return Sheet(path, header, cells, keys, formats, vectors, counts, measured, tuple(reader.notes))


def _opened(path: Path) -> _Reader:
    """Header and rows of a file."""
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            source = csv.reader(file)
            rows = [(source.line_num, row) for row in source if any(cell.strip() for cell in row)]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: cannot read the sheet: {error}") from error
    if not rows:
        raise InputError(f"{path}: the sheet is empty")
    header = [name.strip() for name in rows[0][1]]
    reader = _Reader(path, header, [], [], [])
    for line, row in rows[1:]:
        if [name.strip() for name in row] == header:
            reader.notes.append(f"line {line} repeats the header and is left out")
            continue
        if any(cell.strip() for cell in row[len(header):]):
            raise InputError(f"{path}:{line}: {len(row)} cells under {len(header)} columns")
        reader.cells.append([*row, *[""] * (len(header) - len(row))][:len(header)])
        reader.lines.append(line)
    return reader


def _default(name: str) -> float:
    return 0.0 if name.startswith("nz_") else 1.0


@dataclasses.dataclass
class _Reader:
    """Columns of a sheet by name, with errors that say where. lines: of the file, of each row of cells."""

    path: Path
    header: list[str]
    cells: list[list[str]]
    lines: list[int]
    notes: list[str]

    def texts(self, names: tuple[str, ...]) -> list[str] | None:
        """The first of the named columns that there is."""
        for name in names:
            if name in self.header:
                index = self.header.index(name)
                return [row[index].strip() for row in self.cells]
        return None

    def numbers(self, names: tuple[str, ...], default: float | None) -> F64:
        found = self.texts(names)
        if found is None:
            if default is None:
                raise InputError(f"{self.path}: no column {' or '.join(names)}")
            return np.full(len(self.cells), default)
        name = next(name for name in names if name in self.header)
        return np.array([self.parsed(_positive, text, i, name) for i, text in enumerate(found)], np.float64)

    def parsed(self, parse: Any, text: str, row: int, column: str = "") -> Any:
        try:
            return parse(text)
        except (ValueError, TbudaError) as error:
            where = f" column {column}" if column else ""
            raise InputError(f"{self.path}:{self.lines[row]}:{where} {error}") from error


def _positive(text: str) -> float:
    if not text:
        raise ValueError("is empty")
    value = float(text)
    if not 0 <= value < 2**31:
        raise ValueError(f"{text!r} is no count")
    return value


def _kinds(reader: _Reader, kind: str | None) -> tuple[list[str], list[int]]:
    """The op type of every row, and the rows of types that nobody knows."""
    count = len(reader.cells)
    if kind is not None:
        if kind not in KINDS:
            raise InputError(f"unknown op type {kind!r}; one of {', '.join(KINDS)}")
        return [kind] * count, []
    named = reader.texts(_OP)
    if named is not None and (not count or any(named)):
        kinds = [text.lower().replace("-", "_") for text in named]
        unknown = [row for row, text in enumerate(kinds) if text not in KINDS]
        reader.notes += [f"line {reader.lines[row]}: unknown op type {named[row]!r}, priced as nop" for row in unknown]
        return ["nop" if text not in KINDS else text for text in kinds], unknown
    stem = _stem(reader)
    if "sparse" in stem or {"nz_tiles", "nz_ublocks"} & set(reader.header):
        return ["sparse_matmul"] * count, []
    in_name = [known for known in KINDS if re.search(rf"(?:^|_){known}(?:_|\d|$)", stem)]
    if in_name:
        return [max(in_name, key=len)] * count, []
    for columns, known in (({"m_k", "u_kt"}, "matmul"), ({"z"}, "reduce")):
        if columns <= set(reader.header):
            reader.notes.append(f"neither a column nor the file name gives the op type: taken as {known}, which has "
                                f"columns {' and '.join(sorted(columns))}")
            return [known] * count, []
    raise InputError(f"{reader.path}: neither a column ({', '.join(_OP)}) nor the file name gives the op type; "
                     f"name it with --op: {', '.join(KINDS)}")


def _variants(reader: _Reader, kinds: list[str]) -> list[str]:
    stem = _stem(reader)
    l1_acc = reader.texts(("l1_acc",))
    approximate = reader.texts(("approximate_mode", "approx"))
    found = []
    for row, kind in enumerate(kinds):
        if kind == "reduce":
            match = re.search(r"(?:^|_)reduce_([rcz])(?:_|$)", stem)
            found.append(match[1] if match else "z" if "z" in reader.header else "r")
        elif kind in ("matmul", "depthwise"):
            on = l1_acc[row].lower() in _TRUE if l1_acc is not None else "l1_acc" in stem
            found.append("l1_acc" if on else "")
        else:
            on = approximate[row].lower() in _TRUE if approximate is not None else "approx" in stem
            found.append("approximate" if on else "")
    return found


def _reductions(counts: dict[str, F64], kinds: list[str], variants: list[str]) -> None:
    """Sheets of reductions over r or c give the block that is read: along the reduced dimension it is m_k x u_kt."""
    for dim, outer, inner in (("r", "mblock_m", "ublock_r"), ("c", "mblock_n", "ublock_c")):
        rows = np.array([k == "reduce" and v == dim for k, v in zip(kinds, variants, strict=True)], np.bool_)
        for reduced, factor in ((outer, "m_k"), (inner, "u_kt")):
            counts[factor] = np.where(rows, counts[reduced], counts[factor])
            counts[reduced] = np.where(rows, 1.0, counts[reduced])


def _stem(reader: _Reader) -> str:
    return re.sub(r"[-\s.]+", "_", reader.path.stem.lower())


def _measured(reader: _Reader) -> F64 | None:
    """Cycles per input, NaN where a cell holds no number (a run that failed); None without such a column."""
    for name, inputs in (("runtime", 1), ("total-runtime", INPUTS_PER_RUN)):
        texts = reader.texts((name,))
        if texts is not None:
            return np.array([_number_or_nan(text) for text in texts], np.float64) / inputs
    return None


def _number_or_nan(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        return math.nan
    return value if value > 0 and math.isfinite(value) else math.nan
