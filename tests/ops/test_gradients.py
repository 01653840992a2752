"""Gradient rules of all ops against torch autograd of their own `evaluate`, in float64."""

from __future__ import annotations

import pytest
import torch

from tbuda_lab.core import ops as o
from tbuda_lab.core.graph import REGISTRY, Edge, Graph, Node, NodeKind
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.evaluate import evaluate_nodes
from tbuda_lab.core.passes.autograd import differentiate, make_differentiable
from tests.ops.cases import CASES, Case

EXTRA = [
    Case("erf", o.Erf(), ((3, 4),), torch.erf),
    Case("matmul-batch-broadcast", o.Matmul(), ((2, 3, 4, 5), (5, 6)), torch.matmul),
    Case("add-scalar", o.Add(), ((2, 3, 4), (1,)), torch.add),
    Case("power-broadcast", o.Power(), ((2, 3), (3,)), torch.pow, positive=True),
]
"""Rows beside those that test `evaluate`."""

HOST = (
    "embedding",
    "embedding_bag",
    "assertion",
    "check_indices",
    "one_hot",
    "remainder",
    "floor_divide",
    "gelu_derivative",
    "host_call",
    "patches_rows",
    "bitcast",
    "round_float",
    "round_whole",
    "round_to",
)


def graph_of(case: Case) -> Graph:
    graph = Graph("case")
    names = [graph.add(Node(f"x{i}", NodeKind.PARAMETER, shape)).name for i, shape in enumerate(case.shapes)]
    graph.add(Node("y", NodeKind.OP, case.op.infer(*case.shapes), case.op, tuple(map(Edge, names))))
    graph.add(Node("out", NodeKind.OUTPUT, graph["y"].shape, inputs=(Edge("y"),)))
    return graph


EDGES = [
    (o.Abs(), [[0.0, -0.0, 1.0]]),
    (o.Clip(-1.0, 1.0), [[-1.0, 1.0, 0.0, 2.0]]),
    (o.LeakyRelu(0.1), [[0.0, 1.0, -1.0]]),
    (o.Maximum(), [[1.0, 2.0, 0.0], [1.0, 1.0, 0.0]]),
    (o.Minimum(), [[1.0, 2.0, 0.0], [1.0, 1.0, 0.0]]),
    (o.ReduceMax(-1), [[3.0, 3.0, 1.0]]),
    (o.Pow(2.0), [[0.0, -3.0]]),
    (o.Softmax(-1), [[100.0, -100.0, 0.0]]),
    (o.LogSoftmax(-1), [[1000.0, -1000.0, 0.0]]),
    (o.Sigmoid(), [[40.0, -40.0, 0.0]]),
    (o.Tanh(), [[40.0, -40.0, 0.0]]),
    (o.Gelu(), [[40.0, -40.0, 0.0]]),
    (o.Where(), [[1.0, 0.0], [2.0, 3.0], [4.0, 5.0]]),
]
"""Values on a bend of the function, ties, and values far out."""


def values_of(case: Case, seed: int) -> list[torch.Tensor]:
    rng = torch.Generator().manual_seed(seed)
    result = []
    for shape in case.shapes:
        x = torch.randn(shape, generator=rng, dtype=torch.float64)
        if case.positive:
            x = x.abs() + 0.1
        if case.integers:
            x = x.round()
        result.append(x)
    return result


def check(case: Case, values: list[torch.Tensor]) -> None:
    graph = graph_of(case)
    make_differentiable(graph)
    result = graph["out"].sources[0]
    seed = torch.randn(graph["out"].shape, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    graph.add(Node("seed", NodeKind.INPUT, graph["out"].shape))
    matches = differentiate(graph, {result: "seed"}, [f"x{i}" for i in range(len(values))])
    feeds = {f"x{i}": v.detach() for i, v in enumerate(values)} | {"seed": seed}
    calculated = evaluate_nodes(graph, feeds, torch.float64)
    leaves = [v.clone().requires_grad_() for v in values]
    y = case.op.evaluate(*(values if isinstance(case.op, o.Batchnorm) else leaves))  # type: ignore[attr-defined]
    if isinstance(case.op, o.Batchnorm):  # torch differentiates by the stored mean and variance in no mode
        mean, var = (v.reshape(-1, 1, 1) for v in leaves[3:])
        weight, bias = (v.reshape(-1, 1, 1) for v in leaves[1:3])
        y = (leaves[0] - mean) / torch.sqrt(var + case.op.epsilon) * weight + bias
    expected = torch.autograd.grad(y, leaves, seed, allow_unused=True) if y.requires_grad else [None] * len(leaves)
    for i, want in enumerate(expected):
        name = matches.get(f"x{i}")
        want = torch.zeros_like(leaves[i]) if want is None else want
        have = calculated[name] if name is not None else torch.zeros_like(want)
        assert have.shape == want.shape, (i, have.shape, want.shape)
        torch.testing.assert_close(have, want, rtol=1e-6, atol=1e-6, msg=lambda m, i=i: f"operand {i}: {m}")


DIFFERENTIABLE = [c for c in (*CASES, *EXTRA) if isinstance(c.op, NdOp) and c.op.type not in HOST]


@pytest.mark.parametrize("case", DIFFERENTIABLE, ids=[c.name for c in DIFFERENTIABLE])
def test_random_values(case: Case) -> None:
    if isinstance(case.op, o.Cast | o.Heaviside):
        pytest.skip("torch rounds, or has no formula")
    check(case, values_of(case, 3))


@pytest.mark.parametrize(("op", "rows"), EDGES, ids=[op.type for op, _ in EDGES])
def test_edge_values(op: NdOp, rows: list[list[float]]) -> None:
    values = [torch.tensor([row], dtype=torch.float64) for row in rows]
    check(Case(op.type, op, tuple(tuple(v.shape) for v in values), lambda x: x), values)


def test_relu_at_zero_is_as_torch_has_it() -> None:
    """`evaluate` is a where, whose autograd differs from torch.relu's at 0 itself."""
    graph = graph_of(Case("relu", o.Relu(), ((1, 3),), torch.relu))
    graph.add(Node("seed", NodeKind.INPUT, (1, 3)))
    name = differentiate(graph, {"y": "seed"}, ["x0"])["x0"]
    x = torch.tensor([[0.0, 1.0, -1.0]], dtype=torch.float64, requires_grad=True)
    torch.relu(x).sum().backward()
    feeds = {"x0": x.detach(), "seed": torch.ones(1, 3, dtype=torch.float64)}
    torch.testing.assert_close(evaluate_nodes(graph, feeds, torch.float64)[name], x.grad)


def test_every_op_is_covered_or_told() -> None:
    """Every registered nD op has a case here, or stands on the list of those that the host computes."""
    tested = {c.op.type for c in DIFFERENTIABLE}
    ours = {t for t, c in REGISTRY.items() if issubclass(c, NdOp) and c.__module__.startswith("tbuda_lab.core.ops")}
    marks = {t for t in ours if REGISTRY[t].marks_gradients}  # see tests/session/test_training_means.py
    assert ours - tested - set(HOST) - marks == set()
