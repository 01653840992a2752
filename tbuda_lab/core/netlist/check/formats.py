"""Rules O14 and O15: formats, accumulation, gradients, kernel broadcast, sparse matmul."""

from __future__ import annotations

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.check.context import RAWS, WIDE, CheckContext, flag, whole, word
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.opspec import NOP, SFPU
from tbuda_lab.core.netlist.schema import NetOp

_SMALL = frozenset((DataFormat.Bfp2, DataFormat.Bfp2_b, DataFormat.Bfp4, DataFormat.Bfp4_b))
_BFP8 = frozenset((DataFormat.Bfp8, DataFormat.Bfp8_b))
_L1_ACC = (DataFormat.Float32, DataFormat.Int32, DataFormat.Float16_b)


@rule("O14.grayskull", "op")
def grayskull(c: CheckContext, op: NetOp) -> Issues:
    """Grayskull accumulates in 16 bits, spills within one exponent family, runs sfpu ops on the math thread."""
    if not c.facts.grayskull:
        return
    if op.acc_df in WIDE:
        yield "acc_df", f"acc_df {op.acc_df} on grayskull", "use Float16 or Float16_b"
    families = {op.out_df.family, op.intermed_df.family if op.intermed_df else None} - {None}
    if len(families) > 1 and (op.gradient_op or (op.type == "matmul" and whole(op, "m_k") > 1)):
        yield "intermed_df", f"intermed_df {op.intermed_df} and out_df {op.out_df} differ in exponent", \
            "take both from the same family"
    if word(op, "sfpu_execution_thread").lower() == "pack":
        yield ("attributes", "sfpu_execution_thread"), "sfpu on the pack thread on grayskull", "write math"


@rule("O14.intermed", "op")
def small_intermed(c: CheckContext, op: NetOp) -> Issues:
    """Partial results are not kept in Bfp4 or Bfp2."""
    spills = op.gradient_op or (op.type == "matmul" and (whole(op, "m_k") > 1 or flag(op, "bias")))
    if spills and op.intermed_df in _SMALL:
        yield "intermed_df", f"intermed_df {op.intermed_df} where partial results are kept", "use Bfp8_b or wider"


@rule("O14.acc", "op")
def wide_acc(c: CheckContext, op: NetOp) -> Issues:
    """With 32-bit accumulation over several passes the intermediate format is the accumulation format."""
    if op.acc_df not in WIDE or op.type not in ("matmul", "depthwise"):
        return
    accumulates = whole(op, "m_k") > 1 if c.facts.grayskull else flag(op, "l1_acc")
    if accumulates and op.intermed_df not in (None, op.acc_df):
        yield "intermed_df", f"intermed_df {op.intermed_df} with acc_df {op.acc_df}", f"write {op.acc_df}"


@rule("O14.a0", "op")
def wormhole_a0(c: CheckContext, op: NetOp) -> Issues:
    """On wormhole A0 nop and sfpu ops with Float32 accumulation read Float32."""
    if c.facts.arch == "wormhole" and op.acc_df is DataFormat.Float32 and op.type in NOP | SFPU \
            and op.inputs and op.inputs[0].df is not DataFormat.Float32:
        yield "in_df", f"in_df {op.inputs[0].df} with acc_df Float32 on wormhole", "write Float32"


@rule("O14.rounding", "op")
def rounding(c: CheckContext, op: NetOp) -> Issues:
    """Stochastic rounding in the fpu needs 16-bit accumulation; with Bfp8 results only none and fpu are legal."""
    mode = word(op, "stoch_rnd_mode").lower()
    if mode in ("fpu", "all") and op.acc_df is DataFormat.Float32:
        yield ("attributes", "stoch_rnd_mode"), f"stoch_rnd_mode {mode} with acc_df Float32", "write pack or none"
    if mode in ("pack", "all") and (op.out_df in _BFP8 or op.intermed_df in _BFP8):
        yield ("attributes", "stoch_rnd_mode"), f"stoch_rnd_mode {mode} with Bfp8", "write none or fpu"


@rule("O14.gradient", "op")
def gradient(c: CheckContext, op: NetOp) -> Issues:
    """A gradient op: no Int32 accumulation, intermed_df equals out_df, transpose on matmul and nop only, no maximum."""
    if not op.gradient_op:
        return
    if op.acc_df is DataFormat.Int32:
        yield "acc_df", "acc_df Int32 on a gradient op", "use a floating format"
    if op.intermed_df is not None and op.intermed_df is not op.out_df:
        yield "intermed_df", f"intermed_df {op.intermed_df} but out_df {op.out_df} on a gradient op", "make them equal"
    if op.type not in NOP | {"matmul"}:
        for n, i in enumerate(op.inputs):
            if any(tm.name == "transpose" for tm in i.tms or ()):
                yield f"input_{n}_tms", f"transpose on a gradient {op.type}", "only matmul and nop can"
    if op.type == "maximum":
        yield "gradient_op", "gradient_op on maximum", "gradients add up: use add"


@rule("O15.untilize", "op")
def untilize(c: CheckContext, op: NetOp) -> Issues:
    """A matmul that untilizes has m_k 1; a reduce over z cannot untilize."""
    if not op.untilize_output:
        return
    if op.type == "matmul" and whole(op, "m_k", 1) != 1:
        yield "untilize_output", f"untilize_output on a matmul with m_k {whole(op, 'm_k')}", "make m_k 1, or add a nop"
    if op.type == "reduce" and word(op, "dim") == "z":
        yield "untilize_output", "untilize_output on a reduce over z", "add a nop that untilizes"


@rule("O15.kernel_broadcast", "op")
def kernel_broadcast(c: CheckContext, op: NetOp) -> Issues:
    """A kernel broadcast needs a broadcast TM on its input; matmuls take whole blocks of it (not grayskull)."""
    rt, ct = op.blocking.ublock
    for name in ("kernel_broadcast", "kernel_broadcast_per_t"):
        counts = op.attributes.get(name)
        for key, tiles in counts.items() if isinstance(counts, dict) else ():
            index = int(key[6:]) if key[6:].isascii() and key[6:].isdigit() and len(key) < 10 else len(op.inputs)
            if index >= len(op.inputs) or not isinstance(tiles, int):
                continue
            if not any(tm.name == "broadcast" for tm in op.inputs[index].tms or ()):
                yield ("attributes", name), f"{key} has no broadcast TM", f"add one to input_{index}_tms"
            if op.type not in ("matmul", "depthwise") or flag(op, "identity") or c.facts.grayskull:
                continue
            block = rt * whole(op, "u_kt") if index == 0 and ct < rt else ct if index == 1 and ct >= rt else 1
            if block > 0 and tiles % block:
                yield ("attributes", name), f"{tiles} tiles of {key} are not a multiple of {block}", \
                    f"{-(-tiles // block) * block} is"


@rule("O15.identity", "op")
def identity(c: CheckContext, op: NetOp) -> Issues:
    """A sparse (identity) matmul: raw encodings as input 2, broadcast first on them, no gradient."""
    if op.type != "matmul" or not flag(op, "identity"):
        return
    if op.gradient_op:
        yield "gradient_op", "gradient_op on an identity matmul", "drop it"
    if len(op.inputs) < 3:
        yield "inputs", f"{len(op.inputs)} inputs", "an identity matmul reads sparse tiles, activations, encodings"
        return
    encodings = op.inputs[2]
    if encodings.df not in RAWS:
        yield "in_df", f"input 2 (encodings) is {encodings.df}", "use RawUInt8, RawUInt16 or RawUInt32"
    if encodings.tms and encodings.tms[0].name != "broadcast":
        yield "input_2_tms", f"the first TM of the encodings is {encodings.tms[0].name}", "start with a broadcast"


@rule("O15.reduce_z", "op")
def reduce_z(c: CheckContext, op: NetOp) -> Issues:
    """A reduce over z has one format: in, intermediate and out."""
    if op.type == "reduce" and word(op, "dim") == "z":
        formats = [op.inputs[0].df if op.inputs else op.out_df, op.intermed_df or op.out_df, op.out_df]
        if len(set(formats)) > 1:
            yield "out_df", f"in, intermed and out are {', '.join(map(str, formats))}", "make them equal"


@rule("O15.splice", "op")
def splice_formats(c: CheckContext, op: NetOp) -> Issues:
    """All inputs of a splice have one format."""
    formats = {str(i.df) for i in op.inputs}
    if op.type == "splice" and len(formats) > 1:
        yield "in_df", f"inputs are {', '.join(sorted(formats))}", "make them equal"


@rule("O15.l1_acc", "op")
def l1_acc(c: CheckContext, op: NetOp) -> Issues:
    """l1_acc: not on grayskull, intermediates in Float32, Int32 or Float16_b."""
    if not flag(op, "l1_acc"):
        return
    if c.facts.grayskull:
        yield ("attributes", "l1_acc"), "l1_acc on grayskull", "leave it out"
    if op.intermed_df not in _L1_ACC:
        yield "intermed_df", f"intermed_df {op.intermed_df} with l1_acc", f"use {', '.join(map(str, _L1_ACC))}"
