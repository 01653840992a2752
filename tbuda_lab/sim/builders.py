"""From an op of the netlist to a kernel: one small builder per op type, in one table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.op_spec import ARITY
from tbuda_lab.core.netlist.schema import FusedOp, NetOp
from tbuda_lab.sim.arrays import Array, as_number, repeat_to, repeated_column, repeated_row, rows_to_words, shape_text
from tbuda_lab.sim.context import GradientOutput, Kernel, OpContext, relu_of
from tbuda_lab.sim.fused import build_fused
from tbuda_lab.sim.kernels import eltwise, matmul
from tbuda_lab.sim.kernels import matmul as mm
from tbuda_lab.sim.kernels.eltwise import reduce, topk
from tbuda_lab.sim.numerics import Convert
from tbuda_lab.sim.sparse import DepthwiseRows, PickedRows, as_array, build_sparse, same_memory
from tbuda_lab.sim.splice import build_splice
from tbuda_lab.sim.tms import hstack

Builder = Callable[[OpContext], Kernel]

MOVES = frozenset(("nop", "datacopy", "ethernet_datacopy", "buffer", "tilizer", "drainer"))
"""Ops that change no value."""

KEEPS_INTEGERS = MOVES | {"splice", "embedding", "topk"}
"""Ops that take integer and raw tensors as they are."""


_LARGE = 1 << 12
"""Numbers of a slice of equal rows from which one row is worked on in less time than all."""


def _kernel(context: OpContext) -> Kernel:
    """The kernel alone, of an op that has so many inputs as its type takes."""
    op = context.op
    builder = BUILDERS.get(op.type)
    if builder is None:
        raise context.error("O1", "unknown op type", f"one of {', '.join(sorted(BUILDERS))}")
    least, most = ARITY.get(op.type, (1, None))
    if len(op.inputs) < least or (most is not None and len(op.inputs) > most):
        raise context.error(
            "O4",
            f"{len(op.inputs)} inputs",
            f"it takes {least}" + ("" if most == least else f" to {most}" if most else " or more"),
        )
    try:
        return builder(context)
    except (TypeError, ValueError, KeyError) as error:
        raise context.error("O1", f"its attributes cannot be read: {error!r}") from None


def build(context: OpContext, history: GradientOutput | None = None) -> Kernel:
    """The kernel of an op, relu and output rounding included. With a `history`, each result is added to the last.

    Raises `NetlistError` for an unknown type or missing attributes. The kernel raises it for inputs whose shapes do
    not fit, and when the result has not the op's shape.
    """
    op = context.op
    kernel = _kernel(context)
    moves_only = op.type in MOVES
    relu = relu_of(op.attributes) if op.type != "fused_op" and not _relu_in_epilogue(op) else None
    pack = context.numerics.pack(
        op, moves_only=moves_only and relu is None, source_df=context.source_dfs[0] if context.source_dfs else None
    )
    expected = context.shape
    as_it_is = history is None and relu is None and pack is None
    integer_out = op.out_df.is_integer or op.out_df.is_raw
    by_element = _works_by_element(op, context.fused_ops)
    by_row = by_element and expected[1] * expected[2] >= _LARGE

    def run(args: Sequence[Array], free: int | None) -> Array:
        if free is not None and not args[free].flags.writeable:
            free = None
        try:
            if by_element and args[0].strides[3] == 0 and all(map(repeated_column, args)):
                columns = args[0].shape[3]
                out = kernel([x[..., :1] for x in args], None)
                out = repeat_to(out, (*out.shape[:3], columns))
            elif by_row and args[0].strides[2] == 0 and all(map(repeated_row, args)):
                rows = args[0].shape[2]
                out = kernel([x[:, :, :1] for x in args], None)
                out = repeat_to(out, (*out.shape[:2], rows, out.shape[3]))
            else:
                out = kernel(args, free)
        except MemoryError:
            raise context.error(
                "memory", f"a tensor (z, R, C) = {shape_text(expected)} does not fit the host's memory"
            ) from None
        except (ValueError, IndexError, ZeroDivisionError, AssertionError) as error:
            shapes = ", ".join(shape_text(x) for x in args)
            raise context.error("G8", f"inputs of shapes (z, R, C) = {shapes} do not fit: {error}") from None
        if out.shape[1:] != expected:
            raise context.error(
                "shape",
                f"its inputs make a tensor (z, R, C) = {shape_text(out)}",
                f"t, mblock, ublock and grid_size say {shape_text(expected)}",
            )
        if as_it_is and (integer_out or out.dtype != np.float64):
            return out
        out = as_array(out)
        if not as_it_is and (repeated_column(out) or repeated_row(out)):
            out = np.ascontiguousarray(out)
        if history is not None and history.last is not None:
            out = out + history.last
        if relu is not None:
            owned = not any(out is x or np.shares_memory(out, x) for x in args) if moves_only else True
            out = eltwise.relu(out, *relu, out=out if owned else None)
        if pack is not None:
            out = pack(out)
        if out.dtype == np.float64 and not integer_out:
            out = out.astype(np.float32)
        if history is not None:
            history.last = out
        return out

    return run


def _move(context: OpContext) -> Kernel:
    shape = context.shape
    from_rows = context.op.type == "tilizer"

    def run(args: Sequence[Array], free: int | None) -> Array:
        x = args[0]
        if from_rows and x.shape[1:] != shape and x.shape[3] == shape[2] and x[0].size == np.prod(shape):
            return x.reshape(-1, *shape)  # flat rows, cut into slices
        return x

    return run


def _binary(context: OpContext) -> Kernel:
    function = eltwise.BINARY[context.op.type]
    missed = context.numerics.missing_products(context.op)

    def run(args: Sequence[Array], free: int | None) -> Array:
        x, y = args
        if x.shape[1:] != y.shape[1:]:
            context.expect_same(args)
        if missed is not None:
            product = function(x, y, None)
            product -= missed[0](x) * missed[1](y)
            return product
        if free is not None and args[free].shape[0] == max(x.shape[0], y.shape[0]) and x.dtype == y.dtype:
            return function(x, y, args[free])
        return function(x, y, None)

    return run


def _unary(context: OpContext) -> Kernel:
    op = context.op
    rng = context.numerics.generator(op.name, context.whole("seed", 0)) if op.type == "dropout" else None
    function = eltwise.build_unary(op.type, op.attributes, rng)
    assert function is not None
    region = eltwise.vector_region(op.attributes.get("vector"))
    tile_dim = context.tile_dim

    def run(args: Sequence[Array], free: int | None) -> Array:
        x = args[0]
        if region is None:
            return function(x, x if free == 0 else None)
        return eltwise.partial(function, x, region, tile_dim)

    return run


def _quantization(context: OpContext) -> Kernel:
    zero_point = context.number("zero_point", 0.0)
    function = eltwise.dequantization if context.op.type == "dequantization" else eltwise.quantization

    def run(args: Sequence[Array], free: int | None) -> Array:
        context.expect_same(args)
        return function(as_number(args[0]), as_number(args[1]), zero_point)

    return run


def _matmul(context: OpContext) -> Kernel:
    if context.flag("identity"):
        return _sparse(context)
    op = context.op
    m_k, u_kt = context.whole("m_k"), context.whole("u_kt")
    inner = m_k * u_kt * context.input_tiles[0][1]
    groups = context.whole("z", 1) if context.flag("accumulate") else 1
    spill = context.numerics.spill(op) if m_k > 1 or groups > 1 else None
    finish = _epilogue(context)
    alone = (
        spill is None
        and groups == 1
        and len(op.inputs) == 2
        and _sfpu(context) is None
        and (relu_of(op.attributes) is None)
    )
    by_one_row = (
        spill is None
        and groups == 1
        and context.shape[1] == context.tile_dim[0]
        and not (context.flag("requant") or context.flag("dequant"))
    )
    packed, of_one_row = mm.PackedOperand(), mm.RowProduct()
    kept: list[Any] = [None, 0, None]  # the second operand that came last, for how many slices, its slices side by side
    twice = (
        1 if context.numerics.missing_products(op) is None else 2
    )  # what three passes miss stands beside what they see

    def refuse_misfits(a: Array, b: Array) -> None:
        if a.shape[3] != twice * inner or b.shape[2] != twice * inner:
            raise context.error(
                "G8",
                f"inner dimensions {a.shape[3] // twice} and {b.shape[2] // twice} elements for "
                f"m_k {m_k} x u_kt {u_kt}",
                f"both must be {inner}",
            )
        if b.shape[1] < a.shape[1]:
            raise context.error(
                "G8",
                f"input 1 has {b.shape[1]} slices for {a.shape[1]} of input 0",
                f"broadcast it: {{z: {a.shape[1] // max(b.shape[1], 1)}}}",
            )

    def run(args: Sequence[Array], free: int | None) -> Array:
        a, b = args[0], args[1]
        refuse_misfits(a, b)
        if alone and repeated_column(b):
            column = mm.matmul(a, b[..., :1])
            return repeat_to(column, (*column.shape[:3], b.shape[3]))
        joined, slices = None, a.shape[1]
        if slices > 1 and a.strides[1] == 0:
            if kept[0] is not b or kept[1] != slices:
                kept[:] = b, slices, mm.joined_columns(b, slices)
            joined = kept[2]
        left, right = (a, b) if joined is None else (a[:, :1], joined)
        if by_one_row and repeated_row(a):
            row = of_one_row.product(left, right)
            if row is not None:
                row = row if joined is None else mm.cut_columns(row, slices)
                row = finish(row, [x[:, :, :1] for x in args[2:]], heights=(1, 1))
                return repeat_to(row, (*row.shape[:2], a.shape[2], row.shape[3]))
        if joined is None and spill is None and groups == 1 and len(args) > 2 and mm.by_pieces(a, b):
            a, weights = mm.blas_ready(a), mm.blas_ready(b[0, 0])
            out = np.empty((*a.shape[:3], b.shape[3]), np.float32)

            def fill(inputs: slice, slices: slice, rows: slice) -> None:
                matmul.product(a[inputs, slices, rows][0, 0], weights, out[inputs, slices, rows][0, 0])

            return finish(out, args[2:], fill)
        out = mm.matmul(left, right, packed=packed) if spill is None else mm.blocked_matmul(left, right, m_k, spill)
        if joined is not None:
            out = mm.cut_columns(out, slices)
        if groups > 1:
            out = mm.accumulate(out, groups)
        return finish(out, args[2:])

    return run


def _sparse(context: OpContext) -> Kernel:
    kernel, sfpu = build_sparse(context), _sfpu(context)
    return kernel if sfpu is None else lambda args, free: sfpu(as_array(kernel(args, free)), None)


def _relu_in_epilogue(op: NetOp) -> bool:
    """Whether relu follows a product while its rows are in the processor's cache. A gradient is added up before."""
    return (
        op.type in ("matmul", "depthwise")
        and not op.gradient_op
        and not {"identity", "requant", "dequant"} & set(op.attributes)
    )


Epilogue = Callable[..., Array]


def _epilogue(context: OpContext) -> Epilogue:
    """What follows a product: bias, an sfpu function, relu, requantisation or dequantisation. In pieces of rows; `fill`
    fills the rows of a slice first. heights: of the tiles of the product and of the bias."""
    op = context.op
    relu = relu_of(op.attributes) if _relu_in_epilogue(op) else None
    sfpu = _sfpu(context)
    following: list[eltwise.Unary] = [] if sfpu is None else [sfpu]
    if relu is not None:
        following.append(lambda x, out: eltwise.relu(x, *relu, out=out))
    bias = context.flag("bias")
    requant, dequant = context.flag("requant"), context.flag("dequant")
    zero_point = context.number("zero_point", 0.0)
    integer = op.acc_df is DataFormat.Int32
    expected = bias + (requant or dequant)
    tiles = context.tile_dim[0], context.input_tiles[2][0] if bias else 0

    def piece(out: Array, row: Array | None, heights: tuple[int, int]) -> None:
        if row is not None:
            mm.add_row(out, row, *heights)
        for function in following:
            value = function(out, out)
            if value is not out:
                out[...] = value

    def run(
        out: Array,
        rest: Sequence[Array],
        fill: Callable[[slice, slice, slice], None] | None = None,
        heights: tuple[int, int] = tiles,
    ) -> Array:
        if len(rest) < expected:
            raise context.error("O7", f"{2 + len(rest)} inputs", f"bias and scale need {2 + expected}")
        row = None
        if bias:
            row = rest[0]
            if (
                row.shape[2] // heights[1] != out.shape[2] // heights[0]
                or row.shape[3] != out.shape[3]
                or (row.shape[1] not in (1, out.shape[1]))
            ):
                raise context.error(
                    "G8", f"the bias is (z, R, C) = {shape_text(row)}", f"after its TMs it must be {shape_text(out)}"
                )
            if integer or row.shape[0] > out.shape[0]:
                out = out + row if integer else mm.add_row(out, row, *heights)
                row = None
        if fill is None and out.size <= mm.PIECE:
            piece(out, row, heights)
        elif row is not None or following or fill is not None:
            for inputs, slices, rows in mm.pieces(out, heights[0]):
                if fill is not None:
                    fill(inputs, slices, rows)
                piece(
                    out[inputs, slices, rows],
                    None if row is None else mm.rows_of_bias(row, inputs, slices, rows, *heights),
                    heights,
                )
        if requant:
            out = eltwise.quantization(out, rest[-1], zero_point)
        elif dequant:
            out = eltwise.dequantization(out, rest[-1], zero_point)
        return out

    return run


def _sfpu(context: OpContext) -> eltwise.Unary | None:
    """The function that `sfpu_op` names; the golden model runs gelu only, the machine any that needs no parameter."""
    name = context.text("sfpu_op", "").strip().lower()
    if name in ("", "none", "invalid", *MOVES):
        return None
    if name not in eltwise.UNARY:
        raise context.error(
            "O8", f"sfpu_op {name!r} is not run after a {context.op.type}", f"one of {', '.join(sorted(eltwise.UNARY))}"
        )
    return eltwise.UNARY[name]


def reads_columns_0(op: NetOp, index: int, fused: Mapping[str, FusedOp]) -> bool:
    """Whether a fused op reads nothing of an input but column 0 of its tiles, and nothing but broadcasts stands before
    it: then those columns can be repeated before the broadcasts as well as after."""
    port, own = op.inputs[index], fused.get(str(op.attributes.get("fused_op_id")))
    if (
        op.type != "fused_op"
        or own is None
        or port.pad
        or port.unpad
        or any(tm.name != "broadcast" for tm in (port.tms or ()))
    ):
        return False
    reads = [
        sub.tms.get(i) or ()
        for schedule in own.schedules
        for sub in schedule
        for i, name in enumerate(sub.inputs)
        if name == f"input{index}"
    ]
    return bool(reads) and all(tms and tms[0].name == "tile_broadcast" and tms[0].args[0] == "c" for tms in reads)


def _works_by_element(op: NetOp, fused: Mapping[str, FusedOp]) -> bool:
    """Whether equal columns of all inputs make equal columns of the output, whatever their number."""
    if op.type == "fused_op":
        own = fused.get(str(op.attributes.get("fused_op_id")))
        return own is not None and all(
            (sub.type in eltwise.BINARY or sub.type in eltwise.UNARY or sub.type in MOVES)
            and not any(sub.tms.values())
            and "vector" not in sub.attributes
            for schedule in own.schedules
            for sub in schedule
        )
    return op.type in eltwise.BINARY or (op.type in eltwise.UNARY and "vector" not in op.attributes)


def stack_of_depthwise(op: NetOp) -> bool:
    """Whether the last TM of input 0 puts the `m_k` parts of a depthwise matmul side by side. Its kernel takes them as
    slices as well, so that nothing has to be moved."""
    parts = op.attributes.get("m_k")
    tms = op.inputs[0].tms if op.inputs else None
    last = tms[-1] if tms else None
    several = op.type == "depthwise" and isinstance(parts, int) and parts > 1 and not op.inputs[0].pad
    return several and last is not None and last.name == "hstack" and last.args == (parts,)


def _depthwise(context: OpContext) -> Kernel:
    blocks = context.whole("m_k")
    h, w = context.tile_dim
    finish, missed = _epilogue(context), context.numerics.missing_products(context.op)
    spill: Convert | None = context.numerics.spill(context.op)
    stacked = stack_of_depthwise(context.op)
    selected: list[tuple[Array, int, Array | None, DepthwiseRows | None]] = []

    def weights(b: Array, slices: int) -> tuple[Array | None, DepthwiseRows | None]:
        """The weight of every channel and block, and what sums picked rows with them."""
        if not (selected and same_memory(selected[0][0], b) and selected[0][1] == slices):
            diagonal = mm.diagonals(b[:, :slices], blocks, w) if b.shape[1] >= slices else None
            selected[:] = [(b, slices, diagonal, None if diagonal is None else DepthwiseRows(diagonal))]
        return selected[0][2:]

    def product(a: Array | PickedRows, b: Array, diagonal: Array | None, rows_of: DepthwiseRows | None) -> Array:
        n, _, rows, columns = a.shape
        if isinstance(a, PickedRows):
            out = None if rows_of is None else rows_of.of(a)
            if out is not None:
                return out
            a = a.as_array()
        if diagonal is not None and a.dtype == np.float32:
            taps = (
                a.reshape(n, -1, blocks, rows, columns)
                if stacked
                else a.reshape(n, -1, rows, blocks, columns // blocks).swapaxes(2, 3)
            )
            out = mm.depthwise_taps(taps, diagonal)
            if out is not None:
                return out
        return mm.depthwise(hstack(a, blocks) if stacked else a, b, blocks, (h, w))

    def run(args: Sequence[Array], free: int | None) -> Array:
        a, b = args[0], args[1]
        parts, slices = (blocks, a.shape[1] // blocks) if stacked else (1, a.shape[1])
        if (
            b.shape[2] % blocks
            or a.shape[1] % parts
            or parts * a.shape[3] % (blocks * w)
            or (parts * a.shape[3] != blocks * b.shape[3])
        ):
            shape = shape_text(a) + (f" through hstack: {blocks}" if stacked else "")
            raise context.error(
                "G8",
                f"inputs of (z, R, C) = {shape} and {shape_text(b)} for m_k {blocks}",
                "input 0 is m_k times as wide as input 1, input 1 m_k tiles high",
            )
        out = product(a, b, *weights(b, slices))
        if missed is not None:
            rest = missed[1](b)
            out = out - product(missed[0](as_array(a)), rest, mm.diagonals(rest[:, :slices], blocks, w), None)
        return finish(spill(out) if spill is not None and blocks > 1 else np.ascontiguousarray(out), args[2:])

    return run


def _reduce(context: OpContext) -> Kernel:
    dim, func = context.text("dim", ""), context.text("type", "max").lower()
    if dim not in ("r", "c", "rc", "z") or func not in ("max", "sum"):
        raise context.error("O7", f"reduce of type {func!r} over dim {dim!r}", "type max or sum, dim r, c, rc or z")
    h, w = context.tile_dim
    _, rows, columns = context.shape

    def run(args: Sequence[Array], free: int | None) -> Array:
        x = args[0]
        z = context.whole("z", x.shape[1]) if dim == "z" else 1
        return reduce(x, dim, func, (h, w), (rows // h, columns // w), z)

    return run


def _topk(context: OpContext) -> Kernel:
    k, sort = context.whole("k"), context.text("sort", "max").lower()
    columns = context.shape[2]
    cores = context.op.grid_size[1]

    def run(args: Sequence[Array], free: int | None) -> Array:
        context.expect_same(args)
        return topk(args[0], args[1], k, cores, columns, sort)

    return run


def _embedding(context: OpContext) -> Kernel:
    """Rows of the table (input 0) at the indices (input 1), `num_indices` of them for every grid row."""
    count = context.whole("num_indices")
    rows_of_cores = context.op.grid_size[0]
    tile = context.input_tiles[1]

    def run(args: Sequence[Array], free: int | None) -> Array:
        table, indices = args
        n, z, rows, _ = indices.shape
        words = rows_to_words(indices, tile).astype(np.int64) & 0xFFFFFFFF
        tile_rows = rows // tile[0]
        if tile_rows % rows_of_cores == 0:
            per_core = words.reshape(n, z, rows_of_cores, -1)[..., :count]
        else:
            per_core = words.reshape(n, z, -1)[..., : count * rows_of_cores]
        picked = per_core.reshape(n, z, -1)
        nothing = picked == 0xFFFFFFFF
        height = table.shape[1] * table.shape[2]
        if (picked[~nothing] >= height).any():
            raise context.error("embedding", f"index {int(picked[~nothing].max())} beyond the table's {height} rows")
        flat = table.reshape(table.shape[0], height, table.shape[3])
        which = np.arange(table.shape[0])[:, None, None] if table.shape[0] > 1 else 0
        result = np.array(flat[which, np.where(nothing, 0, picked)])  # one set of indices may serve many tables
        result[np.broadcast_to(nothing, result.shape[:-1])] = 0
        return result

    return run


BUILDERS: dict[str, Builder] = {
    **dict.fromkeys(MOVES, _move),
    **dict.fromkeys(eltwise.BINARY, _binary),
    **dict.fromkeys([*eltwise.UNARY, "lrelu", "power", "dropout"], _unary),
    **dict.fromkeys(("quantization", "dequantization", "requantization"), _quantization),
    "matmul": _matmul,
    "depthwise": _depthwise,
    "reduce": _reduce,
    "splice": build_splice,
    "topk": _topk,
    "embedding": _embedding,
    "fused_op": build_fused,
}
