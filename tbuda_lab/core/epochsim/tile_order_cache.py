"""What was found out about ops and edges of networks, kept for the next network of the same ops."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.epochsim.tile_order import Steps, Stripes, TileFlow, TileOrder

_MOST_BYTES = 192 << 20


@dataclasses.dataclass
class TileOrderCache:
    """Steps of ops, walks over edges, flows between parts of ops, by all that decides them (never by name). It belongs
    to one set of `EpochConstants`. Walks are as long as tensors: beyond some bytes of them all are forgotten."""

    steps: dict[tuple[object, ...], Steps] = dataclasses.field(default_factory=dict)
    walks: dict[tuple[object, ...], TileOrder] = dataclasses.field(default_factory=dict)
    flows: dict[tuple[object, ...], list[TileFlow]] = dataclasses.field(default_factory=dict)
    stripes: dict[tuple[object, ...], Stripes] = dataclasses.field(default_factory=dict)
    held: int = 0

    def keep(self, key: tuple[object, ...], walk: TileOrder) -> TileOrder:
        """Notes a walk."""
        size = walk.core.nbytes + walk.address.nbytes
        if self.held + size > _MOST_BYTES:
            self.walks.clear()
            self.flows.clear()
            self.stripes.clear()
            self.held = 0
        self.held += size
        self.walks[key] = walk
        return walk
