"""Placing step by step: by hand (`InteractivePlacer`: one op at a time, every refusal explained), and edits of a whole
placement that leave the rest where it is (`IncrementalPlacer`)."""

from tbuda_lab.core.placer.interactive.board import (
    Coord,
    CoordRange,
    EpochInfo,
    GridShape,
    PlacedOp,
    PlacerOpOverride,
    PlacerSolution,
    Refusal,
)
from tbuda_lab.core.placer.interactive.engine import IncrementalPlacer
from tbuda_lab.core.placer.interactive.placed_ops import EpochFacts, PlacedOps
from tbuda_lab.core.placer.interactive.placer import InteractivePlacer

__all__ = [
    "Coord",
    "CoordRange",
    "EpochFacts",
    "EpochInfo",
    "GridShape",
    "IncrementalPlacer",
    "InteractivePlacer",
    "PlacedOp",
    "PlacedOps",
    "PlacerOpOverride",
    "PlacerSolution",
    "Refusal",
]
