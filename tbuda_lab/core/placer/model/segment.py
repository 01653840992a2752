"""One epoch made real: candidates for a run of ops that meet a target, whose edges are legal, and that pack."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import numpy as np

from tbuda_lab.core.balancer.bandwidth import EpochLoad, dram_divider
from tbuda_lab.core.balancer.edges import EdgeReason
from tbuda_lab.core.placer.model.edge_compatibility import EdgeCompatibility, Repair, repair_around
from tbuda_lab.core.placer.model.grid import Item, Spot, pack
from tbuda_lab.core.placer.model.problem import Problem

MOST_ALTERNATIVES = 24


@dataclasses.dataclass(frozen=True)
class Segment:
    """Ops [first, last) as one epoch: row and spot of each, cycles per input of its slowest op. stall_cycles: cycles
    per input that full buffers, or repairing them, cost beyond the slowest op, and that filling it costs (see
    `with_stall_cycles`); 0 until it is priced."""

    first: int
    last: int
    rows: tuple[int, ...]
    spots: tuple[Spot, ...]
    kernel_cycles: int
    limiter_cycles: int
    stall_cycles: float = 0.0


def alternatives(
    problem: Problem,
    op: int,
    first: int,
    last: int,
    load: int,
    target: float,
    kernel: float = math.inf,
    apart: bool = False,
) -> np.ndarray:
    """Legal rows of an op that meet the target, and one for the kernel alone, fewest cores first; if `apart`, those
    that would not meet it together with their reader, with which they take turns, after all others."""
    where, output = problem.places(op, first, last)
    table = problem.tables[op]
    rows = problem.by_cores(op, where, output, load)
    cycles = problem.row_limits(op, where, output, EpochLoad(load, 0))[rows]
    fits = (cycles <= target) & (table.rows["cycles"][rows] <= kernel)
    if not apart:
        legal: np.ndarray = rows[fits]
        return legal
    turns = problem.choices(op, where, output).turns[rows] * cycles > target
    chosen: np.ndarray = np.concatenate([rows[fits & ~turns], rows[fits & turns]])
    return chosen


def choose_rows(
    problem: Problem,
    first: int,
    last: int,
    picked: Mapping[int, int],
    load: int,
    target: float,
    upstream_rows: Mapping[int, int],
    kernel: float = math.inf,
    repairs: dict[tuple[object, ...], Repair] | None = None,
    apart: bool = False,
) -> tuple[dict[int, int] | None, EdgeCompatibility]:
    """Rows for ops [first, last) with legal edges: the picked ones where they are legal, else the next best of the op,
    else of one of its producers. None if that does not suffice; the book then tells the last refusal. repairs: see
    `EdgeCompatibility`; apart: see `alternatives`."""
    book = EdgeCompatibility(problem, first, last, upstream_rows, repairs)
    crowded = book.users_ok()
    if crowded is not None and last - first > 1:
        book.refused = (crowded, crowded, EdgeReason.USERS)
        return None, book
    for op in range(first, last):
        if book.check(op, picked[op]):
            book.rows[op] = picked[op]
            continue
        if _repair(problem, book, op, picked[op], load, target, kernel, apart):
            continue
        return None, book
    return book.rows, book


def spread_rows(rows: np.ndarray, shapes: np.ndarray, limit: int) -> list[int]:
    """At most `limit` rows, the first of every (grid, stream, buffer) before a second blocking of any. `shapes`: for
    every row of the table the number of its (grid, stream, buffer)."""
    if not len(rows):
        return []
    of = shapes[rows]
    first = np.full(int(of.max()) + 1, len(rows))
    np.minimum.at(first, of, np.arange(len(rows)))
    leading = np.sort(first)[:limit]
    leading = leading[leading < len(rows)]
    spread: list[int] = rows[leading].tolist() + rows[: limit // 2].tolist()
    return spread


def _few_alternatives(
    problem: Problem, op: int, first: int, last: int, load: int, target: float, kernel: float, apart: bool
) -> list[int]:
    """Of the alternatives of an op those that are tried when its edges are illegal, each once."""
    divider = dram_divider(problem.device, load)
    places = problem.places(op, first, last)
    key = ("few alternatives", problem.tables[op].signature, places, divider, target, kernel, apart)
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, list):
        rows = alternatives(problem, op, first, last, load, target, kernel, apart)
        entry = list(dict.fromkeys(spread_rows(rows, problem.shapes(op), MOST_ALTERNATIVES)))
        problem.costs.answers[key] = entry
    return entry


def _repair(
    problem: Problem,
    book: EdgeCompatibility,
    op: int,
    picked: int,
    load: int,
    target: float,
    kernel: float,
    apart: bool,
) -> bool:
    """Another row for an op whose picked one is illegal with those chosen, or rows for it and one of its producers:
    whichever takes the fewest cores."""

    def rows(op: int) -> list[int]:
        return _few_alternatives(problem, op, book.first, book.last, load, target, kernel, apart)

    options = rows(op)
    others = {p: rows(p) for p in dict.fromkeys(problem.facts[op].producers) if p in book.rows}
    key = (op, picked, tuple(options), tuple(map(tuple, others.values())), book.visible_rows(op))
    entry = book.repairs.get(key)
    if entry is None:
        entry = _repair_rows(problem, book, op, picked, options, others), book.refused
        book.repairs[key] = entry
    best, book.refused = entry
    book.rows.update(best)
    return bool(best)


def _repair_rows(
    problem: Problem, book: EdgeCompatibility, op: int, picked: int, options: list[int], others: Mapping[int, list[int]]
) -> dict[int, int]:
    """The rows that `_repair` changes, none where nothing helps. options: rows of the op; others: of its producers."""
    cores = problem.tables[op].rows["cores"]
    beyond = dict(zip(options, (cores[options].astype(np.int64) - int(cores[picked])).tolist(), strict=True))
    best: dict[int, int] = {}
    extra = math.inf
    for row in options:
        if book.check(op, row):
            best, extra = {op: row}, beyond[row]
            break
    for producer, theirs in others.items():
        if extra <= 0:
            break
        price = problem.tables[producer].rows["cores"]
        old_row = book.rows[producer]
        pairs: list[tuple[int, int, list[int]]] = []  # another row of the producer, cores it takes more, rows with it
        with_more: dict[int, list[int]] = {}
        for other, more in zip(theirs, (price[theirs].astype(np.int64) - int(price[old_row])).tolist(), strict=True):
            rows = with_more.get(more)
            if rows is None:
                rows = with_more[more] = [row for row in options if more + beyond[row] < extra]
            if other != old_row and rows:
                pairs.append((other, more, rows))
        better = _repair_two(book, op, producer, pairs, beyond, extra)
        if better is not None:
            best, extra = better
    return best or repair_around(book, op, options, others)


def _repair_two(
    book: EdgeCompatibility,
    op: int,
    producer: int,
    pairs: list[tuple[int, int, list[int]]],
    beyond: Mapping[int, int],
    extra: float,
) -> tuple[dict[int, int], int] | None:
    """(rows of both, cores they take more) of the pair of a producer's row and an op's row that takes the fewest, below
    `extra`. pairs: (producer's row, cores it takes more, all rows of the op that stay below `extra` with it), in the
    order in which they are tried; beyond: cores that a row of the op takes more than the one it should have had.

    Limits only add up: a row that is refused without the producer is refused with any row of it. The refusal that the
    book tells in the end is that of the last pair, as if all had been tried.
    """
    if not pairs:
        return None
    old_row = book.rows.pop(producer)
    refused = book.refused
    # the pair whose producer takes the fewest cores has the rows of all others
    alone = {row for row in max((rows for _, _, rows in pairs), key=len) if book.check(op, row)}
    book.refused = refused
    best: tuple[dict[int, int], int] | None = None
    last: tuple[int, int] | None = None  # a pair passed over after the last refusal
    for other, more, rows in pairs if alone else pairs[-1:]:
        rows = [row for row in rows if more + beyond[row] < extra]
        if not rows:
            continue
        if not book.check(producer, other):
            last = None
            continue
        book.rows[producer] = other
        for row in rows:
            if row not in alone:
                last = other, row
            elif book.check(op, row):
                best = {producer: other, op: row}, more + beyond[row]
                extra = best[1]
                break
            else:
                last = None
        del book.rows[producer]
    if last is not None:
        book.rows[producer] = last[0]
        book.check(op, last[1])
    book.rows[producer] = old_row
    return best


def measure(problem: Problem, first: int, last: int, rows: Mapping[int, int]) -> tuple[int, int, EpochLoad]:
    """(kernel cycles, limiter cycles, load) of an epoch with these rows."""
    dram = host = 0
    places = {op: problem.places(op, first, last) for op in range(first, last)}
    for op, (where, output) in places.items():
        dram += int(problem.dram_cores(op, where, output)[rows[op]])  # pickers may be streamed, too
        host += problem.host_cores(op, where, output, rows[op])
    load = EpochLoad(dram, host)
    kernel = max(int(problem.tables[op].rows[rows[op]]["cycles"]) for op in rows)
    limiter = max(math.ceil(float(problem.row_limits(op, *places[op], load)[rows[op]])) for op in rows)
    return kernel, limiter, load


def items(problem: Problem, first: int, last: int, rows: Mapping[int, int]) -> list[Item]:
    """Rectangles of the ops, with the user's pins applied (a pinned transposition swaps rows and columns)."""
    items: list[Item] = []
    for op in range(first, last):
        row = problem.tables[op].rows[rows[op]]
        pin = problem.pins.get(problem.order[op])
        height, width = int(row["grid_r"]), int(row["grid_c"])
        turn = not problem.options.place_on_one_row
        if pin is not None and pin.transpose is not None:
            turn = False
            if pin.transpose:
                height, width = width, height
        lies = turn and problem.options.enable_auto_transposing_placement
        items.append(Item(height, width, turn, pin.start if pin else None, lies))
    return items


def place_rows(problem: Problem, first: int, last: int, rows: Mapping[int, int]) -> Segment | None:
    """Packs an epoch and measures it; None when the rectangles do not fit."""
    spots = pack(items(problem, first, last, rows), problem.device.rows, problem.device.cols)
    if spots is None:
        return None
    turned: list[Spot] = []
    for op, spot in zip(range(first, last), spots, strict=True):
        pin = problem.pins.get(problem.order[op])
        turned.append((spot[0], spot[1], True) if pin is not None and pin.transpose else spot)
    kernel, limiter, _ = measure(problem, first, last, rows)
    return Segment(first, last, tuple(rows[op] for op in range(first, last)), tuple(turned), kernel, limiter)


def cores_of(problem: Problem, segment: Segment) -> int:
    """Cores that the ops of an epoch take."""
    rows = zip(range(segment.first, segment.last), segment.rows, strict=True)
    return sum(int(problem.tables[op].rows["cores"][row]) for op, row in rows)


def polish(
    problem: Problem, segment: Segment, upstream_rows: Mapping[int, int], rounds: int = 16, spare: int = 0
) -> Segment:
    """Gives cores that are left, all but `spare`, to the op that limits the epoch, as long as that makes the epoch
    faster; then to the op with the slowest kernel, which no longer matters while DRAM limits, but does for a larger
    batch."""
    for by_kernel in (False, True):
        for _ in range(rounds):
            better = _larger(problem, segment, upstream_rows, by_kernel, spare)
            if better is None:
                break
            segment = better
    return segment


def _larger(
    problem: Problem, segment: Segment, upstream_rows: Mapping[int, int], by_kernel: bool, spare: int
) -> Segment | None:
    first, last = segment.first, segment.last
    rows = dict(zip(range(first, last), segment.rows, strict=True))
    kernel, limiter, load = measure(problem, first, last, rows)
    used = cores_of(problem, segment)

    def cycles(op: int) -> float:
        if by_kernel:
            return float(problem.tables[op].rows["cycles"][rows[op]])
        return float(problem.row_limits(op, *problem.places(op, first, last), load)[rows[op]])

    slowest = max(rows, key=lambda op: (cycles(op), -op))
    table = problem.tables[slowest].rows
    target = limiter if by_kernel else math.nextafter(limiter - 1.0, 0.0)
    options = alternatives(problem, slowest, first, last, load.dram_cores, target)
    if by_kernel:
        options = options[table["cycles"][options] < kernel]
    room = problem.cores - spare - used + int(table["cores"][rows[slowest]])
    options = options[table["cores"][options] <= room]
    book = EdgeCompatibility(problem, first, last, upstream_rows)
    book.rows = {op: row for op, row in rows.items() if op != slowest}
    for row in spread_rows(options, problem.shapes(slowest), MOST_ALTERNATIVES)[:MOST_ALTERNATIVES]:
        trial = {**rows, slowest: row}
        after = measure(problem, first, last, trial)
        gain = after[1] <= limiter and after[0] < kernel if by_kernel else after[1] < limiter
        if not gain or not book.check(slowest, row):
            continue
        placed = place_rows(problem, first, last, trial)
        if placed is not None:
            return placed
    return None


def divider_levels(problem: Problem) -> list[int]:
    """DRAM dividers worth telling apart, from none to all cores reading DRAM."""
    top = dram_divider(problem.device, 3 * problem.cores)
    levels = [2]
    while levels[-1] < top:
        levels.append(max(levels[-1] + 1, math.ceil(levels[-1] * 1.35)))
    return levels
