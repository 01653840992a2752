"""Modules that do not feed each other as one graph: a forward part for each (see `graph.phases`), the weights that they
have in common once, and the caches that they share in rams."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.errors import Diagnostic, ModelError
from tbuda_lab.core.frontend.inputs import feeds
from tbuda_lab.core.frontend.pybuda.cache_links import SUBGRAPH, CacheLink, drop_unchanged, links_by_name, past_links
from tbuda_lab.core.frontend.pybuda.importer import from_pybuda
from tbuda_lab.core.frontend.pybuda.module import Module
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Op
from tbuda_lab.core.graph.phases import CACHE, PHASE, RAM, ROLE, WRITES, forward_part
from tbuda_lab.core.ops.binary import Add, Multiply
from tbuda_lab.core.ops.reduce import Matmul
from tbuda_lab.core.ops.tm import Concatenate, Index
from tbuda_lab.core.ops.unary import Buffer

OWN_ARGUMENT = "own_argument"
"""Of the same nodes as `SUBGRAPH`: the name in that module's forward."""
PLACE = "place"
"""Its place among the tensors that the subgraph's module takes."""
ROWS = "cache_rows"
"""Of an INPUT that says where a cache is written: ("place" | "keep", dim, places of the cache, rows that are written);
see `rows_value`."""


def from_subgraphs(
    modules: Sequence[Module],
    samples: Sequence[Any],
    loops: Mapping[str, Any] | None = None,
    link_past: bool = False,
    folds: bool = True,
    rotates: bool = False,
    progress: Callable[[str], None] | None = None,
) -> Graph:
    """One graph of several modules, each a subgraph with inputs and outputs of its own.

    samples: of each module what it takes. Parameters of one name and value, or that are one tensor, are one node.
    loops, link_past: which inputs are caches, which stay on the device and which outputs are written into (see
    `cache_links`). folds: what is calculated from weights alone is so when it is compiled, and so once. rotates: a
    further subgraph, without inputs, moves the first rows of every linked cache that grows behind the others. Names
    that an earlier module has get the prefix "<module>.". Raises what `from_pybuda` raises, and `ModelError` for
    another number of samples and for caches that do not fit.
    """
    if len(samples) != len(modules):
        raise ModelError(
            f"{len(modules)} subgraphs take as many sample inputs, not {len(samples)}: give a tuple with the inputs of "
            "each module, sample_inputs=((inputs of the first), (inputs of the second), ...)"
        )
    whole, values = Graph(modules[0].get_name()), dict[str, np.ndarray]()
    for number, (module, sample) in enumerate(zip(modules, samples, strict=True)):
        own = from_pybuda(module, sample, progress=progress)
        if any(WRITES in node.attrs for node in own.outputs):
            raise ModelError(
                f"module {module.get_name()!r} is in two parts already (caches.left, caches.kept); give it a device of "
                "its own"
            )
        names = _take_in(whole, own, module.get_name(), number, folds)
        values |= {names[name]: tensor.detach().float().numpy() for name, tensor in feeds(own, sample).items()}
    links = links_by_name(whole, loops or {})
    if link_past:
        by_ops = past_links(whole, {node.name for link in links for _, node in link.readers})
        drop_unchanged(whole, by_ops)
        links += with_rotation(whole, by_ops, len(modules)) if rotates else by_ops
    for link in links:
        _Cache(whole, link, values).write()
    _distinct_arguments(whole)
    whole.prune()
    whole.resort()
    return whole


def with_rotation(graph: Graph, links: Sequence[CacheLink], number: int) -> list[CacheLink]:
    """The links, those of caches that a subgraph grows with one more reader and writer: subgraph `number`, which moves
    the rows that are written at a time from the first place to the last."""
    result = []
    for link in links:
        growing = [(k, node) for k, node in link.writers if any(k == other for other, _ in link.readers)]
        if not growing:
            result.append(link)
            continue
        (_, cache), (_, output) = link.readers[0], growing[0]
        rows = output.shape[-2] - cache.shape[-2]
        if not 0 < rows < cache.shape[-2]:
            raise ModelError(
                f"{cache.name} of shape {cache.shape} cannot be rotated: {output.name} of shape "
                f"{output.shape} is to be the cache with new rows joined behind it"
            )
        attrs = {"dtype": "float32", SUBGRAPH: number, PLACE: len(result), "argument": cache.name}
        view = graph.add(Node(graph.unique(f"{cache.name}.rotated"), NodeKind.INPUT, cache.shape, attrs=attrs))
        names = []
        for start, stop in ((rows, cache.shape[-2]), (0, rows)):
            op = Index(-2, start, stop)
            node = Node(graph.unique(f"{view.name}.rows"), NodeKind.OP, op.infer(cache.shape), op, (Edge(view.name),))
            names.append(graph.add(node).name)
        all_rows = Node(
            graph.unique(f"{view.name}.all"), NodeKind.OP, cache.shape, Concatenate(-2), tuple(map(Edge, names))
        )
        end = Node(
            graph.unique(f"{view.name}.output"),
            NodeKind.OUTPUT,
            cache.shape,
            inputs=(Edge(graph.add(all_rows).name),),
            attrs={PHASE: forward_part(number)},
        )
        graph.add(end)
        result.append(CacheLink((*link.readers, (number, view)), (*link.writers, (number, end))))
    return result


def _take_in(whole: Graph, own: Graph, module: str, number: int, folds: bool) -> dict[str, str]:
    """Add the nodes of a module's graph to the whole; their names there."""
    names: dict[str, str] = {}
    by_memory = {_memory(p.value): p.name for p in whole.of_kind(NodeKind.PARAMETER) if p.value is not None}
    of_weights = _of_weights(whole) if folds else {}
    for place, node in enumerate(own.inputs):
        node.attrs |= {SUBGRAPH: number, PLACE: place}
    for node in own:
        shared = _shared(whole, node, by_memory) if node.kind is NodeKind.PARAMETER else None
        if node.kind is NodeKind.OP:
            shared = of_weights.get((repr(node.op), *(names[s] for s in node.sources)))
        if shared is not None:
            names[node.name] = shared
            continue
        name = node.name if node.name not in whole else whole.unique(f"{module}.{node.name}")
        names[node.name] = name
        attrs = dict(node.attrs)
        if node.kind is NodeKind.OUTPUT:
            attrs[PHASE] = forward_part(number)
        edges = tuple(Edge(names[e.source], e.tms) for e in node.inputs)
        whole.add(dataclasses.replace(node, name=name, inputs=edges, attrs=attrs))
    return names


def _of_weights(graph: Graph) -> dict[tuple[str, ...], str]:
    """By op and operands the ops that calculate something from parameters alone."""
    stored = {node.name for node in graph.of_kind(NodeKind.PARAMETER)}
    ops: dict[tuple[str, ...], str] = {}
    for node in graph.topological():
        if node.kind is NodeKind.OP and all(s in stored for s in node.sources):
            stored.add(node.name)
            ops[repr(node.op), *node.sources] = node.name
    return ops


def _distinct_arguments(graph: Graph) -> None:
    """An argument that modules have in common is the argument of one subgraph: the others bear the node's name."""
    seen: set[str] = set()
    for node in graph.inputs:
        own = str(node.attrs.get("argument", node.name))
        node.attrs |= {OWN_ARGUMENT: own, "argument": node.name if own in seen else own}
        seen.add(own)


def _shared(whole: Graph, node: Node, by_memory: Mapping[tuple[Any, ...], str]) -> str | None:
    """The parameter of an earlier module that is this one: the same memory, or one name and the same value."""
    other = whole.nodes.get(node.name)
    if other is not None and other.kind is NodeKind.PARAMETER and _equal(other, node):
        return other.name
    return None if node.value is None else by_memory.get(_memory(node.value))


def _equal(a: Node, b: Node) -> bool:
    if a.value is None or b.value is None:
        return a.value is b.value and a.shape == b.shape
    return _memory(a.value) == _memory(b.value) or bool(
        a.value.dtype == b.value.dtype and np.array_equal(a.value, b.value)
    )


def _memory(value: np.ndarray) -> tuple[Any, ...]:
    return value.__array_interface__["data"][0], value.shape, value.strides, value.dtype.str


class _Cache:
    """One cache while its inputs become parameters and its outputs writes."""

    def __init__(self, graph: Graph, link: CacheLink, values: Mapping[str, np.ndarray]) -> None:
        """values: of the sample inputs by their nodes; caches begin with them."""
        self.graph, self.link, self.values = graph, link, values
        self.shape = link.readers[0][1].shape

    def write(self) -> None:
        """Raises `ModelError` for shapes that do not fit, and for an output that a subgraph writes over a cache before
        it has read it."""
        readers = {number: node for number, node in self.link.readers}
        writers = {number: node for number, node in self.link.writers}
        if any(node.shape != self.shape for node in readers.values()):
            shapes = ", ".join(f"{node.name} {node.shape}" for node in readers.values())
            raise ModelError(f"one cache has one shape in all subgraphs, not {shapes}")
        ram = next(iter(readers.values())).name
        apart = len(writers) > 1 or len(readers) > 1  # then each subgraph has a view of the ram
        views: dict[int, str] = {}
        for number, node in readers.items():
            self._becomes_parameter(node, {**node.attrs, ROLE: CACHE} | ({RAM: ram} if apart else {}))
            views[number] = node.name
        for number, output in writers.items():
            self._write(number, output, views.get(number), ram, apart)

    def _becomes_parameter(self, node: Node, attrs: dict[str, Any]) -> None:
        value = np.ascontiguousarray(self.values[self.link.readers[0][1].name], np.float32)
        self.graph.nodes[node.name] = dataclasses.replace(node, kind=NodeKind.PARAMETER, value=value, attrs=attrs)

    def _replace(self, old: str, new: str) -> None:
        """Let all who read `old`, but `new`, read `new`."""
        for node in self.graph:
            if node.name != new and old in node.sources:
                node.inputs = tuple(dataclasses.replace(e, source=new) if e.source == old else e for e in node.inputs)

    def _write(self, number: int, output: Node, view: str | None, ram: str, apart: bool) -> None:
        """An OUTPUT of a subgraph writes the cache, of which the subgraph reads `view`. apart: every view has its
        name."""
        graph, before = self.graph, None
        if view is not None:  # all read the cache through one op, so that nothing reads it after it was written
            before = self._op(Buffer(), f"{view}.before", number, output, view)
            self._replace(view, before)
        source = output.sources[0]
        value = self._whole(number, output, self._new_rows(source, before), before)
        target = view or (graph.unique(f"{ram}.of_{forward_part(number)}") if apart else ram)
        attrs = {PHASE: forward_part(number), WRITES: target} | ({RAM: ram} if apart else {})
        if before is not None and not self._behind(value, before):
            raise ModelError(
                f"{output.name} is written over the cache {view!r}, which its subgraph reads, and does not depend on "
                "it",
                [
                    Diagnostic(
                        "error",
                        output.name,
                        "subgraphs",
                        "it could be written before it is read",
                        "return it as an output, and give it to the next run as an input",
                    )
                ],
            )
        graph.nodes.pop(output.name)
        node = Node(graph.unique(f"{target}.write"), NodeKind.OUTPUT, self.shape, inputs=(Edge(value),))
        node.origin, node.attrs = output.origin, attrs
        graph.add(node)

    def _new_rows(self, source: str, before: str | None) -> str:
        """What is new of an output: of a cache with rows joined behind it those rows."""
        node = self.graph[source]
        if isinstance(node.op, Concatenate) and node.shape != self.shape and before is not None:
            others = [s for s in node.sources if s != before]
            if len(others) == 1:
                return others[0]
        return source

    def _whole(self, number: int, output: Node, new: str, before: str | None) -> str:
        """The whole cache with new rows where the run is told to put them: keep * cache + place @ rows."""
        shape, graph = self.graph[new].shape, self.graph
        if shape == self.shape:
            return new
        dims = [d for d in range(len(self.shape)) if len(shape) == len(self.shape) and shape[d] != self.shape[d]]
        if len(dims) != 1 or shape[dims[0]] > self.shape[dims[0]] or dims[0] < len(shape) - 2:
            raise ModelError(
                f"output {output.name!r} of shape {shape} has no place in a cache of shape {self.shape}",
                [
                    Diagnostic(
                        "error",
                        output.name,
                        "subgraphs",
                        "sizes differ in one dim, the last or the one before it, and the cache is the larger",
                        "return the new rows alone, or joined with the cache",
                    )
                ],
            )
        dim, places, rows = dims[0] - len(shape), self.shape[dims[0]], shape[dims[0]]
        if before is None:
            raise ModelError(
                f"output {output.name!r} is a part of the cache, which its subgraph does not take",
                [
                    Diagnostic(
                        "error",
                        output.name,
                        "subgraphs",
                        "the rest of the cache is kept by reading it",
                        "let the module take the cache as an input too, or return all of it",
                    )
                ],
            )
        keep = self._mask(number, "keep", dim, places, rows)
        place = self._mask(number, "place", dim, places, rows)
        operands = (place, new) if dim == -2 else (new, place)
        put = self._op(Matmul(), f"{output.name}.placed", number, output, *operands)
        rest = self._op(Multiply(), f"{output.name}.rest", number, output, before, keep)
        return graph[self._op(Add(), f"{output.name}.cache", number, output, rest, put)].name

    def _mask(self, number: int, kind: str, dim: int, places: int, rows: int) -> str:
        """The INPUT of a subgraph that says where rows go; one for all caches of these sizes."""
        key = [kind, dim, places, rows]
        for node in self.graph.inputs:
            if node.attrs.get(SUBGRAPH) == number and node.attrs.get(ROWS) == key:
                return node.name
        lead = (1,) * (len(self.shape) - 2)
        size = {
            ("place", -2): (places, rows),
            ("place", -1): (rows, places),
            ("keep", -2): (places, 1),
            ("keep", -1): (1, places),
        }[kind, dim]
        name = self.graph.unique(f"cache_{kind}_{number}")
        attrs = {"dtype": "float32", "argument": name, SUBGRAPH: number, ROWS: key}
        return self.graph.add(Node(name, NodeKind.INPUT, (*lead, *size), attrs=attrs)).name

    def _op(self, op: Op, name: str, number: int, output: Node, *operands: str) -> str:
        shape = op.infer(*(self.graph[o].shape for o in operands))
        node = Node(self.graph.unique(name), NodeKind.OP, shape, op, tuple(map(Edge, operands)), origin=output.origin)
        return self.graph.add(node).name

    def _behind(self, name: str, before: str) -> bool:
        """Whether a value depends on what was read of the cache."""
        reached, todo = set(), [name]
        while todo:
            node = self.graph[todo.pop()]
            if node.name == before:
                return True
            if node.name not in reached:
                reached.add(node.name)
                todo.extend(node.sources)
        return False


def rows_value(node: Node, start: int) -> np.ndarray:
    """The value of an INPUT with `ROWS`, for rows that are written from place `start` on."""
    kind, dim, places, rows = node.attrs[ROWS]
    at = np.arange(int(places))
    if kind == "keep":
        value = ((at < start) | (at >= start + int(rows))).astype(np.float32)[:, None]
    else:
        value = (at[:, None] == start + np.arange(int(rows))).astype(np.float32)
    return np.ascontiguousarray(value if dim == -2 else value.T).reshape(node.shape)
