"""Convolutions and pairs of matmuls that become several, whose results are added or put side by side.

Each part of a convolution has some of the kernel positions, or of the output channels.

A depthwise op may not be cut along columns: it runs on no more cores than a column of the grid has. Where that takes
long beside the whole model shared out over all cores, it sets the pace of an epoch in which most cores wait.

The weights of a dense one are divided among the columns of a grid alone. Where the share of a column does not fit L1
they could only be streamed from DRAM for every input; the parts keep theirs in L1, so a batch fetches them once (512 x
512 x 3 x 3 in Float16_b on grayskull: 599 KB of weights per core, of 577 KB that there are; in two parts 333 KB). Where
there is one kernel position alone, as in a shortcut, a part has some of the output channels, and the results stand side
by side (1024 x 2048 x 1 x 1: 532 KB of weights per core, in two parts 266 KB).

So it is with two matmuls that have element-wise ops of one operand between them (1024 x 4096 x 1024 in Float16_b on
grayskull: 1,065 KB each). A part has some columns of the first one's weights and the same rows of the second one's:
what is between them is never put together, and the results of the second are added.

Pickers of few channels have one column of tiles too. Whether cutting such a convolution pays depends on what else is in
its epoch (the U-Net of the bench takes 5 % fewer cycles on wormhole_b0 with one of them cut, 8 to 38 % more on
grayskull with all): no rule here cuts them. The option `op_parts` does; `Session.optimise` finds which ones to name.
"""

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Iterator

from tbuda_lab.core import ops
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, OverrideError, quantity
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import TILE, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import ROLE, TRAINABLE
from tbuda_lab.core.lowering.values import collapse, tiles_of
from tbuda_lab.core.options import CompileOptions

SHARE = 0.5
"""Part of the time that all convolutions would take on all cores, which a single op may take. It may also take as long
as the slowest one that cannot be cut."""

MOST = 4
"""Ops that a convolution becomes at most: each sum costs an op and a trip over the NoC."""

ROOM = 0.8
"""Part of L1 that weights may take: the rest is for what comes and goes."""

MOST_OF_PAIR = 8
"""Parts of a pair of matmuls, and of any op that is named, at most."""

_POINTWISE = frozenset(
    (
        "abs",
        "buffer",
        "cosine",
        "exp",
        "gelu",
        "leaky_relu",
        "log",
        "nop",
        "pow",
        "reciprocal",
        "relu",
        "sigmoid",
        "sine",
        "sqrt",
        "tanh",
    )
)
"""Ops whose result at a place depends on one operand at that place."""

_PICK, _DEPTHWISE, _DENSE = 300.0, 225.0, 60.0
"""Cycles per tile, roughly (per pair of tiles of a dense matmul): they are only compared with each other."""


@dataclasses.dataclass(frozen=True)
class _Work:
    """total: cycles on one core; narrow: those of its slowest op on all the cores that it can take."""

    total: float
    narrow: float
    depthwise: bool = False


def split_parts(graph: Graph, device: DeviceSpec, options: CompileOptions) -> dict[str, int]:
    """Into how many parts to cut the kernel positions of each convolution in rows layout, or, if it has one, its output
    channels; those left whole are not named. `op_parts` counts before the rules. Raises as `parts_asked` does."""
    by_rule = _split_by_rule(graph, device, options) if options.enable_conv_splitting else {}
    asked = parts_asked(graph, options)
    return by_rule | {name: parts for name, parts in asked.items() if isinstance(graph[name].op, ops.ConvRows)}


def parts_allowed(graph: Graph) -> dict[str, tuple[int, ...]]:
    """By op that `op_parts` may name, the numbers of parts that it may go into: a convolution by its kernel positions,
    or, if it has one, by whole tiles of output channels; a pair of matmuls, by its second, by whole tiles between."""
    allowed: dict[str, tuple[int, ...]] = {}
    users = graph.users()
    for node in graph.ops:
        if not isinstance(node.op, ops.ConvRows):
            continue
        cout, _, kh, kw = graph[node.inputs[1].source].shape
        if kh * kw > 1:
            allowed[node.name] = tuple(range(1, min(MOST_OF_PAIR, kh * kw) + 1))
        elif _stored_bias(graph, node):
            allowed[node.name] = _divisions(cout)
    allowed |= {second.name: _divisions(first.shape[-1]) for first, _, second in _pairs(graph, users)}
    return {name: parts for name, parts in allowed.items() if len(parts) > 1}


def _divisions(size: int) -> tuple[int, ...]:
    """The numbers of parts of whole tiles into which a dimension may go."""
    return tuple(n for n in range(1, MOST_OF_PAIR + 1) if size % (n * TILE) == 0)


def parts_asked(graph: Graph, options: CompileOptions) -> dict[str, int]:
    """`op_parts`, by op. Raises `OverrideError` that lists the ops that cannot go into so many, with what they can."""
    if not options.op_parts:
        return {}
    allowed, wrong = parts_allowed(graph), []
    for name, parts in options.op_parts:
        if name in allowed and parts in allowed[name]:
            continue
        if name in allowed:
            text, fix = f"it cannot go into {parts} parts", f"parts: {', '.join(map(str, allowed[name]))}"
        else:
            near = difflib.get_close_matches(name, allowed, 3, 0.4)
            text = "it is left whole" if name in graph else "there is no such op"
            fix = f"convolutions and second matmuls of pairs go into parts{': ' * bool(near)}{', '.join(near)}"
        wrong.append(Diagnostic("error", name, "op_parts", text, fix))
    if wrong:
        raise OverrideError(f"op_parts asks what cannot be of {quantity(len(wrong), 'op')}", wrong)
    return dict(options.op_parts)


def _split_by_rule(graph: Graph, device: DeviceSpec, options: CompileOptions) -> dict[str, int]:
    works: dict[str, tuple[int, _Work]] = {}
    parts_of: dict[str, int] = {}
    longest = total = 0.0
    for node in graph.ops:
        if isinstance(node.op, ops.ConvRows):
            work = _work(graph, node, node.op, device)
            total += work.total
            if not work.depthwise or graph[node.inputs[0].source].kind is NodeKind.INPUT:
                # of an input each part would fetch all; dense ones are cut for their weights alone
                longest = max(longest, work.narrow)
                if options.microbatch > 1 and (parts := _parts_in_l1(graph, node, node.op, device, options)) > 1:
                    parts_of[node.name] = parts
            else:
                works[node.name] = node.op.kernel[0] * node.op.kernel[1], work
    longest = max(longest, SHARE * total / (device.rows * device.cols))
    for name, (positions, work) in works.items():
        parts = min(MOST, positions, math.ceil(work.narrow / longest))
        if parts > 1:
            parts_of[name] = parts
    return parts_of


@dataclasses.dataclass(frozen=True)
class MatmulPair:
    """Two matmuls with weights that are cut into `parts`, and the element-wise ops between them, by name."""

    first: str
    between: tuple[str, ...]
    second: str
    parts: int


def split_pairs(graph: Graph, device: DeviceSpec, options: CompileOptions) -> dict[str, MatmulPair]:
    """By its second matmul, every pair with weights that L1 would not hold, and does in parts. Only for batches: one
    input fetches all weights once however they are cut. `op_parts` counts before that. Raises as `parts_asked` does."""
    asked = parts_asked(graph, options)
    by_rule = options.enable_matmul_splitting and options.microbatch > 1
    pairs: dict[str, MatmulPair] = {}
    for first, between, second in _pairs(graph, graph.users()) if by_rule or asked else ():
        parts = asked.get(second.name, 0) or (parts_of_pair(graph, first, second, device, options) if by_rule else 1)
        if parts > 1 and first.name in pairs:  # a matmul is cut in columns or in rows
            if second.name in asked:
                text = f"{first.name}, the first matmul of its pair, is cut as the second of another one"
                raise OverrideError(
                    "op_parts asks what cannot be of 1 op",
                    [Diagnostic("error", second.name, "op_parts", text, "name one of the two")],
                )
        elif parts > 1:
            pairs[second.name] = MatmulPair(first.name, between, second.name, parts)
    return pairs


def _pairs(graph: Graph, users: dict[str, list[tuple[str, int]]]) -> Iterator[tuple[Node, tuple[str, ...], Node]]:
    """Pairs of matmuls that may go into parts, with the element-wise ops between them."""
    for first in graph.ops:
        if not _cut_in_columns(graph, first, users):
            continue
        between: list[str] = []
        node = first
        while len(users[node.name]) == 1:
            reader, port = users[node.name][0]
            node = graph[reader]
            if node.op is None or node.op.type not in _POINTWISE:
                if port == 0 and _has_weights(graph, node, users):
                    yield first, tuple(between), node
                break
            between.append(node.name)


def _has_weights(graph: Graph, node: Node, users: dict[str, list[tuple[str, int]]]) -> bool:
    """Whether a node is a matmul with weights that it alone reads and that no training changes."""
    if not isinstance(node.op, ops.Matmul):
        return False
    weights = graph[node.inputs[1].source]
    fixed = weights.kind in (NodeKind.PARAMETER, NodeKind.CONSTANT) and not {ROLE, TRAINABLE} & weights.attrs.keys()
    return fixed and len(users[weights.name]) == 1 and collapse(weights.shape)[0] == 1


def _cut_in_columns(graph: Graph, node: Node, users: dict[str, list[tuple[str, int]]]) -> bool:
    """Whether such a matmul has no bias but one stored row."""
    return _has_weights(graph, node, users) and _stored_bias(graph, node)


def _stored_bias(graph: Graph, node: Node) -> bool:
    """Whether what an op adds to its product is one stored row, or nothing."""
    stored = [graph[edge.source] for edge in node.inputs[2:]]
    return all(
        bias.kind in (NodeKind.PARAMETER, NodeKind.CONSTANT)
        and not {ROLE, TRAINABLE} & bias.attrs.keys()
        and collapse(bias.shape) == (1, 1, node.shape[-1])
        for bias in stored
    )


def parts_of_pair(graph: Graph, first: Node, second: Node, device: DeviceSpec, options: CompileOptions) -> int:
    """Into how many parts of whole tiles a pair goes so that each keeps its weights in L1; 1 where it does whole, or
    where no number of parts up to `MOST_OF_PAIR` would do."""
    weights = [graph[node.inputs[1].source] for node in (first, second)]
    sizes = [tile_bytes(w.df or options.data_format, align=device.tile_align) for w in weights]
    depth, cols = (tiles_of(w.shape[-1 - axis]) for w, axis in zip(weights, (1, 0), strict=True))
    between = first.shape[-1]
    for parts in (n for n in range(1, MOST_OF_PAIR + 1) if between % (n * TILE) == 0):
        width = between // (parts * TILE)
        shares = depth * _of_column(width, device) * sizes[0], width * _of_column(cols, device) * sizes[1]
        if max(shares) <= ROOM * device.l1_usable:
            return parts
    return 1


def _of_column(tiles: int, device: DeviceSpec) -> int:
    """Columns of tiles that go on one column of a grid at least."""
    return tiles // max(d for d in range(1, device.cols + 1) if tiles % d == 0)


def _work(graph: Graph, node: Node, op: ops.ConvRows, device: DeviceSpec) -> _Work:
    cout, per_group, kh, kw = graph[node.inputs[1].source].shape
    rows, before, after = tiles_of(op.out_hw[0] * op.out_hw[1]), tiles_of(per_group * op.groups), tiles_of(cout)
    tiles = kh * kw * rows * before
    if is_pointwise(op, (kh, kw)):
        return _Work(_DENSE * tiles * after, 0.0)
    tall = min(rows, device.rows)
    wide = max(d for d in range(1, device.cols + 1) if before % d == 0)
    pick = _PICK * tiles
    if is_depthwise(op, per_group * op.groups, cout):
        dense = _DEPTHWISE * tiles
        return _Work(pick + dense, max(pick / (tall * wide), dense / tall), True)
    return _Work(pick + _DENSE * tiles * after, pick / (tall * wide))


def _parts_in_l1(graph: Graph, node: Node, op: ops.ConvRows, device: DeviceSpec, options: CompileOptions) -> int:
    """Into how many parts a dense convolution goes so that each keeps its weights in L1; 1 where it does whole, or
    where no number of parts up to `MOST` would do."""
    cout, per_group, kh, kw = graph[node.inputs[1].source].shape
    before, after = tiles_of(per_group * op.groups), tiles_of(cout)
    df = graph[node.inputs[1].source].df or options.data_format
    tile, room = tile_bytes(df, align=device.tile_align), ROOM * device.l1_usable
    if kh * kw == 1:
        fits = (
            parts
            for parts in range(1, MOST + 1)
            if cout % (parts * TILE) == 0 and before * _of_column(after // parts, device) * tile <= room
        )
        return next(fits, 1) if _stored_bias(graph, node) else 1
    position = before * _of_column(after, device) * tile
    for parts in range(1, min(MOST, kh * kw) + 1):
        if math.ceil(kh * kw / parts) * position <= room:
            return parts
    return 1


def is_pointwise(op: ops.ConvRows, kernel: tuple[int, int]) -> bool:
    """Whether every output pixel reads just its own input pixel."""
    return kernel == (1, 1) and tuple(op.stride) == (1, 1) and not any(op.padding)


def is_depthwise(op: ops.ConvRows, cin: int, cout: int) -> bool:
    """Whether every channel is convolved by itself."""
    return op.groups > 1 and op.groups == cin == cout


def shares(positions: int, parts: int) -> list[range]:
    """Kernel positions of each part: runs as equal as they can be."""
    return [range(positions * i // parts, positions * (i + 1) // parts) for i in range(parts)]
