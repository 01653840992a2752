"""What the compiler knows of a device, as one immutable record."""

from __future__ import annotations

import dataclasses
import functools
from collections import deque

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat

Core = tuple[int, int]

CROSSING_STREAMS = 7
"""Streams of an ethernet core that carry data from chip to chip: 9 to 11 and 0 to 3 (routing.md#rules-of-a-netlist)."""


@dataclasses.dataclass(frozen=True)
class StreamLimits:
    """Limits of a core's overlay streams that decide which edges can be routed (counts, unless said otherwise)."""

    bytes_per_phase: int = 38  # of the overlay blob
    blob_bytes: int = 65536
    dram_in_queues: int = 39  # queues one core can read from DRAM; 40, one of them reserved
    dram_out_queues: int = 8  # users of an op
    fan_out_streams: int = 16
    prologue_streams: int = 24  # parameters preloaded by one op

    @property
    def phases(self) -> int:
        """Phases per direction that the blob holds."""
        return self.blob_bytes // self.bytes_per_phase // 2


@dataclasses.dataclass(frozen=True)
class DeviceSpec:
    """A device as programs see it: `chips` equal grids of `rows` x `cols` cores. Sizes are bytes, rates bytes per
    core clock cycle. Rows and columns are logical unless the name says physical (the NoC's coordinates)."""

    name: str
    arch: str  # grayskull | wormhole_b0 | blackhole
    rows: int
    cols: int
    chips: tuple[int, ...]
    harvested_by_chip: tuple[tuple[int, ...], ...]  # physical rows, one tuple per chip
    mmio_chips: tuple[int, ...]  # chips the host reaches directly
    links: tuple[tuple[int, int, int], ...]  # (chip, chip, ethernet links between them)
    worker_rows: tuple[int, ...]  # physical rows before harvesting
    worker_cols: tuple[int, ...]  # physical columns
    noc_size: tuple[int, int]  # (columns, rows)
    l1_size: int
    l1_reserved: int
    dst_bytes: int
    dram_cores: tuple[tuple[Core, ...], ...]  # physical (x, y) per channel and subchannel
    dram_channel_bytes: int
    dram_top_reserved: int
    dram_reserved: tuple[int, ...]  # at the bottom of each channel
    dram_address_align: int
    queue_header: int
    tile_align: int
    sysmem_channels: int
    sysmem_channel_bytes: int
    sysmem_reserved: tuple[int, ...]
    noc_bytes_per_cycle: float  # peak of one link; sustained traffic gets about half
    dram_bytes_per_cycle: float  # of one channel
    pcie_bytes_per_cycle: float  # shared by all cores that access the host
    clock_hz: int
    eth_links: int
    eth_bytes_per_cycle: float  # of one link
    wide_accumulate: bool  # Float32 and Int32 accumulation
    tile_dims: tuple[tuple[int, int], ...]
    p2p_window: tuple[int, int] = (0x30000000, 0x40000000)  # [start, end) in channel 0 that the host maps

    @property
    def harvested_rows(self) -> tuple[int, ...]:
        """Physical rows missing on the first chip."""
        return self.harvested_by_chip[0]

    @property
    def cores(self) -> int:
        """Cores of one chip."""
        return self.rows * self.cols

    @property
    def l1_usable(self) -> int:
        """Bytes of a core's L1 left for buffers."""
        return self.l1_size - self.l1_reserved

    @functools.cached_property
    def dram_channels(self) -> int:
        return len(self.dram_cores)

    @functools.cached_property
    def dram_subchannels(self) -> int:
        return len(self.dram_cores[0])

    def dst_tiles(self, acc_df: DataFormat | None = None) -> int:
        """Tiles of 32x32 that half of the destination register holds: 8, or 4 when accumulating 32-bit values."""
        size = 4 if acc_df in (DataFormat.Float32, DataFormat.Int32) else 2
        return self.dst_bytes // 2 // (1024 * size)

    def supports_accumulate(self, df: DataFormat) -> bool:
        """Whether the destination register can accumulate in `df`."""
        return self.wide_accumulate or df not in (DataFormat.Float32, DataFormat.Int32)

    def dram_start(self, channel: int) -> int:
        """First address of a channel that queues may use; aligned to `dram_address_align`."""
        first = self.dram_reserved[self._channel(channel)] + 0x100
        return -(-first // self.dram_address_align) * self.dram_address_align

    def dram_end(self, channel: int) -> int:
        """End (exclusive) of what queues may use of a channel."""
        self._channel(channel)
        return self.dram_channel_bytes - self.dram_top_reserved

    def sysmem_bytes(self, channel: int) -> int:
        """Bytes of a host memory channel that queues may use."""
        if not 0 <= channel < self.sysmem_channels:
            raise InputError(f"{self.name} has host memory channels 0..{self.sysmem_channels - 1}, not {channel}")
        return self.sysmem_channel_bytes - self.sysmem_reserved[channel]

    def physical_row(self, logical: int, chip: int = 0) -> int:
        """NoC row of a logical row of the `chip`-th chip: harvested rows are skipped."""
        left = [row for row in self.worker_rows if row not in self.harvested_by_chip[chip]]
        if not 0 <= logical < self.rows:
            raise InputError(f"{self.name} has rows 0..{self.rows - 1}, not {logical}")
        return left[logical]

    @property
    def chip_rows(self) -> tuple[tuple[tuple[int, ...], tuple[int, ...]], ...]:
        """Of every chip the physical rows of its logical ones, and its harvested rows; () where chips are alike."""
        if len(set(self.harvested_by_chip)) < 2:
            return ()
        return tuple(
            (tuple(self.physical_row(r, at) for r in range(self.rows)), tuple(sorted(gone)))
            for at, gone in enumerate(self.harvested_by_chip)
        )

    def physical_core(self, row: int, col: int, chip: int = 0) -> Core:
        """NoC (x, y) of a logical core."""
        if not 0 <= col < self.cols:
            raise InputError(f"{self.name} has columns 0..{self.cols - 1}, not {col}")
        return self.worker_cols[col], self.physical_row(row, chip)

    def harvesting_mask(self, chip: int = 0) -> int:
        """Bit i set: physical row i of the `chip`-th chip is harvested."""
        return sum(1 << row for row in self.harvested_by_chip[chip])

    def neighbours(self, chip: int) -> dict[int, int]:
        """Chips one ethernet hop away and the number of links to each."""
        links: dict[int, int] = {}
        for a, b, count in self.links:
            if chip in (a, b):
                other = b if chip == a else a
                links[other] = links.get(other, 0) + count
        return dict(sorted(links.items()))

    def hops(self, source: int, target: int) -> int | None:
        """Ethernet hops between two chips; None when no route joins them."""
        distance = {source: 0}
        waiting = deque([source])
        while waiting:
            chip = waiting.popleft()
            if chip == target:
                return distance[chip]
            for other in self.neighbours(chip):
                if other not in distance:
                    distance[other] = distance[chip] + 1
                    waiting.append(other)
        return None

    def _channel(self, channel: int) -> int:
        if not 0 <= channel < self.dram_channels:
            raise InputError(f"{self.name} has DRAM channels 0..{self.dram_channels - 1}, not {channel}")
        return channel
