"""How a torch module says which of its buffers are rams that generation keeps, and how its graph is cut there.

A module whose forward does the prompt and then one token calls `left` and `kept` on the keys and values of its layers.
In torch both return what they are given, so that the module is its own reference. In the graph the buffer is a ram on
the device: what lies before is a part that runs once, what lies behind a part that runs for each token.
"""

from __future__ import annotations

import torch

from tbuda_lab.core.errors import Diagnostic, ModelError
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import CACHE, PHASE, ROLE, WRITES, behind_caches, forward_part

NAMESPACE = "tbuda_lab"


@torch.library.custom_op(f"{NAMESPACE}::left", mutates_args=())
def left(value: torch.Tensor, ram: torch.Tensor) -> torch.Tensor:
    """What the prompt's part leaves in `ram`, as the decode part reads it."""
    return value.clone()


@torch.library.custom_op(f"{NAMESPACE}::kept", mutates_args=())
def kept(value: torch.Tensor, ram: torch.Tensor) -> torch.Tensor:
    """The contents that the decode part gives to `ram`, which it read before; returned as they are."""
    return value.clone()


@left.register_fake
def _(value: torch.Tensor, ram: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(value)


@kept.register_fake
def _(value: torch.Tensor, ram: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(value)


class Caches:
    """The rams of a graph while it is read."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.values: dict[str, str] = {}
        """By ram the node whose value goes into it."""

    def call(self, name: str, value: str, ram: str) -> str:
        """A call of `left` or `kept` on two nodes; the node that stands for its result. Raises `ModelError`."""
        node = self.graph[ram]
        if node.kind is not NodeKind.PARAMETER or ram in self.values or node.shape != self.graph[value].shape:
            raise ModelError(
                f"{NAMESPACE}::{name} takes a value and a buffer of its shape {self.graph[value].shape}, each buffer "
                f"once; {ram!r} is {node.kind.value} of shape {node.shape}"
            )
        node.attrs[ROLE] = CACHE
        self.values[ram] = value
        return ram if name == "left" else value

    def close(self) -> None:
        """Add the writes, and mark every OUTPUT with the part that it is in. Raises `ModelError` for an INPUT that
        both parts read: it would be popped twice."""
        graph = self.graph
        if not self.values:
            return
        for ram, value in self.values.items():
            node = Node(f"{ram}.write", NodeKind.OUTPUT, graph[value].shape, inputs=(Edge(value),))
            node.origin = graph[value].origin
            node.attrs[WRITES] = ram
            graph.add(node)
        order = graph.topological()
        later = behind_caches(graph, order)
        needed: set[str] = set()  # by the prompt's part
        for node in reversed(order):
            if node.kind is NodeKind.OUTPUT:
                node.attrs[PHASE] = forward_part(1 if node.name in later else 0)
            if node.name in needed or (node.kind is NodeKind.OUTPUT and node.name not in later):
                needed.update((node.name, *node.sources))
        decoded: set[str] = set()  # by the decode part
        for node in reversed(order):
            if node.name in decoded or (node.kind is NodeKind.OUTPUT and node.name in later):
                decoded.update((node.name, *node.sources))
        shared = [node.name for node in graph.inputs if node.name in needed & decoded]
        if shared:
            raise ModelError(
                f"input {shared[0]!r} is read by the prompt's part and by the decode part",
                [
                    Diagnostic("error", name, "caches", "both parts would pop it", "give each part an input of its own")
                    for name in shared
                ],
            )
