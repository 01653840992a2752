"""What the links of a chip's two NoCs have to carry in an epoch: an estimate, since netlists assign no NoC.

`transfers_of` says what moves for one input, from which node to which, how many bytes; `link_map` sums it by link.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import traffic
from tbuda_lab.core.balancer.l1 import preloads
from tbuda_lab.core.balancer.types import Epoch, OpPlacement, QueuePlacement
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device.noc import X, fewest_hops, hops, link_bytes
from tbuda_lab.core.errors import InputError
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
    return collector.transfers()


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
                self._enters(
                    op.name,
                    spot,
                    operand.role,
                    queue,
                    source.source,
                    size,
                    [tm.name for tm in operand.tms],
                    [str(tm.args[0]) for tm in operand.tms if tm.name == "broadcast"],
                )
            port += 1
        for name in self.written.get(op.name, ()):
            self._leaves(op.name, spot, self.placement.queues[name], float(move.output_bytes[0]))

    def transfers(self) -> Transfers:
        """Everything collected, as arrays."""

        def concatenate(part: int, empty: Sequence[int], axis: int) -> np.ndarray:
            return np.concatenate([np.zeros(empty), *(row[part] for row in self.rows)], axis=axis)

        flow = np.concatenate([np.zeros(0, np.int64), *(np.full(len(r[2]), r[3]) for r in self.rows)])
        return Transfers(
            concatenate(0, (0, 2), 0).astype(np.int64),
            concatenate(1, (2, 0, 2), 1).astype(np.int64),
            concatenate(2, (0,), 0),
            flow.astype(np.int64),
            tuple(self.flows),
            self.left_out,
        )

    # -- ways in and out -----------------------------------------------------------------------------------------
    def _enters(
        self,
        name: str,
        spot: OpPlacement,
        role: str,
        queue: QueuePlacement | None,
        source: str,
        size: float,
        tms: Iterable[str],
        broadcast: Iterable[str] = (),
    ) -> None:
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

    def _multicast(self, source: str, name: str, spot: OpPlacement, role: str, entry: np.ndarray, size: float) -> None:
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


NOCS = ("0", "1", "both")
"""Which NoC carries the transfers; both: each goes where its way is shorter, on NoC 0 where they are equal."""

Node = tuple[int, int]


@dataclasses.dataclass(frozen=True)
class NocFlow:
    """Bytes per input from a producer to a consumer (ops or queues), wherever they go."""

    producer: str
    consumer: str
    bytes: float


@dataclasses.dataclass(frozen=True)
class LinkUse:
    """A link: its NoC, the nodes (x, y) it joins, bytes per input, the share of its bandwidth asked, and the flows over
    it with their bytes, largest first."""

    noc: int
    start: Node
    end: Node
    bytes: float
    load: float
    flows: tuple[NocFlow, ...]


@dataclasses.dataclass(frozen=True)
class LinkMap:
    """Links of a chip in an epoch. by_flow: (flows, NoC, axis, y, x) bytes per input over the link that leaves a node;
    cycles: of the epoch per input; capacity: bytes per cycle of a link; left_out: bytes per input to and from the host
    and other chips, which are on no link here."""

    epoch: int
    chip: int
    noc: str
    flows: tuple[tuple[str, str], ...]
    by_flow: np.ndarray
    moved: np.ndarray  # (flows,) bytes per input
    cycles: int
    capacity: float
    left_out: float

    @property
    def bytes(self) -> np.ndarray:
        """(NoC, axis, y, x) bytes per input over every link."""
        total: np.ndarray = self.by_flow.sum(axis=0)
        return total

    @property
    def load(self) -> np.ndarray:
        """(NoC, axis, y, x) share of every link's bandwidth that is asked for."""
        share: np.ndarray = self.bytes / max(1, self.cycles) / self.capacity
        return share

    def busiest(self, n: int = 10) -> list[LinkUse]:
        """The n links with most bytes, and who uses them."""
        total = self.bytes
        order = np.argsort(-total, axis=None, kind="stable")[:n]
        return [self.use(*(int(i) for i in np.unravel_index(k, total.shape))) for k in order if total.flat[k] > 0]

    def use(self, noc: int, axis: int, y: int, x: int) -> LinkUse:
        """One link."""
        rows, columns = self.by_flow.shape[-2:]
        step = -1 if noc else 1
        end = ((x + step) % columns, y) if axis == X else (x, (y + step) % rows)
        on_link = self.by_flow[:, noc, axis, y, x]
        order = [int(k) for k in np.argsort(-on_link, kind="stable") if on_link[k] > 0]
        flows = tuple(NocFlow(*self.flows[k], float(on_link[k])) for k in order)
        total = float(on_link.sum())
        return LinkUse(noc, (x, y), end, total, total / max(1, self.cycles) / self.capacity, flows)


def link_map(result: CompileResult, epoch: int, noc: str = "both") -> LinkMap:
    """What the links carry in an epoch. Raises `InputError` for an epoch or NoC that there is not."""
    chip = _epoch(result, epoch).chip
    if noc not in NOCS:
        raise InputError(f"no NoC {noc!r}; there are {', '.join(NOCS)}")
    transfers, size = transfers_of(result, epoch), result.device.noc_size
    ways = [hops(n, transfers.source, transfers.target[n], size) for n in (0, 1)]
    second = ways[1] < ways[0] if noc == "both" else np.full(len(transfers.bytes), noc == "1")
    count = max(1, len(transfers.flows))
    parts = []
    for number, mine in enumerate((~second, second)):
        parts.append(
            link_bytes(
                number,
                transfers.source[mine],
                transfers.target[number][mine],
                transfers.bytes[mine],
                size,
                transfers.flow[mine],
                count,
            )
        )
    by_flow = np.stack(parts, axis=1)[: len(transfers.flows)]
    report = result.placement.report
    cycles = result.placement.epoch_cycles[epoch] if report is None else report.epochs[epoch].limiter_cycles
    return LinkMap(
        epoch,
        chip,
        noc,
        transfers.flows,
        by_flow,
        np.bincount(transfers.flow, weights=transfers.bytes, minlength=len(transfers.flows)),
        int(cycles),
        float(result.device.noc_bytes_per_cycle),
        transfers.left_out,
    )


def sibling(result: CompileResult, epoch: int, chip: int) -> int:
    """The epoch that runs on a chip at the same time as another. Raises `InputError` where the chip rests then."""
    temporal = _epoch(result, epoch).temporal
    together = {e.chip: e.index for e in result.placement.epochs if e.temporal == temporal}
    if chip not in together:
        busy = ", ".join(map(str, sorted(together)))
        raise InputError(f"chip {chip} has no ops beside epoch {epoch}; chips that have some: {busy}")
    return together[chip]


def _epoch(result: CompileResult, epoch: int) -> Epoch:
    epochs = result.placement.epochs
    if not 0 <= epoch < len(epochs):
        raise InputError(f"there is no epoch {epoch}; there are {len(epochs)}")
    return epochs[epoch]
