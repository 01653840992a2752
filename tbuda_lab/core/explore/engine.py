"""Where trials run: in this process, on a cluster of this machine, or on one that the user names."""

from __future__ import annotations

import importlib
import queue
import threading
from typing import Any, Protocol

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.explore.trial import Task, TrialRunner, cancelled

EXTRA = "install tbuda-lab[explore] (dask, distributed, optuna)"


class Engine(Protocol):
    """What an exploration asks of the place where its trials run."""

    @property
    def running(self) -> int:
        """Trials that are at work now."""

    def submit(self, task: Task) -> None:
        """Take a trial, which may wait for others. It is over when `poll` says so."""

    def poll(self, timeout: float) -> list[tuple[int, dict[str, Any]]]:
        """Trials that have ended since: number and outcome (see `TrialRunner.run`). Waits for one, `timeout` s at
        most."""

    def cancel(self) -> None:
        """Stop all trials at their next safe point; `poll` gives them as cancelled."""

    def close(self) -> None:
        """Let go of threads and processes that it started."""


class InProcess:
    """One thread beside the caller's; trials in turn."""

    def __init__(self, runner: TrialRunner) -> None:
        self._runner = runner
        self._tasks: queue.SimpleQueue[Task | None] = queue.SimpleQueue()
        self._ended: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._at_work = False

    @property
    def running(self) -> int:
        return int(self._at_work)

    def submit(self, task: Task) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="tbuda-explore", daemon=True)
            self._thread.start()
        self._tasks.put(task)

    def _work(self) -> None:
        while (task := self._tasks.get()) is not None:
            if self._stop.is_set():
                self._ended.put((task.n, cancelled()))
                continue
            self._at_work = True
            outcome = self._runner.run(task, self._stop)
            self._at_work = False
            self._ended.put((task.n, outcome))

    def poll(self, timeout: float) -> list[tuple[int, dict[str, Any]]]:
        ended = []
        try:
            ended.append(self._ended.get(timeout=timeout))
            while True:
                ended.append(self._ended.get_nowait())
        except queue.Empty:
            return ended

    def cancel(self) -> None:
        self._stop.set()

    def close(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._tasks.put(None)
            self._thread.join(10)
            self._thread = None


def open_engine(workers: int, scheduler: Any, runner: TrialRunner, graph: str, weights: bytes | None) -> Engine:
    """The engine that is asked for: in process with 0 workers, a cluster of this machine with more, the user's where a
    scheduler (an address, the path of its file, or a Client) is named. Raises `InputError` where Dask is not there, or
    a scheduler does not answer."""
    if not workers and scheduler is None:
        return InProcess(runner)
    engine: Engine = load_dask("dask_engine").DaskEngine(workers, scheduler, graph, weights)
    return engine


def load_dask(module: str) -> Any:
    """A module of this package that imports Dask. Raises `InputError` where Dask is not there."""
    try:
        return importlib.import_module(f"tbuda_lab.core.explore.{module}")
    except ImportError as error:
        raise InputError(f"workers need Dask ({error}): {EXTRA}; without it: --workers 0") from None
