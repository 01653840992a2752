"""Frames and code that a page asks for: nothing of it is made or sent before.

A page says `{type: "want", key, ...}` and gets the frames of that key, kept for all views of the session, or
`{type: "refused", key, text}`. They are made in the edit controller's thread, after what was asked before.

`{type: "need_more"}` brings the code of the views left out as one binary buffer, in the message `more`; the page takes
it in as a module and checks that it is of the same build.
"""

from __future__ import annotations

import dataclasses
import pathlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.analysis.noc import link_map
from tbuda_lab.core.diff import Diff
from tbuda_lab.core.diff.frame import diff_frame
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.analysis_frames import cluster_frame, links_frame, memory_frame
from tbuda_lab.core.frames.graph_frame import SIDES, pass_frame, passes_frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.protocol import MAKERS, answers, makes

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

MORE = pathlib.Path(__file__).parents[1] / "static" / "more.js"
"""The views that the bundle of every widget leaves out: a page fetches them when one of them is first seen."""


@answers("want")
def _want(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    key = str(content.get("key"))
    if hub.edit_controller is None and (frames := hub.frames_on_demand(key)):
        hub.publish(frames)
    elif hub.edit_controller is not None and hub.edit_controller.first and hub.busy:
        return  # of the first placement there is no more than where the ops stand; the next one asks again
    elif hub.edit_controller is None or key not in MAKERS:
        view.post({"type": "refused", "key": key, "text": f"there is no {key}"}, [])
    else:
        hub.edit_controller.submit(lambda: _make(hub, view, key, content))


def _make(hub: Hub, view: Listener, key: str, content: Mapping[str, Any]) -> None:
    shown = hub.frame(key)  # what is on the screen says what a question leaves out
    sides: dict[str, Any] = {k: shown.meta[k] for k in ("a", "b") if k in shown.meta} if shown is not None else {}
    try:
        frames = MAKERS[key](hub.session, {**sides, **content})
    except TbudaError as error:
        view.post({"type": "refused", "key": key, "text": str(error).splitlines()[0]}, [])
    else:
        hub.publish(frames)


@answers("need_more")
def _more(_hub: Hub, view: Listener, _content: Mapping[str, Any]) -> None:
    try:
        code = MORE.read_bytes()
    except OSError as error:
        view.post({"type": "more", "ok": False, "text": f"{MORE.name} cannot be read: {error.strerror}"}, [])
    else:
        view.post({"type": "more", "ok": True, "text": ""}, [code])


@makes("cluster")
def _cluster(session: Session, _question: Mapping[str, Any]) -> list[Frame]:
    return [cluster_frame(session.compile(), session.rev)]


@makes("memory")
def _memory(session: Session, _question: Mapping[str, Any]) -> list[Frame]:
    return [memory_frame(session.compile(), session.rev)]


@makes("passes")
def _passes(session: Session, _question: Mapping[str, Any]) -> list[Frame]:
    """The passes, run again: the list, and the graph of the first that changed something."""
    trace = session.passes()
    first = next((s.index for s in trace.steps if s.changes), 0)
    frames = [passes_frame(trace, session.rev)]
    return [*frames, pass_frame(trace, first)] if trace.steps else frames


@makes("passgraph")
def _pass(session: Session, question: Mapping[str, Any]) -> list[Frame]:
    trace = session.passes()
    index, side = question.get("index"), str(question.get("side", "after"))
    if type(index) is not int or not 0 <= index < len(trace.steps) or side not in SIDES:
        last = len(trace.steps) - 1
        raise InputError(f"there is no graph {side!r} of a pass {index!r}; passes count from 0 to {last}")
    return [pass_frame(trace, index, side)]


def session_diff_frame(session: Session, diff: Diff) -> Frame:
    """The frame of a comparison, with the names that the session knows in meta `names`."""
    frame = diff_frame(diff)
    return dataclasses.replace(frame, meta={**frame.meta, "names": states_of(session)})


def states_of(session: Session) -> list[str]:
    """Names of the states of a session that can be compared: checkpoints, and those that there always are."""
    own = [n for n in session.checkpoints if n not in ("start", "previous", "now")]
    return ["start", *own, "previous", "now"]


@makes("diff")
def _compare(session: Session, question: Mapping[str, Any]) -> list[Frame]:
    a, b = str(question.get("a", "start")), str(question.get("b", "now"))
    return [session_diff_frame(session, session.diff(a, b))]


@answers("checkpoint")
def _checkpoint(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """Mark the current state; without a name it gets the first letter that is free."""
    session = hub.session
    name = content.get("name")
    if not isinstance(name, str) or not name.strip():
        name = next_name(session.checkpoints)
    try:
        session.checkpoint(name.strip())
    except TbudaError as error:
        view.post({"type": "edited", "ok": False, "text": str(error)}, [])
        return
    view.post({"type": "edited", "ok": True, "text": f"checkpoint {name.strip()}"}, [])
    shown = hub.frame("diff")
    if shown is not None and hub.edit_controller is not None:
        names = [*shown.meta.get("names", ())]
        at = names.index("previous") if "previous" in names else len(names)
        if name.strip() not in names:
            names.insert(at, name.strip())
        hub.publish([dataclasses.replace(shown, meta={**shown.meta, "names": names})])


def next_name(taken: tuple[str, ...]) -> str:
    """A, B, ..., Z, A2, B2, ...: the first that is free."""
    turn = 1
    while True:
        for letter in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
            name = letter if turn == 1 else f"{letter}{turn}"
            if name not in taken:
                return name
        turn += 1


def shown_links(session: Session, epoch: int, noc: str) -> Frame:
    """The links of an epoch of the current result; nothing is compiled. Raises `InputError`."""
    if session.result is None:
        raise InputError("nothing is placed yet")
    return links_frame(link_map(session.result, epoch, noc), session.device)


@answers("need_links")
def _need_links(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """`epoch`, `noc`; answered by a frame `links:EPOCH:NOC` with the question's number in its meta."""
    epoch, noc, ask = content.get("epoch"), str(content.get("noc")), content.get("ask")

    def work() -> None:
        try:
            frame = shown_links(hub.session, epoch if type(epoch) is int else -1, noc)
        except InputError as error:
            view.post({"type": "refused", "key": "links", "text": str(error), "ask": ask}, [])
        else:
            hub.send_frame(view, dataclasses.replace(frame, meta={**frame.meta, "ask": ask}))

    if hub.edit_controller is None:
        view.post({"type": "refused", "key": "links", "text": "a file has no link data", "ask": ask}, [])
    else:
        hub.edit_controller.submit(work)


PASS_KEY = "graph:pass"


def after_pass(session: Session, name: str | int) -> Frame:
    """The graph after a pass as a frame of its own, with what the pass changed. Raises `KeyError`."""
    trace = session.passes()
    return dataclasses.replace(pass_frame(trace, trace.find(name)), key=PASS_KEY)


@answers("need_pass")
def _need_pass(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """`pass`: a label, "" for the first that changed something; answered by the frames `passlist` and `graph:pass`."""
    ask = content.get("ask")

    def work() -> None:
        try:
            trace = hub.session.passes()
            listed = dataclasses.replace(passes_frame(trace, hub.session.rev), key="passlist")
            name = str(content.get("pass") or "")
            frames = [listed]
            if trace.steps:
                index = trace.find(name) if name else next((s.index for s in trace.steps if s.changes), 0)
                shown = after_pass(hub.session, index)
                frames.append(dataclasses.replace(shown, meta={**shown.meta, "ask": ask}))
        except (TbudaError, KeyError) as error:
            text = str(error.args[0]) if isinstance(error, KeyError) else str(error).splitlines()[0]
            view.post({"type": "refused", "key": PASS_KEY, "text": text, "ask": ask}, [])
        else:
            hub.send_frames(view, frames)

    if hub.edit_controller is None:
        view.post({"type": "refused", "key": PASS_KEY, "text": "A file has no model and no passes.", "ask": ask}, [])
    else:
        hub.edit_controller.submit(work)
