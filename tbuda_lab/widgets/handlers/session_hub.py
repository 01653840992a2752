"""One hub per session: keeps the packed frames, runs the work in a thread, tells every view what is new.

Frames and status travel as custom messages, never as synced traits: nothing bulky is stored in a notebook, and a view
that finds a gap in `seq` asks again. Sends are at most ten status messages a second.
"""

from __future__ import annotations

import itertools
import sys
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, runtime_checkable

from tbuda_lab.core.errors import Cancelled, InputError, TbudaError
from tbuda_lab.core.frames import Frame, problems_frame, summary_frame
from tbuda_lab.core.run_control import wait_for
from tbuda_lab.core.session import Session
from tbuda_lab.core.verification import MIN_PCC, Comparison
from tbuda_lab.widgets.handlers.edit_controller import EditController
from tbuda_lab.widgets.handlers.explore import follow
from tbuda_lab.widgets.handlers.gc_policy import GC_POLICY
from tbuda_lab.widgets.handlers.runs import RunController, errors_frame
from tbuda_lab.widgets.protocol import CHUNK, LABELS, FramePacket, StatusBoard, answers, same

STATUS_INTERVAL = 0.1
RUN_INTERVAL = 0.25
"""Seconds between two status messages while a run reports its progress beside them."""
FREQUENT_FRAMES = ("summary", "problems")
"""Small frames made anew at every step, most of which say what the last one said: a message each for nothing."""

_NUMBERS = itertools.count(1)


class Listener(Protocol):
    """A view's Python side."""

    def post(self, message: dict[str, Any], buffers: list[bytes]) -> None: ...
    def selection_changed(self, selection: dict[str, Any]) -> None: ...
    def wants(self, key: str) -> bool: ...


@runtime_checkable
class StoredView(Protocol):
    """A view that a notebook keeps a picture of."""

    def edited_by_code(self, cell: int) -> None: ...


def cell_number() -> int:
    """The number of the notebook's cell that runs now; 0 outside of a notebook."""
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return 0 if shell is None else int(shell.execution_count)


class Hub:
    """State shared by all views of one session. Thread-safe: events come from whichever thread works."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self._prepare(StatusBoard((*session.stages, "verify")))
        session.on("stage", self._stage)
        session.on("detail", self._detail)
        session.on("edited", lambda _: self._on_edit())
        session.on("run", self._progress)
        session.on("compiled", self._on_compile)
        session.on("verified", self._on_comparisons)
        session.on("problem", lambda _: self._problem())
        session.on("cancelled", self._on_cancel)
        session.on("explores", lambda exploration: follow(self, exploration))
        self.publish([summary_frame(session.device, session.name), problems_frame(session.problems)])
        if session.result is not None:
            self._done_already()
            self._on_compile(session.result)
        self.edit_controller: EditController | None = EditController(self)
        self.run_controller: RunController | None = RunController(self)

    def _prepare(self, board: StatusBoard) -> None:
        self.id = str(next(_NUMBERS))  # of this process: how a page names a session
        self.comparisons: list[Comparison] = []
        self._verified_results: deque[tuple[Any, list[Comparison]]] = deque(maxlen=8)
        self.error: Exception | None = None
        self.board = board
        self.edit_controller, self.run_controller = None, None
        self.selection: dict[str, Any] = {"kind": "op", "names": [], "source": ""}
        self._frames: dict[str, Frame] = {}
        self._packed: dict[str, FramePacket] = {}
        self._inflating: weakref.WeakSet[Listener] = weakref.WeakSet()
        self._rev = 0
        self._views: weakref.WeakSet[Listener] = weakref.WeakSet()
        self._lock = threading.RLock()
        self._thread: threading.Thread | None = None
        self._at_work = False
        self._last_report = 0.0
        self._verifying = False
        self.break_on_failure = False
        self._searching = threading.Event()  # set to stop a search for the wrong op
        self.own_run: Callable[[], object] | None = None  # what a run is, where it is not the session's
        self.run_refusal = ""  # why nothing runs here, and what does
        self._on_selected: list[Callable[[tuple[str, ...]], None]] = []

    @property
    def off(self) -> dict[str, str]:
        """Messages that this session cannot honour, each with why; pages show their buttons as off."""
        if self.run_refusal:
            return dict.fromkeys(("start", "step", "find_error", "check_ops", "break_on_failure"), self.run_refusal)
        off = {}
        if self.session.options.training is not None or self.own_run is not None:
            off["find_error"] = "The wrong op is searched for inference; session.check_gradients judges training."
        if self.own_run is not None:
            for what in ("check_ops", "break_on_failure"):
                off[what] = "A run is a step of the host program; ops are compared in a session of the model."
        return off

    # -- work ------------------------------------------------------------------------------------------------
    def start(self, verify: bool = True, *, run: bool = True) -> None:
        """Compile, run and (by default) verify in a thread; does nothing while one is at work.

        With `run=False` it stops after the compile.
        """
        with self._lock:
            if self.busy:
                return
            self.error = None
            self.board.begin()
            self._done_already()
            self._thread = threading.Thread(
                target=self._work, args=(verify and run, run), name="tbuda-session", daemon=True
            )
            self._at_work = True
            self._tell(force=True)
            self._thread.start()

    def train(self, batches: Iterable[tuple[Any, Any]]) -> None:
        """Train in a thread: see `Session.train`. Raises `InputError` while other work goes on."""
        self.train_by(lambda: self.session.train(batches))

    def train_by(self, work: Callable[[], object]) -> None:
        """Train in a thread, by whatever trains the session. Raises `InputError` while other work goes on."""
        if not self.work(work, "run", "", "tbuda-train"):
            raise InputError("the session is busy: wait until its work ends, or cancel it, before training")

    def work(self, work: Callable[[], object], stage: str, text: str, name: str) -> bool:
        """Do it in a thread of that name; the board says that `stage` runs, and `text`. False where other work goes on:
        then nothing is begun."""
        with self._lock:
            if self.busy:
                return False
            self.error = None
            self.board.begin(stage)
            self.board.step(stage, 0.0)
            self.board.text = text
            self._thread = threading.Thread(target=lambda: self._run_guarded(work), name=name, daemon=True)
            self._at_work = True
            self._tell(force=True)
            self._thread.start()
            return True

    def check(self) -> None:
        """Compare every op's tensor with torch, in a thread; does nothing while one is at work."""
        self.work(self.session.verify_ops, "verify", "Comparing every op with torch …", "tbuda-check")

    def find_error(self) -> None:
        """Search the op that is wrong, in a thread (see `Session.find_error`), and select it; does nothing while one is
        at work."""

        def work() -> None:
            report = self.session.find_error(cancel=self._searching)
            self.publish([errors_frame(report)])
            placed = () if self.session.result is None else self.session.result.placement.ops
            wrong = [name for name in (report.op, *report.nodes) if report.stage and name in placed]
            if wrong:
                self.select(wrong[:1], "find_error")
            if not report.right:
                self.board.found_wrong("verify", str(report))
            self.tell_all({"type": "edited", "ok": report.right, "text": str(report)})

        with self._lock:
            if self.busy:
                return
            self._searching = threading.Event()
            self.work(work, "verify", "Searching the op that is wrong, stage by stage …", "tbuda-find-error")

    @property
    def has_views(self) -> bool:
        """Whether any view is there."""
        return len(self._views) > 0

    @property
    def busy(self) -> bool:
        """Whether work is under way. It is over before the views hear so: a view that hears it may ask at once."""
        return self._at_work

    def wait(self, timeout: float | None = None) -> None:
        """Until the work is over; raises what it raised, or `TimeoutError` after `timeout` seconds."""
        wait_for(self._thread, timeout)
        if self.error is not None:
            raise self.error

    def cancel(self) -> None:
        """Stop the work at its next safe point; what was shown stays. No further step of the work begins: not the run
        either, where the compile ended a moment before."""
        self.board.cancelling = self.board.running
        self._searching.set()
        self.session.cancel()
        self._tell(force=True)

    def _work(self, verify: bool, run: bool) -> None:
        below = MIN_PCC if self.break_on_failure else None

        def work() -> None:
            if self.board.cancelling:
                raise Cancelled("cancelled before the compile")
            self._show_first()
            self.session.compile()
            if self.board.cancelling:
                raise Cancelled("cancelled after the compile")
            if self.own_run is not None:
                if run:
                    self.own_run()
            elif verify:
                self._verifying = True
                self.session.verify(break_below=below)
                if any(not c.passes(MIN_PCC) for c in self.comparisons):
                    self.session.verify_ops()  # which op is it?
            elif run:
                self.session.run(break_below=below)

        self._run_guarded(work)

    def _show_first(self) -> None:
        """A placement that is soon there, while a better one is searched. Where it fails, the compile says why."""
        try:
            placed = self.session.first_placement()
        except Cancelled:
            raise
        except TbudaError:
            return
        if placed is not None and self.edit_controller is not None:
            self.edit_controller.show_first(self.session.frames.ops_frame(placed))

    def stop_work(self, seconds: float) -> None:
        """Cancel the work, and wait until it has ended. Raises `TimeoutError`."""
        if self.busy:
            self.cancel()
            wait_for(self._thread, seconds)

    def _run_guarded(self, work: Callable[[], object]) -> None:
        """Do it, and tell how it ended."""
        try:
            work()
            self.board.end()
        except Cancelled as error:
            self.error = error
            self.board.end(cancelled=True)
        except TbudaError as error:
            self.error = error
            self.board.end(str(error))
            self.publish([problems_frame(self.session.problems)])
        except Exception as error:  # shown in the stage bar and raised again by wait()
            self.error = error
            self.board.end(f"{type(error).__name__}: {error}")
        finally:
            self._verifying = False
            self._at_work = False
            self._tell(force=True)
            GC_POLICY.page_active()  # once it is seen, what the compile left behind goes

    def _done_already(self) -> None:
        if self.session.result is not None:
            for name in self.session.stages:
                if name != "run":  # without a time: it was done before, for what was asked of the session
                    self.board.done(name, self.session.timings.get(name))

    # -- events of the session -------------------------------------------------------------------------------
    def _stage(self, name: str, fraction: float) -> None:
        if not self.board.running and fraction == 0.0:  # work begun by a call in a cell
            self.board.begin(name)
        self.board.step(name, fraction)
        if self.board.cancelling and fraction == 0.0:
            self.session.cancel()  # what begins now took the request for one that was meant for the step before
        if name == "run" and fraction >= 1.0 and self._verifying:
            self.board.step("verify", 0.0)
        if name == "trace" and fraction >= 1.0:
            self.publish([self.session.frames.graph("traced")])
        if not self.busy and fraction >= 1.0 and name in ("check", "run"):
            self.board.end()
        self._tell(force=fraction in (0.0, 1.0))

    def _on_edit(self) -> None:
        """An edit by code of a cell: pictures of earlier cells stay as they were."""
        steps = self.session.history
        if steps and steps[-1].source == "code" and threading.current_thread() is threading.main_thread():
            cell = cell_number()
            for view in self.views:
                if isinstance(view, StoredView):
                    view.edited_by_code(cell)

    def _detail(self, stage: str, text: str) -> None:
        self.board.text = f"{LABELS.get(stage, stage)}: {text}"
        self._tell()

    def _progress(self, done: int, total: int) -> None:
        if total:
            self.board.step("run", min(0.999, done / total))
            self.board.text = f"{done} of {total} inputs"
            self._tell(interval=RUN_INTERVAL)

    def _on_comparisons(self, comparisons: list[Comparison]) -> None:
        self.comparisons = list(comparisons)
        self._verified_results.append((self.session.result, self.comparisons))
        if self._verifying:
            self.board.step("verify", 1.0)
        else:  # a call in a cell
            self.board.done("verify", None)
        self.publish([summary_frame(self.session.device, self.session.name, self.comparisons)])
        self._tell(force=True)

    def run_ended(self, complete: bool) -> None:
        """A run that a cell began is over: nobody else tells when it was stopped."""
        if not self.busy and self.board.running and not complete:
            self.board.end(cancelled=True)
            self._tell(force=True)

    def _on_cancel(self) -> None:
        """A compile or run that a cell began, perhaps in the background, has ended early."""
        if not self.busy and self.board.running:
            self.board.end(cancelled=True)
            self._tell(force=True)

    def _problem(self) -> None:
        self.publish([problems_frame(self.session.problems)])
        if not self.busy and self.session.error is not None:  # a compile begun by a call in a cell
            self.board.end(str(self.session.error))
            self._tell(force=True)

    def _on_compile(self, result: Any) -> None:
        if self.edit_controller is not None:
            self.edit_controller.first = False
        verified = (checks for of, checks in self._verified_results if of is result)  # undo comes back to it
        self.comparisons = next(verified, [])
        if self.board.running:
            self._detail("check", "the times of all epochs")
        self.publish(
            [
                self.session.frames.ops(result),  # where the ops stand first; all that goes with it behind
                *self.session.frames.of(result),
                problems_frame(self.session.problems),
                summary_frame(self.session.device, self.session.name, self.comparisons),
            ]
        )
        if not self.busy and not self.board.running:  # taken from before, without a stage: undone, perhaps
            self._nothing_ran()

    # -- views -----------------------------------------------------------------------------------------------
    def views_of(self, kind: str) -> list[Listener]:
        """The views of a kind that are there."""
        return [view for view in list(self._views) if getattr(view, "kind", "") == kind]

    @property
    def views(self) -> list[Listener]:
        """All views that are there."""
        return list(self._views)

    def attach(self, view: Listener) -> None:
        self._views.add(view)

    def detach(self, view: Listener) -> None:
        self._views.discard(view)

    def leave(self, view: Listener, timeout: float = 0.0) -> None:
        """A view is closed for good. With the last one that shows something the work that views began ends at its next
        safe point, and what they asked for and is not begun is dropped; waits `timeout` seconds for it at most.

        What a call in a cell began goes on.
        """
        self.detach(view)
        if any(not getattr(other, "lists_only", False) for other in self.views):
            return
        if self.edit_controller is not None:
            self.edit_controller.drop()
        if self.busy:
            self.cancel()
            if self._thread is not None and self._thread is not threading.current_thread():
                self._thread.join(timeout)

    def frames_on_demand(self, _key: str) -> list[Frame]:
        """Frames of a key that a hub without a session can make when somebody wants them; [] for none."""
        return []

    def frame(self, key: str) -> Frame | None:
        """The current frame of a key, or None before there is one."""
        return self._frames.get(key)

    @property
    def frames(self) -> dict[str, Frame]:
        with self._lock:
            return dict(self._frames)

    @property
    def names(self) -> frozenset[str]:
        """What can be selected: ops and the nodes of graphs that there are frames of."""
        columns = (("ops", "op_name"), ("graph:traced", "node_name"), ("graph:lowered", "node_name"))
        frames = self.frames
        return frozenset(name for key, column in columns if key in frames for name in frames[key].text(column))

    def bring_up_to_date(self, view: Listener, have: dict[str, int]) -> None:
        """Send a view the status and every frame newer than what it has."""
        with self._lock:
            packed = dict(self._packed)
        view.post(self.status(), [])
        for key in sorted(packed, key=_urgency):
            if view.wants(key) and have.get(key, 0) < packed[key].rev:
                self._send(view, packed[key])

    def select(self, names: Iterable[str], source: str = "kernel", kind: str = "op") -> None:
        """Select ops by name in every view."""
        selection = {"kind": kind, "names": list(names), "source": source}
        with self._lock:
            if selection["names"] == self.selection["names"] and kind == self.selection["kind"]:
                return
            self.selection = selection
        for view in list(self._views):
            view.selection_changed(selection)
        for listener in tuple(self._on_selected):
            listener(tuple(selection["names"]))

    def on_selected(self, listener: Callable[[tuple[str, ...]], None]) -> Callable[[], None]:
        """Call `listener(names)` after every change of the selection; returns a function that removes it."""
        self._on_selected.append(listener)
        return lambda: self._on_selected.remove(listener)

    def publish(self, frames: list[Frame]) -> None:
        """Frames that are new, for every view that wants them. The very frame that was published last is not sent,
        nor a small one that says the same."""
        packed = []
        with self._lock:
            self._rev += 1
            for frame in frames:
                entry = self._frames.get(frame.key)
                if entry is frame or (entry is not None and frame.key in FREQUENT_FRAMES and same(entry, frame)):
                    continue
                self._frames[frame.key] = frame
                self._packed[frame.key] = FramePacket(frame, self._rev)
                packed.append(self._packed[frame.key])
        for one in packed:
            for view in list(self._views):
                if view.wants(one.key):
                    self._send(view, one)

    def send_frame(self, view: Listener, frame: Frame) -> None:
        """A frame for one view alone: an answer, which is not kept."""
        self.send_frames(view, [frame])

    def send_frames(self, view: Listener, frames: Iterable[Frame]) -> None:
        """The same for several; small ones go together, as far as a message holds them."""
        ready: list[tuple[dict[str, Any], list[bytes]]] = []
        for frame in frames:
            with self._lock:
                self._rev += 1
                rev = self._rev
            for piece in FramePacket(frame, rev).messages(inflates=False):  # at most 100 KB: not worth the wait
                if ready and sum(len(b) for _, buffers in (*ready, piece) for b in buffers) > CHUNK:
                    _post(view, ready)
                    ready = []
                ready.append(piece)
        if ready:
            _post(view, ready)

    def inflates(self, view: Listener, can: bool) -> None:
        """Whether the page of this view takes compressed frames; it doesn't before it says so."""
        (self._inflating.add if can else self._inflating.discard)(view)

    def _send(self, view: Listener, packed: FramePacket) -> None:
        for message, buffers in packed.messages(view in self._inflating):
            view.post(message, buffers)

    def on_edit(self) -> None:
        """An edit is compiled, or refused: what was run before belongs to another placement."""
        self.publish([problems_frame(self.session.problems)])
        self._nothing_ran()

    def _nothing_ran(self) -> None:
        """The stages of a placement that is compiled and no more, or was compared with torch before."""
        self.board.begin("run")
        self._done_already()
        if self.comparisons:
            for name in ("run", "verify"):
                self.board.done(name, None)
        self.board.running = False
        self._tell(force=True)

    def _tell(self, force: bool = False, interval: float = STATUS_INTERVAL) -> None:
        now = time.monotonic()
        if not force and now - self._last_report < interval:
            return
        self._last_report = now
        message = self.status()
        for view in list(self._views):
            view.post(message, [])

    def status(self) -> dict[str, Any]:
        """The message that says how the work goes."""
        message = {"type": "status", "status": self.board.message(), "session": self.id, "off": self.off}
        return message | ({"breaks": True} if self.break_on_failure else {})

    def tell_all(self, message: dict[str, Any]) -> None:
        """A message for every view."""
        for view in list(self._views):
            view.post(message, [])


def _urgency(key: str) -> int:
    """Small frames first, then what is seen first."""
    order = ("summary", "problems", "edits", "graph:lowered", "ops", "graph:traced", "graph:passed", "netlist")
    return order.index(key) if key in order else len(order)


def _post(view: Listener, pieces: list[tuple[dict[str, Any], list[bytes]]]) -> None:
    if len(pieces) == 1:
        view.post(*pieces[0])
    else:
        view.post({"type": "frames", "frames": [m for m, _ in pieces]}, [b for _, buffers in pieces for b in buffers])


@answers("hello", "resync")
def _bring_up_to_date(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    have = content.get("have")
    if "inflates" in content:
        hub.inflates(view, content["inflates"] is True)
    GC_POLICY.page_active()
    hub.bring_up_to_date(view, dict(have) if isinstance(have, Mapping) else {})


@answers("start")
def _start(hub: Hub, _view: Listener, _content: Mapping[str, Any]) -> None:
    hub.start()


@answers("cancel")
def _cancel(hub: Hub, _view: Listener, _content: Mapping[str, Any]) -> None:
    hub.cancel()


_HUBS: weakref.WeakValueDictionary[int, Hub] = weakref.WeakValueDictionary()
"""By id of the session. A hub holds its session, and the session's listeners hold the hub: they live equally long."""


_ON_HUB: list[Callable[[Hub], None]] = []


def hub_of(session: Session) -> Hub:
    """The hub of a session, made at first use."""
    hub = _HUBS.get(id(session))
    if hub is None:
        hub = _HUBS[id(session)] = Hub(session)
        for listener in tuple(_ON_HUB):
            listener(hub)
    return hub


def hubs() -> list[Hub]:
    """The hubs of all living sessions that have one, oldest first."""
    return sorted(_HUBS.values(), key=lambda hub: int(hub.id))


def on_hub(listener: Callable[[Hub], None]) -> Callable[[], None]:
    """Call `listener(hub)` for every hub that is made; returns a function that removes it."""
    _ON_HUB.append(listener)
    return lambda: _ON_HUB.remove(listener)
