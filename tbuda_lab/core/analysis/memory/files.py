"""The memory of a netlist file, as far as the file says.

A netlist has the buffers of its queues, and of an op the fields from which the least that its buffers take follows
(`netlist.sizes.l1_buffers`). It says nothing of what an op reads more than once: every reader counts as reading one
entry per input. Places that no device has are left out, so that a file with errors is shown as well.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tbuda_lab.core.analysis.memory.dram import DramMap, QueueUse, channel_ranges, demand_of
from tbuda_lab.core.analysis.memory.l1 import KINDS, L1Map, L1Part
from tbuda_lab.core.balancer.types import QueuePlacement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.netlist.groups import queue_groups
from tbuda_lab.core.netlist.schema import Execute, Netlist, NetOp, Queue
from tbuda_lab.core.netlist.sizes import l1_buffers, queue_buffer_bytes
from tbuda_lab.core.netlist.tables import Tables

FILE_KINDS = (*KINDS, "overlay")
"""Kinds of buffers of a file's ops: those of a compile, and what an overlay takes beyond its 64 KiB."""

_MOST = 1 << 50   # no address and no size is larger
_MOST_ENTRIES = (1 << 31) - 1


@dataclasses.dataclass(frozen=True)
class FileMemory:
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
        """The buffers of an op, each at the least it can be. Raises `InputError` for a name that is not an op."""
        tables = Tables(self.netlist)
        if op not in tables.ops:
            raise InputError(f"{op!r} is not an op of the netlist")
        return _l1(tables, tables.ops[op], self.device, preloaded(self.netlist))

    def all_l1(self) -> list[L1Map]:
        """The buffers of every op, in file order."""
        tables, ahead = Tables(self.netlist), preloaded(self.netlist)
        return [_l1(tables, op, self.device, ahead) for _, op in self.netlist.ops()]

    def dram(self, cycles: Sequence[float] = ()) -> DramMap:
        """Where every queue lies and what is asked of the channels. cycles: per input of each graph, in file order."""
        return _dram(self.netlist, self.device, cycles)


def preloaded(n: Netlist) -> frozenset[str]:
    """Queues that some execute loads ahead (prologue)."""
    return frozenset(
        name for p in n.programs for i in p.instructions if isinstance(i, Execute)
        for name, s in (i.settings or {}).items() if s.fields.get("prologue") not in (None, False)
    )  # fmt: skip


def _l1(tables: Tables, op: NetOp, device: DeviceSpec, ahead: frozenset[str]) -> L1Map:
    buffers = sorted(l1_buffers(tables, op, device.tile_align, ahead), key=lambda b: FILE_KINDS.index(b[0]))
    parts, address = [], device.l1_reserved
    for kind, operand, size in buffers:
        if size:
            source = op.inputs[operand].source if operand >= 0 else op.name
            parts.append(L1Part(kind, operand, source, size, address))
            address += size
    return L1Map(op.name, device.l1_size, device.l1_reserved, tuple(parts))


def _chip(device: int | list[int]) -> int:
    first = (device[0] if device else 0) if isinstance(device, list) else device
    return min(max(first, 0), 0xFFFF) if isinstance(first, int) else 0


def _dram(n: Netlist, device: DeviceSpec, cycles: Sequence[float]) -> DramMap:
    tables, groups, ahead = Tables(n), queue_groups(n), preloaded(n)
    epoch = {name: k for k, name in enumerate(n.graphs)}
    last_epoch = max(0, len(epoch) - 1)
    uses: dict[str, QueueUse] = {}
    for q in n.queues.values():
        placed = _placed(q, tables, device, groups[q.name], q.name in ahead)
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
            placed, writer, tuple(dict.fromkeys(r.op.name for r in readers)), home if between else 0,
            max([home, *at]) if between else last_epoch, False, dict(sorted(reads.items())),
            {home: entry} if writer else {},
        )  # fmt: skip
    for name in _sharing(uses):
        uses[name] = dataclasses.replace(uses[name], shares=True)
    times = tuple(int(c) for c in cycles) or (0,) * len(epoch)
    return DramMap(
        uses, channel_ranges(device), demand_of(uses, len(epoch), device),
        device.dram_bytes_per_cycle * device.dram_subchannels, times,
    )  # fmt: skip


def _placed(q: Queue, tables: Tables, device: DeviceSpec, group: str, ahead: bool) -> QueuePlacement:
    host = q.loc == "host"
    count = device.sysmem_channels if host else device.dram_channels
    size = queue_buffer_bytes(tables, q, device.tile_align)
    buffers = tuple(
        (b.channel, b.address) for b in q.buffers if 0 <= b.channel < count and 0 <= b.address < _MOST and size < _MOST
    )
    b = q.blocking
    return QueuePlacement(
        q.name, "e2e" if group == "epoch_to_epoch" else group, q.input, q.grid_size, b.t, b.mblock, b.ublock,
        b.order or "r", min(max(q.entries, 0), _MOST_ENTRIES), q.df, q.type, "host" if host else "dram",
        _chip(q.target_device), buffers, min(size, _MOST), ahead,
    )  # fmt: skip


def _sharing(uses: dict[str, QueueUse]) -> set[str]:
    """Queues of which some buffer has an address that another queue has too."""
    blocks = sorted(
        (u.queue.location, u.queue.chip, channel, address, name, u.queue.bytes_per_buffer)
        for name, u in uses.items() for channel, address in u.queue.buffers
    )  # fmt: skip
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
