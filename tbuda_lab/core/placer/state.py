"""What a placement is made from, and how far it is: what `steps` hand on to each other, and what comes out."""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.models import op_models
from tbuda_lab.core.balancer.types import Bounds, Objective, OpModels, Placement
from tbuda_lab.core.constraints import Constraints, resolve
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Cancelled, Diagnostic
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering.edits import edit
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.assemble import Parts
from tbuda_lab.core.placer.model.chip_stages import overhead
from tbuda_lab.core.placer.model.costs import CostCache
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.policies.layers import LayerEpochs
from tbuda_lab.core.placer.policies.op_runs import policy_cost
from tbuda_lab.core.placer.policies.portfolio import CutoffReached
from tbuda_lab.core.placer.search.large_neighbourhood import Curve

Progress = Callable[[float, str], None]


class ProgressCheck:
    """Reports progress, and stops when asked to."""

    def __init__(self, cancel: threading.Event | None = None, on_progress: Progress | None = None) -> None:
        self.cancel, self.on_progress = cancel, on_progress

    def __call__(self, fraction: float, what: str = "choosing epochs") -> None:
        if self.cancel is not None and self.cancel.is_set():
            raise Cancelled("placing was cancelled")
        if self.on_progress is not None:
            self.on_progress(min(1.0, fraction), what)


@dataclasses.dataclass(frozen=True)
class StartedPlacement:
    """A placement without overrides whose epochs are chosen and priced as far as they are asked for, so that it can be
    held against another one; all that may make it better still, and complete, is left to `place_and_repair`.

    policy: its full name; choose: gives all epochs, or raises `CutoffReached` once they are thought to cost the policy
    more than so much; choose_layer: see `Optimal.layer`.
    """

    problem: Problem
    policy: str
    choose: Callable[[float], Sequence[Segment]]
    choose_layer: Callable[[], LayerEpochs | None] = lambda: None

    @functools.cached_property
    def segments(self) -> tuple[Segment, ...]:
        """All epochs, in order. Raises `PlacementError` where an op fits none."""
        return tuple(self.choose(np.inf))

    def within(self, most: float) -> bool:
        """Whether the epochs are not thought to cost the policy more; if so they are there. Raises as `segments`
        does."""
        if "segments" not in self.__dict__:
            try:
                self.__dict__["segments"] = tuple(self.choose(most))  # as the cached property would
            except CutoffReached:
                return False
        return True

    @property
    def cost(self) -> float:
        """What the epochs cost the policy: the time that they take, and the weighed cycles of their kernels."""
        problem = self.problem
        return sum(problem.share(s.first) * policy_cost(s) + overhead(problem, s.first, s.last) for s in self.segments)

    @functools.cached_property
    def layer(self) -> LayerEpochs | None:
        """Epochs of equal layers, None where there are none that stand for the rest. Raises as `segments` does."""
        return self.choose_layer()


@dataclasses.dataclass(frozen=True)
class SearchWatch:
    """Who follows a search that goes on from a placement. found: called with (steps done, cycles per input, outcome)
    after every gain; outcome() makes the whole placement of it. Once `enough` is set, the search ends at its next step
    with what it has found: what that is depends on when, so such a search is limited by time."""

    found: Callable[[int, float, Callable[[], Outcome]], None]
    enough: threading.Event


@dataclasses.dataclass(frozen=True)
class PlaceContext:
    """What a lowered graph is placed with. models: of `op_models` for the same graph and constraints. costs: of other
    problems of this device with these options. check: hears how far it is. begun: of `begin` for this graph, where
    nothing is asked. gained: hears of every gain of a search, with the steps done and what it came to; enough: whether
    it is to end. on_one_chip: whether one of several chips takes all ops. unedited: of a context that `edited` made the
    one before all edits."""

    graph: Graph
    models: Mapping[str, OpModels]
    device: DeviceSpec
    options: CompileOptions
    constraints: Constraints
    costs: CostCache
    check: ProgressCheck
    begun: StartedPlacement | None = None
    gained: Callable[[int, float, PlacementState], None] = lambda steps, cycles, state: None
    enough: Callable[[], bool] = lambda: False
    on_one_chip: bool = False
    unedited: PlaceContext | None = None

    @classmethod
    def of(
        cls, graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override] = ()
    ) -> PlaceContext:
        """What overrides leave of the candidates. Raises what `op_models` raises."""
        constraints = resolve(overrides, graph, device, options).checked()
        models = op_models(graph, device, options, constraints.choices)
        return cls(graph, models, device, options, constraints, CostCache(device, options), ProgressCheck())

    def edited(self, edits: Sequence[Override], more: Sequence[Override] = ()) -> PlaceContext:
        """With nops and queues inserted, and with more asked of the ops. Raises what `edit` and `op_models` raise."""
        graph = edit(self.graph, self.device, self.options, edits).graph
        constraints = resolve((*self.constraints.records, *more), graph, self.device, self.options).checked()
        models = op_models(graph, self.device, self.options, constraints.choices)
        unedited = self.unedited or self
        return dataclasses.replace(
            self, graph=graph, models=models, constraints=constraints, begun=None, unedited=unedited
        )


@dataclasses.dataclass(frozen=True)
class PlacementState:
    """Epochs as far as they are decided. context: of the graph with what its ops need to fit epochs and chips at all;
    plain: its problem; needed: how many of the first edits that takes. edits: what was inserted into the graph that was
    asked for, which is in the graph of `problem`. notes: what there is to say of it. curve: of the search."""

    context: PlaceContext
    plain: Problem
    needed: int
    problem: Problem
    segments: tuple[Segment, ...]
    policy: str
    edits: tuple[Override, ...] = ()
    notes: tuple[Diagnostic, ...] = ()
    curve: Curve = ()

    def with_epochs(
        self,
        problem: Problem,
        segments: Sequence[Segment],
        edits: Sequence[Override] = (),
        notes: Sequence[Diagnostic] = (),
    ) -> PlacementState:
        """With other epochs, for which more was inserted."""
        return dataclasses.replace(
            self, problem=problem, segments=tuple(segments), edits=(*self.edits, *edits), notes=(*self.notes, *notes)
        )


@dataclasses.dataclass(frozen=True)
class Decisions:
    """What the placer decided, of which the rest of a placement follows: its epochs, the name of its policy, what it
    has to say, and the value, the curve of the search and the bounds for the report (None: worked out for it). needed:
    how many of the first edits ops need to fit epochs and chips at all: bounds are of the graph with these."""

    segments: tuple[Segment, ...]
    policy: str
    notes: tuple[Diagnostic, ...] = ()
    objective: Objective | None = None
    curve: Curve = ()
    bounds: Bounds | None = None
    needed: int = 0


@dataclasses.dataclass(frozen=True)
class Outcome:
    """A placement of `graph`: the graph that was asked for, or one with `edits` (nops and queues) where they paid.
    `problem`: what was asked on the way, `parts`: what its epochs contribute, with everything that edits of the
    placement can use again. `decisions`: the decisions; see `placer.record`."""

    graph: Graph
    placement: Placement
    edits: tuple[Override, ...]
    problem: Problem
    decisions: Decisions
    parts: Parts = dataclasses.field(default_factory=Parts)
