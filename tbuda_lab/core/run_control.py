"""How work runs: threads are paused, stepped and waited for, and garbage is collected afterwards."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

POLL = 0.05  # s between two looks at whether a paused run was cancelled


def wait_for(thread: threading.Thread | None, timeout: float | None) -> None:
    """Until the thread, if there is one, has ended. Raises `TimeoutError` after `timeout` seconds."""
    if thread is not None:
        thread.join(timeout)
        if thread.is_alive():
            raise TimeoutError(f"still at work after {timeout} s")


@contextmanager
def no_collections() -> Iterator[None]:
    """No collection of garbage inside.

    A compile and an answer make many objects that live for milliseconds. Those that a collection meets count as old,
    and soon everything that a session holds is looked through again and again: a fifth of the time of a compile at
    2,000 nodes, and a third of a second in one answer of a handful at 700 ops. Without a collection in between they are
    gone when the work is done.
    """
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class RunControl:
    """Pauses and steps the runs that are given it. Every method may be called from any thread.

    A pause takes effect before the next op. A step goes to the end of the op, of the epoch, or of the input (where a
    model runs several inputs at a time, its microbatch, they are one step), and pauses again. Small models run up to 64
    inputs at a time while nobody pauses or steps them; these are ended as one. A run that is paused before it begins
    waits at its first op.
    """

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._mode = "run"  # run, paused, op, epoch, input: the last three run to the next such end
        self._waiting = False

    @property
    def paused(self) -> bool:
        """Whether the run stands, or will at its next op."""
        return self._mode == "paused"

    @property
    def free(self) -> bool:
        """Whether nobody pauses or steps the run."""
        return self._mode == "run"

    @property
    def waiting(self) -> bool:
        """Whether a run stands now."""
        return self._waiting

    def pause(self) -> None:
        """Stand before the next op."""
        self._set("paused")

    def resume(self) -> None:
        """Go on without stopping."""
        self._set("run")

    def step_op(self) -> None:
        """Go on to the end of the next op: the smallest step there is."""
        self._set("op")

    def step_epoch(self) -> None:
        """Go on to the end of the epoch."""
        self._set("epoch")

    def step_input(self) -> None:
        """Go on to the end of the input."""
        self._set("input")

    def _set(self, mode: str) -> None:
        with self._changed:
            self._mode = mode
            self._changed.notify_all()

    # -- the runner's side -------------------------------------------------------------------------------------
    def gate(self, cancelled: Callable[[], bool], waits: Callable[[], None] | None = None) -> bool:
        """Called before every op; returns whether the run was cancelled. Waits here while it is paused, and calls
        `waits` once before that."""
        if self._mode == "paused":
            if waits is not None and not cancelled():
                waits()  # first, so that who sees it wait has been told
            with self._changed:
                while self._mode == "paused" and not cancelled():
                    self._waiting = True
                    self._changed.wait(POLL)
                self._waiting = False
        return cancelled()

    def on_end(self, what: str) -> None:
        """An "op", an "epoch" or an "input" came to its end: a step that led here is done."""
        if self._mode == "run":
            return
        with self._changed:
            if self._mode == what or (what == "input" and self._mode in ("op", "epoch")):
                self._mode = "paused"

    def reset(self) -> None:
        """The run is over: the next one is not paused."""
        self._set("run")
