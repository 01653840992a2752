"""Addresses of queue buffers in DRAM channels and in host memory (placement.md#dram)."""

from __future__ import annotations

import bisect
import dataclasses
import math
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, PlacementError, need_known, quantity
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import TILE, Graph, NodeKind
from tbuda_lab.core.options import CompileOptions

ALGORITHMS = ("ROUND_ROBIN", "ROUND_ROBIN_FLIP_FLOP", "GREATEST_CAPACITY", "CLOSEST")


@dataclasses.dataclass(frozen=True)
class BufferRequest:
    """A queue that needs `count` buffers of `size` bytes. `channel` None: the allocator chooses. `epoch`: of the op
    that writes it, -1 for the host; `last`: of its last reader, where the queue need not outlive it (-1: it must).
    `hops`: (count, channels), how far the cores that use a buffer are from each channel, for CLOSEST."""

    name: str
    chip: int
    count: int
    size: int
    channel: int | None = None
    epoch: int = -1
    last: int = -1
    hops: np.ndarray | None = None
    window: bool = False  # in the window of channel 0 that other grayskull chips reach

    @property
    def bytes(self) -> int:
        return self.count * self.size


@dataclasses.dataclass(frozen=True)
class Allocation:
    """buffers: (channel, address) of each buffer, by queue. lifetimes: (first, last epoch) of the queues that share
    their addresses with others at other times; all others are there from beginning to end."""

    buffers: dict[str, tuple[tuple[int, int], ...]]
    lifetimes: dict[str, tuple[int, int]]


def refuse_weights(graph: Graph, device: DeviceSpec, options: CompileOptions) -> None:
    """Raises `PlacementError` where the weights of products and convolutions alone are more bytes than all DRAM of a
    device, each counted once and without padding, before anything copies them. Those of other ops may be the host's;
    where rules of formats (`precision`) or the host's ops (`cpu_fallback_ops`) make them fewer, they are counted when
    they are placed."""
    if options.precision or not {"embedding"}.issuperset(options.cpu_fallback_ops):
        return
    sizes: dict[str, int] = {}
    for node in graph.ops:
        stored = [leaf for leaf in map(graph.__getitem__, node.sources) if leaf.kind in _STORED]
        if node.op is not None and node.op.type in _PRODUCTS and 0 < len(stored) < len(node.inputs):
            for leaf in stored:
                df = leaf.df or options.data_format
                sizes[leaf.name] = math.prod(leaf.shape) * tile_bytes(df) // (TILE * TILE)
    total = sum(sizes.values())
    room = len(device.chips) * sum(device.dram_end(c) - device.dram_start(c) for c in range(device.dram_channels))
    if total <= room:
        return
    largest = sorted(sizes, key=lambda name: -sizes[name])[:_LARGEST_WEIGHTS]
    fix = "a smaller data format (default_df_override), fewer layers, or a device of more chips"
    raise PlacementError(
        f"the weights of {graph.name!r} are {total:,} bytes in {options.data_format.name}; the DRAM of {device.name} "
        f"has {room:,}",
        [Diagnostic("error", graph[n].where, "dram-full", f"{n!r} has {sizes[n]:,} bytes", fix) for n in largest],
    )


_STORED = (NodeKind.PARAMETER, NodeKind.CONSTANT)
_PRODUCTS = ("matmul", "conv2d", "conv2d_transpose")
_LARGEST_WEIGHTS = 4
"""Weights that a refusal names, at most."""


class _Channel:
    """Free ranges of one channel of one chip, lowest address first."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self.free = [r for r in ranges if r[1] > r[0]]
        self.walls = {start for start, _ in self.free}  # no buffer reaches across the start of a range

    @property
    def room(self) -> int:
        return sum(end - start for start, end in self.free)

    @property
    def largest(self) -> int:
        return max((end - start for start, end in self.free), default=0)

    def take(self, size: int) -> int | None:
        for i, (start, end) in enumerate(self.free):
            if end - start >= size:
                if end - start == size:
                    del self.free[i]
                else:
                    self.free[i] = (start + size, end)
                return start
        return None

    def give(self, start: int, size: int) -> None:
        """Takes a range back and joins it with its neighbours."""
        end = start + size
        at = bisect.bisect(self.free, (start, end))
        if at < len(self.free) and self.free[at][0] == end and end not in self.walls:
            end = self.free.pop(at)[1]
        if at and self.free[at - 1][1] == start and start not in self.walls:
            start = self.free.pop(at - 1)[0]
            at -= 1
        self.free.insert(at, (start, end))


def align(value: int, step: int) -> int:
    """The least multiple of `step` that is not below `value`."""
    return -(-value // step) * step


def channel_ranges(device: DeviceSpec, channel: int) -> list[tuple[int, int]]:
    """[start, end) of what queues may use of a channel; the window that the host maps (channel 0) is kept free.

    A channel with subchannels has two blocks of memory, and no buffer lies in both (placement.md#dram).
    """
    step = device.dram_address_align
    start, end = align(device.dram_start(channel), step), device.dram_end(channel) // step * step
    low, high = device.p2p_window
    ranges = [(start, end)]
    if channel == 0 and start < high and low < end:
        ranges = [(start, min(low, end)), (max(high, start), end)]
    half = device.dram_channel_bytes // 2 // step * step
    if device.dram_subchannels > 1:
        ranges = [piece for a, b in ranges for piece in ((a, min(b, half)), (max(a, half), b)) if piece[0] < piece[1]]
    return ranges


class _Allocator:
    """Channels of all chips and whose turn it is."""

    def __init__(self, device: DeviceSpec, algorithm: str) -> None:
        self.device, self.algorithm = device, algorithm
        self.chips = {
            chip: [_Channel(channel_ranges(device, c)) for c in range(device.dram_channels)] for chip in device.chips
        }
        low, high = device.p2p_window
        self.windows = {chip: _Channel([(low, high)]) for chip in device.chips}
        self.following = dict.fromkeys(device.chips, 0)
        self.in_half: dict[tuple[int, int], int] = {}  # (chip, half) -> buffers so far, for ROUND_ROBIN_FLIP_FLOP
        self.used: dict[tuple[int, int], np.ndarray] = {}  # (chip, epoch) -> buffers per channel, for CLOSEST
        self.placed: dict[str, tuple[tuple[int, int], ...]] = {}
        self.failed: list[Diagnostic] = []

    def place(self, request: BufferRequest) -> None:
        channels = [self.windows[request.chip]] if request.window else self.chips[request.chip]
        size = align(request.size, self.device.dram_address_align)
        buffers: list[tuple[int, int]] = []
        for nth in range(request.count):
            buffer = self._one(request, nth, size, channels)
            if buffer is None:
                break
            buffers.append(buffer)
        if len(buffers) == request.count:
            self.placed[request.name] = tuple(buffers)
            return
        for channel, address in buffers:
            channels[channel].give(address, size)
        missing = size * (request.count - len(buffers))
        tried = channels if request.channel is None or request.window else [channels[request.channel]]
        where = "" if request.channel is None else f" of channel {request.channel}"
        self.failed.append(
            Diagnostic(
                "error",
                request.name,
                "dram-full",
                f"{request.count} buffers of {size} bytes: {missing} bytes find no room; the largest free block{where} "
                f"is {max(c.largest for c in tried)} bytes",
                "use fewer entries (a smaller microbatch), a smaller data format, or another channel; in training, "
                "enable_recompute",
            )
        )

    def free(self, request: BufferRequest) -> None:
        size = align(request.size, self.device.dram_address_align)
        for channel, address in self.placed.get(request.name, ()):
            self.chips[request.chip][channel].give(address, size)

    def _one(self, request: BufferRequest, nth: int, size: int, channels: list[_Channel]) -> tuple[int, int] | None:
        for channel in self._channel_order(request, nth, channels):
            address = channels[channel].take(size)
            if address is not None:
                if request.channel is None:
                    self.following[request.chip] = channel + 1
                    half = request.chip, request.epoch % 2
                    self.in_half[half] = self.in_half.get(half, 0) + (request.epoch >= 0)
                self._busy(request)[channel] += 1
                return channel, address
        return None

    def _busy(self, request: BufferRequest) -> np.ndarray:
        key = (request.chip, request.epoch)
        if key not in self.used:
            self.used[key] = np.zeros(self.device.dram_channels, dtype=np.int64)
        return self.used[key]

    def _channel_order(self, request: BufferRequest, nth: int, channels: list[_Channel]) -> list[int]:
        """Channels in the order in which they are tried."""
        count = len(channels)
        every = list(range(count))
        if request.window:
            return [0]
        if request.channel is not None:
            return [request.channel]
        if self.algorithm == "GREATEST_CAPACITY":
            return sorted(every, key=lambda c: (-channels[c].room, c))
        if self.algorithm == "CLOSEST" and request.hops is not None:
            # a near channel that others of the epoch use already is no gain: first those that carry the least
            busy = self._busy(request)
            return sorted(every, key=lambda c: (int(busy[c]), int(request.hops[nth, c]), c))  # type: ignore[index]
        if self.algorithm == "ROUND_ROBIN_FLIP_FLOP" and request.epoch >= 0 and count > 1:
            half = request.epoch % 2
            low, high = half * (count // 2), (half + 1) * (count // 2)
            at = low + self.in_half.get((request.chip, half), 0) % (high - low)
            return every[at:high] + every[low:at] + every[:low] + every[high:]
        at = self.following[request.chip] % count
        return every[at:] + every[:at]


def allocate(requests: list[BufferRequest], device: DeviceSpec, algorithm: str = "ROUND_ROBIN") -> Allocation:
    """Addresses of all queues. While everything fits at once, every queue has its place for good; else the queues from
    epoch to epoch take places that were freed after their last reader (placement.md#dram).

    Raises `PlacementError` for an unknown algorithm, or naming the queues that do not fit even so, and by how much.
    """
    need_known(("DRAM placement algorithm", algorithm, ALGORITHMS))
    largest_first = sorted(requests, key=lambda r: (-r.bytes, r.name))
    static = _Allocator(device, algorithm)
    for request in largest_first:
        static.place(request)
    if not static.failed:
        return Allocation({r.name: static.placed[r.name] for r in requests}, {})
    dynamic = [r for r in requests if r.epoch >= 0 and r.last >= r.epoch]
    lifetimes = {r.name: (r.epoch, r.last) for r in dynamic}
    # where little room is left, the largest buffers go first: one finds no room in the ends of several channels
    by_buffer = sorted(requests, key=lambda r: (-r.size, r.name))
    for order in (largest_first, by_buffer):
        reusing = _allocate_in_order(order, lifetimes, _Allocator(device, algorithm))
        if not reusing.failed:
            return Allocation({r.name: reusing.placed[r.name] for r in requests}, lifetimes)
    raise _full(device, requests, lifetimes, reusing.failed)


def _allocate_in_order(
    order: Sequence[BufferRequest], lifetimes: Mapping[str, tuple[int, int]], allocator: _Allocator
) -> _Allocator:
    """Queues that stay take their places in this order; those with a lifetime epoch by epoch, what is freed soonest
    first, then in this order."""
    dynamic = [r for r in order if r.name in lifetimes]
    for request in order:
        if request.name not in lifetimes:
            allocator.place(request)
    for epoch in range(1 + max((r.last for r in dynamic), default=-1)):
        for request in sorted((r for r in dynamic if r.epoch == epoch), key=lambda r: r.last):
            allocator.place(request)
        for request in dynamic:
            if request.last == epoch:
                allocator.free(request)
    return allocator


def _full(
    device: DeviceSpec, requests: list[BufferRequest], lifetimes: dict[str, tuple[int, int]], failed: list[Diagnostic]
) -> PlacementError:
    """The error for queues that find no room: how much each chip would need at its fullest, and what is there."""
    room = sum(e - s for c in range(device.dram_channels) for s, e in channel_ranges(device, c))
    step = device.dram_address_align
    texts = []
    for chip in device.chips:
        mine = [r for r in requests if r.chip == chip]
        always = sum(r.count * align(r.size, step) for r in mine if r.name not in lifetimes)
        moments = {span[0] for span in lifetimes.values()} or {0}
        peak = always + max(
            sum(
                r.count * align(r.size, step)
                for r in mine
                if r.name in lifetimes and lifetimes[r.name][0] <= moment <= lifetimes[r.name][1]
            )
            for moment in moments
        )
        if peak > room:
            most = sorted(mine, key=lambda r: (-r.bytes, r.name))[:3]
            names = ", ".join(f"{r.name} ({r.bytes})" for r in most)
            texts.append(
                f"chip {chip} needs {peak} bytes and has {room}, {peak - room} too few; the largest queues: {names}"
            )
    text = "; ".join(texts) or "there are bytes enough, but not in blocks that large"
    return PlacementError(f"the DRAM of {device.name} has no room for {quantity(len(failed), 'queue')}: {text}", failed)


def allocate_host(requests: list[BufferRequest], device: DeviceSpec) -> dict[str, tuple[tuple[int, int], ...]]:
    """(channel, address) in host memory: one after the other, at odd multiples of 32 (64-aligned on blackhole).

    Raises `PlacementError` naming the queue that does not fit.
    """
    placed: dict[str, tuple[tuple[int, int], ...]] = {}
    channel, address = 0, 0
    for request in requests:
        buffers: list[tuple[int, int]] = []
        for _ in range(request.count):
            start = _host_aligned(address, device)
            while channel < device.sysmem_channels and start + request.size > device.sysmem_bytes(channel):
                channel, address = channel + 1, 0
                start = _host_aligned(address, device)
            if channel >= device.sysmem_channels:
                raise PlacementError(
                    f"queue {request.name!r} does not fit host memory",
                    [
                        Diagnostic(
                            "error",
                            request.name,
                            "host-full",
                            f"{request.size} bytes find no room in {quantity(device.sysmem_channels, 'host channel')}",
                            "use a smaller microbatch or queues in DRAM",
                        )
                    ],
                )
            buffers.append((channel, start))
            address = start + request.size
        placed[request.name] = tuple(buffers)
    return placed


def _host_aligned(address: int, device: DeviceSpec) -> int:
    if device.arch == "blackhole":
        return align(address, 64)
    return align(max(address - 32, 0), 64) + 32
