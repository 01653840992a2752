"""Convolutions that become several, whose results are added: each has some of the kernel positions.

A depthwise op may not be cut along columns: it runs on no more cores than a column of the grid has. Where that takes
long beside the whole model shared out over all cores, it sets the pace of an epoch in which most cores wait.

The weights of a dense one are divided among the columns of a grid alone. Where the share of a column does not fit L1
they could only be streamed from DRAM for every input; the parts keep theirs in L1, so a batch fetches them once (512 x
512 x 3 x 3 in Float16_b on grayskull: 599 KB of weights per core, of 577 KB that there are; in two parts 333 KB).

Pickers of few channels have one column of tiles too, but cutting dense convolutions did not pay: the U-Net of the bench
took 5 % fewer cycles on wormhole_b0 and 8 to 38 % more on grayskull.
"""

from __future__ import annotations

import dataclasses
import math

from tbuda_lab.core import ops
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.lowering.values import tiles_of
from tbuda_lab.core.options import CompileOptions

SHARE = 0.5
"""Part of the time that all convolutions would take on all cores, which a single op may take. It may also take as long
as the slowest one that cannot be cut."""

MOST = 4
"""Ops that a convolution becomes at most: each sum costs an op and a trip over the NoC."""

ROOM = 0.8
"""Part of L1 that weights may take: the rest is for what comes and goes."""

_PICK, _DEPTHWISE, _DENSE = 300.0, 225.0, 60.0
"""Cycles per tile, roughly (per pair of tiles of a dense matmul): they are only compared with each other."""


@dataclasses.dataclass(frozen=True)
class _Work:
    """total: cycles on one core; narrow: those of its slowest op on all the cores that it can take."""

    total: float
    narrow: float
    depthwise: bool = False


def split_parts(graph: Graph, device: DeviceSpec, options: CompileOptions) -> dict[str, int]:
    """Into how many parts to cut the kernel positions of each convolution in rows layout; those left whole are not
    named."""
    works: dict[str, tuple[int, _Work]] = {}
    result: dict[str, int] = {}
    longest = total = 0.0
    for node in graph.ops:
        if isinstance(node.op, ops.ConvRows):
            work = _work(graph, node, node.op, device)
            total += work.total
            if not work.depthwise or graph[node.inputs[0].source].kind is NodeKind.INPUT:
                # of an input each part would fetch all; dense ones are cut for their weights alone
                longest = max(longest, work.narrow)
                if options.microbatch > 1 and (parts := _parts_in_l1(graph, node, node.op, device, options)) > 1:
                    result[node.name] = parts
            else:
                works[node.name] = node.op.kernel[0] * node.op.kernel[1], work
    longest = max(longest, SHARE * total / (device.rows * device.cols))
    for name, (positions, work) in works.items():
        parts = min(MOST, positions, math.ceil(work.narrow / longest))
        if parts > 1:
            result[name] = parts
    return result


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
    wide = max(d for d in range(1, device.cols + 1) if after % d == 0)
    df = graph[node.inputs[1].source].df or options.data_format
    position = before * (after // wide) * tile_bytes(df, align=device.tile_align)
    for parts in range(1, min(MOST, kh * kw) + 1):
        if math.ceil(kh * kw / parts) * position <= ROOM * device.l1_usable:
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
