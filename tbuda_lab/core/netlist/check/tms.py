"""Rules O9 and O10: TMs on op inputs, and the size of a ublock."""

from __future__ import annotations

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.check.context import CheckContext, whole
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.opspec import BINARY, SFPU, TMS, UNARY
from tbuda_lab.core.netlist.schema import NetOp


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
                yield where, f"unknown TM {tm.name!r}", f"known are {', '.join(TMS)}"
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
        yield "ublock", f"ublock [{rt}, {ct}] is {rt * ct} tiles, dst holds {limit} with acc_df {op.acc_df}", \
            f"make the ublock at most {limit} tiles"
    if op.type == "topk" and rt > 0 and whole(op, "u_kt") > 0 and rt * whole(op, "u_kt") > limit:
        yield ("attributes", "u_kt"), f"ublock_rt {rt} x u_kt {whole(op, 'u_kt')} is more than the {limit} tiles " \
            "of dst", "make one of them smaller"
