"""Ops cut into parts give the numbers of the whole; what cannot be cut is refused by name."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import tbuda_lab as pybuda
from tbuda_lab.core.errors import NotSupported, PipelineError, UnsupportedOp
from tbuda_lab.core.frontend.pybuda import Parameter, PyBudaModule, Tensor, from_pybuda
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes.fracture import Fracture
from tbuda_lab.pybuda import config, op

X = torch.randn(1, 2, 64, 96, generator=torch.Generator().manual_seed(1))


class Two(PyBudaModule):
    def __init__(self) -> None:
        super().__init__("two")
        generator = torch.Generator().manual_seed(2)
        self.a = Parameter(torch.randn(1, 1, 96, 64, generator=generator), name="A")
        self.b = Parameter(torch.randn(1, 1, 64, 32, generator=generator), name="B")

    def forward(self, x: Tensor) -> Tensor:
        y = op.Gelu("gelu", op.Matmul("m0", x, self.a))
        wide = op.Concatenate("cat", *[op.ReduceAvg("r", y, -1)] * 32, axis=-1)
        return op.Add("sum", op.Matmul("m1", y, self.b), wide)


@pytest.mark.parametrize(
    ("groups", "parts"),
    [
        ([("A", -1, 2)], {"m0": 2}),
        ([("A", [-2, -1], [3, 2])], {"m0": 6}),
        ([("A", -1, 4), ("B", -2, 4)], {"m0": 4, "m1": 4}),
        ([("m0", -2, 2), "gelu"], {"m0": 2}),
        ([("gelu", [-3, -2], [2, 4])], {"gelu": 8}),
        ([("sum", -1, 2)], {"sum": 2}),
        ([("m1", -3, 2)], {"m1": 2}),
        ([("cat", -2, 2)], {"cat": 2}),
    ],
)
def test_parts_give_the_whole(groups: list[Any], parts: dict[str, int]) -> None:
    graph = from_pybuda(Two(), X)
    config.insert_fracture_group(groups)
    options = config._get_global_compiler_config().options()
    config._clear_global_compiler_config()
    cut = graph.clone()
    Fracture(options).apply(cut)
    for name, count in parts.items():
        matches = [n.name for n in cut.ops if n.name.startswith("fractured_") and n.name.endswith(f"_{name}")]
        assert len(matches) == count
    (want,), (got,) = evaluate(graph, {"x": X}).values(), evaluate(cut, {"x": X}).values()
    torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize(
    ("group", "message"),
    [
        (("A", -1, 5), "no 5 equal parts"),
        (("r", -2, 2), "not cut along"),
        (("none", -1, 2), "no op or parameter"),
        (("cat", -1, 2), "not cut along"),
    ],
)
def test_what_cannot_be_cut(group: Any, message: str) -> None:
    name, dim, count = group
    with pytest.raises(UnsupportedOp, match=message):
        Fracture(CompileOptions(fracture_groups=((name, (dim,), (count,)),))).apply(from_pybuda(Two(), X))


def test_what_the_call_refuses() -> None:
    with pytest.raises(NotSupported, match="override_op_placement"):
        pybuda.config.insert_fracture_group([("A", -1, 2)], chip_ids=[0, 1])
    for wrong in ([("A", 1, 2)], [("A", [-1, -2], 2)], [3]):
        with pytest.raises(PipelineError):
            pybuda.config.insert_fracture_group(wrong)


def test_fractured_weights_are_stored_in_parts() -> None:
    from tbuda_lab.core.passes import run

    graph = from_pybuda(Two(), X)
    passed = run(graph, CompileOptions(fracture_groups=(("A", (-1,), (2,)),))).graph
    shapes = [n.shape for n in passed.of_kind(NodeKind.PARAMETER)]
    assert sum(s[-2:] == (96, 32) for s in shapes) == 2
