"""Smaller grids for ops whose queues a later reader could not take: a core reads at most 39 DRAM buffers, one from each
core that wrote. A policy that looks at one epoch after the other learns of it too late, goes back, and gives that
writer fewer cores."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from tbuda_lab.core.balancer.edges import EdgeReason
from tbuda_lab.core.placer.model.problem import Problem


class Narrow:
    """Cores that ops may take at most, as far as the policy had to learn it."""

    def __init__(self, problem: Problem) -> None:
        self._problem = problem
        self._most: dict[int, int] = {}

    def rows(self, op: int, rows: Iterable[int]) -> Iterator[int]:
        """Those of `rows` that the op may take, in their order."""
        most = self._most.get(op)
        cores = self._problem.tables[op].rows["cores"]
        return (row for row in rows if most is None or cores[row] <= most)

    def writer(self, op: int, why: EdgeReason | None, upstream_rows: Mapping[int, int]) -> int | None:
        """The op of an earlier epoch that has to take fewer cores for `op` to be placed, at most half of them from now
        on; None where that cannot help. why: what refused `op` last; upstream_rows: rows of the ops of earlier
        epochs."""
        if why is not EdgeReason.DRAM_QUEUES:
            return None
        problem, cores, least = self._problem, {}, {}
        for producer in dict.fromkeys(problem.facts[op].producers):
            if producer in upstream_rows:
                table = problem.tables[producer]
                cores[producer] = int(table.rows["cores"][upstream_rows[producer]])
                least[producer] = int(table.rows["cores"][problem.legal[table.signature]].min())
        wide = [p for p, n in cores.items() if n > least[p]]
        if not wide:
            return None
        writer = max(wide, key=lambda p: (cores[p], -p))
        self._most[writer] = max(least[writer], cores[writer] // 2)
        return writer
