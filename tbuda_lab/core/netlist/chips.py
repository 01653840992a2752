"""Several chips: what crosses between them in a temporal epoch, and on the way passes through which."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.netlist.schema import NetGraph, NetOp, Queue


def missing_between(device: DeviceSpec, source: int, target: int, present: Collection[int]) -> tuple[int, ...]:
    """The chips without a graph that data passes through from one chip to another: of the shortest routes the one with
    the fewest. present: the chips with a graph. Empty where chips are neighbours, or no route joins them."""
    away = _distances(device, target)
    if away.get(source, 0) < 2:
        return ()
    best: dict[int, tuple[int, tuple[int, ...]]] = {source: (0, ())}
    for _ in range(away[source] - 1):
        reached: dict[int, tuple[int, tuple[int, ...]]] = {}
        for chip, (count, missing) in best.items():
            for other in device.neighbours(chip):
                if away.get(other) == away[chip] - 1:
                    gap = () if other in present else (other,)
                    route = count + len(gap), (*missing, *gap)
                    reached[other] = min(reached.get(other, route), route)
        best = reached
    return min(best.values())[1]


def sure_links(device: DeviceSpec, source: int, target: int, present: Collection[int]) -> set[tuple[int, int]]:
    """The links, (lower chip, higher chip), that every shortest route between two chips takes, of routes through chips
    with a graph; empty where there is no such route."""
    away = _distances(device, target)
    if source not in away:
        return set()
    # a link is on every route if as many lead over it as there are: counts from the source, then from the target
    ahead = {source: 1}
    for distance in range(away[source], 0, -1):
        for chip in [c for c in ahead if away[c] == distance]:
            for other in device.neighbours(chip):
                if away.get(other) == distance - 1 and (other == target or other in present):
                    ahead[other] = ahead.get(other, 0) + ahead[chip]
    behind = {target: 1}
    for distance in range(away[source]):
        for chip in [c for c in behind if away[c] == distance]:
            for other in device.neighbours(chip):
                if away.get(other) == distance + 1 and other in ahead:
                    behind[other] = behind.get(other, 0) + behind[chip]
    routes = ahead.get(target, 0)
    return {
        (min(a, b), max(a, b))
        for a in ahead
        for b in device.neighbours(a)
        if routes and b in ahead and away[b] == away[a] - 1 and ahead[a] * behind.get(b, 0) == routes
    }


def _distances(device: DeviceSpec, target: int) -> dict[int, int]:
    """Hops to a chip from each that has a route to it."""
    away, layer, hops = {target: 0}, {target}, 0
    while layer:
        hops += 1
        layer = {other for chip in layer for other in device.neighbours(chip)} - away.keys()
        away.update(dict.fromkeys(sorted(layer), hops))
    return away


def routes_of(
    op: NetOp, home: Mapping[str, int], queues: Mapping[str, Queue], filled: Sequence[Queue]
) -> Iterator[tuple[int, int, int, str]]:
    """(from chip, to chip, port, queue or op) of what an op reads and writes: queues in DRAM, and ops of other graphs.
    home: by op its chip. filled: the queues that the op fills; their port is -1."""
    for port, i in enumerate(op.inputs):
        queue = queues.get(i.source)
        if queue is None and i.source in home:
            yield home[i.source], home[op.name], port, i.source
        elif queue is not None and queue.loc == "dram" and isinstance(queue.target_device, int):
            yield queue.target_device, home[op.name], port, queue.name
    for queue in filled:
        if queue.loc == "dram" and isinstance(queue.target_device, int):
            yield home[op.name], queue.target_device, -1, queue.name


def needed_chips(
    graphs: Sequence[NetGraph], queues: Mapping[str, Queue], filled: Mapping[str, Sequence[Queue]], device: DeviceSpec
) -> set[int]:
    """The chips on which a temporal epoch of these graphs needs one, if an empty one: those of the graphs, those whose
    DRAM their ops read or write, and those that data passes through."""
    home = {name: g.target_device for g in graphs for name in g.ops if isinstance(g.target_device, int)}
    routes = {
        (a, b)
        for g in graphs
        for op in g.ops.values()
        if op.name in home
        for a, b, _, _ in routes_of(op, home, queues, filled.get(op.name, ()))
    }
    needed = set(home.values()).union(*routes)
    for a, b in sorted(routes):
        needed |= set(missing_between(device, a, b, needed))
    return needed
