"""Awkward numbers of tile rows are padded to ones with more divisors: 98 or 25 tiles cut into few grids, 100 and 28
into many.

The rows of an image stay the same from op to op, so they grow together: a group is all that is joined by edges which
keep rows. It begins at pickers (which leave more rows zero) and ends at pickers (which read none of them) or at
averages (whose weights are zero there). What else reads rows - a transposition, a maximum over rows, a matmul that sums
over them, the host - forbids it. Rows in the padding may hold anything finite.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterable

import numpy as np

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, OverrideError
from tbuda_lab.core.graph import TILE, TM, Edge, Graph, Node, NodeKind, Payload, apply_shapes
from tbuda_lab.core.graph.tm import broadcast
from tbuda_lab.core.lowering.hw_ops import (
    HwBinary,
    HwDepthwise,
    HwMatmul,
    HwReduce,
    HwSparseMatmul,
    HwSplice,
    HwUnary,
    tile_shape,
)
from tbuda_lab.core.options import CompileOptions

MOST = 1.15
"""Rows grow at most by this factor."""

MOST_ASKED = 2
"""And by this one where `op_rows` asks for it."""

WORTH = 0.02
"""Least gain, as a natural logarithm of cores x cycles, for which rows are padded."""

_KEEP_ROWS = frozenset(("hslice", "hstack"))
_UNBOUNDED = frozenset(("reciprocal", "log", "exp", "power"))
_CORES = np.geomspace(1.0, 32.0, 24)  # how many cores an op may be wanted on


@dataclasses.dataclass
class _SharedRows:
    """What is known of who shares rows with whom; edges are (reader, operand)."""

    parent: dict[str, str] = dataclasses.field(default_factory=dict)
    fixed_ops: set[str] = dataclasses.field(default_factory=set)
    spread: list[tuple[str, int]] = dataclasses.field(default_factory=list)  # one row of tiles broadcast over all
    constants: list[tuple[str, int]] = dataclasses.field(default_factory=list)  # read row by row
    sums: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # (matmul, source of its operand 1)
    pickers: list[tuple[str, str]] = dataclasses.field(default_factory=list)  # (picker, its source)

    def find(self, name: str) -> str:
        while self.parent.setdefault(name, name) != name:
            self.parent[name] = name = self.parent[self.parent[name]]
        return name

    def join(self, a: str, b: str) -> None:
        self.parent[self.find(a)] = self.find(b)


def grow(graph: Graph, device: DeviceSpec, options: CompileOptions) -> None:
    """Pad rows in place where that gives grids worth more than the padding. `attrs["rows"]`: the rows that count.

    Of the ops that `op_names_pad` names in any case, to the best of the numbers above theirs; of those that
    `op_names_dont_pad` names never; of those in `op_rows` to so many tiles. What shares rows with an op grows with it.
    Raises `OverrideError` for names that the graph does not have, and for ops whose rows cannot grow.
    """
    rows = _relations(graph)
    requests = _requests(graph, rows, options)
    fixed = {rows.find(name) for name in rows.fixed_ops}
    groups: dict[str, list[Node]] = {}
    for node in graph.ops:
        root = rows.find(node.name)
        if root not in fixed:
            groups.setdefault(root, []).append(node)
    grown: dict[str, int] = {}
    for root, members in groups.items():
        sizes = {tile_shape(node.shape)[1] for node in members}
        if len(sizes) == 1:
            (height,) = sizes
            best = best_height(height, members, graph, device) if options.enable_row_padding else height
            asked = requests.get(root)
            if asked is False:
                best = height
            elif asked is True:
                best = next(n for n in heights(height, members, graph, device) if n > height)
            elif asked is not None:
                best = asked
                if not height <= asked <= MOST_ASKED * height:
                    text = f"its {height} tiles of rows, and those of what shares them, cannot be {asked}"
                    wrong = Diagnostic(
                        "error", members[0].name, "op_rows", text, f"{height} to {MOST_ASKED * height} tiles"
                    )
                    raise OverrideError("rows cannot be padded as asked", [wrong])
            if best > height:
                grown[root] = best
    if grown:
        _apply(graph, rows, grown)


def _requests(graph: Graph, rows: _SharedRows, options: CompileOptions) -> dict[str, bool | int]:
    """By group whether its rows are to be padded, or to how many tiles, where the options say so."""
    fixed = {rows.find(name) for name in rows.fixed_ops}
    requests: dict[str, bool | int] = {}
    wrong: list[Diagnostic] = []
    asked: list[tuple[str, bool | int]] = [(name, True) for name in options.op_names_pad]
    asked += [(name, False) for name in options.op_names_dont_pad]
    for name, pads in (*asked, *options.op_rows):
        node = graph.nodes.get(name)
        if node is None or node.kind is not NodeKind.OP:
            near = difflib.get_close_matches(name, [n.name for n in graph.ops], 3)
            wrong.append(
                Diagnostic(
                    "error",
                    name,
                    "paddings",
                    "the lowered graph has no such op",
                    f"name one that it has{': ' * bool(near)}{', '.join(near)}",
                )
            )
        elif pads and rows.find(name) in fixed:
            wrong.append(
                Diagnostic(
                    "error",
                    name,
                    "paddings",
                    "an input, an output, a transposition, a sum or a maximum "
                    "over rows, or an exponential shares its rows and would find what stands in the padding",
                    "pad ops between pickers (convolutions, poolings), or pad the input of the model",
                )
            )
        elif requests.setdefault(rows.find(name), pads) != pads:
            wrong.append(
                Diagnostic(
                    "error",
                    name,
                    "paddings",
                    "an op that shares its rows is asked for something else",
                    "ask for one of the two",
                )
            )
    if wrong:
        raise OverrideError("rows cannot be padded as asked", wrong)
    return requests


# -- who shares rows -----------------------------------------------------------------------------------------------
def _relations(graph: Graph) -> _SharedRows:
    rows = _SharedRows()
    for node in graph.topological():
        op = node.op
        if node.kind is NodeKind.OUTPUT:
            rows.fixed_ops.add(node.inputs[0].source)
        elif isinstance(op, (HwUnary, HwBinary)):
            if isinstance(op, HwUnary) and op.fn in _UNBOUNDED:
                rows.fixed_ops.add(node.name)
            _follow(graph, rows, node, range(len(node.inputs)))
        elif isinstance(op, HwMatmul):
            _follow(graph, rows, node, (0, 2)[: 1 + op.bias])
            _sum(graph, rows, node)
        elif isinstance(op, HwDepthwise):
            _follow(graph, rows, node, (0, 2)[: 1 + op.bias])
        elif isinstance(op, HwSparseMatmul):
            edge = node.inputs[0]
            if _keeps_height(edge):
                rows.pickers.append((node.name, edge.source))
            else:
                rows.fixed_ops.add(edge.source)
        elif (isinstance(op, HwReduce) and op.dim != "r") or (isinstance(op, HwSplice) and op.axis != "r"):
            _follow(graph, rows, node, range(len(node.inputs)))
        elif node.kind is NodeKind.OP:
            rows.fixed_ops.update((node.name, *node.sources))
    return rows


def _keeps_height(edge: Edge) -> bool:
    """Whether the rows of every slice come through the TMs as they are."""
    return all(tm.name in _KEEP_ROWS or (tm.name == "broadcast" and tm.args[0] != "r") for tm in edge.tms)


def _follow(graph: Graph, rows: _SharedRows, node: Node, ports: Iterable[int]) -> None:
    """The op's rows are those of these operands."""
    height = tile_shape(node.shape)[1]
    for port in ports:
        edge = node.inputs[port]
        source = graph[edge.source]
        own = tile_shape(source.shape)[1]
        if own == 1 and height > 1 and _spreads(edge, height):
            rows.spread.append((node.name, port))
        elif not _keeps_height(edge) or own != height:
            rows.fixed_ops.update((node.name, edge.source))
        elif source.kind is NodeKind.OP:
            rows.join(node.name, edge.source)
        elif source.kind is NodeKind.CONSTANT and source.value is not None:
            rows.constants.append((node.name, port))
        else:
            rows.fixed_ops.add(node.name)


def _spreads(edge: Edge, height: int) -> bool:
    over = [tm for tm in edge.tms if tm.name == "broadcast" and tm.args[0] == "r"]
    rest = [tm for tm in edge.tms if tm not in over]
    return over == [broadcast("r", height)] and _keeps_height(Edge(edge.source, tuple(rest)))


def _sum(graph: Graph, rows: _SharedRows, node: Node) -> None:
    """Operand 1 of a matmul is summed over its rows: they grow only against weights that can be zero there."""
    weights, edge = node.inputs[0], node.inputs[1]
    source = graph[edge.source]
    if source.kind is not NodeKind.OP:
        return
    constant = graph[weights.source]
    plain = all(tm.name == "broadcast" and tm.args[0] == "z" for tm in weights.tms)
    if constant.kind is NodeKind.CONSTANT and constant.value is not None and plain and not edge.tms:
        rows.sums.append((node.name, edge.source))
    else:
        rows.fixed_ops.add(edge.source)


# -- how many rows -------------------------------------------------------------------------------------------------
def best_height(height: int, members: list[Node], graph: Graph, device: DeviceSpec) -> int:
    """The number of tile rows with the least expected waste of cores, the padding within `MOST`."""
    if height <= 2:
        return height
    return next(n for n in heights(height, members, graph, device) if n <= int(height * MOST))


def heights(height: int, members: list[Node], graph: Graph, device: DeviceSpec) -> list[int]:
    """Numbers of tile rows that ops with so many may be padded to, the one with the least expected waste of cores
    first."""
    weight = _weights(members, graph)

    def loss(candidate: int) -> float:
        return _loss(candidate, height, weight, device) + (WORTH if candidate > height else 0.0)

    return sorted(range(height, max(int(height * MOST), height + 1) + 1), key=lambda n: (loss(n), n))


def _weights(members: list[Node], graph: Graph) -> dict[int, float]:
    """By columns that a grid may divide the work of the ops that have as many."""
    weight: dict[int, float] = {}
    for node in members:
        z, rt, ct = tile_shape(node.shape)
        inner = 1
        if isinstance(node.op, (HwMatmul, HwDepthwise)):
            edge = node.inputs[0]
            inner = apply_shapes(edge.tms, tile_shape(graph[edge.source].shape))[2]
            inner = inner // ct if isinstance(node.op, HwDepthwise) else inner
        columns = 1 if isinstance(node.op, HwDepthwise) else ct
        weight[columns] = weight.get(columns, 0.0) + z * rt * ct * inner
    return weight


def _loss(candidate: int, height: int, weight: dict[int, float], device: DeviceSpec) -> float:
    """What rows of that many tiles lose: the padding, and cores or cycles for want of a fitting grid."""
    mean = sum(w * _waste(candidate, columns, device) for columns, w in weight.items()) / sum(weight.values())
    return math.log(candidate / height) + mean


def _waste(rows: int, columns: int, device: DeviceSpec) -> float:
    """Mean logarithm of how many more cores, or cycles, an op takes than the number of cores it is wanted on."""
    sizes = {
        r * c
        for r in range(1, min(rows, device.rows) + 1)
        if rows % r == 0
        for c in range(1, min(columns, device.cols) + 1)
        if columns % c == 0
    }
    grids = np.array(sorted(sizes), dtype=np.float64)
    at = np.searchsorted(grids, _CORES)
    taken = grids[np.minimum(at, len(grids) - 1)]
    return float(np.abs(np.log(taken / _CORES)).mean())


# -- the change ----------------------------------------------------------------------------------------------------
def _apply(graph: Graph, rows: _SharedRows, grown: dict[str, int]) -> None:
    def new_height(name: str) -> int | None:
        return grown.get(rows.find(name)) if graph[name].kind is NodeKind.OP else None

    copies: dict[tuple[str, int, int], str] = {}
    for name, port in rows.spread:
        if (height := new_height(name)) is not None:
            tms = tuple(broadcast("r", height) if _over_rows(tm) else tm for tm in graph[name].inputs[port].tms)
            _rewire(graph[name], port, Edge(graph[name].inputs[port].source, tms))
    for name, port in rows.constants:
        if (height := new_height(name)) is not None:
            edge = graph[name].inputs[port]
            _rewire(graph[name], port, Edge(_zero_rows(graph, copies, edge.source, 2, height), edge.tms))
    for name, source in rows.sums:
        if (height := new_height(source)) is not None:
            edge = graph[name].inputs[0]
            _rewire(graph[name], 0, Edge(_zero_rows(graph, copies, edge.source, 3, height), edge.tms))
    for name, source in rows.pickers:
        if (height := new_height(source)) is not None:
            node = graph[name]
            assert isinstance(node.op, HwSparseMatmul)
            entries = node.op.picker.array.copy()
            old = tile_shape(graph[source].shape)[1] * TILE
            entries[:, 2] = entries[:, 2] // old * (height * TILE) + entries[:, 2] % old
            node.op = dataclasses.replace(node.op, picker=Payload(entries))
    for node in graph.ops:
        height = new_height(node.name)
        if height is not None:
            node.attrs["rows"] = node.shape[2]
            node.shape = (node.shape[0], node.shape[1], height * TILE, node.shape[3])
    graph.prune()
    graph.resort()


def _over_rows(tm: TM) -> bool:
    return tm.name == "broadcast" and tm.args[0] == "r"


def _rewire(node: Node, port: int, edge: Edge) -> None:
    inputs = list(node.inputs)
    inputs[port] = edge
    node.inputs = tuple(inputs)


def _zero_rows(graph: Graph, copies: dict[tuple[str, int, int], str], name: str, axis: int, height: int) -> str:
    """A constant with zeros up to `height` tiles along an axis; shared by all that want the same."""
    key = (name, axis, height)
    if key not in copies:
        node = graph[name]
        assert node.value is not None
        value = node.value.reshape(node.shape)
        pads = [(0, height * TILE - n if k == axis else 0) for k, n in enumerate(node.shape)]
        grown = np.ascontiguousarray(np.pad(value, pads))
        copy = dataclasses.replace(
            node, name=graph.unique(f"{name}.rows{height}"), shape=grown.shape, value=grown, attrs=dict(node.attrs)
        )
        copies[key] = graph.add(copy).name
    return copies[key]
