"""The compiles of a session: stage by stage, in the background, of states that are only looked at."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar, overload

import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import Clock, CompileResult, Request
from tbuda_lab.core.compiler.pipeline import FrontEndResult
from tbuda_lab.core.errors import Cancelled, Diagnostic, InputError, TbudaError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
from tbuda_lab.core.run_control import no_collections, wait_for
from tbuda_lab.core.session.commands import SetOptions

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session
    from tbuda_lab.core.session.state import SessionState

GRAPH_STAGES = ("traced", "passed", "lowered")
REACHED = ("empty", "traced", "passed", "lowered", "balanced", "placed", "netlisted", "ran")
"""How far a session has come; passes and lowering are done together."""

FIRST = {"enable_auto_fusing": False, "enable_fork_join_buffering": False, "schedule_swaps": 0}
"""Options of a placement that is soon there: no epochs are chosen to decide on fusing, none repaired, no ops swapped.
It is legal, and about twice as slow as what the search comes to."""
FIRST_NODES = 100
"""Nodes of a traced graph from which on a first placement is worth its while: smaller ones are placed as soon."""

T = TypeVar("T")


def as_sample(inputs: Any) -> Any:
    """One sample as forward takes it: a tuple of positional inputs, or a mapping by argument name. Raises `InputError`
    for what is neither these nor a tensor."""
    if isinstance(inputs, Mapping):
        return dict(inputs)
    if isinstance(inputs, torch.Tensor):
        return (inputs,)
    if not isinstance(inputs, Iterable) or isinstance(inputs, str | bytes):
        kind = type(inputs).__name__
        raise InputError(f"sample inputs are a tensor, several, or a mapping by argument name, not {kind}")
    return tuple(inputs)


class Compiles:
    """What a session compiles. See `Session`."""

    def __init__(self, session: Session, state: SessionState) -> None:
        self._session, self._state = session, state

    def clock(self, cancel: threading.Event | None) -> Clock:
        """A clock that emits the events of stages."""
        emit = self._state.events.emit
        return Clock(
            lambda stage, fraction: emit("stage", stage, fraction), cancel, lambda *detail: emit("detail", *detail)
        )

    def trace(self, cancel: threading.Event | None = None) -> Graph:
        """See `Session.trace`. Raises `Cancelled` once `cancel` is set; the next one begins anew."""
        with self._state.work_lock, no_collections():
            if self._state.traced is None:
                self._state.events.emit("stage", "trace", 0.0)
                start = time.perf_counter()
                session, clock = self._session, self.clock(cancel)
                self._state.traced = frontend.from_any(
                    session.model,
                    session.sample_inputs,
                    name=session.name,
                    progress=lambda text: clock.stop_or_tell("trace", text),
                )
                self._session.timings["trace"] = time.perf_counter() - start
                self._state.events.emit("stage", "trace", 1.0)
            return self._state.traced

    @overload
    def compile(self) -> CompileResult: ...

    @overload
    def compile(self, upto: str) -> CompileResult | None: ...

    def compile(self, upto: str = "netlisted") -> CompileResult | None:
        """See `Session.compile`."""
        if upto not in REACHED[1:7]:
            raise InputError(f"{upto!r} is not a state of a compile; states: {', '.join(REACHED[1:7])}")
        with self._state.work_lock:
            if upto != "netlisted":
                return self._part(upto)
            with self._state.edit_lock:
                state, done = self._state.history.state, self._session.result
                if self._session.stale:
                    done = None
                if done is None:
                    self._state.cancel = cancel = threading.Event()
                    self._state.stopped = False
            if done is not None:
                self._session.placement_table.note(state, done)
                return done
            return self.compile_request(state, cancel)

    def _part(self, upto: str) -> CompileResult | None:
        state = self._state.history.state
        clock = self.clock(None)
        graph = self.run_guarded(self.trace)
        if upto in ("passed", "lowered", "balanced"):
            front = self.run_guarded(lambda: self.front(state))
            if upto == "balanced":
                self.run_guarded(lambda: self._state.pipeline.models(front, state))
        elif upto == "placed":
            self.run_guarded(lambda: self._state.pipeline.place(graph, state, clock))
        return None if self._session.stale else self._session.result

    @property
    def stage(self) -> str:
        """See `Session.stage`."""
        with self._state.edit_lock:
            if self._session.result is not None and not self._session.stale:
                return "ran" if self._state.ran is self._session.result else "netlisted"
            if self._state.traced is None:
                return "empty"
            return self._state.pipeline.last_known_stage(self._state.history.state) or "traced"

    def first_placement(self) -> PlacedOps | None:
        """See `Session.first_placement`."""
        with self._state.work_lock, no_collections():
            state, pipeline = self._state.history.state, self._state.pipeline
            if self._session.result is not None or state.options.training is not None:
                return None
            with self._state.edit_lock:
                self._state.cancel = cancel = threading.Event()
            graph = self.run_guarded(lambda: self.trace(cancel))
            emit = self._state.events.emit
            clock = Clock(None, cancel, lambda _stage, text: emit("detail", "place", f"a first placement: {text}"))
            if len(graph.nodes) < FIRST_NODES or pipeline.is_known(graph, state, clock):
                return None
            return pipeline.place(graph, SetOptions(**FIRST).apply(state), clock)[1]

    def compile_request(self, state: Request, cancel: threading.Event) -> CompileResult:
        """Traces and compiles a state of the session, or takes its result from before, and shows it. Raises what the
        stages raise, and `Cancelled` where the state has moved on."""
        with self._state.work_lock, no_collections():
            graph = self.run_guarded(lambda: self.trace(cancel))
            clock = self.clock(cancel)
            result: CompileResult | None = self._state.results.get(state.key)
            if result is None:
                result = self.run_guarded(lambda: self._state.pipeline.compile(graph, state, clock))
                self._state.results.store(state.key, result)
            if not self.show(state, result):
                raise Cancelled("another edit came while this one was compiled")
            self._session.placement_table.note(state, result)
            return result

    def show(self, state: Request, result: CompileResult) -> bool:
        """Make a result the current one, unless the state has moved on."""
        with self._state.edit_lock:
            if state != self._state.history.state:
                return False
            self._session.timings = {k: v for k, v in self._session.timings.items() if k == "trace"} | result.timings
            self._session.result, self._session.stale, self._session.error = result, False, None
            self._state.runner = None
            self._session.rev += 1
            self._session.problems = list(result.diagnostics)
        self._state.events.emit("compiled", result)
        self._state.events.emit("stale", False)
        return True

    def preview(self, state: Request, cancel: threading.Event | None = None) -> CompileResult:
        """See `Session.preview`."""
        with self._state.work_lock:
            result: CompileResult | None = self._state.results.get(state.key)
            if result is None:
                with no_collections():
                    result = self._state.pipeline.compile(self.trace(), state, Clock(None, cancel))
                self._state.results.store(state.key, result)
            return result

    def compile_async(self) -> threading.Thread:
        """See `Session.compile_async`."""
        with self._state.edit_lock:
            self._state.cancel.set()
            self._state.cancel = cancel = threading.Event()
            self._state.stopped, self._state.crash = False, None
            self._session.error = None
            state = self._state.history.state

            def work() -> None:
                try:
                    with contextlib.suppress(TbudaError):
                        self.compile_request(state, cancel)
                except BaseException as error:
                    self._state.crash = error
                    raise

            self._state.worker = threading.Thread(target=work, name="tbuda-compile", daemon=True)
            self._state.worker.start()
            return self._state.worker

    def wait(self, timeout: float | None = None) -> CompileResult:
        """See `Session.wait`."""
        end = None if timeout is None else time.monotonic() + timeout
        while True:
            wait_for(self._state.worker, None if end is None else max(0.0, end - time.monotonic()))
            with self._state.edit_lock:
                if self._session.error is not None:
                    raise self._session.error
                if self._session.result is not None and not self._session.stale:
                    return self._session.result
                if self._state.crash is not None:
                    raise self._state.crash
                if self._state.stopped:
                    raise Cancelled("the compile was cancelled")
                if self._state.worker is None or not self._state.worker.is_alive():
                    self.compile_async()

    def run_guarded(self, work: Callable[[], T]) -> T:
        """Does some work; an error becomes the session's error, and its findings the session's problems, before it goes
        on to the caller."""
        try:
            return work()
        except Cancelled:
            self._state.events.emit("cancelled")
            raise
        except TbudaError as error:
            self._session.error = error
            self._session.problems = list(error.diagnostics) or [
                Diagnostic("error", self._session.name, type(error).__name__, str(error))
            ]
            for problem in self._session.problems:
                self._state.events.emit("problem", problem)
            raise

    def graph(self, stage: str = "lowered") -> Graph:
        """See `Session.graph`."""
        if stage == "traced":
            return self.trace()
        if stage not in GRAPH_STAGES:
            raise KeyError(f"no stage {stage!r}; known: {', '.join(GRAPH_STAGES)}")
        with self._state.work_lock:
            front = self.run_guarded(lambda: self.front(self._state.history.state))
        return front.passed if stage == "passed" else front.lowered

    def front(self, state: Request) -> FrontEndResult:
        clock = self.clock(None)
        return self._state.pipeline.front(self.trace(), state, clock)
