"""What compiles keep: the most recently used entries in memory, and placements on disk. A compile that was made before
takes what it decided from a file; so do what is fused, what the check of the netlist found, and the bound of a
placement.

An entry on disk is named by everything that decides a placement: the lowered graph without the numbers in it, device,
options, overrides, the version and the files of this package, and NumPy's version; findings by the whole text of the
netlist as well, so that another netlist is always checked. An entry is plain JSON with a checksum; one that is damaged,
or of another format, is as if it were not there. Entries appear whole or not at all, the least recently used go first
when there are too many bytes, and a folder that cannot be written to only means that nothing is kept.

`TBUDA_CACHE` names the folder, or is "off"; without it the folder is `tbuda-lab` in `$XDG_CACHE_HOME` or `~/.cache`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import hashlib
import json
import math
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from tbuda_lab._version import __version__
from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.balancer.types import OpModels, Placement
from tbuda_lab.core.constraints import Constraints
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, InputError, OutputError, TbudaError
from tbuda_lab.core.files import atomic_text, bounded_text, parse_json
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override, frozen
from tbuda_lab.core.placer import Fusion, Outcome, fusing
from tbuda_lab.core.placer.model.costs import CostCache
from tbuda_lab.core.placer.model.problem import structure_digest
from tbuda_lab.core.placer.record import from_record, number, to_record

T = TypeVar("T")

VARIABLE = "TBUDA_CACHE"
FORMAT = 1
MAX_BYTES = 256 << 20
"""Of all entries together."""
MAX_ENTRY = 32 << 20
LEAST_SECONDS = 0.1
"""What is placed faster is not kept: reading it would take as long."""
_ENDING = ".placement.json"
_FUSING = ".fusing.json"
_FINDINGS = ".findings.json"
_BOUND = ".bound.json"
_ENDINGS = _ENDING, _FUSING, _FINDINGS, _BOUND
_SEVERITIES = frozenset({"warning", "note"})  # with an error there is no entry
_PARTS = len(dataclasses.fields(Diagnostic))


class LruCache(OrderedDict[Hashable, Any]):
    """The most recently used entries."""

    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def get_or(self, key: Hashable, make: Callable[[], T]) -> T:
        """The entry, made and stored if there is none."""
        if key in self:
            self.move_to_end(key)
            result: T = self[key]
            return result
        return self.store(key, make())

    def store(self, key: Hashable, value: T) -> T:
        """Store an entry and return it; the least recently used ones go beyond the limit."""
        self[key] = value
        self.move_to_end(key)
        while len(self) > self.limit:
            self.popitem(last=False)
        return value


def cache_folder() -> Path | None:
    """Where placements are kept; None if they are not."""
    named = os.environ.get(VARIABLE, "")
    if named.lower() in ("off", "0", "no", "false"):
        return None
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME", "")
    try:
        return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "tbuda-lab"
    except RuntimeError:  # nobody's home
        return None


class CompileCache:
    """The placements in one folder. Safe with several processes: files are read whole and replaced whole.

    folder: None finds it as `cache_folder` does; nothing is made before there is something to keep. most: bytes of all
    entries; least_seconds: what is placed faster is not kept. hits, misses: how often there was an entry.
    """

    def __init__(self, folder: Path | None = None, most: int = MAX_BYTES, least_seconds: float | None = None) -> None:
        self.folder = cache_folder() if folder is None else folder
        self.most = most
        self.least_seconds = LEAST_SECONDS if least_seconds is None else least_seconds
        self.hits = self.misses = 0

    def outcome(
        self,
        graph: Graph,
        models: Mapping[str, OpModels],
        device: DeviceSpec,
        options: CompileOptions,
        constraints: Constraints,
        place: Callable[[], Outcome],
        costs: CostCache | None = None,
    ) -> Outcome:
        """What `place` comes to, taken from the entry if there is one. costs: see `place_and_repair`. Raises what
        `place` raises."""
        if self.folder is None or not _repeatable(options, constraints.records):
            return place()

        def read(record: Any) -> Outcome:
            return from_record(record, graph, models, device, options, constraints, costs)

        key = _key(graph, device, options, constraints.records)
        outcome = self._get_or_make(
            self.folder / f"{key}{_ENDING}", read, place, lambda outcome: to_record(outcome, graph, options)
        )
        return self._with_bound(outcome, self.folder / f"{key}{_BOUND}")

    def _with_bound(self, outcome: Outcome, path: Path) -> Outcome:
        """The outcome with a bound that is taken from an entry, if there is one, when it is first read."""
        placement, value = outcome.placement, outcome.decisions.objective
        if value is None or placement.report is None:
            return outcome
        work_out = value.least

        def least() -> float:
            bound: float = self._get_or_make(path, _cycles, work_out, lambda bound: bound)
            return bound

        value = dataclasses.replace(value, least=least)
        placement = dataclasses.replace(placement, report=dataclasses.replace(placement.report, objective=value))
        chosen = dataclasses.replace(outcome.decisions, objective=value)
        return dataclasses.replace(outcome, placement=placement, decisions=chosen)

    def knows_fusion(self, lowered: Graph, device: DeviceSpec, options: CompileOptions) -> bool:
        """Whether `fusion` takes an entry, as far as its name tells: this graph was placed before."""
        if self.folder is None or not fusing.has_undecided_groups(lowered, device, options):
            return False
        return (self.folder / f"{_key(lowered, device, options, ())}{_FUSING}").is_file()

    def fusion(
        self, passed: Graph, lowered: Graph, device: DeviceSpec, options: CompileOptions, decide: Callable[[], Fusion]
    ) -> Fusion:
        """What `decide` says of these graphs, taken from the entry if there is one: then it has no epochs."""
        if self.folder is None or not fusing.has_undecided_groups(lowered, device, options):
            return decide()

        def read(record: Any) -> Fusion:
            return fusing.from_record(record, passed, lowered, device, options)

        path = self.folder / f"{_key(lowered, device, options, ())}{_FUSING}"
        return self._get_or_make(path, read, decide, fusing.to_record)

    def findings(
        self,
        netlist: Netlist,
        lowered: Graph,
        placement: Placement,
        device: DeviceSpec,
        options: CompileOptions,
        constraints: Constraints,
        find: Callable[[], list[Diagnostic]],
    ) -> list[Diagnostic]:
        """What `find` says of the netlist of this placement, taken from the entry of the same text if there is one.
        Raises what `find` raises."""
        if self.folder is None or not _repeatable(options, constraints.records):
            return find()
        value = None if placement.report is None else placement.report.objective
        request = repr((_key(lowered, device, options, constraints.records), value, netlists.dumps(netlist)))
        path = self.folder / f"{hashlib.sha256(request.encode()).hexdigest()}{_FINDINGS}"
        return self._get_or_make(path, _diagnostics, find, lambda found: [dataclasses.astuple(d) for d in found])

    def _get_or_make(
        self, path: Path, read: Callable[[Any], T], make: Callable[[], T], to_entry: Callable[[T], Any]
    ) -> T:
        """What an entry holds; where there is none, what `make` comes to, which is noted if that took long."""
        record = _read(path)
        if record is not None:
            with contextlib.suppress(TbudaError):  # of another graph, whatever its name says
                content = read(record)
                with contextlib.suppress(OSError):
                    os.utime(path)  # used now
                self.hits += 1
                return content
        self.misses += 1
        start = time.perf_counter()
        content = make()
        if time.perf_counter() - start >= self.least_seconds:
            self._write(path, to_entry(content))
        return content

    def _write(self, path: Path, record: Any) -> None:
        if record is None:
            return
        body = json.dumps(record, separators=(",", ":"), allow_nan=False)
        if len(body) > MAX_ENTRY or (path.exists() and not path.is_file()):
            return
        with contextlib.suppress(OutputError, OSError):  # a full or read-only disk
            path.parent.mkdir(parents=True, exist_ok=True)
            with atomic_text(path) as stream:
                stream.write(f"{FORMAT} {checksum(body)}\n{body}\n")
            self._shrink(path.parent)

    def _shrink(self, folder: Path) -> None:
        """Remove what was not used for longest until the rest is small enough."""
        entries = []
        for path in (path for ending in _ENDINGS for path in folder.glob(f"*{ending}")):
            with contextlib.suppress(OSError):  # another process removed it
                about = path.stat()
                entries.append((about.st_mtime_ns, path.name, about.st_size, path))
        total = sum(size for _, _, size, _ in entries)
        for _, _, size, path in sorted(entries):
            if total <= self.most:
                return
            with contextlib.suppress(OSError):
                path.unlink()
            total -= size


def _repeatable(options: CompileOptions, overrides: Sequence[Override]) -> bool:
    """Whether the same request comes to the same placement: none is that depends on time, or on what a function
    says."""
    depends_on_time = options.time_budget is not None or options.optimise_seconds is not None
    return not depends_on_time and all(o.is_named for o in overrides)


def _cycles(record: Any) -> float:
    """A number of cycles from a record. Raises `InputError` where it holds anything else."""
    cycles = float(number(record))
    if not 0.0 <= cycles < math.inf:
        raise InputError(f"a record with {record!r} where a number of cycles belongs")
    return cycles


def _diagnostics(record: Any) -> list[Diagnostic]:
    """Findings from a record. Raises `InputError` where it holds anything else."""
    if not isinstance(record, list):
        raise InputError("a record that is no list of findings")
    findings = []
    for row in record:
        if not isinstance(row, list) or len(row) != _PARTS or not all(isinstance(part, str) for part in row):
            raise InputError("a record with something else among its findings")
        if row[0] not in _SEVERITIES:
            raise InputError(f"a record with a finding of severity {row[0]!r}")
        findings.append(Diagnostic(*row))
    return findings


def _read(path: Path) -> Any:
    """The record in an entry; None where there is none, or a damaged one."""
    try:
        text = bounded_text(path, MAX_ENTRY, "is not an entry of the cache")
        head, _, body = text.partition("\n")
        body = body.rstrip("\n")
        return parse_json(body, str(path)) if head == f"{FORMAT} {checksum(body)}" else None
    except InputError:
        return None


def checksum(body: str) -> str:
    """SHA-256 of an entry's text, in hexadecimal."""
    return hashlib.sha256(body.encode()).hexdigest()


def _key(graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]) -> str:
    request = repr((FORMAT, _program(), device, options, frozen(tuple(overrides)), structure_digest(graph)))
    return hashlib.sha256(request.encode()).hexdigest()


@functools.lru_cache(maxsize=1)
def _program() -> str:
    """Digest of what compiles: version, NumPy's version, and size and time of every file of the compiler core."""
    core = Path(__file__).parents[1]
    files = []
    for folder, folders, names in os.walk(core):
        folders[:] = sorted(f for f in folders if f != "__pycache__")
        for name in sorted(names):
            about = os.stat(os.path.join(folder, name))
            files.append((os.path.relpath(os.path.join(folder, name), core), about.st_size, about.st_mtime_ns))
    return hashlib.sha256(repr((__version__, np.__version__, files)).encode()).hexdigest()
