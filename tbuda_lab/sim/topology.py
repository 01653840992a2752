"""What runs together: multi-instance expansion and temporal epochs."""

from __future__ import annotations

import copy
import dataclasses
import itertools
from collections.abc import Callable

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
)
from tbuda_lab.sim.arrays import misfit
from tbuda_lab.sim.io import is_host_fed


def dynamic_queues(netlist: Netlist) -> set[str]:
    """Names of queues that a program allocates."""
    return {name for program in netlist.programs for i in program.instructions if isinstance(i, Allocate)
            for name in i.queues}


def expand(netlist: Netlist) -> Netlist:
    """A netlist in which every queue and graph has one device.

    A list of devices stands for one instance each: queues, graphs, ops, op inputs and queue settings get the suffix
    ".<device>", and an execute of such a graph becomes one per device. A queue of the host goes to the first device.
    """
    multi_queues = {q.name: q.target_device for q in netlist.queues.values() if isinstance(q.target_device, list)}
    multi_graphs = {g.name: g.target_device for g in netlist.graphs.values() if isinstance(g.target_device, list)}
    if not multi_queues and not multi_graphs:
        return netlist
    multi_ops = {name for g in multi_graphs for name in netlist.graphs[g].ops}

    def suffixed(name: str, device: int) -> str:
        return f"{name}.{device}" if name in multi_queues or name in multi_ops else name

    queues: dict[str, Queue] = {}
    for q in netlist.queues.values():
        if not isinstance(q.target_device, list):
            queues[q.name] = q
            continue
        for device in q.target_device:
            name = f"{q.name}.{device}"
            target = q.target_device[0] if q.loc == "host" else device
            queues[name] = dataclasses.replace(
                q, name=name, target_device=target, input=suffixed(q.input, device) if not is_host_fed(q) else q.input,
                alias=suffixed(q.alias, device) if q.alias else q.alias)
    graphs: dict[str, NetGraph] = {}
    for g in netlist.graphs.values():
        if not isinstance(g.target_device, list):
            graphs[g.name] = g
            continue
        for device in g.target_device:
            ops: dict[str, NetOp] = {}
            for op in g.ops.values():
                clone = copy.copy(op)
                clone.name = suffixed(op.name, device)
                clone.inputs = [dataclasses.replace(i, source=suffixed(i.source, device)) for i in op.inputs]
                ops[clone.name] = clone
            name = f"{g.name}.{device}"
            graphs[name] = NetGraph(name, device, g.input_count, ops)
    programs = []
    for program in netlist.programs:
        instructions = []
        for i in program.instructions:
            if not isinstance(i, Execute) or i.graph not in multi_graphs:
                instructions.append(i)
                continue
            devices = multi_graphs[i.graph]
            assert isinstance(devices, list)
            for device in devices:
                settings = {suffixed(n, device): s for n, s in i.settings.items()} if i.settings is not None else None
                instructions.append(Execute(f"{i.graph}.{device}", settings))
        programs.append(Program(program.name, instructions))
    return dataclasses.replace(netlist, queues=queues, graphs=graphs, programs=programs)


def epochs(netlist: Netlist, arch: str) -> dict[str, tuple[str, ...]]:
    """Graph -> the graphs of its temporal epoch, in file order.

    Graphs that feed ops of one another without a queue run together. On every arch but grayskull so do epochs that
    follow one another in a program and share no device, provided that their input counts are equal and that every
    program executes them in that way. Raises `NetlistError` for an op link between two graphs of one device.
    """
    owner = {op: g.name for g in netlist.graphs.values() for op in g.ops}
    group = {name: name for name in netlist.graphs}  # union-find without ranks: graphs are few

    def root(name: str) -> str:
        while group[name] != name:
            group[name] = group[group[name]]
            name = group[name]
        return name

    for g in netlist.graphs.values():
        for op in g.ops.values():
            for port in op.inputs:
                producer = owner.get(port.source)
                if producer is None or producer == g.name:
                    continue
                if netlist.graphs[producer].target_device == g.target_device:
                    raise misfit(f"op {op.name!r}", "G3", f"reads op {port.source!r} of graph {producer!r}, which is "
                                 f"on the same device as its own graph {g.name!r}", "link the graphs by a queue")
                group[root(g.name)] = root(producer)
    if arch != "grayskull":
        _merge_neighbours(netlist, group, root)
    members: dict[str, list[str]] = {}
    for name in netlist.graphs:
        members.setdefault(root(name), []).append(name)
    return {name: tuple(members[root(name)]) for name in netlist.graphs}


def _merge_neighbours(netlist: Netlist, group: dict[str, str], root: Callable[[str], str]) -> None:
    devices: dict[str, set[int]] = {}
    for name, g in netlist.graphs.items():
        devices.setdefault(root(name), set()).add(g.target_device if isinstance(g.target_device, int) else -1)
    runs = [_epoch_order(program, netlist, root) for program in netlist.programs]
    while True:
        first, second = next(((a, b) for order in runs for a, b in itertools.pairwise(order)
                              if a and b and _mergeable(a, b, runs, devices, netlist)), ("", ""))
        if not first:
            return
        group[second] = first
        devices[first] |= devices.pop(second)
        runs = [_epoch_order(program, netlist, root) for program in netlist.programs]


def _epoch_order(program: Program, netlist: Netlist, root: Callable[[str], str]) -> list[str]:
    """Epochs in the order of the program's text, each run of executes of one epoch once; "" where a loop begins or
    ends or queues come and go, over which nothing is merged."""
    order: list[str] = []
    for i in program.instructions:
        if isinstance(i, Execute) and i.graph in netlist.graphs:
            name = root(i.graph)
            if not order or order[-1] != name:
                order.append(name)
        elif isinstance(i, (Loop, EndLoop, Allocate, Deallocate)):
            order.append("")
    return order


def _mergeable(first: str, second: str, runs: list[list[str]], devices: dict[str, set[int]], netlist: Netlist) -> bool:
    if first == second or devices[first] & devices[second]:
        return False
    if netlist.graphs[first].input_count != netlist.graphs[second].input_count:
        return False
    for order in runs:
        places = [i for i, name in enumerate(order) if name in (first, second)]
        # every appearance must be the pair, once and in this order
        if len(places) % 2 or any(order[a] != first or order[b] != second or b != a + 1
                                  for a, b in zip(places[::2], places[1::2], strict=True)):
            return False
    return True
