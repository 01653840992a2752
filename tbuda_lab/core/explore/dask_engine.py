"""Trials on workers of Dask distributed. Loaded only where workers are asked for.

A worker is told task and graph as text, which it parses; beyond the name of `run_task` nothing is pickled.
"""

from __future__ import annotations

import collections
import contextlib
import dataclasses
import json
import os
import signal
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import dask
from distributed import Client, Event, KilledWorker, LocalCluster

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.explore.trial import Task, cancelled, loss, refusal, run_text, version

ATTEMPTS = 3
"""Workers that may die of a trial before it is lost."""
CONNECT = 10.0
"""Seconds in which a scheduler answers."""
_LOOK = 0.25
"""Seconds between two looks of a worker at whether its work was cancelled."""
_PLACES = 0.5
"""Seconds between two looks at which workers there are."""
PATIENCE = 5.0
"""Seconds in which a worker of the user's stops of itself after a cancel; then it is no longer waited for."""
OWN_PATIENCE = 1.0
"""The same of a process that was started here; then it is killed."""


@contextlib.contextmanager
def watch_event(name: str) -> Iterator[threading.Event]:
    """In a worker: an event that is set soon after the one of that name is set in the scheduler."""
    cancel, over = threading.Event(), threading.Event()

    def watch() -> None:
        event = Event(name)
        while not over.wait(_LOOK):
            with contextlib.suppress(Exception):  # a scheduler that has gone ends the worker anyway
                if event.is_set():
                    cancel.set()
                    return

    threading.Thread(target=watch, name="tbuda-cancel", daemon=True).start()
    try:
        yield cancel
    finally:
        over.set()


def run_task(task: str, graph: str, weights: bytes | None, name: str) -> dict[str, Any]:
    """In a worker: a trial that stops once the event of that name is set."""
    with watch_event(name) as cancel:
        return run_text(task, graph, weights, cancel)


def start_cluster(workers: int) -> Any:
    """So many processes of this machine, one thread each."""
    settings = {
        "distributed.scheduler.allowed-failures": 0,
        "distributed.worker.daemon": True,
        "distributed.admin.large-graph-warning-threshold": "100 MB",
    }
    dask.config.set(settings)
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=1,
        processes=True,
        dashboard_address=None,
        silence_logs=50,
        memory_limit=_memory() // workers,
    )


@contextlib.contextmanager
def open_client(workers: int, scheduler: Any) -> Iterator[Any]:
    """A client of a cluster that this starts and ends, or of the user's: an address, a file, or a Client, which stays
    open. Raises `InputError` for a scheduler that does not answer."""
    if isinstance(scheduler, Client):
        yield scheduler
    elif scheduler is not None:
        with _connect(str(scheduler)) as client:
            yield client
    else:
        with start_cluster(workers) as cluster, Client(cluster, set_as_default=False) as client:
            yield client


@dataclasses.dataclass(frozen=True)
class _Running:
    """A trial that was given to a worker. place: the worker's address, "" where any may take it."""

    task: Task
    future: Any
    attempt: int
    place: str


class DaskEngine:
    """A cluster of this machine (one process a worker, one thread each), or the user's.

    Trials are given out as workers become free, so that one that dies takes no other along; to a worker those of the
    device that it had last, as long as there are any, for it has the tables of that one.
    """

    def __init__(self, workers: int, scheduler: Any, graph: str, weights: bytes | None) -> None:
        self._cluster: Any = None
        self._own_client = not isinstance(scheduler, Client)
        if scheduler is None:
            self._cluster = start_cluster(workers)
            self._client = Client(self._cluster, set_as_default=False)
        elif isinstance(scheduler, Client):
            self._client = scheduler
        else:
            self._client = _connect(str(scheduler))
        self._graph = graph
        self._weights = None if weights is None else self._client.scatter(weights, broadcast=True)
        self._event = Event(f"tbuda-cancel-{uuid.uuid4().hex}", client=self._client)
        self._waiting: dict[str, deque[tuple[Task, int]]] = {}  # by device: trials and their attempts
        self._running: dict[int, _Running] = {}
        self._devices: dict[str, str] = {}  # by worker: of its last trial
        self._places: dict[str, int] = {}  # by worker: threads
        self._look = 0.0
        self._cancelled: float | None = None

    @property
    def running(self) -> int:
        return len(self._running)

    def submit(self, task: Task) -> None:
        self._waiting.setdefault(_device(task), deque()).append((task, 1))

    def _give_out(self) -> None:
        """Trials to the workers that are free; to nobody in particular where none is there yet, so that a cluster that
        grows with its work does."""
        if time.monotonic() > self._look:
            self._look = time.monotonic() + _PLACES
            self._places = dict(self._client.nthreads()) or {"": 1}
        busy = collections.Counter(r.place for r in self._running.values())
        for place, threads in self._places.items():
            for _ in range(threads - busy[place]):
                if not self._waiting:
                    return
                task, attempt = self._next(place)
                self._start(task, attempt, place)

    def _next(self, place: str) -> tuple[Task, int]:
        """The next trial of a worker: of the device that it had last, else of one that no other worker is at, else of
        the one of which the most are left."""
        others = {d for p, d in self._devices.items() if p != place}
        device = self._devices.get(place, "")
        if device not in self._waiting:
            free = [d for d in self._waiting if d not in others]
            device = free[0] if free else max(self._waiting, key=lambda d: len(self._waiting[d]))
        self._devices[place] = device
        found = self._waiting[device].popleft()
        if not self._waiting[device]:
            del self._waiting[device]
        return found

    def _start(self, task: Task, attempt: int, place: str) -> None:
        future = self._client.submit(
            run_task,
            dataclasses.replace(task, version=version()).text(),
            self._graph,
            self._weights,
            self._event.name,
            pure=False,
            retries=0,
            workers=[place] if place else None,
            allow_other_workers=bool(place),  # it may have gone meanwhile
            key=f"tbuda-trial-{task.n}-{attempt}-{uuid.uuid4().hex[:8]}",
        )
        self._running[task.n] = _Running(task, future, attempt, place)

    def poll(self, timeout: float) -> list[tuple[int, dict[str, Any]]]:
        end = time.monotonic() + timeout
        while True:
            if self._cancelled is None:
                self._give_out()
            elif self._waiting:
                numbers = [task.n for tasks in self._waiting.values() for task, _ in tasks]
                self._waiting.clear()
                return [(n, cancelled()) for n in numbers]
            ended = [n for n, running in self._running.items() if running.future.done()]
            patience = PATIENCE if self._cluster is None else OWN_PATIENCE
            overdue = self._cancelled is not None and time.monotonic() - self._cancelled > patience
            if overdue and not ended:
                return self._give_up()
            if ended or time.monotonic() >= end:
                outcomes = ((n, self._outcome(n)) for n in ended)
                return [(n, outcome) for n, outcome in outcomes if outcome is not None]
            time.sleep(0.01)

    def _outcome(self, n: int) -> dict[str, Any] | None:
        """What a future came to; None where its trial begins again."""
        one = self._running.pop(n)
        task, future, attempt = one.task, one.future, one.attempt
        if future.status == "finished":
            outcome: dict[str, Any] = future.result()
            outcome["run"] = {**outcome["run"], "attempts": attempt}
            return outcome
        error = future.exception() if future.status == "error" else None
        if self._cancelled is not None:
            return cancelled()
        if error is None or isinstance(error, KilledWorker):
            self._look = 0.0  # another worker takes its place
            self._devices.pop(one.place, None)
            if attempt < ATTEMPTS:
                self._waiting.setdefault(_device(task), deque()).appendleft((task, attempt + 1))
                return None
            return loss(attempt, f"{attempt} workers died of it")
        if isinstance(error, InputError):  # a worker that cannot take tasks of this process
            raise error
        outcome = refusal(InputError(f"{type(error).__name__}: {error}"))
        return {**outcome, "state": "crashed", "run": {"attempts": attempt}}

    def _give_up(self) -> list[tuple[int, dict[str, Any]]]:
        """Own workers that did not stop of themselves are killed; their trials count as cancelled."""
        if self._cluster is not None:
            self._kill()
        else:
            self._client.cancel([r.future for r in self._running.values()])
        numbers = list(self._running)
        self._running.clear()
        return [(n, cancelled()) for n in numbers]

    def _kill(self) -> None:
        """End the processes that were started here, at once; they hold nothing that is not in the file."""
        for nanny in self._cluster.workers.values():
            nanny.auto_restart = False
            with contextlib.suppress(Exception):  # it has ended
                os.kill(nanny.process.pid, signal.SIGKILL)

    def cancel(self) -> None:
        self._cancelled = time.monotonic()
        self._event.set()

    def close(self) -> None:
        with contextlib.suppress(Exception):
            if self._running:
                self._event.set()
                self._client.cancel([r.future for r in self._running.values()])
            if self._cluster is not None and (self._running or self._cancelled is not None):
                self._kill()
            if self._own_client:
                self._client.close()
            if self._cluster is not None:
                self._cluster.close()

    def worker_processes(self) -> list[int]:
        """Process ids of the workers, for tests that kill one."""
        return list(self._client.run(os.getpid).values())


def _device(task: Task) -> str:
    return json.dumps(task.device, sort_keys=True)


def _connect(scheduler: str) -> Any:
    """A client of the scheduler at an address, or that a file describes; TLS as Dask's own configuration says."""
    named = {"scheduler_file": scheduler} if Path(scheduler).is_file() else {"address": scheduler}
    try:
        return Client(**named, timeout=CONNECT, set_as_default=False)
    except (OSError, ValueError, TimeoutError, TypeError) as error:
        text = str(error).split("\n")[0]
        raise InputError(
            f"the scheduler {scheduler} does not answer ({type(error).__name__}: {text}); give the "
            "address that `dask scheduler` prints, or its --scheduler-file"
        ) from None


def _memory() -> int:
    """Bytes of memory that are free now."""
    try:
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return 4 << 30
