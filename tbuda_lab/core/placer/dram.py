"""Addresses of queue buffers in DRAM channels and in host memory (place-and-route section 8)."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, PlacementError

ALGORITHMS = ("ROUND_ROBIN", "ROUND_ROBIN_FLIP_FLOP", "GREATEST_CAPACITY")


@dataclasses.dataclass(frozen=True)
class Request:
    """A queue that needs `count` buffers of `size` bytes. `channel` None: the allocator chooses. `epoch`: of the op
    that writes it, -1 for the host."""

    name: str
    chip: int
    count: int
    size: int
    channel: int | None = None
    epoch: int = -1


class _Channel:
    """Free ranges of one channel of one chip, lowest address first."""

    def __init__(self, ranges: list[tuple[int, int]]) -> None:
        self.free = [r for r in ranges if r[1] > r[0]]

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


def align(value: int, step: int) -> int:
    return -(-value // step) * step


def channel_ranges(device: DeviceSpec, channel: int) -> list[tuple[int, int]]:
    """[start, end) of what queues may use of a channel; the window that the host maps (channel 0) is kept free."""
    step = device.dram_address_align
    start, end = align(device.dram_start(channel), step), device.dram_end(channel) // step * step
    low, high = device.p2p_window
    if channel == 0 and start < high and low < end:
        return [(start, min(low, end)), (max(high, start), end)]
    return [(start, end)]


def allocate_dram(
    requests: list[Request], device: DeviceSpec, algorithm: str = "ROUND_ROBIN"
) -> dict[str, tuple[tuple[int, int], ...]]:
    """(channel, address) of every buffer of every queue; largest queues first, lifetimes static.

    Raises `PlacementError` naming the queues that do not fit and by how many bytes, or an unknown algorithm.
    """
    if algorithm not in ALGORITHMS:
        raise PlacementError(
            "unknown DRAM placement algorithm",
            [Diagnostic("error", algorithm, "dram-algorithm", "no such algorithm", f"known: {', '.join(ALGORITHMS)}")],
        )
    chips = {chip: [_Channel(channel_ranges(device, c)) for c in range(device.dram_channels)] for chip in device.chips}
    following = dict.fromkeys(device.chips, 0)
    placed: dict[str, tuple[tuple[int, int], ...]] = {}
    failed: list[Diagnostic] = []
    for request in sorted(requests, key=lambda r: (-r.size * r.count, r.name)):
        channels = chips[request.chip]
        size = align(request.size, device.dram_address_align)
        buffers: list[tuple[int, int]] = []
        for _ in range(request.count):
            found = _one(request, size, channels, following, algorithm)
            if found is None:
                break
            buffers.append(found)
        if len(buffers) == request.count:
            placed[request.name] = tuple(buffers)
        else:
            missing = size * (request.count - len(buffers))
            largest = max(c.largest for c in channels)
            failed.append(
                Diagnostic(
                    "error",
                    request.name,
                    "dram-full",
                    f"{request.count} buffers of {size} bytes: {missing} bytes find no room; the largest free block is "
                    f"{largest} bytes",
                    "use fewer entries (a smaller microbatch), a smaller data format, or another channel",
                )
            )
    if failed:
        raise PlacementError(f"{len(failed)} queue(s) do not fit the DRAM of {device.name}", failed)
    return {request.name: placed[request.name] for request in requests}


def _one(
    request: Request, size: int, channels: list[_Channel], following: dict[int, int], algorithm: str
) -> tuple[int, int] | None:
    count = len(channels)
    if request.channel is not None:
        tried = [request.channel]
    elif algorithm == "GREATEST_CAPACITY":
        tried = sorted(range(count), key=lambda c: (-channels[c].room, c))
    else:
        usable = list(range(count))
        if algorithm == "ROUND_ROBIN_FLIP_FLOP" and request.epoch >= 0 and count > 1:
            half = request.epoch % 2
            usable = (
                usable[half * (count // 2) : (half + 1) * (count // 2)]
                + usable[: half * (count // 2)]
                + usable[(half + 1) * (count // 2) :]
            )
            tried = usable
        else:
            at = following[request.chip] % count
            tried = usable[at:] + usable[:at]
    for channel in tried:
        address = channels[channel].take(size)
        if address is not None:
            if request.channel is None:
                following[request.chip] = channel + 1
            return channel, address
    return None


def allocate_host(requests: list[Request], device: DeviceSpec) -> dict[str, tuple[tuple[int, int], ...]]:
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
                            f"{request.size} bytes find no room in {device.sysmem_channels} host channel(s)",
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
