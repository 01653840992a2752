"""The profile that a page asks for: at once what is known, then with the edits that help, as they are found."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tbuda_lab.core.errors import Cancelled, TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.frame import Strings
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.profile import OpTime, Profile
from tbuda_lab.core.session.suggest import Suggestion
from tbuda_lab.widgets.handlers.edit_messages import message_of
from tbuda_lab.widgets.protocol.messages import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

EDITS = 16
"""Edits that are looked for."""
_TOLD = 0.5  # seconds between two parts of an answer


def profile_frame(session: Session, edits: list[Suggestion], search: float = 1.0) -> Frame:
    """A profile as columns, one row per op, what to do next first.

    `op_*`: as the fields of `OpTime`; `op_edit`: index into meta `edits`, -1 for none. meta: rev; total, switch,
    batch; ridge: bytes of DRAM traffic per cycle that all channels together carry; search: the fraction of the search
    for edits that is done; edits: label, kind, epoch, gain, time (before, after), batch (null: of the session), edits
    (messages that ask for them) and python.
    """
    profile = session.profile(edits)
    device = session.device
    numbered = {id(o.edit): o.edit for o in profile.ops if o.edit is not None}
    index = {key: i for i, key in enumerate(numbered)}
    meta = {
        "rev": session.rev, "total": profile.total, "switch": profile.switch, "batch": profile.batch,
        "ridge": float(device.dram_bytes_per_cycle * device.dram_channels * device.dram_subchannels),
        "search": search, "edits": [_edit(e) for e in numbered.values()],
    }  # fmt: skip
    return _columns(profile, index, meta)


def _columns(profile: Profile, index: Mapping[int, int], meta: dict[str, Any]) -> Frame:
    strings, ops = Strings(), profile.ops

    def numbers(field: str) -> np.ndarray:
        return np.array([getattr(o, field) for o in ops], dtype="<f8")

    def edit_of(op: OpTime) -> int:
        return -1 if op.edit is None else index[id(op.edit)]

    columns = {
        **{f"op_{name}": strings.column(getattr(o, field) for o in ops)
           for name, field in (("name", "op"), ("type", "type"), ("module", "module"), ("bound", "bound"))},
        "op_epoch": np.array([o.epoch for o in ops], dtype="<u4"),
        **{f"op_{field}": numbers(field) for field in ("time", "share", "cycles", "kernel", "work", "dram", "gain")},
        "op_edit": np.array([edit_of(o) for o in ops], dtype="<i4"),
    }  # fmt: skip
    return Frame("profile", meta, columns, strings.table)


def _edit(one: Suggestion) -> dict[str, Any]:
    return {
        "label": one.label, "kind": one.kind, "epoch": one.epoch, "gain": float(one.gain),
        "time": [float(c) for c in one.cycles], "batch": one.batch,
        "edits": [message_of(c) for c in one.commands], "python": "\n".join(c.python() for c in one.commands),
    }  # fmt: skip


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
        elif time.monotonic() - last_report >= _TOLD:
            hub.publish([profile_frame(session, best, fraction)])
            last_report = time.monotonic()

    with contextlib.suppress(Cancelled):
        best = session.suggest(EDITS, progress, stop)
    if session.rev == rev and not session.stale:
        hub.publish([profile_frame(session, best, done)])
