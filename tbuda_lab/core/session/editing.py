"""The editing half of a session: commands, one undo stack, transactions, checkpoints, the journal."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.request import Clock
from tbuda_lab.core.errors import Cancelled, InputError, TbudaError
from tbuda_lab.core.overrides import Override, named_python, override_python
from tbuda_lab.core.session import gestures
from tbuda_lab.core.session.commands import Command, SetOptions, SetOverride
from tbuda_lab.core.session.history import Step
from tbuda_lab.core.session.journal import Journal, read_overrides
from tbuda_lab.core.session.working import Working


class Editing(Working):
    """A session's edits. See `Session`."""

    def apply(self, *edits: Command | Override, label: str = "", source: str = "code") -> None:
        """Make edits, all of them one undo step; the next `compile` honours them. A running compile is cancelled.

        An `Override` is taken as it is. Patterns and predicates are resolved to names when they are journaled.
        """
        commands = tuple(e if isinstance(e, Command) else SetOverride(e) for e in edits)
        if commands:
            self._before(commands)
            with self._edit:
                step = self._history.do(commands, label, source)
            self._changed(step.label)

    def attempt(self, *edits: Command | Override, label: str = "", source: str = "code") -> CompileResult:
        """Make edits and compile. If that fails they are as if they had never been made: neither undo nor redo know
        them, and what could be done again still can. Raises what compiling raises; a newer edit makes it `Cancelled`.
        """
        commands = tuple(e if isinstance(e, Command) else SetOverride(e) for e in edits)
        if not commands:
            return self.compile()
        self._before(commands)
        with self._edit:
            future = self._history.undone
            step = self._history.do(commands, label, source)
        self._changed(step.label)
        try:
            return self.compile()
        except TbudaError as error:
            with self._edit:
                gone = not isinstance(error, Cancelled) and self._history.forget(step, future)
                if gone and self.result is not None:
                    self.error, self.problems = None, list(self.result.diagnostics)
            if gone:
                self._changed(f"{step.label} refused")
            raise

    def configure(self, **changes: Any) -> None:
        """Change options by name (see `CompileOptions`); the next `compile` uses them."""
        self.apply(SetOptions(**changes))

    def optimise(self, seconds: float | None = None, steps: int | None = None) -> tuple[tuple[int, float], ...]:
        """Choose all epochs anew and search on from there: so many steps, or as many as the seconds allow. Returns the
        curve: (steps done, cycles per input then), at the start, at every gain and at the end; it never rises.

        It is one edit, of the option `optimise_steps`: the same number of steps finds the same placement again, on any
        machine. Edits that come later keep the epochs found. `cancel` stops it and changes nothing.
        Raises `InputError` where neither is given, and what compiling raises.
        """
        if (seconds is None) == (steps is None):
            raise InputError("optimise takes seconds or steps, one of the two")
        if steps is not None:
            self.attempt(SetOptions(optimise_steps=steps, optimise_seconds=None), label=f"search on, {steps} steps")
            return self._curve()
        with self._work:
            graph = self._guarded(self.trace)
            state = self._history.state
            timed = SetOptions(optimise_steps=0, optimise_seconds=seconds).apply(state)
            with self._edit:
                self._cancel = cancel = threading.Event()
            clock = Clock(lambda stage, fraction: self._events.emit("stage", stage, fraction), cancel)
            result = self._guarded(lambda: self._pipeline.compile(graph, timed, clock))
            report = result.placement.report
            done = report.curve[-1][0] if report is not None and report.curve else 0
            if not done:
                return report.curve if report is not None else ()
            edit = SetOptions(optimise_steps=done, optimise_seconds=None)
            counted = edit.apply(state)
            self._pipeline.take_over(timed, counted)
            self._results.store(counted.key, dataclasses.replace(result, options=counted.options))
            self.attempt(edit, label=f"search on, {done} steps")
            return self._curve()

    def _curve(self) -> tuple[tuple[int, float], ...]:
        report = self.result.placement.report if self.result is not None else None
        return report.curve if report is not None else ()

    @contextlib.contextmanager
    def transaction(self, label: str) -> Iterator[None]:
        """All edits inside are one undo step; an exception takes them back."""
        with self._edit:
            depth = self._history.begin()
        try:
            yield
        except BaseException:
            with self._edit:
                self._history.roll_back(depth)
            self._changed(f"{label} taken back")
            raise
        with self._edit:
            self._history.join(depth, label)
        self._changed(label)

    def load_overrides(self, path: str | Path) -> tuple[Override, ...]:
        """Add the overrides of a JSON file (see `export_overrides`) as one undo step; returns them.

        One for the same thing as before takes its place. Raises `InputError` for a file that holds none.
        """
        found = read_overrides(path)
        if found:
            self.apply(*found, label=f"overrides of {Path(path).name}", source="file")
        return found

    def gesture(self, text: str) -> None:
        """Do what a sentence says: "resize matmul_14 to 4x4". Raises `InputError` listing the grammar."""
        action = gestures.parse(text)
        if action == "undo":
            self.undo()
        elif action == "redo":
            self.redo()
        else:
            assert isinstance(action, Command)
            self.apply(action, source="gesture")

    def undo(self) -> str:
        """Take the last step back; returns its label ("" when there is none). Its old result is looked up."""
        with self._edit:
            step = self._history.undo()
        if step is not None:
            self._changed(f"undo {step.label}")
        return step.label if step is not None else ""

    def redo(self) -> str:
        """Do again what was taken back last; returns its label ("" when there is nothing)."""
        with self._edit:
            step = self._history.redo()
        if step is not None:
            self._changed(f"redo {step.label}")
        return step.label if step is not None else ""

    def looked_up(self, what: str) -> CompileResult | None:
        """The result that `undo` or `redo` (what: "undo" or "redo") would come to; None where there is no such step, or
        nobody knows its result any more. Nothing is changed."""
        with self._edit:
            state = self._history.next(what)
            found: CompileResult | None = self._results.get(state.key) if state is not None else None
        return found

    @property
    def history(self) -> tuple[Step, ...]:
        """The steps done so far, oldest first."""
        return self._history.done

    @property
    def future(self) -> tuple[Step, ...]:
        """The steps that `redo` would do, next first."""
        return self._history.undone

    def _changed(self, label: str) -> None:
        """After every change of the state: stop what runs, take a known result, tell."""
        if self._journal is not None:
            self._cancel.set()
            self._learn_names()
        with self._edit:
            state = self._history.state
            self._cancel.set()
            self.error = None
            if self._journal is not None and not self._history.open:
                self._journal.write(self._history, self._resolve)
            found: CompileResult | None = self._results.get(state.key)
            newly_stale = found is None and not self.stale
            self.stale = self.stale or found is None
        if found is not None:
            self._show(state, found)
        self._events.emit("edited", label)
        if newly_stale:
            self._events.emit("stale", True)

    def _before(self, commands: Sequence[Command]) -> None:
        """What the journal has to know before edits are made."""
        if self._journal is not None and not all(o.named for c in commands for o in c.overrides()):
            self._cancel.set()
            self._learn_names(commands, queues=True)

    def _learn_names(self, commands: Sequence[Command] = (), *, queues: bool = False) -> None:
        """Patterns and predicates are journaled by the names they match, and lowering tells which there are. Those made
        before new commands are asked about once, and in silence. queues: a compile tells of these, if none did yet."""
        new = [o for c in commands for o in c.overrides() if not o.named]
        older: list[Override] = []
        if not self._names:
            steps = [entry.step for entry in self._history.log if entry.step is not None]
            made = [o for step in steps for c in step.commands for o in c.overrides()]
            older = [o for o in (*self._history.first.overrides, *made) if not o.named]
        if not new and not older:
            return
        if queues and self.result is None and any(o.kind == "queue_channel" for o in (*new, *older)):
            with contextlib.suppress(TbudaError):
                self.compile()
        try:
            self._names = tuple(dict.fromkeys((*self._names, *self._all_names())))
        except TbudaError:
            if new:
                raise

    def _all_names(self) -> tuple[str, ...]:
        """Names that an override may address: of the lowered graph, and of ops that are fused into others as long as no
        override names them."""
        with self._work:
            front = self._guarded(lambda: self._front(self._history.state))
        return (*front.lowered.nodes, *front.inner)

    def _resolve(self, override: Override) -> tuple[str, ...]:
        return self._matched(override, self._names)

    def _matched(self, override: Override, names: Sequence[str]) -> tuple[str, ...]:
        queues: tuple[str, ...] = ()  # those between epochs are known once something is placed
        if override.kind == "queue_channel" and self.result is not None:
            queues = tuple(self.result.placement.queues)
        return tuple(override.matches(dict.fromkeys((*names, *queues))))

    @property
    def journal_path(self) -> Path | None:
        """The file that every edit is written to, if there is one."""
        return None if self._journal is None else self._journal.path

    @property
    def unedited(self) -> bool:
        """Options and overrides are those the session was opened with."""
        return self._history.state == self._history.first

    def names_of(self, override: Override) -> tuple[str, ...]:
        """The names an override addresses in this model, in the model's order."""
        if isinstance(override.target, tuple):
            return override.target
        if isinstance(override.target, str):
            return (override.target,)
        return self._matched(override, self._all_names())

    def save(self, path: str | Path) -> Path:
        """Write the edits as a `*.buda.json` file, and go on writing every edit to it."""
        journal = Journal(Path(path), self._header())
        self._learn_names(queues=True)
        with self._edit:
            self._journal = journal
            self._journal.write(self._history, self._resolve)
        return Path(path)

    def to_python(self) -> str:
        """The current overrides as calls of PyBuda's `config` module, one per line.

        A pattern or predicate gives one call for each name that it matches in the last result.
        """
        result = self.result
        names = (
            []
            if result is None
            else list(dict.fromkeys([*result.placement.schedule, *result.lowered.nodes, *result.placement.queues]))
        )
        text = override_python if result is None else lambda o: named_python(o, names)
        return "".join(text(o) + "\n" for o in self.overrides)

    # -- checkpoints -------------------------------------------------------------------------------------------
    def checkpoint(self, name: str) -> None:
        """Remember the current options and overrides under a name."""
        if self._journal is not None:
            self._learn_names()
        with self._edit:
            if not name or name == "now":
                raise InputError("a checkpoint needs a name other than 'now'")
            self._history.mark(name)
            if self._journal is not None:
                self._journal.write(self._history, self._resolve)

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """Names of the checkpoints, in the order they were made."""
        return tuple(self._history.marked)
