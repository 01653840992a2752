"""aten ops that move data: views, permutations, slices, concatenation, padding, gathers by known indices."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import Call, CannotMap, Folded, Result, maps
from tbuda_lab.core.frontend.aten.host import host_call
from tbuda_lab.core.graph import NodeKind, Payload, Shape
from tbuda_lab.core.ops import (
    Add,
    BroadcastTo,
    Concatenate,
    Embedding,
    EmbeddingBag,
    Equal,
    GatherRows,
    Index,
    Matmul,
    Multiply,
    Pad,
    PixelShuffle,
    ReduceMax,
    ReduceSum,
    Repeat,
    Stack,
    Subtract,
    Transpose,
)


@maps(
    "aten.view.default",
    "aten._unsafe_view",
    "aten.reshape",
    "aten.flatten",
    "aten.squeeze",
    "aten.unsqueeze",
    "aten.unflatten",
    "aten.view_as",
    "aten.reshape_as",
    "aten.atleast_1d",
    "aten.ravel",
)
def reshape(c: Call) -> str:
    return c.reshape(c.x(), c.out_shape)


def swapped(c: Call, x: str, dim0: int, dim1: int) -> str:
    """Transpose with dims counted from the back; `x` itself when both are the same dim."""
    rank = len(c.shape(x))
    i, j = sorted((dim0 % rank - rank, dim1 % rank - rank))
    return x if i == j else c.op(Transpose(i, j), x)


def permuted(c: Call, x: str, order: Sequence[int]) -> str:
    """A permutation as the fewest swaps of two dims: dim i of the result is dim order[i] of x."""
    rank = len(order)
    at = [d % rank for d in range(rank)]
    for i, wanted in enumerate(d % rank for d in order):
        j = at.index(wanted)
        if j != i:
            x = swapped(c, x, i, j)
            at[i], at[j] = at[j], at[i]
    return x


@maps("aten.permute")
def permute(c: Call) -> str:
    return permuted(c, c.x(), c.get("dims"))


@maps("aten.transpose.int", "aten.swapaxes", "aten.swapdims")
def transpose(c: Call) -> str:
    first = c.get("dim0", c.arguments.get("axis0"))
    second = c.get("dim1", c.arguments.get("axis1"))
    return swapped(c, c.x(), first, second)


@maps("aten.movedim", "aten.moveaxis")
def movedim(c: Call) -> str:
    rank = len(c.shape(c.x()))
    as_list = [[d] if isinstance(d, int) else list(d) for d in (c.get("source"), c.get("destination"))]
    source, target = ([d % rank for d in dims] for dims in as_list)
    order = [d for d in range(rank) if d not in source]
    for position, dim in sorted(zip(target, source, strict=True)):
        order.insert(position, dim)
    return permuted(c, c.x(), order)


@maps("aten.t", "aten.numpy_T", "aten.mT", "aten.adjoint")
def turn(c: Call) -> str:
    return c.x() if len(c.shape(c.x())) < 2 else swapped(c, c.x(), -2, -1)


@maps("aten.expand", "aten.expand_as", "aten.broadcast_to")
def expand(c: Call) -> str:
    x = c.x()
    return x if c.shape(x) == c.out_shape else c.op(BroadcastTo(c.out_shape), x)


@maps("aten.repeat", "aten.tile")
def repeat(c: Call) -> str:
    factors = tuple(c.get("repeats", c.arguments.get("dims")))
    x, rank = c.x(), len(c.out_shape)
    factors = (1,) * (rank - len(factors)) + factors
    return x if set(factors) == {1} and rank == len(c.shape(x)) else c.op(Repeat(factors), x)


@maps("aten.repeat_interleave.self_int")
def repeat_interleave(c: Call) -> str:
    x, n = c.x(), c.get("repeats")
    shape = c.shape(x)
    if c.arguments.get("dim") is None:
        shape, dim = (math.prod(shape),), 0
        x = c.reshape(x, shape)
    else:
        dim = c.get("dim") % len(shape)
    split = c.reshape(x, (*shape[: dim + 1], 1, *shape[dim + 1 :]))
    wide = c.op(BroadcastTo((*shape[: dim + 1], n, *shape[dim + 1 :])), split)
    return c.reshape(wide, c.out_shape)


def sliced(c: Call, x: str, dim: int, start: int, stop: int, step: int = 1) -> str:
    """x[start:stop:step] along dim with Python's rules for negative and too large bounds; x itself if all is kept."""
    shape = c.shape(x)
    dim %= len(shape)
    first, last, _ = slice(start, stop, step).indices(shape[dim])
    if last <= first:
        raise CannotMap(
            f"the slice {start}:{stop} of a dim of size {shape[dim]} is empty; empty tensors are not supported"
        )
    if (first, last, step) == (0, shape[dim], 1):
        return x
    return c.op(Index(dim - len(shape), first, last, step), x)


@maps("aten.slice")
def slice_(c: Call) -> str:
    x = c.x()
    dim = c.get("dim", 0)
    return sliced(c, x, dim, c.get("start", 0), c.get("end", c.shape(x)[dim]), c.get("step", 1))


@maps("aten.narrow")
def narrow(c: Call) -> str:
    x, start = c.x(), int(c.get("start"))
    start += c.shape(x)[c.get("dim")] if start < 0 else 0
    return sliced(c, x, c.get("dim"), start, start + c.get("length"))


@maps("aten.select.int")
def select(c: Call) -> str:
    x, dim = c.x(), c.get("dim")
    at = c.get("index") % c.shape(x)[dim]
    return c.reshape(sliced(c, x, dim, at, at + 1), c.out_shape)


@maps(
    "aten.split", "aten.split_with_sizes", "aten.chunk", "aten.unsafe_chunk", "aten.unsafe_split", "aten.tensor_split"
)
def split(c: Call) -> Result:
    x, dim = c.x(), c.get("dim", 0)
    pieces, at = [], 0
    for piece in c.out:
        size = int(piece.shape[dim])
        pieces.append(sliced(c, x, dim, at, at + size))
        at += size
    return tuple(pieces)


@maps("aten.unbind")
def unbind(c: Call) -> Result:
    x, dim = c.x(), c.get("dim", 0)
    return tuple(c.reshape(sliced(c, x, dim, i, i + 1), tuple(piece.shape)) for i, piece in enumerate(c.out))


def joined(c: Call, parts: list[str], axis: int) -> str:
    return parts[0] if len(parts) == 1 else c.op(Concatenate(axis), *parts)


@maps("aten.cat", "aten.concat", "aten.concatenate")
def cat(c: Call) -> str:
    parts = [x for x in c.xs() if math.prod(c.shape(x))]
    return joined(c, parts, c.get("dim", 0) % len(c.out_shape) - len(c.out_shape))


@maps("aten.stack")
def stack(c: Call) -> str:
    return c.op(Stack(c.get("dim", 0) % len(c.out_shape) - len(c.out_shape)), *c.xs())


@maps("aten.roll")
def roll(c: Call) -> str:
    x, shifts, dims = c.x(), c.get("shifts"), c.get("dims", [])
    flat = not dims
    if flat:
        x, dims = c.reshape(x, (math.prod(c.shape(x)),)), [0]
    for shift, dim in zip(shifts, dims, strict=True):
        size = c.shape(x)[dim]
        if shift % size:
            cut = size - shift % size
            x = joined(c, [sliced(c, x, dim, cut, size), sliced(c, x, dim, 0, cut)], dim)
    return c.reshape(x, c.out_shape)


@maps("aten.flip")
def flip(c: Call) -> str:
    x = c.x()
    for dim in c.get("dims"):
        x = taken(c, x, dim, np.arange(c.shape(x)[dim] - 1, -1, -1))
    return x


@maps(
    "aten.constant_pad_nd",
    "aten.pad",
    "aten.reflection_pad1d",
    "aten.reflection_pad2d",
    "aten.replication_pad1d",
    "aten.replication_pad2d",
)
def pad(c: Call) -> str:
    name = c.target._schema.name
    default = "reflect" if "reflection" in name else "replicate" if "replication" in name else "constant"
    mode = c.get("mode", default)
    if mode not in ("constant", "reflect", "replicate", "circular"):
        raise CannotMap(f"padding mode {mode!r} is not supported; constant, reflect, replicate and circular are")
    flat, x = c.get("pad", c.arguments.get("padding")), c.x()
    rank = len(c.shape(x))
    pairs = [(0, 0)] * (rank - len(flat) // 2) + [(flat[i], flat[i + 1]) for i in range(len(flat) - 2, -1, -2)]
    for dim, (before, after) in enumerate(pairs):
        if before < 0 or after < 0:
            x = sliced(c, x, dim, max(-before, 0), c.shape(x)[dim] - max(-after, 0))
    grown = tuple((max(before, 0), max(after, 0)) for before, after in pairs)
    if all(pair == (0, 0) for pair in grown):
        return x
    if mode == "circular":
        for dim, (before, after) in enumerate(grown):
            size = c.shape(x)[dim]
            ends = [sliced(c, x, dim, size - before, size)] if before else []
            x = joined(c, [*ends, x, *([sliced(c, x, dim, 0, after)] if after else [])], dim) if before or after else x
        return x
    return c.op(Pad(grown, mode, float(c.get("value", 0.0))), x)


@maps("aten.pixel_shuffle")
def pixel_shuffle(c: Call) -> str:
    return c.op(PixelShuffle(c.get("upscale_factor")), c.x())


@maps("aten.pixel_unshuffle")
def pixel_unshuffle(c: Call) -> str:
    x, r = c.x(), c.get("downscale_factor")
    n, channels, h, w = c.shape(x)
    split = c.reshape(x, (n, channels, h // r, r, w // r, r))
    return c.reshape(permuted(c, split, (0, 1, 3, 5, 2, 4)), c.out_shape)


def taken(c: Call, x: str, dim: int, index: np.ndarray) -> str:
    """x[..., index, ...] along dim for a known one-dimensional index: a slice where the index is one, else a gather."""
    shape = c.shape(x)
    dim %= len(shape)
    at = np.where(index < 0, index + shape[dim], index).astype(np.int64)
    if at.size == 0 or at.min() < 0 or at.max() >= shape[dim]:
        raise CannotMap(f"an index outside 0..{shape[dim] - 1}")
    step = int(at[1] - at[0]) if at.size > 1 else 1
    if step > 0 and np.array_equal(at, at[0] + step * np.arange(at.size)):
        return sliced(c, x, dim, int(at[0]), int(at[-1]) + 1, step)
    after = math.prod(shape[dim + 1 :])
    rows = c.reshape(x, (*shape[: dim + 1], after))
    picked = c.op(GatherRows(Payload(at)), rows)
    return c.reshape(picked, (*shape[:dim], at.size, *shape[dim + 1 :]))


def looked_up(c: Call, table: str, indices: str) -> str:
    return c.op(Embedding(), table, indices)


@maps("aten.embedding")
def embedding(c: Call) -> str:
    constant = c.folded("indices")
    table = c.x("weight")
    if constant is None:
        return looked_up(c, table, c.x("indices"))
    return c.reshape(taken(c, table, 0, constant.reshape(-1).numpy()), c.out_shape)


@maps("aten.embedding_bag", "aten._embedding_bag", "aten._embedding_bag_forward_only")
def embedding_bag(c: Call) -> Result:
    offsets = c.folded("offsets")
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
    constant = c.folded("index")
    x, dim = c.x(), c.get("dim")
    if constant is not None:
        return taken(c, x, dim, constant.reshape(-1).numpy())
    return _rows_at(c, x, dim, c.x("index"))


def _rows_of_several(c: Call, x: str, indices: list[str], lead: int) -> str:
    """x at the places that several run-time indices name together: one index into their merged dims."""
    shape = c.shape(x)
    sizes = shape[lead : lead + len(indices)]
    merged = c.reshape(x, (*shape[:lead], math.prod(sizes), *shape[lead + len(indices) :]))
    flat = indices[0]
    for size, index in zip(sizes[1:], indices[1:], strict=True):
        flat = c.op(Add(), c.op(Multiply(), flat, c.constant(torch.tensor(size))), index)
    return c.reshape(_rows_at(c, merged, lead, flat), c.out_shape)


def _computed(c: Call, x: str) -> bool:
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
    if _computed(c, x):
        count = c.shape(x)[dim]
        dim %= len(c.shape(x))
        lead = c.shape(index)
        rest = tuple(n for d, n in enumerate(c.shape(x)) if d != dim)
        order = (dim, *(d for d in range(len(c.shape(x))) if d != dim))
        table = c.reshape(permuted(c, x, order), (count, math.prod(rest)))
        flat = c.reshape(index, (math.prod(lead), 1))
        chosen = c.op(Equal(), flat, c.constant(torch.arange(count).reshape(1, count)))
        rows = c.reshape(c.op(Matmul(), chosen, table), (*lead, *rest))
        k = len(lead)
        return permuted(c, rows, (*range(k, k + dim), *range(k), *range(k + dim, k + len(rest))))
    shape = c.shape(x)
    dim %= len(shape)
    rest = (*shape[:dim], *shape[dim + 1 :])
    order = (dim, *(d for d in range(len(shape)) if d != dim))
    table = c.reshape(permuted(c, x, order), (shape[dim], math.prod(rest)))
    rows = looked_up(c, table, index)
    lead = c.shape(index)
    back = c.reshape(rows, (*lead, *rest))
    k = len(lead)
    return permuted(c, back, (*range(k, k + dim), *range(k), *range(k + dim, k + len(rest))))


@maps("aten.gather")
def gather(c: Call) -> str:
    x, dim = c.x(), c.get("dim")
    shape = c.shape(x)
    dim %= len(shape)
    constant = c.folded("index")
    if math.prod(shape) != shape[dim]:
        if constant is None:
            return _gathered_at_run_time(c, x, dim)
        places = list(torch.meshgrid(*(torch.arange(n) for n in constant.shape), indexing="ij"))
        places[dim] = constant
        flat_index = np.ravel_multi_index([p.reshape(-1).numpy() for p in places], shape)
        return c.reshape(taken(c, c.reshape(x, (math.prod(shape), 1)), 0, flat_index), c.out_shape)
    flat = c.reshape(x, (shape[dim], 1))
    if constant is not None:
        return c.reshape(taken(c, flat, 0, constant.reshape(-1).numpy()), c.out_shape)
    if _computed(c, x):
        return _gathered_at_run_time(c, x, dim)
    return c.reshape(looked_up(c, flat, c.x("index")), c.out_shape)


def _gathered_at_run_time(c: Call, x: str, dim: int) -> str:
    """gather along dim by indices that an input gives: the sum over dim of x where the position is the index."""
    shape, index = c.shape(x), c.x("index")
    wanted = c.shape(index)
    if any(w != n for d, (w, n) in enumerate(zip(wanted, shape, strict=True)) if d != dim):
        raise CannotMap(f"gather of {shape} by run-time indices of shape {wanted}: only dim {dim} may differ")
    numbers = c.constant(torch.arange(shape[dim]).to(torch.float32))
    spread = c.reshape(index, (*wanted[: dim + 1], 1, *wanted[dim + 1 :]))
    column = c.reshape(numbers, (shape[dim], *(1,) * (len(shape) - dim - 1)))
    chosen = c.op(Multiply(), c.op(Equal(), spread, column), c.reshape(x, (*shape[:dim], 1, *shape[dim:])))
    return c.reshape(c.op(ReduceSum(dim + 1 - len(shape) - 1), chosen), c.out_shape)


@maps("aten.scatter_add")
def scatter_add(c: Call) -> Result:
    """x, and at each position along dim the sum of the source's elements whose index it is.

    Every index is compared with every position; that times the source is summed over the source. Integers, and sources
    larger than their indices, are the host's.
    """
    x, index, source = c.x(), c.x("index"), c.x("src")
    shape, wanted, given = c.shape(x), c.shape(index), c.shape(source)
    dim = c.get("dim") % len(shape)
    sizes = [pair for d, pair in enumerate(zip(wanted, shape, strict=True)) if d != dim]
    if wanted != given or any(w != n for w, n in sizes) or not c.out.is_floating_point():
        return host_call(c)
    numbers = c.constant(torch.arange(shape[dim]).to(torch.float32))
    column = c.reshape(numbers, (shape[dim], *(1,) * (len(shape) - dim - 1)))
    apart = (*wanted[: dim + 1], 1, *wanted[dim + 1 :])
    meant = c.op(Equal(), c.reshape(index, apart), column)
    parts = c.op(Multiply(), meant, c.reshape(source, apart))
    return c.op(Add(), x, c.reshape(c.op(ReduceSum(dim - len(shape) - 1), parts), c.out_shape))


@maps("aten.diagonal", "aten.diagonal_copy")
def diagonal(c: Call) -> str:
    x = c.x()
    shape = c.shape(x)
    rank, offset = len(shape), c.get("offset", 0)
    first, second = c.get("dim1", 0) % rank, c.get("dim2", 1) % rank
    rest = [d for d in range(rank) if d not in (first, second)]
    matrix = permuted(c, x, (*rest, first, second))
    count = c.out_shape[-1]
    rows, columns = np.arange(count) + max(0, -offset), np.arange(count) + max(0, offset)
    flat = c.reshape(matrix, (*(shape[d] for d in rest), shape[first] * shape[second]))
    return c.reshape(taken(c, flat, -1, rows * shape[second] + columns), c.out_shape)


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
    return c.reshape(taken(c, c.reshape(x, (count, 1)), 0, at.reshape(-1)), c.out_shape)


@maps("aten.unfold")
def unfold(c: Call) -> str:
    x, dim, size, step = c.x(), c.get("dimension"), c.get("size"), c.get("step")
    shape = c.shape(x)
    dim %= len(shape)
    count = (shape[dim] - size) // step + 1
    at = (np.arange(count)[:, None] * step + np.arange(size)).reshape(-1)
    rows = taken(c, x, dim, at)
    split = c.reshape(rows, (*shape[:dim], count, size, *shape[dim + 1 :]))
    rank = len(shape) + 1
    return permuted(c, split, [d for d in range(rank) if d != dim + 1] + [dim + 1])


@maps("aten.index_copy", "aten.index_fill", "aten.index_add")
def index_copy(c: Call) -> str:
    """Slices written at known places, the last of several to one place stays; at places an input gives by a product."""
    x, dim = c.x(), c.get("dim")
    shape = c.shape(x)
    dim %= len(shape)
    name = c.target._schema.name
    constant = c.folded("index")
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
        return taken(c, joined(c, [x, source], dim), dim, at)
    numbers = c.constant(torch.arange(count).to(torch.float32).reshape(count, 1))
    spread = c.reshape(c.x("index"), (1, places[0]))
    written = c.op(Equal(), numbers, spread)  # (count, places): 1 where a place is written
    rest = math.prod(shape[dim + 1 :])
    lead = math.prod(shape[:dim])
    change = c.reshape(source, (lead, places[0], rest))
    flat = c.reshape(x, (lead, count, rest))
    update = c.op(Matmul(), written, change)
    if name != "aten::index_add":
        unwritten = c.op(Subtract(), c.constant(1.0), c.op(ReduceMax(-1), written))
        flat = c.op(Multiply(), flat, unwritten)
    return c.reshape(c.op(Add(), flat, update), shape)


@maps("aten.index", "aten._unsafe_index")
def index(c: Call) -> str:
    x, indices = c.x(), list(c.arguments["indices"])
    dims = [d for d, i in enumerate(indices) if i is not None]
    if dims != list(range(dims[0], dims[-1] + 1)):
        raise CannotMap("indexing by several tensors works on neighbouring dims only")
    shape, lead = c.shape(x), dims[0]
    if len(dims) == 1 and not isinstance(indices[lead], Folded):
        moved = _rows_at(c, x, lead, c.node_of(indices[lead]))
        return c.reshape(moved, c.out_shape)
    chosen = [indices[d] for d in dims]
    if not all(isinstance(i, Folded) for i in chosen):
        return _rows_of_several(c, x, [c.node_of(i) for i in chosen], lead)
    if any(i.tensor.dtype == torch.bool for i in chosen):
        masks = [i.tensor for i in chosen]
        if len(masks) != 1 or masks[0].dim() != 1:
            raise CannotMap("a truth-value index must be a single vector known at trace time")
        return taken(c, x, lead, masks[0].nonzero().reshape(-1).numpy())
    sizes = [shape[d] for d in dims]
    parts = torch.broadcast_tensors(  # type: ignore[no-untyped-call]
        *(torch.where(i.tensor < 0, i.tensor + n, i.tensor) for i, n in zip(chosen, sizes, strict=True))
    )
    flat = np.ravel_multi_index([p.reshape(-1).numpy() for p in parts], sizes)
    merged: Shape = (*shape[:lead], math.prod(sizes), *shape[dims[-1] + 1 :])
    return c.reshape(taken(c, c.reshape(x, merged), lead, flat), c.out_shape)


@maps("aten.slice_scatter", "aten.select_scatter")
def slice_scatter(c: Call) -> str:
    """self with a slice replaced by src: the pieces around it, joined."""
    x, src, dim = c.x(), c.x("src"), c.get("dim", 0)
    shape = c.shape(x)
    dim %= len(shape)
    if c.target._schema.name == "aten::select_scatter":
        start = c.get("index") % shape[dim]
        stop, step = start + 1, 1
        src = c.reshape(src, (*shape[:dim], 1, *shape[dim + 1 :]))
    else:
        start, stop, step = slice(c.get("start", 0), c.get("end", shape[dim]), c.get("step", 1)).indices(shape[dim])
    if step != 1:
        raise CannotMap("writing to a strided slice; write to a contiguous one")
    parts = [sliced(c, x, dim, 0, start)] if start else []
    parts.append(src)
    if stop < shape[dim]:
        parts.append(sliced(c, x, dim, stop, shape[dim]))
    return joined(c, parts, dim)


@maps("aten.copy")
def copy(c: Call) -> str:
    src = c.x("src")
    return src if c.shape(src) == c.out_shape else c.op(BroadcastTo(c.out_shape), src)


@maps("aten.tril", "aten.triu")
def triangle(c: Call) -> str:
    function = torch.tril if c.target._schema.name == "aten::tril" else torch.triu
    return c.op(Multiply(), c.x(), c.constant(function(torch.ones(c.out_shape[-2:]), c.get("diagonal", 0))))
