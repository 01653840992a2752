"""Cases: formats, integers, special ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tbuda_lab.core.formats import DataFormat as D
from tbuda_lab.core.netlist.schema import (
    Netlist,
    QueueBuffer,
)
from tests.netlist import builders as b
from tests.netlist.builders import op, queue, tm
from tests.netlist.rules.common import (
    both,
    case,
    on_blocking,
    on_op,
    on_queue,
    the_op,
    with_df,
    with_tms,
)

# -- formats ----------------------------------------------------------------------------------------------------------
case("O14.grayskull", b.unary, on_op(acc_df=D.Float32), "graphs/g/op0/acc_df", "grayskull")
case("O14.grayskull", b.matmul, on_op(intermed_df=D.Float16), "graphs/g/mm/intermed_df", "grayskull")
case("O14.intermed", b.matmul, on_op(intermed_df=D.Bfp4_b), "graphs/g/mm/intermed_df")
case(
    "O14.acc",
    lambda: b.matmul({"l1_acc": True}, intermed_df=D.Float32, acc_df=D.Float32),
    on_op(intermed_df=D.Float16_b),
    "graphs/g/mm/intermed_df",
)
case("O14.a0", b.unary, on_op(acc_df=D.Float32), "graphs/g/op0/in_df", "wormhole")
case("O14.rounding", lambda: b.unary(attributes={"stoch_rnd_mode": "fpu"}), on_op(acc_df=D.Float32), "stoch_rnd_mode")
case("O14.rounding", lambda: b.unary(attributes={"stoch_rnd_mode": "pack"}), on_op(out_df=D.Bfp8_b), "stoch_rnd_mode")
case("O14.gradient", b.gradient, on_op(intermed_df=D.Bfp8_b), "graphs/g/mm/intermed_df")
case("O14.gradient", lambda: b.binary("maximum"), on_op(gradient_op=True), "graphs/g/op0/gradient_op")
case(
    "O15.untilize",
    lambda: b.matmul({"m_k": 1, "u_kt": 4}, untilize_output=True),
    on_op(attributes={"m_k": 2, "u_kt": 2}),
    "graphs/g/mm/untilize_output",
)
case("O15.untilize", lambda: b.reduce("z"), on_op(untilize_output=True), "graphs/g/red/untilize_output")
case("O15.kernel_broadcast", b.unary, on_op(attributes={"kernel_broadcast": {"input_0": 4}}), "kernel_broadcast")
case(
    "O15.kernel_broadcast",
    lambda: b.matmul_bias({"kernel_broadcast": {"input_2": 2}}),
    both(
        lambda n: the_op(n).attributes.update(kernel_broadcast={"input_1": 3}),
        with_tms(1, tm("broadcast", r=1)),
        on_blocking(the_op, ublock=(1, 2), mblock=(2, 1)),
    ),
    "kernel_broadcast",
)
case("O15.identity", b.identity, with_df(2, D.Float32), "graphs/g/mm/in_df")
case("O15.identity", b.identity, with_tms(2, tm("hslice", 1)), "graphs/g/mm/input_2_tms")
case("O15.identity", b.identity, on_op(gradient_op=True), "graphs/g/mm/gradient_op")
case("O15.reduce_z", lambda: b.reduce("z"), on_op(out_df=D.Bfp8_b), "graphs/g/red/out_df")
case("O15.splice", b.splice, with_df(1, D.Bfp8_b), "graphs/g/cat/in_df")
case("O15.l1_acc", b.matmul, on_op(attributes={"l1_acc": True}), "graphs/g/mm/attributes/l1_acc", "grayskull")
case("O15.l1_acc", b.matmul, on_op(intermed_df=D.Bfp8_b, attributes={"l1_acc": True}), "graphs/g/mm/intermed_df")


def int8(kind: str = "add", **fields: Any) -> Callable[[], Netlist]:
    return lambda: b.binary(kind, df=D.Int8, acc_df=D.Int32, fidelity="HiFi4", **fields)


def int_matmul(**attributes: Any) -> Callable[[], Netlist]:
    return lambda: b.matmul(attributes, in_df=[D.Int8, D.Int8], out_df=D.Int32, acc_df=D.Int32, fidelity="HiFi4")


case("O16.outputs", int8(), on_op(out_df=D.Float16_b), "graphs/g/op0/out_df")
case("O16.math", int8(), on_op(math_fidelity="HiFi3"), "graphs/g/op0/math_fidelity")
case("O16.math", int8(), on_op(acc_df=D.Float32), "graphs/g/op0/acc_df")
case("O16.math", b.binary, on_op(acc_df=D.Int32), "graphs/g/op0/acc_df")
case("O16.binary", int8("multiply"), with_df(0, D.Int32), "graphs/g/op0/in_df")
case(
    "O16.quant",
    lambda: b.binary("quantization", in_df=[D.Float32, D.Float32], out_df=D.Int8, acc_df=D.Int32),
    with_df(0, D.Float16_b),
    "graphs/g/op0/in_df",
)
case("O16.matmul", int_matmul(), with_df(0, D.Int32), "graphs/g/mm/in_df")
case("O16.right", int_matmul(), with_df(1, D.Int32), "graphs/g/mm/in_df")
case("O16.matmul", int_matmul(), on_op(attributes={"l1_acc": True}), "graphs/g/mm/attributes/l1_acc")
case("O16.matmul", int_matmul(), on_op(attributes={"requant": True, "dequant": True}), "graphs/g/mm/attributes/dequant")
case("O16.unsigned", lambda: b.unary("nop"), with_df(0, D.UInt16), "graphs/g/op0/in_df")
case("O16.arch", int8(), lambda n: None, "graphs/g/op0/in_df", "grayskull")


def topk() -> Netlist:
    return b.build(
        [
            op(
                "top",
                "topk",
                ["x", "i"],
                (1, 2, 1),
                in_df=[b.F16B, D.UInt16],
                out_df=D.UInt16,
                attributes={"k": 32, "sort": "argmax", "m_k": 1, "u_kt": 2},
            )
        ],
        {"x": (1, 2, 2)},
        [queue("i", (1, 2, 2), df=D.UInt16)],
    )


case("O16.topk", topk, on_op(out_df=D.Float16_b), "graphs/g/top/out_df")
case("O10", topk, on_op(attributes={"u_kt": 16}), "graphs/g/top/attributes/u_kt")

# -- special ops ------------------------------------------------------------------------------------------------------
case("O12", b.untilized, lambda n: n.queues.pop("op0.out"), "graphs/g/op0/untilize_output")
case(
    "O12",
    b.untilized,
    on_queue("op0.out", grid_size=(2, 1), buffers=[QueueBuffer(0, 0x30000000), QueueBuffer(1, 0x30000000)]),
    "graphs/g/op0/untilize_output",
)
case("O12", b.chain, lambda n: setattr(the_op(n), "untilize_output", True), "graphs/g/a/untilize_output")
case("O13", b.chain, lambda n: setattr(n.graphs["g"].ops["b"], "grid_loc", (0, 0)), "graphs/g/b/grid_loc")
case(
    "O13",
    lambda: b.build(
        [op("a", "nop", ["x"], (1, 2, 2), grid=(1, 2)), op("c", "nop", ["x"], loc=(1, 0))], {"x": (1, 2, 2)}
    ),
    lambda n: setattr(the_op(n), "grid_transpose", True),
    "graphs/g/c/grid_loc",
)


def embedding() -> Netlist:
    return b.build(
        [
            op(
                "emb",
                "embedding",
                ["table", "ids"],
                (1, 1, 2),
                in_df=[b.F16B, D.RawUInt32],
                attributes={"num_indices": 32},
            )
        ],
        {},
        [queue("table", (1, 4, 2), kind="ram", entries=1, layout="flat"), queue("ids", (1, 1, 1), df=D.RawUInt32)],
    )


case("O17.embedding", embedding, on_op(attributes={"num_indices": 40}), "graphs/g/emb/attributes/num_indices")
case("O17.embedding", embedding, on_op(attributes={"num_indices": 64}), "graphs/g/emb/mblock")
case("O17.tilizer", lambda: b.unary("tilizer"), with_tms(0, tm("hslice", 1)), "graphs/g/op0/input_0_tms")
case(
    "O17.tilizer", lambda: b.unary("tilizer"), on_blocking(the_op, ublock=(2, 1), mblock=(1, 2)), "graphs/g/op0/ublock"
)


case("O17.depthwise", b.depthwise, on_op(attributes={"u_kt": 3, "m_k": 1}), "graphs/g/dw/attributes")
case("O8.min_buffer", b.depthwise, on_op(attributes={"min_buffer_input": 1}), "graphs/g/dw/attributes/min_buffer_input")
case("O18", b.unary, on_op(forked_dram_inputs=[{"x": "op7"}]), "graphs/g/op0/forked_dram_inputs")
case("O18", b.unary, on_op(forked_dram_inputs=[{"y": "op0"}]), "graphs/g/op0/forked_dram_inputs")
