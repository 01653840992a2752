"""The compiling half of a session: stages, events, the background compile, runs."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar, overload

import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import STAGES, Clock, CompileResult, Request
from tbuda_lab.core.compiler.pipeline import Front, LruCache, Pipeline
from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.errors import Cancelled, Diagnostic, InputError, TbudaError
from tbuda_lab.core.events import Events
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override, refuse_malformed
from tbuda_lab.core.runcontrol import RunControl
from tbuda_lab.core.runner import Runner, filled
from tbuda_lab.core.session import living
from tbuda_lab.core.session.frames import Frames
from tbuda_lab.core.session.history import History
from tbuda_lab.core.session.journal import Header, Journal, read_journal, replay
from tbuda_lab.core.session.live import LiveRun
from tbuda_lab.core.session.opchecks import OpCheck, OpWatch
from tbuda_lab.core.session.quiet import quiet
from tbuda_lab.core.verification import Comparison, compare

GRAPH_STAGES = ("traced", "passed", "lowered")
EVENTS = ("stage", "compiled", "run", "ran", "problem", "edited", "stale", "live", "checked", "verified", "trained")
REACHED = ("empty", "traced", "passed", "lowered", "balanced", "placed", "netlisted", "ran")
"""How far a session has come; passes and lowering are done together."""

RESULTS_KEPT = 32

T = TypeVar("T")


def as_sample(inputs: Any) -> Any:
    """One sample as forward takes it: a tuple of positional inputs, or a mapping by argument name."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    return (inputs,) if isinstance(inputs, torch.Tensor) else tuple(inputs)


class Working:
    """One model on one device, its state, and the compile of that state. See `Session`."""

    def __init__(
        self,
        model: Any,
        sample_inputs: Any = None,
        device: str | DeviceSpec = "wormhole_b0",
        options: CompileOptions | None = None,
        overrides: Sequence[Override] = (),
        name: str = "model",
        *,
        keep_epochs: bool = True,
        journal: str | Path | None = None,
    ) -> None:
        self.model = model = frontend.opened(model, name)
        if sample_inputs is None and hasattr(model, "sample_inputs"):
            sample_inputs = model.sample_inputs()
        self.sample_inputs = as_sample(sample_inputs)
        self.device = device if isinstance(device, DeviceSpec) else load_device(device)
        self.name = name
        self.source: tuple[str, ...] = ()  # words of a command line that open the same session, if there is one
        self.rev = 0
        self.result: CompileResult | None = None
        self.stale = True
        self.timings: dict[str, float] = {}
        self.problems: list[Diagnostic] = []
        self.error: TbudaError | None = None
        first = tuple(overrides)
        refuse_malformed(first)
        self._history = History(Request(options or CompileOptions(), first, first))
        self._pipeline = Pipeline(self.device, keep_epochs)
        self._results = LruCache(RESULTS_KEPT)
        self.frames = Frames(self)
        self._traced: Graph | None = None
        self._runner: Runner | None = None
        self._ran: CompileResult | None = None
        self._events = Events(*EVENTS)
        self.control = RunControl()
        self._cancel = threading.Event()
        self._work = threading.RLock()  # held while stages run
        self._edit = threading.RLock()  # held for moments only
        self._worker: threading.Thread | None = None
        self._names: tuple[str, ...] = ()
        self._journal = None if journal is None else Journal(Path(journal), self._header())
        if journal is not None and Path(journal).exists():  # a cell that is run again goes on where it was
            replay(self._history, read_journal(Path(journal)).actions)
        living.note(self)

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
    def work(self) -> dict[str, int]:
        """How often each kind of work was done so far: "passes", "lower", "table" (candidates of one op), "place" (the
        whole model), "edit" and "regraph" (a placement carried over to edits, to an edited graph), "epoch" (epochs that
        those made anew)."""
        return dict(self._pipeline.runs)

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

    @overload
    def compile(self) -> CompileResult: ...
    @overload
    def compile(self, upto: str) -> CompileResult | None: ...
    def compile(self, upto: str = "netlisted") -> CompileResult | None:
        """Compile with the current options and overrides, unless done already. Raises the stages' typed errors.

        Only what depends on what changed is done again. An edit made meanwhile by another thread stops it with
        `Cancelled`. upto: one of `REACHED` to stop there ("placed": every op has its place, queues have no addresses
        yet); the result is then None unless there is a current one.
        """
        if upto not in REACHED[1:7]:
            raise InputError(f"nothing is {upto!r}; there are {', '.join(REACHED[1:7])}")
        with self._work:
            if upto != "netlisted":
                return self._part(upto)
            with self._edit:
                if self.result is not None and not self.stale:
                    return self.result
                state = self._history.state
                self._cancel = cancel = threading.Event()
            return self._compile(state, cancel)

    def _part(self, upto: str) -> CompileResult | None:
        state = self._history.state
        clock = Clock(lambda stage, fraction: self._events.emit("stage", stage, fraction), None)
        graph = self._guarded(self.trace)
        if upto in ("passed", "lowered", "balanced"):
            front = self._guarded(lambda: self._front(state))
            if upto == "balanced":
                self._guarded(lambda: self._pipeline.models(front, state.options, state.overrides))
        elif upto == "placed":
            self._guarded(lambda: self._pipeline.placed(graph, state, clock))
        return None if self.stale else self.result

    @property
    def stage(self) -> str:
        """How far the current options and overrides have come: one of `REACHED`."""
        with self._edit:
            if self.result is not None and not self.stale:
                return "ran" if self._ran is self.result else "netlisted"
            if self._traced is None:
                return "empty"
            return self._pipeline.reached(self._history.state) or "traced"

    def _compile(self, state: Request, cancel: threading.Event) -> CompileResult:
        with self._work:
            graph = self._guarded(self.trace)
            clock = Clock(lambda stage, fraction: self._events.emit("stage", stage, fraction), cancel)
            result: CompileResult | None = self._results.get(state.key)
            with quiet() if self.result is not None else contextlib.nullcontext():
                if result is None:
                    result = self._guarded(lambda: self._pipeline.compile(graph, state, clock))
                    self._results.store(state.key, result)
                if not self._show(state, result):
                    raise Cancelled("another edit came while this one was compiled")
            return result

    def _show(self, state: Request, result: CompileResult) -> bool:
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

    def preview(self, state: Request, cancel: threading.Event | None = None) -> CompileResult:
        """The result of a state that is not made (see `temporal.state_after`); the current one stays what it is.

        It is kept like any other, so that making those edits afterwards is a lookup. Raises what compiling raises, and
        `Cancelled` once `cancel` is set.
        """
        with self._work:
            result: CompileResult | None = self._results.get(state.key)
            if result is None:
                with quiet():
                    result = self._pipeline.compile(self.trace(), state, Clock(None, cancel))
                self._results.store(state.key, result)
            return result

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

    def _front(self, state: Request) -> Front:
        clock = Clock(lambda stage, fraction: self._events.emit("stage", stage, fraction), None)
        return self._pipeline.front(self.trace(), state.options, clock, state.overrides)

    def run(
        self, inputs: Sequence[Any] | None = None, mode: str = "golden", *, break_below: float | None = None
    ) -> list[list[torch.Tensor]]:
        """Run samples on the simulated device (default: the sample inputs, repeated until they fill a microbatch);
        outputs per sample, in order.

        `control` pauses and steps it, from another thread; "live" events tell how it goes. break_below: compare every
        op with torch as it comes, for the first sample, and pause behind the first one that correlates less; a
        "checked" event then tells what was compared (and another one at the end), `control.resume()` goes on.
        """
        with self._work:
            with self._edit:
                if self._cancel.is_set() and not self.stale:
                    self._cancel = threading.Event()  # it was meant for the work before
            result = self.compile()
            if self._runner is None or self._runner.mode != mode:
                self._runner = Runner(result, mode)
            runner, cancel = self._runner, self._cancel
            self._runner = None  # one that is stopped midway has queues half full
            if inputs is not None and not isinstance(inputs, Iterable):
                raise InputError(f"run takes a list of samples, not {type(inputs).__name__}")
            given = [self.sample_inputs] if inputs is None else list(inputs)
            samples = self._guarded(lambda: filled(result, given)) if inputs is None else given
            watch: OpWatch | None = None
            if break_below is not None and samples:

                def failed(_: OpCheck) -> None:
                    self.control.pause()
                    self._events.emit("checked", watch.checks if watch is not None else None)

                watch = OpWatch(result, samples[0], break_below, failed)
                runner.executor.on_op = watch.take
            self._events.emit("stage", "run", 0.0)
            start = time.perf_counter()
            try:
                outputs = self._guarded(
                    lambda: runner.run(
                        samples,
                        lambda done, total: self._events.emit("run", done, total),
                        cancel,
                        self.control,
                        LiveRun(result, self.control, lambda step: self._events.emit("live", step)),
                    )
                )
            finally:
                runner.executor.on_op = None
            if watch is not None:
                self._events.emit("checked", watch.checks)
            if self.result is result:
                self._runner = runner
            self._ran = result
            self.timings["run"] = time.perf_counter() - start
            self._events.emit("stage", "run", 1.0)
            self._events.emit("ran", outputs)
            return list(outputs[: len(given)])

    def verify(
        self, inputs: Any = None, mode: str = "golden", *, break_below: float | None = None
    ) -> list[Comparison]:
        """Run one sample on the device (repeated until it fills a microbatch) and in torch (float32, eager) and compare
        every output. break_below: see `run`.
        """
        sample = self.sample_inputs if inputs is None else as_sample(inputs)
        samples = None if inputs is None else filled(self.compile(), [sample])
        got = self.run(samples, mode, break_below=break_below)[0]
        wanted = frontend.reference(self.model, sample)
        found = [
            compare(f"output {i}", w.detach().float().numpy(), g.detach().float().numpy())
            for i, (w, g) in enumerate(zip(wanted, got, strict=True))
        ]
        self._events.emit("verified", found)
        return found
