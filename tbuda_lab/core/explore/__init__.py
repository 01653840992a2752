"""Which device, how many chips, which batch and formats: many compiles of one model, kept in one file.

A trial needs the traced graph without its weights, so it may run anywhere; only this process writes. See
`docs/explore.md`.
"""

from tbuda_lab.core.explore.devices import parse_device
from tbuda_lab.core.explore.exploration import (
    Exploration,
    Plan,
    PointChange,
    Progress,
    check,
    effects,
    front,
    has_crash,
    holding,
    plan_of,
)
from tbuda_lab.core.explore.numbers import NUMBERS
from tbuda_lab.core.explore.space import (
    Objective,
    Requirement,
    Space,
    make_space,
    parse_objective,
    parse_requirement,
)
from tbuda_lab.core.explore.store import read, read_placement, without_times
from tbuda_lab.core.explore.trial import Trial

__all__ = [
    "NUMBERS",
    "Exploration",
    "Objective",
    "Plan",
    "PointChange",
    "Progress",
    "Requirement",
    "Space",
    "Trial",
    "check",
    "effects",
    "front",
    "has_crash",
    "holding",
    "make_space",
    "parse_device",
    "parse_objective",
    "parse_requirement",
    "plan_of",
    "read",
    "read_placement",
    "without_times",
]
