"""The legal choices of an op: every shape in one table that a drag snaps to, inner steps, t-streaming and buffers."""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Mapping
from enum import IntEnum
from typing import TypedDict

import numpy as np

from tbuda_lab.core.balancer.bandwidth import Demands, EpochLoad, demands, dram_divider, limiter_name
from tbuda_lab.core.balancer.edges import EdgeReason, refusal, stream_verdict
from tbuda_lab.core.balancer.enumerate import parallel_tiles
from tbuda_lab.core.balancer.models import MEANING, REMEDY
from tbuda_lab.core.balancer.types import OpModels, Reason
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.netlist.routing.rules import RouteRule
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.interactive.placed_ops import EpochFacts, PlacedOps
from tbuda_lab.core.placer.model.edge_compatibility import refusal_text
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.run_control import no_collections
from tbuda_lab.core.session.compiles import Compiles
from tbuda_lab.core.session.whatif import time_of

FACTORS = (1, 2, 3, 4, 6, 8)
"""Buffer multipliers that are offered."""


class CurrentChoices(TypedDict):
    """What an op has: its u_kt (0 without an inner dimension), its stream, and the buffer multipliers that are set."""

    u_kt: int
    stream: tuple[str, int, int]
    buffers: dict[int, int]


@dataclasses.dataclass(frozen=True)
class OpChoices:
    """Each list holds (value, kernel cycles per input of the best candidate with it), values ascending.

    `u_kt`: empty for ops without an inner dimension. `streams`: ((direction, rows, columns), cycles), "n" for none.
    `buffers[operand]`: multipliers.
    """

    op: str
    u_kt: tuple[tuple[int, int], ...]
    streams: tuple[tuple[tuple[str, int, int], int], ...]
    buffers: tuple[tuple[tuple[int, int], ...], ...]
    now: CurrentChoices


def choices_of(compiles: Compiles, op: str) -> OpChoices:
    """What an op could be told at the shape it has. Raises `InputError` for a name that is not placed."""
    placed, row = _current_row(compiles, op)
    grid = (int(row["grid_r"]), int(row["grid_c"]))
    profile = placed.problem.profiles[placed.problem.number[op]]
    buffers = []
    for operand in range(len(profile.operands)):
        choices = []
        for factor in FACTORS:
            extra = Override("input_buffer_multiplier", op, {operand: factor})
            try:
                rows = _at(compiles.free_table(op, ("op_size",), extra), grid)
            except TbudaError:
                continue
            if len(rows):
                choices.append((factor, int(rows["cycles"].min())))
        buffers.append(tuple(choices))
    requested = {o.kind: o.value for o in compiles.request.overrides if o.matches([op])}
    return OpChoices(
        op,
        inner_steps(compiles, op),
        streams_of(compiles, op),
        tuple(buffers),
        {
            "u_kt": int(row["u_kt"]),
            "stream": (str(row["stream"]) or "n", int(row["stream_r"]), int(row["stream_c"])),
            "buffers": dict(requested.get("input_buffer_multiplier", {})),
        },
    )


def inner_steps(compiles: Compiles, op: str) -> tuple[tuple[int, int], ...]:
    """`Choices.u_kt` of a placed op."""
    row = _current_row(compiles, op)[1]
    if not int(row["u_kt"]):
        return ()
    steps = _at(compiles.free_table(op, ("op_size", "u_kt")), (int(row["grid_r"]), int(row["grid_c"])))
    return _cheapest(steps["u_kt"], steps["cycles"])


def streams_of(compiles: Compiles, op: str) -> tuple[tuple[tuple[str, int, int], int], ...]:
    """`Choices.streams` of a placed op."""
    row = _current_row(compiles, op)[1]
    kinds = ("op_size", "t_stream_dir", "t_stream_shape")
    flows = _at(compiles.free_table(op, kinds), (int(row["grid_r"]), int(row["grid_c"])))
    streams: dict[tuple[str, int, int], int] = {}
    for way, r, c, cycles in zip(
        flows["stream"].tolist(),
        flows["stream_r"].tolist(),
        flows["stream_c"].tolist(),
        flows["cycles"].tolist(),
        strict=True,
    ):
        key = (way or "n", r, c)
        streams[key] = min(cycles, streams.get(key, cycles))
    return tuple(sorted(streams.items(), key=lambda s: (s[0][1] * s[0][2], s[0])))


def _current_row(compiles: Compiles, op: str) -> tuple[PlacedOps, np.void]:
    """The placement and the op's candidate in it."""
    placed = compiles.placed()
    if op not in placed.problem.number:
        raise InputError(f"{op!r} is not an op of the placed graph")
    number = placed.problem.number[op]
    row: np.void = placed.problem.tables[number].rows[placed.epoch(placed.epoch_of(number)).rows[number]]
    return placed, row


def _at(table: OpModels, grid: tuple[int, int]) -> np.ndarray:
    """The legal candidates of a shape."""
    rows = table.rows
    same = (rows["reason"] == Reason.LEGAL) & (rows["grid_r"] == grid[0]) & (rows["grid_c"] == grid[1])
    result: np.ndarray = rows[same]
    return result


def _cheapest(values: np.ndarray, cycles: np.ndarray) -> tuple[tuple[int, int], ...]:
    """(value, fewest cycles) for every value, ascending."""
    order = np.lexsort((cycles, values))
    keep, first = np.unique(values[order], return_index=True)
    return tuple(zip(keep.tolist(), cycles[order][first].tolist(), strict=True))


_FITTING = 4
"""Shapes that a refusal names as legal."""

LEGAL = np.dtype(
    [
        ("verdict", "u1"),  # 0 legal, else a key of `LegalTable.reasons`
        ("cycles", "f4"),  # kernel, per input; NaN where illegal, like all other cycles
        ("limiter_cycles", "f4"),  # with operands and output, for the load of the epoch with this shape
        ("limiter", "u1"),  # what those are: an index into `LegalTable.limiters`
        ("epoch_kernel_cycles", "f4"),  # slowest kernel of the epoch if this op alone changed
        ("epoch_cycles", "f4"),  # limiter of the epoch if this op alone changed
        ("time", "f4"),  # of the whole model, cycles per input: simulated as it is, with this change of its epoch
        ("epoch_op", "u1"),  # whose those are: an index into `LegalTable.ops`
        ("edge", "u1"),  # 0: goes together with the neighbours as they are, else a key of `LegalTable.edges`
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

    `time` is an estimate: neighbours that have to move, stalls and filling may change it, as `whatif` simulates. Kernel
    cycles are what the grid and the op table show; limiter cycles are never fewer, because operands and the
    output may take longer than the kernel. `edges`: why t-streams or stacks of a shape do not go together with
    a neighbour as it stands; the placer then gives the neighbour another candidate, or a new epoch."""

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
        """The reason against a shape, None if it is legal. Raises `InputError` for one that no grid has."""
        self._on_grid(rows, cols)
        return self.reasons.get(int(self.shapes[rows - 1, cols - 1]["verdict"]))

    def starts(self, rows: int, cols: int) -> list[tuple[int, int]]:
        """Cores (row, column) where the shape may start in the op's epoch. Raises `InputError` as `why_not` does."""
        self._on_grid(rows, cols)
        masks = self.anchors[rows - 1, cols - 1]
        return [(y, x) for y, mask in enumerate(masks.tolist()) for x in range(mask.bit_length()) if mask >> x & 1]

    def _on_grid(self, rows: int, cols: int) -> None:
        high, wide = self.shapes.shape
        if not (1 <= rows <= high and 1 <= cols <= wide):
            raise InputError(f"the table has shapes of 1x1 to {high}x{wide} cores, not {rows}x{cols}")


def free_starts(busy: np.ndarray) -> np.ndarray:
    """(R, C, R) uint32 bit masks of free starts for every height and width; `busy`: (R, C) bool."""
    rows, cols = busy.shape
    total = np.zeros((rows + 1, cols + 1), dtype=np.int32)
    total[1:, 1:] = busy.cumsum(axis=0).cumsum(axis=1)
    inside, corners, bits = _corners(rows, cols)
    used = total.reshape(-1)[corners]
    free = inside & (used[0] - used[1] == used[2] - used[3])
    masks: np.ndarray = (free * bits).sum(axis=3, dtype=np.uint32)
    return masks


@functools.lru_cache(maxsize=16)
def _corners(rows: int, cols: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """For every (height, width, y, x): whether the rectangle lies on the grid; where its four corners are in a flat
    table of sums (rows + 1, cols + 1), those that count and then those that are taken off; the bit of x."""
    y, x = np.arange(rows), np.arange(cols)
    height, width = np.arange(1, rows + 1), np.arange(1, cols + 1)
    end_y, end_x = y[None, :] + height[:, None], x[None, :] + width[:, None]  # (height, y), (width, x)
    inside = (end_y <= rows)[:, None, :, None] & (end_x <= cols)[None, :, None, :]
    low = np.minimum(end_y, rows)[:, None, :, None] * (cols + 1)
    right = np.minimum(end_x, cols)[None, :, None, :]
    top, left = y[None, None, :, None] * (cols + 1), x[None, None, None, :]
    corners = np.stack(np.broadcast_arrays(low + right, top + right, low + left, top + left))
    return inside, corners, np.uint32(1) << x.astype(np.uint32)


@no_collections()
def legal_of(compiles: Compiles, op: str) -> LegalTable:
    """See `Session.legal`."""
    placed = compiles.placed()
    if op not in placed.problem.number:
        near = difflib.get_close_matches(op, placed.problem.order, n=3, cutoff=0.3) if isinstance(op, str) else []
        raise InputError(f"{op!r} is not an op of the placed graph" + (f"; near it: {', '.join(near)}" if near else ""))
    return legal_table(placed, op, compiles.free_table(op, ("op_size",)))


def legal_table(placed: PlacedOps, op: str, table: OpModels) -> LegalTable:
    """The table of a placed op. table: its candidates without a size override."""
    number = placed.problem.number[op]
    problem = placed.problem.with_table(number, table)
    index = placed.epoch_of(number)
    segment, facts = placed.segments[index], placed.epoch(index)
    current = placed.problem.tables[number].rows[facts.rows[number]]
    spot = segment.spots[number - segment.first]

    best = _best(problem, number, table, (segment.first, segment.last), facts)
    shapes = best.shapes.copy()
    _check_pin(problem, number, shapes)
    where, output = facts.places[number]
    reads = placed.problem.dram_cores(number, where, output)[facts.rows[number]]
    limiters, ops = _epoch(problem, number, facts, best, int(reads), shapes)
    shapes["time"] = time_of(placed).per_input + shapes["epoch_cycles"] - segment.limiter_cycles
    edges = edge_refusals(problem, number, facts.rows, (segment.first, segment.last), shapes)
    used = sorted({int(v) for v in np.unique(shapes["verdict"]) if v})
    return LegalTable(
        op,
        index,
        (int(current["grid_r"]), int(current["grid_c"])),
        (spot[0], spot[1]),
        spot[2],
        shapes,
        free_starts(facts.busy_beside(number)),
        {v: _text(v, parallel_tiles(problem.profiles[number])) for v in used},
        table,
        limiters,
        ops,
        edges,
    )


@dataclasses.dataclass(frozen=True)
class _Best:
    """The best candidate of every shape, for one load of the epoch. legal: (k,) flat indices of the shapes that have
    one; demands: of those k candidates; dram_cores: (k,)."""

    shapes: np.ndarray
    legal: np.ndarray
    demands: Demands
    dram_cores: np.ndarray


def _best(problem: Problem, op: int, table: OpModels, span: tuple[int, int], facts: EpochFacts) -> _Best:
    """`_shapes` and what limits them, kept for ops with the same candidates in the same surroundings."""
    where, output = problem.places(op, *span)
    load = facts.load
    divider = dram_divider(problem.device, load.dram_cores)
    key = ("shapes", table.signature, where, output, divider, load.host_cores)
    entry = problem.costs.answers.get(key)
    if entry is None:
        shapes = _shapes(problem, op, table, span, load)
        rows = shapes["row"].reshape(-1)
        legal = np.flatnonzero(rows >= 0)
        picked = rows[legal]
        entry = _Best(
            shapes,
            legal,
            demands(
                problem.profiles[op],
                table.rows[picked],
                problem.device,
                where,
                output,
                load.host_cores,
                problem.inputs(op),
            ),
            problem.dram_cores(op, where, output)[picked],
        )
        problem.costs.answers[key] = entry
    assert isinstance(entry, _Best)
    return entry


def _epoch(
    problem: Problem, op: int, facts: EpochFacts, best: _Best, reads: int, shapes: np.ndarray
) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Fills in the columns that say what limits the op and its epoch; returns what their numbers mean. A shape with
    more cores at DRAM slows down all that use DRAM; `reads`: how many the op has now."""
    device, first = problem.device, facts.segment.first
    where, output = facts.places[op]
    flat, legal = shapes.reshape(-1), best.legal
    counts, which = np.unique(facts.load.dram_cores - reads + best.dram_cores, return_inverse=True)
    dividers = np.array([dram_divider(device, int(n)) for n in counts], dtype=np.int64)[which]
    parts = np.maximum(best.demands.cycles, best.demands.shared / (device.dram_bytes_per_cycle / dividers))
    own = np.ceil(parts.max(axis=0)) if parts.size else np.zeros(len(legal))
    names = [problem.order[op]]
    slowest, by = np.zeros(len(legal)), np.zeros(len(legal), dtype=np.int64)
    for divider in np.unique(dividers).tolist():
        others = facts.limits(divider).copy()
        others[op - first] = -1.0
        worst = int(others.argmax()) if len(others) > 1 else op - first
        name = problem.order[first + worst]
        if name not in names:
            names.append(name)
        same = dividers == divider
        slowest[same], by[same] = max(0.0, others[worst]), names.index(name)
    flat["limiter"][legal] = parts.argmax(axis=0)
    flat["limiter_cycles"][legal] = own
    flat["epoch_cycles"][legal] = np.ceil(np.maximum(own, slowest))
    flat["epoch_op"][legal] = np.where(own < np.ceil(slowest), by, 0)
    kernel = np.delete(facts.kernel, op - first)
    work = float((kernel * np.delete(facts.cores, op - first)).sum())
    limits = np.maximum(flat["cycles"], kernel.max(initial=0.0))
    flat["epoch_kernel_cycles"] = np.where(flat["row"] >= 0, limits, np.nan)
    used = flat["cycles"] * flat["cores"]
    flat["balance"] = (work + used) / np.maximum(1.0, flat["epoch_cycles"] * problem.cores)
    return tuple(limiter_name(k, where, output) for k in range(3 + len(where))), tuple(names)


def edge_refusals(
    problem: Problem, op: int, rows: Mapping[int, int], span: tuple[int, int], shapes: np.ndarray
) -> dict[int, str]:
    """Fills in `edge`: the router's rules of stacks and those of t-streaming against the neighbours as they stand
    (buffers, streams and phases need a walk over tiles, which `whatif` does)."""
    flat = shapes.reshape(-1)
    fact, table, profile = problem.facts[op], problem.tables[op].rows, problem.profiles[op]
    near = [(p, op, port) for port, p in enumerate(fact.producers) if fact.by_noc(port, *span)]
    near += [(op, r, port) for r, port in fact.readers if r in rows and problem.facts[r].by_noc(port, *span)]
    others = []  # (producer, reader, operand, row of the neighbour, whether it streams)
    for producer, reader, port in near:
        neighbour = reader if producer == op else producer
        row = table[0] if neighbour == op else problem.tables[neighbour].rows[rows[neighbour]]
        others.append((producer, reader, port, row, bool(row["stream"])))
    legal = np.flatnonzero(flat["row"] >= 0)
    texts: dict[str, int] = {}
    for producer, reader, port in near:
        own = flat["row"][legal].astype(np.int64)
        other = np.full(own.shape, rows.get(reader if producer == op else producer, 0), np.int64)
        routes = problem.costs.edges.routes.table(
            problem.tables[producer], problem.tables[reader], port, problem.orders[problem.order[reader]]
        )
        rules = routes.rules(own, other) if producer == op else routes.rules(other, own)
        fitting = _shapes_text(problem, legal[rules == 0])
        for number in np.unique(rules[rules > 0]).tolist():
            text = refusal_text(problem, producer, reader, refusal(RouteRule(number)))
            text = f"{text}; {fitting}"
            refused = legal[(rules == number) & (flat["edge"][legal] == 0)]
            if len(refused):
                flat["edge"][refused] = texts.setdefault(text, len(texts) + 1)
    legal = legal[flat["edge"][legal] == 0]
    streams = table["stream"][flat["row"][legal]] != ""
    if not any(other[-1] for other in others):
        legal = legal[streams]
    for at in legal.tolist():
        mine = table[int(flat["row"][at])]
        streamed = bool(mine["stream"])
        for producer, reader, port, row, theirs in others:
            if not (streamed or theirs):
                continue
            first, second = (mine, row) if producer == op else (row, mine)
            profiles = profile if producer == op else problem.profiles[producer], problem.profiles[reader]
            reason = stream_verdict(profiles[0], first, profiles[1], port, second)
            if reason is not EdgeReason.LEGAL:
                text = refusal_text(problem, producer, reader, reason)
                flat["edge"][at] = texts.setdefault(text, len(texts) + 1)
                break
    return {number: text for text, number in texts.items()}


def _shapes_text(problem: Problem, shapes: np.ndarray) -> str:
    """Which shapes (row * columns + column, from 0) go with a neighbour as it stands, the largest first."""
    if not len(shapes):
        return "no shape is legal on this edge"
    sizes = np.stack([shapes // problem.device.cols + 1, shapes % problem.device.cols + 1], axis=1)
    order = np.lexsort((sizes[:, 1], sizes[:, 0], -sizes.prod(axis=1)))[:_FITTING]
    words = ", ".join(f"{r}x{c}" for r, c in sizes[order].tolist())
    more = f" and {len(shapes) - len(order)} more" if len(shapes) > len(order) else ""
    return f"legal on this edge: {words}{more}"


def _shapes(problem: Problem, op: int, table: OpModels, span: tuple[int, int], load: EpochLoad) -> np.ndarray:
    """The columns that depend on the candidates alone: best candidate of every shape, or the commonest reason against
    it."""
    device = problem.device
    rows = table.rows
    shape = (rows["grid_r"].astype(np.int64) - 1) * device.cols + rows["grid_c"] - 1
    where, output = problem.places(op, *span)
    cycles = problem.row_limits(op, where, output, load)

    result = np.zeros(device.rows * device.cols, dtype=LEGAL)
    result["verdict"] = _divides(problem, op)
    result["row"] = -1
    for field in ("cycles", "limiter_cycles", "epoch_kernel_cycles", "epoch_cycles", "time"):
        result[field] = np.nan
    reasons = rows["reason"].astype(np.int64)
    counts = np.bincount(shape * len(Reason) + reasons, minlength=len(result) * len(Reason))
    counts = counts.reshape(len(result), len(Reason))
    refused = counts.sum(axis=1) > 0
    counts[:, Reason.LEGAL] = 0
    result["verdict"][refused] = counts[refused].argmax(axis=1)

    legal = problem.legal[table.signature]
    order = legal[np.lexsort((rows["t"][legal], np.ceil(cycles[legal]), shape[legal]))]  # stable: legal ascends
    first = np.flatnonzero(np.diff(shape[order], prepend=-1))
    best = order[first]
    at = shape[best]
    result["verdict"][at] = 0
    result["cycles"][at] = rows["cycles"][best]
    result["l1_bytes"][at] = rows["l1_total"][best]
    result["row"][at] = best
    grid = np.indices((device.rows, device.cols)) + 1
    result["cores"] = (grid[0] * grid[1]).reshape(-1)
    return result.reshape(device.rows, device.cols)


def _check_pin(problem: Problem, op: int, shapes: np.ndarray) -> None:
    """Refuses the shapes that reach beyond the grid from where the op is pinned."""
    pin = problem.pins.get(problem.order[op])
    if pin is not None:
        grid = np.indices(shapes.shape) + 1
        height, width = (grid[1], grid[0]) if pin.transpose else (grid[0], grid[1])
        top, left = pin.start or (0, 0)
        outside = (height + top > shapes.shape[0]) | (width + left > shapes.shape[1])
        shapes["verdict"][outside & (shapes["verdict"] == 0)] = ShapeReason.PIN


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
        ShapeReason.PIN: ("where the op is pinned that shape reaches beyond the grid", "move or remove the pin"),
    }
    meaning, fix = own[ShapeReason(verdict)]
    return ReasonText(verdict, ShapeReason(verdict).name, meaning, fix)
