"""Runs and traces for pages: progress, pause and steps, every op against torch; traces are simulated in a thread when a
view asks for one, then the view asks for the tiles it shows."""

from __future__ import annotations

import contextlib
import threading
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tbuda_lab.core.epochsim import EpochTrace, Trace
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frames import Frame, fills_frame, flows_frame, moment_frame, slice_frame, tile_frame, trace_frame
from tbuda_lab.core.frames.frame import Strings
from tbuda_lab.core.frames.measured_frame import measured_frame
from tbuda_lab.core.frames.run_frames import checks_frame, live_frame, queues_frame, tensor_frame
from tbuda_lab.core.run_control import wait_for
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.find_error import ErrorReport
from tbuda_lab.core.session.op_checks import OpChecks
from tbuda_lab.core.session.runs import LiveStep
from tbuda_lab.core.session.training import TrainingProgress, TrainingStep
from tbuda_lab.widgets.protocol import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

TRAINING_INTERVAL = 0.5
"""Seconds between two reports of training; a step of a small model takes milliseconds."""
_TENSOR = 1 << 16  # tiles of a tensor that are sent at most


class RunController:
    """Of one hub: publishes the frames of a run, and what is known of the ops from the last check."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self.checks: OpChecks | None = None
        self._rev = -1
        self._queues: tuple[str, ...] = ()
        self._timeline: EpochTrace | None = None
        self._number: dict[str, int] = {}
        self._computing: threading.Thread | None = None
        self.training = False
        self._training_reported = 0.0
        hub.session.on("live", self._live)
        hub.session.on("training", self._trains)
        hub.session.on("checked", self._on_checks)
        hub.session.on("compiled", lambda _: self._discard_results())
        if isinstance(hub.session, Session):
            hub.session.on("measured", lambda overlay: hub.publish([measured_frame(overlay)]))
            hub.session.on("compiled", lambda _: self._lay_over())
            self._lay_over()  # it was loaded before anybody looked

    def _lay_over(self) -> None:
        """The measured run over the new placement."""
        overlay = self._hub.session.measured
        if overlay is not None:
            self._hub.publish([measured_frame(overlay)])

    def _live(self, step: LiveStep) -> None:
        hub, frames = self._hub, []
        if step.queues != self._queues:
            self._queues = step.queues
            frames.append(queues_frame(step))
        if self._timeline is None and self._computing is None and hub.has_views:
            self._computing = threading.Thread(target=self._simulate, name="tbuda-live", daemon=True)
            self._computing.start()
        stalled: list[str] = []
        cycle = None
        if self._timeline is not None:
            stalled = [s.fork for s in self._timeline.stalls if s.critical and s.epoch == step.epoch]
            at = self._number.get(step.op)
            cycle = None if at is None else int(self._timeline.end[at, 0])
        hub.publish([*frames, live_frame(step, stalled, cycle)])
        if not step.running:
            hub.run_ended(complete=step.input >= step.total)

    def _trains(self, progress: TrainingProgress) -> None:
        """Tell how training goes: at once where it stands or ends, else at most once in `TRAINING_INTERVAL`."""
        hub = self._hub
        if progress.running and not self.training and not hub.busy:  # a call in a cell
            hub.board.begin("run")
        self.training = progress.running
        now = time.monotonic()
        if progress.running and not progress.paused and now - self._training_reported < TRAINING_INTERVAL:
            return
        self._training_reported = now
        if progress.running:
            hub.board.step("run", min(0.999, progress.done / progress.total) if progress.total else 0.5)
            hub.board.text = training_text(progress)
        elif not hub.busy:
            hub.board.end(cancelled=progress.done < progress.total)
        hub.publish([training_frame(hub.session.training_steps, progress)])
        hub.tell_all(hub.status())

    def _simulate(self) -> None:
        """One input in time, beside the run: whence stalls and the cycle come."""
        session = self._hub.session
        rev = session.rev
        try:
            timeline = session.timeline(1)
        except TbudaError:  # the run goes on without it
            return
        if session.rev == rev:
            self._number = {name: i for i, name in enumerate(timeline.levels.names)}
            self._timeline = timeline

    def _on_checks(self, checks: OpChecks) -> None:
        self.checks = checks
        self._hub.publish([checks_frame(checks)])

    def _discard_results(self) -> None:
        """What was run and compared belongs to another placement."""
        self._timeline = self._computing = None
        if self._hub.frame("errors") is not None:
            self._hub.publish([Frame("errors", {}, {})])
        if self.checks is not None:
            self.checks = None
            self._hub.publish([checks_frame(OpChecks((), (), {}))])


def training_text(progress: TrainingProgress) -> str:
    """Step, loss and learning rate in a line."""
    of = f" of {progress.total}" if progress.total else ""
    last = progress.last
    values = "" if last is None else f": loss {last.loss:.4g}, learning rate {last.learning_rate:.4g}"
    return f"{'Paused after training step' if progress.paused else 'Training step'} {progress.done}{of}{values}"


def training_frame(steps: Sequence[TrainingStep], progress: TrainingProgress) -> Frame:
    """Columns: step, loss (the mean over the batch), learning_rate. meta: running, paused, done and total of the call
    that trains."""
    columns = {
        "step": np.array([s.step for s in steps], dtype="<u4"),
        "loss": np.array([s.loss for s in steps], dtype="<f8"),
        "learning_rate": np.array([s.learning_rate for s in steps], dtype="<f8"),
    }
    meta = {
        "running": progress.running,
        "paused": progress.paused,
        "done": progress.done,
        "total": progress.total,
    }
    return Frame("training", meta, columns)


def errors_frame(report: ErrorReport) -> Frame:
    """What a search for the wrong op found. `error_*`, one row per op of the run: op, relative L2 error for its inputs
    as they came (`isolated`) and against the reference (`accumulated`), what its format explains (`expected`), pcc.
    meta: text (the report in a sentence), stage ("" where all are right), op, location, tile, error (of the outputs),
    costs: [[op, format, share of the error, format instead], ...], largest first."""
    strings = Strings()
    ops = report.ops
    columns = {
        "error_op": strings.column(o.op for o in ops),
        "error_isolated": np.array([o.isolated.relative_l2 for o in ops], dtype="<f8"),
        "error_accumulated": np.array([o.accumulated.relative_l2 for o in ops], dtype="<f8"),
        "error_expected": np.array([o.expected for o in ops], dtype="<f8"),
        "error_pcc": np.array([o.accumulated.pcc for o in ops], dtype="<f8"),
    }
    meta = {
        "text": str(report),
        "stage": report.stage,
        "op": report.op,
        "location": report.location,
        "tile": None if report.tile is None else list(report.tile),
        "error": report.error,
        "costs": [[c.op, c.df, c.share, c.instead] for c in report.costs],
    }
    return Frame("errors", meta, columns, strings.table)


@answers("pause")
def _pause(hub: Hub, _view: Listener, _content: Mapping[str, Any]) -> None:
    if hub.busy or (hub.run_controller is not None and hub.run_controller.training):
        hub.session.control.pause()


@answers("resume")
def _resume(hub: Hub, _view: Listener, _content: Mapping[str, Any]) -> None:
    hub.session.control.resume()


@answers("step")
def _step(hub: Hub, _view: Listener, content: Mapping[str, Any]) -> None:
    """of: "op", "epoch" or "input". Begins a run where there is none."""
    control = hub.session.control
    if content.get("of") == "input":
        control.step_input()
    elif content.get("of") == "op":
        control.step_op()
    elif content.get("of") == "epoch":
        control.step_epoch()
    else:
        return
    if not hub.busy and not (hub.run_controller is not None and hub.run_controller.training):
        hub.start(verify=False)


@answers("break_on_failure")
def _break_on_failure(hub: Hub, _view: Listener, content: Mapping[str, Any]) -> None:
    """on: whether runs compare every op as it comes, and pause behind the first one that differs from torch."""
    hub.break_on_failure = content.get("on") is True
    hub.tell_all(hub.status())


@answers("check_ops")
def _check(hub: Hub, _view: Listener, _content: Mapping[str, Any]) -> None:
    hub.check()


@answers("find_error")
def _find_error(hub: Hub, _view: Listener, _content: Mapping[str, Any]) -> None:
    hub.find_error()


@answers("need_tensor")
def _need_tensor(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """op: whose tensor is compared tile by tile. No answer where it was not compared."""
    controller = hub.run_controller
    if controller is None or controller.checks is None:
        return
    try:
        check = controller.checks[str(content.get("op"))]
    except KeyError:
        return
    if check.tiles.size <= _TENSOR:
        hub.send_frame(view, tensor_frame(check))


BATCHES = (1, 8, 64)
MOST = 4096  # inputs of a batch that a page may ask for
_TILES = 64  # tiles of one question


class TraceService:
    """Of one hub: the trace that its views show, and the thread that computes it."""

    def __init__(self, hub: Hub) -> None:
        self._hub = weakref.ref(hub)
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._placement = 0  # how many there were
        self._result: Any = None  # the one of it
        self._request: tuple[int, bool, int] = (BATCHES[1], True, 0)
        self._views: weakref.WeakSet[Listener] = weakref.WeakSet()
        self.trace: EpochTrace | None = None
        self.rev = -1
        self.seconds = 0.0
        hub.session.on("compiled", self._newest)

    def ask(self, view: Listener, batch: int, whole: bool = True) -> None:
        """A view wants the trace of a batch; it gets it when it is there. whole: epochs take all inputs at once."""
        hub = self._hub()
        if hub is not None:
            self._newest(hub.session.result)  # a view may have its ops before this is told of it
        with self._lock:
            self._views.add(view)
            self._request = (batch, whole, self._placement)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tbuda-trace", daemon=True)
                self._thread.start()

    def wait(self, timeout: float | None = None) -> None:
        """Until nothing is computed any more; raises `TimeoutError` after `timeout` seconds."""
        wait_for(self._thread, timeout)

    def _work(self) -> None:
        done: tuple[int, bool, int] | None = None
        while True:
            hub = self._hub()
            with self._lock:
                if hub is None or done == self._request:
                    self._thread = None
                    return
                done = self._request
                views = list(self._views)
            self._make(hub, done, views)

    def _make(self, hub: Hub, request: tuple[int, bool, int], views: list[Listener]) -> None:
        session = hub.session
        if session.result is None:
            _post_state(views, "empty", "The timeline appears once the model is placed.")
            return
        _post_state(views, "working", f"Simulating {request[0]} input{'s' if request[0] > 1 else ''} …")
        try:
            rev = session.rev
            per_run = None if request[1] else session.result.options.microbatch
            timeline = session.timeline(request[0], per_run)
            timeline.trace.pyramid  # noqa: B018 - built here, not when the first tile is asked for
        except TbudaError as error:
            _post_state(views, "failed", str(error).splitlines()[0])
            return
        with self._lock:
            if request[2] != self._placement:
                return  # it is made of the one that came meanwhile
            self.trace, self.rev = timeline, rev
        frame = trace_frame(timeline, rev, BATCHES)
        for view in views:
            hub.send_frame(view, frame)

    def _newest(self, result: Any) -> None:
        """Another placement: there are no tiles of it yet. What is being made is made of this one."""
        with self._lock:
            if result is self._result:
                return
            self._result = result
            self._placement += 1
            self.trace = None
            if self._thread is not None:
                self._request = (*self._request[:2], self._placement)


def _post_state(views: list[Listener], state: str, text: str) -> None:
    for view in views:
        view.post({"type": "trace_state", "state": state, "text": text}, [])


_SERVICES: weakref.WeakKeyDictionary[Hub, TraceService] = weakref.WeakKeyDictionary()


def trace_service_of(hub: Hub) -> TraceService:
    """The trace service of a hub, made at first use."""
    service = _SERVICES.get(hub)
    if service is None:
        service = _SERVICES[hub] = TraceService(hub)
    return service


@answers("need_trace")
def _need_trace(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """batch: how many inputs; without it, what the view was made for."""
    batch = content.get("batch")
    if not isinstance(batch, int) or isinstance(batch, bool) or not 1 <= batch <= MOST:
        batch = int(getattr(view, "batch", BATCHES[1]))
    trace_service_of(hub).ask(view, batch, content.get("whole") is not False)


@answers("need_tile")
def _need_tile(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """tiles: [[level, index, block], ...] of the trace of revision `rev`; those that there are none of are left out."""
    service = trace_service_of(hub)
    tiles = content.get("tiles")
    if service.trace is None or not isinstance(tiles, list):
        return
    hub.send_frames(view, _tiles(service.trace.trace, tiles[:_TILES], service.rev))


def _tiles(trace: Trace, tiles: list[Any], rev: int) -> Iterator[Frame]:
    for one in tiles:
        if isinstance(one, list) and len(one) == 3 and all(type(v) is int for v in one):
            level, index, block = one
            with contextlib.suppress(IndexError):
                yield tile_frame(trace, level, index, block, rev=rev)


@answers("need_moment")
def _need_moment(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    service, cycle = trace_service_of(hub), content.get("cycle")
    if service.trace is not None and isinstance(cycle, (int, float)):
        frame = moment_frame(service.trace.trace, int(cycle), service.rev)
        for other in {view, *hub.views_of("grid")}:  # grids of other cells follow the playhead
            hub.send_frame(other, frame)


@answers("need_slice")
def _need_slice(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """start, end: the cycles between which it is asked what the ops did."""
    service = trace_service_of(hub)
    start, end = content.get("start"), content.get("end")
    if service.trace is not None and isinstance(start, int) and isinstance(end, int) and 0 <= start < end:
        hub.send_frame(view, slice_frame(service.trace.trace, start, end, service.rev))


@answers("need_flows")
def _need_flows(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """op: whose inputs are followed from its producers and to its consumers."""
    service, op = trace_service_of(hub), str(content.get("op"))
    result = hub.session.result
    if service.trace is None or result is None or op not in service.trace.levels.names:
        return
    lowered = result.lowered
    edges = [(source, op) for source in dict.fromkeys(lowered[op].sources)]
    edges += [(op, user) for user in dict.fromkeys(n.name for n in lowered.ops if op in n.sources)]
    hub.send_frame(view, flows_frame(service.trace, op, edges, service.rev))


@answers("need_fills")
def _need_fills(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    service, op = trace_service_of(hub), content.get("op")
    window = (content.get("start"), content.get("end"))
    if service.trace is None or not all(isinstance(v, (int, float)) for v in window):
        return
    start, end = (int(v) for v in window if isinstance(v, (int, float)))
    try:
        fills = service.trace.fills(str(op), start, end)
    except KeyError:
        return
    hub.send_frame(view, fills_frame(str(op), fills, (start, end), service.rev))
