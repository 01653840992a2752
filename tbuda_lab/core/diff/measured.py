"""Sides from two measured runs: before and after a change, or of two machines; times in ns."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from tbuda_lab.core.diff.sides import DeviceGrid, EpochState, OpState, Side
from tbuda_lab.core.measured import MeasuredOp, MeasuredProfile, read_profile
from tbuda_lab.core.measured.match import align, profile_steps

SUFFIXES = (".csv", ".json")
NANOSECONDS = "ns"


def profile_sides(a: Path, b: Path, names: tuple[str, str]) -> tuple[Side, Side]:
    """Two profiles as sides of a comparison. Their ops are aligned by order, kind and shape, and an op of the second
    has the name of its partner in the first; one epoch stands for the whole run. An op of which one has no time is in
    neither sum. Raises what reading raises."""
    before, after = read_profile(a), read_profile(b)
    first, second = before.sequence(), after.sequence()
    pairs, _ = align(profile_steps(first), profile_steps(second))
    partner = {j: first[i].name for i, j, _ in pairs}
    known = {op.name for op in first}
    called = [partner.get(j) or _free(op.name, known) for j, op in enumerate(second)]
    named = (first, [op.name for op in first]), (second, called)
    untimed = {name for ops, own in named for name, op in zip(own, ops, strict=True) if op.measurement is None}
    one, other = (
        _side(name, profile, ops, own, untimed)
        for name, profile, (ops, own) in zip(names, (before, after), named, strict=True)
    )
    return one, other


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
