"""Reads TT-Metal's `ops_perf_results*.csv`: by names of columns, for their set grows from version to version.

A file is untrusted and may be cut anywhere. What cannot be read becomes a finding with its row, and the rest is kept;
only a file that has no ops at all, or none of the columns that make one, is an error.
"""

from __future__ import annotations

import csv
import dataclasses
import itertools
import math
import operator
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tbuda_lab.core.errors import Diagnostic, InputError, quantity
from tbuda_lab.core.measured.attributes import read_facts
from tbuda_lab.core.measured.devices import MOST_DEVICES, Devices
from tbuda_lab.core.measured.op_codes import kind_of
from tbuda_lab.core.measured.profile import (
    INCOMPLETE,
    OUTLIER_NS,
    UNKNOWN,
    MeasuredOp,
    MeasuredProfile,
    MeasuredTensor,
    aggregate_replays,
)

MOST_ROWS = 200_000
"""Ops that are read; a profile of more is cut there, and a finding says so."""
LONGEST_FIELD = 4 << 20
LONGEST_LINE = 16 << 20
MOST_FINDINGS = 200
CODE = "OP CODE"
ARCH = "DEVICE ARCH"
FIRMWARE = "DEVICE FW DURATION [ns]"
TIMES = ("DEVICE KERNEL DURATION PER CORE MAX [ns]", "DEVICE KERNEL DURATION [ns]", FIRMWARE)
"""Columns of an op's time, the first that is more than 0 counts; that of the firmware where no op has another."""
MOST_ABOVE = 20
"""Lines of a title that may stand above the names of the columns."""
_DIMS = "WZYX"
_LARGEST = {"CORE COUNT": 1 << 20, "AVAILABLE WORKER CORE COUNT": 1 << 20, "DEVICE ID": MOST_DEVICES - 1}
"""Whole numbers beyond which a cell is none of its column."""
_EXTENT = re.compile(r"\s*(\d{1,10})(?:\.0*)?\s*(?:\[\s*(\d{1,10})(?:\.0*)?\s*\])?\s*")
_LONGEST_SIZE = 80
_HOST = ("cpu", "fallback", "host")
"""In the type of an op that the host ran."""
_DELIMITERS = ",;\t"
_MOST_CACHED = 20_000
_ARCHS = ("wormhole_b0", "blackhole", "grayskull")
_SEPARATOR = re.compile(r"\"?sep=.{0,3}\"?\s*$", re.IGNORECASE)
_LOCK = threading.Lock()


def is_ops_perf(header: str) -> bool:
    """Whether the first line of a file is that of a profiler's table."""
    return CODE in header and any(name in header for name in ("OP TYPE", *TIMES))


def read_ops_perf(path: Path) -> MeasuredProfile:
    """The ops of a file. Raises `InputError` for a file that cannot be read or holds no op; see `MeasuredProfile`."""
    reader = _Reader(path.name)
    try:
        with path.open(encoding="utf-8-sig", errors="replace", newline="") as stream:
            reader.read(_bounded_lines(stream, path.name))
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror or error}") from error
    return reader.profile()


def read_ops_perf_text(text: str, name: str) -> MeasuredProfile:
    """As `read_ops_perf`, of a text."""
    reader = _Reader(name)
    reader.read(iter(text.splitlines(keepends=True)))
    return reader.profile()


def _bounded_lines(stream: Iterator[str], name: str) -> Iterator[str]:
    read: Callable[[int], str] = stream.readline  # type: ignore[attr-defined]
    while line := read(LONGEST_LINE):
        if len(line) >= LONGEST_LINE and not line.endswith("\n"):
            raise InputError(f"{name} has a line of more than {LONGEST_LINE >> 20} MiB; it is no profile")
        yield line


@dataclasses.dataclass(frozen=True)
class _Operand:
    """The columns of one operand. cells: of a row its sizes (padded with logical, else plain; W to X), its layout,
    format and memory."""

    name: str
    cells: Callable[[Sequence[str]], tuple[str, ...]]


@dataclasses.dataclass(frozen=True)
class _Columns:
    """Which column holds what."""

    at: Mapping[str, int]
    inputs: tuple[_Operand, ...]
    outputs: tuple[_Operand, ...]
    twice: tuple[tuple[int, int], ...] = ()  # places of columns of one name


class _Reader:
    def __init__(self, name: str) -> None:
        self.name = name
        self.findings: list[Diagnostic] = []
        self.left_out = 0
        self.gaps = 0
        self.ops: list[MeasuredOp] = []
        self.signposts: list[tuple[int, str]] = []
        self.archs: dict[str, int] = {}  # and the first row of each
        self.header: tuple[str, ...] = ()
        self.rows = 0
        self.host_ops = 0
        self.clocks: list[str] = []  # by op the column of its time, "" for none
        self._device = 0  # of the last row that says it
        self._deviceless: list[int] = []  # rows
        self._empty: list[tuple[int, str]] = []  # row and operand
        self._section = ""
        self._whole = True
        self._cut = False  # the last row
        self._counts: dict[str, int] = {}
        self._known: dict[Any, Any] = {}  # ops of a layer repeat: what is the same is one object

    def note(self, row: int, rule: str, message: str, fix: str = "", severity: str = "warning") -> None:
        kept = self.gaps if rule in INCOMPLETE else len(self.findings) - self.gaps
        if kept < MOST_FINDINGS:  # many cells that are odd hide no row that is lost
            self.gaps += rule in INCOMPLETE
            self.findings.append(Diagnostic(severity, f"{self.name}, row {row}", rule, message, fix))
        else:
            self.left_out += 1

    def read(self, lines: Iterator[str]) -> None:
        with _LOCK:  # the limit is the module's
            before = csv.field_size_limit(LONGEST_FIELD)
            try:
                above = list(itertools.islice(lines, MOST_ABOVE + 1))
                skipped = next((k for k, line in enumerate(above) if is_ops_perf(line)), 0)
                self._note_title(above[:skipped])
                first = above[skipped] if above else ""
                delimiter = max(_DELIMITERS, key=first.count)  # spreadsheets of some countries write semicolons
                lines = self._watched(itertools.chain(above[skipped:], lines))
                self._read(csv.reader(lines, delimiter=delimiter), skipped)
            finally:
                csv.field_size_limit(before)

    def _note_title(self, lines: Sequence[str]) -> None:
        """What stands above the names of the columns; a spreadsheet's own word for its delimiter is none."""
        title = [k for k, line in enumerate(lines) if line.strip(' "\r\n') and not _SEPARATOR.match(line)]
        if title:
            self.note(title[0] + 1, "profile-title", "it stands above the names of the columns", "left out", "note")

    def _watched(self, lines: Iterable[str]) -> Iterator[str]:
        """The same lines; keeps whether the last one was whole."""
        for line in lines:
            self._whole = line.endswith(("\n", "\r"))
            yield line

    def _read(self, rows: Iterator[list[str]], above: int = 0) -> None:
        """above: lines before the names of the columns."""
        columns: _Columns | None = None
        number = above
        while True:
            number += 1
            try:
                cells = next(rows, None)
            except csv.Error as error:
                self.note(number, "profile-row", f"it cannot be read: {error}; what follows it is left out")
                return
            if cells is None:
                return
            if columns is None:
                columns = self._columns(cells)
            elif _is_header(cells):
                if not self._second_header(cells, number):
                    return
            elif any(cells):
                if len(self.ops) >= MOST_ROWS:
                    self.note(
                        number,
                        "profile-rows",
                        f"only the first {MOST_ROWS:,} ops are read",
                        "profile fewer runs, or cut the file",
                    )
                    return
                self.rows += 1
                if lines := max((c.count("\n") for c in cells if "\n" in c), default=0):
                    text = f"a quotation mark takes {quantity(lines, 'line')} into one cell: what stood there is lost"
                    self.note(number, "profile-row", text, "close the quotation mark, or take it out")
                if not self._whole and len(cells) < len(self.header):
                    self._cut = True
                    cells[-1] = ""  # of "9000" it may be the "9"
                elif not self._whole and _time_column(cells, columns) == len(self.header) - 1:
                    text = f"the file ends within {self.header[-1]}, without an end of the line: {cells[-1][:40]!r}"
                    self.note(number, "profile-row", text, "the number is left out; end the line if it is whole")
                    cells[-1] = ""
                self._need_alike(cells, number, columns)
                self._row(cells, number, columns)

    def _second_header(self, cells: Sequence[str], row: int) -> bool:
        """Whether what follows is of the same columns."""
        same = tuple(c.strip() for c in cells) == self.header
        follows = (
            "what follows counts as one run with what stands above" if same else "it and what follows are left out"
        )
        columns = "" if same else ", of other columns"
        self.note(
            row, "profile-row", f"a second header at row {row}{columns}: two files in one? {follows}", "part them"
        )
        return same

    def _need_alike(self, cells: Sequence[str], row: int, columns: _Columns) -> None:
        """Raises `InputError` where columns of one name differ: which of them is right nothing says."""
        for first, second in columns.twice:
            pair = [cells[k].strip() if k < len(cells) else "" for k in (first, second)]
            if pair[0] != pair[1]:
                raise InputError(
                    f"{self.name}, row {row}: {self.header[first]!r} stands twice, as columns {first + 1} and "
                    f"{second + 1}, with {pair[0][:40]!r} and {pair[1][:40]!r}; take one of them out"
                )

    def _columns(self, cells: list[str]) -> _Columns:
        header = tuple(c.strip() for c in cells)
        if not any(header):
            raise InputError(f"{self.name}, row 1: the file is empty; a profile begins with the names of its columns")
        self.header = header
        at = {name: k for k, name in reversed(list(enumerate(header)))}
        if CODE not in at or not any(name in at for name in TIMES):
            wanted = f"{CODE!r} and one of {', '.join(map(repr, TIMES))}"
            raise InputError(
                f"{self.name}, row 1: a profile has the columns {wanted}; here are "
                f"{', '.join(map(repr, header[:6]))}{', ...' if len(header) > 6 else ''}"
            )
        twice = [(at[name], k) for k, name in enumerate(header) if name and at[name] != k]
        for first, second in twice:
            text = f"{header[first]!r} stands twice, as columns {first + 1} and {second + 1}, with the same cells"
            self.note(1, "profile-column", text, "read once", "note")

        def operand(name: str) -> _Operand:
            sizes = [f"{name}_{d}{kind}" for d in _DIMS for kind in ("_PAD[LOGICAL]", "")]
            words = [f"{name}_{word}" for word in ("LAYOUT", "DATATYPE", "MEMORY")]
            return _Operand(name, operator.itemgetter(*(at.get(n, len(header)) for n in (*sizes, *words))))

        def operands(kind: str) -> tuple[_Operand, ...]:
            """All up to the last that has a column, so that each keeps its place."""
            column = re.compile(rf"{kind}_(\d{{1,2}})_[{_DIMS}](?:_PAD|$)")
            numbers = [int(m.group(1)) for h in header if (m := column.match(h))]
            return tuple(operand(f"{kind}_{n}") for n in range(max(numbers, default=-1) + 1))

        return _Columns(at, operands("INPUT"), operands("OUTPUT"), tuple(twice))

    def _note_length(self, cells: Sequence[str], row: int) -> None:
        if len(cells) < len(self.header):
            self.note(row, "profile-row", f"it is cut: {len(cells)} of {len(self.header)} cells")
        elif any(cells[len(self.header) :]):
            self.note(row, "profile-row", f"it has {len(cells)} cells of {len(self.header)}: two rows run together?")

    def _row(self, cells: list[str], row: int, columns: _Columns) -> None:
        width = len(self.header)
        told = [*map(str.strip, cells[:width]), *[""] * (width + 1 - min(len(cells), width))]

        def cell(name: str) -> str:
            return told[columns.at.get(name, width)]

        code = cell(CODE)
        if cell("OP TYPE") == "signpost":
            self.signposts.append((len(self.ops), code[:200]))
            self._section = code[:200]
            return
        if not code:
            self.note(row, "profile-row", f"it has no {CODE}; it is left out")
            return
        self._note_length(cells, row)
        number = _Numbers(self, row, cell)
        if any(word in cell("OP TYPE").lower() for word in _HOST) and not any(map(cell, TIMES)):
            self.host_ops += 1
            return
        clock, time = next(((name, t) for name in TIMES if (t := number.maybe(name))), ("", None))
        self.clocks.append(clock)
        device = number.whole("DEVICE ID", "profile-device", "the op counts to the device of the row before")
        if device is None and not cell("DEVICE ID") and len(cells) >= len(self.header):
            self._deviceless.append(row)
        self._device = self._device if device is None else device
        if time is None:
            self.note(row, "profile-time", f"{code[:60]} has no time", "it is left out of sums")
        outlier = time is not None and time > OUTLIER_NS
        if outlier:
            self.note(
                row,
                "profile-outlier",
                f"{code[:60]} takes {time:,.0f} ns: two time bases of the device's cores are mixed",
                "it is left out of sums",
            )
        arch = cell(ARCH).lower()
        if arch:
            known = arch if arch in _ARCHS else "wormhole_b0" if arch.startswith("wormhole") else arch[:40]
            self.archs.setdefault(known, row)
        stem = code[:120]
        self._counts[stem] = count = self._counts.get(stem, 0) + 1
        self.ops.append(
            MeasuredOp(
                f"{stem}_{count}",
                stem,
                kind_of(stem),
                row,
                time,
                self._device,
                number.of("OP TO OP LATENCY [ns]"),
                number.whole("CORE COUNT") or 0,
                number.whole("AVAILABLE WORKER CORE COUNT") or 0,
                cell("MATH FIDELITY")[:10],
                self._tensors(columns.inputs, told, row),
                self._tensors(columns.outputs, told, row),
                number.of("PM IDEAL [ns]"),
                number.of("PM COMPUTE [ns]"),
                number.of("PM BANDWIDTH [ns]"),
                self._section,
                number.whole("GLOBAL CALL COUNT") or 0,
                cell("METAL TRACE ID")[:40],
                cell("METAL TRACE REPLAY SESSION ID")[:40],
                outlier=outlier,
                facts=self._once(cell("ATTRIBUTES"), read_facts),
            )
        )

    def _once(self, key: Any, make: Callable[[Any], Any]) -> Any:
        """What is made of a text, the same object for the same text."""
        if key in self._known:
            return self._known[key]
        if len(self._known) >= _MOST_CACHED:
            self._known.clear()
        value = self._known[key] = make(key)
        return value

    def _tensors(self, operands: tuple[_Operand, ...], cells: Sequence[str], row: int) -> tuple[MeasuredTensor, ...]:
        """cells: of the row, with an empty one at the end for columns that are not there."""
        tensors: list[MeasuredTensor] = []
        for at, operand in enumerate(operands):
            read = operand.cells(cells)
            known = max(map(len, read)) < _LONGEST_SIZE  # else it is not kept
            tensor, bad = self._once(read, _tensor) if known else _tensor(read)
            if tensor is None:
                continue
            while len(tensors) < at:
                text = f"{operands[len(tensors)].name} has no size, and {operand.name} has one"
                self.note(row, "profile-shape", text, "its shape counts as unknown")
                tensors.append(UNKNOWN)
            if bad:
                self.note(row, "profile-shape", f"{operand.name}_{bad}", "its shape counts as unknown")
            elif not tensor.elements:
                self._empty.append((row, operand.name))
            tensors.append(tensor)
        return self._once(tuple(tensors), tuple)  # type: ignore[no-any-return]

    def _note_clocks(self) -> None:
        """Firmware takes longer than its kernel: where others have the time of their kernel that of a firmware is none
        of theirs."""
        of_kernels = [name for name in TIMES if name != FIRMWARE and name in self.clocks]
        if not of_kernels:
            return
        for at, clock in enumerate(self.clocks):
            if clock == FIRMWARE:
                op = self.ops[at]
                text = f"{op.code[:60]} has a time of {FIRMWARE!r} alone, others of {of_kernels[0]!r}"
                self.note(op.row, "profile-time", text, "it is left out of sums")
                self.ops[at] = dataclasses.replace(op, time=None, outlier=False)
                self.clocks[at] = ""

    def profile(self) -> MeasuredProfile:
        if not self.header:
            raise InputError(f"{self.name}, row 1: the file is empty; a profile begins with the names of its columns")
        if not self.ops:
            raise InputError(f"{self.name}: it has columns and no op", self.findings)
        self._note_clocks()
        if self._deviceless and len(self._deviceless) < len(self.ops) and "DEVICE ID" in self.header:
            text = f"{quantity(len(self._deviceless), 'op')} without a DEVICE ID"
            fix = "counted to the device of the row before"
            self.note(self._deviceless[0], "profile-device", text, fix)
        if self._empty:
            row, name = self._empty[0]
            text = f"{name} has no element{f', nor have {len(self._empty) - 1} more' if self._empty[1:] else ''}"
            self.note(row, "profile-empty", text, severity="note")
        if self.left_out:
            more = f"and {self.left_out} more like these"
            self.findings.append(Diagnostic("warning", self.name, "profile-more", more))
        if self.host_ops:
            text = f"{quantity(self.host_ops, 'op')} of the host without a time on the device"
            self.findings.append(Diagnostic("note", self.name, "profile-host", text, "they are left out"))
        ops, findings = aggregate_replays(self.ops, self.name, self._cut)
        place = {op.row: at for at, op in enumerate(ops)}
        rows = [op.row for op in self.ops]
        marks = tuple(
            (place.get(rows[at], len(ops)) if at < len(rows) else len(ops), text) for at, text in self.signposts
        )
        if len(self.archs) > 1:
            rows_of = ", ".join(f"{name!r} (row {row})" for name, row in self.archs.items())
            text = f"{ARCH!r} names {len(self.archs)} machines: {rows_of[:200]}"
            findings.append(Diagnostic("warning", self.name, "profile-arch", text, "it is taken for none of them"))
        arch, arch_row = next(iter(self.archs.items())) if len(self.archs) == 1 else ("", 0)
        return MeasuredProfile(
            self.name,
            "ops_perf",
            ops,
            (*self.findings, *findings, *Devices(ops).findings(self.name)),
            marks,
            arch,
            self.rows,
            self.header,
            arch_row,
            clocks=tuple(name for name in TIMES if name in self.clocks),
            host_ops=self.host_ops,
        )


def _time_column(cells: Sequence[str], columns: _Columns) -> int | None:
    """Which cell of a whole row has its time."""
    places = [columns.at[name] for name in TIMES if name in columns.at]
    return next((k for k in places if k < len(cells) and cells[k].strip(" -0.")), None)


def _is_header(cells: Sequence[str]) -> bool:
    """Whether a row is that of the names of a file's columns."""
    if not any(CODE in c for c in cells):
        return False
    names = {c.strip() for c in cells}
    return CODE in names and any(name in names for name in ("OP TYPE", *TIMES))


def _tensor(cells: Sequence[str]) -> tuple[MeasuredTensor | None, str]:
    """Of the cells of an operand, None where it has no size; and which size is none, with why, "" where all are."""
    texts = [(cells[2 * k] or cells[2 * k + 1])[:_LONGEST_SIZE] for k in range(len(_DIMS))]
    if not any(texts):
        return None, ""
    layout, datatype, memory = (cell[:most] for cell, most in zip(cells[2 * len(_DIMS) :], (20, 20, 60), strict=True))
    sizes: list[tuple[int, int]] = []
    for name, text in zip(_DIMS, texts, strict=True):
        found = _EXTENT.fullmatch(text) if len(text) < _LONGEST_SIZE else None
        padded, logical = (int(found.group(1)), int(found.group(2) or found.group(1))) if found else (0, 0)
        if not found or logical > padded or (padded and not logical):
            why = "is no size" if not found else "has more elements than it stores" if logical else "stores no element"
            return dataclasses.replace(
                UNKNOWN, layout=layout, datatype=datatype, memory=memory
            ), f"{name}: {text[:40]!r} {why}"
        sizes.append((logical, padded))
    return MeasuredTensor(tuple(s for s, _ in sizes), tuple(p for _, p in sizes), layout, datatype, memory), ""


def _number(text: str) -> float:
    """NaN for what is none; Python's 1_000 is none."""
    try:
        return math.nan if "_" in text else float(text)
    except ValueError:
        return math.nan


class _Numbers:
    """Numbers of a row; what is none is noted once and taken for none."""

    def __init__(self, reader: _Reader, row: int, cell: Callable[[str], str]) -> None:
        self.reader, self.row, self.cell = reader, row, cell

    def maybe(self, name: str) -> float | None:
        text = self.cell(name)
        if text in ("", "-"):
            return None
        value = _number(text)
        if not math.isfinite(value) or value < 0 or value > 1e18:
            if name.startswith("OP TO OP") and math.isfinite(value):
                return 0.0  # ops of two devices overlap
            self.reader.note(
                self.row, "profile-number", f"{name}: {text[:40]!r} is no number of it", "the cell is taken for empty"
            )
            return None
        return value

    def whole(self, name: str, rule: str = "profile-number", fix: str = "the cell is taken for empty") -> int | None:
        """A number of cores, of a device, of a call; `rule` and `fix`: of the finding where it is none."""
        text = self.cell(name)
        if text in ("", "-"):
            return None
        value = _number(text)
        if not 0 <= value <= _LARGEST.get(name, 1 << 53) or value != int(value):
            self.reader.note(self.row, rule, f"{name}: {text[:40]!r} is no whole number of it", fix)
            return None
        return int(value)

    def of(self, name: str) -> float:
        return self.maybe(name) or 0.0
