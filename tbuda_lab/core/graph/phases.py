"""The parts of a graph that are programs of their own, and the marks that training and generation put on nodes.

Training has a forward, a backward and an optimizer part; generation a forward part (the prompt) and a decode part (one
token), which share the rams of a cache.

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

READ_FROM_QUEUE = "read_from_queue"
"""Attribute of an op: whoever reads its value does so from a queue in DRAM, so any number of ops may."""

CACHE = "cache"
"""ROLE of a PARAMETER that generation keeps from one run to the next: keys or values of earlier tokens."""

DROPOUT = "dropout"
"""Attribute of an INPUT that takes the mask of a dropout: the probability. The host draws a mask for each input."""

STATISTIC = "statistic"
"""ROLE of a PARAMETER that the forward part of training writes for inference: a running mean or variance."""

PHASES = ("forward", "decode", "backward", "optimizer")
DIRECTIONS = {"forward": "fwd", "decode": "decode", "backward": "bwd", "optimizer": "opt"}
"""By part of the graph the direction of its epochs."""

ONCE = "opt"
"""The direction whose programs run once for a whole batch: they have no loop over the microbatch."""


def inputs_of_run(direction: str, microbatch: int) -> int:
    """How many inputs one run of an epoch of this direction takes."""
    return 1 if direction == ONCE else microbatch


SUBGRAPHS = {"fwd": "fwd_0", "decode": "fwd_1", "bwd": "bwd_0", "opt": "opt_0"}
"""By direction what the netlist's names of its graphs begin with, and those of its programs after `run_`."""


def has_phases(graph: Graph) -> bool:
    """Whether there is more than the forward part."""
    return any(PHASE in node.attrs for node in graph.outputs)


def phases(graph: Graph) -> dict[str, str]:
    """By op the part that it is in; empty for a graph that has the forward part alone."""
    if not has_phases(graph):
        return {}
    rank: dict[str, int] = {}
    for node in reversed(graph.topological()):
        own = PHASES.index(node.attrs[PHASE]) if PHASE in node.attrs else None
        if node.kind is NodeKind.OUTPUT:
            rank[node.name] = own or 0
        else:
            rank[node.name] = min(rank.get(node.name, len(PHASES) - 1), len(PHASES) - 1 if own is None else own)
        for source in node.sources:
            rank[source] = min(rank.get(source, len(PHASES) - 1), rank[node.name])
    return {node.name: PHASES[rank[node.name]] for node in graph.ops}


def by_phase(order: Sequence[str], phase: dict[str, str]) -> tuple[str, ...]:
    """A schedule with the forward ops first, then the backward ones, then those of the optimizer."""
    return tuple(sorted(order, key=lambda name: PHASES.index(phase[name]))) if phase else tuple(order)


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
    """By PARAMETER of a cache that the forward part writes and the decode part reads: the node whose value it gets."""
    writes = [node for node in graph.outputs if WRITES in node.attrs and node.attrs.get(PHASE) == "forward"]
    return {
        str(node.attrs[WRITES]): node.sources[0]
        for node in writes
        if is_cache(graph.nodes.get(str(node.attrs[WRITES])))
    }


def behind_caches(graph: Graph, order: Sequence[Node]) -> set[str]:
    """The nodes of a topological order that depend on a ram of a cache, those rams included."""
    reached: set[str] = set()
    for node in order:
        if is_cache(node) or any(source in reached for source in node.sources):
            reached.add(node.name)
    return reached


def evaluation_order(graph: Graph) -> list[Node]:
    """Topological; where the decode part reads what the forward part leaves in a cache, the forward part first."""
    order = graph.topological()
    if not handed_over(graph):
        return order
    later = behind_caches(graph, order)
    return [n for n in order if n.name not in later] + [n for n in order if n.name in later]


def written(graph: Graph) -> dict[str, Node]:
    """By PARAMETER that an op writes: the OUTPUT that stands for the write."""
    return {str(node.attrs[WRITES]): node for node in graph.outputs if WRITES in node.attrs}
