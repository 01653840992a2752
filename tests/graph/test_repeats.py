"""Layers that repeat are found, and whether a loop could run them."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tbuda_lab.core import ops
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.repeats import Repeats, repeats


def layers(count: int, *, wide: int = -1, tapped: bool = False, skip: bool = False) -> Graph:
    """exp, then layers of matmul, add, tanh, then abs. wide: a layer with a sigmoid for its tanh; tapped: the first
    layer's tanh is also an output; skip: every layer adds the graph's input, else its own."""
    graph = Graph("layers")

    def add(name: str, op: ops.NdOp, *sources: str) -> str:
        shape = op.infer(*(graph[s].shape for s in sources))
        return graph.add(Node(name, NodeKind.OP, shape, op, tuple(Edge(s) for s in sources))).name

    graph.add(Node("x", NodeKind.INPUT, (32, 32)))
    last = add("begin", ops.Exp(), "x")
    for k in range(count):
        graph.add(Node(f"w{k}", NodeKind.PARAMETER, (32, 32), value=np.full((32, 32), k, np.float32)))
        product = add(f"mm{k}", ops.Matmul(), last, f"w{k}")
        total = add(f"add{k}", ops.Add(), product, "x" if skip else last)
        last = add(f"act{k}", ops.Sigmoid() if k == wide else ops.Tanh(), total)
    results = [add("end", ops.Abs(), last), *(["act0"] if tapped else [])]
    for k, name in enumerate(results):
        graph.add(Node(f"out{k}", NodeKind.OUTPUT, (32, 32), inputs=(Edge(name),)))
    return graph


def test_layers_and_what_stands_around_them() -> None:
    for skip in (False, True):
        assert repeats(layers(4, skip=skip), 4) == Repeats(1, 3, 4, True)
        assert repeats(layers(4, skip=skip), 2) == Repeats(1, 6, 2, True)
    assert repeats(layers(4, wide=3), 3) == Repeats(1, 3, 3, True)
    assert repeats(layers(4, wide=0), 3) == Repeats(4, 3, 3, True)


@pytest.mark.parametrize(
    ("graph", "copies"),
    [
        (layers(3, wide=1), 3),
        (layers(1), 2),
        (layers(3), 4),
        (layers(3), 1),
        (layers(3), 0),
        (Graph("empty"), 2),
    ],
)
def test_what_does_not_repeat(graph: Graph, copies: int) -> None:
    assert repeats(graph, copies) is None


def test_a_result_in_between_that_others_read_is_no_loop() -> None:
    assert repeats(layers(3, tapped=True), 3) == Repeats(1, 3, 3, False)


def test_encoder_layers_of_torch() -> None:
    layer = torch.nn.TransformerEncoderLayer(64, 2, 128, batch_first=True)
    model = torch.nn.TransformerEncoder(layer, 3, enable_nested_tensor=False).eval()
    graph = from_torch(model, (torch.randn(1, 32, 64),))
    found = repeats(graph, 3)
    assert found is not None and found.loop and found.period * 3 == len(graph.ops)
