"""Every shape an op could have, in one table: what a drag snaps to without asking again."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from enum import IntEnum

import numpy as np

from tbuda_lab.core.balancer.bandwidth import Load, dram_divider, limiter_name, limits
from tbuda_lab.core.balancer.edges import EdgeReason, stream_verdict
from tbuda_lab.core.balancer.enumerate import parallel_tiles
from tbuda_lab.core.balancer.reasons import MEANING, REMEDY
from tbuda_lab.core.balancer.types import OpModels, Reason
from tbuda_lab.core.placer.problem import Problem
from tbuda_lab.core.session.placing import Placed

LEGAL = np.dtype(
    [
        ("verdict", "u1"),  # 0 legal, else a key of `LegalTable.reasons`
        ("cycles", "f4"),  # kernel, per input; NaN where illegal, like the next three
        ("limiter_cycles", "f4"),  # with operands and output, for the load of the epoch with this shape
        ("limiter", "u1"),  # what those are: an index into `LegalTable.limiters`
        ("epoch_kernel_cycles", "f4"),  # slowest kernel of the epoch if this op alone changed
        ("epoch_cycles", "f4"),  # limiter of the epoch if this op alone changed
        ("epoch_op", "u1"),  # whose those are: an index into `LegalTable.ops`
        ("edge", "u1"),  # 0: streams go together with the neighbours as they are, else a key of `LegalTable.edges`
        ("balance", "f4"),  # useful core cycles of the epoch over all its core cycles
        ("l1_bytes", "u4"),
        ("cores", "u2"),
        ("row", "i4"),  # of the op's candidate table; -1 where illegal
    ]
)


class ShapeReason(IntEnum):
    """Refusals that belong to a shape and not to a candidate; the rest are `balancer.types.Reason`."""

    DOES_NOT_DIVIDE = 64
    OTHER_OVERRIDES = 65
    PIN = 66


@dataclasses.dataclass(frozen=True)
class ReasonText:
    """Why a shape is illegal: an id, what it means, and what would lift it."""

    id: int
    name: str
    meaning: str
    fix: str


@dataclasses.dataclass(frozen=True)
class LegalTable:
    """`shapes[r - 1, c - 1]` (LEGAL) is the verdict on a grid of r rows and c columns. `anchors[r - 1, c - 1, y]`:
    bit x is set where a rectangle of r x c cores may start at core (y, x) of the op's epoch, once its own are free.
    `grid`, `start`, `transposed`: how the op stands now.

    Kernel cycles are what the grid and the op table show; limiter cycles are never fewer, because operands and the
    output may take longer than the kernel. `edges`: why t-streams of a shape do not go together with those of a
    neighbour as it stands; the placer then gives the neighbour another candidate, or a new epoch."""

    op: str
    epoch: int
    grid: tuple[int, int]
    start: tuple[int, int]
    transposed: bool
    shapes: np.ndarray
    anchors: np.ndarray
    reasons: dict[int, ReasonText]
    candidates: OpModels
    limiters: tuple[str, ...]
    ops: tuple[str, ...]
    edges: dict[int, str]

    @property
    def legal(self) -> list[tuple[int, int]]:
        """Legal (rows, columns), row by row."""
        return [(int(r) + 1, int(c) + 1) for r, c in np.argwhere(self.shapes["verdict"] == 0)]

    def why_not(self, rows: int, cols: int) -> ReasonText | None:
        """The reason against a shape, None if it is legal."""
        return self.reasons.get(int(self.shapes[rows - 1, cols - 1]["verdict"]))

    def starts(self, rows: int, cols: int) -> list[tuple[int, int]]:
        """Cores (row, column) where the shape may start in the op's epoch."""
        masks = self.anchors[rows - 1, cols - 1]
        return [(y, x) for y, mask in enumerate(masks.tolist()) for x in range(mask.bit_length()) if mask >> x & 1]


def free_starts(busy: np.ndarray) -> np.ndarray:
    """(R, C, R) uint32 bit masks of free starts for every height and width; `busy`: (R, C) bool."""
    rows, cols = busy.shape
    total = np.zeros((rows + 1, cols + 1), dtype=np.int32)
    total[1:, 1:] = busy.cumsum(axis=0).cumsum(axis=1)
    y, x = np.arange(rows), np.arange(cols)
    height, width = np.arange(1, rows + 1), np.arange(1, cols + 1)
    end_y, end_x = y[None, :] + height[:, None], x[None, :] + width[:, None]  # (height, y), (width, x)
    inside = (end_y <= rows)[:, None, :, None] & (end_x <= cols)[None, :, None, :]
    low, right = np.minimum(end_y, rows), np.minimum(end_x, cols)
    first, second = low[:, None, :, None], right[None, :, None, :]
    top, left = y[None, None, :, None], x[None, None, None, :]
    used = total[first, second] - total[top, second] - total[first, left] + total[top, left]
    free = inside & (used == 0)
    masks: np.ndarray = (free * (np.uint32(1) << x.astype(np.uint32))).sum(axis=3, dtype=np.uint32)
    return masks


def legal_table(placed: Placed, op: str, table: OpModels) -> LegalTable:
    """The table of a placed op. table: its candidates without a size override."""
    number = placed.problem.number[op]
    problem = placed.problem.with_table(number, table)
    index = next(i for i, s in enumerate(placed.segments) if s.first <= number < s.last)
    segment = placed.segments[index]
    rows_of = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
    spot = segment.spots[number - segment.first]
    load, places = placed.epoch(index)
    now = placed.problem.tables[number].rows[rows_of[number]]

    span = (segment.first, segment.last)
    shapes = _shapes(problem, number, table, span, load)
    where, output = places[number]
    reads = placed.problem.dram_cores(number, where, output)[rows_of[number]]
    limiters, ops = _epoch(problem, number, rows_of, places, load, int(reads), shapes)
    edges = _edges(problem, number, rows_of, span, shapes)

    busy = np.zeros((problem.device.rows, problem.device.cols), dtype=bool)
    for other, (top, left, turned) in zip(rows_of, segment.spots, strict=True):
        if other != number:
            data = problem.tables[other].rows[rows_of[other]]
            height, width = int(data["grid_r"]), int(data["grid_c"])
            if turned:
                height, width = width, height
            busy[top : top + height, left : left + width] = True
    used = sorted({int(v) for v in np.unique(shapes["verdict"]) if v})
    profile = problem.profiles[number]
    return LegalTable(
        op,
        index,
        (int(now["grid_r"]), int(now["grid_c"])),
        (spot[0], spot[1]),
        spot[2],
        shapes,
        free_starts(busy),
        {v: _text(v, parallel_tiles(profile)) for v in used},
        table,
        limiters,
        ops,
        edges,
    )


def _epoch(
    problem: Problem,
    op: int,
    rows: Mapping[int, int],
    places: Mapping[int, tuple[tuple[str, ...], str]],
    load: Load,
    reads: int,
    shapes: np.ndarray,
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fills in the columns that say what limits the op and its epoch; returns what their numbers mean. A shape with
    more cores at DRAM slows down all that use DRAM; `reads`: how many the op has now."""
    where, output = places[op]
    flat = shapes.reshape(-1)
    legal = np.flatnonzero(flat["row"] >= 0)
    best = flat["row"][legal]
    cores = load.dram_cores - reads + problem.dram_cores(op, where, output)[best]
    dividers = np.array([dram_divider(problem.device, int(n)) for n in cores], dtype=np.int64)
    others = [(o, row, places[o]) for o, row in rows.items() if o != op]
    work, kernel = 0.0, 0
    for other, row, _ in others:
        data = problem.tables[other].rows[row]
        work += float(data["cycles"]) * float(data["cores"])
        kernel = max(kernel, int(data["cycles"]))
    names = [problem.order[op]]
    for divider in np.unique(dividers):
        same = dividers == divider
        there = Load(int(cores[same][0]), load.host_cores)
        slowest, by = max(
            ((float(problem.row_limits(o, *p, there)[row]), -o) for o, row, p in others), default=(0.0, -op)
        )
        data = problem.tables[op].rows[best[same]]
        parts = limits(problem.profiles[op], data, problem.device, where, output, there, problem.options.microbatch)
        own = np.ceil(parts.max(axis=0))
        at = legal[same]
        flat["limiter"][at] = parts.argmax(axis=0)
        flat["limiter_cycles"][at] = own
        flat["epoch_cycles"][at] = np.ceil(np.maximum(own, slowest))
        if problem.order[-by] not in names:
            names.append(problem.order[-by])
        flat["epoch_op"][at] = np.where(own < np.ceil(slowest), names.index(problem.order[-by]), 0)
    flat["epoch_kernel_cycles"] = np.where(flat["row"] >= 0, np.maximum(flat["cycles"], kernel), np.nan)
    used = flat["cycles"] * flat["cores"]
    flat["balance"] = (work + used) / np.maximum(1.0, flat["epoch_cycles"] * problem.cores)
    return tuple(limiter_name(k, where, output) for k in range(3 + len(where))), tuple(names)


def _edges(
    problem: Problem, op: int, rows: Mapping[int, int], span: tuple[int, int], shapes: np.ndarray
) -> dict[int, str]:
    """Fills in `edge`: the t-streaming rules against the neighbours as they stand (buffers, streams and phases need a
    walk over tiles, which `whatif` does)."""
    flat = shapes.reshape(-1)
    fact, table, profile = problem.facts[op], problem.tables[op].rows, problem.profiles[op]
    near = [(p, op, port) for port, p in enumerate(fact.producers) if fact.by_noc(port, *span)]
    near += [(op, r, port) for r, port in fact.readers if r in rows and problem.facts[r].by_noc(port, *span)]
    found: dict[str, int] = {}
    for at in np.flatnonzero(flat["row"] >= 0).tolist():
        mine = table[int(flat["row"][at])]
        for producer, reader, port in near:
            first, second = (
                mine if o == op else problem.tables[o].rows[rows[o]] for o in (producer, reader)
            )
            if not (first["stream"] or second["stream"]):
                continue
            profiles = profile if producer == op else problem.profiles[producer], problem.profiles[reader]
            reason = stream_verdict(profiles[0], first, profiles[1], port, second)
            if reason is not EdgeReason.LEGAL:
                text = f"{problem.order[producer]} -> {problem.order[reader]}: {reason.value}"
                flat["edge"][at] = found.setdefault(text, len(found) + 1)
                break
    return {number: text for text, number in found.items()}


def _shapes(problem: Problem, op: int, table: OpModels, span: tuple[int, int], load: Load) -> np.ndarray:
    """The columns that depend on the op alone: best candidate of every shape, or the commonest reason against it."""
    device = problem.device
    rows = table.rows
    shape = (rows["grid_r"].astype(np.int64) - 1) * device.cols + rows["grid_c"] - 1
    where, output = problem.places(op, *span)
    cycles = problem.row_limits(op, where, output, load)

    result = np.zeros(device.rows * device.cols, dtype=LEGAL)
    result["verdict"] = _divides(problem, op)
    result["row"] = -1
    for field in ("cycles", "limiter_cycles", "epoch_kernel_cycles", "epoch_cycles"):
        result[field] = np.nan
    counts = np.zeros((len(result), len(Reason)), dtype=np.int64)
    np.add.at(counts, (shape, rows["reason"]), 1)
    refused = counts.sum(axis=1) > 0
    counts[:, Reason.LEGAL] = 0
    result["verdict"][refused] = counts[refused].argmax(axis=1)

    legal = np.flatnonzero(rows["reason"] == Reason.LEGAL)
    order = legal[np.lexsort((legal, rows["t"][legal], np.ceil(cycles[legal]), shape[legal]))]
    _, first = np.unique(shape[order], return_index=True)
    best = order[first]
    at = shape[best]
    result["verdict"][at] = 0
    result["cycles"][at] = rows["cycles"][best]
    result["l1_bytes"][at] = rows["l1_total"][best]
    result["row"][at] = best
    grid = np.indices((device.rows, device.cols)) + 1
    result["cores"] = (grid[0] * grid[1]).reshape(-1)

    pin = problem.pins.get(problem.order[op])
    if pin is not None:
        height, width = (grid[1], grid[0]) if pin.transpose else (grid[0], grid[1])
        top, left = pin.start or (0, 0)
        outside = ((height + top > device.rows) | (width + left > device.cols)).reshape(-1)
        result["verdict"][outside & (result["verdict"] == 0)] = ShapeReason.PIN
    return result.reshape(device.rows, device.cols)


def _divides(problem: Problem, op: int) -> np.ndarray:
    """Verdict on shapes without a single candidate: they do not divide the tiles, or other overrides exclude them."""
    device = problem.device
    tiles_r, tiles_c = parallel_tiles(problem.profiles[op])
    whole_r = tiles_r % np.arange(1, device.rows + 1) == 0
    whole_c = tiles_c % np.arange(1, device.cols + 1) == 0
    good = (whole_r[:, None] & whole_c[None, :]).reshape(-1)
    return np.where(good, int(ShapeReason.OTHER_OVERRIDES), int(ShapeReason.DOES_NOT_DIVIDE)).astype(np.uint8)


def _text(verdict: int, tiles: tuple[int, int]) -> ReasonText:
    if verdict < ShapeReason.DOES_NOT_DIVIDE:
        reason = Reason(verdict)
        return ReasonText(verdict, reason.name, MEANING[reason], REMEDY.get(reason, ""))
    own = {
        ShapeReason.DOES_NOT_DIVIDE: (
            f"rows and columns must divide the {tiles[0]} x {tiles[1]} tiles of the op",
            "choose a divisor of each",
        ),
        ShapeReason.OTHER_OVERRIDES: (
            "t-streaming, u_kt or another override of this op leaves no candidate of that shape",
            "change or remove that override",
        ),
        ShapeReason.PIN: ("from where the op is pinned, that shape reaches beyond the grid", "move or remove the pin"),
    }
    meaning, fix = own[ShapeReason(verdict)]
    return ReasonText(verdict, ShapeReason(verdict).name, meaning, fix)
