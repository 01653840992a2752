"""Ops on stored values are computed at compile time.

Folded parameters and constants go by the name of the model's own.
"""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import ROLE, TRAINABLE, subgraphs
from tbuda_lab.core.ops import Reshape, Squeeze, Transpose, Unsqueeze
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.evaluate import to_tensor
from tbuda_lab.core.passes import recipe
from tbuda_lab.core.passes.base import FOLDED_FROM, Pass, Report, Rewriter, is_stored


@dataclasses.dataclass(frozen=True)
class ConstEval(Pass):
    """An op whose operands are all stored becomes a constant; if any is a parameter, a parameter with a recipe. What is
    made of parameters without values (of a model on the meta device) is a parameter without a value."""

    name = "consteval"
    doc = "Compute ops on parameters and constants at compile time; keep how, so that new weights can be folded again"

    def apply(self, graph: Graph) -> Report:
        return Report(self.name, Rewriter(graph, self.options).run(_visit))


def _visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
    leaves = [r.new[name] for name in operands]
    if not isinstance(node.op, NdOp) or not all(map(is_stored, leaves)):
        return None
    absent = any(leaf.value is None for leaf in leaves)
    if absent and not any(leaf.kind is NodeKind.PARAMETER for leaf in leaves):
        return None
    trained = [leaf for leaf in leaves if leaf.attrs.get(TRAINABLE) or ROLE in leaf.attrs]
    if r.options.training is not None and trained and not _only_relabels(r, node, trained[0]):
        return None
    own = "original_op_name" not in node.attrs  # an op of the model, not one that a pass made of it
    if (
        own
        and not r.options.enable_consteval
        and all(leaf.value.dtype.kind == "f" for leaf in leaves if leaf.value is not None)
    ):
        return None
    value = None if absent else _evaluate(node.op, leaves)
    shape = tuple(value.shape) if value is not None else tuple(node.op.infer(*(leaf.shape for leaf in leaves)))
    folded = Node(node.name, NodeKind.CONSTANT, shape, origin=node.origin, value=value)
    if any(leaf.kind is NodeKind.PARAMETER for leaf in leaves):
        folded.kind = NodeKind.PARAMETER
        if r.options.training is not None and trained:
            folded.attrs[TRAINABLE] = True
        folded.recipe = recipe.compose(node.name, node.op, node.shape, [recipe.of_leaf(leaf) for leaf in leaves])
        formats = {leaf.df for leaf in leaves if leaf.kind is NodeKind.PARAMETER}
        folded.df = formats.pop() if len(formats) == 1 else None  # weights of one format keep it when they are folded
    elif not own and len(leaves) == 1 and node.op.type == "reshape":  # an operand that its op's decomposition reshapes
        folded.attrs[FOLDED_FROM] = leaves[0].attrs.get(FOLDED_FROM, leaves[0].name)
    r.new.add(folded)
    return folded.name


def _evaluate(op: NdOp, leaves: list[Node]) -> np.ndarray:
    with torch.no_grad():
        value: np.ndarray = op.evaluate(*(to_tensor(leaf.value) for leaf in leaves if leaf.value is not None)).numpy()
    return value.astype(np.float32) if value.dtype == np.float64 else value


def _only_relabels(r: Rewriter, node: Node, leaf: Node) -> bool:
    """Whether training may change the result in the leaf's place: every element of a weight stands in it once, and
    nothing else reads the weight. The gradient is then the same, in another order."""
    alone = len(r.users[node.sources[0]]) == 1
    return ROLE not in leaf.attrs and alone and isinstance(node.op, (Reshape, Transpose, Squeeze, Unsqueeze))


@dataclasses.dataclass(frozen=True)
class NameParameters(Pass):
    """A folded parameter or constant takes the name of the first one of the model that it comes from, `<name>_<k>` if
    several do: on several chips the netlist parser itself makes names `<queue>.<chip>`. What subgraphs have folded
    alike is one before.
    """

    name = "name_parameters"
    doc = "Give folded parameters and constants the names of the model's own"

    def apply(self, graph: Graph) -> Report:
        if subgraphs(graph) > 1:
            _share_folded(graph)
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


def _share_folded(graph: Graph) -> None:
    """Let folded parameters with equal recipes be one."""
    first: dict[tuple[object, ...], str] = {}
    same: dict[str, str] = {}
    for node in graph.of_kind(NodeKind.PARAMETER):
        if node.recipe is not None and TRAINABLE not in node.attrs:
            key = (node.shape, node.df, *recipe.form(node.recipe))
            same[node.name] = first.setdefault(key, node.name)
    for name, chosen in same.items():
        if name != chosen:
            graph.nodes.pop(name)
    for node in graph:
        node.inputs = tuple(Edge(same.get(e.source, e.source), e.tms) for e in node.inputs)
