"""Modules of `torch.compile` at every door: as the module that they are made of, or refused by type."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from torch import nn

from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tbuda_lab.pybuda import BackendDevice, PyTorchModule, TTDevice, run_inference, shutdown
from tbuda_lab.pybuda import DataFormat as PybudaFormat

EXACT = CompileOptions(default_df_override=DataFormat.Float32)


class Base(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("count", torch.zeros(1))
        self.calls = 0

    def forward(self, x):
        return self.layer(x)


class Buffer(Base):
    def forward(self, x):
        self.count += 1
        return self.layer(x) * self.count


class Attribute(Base):
    def forward(self, x):
        self.calls += 1
        return self.layer(x) * self.calls


class Watched(Base):
    def forward(self, x):
        self.calls += 1
        return self.layer(x)


class Inside(Base):
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.compile(Base(), backend="eager")

    def forward(self, x):
        return self.inner(x) * 2


class Method(Base):
    @torch.compile(backend="eager")
    def forward(self, x):
        return self.layer(x) * 3


class Held(Base):
    def __init__(self) -> None:
        super().__init__()
        self.function = torch.compile(lambda v: v.relu() * 2, backend="eager")

    def forward(self, x):
        return self.function(self.layer(x))


def compiled(kind: type[nn.Module]) -> Callable[[], nn.Module]:
    return lambda: torch.compile(kind().eval(), backend="eager")


def in_place(kind: type[nn.Module]) -> nn.Module:
    module = kind().eval()
    module.compile(backend="eager")
    return module


MODULES: dict[str, Callable[[], nn.Module]] = {
    "compiled": compiled(Base),
    "that watches": compiled(Watched),
    "with a buffer": compiled(Buffer),
    "in place": lambda: in_place(Base),
    "in place, with a buffer": lambda: in_place(Buffer),
    "a part": Inside,
    "a method": Method,
    "a function": Held,
    "in a sequence": lambda: nn.Sequential(nn.Linear(4, 4), torch.compile(Base(), backend="eager")),
    "an empty sequence": nn.Sequential,
    "a sequence": lambda: torch.compile(nn.Sequential(nn.Linear(4, 4)), backend="eager"),
}


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch._dynamo.reset()
    shutdown()
    yield
    shutdown()


@pytest.mark.parametrize("name", MODULES)
def test_a_compiled_module_answers_as_it_does_in_torch(name: str) -> None:
    torch.manual_seed(0)
    module, x = MODULES[name]().eval(), torch.randn(1, 8, 4)
    if name != "an empty sequence":
        session = Session(module, (x,), options=EXACT, cache=False)
        session.compile()
        got = [session.run([(v,)])[0][0] for v in (x, 2 * x)]
        assert all(c.passes(0.999) for c in session.verify((x,)))
    graph = from_torch(module, (x,))
    feeds = {"x" if "x" in graph else graph.inputs[0].name: x}
    feeds |= {n.name: torch.zeros(1) for n in graph.inputs if n.name not in feeds}
    with torch.no_grad():
        first, second = module(x), module(2 * x)
    if name != "an empty sequence":
        torch.testing.assert_close(got, [first, second], rtol=1e-4, atol=1e-4)
    if "buffer" not in name:
        torch.testing.assert_close(evaluate(graph, feeds)["model.output_0"], first)


@pytest.mark.parametrize("make", [compiled(Attribute), lambda: in_place(Attribute)])
def test_state_of_a_compiled_module_is_refused_by_name(make: Callable[[], nn.Module]) -> None:
    with pytest.raises(UnsupportedOp, match=r"attribute 'calls'") as error:
        from_torch(make(), (torch.randn(1, 8, 4),))
    assert "dynamo" not in str(error.value)


@pytest.mark.parametrize("name", ["compiled", "with a buffer", "a part"])
def test_a_device_takes_a_compiled_module(name: str) -> None:
    torch.manual_seed(0)
    module, x = MODULES[name]().eval(), torch.randn(1, 8, 4)
    device = TTDevice(
        "tt0", arch=BackendDevice.Wormhole_B0, module=PyTorchModule("m", module), fp32_fallback=PybudaFormat.Float32
    )
    device.push_to_inputs(x)
    got = run_inference().get()[0].value()
    with torch.no_grad():
        torch.testing.assert_close(got, module(x), rtol=1e-4, atol=1e-4)
