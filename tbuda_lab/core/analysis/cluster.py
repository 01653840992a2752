"""The chips of a device as they stand to each other, and what a placement asks of each and of their links."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import deque
from collections.abc import Sequence

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim import batch_time
from tbuda_lab.core.placer.model.chip_stages import chip_order, link_bytes

Link = tuple[int, int, int]


@dataclasses.dataclass(frozen=True)
class ChipUse:
    """A chip: its place in the pipeline, its epochs, simulated cycles per input of all of them together."""

    chip: int
    stage: int
    mmio: bool
    position: tuple[int, int]  # column, row
    epochs: tuple[int, ...]
    cycles: float


@dataclasses.dataclass(frozen=True)
class ChipLinkUse:
    """Two neighbouring chips: how many links join them, bytes per input one way and the other."""

    a: int
    b: int
    links: int
    forth: int
    back: int

    @property
    def bytes(self) -> int:
        return self.forth + self.back


@dataclasses.dataclass(frozen=True)
class ClusterMap:
    """`moves`: bytes per input from chip to chip, each tensor once per chip that reads it; between chips that are not
    neighbours they take a shortest route. `slowest`: cycles per input of the chip with the most to do. `capacity`:
    bytes per cycle of one link."""

    chips: dict[int, ChipUse]
    links: tuple[ChipLinkUse, ...]
    moves: dict[tuple[int, int], int]
    slowest: float
    capacity: float

    def load(self, link: ChipLinkUse) -> float:
        """The share of a connection's bandwidth that is asked for in its busier direction."""
        return max(link.forth, link.back) / max(1.0, self.slowest) / max(1e-9, self.capacity * link.links)


def cluster_map(result: CompileResult) -> ClusterMap:
    """Chips and links of a compile, with the times of the batch that it is for, as every view shows them."""
    placement, device = result.placement, result.device
    order = {chip: i for i, chip in enumerate(chip_order(device, result.options.chip_placement_policy))}
    where = positions(device.chips, device.links)
    times = batch_time(result, result.options.microbatch)
    cycles = [epoch.cycles / times.batch for epoch in times.epochs]
    mine = {chip: tuple(e.index for e in placement.epochs if e.chip == chip) for chip in device.chips}
    chips = {
        chip: ChipUse(
            chip, order[chip], chip in device.mmio_chips, where[chip], epochs, math.fsum(cycles[e] for e in epochs)
        )
        for chip, epochs in mine.items()
    }
    homes = {name: spot.chip for name, spot in placement.ops.items()}
    moves = link_bytes(result.lowered, homes, result.options, device) if len(device.chips) > 1 else {}
    return ClusterMap(
        chips,
        _links(device, moves),
        moves,
        max((c.cycles for c in chips.values()), default=0.0),
        device.eth_bytes_per_cycle,
    )


def _links(device: DeviceSpec, moves: dict[tuple[int, int], int]) -> tuple[ChipLinkUse, ...]:
    joined: dict[tuple[int, int], int] = {}
    for a, b, count in device.links:
        pair = (min(a, b), max(a, b))
        joined[pair] = joined.get(pair, 0) + count
    crossing: dict[tuple[int, int], int] = {}
    for (source, target), size in moves.items():
        route = shortest_route(device, source, target)
        for step in itertools.pairwise(route):
            crossing[step] = crossing.get(step, 0) + size
    return tuple(
        ChipLinkUse(a, b, count, crossing.get((a, b), 0), crossing.get((b, a), 0))
        for (a, b), count in sorted(joined.items())
    )


def shortest_route(device: DeviceSpec, source: int, target: int) -> list[int]:
    """Chips from one to another over as few links as there can be, the lowest numbers of equals; [] without a route."""
    back = {source: source}
    waiting = deque([source])
    while waiting:
        chip = waiting.popleft()
        if chip == target:
            route = [chip]
            while route[-1] != source:
                route.append(back[route[-1]])
            return route[::-1]
        for other in device.neighbours(chip):
            if other not in back:
                back[other] = chip
                waiting.append(other)
    return []


def positions(chips: Sequence[int], links: Sequence[Link]) -> dict[int, tuple[int, int]]:
    """(column, row) of every chip as drawn, distinct, on a lattice in which links join neighbours where there is one.

    Chips are numbered along rows; the width is the one in which the links are shortest, the most square one of equals.
    """
    count = len(chips)
    index = {chip: i for i, chip in enumerate(chips)}
    square = max(1, math.ceil(math.sqrt(count)))

    def cost(width: int) -> tuple[int, int, int]:
        length = 0
        for a, b, _ in links:
            (xa, ya), (xb, yb) = (divmod(index[c], width)[::-1] for c in (a, b))
            length += abs(xa - xb) + abs(ya - yb)
        return length, abs(width - square), width

    width = min(range(1, count + 1), key=cost) if links else min(count, square)
    return {chip: (i % width, i // width) for chip, i in index.items()}
