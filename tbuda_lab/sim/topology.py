"""What runs together: temporal epochs."""

from __future__ import annotations

import itertools
from collections.abc import Callable

from tbuda_lab.core.netlist.schema import (
    Allocate,
    Deallocate,
    EndLoop,
    Execute,
    Loop,
    Netlist,
    Program,
)
from tbuda_lab.sim.arrays import misfit


def dynamic_queues(netlist: Netlist) -> set[str]:
    """Names of queues that a program allocates."""
    return {
        name
        for program in netlist.programs
        for i in program.instructions
        if isinstance(i, Allocate)
        for name in i.queues
    }


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
                    raise misfit(
                        f"op {op.name!r}",
                        "G3",
                        f"reads op {port.source!r} of graph {producer!r}, which is "
                        f"on the same device as its own graph {g.name!r}",
                        "link the graphs by a queue",
                    )
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
    flow = _flow(netlist, root)
    runs = [_epoch_order(program, netlist, root) for program in netlist.programs]
    while True:
        first, second = next(
            (
                (a, b)
                for order in runs
                for a, b in itertools.pairwise(order)
                if a and b and _mergeable(a, b, runs, devices, netlist, flow)
            ),
            ("", ""),
        )
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


def _flow(netlist: Netlist, root: Callable[[str], str]) -> Callable[[str, str], bool]:
    """Whether an op of the first epoch fills a queue that an op of the second reads."""
    owner = {op: g.name for g in netlist.graphs.values() for op in g.ops}
    links = {
        (owner[q.input], g.name)
        for g in netlist.graphs.values()
        for op in g.ops.values()
        for port in op.inputs
        if (q := netlist.queues.get(port.source)) is not None and q.type == "queue" and q.input in owner
    }
    return lambda first, second: any(root(a) == first and root(b) == second for a, b in links)


def _mergeable(
    first: str,
    second: str,
    runs: list[list[str]],
    devices: dict[str, set[int]],
    netlist: Netlist,
    flow: Callable[[str, str], bool],
) -> bool:
    if first == second or devices[first] & devices[second]:
        return False
    if netlist.graphs[first].input_count != netlist.graphs[second].input_count:
        return False
    if flow(first, second) and flow(second, first):
        return False  # a queue that feeds back is read before it is written, which needs two runs
    for order in runs:
        places = [i for i, name in enumerate(order) if name in (first, second)]
        # every appearance must be the pair, once and in this order
        if len(places) % 2 or any(
            order[a] != first or order[b] != second or b != a + 1
            for a, b in zip(places[::2], places[1::2], strict=True)
        ):
            return False
    return True
