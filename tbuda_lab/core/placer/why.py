"""Why an op stands as it does: its candidates, what limits it, and what a faster choice would need."""

from __future__ import annotations

import dataclasses

import numpy as np

from tbuda_lab.core.balancer.bandwidth import spoken
from tbuda_lab.core.balancer.enumerate import parallel_tiles
from tbuda_lab.core.balancer.models import MEANING, REMEDY, describe
from tbuda_lab.core.balancer.types import EpochReport, OpModels, Placement, Reason
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import InputError

Faster = tuple[tuple[tuple[int, int], int, int], ...]
"""Grids (rows, columns) of faster candidates, with cores and cycles."""


@dataclasses.dataclass(frozen=True)
class Explanation:
    """Answer for one op. Cycles are per input. `refused`: (reason, rows, meaning, remedy), most frequent first.
    `faster`: grids (rows, columns) of legal candidates that are faster, fewest cores first, with cores and cycles."""

    op: str
    grid: tuple[int, int]
    epoch: int
    legal: int
    total: int
    refused: tuple[tuple[Reason, int, str, str], ...]
    kernel_cycles: int
    limiter_cycles: int
    limiter: str
    blocks_epoch: bool
    free_cores: int
    faster: Faster
    text: str


def why(placement: Placement, op: str, device_cores: int) -> Explanation:
    """Explains the choice made for an op. Raises `InputError` for a name that is not placed."""
    if op not in placement.ops or placement.report is None:
        raise InputError(f"{op!r} is not a placed op")
    spot, table = placement.ops[op], placement.models[op]
    row = table.rows[spot.row]
    histogram = table.histogram()
    refused = tuple(
        (reason, count, MEANING[reason], REMEDY[reason])
        for reason, count in histogram.items()
        if reason != Reason.LEGAL
    )
    legal = table.rows[table.legal()]
    quicker = legal[legal["cycles"] < row["cycles"]]
    best: dict[tuple[int, int], int] = {}
    for r, c, cycles in zip(
        quicker["grid_r"].tolist(), quicker["grid_c"].tolist(), quicker["cycles"].tolist(), strict=True
    ):
        best[r, c] = min(cycles, best.get((r, c), cycles))
    faster = tuple(sorted(((g, g[0] * g[1], n) for g, n in best.items()), key=lambda f: (f[1], f[2], f[0])))
    report = placement.report.epochs[spot.epoch]
    kernel, limiter, what = placement.report.op_limiters[op]
    free = device_cores - report.cores
    limit = "" if what == "kernel" else f", limited by {spoken(what)}; the kernel alone takes {kernel:,}"
    sentences = [
        f"{op} runs on {int(row['grid_r'])}x{int(row['grid_c'])} cores in epoch {spot.epoch} and takes "
        f"{limiter:,} cycles per input{limit}."
    ]
    blocks = limiter == report.limiter_cycles
    sentences.append(_in_its_epoch(op, blocks, report, placement.report.policy, int(row["cores"]), faster, table, free))
    sentences.append(_its_candidates(table, len(legal)))
    if report.end_reason:
        sentences.append(f"The epoch ends because: {report.end_reason}.")
    return Explanation(
        op,
        (int(row["grid_r"]), int(row["grid_c"])),
        spot.epoch,
        len(legal),
        len(table.rows),
        refused,
        kernel,
        limiter,
        what,
        blocks,
        free,
        faster,
        " ".join(sentences),
    )


def _in_its_epoch(
    op: str,
    blocks: bool,
    report: EpochReport,
    policy: str,
    cores: int,
    faster: Faster,
    table: OpModels,
    free: int,
) -> str:
    """Whether an op is the slowest of its epoch, and why it is not faster."""
    if not blocks:
        slowest = f"{report.limiter_op} takes {report.limiter_cycles:,}"
        return f"It is not the slowest op of the epoch: {slowest}."
    if report.no_larger and op == report.limiter_op:
        if report.no_larger.startswith("legal: "):
            return (
                f"It is the slowest op of the epoch. A faster choice is {report.no_larger}; the policy "
                f"{policy} chose otherwise."
            )
        return f"It is the slowest op of the epoch. Why it is not on more cores: {report.no_larger}."
    too = "" if op == report.limiter_op else f", and so is {report.limiter_op}"
    if not faster:
        none = "none of the candidates that its override leaves" if table.overridden else "no legal candidate"
        return f"It is the slowest op of the epoch{too}, and {none} has a faster kernel."
    grid, needed, cycles = faster[0]
    return (
        f"It is the slowest op of the epoch{too}; the smallest grid with a faster kernel, {grid[0]}x{grid[1]} "
        f"({cycles:,} cycles), takes {_more(needed - cores)}; {free} are free."
    )


def _its_candidates(table: OpModels, legal: int) -> str:
    """How many candidates an op has, and what refuses the others."""
    left = " that its override leaves" if table.overridden else ""
    if len(table.rows) == 1:  # it was chosen, so it is legal
        return f"It is the only candidate{left}."
    if legal == len(table.rows):
        return f"All {len(table.rows):,} candidates{left} are legal."
    refused = describe(table.histogram())
    return f"{legal:,} of {len(table.rows):,} candidates{left} are legal; refused: {refused}."


def _more(cores: int) -> str:
    if cores == 0:
        return "as many cores"
    return f"{abs(cores)} core{'s' if abs(cores) != 1 else ''} {'more' if cores > 0 else 'less'}"


@dataclasses.dataclass(frozen=True)
class WhyNot:
    """The verdict on one grid of an op: `reason` (LEGAL if it may have it), what it means, and what would lift it."""

    op: str
    grid: tuple[int, int]
    reason: Reason
    text: str
    fix: str


def why_not(placement: Placement, op: str, grid: tuple[int, int], device: DeviceSpec) -> WhyNot:
    """Whether an op may have a grid of (rows, columns), and if not why: where all its candidates with that grid are
    refused, the most frequent reason. Raises `InputError` for a name that is not placed."""
    if op not in placement.ops:
        raise InputError(f"{op!r} is not a placed op")
    table = placement.models[op]
    assert table.profile is not None
    tiles = parallel_tiles(table.profile)
    if grid[0] > device.rows or grid[1] > device.cols:
        reason, fix = Reason.GRID_EXCEEDS_DEVICE, f"at most {device.rows} rows and {device.cols} columns"
    elif tiles[0] % grid[0] or tiles[1] % grid[1]:
        fix = f"rows that divide {tiles[0]} and columns that divide {tiles[1]}"
        reason = Reason.GRID_DOES_NOT_DIVIDE
    else:
        rows = table.rows["reason"][(table.rows["grid_r"] == grid[0]) & (table.rows["grid_c"] == grid[1])]
        counts = np.bincount(rows, minlength=len(Reason))
        # an override may have left no row with it
        reason = (
            Reason.LEGAL if counts[Reason.LEGAL] else Reason(int(counts.argmax())) if len(rows) else Reason.OVERRIDDEN
        )
        fix = REMEDY.get(reason, "")
    return WhyNot(op, grid, reason, f"{MEANING[reason]} ({grid[0]}x{grid[1]})", fix)


def legal_grids(placement: Placement, op: str) -> np.ndarray:
    """(n, 4) int64: grid rows, grid columns, cores and least cycles of every grid with a legal candidate."""
    rows = placement.models[op].rows
    rows = rows[rows["reason"] == Reason.LEGAL]
    order = np.lexsort((rows["cycles"], rows["grid_c"], rows["grid_r"]))
    rows = rows[order]
    first = np.ones(len(rows), dtype=bool)
    first[1:] = (rows["grid_r"][1:] != rows["grid_r"][:-1]) | (rows["grid_c"][1:] != rows["grid_c"][:-1])
    chosen_row = rows[first]
    return np.stack([chosen_row[f].astype(np.int64) for f in ("grid_r", "grid_c", "cores", "cycles")], axis=1)
