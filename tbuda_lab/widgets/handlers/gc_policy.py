"""When the interpreter looks through everything for cyclic garbage: in a pause, not while somebody waits for an edit.

With torch and transformers a full collection goes through 400,000 objects and holds everything up for 0.3 to 0.6 s;
left to itself it falls into one edit of 15 to 60. While a page is answered it is put off; once nothing was asked for
`PAUSE` seconds the interpreter's own rule holds again, after a collection where one was due. Nothing is frozen: what
was dropped goes in the next pause at the latest, and `gc.collect()` in a cell does what it always does. A process
without a workbench never notices, nor does one that switched the collector off.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import time
from collections.abc import Callable, Iterator

PAUSE = 2.0
"""Seconds without a question after which nobody is taken to wait."""
NEVER = 2**31 - 1
"""As a threshold: no full collection."""


class GcPolicy:
    """Puts full collections off while pages are answered. busy: whether there is other work that somebody waits for:
    then a pause ends without a collection. pause: see `PAUSE`."""

    def __init__(self, busy: Callable[[], bool] = lambda: False, pause: float = PAUSE) -> None:
        self.busy, self._pause = busy, pause
        self._lock = threading.Lock()
        self._at_work = 0
        self._requests = 0  # number of requests so far
        self._last = 0.0
        self._usual: tuple[int, int, int] | None = None  # thresholds that hold else; None: they hold
        self._thread: threading.Thread | None = None

    @property
    def put_off(self) -> bool:
        """Whether full collections are put off now."""
        return self._usual is not None

    @contextlib.contextmanager
    def working(self) -> Iterator[None]:
        """Something is done that a page waits for."""
        with self._lock:
            self._at_work += 1
            self._begin()
        try:
            yield
        finally:
            with self._lock:
                self._at_work -= 1
                self._last = time.monotonic()

    def page_active(self) -> None:
        """A page asked for something, or got what it waited for."""
        with self.working():
            pass

    def wait(self, timeout: float | None = None) -> None:
        """Until the pause is over that is waited for, if any; raises `TimeoutError` after `timeout` seconds."""
        thread = self._thread
        if thread is not None:
            thread.join(timeout)
            if thread.is_alive():
                raise TimeoutError(f"no pause of {self._pause} s in {timeout} s")

    def _begin(self) -> None:
        self._requests += 1
        self._last = time.monotonic()
        usual = gc.get_threshold()
        if self._usual is None and gc.isenabled() and usual[0] and usual[2] != NEVER:
            self._usual = usual
            gc.set_threshold(*usual[:2], NEVER)
            self._thread = threading.Thread(target=self._collect_in_pause, args=(usual,), name="tbuda-gc", daemon=True)
            self._thread.start()

    def _collect_in_pause(self, usual: tuple[int, int, int]) -> None:
        while True:
            with self._lock:
                remaining = self._last + self._pause - time.monotonic()
                idle, requests = remaining <= 0 and not self._at_work, self._requests
            if not idle:
                time.sleep(max(remaining, self._pause / 10))
                continue
            if gc.get_count()[2] > usual[2] and not self.busy():
                gc.collect()  # without the lock: what goes may have a last word
            with self._lock:
                if requests == self._requests:
                    self._end(usual)
                    return

    def _end(self, usual: tuple[int, int, int]) -> None:
        if gc.get_threshold() == (*usual[:2], NEVER):  # else somebody wants others
            gc.set_threshold(*usual)
        self._usual = self._thread = None


def _busy() -> bool:
    from tbuda_lab.widgets.handlers.session_hub import hubs  # which answers pages, and so needs this module

    return any(hub.busy for hub in hubs())


GC_POLICY = GcPolicy(_busy)
"""The one of this process."""
