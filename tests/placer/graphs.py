"""Small lowered graphs written by hand."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.types import Placement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.graph import TM, Edge, Graph, Node, NodeKind, Payload, Shape
from tbuda_lab.core.graph.tm import broadcast, hslice, hstack, transpose
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwOp, HwReduce, HwSparseMatmul, HwUnary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer import PlaceContext, assemble, choose_epochs
from tbuda_lab.core.placer.policies.op_runs import objective


def placed_as_chosen(
    graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override] = ()
) -> Placement:
    """The placement of the epochs that the policy chooses, before any step makes them better."""
    state = choose_epochs(PlaceContext.of(graph, device, options, overrides))
    value = objective(state.problem, state.segments) if state.policy == "Optimal" else None
    return assemble(state.problem, state.segments, state.policy, state.context.constraints.unmatched, objective=value)


class Sketch:
    """A lowered graph under construction; every method returns the new node's name."""

    def __init__(self, df: DataFormat = DataFormat.Float16_b) -> None:
        self.graph = Graph("sketch")
        self.df = df

    def leaf(self, name: str, kind: NodeKind, *shape: int) -> str:
        self.graph.add(Node(name, kind, shape, df=self.df))
        return name

    def input(self, name: str, *shape: int) -> str:
        return self.leaf(name, NodeKind.INPUT, *shape)

    def parameter(self, name: str, *shape: int) -> str:
        return self.leaf(name, NodeKind.PARAMETER, *shape)

    def op(self, name: str, op: HwOp, shape: Shape, *operands: str | tuple[str, tuple[TM, ...]]) -> str:
        edges = tuple(Edge(o) if isinstance(o, str) else Edge(o[0], o[1]) for o in operands)
        attrs = {"intermed_df": self.df, "acc_df": DataFormat.Float16_b, "fidelity": MathFidelity.HiFi3}
        self.graph.add(Node(name, NodeKind.OP, shape, op, edges, df=self.df, attrs=attrs))
        return name

    def output(self, source: str, name: str = "out") -> Graph:
        nop = self.op(f"{source}_output_nop", HwUnary("nop"), self.graph[source].shape, source)
        self.graph.add(Node(name, NodeKind.OUTPUT, self.graph[nop].shape, None, (Edge(nop),), df=self.df))
        return self.graph


def linear(s: Sketch, name: str, x: str, rows: int, inner: int, cols: int) -> str:
    weights, bias = s.parameter(f"{name}.w", 1, 1, inner, cols), s.parameter(f"{name}.b", 1, 1, 1, cols)
    spread = (broadcast("r", rows // 32),)
    return s.op(name, HwMatmul(bias=True), (1, 1, rows, cols), x, weights, (bias, spread))


def encoder(layers: int = 2, seq: int = 64, hidden: int = 128, heads: int = 4) -> Graph:
    """Attention and feed-forward blocks with a softmax chain: broadcasts, slices, stacks and a transposition."""
    s = Sketch()
    x = s.input("x", 1, 1, seq, hidden)
    st, dt = seq // 32, hidden // heads // 32
    for i in range(layers):
        q, k, v = (linear(s, f"l{i}.{n}", x, seq, hidden, hidden) for n in "qkv")
        shape = (1, heads, seq, seq)
        score = s.op(f"l{i}.score", HwMatmul(), shape, (q, (hslice(heads),)), (k, (hslice(heads), transpose())))
        top = s.op(f"l{i}.max", HwReduce("c"), (1, heads, seq, 1), score)
        low = s.op(f"l{i}.sub", HwBinary("subtract"), shape, score, (top, (broadcast("c", st),)))
        e = s.op(f"l{i}.exp", HwUnary("exp"), shape, low)
        ones = s.parameter(f"l{i}.ones", 1, 1, seq, 32)
        total = s.op(f"l{i}.sum", HwMatmul(), (1, heads, seq, 1), e, (ones, (broadcast("z", heads),)))
        r = s.op(f"l{i}.rec", HwUnary("reciprocal"), (1, heads, seq, 1), total)
        p = s.op(f"l{i}.prob", HwBinary("multiply"), shape, e, (r, (broadcast("c", st),)))
        c = s.op(f"l{i}.ctx", HwMatmul(), (1, heads, seq, 32 * dt), p, (v, (hslice(heads),)))
        wide = s.op(f"l{i}.join", HwUnary("nop"), (1, 1, seq, hidden), (c, (hstack(heads),)))
        y = linear(s, f"l{i}.o", wide, seq, hidden, hidden)
        x = s.op(f"l{i}.add", HwBinary("add"), (1, 1, seq, hidden), y, x)
        up = linear(s, f"l{i}.up", x, seq, hidden, 4 * hidden)
        g = s.op(f"l{i}.gelu", HwUnary("gelu"), (1, 1, seq, 4 * hidden), up)
        down = linear(s, f"l{i}.down", g, seq, 4 * hidden, hidden)
        x = s.op(f"l{i}.add2", HwBinary("add"), (1, 1, seq, hidden), down, x)
    return s.output(x)


def picker(side: int, kernel: int = 3) -> Payload:
    """Entries (tap, output pixel, input pixel) of a convolution with stride 1 and equal padding on a square image."""
    y, x = np.divmod(np.arange(side * side), side)
    entries = []
    for tap in range(kernel * kernel):
        dy, dx = tap // kernel - kernel // 2, tap % kernel - kernel // 2
        inside = (y + dy >= 0) & (y + dy < side) & (x + dx >= 0) & (x + dx < side)
        pixel = np.flatnonzero(inside)
        entries.append(np.stack([np.full(len(pixel), tap), pixel, (y + dy)[pixel] * side + (x + dx)[pixel]], axis=1))
    return Payload(np.concatenate(entries))


def convolutions(side: int = 16, channels: int = 32, count: int = 3) -> Graph:
    """3x3 convolutions in rows layout with a residual connection around each."""
    s = Sketch()
    x = s.input("image", 1, 1, side * side, channels)
    taps = picker(side)
    for i in range(count):
        picked = s.op(f"c{i}.pick", HwSparseMatmul(taps), (1, 9, side * side, channels), x)
        weights = s.parameter(f"c{i}.w", 1, 1, 9 * channels, channels)
        y = s.op(f"c{i}.dense", HwMatmul(), (1, 1, side * side, channels), (picked, (hstack(9),)), weights)
        x = s.op(f"c{i}.add", HwBinary("add"), (1, 1, side * side, channels), y, x)
    return s.output(x)


def residuals(count: int, rows: int) -> Graph:
    """Each adds to its input what is known of all of its rows: the input has to wait for as long."""
    s, shape = Sketch(), (1, 1, rows, 256)
    x = s.op("first", HwUnary("exp"), shape, s.input("x", *shape))
    for i in range(count):
        top = s.op(f"top{i}", HwReduce("r"), (1, 1, 32, 256), x)
        spread = s.op(f"spread{i}", HwUnary("exp"), shape, (top, (broadcast("r", rows // 32),)))
        x = s.op(f"add{i}", HwBinary("add"), shape, x, spread)
    return s.output(x)
