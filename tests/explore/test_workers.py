"""Explorations on processes: the same file, a worker that dies, a trial that kills."""

import os
import signal
import threading
from pathlib import Path

import pytest
import torch

from tbuda_lab.core.errors import Cancelled, InputError
from tbuda_lab.core.explore import without_times
from tests.explore.perceptron import SPACE, session
from tests.session.test_chips_on_workers import samples, split

pytest.importorskip("distributed")
pytestmark = pytest.mark.slow


def test_workers_and_a_kill_make_the_same_file(tmp_path: Path) -> None:
    from tbuda_lab.core.explore import exploration as module

    plain = session().explore(SPACE, out=tmp_path / "plain")
    plain.run()
    plain.close()
    engines = []
    open_engine = module.open_engine

    def keep_engine(*arguments: object) -> object:
        engines.append(open_engine(*arguments))  # type: ignore[arg-type]
        return engines[-1]

    killed = threading.Event()

    def kill_one(exploration: object) -> None:
        if engines and not killed.is_set():
            killed.set()
            os.kill(engines[0].worker_processes()[0], signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "open_engine", keep_engine)
        on_workers = session().explore(SPACE, out=tmp_path / "workers", engine=1, on_change=kill_one)
        on_workers.run()
        on_workers.close()
    assert killed.is_set()
    assert list(without_times(tmp_path / "plain")) == list(without_times(tmp_path / "workers"))


def test_a_scheduler_that_does_not_answer_is_one_line(tmp_path: Path) -> None:
    from tbuda_lab.core.explore import dask_engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(dask_engine, "CONNECT", 0.5)
        exploration = session().explore({"batch": [1]}, out=tmp_path / "x", engine="tcp://127.0.0.1:9")
        with pytest.raises(InputError, match="does not answer"):
            exploration.run()
        exploration.close()
    assert not exploration.trials


def test_four_chips_on_two_workers_make_the_same_bits_and_can_be_cancelled() -> None:
    from distributed import Client

    from tbuda_lab.core.explore import dask_engine

    four = split("wormhole_b0:4", 1, 4)
    given = samples(3)
    here = four.run(given)
    with dask_engine.start_cluster(2) as cluster, Client(cluster, set_as_default=False) as client:
        there = four.run_on_workers(given, scheduler=client)
        assert sorted(there.workers.values()) == [0, 0, 1, 1]
        for one, other in zip(here, there.outputs, strict=True):
            assert all(torch.equal(a, b) for a, b in zip(one, other, strict=True))
        assert there.waits()
        stopped: list[BaseException] = []

        def run() -> None:
            try:
                four.run_on_workers(given * 2_000, scheduler=client)
            except BaseException as error:
                stopped.append(error)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        while not client.processing() or not any(client.processing().values()):
            assert thread.is_alive()
            thread.join(0.05)
        four.cancel()
        thread.join(120)
        assert not thread.is_alive() and isinstance(stopped[0], Cancelled)
        while any(client.processing().values()):  # the workers are free again
            thread.join(0.05)
