"""Placing by hand: one op at a time, moved, swapped, undone, with every refusal explained."""

from tbuda_lab.core.placer.interactive.placer import InteractivePlacer
from tbuda_lab.core.placer.interactive.types import (
    Coord,
    CoordRange,
    EpochInfo,
    GridShape,
    PlacedOp,
    PlacerOpOverride,
    PlacerSolution,
    Refusal,
)

__all__ = [
    "Coord",
    "CoordRange",
    "EpochInfo",
    "GridShape",
    "InteractivePlacer",
    "PlacedOp",
    "PlacerOpOverride",
    "PlacerSolution",
    "Refusal",
]
