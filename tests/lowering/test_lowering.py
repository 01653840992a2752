"""Lowered graphs against torch: every canonical op, with sizes that fill tiles and sizes that do not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tbuda_lab.core import ops
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Payload
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.options import CompileOptions
from tests.lowering.reference import run


def build(operation, *shapes, parameters=()):
    """A graph of one op over inputs (or parameters, by index) of the given shapes."""
    graph = Graph("one")
    rng = np.random.default_rng(0)
    for i, shape in enumerate(shapes):
        kind = NodeKind.PARAMETER if i in parameters else NodeKind.INPUT
        value = rng.standard_normal(shape).astype(np.float32) if i in parameters else None
        graph.add(Node(f"x{i}", kind, tuple(shape), value=value))
    edges = tuple(Edge(f"x{i}") for i in range(len(shapes)))
    graph.add(Node("y", NodeKind.OP, operation.infer(*shapes), operation, edges))
    graph.add(Node("out", NodeKind.OUTPUT, graph["y"].shape, inputs=(Edge("y"),)))
    return graph


def check(graph, arch="wormhole_b0", positive=False, seed=1, atol=1e-5):
    rng = np.random.default_rng(seed)
    feeds = {n.name: rng.standard_normal(n.shape).astype(np.float32) for n in graph.inputs}
    if positive:
        feeds = {k: np.abs(v) + 0.1 for k, v in feeds.items()}
    values = {k: torch.from_numpy(v).double() for k, v in feeds.items()}
    for node in graph.topological():
        if node.kind is NodeKind.PARAMETER:
            values[node.name] = torch.from_numpy(node.value).double()
        elif node.kind is NodeKind.OP:
            values[node.name] = node.op.evaluate(*(values[s] for s in node.sources))
    lowered = lower(graph, load_device(arch), CompileOptions())
    results = run(lowered, feeds)
    for output in graph.outputs:
        want = values[output.sources[0]].numpy()
        got = results[output.name].reshape(want.shape)
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=atol)
    return lowered


ELTWISE = [
    ((64, 96), (64, 96)),
    ((3, 40, 50), (50,)),
    ((1, 4, 33, 70), (1, 1, 33, 1)),
    ((2, 3, 5, 7), (3, 1, 1)),
    ((64, 1), (1, 64)),
    ((4, 32, 32), (1, 32, 32)),
    ((2, 3, 32, 32), (2, 1, 32, 32)),
    ((5,), (5,)),
]


@pytest.mark.parametrize("shapes", ELTWISE)
@pytest.mark.parametrize("operation", [ops.Add(), ops.Subtract(), ops.Multiply(), ops.Maximum()])
def test_binary_broadcasts_as_numpy_does(operation, shapes):
    check(build(operation, *shapes))


@pytest.mark.parametrize("factor", [4, 11])
@pytest.mark.parametrize("stored", [(), (1,)])
def test_a_stack_of_slices_is_repeated_without_a_broadcast_along_z(factor, stored):
    lowered = check(build(ops.Add(), (factor, 3, 40, 50), (3, 40, 50), parameters=stored))
    for node in lowered.ops:
        for edge in node.inputs:
            assert lowered[edge.source].shape[1] == 1 or not any(tm.args[:1] == ("z",) for tm in edge.tms)
    assert any(node.op.netlist_type == "splice" for node in lowered.ops) is not bool(stored)


@pytest.mark.parametrize("shapes", [s for s in ELTWISE if s[0] != s[1]])
def test_computed_operands_broadcast_through_a_filled_tile(shapes):
    """The small operand comes out of an op, so the host cannot have replicated it."""
    graph = Graph("two")
    for i, shape in enumerate(shapes):
        graph.add(Node(f"x{i}", NodeKind.INPUT, shape))
    graph.add(Node("m", NodeKind.OP, shapes[1], ops.Exp(), (Edge("x1"),)))
    graph.add(Node("y", NodeKind.OP, ops.Add().infer(*shapes), ops.Add(), (Edge("x0"), Edge("m"))))
    graph.add(Node("out", NodeKind.OUTPUT, graph["y"].shape, inputs=(Edge("y"),)))
    check(graph)


@pytest.mark.parametrize(
    "operation",
    [
        ops.Exp(),
        ops.Log(),
        ops.Sqrt(),
        ops.Reciprocal(),
        ops.Sigmoid(),
        ops.Tanh(),
        ops.Gelu(),
        ops.LeakyRelu(0.1),
        ops.Abs(),
        ops.Pow(3),
        ops.Sine(),
        ops.Cosine(),
        ops.Buffer(),
    ],
)
def test_unary(operation):
    check(build(operation, (2, 33, 65)), positive=True)


@pytest.mark.parametrize(
    "shapes",
    [
        ((64, 96), (96, 32)),
        ((3, 40, 50), (50, 70)),
        ((1, 12, 33, 20), (1, 12, 20, 33)),
        ((2, 1, 5, 7), (1, 3, 7, 9)),
        ((40, 1), (1, 50)),
    ],
)
def test_matmul(shapes):
    check(build(ops.Matmul(), *shapes))


def test_matmul_masks_padding_that_would_be_summed():
    """exp turns the zero padding into ones on both sides; K = 40 leaves 24 of them."""
    graph = Graph("mm")
    graph.add(Node("a", NodeKind.INPUT, (33, 40)))
    graph.add(Node("b", NodeKind.INPUT, (40, 35)))
    graph.add(Node("ea", NodeKind.OP, (33, 40), ops.Exp(), (Edge("a"),)))
    graph.add(Node("eb", NodeKind.OP, (40, 35), ops.Exp(), (Edge("b"),)))
    graph.add(Node("y", NodeKind.OP, (33, 35), ops.Matmul(), (Edge("ea"), Edge("eb"))))
    graph.add(Node("out", NodeKind.OUTPUT, (33, 35), inputs=(Edge("y"),)))
    check(graph, atol=1e-3)


@pytest.mark.parametrize(
    "shapes", [((64, 96), (96, 32), (32,)), ((3, 40, 50), (50, 70), (70,)), ((33, 64), (64, 1), (1,))]
)
def test_matmul_with_bias(shapes):
    check(build(ops.Matmul(), *shapes, parameters=(1, 2)))


@pytest.mark.parametrize("shape", [(4, 64, 96), (3, 33, 40), (1, 2, 5, 7)])
@pytest.mark.parametrize("dim", [-1, -2, -3])
@pytest.mark.parametrize("operation", [ops.ReduceSum, ops.ReduceAvg, ops.ReduceMax])
def test_reductions(operation, dim, shape):
    check(build(operation(dim), shape))


@pytest.mark.parametrize("dim", [-1, -2])
def test_maximum_of_negative_numbers_ignores_the_padding(dim):
    graph = Graph("max")
    graph.add(Node("x", NodeKind.INPUT, (2, 33, 40)))
    graph.add(Node("e", NodeKind.OP, (2, 33, 40), ops.Exp(), (Edge("x"),)))
    graph.add(Node("r", NodeKind.OP, (2, 33, 40), ops.Reciprocal(), (Edge("e"),)))
    shape = ops.ReduceMax(dim).infer((2, 33, 40))
    graph.add(Node("y", NodeKind.OP, shape, ops.ReduceMax(dim), (Edge("r"),)))
    graph.add(Node("out", NodeKind.OUTPUT, shape, inputs=(Edge("y"),)))
    check(graph)


@pytest.mark.parametrize(
    ("shape", "dims"),
    [
        ((64, 96), (-1, -2)),
        ((33, 40), (0, 1)),
        ((4, 33, 40), (0, 1)),
        ((4, 33, 40), (0, 2)),
        ((2, 3, 5, 7), (1, 2)),
        ((2, 3, 5, 7), (0, 3)),
        ((1, 64, 12, 64), (1, 2)),
        ((2, 3, 5, 7), (0, 1)),
        ((3, 3, 5, 7), (0, 1)),  # squares: dims of one size swap as well
        ((2, 5, 5, 7), (1, 2)),
        ((32, 32, 32), (0, 1)),
        ((4, 4, 4, 4, 8), (-4, -3)),
        ((3, 1, 3, 7), (0, 2)),
    ],
)
def test_transpose(shape, dims):
    check(build(ops.Transpose(*dims), shape))


@pytest.mark.parametrize(
    ("shape", "new"),
    [
        ((1, 128, 768), (1, 128, 12, 64)),
        ((2, 64, 32), (128, 32)),
        ((128, 32), (2, 64, 32)),
        ((3, 5, 7), (15, 7)),
        ((15, 7), (3, 5, 7)),
        ((6, 10), (4, 15)),
        ((1, 512, 7, 7), (1, 25088)),
        ((96, 64), (64, 96)),
        ((2, 3, 32, 32), (3, 2, 32, 32)),
        ((12,), (3, 4)),
        ((3, 64, 32), (2, 96, 32)),
        ((40, 6), (1, 240)),
        ((1, 240), (40, 6)),
    ],
)
def test_reshape(shape, new):
    check(build(ops.Reshape(new), shape))


@pytest.mark.parametrize(
    ("shape", "args"),
    [
        ((64, 96), (-1, 32, 96, 1)),
        ((64, 96), (-2, 0, 32, 1)),
        ((40, 50), (-1, 3, 20, 1)),
        ((40, 50), (-2, 3, 40, 2)),
        ((5, 33, 40), (0, 1, 4, 1)),
        ((2, 6, 33, 40), (1, 1, 6, 2)),
        ((2, 6, 33, 40), (1, 2, 5, 1)),
        ((40, 50), (-1, 0, 50, 7)),
    ],
)
def test_index(shape, args):
    check(build(ops.Index(*args), shape))


@pytest.mark.parametrize(
    ("shapes", "axis"),
    [
        (((32, 64), (32, 32)), -1),
        (((64, 33), (32, 33)), -2),
        (((3, 33, 40), (2, 33, 40)), 0),
        (((40, 16), (40, 16), (40, 3)), -1),
        (((5, 40), (7, 40)), 0),
        (((2, 3, 5, 7), (2, 1, 5, 7)), 1),
        (tuple([(32, 32)] * 11), -1),
    ],
)
def test_concatenate(shapes, axis):
    check(build(ops.Concatenate(axis), *shapes))


@pytest.mark.parametrize("value", [0.0, -2.5])
@pytest.mark.parametrize(
    "pads", [((0, 0), (0, 0), (1, 2)), ((0, 0), (3, 0), (0, 0)), ((1, 1), (0, 0), (0, 0)), ((1, 0), (2, 1), (0, 5))]
)
def test_pad(pads, value):
    check(build(ops.Pad(pads, value=value), (3, 30, 40)))


@pytest.mark.parametrize(
    ("shape", "n", "operation"),
    [
        ((1, 64, 96), 3, ops.HSlice),
        ((2, 64, 96), 2, ops.VSlice),
        ((6, 33, 32), 3, ops.HStack),
        ((4, 32, 33), 2, ops.VStack),
        ((2, 33, 48), 3, ops.HSlice),
        ((2, 40, 160), 2, ops.HSlice),
        ((6, 33, 16), 3, ops.HStack),
        ((4, 40, 80), 4, ops.HStack),
    ],
)
def test_slices_and_stacks(shape, n, operation):
    check(build(operation(n), shape))


def test_gather_rows():
    index = Payload(np.array([3, -1, 0, 5, 5, 39], np.int32))
    check(build(ops.GatherRows(index), (2, 40, 17)))


@pytest.mark.parametrize("groups", [1, 3])
@pytest.mark.parametrize(
    ("kernel", "stride", "padding", "dilation"),
    [
        ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1)),
        ((3, 3), (2, 2), (1, 1, 1, 1), (1, 1)),
        ((1, 1), (1, 1), (0, 0, 0, 0), (1, 1)),
        ((1, 1), (2, 2), (0, 0, 0, 0), (1, 1)),
        ((2, 3), (1, 2), (2, 0, 1, 0), (2, 1)),
        ((7, 7), (2, 2), (3, 3, 3, 3), (1, 1)),
    ],
)
def test_convolution(kernel, stride, padding, dilation, groups):
    operation = ops.ConvRows((13, 11), kernel, stride, padding, dilation, groups)
    check(build(operation, (1, 1, 143, 6), (9, 6 // groups, *kernel), (9,), parameters=(1, 2)), atol=1e-4)


@pytest.mark.parametrize("channels", [1, 6, 40])
def test_depthwise_convolution(channels):
    operation = ops.ConvRows((10, 9), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), channels)
    lowered = check(
        build(operation, (1, 1, 90, channels), (channels, 1, 3, 3), (channels,), parameters=(1, 2)), atol=1e-4
    )
    kinds = {n.op.type for n in lowered.ops}
    assert ("hw.depthwise" in kinds) == (channels > 1)


def test_max_pool_of_negative_numbers_ignores_the_border():
    graph = build(ops.MaxPoolRows((9, 7), (3, 3), (2, 2), (1, 1, 1, 1)), (1, 1, 63, 5))
    lowered = lower(graph, load_device("wormhole_b0"), CompileOptions())
    x = -np.abs(np.random.default_rng(3).standard_normal((1, 1, 63, 5))).astype(np.float32) - 1
    image = torch.from_numpy(x.reshape(9, 7, 5)).permute(2, 0, 1)[None]
    want = torch.nn.functional.max_pool2d(image, 3, 2, 1)[0].permute(1, 2, 0).reshape(1, -1, 5)
    np.testing.assert_allclose(run(lowered, {"x0": x})["out"], want.numpy(), rtol=1e-6)


def test_relu_folds_into_its_producer_only_where_nothing_else_reads_it():
    graph = Graph("relu")
    graph.add(Node("x", NodeKind.INPUT, (33, 40)))
    graph.add(Node("a", NodeKind.OP, (33, 40), ops.Add(), (Edge("x"), Edge("x"))))
    graph.add(Node("r", NodeKind.OP, (33, 40), ops.Relu(), (Edge("a"),)))
    graph.add(Node("s", NodeKind.OP, (33, 40), ops.Subtract(), (Edge("r"), Edge("x"))))
    graph.add(Node("t", NodeKind.OP, (33, 40), ops.Relu(0.5, "max"), (Edge("s"),)))
    graph.add(Node("u", NodeKind.OP, (33, 40), ops.Multiply(), (Edge("t"), Edge("s"))))
    graph.add(Node("out", NodeKind.OUTPUT, (33, 40), inputs=(Edge("u"),)))
    lowered = check(graph)
    assert lowered["a"].op.relu is not None
    assert lowered["s"].op.relu is None


@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
def test_transposes_stand_only_where_the_machine_takes_them(arch):
    graph = Graph("t")
    graph.add(Node("x", NodeKind.INPUT, (64, 96)))
    graph.add(Node("y", NodeKind.INPUT, (96, 64)))
    graph.add(Node("xt", NodeKind.OP, (96, 64), ops.Transpose(-2, -1), (Edge("x"),)))
    graph.add(Node("s", NodeKind.OP, (96, 64), ops.Add(), (Edge("xt"), Edge("y"))))
    graph.add(Node("m", NodeKind.OP, (96, 96), ops.Matmul(), (Edge("xt"), Edge("x"))))
    graph.add(Node("o1", NodeKind.OUTPUT, (96, 64), inputs=(Edge("s"),)))
    graph.add(Node("o2", NodeKind.OUTPUT, (96, 96), inputs=(Edge("m"),)))
    lowered = check(graph, arch)
    for node in lowered.ops:
        for port, edge in enumerate(node.inputs):
            if any(tm.name == "transpose" for tm in edge.tms):
                kind = node.op.type
                assert (
                    kind == "hw.unary"
                    or (kind == "hw.matmul" and port == 1)
                    or (kind == "hw.binary" and port == 0 and arch != "grayskull")
                )


def test_a_widely_read_op_feeds_at_most_eight():
    graph = Graph("fork")
    graph.add(Node("x", NodeKind.INPUT, (32, 32)))
    graph.add(Node("e", NodeKind.OP, (32, 32), ops.Exp(), (Edge("x"),)))
    for i in range(20):
        graph.add(Node(f"r{i}", NodeKind.OP, (32, 32), ops.Tanh(), (Edge("e"),)))
        graph.add(Node(f"o{i}", NodeKind.OUTPUT, (32, 32), inputs=(Edge(f"r{i}"),)))
    lowered = check(graph)
    users = lowered.users()
    assert max(len(users[n.name]) for n in lowered.ops) <= 8


def test_an_op_without_hardware_form_is_named_with_its_place():
    graph = build(ops.Embedding(), (10, 4), (1, 3))
    with pytest.raises(UnsupportedOp, match="embedding has no hardware form"):
        lower(graph, load_device("wormhole_b0"), CompileOptions())
