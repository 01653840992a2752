"""Rows of a vocabulary's length as several shorter ones.

A row of 1571 tiles, a prime, lies on one core or on none, and a row of 8000 fits no row of cores. Where everything that
shares the row is element-wise, reduces along it or multiplies by stored weights, the row is cut: into the rows of a
matrix of its own (1 x 50257 becomes 160 x 320, which is 50 tiles instead of 1571), or, where there are many rows or a
matrix product makes them, into slices of all rows side by side. The host does so on the way in and out. A reduction
then has two steps, along the pieces and over them. What is behind the last element is zero at first, and kept from
counting where a reduction would read it.
"""

from __future__ import annotations

import dataclasses
import math

import numpy as np

from tbuda_lab.core.graph import TILE, Edge, Graph, Node, NodeKind, Shape
from tbuda_lab.core.graph.phases import WRITES, is_cache
from tbuda_lab.core.ops import Index, Matmul, Pad, Pow, ReduceAvg, ReduceMax, ReduceSum, Reshape, Subtract, Transpose
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.reduce import Reduce
from tbuda_lab.core.ops.unary import Buffer
from tbuda_lab.core.passes.base import FILLS_TILES, LEAVES, Pass, Report, Rewriter, is_stored
from tbuda_lab.core.passes.canonical import four
from tbuda_lab.core.passes.host import before_output
from tbuda_lab.core.passes.wide_matmuls import LARGEST_FACTOR, NARROW, largest_factor

LONG = 512
"""Tiles of columns above which no row of cores holds a row of the tensor, and its neighbours, in every format."""
FEW_ROWS = TILE
"""Below this many rows of a tensor its tiles are mostly padding, and each row becomes a matrix."""
PADDING = 1.15
"""Tiles that the pieces have together are at most so many times those of the row, or one more."""
SLICE = 64
"""Tiles of columns of a slice, at most."""

_ELEMENTWISE = frozenset(
    (
        "exp",
        "log",
        "sqrt",
        "reciprocal",
        "sigmoid",
        "tanh",
        "gelu",
        "gelu_derivative",
        "leaky_relu",
        "abs",
        "pow",
        "sine",
        "cosine",
        "buffer",
        "relu",
        "add",
        "subtract",
        "multiply",
        "maximum",
    )
)
_REDUCTIONS = frozenset(("reduce_sum", "reduce_avg", "reduce_max"))
_KEEPS_ZERO = frozenset(("sqrt", "tanh", "gelu", "leaky_relu", "abs", "sine", "buffer", "relu"))
_UNBOUNDED = frozenset(("log", "reciprocal", "pow"))

# What stands behind the last element: zeros; the lowest value; anything finite, or anything at all
_ZERO, _LOWEST, _ANY, _BAD = "zero", "lowest", "any", "bad"


@dataclasses.dataclass(frozen=True)
class Pieces:
    """How a row of `size` elements is cut into `count` pieces of `width`: "matrix" (its rows), or "slices"."""

    kind: str
    size: int
    count: int
    width: int

    @property
    def padded(self) -> int:
        return self.count * self.width

    def shape(self, shape: Shape) -> Shape:
        """Of a tensor that has the row, or size 1, as its last dim."""
        rows = 1 if len(shape) < 2 else shape[-2]
        count, width = (1, 1) if shape[-1] == 1 else (self.count, self.width)
        if self.kind == "matrix":
            return _four((*shape[:-1], count, width))
        return _four((*shape[:-2], count, rows, width))

    @property
    def dims(self) -> tuple[int, int]:
        """The dims that were the row."""
        return (-1, -2) if self.kind == "matrix" else (-1, -3)

    @property
    def mask_shape(self) -> Shape:
        return (self.count, self.width) if self.kind == "matrix" else (self.count, 1, self.width)


def _four(shape: Shape) -> Shape:
    """The shape with rank four; of more dims, if those in front are 1."""
    while len(shape) > 4 and shape[0] == 1:
        shape = shape[1:]
    return four(shape)


@dataclasses.dataclass
class _Group:
    """All that shares a row: names of ops and leaves that have it, and of reductions along it."""

    size: int
    wide: list[Node] = dataclasses.field(default_factory=list)
    reductions: list[Node] = dataclasses.field(default_factory=list)
    by_product: bool = False


@dataclasses.dataclass(frozen=True)
class LongRows(Pass):
    """Rows of more tiles than a row of cores can share out are cut into pieces, with all that shares them."""

    name = "long_rows"
    doc = "Cut rows that no grid divides (vocabularies) into the rows of a matrix, or into slices"

    def apply(self, graph: Graph) -> Report:
        _leave_ends_to_host(graph)
        _copy_leaves(graph)
        chosen: dict[str, Pieces] = {}
        for group in _groups(graph):
            pieces = _pieces_of(group)
            if pieces is not None and _padding_is_harmless(graph, group, pieces):
                chosen |= {node.name: pieces for node in (*group.wide, *group.reductions)}
        if not chosen:
            return Report(self.name, 0)
        cut = _Cut(graph, self, chosen)
        notes = dict.fromkeys(
            f"a row of {tiles(p.size)} tiles became {p.count} x {p.width} elements, {_tiles_of_pieces(p)} tiles"
            for p in chosen.values()
        )
        return Report(self.name, cut.run(), tuple(notes))


def tiles(size: int) -> int:
    """Tiles that hold so many elements side by side."""
    return -(-size // TILE)


def _leave_ends_to_host(graph: Graph) -> None:
    """The host cuts off what an output has not of a long row, or adds zeros to it: on the device the row would have to
    stay whole for that. Not where more than half would be cut off, for all of it is sent."""
    users = graph.users()
    for output in graph.outputs:
        node = graph[output.sources[0]]
        cuts = isinstance(node.op, Index) and 2 * node.shape[-1] > graph[node.sources[0]].shape[-1]
        if WRITES in output.attrs or not (cuts or isinstance(node.op, Pad)) or len(users[node.name]) != 1:
            continue
        source = graph[node.sources[0]]
        if not _is_long(source.shape) or math.prod(source.shape[:-1]) > 2 * math.prod(node.shape[:-1]):
            continue
        output.recipe = before_output(output, node, source)
        output.shape, output.inputs = source.shape, (Edge(source.name),)
        del graph.nodes[node.name]


def _copy_leaves(graph: Graph) -> None:
    """An output of a long row that no op makes, for the host did all there was to do, gets an op: a copy."""
    copies: dict[str, str] = {}
    for output in graph.outputs:
        source = graph[output.sources[0]]
        if source.kind not in LEAVES or is_cache(source) or WRITES in output.attrs or not _is_long(source.shape):
            continue
        if source.name not in copies:
            name = graph.unique(f"{source.name}.copy")
            node = Node(name, NodeKind.OP, source.shape, Buffer(), (Edge(source.name),), origin=output.origin)
            copies[source.name] = graph.add(node).name
        output.inputs = (Edge(copies[source.name]),)
    if copies:
        graph.resort()


def _tiles_of_pieces(p: Pieces) -> int:
    return tiles(p.count) * tiles(p.width) if p.kind == "matrix" else p.count * tiles(p.width)


# -- what shares a row --------------------------------------------------------------------------------------------
def _is_long(shape: Shape) -> bool:
    if not shape or tiles(shape[-1]) <= NARROW:
        return False
    count = tiles(shape[-1])
    return count > LONG or largest_factor(count) > LARGEST_FACTOR


def _groups(graph: Graph) -> list[_Group]:
    parent: dict[str, str] = {}
    fixed: set[str] = set()
    products: list[str] = []
    reductions: list[tuple[str, Node]] = []

    def find(name: str) -> str:
        while parent.setdefault(name, name) != name:
            parent[name] = name = parent[parent[name]]
        return name

    long = {node.name for node in graph if _is_long(node.shape)}
    for node in graph.topological():
        sources = [s for s in node.sources if s in long]
        if node.name not in long and not sources:
            continue
        if node.kind is NodeKind.OP:
            op = node.op
            if op is not None and op.type in _ELEMENTWISE and node.name in long:
                for source in sources:
                    parent[find(source)] = find(node.name)
                continue
            if isinstance(op, Reduce) and op.type in _REDUCTIONS and op.dim == -1:
                reductions.append((sources[0], node))
                continue
            if isinstance(op, Reduce) and op.type in _REDUCTIONS and op.dim == -2:
                parent[find(sources[0])] = find(node.name)
                continue
            if isinstance(op, Matmul) and node.name in long and _has_own_weights(graph, node):
                for source in node.sources[1:]:
                    parent[find(source)] = find(node.name)
                products.append(node.name)
                continue
            fixed.update((*sources, node.name))
        elif node.kind is NodeKind.OUTPUT:
            fixed.update(sources if WRITES in node.attrs else ())
        elif not (is_stored(node) or node.kind is NodeKind.INPUT) or is_cache(node):
            fixed.add(node.name)
    bad = {find(name) for name in fixed & long}
    groups: dict[str, _Group] = {}
    for node in graph.topological():
        if node.name in long and node.kind is not NodeKind.OUTPUT and find(node.name) not in bad:
            groups.setdefault(find(node.name), _Group(node.shape[-1])).wide.append(node)
    for source, node in reductions:
        if (group := groups.get(find(source))) is not None:
            group.reductions.append(node)
    for name in products:
        if (group := groups.get(find(name))) is not None:
            group.by_product = True
    # one op alone that makes the row (a product that only an output reads) has a pass of its own
    return [
        g
        for g in groups.values()
        if any(n.kind is NodeKind.OP and not isinstance(n.op, Matmul) for n in g.wide) or g.reductions
    ]


def _has_own_weights(graph: Graph, node: Node) -> bool:
    """A product of one matrix with stored weights that nothing else reads, plus a stored row."""
    left, *stored = (graph[s] for s in node.sources)
    users = graph.users()
    return (
        math.prod(left.shape[:-2]) == 1
        and not _is_long(left.shape)
        and all(is_stored(s) and len(users[s.name]) == 1 and math.prod(s.shape[:-2]) == 1 for s in stored)
        and all(s.shape[-1] == node.shape[-1] and (len(s.shape) < 2 or s.shape[-2] == 1) for s in stored[1:])
    )


def _pieces_of(group: _Group) -> Pieces | None:
    """How to cut the row; None where its tensors have too many dims."""
    shapes = [node.shape for node in group.wide]
    lead = max(len(_strip(shape)) for shape in shapes)
    rows = max((s[-2] if len(s) > 1 else 1) for s in shapes)
    if lead > 3:
        return None
    if rows < FEW_ROWS and not group.by_product:
        return _matrix(group.size)
    return _slices(group.size)


def _strip(shape: Shape) -> Shape:
    while len(shape) > 1 and shape[0] == 1:
        shape = shape[1:]
    return shape


def _matrix(size: int) -> Pieces:
    """The matrix of the least padding, whose sides have small factors and are nearly alike."""
    least = -(-size // (TILE * TILE))
    best: tuple[float, int, int] | None = None
    for total in range(least, int(least * PADDING) + 2):
        for rows in range(1, math.isqrt(total) + 1):
            if total % rows == 0:
                cols = total // rows
                cost = math.log(total / least) + _awkward(rows) + _awkward(cols) + 0.02 * math.log(cols / rows)
                if best is None or cost < best[0]:
                    best = cost, rows, total // rows
    assert best is not None
    return Pieces("matrix", size, best[1] * TILE, best[2] * TILE)


def _slices(size: int) -> Pieces:
    """Slices of the least padding, whose numbers of tiles have small factors."""
    whole = tiles(size)

    def cost(width: int) -> tuple[float, int]:
        count = -(-whole // width)
        return math.log(count * width / whole) + _awkward(width) + (0.0 if width % 8 == 0 else 0.05), -width

    width = min(range(min(16, whole), SLICE + 1), key=cost)
    return Pieces("slices", size, -(-whole // width), width * TILE)


def _awkward(count: int) -> float:
    """What a number of tiles loses for want of divisors."""
    return 0.0 if count == 1 or largest_factor(count) <= LARGEST_FACTOR else 0.1


# -- what stands behind the last element --------------------------------------------------------------------------
def _padding_is_harmless(graph: Graph, group: _Group, pieces: Pieces) -> bool:
    """Whether nothing but finite numbers stands there where a reduction reads, for 0 times infinity is no number."""
    if pieces.padded == pieces.size:
        return True
    state: dict[str, str] = {}
    wide = {node.name for node in group.wide}
    lowered = {node.sources[0] for node in group.reductions if isinstance(node.op, ReduceMax)}
    for node in group.wide:
        state[node.name] = _after(node, [_state_of(s, state, wide, node, lowered) for s in node.sources])
    return all(state[node.sources[0]] != _BAD for node in group.reductions)


def _state_of(name: str, state: dict[str, str], wide: set[str], reader: Node, lowered: set[str]) -> str | None:
    if name not in wide:
        return None
    if name in lowered and isinstance(reader.op, Subtract) and reader.sources[0] == name != reader.sources[1]:
        return _LOWEST
    return state[name]


def _after(node: Node, states: list[str | None]) -> str:
    """What stands behind the last element of the result. None: an operand that is no row."""
    kind = node.op.type if node.op is not None else ""
    if node.kind in LEAVES or kind == "matmul":
        return _ZERO
    if _BAD in states:
        return _BAD
    if kind == "multiply":
        return _ZERO if _ZERO in states and _LOWEST not in states else _BAD if _LOWEST in states else _ANY
    if kind in ("add", "maximum") and all(s == _ZERO for s in states):
        return _ZERO
    if kind == "subtract":
        if all(s == _ZERO for s in states):
            return _ZERO
        return _LOWEST if states == [_LOWEST, None] else _BAD if _LOWEST in states else _ANY
    if kind == "exp" and states == [_LOWEST]:
        return _ZERO
    if isinstance(node.op, Pow) and node.op.exponent > 0:
        return _ZERO if states == [_ZERO] else _ANY
    if kind in _REDUCTIONS:
        return _ZERO if states == [_ZERO] else _ANY if _LOWEST not in states else _BAD
    if _LOWEST in states or kind in _UNBOUNDED:
        return _BAD
    return _ZERO if kind in _KEEPS_ZERO and states == [_ZERO] else _ANY


# -- the change ---------------------------------------------------------------------------------------------------
class _Cut:
    """One rewrite. `at`: by old name, the name of the value in pieces, and what stands behind its last element."""

    def __init__(self, graph: Graph, owner: LongRows, chosen: dict[str, Pieces]) -> None:
        self.graph, self.options, self.chosen = graph, owner.options, chosen
        self.at: dict[str, tuple[str, str]] = {}
        self.narrow: dict[str, tuple[str, Pieces]] = {}  # values without the row that are kept in its form
        self.lowest: dict[str, str] = {}
        self.masks: dict[tuple[Pieces, bool], str] = {}

    def run(self) -> int:
        wanted = {output.name: output.shape for output in self.graph.outputs}
        count = Rewriter(self.graph, self.options, same_shapes=False).run(self._visit)
        for output in self.graph.outputs:
            pieces = self.chosen.get(self.original(output))
            if pieces is not None:
                _put_together(self.graph, output, pieces, wanted[output.name])
        return count

    def original(self, output: Node) -> str:
        source = output.sources[0]
        return next((old for old, (new, _) in self.at.items() if new == source), "")

    def _visit(self, r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
        pieces = self.chosen.get(node.name)
        if pieces is None:
            return self._narrow(r, node, operands)
        if isinstance(node.op, Reduce) and node.op.dim == -1:
            return self._reduced(r, node, node.op, pieces)
        names, states = [], list[str | None]()
        for port, source in enumerate(node.sources):
            name, state = self._operand(r, node, port, source, pieces)
            names.append(name)
            states.append(state)
        op = node.op
        if isinstance(op, Reduce) and pieces.kind == "matrix":  # over rows, which are slices there
            op = dataclasses.replace(op, dim=-3)
        result = r.keep(node, op, tuple(names))
        self.at[node.name] = result, _after(node, states)
        return result

    def _operand(self, r: Rewriter, node: Node, port: int, source: str, pieces: Pieces) -> tuple[str, str | None]:
        if source in self.chosen and source not in self.narrow:
            lowest = self.lowest.get(source)
            if lowest and isinstance(node.op, Subtract) and port == 0 and node.sources[1] != source:
                return lowest, _LOWEST
            return self._row(r, source, pieces)
        if source in self.narrow:
            return self.narrow[source][0], None
        b = r.builder(node)
        name = r.at[source]
        shape = b.shape(name)
        if isinstance(node.op, Matmul) or math.prod(shape) == 1:
            return name, None
        return b.reshape(name, pieces.shape(shape)), None

    def _row(self, r: Rewriter, source: str, pieces: Pieces) -> tuple[str, str]:
        """A row in pieces; leaves are cut when they are first read."""
        if source not in self.at:
            node = self.graph[source]
            b = r.builder(node)
            b.stem = source
            name = source
            if pieces.padded > pieces.size:
                pads = ((0, 0),) * (len(node.shape) - 1) + ((0, pieces.padded - pieces.size),)
                name = b.op(Pad(pads), name)
                r.new[name].attrs[FILLS_TILES] = True
            if pieces.kind == "slices":
                rows = node.shape[-2] if len(node.shape) > 1 else 1
                name = b.reshape(name, _four((*node.shape[:-2], rows, pieces.count, pieces.width)))
                name = b.transpose(name, -3, -2) if rows > 1 else b.reshape(name, pieces.shape(node.shape))
            else:
                name = b.reshape(name, pieces.shape(node.shape))
            self.at[source] = name, _ZERO
        return self.at[source]

    def _mask(self, r: Rewriter, node: Node, pieces: Pieces, floor: bool) -> str:
        """Ones where elements are, zeros behind; or zeros, and behind the lowest value that the format has."""
        key = pieces, floor
        if key not in self.masks:
            inside = (np.arange(pieces.padded) < pieces.size).reshape(pieces.mask_shape)
            lowest = -65504.0 if self.options.data_format.family == "a" else -math.inf
            value = np.where(inside, 0.0, lowest) if floor else inside
            self.masks[key] = r.builder(node).constant(value.astype(np.float32))
        return self.masks[key]

    def _reduced(self, r: Rewriter, node: Node, op: Reduce, pieces: Pieces) -> str:
        """Along the pieces, then over them."""
        source = node.sources[0]
        name, state = self._row(r, source, pieces)
        b = r.builder(node)
        padded = pieces.padded > pieces.size
        if padded and state not in (_ZERO, _LOWEST):
            name = b.multiply(name, self._mask(r, node, pieces, False))
        if padded and isinstance(op, ReduceMax):
            name = self.lowest.setdefault(source, b.add(name, self._mask(r, node, pieces, True)))
        first, second = pieces.dims
        step: type[Reduce] = ReduceMax if isinstance(op, ReduceMax) else ReduceSum
        name = b.op(step(second), b.op(step(first), name))
        if isinstance(op, ReduceAvg):
            name = b.multiply(name, 1.0 / pieces.size)
        self.narrow[node.name] = name, pieces
        return b.reshape(name, node.shape)

    def _narrow(self, r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
        """What is made of reductions alone stays in the form of the pieces; what else reads them has them reshaped."""
        forms = [self.narrow[s] for s in node.sources if s in self.narrow]
        if not forms or not isinstance(node.op, NdOp) or node.op.type not in _ELEMENTWISE:
            return None
        pieces = forms[0][1]
        names = []
        for source, operand in zip(node.sources, operands, strict=True):
            if source in self.narrow and self.narrow[source][1] == pieces:
                names.append(self.narrow[source][0])
            elif math.prod(r.new[operand].shape) == 1:
                names.append(operand)
            else:
                return None
        name = r.keep(node, None, tuple(names))
        self.narrow[node.name] = name, pieces
        return r.builder(node).reshape(name, node.shape)


def _put_together(graph: Graph, output: Node, pieces: Pieces, wanted: Shape) -> None:
    """The host puts the pieces of an output together, and cuts off what is behind the last element."""
    source = graph[output.sources[0]]
    have = source.shape
    lead, rows = (have[:-2], 1) if pieces.kind == "matrix" else (have[:-3], have[-2])
    joined = (*lead, pieces.padded) if pieces.kind == "matrix" else (*lead, rows, pieces.padded)
    steps: list[NdOp] = [Reshape(joined), Index(-1, 0, pieces.size)]
    if pieces.kind == "slices":
        steps.insert(0, Transpose(-3, -2))
    steps.append(Reshape(wanted))
    shapes = [have]
    for step in steps:
        shapes.append(step.infer(shapes[-1]))
    for k in reversed(range(len(steps))):
        node = Node(f"{output.name}.join{k}", NodeKind.OP, shapes[k + 1], steps[k], origin=output.origin)
        output.recipe = before_output(output, node, dataclasses.replace(source, shape=shapes[k]))
    output.shape = have
