"""What a torch module keeps from call to call: refused by name and line where its answers depend on it."""

from __future__ import annotations

import collections
import concurrent.futures
import inspect
import math
import os
import queue
import random
import re
import socket
import threading
import types
import typing
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.ops.evaluate import evaluate


class Base(nn.Module):
    total = 0.0
    seen: typing.ClassVar[list[torch.Tensor]] = []

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.bias = nn.Parameter(torch.zeros(4))
        self.last: torch.Tensor | None = None
        self.list: list[torch.Tensor] = []
        self.dict: dict[str, torch.Tensor] = {}
        self.queue: collections.deque[torch.Tensor] = collections.deque(maxlen=2)
        self.count, self.ready = 0, False
        self.inner = type("Inner", (), {})()
        self.inner.value = 0.0


class Attribute(Base):
    def forward(self, x):
        self.last = self.layer(x) + (0 if self.last is None else self.last)  # here
        return self.last


class List(Base):
    def forward(self, x):
        self.list.append(self.layer(x))  # here
        return sum(self.list)


class Dict(Base):
    def forward(self, x):
        self.dict["h"] = self.layer(x) + self.dict.get("h", 0)  # here
        return self.dict["h"]


class Queue(Base):
    def forward(self, x):
        self.queue.append(self.layer(x))  # here
        return torch.stack(tuple(self.queue)).sum(0)


class Counter(Base):
    def forward(self, x):
        self.count += 1  # here
        return self.layer(x) * self.count


class LateCounter(Base):
    """Counts for a long while before it shows."""

    def forward(self, x):
        self.count += 1  # here
        return self.layer(x) * (2 if self.count > 100 else 1)


class ClassAttribute(Base):
    def forward(self, x):
        type(self).total += 1.0  # here
        return self.layer(x) + type(self).total


class ClassList(Base):
    def forward(self, x):
        self.seen.append(x)  # here
        return self.layer(x) * len(self.seen)


class Inner(Base):
    def forward(self, x):
        self.inner.value += 1  # here
        return self.layer(x) * self.inner.value


class FirstInput(Base):
    """Takes its scale from the first input."""

    def forward(self, x):
        if self.last is None:
            self.last = x.abs().max()  # here
        return self.layer(x) / self.last


class Largest(Base):
    def forward(self, x):
        largest = x.max()
        self.last = largest if self.last is None else torch.maximum(self.last, largest)  # here
        return self.layer(x) / self.last


class FirstWeights(Base):
    """An act-norm: the first call sets a weight."""

    def forward(self, x):
        if not self.ready:
            with torch.no_grad():
                self.bias.data = -x.mean((0, 1))  # here
            self.ready = True
        return self.layer(x) + self.bias


class ClampedWeights(Base):
    def forward(self, x):
        self.layer.weight.data.clamp_(-0.1, 0.1)  # here
        return self.layer(x)


class InSubmodule(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 4), Counter()

    def forward(self, x):
        return self.second(self.first(x))


KEEPS = {
    Attribute: "last",
    List: "list",
    Dict: "dict",
    Queue: "queue",
    Counter: "count",
    LateCounter: "count",
    ClassAttribute: "total",
    ClassList: "seen",
    Inner: "inner",
    FirstInput: "last",
    Largest: "last",
    FirstWeights: "bias",
    ClampedWeights: "weight",
    InSubmodule: "count",
}


@pytest.mark.parametrize("kind", KEEPS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("trains", [False, True])
def test_state_outside_buffers_is_refused_by_name_and_line(kind: type[nn.Module], trains: bool) -> None:
    torch.manual_seed(0)
    module, x = kind().eval(), torch.randn(1, 8, 4) + 1
    weights = {n: p.clone() for n, p in module.state_dict().items()}
    with pytest.raises(UnsupportedOp, match="keeps something from one call to the next") as error:
        from_torch(module, (x,), trains=trains)
    findings = [f for f in error.value.diagnostics if repr(KEEPS[kind]) in f.message]
    assert findings, error.value
    file, _, line = findings[0].where.rpartition(":")
    with open(__file__) as source:
        assert file.endswith("test_state.py") and "# here" in source.readlines()[int(line) - 1]
    # and the user's module is as it was
    assert all(torch.equal(p, weights[n]) for n, p in module.state_dict().items())
    base = module.second if isinstance(module, InSubmodule) else module
    assert not base.count and base.last is None and not base.list and not Base.seen and not Base.total


class Watched(Base):
    """Keeps things that nothing reads."""

    def forward(self, x):
        self.count += 1
        self.last = self.layer(x)
        self.list.append(self.last)
        return self.last


class Lazy(Base):
    """Builds a table once that depends on nothing but the shape."""

    def forward(self, x):
        if self.last is None:
            self.last = torch.arange(x.shape[1], dtype=torch.float32)[:, None]
        return self.layer(x) + self.last


class Held(Base):
    """Holds what Python cannot copy."""

    def __init__(self) -> None:
        super().__init__()
        self.held: typing.Any = HELD["a lock"]()

    def forward(self, x):
        return self.layer(x)


class Locked(Held):
    def forward(self, x):
        with self.held:
            return self.layer(x)


class Logged(Held):
    def __init__(self) -> None:
        super().__init__()
        self.held = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115

    def forward(self, x):
        self.held.write("called\n")
        return self.layer(x)


@pytest.mark.parametrize("kind", [Watched, Lazy, Locked, Logged])
def test_what_nothing_reads_is_left_out(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module, x = kind().eval(), torch.randn(1, 8, 4)
    graph = from_torch(module, (x,))
    if isinstance(module, Base):
        assert not module.count and module.last is None and not module.list
    torch.testing.assert_close(evaluate(graph, {"x": 3 * x})["model.output_0"], module(3 * x).detach())


HELD: dict[str, Callable[[], typing.Any]] = {
    "a lock": threading.Lock,
    "a reentrant lock": threading.RLock,
    "a condition": threading.Condition,
    "a queue": queue.Queue,
    "a generator": lambda: (float(k) for k in range(99)),
    "an open file": lambda: open(__file__, encoding="utf-8"),  # noqa: SIM115
    "values of a thread": threading.local,
    "a simple queue": queue.SimpleQueue,
    "a module": lambda: math,
    "a view of a dict": lambda: {1: 2}.keys(),
    "a thread": lambda: threading.Thread(target=print),
    "workers": concurrent.futures.ThreadPoolExecutor,
    "a socket": socket.socket,
    "a compiled pattern": lambda: re.compile("x"),
    "a mapping that is read": lambda: types.MappingProxyType({1: 2}),
}


class HeldCounter(Held):
    def forward(self, x):
        self.count += 1  # here
        return self.layer(x) * self.count


class HeldDraw(Held):
    def forward(self, x):
        return self.layer(x) * random.random()  # here


class HeldTrace(Held):
    def forward(self, x):
        return self.layer(x) + int(torch.compiler.is_exporting())


@pytest.mark.parametrize("name", HELD)
def test_what_cannot_be_copied_hides_nothing(name: str) -> None:
    x = torch.randn(1, 8, 4)
    for kind, words in ((HeldCounter, "'count'"), (HeldDraw, "random numbers"), (HeldTrace, "another answer")):
        module = kind().eval()
        module.held = HELD[name]()
        with pytest.raises(UnsupportedOp, match=words):
            from_torch(module, (x,))
    module = Held().eval()
    module.held, module.inner = HELD[name](), [{"deep": HELD[name]()}]
    torch.testing.assert_close(evaluate(from_torch(module, (x,)), {"x": x})["model.output_0"], module(x).detach())


USES: dict[str, Callable[[typing.Any], float]] = {
    "a generator": lambda held: next(held),
    "an open file": lambda held: len(held.readline()),
    "a simple queue": lambda held: held.qsize(),
    "a socket": lambda held: held.fileno(),
}


class Uses(Held):
    def forward(self, x):
        try:
            return self.layer(x) * USES[self.name](self.held)
        except Exception:
            return x


@pytest.mark.parametrize("name", USES)
def test_what_reading_uses_up_is_refused_where_it_is_read(name: str) -> None:
    module = Uses().eval()
    module.name, module.held = name, HELD[name]()
    with pytest.raises(UnsupportedOp, match=r"test_state\.py:\d+: a .* that the module holds is read by the forward"):
        from_torch(module, (torch.randn(1, 8, 4),))
    if name == "a generator":
        assert next(module.held) == 0.0  # nobody has read it


class ThreadsOwn(Held):
    def forward(self, x):
        self.held.calls = getattr(self.held, "calls", 0) + 1
        return self.layer(x) * self.held.calls


class RefusesCopies(Base):
    def __deepcopy__(self, memo: typing.Any) -> typing.NoReturn:
        raise TypeError("there is one of it")

    def forward(self, x):
        self.count += 1
        return self.layer(x) * self.count


class GivesItself(RefusesCopies):
    def __deepcopy__(self, memo: typing.Any) -> GivesItself:  # type: ignore[override]
        return self


class HoldsOne(Base):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.lock = GivesItself(), threading.Lock()

    def forward(self, x):
        return self.one(x)


@pytest.mark.parametrize("kind", [ThreadsOwn, RefusesCopies, GivesItself, HoldsOne])
def test_modules_with_copies_of_their_own_are_judged(kind: type[Base]) -> None:
    module = kind().eval()
    if isinstance(module, ThreadsOwn):
        module.held = threading.local()
    with pytest.raises(UnsupportedOp, match="keeps something from one call to the next"):
        from_torch(module, (torch.randn(1, 8, 4),))
    assert not module.count and not getattr(module, "one", module).count


class Slotted:
    """Copies of it fail in code of its own."""

    def __deepcopy__(self, memo: typing.Any) -> typing.NoReturn:
        raise RuntimeError("no copies")


def test_a_thing_with_a_copy_of_its_own_that_fails_is_shared() -> None:
    module, x = HeldCounter().eval(), torch.randn(1, 8, 4)
    module.held = Slotted()
    with pytest.raises(UnsupportedOp, match="'count'"):
        from_torch(module, (x,))


class Scaled(Base):
    def forward(self, x):
        return self.layer(x) * random.random()  # here


class ScaledByNumpy(Base):
    def forward(self, x):
        factor = float(np.random.rand())  # here
        return self.layer(x) * factor


class Shuffled(Base):
    def forward(self, x):
        columns = list(range(4))
        random.shuffle(columns)  # here
        return self.layer(x)[..., columns]


class LeftOut(Base):
    """One of six calls is another: the numbers that are tried have to find it."""

    def forward(self, x):
        return self.layer(x) if random.random() > 1 / 6 else x  # here


RANDOM, STATE, NUMPY = random.Random(3), np.random.RandomState(3), np.random.default_rng(3)
TORCH = torch.Generator().manual_seed(3)


class GlobalGenerator(Base):
    def forward(self, x):
        return self.layer(x) if RANDOM.random() > 0.04 else x  # here


class GlobalState(Base):
    def forward(self, x):
        return self.layer(x) if STATE.rand() < 0.96 else x  # here


class GlobalNumpy(Base):
    def forward(self, x):
        return self.layer(x) if NUMPY.random() > 0.04 else x  # here


class GlobalTorch(Base):
    def forward(self, x):
        return self.layer(x) * torch.rand(1, generator=TORCH)  # here


class HeldGenerator(Base):
    def __init__(self) -> None:
        super().__init__()
        self.generator = np.random.default_rng(0)

    def forward(self, x):
        return self.layer(x) if self.generator.random() < 0.96 else x  # here


class HeldInAList(HeldGenerator):
    def __init__(self) -> None:
        super().__init__()
        self.generators = [random.Random(0)]

    def forward(self, x):
        return self.layer(x) * self.generators[0].random()  # here


@pytest.mark.parametrize(
    "kind",
    [
        Scaled,
        ScaledByNumpy,
        Shuffled,
        LeftOut,
        GlobalGenerator,
        GlobalState,
        GlobalNumpy,
        GlobalTorch,
        HeldGenerator,
        HeldInAList,
    ],
)
def test_random_numbers_that_the_trace_does_not_see_are_refused(kind: type[nn.Module]) -> None:
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    first = next(k for k, line in enumerate(lines) if line.startswith(f"class {kind.__name__}("))
    line = next(k for k in range(first, len(lines)) if lines[k].endswith("# here")) + 1
    states = random.getstate(), np.random.get_state()[2], RANDOM.getstate(), NUMPY.bit_generator.state
    with pytest.raises(UnsupportedOp, match=rf"test_state\.py:{line}: random numbers of Python or NumPy"):
        from_torch(kind().eval(), (torch.randn(1, 8, 4),))
    assert (random.getstate(), np.random.get_state()[2], RANDOM.getstate(), NUMPY.bit_generator.state) == states


class DrawnInTraining(Base):
    """As layers are left out at random while a model trains: the number is drawn in any case."""

    def forward(self, x):
        left_out = random.uniform(0, 1) < 0.5
        return x if self.training and left_out else self.layer(x)


class Counts(Base):
    """A number is drawn and only told."""

    def forward(self, x):
        self.list.append(RANDOM.random())
        return self.layer(x)


class OwnGenerator(Base):
    def forward(self, x):
        return self.layer(x) * float(np.random.default_rng(3).random())


@pytest.mark.parametrize("kind", [DrawnInTraining, Counts, OwnGenerator])
def test_random_numbers_that_no_answer_depends_on_are_none(kind: type[nn.Module]) -> None:
    module, x = kind().eval(), torch.randn(1, 8, 4)
    torch.testing.assert_close(evaluate(from_torch(module, (x,)), {"x": x})["model.output_0"], module(x).detach())


class Contiguous(Base):
    def forward(self, x):  # here
        return self.layer(x) * (2 if x.is_contiguous() else 1)


class Stride(Base):
    def forward(self, x):  # here
        return self.layer(x) * x.stride(1)


class Strided(Base):
    def forward(self, x):  # here
        return self.layer(x.as_strided((1, 8, 4), (32, 1, 8)))


class MadeContiguous(Base):
    def forward(self, x):
        return self.layer(x.contiguous().as_strided((1, 8, 4), (32, 1, 8)))


class OfAResult(Base):
    def forward(self, x):
        y = self.layer(x)
        return y if y.is_contiguous() else y.clone()


@pytest.mark.parametrize("kind", [Contiguous, Stride, Strided])
def test_how_inputs_lie_in_memory_reaches_no_answer(kind: type[nn.Module]) -> None:
    source, first = inspect.getsourcelines(kind)
    line = first + next(k for k, text in enumerate(source) if "# here" in text)
    with pytest.raises(UnsupportedOp, match=rf"test_state\.py:{line}: .* of an input, whose values in another order"):
        from_torch(kind().eval(), (torch.randn(1, 8, 4),))


@pytest.mark.parametrize("kind", [MadeContiguous, OfAResult])
def test_layouts_that_no_answer_depends_on(kind: type[nn.Module]) -> None:
    module, x = kind().eval(), torch.randn(1, 8, 4)
    torch.testing.assert_close(evaluate(from_torch(module, (x,)), {"x": x})["model.output_0"], module(x).detach())
