"""What is recorded of a forward against the trace of torch.export, the oracle here."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch
from torch import nn

from tbuda_lab.core.frontend import from_any
from tbuda_lab.core.frontend.inputs import bind
from tbuda_lab.core.frontend.torch_model import export
from tbuda_lab.core.frontend.torch_model.export import write_plainly
from tbuda_lab.core.frontend.torch_model.program import Program
from tbuda_lab.core.frontend.torch_model.provenance import origin_of
from tbuda_lab.core.frontend.torch_model.record import record
from tbuda_lab.core.frontend.torch_model.shapes import result_of
from tests.frontend.ops_zoo import CASES, Fn
from tests.models import make

aten = torch.ops.aten
CHECK = "aten._assert_tensor_metadata.default"
MODELS = ("mlp", "unet", "resnet18", "mobilenet_v2", "gpt2", "bert")


def recorded(module: nn.Module, inputs: Any) -> Program | None:
    module.eval()
    with torch.no_grad():
        return record(module, bind(module.forward, inputs))


def exported(module: nn.Module, inputs: Any) -> Program:
    bound = bind(module.eval().forward, inputs)
    with torch.no_grad():
        return Program.of(torch.export.export(module, bound.args, bound.kwargs, strict=False))


def calls(program: Program) -> list[Any]:
    """Every call with its name, operands, result and origin; checks of torch's own, which do nothing, apart."""
    rows: list[Any] = []
    places: dict[torch.fx.Node, str] = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            places[node] = f"leaf {len(places)}"
        elif node.op == "call_function" and str(node.target) != CHECK:
            places[node] = node.name
            value = node.meta["val"]
            form = _form(value) if isinstance(value, torch.Tensor) else type(value)
            operands = torch.fx.map_arg((node.args, node.kwargs), places.__getitem__)
            rows.append((node.name, str(node.target), repr(operands), form, origin_of(node.meta, node.target)))
    rows.append(repr(torch.fx.map_arg(program.graph.output_node().args, places.__getitem__)))
    return rows


def _form(value: torch.Tensor) -> Any:
    """Shape, type, and strides of the dims that have any."""
    strides = [stride for n, stride in zip(value.shape, value.stride(), strict=True) if n != 1]
    return tuple(value.shape), strides, value.dtype


def same(module: nn.Module, inputs: Any) -> bool:
    """Whether a forward is recorded; asserts that it then is what torch.export makes of it."""
    program = recorded(module, inputs)
    if program is None:
        return False
    expected = exported(module, inputs)
    for each in (program, expected):
        write_plainly(each.graph)  # that dropout returns what it is given is forgotten by torch.export
    assert calls(program) == calls(expected)
    assert [leaf.target for leaf in program.leaves] == [leaf.target for leaf in expected.leaves]
    assert [leaf.given for leaf in program.leaves] == [leaf.given for leaf in expected.leaves]
    assert program.out_spec == expected.out_spec
    assert program.returned == expected.returned
    return True


@pytest.mark.parametrize("name", MODELS)
def test_models_are_recorded_as_torch_exports_them(name: str) -> None:
    assert same(*make(name))


def test_ops_are_recorded_as_torch_exports_them() -> None:
    count = 0
    for name, function, inputs in CASES:
        module = function if isinstance(function, nn.Module) else Fn(function)
        try:
            count += same(module, inputs)
        except AssertionError as error:
            raise AssertionError(name) from error
    assert count > 0.8 * len(CASES)  # the others read tensors that are not of the module


class Angles(nn.Module):
    """Constants that are made without gradients, here and there, as positions of a transformer are."""

    frequencies: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)
        self.register_buffer("frequencies", torch.arange(8).float())

    @torch.no_grad()
    def angles(self, x: torch.Tensor) -> torch.Tensor:
        return (torch.arange(8, device=x.device) * self.frequencies).cos()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.linear(x) + torch.arange(8)
        with torch.no_grad():
            z = self.angles(x) + torch.arange(8)
        return y * z + torch.arange(8)


def test_regions_without_gradients_are_recorded() -> None:
    assert same(Angles(), (torch.ones(4, 8),))


class Shared(nn.Module):
    """One submodule under two names."""

    first: nn.Module
    second: nn.Module

    def __init__(self) -> None:
        super().__init__()
        self.first = self.second = nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        result: torch.Tensor = self.second(self.first(x))
        return result


class Counting(nn.Module):
    seen: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(8))
        self.calls = 0
        self.results: list[torch.Tensor] = []
        self.table = torch.ones(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.seen


class Named(nn.Module):
    """torch.export renames calls that have the name of an input."""

    def forward(self, arange: torch.Tensor) -> torch.Tensor:
        return arange + torch.arange(8)


class SetsAttribute(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        return x * self.calls


class Appends(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.results.append(x + 1)
        return self.results[-1]


class SetsBuffer(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen = self.seen + x
        return self.seen


class ReadsTensor(Counting):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.table


class Tries(Counting):
    """Does something else where it cannot read a value."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        try:
            return x * float(self.seen.sum() + 1)
        except Exception:
            return x - 1


def autocast(x: torch.Tensor) -> torch.Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return x @ x.transpose(0, 1)


def gradients(x: torch.Tensor) -> torch.Tensor:
    with torch.enable_grad():
        return x * 2


LEFT: dict[str, nn.Module] = {
    "a submodule under two names": Shared(),
    "an attribute that is set": SetsAttribute(),
    "a list that grows": Appends(),
    "a buffer that is set": SetsBuffer(),
    "a tensor beside the buffers": ReadsTensor(),
    "an error that is caught": Tries(),
    "a value that decides": Fn(lambda x: x if x.sum() > 0 else -x),
    "a number of a value": Fn(lambda x: x * x.max().item()),
    "a list of values": Fn(lambda x: x * x[0].tolist()[0]),
    "an array of values": Fn(lambda x: x * float(x.numpy().sum())),
    "the larger of two": Fn(lambda x: max(x.sum(), x.mean())),
    "numbers in the forward": Fn(lambda x: x + torch.tensor([1.0, 2.0] * 4)),
    "an index that is a value": Fn(lambda x: x[x[0, 0].to(torch.int64)]),
    "sizes by value": Fn(lambda x: x[x > 0]),
    "autocast": Fn(autocast),
    "gradients": Fn(gradients),
    "another device": Fn(lambda x: x + torch.ones(8, device="meta").to("cpu")),
    "a size that changes in place": Fn(lambda x: (x + 1).unsqueeze_(0)),
    "an input named as a call": Named(),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_is_left_to_torch_export(name: str) -> None:
    """And the module is as it was."""
    module = LEFT[name].eval()
    before, buffers = dict(module.__dict__), dict(module.named_buffers())
    contents = list(getattr(module, "results", []))
    assert recorded(module, (torch.ones(8, 8),)) is None
    assert module.__dict__ == before
    assert all(buffer is buffers[key] for key, buffer in module.named_buffers())
    assert list(getattr(module, "results", [])) == contents
    assert not torch.compiler.is_exporting()
    assert torch.backends.mkldnn.enabled


CONTIGUOUS = torch.empty(2, 3, 4, 5, device="meta")
OTHER = torch.empty(3, 1, 5, device="meta")
WEIGHTS = torch.empty(7, 5, device="meta")
THREE = torch.empty(3, device="meta")
TURNED = torch.empty(5, 4, 3, 2, device="meta").permute(3, 2, 1, 0)
RULES: list[tuple[Any, tuple[Any, ...]]] = [
    *((op, (CONTIGUOUS,)) for op in (aten.relu.default, aten.relu_.default, aten.tanh.default, aten.sigmoid.default,
                                     aten.silu.default, aten.gelu.default, aten.hardswish.default,
                                     aten.hardtanh_.default, aten.leaky_relu.default)),
    *((op, (CONTIGUOUS, OTHER)) for op in (aten.add.Tensor, aten.mul.Tensor, aten.sub.Tensor, aten.div.Tensor)),
    *((op, (CONTIGUOUS, 2)) for op in (aten.add.Tensor, aten.mul.Tensor, aten.add_.Tensor)),
    (aten.add.Tensor, (OTHER, CONTIGUOUS)),
    (aten.softmax.int, (CONTIGUOUS, -1)),
    (aten.log_softmax.int, (CONTIGUOUS, 1)),
    (aten.batch_norm.default, (CONTIGUOUS, THREE, THREE, THREE, THREE, False, 0.1, 1e-5, False)),
    (aten.layer_norm.default, (CONTIGUOUS, [5], WEIGHTS[0], WEIGHTS[0])),
    (aten.linear.default, (CONTIGUOUS, WEIGHTS)),
    (aten.linear.default, (CONTIGUOUS, WEIGHTS, WEIGHTS[:, 0].contiguous())),
    (aten.cat.default, ([CONTIGUOUS, CONTIGUOUS], 1)),
    (aten.cat.default, ([CONTIGUOUS, CONTIGUOUS, CONTIGUOUS], -1)),
    (aten.mean.dim, (CONTIGUOUS, [2, 3])),
    (aten.mean.dim, (CONTIGUOUS, [-1, 2], True)),
    (aten.adaptive_avg_pool2d.default, (CONTIGUOUS, [1, 2])),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(RULES)), ids=[f"{op} {k}" for k, (op, _) in enumerate(RULES)])
def test_rules_are_those_of_torch(number: int) -> None:
    target, args = RULES[number]
    result, expected = result_of(target, args, {}), target(*args)
    assert result is not None
    assert (result.shape, result.stride(), result.dtype) == (expected.shape, expected.stride(), expected.dtype)
    assert (result is args[0]) == (expected is args[0])


@pytest.mark.parametrize(
    ("target", "args"),
    [
        (aten.add.Tensor, (CONTIGUOUS, TURNED)),
        (aten.add.Tensor, (CONTIGUOUS, CONTIGUOUS.to(torch.float64))),
        (aten.add.Tensor, (CONTIGUOUS.to(torch.int64), 1)),
        (aten.relu.default, (TURNED,)),
        (aten.softmax.int, (CONTIGUOUS, 4)),
        (aten.linear.default, (CONTIGUOUS, WEIGHTS[:, :4].contiguous())),
        (aten.batch_norm.default, (CONTIGUOUS, None, None, WEIGHTS[0], WEIGHTS[0], False, 0.1, 1e-5, False)),
        (aten.cat.default, ([CONTIGUOUS, OTHER], 0)),
        (aten.mean.dim, (CONTIGUOUS, [2, 4])),
        (aten.matmul.default, (CONTIGUOUS, WEIGHTS)),
    ],
)
def test_torch_says_what_other_calls_give(target: Any, args: tuple[Any, ...]) -> None:
    assert result_of(target, args, {}) is None


def test_a_torch_without_the_names_for_it_traces_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    module, inputs = make("mlp")
    recorded_graph = from_any(module, inputs)
    monkeypatch.setattr(export, "record", None)
    graph = from_any(module, inputs)
    assert [(n.name, n.op, n.inputs, n.origin) for n in graph] == [
        (n.name, n.op, n.inputs, n.origin) for n in recorded_graph
    ]


def test_a_trace_does_not_import_what_torch_compiles_with() -> None:
    code = """
import sys, torch
from tests.models import make
from tbuda_lab.core.frontend import from_any
module, inputs = make("resnet18")
graph = from_any(module, inputs)
print(len(graph.nodes) > 100, "torch._dynamo" in sys.modules)
"""
    answer = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert answer.stdout.split() == ["True", "False"]
