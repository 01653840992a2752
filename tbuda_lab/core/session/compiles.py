"""The compiles of a session: stage by stage, in the background, of states that are only looked at."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, overload

import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.compiler import Clock, CompileResult, Request
from tbuda_lab.core.compiler.pipeline import FrontEndResult
from tbuda_lab.core.epochsim import BatchTime, batch_time
from tbuda_lab.core.errors import Cancelled, Diagnostic, InputError, TbudaError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
from tbuda_lab.core.run_control import no_collections, wait_for
from tbuda_lab.core.session.command import Command
from tbuda_lab.core.session.commands import SetOptions, SetOverride
from tbuda_lab.core.session.state import SessionState
from tbuda_lab.core.session.whatif import WhatIf, compare_placed, time_of

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
    """What a session compiles and places: its current request, and any other that is only looked at. See `Session`."""

    def __init__(self, state: SessionState) -> None:
        self._state = state
        self.on_current: Callable[[Request, CompileResult], None] = lambda state, result: None
        """Hears of every compile that is the current one, with the work lock held."""

    def clock(self, cancel: threading.Event | None) -> Clock:
        """A clock that emits the events of stages."""
        emit = self._state.events.emit
        return Clock(
            lambda stage, fraction: emit("stage", stage, fraction), cancel, lambda *detail: emit("detail", *detail)
        )

    def trace(self, cancel: threading.Event | None = None) -> Graph:
        """See `Session.trace`. Raises `Cancelled` once `cancel` is set; the next one begins anew."""
        state = self._state
        with state.work_lock, no_collections():
            if state.traced is None:
                self._state.events.emit("stage", "trace", 0.0)
                start = time.perf_counter()
                clock = self.clock(cancel)
                state.traced = frontend.from_any(
                    state.model,
                    state.sample_inputs,
                    name=state.name,
                    progress=lambda text: clock.stop_or_tell("trace", text),
                )
                state.traced_contents = state.model, frontend.contents_of(state.model)
                self._state.timings["trace"] = time.perf_counter() - start
                self._state.events.emit("stage", "trace", 1.0)
            return state.traced

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
            self._follow_model()
            with self._state.edit_lock:
                state, done = self._state.request, self._state.result
                if self._state.stale:
                    done = None
                if done is None:
                    self._state.cancel = cancel = threading.Event()
                    self._state.stopped = False
            if done is not None:
                self.on_current(state, done)
                return done
            return self.compile_request(state, cancel)

    def _follow_model(self) -> None:
        """Forget the trace of a model whose weights, buffers or attributes were changed since: what runs is what the
        model is now, as on a `TTDevice`. A session that trains keeps weights of its own."""
        state = self._state
        if state.traced is None or state.traced_contents is None or state.modules is not None:
            return
        model, contents = state.traced_contents
        if model is not state.model or contents == frontend.contents_of(model):
            return
        state.forget_trace()
        state.events.emit("stale", True)

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
        return None if self._state.stale else self._state.result

    @property
    def stage(self) -> str:
        """See `Session.stage`."""
        with self._state.edit_lock:
            if self._state.result is not None and not self._state.stale:
                return "ran" if self._state.ran is self._state.result else "netlisted"
            if self._state.traced is None:
                return "empty"
            return self._state.pipeline.last_known_stage(self._state.history.state) or "traced"

    def first_placement(self) -> PlacedOps | None:
        """See `Session.first_placement`."""
        with self._state.work_lock, no_collections():
            state, pipeline = self._state.history.state, self._state.pipeline
            if self._state.result is not None or state.options.training is not None:
                return None
            with self._state.edit_lock:
                self._state.cancel = cancel = threading.Event()
            graph = self.run_guarded(lambda: self.trace(cancel))
            emit = self._state.events.emit

            def on_stage(stage: str, fraction: float) -> None:
                if stage == "passes":  # the compile takes them over and does not tell of them again
                    emit("stage", stage, fraction)

            clock = Clock(on_stage, cancel, lambda _stage, text: emit("detail", "place", f"a first placement: {text}"))
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
            self.on_current(state, result)
            return result

    def show(self, state: Request, result: CompileResult) -> bool:
        """Make a result the current one, unless the state has moved on."""
        with self._state.edit_lock:
            if state != self._state.history.state:
                return False
            self._state.timings = {k: v for k, v in self._state.timings.items() if k == "trace"} | result.timings
            self._state.result, self._state.stale, self._state.error = result, False, None
            self._state.runner = None
            self._state.rev += 1
            self._state.problems = list(result.diagnostics)
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
            self._state.error = None
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
                if self._state.error is not None:
                    raise self._state.error
                if self._state.result is not None and not self._state.stale:
                    return self._state.result
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
            self._state.error = error
            self._state.problems = list(error.diagnostics) or [
                Diagnostic("error", self._state.name, type(error).__name__, str(error))
            ]
            for problem in self._state.problems:
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

    # -- placements ------------------------------------------------------------------------------------------------
    @property
    def request(self) -> Request:
        """What the next compile is asked for."""
        return self._state.request

    def placed(self, state: Request | None = None, cancel: threading.Event | None = None) -> PlacedOps:
        """See `Session.placed`."""
        with self._state.work_lock:
            return self._state.pipeline.place(self.trace(), state or self._state.request, Clock(None, cancel))[1]

    def placed_after(self, *edits: Command, cancel: threading.Event | None = None) -> PlacedOps:
        """The placement of the current state with edits made to it; nothing is changed."""
        return self.placed(self.state_after(*edits), cancel)

    def state_after(self, *edits: Command | Override) -> Request:
        """The current state with edits made to it, as `placed` and `preview` take it; nothing is done."""
        state = self._state.request
        for edit in edits:
            state = (edit if isinstance(edit, Command) else SetOverride(edit)).apply(state)
        return state

    def whatif(self, *edits: Command | Override, queues: bool = True, cancel: threading.Event | None = None) -> WhatIf:
        """See `Session.whatif`."""
        return self.whatif_of(self.state_after(*edits), queues, cancel)

    @no_collections()
    def whatif_of(self, state: Request, queues: bool = True, cancel: threading.Event | None = None) -> WhatIf:
        """What `whatif` answers for the edits that lead to a state."""
        return compare_placed(self.placed(cancel=cancel), self.placed(state, cancel), queues=queues)

    def free_table(self, op: str, kinds: Sequence[str], *extra: Override) -> OpModels:
        """The candidates of an op as if no override of these kinds addressed it, and as if others did."""
        state = self._state.request
        rest = tuple(o for o in state.overrides if not (o.kind in kinds and o.matches([op])))
        return self._state.pipeline.free_table(self.front(state), state.options, (*rest, *extra), op)

    def time(self, result: CompileResult | None = None) -> BatchTime:
        """See `Session.time`."""
        timed = self.compile() if result is None else result
        with contextlib.suppress(TbudaError):
            placed = self.placed()
            if placed.complete and placed.placement() is timed.placement:
                return time_of(placed)
        return batch_time(timed, timed.options.microbatch)

    def front(self, state: Request) -> FrontEndResult:
        """The graphs of a state behind passes and lowering."""
        clock = self.clock(None)
        return self._state.pipeline.front(self.trace(), state, clock)
