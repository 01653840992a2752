"""What a forward reads that is no input, weight or attribute: clocks, the system's randomness, processes and files.

A trace is one call, so what such a call gave would stay. `Watch` sees the calls, by whatever name they are made, and
`other_world` makes one of them give something else, which shows whether an answer depends on it.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import errno
import functools
import io
import os
import random
import sys
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from types import FrameType, FunctionType
from typing import Any

from torch import nn

from tbuda_lab.core.frontend.provenance import PACKAGE, foreign, short_path

Other = Callable[[Any, random.Random, float], Any]
"""Makes of what is called one that gives something else; the number is how far clocks are ahead, in seconds."""
NANOSECONDS = 1_000_000_000


@dataclasses.dataclass(frozen=True)
class Source:
    """A call that gives something from outside. name: as it is written; real: what is called; held: what a name in a
    program stands for, `real` or the class that it belongs to; lasting: calls that follow each other give the same, so
    a model may keep what its first call got."""

    name: str
    real: Any
    other: Other
    held: Any
    lasting: bool = False


@dataclasses.dataclass
class Reading:
    """A source that was called. where: "file.py:123" of the first line outside torch that did; spaces: the globals of
    the functions that called it."""

    source: Source
    where: str
    spaces: list[dict[str, Any]]


def _clock(real: Any, rng: random.Random, ahead: float) -> Any:
    """A clock that is ahead, and goes faster."""
    unit = NANOSECONDS if real.__name__.endswith("_ns") else 1
    passed = 0.0

    def clock(*args: Any) -> Any:
        nonlocal passed
        passed += rng.random() * ahead / 1e3
        now = real(*args)
        return now + type(now)((ahead + passed) * unit)

    return clock


def _calendar(real: Any, rng: random.Random, ahead: float) -> Any:
    """`time.localtime` and its like, of which a call without a time means now."""

    def now(*args: Any) -> Any:
        then = time.localtime(time.time() + ahead)
        if real.__name__ == "strftime":
            return real(*args) if len(args) > 1 else real(*args, then)
        if args and args[0] is not None:
            return real(*args)
        return real(then) if real.__name__ == "asctime" else real(time.time() + ahead)

    return now


def _dates(kind: Any, rng: random.Random, ahead: float) -> Any:
    """A class of dates whose now is ahead; what it gives are dates of the class itself."""
    later = datetime.timedelta(seconds=ahead)

    class Kind(type):
        def __instancecheck__(cls, value: object) -> bool:
            return isinstance(value, kind)

    def moved(name: str) -> Any:
        def now(*args: Any, **rest: Any) -> Any:
            if kind is datetime.date:
                return (datetime.datetime.now() + later).date()
            return getattr(kind, name)(*args, **rest) + later

        return staticmethod(now)

    return Kind(kind.__name__, (kind,), {n: moved(n) for n in ("now", "utcnow", "today") if hasattr(kind, n)})


def _bytes(real: Any, rng: random.Random, ahead: float) -> Any:
    return lambda size, *args: rng.randbytes(size)


def _identity(real: Any, rng: random.Random, ahead: float) -> Any:
    return lambda: (rng.randbytes(16), 0)


def _number(real: Any, rng: random.Random, ahead: float) -> Any:
    return lambda: real() + rng.randrange(1, 1000)


def _numbers(real: Any, rng: random.Random, ahead: float) -> Any:
    def numbers() -> Any:
        values = real()
        changed = [v + ahead * rng.random() for v in values]
        return tuple(changed) if type(values) is tuple else type(values)(changed)

    return numbers


def _seed(real: Any, rng: random.Random, ahead: float) -> Any:
    def seed(self: random.Random, a: Any = None, version: int = 2) -> None:
        real(self, rng.getrandbits(64) if a is None else a, version)

    return seed


def absent(real: Any, rng: random.Random, ahead: float) -> Any:
    """No file can be opened but for writing."""

    def open_file(*args: Any, **kwargs: Any) -> Any:
        mode = args[1] if len(args) > 1 else kwargs.get("mode", kwargs.get("flags", "r"))
        if only_writes(mode):
            return real(*args, **kwargs)
        raise _no_file(*args)

    return open_file


def _no_file(path: Any = ".", *_: Any) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)


def only_writes(mode: Any) -> bool:
    """Whether a file of this mode (Python's word, or flags) gives nothing that can be read, as logs do."""
    if isinstance(mode, int):
        return bool(mode & os.O_WRONLY)
    return isinstance(mode, str) and "+" not in mode and any(c in mode for c in "wax")


def _status(real: Any, rng: random.Random, ahead: float) -> Any:
    """Another size and other times, or none."""
    missing = rng.random() < 0.5

    def status(*args: Any, **kwargs: Any) -> Any:
        if missing:
            raise _no_file(*args)
        found = real(*args, **kwargs)
        return type(found)([*found[:6], found[6] + rng.randrange(1, 1000), *(int(t + ahead) for t in found[7:10])])

    return status


def _names(real: Any, rng: random.Random, ahead: float) -> Any:
    return lambda *args: [*real(*args), *(f"{rng.random()}" for _ in range(rng.randrange(1, 9)))]


def _table() -> list[Source]:
    clocks = ["time", "perf_counter", "monotonic", "process_time", "thread_time", "clock_gettime"]
    calls: list[tuple[Any, str, Other]] = [(time, n, _clock) for c in clocks for n in (c, f"{c}_ns")]
    calls += [(time, n, _calendar) for n in ("localtime", "gmtime", "ctime", "asctime", "strftime")]
    calls += [(os, n, _bytes) for n in ("urandom", "getrandom")]
    calls += [(os, n, _number) for n in ("getpid", "getppid")]
    calls += [(os, n, _numbers) for n in ("times", "getloadavg")]
    made = [Source(f"{m.__name__}.{n}()", f, other, f) for m, n, other in calls if (f := getattr(m, n, None))]
    for kind, name in ((datetime.datetime, "now"), (datetime.datetime, "utcnow"), (datetime.datetime, "today")):
        made.append(Source(f"datetime.{name}()", getattr(kind, name), _dates, kind))
    made.append(Source("date.today()", datetime.date.today, _dates, datetime.date))
    made.append(Source("a generator without a seed", random.Random.seed, _seed, random.Random.seed))
    if unique := getattr(uuid, "_generate_time_safe", None):
        made.append(Source("uuid.uuid1()", unique, _identity, unique))
    files: list[tuple[Any, str, Other]] = [(io, "open", absent), (os, "open", absent), (os, "scandir", absent)]
    files += [(os, "stat", _status), (os, "lstat", _status), (os, "listdir", _names)]
    return made + [Source(f"{m.__name__}.{n}()", f, other, f, True) for m, n, other in files if (f := getattr(m, n))]


SOURCES: dict[Any, Source] = {source.real: source for source in _table()}
_SEEDS, _VARIABLES = random.Random.seed.__code__, type(os.environ).__getitem__.__code__
_HOLDERS: tuple[Any, ...] = (time, datetime, os, io, uuid, sys.modules["builtins"], random.Random)


EPOCHS = 16
"""Other worlds that a model is called in: a number that is only compared shows in some of them alone."""


class Watch:
    """Sees what the calls of this thread read from outside. readings: by name of the source; variables: the names of
    the environment that were asked for."""

    def __init__(self) -> None:
        self.readings: dict[str, Reading] = {}
        self.variables: set[str] = set()

    def __enter__(self) -> Watch:
        self._before = sys.getprofile()
        sys.setprofile(self._look)
        return self

    def __exit__(self, *_: object) -> None:
        resume = getattr(self._before, "enable", None)  # one of C, as cProfile's, is no function to be set
        if resume is None:
            sys.setprofile(self._before)
        else:
            sys.setprofile(None)
            resume()

    def _look(self, frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call":
            source = SOURCES.get(called)
            if source is not None:
                self._read(source, frame)
        elif event == "call":
            if frame.f_code is _SEEDS and frame.f_locals["a"] is None:
                self._read(SOURCES[random.Random.seed], frame)
            elif frame.f_code is _VARIABLES and isinstance(frame.f_locals["key"], str):
                self.variables.add(frame.f_locals["key"])

    def _read(self, source: Source, frame: FrameType) -> None:
        if frame.f_code.co_filename.startswith(PACKAGE) or _is_importing(frame):
            return
        found = self.readings.setdefault(source.name, Reading(source, _user_line(frame), []))
        if not any(space is frame.f_globals for space in found.spaces):
            found.spaces.append(frame.f_globals)


def _is_importing(frame: FrameType | None) -> bool:
    while frame is not None and not frame.f_code.co_filename.startswith("<frozen importlib"):
        frame = frame.f_back
    return frame is not None


def _user_line(frame: FrameType | None) -> str:
    while frame is not None and not foreign(frame.f_code.co_filename):
        frame = frame.f_back
    return f"{short_path(frame.f_code.co_filename)}:{frame.f_lineno}" if frame is not None else ""


@contextlib.contextmanager
def other_world(reading: Reading, module: nn.Module, epoch: int) -> Iterator[None]:
    """A source gives something else to this thread: to the functions that called it, to `module`, a copy, and to those
    who ask the module that it lies in. epoch: one of `EPOCHS`, from seconds to years later."""
    source, me = reading.source, threading.get_ident()
    rng = random.Random(epoch)
    other = source.other(source.held, rng, rng.uniform(1, 10) * 10 ** (epoch % 8))

    def mine(*args: Any, **kwargs: Any) -> Any:
        return (other if threading.get_ident() == me else source.real)(*args, **kwargs)

    with contextlib.ExitStack() as stack:
        new = other if isinstance(source.held, type) else mine
        for space, name, value in list(_places(reading, module)):
            put = space.__setitem__ if isinstance(space, dict) else functools.partial(setattr, space)
            stack.callback(put, name, value)
            bound = isinstance(space, type) and not isinstance(value, FunctionType)  # a built-in one does not bind
            put(name, staticmethod(new) if bound else new)
        yield


def _places(reading: Reading, module: nn.Module) -> Iterator[tuple[Any, str, Any]]:
    """(namespace, name, value) of all that stands for a source."""
    spaces: list[Any] = [*_HOLDERS, *reading.spaces, *(vars(layer) for layer in module.modules())]
    spaces += [kind for layer in module.modules() for kind in type(layer).__mro__ if foreign(_file_of(kind))]
    for space in {id(s): s for s in spaces}.values():
        if any(space is vars(holder) for holder in _HOLDERS):
            continue
        for name, value in list((space if isinstance(space, dict) else vars(space)).items()):
            if (value.__func__ if isinstance(value, staticmethod) else value) is reading.source.held:
                yield space, name, value


def _file_of(kind: type) -> str:
    return getattr(sys.modules.get(kind.__module__), "__file__", None) or ""
