"""Multi-instance elements: a queue or graph with a list of chips stands for one copy on each."""

from __future__ import annotations

import copy
import dataclasses

from tbuda_lab.core.netlist.schema import (
    Allocate,
    Deallocate,
    Execute,
    NetGraph,
    Netlist,
    NetOp,
    Program,
    Queue,
    QueueBuffer,
    QueueSetting,
)
from tbuda_lab.core.netlist.sizes import queue_buffer_bytes
from tbuda_lab.core.netlist.tables import Tables


def expand(n: Netlist, align: int = 32) -> Netlist:
    """The netlist with every multi-instance queue and graph cloned per chip, names suffixed `.0`, `.1`, ...

    Copies of a host queue all belong to the first chip, each behind the other (entry bytes x entries + header, aligned
    to `align`). An `execute` of such a graph becomes one per chip. Without such elements the netlist itself is
    returned.
    """
    many_queues = {q.name: q.target_device for q in n.queues.values() if isinstance(q.target_device, list)}
    many_graphs = {g.name: g.target_device for g in n.graphs.values() if isinstance(g.target_device, list)}
    if not many_queues and not many_graphs:
        return n
    tables = Tables(n)
    out = dataclasses.replace(n, queues={}, graphs={}, programs=[], source=dict(n.source))
    names = set(many_queues) | {op for g in many_graphs for op in n.graphs[g].ops}
    for queue in n.queues.values():
        size = -(-queue_buffer_bytes(tables, queue, align) // align) * align
        for k, chip in enumerate(many_queues.get(queue.name, [queue.target_device])):
            clone = _queue(queue, chip, str(k) if queue.name in many_queues else None, names)
            if queue.name in many_queues and queue.loc == "host":
                clone.target_device = many_queues[queue.name][0]
                clone.buffers = [QueueBuffer(b.channel, b.address + k * size, b.bare) for b in queue.buffers]
            out.queues[clone.name] = clone
            _copy_source(out, ("queues", queue.name), ("queues", clone.name))
    for graph in n.graphs.values():
        for k, chip in enumerate(many_graphs.get(graph.name, [graph.target_device])):
            new = _graph(graph, chip, str(k) if graph.name in many_graphs else None, names)
            out.graphs[new.name] = new
            _copy_source(out, ("graphs", graph.name), ("graphs", new.name))
            for old_op, new_op in zip(graph.ops, new.ops, strict=True):
                _copy_source(out, ("graphs", new.name, old_op), ("graphs", new.name, new_op))
    copies = {g: len(chips) for g, chips in many_graphs.items()}
    out.programs = [_program(p, copies, {q: len(chips) for q, chips in many_queues.items()}) for p in n.programs]
    return out


def _with_suffix(name: str, suffix: str | None, names: set[str]) -> str:
    return f"{name}.{suffix}" if suffix is not None and name in names else name


def _queue(queue: Queue, chip: int | list[int], suffix: str | None, names: set[str]) -> Queue:
    return dataclasses.replace(
        queue,
        name=_with_suffix(queue.name, suffix, names),
        target_device=chip,
        buffers=list(queue.buffers),
        input=_with_suffix(queue.input, suffix, names),
        alias=queue.alias and _with_suffix(queue.alias, suffix, names),
    )


def _graph(graph: NetGraph, chip: int | list[int], suffix: str | None, names: set[str]) -> NetGraph:
    if suffix is None:
        return graph
    new = NetGraph(f"{graph.name}.{suffix}", chip, graph.input_count)
    for op in graph.ops.values():
        clone = _op(op, suffix, names)
        new.ops[clone.name] = clone
    return new


def _op(op: NetOp, suffix: str, names: set[str]) -> NetOp:
    inputs = [dataclasses.replace(i, source=_with_suffix(i.source, suffix, names)) for i in op.inputs]
    forks = (
        None
        if op.forked_dram_inputs is None
        else [
            {_with_suffix(q, suffix, names): _with_suffix(o, suffix, names) for q, o in item.items()}
            for item in op.forked_dram_inputs
        ]
    )
    return dataclasses.replace(
        op, name=f"{op.name}.{suffix}", inputs=inputs, forked_dram_inputs=forks, attributes=copy.copy(op.attributes)
    )


def _copies(name: str, queues: dict[str, int]) -> list[str]:
    return [f"{name}.{k}" for k in range(queues[name])] if name in queues else [name]


def _program(program: Program, copies: dict[str, int], queues: dict[str, int]) -> Program:
    out = Program(program.name)
    for item in program.instructions:
        if isinstance(item, (Allocate, Deallocate)):
            names = [each for name in item.queues for each in _copies(name, queues)]
            out.instructions.append(dataclasses.replace(item, queues=names))
            continue
        if not isinstance(item, Execute) or item.graph not in copies:
            out.instructions.append(item)
            continue
        for k in range(copies[item.graph]):
            settings = (
                None
                if item.settings is None
                else {
                    _with_suffix(name, str(k), set(queues)): QueueSetting(dict(s.fields))
                    for name, s in item.settings.items()
                }
            )
            out.instructions.append(Execute(f"{item.graph}.{k}", settings))
    return out


def _copy_source(n: Netlist, old: tuple[str, ...], new: tuple[str, ...]) -> None:
    if old != new and old in n.source:
        n.source[new] = n.source[old]
