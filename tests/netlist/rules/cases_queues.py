"""Cases: devices and queues."""

from __future__ import annotations

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
    on_queue,
    q,
    the_op,
)

case("D2", b.unary, lambda n: n.arch.__setitem__(0, "wormhole_c0"), "devices/arch")
case("D2", b.unary, lambda n: n.arch.clear(), "devices/arch")
case("Q4", b.unary, on_queue(buffers=[]), "queues/x/dram")
case("Q5", b.unary, lambda n: q(n).buffers.__setitem__(0, QueueBuffer(0, 0x20000020)), "queues/x/dram", "blackhole")
case("Q6", b.unary, on_queue(read_ports=[0]), "queues/x/read_ports", "grayskull")
case("Q6", b.unary, on_queue(write_ports=[3]), "queues/x/write_ports")
case("Q6", b.unary, on_queue(read_ports=[0, 1]), "queues/x/read_ports")
case("Q7", b.unary, on_queue(tile_dim=(16, 32)), "queues/x/tile_dim", "grayskull")
case("Q7", b.unary, on_queue(tile_dim=(16, 16)), "queues/x/tile_dim")
case("Q9.any", b.unary, lambda n: n.queues.clear(), "queues")
case("Q9.type", b.unary, on_queue(type="fifo"), "queues/x/type")
case("Q9.target_device", b.unary, on_queue(target_device=-2), "queues/x/target_device")
case("Q9.entries", b.unary, on_queue(entries=0), "queues/x/entries")
case("Q9.blocking", b.unary, on_blocking(q, t=0), "queues/x/t")
case("Q9.blocking", b.unary, on_blocking(q, mblock=(2, 0)), "queues/x/mblock")
case("Q9.grid", b.unary, on_queue(grid_size=(0, 1)), "queues/x/grid_size")
case("Q9.df", b.unary, on_queue(df=D.Invalid), "queues/x/df")
case("Q9.layout", b.unary, on_queue(layout="row_major"), "queues/x/layout")
case("Q9.buffers", b.unary, lambda n: q(n).buffers.append(QueueBuffer(1, 0x40000000)), "queues/x/dram")
case("Q9.buffers", b.unary, on_queue(loc="", buffers=[]), "queues/x")
case("Q10.producer", b.unary, on_queue("op0.out", input="op1"), "queues/op0.out/input")
case("Q10.producer", b.unary, on_queue("x", input=""), "queues/x")
case("Q10.tile_dim", b.unary, on_queue("op0.out", tile_dim=(16, 32)), "queues/op0.out/tile_dim")
case("Q11", b.unary, on_queue("op0.out", input_tms=[tm("pad", 1, 0, 0)]), "queues/op0.out/input_tms")
case("Q11", b.unary, on_queue("op0.out", input_tms=[tm("transpose")]), "queues/op0.out/input_tms")


def aliased() -> Netlist:
    n = b.build(
        [op("a", "nop", ["x"]), op("c", "nop", ["view"], (2, 2, 2), loc=(0, 1))],
        {"x": (1, 2, 2)},
        [queue("base", (1, 2, 2), source="a", kind="ram", entries=4)],
    )
    n.queues["view"] = queue(
        "view", (2, 2, 2), kind="ram", entries=2, alias="base", buffers=list(n.queues["base"].buffers)
    )
    n.programs = [b.main_program(n)]
    return n


case("Q12", aliased, on_queue("view", alias="view"), "queues/view/alias")
case("Q12", aliased, on_queue("view", alias="nothing"), "queues/view/alias")
case("Q12", aliased, on_queue("base", alias="x"), "queues/view/alias")
case("Q12", aliased, on_queue("base", type="queue"), "queues/view/alias")
case("Q12", aliased, on_queue("view", buffers=[QueueBuffer(3, 0x10000000)]), "queues/view/alias")
case("Q12", aliased, on_queue("view", entries=4), "queues/view/alias")
case(
    "Q12",
    aliased,
    both(
        on_queue("base", entries=3),
        on_queue("view", entries=2, grid_size=(1, 1)),
        on_blocking(lambda n: q(n, "view"), t=1, mblock=(3, 2)),
        on_blocking(lambda n: q(n, "base"), mblock=(2, 2)),
    ),
    "queues/view/entries",
)


case("Q13", b.two_counts, lambda n: setattr(n.graphs["g1"], "input_count", 2), "queues/x")

# no op of type buffer is valid (O4.type), but its rule names the row first
case("O3", b.unary, lambda n: setattr(the_op(n), "type", "buffer"), "graphs/g/op0/mblock")
