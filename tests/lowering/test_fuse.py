"""Fused element-wise ops: the same numbers, one result, and only what the machine's registers and buffers allow."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core import ops
from tbuda_lab.core.compiler import compile_graph
from tbuda_lab.core.device import load_device
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.fuse import MAX_INPUTS
from tbuda_lab.core.lowering.fused_steps import plan
from tbuda_lab.core.lowering.hw_ops import HwFused, HwMatmul
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import ResizeOp, Session
from tests.e2e.references import eager, pcc
from tests.frontend.ops_zoo import Fn
from tests.lowering.reference import run

SHAPE = (1, 1, 64, 96)
UNARY = (ops.Sigmoid(), ops.Tanh(), ops.Abs(), ops.LeakyRelu(0.1), ops.Sine())
BINARY = (ops.Add(), ops.Subtract(), ops.Multiply(), ops.Maximum())


def add(graph: Graph, name: str, op: ops.NdOp, *sources: str) -> str:
    shape = op.infer(*(graph[s].shape for s in sources))
    graph.add(Node(name, NodeKind.OP, shape, op, tuple(Edge(s) for s in sources)))
    return name


def finish(graph: Graph, *results: str) -> Graph:
    for k, name in enumerate(results):
        graph.add(Node(f"out{k}", NodeKind.OUTPUT, graph[name].shape, inputs=(Edge(name),)))
    return graph


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random element-wise graphs over three inputs; the last op and sometimes another one are read by matmuls."""
    graph = Graph("random")
    names = [graph.add(Node(f"x{i}", NodeKind.INPUT, SHAPE)).name for i in range(3)]
    for k in range(draw(st.integers(2, 9))):
        recent = names[-4:]
        if draw(st.booleans()):
            op, sources = draw(st.sampled_from(UNARY)), (draw(st.sampled_from(recent)),)
        else:
            op, sources = draw(st.sampled_from(BINARY)), (names[-1], draw(st.sampled_from(recent)))
        names.append(add(graph, f"op{k}", op, *sources))
    weights = np.random.default_rng(0).standard_normal((96, 32)).astype(np.float32)
    graph.add(Node("w", NodeKind.PARAMETER, weights.shape, value=weights))
    results = [add(graph, "mm", ops.Matmul(), names[-1], "w")]
    if draw(st.booleans()) and len(names) > 5:
        results.append(add(graph, "other", ops.Matmul(), names[-2], "w"))
    return finish(graph, *results)


def evaluated(graph: Graph, lowered: Graph) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    return run(lowered, {n.name: rng.standard_normal(n.shape).astype(np.float32) for n in graph.inputs})


@settings(deadline=None, max_examples=60)
@given(graphs(), st.sampled_from(["wormhole_b0", "grayskull"]))
def test_fusing_changes_no_number_and_names_every_op_once(graph: Graph, arch: str) -> None:
    device = load_device(arch)
    plain = lower(graph, device, CompileOptions(enable_auto_fusing=False))
    fused = lower(graph, device, CompileOptions())
    want, got = evaluated(graph, plain), evaluated(graph, fused)
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-9, atol=1e-9)
    named = [name for node in fused.ops for name in node.attrs.get("fused", (node.name,))]
    assert sorted(named) == sorted(node.name for node in plain.ops)
    for node in fused.ops:
        if isinstance(node.op, HwFused):
            assert len(node.inputs) <= MAX_INPUTS and node.attrs["fused"][-1] == node.name


@settings(deadline=None, max_examples=12)
@given(graphs(), st.sampled_from(["wormhole_b0", "grayskull"]))
def test_the_strict_check_takes_every_fused_op(graph: Graph, arch: str) -> None:
    result = compile_graph(graph, arch)  # raises where a rule is broken
    count = sum(isinstance(node.op, HwFused) for node in result.lowered.ops)
    assert sum(op.type == "fused_op" for g in result.netlist.graphs.values() for op in g.ops.values()) == count


def test_a_value_waits_in_dest_or_in_a_buffer() -> None:
    chain = HwFused((("subtract", (0, 1), 0.0, 0), ("exp", (-1,), 0.0, 0), ("multiply", (2, -2), 0.0, 0)))
    assert [(s.inputs, s.output) for s in plan(chain, "wormhole_b0")] == [
        (("input0", "input1"), "dest"),
        (("dest",), "dest"),
        (("input2", "dest"), "output"),
    ]
    assert plan(chain, "grayskull")[2].inputs == ("dest", "input2")  # there dest is operand 0
    minus = HwFused((("exp", (0,), 0.0, 0), ("subtract", (1, -1), 0.0, 0)))
    assert plan(minus, "wormhole_b0")[0].output == "dest"
    assert plan(minus, "grayskull")[0].output == "intermed0"
    assert plan(minus, "grayskull")[1].pop == ("intermed0",)
    largest = HwFused((("exp", (0,), 0.0, 0), ("maximum", (-1, 1), 0.0, 0), ("exp", (-2,), 0.0, 0)))
    assert [s.output for s in plan(largest, "wormhole_b0")] == ["intermed0", "intermed1", "output"]


def test_steps_that_read_the_same_share_an_operand() -> None:
    graph = Graph("swish")
    for name in ("x", "w"):
        graph.add(Node(name, NodeKind.INPUT, (1, 1, 64, 64)))
    gate = add(graph, "gate", ops.Sigmoid(), "x")
    add(graph, "square", ops.Multiply(), add(graph, "swish", ops.Multiply(), "x", gate), "w")
    finish(graph, add(graph, "mm", ops.Matmul(), "square", "w"))
    (fused,) = [n for n in lower(graph, load_device("wormhole_b0"), CompileOptions()).ops if isinstance(n.op, HwFused)]
    assert isinstance(fused.op, HwFused) and fused.sources == ("x", "w")
    first, second, _ = plan(fused.op, "wormhole_b0")
    assert first.inputs == ("input0",) and first.pop == ()  # it is read again
    assert second.inputs == ("input0", "dest") and second.pop == ("input0",)
    x, w = torch.randn(1, 1, 64, 64), torch.randn(1, 1, 64, 64)
    (out,) = Session(graph, (x, w), "wormhole_b0", options=CompileOptions()).run([(x, w)])[0]
    assert pcc(out, (x * torch.sigmoid(x) * w) @ w) > 0.999


def test_what_is_read_elsewhere_ends_a_group() -> None:
    graph = Graph("fork")
    for name in ("x", "y"):
        graph.add(Node(name, NodeKind.INPUT, (1, 1, 64, 64)))
    shared = add(graph, "shared", ops.Add(), "x", "y")
    add(graph, "left", ops.Sigmoid(), shared)
    add(graph, "right", ops.Tanh(), "left")
    finish(graph, add(graph, "mm", ops.Matmul(), shared, "right"))
    lowered = lower(graph, load_device("wormhole_b0"), CompileOptions())
    assert [n.attrs["fused"] for n in lowered.ops if isinstance(n.op, HwFused)] == [("left", "right")]


def test_an_op_that_is_named_stays_an_op_of_its_own() -> None:
    graph = Graph("named")
    graph.add(Node("x", NodeKind.INPUT, (1, 1, 64, 64)))
    last = "x"
    for k, op in enumerate((ops.Sigmoid(), ops.Tanh(), ops.Abs(), ops.Sine())):
        last = add(graph, f"op{k}", op, last)
    finish(graph, add(graph, "mm", ops.Matmul(), last, last))
    spec = load_device("wormhole_b0")
    for options in (CompileOptions(op_names_dont_fuse=("op1",)), CompileOptions()):
        overrides = () if options.op_names_dont_fuse else (Override("op_size", "op1", (1, 2)),)
        result = compile_graph(graph, spec, options, overrides)
        assert "op1" in result.placement.ops and "op2" not in result.placement.ops
    assert result.placement.ops["op1"].size == (1, 2)


def softmax(graph: Graph, x: str, dim: int) -> str:
    """exp(x - max x): of several tiles along `dim`, so the maximum has to fill its tiles."""
    largest = add(graph, "largest", ops.ReduceMax(dim), x)
    return add(graph, "exp", ops.Exp(), add(graph, "less", ops.Subtract(), x, largest))


@pytest.mark.parametrize("arch", ["wormhole_b0", "grayskull"])
@pytest.mark.parametrize(("dim", "fills"), [(-1, "c"), (-2, "r")])
def test_what_fills_its_tiles_is_read_so_by_arithmetic(dim: int, fills: str, arch: str) -> None:
    graph = Graph("filled")
    graph.add(Node("x", NodeKind.INPUT, (1, 2, 80, 96)))
    finish(graph, add(graph, "last", ops.Abs(), softmax(graph, "x", dim)))
    spec = load_device(arch)
    plain = lower(graph, spec, CompileOptions(enable_auto_fusing=False))
    fused = lower(graph, spec, CompileOptions())
    assert sum(node.attrs.get("spreads") == fills for node in plain.ops) == 1
    assert not any("spreads" in node.attrs for node in fused.ops)
    (one,) = [node.op for node in fused.ops if isinstance(node.op, HwFused)]
    assert one.spread == ((0, fills),) and len(one.steps) == 2
    for name, values in evaluated(graph, plain).items():
        np.testing.assert_allclose(evaluated(graph, fused)[name], values, rtol=1e-9, atol=1e-9)
    (written,) = compile_graph(graph, spec).netlist.fused_ops.values()
    assert [tm.name for tm in written.schedules[0][0].tms[1]] == ["tile_broadcast"]


def test_what_fills_its_tiles_stays_an_op_where_it_must() -> None:
    """Before a maximum, before the first operand of a subtraction, or where an override names it."""
    for op, operands in ((ops.Maximum(), ("x", "largest")), (ops.Subtract(), ("largest", "x"))):
        graph = Graph("kept")
        graph.add(Node("x", NodeKind.INPUT, (1, 1, 64, 96)))
        add(graph, "largest", ops.ReduceMax(-1), "x")
        add(graph, "both", op, *operands)
        lowered = lower(finish(graph, add(graph, "last", ops.Abs(), "both")), load_device("n150"), CompileOptions())
        assert sum(isinstance(node.op, HwMatmul) for node in lowered.ops) == 1
    graph = Graph("named")
    graph.add(Node("x", NodeKind.INPUT, (1, 1, 64, 96)))
    finish(graph, add(graph, "last", ops.Abs(), softmax(graph, "x", -1)))
    matmul = next(
        n
        for n in lower(graph, load_device("n150"), CompileOptions(enable_auto_fusing=False)).ops
        if isinstance(n.op, HwMatmul)
    )
    placed = compile_graph(graph, "n150", overrides=[Override("op_size", matmul.name, (1, 1))]).placement.ops
    assert placed[matmul.name].size == (1, 1) and "exp" in placed


@pytest.mark.parametrize("arch", ["wormhole_b0", "grayskull"])
@pytest.mark.parametrize(("rows", "cols", "one_op"), [(64, 96, True), (64, 32, False), (20, 96, False)])
def test_both_fills_of_one_number_are_one_op(arch: str, rows: int, cols: int, one_op: bool) -> None:
    """Where its tile goes everywhere; else arithmetic fills along one dimension as it reads."""
    graph = Graph("number")
    graph.add(Node("x", NodeKind.INPUT, (1, 2, rows, cols)))
    graph.add(Node("y", NodeKind.PARAMETER, (1, 2, 1, 1), value=np.array([[0.5], [-2.0]], np.float32)[None, ..., None]))
    finish(
        graph,
        add(
            graph,
            "last",
            ops.Matmul(),
            add(graph, "less", ops.Subtract(), "x", "y"),
            add(graph, "turned", ops.Transpose(-1, -2), "x"),
        ),
    )
    spec, options = load_device(arch), CompileOptions(fill_tiles_on_host=False)
    plain = lower(graph, spec, dataclasses.replace(options, enable_auto_fusing=False))
    fused = lower(graph, spec, options)
    assert sum("spreads" in node.attrs for node in plain.ops) == 2
    for name, values in evaluated(graph, plain).items():
        np.testing.assert_allclose(evaluated(graph, fused)[name], values, rtol=1e-9, atol=1e-9)
    (one,) = [node for node in fused.ops if isinstance(node.op, HwFused)]
    assert [len(names) for names in one.attrs["schedules"]] == ([1, 1] if one_op else [1])
    x, y = torch.randn(1, 2, rows, cols), torch.tensor([0.5, -2.0]).reshape(1, 2, 1, 1)
    (got,) = Session(graph, (x,), arch, options).run([(x,)])
    assert pcc(torch.as_tensor(np.asarray(got)), (x - y) @ x.mT) > 0.999


class Gated(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = torch.nn.Linear(64, 160), torch.nn.Linear(160, 64)
        self.scale, self.shift = (torch.nn.Parameter(torch.randn(160)) for _ in range(2))

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        h = self.up(x) * self.scale + self.shift
        return self.down(torch.relu(torch.tanh(h) * torch.sigmoid(y) - torch.exp(-y.abs())))


@pytest.mark.parametrize(
    "picked",
    [
        lambda x: x.transpose(-1, -2)[..., :1, :1],
        lambda x: x.transpose(-1, -2)[..., 2:3, 1:2],
    ],
    ids=["a corner", "an element"],
)
def test_fills_of_what_is_turned_are_ops_of_their_own(picked: Callable[[torch.Tensor], torch.Tensor]) -> None:
    """A matmul turns its operand 1 as it reads, a fused op none; the strict check would say so."""

    def both(x: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) + picked(torch.exp(x))

    x = torch.randn(1, 1, 40, 40, generator=torch.Generator().manual_seed(0))
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session(Fn(both), (x,), options=options)
    torch.testing.assert_close(session.run(mode="exact")[0][0], both(x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("device", ["n150", "e150"])
def test_a_fused_model_gives_what_torch_gives(device: str) -> None:
    torch.manual_seed(0)
    model, inputs = Gated().eval(), (torch.randn(1, 96, 64), torch.randn(1, 96, 160))
    session = Session(model, inputs, device=device)
    result = session.compile()
    fused = [n for n in result.lowered.ops if isinstance(n.op, HwFused)]
    relus = [n.name for n in result.lowered.ops if n.op.relu is not None]
    assert fused and len(relus) == 1 and (device == "e150" or relus == [fused[-1].name])
    assert sum(isinstance(n.op, HwMatmul) for n in result.lowered.ops) == 2
    (got,) = session.run([inputs])
    assert pcc(torch.as_tensor(np.asarray(got)), eager(model, inputs)) > 0.999
    inner = fused[0].attrs["fused"][0]
    session.apply(ResizeOp(inner, (1, 1)))
    again = session.compile()
    assert again.placement.ops[inner].size == (1, 1)
