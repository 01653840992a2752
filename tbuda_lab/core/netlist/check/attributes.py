"""Rules O5 to O8: untilize, gradients, attribute values."""

from __future__ import annotations

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.check.context import CheckContext, flag, number, whole, word
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.op_spec import NOP, SFPU
from tbuda_lab.core.netlist.schema import NetOp

_UNTILIZED = (DataFormat.Float16, DataFormat.Float16_b, DataFormat.Float32)
_UNTILIZED_INT = (DataFormat.Int8, DataFormat.Int32)


@rule("O3", "op", "parse")
def buffer_rows(c: CheckContext, op: NetOp) -> Issues:
    """A buffer op has mblock_m 1."""
    if op.type == "buffer" and op.blocking.mblock[0] > 1:
        yield "mblock", f"mblock_m {op.blocking.mblock[0]} on a buffer", "write 1"


@rule("O5", "op")
def untilize_format(c: CheckContext, op: NetOp) -> Issues:
    """An untilized output has ublock_order r and a format that has rows: 16 bits or more, no block float."""
    if not op.untilize_output:
        return
    if op.blocking.order == "c":
        yield "ublock_order", "ublock_order c with untilize_output", "write r"
    legal = _UNTILIZED if c.facts.grayskull else _UNTILIZED + _UNTILIZED_INT
    if op.out_df is not DataFormat.Invalid and op.out_df not in legal:
        yield "out_df", f"out_df {op.out_df} with untilize_output", f"legal: {', '.join(map(str, legal))}"


@rule("O6", "op")
def gradient_type(c: CheckContext, op: NetOp) -> Issues:
    """On grayskull only matmul, multiply and nop accumulate gradients."""
    if op.gradient_op and c.facts.grayskull and op.type not in NOP | {"matmul", "multiply"}:
        yield "gradient_op", f"gradient_op on {op.type}", "on grayskull only matmul, multiply, nop and datacopy can"


@rule("O7.k", "op")
def matmul_k(c: CheckContext, op: NetOp) -> Issues:
    """A matmul has positive m_k and u_kt."""
    if op.type == "matmul":
        for name in ("m_k", "u_kt"):
            if whole(op, name) < 1:
                written = f"{name} {op.attributes[name]}" if name in op.attributes else f"no {name}"
                yield (
                    ("attributes", name) if name in op.attributes else "attributes",
                    written,
                    "the inner dimension is m_k x u_kt tiles, both positive",
                )


@rule("O7.accumulate", "op")
def accumulate_identity(c: CheckContext, op: NetOp) -> Issues:
    """A sparse (identity) matmul does not accumulate."""
    if flag(op, "accumulate") and flag(op, "identity"):
        yield ("attributes", "accumulate"), "accumulate on an identity matmul", "drop one of the two"


@rule("O7.reduce", "op")
def reduce_attributes(c: CheckContext, op: NetOp) -> Issues:
    """A reduce names its dim and type."""
    if op.type != "reduce":
        return
    if word(op, "dim") not in ("r", "c", "rc", "z"):
        yield (
            "attributes",
            f"dim {word(op, 'dim')!r}" if "dim" in op.attributes else "no dim",
            "dims are r, c, rc and z",
        )
    if word(op, "type") not in ("max", "sum"):
        yield "attributes", f"type {word(op, 'type')!r}" if "type" in op.attributes else "no type", "write `type: max`"


@rule("O7.sum", "op", "verify", "note")
def reduced_by_sum(c: CheckContext, op: NetOp) -> Issues:
    """The machine reduces by max only; a sum runs in the simulator alone."""
    if op.type == "reduce" and word(op, "type") == "sum":
        yield (
            ("attributes", "type"),
            "a reduce of type sum runs in the simulator only",
            "on the machine sums are matmuls with ones",
        )


@rule("O7.reduce_df", "op")
def reduce_format(c: CheckContext, op: NetOp) -> Issues:
    """A reduce that accumulates in Float32 has no input with a 5-bit exponent."""
    if op.type == "reduce" and op.acc_df is DataFormat.Float32 and any(i.df.family == "a" for i in op.inputs):
        yield "in_df", f"in_df {op.inputs[0].df} with acc_df Float32", "use a format of the b family, or Float32"


@rule("O7.vector", "op")
def vector(c: CheckContext, op: NetOp) -> Issues:
    """vector is r, c or rc."""
    if "vector" in op.attributes and word(op, "vector") not in ("r", "c", "rc"):
        yield ("attributes", "vector"), f"vector {word(op, 'vector')!r}", "write r, c or rc"


@rule("O7.splice", "op")
def splice_values(c: CheckContext, op: NetOp) -> Issues:
    """A splice has one triple for each input: index >= 0, length > 0, stride >= length."""
    if op.type != "splice":
        return
    for n in range(len(op.inputs)):
        if f"input{n}" not in op.attributes:
            yield "attributes", f"no triple for input {n}", f"write `input{n}: [index, length, stride]`"
    for name, value in op.attributes.items():
        if not name.startswith("input"):
            continue
        if not (isinstance(value, (list, tuple)) and len(value) == 3 and all(isinstance(v, int) for v in value)):
            yield ("attributes", name), f"{name} is {value!r}", "write [index, length, stride]"
        elif value[0] < 0 or value[1] < 1 or value[2] < 1:
            yield ("attributes", name), f"{name} is {list(value)}", "index is 0 or more, length and stride 1 or more"
        elif name[5:].isdigit() and int(name[5:]) >= len(op.inputs):
            yield ("attributes", name), f"{name} of an op with {len(op.inputs)} inputs", "drop it"
        elif value[2] < value[1]:
            yield (
                ("attributes", name),
                f"{name} is {list(value)}: stride {value[2]} is less than length {value[1]}",
                f"index stays, length {value[1]}, stride {value[1]} or more",
            )
    if "granularity" in op.attributes and word(op, "granularity") not in ("ublock", "t"):
        yield ("attributes", "granularity"), f"granularity {word(op, 'granularity')!r}", "write ublock or t"


@rule("O8.relu", "op", "parse")
def relu(c: CheckContext, op: NetOp) -> Issues:
    """relu_threshold is not negative; relu_mode is min, max or none, and not none after relu_en."""
    if number(op, "relu_threshold") < 0:
        yield ("attributes", "relu_threshold"), f"relu_threshold {number(op, 'relu_threshold')}", "write 0 or more"
    if "relu_mode" not in op.attributes:
        return
    mode, keys = word(op, "relu_mode").lower(), list(op.attributes)
    if mode not in ("min", "max", "none"):
        yield ("attributes", "relu_mode"), f"relu_mode {word(op, 'relu_mode')!r}", "write min, max or none"
    elif mode == "none" and flag(op, "relu_en") and keys.index("relu_en") < keys.index("relu_mode"):
        yield ("attributes", "relu_mode"), "relu_mode none after relu_en: true", "write min or max, or drop relu_en"


@rule("O8.rounding", "op", "parse")
def rounding(c: CheckContext, op: NetOp) -> Issues:
    """Stochastic rounding: none, fpu, pack or all; not on grayskull."""
    mode = word(op, "stoch_rnd_mode") or "none"
    if mode.lower() not in ("none", "fpu", "pack", "all"):
        yield ("attributes", "stoch_rnd_mode"), f"stoch_rnd_mode {mode!r}", "write none, fpu, pack or all"
    if c.facts.grayskull:
        for name, on in (("stoch_rnd_mode", mode.lower() != "none"), ("srnd_fpu_en", flag(op, "srnd_fpu_en"))):
            if on:
                yield ("attributes", name), f"{name} on grayskull", "grayskull has no stochastic rounding"


@rule("O8.strips", "op", "parse")
def strips(c: CheckContext, op: NetOp) -> Issues:
    """num_nz_strips has one value for each core."""
    strips = op.attributes.get("num_nz_strips")
    cores = op.grid_size[0] * op.grid_size[1]
    if isinstance(strips, list) and len(strips) != cores:
        yield ("attributes", "num_nz_strips"), f"{len(strips)} values for {cores} cores", f"write {cores}"


@rule("O8.min_buffer", "op", "parse")
def min_buffer(c: CheckContext, op: NetOp) -> Issues:
    """min_buffer_input is 0 or 1; 0 for a depthwise."""
    if "min_buffer_input" in op.attributes:
        most = 0 if op.type in ("depthwise", "buffer") else 1
        if not 0 <= whole(op, "min_buffer_input", -1) <= most:
            yield (
                ("attributes", "min_buffer_input"),
                f"min_buffer_input {op.attributes['min_buffer_input']}",
                "write 0" if most == 0 else "write 0 or 1",
            )


@rule("O8.z", "op", "parse")
def z_after(c: CheckContext, op: NetOp) -> Issues:
    """z stands after `dim: z` of a reduce, after `accumulate: true` of a matmul, and is positive."""
    if "z" not in op.attributes:
        return
    before = dict(list(op.attributes.items())[: list(op.attributes).index("z")])
    if op.type == "reduce" and before.get("dim") != "z":
        yield ("attributes", "z"), "z without `dim: z` before it", "write `dim: z` first"
    if op.type == "matmul" and before.get("accumulate") is not True:
        yield ("attributes", "z"), "z without `accumulate: true` before it", "write `accumulate: true` first"
    if whole(op, "z") < 1:
        yield ("attributes", "z"), f"z {op.attributes['z']}", "write 1 or more"


@rule("O8.dropout", "op", "parse")
def dropout(c: CheckContext, op: NetOp) -> Issues:
    """The probability of a dropout lies in [0, 1]."""
    if "p" in op.attributes and not 0 <= number(op, "p", -1.0) <= 1:
        yield ("attributes", "p"), f"p {op.attributes['p']}", "write a number from 0 to 1"


@rule("O8.sfpu", "op", "parse")
def sfpu_op(c: CheckContext, op: NetOp) -> Issues:
    """sfpu_op names an sfpu op."""
    name = word(op, "sfpu_op").lower()
    if name and name not in SFPU | NOP | {"none", "invalid"}:
        yield ("attributes", "sfpu_op"), f"sfpu_op {word(op, 'sfpu_op')!r}", f"one of {', '.join(sorted(SFPU))}"


@rule("O8.thread", "op", "parse")
def thread(c: CheckContext, op: NetOp) -> Issues:
    """sfpu_execution_thread is math or pack."""
    if "sfpu_execution_thread" in op.attributes and word(op, "sfpu_execution_thread").lower() not in ("math", "pack"):
        yield ("attributes", "sfpu_execution_thread"), f"{word(op, 'sfpu_execution_thread')!r}", "write math or pack"


@rule("O8.channels", "op", "parse")
def channels(c: CheckContext, op: NetOp) -> Issues:
    """Ethernet channels are listed, and the destination is a chip id."""
    for name in ("ingress_channels", "egress_channels"):
        if name in op.attributes and not op.attributes[name]:
            yield ("attributes", name), f"{name} is empty", "list the channels, or leave it out"
    if "dest_device" in op.attributes and whole(op, "dest_device", -1) < 0:
        yield ("attributes", "dest_device"), f"dest_device {op.attributes['dest_device']}", "write a chip id"


@rule("O8.kernel_broadcast", "op", "parse")
def kernel_broadcast(c: CheckContext, op: NetOp) -> Issues:
    """kernel_broadcast names inputs that exist, each once, with a positive number of tiles."""
    seen: set[str] = set()
    for name in ("kernel_broadcast", "kernel_broadcast_per_t"):
        counts = op.attributes.get(name)
        for key, tiles in counts.items() if isinstance(counts, dict) else ():
            index = key[6:] if key.startswith("input_") else ""
            if not (index.isascii() and index.isdigit() and len(index) < 4 and int(index) < len(op.inputs)):
                yield ("attributes", name), f"{name} of {key!r}", f"inputs are input_0 to input_{len(op.inputs) - 1}"
            elif key in seen:
                yield ("attributes", name), f"{key} has a kernel broadcast already", "keep one"
            if not isinstance(tiles, int) or tiles < 1:
                yield ("attributes", name), f"{tiles} tiles for {key}", "write 1 or more"
            seen.add(key)
    for index in op.attributes.get("single_tile") or ():
        if not isinstance(index, int) or not 0 <= index < len(op.inputs):
            yield ("attributes", "single_tile"), f"no input {index}", f"inputs are 0 to {len(op.inputs) - 1}"
