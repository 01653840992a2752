"""Rules O14 to O16: formats, accumulation, gradients, kernel broadcast, sparse matmul, integers."""

from __future__ import annotations

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.check.context import BYTES, INTEGERS, RAWS, WIDE, CheckContext, flag, whole, word
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.op_spec import BINARY, NOP, QUANT, SFPU
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
        yield (
            "intermed_df",
            f"intermed_df {op.intermed_df} and out_df {op.out_df} differ in exponent",
            "take both from the same family",
        )
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
    if (
        c.facts.arch == "wormhole"
        and op.acc_df is DataFormat.Float32
        and op.type in NOP | SFPU
        and op.inputs
        and op.inputs[0].df is not DataFormat.Float32
    ):
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
                yield (
                    ("attributes", name),
                    f"{tiles} tiles of {key} are not a multiple of {block}",
                    f"{-(-tiles // block) * block} is",
                )


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


_QUANT_FORMATS = {  # op: (input 0, input 1, output)
    "quantization": ((DataFormat.Float32,), (DataFormat.Float32,), (DataFormat.Int8,)),
    "dequantization": ((DataFormat.Int8, DataFormat.Int32), (DataFormat.Float32,), (DataFormat.Float32,)),
    "requantization": ((DataFormat.Int8, DataFormat.Int32), (DataFormat.Float32,), (DataFormat.Int8,)),
}


def _integer(op: NetOp) -> bool:
    return op.type != "topk" and any(i.df in INTEGERS for i in op.inputs)


@rule("O16.outputs", "op")
def integer_outputs(c: CheckContext, op: NetOp) -> Issues:
    """Integers in give integers out, unless the op dequantizes."""
    if not _integer(op) or op.type in ("dequantization", "fused_op") or flag(op, "dequant"):
        return
    if op.out_df not in INTEGERS:
        yield "out_df", f"out_df {op.out_df} with integer inputs", "use an integer format, or dequantize"
    if op.intermed_df is not None and op.intermed_df not in INTEGERS:
        yield "intermed_df", f"intermed_df {op.intermed_df} with integer inputs", "use an integer format"


@rule("O16.math", "op")
def integer_math(c: CheckContext, op: NetOp) -> Issues:
    """Integer ops compute in HiFi4 and accumulate in Int32; only they, quantization, fused ops and nops may do that."""
    if op.type == "fused_op":
        return
    if _integer(op):
        if op.math_fidelity != "HiFi4":
            yield "math_fidelity", f"math_fidelity {op.math_fidelity} with integer inputs", "write HiFi4"
        if op.acc_df not in (None, DataFormat.Int32):
            yield "acc_df", f"acc_df {op.acc_df} with integer inputs", "write Int32"
    elif op.acc_df is DataFormat.Int32 and op.type not in NOP | {"quantization", "topk"}:
        yield "acc_df", "acc_df Int32 without integer inputs", "use a floating format"


@rule("O16.binary", "op")
def integer_binary(c: CheckContext, op: NetOp) -> Issues:
    """Integer binary ops: add and maximum on Int8, UInt8, Int32; the others on Int8, UInt8."""
    if op.type not in BINARY - QUANT or not _integer(op):
        return
    legal = BYTES | {DataFormat.Int32} if op.type in ("add", "maximum") else BYTES
    for n, i in enumerate(op.inputs):
        if i.df not in legal:
            yield (
                "in_df",
                f"input {n} of an integer {op.type} is {i.df}",
                f"legal: {', '.join(sorted(map(str, legal)))}",
            )


@rule("O16.quant", "op")
def quantisation(c: CheckContext, op: NetOp) -> Issues:
    """Quantization, dequantization and requantization have fixed formats."""
    if op.type not in _QUANT_FORMATS:
        return
    *ins, out = _QUANT_FORMATS[op.type]
    for n, (i, legal) in enumerate(zip(op.inputs, ins, strict=False)):
        if i.df not in legal:
            yield "in_df", f"input {n} of {op.type} is {i.df}", f"use {' or '.join(map(str, legal))}"
    if op.out_df not in out:
        yield "out_df", f"out_df of {op.type} is {op.out_df}", f"use {' or '.join(map(str, out))}"


@rule("O16.matmul", "op")
def integer_matmul(c: CheckContext, op: NetOp) -> Issues:
    """An integer matmul: Int8 or UInt8 on the left, Int32 bias, Float32 scale, no l1_acc; a sparse one three inputs."""
    requant, dequant = flag(op, "requant"), flag(op, "dequant")
    if op.type == "matmul" and (requant or dequant):
        if requant and dequant:
            yield ("attributes", "dequant"), "requant and dequant together", "keep one"
        if flag(op, "identity"):
            yield (
                ("attributes", "requant" if requant else "dequant"),
                "requantization of an identity matmul",
                "use a requantization op",
            )
        if op.inputs and op.inputs[-1].df is not DataFormat.Float32:
            yield "in_df", f"the scales (last input) are {op.inputs[-1].df}", "use Float32"
    if op.type != "matmul" or not _integer(op) or len(op.inputs) < 2:
        return
    dense = not flag(op, "identity")
    if op.inputs[0].df not in BYTES:
        yield "in_df", f"input 0 of an integer matmul is {op.inputs[0].df}", "use Int8 or UInt8"
    if dense and flag(op, "bias") and len(op.inputs) > 2 and op.inputs[2].df is not DataFormat.Int32:
        yield "in_df", f"the bias of an integer matmul is {op.inputs[2].df}", "use Int32"
    if not dense and len(op.inputs) != 3:
        yield "inputs", f"an integer identity matmul with {len(op.inputs)} inputs", "it takes three"
    if flag(op, "l1_acc"):
        yield ("attributes", "l1_acc"), "l1_acc on an integer matmul", "leave it out"
    if not dense and whole(op, "min_buffer_input") == 1:
        yield ("attributes", "min_buffer_input"), "min_buffer_input 1 on an integer identity matmul", "write 0"


@rule("O16.right", "op", "verify", "strict")
def integer_right_operand(c: CheckContext, op: NetOp) -> Issues:
    """The right operand of an integer matmul is Int8 or UInt8 as well (the backend looks at the left one twice)."""
    if (
        op.type == "matmul"
        and _integer(op)
        and not flag(op, "identity")
        and len(op.inputs) > 1
        and op.inputs[1].df not in BYTES
    ):
        yield "in_df", f"input 1 of an integer matmul is {op.inputs[1].df}", "use Int8 or UInt8"


@rule("O16.unsigned", "op")
def unsigned(c: CheckContext, op: NetOp) -> Issues:
    """UInt8 is not for quantization ops and reduce; UInt16 only for topk input 1 and its output."""
    used = [(f"in_df (input {n})", "in_df", i.df, n) for n, i in enumerate(op.inputs)]
    used.append(("out_df", "out_df", op.out_df, -1))
    for label, where, df, n in used:
        if df is DataFormat.UInt8 and op.type in QUANT | {"reduce"}:
            yield where, f"{label} is UInt8 on {op.type}", "use Int8"
        if df is DataFormat.UInt16 and not (op.type == "topk" and n in (-1, 1)):
            yield where, f"{label} is UInt16 on {op.type}", "only input 1 and the output of topk can be UInt16"


@rule("O16.topk", "op")
def argmax(c: CheckContext, op: NetOp) -> Issues:
    """A topk that sorts by argmax gives out the format of its indices."""
    if op.type == "topk" and word(op, "sort") == "argmax" and len(op.inputs) > 1 and op.out_df is not op.inputs[1].df:
        yield "out_df", f"out_df {op.out_df}, but the indices are {op.inputs[1].df}", f"write {op.inputs[1].df}"


@rule("O16.arch", "op", "verify", "strict")
def integer_arch(c: CheckContext, op: NetOp) -> Issues:
    """Grayskull has no integer math."""
    if c.facts.grayskull and op.type != "topk" and any(i.df in INTEGERS for i in op.inputs):
        yield "in_df", "integer inputs on grayskull", "integer math needs wormhole_b0"
