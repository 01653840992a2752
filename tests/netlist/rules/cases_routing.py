"""Cases: what the router refuses."""

from __future__ import annotations

from tbuda_lab.core.device import load_device
from tbuda_lab.core.netlist.schema import Execute, Netlist, QueueBuffer
from tests.netlist import builders as b
from tests.netlist.builders import fused, op, sub, tm
from tests.netlist.rules.common import (
    Change,
    both,
    case,
    execute,
    on_blocking,
    on_op,
    on_queue,
    q,
    setting,
    the_op,
    with_tms,
)


def stacked(size: int) -> Netlist:
    """Four slices side by side on three columns of cores, with an output buffer of `size` mblocks."""
    return b.build(
        [
            op("a", "nop", ["x"], (4, 2, 3), buf_size_mb=size),
            op("c", "nop", ["a"], (1, 2, 12), grid=(1, 3), loc=(0, 1), tms={0: [tm("hstack", 4)]}),
        ],
        {"x": (4, 2, 3)},
    )


def many_inputs(dram: int) -> Netlist:
    """The sum of nine operands, `dram` of them queues and the others the output of one op."""
    names = [f"x{k}" for k in range(dram)] + ["a"] * (9 - dram)
    steps = [sub("s0", "add", ["input0", "input1"], "dest", mblock=(2, 2))]
    steps += [
        sub(f"s{k}", "add", ["dest", f"input{k + 1}"], "dest" if k < 7 else "output", mblock=(2, 2))
        for k in range(1, 8)
    ]
    ops = [op("a", "nop", ["x0"])] if dram < 9 else []
    ops.append(op("f", "fused_op", names, loc=(0, 1), attributes={"fused_op_id": "0"}))
    return b.build(ops, {f"x{k}": (1, 2, 2) for k in range(max(dram, 1))}, fused_ops=[fused("0", 9, [steps])])


def many_inputs_from_dram(n: Netlist) -> None:
    n.__dict__.update(many_inputs(9).__dict__)


def many_readers(n: Netlist) -> None:
    """25 cores read what one core writes."""
    reader = n.graphs["g"].ops["c"]
    reader.grid_size, reader.blocking.mblock = (5, 5), (1, 1)
    out = n.queues["c.out"]
    out.grid_size, out.blocking.mblock = (5, 5), (1, 1)
    out.buffers[:] = [QueueBuffer(k % 6, 0x30000000 + k * 0x10000) for k in range(25)]


def wide() -> Netlist:
    return b.build(
        [op("a", "nop", ["x"], (1, 5, 5)), op("c", "nop", ["a"], (1, 5, 5), grid=(5, 1), loc=(0, 1))], {"x": (1, 5, 5)}
    )


def one_buffer(n: Netlist) -> None:
    out = q(n, "o.out")
    out.grid_size, out.blocking.mblock = (1, 1), (2, 2)
    del out.buffers[1:]


case("N1", b.reduce, on_blocking(the_op, order="c"), "graphs/g/red/ublock_order")
case("N1", b.depthwise, on_blocking(the_op, order="c"), "graphs/g/dw/ublock_order")
case("N2", b.unary, on_op(buf_size_mb=3), "graphs/g/op0/buf_size_mb")
case("N2", lambda: stacked(8), on_op(buf_size_mb=6), "graphs/g/a/buf_size_mb")
case("N3", lambda: stacked(8), on_op(buf_size_mb=2), "graphs/g/c/input_0_tms")
case("N3", b.reduce, with_tms(0, tm("transpose")), "graphs/g/red/input_0_tms")
case("N4", lambda: b.build([op("o", "nop", ["x"], grid=(2, 1))], {"x": (1, 2, 2)}), one_buffer, "o.out/grid_size")
case("N5", wide, many_readers, "graphs/g/a")
case("N6", lambda: many_inputs(8), many_inputs_from_dram, "graphs/g/f/inputs")


def in_two_buffers() -> Netlist:
    """Two rows of cores read a queue of two buffers."""
    return b.build([op("a", "nop", ["x"], (1, 2, 2), grid=(2, 1))], queues=[b.queue("x", (1, 2, 2), grid=(2, 1))])


def half_is_dropped(n: Netlist) -> None:
    """Only the first buffer is left."""
    reader = the_op(n)
    reader.inputs[0].unpad = {"rt": 1, "ct": 0}
    for element in (reader, q(n, "a.out")):
        element.grid_size = (1, 1)
    del q(n, "a.out").buffers[1:]


def read_four_times() -> Netlist:
    """64 cores read one buffer in three operands, and another one in the fourth."""
    steps = [
        sub("s0", "add", ["input0", "input1"], "dest"),
        sub("s1", "add", ["dest", "input2"], "dest"),
        sub("s2", "add", ["dest", "input3"], "output"),
    ]
    ops = [op("f", "fused_op", ["x", "x", "x", "y"], (1, 8, 8), grid=(8, 8), attributes={"fused_op_id": "0"})]
    return b.build(ops, {"x": (1, 8, 8), "y": (1, 8, 8)}, fused_ops=[fused("0", 4, [steps])])


def by_all_operands(n: Netlist) -> None:
    """256 pipes from one buffer; the other queue goes."""
    the_op(n).inputs[3].source = "x"
    del n.queues["y"], execute(n).settings["y"]


def of_many_operands(n: Netlist) -> None:
    """25 operands in place of 9."""
    n.__dict__.update(fused_sum(25).__dict__)


def fused_sum(count: int) -> Netlist:
    steps = [sub("s0", "add", ["input0", "input1"], "dest", mblock=(2, 2))]
    steps += [
        sub(f"s{k}", "add", ["dest", f"input{k + 1}"], "dest" if k < count - 2 else "output", mblock=(2, 2))
        for k in range(1, count - 1)
    ]
    ops = [op(f"p{k}", "nop", ["x"], loc=(k, 0)) for k in range(9)]
    ops.append(op("f", "fused_op", [f"p{k % 9}" for k in range(count)], loc=(0, 1), attributes={"fused_op_id": "0"}))
    return b.build(ops, {"x": (1, 2, 2)}, fused_ops=[fused("0", count, [steps])])


def narrower_sum(n: Netlist) -> None:
    """The gradient is kept in ublocks twice as wide."""
    blocking = q(n, "acc").blocking
    blocking.mblock, blocking.ublock = (blocking.mblock[0], blocking.mblock[1] // 2), (1, 2)


def two_products() -> Netlist:
    """A fused op of two matmuls, the second on the result of the first, on one core."""
    blocks = {"mblock": (2, 2), "ublock": (1, 1)}
    attributes = {"m_k": 1, "u_kt": 2}
    steps = [
        [sub("m0", "matmul", ["input0", "input1"], "intermed0", attributes=attributes, **blocks)],
        [sub("m1", "matmul", ["input2", "input3"], "intermed1", attributes=attributes, **blocks)],
        [sub("s", "add", ["intermed0", "intermed1"], "output", pop=["intermed0", "intermed1"], **blocks)],
    ]
    names = [f"x{k}" for k in range(4)]
    return b.build(
        [op("f", "fused_op", names, attributes={"fused_op_id": "0"})],
        {n: (1, 2, 2) for n in names},
        fused_ops=[fused("0", 4, steps, 2)],
    )


def on_four_cores(n: Netlist) -> None:
    the_op(n).grid_size = (2, 2)
    for schedule in n.fused_ops["0"].schedules:
        for step in schedule:
            step.mblock = (1, 1)
    the_op(n).blocking.mblock = (1, 1)


case(
    "N4",
    lambda: b.build([op("o", "nop", ["x"], untilize_output=True)], {"x": (1, 2, 2)}),
    on_queue("o.out", input_tms=[tm("hstack", 1)]),
    "o.out/input_tms",
)
case("N4", lambda: b.gradient(), narrower_sum, "queues/acc/grid_size")
case("N6", lambda: fused_sum(9), of_many_operands, "graphs/g/f/inputs")
case("N14", b.unary, lambda n: n.queues.pop("op0.out"), "graphs/g/op0")
case("N15", in_two_buffers, half_is_dropped, "queues/x")
case("N15", read_four_times, by_all_operands, "queues/x")
case("N16", two_products, on_four_cores, "graphs/g/f/inputs")


def scalar_for_all_cores() -> Netlist:
    """64 cores read one tile."""
    add = op("o", "add", ["x", "y"], (1, 32, 64), grid=(8, 8), tms={0: [tm("broadcast", r=32, c=64)]})
    return b.build([add], queues=[b.queue("x", (1, 1, 1)), b.queue("y", (1, 32, 64), grid=(8, 8))])


case("N17", scalar_for_all_cores, setting(prologue=True), "graphs/g/o")


def of_two_chips() -> Netlist:
    """A sum of two queues; the second is to move to another chip."""
    return b.build([op("o", "add", ["x", "y"])], {"x": (1, 2, 2), "y": (1, 2, 2), "x.1": (1, 2, 2)})


case("N7", of_two_chips, on_queue("y", target_device=1), "graphs/g")
case("N8", b.binary, both(setting(prologue=True), on_queue(target_device=1)), "queue_settings/x/prologue")
case("N8", lambda: b.unary("tilizer"), setting(prologue=True), "queue_settings/x/prologue")


def channels(count: int) -> Change:
    return on_op(attributes={"ingress_channels": list(range(count)), "egress_channels": [0]})


def crossing(n: Netlist) -> None:
    """An op of 64 cores fills 64 buffers on the other chip; two chips are joined by 16 ethernet cores at most."""
    for element in (n.graphs["g0"].ops["a"], n.queues["a.out"]):
        element.grid_size, element.blocking.mblock = (8, 8), (1, 1)
    n.queues["a.out"].buffers[:] = [QueueBuffer(k % 6, 0x30000000 + k * 0x10000) for k in range(64)]
    wide = n.graphs["g0"].ops["d"]
    wide.grid_size, wide.blocking.mblock = (8, 8), (1, 1)
    n.queues["d.out"].buffers[:] = [QueueBuffer(k % 6, 0x31000000 + k * 0x10000) for k in range(64)]
    n.queues["d.out"].grid_size, n.queues["d.out"].blocking.mblock = (8, 8), (1, 1)


def written_across() -> Netlist:
    """Two ops of chip 0 fill queues of chip 1, where another graph runs at the same time."""
    n = b.build(
        {
            "g0": [op("a", "nop", ["x"], (1, 8, 8)), op("d", "nop", ["x"], (1, 8, 8), loc=(0, 1))],
            "g1": [op("c", "nop", ["y"])],
        },
        {"x": (1, 8, 8), "y": (1, 2, 2)},
        chips={"g1": 1},
    )
    for name in ("a.out", "d.out"):
        n.queues[name].target_device = 1
    return n


case("N9", lambda: b.unary("ethernet_datacopy"), channels(3), "ingress_channels")
case("N9", lambda: b.unary("ethernet_datacopy"), on_op(attributes={"egress_channels": [16]}), "egress_channels")
case("N10", b.binary, on_queue(target_device=1), "graphs/g")
case("N10", b.binary, on_queue("op0.out", target_device=1), "graphs/g")
case("N11", written_across, crossing, "graphs/g0")


MESH = load_device("wormhole_b0", chips=4)
"""2 x 2 chips: between 0 and 3 lie 1 and 2."""


def across_the_mesh() -> Netlist:
    """An op of chip 3 reads a queue of chip 0, by way of chip 1."""
    n = b.build(
        {"g0": [op("a", "nop", ["x"])], "g1": [], "g3": [op("c", "nop", ["y"])]},
        {"x": (1, 2, 2), "y": (1, 2, 2)},
        chips={"g1": 1, "g3": 3},
    )
    n.queues["y"].target_device = 0
    return n


def without_graph(name: str) -> Change:
    def change(n: Netlist) -> None:
        del n.graphs[name]
        for p in n.programs:
            p.instructions = [i for i in p.instructions if not isinstance(i, Execute) or i.graph != name]

    return change


case("N10", across_the_mesh, without_graph("g0"), "graphs/g1", MESH)
case("N18", across_the_mesh, without_graph("g1"), "graphs/g0", MESH)
case(
    "N12",
    lambda: of_grayskull(0),
    lambda n: setattr(n.graphs["g"], "target_device", 1),
    "graphs/g/target_device",
    "grayskull",
)
case("N13", lambda: of_grayskull(0), on_queue(target_device=2), "graphs/g/o", "grayskull")


def of_grayskull(chip: int) -> Netlist:
    return b.build([op("o", "nop", ["x"])], {"x": (1, 2, 2)}, arch="grayskull", chips={"g": chip})
