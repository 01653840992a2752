"""What runs is what the model is now: weights, buffers and attributes that were changed since it was traced."""

from __future__ import annotations

import contextvars
import os
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import Session
from tbuda_lab.pybuda import BackendDevice, PyTorchModule, TTDevice, run_inference, shutdown
from tbuda_lab.pybuda import DataFormat as PybudaFormat

GAIN, TABLE, ADDED = 1.0, {"offset": 0.0}, torch.zeros(8)


def moved(y: torch.Tensor) -> torch.Tensor:
    return y + TABLE["offset"]


SHIFT: contextvars.ContextVar[float] = contextvars.ContextVar("SHIFT", default=1.0)


def counter() -> tuple[Callable[[], float], Callable[[object], None]]:
    """A function of a number around it, and one that changes it."""
    number = 1.0

    def change(_: object) -> None:
        nonlocal number
        number += 1

    return lambda: number, change


AROUND, change_around = counter()


def defaulted(value: float = 1.0, *, other: float = 1.0) -> float:
    return value * other


def change_defaults(_: Model) -> None:
    defaulted.__defaults__ = (defaulted.__defaults__[0] + 1,)  # type: ignore[index]


def change_keyword_defaults(_: Model) -> None:
    defaulted.__kwdefaults__["other"] += 1


class Doubles(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * x


def change_class(model: Model) -> None:
    """Exchanges the method of a class, as a patch of a library does."""
    model.bend = Doubles() if type(model.bend) is not Doubles else model.bend
    factor = float(torch.rand(())) + 3
    Doubles.forward = lambda self, x: factor * x


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.norm, self.bend = nn.Linear(600, 8), nn.BatchNorm1d(8), nn.ReLU()
        self.scale, self.factor, self.terms = torch.ones(8), 2.0, [torch.zeros(8)]

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.bend(self.norm(self.linear(x))) * self.scale * self.factor + self.terms[0]
        y = y * SHIFT.get() + AROUND() - defaulted()
        return moved(y) * GAIN + ADDED + float(os.environ.get("TBUDA_TEST_SHIFT", "0"))


def swap_halves(model: Model) -> None:
    weight = model.linear.weight.data
    weight.copy_(torch.cat([weight[4:], weight[:4]]))


def replace_weight(model: Model) -> None:
    model.linear.weight = nn.Parameter(model.linear.weight * 3)


def load(model: Model) -> None:
    model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()})


def change_global(_: Model) -> None:
    global GAIN
    GAIN += 1


def change_environment(_: Model) -> None:
    os.environ["TBUDA_TEST_SHIFT"] = str(float(os.environ.get("TBUDA_TEST_SHIFT", "0")) + 1)


CHANGES: dict[str, Callable[[Model], object]] = {
    "in place": lambda m: m.linear.weight.mul_(2),
    "data in place, which torch does not count": lambda m: m.linear.weight.data.mul_(2),
    "through NumPy": lambda m: m.linear.bias.numpy().fill(1.0),
    "parts in other places": swap_halves,
    "other data": lambda m: setattr(m.linear.weight, "data", m.linear.weight.data * 3),
    "another parameter": replace_weight,
    "loaded": load,
    "a buffer": lambda m: m.norm.running_mean.add_(1),
    "a tensor that is no buffer": lambda m: m.scale.mul_(2),
    "a number": lambda m: setattr(m, "factor", 3.0),
    "in a list": lambda m: m.terms[0].add_(1),
    "another layer": lambda m: setattr(m, "linear", nn.Linear(600, 8)),
    "another layer without weights": lambda m: setattr(m, "bend", nn.Tanh() if type(m.bend) is nn.ReLU else nn.ReLU()),
    "a hook": lambda m: m.linear.register_forward_hook(lambda _, inputs, y: y + 1),
    "a global number": change_global,
    "a variable of the environment": change_environment,
    "a global dict that a function reads": lambda _: TABLE.update(offset=TABLE["offset"] + 1),
    "a global tensor": lambda _: ADDED.add_(1),
    "a context variable": lambda _: SHIFT.set(SHIFT.get() + 1),
    "a number around a function": change_around,
    "a default": change_defaults,
    "a default by keyword": change_keyword_defaults,
    "a method of a class": change_class,
    "its mode": lambda m: m.bend.train(not m.bend.training),
    "another forward": lambda m: setattr(m.bend, "forward", lambda x: -x),
}


@pytest.mark.parametrize("how", CHANGES)
def test_a_session_runs_the_model_as_it_is(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBUDA_TEST_SHIFT", "1.5")
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(1, 600)
    session = Session(model, (x,), options=CompileOptions(default_df_override=DataFormat.Float32), cache=False)
    first = session.compile()
    assert session.compile() is first  # nothing has changed
    with torch.no_grad():
        CHANGES[how](model)
        torch.testing.assert_close(session.run([(x,)])[0][0], model(x), rtol=1e-4, atol=1e-4)
        CHANGES[how](model)
        torch.testing.assert_close(session.run([(x,)])[0][0], model(x), rtol=1e-4, atol=1e-4)


@pytest.fixture
def _no_other_device() -> Iterator[None]:
    shutdown()
    yield
    shutdown()


@pytest.mark.usefixtures("_no_other_device")
@pytest.mark.parametrize(
    "how",
    [
        "data in place, which torch does not count",
        "a number",
        "in a list",
        "a global number",
        "a variable of the environment",
    ],
)
def test_a_device_runs_the_model_as_it_is(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TBUDA_TEST_SHIFT", "1.5")
    torch.manual_seed(0)
    model, x = Model().eval(), torch.randn(1, 600)
    device = TTDevice(
        "tt0",
        arch=BackendDevice.Wormhole_B0,
        module=PyTorchModule("model", model),
        fp32_fallback=PybudaFormat.Float32,
    )
    for change in (lambda _: None, CHANGES[how]):
        with torch.no_grad():
            change(model)
            device.push_to_inputs(x)
            got = run_inference().get()[0].value()
            torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-4)


CALLS = 0


class Counted(Model):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        global CALLS
        CALLS += 1
        return super().forward(x)


def test_a_global_that_tracing_itself_changes_is_no_change_of_the_model() -> None:
    model, x = Counted().eval(), torch.randn(1, 600)
    session = Session(model, (x,), options=CompileOptions(default_df_override=DataFormat.Float32), cache=False)
    first = session.compile()
    assert CALLS
    session.run([(x,)])
    assert session.compile() is first


def test_overrides_stay_when_the_model_has_changed() -> None:
    model, x = Model().eval(), torch.randn(1, 600)
    session = Session(model, (x,), options=CompileOptions(default_df_override=DataFormat.Float32), cache=False)
    op = next(iter(session.compile().placement.ops))
    session.apply(Override("op_size", op, (1, 1)))
    before = session.compile().placement.candidate(op)
    with torch.no_grad():
        model.linear.weight.mul_(2)
        torch.testing.assert_close(session.run([(x,)])[0][0], model(x), rtol=1e-4, atol=1e-4)
    now = session.compile().placement.candidate(op)
    assert (now["grid_r"], now["grid_c"]) == (before["grid_r"], before["grid_c"]) == (1, 1)
