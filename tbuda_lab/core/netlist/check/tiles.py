"""Rules O11: tile sizes other than 32x32.

Rules O9 and O10: TMs on op inputs, and the size of a ublock.
"""

from __future__ import annotations

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.check.context import CheckContext, flag, whole, word
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.op_spec import BINARY, NOP, SFPU, TMS, UNARY
from tbuda_lab.core.netlist.schema import NetOp

_FULL = (32, 32)


@rule("O11.inputs", "op")
def tiny_inputs(c: CheckContext, op: NetOp) -> Issues:
    """Tiny input tiles go to unary and binary ops, to a dense matmul, and to input 1 of a sparse one."""
    if op.type in UNARY | SFPU | BINARY:
        return
    for n, dim in enumerate(c.input_tiles(op)):
        if dim == _FULL:
            continue
        dense = op.type == "matmul" and not flag(op, "identity")
        legal = (dense and (dim == (1, 32) or n < 2)) or (op.type == "matmul" and not dense and n == 1)
        if not legal:
            yield (
                "inputs",
                f"input {n} {op.inputs[n].source!r} has {dim[0]}x{dim[1]} tiles",
                f"input {n} of {'an identity ' if flag(op, 'identity') else ''}{op.type} takes 32x32 tiles",
            )


@rule("O11.integers", "op")
def tiny_integers(c: CheckContext, op: NetOp) -> Issues:
    """Int8 and Int32 have 32x32 tiles only."""
    for n, (i, dim) in enumerate(zip(op.inputs, c.input_tiles(op), strict=True)):
        if dim != _FULL and i.df in (DataFormat.Int8, DataFormat.Int32):
            yield "in_df", f"input {n} is {i.df} in {dim[0]}x{dim[1]} tiles", "use 32x32 tiles"
    if op.tile_dim not in (None, _FULL) and op.out_df in (DataFormat.Int8, DataFormat.Int32):
        yield "out_df", f"out_df {op.out_df} in {list(op.tile_dim or _FULL)} tiles", "use 32x32 tiles"


@rule("O11.vector", "op")
def tiny_vector(c: CheckContext, op: NetOp) -> Issues:
    """An sfpu op on Nx32 tiles has vector r, on 32x16 tiles vector c."""
    if op.type not in SFPU or "vector" not in op.attributes:
        return
    dim = op.tile_dim or _FULL
    order = "c" if dim == (32, 16) else "r" if dim[0] < 32 else None
    if order and word(op, "vector") != order:
        yield ("attributes", "vector"), f"vector {word(op, 'vector')} on {dim[0]}x{dim[1]} tiles", f"write {order}"


@rule("O11.binary", "op")
def binary_tiles(c: CheckContext, op: NetOp) -> Issues:
    """Both inputs of a binary op have the same tile size."""
    dims = c.input_tiles(op)
    if op.type in BINARY and len(set(dims)) > 1:
        yield "inputs", f"inputs have tiles of {' and '.join(f'{h}x{w}' for h, w in dims)}", "make them equal"


@rule("O11.narrow", "op")
def narrow_tiles(c: CheckContext, op: NetOp) -> Issues:
    """32x16 tiles (as transposed) stay 32x16: through unary and binary ops, and from matmul input 1 to its output."""
    out = op.tile_dim or _FULL
    dims = [
        dim[::-1] if sum(tm.name == "transpose" for tm in i.tms or ()) % 2 else dim
        for i, dim in zip(op.inputs, c.input_tiles(op), strict=True)
    ]
    watched = dims if op.type in UNARY | SFPU | BINARY else dims[1:2] if op.type == "matmul" else []
    for dim in watched:
        if (dim == (32, 16)) != (out == (32, 16)):
            yield (
                "tile_dim",
                f"input tiles {dim[0]}x{dim[1]}, output tiles {out[0]}x{out[1]}",
                "make both 32x16, or neither",
            )
            return


@rule("O11.gradient", "op")
def gradient_tiles(c: CheckContext, op: NetOp) -> Issues:
    """A gradient datacopy keeps its tile size; a matmul with tiny tiles has neither sfpu_op nor gradient_op."""
    dims, out = c.input_tiles(op), op.tile_dim or _FULL
    if op.type in NOP and op.gradient_op and dims and dims[0] != out:
        yield "tile_dim", f"input tiles {dims[0][0]}x{dims[0][1]}, output tiles {out[0]}x{out[1]}", "make them equal"
    if op.type == "matmul" and not flag(op, "identity") and any(d != _FULL for d in [*dims[:2], out]):
        if op.gradient_op:
            yield "gradient_op", "gradient_op on a matmul with tiny tiles", "use 32x32 tiles"
        if "sfpu_op" in op.attributes:
            yield ("attributes", "sfpu_op"), "sfpu_op on a matmul with tiny tiles", "put the sfpu op after it"


@rule("O11.reduce", "op")
def reduce_tiles(c: CheckContext, op: NetOp) -> Issues:
    """A reduce over rows makes no 32x16 tiles, one over columns makes 32x32 or 32x16."""
    if op.type != "reduce":
        return
    out = op.tile_dim or _FULL
    if word(op, "dim") == "r" and out == (32, 16):
        yield "tile_dim", "reduce over r into 32x16 tiles", "any other tile size is legal"
    if word(op, "dim") == "c" and out not in (_FULL, (32, 16)):
        yield "tile_dim", f"reduce over c into {out[0]}x{out[1]} tiles", "32x32 and 32x16 are legal"


@rule("O11.transpose", "op")
def transposed_tiles(c: CheckContext, op: NetOp) -> Issues:
    """A transposed matmul input has 32x32 or 16x32 tiles."""
    if op.type != "matmul":
        return
    for n, (i, dim) in enumerate(zip(op.inputs, c.input_tiles(op), strict=True)):
        if any(tm.name == "transpose" for tm in i.tms or ()) and dim not in (_FULL, (16, 32)):
            yield f"input_{n}_tms", f"transpose of {dim[0]}x{dim[1]} tiles", "32x32 and 16x32 can be transposed"


@rule("O9.transpose", "op", "parse")
def transpose(c: CheckContext, op: NetOp) -> Issues:
    """A transpose goes on matmul input 1, on a nop's or sfpu op's input, on input 0 of a binary op (not grayskull)."""
    for n, i in enumerate(op.inputs):
        if not any(tm.name == "transpose" for tm in i.tms or ()):
            continue
        where = f"input_{n}_tms"
        if op.type == "matmul":
            if n != 1:
                yield where, f"transpose on matmul input {n}", "only input 1 of a matmul can be transposed"
        elif op.type in UNARY | SFPU | BINARY:
            if n != 0:
                yield where, f"transpose on input {n} of {op.type}", "only input 0 can be transposed"
            elif op.type in BINARY and c.facts.grayskull:
                yield where, "transpose on a binary op on grayskull", "put a nop with the transpose before it"
            elif i.df is DataFormat.Int32:
                yield where, "transpose on an Int32 input", "Int32 cannot be transposed"
        else:
            yield where, f"transpose on {op.type}", "put a nop with the transpose before it"


@rule("O9.names", "op", "parse")
def tm_names(c: CheckContext, op: NetOp) -> Issues:
    """TMs are known; tile_broadcast is for fused ops; an input is padded at most once, a fused op's never."""
    for n, i in enumerate(op.inputs):
        where = f"input_{n}_tms"
        pads = [tm for tm in i.tms or () if tm.name == "pad"]
        for tm in i.tms or ():
            if tm.name not in TMS:
                yield where, f"unknown TM {tm.name!r}", f"known: {', '.join(TMS)}"
            elif tm.name == "tile_broadcast":
                yield where, "tile_broadcast outside a fused op", "it is legal on sub-op inputs only"
        if len(pads) + (i.pad is not None) > 1:
            yield where, "the input is padded twice", "keep one pad"
        if op.type == "fused_op" and pads:
            yield where, "pad on a fused op", "put a nop with the pad before it"


@rule("O9.pad", "op", "parse")
def pad_values(c: CheckContext, op: NetOp) -> Issues:
    """Padding adds or drops whole tiles, none negative."""
    for n, i in enumerate(op.inputs):
        for key, pad in (("pad", i.pad), ("unpad", i.unpad)):
            for dim in ("rt", "ct"):
                tiles = (pad or {}).get(dim, 0)
                if not isinstance(tiles, int) or tiles < 0:
                    yield f"input_{n}_{key}", f"{dim} is {tiles}", "write a number of tiles, 0 or more"


@rule("O10", "op")
def ublock_fits_dst(c: CheckContext, op: NetOp) -> Issues:
    """A ublock fits half of dst: 8 tiles, 4 if it accumulates in 32 bits (wormhole A0: 32 and 16)."""
    limit = c.facts.dst_limit(op.acc_df)
    rt, ct = op.blocking.ublock
    if rt > 0 and ct > 0 and rt * ct > limit:
        yield (
            "ublock",
            f"ublock [{rt}, {ct}] is {rt * ct} tiles, dst holds {limit} with acc_df {op.acc_df}",
            f"make the ublock at most {limit} tiles",
        )
    if op.type == "topk" and rt > 0 and whole(op, "u_kt") > 0 and rt * whole(op, "u_kt") > limit:
        yield (
            ("attributes", "u_kt"),
            f"ublock_rt {rt} x u_kt {whole(op, 'u_kt')} is more than the {limit} tiles of dst",
            "make one of them smaller",
        )
