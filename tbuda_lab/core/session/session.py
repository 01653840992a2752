"""The interactive face of the compiler: one model, one device, one current result. Views talk to nothing below it."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import STAGES, Clock, CompileResult
from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.errors import Cancelled, Diagnostic, InputError, TbudaError
from tbuda_lab.core.events import Events
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions, Override
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import gestures
from tbuda_lab.core.session.commands import Command, SetOptions, SetOverride, override_python
from tbuda_lab.core.session.diff import Diff, diff_results
from tbuda_lab.core.session.history import History, Step
from tbuda_lab.core.session.journal import Header, Journal, read_journal, replay
from tbuda_lab.core.session.legal import LegalTable, legal_table
from tbuda_lab.core.session.placing import Placed
from tbuda_lab.core.session.records import OverrideRecord, records_of, vetoed
from tbuda_lab.core.session.stages import Front, Kept, Stages
from tbuda_lab.core.session.state import State
from tbuda_lab.core.session.suggest import Suggestion, suggestions
from tbuda_lab.core.session.whatif import WhatIf, compare_placed
from tbuda_lab.core.session.why import Reasons, reasons_of
from tbuda_lab.core.verification import Comparison, compare

GRAPH_STAGES = ("traced", "passed", "lowered")
EVENTS = ("stage", "compiled", "run", "ran", "problem", "edited", "stale")
RESULTS_KEPT = 32

T = TypeVar("T")


def as_sample(inputs: Any) -> Any:
    """One sample as forward takes it: a tuple of positional inputs, or a mapping by argument name."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    return (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)


class Session:
    """Traces, compiles, runs, verifies and edits one model on one simulated device.

    model: a torch module (or a PyBuda module); sample_inputs: a tensor or a tuple of them, dim 0 the microbatch.
    keep_epochs: edits are placed into the epochs there are (`optimise` chooses all anew); False places the whole model
    anew after every edit. journal: a `*.buda.json` file to which every edit is written.

    `result` is the last good compile. After an edit it stays until the next one is done; `stale` is True meanwhile.

    Events (`on`): "stage"(name, fraction), "compiled"(result), "run"(done, total), "ran"(outputs),
    "problem"(diagnostic), "edited"(label) after every change of options or overrides, undo and redo included,
    "stale"(bool). Listeners run in the thread that works.
    """

    def __init__(
        self,
        model: Any,
        sample_inputs: Any,
        device: str | DeviceSpec = "wormhole_b0",
        options: CompileOptions | None = None,
        overrides: Sequence[Override] = (),
        name: str = "model",
        *,
        keep_epochs: bool = True,
        journal: str | Path | None = None,
    ) -> None:
        self.model = model
        self.sample_inputs = as_sample(sample_inputs)
        self.device = device if isinstance(device, DeviceSpec) else load_device(device)
        self.name = name
        self.rev = 0
        self.result: CompileResult | None = None
        self.stale = True
        self.timings: dict[str, float] = {}
        self.problems: list[Diagnostic] = []
        self.error: TbudaError | None = None
        first = tuple(overrides)
        self._history = History(State(options or CompileOptions(), first, first))
        self._stages = Stages(self.device, keep_epochs)
        self._results = Kept(RESULTS_KEPT)
        self._traced: Graph | None = None
        self._runner: Runner | None = None
        self._events = Events(*EVENTS)
        self._cancel = threading.Event()
        self._work = threading.RLock()  # held while stages run
        self._edit = threading.RLock()  # held for moments only
        self._worker: threading.Thread | None = None
        self._names: tuple[str, ...] = ()
        self._journal = None if journal is None else Journal(Path(journal), self._header())

    @classmethod
    def open(cls, path: str | Path, model: Any, sample_inputs: Any, **settings: Any) -> Session:
        """A session with the edits of a `*.buda.json` file, which goes on to be its journal. Nothing is compiled.

        settings: `keep_epochs`, `device` (instead of the file's). Raises `InputError` naming file, line and fault.
        """
        file = read_journal(Path(path))
        head = file.header
        device = settings.pop("device", None) or load_device(head.device, harvested_rows=head.harvested_rows)
        session = cls(model, sample_inputs, device, head.options, head.overrides, head.name, **settings)
        replay(session._history, file.actions)
        session._journal = Journal(Path(path), session._header())
        return session

    def _header(self) -> Header:
        first = self._history.first
        rows = tuple(sorted(self.device.harvested_rows))
        return Header(self.name, self.device.name, rows, first.options, first.overrides)

    # -- events and control ------------------------------------------------------------------------------------
    @property
    def stages(self) -> tuple[str, ...]:
        """Names of the stages in the order in which "stage" events report them."""
        return ("trace", *STAGES, "run")

    @property
    def options(self) -> CompileOptions:
        """The options of the next compile."""
        return self._history.state.options

    @property
    def overrides(self) -> tuple[Override, ...]:
        """The overrides of the next compile, in the order they were made."""
        return self._history.state.overrides

    def on(self, event: str, listener: Callable[..., None]) -> Callable[[], None]:
        """Add a listener; returns a function that removes it."""
        return self._events.on(event, listener)

    def cancel(self) -> None:
        """Stop a running compile or run at the next safe point; it raises `Cancelled`, the last result stays."""
        self._cancel.set()

    # -- stages ------------------------------------------------------------------------------------------------
    def trace(self) -> Graph:
        """The nD graph of the model; traced once."""
        with self._work:
            if self._traced is None:
                self._events.emit("stage", "trace", 0.0)
                start = time.perf_counter()
                self._traced = frontend.from_any(self.model, self.sample_inputs, name=self.name)
                self.timings["trace"] = time.perf_counter() - start
                self._events.emit("stage", "trace", 1.0)
            return self._traced

    def compile(self) -> CompileResult:
        """Compile with the current options and overrides, unless done already. Raises the stages' typed errors.

        Only what depends on what changed is done again. An edit made meanwhile by another thread stops it with
        `Cancelled`.
        """
        with self._work:
            with self._edit:
                if self.result is not None and not self.stale:
                    return self.result
                state = self._history.state
                self._cancel = cancel = threading.Event()
            return self._compile(state, cancel)

    def _compile(self, state: State, cancel: threading.Event) -> CompileResult:
        with self._work:
            graph = self._guarded(self.trace)
            clock = Clock(lambda stage, fraction: self._events.emit("stage", stage, fraction), cancel)
            result: CompileResult | None = self._results.get(state.key)
            if result is None:
                result = self._guarded(lambda: self._stages.compile(graph, state, clock))
                self._results.store(state.key, result)
            if not self._show(state, result):
                raise Cancelled("another edit came while this one was compiled")
            return result

    def _show(self, state: State, result: CompileResult) -> bool:
        """Make a result the current one, unless the state has moved on."""
        with self._edit:
            if state != self._history.state:
                return False
            self.timings = {k: v for k, v in self.timings.items() if k == "trace"} | result.timings
            self.result, self.stale, self.error = result, False, None
            self._runner = None
            self.rev += 1
            self.problems = list(result.diagnostics)
        self._events.emit("compiled", result)
        self._events.emit("stale", False)
        return True

    def compile_async(self) -> threading.Thread:
        """Compile in a thread and return it at once. A running one is cancelled; `result` stays until it is done.

        What it raises ends in `error` and `problems`, and is told by "problem" events.
        """
        with self._edit:
            self._cancel.set()
            self._cancel = cancel = threading.Event()
            self.error = None
            state = self._history.state

            def work() -> None:
                with contextlib.suppress(TbudaError):
                    self._compile(state, cancel)

            self._worker = threading.Thread(target=work, name="tbuda-compile", daemon=True)
            self._worker.start()
            return self._worker

    def wait(self, timeout: float | None = None) -> CompileResult:
        """Until the background compile is over; raises what it raised, or `TimeoutError` after `timeout` seconds."""
        worker = self._worker
        if worker is not None:
            worker.join(timeout)
            if worker.is_alive():
                raise TimeoutError(f"still at work after {timeout} s")
        if self.error is not None:
            raise self.error
        if self.result is None or self.stale:
            raise Cancelled("the compile was cancelled")
        return self.result

    def _guarded(self, work: Callable[[], T]) -> T:
        try:
            return work()
        except Cancelled:
            raise
        except TbudaError as error:
            self.error = error
            self.problems = list(error.diagnostics) or [
                Diagnostic("error", self.name, type(error).__name__, str(error))
            ]
            for problem in self.problems:
                self._events.emit("problem", problem)
            raise

    def graph(self, stage: str = "lowered") -> Graph:
        """The graph after a stage: "traced", "passed" or "lowered"."""
        if stage == "traced":
            return self.trace()
        if stage not in GRAPH_STAGES:
            raise KeyError(f"no stage {stage!r}; known: {', '.join(GRAPH_STAGES)}")
        with self._work:
            front = self._guarded(lambda: self._front(self._history.state))
        return front.passed if stage == "passed" else front.lowered

    def _front(self, state: State) -> Front:
        clock = Clock(lambda stage, fraction: self._events.emit("stage", stage, fraction), None)
        return self._stages.front(self.trace(), state.options, clock)

    def run(self, inputs: Sequence[Any] | None = None, mode: str = "golden") -> list[list[torch.Tensor]]:
        """Run samples on the simulated device (default: the sample inputs); outputs per sample, in order."""
        with self._work:
            result = self.compile()
            if self._runner is None or self._runner.mode != mode:
                self._runner = Runner(result, mode)
            runner, cancel = self._runner, self._cancel
            samples = [self.sample_inputs] if inputs is None else list(inputs)
            self._events.emit("stage", "run", 0.0)
            start = time.perf_counter()
            outputs = self._guarded(
                lambda: runner.run(
                    samples, progress=lambda done, total: self._events.emit("run", done, total), cancel=cancel
                )
            )
            self.timings["run"] = time.perf_counter() - start
            self._events.emit("stage", "run", 1.0)
            self._events.emit("ran", outputs)
            return list(outputs)

    def verify(self, inputs: Any = None, mode: str = "golden") -> list[Comparison]:
        """Run one sample on the device and in torch (float32, eager) and compare every output."""
        sample = self.sample_inputs if inputs is None else as_sample(inputs)
        got = self.run([sample], mode)[0]
        wanted = frontend.reference(self.model, sample)
        return [
            compare(f"output {i}", w.detach().float().numpy(), g.detach().float().numpy())
            for i, (w, g) in enumerate(zip(wanted, got, strict=True))
        ]

    # -- editing -----------------------------------------------------------------------------------------------
    def apply(self, *edits: Command | Override, label: str = "", source: str = "code") -> None:
        """Make edits, all of them one undo step; the next `compile` honours them. A running compile is cancelled.

        An `Override` is taken as it is. Patterns and predicates are resolved to names when they are journaled.
        """
        commands = tuple(e if isinstance(e, Command) else SetOverride(e) for e in edits)
        if commands:
            self._learn_names(commands)
            with self._edit:
                step = self._history.do(commands, label, source)
            self._changed(step.label)

    def configure(self, **changes: Any) -> None:
        """Change options by name (see `CompileOptions`); the next `compile` uses them."""
        self.apply(SetOptions(**changes))

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
        with self._edit:
            state = self._history.state
            self._cancel.set()
            self.error = None
            if self._journal is not None and not self._history.open:
                self._journal.write(self._history, self._resolve)
            found: CompileResult | None = self._results.get(state.key)
            newly_stale = found is None and not self.stale
            self.stale = self.stale or found is None
        self._events.emit("edited", label)
        if found is not None:
            self._show(state, found)
        elif newly_stale:
            self._events.emit("stale", True)

    def _learn_names(self, commands: Sequence[Command]) -> None:
        """Patterns and predicates are journaled by the names they match; lowering may have to tell which there are."""
        open_ended = [o for c in commands for o in c.overrides() if not isinstance(o.target, (str, tuple))]
        if self._journal is not None and open_ended and not self._names:
            self._cancel.set()
            self._names = tuple(node.name for node in self.graph("lowered"))

    def _resolve(self, override: Override) -> tuple[str, ...]:
        return tuple(override.matches(self._names))

    def save(self, path: str | Path) -> Path:
        """Write the edits as a `*.buda.json` file, and go on writing every edit to it."""
        journal = Journal(Path(path), self._header())
        if any(not isinstance(o.target, (str, tuple)) for o in (*self._header().overrides, *self.overrides)):
            self._names = tuple(node.name for node in self.graph("lowered"))
        with self._edit:
            self._journal = journal
            self._journal.write(self._history, self._resolve)
        return Path(path)

    def to_python(self) -> str:
        """The current overrides as calls of PyBuda's `config` module, one per line."""
        return "".join(override_python(o) + "\n" for o in self.overrides)

    # -- questions ---------------------------------------------------------------------------------------------
    @property
    def records(self) -> tuple[OverrideRecord, ...]:
        """For every override: what it asked, for how many ops, and what they got; after a failed compile, why not."""
        with self._edit:
            if self.error is not None:
                return vetoed(self.overrides, self.error)
            return records_of(self.overrides, self.result, pending=self.stale)

    def placed(self, state: State | None = None) -> Placed:
        """The placement of a state without queues; may place what is not placed yet."""
        with self._work:
            clock = Clock(None, None)
            return self._stages.placed(self.trace(), state or self._history.state, clock)[1]

    def legal(self, op: str) -> LegalTable:
        """Every shape an op could have: verdict, cycles, memory, and where it could stand. Raises `InputError`."""
        placed = self.placed()
        self._known(op, placed)
        state = self._history.state
        rest = tuple(o for o in state.overrides if not (o.kind == "op_size" and o.matches([op])))
        front = self._front(state)
        table = self._stages.free_table(front, state.options, rest, op)
        return legal_table(placed, op, table)

    def whatif(self, *edits: Command | Override) -> WhatIf:
        """What edits would do, without doing them. Raises what compiling them would raise."""
        state = self._history.state
        before = self.placed(state)
        for edit in edits:
            state = (edit if isinstance(edit, Command) else SetOverride(edit)).apply(state)
        return compare_placed(before, self.placed(state))

    def suggest(self, n: int = 10) -> list[Suggestion]:
        """The best single edits there are, by cycles saved over all epochs, each one checked by `whatif`."""
        return suggestions(self, n)

    def why(self, op: str) -> Reasons:
        """Why an op stands as it does. Raises `InputError` for a name that is not placed."""
        table = self.legal(op)
        return reasons_of(self.placed(), op, table)

    def _known(self, op: str, placed: Placed) -> None:
        if op not in placed.problem.number:
            raise InputError(f"{op!r} is not an op of the placed graph")

    # -- checkpoints -------------------------------------------------------------------------------------------
    def checkpoint(self, name: str) -> None:
        """Remember the current options and overrides under a name."""
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

    def diff(self, a: str, b: str = "now") -> Diff:
        """What differs between two checkpoints ("now": the current state); compiles what is not compiled yet."""
        with self._work:
            return diff_results(self._result_of(a), self._result_of(b), a, b)

    def _result_of(self, name: str) -> CompileResult:
        if name == "now":
            return self.compile()
        if name not in self._history.marked:
            known = ", ".join(self._history.marked) or "none"
            raise InputError(f"no checkpoint {name!r}; there are: {known}")
        state = self._history.marked[name]
        return self._results.get_or(state.key, lambda: self._stages.compile(self.trace(), state, Clock(None, None)))
