"""The explorations of a session in its workbench: begun, followed, cancelled; a point becomes a session of its own.

Page: `{type: "explore", devices, batches, formats, fidelity, policies, harvest, objectives, require, budget}`, each a
text as the command line takes it; `explore_cancel`, `explore_open` (`n`), `explore_compare` (`a`, `b`),
`explore_export` (`what`: overrides (`n`), csv, parquet). Kernel: the frame `explore`, `edited` with what came
of it, and `{type: "explore_opened", session}`.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.errors import InputError, TbudaError, not_supported
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.explore import DEFAULT_OBJECTIVES, Explore, point_values
from tbuda_lab.widgets.handlers.edit_controller import answer, refusal
from tbuda_lab.widgets.handlers.frames import session_diff_frame
from tbuda_lab.widgets.pictures.explore import picture_of
from tbuda_lab.widgets.protocol import answers, makes

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

EVERY = 0.5
"""Seconds between two pictures of a running exploration, at least."""
_LISTS = ("devices", "batches", "formats", "fidelity", "policies", "harvest")
_OPENED: weakref.WeakKeyDictionary[Hub, list[Session]] = weakref.WeakKeyDictionary()
"""Sessions of points: nobody else holds them while a page goes to open them."""


def number_of(content: Mapping[str, Any], name: str) -> int:
    """The number of a trial in a message. Raises `InputError`."""
    value = content.get(name)
    if type(value) is not int:
        raise InputError(f"{name} is the number of a trial, not {value!r}")
    return value


def exported(exploration: Explore, content: Mapping[str, Any]) -> str:
    """Write what a message asks for into the exploration's folder; returns what was written. Raises `TbudaError`s."""
    what = content.get("what", "overrides")
    if what == "overrides":
        n = number_of(content, "n")
        path = exploration.folder / f"trial-{n}.json"
        exploration.export(n, path)
    elif what == "csv":
        path = exploration.to_csv(exploration.folder / "explore.csv")
    elif what == "parquet":
        path = exploration.to_parquet(exploration.folder / "explore.parquet")
    else:
        raise InputError(f"an exploration is exported as overrides, csv or parquet, not {str(what)[:40]!r}")
    return f"wrote {path}"


class Follower:
    """Calls back with the pictures of a running exploration: after a trial, but not too often, and after the last
    one."""

    def __init__(self, show: Any) -> None:
        self._show, self._lock, self._last = show, threading.Lock(), 0.0

    def __call__(self, exploration: Explore) -> None:
        with self._lock:
            progress = exploration.progress
            over = progress.done >= progress.total or not exploration.running
            if not over and time.monotonic() - self._last < EVERY:
                return
            self._last = time.monotonic()
            self._show(exploration)


def explore_frame(exploration: Explore | None) -> Frame:
    """meta: picture, as `picture_data` has it; None where nothing was explored yet."""
    return Frame("explore", {"picture": None if exploration is None else picture_of(exploration)}, {})


def follow(hub: Hub, exploration: Explore) -> None:
    """Show it in the tab of all views from now on, until another one begins."""
    reference = weakref.ref(hub)

    def show(changed: Explore) -> None:
        there = reference()
        if there is not None and there.session.exploration is changed:
            there.publish([explore_frame(changed)])

    exploration.on_change(Follower(show))
    hub.publish([explore_frame(exploration)])


@makes("explore")
def _explore(session: Session, _question: Mapping[str, Any]) -> list[Frame]:
    return [explore_frame(session.exploration)]


def _texts(content: Mapping[str, Any], name: str) -> list[str]:
    value = content.get(name, "")
    if not isinstance(value, str) or len(value) > 10_000:
        raise InputError(f"{name} is a text, values with commas between them")
    return [word.strip() for word in value.split(",") if word.strip()]


def begun(session: Session, content: Mapping[str, Any]) -> Explore:
    """The exploration that a message asks for, at work. Raises `InputError`."""
    now = session.exploration
    if now is not None and now.running:
        raise InputError("an exploration is at work: cancel it, or wait until it is over")
    space = {name: point_values(name, words) for name in _LISTS if (words := _texts(content, name))}
    (budget,) = _texts(content, "budget") or ["200"]
    if not budget.isdecimal():
        raise InputError(f"{budget!r} is not a number of trials")
    asked = session.explore(
        space,
        objectives=_texts(content, "objectives") or DEFAULT_OBJECTIVES,
        require=_texts(content, "require"),
        budget=int(budget),
    )
    return asked.start()


def _guarded(hub: Hub, view: Listener, work: Any) -> None:
    """Do it in a thread of its own, as nothing of the session changes, and say what came of it."""

    def told() -> None:
        try:
            text = work()
        except TbudaError as error:
            answer(view, False, refusal(error))
        else:
            answer(view, True, text)

    if getattr(hub, "session", None) is None:
        answer(view, False, "A file has no session to explore.")
    else:
        threading.Thread(target=told, name="tbuda-explore-ask", daemon=True).start()


def _shown(hub: Hub) -> Explore:
    exploration = hub.session.exploration
    if exploration is None:
        raise InputError("nothing was explored yet")
    return exploration


@answers("explore")
def _begin(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    def work() -> str:
        if hub.session.options.training is not None:
            raise not_supported("exploring a session that trains", "explore the inference of the model")
        return f"exploring {begun(hub.session, content).progress.total} points"

    _guarded(hub, view, work)


@answers("explore_cancel")
def _cancel(hub: Hub, view: Listener, _content: Mapping[str, Any]) -> None:
    def work() -> str:
        _shown(hub).cancel()
        return "the exploration stops; its rows stay"

    _guarded(hub, view, work)


@answers("explore_open")
def _open(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    def work() -> str:
        from tbuda_lab.widgets.handlers.session_hub import hub_of

        trial = _shown(hub).trial(number_of(content, "n"))
        opened = _shown(hub).open(trial.n)
        assert isinstance(opened, Session)  # as the exploration's own is
        _OPENED.setdefault(hub, []).append(opened)
        its = hub_of(opened)
        its.start(run=False)
        view.post({"type": "explore_opened", "session": its.id}, [])
        return f"trial {trial.n} is a session of its own, on {opened.device.name}"

    _guarded(hub, view, work)


@answers("explore_compare")
def _compare(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    def work() -> str:
        diff = _shown(hub).compare(number_of(content, "a"), number_of(content, "b"))
        hub.publish([session_diff_frame(hub.session, diff)])
        return f"compared trial {content['a']} with trial {content['b']}"

    _guarded(hub, view, work)


@answers("explore_export")
def _export(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    _guarded(hub, view, lambda: exported(_shown(hub), content))
