"""Lowering of matmul and of reductions: sums and averages are matmuls with constants, the maximum is `reduce`."""

from __future__ import annotations

import numpy as np

from tbuda_lab.core import ops
from tbuda_lab.core.graph import TILE, NodeKind, Shape
from tbuda_lab.core.graph.tm import broadcast
from tbuda_lab.core.lowering.context import LOWERERS, SHARES, SUMS, LoweringContext, lowers
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwReduce
from tbuda_lab.core.lowering.split import MatmulPair
from tbuda_lab.core.lowering.values import TileValue, tiles_of
from tbuda_lab.core.lowering.weights import WeightLayout

LOWEST = float("-inf")
LOWEST_FLOAT16 = -65504.0
LEAST_FLOAT16 = 2.0**-13
"""Weight of a mean that Float16 has with all its bits; smaller ones lose bits, and those below 2^-14 are zero."""


@lowers("matmul")
def matmul(ctx: LoweringContext, op: ops.Matmul, operands: list[TileValue], shape: Shape) -> TileValue:
    """(..., M, K) @ (..., K, N), slices of the shorter one repeated; a third operand is a row that is added (N).
    Padding along K is zeroed in one operand, so that it adds nothing. K = 1 is an outer product, which needs no
    matmul."""
    a, b = operands[0], operands[1]
    depth = a.zrc[2]
    rows, cols = a.zrc[1], b.zrc[2]
    lead = tuple(shape[:-2])
    full = (*lead, rows, cols)
    a = ctx.expand(a, (*lead, rows, depth), lead_only=True)
    b = ctx.expand(b, (*lead, depth, cols), lead_only=True)
    bias = operands[2] if len(operands) == 3 else None
    if depth == 1:
        product = _outer_product(ctx, a, b, full)
        if bias is not None:
            product = ctx.emit(HwBinary("add"), [product, ctx.expand(bias, full)], full)
        return product
    if not (a.zero_c or b.zero_r):
        a = ctx.mask_padding(a, cols=True)
    a, b = ctx.finite_padding(a, cols=True), ctx.finite_padding(b, rows=True)
    inputs = [a, b]
    zero_r, zero_c = a.zero_r, b.zero_c
    fill_r, fill_c = a.fill_r and rows == 1, b.fill_c and cols == 1
    if bias is not None:
        row = ctx.expand(bias, (*lead, 1, cols), lead_only=True)
        row = ctx.fill(row, rows=True)
        inputs.append(row.through(broadcast("r", tiles_of(rows)), shape=full))
        zero_r, zero_c = False, zero_c and bias.zero_c
        fill_c = fill_c and bias.fill_c
    return ctx.emit(
        HwMatmul(bias=bias is not None), inputs, shape, zero_r=zero_r, zero_c=zero_c, fill_r=fill_r, fill_c=fill_c
    )


def pair_of_matmuls(ctx: LoweringContext, pair: MatmulPair) -> TileValue:
    """Two matmuls and the element-wise ops between them, part by part; the results are added as they come."""
    first, second = ctx.source[pair.first], ctx.source[pair.second]
    size = first.shape[-1] // pair.parts
    shape = (*first.shape[:-1], size)
    total: TileValue | None = None
    x = ctx.operand(first.sources[0])
    if ctx.source[first.sources[0]].kind is NodeKind.INPUT:
        ctx.begin(first)
        x = ctx.read_once(x)
    for part in range(pair.parts):
        cut = slice(part * size, (part + 1) * size)
        ctx.begin(first, part)
        stored = [ctx.weights(s, WeightLayout("columns", 1, cut.start, cut.stop)) for s in first.sources[1:]]
        value = LOWERERS["matmul"](ctx, first.op, [x, *stored], shape)
        for name in pair.between:
            node = ctx.source[name]
            assert node.op is not None
            ctx.begin(node, part)
            value = LOWERERS[node.op.type](ctx, node.op, [value], shape)
        ctx.begin(second, part)
        weights = ctx.weights(second.sources[1], WeightLayout("rows", 1, cut.start, cut.stop))
        bias = [ctx.operand(s) for s in second.sources[2:]] if part == 0 else []
        value = LOWERERS["matmul"](ctx, second.op, [value, weights, *bias], second.shape)
        if total is not None:
            ctx.begin(second, pair.parts - 1 + part)
            value = LOWERERS["add"](ctx, ops.Add(), [total, value], second.shape)
        total = value
    assert total is not None
    return total


def _outer_product(ctx: LoweringContext, a: TileValue, b: TileValue, shape: Shape) -> TileValue:
    """K = 1: a column times a row is a broadcast product (padding along K may hold replicas, so no matmul)."""
    a, b = ctx.expand(a, shape), ctx.expand(b, shape)
    return ctx.emit(HwBinary("multiply"), [a, b], shape, zero_r=a.zero_r or b.zero_r, zero_c=a.zero_c or b.zero_c)


@lowers("reduce_sum", "reduce_avg")
def reduce_sum(
    ctx: LoweringContext, op: ops.ReduceSum | ops.ReduceAvg, operands: list[TileValue], shape: Shape
) -> TileValue:
    """Sums are matmuls: along columns with a column of ones (1 / n for a mean), along rows with a row of them, over
    slices with a picker. What is not the logical size is zero in them, so padding is not
    summed."""
    (x,) = operands
    dim = _negative(op, x)
    count = x.shape[dim]
    weight = 1.0 if op.type == "reduce_sum" else 1.0 / count
    if count == 1:
        return x
    if ctx.df.family != "a" or weight >= LEAST_FLOAT16:
        return _sum_along(ctx, x, dim, shape, weight)
    part = _sum_along(ctx, x, dim, shape, LEAST_FLOAT16)  # 1 / n would be zero
    factor = ctx.expand(ctx.constant(np.full((1, 1), weight / LEAST_FLOAT16, np.float32)), shape)
    return ctx.emit(HwBinary("multiply"), [part, factor], shape, zero_r=part.zero_r, zero_c=part.zero_c)


def _sum_along(ctx: LoweringContext, x: TileValue, dim: int, shape: Shape, weight: float) -> TileValue:
    """The sum along a dim, each number times a weight."""
    z, rows, cols = x.zrc
    lead = (z,) if z > 1 else ()
    given, x = x, ctx.finite_padding(x, rows=dim == -2, cols=dim == -1)
    if dim == -1:
        # Zero rows past the logical width, so that whatever the padding of x holds is not summed.
        ones = np.zeros((tiles_of(cols) * TILE, 1), np.float32)
        ones[:cols] = weight
        right = ctx.expand(_weights(ctx, ones, weight), (*lead, len(ones), 1), lead_only=True)
        total = ctx.emit(HwMatmul(), [x, right], shape, zero_r=x.zero_r, fill_r=x.fill_r, fill_c=True)
        ctx.out[total.node].attrs[SUMS] = "c"
        ctx.padding.reduces(total, given)
        return total
    if dim == -2:
        ones = np.zeros((1, tiles_of(rows) * TILE), np.float32)
        ones[:, :rows] = weight
        left = ctx.expand(_weights(ctx, ones, weight), (*lead, 1, ones.shape[1]), lead_only=True)
        total = ctx.emit(HwMatmul(), [left, x], shape, zero_c=x.zero_c, fill_c=x.fill_c, fill_r=True)
        ctx.out[total.node].attrs[SUMS] = "r"
        ctx.padding.reduces(total, given)
        return total
    if dim == -3:
        return _sum_of_slices(ctx, x, shape, weight)
    raise ctx.fail(
        f"reduction over dim {dim} of {x.shape}", "reduce over one of the last three dims, after a transpose"
    )


def _weights(ctx: LoweringContext, values: np.ndarray, weight: float) -> TileValue:
    """The constant of a sum, or of a mean, whose weights may be rounded together."""
    constant = ctx.constant(values)
    if weight not in (1.0, LEAST_FLOAT16):
        ctx.out[constant.node].attrs[SHARES] = True
    return constant


def _sum_of_slices(ctx: LoweringContext, x: TileValue, shape: Shape, weight: float) -> TileValue:
    """Sums over dim -3, times a weight: a picker with a one for each slice of a row. It reads these rows alone: in a
    product of matrices an infinity would meet the zeros for the others."""
    z, rows, _ = x.zrc
    groups = x.shape[-3]
    source = np.arange(z * rows).reshape(z // groups, groups, rows)
    slices, _, row = np.indices(source.shape)
    total = ctx.pick_rows(x, shape, np.stack([slices, row, source], axis=-1).reshape(-1, 3))
    if weight == 1.0:
        return total
    factor = ctx.expand(ctx.constant(np.full((1, 1), weight, np.float32)), shape)
    facts = {"zero_r": total.zero_r, "zero_c": total.zero_c, "fill_c": total.fill_c}
    return ctx.emit(HwBinary("multiply"), [total, factor], shape, **facts)


@lowers("reduce_max")
def reduce_max(ctx: LoweringContext, op: ops.ReduceMax, operands: list[TileValue], shape: Shape) -> TileValue:
    """`reduce` over one of the last three dims. Padding along it holds the lowest value of the format first."""
    (x,) = operands
    dim = _negative(op, x)
    _, rows, cols = x.zrc
    if x.shape[dim] == 1:
        return x
    if dim == -3:
        return ctx.emit(
            HwReduce("z", z=x.shape[-3]), [x], shape, zero_r=x.zero_r, zero_c=x.zero_c, fill_r=x.fill_r, fill_c=x.fill_c
        )
    if dim not in (-1, -2):
        raise ctx.fail(
            f"maximum over dim {dim} of {x.shape}", "reduce over one of the last three dims, after a transpose"
        )
    size = cols if dim == -1 else rows
    given = x
    if size % TILE:
        x = _lowest_in_padding(ctx, x, dim, size)
    if dim == -1:
        largest = ctx.emit(HwReduce("c"), [x], shape, zero_r=x.zero_r, fill_r=x.fill_r, zero_c=True)
    else:
        largest = ctx.emit(HwReduce("r"), [x], shape, zero_c=x.zero_c, fill_c=x.fill_c, zero_r=True)
    ctx.padding.reduces(largest, given)
    return largest


def _lowest_in_padding(ctx: LoweringContext, x: TileValue, dim: int, size: int) -> TileValue:
    """Put the lowest value of the format into the padding along `dim`, so that it never wins a maximum."""
    x = ctx.mask_padding(x, rows=dim == -2, cols=dim == -1)
    padded = tiles_of(size) * TILE
    lowest = LOWEST_FLOAT16 if ctx.df.family == "a" else LOWEST
    floor = np.where(np.arange(padded) < size, 0.0, lowest).astype(np.float32)
    z, rows, cols = x.zrc
    constant = ctx.constant(floor.reshape((1, padded) if dim == -1 else (padded, 1)))
    stretched = (rows, padded) if dim == -1 else (padded, cols)
    operand = ctx.expand(constant, (*((z,) if z > 1 else ()), *stretched))
    return ctx.emit(HwBinary("add"), [x, operand], x.shape, fill_r=x.fill_r, fill_c=x.fill_c)


def _negative(op: ops.ReduceSum | ops.ReduceAvg | ops.ReduceMax, x: TileValue) -> int:
    dim = int(op.dim)
    return dim if dim < 0 else dim - len(x.shape)
