"""Lookups over a netlist that every consumer needs: who reads, who writes, which graph, which tile size."""

from __future__ import annotations

import dataclasses
from functools import cached_property

from tbuda_lab.core.netlist.schema import (
    Execute,
    NetGraph,
    Netlist,
    NetOp,
    Program,
    Queue,
    QueueSetting,
    TileDim,
)

FULL_TILE: TileDim = (32, 32)


@dataclasses.dataclass(frozen=True)
class QueueReader:
    """An operand of an op that a queue feeds."""

    graph: NetGraph
    op: NetOp
    index: int  # of the input


@dataclasses.dataclass(frozen=True)
class ProgramSetting:
    """A queue setting with its place: instruction `index` of `program` executes `graph`."""

    program: Program
    index: int
    graph: str
    queue: str
    setting: QueueSetting


class Tables:
    """Read-only lookups of one netlist, built when first asked for."""

    def __init__(self, n: Netlist) -> None:
        self.n = n

    @cached_property
    def ops(self) -> dict[str, NetOp]:
        return {op.name: op for _, op in self.n.ops()}

    @cached_property
    def graph_of(self) -> dict[str, NetGraph]:
        """The graph of each op."""
        return {op.name: graph for graph, op in self.n.ops()}

    @cached_property
    def readers(self) -> dict[str, list[QueueReader]]:
        """Who reads each queue or op."""
        out: dict[str, list[QueueReader]] = {}
        for graph, op in self.n.ops():
            for index, source in enumerate(op.inputs):
                out.setdefault(source.source, []).append(QueueReader(graph, op, index))
        return out

    @cached_property
    def written(self) -> dict[str, list[Queue]]:
        """The queues that each op writes."""
        out: dict[str, list[Queue]] = {}
        for queue in self.n.queues.values():
            out.setdefault(queue.input, []).append(queue)
        return out

    @cached_property
    def settings(self) -> list[ProgramSetting]:
        """All queue settings of all programs in file order."""
        return [ProgramSetting(program, index, item.graph, name, setting)
                for program in self.n.programs for index, item in enumerate(program.instructions)
                if isinstance(item, Execute) for name, setting in (item.settings or {}).items()]

    def tile_dim(self, source: str) -> TileDim:
        """The tile size of a queue or op, 32x32 where it is not written or the name is unknown."""
        element = self.n.queues.get(source) or self.ops.get(source)
        return (element.tile_dim if element else None) or FULL_TILE

    def device(self, source: str) -> int | list[int]:
        """The chip of a queue or op; -1 if unknown."""
        if source in self.n.queues:
            return self.n.queues[source].target_device
        return self.graph_of[source].target_device if source in self.graph_of else -1
