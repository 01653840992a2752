"""PyBudaModules traced: names, parameters, submodules, constants, chains."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import nn

import tbuda_lab as pybuda
from tbuda_lab.core.errors import ModelError
from tbuda_lab.core.frontend import feeds, from_any, from_pybuda
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.ops.evaluate import evaluate

X = torch.randn(1, 1, 32, 64)


def run(graph: Graph, *inputs: torch.Tensor) -> list[torch.Tensor]:
    return list(evaluate(graph, feeds(graph, inputs)).values())


class Block(pybuda.PyBudaModule):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.dense = pybuda.op.nn.Linear(f"{name}.dense", 64, 64)
        self.scales = [
            pybuda.Parameter(torch.full((1,), 2.0), name=f"{name}.s0"),
            pybuda.Parameter(torch.full((1,), 3.0)),
        ]
        self.table = {"shift": pybuda.Parameter(torch.full((1,), 0.5))}

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        y = pybuda.op.Multiply("", self.dense(x), self.scales[0])
        y = pybuda.op.Multiply("", y, self.scales[1])
        return pybuda.op.Add("", y, self.table["shift"])  # the last line


class Whole(pybuda.PyBudaModule):
    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.blocks = [Block("b0"), Block("b1")]
        self.add_constant("half")
        self.set_constant("half", torch.tensor([0.5]))

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        for block in self.blocks:
            x = block(x)
        return pybuda.op.Multiply("last", x, self.get_constant("half"))


def test_submodules_names_and_origins() -> None:
    module = Whole("whole")
    graph = from_pybuda(module, (X,))
    names = [p.get_name() for p in module.get_parameters()]
    assert names == [
        "b0.s0",
        "b0.scales.1",
        "b0.shift",
        "b0.dense.weights",
        "b0.dense.bias",
        "b1.s0",
        "b1.scales.1",
        "b1.shift",
        "b1.dense.weights",
        "b1.dense.bias",
    ]
    assert {n.name for n in graph.of_kind(NodeKind.PARAMETER)} == set(names)
    assert [n.name for n in graph.ops] == [
        "whole.b0.dense.matmul",
        "multiply_0",
        "multiply_1",
        "add_2",
        "whole.b1.dense.matmul",
        "whole.b1.multiply_0",
        "whole.b1.multiply_1",
        "whole.b1.add_2",
        "last",
    ]
    assert graph["last"].origin.module == "whole" and graph["last"].origin.module_class == "Whole"
    assert graph["add_2"].origin.module == "whole.b0"
    line = next(i for i, t in enumerate(Path(__file__).read_text().split("\n"), 1) if t.endswith("# the last line"))
    assert graph["add_2"].origin.location == f"tests/frontend/test_pybuda_trace.py:{line}"
    assert graph["add_2"].origin.source_op == "pybuda.op.Add"
    assert [n.name for n in graph.outputs] == ["whole.output_0"]
    values = {p.get_name(): p.value() for p in module.get_parameters()}
    want = X
    for b in ("b0", "b1"):
        want = (want @ values[f"{b}.dense.weights"] + values[f"{b}.dense.bias"]) * 2 * 3 + 0.5
    torch.testing.assert_close(run(graph, X)[0], want * 0.5, rtol=1e-4, atol=1e-4)


def test_a_forward_outside_a_trace_computes() -> None:
    module = Whole("whole")
    graph = from_pybuda(module, (X,))
    at_once = module(pybuda.Tensor.create_from_torch(X)).value()
    torch.testing.assert_close(run(graph, X)[0], at_once)


def test_parameters_without_a_value_are_the_same_every_time() -> None:
    first, second = pybuda.Parameter(1, 1, 64, 64, name="w"), pybuda.Parameter(1, 1, 64, 64, name="w")
    other = pybuda.Parameter(1, 1, 64, 64, name="v")
    assert not first.has_value()
    assert torch.equal(first.fill(), second.fill()) and not torch.equal(first.fill(), other.fill())
    assert abs(float(first.value().std()) - 1 / 8) < 0.01


def test_parameters_by_name() -> None:
    module = Block("b")
    for name in ("b.s0", "scales.0"):
        assert module.get_parameter(name) is module.scales[0]
    module.set_parameter("scales.0", torch.full((1,), 7.0))
    assert module.scales[0].value().item() == 7
    module.load_parameter_dict({"b.s0": torch.ones(1)})
    assert module.scales[0].value().item() == 1
    with pytest.raises(ModelError, match="already has parameter"):
        module.add_parameter("b.s0", pybuda.Parameter(1))
    with pytest.raises(ModelError, match="shape"):
        module.set_parameter("scales.0", torch.ones(2))
    module.add_parameter("extra", pybuda.Parameter(torch.ones(1)), prepend_name=True)
    assert module.get_parameter("b.extra").value().item() == 1


def test_parameters_of_a_dict_have_the_names_of_their_keys() -> None:
    """Scripts name them so where they waive or read gradients; the attribute's name comes in where two would meet."""

    class Held(pybuda.PyBudaModule):
        def __init__(self, name: str) -> None:
            super().__init__(name)
            self.scale = pybuda.Parameter(1)
            self.parameters = {"key.bias": pybuda.Parameter(1), "scale": pybuda.Parameter(1)}

    module = Held("mha")
    assert {p.get_name() for p in module.get_parameters()} == {"mha.scale", "mha.key.bias", "mha.parameters.scale"}
    for name in ("mha.key.bias", "parameters.key.bias"):
        assert module.get_parameter(name) is module.parameters["key.bias"]
    module.parameters["late"] = pybuda.Parameter(1)
    assert module.get_parameters()[-1].get_name() == "mha.late"
    with pytest.raises(ModelError, match="two parameters would be called"):
        module.late = pybuda.Parameter(1)


def test_a_module_without_super_init() -> None:
    class Forgets(pybuda.PyBudaModule):
        def __init__(self) -> None:
            self.weights = pybuda.Parameter(1)

    with pytest.raises(ModelError, match="super"):
        Forgets()


def test_outputs_inputs_and_constants_pass_through() -> None:
    class Mixed(pybuda.PyBudaModule):
        def forward(self, x: pybuda.Tensor, y: pybuda.Tensor) -> list[pybuda.Tensor]:
            constant = pybuda.Tensor.create_from_torch(torch.ones(64), constant=True)
            return [y, x + constant, pybuda.op.Identity("same", x)]

    y = torch.randn(1, 1, 32, 64)
    graph = from_pybuda(Mixed("mixed"), (X, y))
    assert [n.attrs["path"] for n in graph.outputs] == ["[0]", "[1]", "[2]"]
    for got, want in zip(run(graph, X, y), (y, X + 1, X), strict=True):
        torch.testing.assert_close(got, want)
    for got, want in zip(pybuda.run_inference(Mixed("mixed"), inputs=[(X, y)]).get(), (y, X + 1, X), strict=True):
        torch.testing.assert_close(got.value(), want, rtol=0.02, atol=0.02)
    pybuda.pybuda_reset()


def test_a_chain_of_modules_is_one_graph() -> None:
    one, two = nn.Linear(64, 64), nn.Linear(64, 64)
    chain = [pybuda.PyTorchModule("one", one), Block("b"), pybuda.PyTorchModule("two", two)]
    x = torch.randn(1, 32, 64)
    graph = from_any(chain, (x,))
    assert len(graph.inputs) == 1 and [n.name for n in graph.outputs] == ["two.output_0"]
    assert "weight" in graph and "two.weight" in graph  # the second of one name gets its module's
    with torch.no_grad():
        want = two(chain[1](pybuda.Tensor.create_from_torch(one(x))).value())
    torch.testing.assert_close(run(graph, x)[0], want, rtol=1e-4, atol=1e-4)
    with pytest.raises(ModelError, match="does not take what 'one' gives"):
        from_any([chain[0], pybuda.PyTorchModule("pair", nn.Bilinear(64, 64, 8))], (x,))


def test_forwards_that_cannot_be_traced() -> None:
    class Raises(pybuda.PyBudaModule):
        def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
            return x.no_such_method()

    class Returns(pybuda.PyBudaModule):
        def forward(self, x: pybuda.Tensor) -> str:
            return "x"

    with pytest.raises(ModelError, match=r"test_pybuda_trace\.py:\d+.*no_such_method"):
        from_pybuda(Raises("raises"), (X,))
    with pytest.raises(ModelError, match="returns a str"):
        from_pybuda(Returns("returns"), (X,))
    with pytest.raises(ModelError, match="defines no forward"):
        from_pybuda(pybuda.PyBudaModule("empty"), (X,))


class Leaf(pybuda.PyBudaModule):
    def __init__(self, name):
        super().__init__(name)
        self.w = pybuda.Parameter(torch.eye(32))

    def forward(self, x):
        return pybuda.op.Matmul("", x, self.w)


class Nest(pybuda.PyBudaModule):
    """Parts in an attribute, in a list, and in a list that grows later."""

    def __init__(self, name, deep=None):
        super().__init__(name)
        self.part = deep if deep is not None else Leaf("a")
        self.many = [Leaf("b")]
        self.many.append(Leaf("c"))

    def forward(self, x):
        for part in (self.part, *self.many):
            x = part(x)
        return x


def test_modules_are_named_by_what_holds_them():
    """Whether the outer one or the inner one was made first; parameters keep the names they were given."""
    inner = Nest("inner")
    top = Nest("top", inner)
    top.get_parameters()
    assert [m.get_name() for m in (inner, inner.part, *inner.many, *top.many)] == [
        "top.inner",
        "top.inner.a",
        "top.inner.b",
        "top.inner.c",
        "top.b",
        "top.c",
    ]
    assert sorted(p.get_name() for p in inner.get_parameters()) == ["a.w", "b.w", "c.w"]
    graph = from_pybuda(top, torch.zeros(1, 32, 32))
    assert [node.origin.module for node in graph.ops] == [m.get_name() for m in (inner.part, *inner.many, *top.many)]


def test_a_module_keeps_the_first_name_that_it_is_given():
    shared = Leaf("s")
    first, second = Nest("first", shared), Nest("second", shared)
    placed = Leaf("placed")
    pybuda.TTDevice("tt0", module=placed)
    assert Nest("third", placed).part.get_name() == "placed"
    assert shared.get_name() == "first.s" and second.part is first.part
