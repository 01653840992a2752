"""Graph IR: shapes, ops, TMs, nodes, and the graph itself (nD and lowered alike)."""

from tbuda_lab.core.graph.graph import Edge, Graph, GraphError, Node, NodeKind, Origin
from tbuda_lab.core.graph.op import REGISTRY, Op, Payload, Shape, ShapeError, broadcast_shapes, op
from tbuda_lab.core.graph.parse import GraphSyntaxError, parse_graph
from tbuda_lab.core.graph.text import print_graph
from tbuda_lab.core.graph.tm import TILE, TM, TileShape, TMError, apply_shape, apply_shapes
from tbuda_lab.core.graph.verify import problems, verify

__all__ = [
    "REGISTRY",
    "TILE",
    "TM",
    "Edge",
    "Graph",
    "GraphError",
    "GraphSyntaxError",
    "Node",
    "NodeKind",
    "Op",
    "Origin",
    "Payload",
    "Shape",
    "ShapeError",
    "TMError",
    "TileShape",
    "apply_shape",
    "apply_shapes",
    "broadcast_shapes",
    "op",
    "parse_graph",
    "print_graph",
    "problems",
    "verify",
]
