"""Chips of one run on workers of Dask: a task for each part, all at work at once, queues between them as messages
through the scheduler. Loaded only where workers are asked for."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from distributed import Event, Queue

from tbuda_lab.core.errors import Cancelled, InputError, WorkerLost
from tbuda_lab.core.explore.chips import PartTask, part_task, work
from tbuda_lab.core.explore.dask_engine import open_client, watch_event
from tbuda_lab.sim.parts import Inbox

_LISTEN = 0.5
"""Seconds that a worker waits for a message before it looks whether the run is over."""
_LOOK = 1.0
"""Seconds between two looks at whether all workers are there."""
_LEAVE = 5.0
"""Seconds in which workers stop of themselves after a cancel."""


class _QueueLink:
    """A part's link: a Dask queue for each part. Threads send and listen, so that the part works meanwhile."""

    def __init__(self, run: str, part: int, parts: int) -> None:
        self._inbox, self._over = Inbox(), threading.Event()
        self._out: queue.SimpleQueue[tuple[int, str, bytes] | None] = queue.SimpleQueue()
        self._queues = [Queue(f"{run}-{k}") for k in range(parts)]
        self._part = part
        self._threads = [threading.Thread(target=t, daemon=True) for t in (self._sends, self._listens)]
        for thread in self._threads:
            thread.start()

    def _sends(self) -> None:
        while (message := self._out.get()) is not None:
            part, name, data = message
            with contextlib.suppress(Exception):  # the run is over, or the scheduler has gone: who waits is told
                self._queues[part].put((name, data))

    def _listens(self) -> None:
        while not self._over.is_set():
            try:
                name, data = self._queues[self._part].get(timeout=_LISTEN)
            except TimeoutError:
                continue
            except Exception:  # the scheduler has gone
                return
            self._inbox.put(name, data)

    def send(self, part: int, name: str, data: bytes) -> None:
        self._out.put((part, name, data))

    def receive(self, name: str, timeout: float) -> bytes | None:
        return self._inbox.take(name, timeout)

    def close(self) -> None:
        """After the last message has gone."""
        self._out.put(None)
        self._threads[0].join()
        self._over.set()
        self._threads[1].join()


def run_task(task: str, netlist: str, arrays: bytes, run: str) -> tuple[bytes, str]:
    """In a worker: a part, until it is done or the event of the run is set."""
    told = part_task(task)
    link = _QueueLink(run, told.part, len(set(told.parts)))
    with watch_event(run) as cancelled:
        try:
            return work(told, netlist, arrays, link, cancelled.is_set)
        finally:
            link.close()


def run_parts(
    make: Callable[[int], list[tuple[PartTask, bytes]]],
    netlist: str,
    workers: int,
    scheduler: Any,
    stop: threading.Event,
) -> tuple[list[tuple[PartTask, bytes]], list[tuple[bytes, str]]]:
    """Parts, as many as there are workers at most, and what each comes to. Raises `Cancelled`, `InputError` where no
    worker is there, `WorkerLost` where one dies, and what a part raises."""
    with open_client(workers, scheduler) as client:
        places = sorted(client.nthreads())
        if not places:
            raise InputError("the scheduler has no workers: start one with `dask worker ADDRESS`")
        tasks = make(len(places))
        run = f"tbuda-chips-{uuid.uuid4().hex}"
        event = Event(run, client=client)
        queues = [Queue(f"{run}-{k}", client=client) for k in range(len(tasks))]
        futures = [
            client.submit(
                run_task,
                task.text(),
                netlist,
                arrays,
                run,
                pure=False,
                retries=0,
                workers=[place],
                allow_other_workers=False,
                key=f"{run}-part-{task.part}",
            )
            for (task, arrays), place in zip(tasks, places, strict=False)
        ]
        try:
            return tasks, list(_results(client, futures, places[: len(tasks)], stop, event))
        finally:
            with contextlib.suppress(Exception):
                event.set()  # whoever waits for one that failed
                client.cancel(futures)
                for each in queues:
                    each.close()


def _results(client: Any, futures: list[Any], places: list[str], stop: threading.Event, event: Any) -> Iterator[Any]:
    """Of all futures, once all are done. Raises as `run_parts`."""
    left, look = _LEAVE, time.monotonic() + _LOOK
    while not all(f.done() for f in futures):
        failed = next((f for f in futures if f.status == "error"), None)
        if failed is not None and not isinstance(failed.exception(), Cancelled):
            raise _error(failed)
        if time.monotonic() > look:
            look = time.monotonic() + _LOOK
            gone = set(places) - set(client.nthreads())
        else:
            gone = set()
        if gone:
            raise WorkerLost(f"the worker {min(gone)} died during the run; what it held is lost: run again")
        if stop.wait(0.05):
            event.set()
            left -= 0.05
            if left <= 0:
                break
            threading.Event().wait(0.05)
    if stop.is_set():
        raise Cancelled("the run was cancelled")
    for future in futures:
        if future.status == "error":
            raise _error(future)
        yield future.result()


def _error(future: Any) -> BaseException:
    error = future.exception()
    return error if isinstance(error, BaseException) else WorkerLost(str(error))
