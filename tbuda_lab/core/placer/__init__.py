"""Schedule, epochs, rectangles, queues and addresses."""

from tbuda_lab.core.placer.place import balance_and_place, place
from tbuda_lab.core.placer.policies import POLICIES

__all__ = ["POLICIES", "balance_and_place", "place"]
