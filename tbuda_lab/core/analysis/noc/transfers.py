"""What moves over a chip's NoCs for one input of an epoch: from which node to which, how many bytes.

Bytes are those that the limiter cycles count (`balancer.bandwidth.traffic`). An operand enters its op where the DRAM
allocator assumes it does (placement.md#noc-distances): a matmul's first operand at the first core of every grid row,
its others at the last core of every grid column, from where one multicast takes it along; other operands enter every
core. What enters is collected from the producer's cores, or the queue's buffers, by the share of the tensor that each
holds: rows of the grid hold equal parts of the rows, columns of the columns. A transpose swaps the two; a broadcast,
slice or stack spreads an axis over all parts. A DRAM channel answers at its core nearest to who asks.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import traffic
from tbuda_lab.core.balancer.parameters import preloads
from tbuda_lab.core.balancer.types import OpPlacement, QueuePlacement
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device.noc import fewest_hops, hops
from tbuda_lab.core.netlist.schema import NetOp

_SPREAD = {"hslice": "c", "hstack": "c", "vslice": "r", "vstack": "r"}


@dataclasses.dataclass(frozen=True)
class Transfers:
    """One row per transfer. source: (n, 2) node (x, y) on the NoC; target: (2, n, 2) node by NoC, since a multicast
    ends at another core on each; bytes: (n,) per input; flow: (n,) index of `flows`, (producer, consumer) names of ops
    and queues. left_out: bytes per input to and from the host and other chips, whose ways are not known."""

    source: np.ndarray
    target: np.ndarray
    bytes: np.ndarray
    flow: np.ndarray
    flows: tuple[tuple[str, str], ...]
    left_out: float


def transfers_of(result: CompileResult, epoch: int) -> Transfers:
    """All transfers of an epoch, for one input. Raises `IndexError` for an epoch that there is not."""
    collector = _Collector(result, epoch)
    epoch_ops = set(result.placement.epochs[epoch].ops)
    for _, op in result.netlist.ops():
        if op.name in epoch_ops:
            collector.op(op)
    return collector.done()


class _Collector:
    def __init__(self, result: CompileResult, epoch: int) -> None:
        self.result, self.placement, self.device = result, result.placement, result.device
        self.epoch, self.chip = epoch, result.placement.epochs[epoch].chip
        at = self.device.chips.index(self.chip)
        rows = np.array([self.device.physical_row(r, at) for r in range(self.device.rows)])
        self.node_y, self.node_x = rows, np.array(self.device.worker_cols)
        self.dram = np.array(self.device.dram_cores)  # (channels, subchannels, 2)
        self.written: dict[str, list[str]] = {}
        for name, queue in result.netlist.queues.items():
            self.written.setdefault(queue.input, []).append(name)
        self.flows: dict[tuple[str, str], int] = {}
        self.rows: list[tuple[np.ndarray, np.ndarray, np.ndarray, int]] = []  # source, target, bytes, flow
        self.left_out = 0.0

    def op(self, op: NetOp) -> None:
        """Operands and output of one op."""
        spot, table = self.placement.ops[op.name], self.placement.models[op.name]
        if table.profile is None:
            return
        row = table.rows[spot.row : spot.row + 1]
        move = traffic(table.profile, row, self.device)
        port = 0
        for source in op.inputs:
            queue = self.placement.queues.get(source.source)
            if queue is not None and queue.kind in ("sparse_tiles", "sparse_encoding"):
                if not queue.prologue:  # each row of cores has its own part
                    size = queue.bytes_per_buffer * len(queue.buffers) / _grid(spot)[0]
                    self._enters(op.name, spot, "in0", queue, queue.name, size, ())
                continue
            operand = table.profile.operands[port]
            size = float(move.operand_bytes[port][0])
            if queue is None or not bool(preloads(table.profile, port, row)[0]):
                self._enters(op.name, spot, operand.role, queue, source.source, size, [tm.name for tm in operand.tms],
                             [str(tm.args[0]) for tm in operand.tms if tm.name == "broadcast"])
            port += 1
        for name in self.written.get(op.name, ()):
            self._leaves(op.name, spot, self.placement.queues[name], float(move.output_bytes[0]))

    def done(self) -> Transfers:
        """Everything collected, as arrays."""
        def joined(part: int, empty: Sequence[int], axis: int) -> np.ndarray:
            return np.concatenate([np.zeros(empty), *(row[part] for row in self.rows)], axis=axis)

        flow = np.concatenate([np.zeros(0, np.int64), *(np.full(len(r[2]), r[3]) for r in self.rows)])
        return Transfers(
            joined(0, (0, 2), 0).astype(np.int64), joined(1, (2, 0, 2), 1).astype(np.int64), joined(2, (0,), 0),
            flow.astype(np.int64), tuple(self.flows), self.left_out,
        )

    # -- ways in and out -----------------------------------------------------------------------------------------
    def _enters(
        self, name: str, spot: OpPlacement, role: str, queue: QueuePlacement | None, source: str, size: float,
        tms: Iterable[str], broadcast: Iterable[str] = (),
    ) -> None:  # fmt: skip
        """An operand of which every core where it enters takes `size` bytes."""
        rows, cols = _grid(spot)
        if size <= 0:
            return
        taking = {"in0": (rows, 1), "in1": (1, cols), "bias": (1, cols)}.get(role, (rows, cols))
        if queue is None:
            feeder = self.placement.ops.get(source)
            if feeder is None or feeder.epoch != self.epoch:
                self.left_out += size * taking[0] * taking[1]
                return
            grid = _grid(feeder)
        elif queue.location != "dram" or queue.chip != self.chip:
            self.left_out += size * taking[0] * taking[1]
            return
        else:
            grid = queue.grid
        r, c = (a.reshape(-1) for a in np.indices(taking))
        entry = self._nodes(spot, r + (rows - 1 if role in ("in1", "bias") else 0), c)
        share = producer_shares(taking, grid, role, tms, broadcast)  # (entries, producer parts)
        into, part = np.nonzero(share)
        if queue is None:
            assert feeder is not None
            nodes = self._nodes(feeder, *np.divmod(np.arange(grid[0] * grid[1]), grid[1]))[part]
        else:
            nodes = self._channel_nodes(queue, part, entry[into])
        self._add(source, name, nodes, entry[into], size * share[into, part])
        if taking != (rows, cols):
            self._multicast(source, name, spot, role, entry, size)

    def _multicast(
        self, source: str, name: str, spot: OpPlacement, role: str, entry: np.ndarray, size: float
    ) -> None:
        """From where it enters to the farthest core of its row or column, one after another, the way each NoC goes."""
        rows, cols = _grid(spot)
        r, c = np.indices((rows, cols)).reshape(2, -1)
        nodes = self._nodes(spot, r, c).reshape(rows, cols, 2)
        lines = nodes if role == "in0" else nodes.transpose(1, 0, 2)  # (entries, cores of the line, 2)
        ends = []
        for noc in (0, 1):
            far = hops(noc, entry[:, None], lines, self.device.noc_size).argmax(axis=1)
            ends.append(lines[np.arange(len(lines)), far])
        self._add(source, name, entry, np.stack(ends), np.full(len(entry), size))

    def _leaves(self, name: str, spot: OpPlacement, queue: QueuePlacement, size: float) -> None:
        """An output that goes to a queue; every core writes into the buffer that holds its part."""
        rows, cols = _grid(spot)
        if queue.location != "dram" or queue.chip != self.chip:
            self.left_out += size * rows * cols
            return
        share = producer_shares((rows, cols), queue.grid, "elt", ())
        core, part = np.nonzero(share)
        nodes = self._nodes(spot, *np.divmod(core, cols))
        self._add(name, queue.name, nodes, self._channel_nodes(queue, part, nodes), size * share[core, part])

    def _add(self, source: str, name: str, begin: np.ndarray, end: np.ndarray, size: np.ndarray) -> None:
        target = end if end.ndim == 3 else np.stack([end, end])
        flow = self.flows.setdefault((source, name), len(self.flows))
        self.rows.append((begin, target, size, flow))

    # -- nodes ---------------------------------------------------------------------------------------------------
    def _nodes(self, spot: OpPlacement, r: np.ndarray, c: np.ndarray) -> np.ndarray:
        """(n, 2) nodes (x, y) of cores of an op's grid."""
        if spot.transposed:
            r, c = c, r
        return np.stack([self.node_x[spot.start[1] + c], self.node_y[spot.start[0] + r]], axis=1)

    def _channel_nodes(self, queue: QueuePlacement, part: np.ndarray, near: np.ndarray) -> np.ndarray:
        """(n, 2) for every buffer the core of its channel that is nearest to a node."""
        channel = np.array([c for c, _ in queue.buffers])[part]
        cores = self.dram[channel]  # (n, subchannels, 2)
        far = fewest_hops(near[:, None], cores, self.device.noc_size)
        nearest: np.ndarray = cores[np.arange(len(cores)), far.argmin(axis=1)]
        return nearest


def _grid(spot: OpPlacement) -> tuple[int, int]:
    """Rows and columns of an op's grid as the netlist counts them, before it is turned."""
    return spot.size[::-1] if spot.transposed else spot.size


def producer_shares(
    taking: tuple[int, int], grid: tuple[int, int], role: str, tms: Iterable[str], broadcast: Iterable[str] = ()
) -> np.ndarray:
    """(entries, parts of the producer): which share of what an entry takes each part gives; rows add up to 1."""
    turned, spread = False, set(broadcast)
    for name in tms:
        turned ^= name == "transpose"
        spread |= {_SPREAD[name]} if name in _SPREAD else set()
    holds = grid[::-1] if turned else grid
    cut_rows = role in ("in0", "elt") and "r" not in spread
    cut_cols = role in ("in1", "bias", "elt") and "c" not in spread
    rows = _overlap(taking[0], holds[0]) if cut_rows else np.full((taking[0], holds[0]), 1 / holds[0])
    cols = _overlap(taking[1], holds[1]) if cut_cols else np.full((taking[1], holds[1]), 1 / holds[1])
    table = np.einsum("ar,bc->abrc", rows, cols)
    if turned:
        table = table.transpose(0, 1, 3, 2)
    shares: np.ndarray = table.reshape(taking[0] * taking[1], grid[0] * grid[1])
    return shares


def _overlap(parts: int, buffers: int) -> np.ndarray:
    """(parts, buffers): how much of each of `parts` equal parts of an axis lies in each of `buffers` equal ones."""
    low = np.maximum(np.arange(parts)[:, None] * buffers, np.arange(buffers) * parts)
    high = np.minimum(np.arange(1, parts + 1)[:, None] * buffers, np.arange(1, buffers + 1) * parts)
    share: np.ndarray = np.maximum(high - low, 0) / float(buffers)
    return share
