"""Which element-wise ops run as one, priced: groups of one signature share a decision, so that layers pay once.

`lowering.fuse` makes one op of every chain it may. That never costs core-cycles, and arithmetic on a value that waits
in dest takes half; but where a value goes on into an op that gains nothing from dest (an exponential, say), one long op
stands where two short ones might run side by side, and an epoch may wait for it. No local price tells which is better:
it depends on what else is in the epoch. So such groups, if they are a large part of the epochs that wait for kernels,
are cut and epochs are chosen again; those with fewer cycles, switches included, are kept and made a placement. Where
the model is mostly equal layers, the epochs of these are chosen both ways, and those of the whole model only if a layer
takes nearly the same. What a placement gains after its epochs are chosen does not enter the decision.

The decision follows from the passed graph and the options that passes and lowering read, never from overrides or from
how long anything takes: an edit does not change what is fused.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.balancer.enumerate import candidates
from tbuda_lab.core.balancer.profile import Operand, OpProfile, profile_of
from tbuda_lab.core.balancer.types import Reason
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import InputError, OverrideError, PlacementError
from tbuda_lab.core.graph import Graph, Node, TileShape
from tbuda_lab.core.graph.phases import phases
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.fused_steps import plan, steps_without_gain
from tbuda_lab.core.lowering.hw_ops import HwFused, HwMatmul
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer.model.chip_stages import epoch_cost
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, measure
from tbuda_lab.core.placer.policies.layers import LayerEpochs
from tbuda_lab.core.placer.record import RecordReader, number, rows_of, whole
from tbuda_lab.core.placer.state import StartedPlacement

MAX_TRIALS = 2
"""How often epochs are chosen for the whole model again, with groups cut."""
MAX_OPS = 1500
"""For a larger graph they are not."""
CLEAR = 0.01
"""By which part of its cycles a layer has to be faster one way for the rest of the model not to be looked at. Over the
layers of BERT-base and GPT-2 at batches 8 and 64 the difference was 2.7 % and more, and that of the whole model had the
same sign."""
LEAST_SHARE = 0.05
"""Groups that take less of all core-cycles of the epochs are not worth it."""


@dataclasses.dataclass(frozen=True)
class Pattern:
    """Fused ops of one signature and what was decided for them.

    ops: their names; members: every op inside, all groups in one list; steps: the types.
    as_one, apart: core-cycles per input of one of them, each at the legal shape with the fewest, and of its steps as
    ops of their own. ends: steps whose value gains nothing by staying inside, by number. trial_cycles: `cycles` of the
    whole model (as one op, cut), None where no epochs were chosen for it; of one of its equal layers where `by_layer`.
    share: what groups that may be cut take of all core-cycles, in epochs that wait for kernels and not for data.
    """

    ops: tuple[str, ...]
    members: tuple[str, ...]
    steps: tuple[str, ...]
    as_one: int
    apart: int
    ends: tuple[int, ...] = ()
    share: float = 0.0
    trial_cycles: tuple[int, int] | None = None
    cut: bool = False
    by_layer: bool = False

    @property
    def text(self) -> str:
        """Why they are fused, or not, with the numbers."""
        chain = " + ".join(self.steps)
        price = f"{self.as_one:,} core-cycles as one op, {self.apart:,} as {len(self.steps)}"
        count = f" ({len(self.ops)} alike)" if len(self.ops) > 1 else ""
        if not self.as_one:
            return f"{chain}{count}: cut: no shape of the whole op fits the cores"
        if self.trial_cycles is None:
            if not self.ends:
                return f"{chain}{count}: {price}; fused: every intermediate stays in dest"
            return (
                f"{chain}{count}: {price}; fused: with {self.share:.1%} of all core-cycles, in "
                "epochs bound by kernels, it is too small to price both ways"
            )
        fused, cut = (f"{n:,}" for n in self.trial_cycles)
        verdict = "cut" if self.cut else "fused"
        what = "a layer" if self.by_layer else "the model"
        return f"{chain}{count}: {price}; by its epochs {what} takes {fused} cycles with it, {cut} cut: {verdict}"


@dataclasses.dataclass(frozen=True)
class Fusion:
    """A lowered graph, which groups there are, and its epochs without overrides if they had to be chosen for that.
    ends: ops whose value leaves the fused op, as `lower` takes them."""

    lowered: Graph
    patterns: tuple[Pattern, ...] = ()
    ends: frozenset[str] = frozenset()
    start: StartedPlacement | None = None


def decide(
    passed: Graph,
    lowered: Graph,
    device: DeviceSpec,
    options: CompileOptions,
    begin: Callable[[Graph], StartedPlacement],
) -> Fusion:
    """What of `lowered`, which has all that may be fused, stays so. begin: `place.begin` of a graph, or what does the
    same."""
    patterns = _patterns(lowered, device, options)
    graph, ends = lowered, _too_large(lowered, patterns)
    if ends:
        graph = lower(passed, device, options, ends=ends)
    if not has_undecided_groups(graph, device, options):
        return Fusion(graph, patterns, ends)
    try:
        begun = begin(graph)
        shares = _shares(patterns, begun)
    except (PlacementError, OverrideError):  # the compile says so
        return Fusion(graph, patterns, ends)
    doubtful = [k for k, p in enumerate(shares) if p.share >= LEAST_SHARE and not begun.problem.is_long]
    for index in sorted(doubtful, key=lambda k: -shares[k].share)[:MAX_TRIALS]:
        more = ends | _cut_at(lowered, shares[index])
        cut = lower(passed, device, options, ends=more)
        try:
            trial = begin(cut)
            tried, better, by_layer = _compare(begun, trial)
            if better:
                trial.segments  # noqa: B018 - whether there are epochs for all of it
        except (PlacementError, OverrideError):
            continue
        shares[index] = dataclasses.replace(shares[index], trial_cycles=tried, cut=better, by_layer=by_layer)
        if better:
            graph, ends, begun = cut, more, trial
    return Fusion(graph, tuple(shares), ends, begun)


def _compare(begun: StartedPlacement, trial: StartedPlacement) -> tuple[tuple[int, int], bool, bool]:
    """What two placements take, whether the second takes less, and whether that is of one layer alone."""
    if begun.layer is not None and trial.layer is not None:
        first, second = _layer_time(begun.problem, begun.layer), _layer_time(trial.problem, trial.layer)
        if abs(first - second) > CLEAR * min(first, second):
            return (round(first), round(second)), second < first, True
    return (cycles(begun), cycles(trial)), cycles(trial) < cycles(begun) and _time(trial) <= _time(begun), False


def has_undecided_groups(lowered: Graph, device: DeviceSpec, options: CompileOptions) -> bool:
    """Whether there are groups for which epochs have to be chosen."""
    ops = list(lowered.ops)
    if options.op_names_manual_fuse or len(device.chips) > 1 or len(ops) > MAX_OPS:
        return False
    return any(isinstance(n.op, HwFused) and steps_without_gain(n.op, device.arch) for n in ops)


def cycles(begun: StartedPlacement) -> int:
    """What the epochs take per input: as they are priced, else limiter cycles and the batch's share of switches."""
    options = begun.problem.options
    if options.counts_fill:
        return round(_time(begun))
    switches = options.epoch_switch_cycles * len(begun.segments) / options.inputs_counted
    limiters = sum(begun.problem.share(s.first) * s.limiter_cycles for s in begun.segments)
    return round(limiters + switches)


def _time(begun: StartedPlacement) -> float:
    """The same with what full buffers cost."""
    return sum(epoch_cost(begun.problem, segment) for segment in begun.segments)


def _layer_time(problem: Problem, layer: LayerEpochs) -> float:
    """Cycles per input of one of the layers."""
    costs = [epoch_cost(problem, segment) for segment in layer.segments]
    return sum(cost * times for cost, times in zip(costs, layer.times, strict=True)) / layer.layers


def to_record(fusion: Fusion) -> dict[str, Any]:
    """What was decided, as JSON holds it."""
    decided = [[p.as_one, p.apart, p.share, p.trial_cycles, p.cut, p.by_layer] for p in fusion.patterns]
    return {"ends": sorted(fusion.ends), "patterns": decided}


def from_record(record: Any, passed: Graph, lowered: Graph, device: DeviceSpec, options: CompileOptions) -> Fusion:
    """What `decide` said of these graphs, without the epochs. Raises `InputError` for a record that is damaged or of
    other graphs."""
    read = RecordReader(record)
    ends = frozenset(read.texts("ends"))
    decided = rows_of(read.list("patterns"), 6)
    read_patterns = _patterns(lowered, device, options, [(whole(one), whole(apart)) for one, apart, *_ in decided])
    if len(read_patterns) != len(decided) or not ends <= {n for p in read_patterns for n in p.members}:
        raise InputError("a record of another graph")
    patterns = []
    for pattern, (_, _, share, tried, cut, by_layer) in zip(read_patterns, decided, strict=True):
        both = None if tried is None else (whole(rows_of([tried], 2)[0][0]), whole(tried[1]))
        for value in (cut, by_layer):
            if not isinstance(value, bool):
                raise InputError(f"a record with {value!r} where true or false belongs")
        patterns.append(
            dataclasses.replace(pattern, share=number(share), trial_cycles=both, cut=cut, by_layer=by_layer)
        )
    graph = lower(passed, device, options, ends=ends) if ends else lowered
    return Fusion(graph, tuple(patterns), ends)


def _too_large(lowered: Graph, patterns: Sequence[Pattern]) -> frozenset[str]:
    """Where to cut the groups with sums that have no legal shape as one op: after every sum, and before what reads a
    result of one tile at full length."""
    cuts: set[str] = set()
    for pattern in patterns:
        for name in pattern.ops if not pattern.as_one else ():
            node = lowered[name]
            assert isinstance(node.op, HwFused)
            steps = enumerate(plan(node.op, "wormhole_b0"))
            cut = {~node.op.steps[k][1][port] for k, step in steps for port in step.wide_operands} | set(node.op.sums)
            cuts.update(_step_names(node)[k] for k in cut)
    return frozenset(cuts)


def _step_names(node: Node) -> Sequence[str]:
    names: Sequence[str] = node.attrs.get("steps", node.attrs["fused"])
    return names


def _patterns(
    lowered: Graph,
    device: DeviceSpec,
    options: CompileOptions,
    prices: Sequence[tuple[int, int]] | None = None,
) -> tuple[Pattern, ...]:
    """The groups that there are. prices: `as_one` and `apart` of each, where they are known."""
    users, phase = lowered.users(), phases(lowered)
    groups: dict[str, tuple[OpProfile, list[Node]]] = {}
    for node in lowered.ops:
        if isinstance(node.op, HwFused):
            profile = profile_of(lowered, node, options, users, phase)
            groups.setdefault(profile.signature, (profile, []))[1].append(node)
    patterns = []
    for index, (profile, nodes) in enumerate(groups.values()):
        op = profile.op
        assert isinstance(op, HwFused)
        if prices is None:
            price = (
                _core_cycles(profile, device, options),
                sum(_core_cycles(p, device, options) for p in _steps(profile, op)),
            )
        else:
            price = prices[index] if index < len(prices) else (0, 0)
        patterns.append(
            Pattern(
                tuple(n.name for n in nodes),
                tuple(name for n in nodes for name in n.attrs["fused"]),
                tuple(fn for fn, _, _, _ in op.steps),
                *price,
                steps_without_gain(op, device.arch),
            )
        )
    return tuple(patterns)


def _steps(profile: OpProfile, op: HwFused) -> list[OpProfile]:
    """The steps as fused ops of one step, sums as matmuls, for the balancer to price."""
    spread = dict(op.spread)
    parts = []
    for k, (fn, refs, slope, exp) in enumerate(op.steps):
        out = _tiles(profile, op, k in op.narrow)
        operands = []
        for port, ref in enumerate(refs):
            at = out if k not in op.sums else _tiles(profile, op, False)
            intermediate = Operand("elt", "activation", at, at, (), profile.df)
            operand = profile.operands[ref] if ref >= 0 else intermediate
            operands.append(dataclasses.replace(operand, role=f"in{port}") if k in op.sums else operand)
        if k in op.sums:
            parts.append(
                dataclasses.replace(
                    profile,
                    kind="matmul",
                    op=HwMatmul(),
                    out=out,
                    operands=tuple(operands),
                    inner=op.length,
                    inner_run=op.length,
                )
            )
            continue
        alone = HwFused(((fn, tuple(range(len(refs))), slope, exp),), ((0, spread[k]),) if k in spread else ())
        parts.append(dataclasses.replace(profile, op=alone, out=out, operands=tuple(operands), inner=0))
    return parts


def _tiles(profile: OpProfile, op: HwFused, narrow: bool) -> TileShape:
    """(z, rt, ct) of a step of full length, or of one tile along the dimension that the op sums over."""
    sizes = list(profile.out)
    if op.dim:
        sizes[1 if op.dim == "r" else 2] = 1 if narrow else op.length
    z, rt, ct = sizes
    return z, rt, ct


def _core_cycles(profile: OpProfile, device: DeviceSpec, options: CompileOptions) -> int:
    rows = candidates(profile, device, options)
    rows = rows[rows["reason"] == Reason.LEGAL]
    return int((rows["cycles"].astype(np.int64) * rows["cores"]).min()) if len(rows) else 0


def _shares(patterns: Sequence[Pattern], begun: StartedPlacement) -> list[Pattern]:
    """The patterns with their part of all cores for as long as the epochs last, in epochs that wait for kernels: where
    DRAM sets the pace a shorter op ends no epoch sooner. Of equal layers the epochs of these are looked at."""
    problem, layer = begun.problem, begun.layer
    segments = begun.segments if layer is None else layer.segments
    times = (1,) * len(segments) if layer is None else layer.times
    whole = max(1, sum(n * s.limiter_cycles for s, n in zip(segments, times, strict=True)) * problem.cores)
    slow = {  # by the last step of a fused op
        problem.graph[op].attrs["fused"][-1]: n
        for s, n in zip(segments, times, strict=True)
        if _waits_for_kernel(problem, s)
        for op in problem.order[s.first : s.last]
        if "fused" in problem.graph[op].attrs
    }
    return [
        dataclasses.replace(p, share=p.as_one * sum(slow.get(op, 0) for op in p.members) / whole if p.ends else 0.0)
        for p in patterns
    ]


def _waits_for_kernel(problem: Problem, segment: Segment) -> bool:
    """Whether the slowest op of an epoch, the first of equal ones, is as slow as its kernel."""
    rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    load = measure(problem, segment.first, segment.last, rows)[2]
    limits = {
        op: float(problem.row_limits(op, *problem.places(op, segment.first, segment.last), load)[row])
        for op, row in rows.items()
    }
    slowest = max(limits, key=lambda op: (math.ceil(limits[op]), -op))
    return limits[slowest] <= float(problem.tables[slowest].rows["cycles"][rows[slowest]])


def _cut_at(lowered: Graph, pattern: Pattern) -> frozenset[str]:
    """The names of the steps after which the groups of a pattern are cut."""
    steps: set[str] = set()
    for name in pattern.ops:
        node = lowered[name]
        assert isinstance(node.op, HwFused)
        steps.update(_step_names(node)[k] for k in pattern.ends)
    return frozenset(steps)
