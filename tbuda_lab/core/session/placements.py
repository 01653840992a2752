"""The placements that a session has come to: what each was, when, and what it takes; and the way back to any."""

from __future__ import annotations

import dataclasses
import datetime
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.analysis.memory import l1_by_kind, l1_of_placed
from tbuda_lab.core.compiler import CompileResult, Request
from tbuda_lab.core.diff import Side, netlist_side
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.session.history import PlacementFacts, PlacementNote
from tbuda_lab.core.session.whatif import time_of
from tbuda_lab.core.verification import Comparison

if TYPE_CHECKING:
    from tbuda_lab.core.session.compiles import Compiles
    from tbuda_lab.core.session.state import SessionState

MAX_FILES = 64
"""Files that a session holds to compare with."""


@dataclasses.dataclass(frozen=True)
class PlacementRow:
    """One placement of the table. kind: "start" (as the session was opened), "compile" (after an edit), "optimise",
    "checkpoint" (somebody gave it a name) or "file". current: it is the one shown."""

    name: str
    kind: str
    facts: PlacementFacts
    current: bool = False


class Placements:
    """See `Session.placements`."""

    def __init__(self, state: SessionState, compiles: Compiles) -> None:
        self._state, self._compiles = state, compiles
        self._files: dict[str, tuple[Side, PlacementFacts]] = {}
        state.events.on("verified", self._on_verified)
        compiles.on_current = self.note

    def note(self, state: Request, result: CompileResult) -> None:
        """A compile of a state has become the current one. Called with the work lock held."""
        history = self._state.history
        if history.open or history.state != state:
            return
        earlier = next((n for n in history.notes.values() if n.state.key == state.key), None)
        if earlier is None:
            kind, label = self._origin(state)
            seen = self._state.journal is not None or self._state.events.heard("compiled")
            facts = self._facts(state, result) if seen else PlacementFacts(_now(), len(result.placement.epochs))
            history.note(PlacementNote(history.free_note(label), kind, state, facts))
        if earlier is None:
            self._write()

    def _origin(self, state: Request) -> tuple[str, str]:
        """The kind of a placement, and what it is called after."""
        history = self._state.history
        if state.key == history.first.key or not history.done:
            return "start", "start"
        step = history.done[-1]
        return ("optimise" if step.source == "search" else "compile"), step.label

    def _facts(self, state: Request, result: CompileResult) -> PlacementFacts:
        placement, usable = result.placement, max(1, result.device.l1_usable)
        l1 = l1_of_placed(self._compiles.placed(state))
        l1 = l1 if len(l1) == len(placement.ops) else l1_by_kind(result)
        fullest = max((sum(of.values()) for of in l1.values()), default=0)
        chips = len({epoch.chip for epoch in placement.epochs})
        cycles = time_of(self._compiles.placed(state)).per_input
        return PlacementFacts(_now(), len(placement.epochs), max(1, chips), fullest / usable, float(cycles))

    def _on_verified(self, comparisons: list[Comparison]) -> None:
        """The outputs of the current placement were compared with torch: the worst of them counts."""
        history = self._state.history
        note = next((n for n in history.notes.values() if n.state.key == history.state.key), None)
        if note is None or not comparisons:
            return
        pcc = min(float(c.pcc) for c in comparisons)
        history.note(dataclasses.replace(note, facts=dataclasses.replace(note.facts, pcc=pcc)))
        self._write()

    def _write(self) -> None:
        """To the journal, where this session has written an edit to it: one that was only opened, to compare or to look
        at, stays as it is. The next edit writes what was noted before."""
        journal = self._state.journal
        if journal is not None and journal.written:
            with self._state.edit_lock:
                self._state.write_journal()

    @property
    def rows(self) -> tuple[PlacementRow, ...]:
        """See `Session.placements`."""
        history = self._state.history
        self._complete()
        now = history.state.key
        named: dict[Any, list[str]] = {}
        for name, state in history.marked.items():
            named.setdefault(state.key, []).append(name)
        rows = []
        for note in history.notes.values():
            names = named.pop(note.state.key, [])
            kind = "checkpoint" if names and note.kind == "compile" else note.kind
            rows += [PlacementRow(name, "checkpoint", note.facts, note.state.key == now) for name in names]
            if kind != "checkpoint":
                rows.append(PlacementRow(note.name, kind, note.facts, note.state.key == now))
        for key, names in named.items():  # marked before it was compiled
            rows += [PlacementRow(name, "checkpoint", PlacementFacts(), key == now) for name in names]
        return (*rows, *(PlacementRow(name, "file", facts) for name, (_, facts) in self._files.items()))

    def _complete(self) -> None:
        """Facts of placements that nobody looked at when they were made, as far as their results are still there."""
        history, results = self._state.history, self._state.results
        for note in [n for n in history.notes.values() if n.facts.cycles is None and n.state.key in results]:
            with self._state.work_lock:
                facts = self._facts(note.state, results[note.state.key])
            history.note(dataclasses.replace(note, facts=dataclasses.replace(facts, at=note.facts.at)))

    def open_file(self, path: str | Path) -> PlacementRow:
        """See `Session.open_placement`."""
        if not isinstance(path, str | os.PathLike):
            raise InputError(f"the path of a netlist is a string or a Path, not {type(path).__name__}")
        path = Path(path)
        if len(self._files) >= MAX_FILES:
            raise InputError(f"{MAX_FILES} files are open already: a session holds no more")
        if not os.path.isfile(path):
            raise InputError(f"{path} is no file: give a netlist file")
        side = netlist_side(netlists.load(path), path.name)
        name = path.name if path.name not in self._files else str(path)
        side = dataclasses.replace(side, name=name)
        facts = PlacementFacts(_now(), len(side.epochs), max(1, len({epoch.chip for epoch in side.epochs})))
        self._files[name] = (side, facts)
        return PlacementRow(name, "file", facts)

    def file(self, name: str) -> Side | None:
        """The netlist that was opened under a name."""
        entry = self._files.get(name)
        return None if entry is None else entry[0]


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
