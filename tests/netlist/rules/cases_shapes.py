"""Cases: shapes, and the device."""

from __future__ import annotations

from tbuda_lab.core.netlist.schema import (
    QueueBuffer,
)
from tests.netlist import builders as b
from tests.netlist.builders import op, queue, tm
from tests.netlist.rules.common import (
    case,
    on_blocking,
    on_op,
    on_queue,
    q,
    the_op,
    with_tms,
)

# -- shapes -----------------------------------------------------------------------------------------------------------
case("S1", b.unary, with_tms(0, tm("hslice", 3)), "graphs/g/op0/input_0_tms")
case("S1", b.unary, with_tms(0, tm("vstack", 2)), "graphs/g/op0/input_0_tms")
case("S1", b.unary, lambda n: setattr(the_op(n).inputs[0], "unpad", {"rt": 2, "ct": 0}), "graphs/g/op0/input_0_unpad")
case("S2", b.unary, with_tms(0, tm("broadcast", r=2)), "graphs/g/op0/input_0_tms")
case("S2", b.matmul, on_op(attributes={"m_k": 4}), "graphs/g/mm/inputs")
case("S2", b.matmul, on_blocking(lambda n: q(n, "w"), mblock=(3, 2)), "graphs/g/mm/inputs")
case("S2", b.matmul_bias, with_tms(2), "graphs/g/mm/inputs")
case("S2", b.depthwise, on_op(attributes={"m_k": 2}), "graphs/g/dw/inputs")
case("S2", lambda: b.reduce("z"), on_op(attributes={"z": 4}), "graphs/g/red/inputs")
case(
    "S3",
    lambda: b.build(
        [op("mm", "matmul", ["x", "w"], attributes={"m_k": 2, "u_kt": 2})], {"x": (1, 2, 4), "w": (1, 4, 2)}
    ),
    on_blocking(lambda n: q(n, "w"), t=3),
    "graphs/g/mm/inputs",
)
case("S4", b.unary, on_blocking(lambda n: q(n, "op0.out"), t=2), "queues/op0.out")
case("S4", b.unary, on_queue("op0.out", input_tms=[tm("hslice", 3)]), "queues/op0.out/input_tms")
case("S5", b.reduce, on_blocking(the_op, mblock=(2, 2)), "graphs/g/red/mblock")
case("S6", b.splice, on_op(attributes={"input0": [2, 1, 1]}), "graphs/g/cat/attributes/input0")
case("S6", b.splice, on_op(attributes={"input0": [1, 1, 2]}), "graphs/g/cat/attributes/input0")
case(
    "S7", b.unary, lambda n: n.queues.update(y=queue("y", (1, 1, 1), buffers=[QueueBuffer(1, 0x20000000)])), "queues/y"
)
case("D4", b.unary, lambda n: n.order.reverse(), "queues")

# -- placement --------------------------------------------------------------------------------------------------------
case("R4", b.unary, on_op(grid_loc=(9, 8)), "graphs/g/op0/grid_loc")
case("R4", b.unary, on_op(grid_loc=(-1, 0)), "graphs/g/op0/grid_loc")
case("R3.channel", b.unary, lambda n: q(n).buffers.__setitem__(0, QueueBuffer(6, 0x20000000)), "queues/x/dram")
case("R3.capacity", b.unary, lambda n: q(n).buffers.__setitem__(0, QueueBuffer(0, 0x7FFFFFE0)), "queues/x/dram")
case("R3.reserved", b.unary, lambda n: q(n).buffers.__setitem__(0, QueueBuffer(0, 0x1000)), "queues/x/dram")
case("R3.aligned", b.unary, lambda n: q(n).buffers.__setitem__(0, QueueBuffer(0, 0x20000010)), "queues/x/dram")
case("R2", b.unary, on_queue("op0.out", loc="host", buffers=[QueueBuffer(4, 0)]), "queues/op0.out/host")
case("R2", b.unary, on_queue("op0.out", loc="host", buffers=[QueueBuffer(0, 1 << 30)]), "queues/op0.out/host")
case("R1", b.unary, on_queue(target_device=1), "graphs/g/op0/inputs", "grayskull")
case("R1.output", b.unary, on_queue("op0.out", target_device=1), "queues/op0.out/dram", "grayskull")
case("R5", b.binary, lambda n: setattr(q(n, "y"), "buffers", list(q(n, "x").buffers)), "queues/y/dram")
case(
    "R5",
    lambda: b.build([op("o", "nop", ["x"], grid=(2, 1))], {"x": (1, 2, 2)}),
    lambda n: setattr(q(n, "o.out"), "buffers", [QueueBuffer(1, 0x20000000), QueueBuffer(1, 0x20000000)]),
    "queues/o.out/dram",
)
case(
    "R5",  # two rams in one place are views of one memory only if one is the other's alias
    lambda: b.build(
        [op("o", "add", ["v", "w"])],
        None,
        [queue("v", (1, 2, 2), kind="ram", entries=1), queue("w", (1, 2, 2), kind="ram", entries=1)],
    ),
    lambda n: setattr(q(n, "w"), "buffers", list(q(n, "v").buffers)),
    "queues/w/dram",
)
case("R6", b.unary, on_op(buf_size_mb=1000), "graphs/g/op0")
case("R6", b.unary, on_op(overlay_size=1 << 21), "graphs/g/op0")
