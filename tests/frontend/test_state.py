"""What a torch module keeps from call to call: refused by name and line where its answers depend on it."""

from __future__ import annotations

import collections
import random
import typing

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


class Silent(nn.Module):
    """A lock cannot be copied."""

    def __init__(self) -> None:
        super().__init__()
        import threading

        self.layer, self.lock = nn.Linear(4, 4), threading.Lock()

    def forward(self, x):
        with self.lock:
            return self.layer(x)


@pytest.mark.parametrize("kind", [Watched, Lazy, Silent])
def test_what_nothing_reads_is_left_out(kind: type[nn.Module]) -> None:
    torch.manual_seed(0)
    module, x = kind().eval(), torch.randn(1, 8, 4)
    graph = from_torch(module, (x,))
    if isinstance(module, Base):
        assert not module.count and module.last is None and not module.list
    torch.testing.assert_close(evaluate(graph, {"x": 3 * x})["model.output_0"], module(3 * x).detach())


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


@pytest.mark.parametrize("kind", [Scaled, ScaledByNumpy, Shuffled, LeftOut])
def test_random_numbers_that_the_trace_does_not_see_are_refused(kind: type[nn.Module]) -> None:
    with open(__file__, encoding="utf-8") as file:
        lines = file.read().splitlines()
    first = lines.index(f"class {kind.__name__}(Base):")
    line = next(k for k in range(first, len(lines)) if lines[k].endswith("# here")) + 1
    states = random.getstate(), np.random.get_state()[2]
    with pytest.raises(UnsupportedOp, match=rf"test_state\.py:{line}: random numbers of Python or NumPy"):
        from_torch(kind().eval(), (torch.randn(1, 8, 4),))
    assert (random.getstate(), np.random.get_state()[2]) == states


class DrawnInTraining(Base):
    """As layers are left out at random while a model trains: the number is drawn in any case."""

    def forward(self, x):
        left_out = random.uniform(0, 1) < 0.5
        return x if self.training and left_out else self.layer(x)


class OwnGenerator(Base):
    def forward(self, x):
        return self.layer(x) * float(np.random.default_rng(3).random())


@pytest.mark.parametrize("kind", [DrawnInTraining, OwnGenerator])
def test_random_numbers_that_no_answer_depends_on_are_none(kind: type[nn.Module]) -> None:
    module, x = kind().eval(), torch.randn(1, 8, 4)
    torch.testing.assert_close(evaluate(from_torch(module, (x,)), {"x": x})["model.output_0"], module(x).detach())
