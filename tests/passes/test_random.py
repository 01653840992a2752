"""Random graphs compute the same before and after the passes; chains of moves against torch."""

from __future__ import annotations

import hypothesis.strategies as st
import numpy as np
import torch
from hypothesis import given, settings

from tbuda_lab.core import ops, passes
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, parse_graph, print_graph
from tbuda_lab.core.graph.text import array_table, equal
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.passes.tms import Shuffle, SimplifyMoves

SIZES = (1, 2, 3, 4, 32, 64)


def output(graph: Graph, name: str, label: str) -> None:
    graph.add(Node(label, NodeKind.OUTPUT, graph[name].shape, inputs=(Edge(name),)))


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


@st.composite
def moves(draw: st.DrawFn, count: int = 5) -> tuple[tuple[int, ...], list[ops.NdOp]]:
    """A shape and a chain of reshapes, transposes, slices and stacks that fits it."""
    shape = tuple(draw(st.lists(st.sampled_from(SIZES), min_size=2, max_size=4)))
    start, chain = shape, []
    for _ in range(draw(st.integers(1, count))):
        kind = draw(st.sampled_from(("transpose", "split", "merge", "hslice", "hstack", "vslice", "vstack")))
        rank = len(shape)
        op: ops.NdOp
        if kind == "transpose":
            op = ops.Transpose(draw(st.integers(-rank, -1)), draw(st.integers(-rank, -1)))
        elif kind == "split":
            i = draw(st.integers(0, rank - 1))
            n = draw(st.sampled_from(divisors(shape[i])))
            op = ops.Reshape((*shape[:i], n, shape[i] // n, *shape[i + 1 :]))
        elif kind == "merge" and rank > 2:
            i = draw(st.integers(0, rank - 2))
            op = ops.Reshape((*shape[:i], shape[i] * shape[i + 1], *shape[i + 2 :]))
        elif kind in ("hstack", "vstack"):
            z = shape[-3] if rank > 2 else 1
            op = (ops.HStack if kind == "hstack" else ops.VStack)(draw(st.sampled_from(divisors(z))))
        else:
            size = shape[-1] if kind == "hslice" else shape[-2]
            op = (ops.HSlice if kind == "hslice" else ops.VSlice)(draw(st.sampled_from(divisors(size))))
        chain.append(op)
        shape = op.infer(shape)
    return start, chain


@given(moves())
def test_shuffle_is_the_chain_it_stands_for(case: tuple[tuple[int, ...], list[ops.NdOp]]) -> None:
    shape, chain = case
    x = torch.arange(int(np.prod(shape))).reshape(shape)
    form, y = Shuffle.identity(shape), x
    for op in chain:
        following = form.then(op)
        if following is None:
            return
        form, y = following, op.evaluate(y)
        assert form.out_shape == tuple(y.shape)
    z = x
    for written in form.ops():
        assert isinstance(written, ops.NdOp)
        z = written.evaluate(z)
    assert torch.equal(z, y)


@settings(max_examples=60, deadline=None)
@given(moves(), st.integers(0, 2**31))
def test_passes_keep_chains_of_moves(case: tuple[tuple[int, ...], list[ops.NdOp]], seed: int) -> None:
    shape, chain = case
    graph = Graph("moves")
    graph.add(Node("x", NodeKind.INPUT, shape, attrs={"dtype": "float32"}))
    b = Builder(graph)
    name = b.op(ops.Abs(), "x")
    for op in chain:
        name = b.op(op, name)
    output(graph, b.op(ops.Exp(), name), "out")
    feeds = {"x": torch.randn(shape, generator=torch.Generator().manual_seed(seed))}
    passed = passes.run(graph).graph
    assert torch.equal(evaluate(passed, feeds)["out"], evaluate(graph, feeds)["out"])
    count = len(passed.ops)
    SimplifyMoves().apply(passed)
    assert len(passed.ops) == count


UNARIES = (ops.Relu(), ops.Sigmoid(), ops.Tanh(), ops.Abs(), ops.Clip(-0.5, 1.0), ops.Softmax(-1), ops.Pow(2.0))
BINARIES = (ops.Add(), ops.Subtract(), ops.Multiply(), ops.Maximum(), ops.Minimum(), ops.Greater())

KINDS = ("conv", "pool", "unary", "binary", "scale", "cat", "pad", "slice", "resize", "mean")


@st.composite
def networks(draw: st.DrawFn) -> Graph:
    """A random graph over images: convolutions, pools, element-wise ops, pads, slices, concatenations, reductions."""
    rng = np.random.default_rng(draw(st.integers(0, 2**31)))
    graph = Graph("network")
    b = Builder(graph)

    def parameter(*shape: int) -> str:
        name = graph.unique("w")
        value = rng.standard_normal(shape).astype(np.float32) * 0.5
        graph.add(Node(name, NodeKind.PARAMETER, shape, value=value))
        return name

    graph.add(Node("x", NodeKind.INPUT, (1, 4, 6, 5), attrs={"dtype": "float32"}))
    live = ["x"]
    for _ in range(draw(st.integers(1, 8))):
        x = live[draw(st.integers(max(0, len(live) - 3), len(live) - 1))]
        _, c, h, w = b.shape(x)
        kind = draw(st.sampled_from(KINDS))
        if kind == "conv":
            out = draw(st.sampled_from((3, 4)))
            x = b.op(ops.Conv2d((1, 2), (1, 1, 1, 1)), x, parameter(out, c, 3, 3), parameter(out))
        elif kind == "pool" and h > 1 and w > 1:
            x = b.op(ops.MaxPool2d((2, 2), (1, 1)), x)
        elif kind == "binary":
            same = [y for y in live if b.shape(y) in (b.shape(x), (1, c, 1, 1))]
            x = b.op(draw(st.sampled_from(BINARIES)), x, draw(st.sampled_from(same)))
        elif kind == "scale":
            shape = draw(st.sampled_from(((c, 1, 1), (1,), (h, w))))
            x = b.op(draw(st.sampled_from(BINARIES[:3])), x, parameter(*shape))
        elif kind == "cat":
            axis = draw(st.sampled_from((1, 2, 3)))
            x = b.op(ops.Concatenate(axis), x, x)
        elif kind == "pad":
            mode = draw(st.sampled_from(("constant", "replicate")))
            x = b.op(ops.Pad(((0, 0), (0, 0), (1, 0), (0, 2)), mode), x)
        elif kind == "slice" and w > 2:
            x = b.op(ops.Index(3, 1, w, 2), x)
        elif kind == "resize":
            x = b.op(ops.Resize2d((h * 2, w + 1), draw(st.sampled_from(("nearest", "bilinear")))), x)
        elif kind == "mean":
            x = b.op(ops.ReduceAvg(-2), b.op(ops.ReduceAvg(-1), x))
        else:
            x = b.op(draw(st.sampled_from(UNARIES)), x)
        live.append(x)
        if b.shape(x)[2] * b.shape(x)[3] > 400:
            break
    output(graph, live[-1], "last")
    output(graph, live[len(live) // 2], "middle")
    output(graph, live[0] if draw(st.booleans()) else live[-1], "third")
    return graph


@settings(max_examples=60, deadline=None)
@given(networks())
def test_passes_keep_random_networks(graph: Graph) -> None:
    feeds = {"x": torch.randn((1, 4, 6, 5), generator=torch.Generator().manual_seed(3))}
    expected = evaluate(graph, feeds)
    passed = passes.run(graph).graph
    result = evaluate(passed, feeds)
    assert list(result) == list(expected)
    for name, value in expected.items():
        torch.testing.assert_close(result[name], value, rtol=2e-4, atol=2e-4)
    assert print_graph(passes.run(graph).graph) == print_graph(passed)


@settings(max_examples=40, deadline=None)
@given(networks())
def test_text_reads_back(graph: Graph) -> None:
    for form in (graph, passes.run(graph).graph):
        again = parse_graph(print_graph(form), array_table(form))
        assert equal(again, form)
        assert [n.op for n in again.ops] == [n.op for n in form.ops]
        without = parse_graph(print_graph(form))
        assert print_graph(without) == print_graph(form)
