"""Sides from two measured runs: before and after a change, or of two machines; times in ns."""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Sequence
from pathlib import Path

from tbuda_lab.core.diff.sides import DeviceGrid, EpochState, OpState, Side, listed
from tbuda_lab.core.errors import quantity
from tbuda_lab.core.measured import MeasuredOp, MeasuredProfile, read_profile
from tbuda_lab.core.measured.devices import Devices
from tbuda_lab.core.measured.match import Pairs, align
from tbuda_lab.core.measured.profile import size_text
from tbuda_lab.core.measured.steps import Step, profile_steps

SUFFIXES = (".csv", ".json")
NANOSECONDS = "ns"


def profile_sides(a: Path, b: Path, names: tuple[str, str]) -> tuple[Side, Side]:
    """Two profiles as sides of a comparison. Their ops are aligned by order, kind and shape, and an op of the second
    has the name of its partner in the first; one epoch stands for the whole run. An op of which one has no time is in
    neither sum. Raises what reading raises."""
    before, after = read_profile(a), read_profile(b)
    first, second = before.sequence(), after.sequence()
    steps = profile_steps(first), profile_steps(second)
    pairs, _ = align(*steps)
    partner = {j: first[i].name for i, j, _ in pairs}
    known = {op.name for op in first}
    called = [partner.get(j) or _free(op.name, known) for j, op in enumerate(second)]
    named = (first, [op.name for op in first]), (second, called)
    untimed = {name for ops, own in named for name, op in zip(own, ops, strict=True) if op.measurement is None}
    one, other = (
        _side(name, profile, ops, own, untimed)
        for name, profile, (ops, own) in zip(names, (before, after), named, strict=True)
    )
    return (
        dataclasses.replace(
            one, other_work=(*_alone(steps[0], {i for i, _, _ in pairs}), *_measured_by(before, after))
        ),
        dataclasses.replace(other, other_work=(*_alone(steps[1], {j for _, j, _ in pairs}), *_reshaped(*steps, pairs))),
    )


WORK = frozenset(("matmul", "conv", "attention", "softmax", "norm", "eltwise", "reduce", "other"))
"""Groups of ops that calculate, or may. Others only move data, which a change of the same work may do otherwise."""


def _alone(steps: Sequence[Step], paired: set[int]) -> list[str]:
    """Ops that calculate and that the other run has not, and a run that goes on where the other ends."""
    alone = [s.name for k, s in enumerate(steps) if k not in paired and s.group in WORK]
    last = max(paired, default=-1) + 1
    told = [f"{quantity(len(alone), 'op')} that the other has not: {listed(alone)}"] if alone else []
    if last < len(steps) and steps[-1].group not in WORK:
        told.append(f"it goes on with {quantity(len(steps) - last, 'op')} behind the last of the other's")
    return told


def _reshaped(left: Sequence[Step], right: Sequence[Step], pairs: Pairs) -> list[str]:
    """Ops that calculate and have another shape than in the other run."""
    other = [
        right[j].name
        for i, j, _ in pairs
        if right[j].group in WORK
        and left[i].shape
        and right[j].shape
        and (left[i].volume, left[i].inner) != (right[j].volume, right[j].inner)
    ]
    return [f"{quantity(len(other), 'op')} of another shape than in the other: {listed(other)}"] if other else []


def _measured_by(before: MeasuredProfile, after: MeasuredProfile) -> list[str]:
    """In what two runs are not measured alike."""
    told = []
    if (before.source == "trace") != (after.source == "trace"):
        told.append("one of them was simulated, the other measured")
    for what, mine, others in (
        ("parameters", before.parameters, after.parameters),
        ("inputs", before.model_inputs, after.model_inputs),
    ):
        if mine and others and mine != others:
            name = next(n for n in (*mine, *others) if mine.get(n) != others.get(n))
            told.append(f"its model has other {what}: {name} is {size_text(mine, name)}, and {size_text(others, name)}")
    if before.clocks and after.clocks and before.clocks != after.clocks:
        told.append(f"its times are of {' and '.join(before.clocks)}, the other's of {' and '.join(after.clocks)}")
    lanes = [collections.Counter(op.device for op in p.ops) for p in (before, after)]
    if len(lanes[0]) != len(lanes[1]):
        told.append(f"it ran on {quantity(len(lanes[0]), 'device')}, the other on {len(lanes[1])}")
    elif len(lanes[0]) > 1 and sorted(lanes[0].values()) != sorted(lanes[1].values()):
        ops = [", ".join(map(str, sorted(lane.values()))) for lane in lanes]
        told.append(f"its devices ran {ops[0]} ops, the other's {ops[1]}")
    on = [Devices(p.ops) for p in (before, after) if p.source != "trace"]
    told += dict.fromkeys(f"its {text}" for d in on for text in (d.copies_behind(), d.mixed()) if text)
    if before.host_ops != after.host_ops:
        told.append(f"the host ran {quantity(before.host_ops, 'op')} of it, and {after.host_ops} of the other")
    return told


def _free(name: str, known: set[str]) -> str:
    """A name that no op of the first run has."""
    number = 2
    free = name
    while free in known:
        free, number = f"{name} ({number})", number + 1
    known.add(free)
    return free


def _side(
    name: str, profile: MeasuredProfile, ops: Sequence[MeasuredOp], called: Sequence[str], untimed: set[str]
) -> Side:
    times = [0.0 if own in untimed else op.duration for own, op in zip(called, ops, strict=True)]
    states = {
        own: OpState(
            0,
            0,
            (0, 0),
            (1, max(1, op.cores)),
            False,
            round(time),
            round(time),
            time,
            op.kind,
        )
        for own, op, time in zip(called, ops, times, strict=True)
    }
    total = sum(times)
    widest = max((max(op.cores, op.available) for op in ops), default=1) or 1
    grid = DeviceGrid(profile.arch or "measured", 1, min(widest, 4096), (0,), ())
    epoch = EpochState(0, 0, round(total), round(total), total)
    return Side(
        name,
        states,
        {},
        (epoch,),
        grid,
        "profile",
        tuple(f"{op.name} (row {op.row})" for op in profile.ops if op.measurement is None),
        time=total,
        batch=1,
        unit=NANOSECONDS,
        findings=profile.findings,
        gaps=profile.gaps,
    )
