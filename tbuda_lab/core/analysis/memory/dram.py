"""The queues in DRAM and in host memory: where their buffers lie, when they are needed, what they ask of channels."""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.balancer.bandwidth import Traffic, traffic
from tbuda_lab.core.balancer.parameters import preloads
from tbuda_lab.core.balancer.types import OpModels, QueuePlacement
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device import DeviceSpec


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
            queue, writer, tuple(readers.get(name, ())), first, last, queue.lifetime is not None,
            dict(sorted(reads.get(name, {}).items())), dict(sorted(writes.get(name, {}).items())),
        )  # fmt: skip
    report = placement.report
    cycles = placement.epoch_cycles if report is None else tuple(e.limiter_cycles for e in report.epochs)
    return DramMap(
        uses, channel_ranges(device), demand_of(uses, len(placement.epochs), device),
        device.dram_bytes_per_cycle * device.dram_subchannels, tuple(int(c) for c in cycles),
    )  # fmt: skip


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
