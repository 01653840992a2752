"""The trace of a torch module is held against the module itself on its sample: what differs is refused by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.frontend.emitter import Emitter
from tbuda_lab.core.frontend.torch_model import importer
from tbuda_lab.core.ops.binary import Maximum, Subtract
from tbuda_lab.core.ops.unary import Clip, Relu, Sigmoid, Tanh
from tbuda_lab.core.session import Session


class Says(nn.Module):
    """Asks torch whether it is traced."""

    def forward(self, x):
        y = x * 2
        if torch.compiler.is_exporting():
            y = y + 1
        return y.relu()  # here


class Looks(nn.Module):
    """Looks at the kind of tensor that it is given."""

    def forward(self, x):
        scale = 3.0 if type(x) is torch.Tensor else 2.0
        return x * scale  # here


class Counts(nn.Module):
    """Another number of outputs in the trace."""

    def forward(self, x):
        y = x.relu()
        return (y, y) if torch.compiler.is_exporting() else (y,)


@pytest.mark.parametrize("kind", [Says, Looks, Counts])
def test_a_model_that_does_otherwise_while_it_is_traced_is_refused(kind: type[nn.Module]) -> None:
    with pytest.raises(UnsupportedOp, match="another answer") as caught:
        from_torch(kind(), (torch.randn(2, 3),))
    lines = [k for k, line in enumerate(inspect.getsource(kind).splitlines()) if "# here" in line]
    if lines:
        line = inspect.getsourcelines(kind)[1] + lines[0]
        assert f"test_answers.py:{line}" in str(caught.value)
    with pytest.raises(UnsupportedOp, match="another answer"):
        Session(kind(), (torch.randn(1, 3),), cache=False).compile()


class Steps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(1, 4))

    def forward(self, x):
        self.seen += 1.0
        a = x.relu()  # Relu
        b = a - x.tanh()  # Subtract
        c = torch.maximum(b, x)  # Maximum
        d = c.clamp(-0.5, 0.5)  # Clip
        return d.sigmoid(), (x > 0).float() + d + self.seen


FAULTS: dict[str, tuple[type, Callable[..., Any], str]] = {
    "another op": (Relu, lambda op, *args: (Tanh(), *args), "relu"),
    "operands exchanged": (Subtract, lambda op, a, b: (op, b, a), "sub"),
    "an operand twice": (Maximum, lambda op, a, b: (op, a, a), "maximum"),
    "an argument lost": (Clip, lambda op, a: (Clip(-0.5, 100.0), a), "clamp"),
    "an op left out": (Sigmoid, lambda op, a: (Clip(-9.0, 9.0), a), "sigmoid"),
}
"""By fault: the op that is written wrongly, what is written instead, and the op of the model."""


@pytest.mark.parametrize("name", FAULTS)
def test_an_op_that_is_mapped_wrongly_is_named_with_its_line(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    kind, change, op_name = FAULTS[name]
    right = Emitter.op

    def wrong(self: Emitter, op: Any, *args: str, **rest: Any) -> str:
        if isinstance(op, kind):
            op, *operands = change(op, *args)
            return right(self, op, *operands, **rest)
        return right(self, op, *args, **rest)

    x = torch.randn(1, 4, generator=torch.Generator().manual_seed(3)) * 2
    from_torch(Steps().eval(), (x,))
    monkeypatch.setattr(Emitter, "op", wrong)
    with pytest.raises(UnsupportedOp, match=rf"test_answers.py:\d+: aten\.{op_name}") as caught:
        from_torch(Steps().eval(), (x,))
    source, first = inspect.getsourcelines(Steps)
    wanted = next(
        first + k
        for k, line in enumerate(source)
        if f".{op_name.split('_')[0]}" in line or f"# {kind.__name__}" in line
    )
    assert f"test_answers.py:{wanted}:" in str(caught.value)


def test_a_write_that_torch_would_lose_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    class Alias(nn.Module):
        def forward(self, x):
            y = x * 1.0
            y[0].add_(5.0)
            return y

    from_torch(Alias(), (torch.randn(2, 3),))
    right = importer.export

    def lost(*args: Any, **kwargs: Any) -> Any:
        program = right(*args, **kwargs)
        for node in program.graph.nodes:
            if "aten.add" in str(node.target):
                node.replace_all_uses_with(node.args[0])
        return program

    monkeypatch.setattr(importer, "export", lost)
    with pytest.raises(UnsupportedOp, match="another answer"):
        from_torch(Alias(), (torch.randn(2, 3),))


def test_a_lost_write_of_a_buffer_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Emitter.output
    monkeypatch.setattr(
        Emitter,
        "output",
        lambda self, source, name, **attrs: right(self, "seen" if name == "seen.write" else source, name, **attrs),
    )
    with pytest.raises(UnsupportedOp, match=r"seen\.write: 4 of 4 elements differ"):
        from_torch(Steps().eval(), (torch.randn(1, 4),))


class Noisy(nn.Module):
    """What a rounding decides: a difference of nearly equal numbers, blown up, and the place of the largest of them."""

    def forward(self, x):
        y = (x + 1000.0).softmax(-1) - x.softmax(-1)
        return y * 1e7, y.argmax(-1), (y * 1e9).round()


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(*[nn.Linear(16, 16) for _ in range(8)])

    def forward(self, x):
        return self.layers(x).softmax(-1)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64, torch.float16])
def test_rounding_is_no_difference(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    assert len(from_torch(Wide().to(dtype), (torch.randn(2, 16, dtype=dtype),)).outputs) == 1
    assert len(from_torch(Noisy(), (torch.randn(2, 16),)).outputs) == 3


def test_nan_and_infinity_have_their_places(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.tensor([[1.0, torch.inf, -torch.inf, torch.nan]])
    from_torch(nn.ReLU(), (x,))
    for wrong in (lambda a: a.relu().nan_to_num(0.0), lambda a: a.relu().nan_to_num(torch.nan, torch.nan)):
        monkeypatch.setattr(Relu, "evaluate", lambda self, a, wrong=wrong: wrong(a))
        with pytest.raises(UnsupportedOp, match=r"\d of 4 elements differ"):
            from_torch(nn.ReLU(), (x,))


class Returns(nn.Module):
    def __init__(self, beside: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.beside = [beside]

    def forward(self, x):
        return x.relu(), self.beside[0](x)


@pytest.mark.parametrize(
    "beside", [lambda x: x.sum().item(), lambda x: {"k": x.max().item()}, lambda x: [(x > 0).sum().item()]]
)
def test_numbers_of_values_beside_tensors_are_refused(beside: Callable[[torch.Tensor], Any]) -> None:
    with pytest.raises(UnsupportedOp, match=r"output \[1\].*: a Python number of a tensor's value"):
        from_torch(Returns(beside), (torch.randn(2, 3),))


BESIDE: dict[str, Callable[[torch.Tensor], Any]] = {
    "[1] = 3": lambda x: 3,
    "[1] = 'text'": lambda x: "text",
    "[1] = True": lambda x: x.dim() == 2,
    "[1]['n'] = 2.5": lambda x: {"n": 2.5, "none": None},
    "[1][1] = 3": lambda x: x.shape,
    "type ndarray": lambda x: np.ones(3),
    "type set": lambda x: {1},
}


@pytest.mark.parametrize("told", BESIDE)
def test_what_is_returned_beside_tensors_is_told(told: str, caplog: pytest.LogCaptureFixture) -> None:
    assert len(from_torch(Returns(BESIDE[told]), (torch.randn(2, 3),)).outputs) == 1
    assert told in caplog.text
