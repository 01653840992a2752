"""Schedule, epochs, rectangles, queues and addresses."""

from tbuda_lab.core.placer.assemble import Before, Parts, assemble, place_queues, plan_queues, rectangles
from tbuda_lab.core.placer.fusing import Fusion, Pattern, decide
from tbuda_lab.core.placer.interactive import InteractivePlacer
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.place import begin, outcome_of, place_and_repair
from tbuda_lab.core.placer.policies import POLICIES
from tbuda_lab.core.placer.state import Outcome, PlaceContext, SearchWatch, StartedPlacement
from tbuda_lab.core.placer.steps import STEPS, choose_epochs
from tbuda_lab.core.placer.validate import refuse_impossible, refuse_unknown
from tbuda_lab.core.placer.why import Explanation, WhyNot, legal_grids, why, why_not

__all__ = [
    "POLICIES",
    "STEPS",
    "Before",
    "Explanation",
    "Fusion",
    "InteractivePlacer",
    "Outcome",
    "Parts",
    "Pattern",
    "PlaceContext",
    "Problem",
    "SearchWatch",
    "StartedPlacement",
    "WhyNot",
    "assemble",
    "begin",
    "choose_epochs",
    "decide",
    "legal_grids",
    "outcome_of",
    "place_and_repair",
    "place_queues",
    "plan_queues",
    "rectangles",
    "refuse_impossible",
    "refuse_unknown",
    "why",
    "why_not",
]
