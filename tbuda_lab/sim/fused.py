"""Fused ops: a list of sub-ops over named buffers, each on whole tensors.

The loop over ublocks of the machine never runs: `dest` is the previous result, an intermediate buffer a variable.
What a sub-op does with its own core's part only (a reduction, a broadcast of an intermediate) is done per part of the
grid.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence

import numpy as np

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.schema import FusedOp, SubOp, Tm
from tbuda_lab.sim import tms
from tbuda_lab.sim.arrays import Array, as_number, misfit, shape_text
from tbuda_lab.sim.context import Kernel, OpContext, relu_of
from tbuda_lab.sim.kernels import eltwise
from tbuda_lab.sim.kernels import matmul as mm
from tbuda_lab.sim.kernels.eltwise import reduce
from tbuda_lab.sim.numerics import Convert, to_integer

Buffers = dict[str, Array]
Step = Callable[[Buffers, Array | None], None]
"""Runs a sub-op; the second argument is an array that its result may be written to."""
_COPIES = ("nop", "datacopy", "buffer")
PIECE = 1 << 17
"""Numbers that go through all sub-ops before the next ones: what they hand on stays in the cache."""


def build_fused(context: OpContext) -> Kernel:
    """All schedules of a fused op, in order."""
    identity = str(context.op.attributes.get("fused_op_id"))
    fused = context.fused_ops.get(identity)
    if fused is None:
        raise context.error(
            "F1", f"there is no fused op {identity!r}", f"one of {', '.join(context.fused_ops) or 'none'}"
        )
    if fused.inputs != len(context.op.inputs):
        raise context.error("F1", f"{len(context.op.inputs)} inputs", f"fused op {identity!r} takes {fused.inputs}")
    subs = [sub for schedule in fused.schedules for sub in schedule]
    steps = [_build_step(context, sub, before) for before, sub in zip([None, *subs], subs, strict=False)]
    by_rows = all(_works_on_rows(sub) for sub in subs)
    height, expected = context.tile_dim[0], context.shape
    numbers, names = math.prod(expected), [f"input{i}" for i in range(fused.inputs)]
    read = [name for sub in subs for name in sub.inputs]
    once = {
        int(name.removeprefix("input"))
        for i, name in enumerate(subs[0].inputs if subs else ())
        if name.startswith("input") and read.count(name) == 1 and not subs[0].tms.get(i)
    }

    def run(args: Sequence[Array], free: int | None) -> Array:
        shape = (max(map(len, args), default=0), *expected)
        if free not in once or args[free].shape != shape or args[free].dtype != np.float32:
            free = None
        rows = _rows(args, shape) if by_rows and shape[0] * numbers > 2 * PIECE else None
        if rows is None:
            return whole(args, free)
        out = np.empty(shape, np.float32) if free is None else args[free]
        flat = out.reshape(1, 1, -1, shape[3]) if free is None else rows[free]
        step = max(1, PIECE // (shape[3] * height)) * height
        for begin in range(0, flat.shape[2], step):
            parts = [x[:, :, begin : begin + step] for x in rows]
            target = flat[:, :, begin : begin + step] if free is None else parts[free]
            value = whole(parts, free, target)
            if value is not target:
                target[...] = value
        return out

    def whole(args: Sequence[Array], free: int | None, target: Array | None = None) -> Array:
        """free: the input that the first sub-op may overwrite; else the last one may write to `target`."""
        buffers: Buffers = {name: as_number(x) for name, x in zip(names, args, strict=True)}
        own, end = (None, target) if free is None else (args[free], None)
        for step in steps:
            step(buffers, own if step is steps[0] and own is not None else end if step is steps[-1] else None)
        if "output" not in buffers:
            raise context.error("F2", "no sub-op writes `output`", "one sub-op of the last schedule must")
        return buffers["output"]

    return run


def hands_on(fused: FusedOp | None) -> bool:
    """Whether a fused op may return one of its inputs as it is."""
    return fused is None or any(sub.type in _COPIES for schedule in fused.schedules for sub in schedule)


def _rows(args: Sequence[Array], shape: tuple[int, ...]) -> list[Array] | None:
    """The rows of all inputs and slices as one slice (1, 1, R, C), without a copy; None where memory has no such view,
    or an input is no float32 tensor of this shape."""
    if any(x.shape != shape or x.dtype != np.float32 for x in args):
        return None
    n, z, rows, columns = shape
    if not all(
        (z == 1 or x.strides[1] == rows * x.strides[2]) and (n == 1 or x.strides[0] == z * rows * x.strides[2])
        for x in args
    ):
        return None
    return [x.reshape(1, 1, n * z * rows, columns) for x in args]


def _works_on_rows(sub: SubOp) -> bool:
    """Whether rows of tiles can go through a sub-op one after another, and no random numbers are drawn for them."""
    tms = [tm for listed in sub.tms.values() for tm in listed or ()]
    return (sub.type in eltwise.BINARY or sub.type in eltwise.UNARY or sub.type in _COPIES) and all(
        tm.name == "tile_broadcast" for tm in tms
    )


def _build_step(context: OpContext, sub: SubOp, before: SubOp | None) -> Step:
    """before: the sub-op that runs before it, whose result may be overwritten if it is `dest`."""
    where = f"op {context.op.name!r}, sub-op {sub.name!r}"
    moves = [_build_tms(context, sub, i, where) for i in range(len(sub.inputs))]
    function = _function(context, sub, where)
    relu = relu_of(sub.attributes)
    pack = _rounding(context, sub)
    fresh = (
        before is not None
        and before.output == "dest"
        and (before.type in eltwise.BINARY or before.type in eltwise.UNARY)
    )
    last = sub.inputs.index("dest") if fresh and sub.inputs.count("dest") == 1 else None
    if last is not None and moves[last] is not None:
        last = None
    dropped = [name for name in ("dest", *(sub.pop or ()), *(sub.pop_last or ())) if not name.startswith("input")]
    reads = list(zip(sub.inputs, moves, strict=True))

    def step(buffers: Buffers, target: Array | None) -> None:
        args = []
        for name, move in reads:
            if name not in buffers:
                raise misfit(
                    where,
                    "F7",
                    f"reads {name!r}, which no earlier sub-op has written",
                    f"there are {', '.join(buffers)}",
                )
            args.append(buffers[name] if move is None else move(buffers[name]))
        try:
            reused = target if last is None or target is not None else args[last]
            if reused is not None and (not reused.flags.writeable or any(x.shape != reused.shape for x in args)):
                reused = None
            out = function(args, reused)
        except ValueError as error:
            shapes = ", ".join(shape_text(x) for x in args)
            raise misfit(where, "F8", f"inputs of shapes (z, R, C) = {shapes} do not fit: {error}") from None
        if relu is not None:
            out = eltwise.relu(out, *relu)
        for name in dropped:
            buffers.pop(name, None)
        buffers[sub.output] = out if pack is None else pack(out)

    return step


def _rounding(context: OpContext, sub: SubOp) -> Convert | None:
    if sub.output.startswith("intermed"):
        return context.numerics.intermediate(context.op)
    return None


def _build_tms(context: OpContext, sub: SubOp, index: int, where: str) -> tms.Move | None:
    """The TMs of a sub-op's input; a broadcast repeats what each core holds."""
    listed = sub.tms.get(index) or []
    if not listed:
        return None
    gr, gc = context.op.grid_size
    own = sub.inputs[index].startswith(("intermed", "dest"))
    moves: list[tms.Move] = []
    for tm in listed:
        if tm.name == "broadcast" and own and (gr, gc) != (1, 1):
            moves.extend(_core_broadcast(str(dim), int(k), gr, gc) for dim, k in tm.args)
        else:
            moves.append(_plain(tm, context, where))

    def run(x: Array) -> Array:
        for move in moves:
            x = move(x)
        return x

    return run


def _plain(tm: Tm, context: OpContext, where: str) -> tms.Move:
    move = tms.compile_tms([tm], context.tile_dim, where)
    assert move is not None
    return move


def _core_broadcast(dim: str, k: int, gr: int, gc: int) -> tms.Move:
    def run(x: Array) -> Array:
        n, z, rows, columns = x.shape
        if dim == "r":
            return tms.broadcast(x.reshape(n, z * gr, rows // gr, columns), "r", k).reshape(n, z, rows * k, columns)
        if dim == "c":
            parts = x.reshape(n, z, rows, gc, 1, columns // gc)
            return np.broadcast_to(parts, (n, z, rows, gc, k, columns // gc)).reshape(n, z, rows, columns * k)
        return tms.broadcast(x, "z", k)

    return run


def _function(context: OpContext, sub: SubOp, where: str) -> Callable[[list[Array], Array | None], Array]:
    """What a sub-op calculates of its inputs; the second argument may be overwritten with the result."""
    kind, attributes = sub.type, sub.attributes
    gr, gc = context.op.grid_size
    tile = context.tile_dim
    if kind in _COPIES:
        return lambda args, out: args[0]
    if kind in eltwise.BINARY:
        binary = eltwise.BINARY[kind]

        def pair(args: list[Array], out: Array | None) -> Array:
            if args[0].shape[1:] != args[1].shape[1:]:
                raise ValueError("both must have one shape")
            return binary(args[0], args[1], out if out is not None and out.dtype == args[1].dtype else None)

        return pair
    if kind in ("quantization", "requantization", "dequantization"):
        zero_point = float(sub.zero_point or attributes.get("zero_point", 0.0))
        convert = eltwise.dequantization if kind == "dequantization" else eltwise.quantization
        integer = kind != "dequantization"

        def quantise(args: list[Array], out: Array | None) -> Array:
            result = convert(args[0], args[1], zero_point)
            return to_integer(result, DataFormat.Int8) if integer else result

        return quantise
    if kind == "matmul":
        passes = max(1, int(attributes.get("m_k", 1)))
        spill = context.numerics.spill(context.op) if passes > 1 else None
        return lambda args, out: _matmul(args[0], args[1], gc, passes, spill)
    if kind == "reduce":
        dim, func = str(attributes.get("dim")), str(attributes.get("type", "max"))
        groups = (gr, gc)
        return lambda args, out: reduce(args[0], dim, func, tile, groups, 1)
    return _unary(context, sub, where)


def _unary(context: OpContext, sub: SubOp, where: str) -> Callable[[list[Array], Array | None], Array]:
    rng = context.numerics.generator(f"{context.op.name}/{sub.name}", int(sub.attributes.get("seed", 0)))
    function = eltwise.build_unary(sub.type, sub.attributes, rng)
    if function is None:
        raise misfit(where, "F8", f"unknown type {sub.type!r}")
    region = eltwise.vector_region(sub.attributes.get("vector"))
    if region is None:
        return lambda args, out: function(args[0], out)
    return lambda args, out: eltwise.partial(function, args[0], region, context.tile_dim)


def _matmul(a: Array, b: Array, gc: int, passes: int, spill: Convert | None) -> Array:
    """a @ b; where a's columns are spread over the cores of a row, each core multiplies its own. spill: what the
    running sum goes through between the passes over the inner dimension."""
    if a.shape[3] != b.shape[2] and a.shape[3] == gc * b.shape[2]:
        n, z, rows, inner = a.shape
        left = a.reshape(n, z, rows, gc, inner // gc).transpose(0, 3, 1, 2, 4)
        right = b.reshape(*b.shape[:3], gc, b.shape[3] // gc).transpose(0, 3, 1, 2, 4)
        out: Array
        if spill is None or left.shape[4] % passes:
            out = np.matmul(left, right[:, :, :z])
        else:
            parts = zip(np.split(left, passes, 4), np.split(right[:, :, :z], passes, 3), strict=True)
            first, *others = (np.matmul(x, y) for x, y in parts)
            out = functools.reduce(lambda total, part: spill(total) + part, others, first)
        return out.transpose(0, 2, 3, 1, 4).reshape(-1, z, rows, b.shape[3])
    if b.shape[1] < a.shape[1]:
        raise ValueError("input 1 has fewer slices")
    if spill is None or a.shape[3] % passes:
        return mm.matmul(a, b)
    return mm.blocked_matmul(a, b, passes, spill)
