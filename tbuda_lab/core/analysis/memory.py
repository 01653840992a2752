"""What of a placement lies in memory: the buffers of every core's L1; the queues in DRAM channels and on the host, when
they are needed and what they ask of channels; and the same of a netlist file, as far as the file says."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import Traffic, traffic
from tbuda_lab.core.balancer.l1 import preloads
from tbuda_lab.core.balancer.types import OpModels, QueuePlacement
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.netlist.check.cores import kind_text
from tbuda_lab.core.netlist.cores.epochs import EpochCores, epoch_cores
from tbuda_lab.core.netlist.schema import Execute, NetGraph, Netlist, NetOp, Queue
from tbuda_lab.core.netlist.sizes import l1_buffers, queue_buffer_bytes
from tbuda_lab.core.netlist.tables import Tables, queue_groups
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps

KINDS = ("output", "intermediate", "parameter", "input", "staging", "relay", "headers", "state", "overlay")
"""Kinds of an op's buffers, as the check counts them (rule R6): staging is of reads from DRAM, relays
are of gathers and multicasts, state is that of queues, overlay what one takes beyond its 64 KiB."""


@dataclasses.dataclass(frozen=True)
class L1Part:
    """A buffer. kind: one of `KINDS`; operand: number of the operand, -1 for none; source: what fills it; `start` and
    `bytes` within the core's L1."""

    kind: str
    operand: int
    source: str
    bytes: int
    start: int


@dataclasses.dataclass(frozen=True)
class L1Map:
    """The L1 of every core of an op, in bytes. `reserved`: firmware, overlay and routing tables, from address 0."""

    op: str
    size: int
    reserved: int
    parts: tuple[L1Part, ...]

    @property
    def used(self) -> int:
        """Bytes of all buffers, without the reserved part."""
        return sum(p.bytes for p in self.parts)

    @property
    def free(self) -> int:
        return self.size - self.reserved - self.used

    @property
    def largest_hole(self) -> int:
        """The largest free block; as buffers are stacked it is all that is free."""
        ends = [self.reserved, *(p.start + p.bytes for p in self.parts)]
        starts = [*(p.start for p in self.parts), self.size]
        return max(s - e for e, s in zip(ends, starts, strict=True))

    def by_kind(self) -> dict[str, int]:
        """Bytes of every kind (`KINDS`)."""
        return {kind: sum(p.bytes for p in self.parts if p.kind == kind) for kind in KINDS}


def l1_maps(result: CompileResult) -> list[L1Map]:
    """The buffers of every op of a compile on the fullest of its cores, as the check counts them (rule R6)."""
    return NetlistMemory(result.netlist, result.device).all_l1()


def l1_map(result: CompileResult, op: str) -> L1Map:
    """The buffers of one op; see `l1_maps`. Raises `InputError` for a name that is not placed."""
    if op not in result.placement.ops:
        raise InputError(f"{op!r} is not an op of the placement")
    return NetlistMemory(result.netlist, result.device).l1(op)


def l1_by_kind(result: CompileResult) -> dict[str, dict[str, int]]:
    """By op the bytes of every kind (`KINDS`) on the fullest of its cores; see `l1_maps`."""
    return {m.op: m.by_kind() for m in l1_maps(result)}


def l1_of_placed(placed: PlacedOps) -> dict[str, dict[str, int]]:
    """The same before there is a netlist; ops that only the netlist tells of are left out."""
    return {op: bytes_by_kind(dict(load.buffers), load.read) for op, load in placed.fullest_cores().items()}


@dataclasses.dataclass(frozen=True)
class QueueUse:
    """A queue and its use. first, last: epochs that write or read it, or that it has to outlive; `shares`: others have
    its addresses at other times. Bytes per input, over all cores: `reads` and `writes` by epoch. `writer`: op that
    feeds it, "" for the host; `readers`: ops."""

    queue: QueuePlacement
    writer: str
    readers: tuple[str, ...]
    first: int
    last: int
    shares: bool
    reads: dict[int, int]
    writes: dict[int, int]

    @property
    def name(self) -> str:
        return self.queue.name

    @property
    def bytes(self) -> int:
        """Of all buffers, headers included."""
        return self.queue.bytes_per_buffer * len(self.queue.buffers)


@dataclasses.dataclass(frozen=True)
class ChannelRange:
    """[start, end) of a channel that queues may use. location: "dram" or "host"."""

    location: str
    channel: int
    start: int
    end: int


@dataclasses.dataclass(frozen=True)
class DramMap:
    """All queues, by name, and the channels. `demand`: (epochs, DRAM channels) bytes per input asked of the channels of
    an epoch's chip; a queue's bytes are spread evenly over its buffers. `capacity`: bytes per cycle of one channel.
    `cycles`: limiter cycles per input of each epoch."""

    queues: dict[str, QueueUse]
    channels: tuple[ChannelRange, ...]
    demand: np.ndarray
    capacity: float
    cycles: tuple[int, ...]

    def load(self) -> np.ndarray:
        """(epochs, DRAM channels): the share of each channel's bandwidth that is asked for."""
        time = np.maximum(np.array(self.cycles, dtype=np.float64), 1.0)[:, None]
        share: np.ndarray = self.demand / time / self.capacity
        return share


def dram_map(result: CompileResult) -> DramMap:
    """Where every queue lies and what is asked of it. Preloaded parameters are read once per run: 0 bytes per input."""
    placement, device = result.placement, result.device
    reads, writes, readers, writers = _traffic(result)
    last_epoch = max(0, len(placement.epochs) - 1)
    uses: dict[str, QueueUse] = {}
    for name, queue in placement.queues.items():
        writer = writers.get(name, "")
        at = [placement.ops[r].epoch for r in readers.get(name, ()) if r in placement.ops]
        first = placement.ops[writer].epoch if writer in placement.ops else 0
        # inputs, outputs and parameters are there from beginning to end: the host comes between runs
        if queue.kind != "e2e":
            first, last = 0, last_epoch
        else:
            last = max([first, *at])
        uses[name] = QueueUse(
            queue,
            writer,
            tuple(readers.get(name, ())),
            first,
            last,
            queue.lifetime is not None,
            dict(sorted(reads.get(name, {}).items())),
            dict(sorted(writes.get(name, {}).items())),
        )
    report = placement.report
    cycles = placement.epoch_cycles if report is None else tuple(e.limiter_cycles for e in report.epochs)
    return DramMap(
        uses,
        channel_ranges(device),
        demand_of(uses, len(placement.epochs), device),
        device.dram_bytes_per_cycle * device.dram_subchannels,
        tuple(int(c) for c in cycles),
    )


def channel_ranges(device: DeviceSpec) -> tuple[ChannelRange, ...]:
    """What queues may use of every channel, DRAM before host memory."""
    dram = [ChannelRange("dram", c, device.dram_start(c), device.dram_end(c)) for c in range(device.dram_channels)]
    host = [ChannelRange("host", c, 0, device.sysmem_bytes(c)) for c in range(device.sysmem_channels)]
    return (*dram, *host)


PerEpoch = dict[str, dict[int, int]]


def _traffic(result: CompileResult) -> tuple[PerEpoch, PerEpoch, dict[str, list[str]], dict[str, str]]:
    """Bytes per input read from and written to each queue by epoch, as the netlist joins them; readers and writers."""
    placement, device = result.placement, result.device
    queues = result.netlist.queues
    reads: PerEpoch = {}
    writes: PerEpoch = {}
    readers: dict[str, list[str]] = {}
    moves: dict[str, tuple[OpModels, int, Traffic]] = {}
    for _, op in result.netlist.ops():
        if op.name not in placement.ops:
            continue
        spot = placement.ops[op.name]
        table = placement.models[op.name]
        if table.profile is None:
            continue
        rows = table.rows[spot.row : spot.row + 1]
        move = traffic(table.profile, rows, device)
        moves[op.name] = table, spot.row, move
        port = 0
        for source in op.inputs:
            queue = placement.queues.get(source.source)
            picker = queue is not None and queue.kind in ("sparse_tiles", "sparse_encoding")
            if queue is not None:
                if op.name not in readers.setdefault(queue.name, []):
                    readers[queue.name].append(op.name)
                if picker:
                    size = 0 if queue.prologue else queue.bytes_per_buffer * len(queue.buffers)
                elif bool(preloads(table.profile, port, rows)[0]):
                    size = 0
                else:
                    size = int(move.operand_bytes[port][0]) * int(move.operand_cores[port][0])
                _count(reads, queue.name, spot.epoch, size)
            port += not picker
    writers = {name: q.input for name, q in queues.items() if q.input in placement.ops}
    for name, writer in writers.items():
        if writer in moves:
            _, _, move = moves[writer]
            size = int(move.output_bytes[0]) * int(move.output_cores[0])
            _count(writes, name, placement.ops[writer].epoch, size)
    return reads, writes, readers, writers


def _count(table: PerEpoch, name: str, epoch: int, size: int) -> None:
    by_epoch = table.setdefault(name, {})
    by_epoch[epoch] = by_epoch.get(epoch, 0) + size


def demand_of(uses: dict[str, QueueUse], epochs: int, device: DeviceSpec) -> np.ndarray:
    """(epochs, DRAM channels) bytes per input; see `DramMap`."""
    demand = np.zeros((epochs, device.dram_channels))
    for use in uses.values():
        if use.queue.location != "dram" or not use.queue.buffers:
            continue
        channels = np.bincount([c for c, _ in use.queue.buffers], minlength=device.dram_channels)
        share = channels / len(use.queue.buffers)
        for by_epoch in (use.reads, use.writes):
            for epoch, size in by_epoch.items():
                demand[epoch] += size * share
    return demand


_KIND = {
    "intermediates": "intermediate",
    "dram_io": "staging",
    "prologue_before_tms": "parameter",
    "prologue_share": "parameter",
    "gather_relays": "relay",
    "multicast_relay": "relay",
    "tile_headers": "headers",
    "queue_state": "state",
}

_MOST = 1 << 50  # no address and no size is larger
_MOST_ENTRIES = (1 << 31) - 1


@dataclasses.dataclass(frozen=True)
class NetlistMemory:
    """What lies in the memories of a netlist's chips; worked out when it is asked for."""

    netlist: Netlist
    device: DeviceSpec

    @property
    def chips(self) -> tuple[int, ...]:
        """Chips with queues or ops."""
        named = [q.target_device for q in self.netlist.queues.values()]
        named += [g.target_device for g in self.netlist.graphs.values()]
        return tuple(sorted({_chip(d) for d in named})) or (0,)

    def l1(self, op: str) -> L1Map:
        """The buffers of an op on the fullest of its cores, as the check counts them (rule R6); where no rules are
        known of an op each at the least it can be. Raises `InputError` for a name that is not an op."""
        tables = Tables(self.netlist)
        if op not in tables.ops:
            raise InputError(f"{op!r} is not an op of the netlist")
        return next(m for m in self._of_graph(tables, tables.graph_of[op]) if m.op == op)

    def all_l1(self) -> list[L1Map]:
        """The buffers of every op, in file order."""
        tables = Tables(self.netlist)
        return [m for graph in self.netlist.graphs.values() for m in self._of_graph(tables, graph)]

    def _of_graph(self, tables: Tables, graph: NetGraph) -> list[L1Map]:
        ahead = preloaded_queues(self.netlist, graph.name)
        preloads = {op.name: frozenset(i.source for i in op.inputs if i.source in ahead) for op in graph.ops.values()}
        cores = epoch_cores(tables, (graph.name,), self.device.tile_align, preloads, self.device.arch)
        return [_l1(tables, op, self.device, cores, preloads[op.name]) for op in graph.ops.values()]

    def dram(self, cycles: Sequence[float] = ()) -> DramMap:
        """Where every queue lies and what is asked of the channels. cycles: per input of each graph, in file order."""
        return _dram(self.netlist, self.device, cycles)


def preloaded_queues(n: Netlist, graph: str = "") -> frozenset[str]:
    """Queues that some execute, or some of one graph, loads ahead (prologue)."""
    return frozenset(
        name
        for p in n.programs
        for i in p.instructions
        if isinstance(i, Execute) and graph in ("", i.graph)
        for name, s in (i.settings or {}).items()
        if s.fields.get("prologue") not in (None, False)
    )


def _l1(tables: Tables, op: NetOp, device: DeviceSpec, cores: EpochCores, ahead: frozenset[str]) -> L1Map:
    if op.name in cores.of_op:
        buffers = _on_core(op, cores.kinds(op.name, cores.fullest(op.name)[0]), op.name in tables.readers)
    else:
        buffers = [
            (kind, operand, op.inputs[operand].source if operand >= 0 else op.name, size)
            for kind, operand, size in l1_buffers(tables, op, device.tile_align, ahead)
        ]
        buffers.append(("headers", -1, kind_text("tile_headers"), cores.headers))
    parts, address = [], device.l1_reserved
    for kind, operand, source, size in sorted(buffers, key=lambda b: KINDS.index(b[0])):
        if size:
            parts.append(L1Part(kind, operand, source, size, address))
            address += size
    return L1Map(op.name, device.l1_size, device.l1_reserved, tuple(parts))


def _view_of(kind: str, number: int, read: bool) -> tuple[str, int]:
    """(kind of the view, operand or -1) of a buffer of a core. number: which it is of its kind; read: whether an op
    reads the output; else a queue takes it, and its buffer is the first that DRAM has to do with."""
    name, _, port = kind.rpartition("_")
    if port.removeprefix("in").isdigit():
        return ("input" if name == "input" else "parameter"), int(port.removeprefix("in"))
    if kind == "output" or (kind == "dram_io" and not read and number == 0):
        return "output", -1
    return _KIND.get(kind, kind), -1


def bytes_by_kind(kinds: Mapping[str, Sequence[int]], read: bool) -> dict[str, int]:
    """Bytes of a core by kind of the view (`KINDS`), from its buffers as `netlist.cores` names them. read: whether an
    op reads the output."""
    totals = dict.fromkeys(KINDS, 0)
    for kind, sizes in kinds.items():
        for number, size in enumerate(sizes):
            totals[_view_of(kind, number, read)[0]] += size
    return totals


def _on_core(op: NetOp, kinds: dict[str, list[int]], read: bool) -> list[tuple[str, int, str, int]]:
    """(kind of the view, operand, source, bytes) of each buffer of a core; see `_view_of`."""
    buffers: list[tuple[str, int, str, int]] = []
    for kind, sizes in kinds.items():
        for number, size in enumerate(sizes):
            view, operand = _view_of(kind, number, read)
            source = op.inputs[operand].source if operand >= 0 else op.name if view == "output" else kind_text(kind)
            buffers.append((view, operand, source, size))
    return buffers


def _chip(device: int | list[int]) -> int:
    first = (device[0] if device else 0) if isinstance(device, list) else device
    return min(max(first, 0), 0xFFFF) if isinstance(first, int) else 0


def _dram(n: Netlist, device: DeviceSpec, cycles: Sequence[float]) -> DramMap:
    tables, groups, ahead = Tables(n), queue_groups(n), preloaded_queues(n)
    epoch = {name: k for k, name in enumerate(n.graphs)}
    last_epoch = max(0, len(epoch) - 1)
    uses: dict[str, QueueUse] = {}
    for q in n.queues.values():
        placed = _queue_placement(q, tables, device, groups[q.name], q.name in ahead)
        entry = (placed.bytes_per_buffer - device.tile_align) // max(1, placed.entries) * len(placed.buffers)
        readers = tables.readers.get(q.name, [])
        at = [epoch[r.graph.name] for r in readers]
        writer = q.input if q.input in tables.ops else ""
        home = epoch[tables.graph_of[writer].name] if writer else 0
        reads: dict[int, int] = {}
        for k in at:
            reads[k] = reads.get(k, 0) + (0 if placed.prologue else entry)
        between = placed.kind == "e2e"
        uses[q.name] = QueueUse(
            placed,
            writer,
            tuple(dict.fromkeys(r.op.name for r in readers)),
            home if between else 0,
            max([home, *at]) if between else last_epoch,
            False,
            dict(sorted(reads.items())),
            {home: entry} if writer else {},
        )
    for name in _sharing(uses):
        uses[name] = dataclasses.replace(uses[name], shares=True)
    times = tuple(int(c) for c in cycles) or (0,) * len(epoch)
    return DramMap(
        uses,
        channel_ranges(device),
        demand_of(uses, len(epoch), device),
        device.dram_bytes_per_cycle * device.dram_subchannels,
        times,
    )


def _queue_placement(q: Queue, tables: Tables, device: DeviceSpec, group: str, ahead: bool) -> QueuePlacement:
    host = q.loc == "host"
    count = device.sysmem_channels if host else device.dram_channels
    size = queue_buffer_bytes(tables, q, device.tile_align)
    buffers = tuple(
        (b.channel, b.address) for b in q.buffers if 0 <= b.channel < count and 0 <= b.address < _MOST and size < _MOST
    )
    b = q.blocking
    return QueuePlacement(
        q.name,
        "e2e" if group == "epoch_to_epoch" else group,
        q.input,
        q.grid_size,
        b.t,
        b.mblock,
        b.ublock,
        b.order or "r",
        min(max(q.entries, 0), _MOST_ENTRIES),
        q.df,
        q.type,
        "host" if host else "dram",
        _chip(q.target_device),
        buffers,
        min(size, _MOST),
        ahead,
    )


def _sharing(uses: dict[str, QueueUse]) -> set[str]:
    """Queues of which some buffer has an address that another queue has too."""
    blocks = sorted(
        (u.queue.location, u.queue.chip, channel, address, name, u.queue.bytes_per_buffer)
        for name, u in uses.items()
        for channel, address in u.queue.buffers
    )
    sharing: set[str] = set()
    lane: tuple[str, int, int] | None = None
    reach, owner = 0, ""
    for location, chip, channel, address, name, size in blocks:
        if lane != (location, chip, channel):
            lane, reach = (location, chip, channel), 0
        if address < reach and name != owner:
            sharing |= {name, owner}
        if address + size > reach:
            reach, owner = address + size, name
    return sharing
