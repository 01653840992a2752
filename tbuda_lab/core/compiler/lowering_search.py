"""Search over how a model is lowered: other ops for the same model, where their epochs take less time.

Rules of the lowering decide into how many ops a convolution or a pair of matmuls goes, how many tile rows stand in the
padding, whether sums join chains of element-wise ops. They look at one op; what they cost depends on what else is in an
epoch. A picker that no shape makes faster sets the pace of an epoch in which most cores wait: in two parts it does not.
A trial changes some of these options (`op_parts`, `op_rows`, `fuse_reduces`), lowers the model again and chooses its
epochs; what is cheapest by them is the start of the next trials. What a placement gains after its epochs are chosen
does not enter.

Trials follow from the model and the options alone. What they find is told as options, so a compile with these options
comes to the same ops without a search.
"""

from __future__ import annotations

import collections
import dataclasses
import itertools
import math
import time
from collections.abc import Iterable, Iterator, Mapping

from tbuda_lab.core import ops
from tbuda_lab.core.compiler.pipeline import FrontEndResult, Pipeline
from tbuda_lab.core.compiler.request import Clock, Request
from tbuda_lab.core.errors import OverrideError, PlacementError, UnsupportedOp
from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.grow import heights
from tbuda_lab.core.lowering.hw_ops import tile_shape
from tbuda_lab.core.lowering.split import parts_allowed, split_pairs, split_parts
from tbuda_lab.core.lowering.values import tiles_of
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer import StartedPlacement, outcome_of
from tbuda_lab.core.placer.fusing import cycles, has_undecided_groups
from tbuda_lab.core.placer.model.problem import Problem, structure_digest
from tbuda_lab.core.placer.model.segment import Segment, measure
from tbuda_lab.core.placer.policies import policy

TRIALS = 32
"""How often a search lowers a model and chooses its epochs."""
_SLACKS = (1.3, 1.15, 1.05)
"""Times the cycles that an epoch would take if its work were shared out evenly: ops that no shape makes faster than
that, and that hold the epoch up, are cut."""
_SLOW = 0.9
"""Of the slowest op of an epoch, from which on an op holds it up."""
_PARTS_OF_PAIRS = (2, 3, 4)
_NEAR = 1.05
"""Up to how many times their number rows are padded so that many grids divide them."""
_LESS = 1e-4
"""Part of its cycles by which a trial has to be cheaper."""


@dataclasses.dataclass(frozen=True)
class _Trial:
    """A model lowered with some options, with its epochs and the cycles per input that they take."""

    options: CompileOptions
    front: FrontEndResult
    start: StartedPlacement
    cycles: float

    @property
    def parts(self) -> dict[str, int]:
        """By op, into how many parts it goes, if it may go into several."""
        graph, device = self.front.passed, self.start.problem.device
        pairs = {name: pair.parts for name, pair in split_pairs(graph, device, self.options).items()}
        return dict.fromkeys(parts_allowed(graph), 1) | split_parts(graph, device, self.options) | pairs


@dataclasses.dataclass(frozen=True)
class _Rows:
    """Ops that have `least` tile rows without padding; others: the numbers up to which they may be padded that most
    grids divide, and that leave the fewest cores idle."""

    names: tuple[str, ...]
    least: int
    others: tuple[int, ...]


def search_lowering(
    pipeline: Pipeline, graph: Graph, request: Request, clock: Clock, seconds: float | None = None, trials: int = TRIALS
) -> CompileOptions:
    """The options of a request with those changes of the lowering whose epochs are cheapest; the very same ones where
    none is. seconds: that all trials may take; trials: how many there may be, up to `TRIALS`. Ops that overrides
    address stay as they are. Training and several chips are left alone, as are other policies than `Optimal`.

    Raises what compiling the request raises.
    """
    options = request.options
    several = len(pipeline.device.chips) > 1
    if several or options.training is not None or policy(options.balancer_policy)[0] != "Optimal":
        return options
    return _Search(pipeline, graph, request, clock, seconds, min(trials, TRIALS)).run()


class _Search:
    def __init__(
        self, pipeline: Pipeline, graph: Graph, request: Request, clock: Clock, seconds: float | None, trials: int
    ) -> None:
        self.pipeline, self.graph, self.request, self.clock = pipeline, graph, request, clock
        start = time.monotonic()
        self.deadline = math.inf if seconds is None else start + seconds
        self.trials, self.count = trials, 0
        front = self.front(request.options)
        self.tried, self.lowered = {request.options}, {structure_digest(front.lowered)}
        self.addressed = self._override_targets(front)
        first = self._trial(request.options, front)
        assert first is not None
        self.best = first
        self.padded = self._row_paddings()
        self.longest = time.monotonic() - start

    def run(self) -> CompileOptions:
        changes = (self._sums, self._slow, self._rows, self._pairs, self._alike)
        while not self.over:
            before = self.best
            for options in itertools.chain.from_iterable(change() for change in changes):
                if self.over:
                    break
                candidate = self.trial(options)
                if candidate is not None and candidate.cycles < (1.0 - _LESS) * self.best.cycles:
                    self.best = candidate
                    self._tell(candidate)
                self.pipeline.start_placement(self.best.front, self.best.options, self.clock)  # is kept: used last
            if self.best is before:
                break
        return self.best.options

    def _tell(self, best: _Trial) -> None:
        """Who follows the search hears of a lowering whose epochs are cheaper, before the first step. Not with
        overrides: of these the epochs of a trial know nothing."""
        if self.clock.watch is not None and not self.request.overrides:
            self.clock.watch.found(0, best.cycles, lambda: outcome_of(best.start))

    @property
    def over(self) -> bool:
        if self.clock.watch is not None and self.clock.watch.enough.is_set():
            return True
        return self.count >= self.trials or time.monotonic() + self.longest > self.deadline

    def trial(self, options: CompileOptions) -> _Trial | None:
        """The model lowered with these options and its epochs; None where that was tried, is not possible, or makes
        another op of one that an override addresses."""
        if options in self.tried:
            return None
        self.tried.add(options)
        start = time.monotonic()
        try:
            best = self.best
            ends = best.front.fusion.ends if best.front.fusion is not None else ()
            lowered = lower(best.front.passed, self.pipeline.device, options, ends=ends)
            digest = structure_digest(lowered)
            if digest in self.lowered:
                return None
            self.lowered.add(digest)
            self.count += 1
            as_before = options.fuse_reduces == best.options.fuse_reduces and not self.request.overrides
            if as_before and has_undecided_groups(
                lowered, self.pipeline.device, options
            ):  # first as if no other ops were fused
                front = FrontEndResult((options, "trial"), best.front.passed, lowered)
                if self._trial(options, front, best.start.cost) is None:
                    return None
            front = self.front(options)
            if self._override_targets(front).items() >= self.addressed.items():
                return self._trial(options, front, best.start.cost)
        except (OverrideError, PlacementError, UnsupportedOp):
            pass
        finally:
            self.longest = max(self.longest, time.monotonic() - start)
        return None

    def front(self, options: CompileOptions) -> FrontEndResult:
        return self.pipeline.front(self.graph, dataclasses.replace(self.request, options=options), self.clock)

    def _trial(self, options: CompileOptions, front: FrontEndResult, most: float = math.inf) -> _Trial | None:
        """A model with its epochs, None where they are thought to cost the policy more than `most`."""
        begun = self.pipeline.start_placement(front, options, self.clock)
        return _Trial(options, front, begun, cycles(begun)) if begun.within(most) else None

    def _override_targets(self, front: FrontEndResult) -> dict[str, str]:
        """By op that an override addresses, what decides its candidates."""
        signatures = self.pipeline.signatures(front, self.request.options)
        names = {name for record in self.request.overrides for name in record.matches(signatures)}
        return {name: signatures[name] for name in names}

    # -- what may be changed, one after the other -------------------------------------------------------------------
    def _sums(self) -> Iterator[CompileOptions]:
        """Sums join chains of element-wise ops, or do not."""
        yield dataclasses.replace(self.best.options, fuse_reduces=not self.best.options.fuse_reduces)

    def _rows(self) -> Iterator[CompileOptions]:
        """All rows stay without padding; or those of one number of tiles have another number."""
        yield self._with_rows({name: rows.least for rows in self.padded for name in rows.names})
        for rows in self.padded:
            for height in dict.fromkeys((*rows.others, rows.least)):
                yield self._with_rows(dict.fromkeys(rows.names, height))

    def _with_rows(self, rows: Mapping[str, int]) -> CompileOptions:
        options = self.best.options
        return dataclasses.replace(options, op_rows=tuple(sorted({**dict(options.op_rows), **rows}.items())))

    def _row_paddings(self) -> list[_Rows]:
        """Rows that are padded."""
        graph = self.best.front.lowered
        sizes = collections.defaultdict[tuple[int, int], list[Node]](list)
        for node in graph.ops:
            if "rows" in node.attrs and node.attrs.get("source") == node.name:  # others need not be there in parts
                sizes[tiles_of(node.attrs["rows"]), tile_shape(node.shape)[1]].append(node)
        device, paddings = self.pipeline.device, list[_Rows]()
        for (least, _), nodes in sorted(sizes.items()):
            numbers = heights(least, nodes, graph, device)
            near = [n for n in numbers if n <= max(least + 1, _NEAR * least)]
            even = max(near, key=lambda n: (sum(n % rows == 0 for rows in range(2, device.rows + 1)), -n))
            paddings.append(_Rows(tuple(node.name for node in nodes), least, (even, numbers[0])))
        return paddings

    def _slow(self) -> Iterator[CompileOptions]:
        """All ops that hold their epochs up whatever their shape are cut."""
        for slack in _SLACKS:
            if slow := self._slow_ops(slack):
                yield self._with_parts(slow)

    def _pairs(self) -> Iterator[CompileOptions]:
        """Pairs of matmuls that are alike are cut."""
        allowed, graph = parts_allowed(self.best.front.passed), self.best.front.passed
        pairs = [name for name in allowed if isinstance(graph[name].op, ops.Matmul)]
        for alike, parts in itertools.product(self._groups(pairs), _PARTS_OF_PAIRS):
            if parts in allowed[alike[0]]:
                yield self._with_parts(dict.fromkeys(alike, parts))

    def _alike(self) -> Iterator[CompileOptions]:
        """Slow ops that are alike are cut into a part more; ops in parts into one less."""
        best, slow = self.best, self._slow_ops(_SLACKS[-1])
        for alike in self._groups(slow):
            yield self._with_parts({name: slow[name] for name in alike})
        asked = dict(best.options.op_parts)
        for alike in self._groups([name for name, parts in asked.items() if parts > 1]):
            yield self._with_parts({name: asked[name] - 1 for name in alike})

    def _with_parts(self, parts: Mapping[str, int]) -> CompileOptions:
        options = self.best.options
        return dataclasses.replace(options, op_parts=tuple(sorted({**dict(options.op_parts), **parts}.items())))

    def _groups(self, names: Iterable[str]) -> list[list[str]]:
        """Ops of the model that are alike, together."""
        graph, groups = self.best.front.passed, collections.defaultdict(list)
        for name in names:
            node = graph[name]
            groups[repr(node.op), *(graph[source].shape for source in node.sources)].append(name)
        return list(groups.values())

    def _slow_ops(self, slack: float) -> dict[str, int]:
        """Ops of the model that hold an epoch up, each with the number of parts in which it would not."""
        best, parts_of = self.best, dict[str, int]()
        allowed, parts, graph = parts_allowed(best.front.passed), best.parts, best.front.lowered
        for segment in best.start.segments:
            for op, times in _slow_shapes(best.start.problem, segment, slack).items():
                name = graph[best.start.problem.order[op]].attrs.get("source", "")
                most = max(parts.get(name, 1) + 1, math.ceil(parts.get(name, 1) * times))
                numbers = [n for n in allowed.get(name, ()) if parts[name] < n <= most]
                if numbers:
                    parts_of[name] = max(parts_of.get(name, 0), numbers[-1])
        return parts_of


def _slow_shapes(problem: Problem, segment: Segment, slack: float) -> dict[int, float]:
    """By op that holds an epoch up and that no shape makes faster than `slack` times an even share of all work: the
    kernel cycles of its fastest shape over that."""
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    load = measure(problem, segment.first, segment.last, rows)[2]
    tables = {op: problem.tables[op] for op in rows}
    work = sum(
        float(table.rows["cycles"][rows[op]]) * float(table.rows["cores"][rows[op]]) for op, table in tables.items()
    )
    share = slack * work / problem.cores
    slow: dict[int, float] = {}
    for op, table in tables.items():
        fastest = float(table.rows["cycles"][problem.legal[table.signature]].min())
        limits = problem.row_limits(op, *problem.places(op, segment.first, segment.last), load)
        if fastest > share and limits[rows[op]] > _SLOW * segment.limiter_cycles:
            slow[op] = fastest / share
    return slow
