"""Questions that views ask about an op, the whole placement or the profile; each is answered to the view that asked."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tbuda_lab.core.diff import same_epochs
from tbuda_lab.core.errors import Cancelled, InputError, TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.frame import Strings
from tbuda_lab.core.lowering.data_formats import legal_fidelities, legal_formats
from tbuda_lab.core.session import ClearOp, Constrain, Session, Suggestion
from tbuda_lab.core.session.exports import overrides_text
from tbuda_lab.core.session.legal import choices_of
from tbuda_lab.core.session.profile import Profile, ProfiledOp
from tbuda_lab.core.session.temporal import stops
from tbuda_lab.widgets.handlers.edit_controller import BUSY, effect_data, refusal
from tbuda_lab.widgets.handlers.edit_messages import message_of
from tbuda_lab.widgets.protocol import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

_PART_INTERVAL = 0.25  # s between two parts of a long answer
_PROFILE_INTERVAL = 0.5  # s between two profiles while edits are searched
_STOPS = 160  # places of a break that are tried
_GHOSTS = 24  # displaced ops that a suggestion shows
_GAINS = 40  # overrides whose gain is worked out
EDITS = 16
"""Edits that a profile searches for."""

Answer = Callable[[Session, Mapping[str, Any]], dict[str, Any]]


def _head(content: Mapping[str, Any]) -> dict[str, Any]:
    """What an answer repeats of the question."""
    return {k: content[k] for k in ("type", "op", "ask") if k in content}


def _answer_query(hub: Hub, view: Listener, content: Mapping[str, Any], make: Answer) -> None:
    """Answer in the edit controller's thread: the same `type`, `op` and `ask` as the question, `ok`, and what
    `make` says."""
    head = _head(content)

    def work() -> None:
        try:
            reply = {"ok": True, "rev": hub.session.rev, **make(hub.session, content)}
        except TbudaError as error:
            reply = {"ok": False, "text": refusal(error)}
        view.post({**head, **reply}, [])

    if hub.edit_controller is None:
        return
    if hub.busy:
        view.post({**head, "ok": False, "text": BUSY}, [])
    else:
        hub.edit_controller.submit(work)


@answers("suggest")
def _suggest(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """The best edits, told as they are found (`done` is false until all are) until something else is asked."""
    count = content.get("n")
    limit = count if isinstance(count, int) and 0 < count <= 50 else 10

    def make(session: Session, _content: Mapping[str, Any]) -> dict[str, Any]:
        stop = threading.Event()
        best: list[Suggestion] = []
        last_report, last_count = time.monotonic(), 0

        def progress(suggestions: list[Suggestion], fraction: float) -> None:
            nonlocal best, last_report, last_count
            best = suggestions
            if hub.edit_controller is None or hub.edit_controller.waited_for:
                stop.set()
            elif len(suggestions) > last_count and time.monotonic() - last_report >= _PART_INTERVAL:
                reply = {"list": suggestion_list(session, suggestions), "fraction": fraction}
                view.post({**_head(content), "ok": True, "rev": session.rev, "done": False, **reply}, [])
                last_report, last_count = time.monotonic(), len(suggestions)

        with contextlib.suppress(Cancelled):
            best = session.suggest(limit, progress, stop)
        return {"list": suggestion_list(session, best), "done": True}

    _answer_query(hub, view, content, make)


def suggestion_list(session: Session, suggestions: Sequence[Suggestion]) -> list[dict[str, Any]]:
    """Suggestions as views show them."""
    result: list[dict[str, Any]] = []
    before = session.placed().ops()
    epochs = {n: p.epoch for n, p in before.items()}
    for hint in suggestions:
        placed = session.compiles.placed_after(*hint.commands)
        after = placed.ops()
        same = same_epochs(epochs, {n: p.epoch for n, p in after.items()})
        ops = [op for c in hint.commands if isinstance(op := getattr(c, "op", None), str) and op in before]
        ops += [op for c in hint.commands if isinstance(c, Constrain) for op in c.ops]
        # where they go within the epochs there are; of what leaves for a new epoch, where it stands now
        spots = []
        for op in dict.fromkeys((*ops, *(d.op for d in hint.effect.displaced[:_GHOSTS]))):
            spot = after.get(op, before.get(op))
            if spot is None:
                continue
            epoch = same.get(spot.epoch, -1)
            if epoch < 0 and op in before:
                spot, epoch = before[op], before[op].epoch
            if op in ops or epoch == hint.epoch:
                spots.append([op, epoch, *spot.start, *spot.size])
        effect = {k: v for k, v in effect_data(hint.effect, same).items() if k != "gain"}
        result.append({**_edit(hint), "ops": ops, "spots": spots, **effect})
    return result


@answers("why")
def _why(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    _answer_query(hub, view, content, why_data)


def why_data(session: Session, content: Mapping[str, Any]) -> dict[str, Any]:
    """Why an op stands as it does, with every field that `Session.why` has; edits as messages that ask for them."""
    reasons = session.why(str(content.get("op")))
    data: dict[str, Any] = {}
    for field in dataclasses.fields(reasons):
        value = getattr(reasons, field.name)
        if field.name == "refused":
            data["refused"] = [[r.name, int(n), meaning, remedy] for r, n, meaning, remedy in value]
        elif field.name == "next_best":
            data["next_best"] = [_alternative(a) for a in value]
        elif isinstance(value, (str, int, float, bool)):
            data[field.name] = value
        elif isinstance(value, tuple) and all(isinstance(v, (str, int, float)) for v in value):
            data[field.name] = list(value)
    data["picked"] = session.queries.provenance(reasons.op)
    data["overrides"] = [o.kind for o in session.overrides if o.matches([reasons.op])]
    return data


def _alternative(choice: Any) -> dict[str, Any]:
    data = {
        f.name: getattr(choice, f.name)
        for f in dataclasses.fields(choice)
        if isinstance(getattr(choice, f.name), (str, int, float, bool, type(None)))
    }
    data["grid"] = list(choice.grid)
    data["edit"] = message_of(choice.command)
    data["python"] = choice.command.python()
    return data


@answers("choices")
def _choices(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    def make(session: Session, content: Mapping[str, Any]) -> dict[str, Any]:
        entry = choices_of(session.compiles, str(content.get("op")))
        return {
            "u_kt": [list(c) for c in entry.u_kt],
            "streams": [[*s, cycles] for s, cycles in entry.streams],
            "buffers": [[list(f) for f in operand] for operand in entry.buffers],
            "now": {**entry.now, "buffers": {str(k): v for k, v in entry.now["buffers"].items()}},
        }

    _answer_query(hub, view, content, make)


@answers("formats")
def _formats(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """Formats and fidelities that an op may have, and those it has."""

    def make(session: Session, content: Mapping[str, Any]) -> dict[str, Any]:
        graph, op = session.compile().lowered, str(content.get("op"))
        if op not in graph.nodes:
            raise InputError(f"{op!r} is not an op of the placed graph")
        return {
            "formats": [f.name for f in legal_formats(graph, op, session.device)],
            "fidelities": [f.name for f in legal_fidelities(graph, op)],
            "now": [str(graph[op].df), str(graph[op].attrs.get("fidelity"))],
        }

    _answer_query(hub, view, content, make)


@answers("code")
def _code(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    def make(session: Session, _: Mapping[str, Any]) -> dict[str, Any]:
        return {"python": overrides_text(session, "python"), "json": overrides_text(session, "json")}

    _answer_query(hub, view, content, make)


@answers("gains")
def _gains(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    _answer_query(hub, view, content, gains_data)


def gains_data(session: Session, _content: Mapping[str, Any]) -> dict[str, Any]:
    """For every override made for one name: cycles per input that it saves, simulated, their share of
    what the placement without it takes, and the epochs that it adds; null for each where that one is refused."""
    gains: list[list[Any]] = []
    for override in session.overrides[:_GAINS]:
        if not isinstance(override.target, str):
            continue
        gain: list[float | None] = [None, None, None]
        with contextlib.suppress(TbudaError):
            cleared = session.whatif(ClearOp(override.target, (override.kind,)))
            gain = [-cleared.gain, -cleared.gain / cleared.time[1], -cleared.epochs_delta]
        gains.append([override.kind, override.target, *gain])
    return {"gains": gains}


@answers("break_stops")
def _break_stops(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """Where a break could stand, nearest first, told in parts until something else is asked: `stops` holds
    [op, epochs, slowest, total, against]."""
    controller = hub.edit_controller
    if controller is None or hub.busy:
        return
    head = {"type": "break_stops", "op": content.get("op"), "ask": content.get("ask")}

    def work() -> None:
        breaks: list[list[Any]] = []
        last_report = time.monotonic()
        try:
            kind = str(content.get("kind") or "epoch_break")
            for count, stop in enumerate(stops(hub.session.compiles, str(content.get("op")), kind)):
                breaks.append(list(stop))
                now = time.monotonic()
                if now - last_report >= _PART_INTERVAL:
                    view.post({**head, "stops": breaks, "done": False}, [])
                    breaks, last_report = [], now
                if controller.waited_for or count >= _STOPS:
                    break
        except TbudaError as error:
            view.post({**head, "stops": [], "done": True, "text": refusal(error)}, [])
            return
        view.post({**head, "stops": breaks, "done": True}, [])

    controller.submit(work)


def profile_frame(session: Session, edits: list[Suggestion], search: float = 1.0) -> Frame:
    """A profile as columns, one row per op, what to do next first.

    `op_*`: as the fields of `ProfiledOp`; `op_edit`: index into meta `edits`, -1 for none. meta: rev; total, switch,
    batch; ridge: bytes of DRAM traffic per cycle that all channels together carry; search: the fraction of the search
    for edits that is done; edits: label, kind, epoch, gain, time (before, after), batch (null: of the session), edits
    (messages that ask for them) and python.
    """
    profile = session.profile(edits)
    device = session.device
    numbered = {id(o.edit): o.edit for o in profile.ops if o.edit is not None}
    index = {key: i for i, key in enumerate(numbered)}
    meta = {
        "rev": session.rev,
        "total": profile.total,
        "switch": profile.switch,
        "batch": profile.batch,
        "ridge": float(device.dram_bytes_per_cycle * device.dram_channels * device.dram_subchannels),
        "search": search,
        "edits": [_edit(e) for e in numbered.values()],
    }
    return _columns(profile, index, meta)


def _columns(profile: Profile, index: Mapping[int, int], meta: dict[str, Any]) -> Frame:
    strings, ops = Strings(), profile.ops

    def numbers(field: str) -> np.ndarray:
        return np.array([getattr(o, field) for o in ops], dtype="<f8")

    def edit_of(op: ProfiledOp) -> int:
        return -1 if op.edit is None else index[id(op.edit)]

    columns = {
        **{
            f"op_{name}": strings.column(getattr(o, field) for o in ops)
            for name, field in (("name", "op"), ("type", "type"), ("module", "module"), ("bound", "bound"))
        },
        "op_epoch": np.array([o.epoch for o in ops], dtype="<u4"),
        **{f"op_{field}": numbers(field) for field in ("time", "share", "cycles", "kernel", "work", "dram", "gain")},
        "op_edit": np.array([edit_of(o) for o in ops], dtype="<i4"),
    }
    return Frame("profile", meta, columns, strings.table)


def _edit(one: Suggestion) -> dict[str, Any]:
    """An edit with its gain, as lists of suggestions and profiles show it."""
    return {
        "label": one.label,
        "kind": one.kind,
        "epoch": one.epoch,
        "gain": float(one.gain),
        "time": [float(c) for c in one.cycles],
        "batch": one.batch,
        "edits": [message_of(c) for c in one.commands],
        "python": "\n".join(c.python() for c in one.commands),
    }


@answers("profile")
def _profile(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """edits: whether to look for edits as well; the search ends early where something else is asked."""

    def refuse(text: str) -> None:
        view.post({"type": "refused", "key": "profile", "text": text}, [])

    def work() -> None:
        session = hub.session
        try:
            hub.publish([profile_frame(session, [], 0.0 if content.get("edits") is True else 1.0)])
            if content.get("edits") is True:
                _search(hub)
        except TbudaError as error:
            refuse(str(error).splitlines()[0])

    if hub.edit_controller is None:
        refuse("A file has no profile: nothing was simulated.")
    else:
        hub.edit_controller.submit(work)


def _search(hub: Hub) -> None:
    session, stop = hub.session, threading.Event()
    rev, best, last_report, done = session.rev, list[Suggestion](), time.monotonic(), 1.0

    def progress(so_far: list[Suggestion], fraction: float) -> None:
        nonlocal best, last_report, done
        best = so_far
        if hub.edit_controller is None or hub.edit_controller.waited_for:
            done = fraction
            stop.set()
        elif time.monotonic() - last_report >= _PROFILE_INTERVAL:
            hub.publish([profile_frame(session, best, fraction)])
            last_report = time.monotonic()

    with contextlib.suppress(Cancelled):
        best = session.suggest(EDITS, progress, stop)
    if session.rev == rev and not session.stale:
        hub.publish([profile_frame(session, best, done)])
