"""The one file of an exploration, `explore.jsonl`: a header, then one row a trial. Only the client writes.

Rows are appended and synced; a last line that a kill tore is dropped when the file is opened again. After each batch
the rows stand in the order of their numbers. `placements/` beside it holds what trials came to, by digest, and
`graph.txt` the graph.
"""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tbuda_lab.core.errors import InputError, OutputError
from tbuda_lab.core.explore.space import digest
from tbuda_lab.core.explore.trial import Trial, trial_of, version
from tbuda_lab.core.files import atomic_text, bounded_bytes, json_map, make_folder, parse_json

FORMAT = "tbuda-explore 1"
FILE, GRAPH, PLACEMENTS, LOCK = "explore.jsonl", "graph.txt", "placements", ".lock"
OWN_FILES = frozenset((FILE, GRAPH, PLACEMENTS, LOCK))
"""What stands in the folder of an exploration by these names."""
MAX_BYTES = 256 << 20
IDENTITY = ("format", "model", "graph", "options", "space", "objectives", "requirements", "sampler", "seed")
"""What two runs of one exploration have alike."""
_HEAD = (*IDENTITY, "budget", "source", "version", "trial_seconds")


@dataclasses.dataclass(frozen=True)
class Record:
    """An exploration as it was read: its header, rows of this version by number, and stale ones of others."""

    header: Mapping[str, Any]
    trials: dict[int, Trial]
    stale: tuple[Trial, ...]


def read(folder: Path) -> Record:
    """Raises `InputError` naming file and line."""
    record, _ = _read(folder / FILE)
    return record


def _read(path: Path) -> tuple[Record, int]:
    """What a file holds, and how many of its bytes are whole lines."""
    data = bounded_bytes(path, MAX_BYTES, "is not a file of explorations")
    whole = data.rfind(b"\n") + 1
    try:
        lines = data[:whole].decode("utf-8").split("\n")[:-1]
    except UnicodeDecodeError as error:
        raise InputError(f"{path}: byte {error.start} is not UTF-8 text") from None
    if not lines:
        raise InputError(f"{path}: the header is cut off; begin anew in another folder")
    header = _header(parse_json(lines[0], f"{path}: line 1"), path)
    trials: dict[int, Trial] = {}
    stale = []
    for number, line in enumerate(lines[1:], 2):
        trial = trial_of(parse_json(line, f"{path}: line {number}"), f"{path}: line {number}")
        if trial.version != version():
            stale.append(trial)
        elif trial.n in trials:
            raise InputError(f"{path}: line {number}: trial {trial.n} is there already")
        else:
            trials[trial.n] = trial
    return Record(header, trials, tuple(stale)), whole


def _header(data: Any, path: Path) -> dict[str, Any]:
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise InputError(f"{path}: line 1 is not the header of a file of format {FORMAT!r}")
    if set(data) - {"run"} != set(_HEAD):
        raise InputError(f"{path}: the header has {', '.join(_HEAD)}")
    return data


class TrialFile:
    """An exploration's folder, open for writing by one process."""

    def __init__(self, folder: Path, header: Mapping[str, Any], graph: str) -> None:
        """Opens the folder, or makes it. Raises `InputError` for one that holds another exploration, or that another
        process writes; nothing in it is changed then."""
        self.folder = folder
        self.path = folder / FILE
        make_folder(folder)
        self._lock = _lock(folder)
        try:
            self._open(header, graph)
        except BaseException:
            self._lock.close()
            raise

    def _open(self, header: Mapping[str, Any], graph: str) -> None:
        self.header = {**header, "format": FORMAT, "version": version()}
        if self.path.exists():
            record, whole = _read(self.path)
            other = [name for name in IDENTITY if record.header[name] != self.header[name]]
            if other:
                what = "another model" if "graph" in other else f"another exploration ({', '.join(other)} differ)"
                raise InputError(
                    f"{self.folder} holds {what}: give another folder, or continue that one by "
                    f"`tbuda explore {self.folder}`"
                )
            self.trials, self.stale = record.trials, record.stale
            if whole < self.path.stat().st_size:
                os.truncate(self.path, whole)
            if {k: v for k, v in record.header.items() if k != "run"} != {
                k: v for k, v in self.header.items() if k != "run"
            }:
                self.tidy(always=True)
        else:
            self.trials, self.stale = {}, ()
            with atomic_text(self.folder / GRAPH) as file:
                file.write(graph)
            self.tidy(always=True)
        self._order = [t.n for t in self.trials.values()]
        self._stream = self._append()

    def _append(self) -> Any:
        try:
            return self.path.open("ab")
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}") from None

    def add(self, trial: Trial, placement: Mapping[str, Any] | None) -> Trial:
        """Append a row; returns it with the name of its placement's file."""
        if placement is not None:
            trial = dataclasses.replace(trial, placement=self._keep_placement(placement))
        try:
            self._stream.write(trial.line().encode() + b"\n")
            self._stream.flush()
            os.fsync(self._stream.fileno())
        except OSError as error:
            raise OutputError(f"cannot write {self.path}: {error.strerror}") from None
        self.trials[trial.n] = trial
        self._order.append(trial.n)
        return trial

    def _keep_placement(self, placement: Mapping[str, Any]) -> str:
        name = digest(placement)[:32]
        path = make_folder(self.folder / PLACEMENTS) / f"{name}.json"
        if not path.exists():
            with atomic_text(path) as file:
                json.dump({"format": "tbuda-overrides 1", **placement}, file, sort_keys=True)
                file.write("\n")
        return name

    def tidy(self, always: bool = False) -> None:
        """Put the rows in the order of their numbers, behind stale ones, where they are not. Whole or not at all."""
        if not always and self._order == sorted(self._order):
            return
        with atomic_text(self.path) as file:
            file.write(json.dumps(self.header, sort_keys=True, ensure_ascii=False) + "\n")
            for trial in (*self.stale, *(self.trials[n] for n in sorted(self.trials))):
                file.write(trial.line() + "\n")
        if not always:
            self._stream.close()
            self._stream = self._append()
            self._order = sorted(self._order)

    def close(self) -> None:
        """Another process may write now."""
        self._stream.close()
        self._lock.close()


def _lock(folder: Path) -> Any:
    """Held while this process writes. Raises `InputError` where another one does."""
    try:
        import fcntl
    except ImportError:  # Windows
        return (folder / LOCK).open("ab")
    stream = (folder / LOCK).open("ab")
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        stream.close()
        raise InputError(
            f"{folder}: another exploration is at work there; wait for it, or give another folder"
        ) from None
    return stream


def read_placement(folder: Path, trial: Trial) -> dict[str, Any]:
    """What a trial's placement file holds. Raises `InputError`."""
    if not trial.placement:
        raise InputError(f"trial {trial.n} was {trial.state}: it has no placement")
    return json_map(folder / PLACEMENTS / f"{trial.placement}.json", "placement of a trial")


def without_times(folder: Path) -> Iterator[str]:
    """The lines of a file without what depends on machine and moment: what two runs have alike."""
    for line in (folder / FILE).read_text(encoding="utf-8").splitlines():
        row = json.loads(line)
        row.pop("run", None)
        yield json.dumps(row, sort_keys=True, ensure_ascii=False)
