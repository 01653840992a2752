"""Which inputs and outputs of subgraphs are one cache: as the user says, or as their ops show."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from tbuda_lab.core.errors import Diagnostic, ModelError
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import PHASE, WRITES, subgraph_of
from tbuda_lab.core.ops.binary import Add
from tbuda_lab.core.ops.reduce import Matmul
from tbuda_lab.core.ops.slices import HSlice
from tbuda_lab.core.ops.tm import MOVES, Concatenate
from tbuda_lab.core.ops.unary import Cast

SUBGRAPH = "subgraph"
"""Attribute of an INPUT, and of a PARAMETER that is a cache: the subgraph whose argument it was."""
_MOVES = (*MOVES, HSlice, Cast)


@dataclasses.dataclass(frozen=True)
class CacheLink:
    """A cache. readers: the INPUT nodes that it stands behind; writers: the OUTPUT nodes that are written into it; each
    with the number of its subgraph, at most one of a subgraph."""

    readers: tuple[tuple[int, Node], ...]
    writers: tuple[tuple[int, Node], ...]


def subgraph_of_node(node: Node) -> int:
    """The subgraph of an INPUT or OUTPUT."""
    if node.kind is NodeKind.OUTPUT:
        return subgraph_of(str(node.attrs[PHASE]))
    return int(node.attrs[SUBGRAPH])


def outputs_of(graph: Graph, number: int) -> list[Node]:
    """What a subgraph returns, in order."""
    return [n for n in graph.outputs if WRITES not in n.attrs and subgraph_of_node(n) == number]


def links_by_name(graph: Graph, loops: Mapping[str, Any]) -> list[CacheLink]:
    """The caches of `loopback_outputs`: {argument: what is written into it}, a number of an output of every subgraph
    that takes the argument, or a pair (subgraph, output), or a list of pairs. Inputs of one name are one cache. Raises
    `ModelError` for names and numbers that are not there."""
    links = []
    for name, value in loops.items():
        readers = [(subgraph_of_node(n), n) for n in graph.inputs if n.attrs.get("argument") == name]
        if not readers:
            names = ", ".join(str(n.attrs.get("argument", n.name)) for n in graph.inputs)
            raise ModelError(f"loopback_outputs names {name!r}; the subgraphs take {names}")
        pairs = (
            [(number, value) for number, _ in readers]
            if isinstance(value, int)
            else ([value] if isinstance(value, tuple) else value)
        )
        writers = tuple((number, _output(graph, name, number, index)) for number, index in _pairs(name, pairs))
        links.append(CacheLink(tuple(readers), writers))
    return links


def _pairs(name: str, pairs: Any) -> list[tuple[int, int]]:
    good = isinstance(pairs, list) and all(
        isinstance(p, tuple) and len(p) == 2 and all(type(n) is int for n in p) for p in pairs
    )
    if not good or len({s for s, _ in pairs}) != len(pairs):
        raise ModelError(
            f"loopback_outputs of {name!r} is the number of an output, a pair (subgraph, output), or a list of pairs "
            f"of different subgraphs, not {pairs!r}"
        )
    return list(pairs)


def _output(graph: Graph, name: str, number: int, index: int) -> Node:
    outputs = outputs_of(graph, number)
    if not 0 <= index < len(outputs):
        raise ModelError(f"loopback_outputs of {name!r}: subgraph {number} has {len(outputs)} outputs, none is {index}")
    return outputs[index]


# -- caches of keys and values, by their ops ---------------------------------------------------------------------------
def past_links(graph: Graph, taken: Collection[str]) -> list[CacheLink]:
    """The caches of keys and values. An output of heads that a weight makes by a matmul and moves of data is one.

    Where it joins new rows behind an input, that input is its cache; outputs of other subgraphs from the same weight go
    into the same one. Where there is no such input (keys of an encoder's states, which are made once), the inputs of
    the same shape that other subgraphs take are its readers, in order. taken: names of inputs that are caches already.
    Raises `ModelError` where that order is not clear.
    """
    own: dict[str, dict[int, tuple[Node, Node]]] = {}  # by weight: of a subgraph the input and the output
    alone: dict[int, list[Node]] = {}
    for output in graph.outputs:
        weight, past = _weight_behind(graph, output) if len(output.shape) == 4 else (None, None)
        if weight is None or WRITES in output.attrs or past in taken:
            continue
        if past is None:
            alone.setdefault(subgraph_of_node(output), []).append(output)
        else:
            own.setdefault(weight, {})[subgraph_of_node(output)] = graph[past], output
    links = [
        CacheLink(tuple((k, a) for k, (a, _) in ends.items()), tuple((k, b) for k, (_, b) in ends.items()))
        for ends in own.values()
    ]
    used = {*taken, *(node.name for link in links for _, node in link.readers)}
    for number, outputs in alone.items():
        links += _written_once(graph, number, outputs, used)
    return links


def drop_unchanged(graph: Graph, links: Sequence[CacheLink]) -> None:
    """Remove outputs that are caches as the subgraph found them: models return the keys and values of the encoder's
    states at every step."""
    caches = {node.name for link in links for _, node in link.readers}
    for node in graph.outputs:
        if node.sources[0] in caches:
            graph.nodes.pop(node.name)


def _written_once(graph: Graph, number: int, outputs: list[Node], used: set[str]) -> list[CacheLink]:
    readers: dict[str, list[tuple[int, Node]]] = {output.name: [] for output in outputs}
    for other in sorted({subgraph_of_node(node) for node in graph.inputs} - {number}):
        for shape in dict.fromkeys(output.shape for output in outputs):
            of_shape = [o for o in outputs if o.shape == shape]
            inputs = [
                n for n in graph.inputs if n.name not in used and n.shape == shape and subgraph_of_node(n) == other
            ]
            if inputs and len(inputs) != len(of_shape):
                raise ModelError(
                    "enable_link_past_cache_ios cannot tell which inputs are caches",
                    [
                        Diagnostic(
                            "error",
                            inputs[0].name,
                            "subgraphs",
                            f"subgraph {number} gives {len(of_shape)} "
                            f"outputs of shape {shape}, subgraph {other} takes {len(inputs)} inputs of it",
                            "name them: loopback_outputs={input: (subgraph, output)}",
                        )
                    ],
                )
            for output, node in zip(of_shape, inputs, strict=False):
                readers[output.name].append((other, node))
                used.add(node.name)
    return [CacheLink(tuple(readers[o.name]), ((number, o),)) for o in outputs if readers[o.name]]


def _weight_behind(graph: Graph, output: Node) -> tuple[str | None, str | None]:
    """The weight of the matmul that makes an output of heads, and the input behind which its rows are joined."""
    name, past, heads = output.sources[0], None, False
    while True:
        node = graph[name]
        if isinstance(node.op, Concatenate) and past is None and len(node.sources) == 2:
            ends = [_before_moves(graph, s) for s in node.sources]
            inputs = [k for k, end in enumerate(ends) if graph[end].kind is NodeKind.INPUT and node.sources[k] == end]
            if len(inputs) != 1:
                return None, None
            past, name = ends[inputs[0]], node.sources[1 - inputs[0]]
        elif isinstance(node.op, _MOVES):
            heads |= len(node.shape) == 4
            name = node.sources[0]
        elif isinstance(node.op, Add) and any(_is_stored(graph, s) for s in node.sources):
            name = (
                next(s for s in node.sources if not _is_stored(graph, s))
                if not all(_is_stored(graph, s) for s in node.sources)
                else node.sources[0]
            )
        elif isinstance(node.op, Matmul) and heads:
            weights = [_before_moves(graph, s) for s in node.sources]
            weight = next((w for w in weights[:2] if graph[w].kind is NodeKind.PARAMETER), None)
            return weight, past if weight is not None else None
        else:
            return None, None


def _before_moves(graph: Graph, name: str) -> str:
    while isinstance(graph[name].op, _MOVES):
        name = graph[name].sources[0]
    return name


def _is_stored(graph: Graph, name: str) -> bool:
    return graph[_before_moves(graph, name)].kind in (NodeKind.PARAMETER, NodeKind.CONSTANT)
