"""The order of ops: producers first, a sparse matmul directly before the matmul that reads it."""

from __future__ import annotations

import heapq
from collections import deque

from tbuda_lab.core.constraints import Constraints
from tbuda_lab.core.errors import Diagnostic, OverrideError, need_known
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.lowering.hw_ops import HwMatmul, HwSparseMatmul

POLICIES = ("ModuleInputsBFS", "Topological", "LongestPath")


def sparse_pairs(graph: Graph) -> dict[str, str]:
    """Sparse matmul -> the dense matmul that is its only reader."""
    users = graph.users()
    pairs: dict[str, str] = {}
    for node in graph.ops:
        readers = {name for name, _ in users[node.name]}
        if isinstance(node.op, HwSparseMatmul) and len(readers) == 1:
            reader = graph[next(iter(readers))]
            if isinstance(reader.op, HwMatmul):
                pairs[node.name] = reader.name
    return pairs


def schedule(graph: Graph, policy: str = "ModuleInputsBFS") -> tuple[str, ...]:
    """Names of all ops in execution order.

    "ModuleInputsBFS": breadth first from the inputs in their order, operands of an op first. "Topological": the graph's
    own order. "LongestPath": by depth from the inputs. Raises `PlacementError` for another name.
    """
    need_known(("scheduler policy", policy, POLICIES))
    topological = [n.name for n in graph.topological() if n.kind is NodeKind.OP]
    if policy == "Topological":
        order = topological
    elif policy == "LongestPath":
        depth: dict[str, int] = {}
        for node in graph.topological():
            depth[node.name] = 1 + max((depth[s] for s in node.sources), default=0)
        order = sorted(topological, key=lambda n: depth[n])
    else:
        order = _breadth_first(graph, topological)
    return _pair_up(graph, order)


def outputs_last(graph: Graph, order: tuple[str, ...]) -> tuple[str, ...]:
    """The order with all ops that only feed outputs at its end: on a cluster the last chip is one the host reaches."""
    users = graph.users()
    ends = {n for n in order if users[n] and all(graph[u].kind is NodeKind.OUTPUT for u, _ in users[n])}
    return (*(n for n in order if n not in ends), *(n for n in order if n in ends))


def constrain_order(graph: Graph, order: tuple[str, ...], constraints: Constraints) -> tuple[str, ...]:
    """The order with ops one after the other where that is asked for.

    Every other op stays as early as it was, as far as producers and constraints allow. Raises `OverrideError` for an
    order that no schedule can have.
    """
    pairs = constraints.pairs(order)
    return _reorder(graph, order, pairs) if pairs else order


def _reorder(graph: Graph, order: tuple[str, ...], pairs: list[tuple[str, str]]) -> tuple[str, ...]:
    number = {name: i for i, name in enumerate(order)}
    before: dict[str, set[str]] = {n: {s for s in graph[n].sources if s in number} for n in order}
    for first, second in pairs:
        before[second].add(first)
    after: dict[str, list[str]] = {n: [] for n in order}
    for name, sources in before.items():
        for source in sources:
            after[source].append(name)
    waiting = {n: len(s) for n, s in before.items()}
    ready = [number[n] for n, count in waiting.items() if not count]
    heapq.heapify(ready)
    new_order: list[str] = []
    while ready:
        name = order[heapq.heappop(ready)]
        new_order.append(name)
        for other in after[name]:
            waiting[other] -= 1
            if not waiting[other]:
                heapq.heappush(ready, number[other])
    if len(new_order) == len(order):
        return tuple(new_order)
    stuck = set(order) - set(new_order)
    first, second = next((a, b) for a, b in pairs if a in stuck and b in stuck and _leads(before, b, a))
    text = f"{first} cannot run before {second}: its operands, or another constraint, wait for {second}"
    raise OverrideError(
        "schedule constraints cannot be met",
        [Diagnostic("error", first, "override-schedule_constraint", text, f"put {second} before {first}")],
    )


def _leads(before: dict[str, set[str]], first: str, last: str) -> bool:
    """Whether `last` waits for `first`, directly or not."""
    stack, seen = [last], {last}
    while stack:
        for source in before[stack.pop()]:
            if source == first:
                return True
            if source not in seen:
                seen.add(source)
                stack.append(source)
    return False


def _breadth_first(graph: Graph, topological: list[str]) -> list[str]:
    users = graph.users()
    done: set[str] = set()
    order: list[str] = []
    line: deque[str] = deque(n.name for n in graph.inputs)
    position = {name: i for i, name in enumerate(topological)}

    def visit(name: str) -> None:
        stack = [name]
        while stack:
            top = stack[-1]
            if top in done:
                stack.pop()
                continue
            waiting = [s for s in graph[top].sources if graph[s].kind is NodeKind.OP and s not in done]
            if waiting:
                stack.extend(reversed(waiting))
                continue
            done.add(top)
            order.append(top)
            line.append(top)
            stack.pop()

    rest = iter(topological)
    while True:
        while line:
            for name in sorted({u for u, _ in users[line.popleft()]}, key=lambda n: position.get(n, -1)):
                if graph[name].kind is NodeKind.OP and name not in done:
                    visit(name)
        left = next((n for n in rest if n not in done), None)
        if left is None:
            return order
        visit(left)


def _pair_up(graph: Graph, order: list[str]) -> tuple[str, ...]:
    """Moves every paired sparse matmul directly before its reader (nothing else reads it, so that is always legal)."""
    before: dict[str, list[str]] = {}
    pairs = sparse_pairs(graph)
    for sparse in order:
        if sparse in pairs:
            before.setdefault(pairs[sparse], []).append(sparse)
    new_order: list[str] = []
    for name in order:
        if name not in pairs:
            new_order.extend(before.get(name, ()))
            new_order.append(name)
    return tuple(new_order)
