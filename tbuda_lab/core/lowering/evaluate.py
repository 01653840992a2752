"""Evaluates a lowered graph in torch, op by op, on padded tensors: what each op of a netlist should give.

Written from the meaning of the hardware ops in `hw_ops` and of the TMs in `graph.tm`; formats, grids and blocks play no
part, and nothing of the executor is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import torch

from tbuda_lab.core.graph import TILE, TM, Graph, GraphError, Node, NodeKind
from tbuda_lab.core.graph.phases import evaluation_order, handed_over
from tbuda_lab.core.lowering.hw_ops import (
    HwBinary,
    HwDepthwise,
    HwFused,
    HwMatmul,
    HwOp,
    HwReduce,
    HwSparseMatmul,
    HwSplice,
    HwUnary,
)

Tensor = torch.Tensor

_UNARY: dict[str, Callable[[Tensor], Tensor]] = {
    "nop": lambda x: x,
    "exp": torch.exp,
    "log": torch.log,
    "sqrt": torch.sqrt,
    "reciprocal": torch.reciprocal,
    "sigmoid": torch.sigmoid,
    "tanh": torch.tanh,
    "gelu": torch.nn.functional.gelu,
    "abs": torch.abs,
    "sine": torch.sin,
    "cosine": torch.cos,
}


def times(x: Tensor, y: Tensor) -> Tensor:
    """x * y as a core has it: zero times anything, infinity and NaN included, is zero (docs/numbers.md)."""
    product = torch.multiply(x, y)
    if not product.is_floating_point() or not product.isnan().any():
        return product
    return torch.where((x == 0) | (y == 0), 0.0, product)


_BINARY: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add": torch.add,
    "subtract": torch.subtract,
    "multiply": times,
    "maximum": torch.maximum,
}


def evaluate_ops(graph: Graph, feeds: Mapping[str, Tensor]) -> Iterator[tuple[Node, Tensor]]:
    """(op, its value (z, R, C) padded to tiles) of every op that can be evaluated, producers first.

    feeds: inputs by name, (z, R, C), padded or not; parameters and constants come from the graph, or from `feeds` where
    they have no value there. An op that is not known here is left out, with all that depends on it; padding holds
    whatever the ops leave in it. Raises `GraphError` for an input that is missing.
    """
    values: dict[str, Tensor] = {}
    order, handed = evaluation_order(graph), handed_over(graph)
    last = {source: node.name for node in order for source in node.sources}
    last.update((source, name) for name, source in handed.items())
    for node in order:
        if node.kind is NodeKind.OP:
            operands = [values[edge.source] for edge in node.inputs if edge.source in values]
            if len(operands) < len(node.inputs):
                continue
            with torch.no_grad():  # left before the caller goes on: the mode is the thread's, not the generator's
                value = _run(node, [apply(edge.tms, x) for edge, x in zip(node.inputs, operands, strict=True)])
            if value is None:
                continue
            values[node.name] = value
            yield node, value
        elif node.name in handed and handed[node.name] in values:
            values[node.name] = values[handed[node.name]]
        elif node.kind is not NodeKind.OUTPUT:
            with torch.no_grad():
                values[node.name] = leaf_value(node, feeds)
        for source in {*node.sources, handed.get(node.name, node.name)}:
            if last.get(source) == node.name:
                values.pop(source, None)


def op_value(node: Node, operands: Sequence[Tensor]) -> Tensor | None:
    """What an op should give of its producers' values, (z, R, C) padded to tiles, before the TMs of its edges; None for
    an op that is not known here."""
    with torch.no_grad():
        return _run(node, [apply(edge.tms, x) for edge, x in zip(node.inputs, operands, strict=True)])


def leaf_value(node: Node, feeds: Mapping[str, Tensor]) -> Tensor:
    """An input, parameter or constant, (z, R, C) padded to tiles; see `evaluate_ops`."""
    if node.name in feeds:
        value = feeds[node.name]
    elif node.value is not None:
        value = torch.from_numpy(node.value if node.value.flags.writeable else node.value.copy())  # torch warns else
    else:
        raise GraphError(f"{node.kind.value} {node.name!r} has no value; given were {sorted(feeds)}")
    value = plain(value)
    return pad_to_tiles(value.reshape(node.shape[1:]) if value.numel() == _size(node) else value)


def plain(value: Tensor) -> Tensor:
    """A value as the device's arithmetic has it: 32-bit integers, or float32 of anything else."""
    return value if value.dtype is torch.int32 else value.float()


def _size(node: Node) -> int:
    size = 1
    for length in node.shape:
        size *= length
    return size


def pad_to_tiles(value: Tensor) -> Tensor:
    """(z, R, C) with R and C filled up to whole tiles: zeros, but a size of 1 is repeated through its tile."""
    z, rows, cols = value.shape
    if rows > 1 and cols > 1 and not rows % TILE and not cols % TILE:
        return value
    out = value.new_zeros((z, -(-rows // TILE) * TILE, -(-cols // TILE) * TILE))
    out[:, :rows, :cols] = value
    if rows == 1:
        out[:, :, :cols] = value
    if cols == 1:
        out[:] = out[:, :, :1].clone()
    return out


def apply(tms: tuple[TM, ...], x: Tensor) -> Tensor:
    """A tensor (z, R, C) through TMs."""
    for tm in tms:
        z, rows, cols = x.shape
        n = tm.args[0] if tm.args and isinstance(tm.args[0], int) else 1
        if tm.name == "transpose":
            x = x.transpose(1, 2)
        elif tm.name == "broadcast":
            factor = int(tm.args[1])
            x = x.repeat(*(factor if dim == tm.args[0] else 1 for dim in "zrc"))
        elif tm.name == "hslice":
            x = x.reshape(z, rows, n, cols // n).movedim(2, 1).reshape(z * n, rows, cols // n)
        elif tm.name == "hstack":
            x = x.reshape(z // n, n, rows, cols).movedim(1, 2).reshape(z // n, rows, n * cols)
        elif tm.name == "vslice":
            x = x.reshape(z * n, rows // n, cols)
        elif tm.name == "vstack":
            x = x.reshape(z // n, n * rows, cols)
        elif tm.name == "pad":
            below, right = int(tm.args[0]) * TILE, int(tm.args[1]) * TILE
            x = torch.nn.functional.pad(x, (0, right, 0, below), value=float(tm.args[2]) if len(tm.args) > 2 else 0.0)
        elif tm.name == "unpad":
            x = x[:, : rows - int(tm.args[0]) * TILE, : cols - int(tm.args[1]) * TILE]
        else:
            raise GraphError(f"TM {tm} is not known on an edge")
    return x


def _run(node: Node, x: list[Tensor]) -> Tensor | None:
    """The result of one op; None for an op that is not known here."""
    op = node.op
    y: Tensor | None = None
    if isinstance(op, HwUnary):
        y = _unary(op.fn, x[0], op.slope, op.exp)
    elif isinstance(op, HwBinary) and op.fn in _BINARY:
        y = _BINARY[op.fn](x[0], x[1])
    elif isinstance(op, HwMatmul):
        y = _matmul(op, x)
    elif isinstance(op, HwSparseMatmul):
        y = _pick_rows(op, x[0], node)
    elif isinstance(op, HwDepthwise):
        y = _depthwise(op, x)
    elif isinstance(op, HwReduce):
        y = _reduce(op, x[0])
    elif isinstance(op, HwSplice):
        y = _splice(op, x)
    elif isinstance(op, HwFused):
        y = _fused_op(op, x)
    return y if y is None or not isinstance(op, HwOp) else packed(op, y)


def packed(op: HwOp, y: Tensor) -> Tensor:
    """A result as the packer leaves it: through its relu, where the op has one."""
    if op.relu is None:
        return y
    threshold = op.relu.threshold
    if op.relu.mode == "min":
        if threshold == 0:
            return torch.relu(y)
        return torch.where(y >= threshold, y, torch.zeros_like(y))
    return y.clamp(0.0, threshold)


def _unary(fn: str, x: Tensor, slope: float, exponent: int) -> Tensor | None:
    if fn == "lrelu":
        return torch.nn.functional.leaky_relu(x, slope)
    if fn == "power":
        return x**exponent
    return _UNARY[fn](x) if fn in _UNARY else None


def _matmul(op: HwMatmul, x: list[Tensor]) -> Tensor | None:
    y = x[0] @ x[1]
    if op.accumulate:
        y = y.reshape(-1, op.z, *y.shape[1:]).sum(1)
    if op.bias:
        # the first row of each tile row of the bias stands for all of its rows
        rows = x[2].reshape(len(x[2]), -1, TILE, x[2].shape[2])[:, :, :1].expand(-1, -1, TILE, -1).flatten(1, 2)
        y = y + rows
    return _unary(op.sfpu_op, y, 0.0, 0) if op.sfpu_op else y


def _pick_rows(op: HwSparseMatmul, x: Tensor, node: Node) -> Tensor:
    _, z, rows, _ = node.shape
    y = x.new_zeros((z, -(-rows // TILE) * TILE, x.shape[2]))
    slice_, row, source = torch.from_numpy(op.picker.array.copy()).long().unbind(1)
    return y.index_put((slice_, row), x.flatten(0, 1)[source], accumulate=True)


def _depthwise(op: HwDepthwise, x: list[Tensor]) -> Tensor:
    # per tile column: (tiles, R, 32) @ (tiles, 32, 32), summed over the kernel's positions
    cols = x[1].shape[2]
    a = x[0][0].reshape(-1, op.kernel, cols // TILE, TILE)
    b = x[1][0].reshape(op.kernel, TILE, cols // TILE, TILE)
    y = torch.einsum("rktc,kctd->rtd", a, b).flatten(1)[None]
    return y + x[2] if op.bias else y


def _reduce(op: HwReduce, x: Tensor) -> Tensor:
    if op.dim == "z":
        return x.reshape(-1, op.z, *x.shape[1:]).amax(1)
    if op.dim == "c":
        y = x.new_zeros((x.shape[0], x.shape[1], TILE))
        y[:, :, 0] = x.amax(2)
    else:
        y = x.new_zeros((x.shape[0], TILE, x.shape[2]))
        y[:, 0] = x.amax(1)
    return y


def _splice(op: HwSplice, x: list[Tensor]) -> Tensor:
    axis, unit = {"z": (0, 1), "r": (1, TILE), "c": (2, TILE)}[op.axis]
    begin = [0] * len(x)
    pieces = []
    while any(b < part.shape[axis] // unit for b, part in zip(begin, x, strict=True)):
        for i, (index, length, stride) in enumerate(op.ranges):
            first = begin[i] + index
            pieces.append(x[i].narrow(axis, first * unit, length * unit))
            begin[i] = first + stride
    return torch.cat(pieces, axis)


def _fused_op(op: HwFused, x: list[Tensor]) -> Tensor | None:
    output: list[Tensor] = []
    spread = dict(op.spread)
    for k, (fn, operands, slope, exponent) in enumerate(op.steps):
        args = [x[n] if n >= 0 else output[~n] for n in operands]
        if k in spread:
            args[1] = _fill_tiles(args[1], spread[k])
        if k in op.sums:
            output.append(args[0] @ args[1])
            continue
        if op.dim and k not in op.narrow:  # results of one tile, at full length
            whole = (TM("broadcast", (op.dim, op.length)),)
            args = [apply(whole, a) if n < 0 and ~n in op.narrow else a for a, n in zip(args, operands, strict=True)]
        value = _BINARY[fn](args[0], args[1]) if fn in _BINARY else _unary(fn, args[0], slope, exponent)
        if value is None:
            return None
        output.append(value)
    return output[-1]


def _fill_tiles(x: Tensor, dim: str) -> Tensor:
    """Row 0 of every tile in all its rows ("r"), or column 0 in all its columns ("c")."""
    z, rows, cols = x.shape
    tiles = x.reshape(z, rows // TILE, TILE, cols // TILE, TILE)
    keep = tiles[:, :, :1] if dim == "r" else tiles[..., :1]
    return keep.expand(tiles.shape).reshape(x.shape)
