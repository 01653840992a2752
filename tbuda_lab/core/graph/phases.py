"""The parts of a graph that are programs of their own, and the marks that training and generation put on nodes.

Training has a forward, a backward and an optimizer part. A graph of several subgraphs has a forward part for each, that
is run by itself: "forward" is that of subgraph 0, "forward_1" of the next. They share weights and the rams of caches;
generation is such a graph, the prompt first (see `frontend.torch_model.caches`).

Which part an op is in follows from what needs it: an OUTPUT says its part in `attrs[PHASE]`, and an op belongs to the
earliest part that needs it. So nops and queues that are inserted later need no mark of their own. An op may carry the
mark itself, to be earlier than what reads it.

An OUTPUT with `attrs[WRITES]` is not an output of the model: its value goes into the ram of the PARAMETER of that name,
and with `attrs[ACCUMULATES]` it is added to what lies there.
"""

from __future__ import annotations

from collections.abc import Sequence

from tbuda_lab.core.graph.graph import Graph, Node, NodeKind

PHASE = "phase"
WRITES = "writes"
ACCUMULATES = "accumulates"
TRAINABLE = "requires_grad"
"""Attribute of a PARAMETER that training changes."""

LOSS = "loss"
"""Attribute of an OUTPUT: it is the loss. The number is the gradient by it: 1, or 1 / n where the loss of a microbatch
is the mean of its n elements' losses, which run one by one."""

RECOMPUTE = "recompute"
"""Attribute of an op that calculates anew, for the backward part, what a forward op has calculated."""

ROLE = "role"
"""Of a PARAMETER that ops write: "weight", "state" of an optimizer, or "accumulator" of a gradient; of an INPUT:
"gradient" by an output, which comes from the next device."""

OPTIMIZER_OF = "optimizer_of"
"""Attribute of a state of an optimizer: the names of the weights whose updates read it."""

ENTRIES = "entries"
"""Attribute of an INPUT or OUTPUT: how many of its tensors its queue holds, where a program's loop takes or makes more
than twice the batch in one run."""

READ_FROM_QUEUE = "read_from_queue"
"""Attribute of an op: whoever reads its value does so from a queue in DRAM, so any number of ops may."""

CACHE = "cache"
"""ROLE of a PARAMETER that generation keeps from one run to the next: keys or values of earlier tokens."""

RAM = "ram"
"""Of a PARAMETER that is a cache, and of an OUTPUT that writes one: the ram behind it. Those that name the same one are
views of the same bytes, each for one subgraph."""

DROPOUT = "dropout"
"""Attribute of an INPUT that takes the mask of a dropout: the probability. The host draws a mask for each input."""

STATISTIC = "statistic"
"""ROLE of a PARAMETER that the forward part of training writes for inference: a running mean or variance."""

PLACE = "runs_on"
"""Attribute of an op of a traced graph that the host runs ("host"), not the device."""

FORWARD = "forward"
_LAST = ("backward", "optimizer")
_MOST = 1 << 16
"""More subgraphs than any device holds."""


def forward_part(subgraph: int) -> str:
    """The name of a subgraph's part."""
    return FORWARD if subgraph == 0 else f"{FORWARD}_{subgraph}"


def subgraph_of(part: str) -> int:
    """The subgraph that a part, or the direction of an epoch, belongs to; 0 for backward and optimizer ones."""
    number = part.rpartition("_")[2]
    return int(number) if number.isdigit() else 0


def rank(part: str) -> int:
    """By which the parts of a graph are in order."""
    return _MOST + _LAST.index(part) if part in _LAST else subgraph_of(part)


def is_part(text: object) -> bool:
    """Whether a text names a part of a graph."""
    if text in (FORWARD, *_LAST):
        return True
    head, _, number = text.rpartition("_") if isinstance(text, str) else ("", "", "")
    return head == FORWARD and number.isascii() and number.isdigit() and text == forward_part(int(number[:6]))


def direction_of(part: str) -> str:
    """The direction of the epochs of a part: "fwd", "fwd_1", ..., "bwd", "opt"."""
    if part in _LAST:
        return {"backward": "bwd", "optimizer": "opt"}[part]
    return part.replace(FORWARD, "fwd")


def netlist_part(direction: str) -> str:
    """What the netlist's names of graphs of a direction begin with, and those of its programs after `run_`: the
    direction and the number of the subgraph (netlist.md 3)."""
    return direction if subgraph_of(direction) else f"{direction}_0"


def subgraphs(graph: Graph) -> int:
    """How many subgraphs a graph has."""
    return 1 + max((subgraph_of(str(node.attrs.get(PHASE, FORWARD))) for node in graph.outputs), default=0)


ONCE = "opt"
"""The direction whose programs run once for a whole batch: they have no loop over the microbatch."""


def inputs_of_run(direction: str, microbatch: int) -> int:
    """How many inputs one run of an epoch of this direction takes."""
    return 1 if direction == ONCE else microbatch


def has_phases(graph: Graph) -> bool:
    """Whether there is more than the forward part."""
    return any(PHASE in node.attrs for node in graph.outputs)


def phases(graph: Graph) -> dict[str, str]:
    """By op the part that it is in; empty for a graph that has the forward part alone."""
    if not has_phases(graph):
        return {}
    latest = _LAST[-1]
    part: dict[str, str] = {}
    for node in reversed(graph.topological()):
        own = str(node.attrs[PHASE]) if PHASE in node.attrs else None
        if node.kind is NodeKind.OUTPUT:
            part[node.name] = own or FORWARD
        else:
            part[node.name] = min(part.get(node.name, latest), own or latest, key=rank)
        for source in node.sources:
            part[source] = min(part.get(source, latest), part[node.name], key=rank)
    return {node.name: part[node.name] for node in graph.ops}


def by_phase(order: Sequence[str], phase: dict[str, str]) -> tuple[str, ...]:
    """A schedule with the forward ops first, by subgraph, then the backward ones, then those of the optimizer."""
    return tuple(sorted(order, key=lambda name: rank(phase[name]))) if phase else tuple(order)


def first_of_each(order: Sequence[str], phase: dict[str, str]) -> frozenset[str]:
    """The ops of a schedule that begin a part."""
    seen: dict[str, str] = {}
    for name in order:
        if phase:
            seen.setdefault(phase[name], name)
    return frozenset(seen.values())


def is_cache(node: Node | None) -> bool:
    """Whether a node is a ram of a cache: its contents change, so nothing may be calculated from them ahead."""
    return node is not None and node.kind is NodeKind.PARAMETER and node.attrs.get(ROLE) == CACHE


def handed_over(graph: Graph) -> dict[str, str]:
    """By PARAMETER of a cache that an earlier part of the graph writes than those that read it: the node whose value it
    gets, the last one where several write it."""
    rams = [node for node in graph.of_kind(NodeKind.PARAMETER) if is_cache(node)]
    if not rams:
        return {}
    writes: dict[str, list[tuple[int, str]]] = {}
    for name, output in writes_by_parameter(graph).items():
        if is_cache(graph.nodes.get(name)) or RAM in output.attrs:
            at = rank(str(output.attrs.get(PHASE, FORWARD)))
            writes.setdefault(str(output.attrs.get(RAM, name)), []).append((at, output.sources[0]))
    part = by_rank(graph)
    writer_of: dict[str, str] = {}
    for node in rams:
        ram = str(node.attrs.get(RAM, node.name))
        before = [(at, source) for at, source in writes.get(ram, ()) if at < part[node.name]]
        if before:
            writer_of[node.name] = max(before)[1]
    return writer_of


def by_rank(graph: Graph) -> dict[str, int]:
    """By node the rank of its part: of an op and of an OUTPUT its own, of others that of the first that reads them."""
    part = phases(graph)
    ranks: dict[str, int] = {}
    for node in reversed(graph.topological()):
        if node.kind is NodeKind.OP:
            ranks[node.name] = rank(part.get(node.name, FORWARD))
        elif node.kind is NodeKind.OUTPUT:
            ranks[node.name] = rank(str(node.attrs.get(PHASE, FORWARD)))
        for source in node.sources:
            ranks[source] = min(ranks.get(source, ranks[node.name]), ranks[node.name])
    return {node.name: ranks.get(node.name, 0) for node in graph}


def behind_caches(graph: Graph, order: Sequence[Node]) -> set[str]:
    """The nodes of a topological order that depend on a ram of a cache, those rams included."""
    reached: set[str] = set()
    for node in order:
        if is_cache(node) or any(source in reached for source in node.sources):
            reached.add(node.name)
    return reached


def evaluation_order(graph: Graph) -> list[Node]:
    """Topological; where a part reads what an earlier one leaves in a cache, part after part."""
    order = graph.topological()
    if not handed_over(graph):
        return order
    part = by_rank(graph)
    return sorted(order, key=lambda node: part[node.name])


def writes_by_parameter(graph: Graph) -> dict[str, Node]:
    """By PARAMETER that an op writes: the OUTPUT that stands for the write."""
    return {str(node.attrs[WRITES]): node for node in graph.outputs if WRITES in node.attrs}


def keeps_state(graph: Graph) -> bool:
    """Whether a model leaves in rams what its next run reads. The parts of generation, and programs of other fronts,
    have rams of their own, which their programs order."""
    return bool(writes_by_parameter(graph)) and not has_phases(graph)
