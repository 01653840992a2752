"""Every op against torch's own function, as it stands and after the passes have rewritten it."""

from __future__ import annotations

import pytest
import torch

from tbuda_lab.core import ops, passes
from tbuda_lab.core.errors import InputError, UnsupportedOp
from tbuda_lab.core.graph import REGISTRY, Edge, Graph, Node, NodeKind, Origin, ShapeError, verify
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.passes.canonical import Decompose
from tests.ops.cases import CASES, Case

CANONICAL = {
    "matmul",
    "add",
    "subtract",
    "multiply",
    "maximum",
    "nop",
    "buffer",
    "abs",
    "exp",
    "log",
    "sqrt",
    "reciprocal",
    "sigmoid",
    "tanh",
    "gelu",
    "relu",
    "leaky_relu",
    "pow",
    "sine",
    "cosine",
    "reduce_sum",
    "reduce_avg",
    "reduce_max",
    "transpose",
    "reshape",
    "index",
    "concatenate",
    "pad",
    "broadcast_to",
    "hslice",
    "hstack",
    "vslice",
    "vstack",
    "conv2d_rows",
    "max_pool2d_rows",
    "gather_rows",
    "scatter_rows",
    "sum_rows",
    "gelu_derivative",
}


def build(case: Case) -> tuple[Graph, dict[str, torch.Tensor], list[torch.Tensor]]:
    """The op between inputs (or parameters) and an output, with drawn operands."""
    generator = torch.Generator().manual_seed(sum(map(ord, case.name)))
    graph, feeds, values = Graph("case"), {}, []
    for i, shape in enumerate(case.shapes):
        value = torch.randn(shape, generator=generator)
        if case.integers:
            value = torch.randint(-1, 2, shape, generator=generator).float()
        if case.positive:
            value = value.abs() + 0.1
        values.append(value)
        if i in case.stored:
            graph.add(Node(f"p{i}", NodeKind.PARAMETER, shape, value=value.numpy()))
        else:
            graph.add(Node(f"p{i}", NodeKind.INPUT, shape, attrs={"dtype": "float32"}))
            feeds[f"p{i}"] = value
    shape = case.op.infer(*case.shapes)
    edges = tuple(Edge(f"p{i}") for i in range(len(case.shapes)))
    graph.add(Node("op", NodeKind.OP, shape, case.op, edges, origin=Origin(module="m", location="model.py:1")))
    graph.add(Node("out", NodeKind.OUTPUT, shape, inputs=(Edge("op"),)))
    return graph, feeds, values


def close(a: torch.Tensor, b: torch.Tensor, tolerance: float) -> None:
    torch.testing.assert_close(a.float(), b.float(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_infer_and_evaluate_against_torch(case: Case) -> None:
    graph, feeds, values = build(case)
    expected = case.expected(*values)
    result = evaluate(graph, feeds)["out"]
    assert tuple(expected.shape) == graph["op"].shape == tuple(result.shape)
    close(result, expected, case.tolerance)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_passes_keep_the_values_and_leave_canonical_ops(case: Case) -> None:
    graph, feeds, values = build(case)
    passed = passes.run(graph).graph
    assert {node.op.type for node in passed.ops if node.op is not None} <= CANONICAL
    for node in passed.ops:
        assert getattr(node.op, "dim", -1) < 0
        if isinstance(node.op, ops.Index):
            assert node.op.stride == 1 or node.op.dim < -2
    close(evaluate(passed, feeds)["out"], case.expected(*values), case.tolerance)


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_canonical_forms_compute_the_same(case: Case) -> None:
    graph, feeds, values = build(case)
    Decompose().apply(graph)
    verify(graph)
    assert {node.op.type for node in graph.ops if node.op is not None} <= CANONICAL | {"to_rows", "from_rows"}
    close(evaluate(graph, feeds)["out"], case.expected(*values), case.tolerance)
    assert all(node.origin.module == "m" for node in graph.ops)


def test_every_op_has_a_case() -> None:
    nd = {name for name, cls in REGISTRY.items() if issubclass(cls, NdOp) and not cls.marks_gradients}
    assert nd - {case.op.type for case in CASES} <= {
        "embedding",
        "embedding_bag",
        "assertion",
        "check_indices",
        "one_hot",
        "remainder",
        "floor_divide",
        "host_call",
        "bitcast",
        "round_float",
        "round_to",  # not on the device
    }


def test_embedding_takes_indices_of_any_shape() -> None:
    table, indices = torch.randn(10, 4), torch.tensor([[1, 2], [9, 0]])
    assert ops.Embedding().infer((10, 4), (2, 2)) == (2, 2, 4)
    assert torch.equal(ops.Embedding().evaluate(table, indices), table[indices])


def test_a_one_hot_row_is_one_at_its_index() -> None:
    indices = torch.tensor([[1, 2], [9, 0]])
    assert ops.OneHot(10).infer((2, 2)) == (2, 2, 10)
    rows = torch.nn.functional.one_hot(indices, 10).float()
    assert torch.equal(ops.OneHot(10).evaluate(indices), rows)
    rows[0, 1] = 0
    assert torch.equal(ops.OneHot(10, padding=2).evaluate(indices), rows)
    for wrong in (torch.tensor([10]), torch.tensor([-1])):
        with pytest.raises(InputError, match="into a table of 10 rows"):
            ops.OneHot(10).evaluate(wrong)


def test_an_embedding_bag_is_the_sum_the_mean_or_the_largest_of_its_rows() -> None:
    table, indices = torch.randn(10, 4), torch.tensor([1, 2, 9, 0, 3])
    bags = [indices[:3], indices[3:3], indices[3:]]
    expected = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}
    for mode, reduce in expected.items():
        rows = [reduce(table[bag], 0) if len(bag) else torch.zeros(4) for bag in bags]
        bag = ops.EmbeddingBag((0, 3, 3), mode)
        assert bag.infer((10, 4), (5,)) == (3, 4)
        torch.testing.assert_close(bag.evaluate(table, indices), torch.stack(rows))
    padded = ops.EmbeddingBag((0, 3), "mean", padding=9).evaluate(table, indices)
    torch.testing.assert_close(padded, torch.stack([table[[1, 2]].mean(0), table[[0, 3]].mean(0)]))


def test_remainders_and_quotients_of_integers_are_those_of_python() -> None:
    a, b = torch.arange(-7, 8), torch.tensor([[3], [-4]])
    expected = [[x % y for x in a.tolist()] for y in (3, -4)]
    assert ops.Remainder().evaluate(a, b).tolist() == expected
    assert ops.FloorDivide().evaluate(a, b).tolist() == [[x // y for x in a.tolist()] for y in (3, -4)]


@pytest.mark.parametrize(
    ("op", "shapes", "words"),
    [
        (ops.Matmul(), ((1, 2, 3), (1, 4, 5)), "3 columns"),
        (ops.Matmul(), ((3,), (3, 4)), "unsqueeze"),
        (ops.Add(), ((2, 3), (2, 4)), "do not broadcast"),
        (ops.Reshape((2, -1, -1)), ((4, 4),), "element counts"),
        (ops.Index(-1, 0, 9), ((4, 4),), "stop <= 4"),
        (ops.ReduceSum(-3), ((4, 4),), "legal: -2..1"),
        (ops.Conv2d(groups=2), ((1, 6, 4, 4), (4, 6, 3, 3)), "takes 12 input channels"),
        (ops.Conv2d(), ((1, 6, 2, 2), (4, 6, 3, 3)), "does not fit"),
        (ops.HSlice(5), ((1, 1, 32, 64),), "5 does not divide the 64 columns"),
        (ops.Pad(((1, 1),)), ((4, 4),), "name them all"),
        (ops.Pad(((0, 0), (4, 0)), "reflect"), ((4, 4),), "at most size - 1"),
        (ops.Concatenate(-1), ((2, 4), (3, 4)), "other sizes must agree"),
    ],
)
def test_wrong_shapes_say_what_would_be_right(op: NdOp, shapes: tuple[tuple[int, ...], ...], words: str) -> None:
    with pytest.raises(ShapeError, match=words):
        op.infer(*shapes)


def test_ops_the_device_lacks_are_all_named_with_their_place() -> None:
    graph = Graph("bad")
    graph.add(Node("x", NodeKind.INPUT, (1, 4), attrs={"dtype": "float32"}))
    for i, op in enumerate((ops.HostCall("floor", ("$0",)), ops.Cast("int64"))):
        origin = Origin(module=f"block.{i}", source_op="aten.floor", location=f"model.py:{i + 7}")
        graph.add(Node(f"n{i}", NodeKind.OP, (1, 4), op, (Edge("x"),), origin=origin))
        graph.add(Node(f"out{i}", NodeKind.OUTPUT, (1, 4), inputs=(Edge(f"n{i}"),)))
    with pytest.raises(UnsupportedOp) as caught:
        passes.run(graph)
    assert len(caught.value.diagnostics) == 2
    for words in ("block.0 (model.py:7)", "block.1 (model.py:8)", "no floor", "cast to int64"):
        assert words in str(caught.value)
    assert all("the host runs it" in d.fix for d in caught.value.diagnostics)
