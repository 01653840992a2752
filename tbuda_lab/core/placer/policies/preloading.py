"""Which parameters of a chosen epoch wait in L1 and which are streamed: preloading takes DRAM once per batch and L1,
streaming takes DRAM for every input. Grids, blocks and places stay as they are."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tbuda_lab.core.balancer.bandwidth import dram_divider, dram_rate
from tbuda_lab.core.balancer.types import LAYOUT
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, choose_rows, measure
from tbuda_lab.core.placer.stalls.epoch_throughput import throughputs

_ROUNDS = 24
_WORTH = 0.999


def settle_preloads(problem: Problem, segment: Segment, upstream_rows: Mapping[int, int]) -> Segment:
    """The epoch with the parameters preloaded or streamed by which a batch of it takes the fewest cycles: the choice
    that saves most first, one operand after the other; the simulator of epochs has the last word."""
    first, last = segment.first, segment.last
    rows = dict(zip(range(first, last), segment.rows, strict=True))
    state = _EpochRows(problem, first, last, rows)
    changed = False
    for _ in range(_ROUNDS):
        better = state.best()
        if better is None:
            break
        op, row = better
        trial = {**rows, op: row}
        if choose_rows(problem, first, last, trial, 0, float("inf"), upstream_rows)[0] != trial:
            state.forbid(op, row)
            continue
        rows, changed = trial, True
        state.take(op, row)
    if not changed:
        return segment
    kernel, limiter, _ = measure(problem, first, last, rows)
    result = dataclasses.replace(segment, rows=tuple(rows.values()), kernel_cycles=kernel, limiter_cycles=limiter)
    was, now = throughputs([(problem, segment), (problem, result)])
    return result if (now.deadlocks, now.roomy) < (was.deadlocks, _WORTH * was.roomy) else segment


class _EpochRows:
    """The ops of an epoch as arrays: for each the row that it has, and all rows of the same layout that preload other
    operands. Cycles are those of a batch: what all of DRAM takes to preload, with what is streamed for the first input
    meanwhile, and the slowest op for every input."""

    def __init__(self, problem: Problem, first: int, last: int, rows: Mapping[int, int]) -> None:
        self.device, self.batch = problem.device, problem.inputs(first)
        self.now = np.arange(last - first)  # where in the flat arrays the row of each op stands
        owner: list[int] = []
        flat: list[int] = []
        columns: list[np.ndarray] = []
        for at, op in enumerate(range(first, last)):
            others = _others(problem, op, rows[op])
            where, output = problem.places(op, first, last)
            op_choices = problem.choices(op, where, output)
            picked = np.searchsorted(op_choices.legal, np.array([rows[op], *others]))
            most, total = problem.loads(op)
            taken = op_choices.legal[picked]
            columns.append(
                np.stack(
                    [
                        op_choices.fixed[picked],
                        op_choices.shared[picked],
                        op_choices.dram[picked],
                        most[taken],
                        total[taken],
                        problem.streamed(op, where)[taken],
                    ]
                )
            )
            self.now[at] = len(flat)
            owner += [op] * len(taken)
            flat += taken.tolist()
        self.owner, self.rows, self.first = np.array(owner), np.array(flat), first
        self.fixed, self.shared, self.dram, self.most, self.total, self.streamed = np.concatenate(columns, axis=1)
        self.open = np.ones(len(flat), dtype=bool)
        self.open[self.now] = False

    def forbid(self, op: int, row: int) -> None:
        """That row is not legal among the others."""
        self.open[(self.owner == op) & (self.rows == row)] = False

    def take(self, op: int, row: int) -> None:
        """Gives an op another row; what it had is not tried again."""
        at = int(np.flatnonzero((self.owner == op) & (self.rows == row))[0])
        self.open[at] = False
        self.now[op - self.first] = at

    def best(self) -> tuple[int, int] | None:
        """The op and row whose change saves most, None if none saves anything."""
        tried = np.flatnonzero(self.open)
        if not len(tried):
            return None
        now = self._cycles(self.now[None, :])[0]
        trial = np.tile(self.now, (len(tried), 1))
        trial[np.arange(len(tried)), self.owner[tried] - self.first] = tried
        cycles = self._cycles(trial)
        at = int(cycles.argmin())
        return (int(self.owner[tried[at]]), int(self.rows[tried[at]])) if cycles[at] < _WORTH * now else None

    def _cycles(self, taken: np.ndarray) -> np.ndarray:
        """(trials,) cycles of a batch. taken: (trials, ops) where the row of each op stands."""
        rate = self.device.dram_bytes_per_cycle
        users = self.dram[taken].sum(axis=1)
        divider = np.array([dram_divider(self.device, int(count)) for count in users])
        slowest = np.maximum(self.fixed[taken], self.shared[taken] * (divider / rate)[:, None]).max(axis=1)
        bytes_ = self.total[taken].sum(axis=1)
        bytes_ += np.where(bytes_ > 0, self.streamed[taken].sum(axis=1), 0.0)
        load = np.maximum(self.most[taken].max(axis=1) / (rate / 2), bytes_ / dram_rate(self.device))
        cycles: np.ndarray = load + self.batch * slowest
        return cycles


def preload_variants(problem: Problem, segment: Segment) -> list[Segment]:
    """The epoch with one op that preloads other operands, in every such way."""
    first, last = segment.first, segment.last
    rows = dict(zip(range(first, last), segment.rows, strict=True))
    variants: list[Segment] = []
    for op in rows:
        for row in _others(problem, op, rows[op]):
            changed = {**rows, op: row}
            kernel, limiter, _ = measure(problem, first, last, changed)
            chosen = tuple(changed.values())
            variants.append(dataclasses.replace(segment, rows=chosen, kernel_cycles=kernel, limiter_cycles=limiter))
    return variants


def drop_preloads(problem: Problem, segment: Segment, refused: Mapping[int, int]) -> Segment:
    """The epoch with candidates that differ in what they preload alone, and leave out what is refused: by op the bits
    of `prologue`. Ops without such a candidate stay as they are."""
    first, last = segment.first, segment.last
    rows = dict(zip(range(first, last), segment.rows, strict=True))
    for op, bits in refused.items():
        asked = problem.tables[op].rows["prologue"]
        fewer = [row for row in _others(problem, op, rows[op]) if not int(asked[row]) & bits]
        if fewer:
            rows[op] = max(fewer, key=lambda row: int(asked[row]).bit_count())
    if tuple(rows.values()) == segment.rows:
        return segment
    kernel, limiter, _ = measure(problem, first, last, rows)
    return dataclasses.replace(segment, rows=tuple(rows.values()), kernel_cycles=kernel, limiter_cycles=limiter)


def _others(problem: Problem, op: int, row: int) -> list[int]:
    """Legal rows of an op's table that differ from `row` in what they preload alone; the largest inner step each."""
    table = problem.tables[op]
    legal = problem.legal[table.signature]
    key = ("preloads", table.signature, row)
    entry = problem.costs.answers.get(key)
    if isinstance(entry, list):
        return entry
    mine = table.rows[row]
    same = legal
    for field in LAYOUT:
        same = same[table.rows[field][same] == mine[field]]
    same = same[table.rows["prologue"][same] != mine["prologue"]]
    order = same[np.lexsort((same, table.rows["cycles"][same]))]
    first = np.unique(table.rows["prologue"][order], return_index=True)[1]
    others = sorted(order[first].tolist())
    problem.costs.answers[key] = others
    return others
