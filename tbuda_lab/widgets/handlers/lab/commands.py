"""Commands that JupyterLab's menu, keys and status bar give to a session; each answers with a sentence."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.widgets.handlers.edit_controller import BUSY, refusal
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.protocol.diff_frames import session_diff_frame


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
        result = hub.session.diff(name)
        hub.publish([session_diff_frame(hub.session, result)])
        answer(True, result.to_markdown(), checkpoint=name)

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
