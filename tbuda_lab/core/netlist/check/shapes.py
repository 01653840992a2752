"""Rules S: shapes carried through TMs must be what ops and queues declare."""

from __future__ import annotations

from collections.abc import Iterator

from tbuda_lab.core.netlist.check.context import CheckContext, flag, whole, word
from tbuda_lab.core.netlist.check.registry import Issue, Issues, rule
from tbuda_lab.core.netlist.op_spec import BINARY, SFPU, UNARY
from tbuda_lab.core.netlist.schema import NetOp, Queue
from tbuda_lab.core.netlist.sizes import (
    NetlistShapeError,
    Shape,
    apply_tms,
    operand_shape,
    output_shape,
    queue_shape,
    source_shape,
)
from tbuda_lab.core.netlist.tables import FULL_TILE

_LABELS = ("z", "rows", "columns")


def _has_shape(op: NetOp) -> bool:
    """Whether the op declares a shape at all; if not, other rules say so."""
    return min(*op.grid_size, op.blocking.t, *op.blocking.mblock, *op.blocking.ublock) > 0


def text(shape: Shape) -> str:
    """A shape (z, rt, ct) in words."""
    return f"z {shape[0]}, {shape[1]}x{shape[2]} tiles"


def operands(c: CheckContext, op: NetOp) -> list[Shape | None]:
    """Each operand's shape after its TMs; None where the source or a TM is not sound."""
    out: list[Shape | None] = []
    for i in op.inputs:
        source = source_shape(c, i.source)
        try:
            out.append(operand_shape(source, i) if source is not None and min(source) > 0 else None)
        except (NetlistShapeError, TypeError, ValueError):
            out.append(None)
    return out


@rule("S1", "op", "shapes")
def tms_apply(c: CheckContext, op: NetOp) -> Issues:
    """Every TM can be applied to the shape that reaches it."""
    for n, i in enumerate(op.inputs):
        source = source_shape(c, i.source)
        if source is None or min(source) < 1:
            continue
        try:
            operand_shape(source, i)
        except NetlistShapeError as error:
            yield (
                f"input_{n}_tms" if i.tms else f"input_{n}_unpad",
                f"{error} (input {i.source!r} is {text(source)})",
                error.fix,
            )


@rule("S2", "op", "shapes")
def operands_fit(c: CheckContext, op: NetOp) -> Issues:
    """Operands, after their TMs, have the sizes that the op's own blocking asks for."""
    expected = _expected_tiles(op) if _has_shape(op) else []
    dims = c.input_tiles(op)
    for n, (want, got) in enumerate(zip(expected, operands(c, op), strict=False)):
        if got is None or (dims[n] != (op.tile_dim or FULL_TILE) and op.type not in ("matmul", "reduce")):
            continue  # an op that changes the tile size counts in other tiles than its source
        wrong = [
            f"{label} {have}, not {size}"
            for label, have, size in zip(_LABELS, got, want, strict=True)
            if size is not None and have != size
        ]
        if op.type == "matmul" and n == 1 and want[0] is not None and got[0] > want[0]:
            wrong = wrong[1:]  # a longer z of the right operand is cut off: S3
        if wrong:
            place = f"input_{n}_tms" if op.inputs[n].tms else "inputs"
            yield place, f"input {n} ({op.inputs[n].source!r}) has {'; '.join(wrong)} (in tiles)", _hint(op, want)


ExpectedTiles = tuple[int | None, int | None, int | None]


def _hint(op: NetOp, want: ExpectedTiles) -> str:
    sizes = ", ".join(f"{label} {size}" for label, size in zip(_LABELS, want, strict=True) if size is not None)
    inner = ", m_k x u_kt columns or rows inside" if op.type in ("matmul", "reduce", "depthwise") else ""
    return f"{op.type} of output {text(output_shape(op))} takes {sizes}{inner}"


def _expected_tiles(op: NetOp) -> list[ExpectedTiles]:
    """What each operand must be, as far as the op's fields fix it."""
    t, rows, cols = output_shape(op)
    out: ExpectedTiles = (t, rows, cols)
    k = whole(op, "m_k") * whole(op, "u_kt") or None
    if op.type in UNARY | SFPU | {"tilizer"}:
        return [out]
    if op.type in BINARY:
        return [out, out]
    if op.type == "matmul" and not flag(op, "identity"):
        z = t * whole(op, "z") or None if flag(op, "accumulate") else t
        return [(z, rows, k), (z, k, cols), *([out] if flag(op, "bias") else [])]
    if op.type == "depthwise":
        m_k = whole(op, "m_k") or None
        return [(t, rows, m_k * cols if m_k else None), (t, m_k, cols), *([out] if flag(op, "bias") else [])]
    if op.type == "reduce":
        dim = word(op, "dim")
        if dim == "r":
            return [(t, k, cols)]
        if dim == "c":
            return [(t, rows, k)]
        if dim == "z":
            return [(t * whole(op, "z") if "z" in op.attributes else None, rows, cols)]
    return []


@rule("S3", "op", "shapes", "note")
def longer_right_operand(c: CheckContext, op: NetOp) -> Issues:
    """The right operand of a matmul is no longer in z than the left; what is over would be ignored."""
    if op.type != "matmul" or flag(op, "identity") or not _has_shape(op):
        return
    want, got = _expected_tiles(op)[1][0], [*operands(c, op), None, None][1]
    if got is not None and want is not None and got[0] > want:
        yield (
            "inputs",
            f"input 1 ({op.inputs[1].source!r}) has z {got[0]}, only {want} are used",
            "slice it, or make them equal",
        )


@rule("S4", "queue", "shapes")
def queue_holds_output(c: CheckContext, q: Queue) -> Issues:
    """A queue holds exactly what the op that feeds it makes, after its own input TMs."""
    op = c.ops.get(q.input)
    shape = queue_shape(q)
    if op is None or not _has_shape(op) or min(shape) < 1:
        return
    try:
        entry_shape = apply_tms(output_shape(op), q.input_tms or ())
    except NetlistShapeError as error:
        yield "input_tms", f"{error} (op {op.name!r} makes {text(output_shape(op))})", error.fix
        return
    if entry_shape != shape:
        yield (
            "",
            f"the queue holds {text(shape)}, but op {op.name!r} makes {text(entry_shape)}",
            "make grid_size x mblock x ublock and t agree",
        )


@rule("S5", "op", "shapes")
def reduced_to_one(c: CheckContext, op: NetOp) -> Issues:
    """A reduce over rows makes one row of tiles, one over columns one column."""
    if op.type == "reduce" and _has_shape(op):
        _, rows, cols = output_shape(op)
        for dim, size in (("r", rows), ("c", cols)):
            if dim in word(op, "dim") and word(op, "dim") != "z" and size != 1:
                yield "mblock", f"a reduce over {dim} makes {size} tiles along {dim}", "it makes one"


@rule("S6", "op", "shapes", "strict")
def splice_shapes(c: CheckContext, op: NetOp) -> Issues:
    """A splice uses up all its inputs in the same number of turns, and its turns fill the output."""
    if op.type != "splice" or not _has_shape(op):
        return
    by_slice = word(op, "granularity") == "t"
    (rows, cols), (rt, ct) = op.grid_size, op.blocking.ublock
    turns: dict[int, int] = {}
    pieces = 0
    for n, got in enumerate(operands(c, op)):
        value = op.attributes.get(f"input{n}")
        if (
            got is None
            or not isinstance(value, (list, tuple))
            or len(value) != 3
            or not all(isinstance(v, int) for v in value)
            or min(value[1:]) < 1
            or value[0] < 0
        ):
            return  # other rules say so
        limit = got[0] if by_slice else got[1] * got[2] // (rows * cols * rt * ct)
        yield from _window(n, limit, [int(v) for v in value], "slices of t" if by_slice else "ublocks of a core")
        turns[n] = limit // (value[0] + value[2])
        pieces += turns[n] * value[1]
    z, m, k = output_shape(op)
    expected = z if by_slice else m * k // (rows * cols * rt * ct)
    if len(set(turns.values())) > 1:
        yield (
            "attributes",
            f"its inputs last for {', '.join(map(str, turns.values()))} turns",
            "every input must last equally long",
        )
    elif pieces != expected:
        unit = "slices" if by_slice else "ublocks per core"
        yield (
            "attributes",
            f"its inputs give {pieces} {unit}, the output has {expected}",
            "lengths times turns must fill the output",
        )


def _window(n: int, limit: int, triple: list[int], unit: str) -> Iterator[Issue]:
    index, length, stride = triple
    if index + max(length, stride) > limit or limit % (index + stride):
        yield (
            ("attributes", f"input{n}"),
            f"index {index}, length {length}, stride {stride} of {limit} {unit}",
            "index + length and index + stride stay within them, and index + stride divides them",
        )


@rule("S7", "queue", "shapes", "note")
def read_and_written(c: CheckContext, q: Queue) -> Issues:
    """Every queue is read or written by an op."""
    base = q.alias or q.name
    if q.name not in c.readers and q.input not in c.ops and base not in c.readers:
        yield "", "no op reads or writes this queue", "drop it"
