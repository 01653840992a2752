"""Cases: graphs, ops, attributes, TMs, tile sizes."""

from __future__ import annotations

from tbuda_lab.core.formats import DataFormat as D
from tbuda_lab.core.netlist.schema import (
    Netlist,
)
from tests.netlist import builders as b
from tests.netlist.builders import op, tm
from tests.netlist.rules.common import (
    both,
    case,
    on_blocking,
    on_op,
    on_queue,
    q,
    the_op,
    with_df,
    with_tms,
)

# -- graphs and ops ---------------------------------------------------------------------------------------------------
case("G1.any", b.unary, lambda n: n.graphs.clear(), "graphs")
case("G1", b.unary, lambda n: setattr(n.graphs["g"], "input_count", 0), "graphs/g/input_count")
case("G1", b.unary, lambda n: setattr(n.graphs["g"], "target_device", -3), "graphs/g/target_device")
case("G2", b.two_counts, lambda n: n.graphs["g1"].ops.__setitem__("a", n.graphs["g0"].ops["a"]), "graphs/g1/a")
case("G3", b.unary, lambda n: setattr(the_op(n).inputs[0], "source", "y"), "graphs/g/op0/inputs")
case("G3.link", b.two_chips, lambda n: setattr(n.graphs["g1"], "target_device", 0), "graphs/g1/b/inputs")
case("G3.cycle", b.chain, lambda n: setattr(the_op(n).inputs[0], "source", "b"), "graphs/g/a/inputs")
case("O4.type", b.unary, on_op(type="sinh"), "graphs/g/op0/type")
case("O1", b.unary, on_op(attributes={"m_j": 1}), "graphs/g/op0/attributes/m_j")
case("O1", b.matmul, on_op(attributes={"approximate_mode": True}), "mm/attributes/approximate_mode")
case(
    "O1",
    lambda: b.unary("nop"),
    on_op(attributes={"sfpu_execution_thread": "math"}),
    "attributes/sfpu_execution_thread",
)
case("O4.arity", b.matmul, on_op(attributes={"bias": True}), "graphs/g/mm/inputs")
case("O4.unread", b.matmul, lambda n: the_op(n).inputs.append(the_op(n).inputs[0]), "graphs/g/mm/inputs")
case("O4.arity", b.binary, lambda n: the_op(n).inputs.pop(), "graphs/g/op0/inputs")
case("O4.formats", b.unary, on_op(out_df=D.Invalid), "graphs/g/op0/out_df")
case("O4.formats", b.unary, on_op(intermed_df=None), "graphs/g/op0/intermed_df")
case("O4.fidelity", b.unary, on_op(math_fidelity="HiFi5"), "graphs/g/op0/math_fidelity")
case("O4.fidelity", b.unary, on_op(math_fidelity=None), "graphs/g/op0/math_fidelity")
case("O4.buf_size_mb", b.unary, on_op(buf_size_mb=None), "graphs/g/op0/buf_size_mb")
case("O4.buf_size_mb", b.unary, on_op(buf_size_mb=-1), "graphs/g/op0/buf_size_mb")
case("O4.blocking", b.unary, on_blocking(the_op, ublock=(0, 1)), "graphs/g/op0/ublock")
case("O4.blocking", b.unary, on_blocking(the_op, order=None), "graphs/g/op0/ublock_order")
case("O4.grid", b.unary, on_op(grid_size=(0, 2)), "graphs/g/op0/grid_size")
case("O4.grid", b.unary, on_op(grid_loc=None), "graphs/g/op0/grid_loc")
case("O4.matmul_order", b.matmul, on_blocking(the_op, order="c"), "graphs/g/mm/ublock_order")
case("O4.forks", b.unary, on_op(forked_dram_inputs=[{"x": "op0"}, {"x": "op0"}]), "graphs/g/op0/forked_dram_inputs")
case("O4.per_input", b.unary, on_op(input_buf_min_size_tiles=[0, 4]), "graphs/g/op0/input_buf_min_size_tiles")
case("O4.per_input", b.unary, on_op(input_dram_io_buf_size_tiles=[-4]), "op0/input_dram_io_buf_size_tiles")
case("O7.tile_dim", b.unary, on_op(tile_dim=(16, 32)), "graphs/g/op0/tile_dim", "grayskull")
case("O7.tile_dim", b.unary, on_op(tile_dim=(16, 8)), "graphs/g/op0/tile_dim")


case("O5", b.untilized, on_blocking(the_op, order="c"), "graphs/g/op0/ublock_order")
case("O5", b.untilized, on_op(out_df=D.Bfp8_b), "graphs/g/op0/out_df")
case("O5", b.untilized, on_op(out_df=D.Int32), "graphs/g/op0/out_df", "grayskull")
case("O6", lambda: b.unary("exp"), on_op(gradient_op=True), "graphs/g/op0/gradient_op", "grayskull")
case("O7.k", b.matmul, lambda n: the_op(n).attributes.pop("u_kt"), "graphs/g/mm/attributes")
case("O7.k", b.matmul, on_op(attributes={"m_k": 0}), "graphs/g/mm/attributes/m_k")
case("O7.accumulate", b.identity, on_op(attributes={"accumulate": True}), "graphs/g/mm/attributes/accumulate")
case("O7.reduce", b.reduce, lambda n: the_op(n).attributes.pop("dim"), "graphs/g/red/attributes")
case("O7.reduce", b.reduce, on_op(attributes={"type": "mean"}), "graphs/g/red/attributes")
case("O8.sfpu", b.matmul, on_op(attributes={"sfpu_op": "gelo"}), "graphs/g/mm/attributes/sfpu_op")
case("O7.sum", b.reduce, on_op(attributes={"type": "sum"}), "graphs/g/red/attributes/type")
case("O7.reduce_df", lambda: b.reduce(acc_df=D.Float32), with_df(0, D.Float16), "graphs/g/red/in_df")
case("O7.vector", b.unary, on_op(attributes={"vector": "x"}), "graphs/g/op0/attributes/vector")
case("O7.splice", b.splice, lambda n: the_op(n).attributes.pop("input1"), "graphs/g/cat/attributes")
case("O7.splice", b.splice, on_op(attributes={"input0": [0, 0, 1]}), "graphs/g/cat/attributes/input0")
case("O7.splice", b.splice, on_op(attributes={"input5": [0, 1, 1]}), "graphs/g/cat/attributes/input5")
case("O7.splice", b.splice, on_op(attributes={"input0": [0, 2, 1]}), "graphs/g/cat/attributes/input0")
case("O7.splice", b.splice, on_op(attributes={"granularity": "z"}), "graphs/g/cat/attributes/granularity")
case("O8.relu", b.unary, on_op(attributes={"relu_threshold": -1.0}), "graphs/g/op0/attributes/relu_threshold")
case("O8.relu", b.unary, on_op(attributes={"relu_mode": "mean"}), "graphs/g/op0/attributes/relu_mode")
case("O8.relu", b.unary, on_op(attributes={"relu_en": True, "relu_mode": "none"}), "attributes/relu_mode")
case("O8.rounding", b.unary, on_op(attributes={"stoch_rnd_mode": "fpu"}), "attributes/stoch_rnd_mode", "grayskull")
case("O8.rounding", b.unary, on_op(attributes={"stoch_rnd_mode": "odd"}), "attributes/stoch_rnd_mode")
case("O8.strips", b.identity, on_op(attributes={"num_nz_strips": [1]}), "graphs/g/mm/attributes/num_nz_strips")
case("O8.min_buffer", b.matmul, on_op(attributes={"min_buffer_input": 2}), "graphs/g/mm/attributes/min_buffer_input")
case("O8.z", b.matmul, on_op(attributes={"z": 2}), "graphs/g/mm/attributes/z")
case("O8.z", b.reduce, on_op(attributes={"z": 1}), "graphs/g/red/attributes/z")
case("O8.dropout", lambda: b.unary("dropout"), on_op(attributes={"p": 1.5}), "graphs/g/op0/attributes/p")
case("O8.thread", b.unary, on_op(attributes={"sfpu_execution_thread": "unpack"}), "attributes/sfpu_execution_thread")
case(
    "O8.channels", lambda: b.unary("ethernet_datacopy"), on_op(attributes={"ingress_channels": []}), "ingress_channels"
)
case("O8.channels", lambda: b.unary("ethernet_datacopy"), on_op(attributes={"dest_device": -1}), "dest_device")
case("O8.kernel_broadcast", b.unary, on_op(attributes={"kernel_broadcast": {"input_1": 4}}), "kernel_broadcast")
case("O8.kernel_broadcast", b.unary, on_op(attributes={"single_tile": [3]}), "single_tile")
case("O9.transpose", b.matmul, with_tms(0, tm("transpose")), "graphs/g/mm/input_0_tms")
case("O9.transpose", b.binary, with_tms(1, tm("transpose")), "graphs/g/op0/input_1_tms")
case("O9.transpose", b.binary, with_tms(0, tm("transpose")), "graphs/g/op0/input_0_tms", "grayskull")
case("O9.transpose", b.reduce, with_tms(0, tm("transpose")), "graphs/g/red/input_0_tms")
case("O9.names", b.unary, with_tms(0, tm("tile_broadcast", "r")), "graphs/g/op0/input_0_tms")
case("O9.names", b.unary, with_tms(0, tm("pad", 0, 0, 0), tm("pad", 0, 0, 0)), "graphs/g/op0/input_0_tms")
case("O9.pad", b.unary, lambda n: setattr(the_op(n).inputs[0], "pad", {"rt": -1, "ct": 0}), "graphs/g/op0/input_0_pad")
case("O10", b.unary, both(on_blocking(the_op, ublock=(4, 3)), on_queue("op0.out")), "graphs/g/op0/ublock")


# -- tiny tiles -------------------------------------------------------------------------------------------------------
def tiny(n: Netlist, dim: tuple[int, int], *names: str) -> None:
    for name in names:
        q(n, name).tile_dim = dim


case("O11.inputs", b.reduce, lambda n: tiny(n, (16, 32), "x"), "graphs/g/red/inputs")
case("O11.inputs", b.matmul_bias, lambda n: tiny(n, (16, 32), "b"), "graphs/g/mm/inputs")
case(
    "O11.integers",
    lambda: b.unary("nop", df=D.Int8, acc_df=D.Int32, fidelity="HiFi4"),
    lambda n: tiny(n, (16, 32), "x"),
    "graphs/g/op0/in_df",
)
case(
    "O11.vector",
    b.unary,
    both(on_op(tile_dim=(16, 32), attributes={"vector": "c"}), lambda n: tiny(n, (16, 32), "x", "op0.out")),
    "graphs/g/op0/attributes/vector",
)
case("O11.binary", b.binary, lambda n: tiny(n, (16, 32), "y"), "graphs/g/op0/inputs")
case("O11.narrow", b.unary, lambda n: tiny(n, (32, 16), "x"), "graphs/g/op0/tile_dim")
case("O11.narrow", b.matmul, both(on_op(tile_dim=(32, 16)), lambda n: tiny(n, (32, 16), "mm.out")), "mm/tile_dim")
case(
    "O11.gradient",
    lambda: b.unary("nop"),
    both(on_op(gradient_op=True), lambda n: tiny(n, (16, 32), "x")),
    "op0/tile_dim",
)
case("O11.gradient", b.matmul, both(on_op(attributes={"sfpu_op": "gelu"}), lambda n: tiny(n, (16, 32), "x")), "sfpu_op")
case(
    "O11.reduce",
    lambda: b.reduce("r"),
    both(on_op(tile_dim=(32, 16)), lambda n: tiny(n, (32, 16), "red.out")),
    "graphs/g/red/tile_dim",
)
case("O11.reduce", b.reduce, both(on_op(tile_dim=(16, 32)), lambda n: tiny(n, (16, 32), "red.out")), "red/tile_dim")
case(
    "O11.transpose",
    lambda: b.build(
        [op("mm", "matmul", ["x", "w"], attributes={"m_k": 2, "u_kt": 2}, tms={1: [tm("transpose")]})],
        {"x": (1, 2, 4), "w": (1, 2, 4)},
    ),
    lambda n: tiny(n, (8, 32), "w"),
    "graphs/g/mm/input_1_tms",
)
