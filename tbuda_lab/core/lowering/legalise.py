"""What the hardware forbids on edges, repaired with nops: transposes, one producer twice, too many readers; and what
the parts of a lowered graph (see `graph.phases`) cannot share."""

from __future__ import annotations

import dataclasses
import math

from tbuda_lab.core.graph import TILE, TM, Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import FORWARD, PHASE, READ_FROM_QUEUE, ROLE, phases
from tbuda_lab.core.graph.tm import apply_shapes
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwUnary, tile_shape

MAX_READERS = 8
"""An op feeds at most eight others (placement.md#device-limits)."""


def legalise(graph: Graph, arch: str) -> None:
    """Apply all rules in place; the node table ends in topological order."""
    fix_transposes(graph, arch)
    fix_repeated_operands(graph)
    fix_forks(graph)
    graph.resort()


def insert_nop(graph: Graph, name: str, source: str, tms: tuple[TM, ...]) -> str:
    """A nop reading `source` through `tms`; its shape is what they leave (transposed logical sizes, or whole tiles)."""
    producer = graph[source]
    z, rt, ct = apply_shapes(tms, tile_shape(producer.shape))
    if all(tm.name == "transpose" for tm in tms):
        _, _, rows, cols = producer.shape
        rows, cols = (cols, rows) if len(tms) % 2 else (rows, cols)
    else:
        rows, cols = rt * TILE, ct * TILE
    node = Node(
        graph.unique(name),
        NodeKind.OP,
        (1, z, rows, cols),
        HwUnary("nop"),
        (Edge(source, tms),),
        df=producer.df,
        origin=producer.origin,
        attrs={"inserted": True},
    )
    return graph.add(node).name


def _transpose_allowed(node: Node, port: int, arch: str) -> bool:
    """The backend takes it on matmul operand 1, operand 0 of sfpu ops, nop, and binary ops except on grayskull."""
    if isinstance(node.op, HwMatmul):
        return port == 1
    if isinstance(node.op, HwUnary):
        return True
    return isinstance(node.op, HwBinary) and port == 0 and arch != "grayskull"


def fix_transposes(graph: Graph, arch: str) -> None:
    """Where an operand must not be transposed, a nop transposes it; readers of the same tensor share that nop."""
    shared: dict[str, str] = {}
    for node in list(graph.ops):
        edges = list(node.inputs)
        for port, edge in enumerate(edges):
            # TM lists are in normal form: a transpose, if any, stands first.
            if not edge.tms or edge.tms[0].name != "transpose" or _transpose_allowed(node, port, arch):
                continue
            if edge.source not in shared:
                shared[edge.source] = insert_nop(graph, f"{edge.source}_transpose_nop", edge.source, edge.tms[:1])
            edges[port] = Edge(shared[edge.source], edge.tms[1:])
        node.inputs = tuple(edges)
    graph.resort()


def fix_repeated_operands(graph: Graph) -> None:
    """A matmul cannot read one producer on both sides: the second goes through a nop."""
    for node in list(graph.ops):
        if isinstance(node.op, HwMatmul) and node.inputs[0].source == node.inputs[1].source:
            source = node.inputs[1].source
            nop = insert_nop(graph, f"{node.name}_input1_nop", source, ())
            node.inputs = (node.inputs[0], dataclasses.replace(node.inputs[1], source=nop), *node.inputs[2:])
    graph.resort()


def fix_forks(graph: Graph) -> None:
    """Spread the readers of a widely read op over nops, so that no op feeds more than eight."""
    work = [n.name for n in graph.ops]
    users = graph.users()
    while work:
        name = work.pop()
        readers = users[name]
        if len(readers) <= MAX_READERS or READ_FROM_QUEUE in graph[name].attrs:
            continue
        count = min(MAX_READERS, math.ceil(len(readers) / MAX_READERS))
        chunk = math.ceil(len(readers) / count)
        nops: list[str] = []
        for k in range(count):
            nop = insert_nop(graph, f"{name}_fork_nop_{k}", name, ())
            users[nop] = readers[k * chunk : (k + 1) * chunk]
            for user, port in users[nop]:
                consumer = graph[user]
                edges = list(consumer.inputs)
                edges[port] = dataclasses.replace(edges[port], source=nop)
                consumer.inputs = tuple(edges)
            nops.append(nop)
        users[name] = [(nop, 0) for nop in nops]
        work += nops
    graph.resort()


def needs_output_nop(graph: Graph, node: Node, readers: int) -> bool:
    """The op before a host output is untilised by its packer: it must be element-wise and feed nothing else."""
    return node.kind is not NodeKind.OP or readers > 0 or not isinstance(node.op, HwUnary | HwBinary)


def separate(graph: Graph) -> None:
    """What two parts of the graph cannot share, in place.

    An input of the forward part is popped with it, so what later parts read of it goes through a nop of the forward
    part and the queue behind that. A constant is a queue, which graphs of different input counts cannot share: the
    optimizer has its own.
    """
    phase = phases(graph)
    if not phase:
        return
    users = graph.users()
    for node in [*graph.inputs, *graph.of_kind(NodeKind.CONSTANT)]:
        if node.kind is NodeKind.INPUT and node.attrs.get(ROLE) == "gradient":
            continue
        parts = {phase[name] for name, _ in users[node.name] if name in phase}
        if len(parts) == 1 and next(iter(parts)).startswith(FORWARD):
            continue  # an input or constant of its own: each subgraph is run by itself
        late = [(name, port) for name, port in users[node.name] if name in phase and _late(node, phase[name])]
        if not late or (node.kind is NodeKind.CONSTANT and len(late) == len(users[node.name])):
            continue
        copy = _kept_input(graph, node) if node.kind is NodeKind.INPUT else _own_constant(graph, node)
        for name, port in late:
            edges = list(graph[name].inputs)
            edges[port] = dataclasses.replace(edges[port], source=copy)
            graph[name].inputs = tuple(edges)
    graph.resort()


def _late(node: Node, part: str) -> bool:
    """Whether a part of the graph cannot read an INPUT or CONSTANT itself."""
    return part != FORWARD if node.kind is NodeKind.INPUT else part == "optimizer"


def _kept_input(graph: Graph, node: Node) -> str:
    attrs = {"inserted": True, PHASE: "forward"}
    name = graph.unique(f"{node.name}_kept_nop")
    edges = (Edge(node.name),)
    return graph.add(Node(name, NodeKind.OP, node.shape, HwUnary("nop"), edges, node.df, node.origin, None, attrs)).name


def _own_constant(graph: Graph, node: Node) -> str:
    name = graph.unique(f"{node.name}_opt")
    return graph.add(dataclasses.replace(node, name=name, attrs=dict(node.attrs))).name
