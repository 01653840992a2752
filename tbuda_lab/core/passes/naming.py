"""Folded parameters and constants go by the name of the model's own."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph import Edge, Graph, NodeKind
from tbuda_lab.core.passes.base import FOLDED_FROM, Pass, Report


@dataclasses.dataclass(frozen=True)
class NameParameters(Pass):
    """A folded parameter or constant takes the name of the first one of the model that it comes from, `<name>_<k>` if
    several do: on several chips the netlist parser itself makes names `<queue>.<chip>`."""

    name = "name_parameters"
    doc = "Give folded parameters and constants the names of the model's own"

    def apply(self, graph: Graph) -> Report:
        renamed: dict[str, str] = {}
        taken = set(graph.nodes)
        for node in graph.of_kind(NodeKind.PARAMETER, NodeKind.CONSTANT):
            folded_from = node.attrs.pop(FOLDED_FROM, None)
            if node.recipe is None and folded_from is None:
                continue
            sources = [folded_from] if node.recipe is None else [n.name for n in node.recipe.inputs]
            if not sources or node.name == sources[0]:
                continue
            stem, k, name = sources[0], 0, sources[0]
            while name in taken:
                k += 1
                name = f"{stem}_{k}"
            taken.add(name)
            renamed[node.name] = name
        nodes = {}
        for node in graph:
            node.name = renamed.get(node.name, node.name)
            node.inputs = tuple(Edge(renamed.get(e.source, e.source), e.tms) for e in node.inputs)
            nodes[node.name] = node
        graph.nodes = nodes
        return Report(self.name, len(renamed))
