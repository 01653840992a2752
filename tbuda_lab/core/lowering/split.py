"""Depthwise convolutions that could not be made fast enough become several, whose results are added: each has some of
the kernel positions.

A depthwise op may not be cut along columns: it runs on no more cores than a column of the grid has. Where that takes
long beside the whole model shared out over all cores, it sets the pace of an epoch in which most cores wait.

Pickers of few channels have one column of tiles too, but cutting dense convolutions did not pay: the U-Net of the bench
took 5 % fewer cycles on wormhole_b0 and 8 to 38 % more on grayskull.
"""

from __future__ import annotations

import dataclasses
import math

from tbuda_lab.core import ops
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.lowering.values import tiles_of

SHARE = 0.5
"""Part of the time that all convolutions would take on all cores, which a single op may take. It may also take as long
as the slowest one that cannot be cut."""

MOST = 4
"""Ops that a convolution becomes at most: each sum costs an op and a trip over the NoC."""

_PICK, _DEPTHWISE, _DENSE = 300.0, 225.0, 60.0
"""Cycles per tile, roughly (per pair of tiles of a dense matmul): they are only compared with each other."""


@dataclasses.dataclass(frozen=True)
class _Work:
    """total: cycles on one core; narrow: those of its slowest op on all the cores that it can take."""

    total: float
    narrow: float
    depthwise: bool = False


def split_parts(graph: Graph, device: DeviceSpec) -> dict[str, int]:
    """Into how many parts to cut the kernel positions of each convolution in rows layout; those left whole are not
    named."""
    works: dict[str, tuple[int, _Work]] = {}
    longest = total = 0.0
    for node in graph.ops:
        if isinstance(node.op, ops.ConvRows):
            work = _work(graph, node, node.op, device)
            total += work.total
            if not work.depthwise or graph[node.inputs[0].source].kind is NodeKind.INPUT:
                # dense ones stay whole; of an input each part would fetch all
                longest = max(longest, work.narrow)
            else:
                works[node.name] = node.op.kernel[0] * node.op.kernel[1], work
    longest = max(longest, SHARE * total / (device.rows * device.cols))
    result: dict[str, int] = {}
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


def is_pointwise(op: ops.ConvRows, kernel: tuple[int, int]) -> bool:
    """Whether every output pixel reads just its own input pixel."""
    return kernel == (1, 1) and tuple(op.stride) == (1, 1) and not any(op.padding)


def is_depthwise(op: ops.ConvRows, cin: int, cout: int) -> bool:
    """Whether every channel is convolved by itself."""
    return op.groups > 1 and op.groups == cin == cout


def shares(positions: int, parts: int) -> list[range]:
    """Kernel positions of each part: runs as equal as they can be."""
    return [range(positions * i // parts, positions * (i + 1) // parts) for i in range(parts)]
