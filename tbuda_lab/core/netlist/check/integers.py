"""Rules O16: integer formats.

The backend also limits the relu of integer ops; how is not published. A relu that O8 allows is accepted here: refusing
what may be legal would be worse, and an integer result with any relu is well defined.
"""

from __future__ import annotations

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.check.context import BYTES, INTEGERS, CheckContext, flag, whole, word
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.opspec import BINARY, NOP, QUANT
from tbuda_lab.core.netlist.schema import NetOp

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
            yield "in_df", f"input {n} of an integer {op.type} is {i.df}", \
                f"legal: {', '.join(sorted(map(str, legal)))}"


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
            yield ("attributes", "requant" if requant else "dequant"), "requantization of an identity matmul", \
                "use a requantization op"
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
    if op.type == "matmul" and _integer(op) and not flag(op, "identity") and len(op.inputs) > 1 \
            and op.inputs[1].df not in BYTES:
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
