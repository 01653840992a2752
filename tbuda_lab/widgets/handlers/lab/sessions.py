"""The sessions of this kernel as a list that keeps itself up to date, and the commands that JupyterLab's menu, keys and
status bar give them; each command answers with a sentence."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.frames import model_time
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.compile_session import CompileSession, on_session
from tbuda_lab.widgets.handlers.edit_controller import BUSY, refusal
from tbuda_lab.widgets.handlers.frames import session_diff_frame
from tbuda_lab.widgets.handlers.lab.documents import hub_by_id, unseen
from tbuda_lab.widgets.handlers.lab.kernel_comm import Comm
from tbuda_lab.widgets.handlers.session_hub import Hub, hubs, on_hub

INTERVAL = 0.2  # s between two lists
MOST_UNSEEN = 20  # sessions without a view in a list: the newest


def open_sessions(comm: Comm, _data: Mapping[str, Any]) -> None:
    """`{open: "sessions"}`: the list, again after every change and for `{type: "resync"}`; takes `{type: "command",
    name, session, seq}`."""
    SessionsFeed(comm)


class SessionsFeed:
    """One page's list. Lists are sent at most five a second, the last one always."""

    def __init__(self, comm: Comm) -> None:
        self.comm = comm
        self._lock = threading.Lock()
        self._telling = threading.RLock()
        self._begun = self._last_sent = 0  # lists, by number
        self._sent = 0.0
        self._timer: threading.Timer | None = None
        self._closed = False
        self._watches = {hub.id: _Watch(self, hub) for hub in hubs()}
        self._forget = on_hub(self._session_began)
        self._forget_sessions = on_session(self._on_start)
        for session in unseen().values():
            self._follow(session)
        comm.on_msg(self._receive)
        comm.on_close(lambda _: self.close())
        self._send()

    def close(self) -> None:
        """Nobody listens any more. A second call changes nothing."""
        with self._telling:  # a list that is on its way arrives first
            if self._closed:
                return
            self._closed = True
        self._forget()
        self._forget_sessions()
        self._watches.clear()

    def on_change(self) -> None:
        """Something in the list may be different now."""
        with self._lock:
            if self._closed or self._timer is not None:
                return
            wait = self._sent + INTERVAL - time.monotonic()
            if wait > 0:
                self._timer = threading.Timer(wait, self._send)
                self._timer.daemon = True
                self._timer.start()
                return
        self._send()

    def _session_began(self, hub: Hub) -> None:
        self._watches[hub.id] = _Watch(self, hub)
        self.on_change()

    def _on_start(self, session: CompileSession) -> None:
        self._follow(session)
        self.on_change()

    def _follow(self, session: CompileSession) -> None:
        """What a session without a view does is heard as long as this feed is there."""
        feed = weakref.ref(self)

        def listener(*_: Any) -> None:
            sessions = feed()
            if sessions is not None:
                sessions.on_change()

        for event in ("compiled", "edited", "problem"):
            session.on(event, listener)

    def _send(self) -> None:
        with self._lock:
            self._timer = None
            self._sent = time.monotonic()
            self._begun += 1
            number = self._begun
        if self._closed:
            return
        listed = [describe_unseen(name, s) for name, s in list(unseen().items())[-MOST_UNSEEN:]]
        listed += [describe(hub) for hub in hubs() if isinstance(hub.session, Session)]
        with self._telling:
            if not self._closed and number > self._last_sent:  # another thread may have told a newer list meanwhile
                self._last_sent = number
                self.comm.send({"type": "sessions", "sessions": listed, "memory": memory()})

    def _receive(self, message: Mapping[str, Any]) -> None:
        content = message["content"]["data"]
        if isinstance(content, Mapping) and content.get("type") == "resync":
            self.on_change()
        if not isinstance(content, Mapping) or content.get("type") != "command":
            return
        seq = content.get("seq")

        def answer(ok: bool, text: str, **more: Any) -> None:
            self.comm.send({"type": "answer", "seq": seq, "ok": ok, "text": text, **more})
            self.on_change()

        command = COMMANDS.get(str(content.get("name")))
        if command is None:
            answer(False, f"unknown command {content.get('name')!r}")
            return
        try:
            command(hub_by_id(content.get("session")), content, answer)
        except TbudaError as error:
            answer(False, str(error))


class _Watch:
    """Listens to one hub for a feed; everything small it hears means: look again."""

    lists_only = True  # it shows nothing of the session: work goes on for views

    def __init__(self, feed: SessionsFeed, hub: Hub) -> None:
        self.feed = feed
        hub.attach(self)

    def post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        self.feed.on_change()

    def selection_changed(self, selection: dict[str, Any]) -> None:
        """The list does not show it."""

    def wants(self, key: str) -> bool:
        return key in ("edits", "problems", "summary")


def memory() -> int:
    """Bytes that this kernel holds, to the megabyte; 0 where nobody says."""
    try:
        import psutil
    except ImportError:
        return 0
    return int(psutil.Process().memory_info().rss) >> 20 << 20


def describe_unseen(name: str, session: Session) -> dict[str, Any]:
    """A session that no view has shown: what it says of itself, without frames."""
    result = session.result
    severities = [p.severity for p in session.problems]
    placement = None if result is None else result.placement
    cycles = 0.0
    if placement is not None:
        cycles = session.time(result).per_input
    return {
        "id": name,
        "name": session.name,
        "device": session.device.name,
        "phase": "compiled" if result is not None else "",
        "running": False,
        "failed": session.error is not None,
        "done": 0,
        "total": 0,
        "message": "",
        "stale": bool(session.stale) and result is not None,
        "busy": False,
        "undo": session.history[-1].label if session.history else "",
        "redo": session.future[0].label if session.future else "",
        "overrides": len(session.overrides),
        "checkpoints": list(session.checkpoints),
        "errors": severities.count("error"),
        "warnings": severities.count("warning"),
        "epochs": 0 if placement is None else len(placement.epochs),
        "cycles": cycles,
        "selected": [],
        "journal": str(session.journal_path.resolve()) if session.journal_path is not None else "",
    }


def describe(hub: Hub) -> dict[str, Any]:
    """A session in a few words and numbers, as JSON. `cycles`: over all epochs, per input; 0 before a placement."""
    session = hub.session
    status = hub.board.message()
    running = next((s["name"] for s in status["stages"] if s["state"] == "running"), "")
    done = [s["name"] for s in status["stages"] if s["state"] == "done"]
    edits = hub.frame("edits")
    ops = hub.frame("ops")
    severities = [p.severity for p in session.problems]
    return {
        "id": hub.id,
        "name": session.name,
        "device": session.device.name,
        "phase": running or (done[-1] if done else ""),
        "running": status["running"],
        "failed": status["failed"],
        "done": status["done"],
        "total": status["total"],
        "message": status["message"],
        "stale": bool(session.stale) and session.result is not None,
        "busy": bool(edits.meta["busy"]) if edits is not None else False,
        "undo": edits.meta["undo"] if edits is not None else "",
        "redo": edits.meta["redo"] if edits is not None else "",
        "overrides": len(session.overrides),
        "checkpoints": list(session.checkpoints),
        "errors": severities.count("error"),
        "warnings": severities.count("warning"),
        "epochs": int(ops.columns["epoch_ops"].size) if ops is not None else 0,
        "cycles": model_time(ops) if ops is not None else 0.0,
        "selected": list(hub.selection["names"])[:1],
        "journal": str(session.journal_path.resolve()) if session.journal_path is not None else "",
    }


class Answer(Protocol):
    """Called once: whether it was done, and a sentence for the user."""

    def __call__(self, ok: bool, text: str, **more: Any) -> None: ...


Command = Callable[[Hub, Mapping[str, Any], Answer], None]
COMMANDS: dict[str, Command] = {}


def command(name: str) -> Callable[[Command], Command]:
    """Register a command. It returns at once; long work has its own thread and answers at its end."""

    def register(f: Command) -> Command:
        COMMANDS[name] = f
        return f

    return register


@command("compile")
def _compile(hub: Hub, _content: Mapping[str, Any], answer: Answer) -> None:
    if hub.busy:
        answer(False, BUSY)
        return
    hub.start(run=False)
    answer(True, f"compiling {hub.session.name}")


@command("run")
def _run(hub: Hub, _content: Mapping[str, Any], answer: Answer) -> None:
    if hub.busy:
        answer(False, BUSY)
        return
    hub.start()
    answer(True, f"running {hub.session.name}")


@command("cancel")
def _cancel(hub: Hub, _content: Mapping[str, Any], answer: Answer) -> None:
    hub.cancel()
    answer(True, f"stopping {hub.session.name}")


class _Asking:
    """Stands in for a view towards the desk of edits, which answers the one that asked."""

    def __init__(self, answer: Answer) -> None:
        self.answer = answer

    def post(self, message: dict[str, Any], buffers: list[bytes]) -> None:
        if message.get("type") == "edited":
            self.answer(bool(message["ok"]), str(message["text"]))

    def selection_changed(self, selection: dict[str, Any]) -> None:
        """Nothing is shown here."""

    def wants(self, key: str) -> bool:
        return False


def _step(hub: Hub, content: Mapping[str, Any], answer: Answer) -> None:
    if hub.edit_controller is None:
        raise InputError("a file has no edits")
    hub.edit_controller.receive(_Asking(answer), {"type": content["name"]})


COMMANDS["undo"] = COMMANDS["redo"] = _step


@command("checkpoint")
def _checkpoint(hub: Hub, content: Mapping[str, Any], answer: Answer) -> None:
    name = str(content.get("label", "")).strip()
    hub.session.checkpoint(name)
    answer(True, f"checkpoint {name}")


@command("picture")
def _picture(hub: Hub, content: Mapping[str, Any], answer: Answer) -> None:
    """What a notebook keeps of a view, which is named by the id of its widget: made anew when work has ended."""
    entry = next((v for v in hub.views if getattr(v, "model_id", None) == content.get("view")), None)
    stored = getattr(entry, "stored_html", None)
    if stored is None:
        raise InputError("no such view")
    answer(True, "", html=stored())


@command("why")
def _why(hub: Hub, content: Mapping[str, Any], answer: Answer) -> None:
    names = content.get("op") or (hub.selection["names"] or [""])[0]
    if not names:
        raise InputError("select an op first")
    _in_thread(hub, answer, lambda: answer(True, hub.session.why(str(names)).text, op=str(names)))


@command("diff")
def _diff(hub: Hub, content: Mapping[str, Any], answer: Answer) -> None:
    """Compare with a checkpoint, for every view of the session; the text is the same as Markdown."""
    name = str(content.get("checkpoint", ""))

    def work() -> None:
        difference = hub.session.diff(name)
        hub.publish([session_diff_frame(hub.session, difference)])
        answer(True, difference.to_markdown(), checkpoint=name)

    _in_thread(hub, answer, work)


def _in_thread(hub: Hub, answer: Answer, work: Callable[[], None]) -> None:
    if hub.busy:
        answer(False, BUSY)
        return

    def guarded() -> None:
        try:
            work()
        except TbudaError as error:
            answer(False, refusal(error))

    threading.Thread(target=guarded, name="tbuda-question", daemon=True).start()
