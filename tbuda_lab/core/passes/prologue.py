"""What depends on integer inputs alone is computed by the host before the device runs."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import is_cache
from tbuda_lab.core.ops import Cast, Concatenate
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.binary import Add, Binary, ComparisonOp, Maximum, Minimum, Multiply, Subtract, Where
from tbuda_lab.core.ops.tm import MOVES
from tbuda_lab.core.ops.unary import Clip, LogicalNot, Unary
from tbuda_lab.core.passes import recipe
from tbuda_lab.core.passes.base import LEAVES, Pass, Report

LIMIT = 2.0**15
WHOLE = (Add, Subtract, Multiply, Maximum, Minimum)
"""Ops that make whole numbers of whole numbers."""


@dataclasses.dataclass(frozen=True)
class HostPrologue(Pass):
    """Integer and boolean values, embeddings, and the masks made from them become INPUTs with a recipe.

    Float element-wise ops and data moves follow their operands to the host as long as that does not add tensors to
    send; everything else runs on the device.
    """

    name = "host_prologue"
    doc = "Move what depends only on integer inputs (embeddings, masks) to the host"

    def apply(self, graph: Graph) -> Report:
        order = graph.topological()
        users = graph.users()
        host, stored, integer = host_values(graph)
        from_inputs = {n.name for n in order} - stored
        cut = [
            n
            for n in order
            if n.name in host and n.name in from_inputs and any(u not in host for u, _ in users[n.name])
        ]
        notes = []
        result: dict[str, Node] = {}
        for node in cut:
            result[node.name] = _as_input(graph, node, node.name in integer)
            notes.append(f"{node.name} {node.shape}")
        if not result:
            return Report(self.name, 0)
        nodes: dict[str, Node] = {}
        for node in order:
            if node.name in result:
                nodes[node.name] = result[node.name]
            elif node.name not in host or node.name in stored:
                nodes[node.name] = node
        graph.nodes = nodes
        graph.prune()
        return Report(self.name, len(cut), tuple(notes))


def host_values(graph: Graph) -> tuple[set[str], set[str], set[str]]:
    """Values that the host computes before the device runs, values that no input and no cache changes, and values of
    integers."""
    order = graph.topological()
    users = graph.users()
    integer = _integers(order)
    from_inputs = _depends_on_inputs(order)
    stored = {n.name for n in order if n.name not in from_inputs}
    host = {n.name for n in order if n.kind in LEAVES and (n.name in integer or n.name in stored)}
    for node in order:
        if node.kind is not NodeKind.OP or not isinstance(node.op, NdOp):
            continue
        live = [s for s in node.sources if s not in stored]
        if any(s not in host for s in live):
            continue
        must = node.name in integer or node.op.host or any(s in integer for s in live)
        if must or (_cheap(node) and all(all(u == node.name for u, _ in users[s]) for s in live)):
            host.add(node.name)
    return host, stored, integer


def _as_input(graph: Graph, node: Node, integer: bool) -> Node:
    """The INPUT that stands for a host value; masks are kept within what every float format holds."""
    value = recipe.extract(graph, node.name)
    dtype = "float32"
    if integer:
        value = recipe.compose(f"{node.name}.float", Cast("float32"), node.shape, [value])
    elif any(_is_huge(n) for n in value):
        value = recipe.compose(f"{node.name}.bounded", Clip(-LIMIT, LIMIT), node.shape, [value])
    attrs = {"host": True, "dtype": dtype}
    return Node(node.name, NodeKind.INPUT, node.shape, origin=node.origin, attrs=attrs, recipe=value)


def _is_huge(node: Node) -> bool:
    value = node.value
    return node.kind is NodeKind.CONSTANT and value is not None and value.size > 0 and abs(float(value.min())) >= LIMIT


def _depends_on_inputs(order: list[Node]) -> set[str]:
    reached: set[str] = set()
    for node in order:
        if node.kind is NodeKind.INPUT or is_cache(node) or any(s in reached for s in node.sources):
            reached.add(node.name)
    return reached


def _integers(order: list[Node]) -> set[str]:
    """Values of integer or boolean type, or truth values made of such."""
    integers: set[str] = set()
    values = {node.name: node for node in order}
    for node in order:
        if node.kind is NodeKind.INPUT:
            integer = not node.attrs.get("dtype", "float32").startswith(("float", "bfloat"))
        elif node.kind in LEAVES:
            integer = node.value is not None and node.value.dtype.kind != "f"
        elif isinstance(node.op, Cast):
            integer = not node.op.dtype.startswith(("float", "bfloat"))
        elif isinstance(node.op, (Binary, *MOVES, Unary, Where, Concatenate)) and not isinstance(node.op, LogicalNot):
            own = [s for s in node.sources if s in integers]
            others = [values[s] for s in node.sources if s not in integers]
            whole = isinstance(node.op, WHOLE) and all(map(_is_whole_number, others))  # numbers are written as floats
            integer = bool(own) and (not others or whole) and not isinstance(node.op, ComparisonOp)
        else:
            integer = False
        if integer:
            integers.add(node.name)
    return integers


def _is_whole_number(node: Node) -> bool:
    if node.kind is not NodeKind.CONSTANT or node.value is None or node.value.size != 1:
        return False
    number = float(node.value.flat[0])
    return number.is_integer() and abs(number) < LIMIT


def _cheap(node: Node) -> bool:
    return isinstance(node.op, (Unary, Binary, Where, Concatenate, *MOVES))

