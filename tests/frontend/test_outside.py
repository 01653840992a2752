"""Clocks, the system's randomness, processes and files inside a forward: refused by line where an answer depends on
them, left alone where they are only told."""

from __future__ import annotations

import cProfile
import datetime
import inspect
import math
import os
import pathlib
import random
import secrets
import time
import typing
import uuid
from collections.abc import Callable
from datetime import datetime as moment
from os import urandom as noise
from time import perf_counter as ticks

import numpy as np
import pytest
import torch
from torch import nn

from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.session import Session

HERE = pathlib.Path(__file__)


def in_closure() -> Callable[[], float]:
    clock = time.time
    return lambda: clock() % 10


def at_default(clock: Callable[[], float] = time.monotonic) -> float:
    return clock() % 10


def after_deadline() -> float:
    begin = time.perf_counter()
    return float(time.perf_counter() - begin > 0.5)


NUMBERS: dict[str, Callable[[], float]] = {
    "time": lambda: time.time() % 7,
    "every second second": lambda: float(int(time.time()) % 2),
    "time_ns": lambda: time.time_ns() % 1000,
    "perf_counter by another name": lambda: ticks() % 3,
    "monotonic": lambda: time.monotonic() % 7,
    "monotonic_ns": lambda: time.monotonic_ns() % 999,
    "process_time": lambda: time.process_time() % 7,
    "clock_gettime": lambda: time.clock_gettime(time.CLOCK_REALTIME) % 7,
    "a deadline": after_deadline,
    "localtime": lambda: time.localtime().tm_sec,
    "strftime": lambda: int(time.strftime("%S")),
    "ctime": lambda: int(time.ctime()[17:19]),
    "datetime.now": lambda: datetime.datetime.now().second,
    "datetime by another name": lambda: moment.now(datetime.UTC).microsecond,
    "datetime.today": lambda: moment.today().minute,
    "date.today": lambda: datetime.date.today().toordinal(),
    "the hour": lambda: moment.now().hour,
    "in a closure": in_closure(),
    "a default": at_default,
    "urandom": lambda: os.urandom(1)[0],
    "urandom by another name": lambda: noise(1)[0],
    "getrandom": lambda: os.getrandom(1)[0],
    "secrets": lambda: secrets.randbelow(1000),
    "secrets, one in two": lambda: float(secrets.randbelow(2)),
    "SystemRandom": lambda: random.SystemRandom().random(),
    "Random without a seed": lambda: random.Random().random(),
    "NumPy's generator without a seed": lambda: np.random.default_rng().random(),
    "RandomState without a seed": lambda: np.random.RandomState().rand(),
    "uuid4": lambda: uuid.uuid4().int % 1000,
    "uuid1": lambda: uuid.uuid1().int % 1000,
    "getpid": lambda: os.getpid(),
    "loadavg": lambda: os.getloadavg()[0],
    "os.times": lambda: os.times().elapsed % 7,
    "a file's text": lambda: len(HERE.read_text()),
    "a file's size": lambda: os.path.getsize(HERE),
    "a file's age": lambda: HERE.stat().st_mtime % 1000,
    "whether a file is there": lambda: float(HERE.exists()),
    "files of a folder": lambda: len(os.listdir(HERE.parent)),
    "files by glob": lambda: len(list(HERE.parent.glob("*.py"))),
}


class Model(nn.Module):
    def __init__(self, read: Callable[[], float]) -> None:
        super().__init__()
        self.layer, self.read = nn.Linear(4, 4), [read]


class Times(Model):
    def forward(self, x):
        return self.layer(x) * (2 + self.read[0]())  # here


class Chooses(Model):
    def forward(self, x):
        return self.layer(x) if self.read[0]() > 0.25 else x  # here


class Fills(Model):
    def forward(self, x):
        return self.layer(x) + torch.full((4,), float(self.read[0]()))  # here


class Draws(Model):
    def forward(self, x):
        generator = torch.Generator().manual_seed(int(self.read[0]() * 1000))  # here
        return self.layer(x) + torch.rand(4, generator=generator)


@pytest.mark.parametrize("name", NUMBERS)
def test_what_comes_from_outside_and_reaches_an_answer_is_refused_by_line(name: str) -> None:
    model, x = Times(NUMBERS[name]).eval(), torch.randn(1, 8, 4)
    with pytest.raises(UnsupportedOp, match="depend on what it reads from outside") as error:
        from_torch(model, (x,))
    source, first = inspect.getsourcelines(NUMBERS[name])
    file, _, line = error.value.diagnostics[0].where.rpartition(":")
    assert file.endswith("test_outside.py") and first <= int(line) < first + len(source)


@pytest.mark.parametrize("trains", [False, True])
@pytest.mark.parametrize("kind", [Times, Chooses, Fills])
@pytest.mark.parametrize("name", ["every second second", "secrets, one in two", "whether a file is there"])
def test_however_it_reaches_an_answer(name: str, kind: type[Model], trains: bool) -> None:
    with pytest.raises(UnsupportedOp, match="depend on what it reads from outside"):
        from_torch(kind(NUMBERS[name]).train(trains), (torch.randn(1, 8, 4),), trains=trains)


class Attribute(nn.Module):
    clock: typing.Any = time.time

    def __init__(self) -> None:
        super().__init__()
        self.own = time.perf_counter

    def forward(self, x):
        return x * (2 + self.clock() % 3)


class OwnAttribute(Attribute):
    def forward(self, x):
        return x * (2 + self.own() % 3)


class First(Attribute):
    """Keeps what the first call read."""

    def __init__(self) -> None:
        super().__init__()
        self.seed: int | None = None

    def forward(self, x):
        if self.seed is None:
            self.seed = time.time_ns() % 1000
        return x * self.seed


@pytest.mark.parametrize("kind", [Attribute, OwnAttribute, First])
def test_clocks_that_a_module_holds(kind: type[nn.Module]) -> None:
    with pytest.raises(UnsupportedOp, match=r"reads from outside|attribute 'seed'"):
        Session(kind().eval(), (torch.randn(1, 8),), cache=False).compile()
    assert vars(Attribute)["clock"] is time.time and datetime.datetime is moment and time.perf_counter is ticks


LOG: list[float] = []


class Timed(Model):
    """Tells how long it takes."""

    def forward(self, x):
        begin = time.perf_counter()
        y = self.layer(x)
        self.taken = time.perf_counter() - begin
        LOG.append(self.taken)
        LOG.append(self.read[0]())
        return y


class Seldom(Model):
    """Says something now and then, and when it did."""

    said = 0.0

    def forward(self, x):
        if time.monotonic() - self.said > 5:
            self.said = time.monotonic()
            assert moment.now() > moment(2020, 1, 1) and isinstance(moment.now(), datetime.datetime)
        return self.layer(x)


class Tells(Model):
    """Writes a log, once it has a folder."""

    def forward(self, x):
        os.makedirs(self.read[0](), exist_ok=True)
        with open(os.path.join(self.read[0](), "log"), "a", encoding="utf-8") as log:
            log.write(f"{moment.now()} {uuid.uuid4()} {x.shape}\n")
        return self.layer(x)


class Table(Model):
    """Reads a table when it is called first."""

    table: torch.Tensor | None = None

    def forward(self, x):
        if self.table is None:
            self.table = torch.tensor(float(len(HERE.read_bytes())))
        return self.layer(x) + self.table


@pytest.mark.parametrize("kind", [Timed, Seldom, Tells, Table])
def test_what_is_only_told_or_stays_is_left_alone(kind: type[Model], tmp_path: pathlib.Path) -> None:
    torch.manual_seed(0)
    folder: typing.Any = str(tmp_path / "logs")
    model, x = kind((lambda: folder) if kind is Tells else NUMBERS["uuid4"]).eval(), torch.randn(1, 8, 4)
    torch.testing.assert_close(evaluate(from_torch(model, (x,)), {"x": x})["model.output_0"], model(x).detach())


@pytest.mark.parametrize("name", ["time", "datetime.now", "urandom"])
def test_a_generator_seeded_from_outside_is_refused(name: str) -> None:
    with pytest.raises(UnsupportedOp):
        from_torch(Draws(NUMBERS[name]).eval(), (torch.randn(1, 8, 4),))


def test_a_profile_of_the_user_goes_on_behind_a_trace() -> None:
    profiler = cProfile.Profile()
    profiler.enable()
    Session(nn.Linear(4, 4), torch.randn(1, 4), "n150", cache=False).trace()
    sum_of_squares = math.fsum(x * x for x in range(10))
    profiler.disable()
    assert sum_of_squares == 285
    assert any("fsum" in str(entry.code) for entry in profiler.getstats())
