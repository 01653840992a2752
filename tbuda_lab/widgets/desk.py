"""Edits that a page asks for: legal tables, commits, undo and redo, one after the other in a thread of their own."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.errors import Cancelled, InputError, TbudaError
from tbuda_lab.core.session import ClearOp, Command, EpochBreak, PlaceOp, ResizeOp, Session
from tbuda_lab.widgets.editframes import edits_frame, legal_frame
from tbuda_lab.widgets.messages import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.hub import Hub, Listener

BUSY = "The model is being compiled or run: edit it when that is over, or cancel."


def command_of(content: Mapping[str, Any], session: Session) -> Command:
    """The edit that a message asks for. Raises `InputError` or `OverrideError` for one that makes no sense."""
    do, op = content.get("do"), content.get("op")
    if not isinstance(op, str) or not op:
        raise InputError("an edit names its op")
    if do == "resize":
        return ResizeOp(op, _pair(content.get("size")))
    if do == "move":
        pin = next((o.value for o in session.overrides if o.kind == "op_placement" and o.target == op), {})
        turned = content.get("transposed") or pin.get("transpose")
        return PlaceOp(op, _pair(content.get("start")), True if turned else None, pin.get("chip"))
    if do == "break":
        return EpochBreak(op, content.get("on") is not False)
    if do == "clear":
        kinds = content.get("kinds") or ()
        return ClearOp(op, tuple(str(k) for k in kinds))
    raise InputError(f"unknown edit {do!r}")


def _pair(value: Any) -> tuple[int, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(type(v) is int for v in value):
        raise InputError(f"two whole numbers are wanted, not {value!r}")
    return value[0], value[1]


class Desk:
    """What a hub does for views that edit. A thread is there only while something is asked."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._tasks: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._working = False
        self._last: dict[str, Any] | None = None
        for event in ("edited", "compiled", "stale"):
            hub.session.on(event, lambda _: self.publish())
        self.publish()

    def receive(self, view: Listener, content: Mapping[str, Any]) -> None:
        """A message of a view that edits."""
        what = content.get("type")
        if self.hub.busy:
            _answer(view, False, BUSY)
        elif what == "probe_begin":
            self._submit(lambda: self._probe(view, content))
        elif what == "edit":
            self._submit(lambda: self._edit(view, content))
        elif what in ("undo", "redo"):
            self._submit(lambda: self._step(view, str(what)))

    def wait(self, timeout: float | None = None) -> None:
        """Until nothing is asked any more; raises `TimeoutError` after `timeout` seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
            if thread.is_alive():
                raise TimeoutError(f"still at work after {timeout} s")

    def publish(self) -> None:
        """Tell the views about edits, unless they know."""
        frame = edits_frame(self.hub.session, self._working)
        if frame.meta != self._last:
            self._last = frame.meta
            self.hub.publish([frame])

    # -- the thread --------------------------------------------------------------------------------------------
    def _submit(self, task: Callable[[], None]) -> None:
        with self._lock:
            self._tasks.append(task)
            if self._thread is None:
                self._thread = threading.Thread(target=self._work, name="tbuda-edits", daemon=True)
                self._thread.start()

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._tasks:
                    self._thread = None
                    return
                task = self._tasks.popleft()
            task()

    def _probe(self, view: Listener, content: Mapping[str, Any]) -> None:
        session = self.hub.session
        seq = content.get("seq")
        try:
            table = session.legal(str(content.get("op")))
        except TbudaError as error:
            _answer(view, False, refusal(error))
            return
        self.hub.send_frame(view, legal_frame(table, session.rev, seq if isinstance(seq, int) else 0))

    def _edit(self, view: Listener, content: Mapping[str, Any]) -> None:
        session = self.hub.session
        self._begin()
        try:
            command = command_of(content, session)
            if _needless(command, session):
                _answer(view, False, f"Nothing to do: {command.label}")
                return
            effect = session.whatif(command)  # raises what compiling would raise, and changes nothing
            session.apply(command, source="page")
            self._compile()
        except TbudaError as error:
            _answer(view, False, refusal(error))
        else:
            before, after = effect.total_cycles
            _answer(view, True, f"{command.label}: {before:,} → {after:,} cycles over all epochs")
        finally:
            self._end()

    def _step(self, view: Listener, what: str) -> None:
        session = self.hub.session
        self._begin()
        try:
            label = session.undo() if what == "undo" else session.redo()
            if label:
                session.compile()
                self.hub.edited()
        except TbudaError as error:
            _answer(view, False, refusal(error))
        else:
            _answer(view, bool(label), f"{what} {label}" if label else f"There is nothing to {what}.")
        finally:
            self._end()

    def _compile(self) -> None:
        """Compile the edit just made; one that fails late (queues, netlist) is taken back."""
        session = self.hub.session
        try:
            session.compile()
        except Cancelled:
            raise
        except TbudaError:
            session.undo()
            session.compile()
            raise
        finally:
            self.hub.edited()

    def _begin(self) -> None:
        self._working = True
        self.publish()

    def _end(self) -> None:
        self._working = False
        self.publish()


@answers("probe_begin", "edit", "undo", "redo")
def _ask(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    if hub.desk is not None:
        hub.desk.receive(view, content)


def _needless(command: Command, session: Session) -> bool:
    """Whether an edit would be an undo step that changes nothing."""
    there = {(o.kind, o.target): o.value for o in session.overrides if isinstance(o.target, str)}
    if isinstance(command, ClearOp):
        return not any(t == command.op and (not command.kinds or k in command.kinds) for k, t in there)
    if isinstance(command, EpochBreak) and not command.on:
        return (command.kind, command.op) not in there
    wanted = command.overrides()
    return bool(wanted) and all(there.get((o.kind, o.target)) == o.value for o in wanted)


def refusal(error: TbudaError) -> str:
    """Why not, in a sentence: the first finding and what would help."""
    first = next((d for d in error.diagnostics if d.severity == "error"), None)
    if first is None:
        return str(error).splitlines()[0]
    return f"{first.where}: {first.message}" + (f"; {first.fix}" if first.fix else "")


def _answer(view: Listener, ok: bool, text: str) -> None:
    view.post({"type": "edited", "ok": ok, "text": text}, [])
