"""The table of placements, and the search that goes on from one: followed on the grid, ended when that is enough, its
changes taken in part."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tbuda_lab.core.compiler import Request
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.frame import Strings
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.changes import PlacementChange, changes_of
from tbuda_lab.widgets.handlers.edit_controller import BUSY, answer, gain_text, refusal
from tbuda_lab.widgets.protocol import answers, makes

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

MOST_SECONDS = 3600.0
DRAWN_INTERVAL = 1.0
"""Seconds between two placements of a search that are drawn; making one takes a tenth of that."""
CURVE_INTERVAL = 0.25
SHOWN = "best so far of the search"


@makes("placements")
def _placements(session: Session, _question: Mapping[str, Any]) -> list[Frame]:
    return [placements_frame(session)]


def placements_frame(session: Session) -> Frame:
    """One row per placement of the session, oldest first: `row_name`, `row_kind`, `row_at` (ISO time of UTC),
    `row_epochs`, `row_chips`, `row_l1` (share of the fullest core), `row_cycles` per input, `row_pcc`; NaN where it is
    not known. meta: current (name of the one shown)."""
    strings, rows = Strings(), session.placements

    def real(field: str) -> np.ndarray:
        return np.array([np.nan if getattr(r.facts, field) is None else getattr(r.facts, field) for r in rows], "<f8")

    columns = {
        "row_name": strings.column(r.name for r in rows),
        "row_kind": strings.column(r.kind for r in rows),
        "row_at": strings.column(r.facts.at for r in rows),
        "row_epochs": np.array([r.facts.epochs for r in rows], dtype="<u4"),
        "row_chips": np.array([r.facts.chips for r in rows], dtype="<u4"),
        **{f"row_{field}": real(field) for field in ("l1", "cycles", "pcc")},
    }
    current = next((r.name for r in rows if r.current), "")
    return Frame("placements", {"current": current, "rev": session.rev}, columns, strings.table)


def _in_turn(hub: Hub, view: Listener, work: Callable[[], str]) -> None:
    """Do it in the edit controller's thread, and say what came of it."""

    def told() -> None:
        try:
            text = work()
        except TbudaError as error:
            answer(view, False, refusal(error))
        else:
            answer(view, True, text)
            hub.publish([placements_frame(hub.session)])

    if hub.edit_controller is None or hub.busy:
        answer(view, False, BUSY if hub.busy else "A file has no session to do that in.")
    else:
        hub.edit_controller.submit(told)


@answers("go_back")
def _go_back(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """name: of a placement that is no file."""

    def work() -> str:
        label = hub.session.go_back(str(content.get("name")))
        if not label:
            return "That placement is shown already."
        hub.session.compile()
        hub.on_edit()
        return label

    _in_turn(hub, view, work)


@answers("open_placement")
def _open(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """path: of a netlist file, where the kernel is."""

    def work() -> str:
        path = content.get("path")
        if not isinstance(path, str) or not path.strip():
            raise InputError("give the path of a netlist file")
        return f"opened {hub.session.open_placement(path.strip()).name}"

    _in_turn(hub, view, work)


class Search:
    """A search under way, or the last one, of one hub."""

    def __init__(self, hub: Hub, seconds: float) -> None:
        self._hub, self.seconds = weakref.ref(hub), seconds
        self.enough = threading.Event()
        self.begun, self.ended = time.monotonic(), 0.0
        self.points: list[tuple[float, int, float]] = []
        self.before: Request | None = None
        self.after: Request | None = None
        self.changes: tuple[PlacementChange, ...] = ()
        self._drawn = self._told = 0.0

    def run(self) -> None:
        """The work of the hub's thread."""
        hub = self._hub()
        assert hub is not None
        session = hub.session
        self.begun = time.monotonic()
        self.before = session.request
        start = session.time().per_input
        self.points = [(0.0, 0, start)]
        self.publish(hub)
        try:
            session.optimise(self.seconds, found=self._found, enough=self.enough)
            best = session.time().per_input  # what it came to, whatever was thought on the way
            steps = session.options.optimise_steps if session.request != self.before else 0
            self.points = [p for p in self.points if p[2] >= best]
            self.points.append((time.monotonic() - self.begun, steps, best))
            if session.request != self.before:
                self.after = session.request
                self.changes = changes_of(session.compiles, self.before, self.after)
        finally:
            self.ended = time.monotonic()
            if hub.edit_controller is not None:
                hub.edit_controller.show_again()
            self.publish(hub)
        hub.tell_all({"type": "edited", "ok": True, "text": f"search: {gain_text(start, best)}"})

    def _found(self, steps: int, cycles: float, placed: Callable[[], PlacedOps]) -> None:
        hub, now = self._hub(), time.monotonic()
        self.points.append((now - self.begun, steps, cycles))
        if hub is None:
            return
        if now - self._drawn >= DRAWN_INTERVAL and cycles < self.points[0][2]:
            frame = hub.session.frames.ops_frame(placed())
            self._drawn = time.monotonic()
            if hub.edit_controller is not None:
                hub.edit_controller.show_for_now(SHOWN, [frame])
        if now - self._told >= CURVE_INTERVAL:
            self._told = now
            self.publish(hub)

    def publish(self, hub: Hub) -> None:
        """Columns: time (seconds since it began), step, cycles (per input, the best so far). meta: running, seconds,
        elapsed, kept (it came to something), changes: [[kind, text, op, epoch, gain], ...]."""
        end = self.ended or time.monotonic()
        points = np.array(self.points or [(0.0, 0, 0.0)], dtype="<f8")
        points[:, 2] = np.minimum.accumulate(points[:, 2])
        meta = {
            "running": not self.ended,
            "seconds": self.seconds,
            "elapsed": end - self.begun,
            "kept": self.after is not None,
            "changes": [[c.kind, c.text, c.op, c.epoch, c.gain] for c in self.changes],
        }
        columns = {"time": points[:, 0].copy(), "step": points[:, 1].astype("<u4"), "cycles": points[:, 2].copy()}
        hub.publish([Frame("search", meta, columns)])


_SEARCHES: weakref.WeakKeyDictionary[Hub, Search] = weakref.WeakKeyDictionary()


@answers("optimise")
def _optimise(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """seconds: how long to search at most."""
    seconds = content.get("seconds")
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= MOST_SECONDS:
        answer(view, False, f"a search takes a number of seconds, at most {MOST_SECONDS:,.0f}")
    elif hub.edit_controller is None or hub.busy:
        answer(view, False, BUSY if hub.busy else "A file has no model to search with.")
    elif hub.session.result is None or hub.session.stale:
        answer(view, False, "Nothing is placed yet, or not what was edited last: run it first.")
    else:
        search = _SEARCHES[hub] = Search(hub, float(seconds))
        hub.work(search.run, "place", f"Searching for a faster placement, {seconds:g} s …", "tbuda-search")


@answers("optimise_enough")
def _enough(hub: Hub, view: Listener, _content: Mapping[str, Any]) -> None:
    """End the search at its next step, and keep what it has found."""
    search = _SEARCHES.get(hub)
    if search is None or search.ended:
        answer(view, False, "No search is under way.")
    else:
        search.enough.set()


@answers("optimise_take")
def _take(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """take: numbers of the changes that are kept, in place of all of them."""
    search, numbers = _SEARCHES.get(hub), content.get("take")

    def work() -> str:
        session = hub.session
        if search is None or search.before is None or search.after is None:
            raise InputError("there was no search that changed anything")
        if not isinstance(numbers, list) or not all(type(n) is int and 0 <= n < len(search.changes) for n in numbers):
            raise InputError("name the changes to keep by their numbers")
        if session.request != search.after or not session.history or session.history[-1].before != search.before:
            raise InputError("the placement was edited since: undo what came later first")
        if not numbers:
            raise InputError("no change is chosen: undo takes the whole search back")
        return take(hub, search, tuple(search.changes[n] for n in dict.fromkeys(numbers)))

    _in_turn(hub, view, work)


def take(hub: Hub, search: Search, chosen: tuple[PlacementChange, ...]) -> str:
    """The chosen changes in place of all: one undo step. Where they are refused without the others, all stay."""
    session = hub.session
    before = session.time().per_input
    label = f"{len(chosen)} of {len(search.changes)} changes of the search"
    session.undo()
    try:
        session.attempt(*(c.command for c in chosen), label=label, source="page")
    except TbudaError:
        session.redo()
        session.compile()
        raise
    finally:
        hub.on_edit()
    return f"{label}: {gain_text(before, session.time().per_input)}"
