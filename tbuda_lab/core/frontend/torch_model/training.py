"""What a traced torch model needs to train as it does in torch: batch norms by the statistics of their input, and
look-up tables with gradients."""

from __future__ import annotations

import math
from collections.abc import Collection

import numpy as np
import torch

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.ops import (
    Add,
    Divide,
    Embedding,
    EmbeddingBag,
    Matmul,
    Maximum,
    OneHot,
    ReduceSum,
    Reshape,
    StopGradient,
    Subtract,
    Transpose,
)
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


def train_tables(graph: Graph, trained: Collection[str], microbatch: int = 1) -> None:
    """Look-ups by integer inputs into tables that are trained become products with rows that are 1 at the index, which
    have gradients: torch's, none for a row at `padding_idx`, shared out where they are scaled by frequency.

    trained: names of the parameters that are trained. microbatch: elements that run one by one. Raises `UnsupportedOp`
    for bags of the largest row, and for rows scaled by how often several elements have their index.
    """
    for node in graph.ops:
        if not isinstance(node.op, Embedding | EmbeddingBag) or not _reads(graph, node.sources[0], trained):
            continue
        table, indices = node.sources
        if isinstance(node.op, Embedding) and node.op.by_frequency and microbatch > 1:
            raise _not_trained(
                node,
                f"scale_grad_by_freq counts over {microbatch} elements, which run one by one here",
                "leave it out, or train with a microbatch of 1",
            )
        attrs = {"original_op_name": node.name, "original_op_type": node.op.type}
        b = Builder(graph, node.origin, node.name, attrs)
        made = _bag if isinstance(node.op, EmbeddingBag) else _rows
        node.op, node.inputs = Reshape(node.shape), (Edge(made(b, node, table, indices)),)
    graph.resort()


def _one_hot(b: Builder, table: str, indices: str, padding: int) -> str:
    """(count, entries)"""
    count, entries = math.prod(b.shape(indices)), b.shape(table)[0]
    return b.reshape(b.op(OneHot(entries, padding), indices), (count, entries))


def _rows(b: Builder, node: Node, table: str, indices: str) -> str:
    """The rows; what has no gradient as it is in the forward pass is added without one."""
    assert isinstance(node.op, Embedding)
    padding = node.op.padding
    learned = picked = _one_hot(b, table, indices, padding)
    if node.op.by_frequency:
        counts = b.op(Maximum(), b.op(ReduceSum(-2), picked), b.constant(1.0))
        learned = b.op(Divide(), picked, counts)
    elif padding < 0 or _stays_zero(b.graph, table, padding):
        return b.op(Matmul(), picked, table)
    product = b.op(Matmul(), learned, table)
    whole = b.op(Matmul(), _one_hot(b, table, indices, -1), table)
    return b.op(Add(), product, b.op(StopGradient(), b.op(Subtract(), whole, product)))


def _stays_zero(graph: Graph, table: str, row: int) -> bool:
    """Whether a row of a table is zero, and nothing but look-ups reads the table."""
    value = graph[table].value
    readers = [name for name, _ in graph.users()[table]]
    looks = all(isinstance(graph[u].op, Embedding | EmbeddingBag) or _is_product_of(graph, u, table) for u in readers)
    return value is not None and not value[row].any() and looks


def _is_product_of(graph: Graph, name: str, table: str) -> bool:
    """Whether a node is what became of another look-up."""
    node = graph[name]
    kind = node.attrs.get("original_op_type")
    return isinstance(node.op, Matmul) and node.sources[1] == table and kind in ("embedding", "embedding_bag")


def _bag(b: Builder, node: Node, table: str, indices: str) -> str:
    bag = node.op
    assert isinstance(bag, EmbeddingBag)
    if bag.mode == "max":
        raise _not_trained(node, "mode 'max' of an EmbeddingBag has no gradient here", "use mode='sum'")
    count = math.prod(b.shape(indices))
    rows = b.op(Matmul(), b.constant(_bags(bag, count)), _one_hot(b, table, indices, bag.padding))
    if bag.mode == "mean":  # over the indices that count
        rows = b.op(Divide(), rows, b.op(Maximum(), b.op(ReduceSum(-1), rows), b.constant(1.0)))
    return b.op(Matmul(), rows, table)


def _bags(bag: EmbeddingBag, count: int) -> np.ndarray:
    """(bags, count): 1 where an index is in a bag."""
    ends = np.array([*bag.starts[1:], count])
    places = np.arange(count)
    return ((places >= np.array(bag.starts)[:, None]) & (places < ends[:, None])).astype(np.float32)


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
    return UnsupportedOp(
        "a look-up table cannot be trained like this", [Diagnostic("error", where, "embedding", why, fix)]
    )
