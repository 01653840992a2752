"""The edits of a session: commands, one undo stack, transactions, checkpoints, the journal; and edits as sentences, for
tests, tutorials and the command line of a view."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.balancer.types import Placement, PlacementReport
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.lowering_search import TRIALS, search_lowering
from tbuda_lab.core.compiler.request import Clock, Request
from tbuda_lab.core.constraints import FREE
from tbuda_lab.core.errors import Cancelled, Diagnostic, InputError, TbudaError, not_supported
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import LOWERING, CompileOptions, options_changed
from tbuda_lab.core.overrides import Override, named_python, override_python
from tbuda_lab.core.placer import Outcome, SearchWatch
from tbuda_lab.core.placer.interactive.engine import IncrementalPlacer
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
from tbuda_lab.core.session.command import Command
from tbuda_lab.core.session.commands import (
    ChipBreak,
    ClearOp,
    EpochBreak,
    FormatOp,
    InsertNop,
    InsertQueue,
    Optimise,
    PlaceOp,
    Preload,
    QueueChannel,
    ResizeOp,
    SetOptions,
    SetOverride,
    SetUkt,
    StreamOp,
)
from tbuda_lab.core.session.history import EditStep
from tbuda_lab.core.session.islands import Curve, Islands, search_islands
from tbuda_lab.core.session.journal import Journal, read_overrides
from tbuda_lab.core.session.whatif import time_of

if TYPE_CHECKING:
    from tbuda_lab.core.session.compiles import Compiles
    from tbuda_lab.core.session.state import SessionState

Found = Callable[[int, float, Callable[[], PlacedOps]], None]
"""Hears of a gain of a search: steps done, cycles per input, and what makes the placement of it."""
_ROUNDED = 1.0 + 1e-6
"""How far two sums of the same cycles may be apart."""
_LOWERING = 0.6
"""Part of the seconds of a search after which no other lowering is tried."""

GRAMMAR = (
    "resize OP to ROWSxCOLUMNS",
    "move OP to ROW,COLUMN [transposed|upright] [on chip N]",
    "transpose OP",
    "pin OP to chip N",
    "break at OP",
    "unbreak at OP",
    "chip break at OP",
    "chip unbreak at OP",
    "stream OP n|r|c|rz|cz [ROWSxCOLUMNS]",
    "u_kt of OP = N",
    "preload|stream operand N of OP",
    "queue QUEUE to channel N [on chip N]",
    "[N] nop[s] between OP and OP",
    "queue between OP and OP",
    "format of OP = FORMAT",
    "fidelity of OP = FIDELITY",
    "clear OP",
    "optimise",
    "undo",
    "redo",
)
"""What `parse_sentence` understands. Names may stand in quotes."""

_OP = r"(?P<op>\"[^\"]+\"|'[^']+'|\S+)"
_TO = _OP.replace("<op>", "<to>")
_PATTERNS: tuple[tuple[str, Callable[[dict[str, str]], Command | str]], ...] = (
    (rf"resize {_OP} to (?P<a>\d+) ?x ?(?P<b>\d+)", lambda m: ResizeOp(m["op"], (int(m["a"]), int(m["b"])))),
    (
        rf"move {_OP} to \(?(?P<a>\d+) ?, ?(?P<b>\d+)\)?(?: (?P<turn>transposed|upright))?(?: on chip (?P<chip>\d+))?",
        lambda m: PlaceOp(
            m["op"],
            (int(m["a"]), int(m["b"])),
            m["turn"] == "transposed" if m.get("turn") else None,
            int(m["chip"]) if m.get("chip") else None,
        ),
    ),
    (rf"transpose {_OP}", lambda m: PlaceOp(m["op"], transpose=True)),
    (rf"pin {_OP} to chip (?P<chip>\d+)", lambda m: PlaceOp(m["op"], chip=int(m["chip"]))),
    (rf"chip break (?:at )?{_OP}", lambda m: ChipBreak(m["op"])),
    (rf"chip unbreak (?:at )?{_OP}", lambda m: ChipBreak(m["op"], on=False)),
    (rf"break (?:at )?{_OP}", lambda m: EpochBreak(m["op"])),
    (rf"unbreak (?:at )?{_OP}", lambda m: EpochBreak(m["op"], on=False)),
    (
        rf"stream {_OP} (?P<dir>n|r|c|rz|cz)(?: (?P<a>\d+) ?x ?(?P<b>\d+))?",
        lambda m: StreamOp(m["op"], m["dir"], (int(m["a"]), int(m["b"])) if m.get("a") else None),
    ),
    (
        rf"(?P<a>preload|stream) operand (?P<b>\d+) of {_OP}",
        lambda m: Preload(m["op"], int(m["b"]), m["a"] == "preload"),
    ),
    (rf"u_kt of {_OP} ?=? ?(?P<a>\d+)", lambda m: SetUkt(m["op"], int(m["a"]))),
    (
        rf"queue {_OP} to channel (?P<a>\d+)(?: on chip (?P<chip>\d+))?",
        lambda m: QueueChannel(m["op"], int(m["a"]), int(m["chip"]) if m.get("chip") else None),
    ),
    (
        rf"(?:(?P<a>\d+) )?nops? between {_OP} and {_TO}",
        lambda m: InsertNop(m["op"], (m["to"],), int(m.get("a", "1"))),
    ),
    (rf"queue between {_OP} and {_TO}", lambda m: InsertQueue(m["op"], (m["to"],))),
    (rf"format of {_OP} = (?P<a>\w+)", lambda m: FormatOp(m["op"], m["a"])),
    (rf"fidelity of {_OP} = (?P<a>\w+)", lambda m: FormatOp(m["op"], fidelity=m["a"])),
    (rf"clear {_OP}", lambda m: ClearOp(m["op"])),
    (r"optimi[sz]e", lambda _: Optimise()),
    (r"undo", lambda _: "undo"),
    (r"redo", lambda _: "redo"),
)


def _report(placement: Placement) -> PlacementReport:
    assert placement.report is not None  # of a whole placement
    return placement.report


def parse_sentence(text: str) -> Command | str:
    """The command a sentence means, or "undo" or "redo". Raises `InputError` listing `GRAMMAR`."""
    words = " ".join(text.split())
    for pattern, make in _PATTERNS:
        match = re.fullmatch(pattern, words)
        if match is not None:
            parts = {k: v for k, v in match.groupdict().items() if v is not None}
            for name in ("op", "to"):
                if parts.get(name, "")[:1] in ("'", '"'):
                    parts[name] = parts[name][1:-1]
            return make(parts)
    fix = "; ".join(GRAMMAR)
    raise InputError(f"{text!r} is not an edit", [Diagnostic("error", text, "gesture", "not understood", fix)])


class Edits:
    """The edits of a session: commands, one undo stack, checkpoints, the journal."""

    def __init__(self, state: SessionState, compiles: Compiles) -> None:
        self._state, self._compiles = state, compiles

    def apply(self, *edits: Command | Override, label: str = "", source: str = "code") -> None:
        """See `Session.apply`."""
        commands = tuple(e if isinstance(e, Command) else SetOverride(e) for e in edits)
        if commands:
            self._before(commands)
            with self._state.edit_lock:
                step = self._state.history.do(commands, label, source)
            self._on_change(step.label)

    def attempt(self, *edits: Command | Override, label: str = "", source: str = "code") -> CompileResult:
        """See `Session.attempt`."""
        commands = tuple(e if isinstance(e, Command) else SetOverride(e) for e in edits)
        if not commands:
            return self._compiles.compile()
        self._before(commands)
        with self._state.edit_lock:
            future = self._state.history.undone
            step = self._state.history.do(commands, label, source)
        self._on_change(step.label)
        try:
            return self._compiles.compile()
        except TbudaError as error:
            with self._state.edit_lock:
                gone = not isinstance(error, Cancelled) and self._state.history.forget(step, future)
                if gone and self._state.result is not None:
                    self._state.error, self._state.problems = None, list(self._state.result.diagnostics)
            if gone:
                self._on_change(f"{step.label} refused")
            raise

    def configure(self, **changes: Any) -> None:
        """See `Session.configure`."""
        self.apply(SetOptions(**changes))

    def optimise(
        self,
        seconds: float | None = None,
        steps: int | None = None,
        found: Found | None = None,
        enough: threading.Event | None = None,
    ) -> tuple[tuple[int, float], ...]:
        """See `Session.optimise`."""
        if (seconds is None) == (steps is None):
            raise InputError("optimise takes seconds or steps, one of the two")
        if seconds is None and (found is not None or enough is not None):
            raise InputError("a search that is followed, or ended early, is limited by seconds, not by steps")
        state, compiles = self._state, self._compiles
        with state.work_lock:
            graph, request, cancel = self._begin_search()
            clock = compiles.clock(cancel)
            clock.watch = self._watch(found, enough)
            result, done = compiles.run_guarded(lambda: self._search(graph, request, clock, seconds, steps))
            different = options_changed(request.options, result.options)
            changed = {name: value for name, value in different.items() if name in LOWERING}
            timed = Request(result.options, request.overrides, request.overrides)
            if not done and not changed:
                state.pipeline.take_over(timed, timed)
                return _report(result.placement).curve
            edit = SetOptions(**changed, optimise_steps=done, optimise_seconds=None, optimise_rounds=())
            counted = edit.apply(request)
            state.pipeline.take_over(timed, counted)
            state.results.store(counted.key, dataclasses.replace(result, options=counted.options))
            self.attempt(edit, label=f"search for a faster placement, {done} steps", source="search")
            return self._curve()

    def _begin_search(self) -> tuple[Graph, Request, threading.Event]:
        """The traced graph, what the next compile is asked for, and what cancels the search."""
        state = self._state
        graph = self._compiles.run_guarded(self._compiles.trace)
        with state.edit_lock:
            state.cancel = cancel = threading.Event()
            return graph, state.request, cancel

    def _watch(self, found: Found | None, enough: threading.Event | None) -> SearchWatch | None:
        if found is None and enough is None:
            return None
        hear, device = found, self._state.device

        def heard(steps: int, cycles: float, outcome: Callable[[], Outcome]) -> None:
            if hear is not None:
                hear(steps, cycles, lambda: IncrementalPlacer(device, FREE, outcome()).whole())

        return SearchWatch(heard, enough or threading.Event())

    def _search(
        self, graph: Graph, request: Request, clock: Clock, seconds: float | None, steps: int | None
    ) -> tuple[CompileResult, int]:
        """The request with the lowering and the placement that searches find, whose report has the curve of both, and
        the steps that were done; 0 where what they find is slower than the compile that there is."""
        pipeline = self._state.pipeline
        request = SetOptions(optimise_steps=0, optimise_seconds=None, optimise_rounds=()).apply(request)
        value = time_of(pipeline.place(graph, request, clock)[1]).per_input
        part, start = None if seconds is None else _LOWERING * seconds, time.monotonic()
        lowered = search_lowering(pipeline, graph, request, clock, part, TRIALS if steps is None else steps)
        spent = time.monotonic() - start

        def compile_with(options: CompileOptions, spent: float) -> CompileResult:
            left = None if seconds is None else max(seconds - spent, (1.0 - _LOWERING) * seconds)
            options = dataclasses.replace(options, optimise_steps=steps or 0, optimise_seconds=left)
            return pipeline.compile(graph, dataclasses.replace(request, options=options), clock)

        result = compile_with(lowered, spent)
        curve = _report(result.placement).curve
        if lowered != request.options and curve and curve[-1][1] >= value:
            result = compile_with(request.options, 0.0)
        elif lowered != request.options and curve:
            report = dataclasses.replace(_report(result.placement), curve=((0, value), *curve))
            result = dataclasses.replace(result, placement=dataclasses.replace(result.placement, report=report))
        curve = _report(result.placement).curve
        if curve and curve[-1][1] > value * _ROUNDED:  # another base: the current placement is an edit of an edit
            report = dataclasses.replace(_report(result.placement), curve=((0, value), (curve[-1][0], value)))
            kept = dataclasses.replace(result.placement, report=report)
            return dataclasses.replace(result, placement=kept, options=request.options), 0
        return result, curve[-1][0] if curve else 0

    def optimise_by_islands(self, steps: int, islands: Islands) -> Curve:
        """See `Session.optimise` with islands."""
        if type(steps) is not int or steps < 1:
            raise InputError(f"a round of islands has one step or more, not {steps!r}")
        if self._state.request.options.training is not None:
            raise not_supported("islands of a session that trains", "optimise(steps=...) without islands")
        state, compiles = self._state, self._compiles
        with state.work_lock:
            graph, request, cancel = self._begin_search()
            plain = SetOptions(optimise_steps=0, optimise_seconds=None, optimise_rounds=()).apply(request)
            search = functools.partial(self._search_islands, graph, plain, cancel, steps, islands)
            options, curve = compiles.run_guarded(search)
            changed = options_changed(request.options, options)
            if changed:
                label = f"search for a faster placement, {len(options.optimise_rounds)} rounds of {steps} steps"
                self.attempt(SetOptions(**changed), label=label, source="search")
            return curve

    def _search_islands(
        self, graph: Graph, request: Request, cancel: threading.Event, steps: int, islands: Islands
    ) -> tuple[CompileOptions, Curve]:
        """The options of the lowering and the rounds that islands find, and the curve of both."""
        pipeline = self._state.pipeline
        lowered = search_lowering(pipeline, graph, request, self._compiles.clock(cancel), None, TRIALS)

        def search(options: CompileOptions, islands: Islands) -> tuple[CompileOptions, Curve]:
            asked = request.overrides, self.names_of
            cached = pipeline.cache is not None
            return search_islands(graph, pipeline.device, options, *asked, islands, steps, cancel, cached)

        options, curve = search(lowered, islands)
        if lowered == request.options:
            return options, curve
        start = search(request.options, Islands(1, 0))[1]
        if curve[-1][1] >= start[-1][1]:  # what was thought cheaper is not: islands of the lowering there was
            return search(request.options, islands)
        return options, (*start, *curve)

    def _curve(self) -> tuple[tuple[int, float], ...]:
        result = self._state.result
        report = result.placement.report if result is not None else None
        return report.curve if report is not None else ()

    @contextlib.contextmanager
    def transaction(self, label: str) -> Iterator[None]:
        """See `Session.transaction`."""
        with self._state.edit_lock:
            depth = self._state.history.begin()
        try:
            yield
        except BaseException:
            with self._state.edit_lock:
                self._state.history.roll_back(depth)
            self._on_change(f"{label} undone")
            raise
        with self._state.edit_lock:
            self._state.history.join(depth, label)
        self._on_change(label)

    def load_overrides(self, path: str | Path) -> tuple[Override, ...]:
        """See `Session.load_overrides`."""
        result = read_overrides(path)
        if result:
            self.apply(*result, label=f"overrides of {Path(path).name}", source="file")
        return result

    def gesture(self, text: str) -> None:
        """See `Session.gesture`."""
        action = parse_sentence(text)
        if action == "undo":
            self.undo()
        elif action == "redo":
            self.redo()
        else:
            assert isinstance(action, Command)
            self.apply(action, source="gesture")

    def undo(self) -> str:
        """See `Session.undo`."""
        with self._state.edit_lock:
            step = self._state.history.undo()
        if step is not None:
            self._on_change(f"undo {step.label}")
        return step.label if step is not None else ""

    def redo(self) -> str:
        """See `Session.redo`."""
        with self._state.edit_lock:
            step = self._state.history.redo()
        if step is not None:
            self._on_change(f"redo {step.label}")
        return step.label if step is not None else ""

    def looked_up(self, what: str) -> CompileResult | None:
        """See `Session.looked_up`."""
        with self._state.edit_lock:
            state = self._state.history.next(what)
            entry: CompileResult | None = self._state.results.get(state.key) if state is not None else None
        return entry

    def go_back(self, name: str) -> str:
        """See `Session.go_back`."""
        with self._state.edit_lock:
            history = self._state.history
            if history.state_of(name) is None:
                names = ", ".join(dict.fromkeys(("start", *history.marked, *history.notes)))
                raise InputError(f"no placement {name!r}; there are: {names}")
            step = history.go_back(name)
        if step is not None:
            self._on_change(step.label)
        return step.label if step is not None else ""

    @property
    def history(self) -> tuple[EditStep, ...]:
        """See `Session.history`."""
        return self._state.history.done

    @property
    def future(self) -> tuple[EditStep, ...]:
        """See `Session.future`."""
        return self._state.history.undone

    def _on_change(self, label: str) -> None:
        """After every change of the state: stop what runs, take a known result, tell."""
        if self._state.journal is not None:
            self._state.cancel.set()
            self._learn_names()
        with self._state.edit_lock:
            state = self._state.history.state
            self._state.cancel.set()
            self._state.error = None
            self._state.write_journal()
            entry: CompileResult | None = self._state.results.get(state.key)
            newly_stale = entry is None and not self._state.stale
            self._state.stale = self._state.stale or entry is None
        if entry is not None:
            self._compiles.show(state, entry)
        self._state.events.emit("edited", label)
        if newly_stale:
            self._state.events.emit("stale", True)

    def _before(self, commands: Sequence[Command]) -> None:
        """What the journal has to know before edits are made."""
        if self._state.journal is not None and not all(o.is_named for c in commands for o in c.overrides()):
            self._state.cancel.set()
            self._learn_names(commands, queues=True)

    def _learn_names(self, commands: Sequence[Command] = (), *, queues: bool = False) -> None:
        """Patterns and predicates are journaled by the names they match, and lowering tells which there are. Those made
        before new commands are asked about once, and in silence. queues: a compile tells of these, if none did yet."""
        new = [o for c in commands for o in c.overrides() if not o.is_named]
        older: list[Override] = []
        if not self._state.names:
            steps = [entry.step for entry in self._state.history.log if entry.step is not None]
            overrides = [o for step in steps for c in step.commands for o in c.overrides()]
            older = [o for o in (*self._state.history.first.overrides, *overrides) if not o.is_named]
        if not new and not older:
            return
        if queues and self._state.result is None and any(o.kind == "queue_channel" for o in (*new, *older)):
            with contextlib.suppress(TbudaError):
                self._compiles.compile()
        try:
            self._state.names = tuple(dict.fromkeys((*self._state.names, *self._all_names())))
        except TbudaError:
            if new:
                raise

    def _all_names(self) -> tuple[str, ...]:
        """Names that an override may address: of the lowered graph, and of ops that are fused into others as long as no
        override names them."""
        with self._state.work_lock:
            front = self._compiles.run_guarded(lambda: self._compiles.front(self._state.history.state))
        return (*front.lowered.nodes, *front.inner)

    @property
    def journal_path(self) -> Path | None:
        """See `Session.journal_path`."""
        return None if self._state.journal is None else self._state.journal.path

    @property
    def unedited(self) -> bool:
        """See `Session.unedited`."""
        return self._state.history.state == self._state.history.first

    def names_of(self, override: Override) -> tuple[str, ...]:
        """See `Session.names_of`."""
        if isinstance(override.target, tuple):
            return override.target
        if isinstance(override.target, str):
            return (override.target,)
        return self._state.matches(override, self._all_names())

    def save(self, path: str | Path) -> Path:
        """See `Session.save`."""
        journal = Journal(Path(path), self._state.header())
        self._learn_names(queues=True)
        with self._state.edit_lock:
            self._state.journal = journal
            journal.write(self._state.history, lambda override: self._state.matches(override, self._state.names))
        return Path(path)

    def to_python(self) -> str:
        """See `Session.to_python`."""
        result = self._state.result
        names = (
            []
            if result is None
            else list(dict.fromkeys([*result.placement.schedule, *result.lowered.nodes, *result.placement.queues]))
        )
        text = override_python if result is None else lambda o: named_python(o, names)
        options = self._state.request.options
        changes = options_changed(self._state.history.first.options, options)
        if options.precision:
            changes["precision"] = options.precision
        calls = SetOptions(**changes).python() + "\n" if changes else ""
        return calls + "".join(text(o) + "\n" for o in self._state.request.overrides)

    def checkpoint(self, name: str) -> None:
        """See `Session.checkpoint`."""
        if self._state.journal is not None:
            self._learn_names()
        with self._state.edit_lock:
            if not name or name == "now":
                raise InputError("a checkpoint needs a name other than 'now'")
            self._state.history.mark(name)
            self._state.write_journal()

    @property
    def checkpoints(self) -> tuple[str, ...]:
        """See `Session.checkpoints`."""
        return tuple(self._state.history.marked)
