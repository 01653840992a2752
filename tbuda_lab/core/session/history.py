"""The one undo stack, the log of what was done to it, and what it tells of overrides that are off or on."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from tbuda_lab.core.compiler import Request
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session.command import Command
from tbuda_lab.core.session.commands import ClearOp, Disable


@dataclasses.dataclass(frozen=True)
class EditStep:
    """Commands that are done and undone together, and the states around them. off: the overrides that are switched off
    after it, by kind and target, in the order they were; kept here, for who asks after each edit."""

    commands: tuple[Command, ...]
    label: str
    source: str
    before: Request
    after: Request
    off: Mapping[tuple[str, str], Override] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class PlacementFacts:
    """What a placement takes. at: when it was made, ISO time of UTC; l1: bytes of the fullest core over those that it
    has; cycles: simulated, per input; pcc: the worst of its outputs against torch. None: not known."""

    at: str = ""
    epochs: int = 0
    chips: int = 0
    l1: float | None = None
    cycles: float | None = None
    pcc: float | None = None


@dataclasses.dataclass(frozen=True)
class PlacementNote:
    """A state that was compiled, under a name that no other has. kind: "start", "compile" or "optimise"."""

    name: str
    kind: str
    state: Request
    facts: PlacementFacts


NOTE_KINDS = ("start", "compile", "optimise")
MAX_NOTES = 200
"""Placements of compiles that a session remembers; the oldest go first."""


@dataclasses.dataclass(frozen=True)
class Entry:
    """One line of the log: "do" with its step, "undo", "redo", "return" with its step and the name gone to,
    "checkpoint" with its name, or "placement" with its note."""

    what: str
    step: EditStep | None = None
    name: str = ""
    note: PlacementNote | None = None


class History:
    """States and the steps between them. `marked`: checkpoint name -> its state; `notes`: placements by name."""

    def __init__(self, first: Request) -> None:
        self.first = self.state = first
        self.marked: dict[str, Request] = {}
        self.notes: dict[str, PlacementNote] = {}
        self.log: list[Entry] = []
        self._done: list[EditStep] = []
        self._undone: list[EditStep] = []
        self._open = 0
        self._waiting: list[list[EditStep]] = []  # what could be done again when each open transaction began

    @property
    def done(self) -> tuple[EditStep, ...]:
        return tuple(self._done)

    @property
    def undone(self) -> tuple[EditStep, ...]:
        return tuple(reversed(self._undone))

    @property
    def open(self) -> bool:
        """A transaction is open."""
        return self._open > 0

    def do(self, commands: tuple[Command, ...], label: str = "", source: str = "code") -> EditStep:
        """Apply commands as one step. What was taken back can no longer be done again."""
        states = [self.state]
        for command in commands:
            states.append(command.apply(states[-1]))
        after, off = states[-1], self._off()
        for command, before, behind in zip(commands, states, states[1:], strict=False):
            off = _off_after(off, command, before, behind)
        step = EditStep(commands, label or ", ".join(c.label for c in commands), source, self.state, after, off)
        self._done.append(step)
        self._undone.clear()
        self.log.append(Entry("do", step))
        self.state = after
        return step

    def _off(self) -> Mapping[tuple[str, str], Override]:
        return self._done[-1].off if self._done else {}

    def forget(self, step: EditStep, future: tuple[EditStep, ...]) -> bool:
        """The last step is as if it had never been made: what could be done again before it (`future`, next first) can
        be again. False if `step` is not the last one any more."""
        if not self._done or self._done[-1] is not step or self._open:
            return False
        self._done.pop()
        self._undone = list(reversed(future))
        del self.log[self._position(step)]
        self.state = step.before
        return True

    def next(self, what: str) -> Request | None:
        """The state that "undo" or "redo" would come to, None if it would do nothing."""
        if self._open:
            return None
        if what == "undo":
            return self._done[-1].before if self._done else None
        return self._undone[-1].after if self._undone else None

    def undo(self) -> EditStep | None:
        """The step taken back, None if there was none. Within a transaction the steps before it stay."""
        if not self._done or self._open:
            return None
        step = self._done.pop()
        self._undone.append(step)
        self.log.append(Entry("undo"))
        self.state = step.before
        return step

    def redo(self) -> EditStep | None:
        """The step done again, None if there was none."""
        if not self._undone or self._open:
            return None
        step = self._undone.pop()
        self._done.append(step)
        self.log.append(Entry("redo"))
        self.state = step.after
        return step

    def mark(self, name: str) -> None:
        """Remember the state under a name; a name used before gets the new state."""
        self.marked.pop(name, None)
        self.marked[name] = self.state
        self.log.append(Entry("checkpoint", name=name))

    # -- placements that were made -----------------------------------------------------------------------------
    def note(self, note: PlacementNote) -> None:
        """Remember a placement of the present state; one of that name has the new facts."""
        entry = Entry("placement", note=note)
        at = next((i for i, e in enumerate(self.log) if e.note is not None and e.note.name == note.name), None)
        if at is None:
            self.log.append(entry)
        else:
            self.log[at] = entry
        self.notes[note.name] = note
        for name in [n.name for n in self.notes.values() if n.kind == "compile"][: -MAX_NOTES or None]:
            if len(self.notes) > MAX_NOTES:
                del self.notes[name]
                self.log = [e for e in self.log if e.note is None or e.note.name != name]

    def free_note(self, label: str) -> str:
        """A name for a placement that no other has: the label, with a number if need be."""
        taken, number, name = {*self.notes, *self.marked, "now", "previous"}, 1, label
        while name in taken:
            number += 1
            name = f"{label} ({number})"
        return name

    def state_of(self, name: str) -> Request | None:
        """The state of a checkpoint or of a placement that was noted, None where there is none of that name."""
        if name in self.marked:
            return self.marked[name]
        if name == "start":
            return self.first
        note = self.notes.get(name)
        return note.state if note is not None else None

    def go_back(self, name: str) -> EditStep | None:
        """One step to the state of that name, which undo takes back; None where it is the present one, or there is none
        of that name."""
        state = self.state_of(name)
        if state is None or state == self.state:
            return None
        off = _without(self._off(), state)  # a way back has no commands
        step = EditStep((), f"back to {name}", "code", self.state, state, off)
        self._done.append(step)
        self._undone.clear()
        self.log.append(Entry("return", step, name))
        self.state = state
        return step

    # -- transactions ----------------------------------------------------------------------------------------
    def begin(self) -> int:
        """Open a transaction; hand the number to `join` or `roll_back`."""
        self._open += 1
        self._waiting.append(list(self._undone))
        return len(self._done)

    def join(self, depth: int, label: str) -> None:
        """Everything done since `begin` becomes one step."""
        self._open -= 1
        self._waiting.pop()
        steps = self._done[depth:]
        if not steps:
            return
        commands = tuple(c for s in steps for c in s.commands)
        whole = EditStep(commands, label, steps[0].source, steps[0].before, steps[-1].after, steps[-1].off)
        self._done[depth:] = [whole]
        at = self._position(steps[0])
        marks = [e for e in self.log[at:] if e.what in ("checkpoint", "placement")]
        self.log[at:] = [Entry("do", whole), *marks]

    def roll_back(self, depth: int) -> None:
        """Everything done since `begin` is as if it had never been."""
        self._open -= 1
        self._undone = self._waiting.pop()
        if len(self._done) > depth:
            first = self._done[depth]
            self.state = first.before
            del self.log[self._position(first) :]
            del self._done[depth:]

    def _position(self, step: EditStep) -> int:
        return next(i for i, entry in enumerate(self.log) if entry.step is step)


def disabled_overrides(history: Sequence[EditStep]) -> tuple[Override, ...]:
    """The overrides that `Disable` took away and nothing has set or cleared since, in the order they were switched off.

    To switch one on again, apply it: `session.apply(override)`.
    """
    return tuple(history[-1].off.values()) if history else ()


def _off_after(
    off: Mapping[tuple[str, str], Override], command: Command, before: Request, after: Request
) -> dict[tuple[str, str], Override]:
    """What is switched off after a command, of what was before it."""
    result = dict(off)
    if isinstance(command, Disable):
        removed = [o for o in before.overrides if o not in after.overrides and isinstance(o.target, str)]
        result |= {(o.kind, str(o.target)): o for o in removed}
    elif isinstance(command, ClearOp):
        kinds = command.kinds
        result = {k: o for k, o in result.items() if k[1] != command.op or (kinds and k[0] not in kinds)}
    return _without(result, after)


def _without(off: Mapping[tuple[str, str], Override], state: Request) -> dict[tuple[str, str], Override]:
    """Without those that a state has set again."""
    present = {(o.kind, o.target) for o in state.overrides if isinstance(o.target, str)}
    return {key: override for key, override in off.items() if key not in present}


def sources(history: Sequence[EditStep]) -> dict[tuple[str, str], str]:
    """Who set each override made for one name: the source of the last step that did, by (kind, name)."""
    sources: dict[tuple[str, str], str] = {}
    for step in history:
        before = {(o.kind, o.target): o.value for o in step.before.overrides if isinstance(o.target, str)}
        for override in step.after.overrides:
            if isinstance(override.target, str):
                key = (override.kind, override.target)
                if key not in before or before[key] != override.value:
                    sources[key] = step.source
    return sources
