"""What questions about an op ask of its epoch as it is placed, as arrays over the epoch's ops."""

from __future__ import annotations

import numpy as np

from tbuda_lab.core.balancer.bandwidth import Load, cores_at_divider, dram_divider
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment, measure


class EpochFacts:
    """places: over what operands and output of each op move, by op. kernel: (ops,) cycles per input; cores: (ops,);
    taken: (rows, columns) how many ops lie on each core of the grid."""

    def __init__(self, problem: Problem, segment: Segment) -> None:
        self.problem, self.segment = problem, segment
        ops = range(segment.first, segment.last)
        self.rows = dict(zip(ops, segment.rows, strict=True))
        self.places = {op: problem.places(op, segment.first, segment.last) for op in ops}
        self.load = measure(problem, segment.first, segment.last, self.rows)[2]
        data = [problem.tables[op].rows[row] for op, row in self.rows.items()]
        self.kernel = np.array([d["cycles"] for d in data], dtype=np.float64)
        self.cores = np.array([d["cores"] for d in data], dtype=np.float64)
        self.sizes = [(int(d["grid_r"]), int(d["grid_c"])) for d in data]
        self.taken = np.zeros((problem.device.rows, problem.device.cols), dtype=np.int32)
        for op in ops:
            self.taken[self.rectangle(op)] += 1
        self._limits: dict[int, np.ndarray] = {}

    def rectangle(self, op: int) -> tuple[slice, slice]:
        """The cores of an op, as slices of the grid."""
        at = op - self.segment.first
        top, left, turned = self.segment.spots[at]
        height, width = self.sizes[at][::-1] if turned else self.sizes[at]
        return slice(top, top + height), slice(left, left + width)

    def busy_beside(self, op: int) -> np.ndarray:
        """(rows, columns) bool: cores on which another op lies."""
        taken = self.taken.copy()
        taken[self.rectangle(op)] -= 1
        busy: np.ndarray = taken > 0
        return busy

    def now(self) -> np.ndarray:
        """(ops,) limiter cycles as it is."""
        return self.limits(dram_divider(self.problem.device, self.load.dram_cores))

    def limits(self, divider: int) -> np.ndarray:
        """(ops,) limiter cycles if so many shared DRAM that it is divided by that."""
        found = self._limits.get(divider)
        if found is None:
            device = self.problem.device
            mine = dram_divider(device, self.load.dram_cores) == divider
            cores = self.load.dram_cores if mine else cores_at_divider(device, divider)
            there = Load(cores, self.load.host_cores)
            found = self._limits[divider] = np.array(
                [float(self.problem.row_limits(op, *self.places[op], there)[row]) for op, row in self.rows.items()]
            )
        return found
