"""Ops of the user's own: on the grid, on the host, backwards, and what is wrong with them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

import numpy as np
import pytest
import torch

import tbuda_lab.popxl as popxl
from tbuda_lab.core import ops as core_ops
from tbuda_lab.core.errors import NotSupported
from tbuda_lab.popxl import ops, transforms
from tests.popxl.test_programs import run

X = np.random.default_rng(2).standard_normal((3, 5)).astype(np.float32)


@dataclasses.dataclass(frozen=True)
class LeakyRelu(popxl.CustomOp):
    alpha: float = 0.01

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return np.where(x >= 0, x, self.alpha * x)

    def gradient(self, grads: Sequence, inputs: Sequence, outputs: Sequence) -> list:
        above = ops.cast(ops.greater(inputs[0], popxl.constant(0.0)), popxl.float32)
        return [grads[0] * (above + (1.0 - above) * self.alpha)]

    def lower(self, grid: object, x: str) -> str:
        return grid.op(core_ops.LeakyRelu(self.alpha), x)  # type: ignore[attr-defined, no-any-return]


@dataclasses.dataclass(frozen=True)
class Ranked(popxl.CustomOp):
    """Rows in order, and where each element was."""

    axes: tuple[int, ...] = (1,)

    def infer(self, x: popxl.TensorSpec) -> list[popxl.TensorSpec]:
        return [x, popxl.TensorSpec(x.shape, popxl.int32)]

    def evaluate(self, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return np.sort(x, self.axes[0]), np.argsort(x, self.axes[0], kind="stable").astype(np.int32)


def test_a_custom_op_runs_on_the_grid_and_backwards() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        graph = ir.create_graph(lambda x: LeakyRelu(0.25)(x) * x, x)
        site = ops.call_with_info(graph, x)
        info = transforms.autodiff(graph)
        (grad,) = ops.call(info.graph, popxl.constant(np.ones_like(X)), inputs_dict=info.inputs_dict(site))
        outs = [popxl.d2h_stream(t.shape, t.dtype) for t in (site.outputs[0], grad)]
        for stream, t in zip(outs, (site.outputs[0], grad), strict=True):
            ops.host_store(stream, t)
    session = popxl.Session(ir, "ipu_model")
    with session:
        got = session.run()
    leaf = torch.from_numpy(X).double().requires_grad_()
    y = torch.nn.functional.leaky_relu(leaf, 0.25) * leaf
    y.backward(torch.ones_like(y))
    assert leaf.grad is not None
    np.testing.assert_allclose(got[outs[0]], y.detach().numpy(), 1e-6, 1e-6)
    np.testing.assert_allclose(got[outs[1]], leaf.grad.numpy(), 1e-6, 1e-6)
    assert {e.kind for e in session.report if e.type == LeakyRelu.kind} == {"grid"}


def test_a_custom_op_without_a_form_runs_on_the_host() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        values, places = Ranked()(popxl.variable(X) * 2.0)
        got = run(ir, {"values": values, "places": places})
    np.testing.assert_array_equal(got["values"], np.sort(2 * X, 1))
    np.testing.assert_array_equal(got["places"], np.argsort(2 * X, 1))


def test_what_is_wrong_with_a_custom_op_is_said() -> None:
    class Plain(popxl.CustomOp):
        pass

    @dataclasses.dataclass(frozen=True)
    class Longer(popxl.CustomOp):
        def evaluate(self, x: np.ndarray) -> np.ndarray:
            return np.concatenate([x, x])

    @dataclasses.dataclass(frozen=True)
    class Holds(popxl.CustomOp):
        what: object = None

    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(X)
        with pytest.raises(TypeError, match="no dataclass"):
            Plain()(x)
        with pytest.raises(TypeError, match="numbers, strings"):
            Holds(object())(x)
        with pytest.raises(TypeError, match="not a Tensor"):
            LeakyRelu()(3.0)  # type: ignore[arg-type]
        graph = ir.create_graph(lambda x: Ranked()(x)[0], x)
        with pytest.raises(NotSupported, match="Ranked"):
            transforms.autodiff(graph)
        with pytest.raises(popxl.popart_exception, match=r"Longer.evaluate gave .*\(6, 5\).*infer said \(3, 5\)"):
            run(ir, {"y": Longer()(x)})
