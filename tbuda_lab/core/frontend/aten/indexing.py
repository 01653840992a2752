"""aten ops that read or write at indices: known when the model is traced (a slice or a gather of rows), or given by an
input (a look-up on the host, or a product with rows that are 1 at the index)."""

from __future__ import annotations

import math

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import VALUES_DECIDE, Call, CannotMap, FoldedValue, Result, maps
from tbuda_lab.core.frontend.aten.host import host_call
from tbuda_lab.core.frontend.aten.shape import join_parts, permute_dims, take_positions
from tbuda_lab.core.frontend.inputs import INDEX_RANGES
from tbuda_lab.core.graph import Graph, NodeKind, Shape
from tbuda_lab.core.ops import (
    Add,
    Argmax,
    BroadcastTo,
    Cast,
    CheckIndices,
    Embedding,
    EmbeddingBag,
    Equal,
    Index,
    Less,
    Matmul,
    Multiply,
    NotEqual,
    ReduceMax,
    ReduceSum,
    Reshape,
    Subtract,
    Transpose,
    Where,
)


def looked_up(c: Call, table: str, indices: str, padding: int = -1, by_frequency: bool = False) -> str:
    """padding, by_frequency: as training has them, which only a graph for training keeps."""
    op = Embedding(padding, by_frequency) if c.emit.keeps_stops else Embedding()
    return c.op(op, table, indices)


@maps("aten.embedding")
def embedding(c: Call) -> str:
    constant = c.folded_value("indices")
    table = c.x("weight")
    if constant is None:
        return looked_up(c, table, c.x("indices"), int(c.get("padding_idx", -1)), bool(c.get("scale_grad_by_freq")))
    return c.reshape(take_positions(c, table, 0, constant.reshape(-1).numpy()), c.out_shape)


@maps("aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only")
def embedding_bag(c: Call) -> Result:
    offsets = c.folded_value("offsets")
    if offsets is None:  # where its bags begin depends on an input
        return host_call(c)
    starts = tuple(int(n) for n in offsets.tolist())
    if c.get("include_last_offset"):
        starts = starts[:-1]
    mode, padding = ("sum", "mean", "max")[c.get("mode", 0)], int(c.get("padding_idx", -1))
    if not c.has("per_sample_weights"):
        return c.op(EmbeddingBag(starts, mode, padding), c.x("weight"), c.x("indices")), None, None, None
    (count,), bags, width = c.shape(c.x("indices")), len(starts), c.shape(c.x("weight"))[1]
    length = count // max(1, bags)
    if padding >= 0 or length == 0 or starts != tuple(range(0, count, length)):
        raise CannotMap("weights of bags of several lengths, empty or padded; give (batch, bag) without padding_idx")
    rows = c.reshape(looked_up(c, c.x("weight"), c.x("indices")), (bags, length, width))
    weights = c.reshape(c.x("per_sample_weights"), (bags, length, 1))
    total = c.op(ReduceSum(-2), c.op(Multiply(), rows, weights))
    return c.reshape(total, (bags, width)), None, None, None


@maps("aten.index_select")
def index_select(c: Call) -> str:
    constant = c.folded_value("index")
    x, dim = c.vector(), c.get("dim")
    if constant is not None:
        return take_positions(c, x, dim, constant.reshape(-1).numpy())
    return _rows_at(c, x, dim, c.x("index"))


def _rows_of_several(c: Call, x: str, indices: list[str], lead: int) -> str:
    """x at the places that several run-time indices name together: one index into their merged dims."""
    shape = c.shape(x)
    sizes = shape[lead : lead + len(indices)]
    merged = c.reshape(x, (*shape[:lead], math.prod(sizes), *shape[lead + len(indices) :]))
    flat, *others = (_from_start(c, index, size) for index, size in zip(indices, sizes, strict=True))
    for size, index in zip(sizes[1:], others, strict=True):
        flat = c.op(Add(), c.op(Multiply(), flat, c.constant(torch.tensor(size))), index)
    return c.reshape(_rows_at(c, merged, lead, flat), c.out_shape)


def _from_start(c: Call, index: str, size: int) -> str:
    """Indices into a dim of `size`, of which negative ones count from its end."""
    graph = c.emit.graph
    if graph[index].kind is NodeKind.CONSTANT or _is_found(graph, index, size):
        return index
    held = _held(c, index, size, negative=True)
    back = c.op(Add(), held, c.constant(torch.tensor(size)))
    return c.op(Where(), c.op(Less(), held, c.constant(torch.tensor(0))), back, held)


_FOUND = frozenset(("argmax", "argsort", "sort", "topk"))
_VIEWS = (Reshape, Transpose, BroadcastTo, Index)


def _is_found(graph: Graph, index: str, size: int) -> bool:
    """Whether indices are those of an op that finds them among `size` at most: they are in the range of that dim."""
    node = graph[index]
    while isinstance(node.op, (*_VIEWS, Cast)):
        node = graph[node.sources[0]]
    if node.op is None or getattr(node.op, "call", node.op.type) not in _FOUND:
        return False
    searched = graph[node.sources[0]].shape
    return (searched[node.op.dim] if isinstance(node.op, Argmax) else max(searched, default=1)) <= size


def _held(c: Call, index: str, size: int, negative: bool = False) -> str:
    """Indices that are refused outside a dim of `size`, as torch does: those that an input gives when it is fed (in
    its attributes), those that are computed by a step of the host. negative: they may count from the end. A training
    has no steps of the host within it."""
    graph, node, others = c.emit.graph, c.emit.graph[index], []
    while isinstance(node.op, (*_VIEWS, Where)):
        if isinstance(node.op, Where):  # a loss puts 0 where the class is the one that is ignored
            condition, kept, other = (graph[source] for source in node.sources)
            ignored = graph[condition.sources[1]].value if isinstance(condition.op, NotEqual) else None
            if ignored is None or ignored.size != 1 or other.kind is not NodeKind.CONSTANT:
                break
            others.append(int(ignored.reshape(-1)[0]))
            node = kept
        else:
            node = graph[node.sources[0]]
    if node.kind is NodeKind.INPUT:
        where = " ".join(filter(None, (c.target._schema.name.replace("::", "."), c.emit.origin.location)))
        ranges = node.attrs.setdefault(INDEX_RANGES, [])
        ranges.append([-size if negative else 0, size - 1, others, where])
        return index
    if c.emit.keeps_stops or negative or node.kind is not NodeKind.OP or _is_found(graph, index, size):
        return index
    return c.op(CheckIndices(size), index)


def _on_device(c: Call, x: str) -> bool:
    """Whether the device computes x: it depends on an input of floats."""
    graph, seen, stack = c.emit.graph, set(), [x]
    while stack:
        node = graph[stack.pop()]
        if node.name in seen:
            continue
        seen.add(node.name)
        if node.kind is NodeKind.INPUT and str(node.attrs.get("dtype", "float32")).startswith(("float", "bfloat")):
            return True
        if isinstance(node.op, Embedding | Matmul):
            return True
        stack.extend(node.sources)
    return False


def _rows_at(c: Call, x: str, dim: int, index: str) -> str:
    """x taken along dim at indices that an input gives.

    A table of weights is looked up on the host. What the device computed is multiplied by rows that are 1 at the index.
    """
    shape, lead = c.shape(x), c.shape(index)
    dim %= len(shape)
    rest = (*shape[:dim], *shape[dim + 1 :])
    order = (dim, *(d for d in range(len(shape)) if d != dim))
    table = c.reshape(permute_dims(c, x, order), (shape[dim], math.prod(rest)))
    if _on_device(c, x):
        flat = c.reshape(_held(c, index, shape[dim]), (math.prod(lead), 1))
        chosen = c.op(Equal(), flat, c.constant(torch.arange(shape[dim]).reshape(1, shape[dim])))
        rows = c.op(Matmul(), chosen, table)
    else:
        rows = looked_up(c, table, index)
    k = len(lead)
    back = c.reshape(rows, (*lead, *rest))
    return permute_dims(c, back, (*range(k, k + dim), *range(k), *range(k + dim, k + len(rest))))


@maps("aten.one_hot")
def one_hot(c: Call) -> str:
    entries, index = int(c.get("num_classes", -1)), c.x()
    if entries < 0:
        raise CannotMap(VALUES_DECIDE)
    spread = c.reshape(_held(c, index, entries), (*c.shape(index), 1))
    return c.op(Cast("int64"), c.op(Equal(), spread, c.constant(torch.arange(entries))))


@maps("aten.bincount")
def bincount(c: Call) -> str:
    """How often each number below `minlength` comes. torch counts further where a larger one comes, and a graph cannot:
    such inputs are refused when they are fed."""
    entries, index = int(c.get("minlength", 0)), c.x()
    if not entries or c.get("weights") is not None:
        raise CannotMap(VALUES_DECIDE)
    spread = c.reshape(_held(c, index, entries), (*c.shape(index), 1))
    found = c.op(Equal(), spread, c.constant(torch.arange(entries)))
    return c.reshape(c.op(Cast("int64"), c.op(ReduceSum(0), found)), (entries,))


@maps("aten.gather")
def gather(c: Call) -> str:
    x, dim = c.vector(), c.get("dim")
    shape = c.shape(x)
    dim %= len(shape)
    constant = c.folded_value("index")
    if math.prod(shape) != shape[dim]:
        if constant is None:
            return _gathered_at_run_time(c, x, dim)
        places = list(torch.meshgrid(*(torch.arange(n) for n in constant.shape), indexing="ij"))
        places[dim] = constant
        flat_index = np.ravel_multi_index([p.reshape(-1).numpy() for p in places], shape)
        return c.reshape(take_positions(c, c.reshape(x, (math.prod(shape), 1)), 0, flat_index), c.out_shape)
    flat = c.reshape(x, (shape[dim], 1))
    if constant is not None:
        return c.reshape(take_positions(c, flat, 0, constant.reshape(-1).numpy()), c.out_shape)
    if _on_device(c, x):
        return _gathered_at_run_time(c, x, dim)
    return c.reshape(looked_up(c, flat, c.x("index")), c.out_shape)


def _gathered_at_run_time(c: Call, x: str, dim: int) -> str:
    """gather along dim by indices that an input gives: the sum over dim of x where the position is the index."""
    x, index = (c.reshape(v, c.shape(v) or (1,)) for v in (x, c.x("index")))
    shape, index_shape = c.shape(x), c.shape(index)
    for d, size in enumerate(index_shape):  # the first rows or columns, where there are indices for these alone
        if d != dim and size < shape[d]:
            x = c.op(Index(d - len(shape), 0, size), x)
    shape = c.shape(x)
    numbers = c.constant(torch.arange(shape[dim]).to(torch.float32))
    index = _held(c, index, shape[dim])
    spread = c.reshape(index, (*index_shape[: dim + 1], 1, *index_shape[dim + 1 :]))
    column = c.reshape(numbers, (shape[dim], *(1,) * (len(shape) - dim - 1)))
    chosen = c.op(Multiply(), c.op(Equal(), spread, column), c.reshape(x, (*shape[:dim], 1, *shape[dim:])))
    return c.reshape(c.op(ReduceSum(dim + 1 - len(shape) - 1), chosen), c.out_shape)


@maps("aten.scatter_add")
def scatter_add(c: Call) -> Result:
    """x, and at each position along dim the sum of the source's elements whose index it is.

    Every index is compared with every position; that times the source is summed over the source. Integers, and sources
    larger than their indices, are the host's.
    """
    x, index, source = c.vector(), c.vector("index"), c.vector("src")
    shape, index_shape, source_shape = c.shape(x), c.shape(index), c.shape(source)
    dim = c.get("dim") % len(shape)
    sizes = [pair for d, pair in enumerate(zip(index_shape, shape, strict=True)) if d != dim]
    if index_shape != source_shape or any(w != n for w, n in sizes) or not c.out.is_floating_point():
        return host_call(c)
    numbers = c.constant(torch.arange(shape[dim]).to(torch.float32))
    column = c.reshape(numbers, (shape[dim], *(1,) * (len(shape) - dim - 1)))
    apart = (*index_shape[: dim + 1], 1, *index_shape[dim + 1 :])
    meant = c.op(Equal(), c.reshape(_held(c, index, shape[dim]), apart), column)
    parts = c.op(Multiply(), meant, c.reshape(source, apart))
    return c.op(Add(), x, c.reshape(c.op(ReduceSum(dim - len(shape) - 1), parts), shape))


@maps("aten.diagonal", "aten.diagonal_copy")
def diagonal(c: Call) -> str:
    x = c.x()
    shape = c.shape(x)
    rank, offset = len(shape), c.get("offset", 0)
    first, second = c.get("dim1", 0) % rank, c.get("dim2", 1) % rank
    rest = [d for d in range(rank) if d not in (first, second)]
    matrix = permute_dims(c, x, (*rest, first, second))
    count = c.out_shape[-1]
    rows, columns = np.arange(count) + max(0, -offset), np.arange(count) + max(0, offset)
    flat = c.reshape(matrix, (*(shape[d] for d in rest), shape[first] * shape[second]))
    return c.reshape(take_positions(c, flat, -1, rows * shape[second] + columns), c.out_shape)


@maps("aten.diagonal_scatter")
def diagonal_scatter(c: Call) -> str:
    """What lies on the diagonal is read from the source, all else from x."""
    x, source = c.x(), c.x("src")
    shape, count = c.shape(x), math.prod(c.shape(x))
    at = np.arange(count).reshape(shape)
    on = np.diagonal(at, c.get("offset", 0), c.get("dim1", 0), c.get("dim2", 1)).copy()
    at.reshape(-1)[on.reshape(-1)] = count + np.arange(on.size)
    both = join_parts(c, [c.reshape(x, (count, 1)), c.reshape(source, (on.size, 1))], 0)
    return c.reshape(take_positions(c, both, 0, at.reshape(-1)), shape)


@maps("aten.as_strided", "aten.as_strided_copy")
def as_strided(c: Call) -> str:
    """A gather: what lies at each place of the storage, which is the tensor in order."""
    x, size, stride = c.x(), c.get("size"), c.get("stride")
    count = math.prod(c.shape(x))
    at = np.full((), int(c.get("storage_offset", 0)), np.int64)
    for n, s in zip(size, stride, strict=True):
        at = at[..., None] + np.arange(n) * s
    if at.size == 0 or at.max() >= count:
        raise CannotMap("as_strided beyond its tensor; view the tensor that holds the memory")
    return c.reshape(take_positions(c, c.reshape(x, (count, 1)), 0, at.reshape(-1)), c.out_shape)


@maps("aten.unfold")
def unfold(c: Call) -> str:
    x, dim, size, step = c.vector(), c.get("dimension"), c.get("size"), c.get("step")
    shape = c.shape(x)
    dim %= len(shape)
    count = (shape[dim] - size) // step + 1
    at = (np.arange(count)[:, None] * step + np.arange(size)).reshape(-1)
    rows = take_positions(c, x, dim, at)
    split = c.reshape(rows, (*shape[:dim], count, size, *shape[dim + 1 :]))
    rank = len(shape) + 1
    return permute_dims(c, split, [d for d in range(rank) if d != dim + 1] + [dim + 1])


@maps("aten.index_copy", "aten.index_fill", "aten.index_add")
def index_copy(c: Call) -> Result:
    """Slices written at known places, the last of several to one place stays; at places an input gives by a product."""
    x, dim = c.vector(), c.get("dim")
    shape = c.shape(x)
    dim %= len(shape)
    name = c.target._schema.name
    constant = c.folded_value("index")
    count = shape[dim]
    places = c.shape(c.x("index")) or (1,)
    if name == "aten::index_fill":
        source = c.op(BroadcastTo((*shape[:dim], places[0], *shape[dim + 1 :])), c.x("value"))
    else:
        source = c.x("source")
    if name == "aten::index_add" and c.get("alpha", 1) != 1:
        source = c.op(Multiply(), source, c.constant(float(c.get("alpha"))))
    if constant is not None and name != "aten::index_add":
        at = np.arange(count)
        at[constant.reshape(-1).numpy()] = count + np.arange(places[0])
        return take_positions(c, join_parts(c, [x, source], dim), dim, at)
    if c.counts() or c.out.dtype == torch.bool:
        return host_call(c)
    numbers = c.constant(torch.arange(count).to(torch.float32).reshape(count, 1))
    spread = c.reshape(_held(c, c.x("index"), count), (1, places[0]))
    written = c.op(Equal(), numbers, spread)  # (count, places): 1 where a place is written
    rest = math.prod(shape[dim + 1 :])
    lead = math.prod(shape[:dim])
    change = c.reshape(source, (lead, places[0], rest))
    flat = c.reshape(x, (lead, count, rest))
    if name != "aten::index_add":
        unwritten = c.op(Subtract(), c.constant(1.0), c.op(ReduceMax(-1), written))
        flat = c.op(Multiply(), flat, unwritten)
        # An input may name a place twice: of all that write it, the one that comes last is taken, not their sum.
        after = c.op(Matmul(), written, c.constant(torch.ones(places[0], places[0]).tril(-1)))
        written = c.op(Multiply(), written, c.op(Equal(), after, c.constant(0.0)))
    update = c.op(Matmul(), written, change)
    return c.reshape(c.op(Add(), flat, update), shape)


@maps("aten.index", "aten._unsafe_index")
def index(c: Call) -> str:
    x, indices = c.x(), list(c.arguments["indices"])
    dims = [d for d, i in enumerate(indices) if i is not None]
    if dims != list(range(dims[0], dims[-1] + 1)):
        raise CannotMap("indexing by several tensors works on neighbouring dims only")
    shape, lead = c.shape(x), dims[0]
    if len(dims) == 1 and not isinstance(indices[lead], FoldedValue):
        moved = _rows_at(c, x, lead, _from_start(c, c.node_of(indices[lead]), shape[lead]))
        return c.reshape(moved, c.out_shape)
    chosen = [indices[d] for d in dims]
    if not all(isinstance(i, FoldedValue) for i in chosen):
        return _rows_of_several(c, x, [c.node_of(i) for i in chosen], lead)
    if any(i.tensor.dtype == torch.bool for i in chosen):
        masks = [i.tensor for i in chosen]
        if len(masks) != 1 or masks[0].dim() != 1:
            raise CannotMap("a truth-value index must be a single vector known at trace time")
        return take_positions(c, x, lead, masks[0].nonzero().reshape(-1).numpy())
    sizes = [shape[d] for d in dims]
    parts = torch.broadcast_tensors(  # type: ignore[no-untyped-call]
        *(torch.where(i.tensor < 0, i.tensor + n, i.tensor) for i, n in zip(chosen, sizes, strict=True))
    )
    flat = np.ravel_multi_index([p.reshape(-1).numpy() for p in parts], sizes)
    merged: Shape = (*shape[:lead], math.prod(sizes), *shape[dims[-1] + 1 :])
    return c.reshape(take_positions(c, c.reshape(x, merged), lead, flat), c.out_shape)
