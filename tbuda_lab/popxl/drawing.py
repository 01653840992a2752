"""An Ir as one graph that can be drawn: every call site is a group with the ops of the graph that it calls."""

from __future__ import annotations

import collections
from collections.abc import Callable, Mapping
from typing import Any

from tbuda_lab.core.frames.netlist_file import FileOp
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Origin
from tbuda_lab.popxl.graph import Graph as IrGraph
from tbuda_lab.popxl.graph import Op
from tbuda_lab.popxl.ir import Ir
from tbuda_lab.popxl.tensor import Constant, Tensor

MOST_DRAWN = 3000
"""Ops beyond which a call is drawn as one box: calls of calls may be more than anybody looks at."""
Fact = Mapping[str, Any]
Path = tuple[str, ...]


def drawn_graph(ir: Ir, told: Callable[[Op], Fact]) -> Graph:
    """Ops as nodes, variables as inputs, call sites as modules. told: the facts of an op that its node keeps in the
    attribute "told", with the id of its graph."""
    drawing = _Drawing(ir, told)
    drawing.write(ir.main_graph, {}, ())
    return drawing.graph


class _Drawing:
    def __init__(self, ir: Ir, told: Callable[[Op], Fact]) -> None:
        self.graph = Graph("ir")
        self.told = told
        self.sizes: dict[IrGraph, int] = {}
        self.room = MOST_DRAWN - len(ir.main_graph._ops)
        self.names: collections.Counter[str] = collections.Counter()

    def size(self, graph: IrGraph) -> int:
        """How many ops there are with those of all calls written out."""
        if graph not in self.sizes:
            self.sizes[graph] = sum(1 + sum(map(self.size, op.calls)) for op in graph._ops)
        return self.sizes[graph]

    def write(self, graph: IrGraph, sources: dict[Tensor, str], path: Path, site: str = "") -> None:
        """Add the ops of a graph. sources: by tensor the node that makes it, for the inputs at first, then for all;
        site: what is said of the call."""
        sites: dict[str, int] = {}
        for op in graph._ops:
            size = sum(map(self.size, op.calls))
            if not op.calls or size > self.room:
                self.op(op, sources, path, site)
                continue
            self.room -= size
            call = f"{op.kind} {self.told(op)['line']}".strip()
            bodies, operands = _bodies(op)
            results = []
            for body, taken, label in zip(bodies, operands, _labels(op, bodies), strict=True):
                sites[label] = sites.get(label, 0) + 1
                part = label.replace(".", "/") + (f" #{sites[label]}" if sites[label] > 1 else "")
                inside = {own: self.source(t, sources) for own, t in zip(body._inputs, taken, strict=True)}
                self.write(body, inside, (*path, part), call)
                results.append([self.source(t, inside) for t in body._outputs])
            if op.kind == "If":
                made = [name for branch in results for name in branch]
                self.op(op, sources, path, site, [self.source(op.inputs[0], sources), *made])
            else:
                sources |= dict(zip(op.outputs, results[0], strict=False))

    def source(self, t: Tensor, sources: dict[Tensor, str]) -> str:
        """The node of a tensor; that of a variable or constant is made where it is first used."""
        if t not in sources:
            name = self._free(t.id)
            kind = NodeKind.CONSTANT if isinstance(t, Constant) else NodeKind.INPUT
            what = FileOp("constant" if isinstance(t, Constant) else "variable")
            self.graph.add(Node(name, kind, t.shape, what, origin=Origin("", "", what.netlist_type, "")))
            sources[t] = name
        return sources[t]

    def op(self, op: Op, sources: dict[Tensor, str], path: Path, site: str, operands: list[str] | None = None) -> None:
        facts = dict(self.told(op))
        module = ".".join(path)
        stem = op.outputs[0].name if op.outputs else op.kind
        name = self._free(f"{module}.{stem}" if module else stem)
        shown = {"runs on": facts["runs"], "why": facts["why"], "graph": op.graph.id or "main graph"}
        edges = tuple(Edge(s) for s in dict.fromkeys(operands or [self.source(t, sources) for t in op.inputs]))
        shape = op.outputs[0].shape if op.outputs else op.inputs[0].shape if op.inputs else ()
        self.graph.add(
            Node(
                name,
                NodeKind.OP,
                shape,
                FileOp(op.kind, tuple((k, v) for k, v in shown.items() if v)),
                edges,
                origin=Origin(module, site, op.kind, facts["line"]),
                attrs={"told": {**facts, "graph": op.graph.id or "main graph"}},
            )
        )
        sources |= dict.fromkeys(op.outputs, name)

    def _free(self, name: str) -> str:
        self.names[name] += 1
        return name if self.names[name] == 1 else f"{name} ({self.names[name]})"


def _bodies(op: Op) -> tuple[tuple[IrGraph, ...], list[list[Tensor]]]:
    """The user's graphs that an op calls, and the operands of each."""
    if op.kind == "Loop":
        return op.calls[0]._ops[0].calls, [op.inputs[2:]]
    if op.kind == "If":
        then = 1 + len(op.calls[0]._inputs)
        return op.calls, [op.inputs[1:then], op.inputs[then:]]
    return op.calls, [op.inputs]


def _labels(op: Op, bodies: tuple[IrGraph, ...]) -> list[str]:
    if op.kind == "Loop":
        return [f"{bodies[0].id} × {op.attrs['count']}"]
    if op.kind == "If":
        return [f"{word} {body.id}" for word, body in zip(("then", "else"), bodies, strict=True)]
    return [bodies[0].id]
