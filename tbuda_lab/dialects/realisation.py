"""The realisation report: what became of every op that a dialect traced, and a strict mode that refuses host work.

A compile leaves work for the host in one form alone: the recipes of queues, graphs that make a queue's tensor of the
model's tensors. So an op that is in a recipe runs on the host, and every other op on the grid.
"""

from __future__ import annotations

import collections
import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.dialects.host_program import Collective, HostLoop, HostProgram, Step

KINDS = ("grid", "decomposed", "host", "program")
"""Of a realisation: one op of the device; several; in a queue's recipe; steps of the host program."""

ALLOWED = {
    "integer encoding": "encodes an integer input (class labels) as device numbers without rounding",
    "integer arithmetic": "calculates with integers what the grid does not: it has sums, maxima and copies of int32",
    "random numbers": "draws random numbers; the grid has no generator that a seed decides",
    "order statistics": "sorts or counts, which the grid does not",
    "layout": "reorders elements of a queue that the host writes or reads anyway, and calculates nothing",
    "weights": "calculated from weights and constants when they are written, not in a run",
}
"""Why an op may run on the host in strict mode."""

_MOVES = frozenset({"Reshape", "Transpose", "Squeeze", "Unsqueeze", "Permute", "Cast"})


@dataclasses.dataclass(frozen=True)
class Realisation:
    """What became of a traced op. where: its place in the model; allowed: the word of `ALLOWED` of a host op, "" where
    there is none."""

    op: str
    type: str
    kind: str
    reason: str
    where: str = ""
    allowed: str = ""

    def to_json(self) -> dict[str, str]:
        return dataclasses.asdict(self)


def realisations(result: CompileResult, program: HostProgram | None = None) -> tuple[Realisation, ...]:
    """One entry for each op of the traced graph, in its order, and one for each step of the host program that is more
    than a transfer or a run: the mean of gradients, and loops."""
    device = _device_ops(result)
    recipes = _recipe_ops(result)
    entries = [
        _of_node(node, device.get(node.name, 0), recipes.get(node.name))
        for node in result.graph.topological()
        if node.kind is NodeKind.OP
    ]
    steps = [step for _, step in program.steps] if program is not None else []
    return (*entries, *_of_steps(steps))


def counts(entries: Sequence[Realisation]) -> dict[str, int]:
    """How many entries each kind has, all kinds named."""
    result = collections.Counter(entry.kind for entry in entries)
    return {kind: result[kind] for kind in KINDS}


def summary(entries: Sequence[Realisation]) -> str:
    """The report in a line for the console."""
    words = ", ".join(f"{number} {kind}" for kind, number in counts(entries).items())
    allowed = collections.Counter(
        entry.allowed or "not allowed in strict mode" for entry in entries if entry.kind == "host"
    )
    of_host = "; ".join(f"{number} {word}" for word, number in sorted(allowed.items()))
    return f"realisation of {len(entries)} ops: {words}" + (f" (host: {of_host})" if of_host else "")


def refuse_host(entries: Sequence[Realisation]) -> None:
    """Strict mode. Raises `UnsupportedOp` naming every op that runs on the host and has no reason of `ALLOWED`."""
    wrong = [entry for entry in entries if entry.kind == "host" and not entry.allowed]
    if wrong:
        raise UnsupportedOp(
            f"strict mode: {len(wrong)} ops would run on the host",
            [
                Diagnostic(
                    "error",
                    entry.where or entry.op,
                    "strict",
                    f"{entry.type} {entry.op}: {entry.reason}",
                    "express it with ops of the grid, or compile without strict",
                )
                for entry in wrong
            ],
        )


def _device_ops(result: CompileResult) -> dict[str, int]:
    """How many ops of the lowered graph come from each op of the traced graph, forward pass alone."""
    traced = result.graph.nodes
    device_ops: collections.Counter[str] = collections.Counter()
    for node in result.lowered.nodes.values():
        if node.kind is not NodeKind.OP or node.attrs.get("inserted"):
            continue
        parts = tuple(map(str, node.attrs.get("fused", ()))) or (str(node.attrs.get("source", node.name)),)
        names = (_traced_name(part, result.passed, traced) for part in parts)
        device_ops.update(name for name in names if name is not None)
    return device_ops


def _traced_name(name: str, passed: Graph, traced: Mapping[str, Node]) -> str | None:
    """The op of the traced graph that an op comes from; None for those of the backward pass and the optimizer."""
    if name in traced:
        return name
    node = passed.nodes.get(name)
    origin = node.attrs.get("original_op_name") if node is not None else None
    return origin if isinstance(origin, str) and origin in traced and name.startswith(f"{origin}.") else None


def _recipe_ops(result: CompileResult) -> dict[str, tuple[Node, Graph]]:
    """Ops in recipes by name, each with the queue and the recipe that it is in."""
    recipe_ops: dict[str, tuple[Node, Graph]] = {}
    for graph in (result.passed, result.lowered):
        for queue in graph.nodes.values():
            if queue.recipe is not None:
                for node in queue.recipe.nodes.values():
                    if node.kind is NodeKind.OP:
                        recipe_ops[node.name] = (queue, queue.recipe)
    return recipe_ops


def _of_node(node: Node, devices: int, recipe: tuple[Node, Graph] | None) -> Realisation:
    kind, where = type(node.op).__name__, node.origin.module or node.origin.location
    if recipe is not None:
        queue, graph = recipe
        allowed = _allowed(node, queue, graph)
        reason = f"in the recipe of queue {queue.name}" + (f": {ALLOWED[allowed]}" if allowed else "")
        return Realisation(node.name, kind, "host", reason, where, allowed)
    if devices > 1:
        return Realisation(node.name, kind, "decomposed", f"{devices} ops of the grid", where)
    if devices:
        reason = "one op of the grid"
    else:
        reason = "a movement on an edge of the grid" if kind in _MOVES else "merged with its neighbours, or a constant"
    return Realisation(node.name, kind, "grid", reason, where)


def _allowed(node: Node, queue: Node, recipe: Graph) -> str:
    """The word of `ALLOWED` for an op of a recipe, or ""."""
    sources: list[Node] = []
    pending, seen = [node.name], set()
    while pending:
        current = recipe[pending.pop()]
        if current.name in seen:
            continue
        seen.add(current.name)
        pending += current.sources
        if current.kind is NodeKind.INPUT:
            sources.append(current)
    if queue.kind in (NodeKind.PARAMETER, NodeKind.CONSTANT) or not sources:
        return "weights"
    if type(node.op).__name__ in _MOVES:
        return "layout"
    integers = all(str(s.attrs.get("dtype", "")).startswith(("int", "uint", "bool")) for s in sources)
    return "integer encoding" if integers and queue.kind is NodeKind.INPUT else ""


def _of_steps(steps: Sequence[Step]) -> list[Realisation]:
    entries: list[Realisation] = []
    for step in steps:
        if isinstance(step, Collective):
            reason = f"mean of {len(step.tensors)} gradients over the replicas"
            entries.append(Realisation("all_reduce", "Collective", "program", reason))
        elif isinstance(step, HostLoop):
            entries.append(Realisation("loop", "Loop", "program", f"its body runs {step.count} times"))
            entries += _of_steps(step.body)
    return entries


def to_json(entries: Sequence[Realisation]) -> dict[str, Any]:
    """Counts by kind, and the entries."""
    return {"counts": counts(entries), "ops": [entry.to_json() for entry in entries]}
