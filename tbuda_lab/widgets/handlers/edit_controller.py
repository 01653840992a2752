"""Edits that a page asks for: legal tables, commits, undo and redo, one after the other in a thread of their own."""

from __future__ import annotations

import sys
import threading
import weakref
from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.compiler import Request
from tbuda_lab.core.diff import same_epochs
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
from tbuda_lab.core.run_control import wait_for
from tbuda_lab.core.session import Command
from tbuda_lab.core.session.commands import SetOptions
from tbuda_lab.core.session.compiles import FIRST
from tbuda_lab.core.session.whatif import WhatIf, time_of
from tbuda_lab.widgets.handlers.edit_messages import commands_of, edits_frame, label_of, legal_frame
from tbuda_lab.widgets.handlers.gc_policy import GC_POLICY
from tbuda_lab.widgets.protocol import answers

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener

STOP_WAIT = 60.0
"""Seconds that an edit waits at most for the safe point at which the search for a better placement ends."""
SHOWN = 400
"""Displaced ops that an answer names at most."""

BUSY = "The model is being compiled or run: wait until that ends, or cancel it."


class EditController:
    """What a hub does for views that edit. A thread is there only while something is asked."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self._tasks: deque[Callable[[], None]] = deque()
        self._lock = threading.Lock()
        self._thread: threading.Thread | None = None
        self._working = False
        self._last: dict[str, Any] | None = None
        self._cancel = threading.Event()  # of the compile that only shows
        self.shown = ""  # the edit that is shown and not made
        self.first = False  # the first placement is shown: a better one is searched, or was before that was cancelled
        self._exact: weakref.WeakKeyDictionary[Listener, int] = weakref.WeakKeyDictionary()
        for event in ("edited", "compiled", "stale"):
            hub.session.on(event, lambda _: self.publish())
        self.publish()

    def receive(self, view: Listener, content: Mapping[str, Any]) -> None:
        """A message of a view that edits."""
        what = content.get("type")
        if what in ("probe_exact", "probe_end"):
            number = content.get("ask")  # older ones are void
            self._exact[view] = number if isinstance(number, int) and what == "probe_exact" else -1
            self._cancel.set()
            if what == "probe_end":
                self.submit(self.show_again)
            if what == "probe_exact" and not self.hub.busy:
                self.submit(lambda: self._try(view, content))
            return
        if self.first and what in ("probe_begin", "edit", "keep_first"):
            self.submit(lambda: self._keep_first(view))
        elif self.hub.busy:
            answer(view, False, BUSY)
            return
        elif what == "keep_first":
            answer(view, False, "What is shown is no first placement: there is nothing to keep.")
        if what == "probe_begin":
            self.submit(lambda: self._probe(view, content))
        elif what == "edit":
            self._exact[view] = -1
            self._cancel.set()
            self.submit(lambda: self._edit(view, content))
        elif what in ("undo", "redo"):
            self.submit(lambda: self._step(view, str(what)))
        elif what == "recompile":
            self.submit(lambda: self._again(view))

    @property
    def waited_for(self) -> bool:
        """Whether something else was asked: a long answer ends early then."""
        return bool(self._tasks) or self.hub.busy

    def wait(self, timeout: float | None = None) -> None:
        """Until nothing is asked any more; raises `TimeoutError` after `timeout` seconds."""
        wait_for(self._thread, timeout)

    def drop(self) -> None:
        """Forget what was asked and is not begun, and stop what is only shown: nobody is there to see it."""
        with self._lock:
            self._tasks.clear()
        self._cancel.set()
        if self._working:
            self.hub.session.cancel()

    def publish(self) -> None:
        """Tell the views about edits, unless they know."""
        frame = edits_frame(self.hub.session, self._working, self.shown, self.first)
        if frame.meta != self._last:
            self._last = frame.meta
            self.hub.publish([frame])

    # -- the thread --------------------------------------------------------------------------------------------
    def submit(self, task: Callable[[], None]) -> None:
        """Do something after what was asked before, in the edit controller's thread."""
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
            try:
                with GC_POLICY.working():
                    task()
            except Exception:  # a defect: it is shown, and what is asked next is answered all the same
                threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))

    def _probe(self, view: Listener, content: Mapping[str, Any]) -> None:
        session = self.hub.session
        seq = content.get("seq")
        try:
            table = session.legal(str(content.get("op")))
        except TbudaError as error:
            answer(view, False, refusal(error))
            return
        self.hub.send_frame(view, legal_frame(table, session.rev, seq if isinstance(seq, int) else 0))

    def _try(self, view: Listener, content: Mapping[str, Any]) -> None:
        """What an edit would do, exactly; nothing is said once a newer question is there."""
        number = content.get("ask")  # a view numbers its messages by `seq`
        if self._exact.get(view) != number:
            return
        session = self.hub.session
        edit = content.get("edit")
        try:
            commands = commands_of(edit if isinstance(edit, Mapping) else {}, session)
            effect = session.whatif(*commands)
            before, after = session.placed(), session.compiles.placed_after(*commands)
        except TbudaError as error:
            reply: dict[str, Any] = {"ok": False, "text": refusal(error)}
        else:
            old, new = before.ops(), after.ops()
            same = same_epochs({n: p.epoch for n, p in old.items()}, {n: p.epoch for n, p in new.items()})
            reply = {"ok": True, **effect_data(effect, same), "time": [_per_input(before), _per_input(after)]}
            names = dict.fromkeys(op for c in commands if isinstance(op := getattr(c, "op", None), str) and op in new)
            reply["own"] = [[n, same.get(new[n].epoch, -1), *new[n].start, *new[n].size] for n in names]
        if self._exact.get(view) == number:
            view.post({"type": "exact", "ask": number, **reply}, [])
            if content.get("live") is True and reply["ok"]:
                self._preview(view, number, commands)

    # -- edits that are shown before they are made ---------------------------------------------------------------
    def _preview(self, view: Listener, number: Any, commands: tuple[Command, ...]) -> None:
        """Compile what a drag rests on and show it everywhere; making the edit is a lookup then."""
        session = self.hub.session
        cancel = self._cancel = threading.Event()
        if self._exact.get(view) != number:
            return
        try:
            state = session.compiles.state_after(*commands)
            session.frames.ops_frame(session.placed(state, cancel))  # times of epochs that stay are known then
            preview = session.preview(state, cancel)
        except TbudaError:
            return  # the answer said what there is to say
        if self._exact.get(view) == number:
            self.shown = ", ".join(c.label for c in commands)
            self.hub.publish(session.frames.of(preview))
            self.publish()

    def _ahead(self, state: Request) -> None:
        """Show where the ops go as soon as that is known: the netlist and its check take three times as long."""
        session = self.hub.session
        self.hub.publish([session.frames.ops_frame(session.placed(state))])

    def _current(self) -> None:
        """Show the current placement, whatever was shown."""
        if self.hub.session.result is not None:
            self.hub.publish(self.hub.session.frames.of(self.hub.session.result))

    def show_first(self, frame: Frame) -> None:
        """Show the first placement. It can be edited at once: that keeps it, and ends the search for a better one."""
        self.first = True
        self.hub.publish([frame])
        self.publish()

    def _keep_first(self, view: Listener) -> None:
        if not self.first:
            return  # a better one came meanwhile
        session = self.hub.session
        self.hub.stop_work(STOP_WAIT)
        if not self.first:
            return
        self.first = False
        self._begin()
        try:
            session.attempt(SetOptions(**FIRST), label="keep the first placement", source="page")
            self.hub.on_edit()
        except TbudaError as error:
            answer(view, False, refusal(error))
        else:
            answer(view, True, "The first placement is kept; undo goes on with the search.")
        finally:
            self._end()

    def show_for_now(self, what: str, frames: list[Frame]) -> None:
        """Show a placement that is not made (yet), until `show_again`."""
        self.shown = what
        self.hub.publish(frames)
        self.publish()

    def show_again(self) -> None:
        """What was shown was not made: the current placement again."""
        if self.shown:
            self.shown = ""
            self._current()
            self.publish()

    def _again(self, view: Listener) -> None:
        session = self.hub.session
        if session.result is not None and not session.stale:
            answer(view, False, "Nothing to compile: the placement is up to date.")
            return
        self._begin()
        try:
            result = session.compile()
            self.hub.on_edit()
        except TbudaError as error:
            answer(view, False, refusal(error))
        else:
            answer(view, True, f"compiled: {len(result.placement.epochs)} epochs")
        finally:
            self._end()

    def _edit(self, view: Listener, content: Mapping[str, Any]) -> None:
        session = self.hub.session
        self._begin()
        words, manual = content.get("label"), content.get("compile") == "manual"
        echo = content.get("echo") is True  # the page's user wants each edit in the notebook's log
        try:
            commands = commands_of(content, session)
            label = label_of(words, commands)
            after = session.compiles.state_after(*commands)
            if after.key == session.request.key:
                answer(view, False, f"Nothing to do: {label}")
                return
            session.compiles.whatif_of(after)  # raises what compiling would raise, and changes nothing
            before = _per_input(session.placed())
            if manual:
                session.apply(*commands, label=label, source="page")
                answer(view, True, f"{label}: not compiled yet")
                return
            self._ahead(after)
            try:
                session.attempt(*commands, label=label, source="page")  # one that fails late leaves nothing behind
            except TbudaError:
                self._current()
                raise
            finally:
                self.hub.on_edit()
        except TbudaError as error:
            answer(view, False, refusal(error))
        else:
            answer(view, True, f"{label}: {gain_text(before, _per_input(session.placed()))}")
            if echo:
                print(*(c.python() for c in commands), sep="\n", flush=True)
        finally:
            self.show_again()
            self._end()

    def _step(self, view: Listener, what: str) -> None:
        session = self.hub.session
        if session.looked_up(what) is None:
            self._begin()  # it takes a while
        try:
            label = session.undo() if what == "undo" else session.redo()
            if label:
                session.compile()
                self.hub.on_edit()
        except TbudaError as error:
            answer(view, False, refusal(error))
        else:
            done = "undone" if what == "undo" else "done again"
            answer(view, bool(label), f"{done}: {label}" if label else f"Nothing to {what}.")
        finally:
            self._end()

    def _begin(self) -> None:
        self._working = True
        self.publish()

    def _end(self) -> None:
        self._working = False
        self.publish()


@answers("keep_first", "probe_begin", "probe_exact", "probe_end", "edit", "undo", "redo", "recompile")
def _ask(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    if hub.edit_controller is not None:
        hub.edit_controller.receive(view, content)


def effect_data(effect: WhatIf, same: Mapping[int, int]) -> dict[str, Any]:
    """An effect for a page. same: epoch afterwards -> its number now; new epochs have -1. displaced: [op, epoch now,
    epoch afterwards, row, column, rows, columns]."""
    displaced = [
        [d.op, d.before.epoch, same.get(d.after.epoch, -1), *d.after.start, *d.after.size]
        for d in effect.displaced[:SHOWN]
    ]
    return {
        "epoch_cycles": list(effect.epoch_cycles),
        "total_cycles": list(effect.total_cycles),
        "epochs": list(effect.epochs),
        "gain": effect.gain,
        "moved": len(effect.displaced),
        "displaced": displaced,
    }


def _per_input(placed: PlacedOps) -> float:
    return time_of(placed).per_input


def gain_text(before: float, after: float) -> str:
    """What an edit does to the simulated time of the batch, in words."""
    if round(after) == round(before):
        return f"no gain, {after:,.0f} cycles per input as before"
    share = f"{100 * (after - before) / before:+.1f} %"
    if float(share[:-2]) == 0:
        share = f"less than 0.1 % {'slower' if after > before else 'faster'}"
    return f"{before:,.0f} → {after:,.0f} cycles per input ({share})"


def refusal(error: TbudaError) -> str:
    """Why not, in a sentence: the first finding and what would help."""
    first = next((d for d in error.diagnostics if d.severity == "error"), None)
    if first is None:
        return str(error).splitlines()[0]
    return f"{first.where}: {first.message}" + (f"; {first.fix}" if first.fix else "")


def answer(view: Listener, ok: bool, text: str) -> None:
    """Say what came of an edit."""
    view.post({"type": "edited", "ok": ok, "text": text}, [])
