"""Cases: fused ops."""

from __future__ import annotations

from collections.abc import Callable

from tbuda_lab.core.formats import DataFormat as D
from tbuda_lab.core.netlist.schema import (
    Netlist,
)
from tests.netlist import builders as b
from tests.netlist.builders import op, tm
from tests.netlist.rules.common import (
    case,
    fused_of,
    on_op,
    on_sub,
    sub_op,
    with_df,
)

S = b.sub
case("F1", b.fused_chain, on_op(attributes={"fused_op_id": "9"}), "graphs/g/f/attributes/fused_op_id")
case("F1", b.fused_chain, lambda n: setattr(n.fused_ops["0"], "inputs", 4), "graphs/g/f/inputs")
case("F2", b.fused_chain, on_sub(0, type="concat"), "fused_ops/0/schedules/0/s0/type")
case("F2", b.fused_chain, lambda n: setattr(n.fused_ops["0"], "intermediates", 9), "fused_ops/0/intermediates")
case("F2", b.fused_chain, lambda n: setattr(n.fused_ops["0"], "schedules", []), "fused_ops/0/schedules")
case("F2", b.fused_chain, on_sub(0, inputs=["input0", "input8"]), "fused_ops/0/schedules/0/s0/inputs")
case("F2", b.fused_chain, on_sub(0, inputs=["input0"]), "fused_ops/0/schedules/0/s0/inputs")
case("F2", b.fused_chain, on_sub(0, output="dest0"), "fused_ops/0/schedules/0/s0/output")


def fused_matmul(m_k: int = 1, output: str = "intermed0", right: str = "input1") -> Callable[[], Netlist]:
    """A matmul into an intermediate, then exp."""
    schedules = [
        [S("mm", "matmul", ["input0", right], output, mblock=(2, 2), attributes={"m_k": m_k, "u_kt": 4 // m_k})],
        [S("e", "exp", ["intermed0"], "output", mblock=(2, 2), pop=["intermed0"])],
    ]
    return lambda: b.build(
        [op("f", "fused_op", ["x", "w"], attributes={"fused_op_id": "0"})],
        {"x": (1, 2, 4), "w": (1, 4, 2)},
        fused_ops=[b.fused("0", 2, schedules, 1)],
    )


case("F3", fused_matmul(2), lambda n: setattr(sub_op(n), "output", "output"), "fused_ops/0/schedules/0/mm/output")
case("F3", fused_matmul(2), lambda n: setattr(sub_op(n), "inputs", ["input0", "intermed0"]), "0/schedules/0/mm/inputs")
case(
    "F3",
    fused_matmul(1),
    lambda n: n.fused_ops["0"].schedules[0].append(S("z", "nop", ["input0"], "output")),
    "fused_ops/0/schedules/0/mm",
)
case("F4", b.fused_chain, on_sub(0, output="intermed0"), "fused_ops/0/schedules/0/s1/inputs")
case("F4", b.fused_chain, on_sub(2, output="dest"), "fused_ops/0/schedules/0/s2/output")
case(
    "F4",
    lambda: fused_of(
        [
            [
                S("a", "nop", ["input0"], "dest", mblock=(2, 2)),
                S("c", "add", ["dest", "input0"], "output", mblock=(2, 2)),
            ]
        ],
        0,
    )(),
    on_sub(1, inputs=["input0", "dest"]),
    "fused_ops/0/schedules/0/c/inputs",
    "grayskull",
)
case(
    "F4",
    lambda: fused_of(
        [
            [
                S("a", "nop", ["input0"], "dest", mblock=(2, 2)),
                S("c", "add", ["dest", "input0"], "output", mblock=(2, 2)),
            ]
        ],
        0,
    )(),
    on_sub(1, type="maximum"),
    "fused_ops/0/schedules/0/c/inputs",
)
case("F5", b.fused_chain, on_sub(2, mblock=(2, 2), ublock=(1, 1)), "graphs/g/f/mblock")
case("F5", b.fused_chain, on_sub(2, output="intermed0"), "graphs/g/f/attributes/fused_op_id")


def fused_broadcast(dim: str, m: tuple[int, int], u: tuple[int, int], factor: int) -> Callable[[], Netlist]:
    """An intermediate of (m, u) broadcast over r or c into 2x2 tiles of one ublock each."""
    schedule = [
        S("a", "nop", ["input0"], "intermed0", mblock=m, ublock=u),
        S(
            "c",
            "add",
            ["input1", "intermed0"],
            "output",
            mblock=(2, 2),
            pop=["intermed0"],
            tms={1: [tm("broadcast", **{dim: factor})]},
        ),
    ]
    return lambda: b.build(
        [op("f", "fused_op", ["x", "y"], attributes={"fused_op_id": "0"})],
        {"x": (1, m[0] * u[0], m[1] * u[1]), "y": (1, 2, 2)},
        fused_ops=[b.fused("0", 2, [schedule], 1)],
    )


good_broadcast = fused_broadcast("c", (2, 1), (1, 1), 2)
case("F6", good_broadcast, lambda n: setattr(sub_op(n, 1), "tms", {0: [tm("broadcast", c=2)]}), "0/c/input_0_tms")
case("F6", good_broadcast, lambda n: sub_op(n, 1).tms.update({1: [tm("broadcast", r=2, c=2)]}), "0/c/input_1_tms")
case("F6", good_broadcast, lambda n: sub_op(n, 1).tms.update({1: [tm("broadcast", z=2)]}), "0/c/input_1_tms")
case("F6", good_broadcast, lambda n: sub_op(n, 1).tms.update({1: [tm("broadcast", r=1)]}), "0/c/input_1_tms")
case("F6", good_broadcast, lambda n: sub_op(n, 0).tms.update({0: [tm("tile_broadcast", "r")]}), "0/a/input_0_tms")
case("F6", good_broadcast, lambda n: sub_op(n, 1).tms.update({1: [tm("transpose")]}), "0/c/input_1_tms")
case("F7", b.fused_chain, on_sub(2, pop=None), "fused_ops/0/schedules/0/s1")
case("F7", b.fused_chain, on_sub(2, pop=["input1"]), "fused_ops/0/schedules/0/s2/pop")
case("F7", b.fused_chain, on_sub(2, pop=["intermed0"], pop_last=["intermed0"]), "fused_ops/0/schedules/0/s2/pop_last")
case("F7", b.fused_chain, on_sub(0, inputs=["input0", "intermed0"]), "fused_ops/0/schedules/0/s0/inputs")
case(
    "F7",
    lambda: fused_of(
        [
            [
                S("a", "nop", ["input0"], "intermed0", mblock=(2, 2)),
                S("c", "exp", ["intermed0"], "intermed0", mblock=(2, 2), pop=["intermed0"]),
                S("d", "exp", ["intermed0"], "output", mblock=(2, 2), pop=["intermed0"]),
            ]
        ]
    )(),
    on_sub(1, pop=None),
    "fused_ops/0/schedules/0/c/output",
)


def across() -> Netlist:
    """An intermediate read after a matmul's schedule; legal while its mblock is one ublock."""
    schedules = [
        [
            S("a", "nop", ["input0"], "intermed0", ublock=(2, 2)),
            S("mm", "matmul", ["input0", "input1"], "intermed1", ublock=(2, 2), attributes={"m_k": 1, "u_kt": 2}),
        ],
        [S("e", "add", ["intermed0", "intermed1"], "output", ublock=(2, 2), pop=["intermed0", "intermed1"])],
    ]
    return b.build(
        [op("f", "fused_op", ["x", "w"], ublock=(2, 2), attributes={"fused_op_id": "0"})],
        {"x": (1, 2, 2), "w": (1, 2, 2)},
        fused_ops=[b.fused("0", 2, schedules, 2)],
    )


case("F7", across, on_sub(0, mblock=(1, 2), ublock=(2, 1)), "fused_ops/0/schedules/1/e/inputs")
case("F8", b.fused_chain, on_sub(1, mblock=(2, 2), ublock=(1, 1)), "fused_ops/0/schedules/0/s1/inputs")
case("F9", lambda: b.fused_chain(), on_op(acc_df=D.Int32), "graphs/g/f/acc_df")
case("F10", b.fused_chain, on_sub(1, name="s0"), "fused_ops/0/schedules/0/s0")
case(
    "F11",
    lambda: fused_of(
        [
            [
                S(
                    "red",
                    "reduce",
                    ["input0"],
                    "intermed0",
                    mblock=(2, 1),
                    attributes={"type": "max", "dim": "c", "m_k": 2, "u_kt": 1},
                )
            ],
            [S("e", "nop", ["intermed0"], "output", mblock=(2, 1), pop=["intermed0"])],
        ],
        shape=(1, 2, 1),
        acc_df=D.Float32,
    )(),
    with_df(0, D.Float16),
    "graphs/g/f/in_df",
)
case("F13", b.fused_chain, on_sub(0, ublock=(4, 4)), "graphs/g/f/attributes/fused_op_id")
case(
    "F14", lambda: fused_matmul(2)(), lambda n: sub_op(n).attributes.pop("m_k"), "fused_ops/0/schedules/0/mm/attributes"
)
case("F14", b.fused_chain, on_sub(1, attributes={"vector": "q"}), "fused_ops/0/schedules/0/s1/attributes")
# a broadcast over r may not grow mblock_m of an intermediate with several ublocks in a row
case(
    "F6",
    good_broadcast,
    lambda n: (setattr(sub_op(n, 0), "mblock", (1, 2)), sub_op(n, 1).tms.update({1: [tm("broadcast", r=2)]})),
    "0/c/input_1_tms",
)


def matmul_of_intermed() -> Netlist:
    """exp, then a matmul of its result with m_k 1, u_kt 2."""
    schedule = [
        S("e", "exp", ["input0"], "intermed0", mblock=(2, 1), ublock=(1, 2)),
        S(
            "mm",
            "matmul",
            ["intermed0", "input1"],
            "output",
            mblock=(2, 2),
            attributes={"m_k": 1, "u_kt": 2},
            pop=["intermed0"],
        ),
    ]
    ops = [op("f", "fused_op", ["x", "w"], attributes={"fused_op_id": "0"})]
    return b.build(ops, {"x": (1, 2, 2), "w": (1, 2, 2)}, fused_ops=[b.fused("0", 2, [schedule], 1)])


case("F8", matmul_of_intermed, lambda n: sub_op(n, 1).attributes.update(m_k=2, u_kt=1), "schedules/0/mm/inputs")
case("F8", matmul_of_intermed, on_sub(0, mblock=(1, 1), ublock=(2, 2)), "schedules/0/mm/inputs")
case("F4", matmul_of_intermed, on_sub(1, inputs=["dest", "input1"]), "schedules/0/mm/inputs")
