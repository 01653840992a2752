"""What a traced torch model needs to train as it does in torch: batch norms by the statistics of their input, and
look-up tables with gradients."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import torch

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.ops import Embedding, EmbeddingBag, Matmul, OneHot, Reshape, Transpose
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.norm import Batchnorm, BatchnormTraining


def use_batch_statistics(graph: Graph, module: torch.nn.Module, microbatch: int) -> None:
    """Batch norms of layers in training mode take mean and variance of the input itself, as torch does, and change
    their running statistics. A batch in dim 0 of the graph is one element of many pixels.

    microbatch: elements that the device takes one by one. Raises `UnsupportedOp` for what torch would take over several
    of them or over one value per channel, and for statistics that weigh by how many inputs there were.
    """
    learning = {
        (f"{name}.running_mean" if name else "running_mean"): layer.momentum
        for name, layer in module.named_modules()
        if layer.training and isinstance(layer, torch.nn.modules.batchnorm._BatchNorm)
    }
    faults = []
    for node in graph.ops:
        if not isinstance(node.op, Batchnorm) or node.sources[3] not in learning:
            continue
        momentum = learning[node.sources[3]]
        if microbatch > 1:
            message = f"its statistics are those of {microbatch} elements, which run one by one here"
            fix = "a microbatch of 1 with accumulation over several, or .eval() on the layer"
        elif math.prod(node.shape) // node.shape[1] < 2:
            message, fix = "one value per channel has no variance", ".eval() on the layer"
        elif momentum is None:
            message = "momentum=None averages over all inputs so far, which the device does not count"
            fix = "momentum=0.1 or another number, or .eval() on the layer"
        else:
            _by_its_input(graph, node, BatchnormTraining(node.op.epsilon, momentum))
            continue
        where = node.origin.module or node.name
        faults.append(Diagnostic("error", where, "batch-statistics", f"batch norm in training: {message}", fix))
    if faults:
        raise UnsupportedOp("batch norm cannot be trained like this", faults)
    graph.resort()
    graph.prune()


def _by_its_input(graph: Graph, node: Node, norm: BatchnormTraining) -> None:
    """The node becomes `norm`; with several elements in dim 0, of x as (1, channels, elements and rows, columns)."""
    x, shape = node.sources[0], node.shape
    if shape[0] == 1 and len(shape) > 2:
        node.op = norm
        return
    b = Builder(graph, node.origin, node.name, {"original_op_name": node.name, "original_op_type": "batchnorm"})
    last = shape[-1] if len(shape) > 2 else 1
    rows = b.reshape(b.transpose(x, 0, 1), (1, shape[1], math.prod(shape) // shape[1] // last, last))
    normal = b.op(norm, rows, *node.sources[1:])
    node.op, node.inputs = Transpose(0, 1), (Edge(b.reshape(normal, (shape[1], shape[0], *shape[2:]))),)


def train_tables(graph: Graph, module: torch.nn.Module, trained: Collection[str]) -> None:
    """Look-ups by integer inputs into tables that are trained become products with rows that are 1 at the index, which
    have gradients. A row at `padding_idx` has none, as in torch.

    trained: names of the parameters that are trained. Raises `UnsupportedOp` for a padding row that is not zero, for
    tables that count how often an index occurs, and for bags of the largest row, or of means that leave padding out.
    """
    layers = dict(module.named_modules())
    for node in graph.ops:
        if not isinstance(node.op, Embedding | EmbeddingBag) or not _reads(graph, node.sources[0], trained):
            continue
        table, indices = node.sources
        layer, padding = layers.get(node.origin.module), -1
        if isinstance(layer, torch.nn.Embedding | torch.nn.EmbeddingBag):
            padding = -1 if layer.padding_idx is None else layer.padding_idx
            if layer.scale_grad_by_freq or layer.max_norm is not None:
                raise _not_trained(node, "scale_grad_by_freq and max_norm have no form on the device", "leave them out")
            if isinstance(layer, torch.nn.Embedding) and padding >= 0 and layer.weight[padding].any():
                raise _not_trained(node, f"row {padding} (padding_idx) is not zero and would stay as it is in torch",
                                   "set it to zero, or leave padding_idx out")
        count, entries = math.prod(graph[indices].shape), graph[table].shape[0]
        attrs = {"original_op_name": node.name, "original_op_type": node.op.type}
        b = Builder(graph, node.origin, node.name, attrs)
        rows = b.reshape(b.op(OneHot(entries, padding), indices), (count, entries))
        if isinstance(node.op, EmbeddingBag):
            rows = b.op(Matmul(), b.constant(_bags(node, node.op, count)), rows)
        node.op, node.inputs = Reshape(node.shape), (Edge(b.op(Matmul(), rows, table)),)
    graph.resort()


def _bags(node: Node, bag: EmbeddingBag, count: int) -> np.ndarray:
    """(bags, count): what each index counts in each bag."""
    if bag.mode == "max" or (bag.mode == "mean" and bag.padding >= 0):
        raise _not_trained(node, f"mode {bag.mode!r} of an EmbeddingBag has no gradient here", "use mode='sum'")
    ends = np.array([*bag.starts[1:], count])
    places = np.arange(count)
    inside = (places >= np.array(bag.starts)[:, None]) & (places < ends[:, None])
    share = np.maximum(1, inside.sum(1, keepdims=True)) if bag.mode == "mean" else 1
    return (inside / share).astype(np.float32)


def _reads(graph: Graph, name: str, trained: Collection[str]) -> bool:
    """Whether a value depends on one of the parameters `trained`."""
    pending, seen = [name], set()
    while pending:
        node = graph[pending.pop()]
        if node.kind is NodeKind.PARAMETER and node.name in trained:
            return True
        if node.name not in seen:
            seen.add(node.name)
            pending += node.sources
    return False


def _not_trained(node: Node, why: str, fix: str) -> UnsupportedOp:
    where = node.origin.module or node.name
    return UnsupportedOp("a look-up table cannot be trained like this",
                         [Diagnostic("error", where, "embedding", why, fix)])
