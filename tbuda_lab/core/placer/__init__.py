"""Schedule, epochs, rectangles, queues and addresses."""

from tbuda_lab.core.placer.interactive import InteractivePlacer
from tbuda_lab.core.placer.place import balance_and_place, place
from tbuda_lab.core.placer.policies import POLICIES
from tbuda_lab.core.placer.why import Why, legal_grids, why

__all__ = ["POLICIES", "InteractivePlacer", "Why", "balance_and_place", "legal_grids", "place", "why"]
