"""The judges: what is compared is the user's module itself, run eagerly, twice, in its own mode."""

from __future__ import annotations

import contextlib
import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import nn

from tbuda_lab.core.errors import NotSupported
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.eager import as_trained, own_copy
from tbuda_lab.core.frontend.pybuda import PyTorchModule
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tbuda_lab.core.verification import MIN_PCC, compare

FLOATS = CompileOptions(default_df_override=DataFormat.Float32)
RNG = np.random.default_rng(0)
NOISE = RNG.standard_normal(1000)


class Layer(nn.Module):
    """A linear layer, and something done to its result."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = nn.Linear(8, 8)
        self.seen: list[torch.Tensor] = []
        self.calls = 0
        self.register_buffer("total", torch.zeros(1, 8))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.change(self.layer(x))

    def change(self, y: torch.Tensor) -> torch.Tensor:
        return y


class Listed(Layer):
    def change(self, y: torch.Tensor) -> torch.Tensor:
        self.seen.append(y)
        return torch.stack(self.seen).sum(0)


class Counted(Layer):
    def change(self, y: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return y * self.calls


class Summed(Layer):
    def change(self, y: torch.Tensor) -> torch.Tensor:
        self.total += y
        return self.total


class Shifted(Layer):
    def change(self, y: torch.Tensor) -> torch.Tensor:
        return y + 1


class Dropped(Layer):
    def change(self, y: torch.Tensor) -> torch.Tensor:
        return nn.functional.dropout(y, 0.5, self.training)


class Detached(Layer):
    def change(self, y: torch.Tensor) -> torch.Tensor:
        return y * torch.sigmoid(y).detach()


class Hooked(Layer):
    def change(self, y: torch.Tensor) -> torch.Tensor:
        if y.requires_grad:
            y.register_hook(lambda g: g * 0.1)
        return y


class Twice(Layer):
    def change(self, y: torch.Tensor) -> torch.Tensor:
        return 2 * y


@pytest.fixture(scope="module")
def session() -> Session:
    return Session(Layer().eval(), (torch.ones(1, 8),), options=FLOATS)


@pytest.mark.parametrize("other", [Listed, Counted, Summed, Shifted, Twice])
def test_verify_is_red_where_the_module_says_something_else(session: Session, other: type[Layer]) -> None:
    """The netlist of a plain layer, judged against modules that keep something or calculate something else."""
    session.model = Layer().eval()
    assert all(c.passes(MIN_PCC) for c in session.verify())
    session.model = module = other().eval()
    verdicts = session.verify()
    assert not all(c.passes(MIN_PCC) for c in verdicts)
    if other in (Listed, Counted, Summed):
        assert [c.name for c in verdicts] == ["output 0", "output 0, second run"] or not verdicts[0].passes(MIN_PCC)
    assert not module.seen and not module.calls and not module.total.any()  # the user's own module is as it was


def test_verify_takes_the_mode_that_the_module_is_in(session: Session) -> None:
    session.model = Dropped().eval()
    assert all(c.passes(MIN_PCC) for c in session.verify())
    session.model = Dropped().train()
    before = torch.get_rng_state()
    verdicts = session.verify()
    assert len(verdicts) == 1 and not verdicts[0].passes(MIN_PCC)  # the same seeds: the same answer twice
    assert torch.equal(torch.get_rng_state(), before)


def test_runs_that_overlap_leave_torch_s_switch_as_it_was() -> None:
    """Of two threads the first to come may be the first to go: torch's switch is one for the process."""
    before = torch.backends.mha.get_fastpath_enabled()
    first, second = contextlib.ExitStack(), contextlib.ExitStack()
    first.enter_context(as_trained())
    second.enter_context(as_trained())
    first.close()
    assert not torch.backends.mha.get_fastpath_enabled()
    second.close()
    assert torch.backends.mha.get_fastpath_enabled() == before


@pytest.fixture(scope="module")
def training() -> Session:
    return Session.for_training(Layer(), (torch.ones(1, 8),), nn.MSELoss(), torch.zeros(1, 8), options=FLOATS)


@pytest.mark.parametrize("other", [Detached, Hooked, Twice, Counted])
def test_check_gradients_is_red_where_torch_says_something_else(training: Session, other: type[Layer]) -> None:
    batch = torch.ones(1, 8), torch.zeros(1, 8)
    training.training.trains(PyTorchModule("model", Layer()), PyTorchModule("loss", nn.MSELoss()))
    assert all(c.passes(MIN_PCC) for c in training.check_gradients(*batch))
    training.training.trains(PyTorchModule("model", other()), PyTorchModule("loss", nn.MSELoss()))
    assert not all(c.passes(MIN_PCC) for c in training.check_gradients(*batch))


CASES = {
    "equal": (NOISE, NOISE, True),
    "another scale": (NOISE, 0.5 * NOISE, False),
    "huge ones made small": (NOISE * 1e30, NOISE * 2.0**15, False),
    "one wrong of a thousand": (NOISE, np.where(np.arange(1000) == 7, 3 + NOISE, NOISE), False),
    "noise of 2 %": (NOISE, NOISE + 0.02 * RNG.standard_normal(1000), True),
    "nearly constant, rounded": (100 + 1e-3 * NOISE, np.full(1000, 100.0), True),
    "nearly constant, another one": (100 + 1e-3 * NOISE, 103 + 1e-3 * NOISE, False),
    "nearly constant, lost": (100 + 0.9 * np.sign(NOISE), np.full(1000, 100.0), False),
    "constants within 1 %": (np.ones(9), np.full(9, 1.005), True),
    "constants": (np.ones(9), np.full(9, 1.05), False),
    "zeros": (np.zeros(9), np.zeros(9), True),
    "something instead of zeros": (np.zeros(9), 1e-3 * NOISE[:9], False),
    "infinities where they belong": (np.array([1.0, -np.inf, 2.0, 4.0]), np.array([1.001, -np.inf, 2.0, 4.0]), True),
    "infinities elsewhere": (np.array([1.0, -np.inf, 2.0]), np.array([1.0, -32767.0, 2.0]), False),
    "NaN": (np.array([1.0, 2.0, 3.0]), np.array([1.0, np.nan, 3.0]), False),
    "indices": (np.array([599]), np.array([596]), False),
    "large whole numbers": (np.array([2**24 + 1, 2**24 + 3]), np.array([2**24, 2**24 + 4]), False),
    "truth values": (np.arange(300) > 150, np.arange(300) > 151, False),
    "nothing": (np.zeros(0), np.zeros(0), True),
}


@pytest.mark.parametrize("name", CASES)
def test_both_measures(name: str) -> None:
    expected, got, good = CASES[name]
    assert compare(name, expected, got).passes(MIN_PCC) == good


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, pickle.dumps])
def test_copies_of_a_session_are_refused(session: Session, duplicate: Callable[[Session], object]) -> None:
    with pytest.raises(NotSupported, match="a copy of a session"):
        duplicate(session)


class OwnTensor(torch.Tensor):
    """A class of somebody's own, of which torch makes no new ones while it copies."""


@pytest.mark.parametrize("trains", [True, False], ids=["trains", "stands still"])
@pytest.mark.parametrize("hooked", [True, False], ids=["with a hook", "without"])
@pytest.mark.parametrize("kind", [torch.Tensor, OwnTensor, nn.Parameter], ids=lambda kind: kind.__name__)
def test_the_copy_that_judges_has_the_gradients_of_the_module(
    kind: type[torch.Tensor], hooked: bool, trains: bool
) -> None:
    """A tensor that a module holds as an attribute, whatever its class."""
    values = torch.tensor([1.0, 2.0, 3.0])
    tensor = nn.Parameter(values) if kind is nn.Parameter else values.as_subclass(kind)
    tensor.requires_grad_(trains)
    if hooked and trains:
        tensor.register_hook(lambda gradient: 7 * gradient)
    module = nn.Module()
    module.weight = tensor
    copied = own_copy(module)
    assert copied is not None and type(copied.weight) is kind and copied.weight.requires_grad is trains
    copied.weight.data[0] = 5.0
    assert module.weight[0] == 1.0
    if trains:
        for one in (module, copied):
            (torch.tensor([1.0, 10.0, 100.0]) * one.weight).sum().backward()
        torch.testing.assert_close(copied.weight.grad, module.weight.grad)
        assert float(module.weight.grad[1]) == (70.0 if hooked else 10.0)
