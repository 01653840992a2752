"""The candidates a policy of upstream would see: one blocking per grid and t-stream, where our tables hold them all.

Upstream takes the largest ublock that fits (placement.md#enumeration), preloads parameters when they fit,
and for a dense matmul enumerates every u_kt below the largest legal one.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator

import numpy as np

from tbuda_lab.core.balancer.bandwidth import EpochLoad
from tbuda_lab.core.balancer.blocks import group_numbers
from tbuda_lab.core.balancer.l1 import preloads, preloads_large
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import sparse_pairs

_SHAPE = ("grid_r", "grid_c", "stream_r", "stream_c", "t")


def _codes(data: np.ndarray, *fields: str) -> np.ndarray:
    """(rows,) group numbers: equal where all the fields are equal."""
    return group_numbers(*(data[f] for f in fields), data["stream"] == "rz")


def _first_of(groups: np.ndarray) -> np.ndarray:
    """(rows,) for every row the index of the first row of its group."""
    _, first = np.unique(groups, return_index=True)
    return np.asarray(first[groups])


class Candidates:
    """Legal rows per op, and the facts about them that several policies ask for."""

    def __init__(self, problem: Problem) -> None:
        self._problem = weakref.ref(problem)  # these are kept under it: a strong one would keep both for good
        self._rows: dict[str, np.ndarray] = {}
        self._cycles: dict[tuple[object, ...], np.ndarray] = {}
        names = problem.number
        self.pair_of = {names[s]: names[d] for s, d in sparse_pairs(problem.graph).items() if names[d] == names[s] + 1}
        self._volumes = self._prologue_volumes()

    @property
    def problem(self) -> Problem:
        problem = self._problem()
        assert problem is not None, "whoever asks for candidates holds the problem"
        return problem

    def rows(self, op: int) -> np.ndarray:
        """Rows of an op's table that upstream would have enumerated, in table order."""
        table = self.problem.tables[op]
        entry = self._rows.get(table.signature)
        if entry is None:
            legal = self.problem.legal[table.signature]
            data = table.rows[legal]
            shape = _codes(data, *_SHAPE)
            first = _first_of(shape)
            keep = (data["ublock_r"] == data["ublock_r"][first]) & (data["ublock_c"] == data["ublock_c"][first])
            if self.problem.profiles[op].kind != "matmul":
                keep &= data["u_kt"] == data["u_kt"][first]
            legal, data = legal[keep], data[keep]
            same = _codes(data, *_SHAPE, "u_kt", "buf_size_mb")
            preloaded = np.zeros(int(same.max(initial=-1)) + 1, dtype=bool)
            preloading = preloads_large(self.problem.profiles[op], data)
            np.logical_or.at(preloaded, same, preloading)
            entry = legal[preloading | ~preloaded[same]]
            self._rows[table.signature] = entry
        return entry

    def data(self, op: int, rows: np.ndarray) -> np.ndarray:
        """(rows,) CANDIDATE records."""
        data: np.ndarray = self.problem.tables[op].rows[rows]
        return data

    def limiter_cycles(self, op: int, first: int) -> np.ndarray:
        """Limiter cycles of all rows of the table while an epoch that starts at `first` is being filled: later readers
        count as inside it, and nothing is known of how many cores use DRAM."""
        where, output = self.problem.places(op, first, len(self.problem.order))
        key = (self.problem.tables[op].signature, where, output)
        entry = self._cycles.get(key)
        if entry is None:
            entry = self.problem.row_limits(op, where, output, EpochLoad(0, 0))
            self._cycles[key] = entry
        return entry

    def needs_prologue(self, op: int) -> bool:
        """Whether the weight of a matmul comes from a parameter queue."""
        profile = self.problem.profiles[op]
        return profile.kind == "matmul" and len(profile.operands) > 1 and profile.operands[1].feed == "parameter"

    def prologue_ok(self, op: int, rows: np.ndarray) -> np.ndarray:
        """(rows,) whether each preloads the weight (where there is one) on enough cores for every user of it."""
        if not self.needs_prologue(op):
            return np.ones(len(rows), dtype=bool)
        data = self.data(op, rows)
        weight = self.problem.graph[self.problem.order[op]].sources[1]
        ok: np.ndarray = preloads(self.problem.profiles[op], 1, data) & (data["cores"] >= self._volumes.get(weight, 1))
        return ok

    def _prologue_volumes(self) -> dict[str, int]:
        """Per weight, the fewest cores on which each of its matmuls can preload it."""
        volumes: dict[str, int] = {}
        for op in range(len(self.problem.order)):
            if not self.needs_prologue(op):
                continue
            data = self.data(op, self.rows(op))
            cores = data["cores"][preloads(self.problem.profiles[op], 1, data)]
            if len(cores):
                weight = self.problem.graph[self.problem.order[op]].sources[1]
                volumes[weight] = max(volumes.get(weight, 0), int(cores.min()))
        return volumes


_cache: weakref.WeakKeyDictionary[Problem, Candidates] = weakref.WeakKeyDictionary()


def candidates(problem: Problem) -> Candidates:
    """Those of a problem, the same for every policy that asks."""
    entry = _cache.get(problem)
    if entry is None:
        entry = _cache[problem] = Candidates(problem)
    return entry


def one_per_shape(shapes: np.ndarray, rows: np.ndarray) -> Iterator[int]:
    """Rows in their order, but of those with equal grid, t-stream and output buffer only the first two: an edge that
    refuses two blockings of a shape refuses the shape. shapes: `Problem.shapes` of the op."""
    seen: dict[int, int] = {}
    for row, key in zip(rows.tolist(), shapes[rows].tolist(), strict=True):
        seen[key] = seen.get(key, 0) + 1
        if seen[key] <= 2:
            yield row
