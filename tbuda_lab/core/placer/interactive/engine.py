"""Edits placed into the epochs that there are: what no edit touches stays where it is.

An `IncrementalPlacer` is the placement of a whole model. `with_constraints` places the difference between what was
asked then and what is asked now: an epoch with a touched op is made again, the rest is taken over. It is a function of
the whole placement and what is asked, not of the order in which edits were made, so that undo, replay and a second
session come to the same result. A session drives it; so may a script (`place`, then `edit`).
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Collection, Hashable, Mapping, Sequence

from tbuda_lab.core.balancer.models import op_models
from tbuda_lab.core.balancer.types import Bounds, OpModels
from tbuda_lab.core.constraints import Constraints, resolve
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Cancelled, PlacementError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override, frozen
from tbuda_lab.core.placer.interactive.carry import CarryResult, carry, regraph
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps, placed_as
from tbuda_lab.core.placer.interactive.replacement import EpochReplacement
from tbuda_lab.core.placer.model.bounds import carry_runs
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import constrain_order
from tbuda_lab.core.placer.model.segment import Segment, choose_rows
from tbuda_lab.core.placer.place import place_and_repair
from tbuda_lab.core.placer.state import Outcome
from tbuda_lab.core.placer.validate import chip_breaks, refuse_pins


class IncrementalPlacer:
    """A whole model placed, and the edits of it. outcome: of `place_and_repair` with these constraints."""

    def __init__(
        self,
        device: DeviceSpec,
        constraints: Constraints,
        outcome: Outcome,
    ) -> None:
        self.device, self.constraints = device, constraints
        self.graph, self.edits = outcome.graph, outcome.edits
        self._parts = outcome.parts
        self._whole = placed_as(outcome)
        self._replaced: dict[Hashable, list[Segment]] = {}
        self.new_epochs = 0  # epochs that edits placed again
        self._carried: tuple[tuple[str, ...], CarryResult] | None = None

    @classmethod
    def place(
        cls, graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: tuple[Override, ...] = ()
    ) -> IncrementalPlacer:
        """Places a lowered graph to edit it. Raises what `place_and_repair` raises."""
        constraints = resolve(overrides, graph, device, options).checked()
        models = op_models(graph, device, options, constraints.choices)
        return cls(device, constraints, place_and_repair(graph, models, device, options, constraints))

    def edit(self, overrides: tuple[Override, ...], cancel: threading.Event | None = None) -> PlacedOps | None:
        """`with_constraints`, with what these overrides leave. They may be what somebody placed by hand
        asks for (`InteractivePlacer.as_overrides`)."""
        options = self._whole.problem.options
        constraints = resolve(overrides, self.graph, self.device, options)
        models = op_models(self.graph, self.device, options, constraints.checked().choices)
        return self.with_constraints(models, constraints, cancel)

    def whole(self) -> PlacedOps:
        """The placement itself."""
        return self._whole

    def with_constraints(
        self, models: Mapping[str, OpModels], constraints: Constraints, cancel: threading.Event | None = None
    ) -> PlacedOps | None:
        """The placement with these constraints instead; None where the edit needs the whole model placed anew (it moves
        ops between chips, or an op fits nowhere near). Raises `OverrideError` for a pin that cannot be honoured."""
        whole = self.whole()
        order = constrain_order(self.graph, whole.problem.order, constraints.checked())
        carried_over = CarryResult(whole.problem, whole.segments, whole.chips)
        if order != whole.problem.order:
            carried_over = self._resequence(order)
        base, segments_now, chips_now, resorted, remade = carried_over
        refuse_pins(models, self.device, constraints)
        problem = base.with_candidates(models, constraints)
        if self._other_chips(problem) or (order != whole.problem.order and len(self.device.chips) > 1):
            return None
        ops = range(len(problem.order))
        retabled = {op for op in ops if base.tables[op].signature != problem.tables[op].signature}
        changed = (
            retabled
            | {op for op, name in enumerate(problem.order) if base.pins.get(name) != problem.pins.get(name)}
            | resorted
        )
        problem.refusals.update(
            {(a, b): why for (a, b), why in base.refusals.items() if not any(a <= op < b for op in changed)}
        )
        added = {problem.number[n] for n in problem.breaks - base.breaks}
        removed = {problem.number[n] for n in base.breaks - problem.breaks}
        cut = remade | {i for i, s in enumerate(segments_now) if any(op in added for op in range(s.first + 1, s.last))}
        again = _Replacements(problem, changed, retabled, cut, removed, self._replaced)
        edited = again.run(segments_now, chips_now, cancel)
        self.new_epochs += again.new_epochs
        if edited is None:
            return None
        if base is not whole.problem or len(self.device.chips) > 1:
            # another order numbers the ops otherwise; on several chips one epoch more moves others to another time
            return PlacedOps(problem, *edited, whole.policy, parts=self._parts)
        return PlacedOps(
            problem,
            *edited,
            whole.policy,
            parts=self._parts,
            limits=lambda: self._limits(constraints),
            base=whole,
        )

    def regraph(
        self,
        graph: Graph,
        models: Mapping[str, OpModels],
        constraints: Constraints,
        cancel: threading.Event | None = None,
    ) -> IncrementalPlacer | None:
        """The whole placement of an edited copy of its graph, with these constraints: its own and the edits. None where
        the whole model has to be placed anew. Raises what `with_constraints` raises."""
        whole = self.whole()
        now = regraph(whole.problem, whole.segments, graph, models)
        order = now.problem.order
        refuse_pins(models, self.device, constraints)
        problem = now.problem.with_candidates(models, constraints)
        if constrain_order(graph, order, constraints.checked()) != order or problem.breaks != whole.problem.breaks:
            return None
        if self._other_chips(problem):
            return None
        carry_runs(problem, whole.problem, now.changed_epochs)
        again = _Replacements(problem, set(now.changed_epochs), set(now.anew), set(now.remade), set(), {})
        placement = again.run(now.segments, whole.chips, cancel)
        self.new_epochs += again.new_epochs
        if placement is None:
            return None
        # a nop and a queue take nothing away: bounds hold as long as the ops have the candidates they had
        same = all(models[name].signature == table.signature for name, table in whole.problem.models.items())
        limits = (lambda: self._limits(constraints)) if same else (lambda: None)
        placer = copy.copy(self)
        placer.constraints, placer.graph = constraints, graph
        placer._whole = PlacedOps(problem, *placement, whole.policy, parts=self._parts, limits=limits)
        placer._replaced, placer._carried, placer.new_epochs = {}, None, 0
        return placer

    def _resequence(self, order: tuple[str, ...]) -> CarryResult:
        """`carry` for an order, kept for the edits that follow."""
        if self._carried is None or self._carried[0] != order:
            whole = self.whole()
            self._carried = order, carry(whole.problem, whole.segments, whole.chips, order)
            self._replaced = {}
        return self._carried[1]

    def _other_chips(self, problem: Problem) -> bool:
        """Whether its constraints send ops to other chips than they are on, or no longer keep some where they are."""
        if len(self.device.chips) == 1:
            return False
        whole = self._whole
        if chip_breaks(problem.order, self.device, problem.constraints) != whole.problem.chip_breaks:
            return True
        before, after = ({n: p.chip for n, p in q.pins.items() if p.chip is not None} for q in (whole.problem, problem))
        where = {
            name: chip
            for segment, chip in zip(whole.segments, whole.chips, strict=True)
            for name in whole.problem.order[segment.first : segment.last]
        }
        return not before.items() <= after.items() or any(where.get(name, chip) != chip for name, chip in after.items())

    def _limits(self, constraints: Constraints) -> Bounds | None:
        """Bounds of the whole placement: what is asked beside its constraints only takes candidates away, and no
        placement becomes faster by that. None where some of them are gone."""
        report = self._whole.placement().report
        keep = set(frozen(self.constraints.records)) <= set(frozen(constraints.records))
        return report.bounds if report is not None and keep else None


class _Replacements:
    """Makes epochs again where they have to be. changed: ops whose candidates, pins or neighbours changed; retabled:
    those with other candidates; remade: epochs (indices) to make again in any case; removed: first ops of epochs that
    begin no epoch of their own any more; by_key: what came out before, added to."""

    def __init__(
        self,
        problem: Problem,
        changed: set[int],
        retabled: set[int],
        remade: Collection[int],
        removed: set[int],
        by_key: dict[Hashable, list[Segment]],
    ) -> None:
        self.problem, self.changed, self.retabled, self.remade = problem, changed, retabled, remade
        self.removed, self.by_key = removed, by_key
        self.new_epochs = 0

    def run(
        self, before: Sequence[Segment], before_chips: Sequence[int], cancel: threading.Event | None
    ) -> tuple[list[Segment], list[int]] | None:
        """(epochs, their chips), or None where an op fits nowhere near."""
        problem, changed = self.problem, self.changed
        upstream_rows: dict[int, int] = {}
        segments: list[Segment] = []
        chips: list[int] = []
        moved: set[int] = set()
        index = 0
        while index < len(before):
            if cancel is not None and cancel.is_set():
                raise Cancelled("placing was cancelled")
            old = [before[index]]
            while index + len(old) < len(before) and before[index + len(old)].first in self.removed:
                old.append(before[index + len(old)])
            span = range(old[0].first, old[-1].last)
            touched = len(old) > 1 or index in self.remade or any(op in changed for op in span)
            if not touched and self._still_legal(problem, old[0], upstream_rows, moved):
                parts = old
            else:
                try:
                    parts = self._replace(problem, old, changed, self.retabled, upstream_rows)
                except PlacementError:
                    return None
            segments += parts
            chips += [before_chips[index]] * len(parts)
            rows_before = dict(zip(span, (r for s in old for r in s.rows), strict=True))
            for part in parts:
                rows = dict(zip(range(part.first, part.last), part.rows, strict=True))
                moved |= {op for op, row in rows.items() if op in changed or row != rows_before[op]}
                upstream_rows.update(rows)
            index += len(old)
        return segments, chips

    def _still_legal(
        self, problem: Problem, segment: Segment, upstream_rows: Mapping[int, int], moved: set[int]
    ) -> bool:
        """Whether an untouched epoch may read the queues of ops that changed."""
        span = range(segment.first, segment.last)
        if not any(p in moved for op in span for p in problem.facts[op].producers if p < segment.first):
            return True
        rows = dict(zip(span, segment.rows, strict=True))
        checked, _ = choose_rows(problem, segment.first, segment.last, rows, 0, float("inf"), upstream_rows)
        return checked == rows

    def _replace(
        self,
        problem: Problem,
        old: Sequence[Segment],
        changed: set[int],
        retabled: set[int],
        upstream_rows: Mapping[int, int],
    ) -> list[Segment]:
        first, last = old[0].first, old[-1].last
        span = range(first, last)
        key = (
            problem.order[first:last],
            first,
            last,
            len(old),
            tuple(problem.tables[op].signature for op in span),
            tuple(problem.pins.get(problem.order[op]) for op in span),
            tuple(problem.order[op] in problem.breaks for op in span),
            tuple(upstream_rows.get(p) for op in span for p in problem.facts[op].producers if 0 <= p < first),
        )
        entry = self.by_key.get(key)
        if entry is None:
            self.new_epochs += 1
            entry = EpochReplacement(problem, old, changed, retabled, upstream_rows).run()
            self.by_key[key] = entry
        return entry
