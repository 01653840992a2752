"""Every activation gets rank 4, so that dims of size 1 in front are no ops any more."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Shape
from tbuda_lab.core.graph.phases import WRITES
from tbuda_lab.core.ops import BroadcastTo, Concatenate, Pad, Reshape
from tbuda_lab.core.passes import recipe
from tbuda_lab.core.passes.base import Pass, Report, Rewriter


def four(shape: Shape) -> Shape:
    """`shape` with ones in front up to rank 4; higher ranks as they are."""
    return (1,) * (4 - len(shape)) + tuple(shape)


@dataclasses.dataclass(frozen=True)
class RankFour(Pass):
    """Inputs are unsqueezed and outputs reshaped back by the host; stored values keep their shapes and broadcast."""

    name = "rank_four"
    doc = "Give every activation four dims; reshapes that only add or drop leading ones disappear"

    def apply(self, graph: Graph) -> Report:
        count = 0
        for node in graph.inputs:
            if four(node.shape) != node.shape:
                shape = four(node.shape)
                node.recipe = recipe.compose(f"{node.name}.rank", Reshape(shape), shape, [recipe.of_leaf(node)])
                node.shape = shape
                count += 1
        shapes = {node.name: node.shape for node in graph.outputs}
        count += Rewriter(graph, self.options, same_shapes=False).run(_visit)
        for node in graph.outputs:
            if WRITES in node.attrs:  # a ram keeps slices, rows and columns, which leading ones do not change
                continue
            if graph[node.sources[0]].shape != shapes[node.name]:
                node.recipe = output_recipe(node, Reshape(shapes[node.name]), shapes[node.name])
                count += 1
            node.shape = graph[node.sources[0]].shape
        return Report(self.name, count)


def output_recipe(node: Node, op: Reshape, shape: Shape) -> Graph:
    """A recipe from what the device delivers for `node` (an INPUT of its name) to the model's own output."""
    output_recipe = Graph(node.name)
    output_recipe.add(Node(node.name, NodeKind.INPUT, four(shape), attrs={"dtype": "float32"}))
    output_recipe.add(Node(f"{node.name}.0", NodeKind.OP, shape, op, (Edge(node.name),)))
    output_recipe.add(Node(recipe.RESULT, NodeKind.OUTPUT, shape, inputs=(Edge(f"{node.name}.0"),)))
    return output_recipe


def _visit(r: Rewriter, node: Node, operands: tuple[str, ...]) -> str | None:
    op = node.op
    if isinstance(op, (Reshape, BroadcastTo)):
        shape = four(op.shape)
        if r.new[operands[0]].shape == shape:
            return operands[0]
        return r.keep(node, dataclasses.replace(op, shape=shape), operands)
    if isinstance(op, Pad):
        return r.keep(node, dataclasses.replace(op, pads=((0, 0),) * (4 - len(op.pads)) + op.pads), operands)
    if isinstance(op, Concatenate):
        b = r.builder(node)
        return r.keep(node, None, tuple(b.reshape(o, four(r.new[o].shape)) for o in operands))
    assert op is not None
    shape = op.infer(*(r.new[o].shape for o in operands))
    if four(shape) == shape:
        return None
    return r.builder(node).reshape(r.keep(node, None, operands), four(shape))
