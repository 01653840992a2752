"""Buffers that a forward writes are kept from run to run: several runs against the module called as often in torch."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import nn

import tbuda_lab.pybuda as pybuda
from tbuda_lab.core.errors import InputError, ModelError, TbudaError, UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session

FLOAT = CompileOptions(default_df_override=DataFormat.Float32)
Step = Callable[["Keeps", torch.Tensor], torch.Tensor]


class Keeps(nn.Module):
    """A layer with buffers, and what a call does with them."""

    def __init__(self, step: Step, **buffers: torch.Tensor) -> None:
        super().__init__()
        self.layer, self.step = nn.Linear(16, 16), step
        for name, value in buffers.items():
            self.register_buffer(name, value)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.step(self, x)


def _running_mean(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.layer(x)
    m.held.mul_(0.9).add_(0.1 * y.mean(1, keepdim=True))
    return y - m.held


def _read_before(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.layer(x) + m.held
    m.held.copy_(x.mean(1, keepdim=True))
    return y


def _streamed(m: Any, x: torch.Tensor) -> torch.Tensor:
    """A convolution over time whose last inputs the next call sees."""
    long = torch.cat([m.past, x], 1)
    m.past = long[:, -2:].clone()
    return nn.functional.conv1d(long.transpose(1, 2), m.layer.weight.reshape(16, 16, 1).expand(-1, -1, 3))


def _counted(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.count += 1
    return m.layer(x) * m.count


def _turned(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.truths.logical_not_()
    return torch.where(m.truths, m.layer(x), -m.layer(x))


def _by_host(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = (m.layer(x) + m.held).sort(-1)[0]
    m.held.copy_(y.mean(1, keepdim=True))
    return y


def _set(m: Any, x: torch.Tensor) -> torch.Tensor:
    y = m.layer(x) + m.held
    m.held.fill_(2.0)
    return y


def _exchanged(m: Any, x: torch.Tensor) -> torch.Tensor:
    y, before = m.layer(x) + m.held, m.held.clone()
    m.held.copy_(m.other)
    m.other.copy_(before)
    return y


def _written_alone(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.held.copy_(x.sum(1, keepdim=True))
    return m.layer(x)


def _largest(m: Any, x: torch.Tensor) -> torch.Tensor:
    m.number.copy_(torch.maximum(m.number, x.abs().max()))
    return m.layer(x) * m.number


def _row() -> torch.Tensor:
    return torch.linspace(-1, 1, 32).reshape(2, 1, 16)


MODELS: dict[str, Callable[[], nn.Module]] = {
    "a running mean": lambda: Keeps(_running_mean, held=_row()),
    "read before it is written": lambda: Keeps(_read_before, held=_row()),
    "a convolution over time": lambda: Keeps(_streamed, past=torch.ones(2, 2, 16)),
    "a counter": lambda: Keeps(_counted, count=torch.tensor(3)),
    "truth values": lambda: Keeps(_turned, truths=torch.arange(16) % 3 == 0),
    "an op of the host": lambda: Keeps(_by_host, held=_row()),
    "a constant": lambda: Keeps(_set, held=_row()),
    "two that change places": lambda: Keeps(_exchanged, held=_row(), other=-_row()),
    "one that nothing reads": lambda: Keeps(_written_alone, held=_row()),
    "a number": lambda: Keeps(_largest, number=torch.tensor(0.5)),
    "a spectral norm": lambda: nn.Sequential(nn.utils.spectral_norm(nn.Linear(16, 16))),
    "statistics of batches": lambda: nn.Sequential(nn.Linear(16, 16), nn.BatchNorm1d(8)),
}


def _steps(name: str) -> tuple[nn.Module, list[torch.Tensor], list[torch.Tensor]]:
    """A model, inputs of three calls, and what a copy of it answers to them."""
    torch.manual_seed(4)
    module, inputs = MODELS[name](), [torch.randn(2, 8, 16) for _ in range(3)]
    eager = copy.deepcopy(module)
    with torch.no_grad():
        return module, inputs, [eager(x) for x in inputs]


@pytest.mark.parametrize("name", MODELS)
def test_a_session_keeps_them(name: str) -> None:
    module, inputs, wanted = _steps(name)
    before = {n: b.clone() for n, b in module.named_buffers()}
    session = Session(module, (inputs[0],), options=FLOAT)
    first = session.run(inputs[:1])[0][0]
    assert all(verdict.passes(0.999) for verdict in session.verify())  # begins anew, and leaves what is kept alone
    have = [first, *(row[0] for row in session.run(inputs[1:]))]
    for got, want in zip(have, wanted, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)
    assert all(torch.equal(value, before[n]) for n, value in module.named_buffers())


@pytest.mark.parametrize("name", ["a running mean", "read before it is written", "a counter", "an op of the host"])
def test_a_device_keeps_them_from_push_to_push(name: str) -> None:
    module, inputs, wanted = _steps(name)
    pybuda.shutdown()
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("m", module), arch=pybuda.BackendDevice.Wormhole_B0)
    for x in inputs:
        device.push_to_inputs(x)
    queue = pybuda.run_inference(input_count=3)
    for want in wanted:
        torch.testing.assert_close(queue.get()[0].value(), want, rtol=1e-3, atol=1e-3)


def _shared() -> nn.Module:
    module = Keeps(_read_before, held=_row())
    module.register_buffer("again", module.held[:1])
    return module


def _input_written(m: Any, x: torch.Tensor) -> torch.Tensor:
    return m.layer(x.add_(1))


REFUSED: dict[str, tuple[Callable[[], nn.Module], CompileOptions, type[TbudaError], str]] = {
    "memory of two buffers": (_shared, FLOAT, ModelError, "cannot be traced"),
    "an input": (lambda: Keeps(_input_written), FLOAT, UnsupportedOp, "'x' is written to by the forward"),
    "several inputs at a time": (MODELS["a running mean"], CompileOptions(microbatch=2), InputError, "microbatch=1"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_kept_is_refused_with_its_line(name: str) -> None:
    make, options, kind, text = REFUSED[name]
    with pytest.raises(kind, match=text) as error:
        Session(make(), (torch.randn(2, 8, 16),), options=options).compile()
    assert kind is ModelError or "test_kept_buffers.py" in str(error.value)


def test_training_does_not_keep_them() -> None:
    with pytest.raises((UnsupportedOp, ModelError), match="'held' is written to by the forward"):
        Session.for_training(
            MODELS["a running mean"](), torch.randn(2, 8, 16), nn.MSELoss(), torch.randn(2, 8, 16), "sgd", 0.1
        )
