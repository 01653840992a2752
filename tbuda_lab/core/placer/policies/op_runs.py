"""What `Optimal` knows of a run of ops, from its bound to what became of it."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.balancer.edges import EdgeReason
from tbuda_lab.core.placer.model.edge_compatibility import refusal_text
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment


@dataclasses.dataclass
class Bound:
    """stall_cycles: the part of the cost that filling and forks make."""

    cost: float
    level: int
    target: int
    stall_cycles: float = 0.0


@dataclasses.dataclass(frozen=True)
class Guess:
    """By how much runs turn out to cost more than their bound says, and than they did when they were placed."""

    bound: float
    placed: float


@dataclasses.dataclass(frozen=True)
class RunRefusal:
    """Why a run is no epoch; `producer` and `consumer` are counted from the first op of the run."""

    reason: str
    producer: int | None = None
    consumer: int = 0

    def text(self, problem: Problem, first: int) -> str:
        if self.producer is None:
            return self.reason
        return refusal_text(problem, first + self.producer, first + self.consumer, EdgeReason(self.reason))


@dataclasses.dataclass(frozen=True)
class Attempt:
    """What came of a run at one target: it holds for every run of the same structure."""

    segment: Segment | None
    why: RunRefusal | None

    def at(self, first: int, last: int) -> Segment | None:
        return None if self.segment is None else dataclasses.replace(self.segment, first=first, last=last)
