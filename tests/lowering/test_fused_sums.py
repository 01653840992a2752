"""Sums and means as steps of fused ops: the same numbers, schedules of their own, and only what the rules allow."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core import ops
from tbuda_lab.core.compiler import compile_graph
from tbuda_lab.core.device import load_device
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.fused_steps import inner_block, intermediate_tiles, plan, step_block
from tbuda_lab.core.lowering.hw_ops import HwFused, HwMatmul
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.e2e.references import eager, pcc
from tests.lowering.test_fuse import add, evaluated, finish

FUSED = CompileOptions(fuse_reduces=True)
UNARY = (ops.Sigmoid(), ops.Tanh(), ops.Abs(), ops.Exp())
BINARY = (ops.Add(), ops.Subtract(), ops.Multiply(), ops.Maximum())


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    """Random element-wise graphs with sums along one dimension, whose results are read at full length again."""
    rows, cols = draw(st.sampled_from([(64, 96), (96, 80), (40, 128)]))
    graph = Graph("random")
    names = [
        graph.add(Node(f"x{i}", NodeKind.INPUT, (1, draw(st.sampled_from([1, 2])), rows, cols))).name for i in range(2)
    ]
    lead = max(graph[n].shape[1] for n in names)
    for name in names:
        graph[name].shape = (1, lead, rows, cols)
    dim = draw(st.sampled_from([-1, -2]))
    for k in range(draw(st.integers(3, 9))):
        recent = names[-4:]
        kind = draw(st.sampled_from(["unary", "binary", "binary", "sum"]))
        source = draw(st.sampled_from(recent))
        if kind == "sum" and graph[source].shape[dim] > 1:
            op, sources = draw(st.sampled_from([ops.ReduceSum(dim), ops.ReduceAvg(dim)])), (source,)
        elif kind == "binary":
            op, sources = draw(st.sampled_from(BINARY)), (names[-1], source)
        else:
            op, sources = draw(st.sampled_from(UNARY)), (names[-1],)
        names.append(add(graph, f"op{k}", op, *sources))
    last = add(graph, "whole", ops.Add(), names[-1], "x0")
    return finish(graph, add(graph, "gram", ops.Matmul(), last, add(graph, "turned", ops.Transpose(-1, -2), last)))


def sums_of(lowered: Graph) -> list[Node]:
    return [n for n in lowered.ops if isinstance(n.op, HwFused) and n.op.sums]


@settings(deadline=None, max_examples=80)
@given(graphs(), st.sampled_from(["wormhole_b0", "grayskull"]))
def test_fusing_sums_changes_no_number_and_names_every_op_once(graph: Graph, arch: str) -> None:
    device = load_device(arch)
    plain = lower(graph, device, CompileOptions(enable_auto_fusing=False))
    fused = lower(graph, device, FUSED)
    want, got = evaluated(graph, plain), evaluated(graph, fused)
    for name, values in want.items():
        np.testing.assert_allclose(got[name], values, rtol=1e-8, atol=1e-8)
    named = [name for node in fused.ops for name in node.attrs.get("fused", (node.name,))]
    assert sorted(named) == sorted(node.name for node in plain.ops)


@settings(deadline=None, max_examples=25)
@given(graphs(), st.sampled_from(["wormhole_b0", "grayskull"]))
def test_the_strict_check_takes_every_fused_sum(graph: Graph, arch: str) -> None:
    result = compile_graph(graph, arch, FUSED)  # raises where a rule is broken
    for node in sums_of(result.lowered):
        row = result.placement.candidate(node.name)
        assert row["grid_c" if node.op.dim == "c" else "grid_r"] == 1 and not row["stream"]


def softmax(shape: tuple[int, ...], dim: int) -> Graph:
    graph = Graph("softmax")
    graph.add(Node("x", NodeKind.INPUT, shape))
    e = add(graph, "e", ops.Exp(), add(graph, "small", ops.Tanh(), "x"))
    inverse = add(graph, "inverse", ops.Reciprocal(), add(graph, "total", ops.ReduceSum(dim), e))
    return finish(graph, add(graph, "last", ops.Sigmoid(), add(graph, "share", ops.Multiply(), e, inverse)))


@pytest.mark.parametrize("dim", [-1, -2])
def test_a_sum_is_a_schedule_and_an_exponential_before_it_an_op(dim: int) -> None:
    lowered = lower(softmax((1, 1, 96, 128), dim), load_device("n150"), FUSED)
    (node,) = sums_of(lowered)
    assert node.attrs["schedules"] == (("total",), ("inverse", "share")) and "e" in lowered
    assert lowered.get_fused_ops()[-1] == (3, [["total"], ["inverse", "share"]])
    steps = plan(node.op, "wormhole_b0")
    assert [(s.fn, s.output, s.schedule, s.narrow) for s in steps] == [
        ("matmul", "intermed0", 0, True),
        ("reciprocal", "intermed1", 1, True),
        ("multiply", "output", 1, False),
    ]
    assert steps[1].pop == ("intermed0",) and steps[2].pop_last == ("intermed1",) and not steps[2].pop
    assert steps[2].wide_operands == (steps[2].inputs.index("intermed1"),)


def test_without_the_option_sums_stay_ops() -> None:
    lowered = lower(softmax((1, 1, 96, 128), -1), load_device("n150"), CompileOptions())
    assert not sums_of(lowered) and isinstance(lowered["total"].op, HwMatmul)


def test_blocks_and_buffers_of_steps() -> None:
    """Along columns a core has all 12 tiles; its result of one tile, and what is read after it, wait whole."""
    op = HwFused(
        (("matmul", (0, 1), 0.0, 0), ("exp", (-1,), 0.0, 0), ("multiply", (2, -2), 0.0, 0)), (), (0,), "c", 12, (0, 1)
    )
    m_k, u_kt = inner_block(op, (3, 4), (2, 3), 8)
    assert (m_k, u_kt) == (4, 3)
    assert step_block(op, True, (3, 4, 2, 3), m_k, u_kt) == (3, 1, 2, 1)
    assert step_block(op, False, (3, 4, 2, 3), m_k, u_kt) == (3, 4, 2, 3)
    assert intermediate_tiles(op, "wormhole_b0", (3, 4, 2, 3), m_k, u_kt) == 6 + 6
    short = HwFused((("matmul", (0, 1), 0.0, 0), ("exp", (-1,), 0.0, 0)), (), (0,), "c", 12, (0, 1))
    assert inner_block(short, (3, 1), (2, 1), 8) == (3, 4)  # the largest ublock of two rows that 8 tiles hold


def test_what_no_core_holds_is_cut() -> None:
    """37 rows of tiles lie on one core or on 37; one cannot hold so many of 64 columns."""
    graph = softmax((1, 1, 37 * 32, 64 * 32), -1)
    result = compile_graph(graph, "n150", FUSED)
    assert not sums_of(result.lowered) and "total" in result.placement.ops
    assert any("cut: no shape" in p.text for p in result.fused)


class Normed(torch.nn.Module):
    """Norms and a softmax that is not stabilised, as they are written by hand."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.dim = dim
        self.first, self.second = torch.nn.Linear(96, 160), torch.nn.Linear(160, 96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        h = self.first(x)
        h = h - h.mean(self.dim, keepdim=True)
        h = h * torch.rsqrt((h * h).mean(self.dim, keepdim=True) + 1e-3)
        e = torch.exp(h * 0.5)
        return self.second(e / e.sum(self.dim, keepdim=True) * 50)


@pytest.mark.parametrize("device", ["n150", "e150"])
@pytest.mark.parametrize("dim", [-1, -2])
def test_a_model_with_fused_sums_gives_what_torch_gives(device: str, dim: int) -> None:
    torch.manual_seed(0)
    model, inputs = Normed(dim).eval(), (torch.randn(2, 72, 96),)
    session = Session(model, inputs, device=device, options=FUSED)
    result = session.compile()
    assert sum(len(n.op.sums) for n in sums_of(result.lowered)) >= 2
    (got,) = session.run([inputs])
    assert pcc(torch.as_tensor(np.asarray(got)), eager(model, inputs)) > 0.999
