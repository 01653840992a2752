"""Which element-wise ops run as one, priced: groups of one signature share a decision, so that layers pay once.

`lowering.fuse` makes one op of every chain it may. That never costs core-cycles, and arithmetic on a value that waits
in dest takes half; but where a value goes on into an op that gains nothing from dest (an exponential, say), one long op
stands where two short ones might run side by side, and an epoch may wait for it. No local price tells which is better:
it depends on what else is in the epoch. So such groups, if they are a large part of the epochs that wait for kernels,
are cut and the whole model is placed again; the placement with fewer cycles, switches of epochs included, is kept.

The decision follows from the passed graph and the options that passes and lowering read, never from overrides or from
how long anything takes: an edit does not change what is fused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

import numpy as np

from tbuda_lab.core.balancer.enumerate import enumerate_candidates
from tbuda_lab.core.balancer.profile import Operand, OpProfile, profile_of
from tbuda_lab.core.balancer.types import Reason
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import OverrideError, PlacementError
from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.fuse import unsaved
from tbuda_lab.core.lowering.hwops import HwFused
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer.place import Outcome

MAX_TRIALS = 2
"""How often the whole model is placed again with groups cut."""
MAX_OPS = 1500
"""A larger graph is not placed again."""
LEAST_SHARE = 0.05
"""Groups that take less of all core-cycles of the placement are not worth placing the model again."""


@dataclasses.dataclass(frozen=True)
class Pattern:
    """Fused ops of one signature and what was decided for them.

    ops: their names (those of their last steps); members: every op inside, all groups in one list; steps: the types.
    as_one, apart: core-cycles per input of one of them, each at the legal shape with the fewest, and of its steps as
    ops of their own. ends: steps whose value gains nothing by staying inside, by number. tried: `cycles` of the whole
    model (as one op, cut), None where the model was not placed for it. share: what groups that may be cut take of all
    core-cycles of the placement, in epochs that wait for kernels and not for data.
    """

    ops: tuple[str, ...]
    members: tuple[str, ...]
    steps: tuple[str, ...]
    as_one: int
    apart: int
    ends: tuple[int, ...] = ()
    share: float = 0.0
    tried: tuple[int, int] | None = None
    cut: bool = False

    @property
    def text(self) -> str:
        """Why they are fused, or not, with the numbers."""
        chain = " + ".join(self.steps)
        price = f"{self.as_one:,} core-cycles as one op, {self.apart:,} as {len(self.steps)}"
        count = f" ({len(self.ops)} alike)" if len(self.ops) > 1 else ""
        if self.tried is None:
            if not self.ends:
                return f"{chain}{count}: {price}; fused: every intermediate stays in dest"
            return (
                f"{chain}{count}: {price}; fused: with {self.share:.1%} of all core-cycles, in "
                "epochs bound by kernels, it is too small to price both ways"
            )
        fused, cut = (f"{n:,}" for n in self.tried)
        verdict = "cut" if self.cut else "fused"
        return f"{chain}{count}: {price}; the model takes {fused} cycles with it, {cut} with it cut: {verdict}"


@dataclasses.dataclass(frozen=True)
class Fusion:
    """A lowered graph, which groups there are, and how it is placed without overrides if that had to be found out.
    ends: ops whose value leaves the fused op, as `lower` takes them."""

    lowered: Graph
    patterns: tuple[Pattern, ...] = ()
    ends: frozenset[str] = frozenset()
    outcome: Outcome | None = None

    def why(self, op: str) -> str:
        """The pattern of an op, fused or cut, in words; "" where there was nothing to decide."""
        return next((p.text for p in self.patterns if op in p.members), "")


def decide(
    passed: Graph,
    lowered: Graph,
    device: DeviceSpec,
    options: CompileOptions,
    place: Callable[[Graph], Outcome],
) -> Fusion:
    """What of `lowered`, which has all that may be fused, stays so. place: places a graph without overrides."""
    patterns = _patterns(lowered, device, options)
    by_hand = bool(options.op_names_manual_fuse)
    if by_hand or len(device.chips) > 1 or not any(p.ends for p in patterns) or sum(1 for _ in lowered.ops) > MAX_OPS:
        return Fusion(lowered, patterns)
    try:
        outcome = place(lowered)
    except (PlacementError, OverrideError):  # the compile says so
        return Fusion(lowered, patterns)
    shares = _shares(patterns, outcome, device)
    graph, ends = lowered, frozenset[str]()
    doubtful = [k for k, p in enumerate(shares) if p.share >= LEAST_SHARE]
    for index in sorted(doubtful, key=lambda k: -shares[k].share)[:MAX_TRIALS]:
        more = ends | _cut_at(lowered, shares[index])
        cut = lower(passed, device, options, ends=more)
        try:
            trial = place(cut)
        except (PlacementError, OverrideError):
            continue
        better = _better(trial, outcome, options)
        tried = cycles(outcome, options), cycles(trial, options)
        shares[index] = dataclasses.replace(shares[index], tried=tried, cut=better)
        if better:
            graph, ends, outcome = cut, more, trial
    return Fusion(graph, tuple(shares), ends, outcome)


def cycles(outcome: Outcome, options: CompileOptions) -> int:
    """What the placement takes per input: by its objective, else limiter cycles and the batch's share of switches."""
    report = outcome.placement.report
    assert report is not None
    if report.objective is not None and options.counts_fill:
        return round(report.objective.time)
    switches = options.epoch_switch_cycles * len(report.epochs) / options.inputs_counted
    return report.bounds.achieved_limiter + round(switches)


def _better(outcome: Outcome, best: Outcome, options: CompileOptions) -> bool:
    """Fewer cycles, and no more with what full buffers cost."""
    time, existing = (
        o.placement.report.objective.time if o.placement.report and o.placement.report.objective else 0.0
        for o in (outcome, best)
    )
    return cycles(outcome, options) < cycles(best, options) and time <= existing


def _patterns(lowered: Graph, device: DeviceSpec, options: CompileOptions) -> tuple[Pattern, ...]:
    users = lowered.users()
    groups: dict[str, tuple[OpProfile, list[Node]]] = {}
    for node in lowered.ops:
        if isinstance(node.op, HwFused):
            profile = profile_of(lowered, node, options, users[node.name])
            groups.setdefault(profile.signature, (profile, []))[1].append(node)
    patterns = []
    for profile, nodes in groups.values():
        op = profile.op
        assert isinstance(op, HwFused)
        patterns.append(
            Pattern(
                tuple(n.name for n in nodes),
                tuple(name for n in nodes for name in n.attrs["fused"]),
                tuple(fn for fn, _, _, _ in op.steps),
                _core_cycles(profile, device, options),
                sum(_core_cycles(p, device, options) for p in _steps(profile, op)),
                unsaved(op, device.arch),
            )
        )
    return tuple(patterns)


def _steps(profile: OpProfile, op: HwFused) -> list[OpProfile]:
    """The steps as fused ops of one step, for the balancer to price."""
    inner = Operand("elt", "activation", profile.out, profile.out, (), profile.df)
    spread = dict(op.spread)
    parts = []
    for k, (fn, refs, slope, exp) in enumerate(op.steps):
        alone = HwFused(((fn, tuple(range(len(refs))), slope, exp),), ((0, spread[k]),) if k in spread else ())
        operands = tuple(profile.operands[ref] if ref >= 0 else inner for ref in refs)
        parts.append(dataclasses.replace(profile, op=alone, operands=operands))
    return parts


def _core_cycles(profile: OpProfile, device: DeviceSpec, options: CompileOptions) -> int:
    rows = enumerate_candidates(profile, device, options)
    rows = rows[rows["reason"] == Reason.LEGAL]
    return int((rows["cycles"].astype(np.int64) * rows["cores"]).min()) if len(rows) else 0


def _shares(patterns: Sequence[Pattern], outcome: Outcome, device: DeviceSpec) -> list[Pattern]:
    """The patterns with their part of all cores for as long as the epochs last, in epochs that wait for kernels: where
    DRAM sets the pace a shorter op ends no epoch sooner."""
    placement = outcome.placement
    report = placement.report
    assert report is not None
    whole = max(1, report.bounds.achieved_limiter * device.rows * device.cols)
    waits = [epoch.limiter == "kernel" for epoch in report.epochs]
    count = [sum(waits[placement.ops[name].epoch] for name in p.ops) for p in patterns]
    return [
        dataclasses.replace(p, share=p.as_one * n / whole if p.ends else 0.0)
        for p, n in zip(patterns, count, strict=True)
    ]


def _cut_at(lowered: Graph, pattern: Pattern) -> frozenset[str]:
    """The names of the steps after which the groups of a pattern are cut."""
    result: set[str] = set()
    for name in pattern.ops:
        node = lowered[name]
        assert isinstance(node.op, HwFused)
        result.update(node.attrs.get("steps", node.attrs["fused"])[k] for k in pattern.ends)
    return frozenset(result)
