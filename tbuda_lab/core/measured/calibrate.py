"""Fits a table of kernels to profiles, and says how far it can be trusted: the error on each file when the others alone
were fitted.

A fit minimises the relative error, robustly (10 % counts as its square, larger ones in proportion), and holds on to the
coefficients of the level above it: what no run of a kernel determines stays what its kind says, and what no run at all
determines stays `kernels.PRIOR`. Different ops count once, whatever number of times they ran; only in the particular
kernels those count more that ran often.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Sequence

import numpy as np
from scipy.optimize import least_squares

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.measured.kernels import (
    F64,
    PRIOR,
    Kernel,
    KernelTable,
    duration,
    features,
    kernel_keys,
    profile_machine,
)
from tbuda_lab.core.measured.profile import MeasuredOp, MeasuredProfile

_SOFT = 0.1  # relative error from which errors count in proportion
_HOLD = 4.0  # how firmly a level holds on to the one above it, in units of `_SOFT` a factor e
_MOST_COUNTED = 16
_HOLD_ALL = 12.0  # how firmly all ops together hold on to the prior
_FIRM = np.array([1.0, 3.0, 1.0, 1.0, 1.0, 1.0, 1.0])
"""The multiplier's share is held most firmly: few ops of a profile are bound by it, and it differs least."""


@dataclasses.dataclass(frozen=True)
class _Run:
    """All runs of one op. time: ns, their median."""

    keys: tuple[str, ...]
    row: F64
    time: float
    count: int


def calibrate_kernels(profiles: Sequence[MeasuredProfile], name: str = "ttnn") -> KernelTable:
    """The table fitted to all profiles, with errors on profiles left out. Raises `InputError` where nothing can be
    fitted: fewer than one op with a time, shapes and cores; and for two profiles of which one has all ops and times
    of the other, whatever rows stand between: it would not be left out of the fit."""
    _need_different(profiles)
    runs = [runs_of(p) for p in profiles]
    everything = [run for each in runs for run in each]
    if not everything:
        raise InputError("no op of these profiles has a time, a shape and cores: there is nothing to fit")
    errors = _left_out(profiles, runs) if len(profiles) > 1 else []
    fits = _fit_levels(everything)
    kernels = {}
    for key, coefficients in fits.items():
        mine = [run for run in everything if key in run.keys]
        rows = np.stack([run.row for run in mine])
        unseen = [error for run, error in errors if key in run.keys]
        kernels[key] = Kernel(
            key,
            tuple(coefficients.tolist()),
            sum(r.count for r in mine),
            len(mine),
            _median(unseen),
            tuple(rows.min(axis=0).tolist()),
            tuple(rows.max(axis=0).tolist()),
        )
    groups = sorted({run.keys[1] for run in everything})
    table = tuple(
        (g, sum(r.count for r in everything if r.keys[1] == g), _median([e for r, e in errors if r.keys[1] == g]))
        for g in groups
    )
    total = ("all", sum(r.count for r in everything), _median([e for _, e in errors]))
    return KernelTable(
        name,
        kernels,
        tuple(p.name for p in profiles),
        tuple(row for row in (total, *table) if not math.isnan(row[2])),
        tuple(dict.fromkeys(profile_machine(p).arch for p in profiles)),
    )


def _need_different(profiles: Sequence[MeasuredProfile]) -> None:
    """Raises `InputError` where one of two profiles measured nothing that the other has not."""
    named = [(profile.name, measured) for profile in profiles if (measured := _measured(profile))]
    for pair in itertools.combinations(named, 2):
        (few, mine), (many, theirs) = sorted(pair, key=lambda one: len(one[1]))
        if mine == theirs:
            raise InputError(f"{pair[0][0]} and {pair[1][0]} hold the same ops and times; give one of them")
        if mine < theirs:
            raise InputError(f"{few}: all its ops and times are in {many}; give one of them")


def _measured(profile: MeasuredProfile) -> frozenset[tuple[object, ...]]:
    """(kind, shapes, time) of its ops that have one."""
    return frozenset(
        (op.kind, tuple(t.shape for t in (*op.inputs, *op.outputs)), op.time) for op in profile.ops if op.measurement
    )


def _median(values: Sequence[float]) -> float:
    return float(np.median(values)) if len(values) else math.nan


def runs_of(profile: MeasuredProfile) -> list[_Run]:
    """The different ops of a profile that can be priced. Raises `UnknownDevice` for an arch that is not known."""
    machine = profile_machine(profile)
    by_op: dict[tuple[object, ...], list[MeasuredOp]] = {}
    for op in profile.ops:
        if op.time and not op.outlier and op.sized and op.cores:
            memory = tuple(t.memory for t in (*op.inputs, *op.outputs))
            by_op.setdefault((op.signature, op.cores, op.fidelity, memory), []).append(op)
    return [
        _Run(kernel_keys(ops[0]), features(ops[0], machine), float(np.median([o.duration for o in ops])), len(ops))
        for ops in by_op.values()
    ]


def _left_out(profiles: Sequence[MeasuredProfile], runs: Sequence[Sequence[_Run]]) -> list[tuple[_Run, float]]:
    """(op, relative error) of every single op of every file, by fits to the other files."""
    errors = []
    for k, mine in enumerate(runs):
        others = [run for j, each in enumerate(runs) if j != k for run in each]
        if not others:
            continue
        fits = _fit_levels(others)
        machine = profile_machine(profiles[k])
        by_key = {(run.keys, run.row.tobytes()): run for run in mine}
        for op in profiles[k].ops:
            if not (op.time and not op.outlier and op.sized and op.cores):
                continue
            row = features(op, machine)
            keys = kernel_keys(op)
            fit = fits[next(key for key in reversed(keys) if key in fits)]
            estimate = float(duration(fit, row[None])[0])
            run = by_key.get((keys, row.tobytes())) or _Run(keys, row, op.duration, 1)
            errors.append((run, abs(estimate - op.time) / op.time))
    return errors


def _fit_levels(runs: Sequence[_Run]) -> dict[str, F64]:
    """Coefficients by key: of all ops, then by group, kind and kernel, each held to the level above it."""
    runs = sorted(runs, key=lambda run: (run.keys, run.row.tobytes(), run.time))  # whatever the order of the files
    fits = {"": _fit(runs, PRIOR, _HOLD_ALL)}
    for level in (1, 2, 3):
        members: dict[str, list[_Run]] = {}
        for run in runs:
            members.setdefault(run.keys[level], []).append(run)
        for key, mine in members.items():
            above = next(fits[k] for k in reversed(mine[0].keys[:level]) if k in fits)
            fits[key] = _fit(mine, above, _HOLD, _MOST_COUNTED if level == 3 else 1)
    return fits


def _fit(runs: Sequence[_Run], prior: F64, hold: float, most: int = 1) -> F64:
    """most: an op that ran so often, or more, counts as that many ops."""
    rows, times = np.stack([r.row for r in runs]), np.array([r.time for r in runs])
    weight = np.sqrt(np.minimum([r.count for r in runs], most))
    start = np.log(prior)

    def residuals(logs: F64) -> F64:
        error = np.log(np.maximum(duration(np.exp(logs), rows), 1.0) / times) / _SOFT
        return np.concatenate([weight * np.sqrt(2 * (np.sqrt(1 + error**2) - 1)), hold * _FIRM * (logs - start)])

    found = least_squares(residuals, start, max_nfev=200)
    result: F64 = np.exp(found.x)
    return result
