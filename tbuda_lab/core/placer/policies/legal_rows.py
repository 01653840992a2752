"""The legal rows of an op as those look at them who choose shapes by when an epoch's first input is through."""

from __future__ import annotations

import dataclasses
import functools

import numpy as np

from tbuda_lab.core.balancer.blocks import group_numbers
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.stalls.first_results import first_results_of

_MAX_STEPS = EpochConstants().max_steps


@dataclasses.dataclass(frozen=True)
class LegalRows:
    """(rows,) each. number: in the table; cores; kernel: its cycles; first: part of an op's cycles until its first
    tiles leave; needs: (ports, rows) parts of each operand that have to be there by then, `most` the largest of them;
    streaming: a number for it; in_turns: which have a single output buffer, so that op and reader take turns;
    simulated: which the simulator takes in steps no coarser than their blocks."""

    number: np.ndarray
    cores: np.ndarray
    kernel: np.ndarray
    first: np.ndarray
    needs: np.ndarray
    most: np.ndarray
    streaming: np.ndarray
    in_turns: np.ndarray
    simulated: np.ndarray

    @functools.cached_property
    def by_cores(self) -> np.ndarray:
        """Which rows, fewest cores first."""
        return np.argsort(self.cores, kind="stable")

    def at(self, row: int) -> int:
        """Where a legal row of the table stands."""
        return int(np.searchsorted(self.number, row))


def legal_rows(problem: Problem, op: int) -> LegalRows:
    """Of one op."""
    table, order = problem.tables[op], problem.orders[problem.order[op]]
    key = ("legal rows", table.signature, order)
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, LegalRows):
        number = problem.legal[table.signature]
        data = table.rows[number]
        results = first_results_of(problem.profiles[op], data, order, problem.device)
        needs = np.stack(results.needs) if results.needs else np.zeros((1, len(number)))
        entry = problem.costs.answers[key] = LegalRows(
            number,
            data["cores"].astype(np.int64),
            data["cycles"].astype(np.int64),
            results.first,
            needs,
            needs.max(axis=0),
            group_numbers(data["stream_r"], data["stream_c"], data["stream"] == "rz").astype(np.int32),
            data["buf_size_mb"] == 1,
            data["t"] <= _MAX_STEPS,
        )
    return entry


def no_heavier(problem: Problem, op: int, where: tuple[str, ...], output: str, now: int) -> np.ndarray:
    """(legal rows,) which of them preload what the row that the op has now does, with no more cores on DRAM. where,
    output: over what its operands and its output move."""
    table = problem.tables[op]
    key = ("no heavier", table.signature, where, output, now)
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, np.ndarray):
        legal, dram = problem.legal[table.signature], problem.dram_cores(op, where, output)
        prologue = table.rows["prologue"]
        entry = (prologue[legal] == prologue[now]) & (dram[legal] <= dram[now])
        problem.costs.answers[key] = entry
    return entry
