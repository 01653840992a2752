"""Lookups over a netlist that every consumer needs: who reads, who writes, which graph, which tile size, in which group
PyBuda lists a queue, which graphs run at the same time (temporal epochs)."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from functools import cached_property

from tbuda_lab.core.netlist.schema import (
    Allocate,
    Deallocate,
    EndLoop,
    Execute,
    Loop,
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
    def queues_by_writer(self) -> dict[str, list[Queue]]:
        """The queues that each op writes."""
        out: dict[str, list[Queue]] = {}
        for queue in self.n.queues.values():
            out.setdefault(queue.input, []).append(queue)
        return out

    @cached_property
    def settings(self) -> list[ProgramSetting]:
        """All queue settings of all programs in file order."""
        return [
            ProgramSetting(program, index, item.graph, name, setting)
            for program in self.n.programs
            for index, item in enumerate(program.instructions)
            if isinstance(item, Execute)
            for name, setting in (item.settings or {}).items()
        ]

    def tile_dim(self, source: str) -> TileDim:
        """The tile size of a queue or op, 32x32 where it is not written or the name is unknown."""
        element = self.n.queues.get(source) or self.ops.get(source)
        return (element.tile_dim if element else None) or FULL_TILE

    def device(self, source: str) -> int | list[int]:
        """The chip of a queue or op; -1 if unknown."""
        if source in self.n.queues:
            return self.n.queues[source].target_device
        return self.graph_of[source].target_device if source in self.graph_of else -1


GROUPS = ("input", "output", "parameter", "constant", "epoch_to_epoch", "accumulator")


def queue_groups(n: Netlist) -> dict[str, str]:
    """The group of every queue, from what feeds it, what reads it and how programs set its pointers.

    An op-fed queue is `epoch_to_epoch` if an op reads it, else `output`; an op-fed ram of a gradient op is an
    `accumulator`. A host-fed ram is a `parameter`; a host-fed queue whose read pointer never moves is a `constant`.
    """
    read = {i.source for _, op in n.ops() for i in op.inputs}
    gradients = {op.name for _, op in n.ops() if op.gradient_op}
    settings: dict[str, QueueSetting] = {}
    for program in n.programs:
        for instruction in program.instructions:
            if isinstance(instruction, Execute):
                for name, setting in (instruction.settings or {}).items():
                    settings.setdefault(name, setting)
    return {q.name: _group(q, q.name in read, q.input in gradients, settings.get(q.name)) for q in n.queues.values()}


def _group(q: Queue, is_read: bool, gradient: bool, setting: QueueSetting | None) -> str:
    if q.input != "HOST":
        if gradient and q.type == "ram":
            return "accumulator"
        return "epoch_to_epoch" if is_read and q.loc != "host" else "output"
    if q.type == "ram":
        return "parameter"
    pointer = setting.fields.get("rd_ptr_global") if setting else None
    fixed = isinstance(pointer, int) or (isinstance(pointer, str) and pointer.startswith("$c_"))
    return "constant" if fixed and q.entries == 1 else "input"


class _Groups:
    """Union-find over graph names; a group is listed in file order."""

    def __init__(self, n: Netlist) -> None:
        self.n = n
        self.parent = {name: name for name in n.graphs}

    def find(self, name: str) -> str:
        while self.parent[name] != name:
            self.parent[name] = self.parent[self.parent[name]]
            name = self.parent[name]
        return name

    def join(self, one: str, other: str) -> None:
        self.parent[self.find(one)] = self.find(other)

    def to_tuples(self) -> list[tuple[str, ...]]:
        groups: dict[str, list[str]] = {}
        for name in self.n.graphs:
            groups.setdefault(self.find(name), []).append(name)
        return [tuple(members) for members in groups.values()]


def _link_groups(n: Netlist) -> _Groups:
    graph_of = {op.name: graph.name for graph, op in n.ops()}
    groups = _Groups(n)
    for graph, op in n.ops():
        for i in op.inputs:
            other = graph_of.get(i.source)
            if other is not None and other != graph.name and i.source not in n.queues:
                groups.join(other, graph.name)
    return groups


def linked_graphs(n: Netlist) -> list[tuple[str, ...]]:
    """The groups of graphs connected by op-to-op links, in file order; a graph without such links is a group of one."""
    return _link_groups(n).to_tuples()


def merged_graphs(n: Netlist) -> list[tuple[str, ...]]:
    """The groups that the backend makes on every arch but grayskull (netlist-format.md#groups-of-epochs): linked
    graphs, and those whose executes follow one another in a program and that share no chip."""
    groups = _link_groups(n)
    devices: dict[str, set[int]] = {}
    for name, graph in n.graphs.items():
        listed = graph.target_device if isinstance(graph.target_device, list) else [graph.target_device]
        devices.setdefault(groups.find(name), set()).update(listed)
    for program in n.programs:
        for first, second in _neighbours(program, n):
            a, b = groups.find(first), groups.find(second)
            if a != b and not devices[a] & devices[b]:
                groups.join(b, a)
                devices[groups.find(a)] = devices[a] | devices[b]
    return groups.to_tuples()


def _neighbours(program: Program, n: Netlist) -> Iterator[tuple[str, str]]:
    """Graphs executed one after the other, with no loop and no allocation in between."""
    order: list[str | None] = []
    for item in program.instructions:
        if isinstance(item, Execute) and item.graph in n.graphs:
            order.append(item.graph)
        elif isinstance(item, (Loop, EndLoop, Allocate, Deallocate)):
            order.append(None)
    yield from ((a, b) for a, b in itertools.pairwise(order) if a and b)
