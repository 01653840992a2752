"""Fused ops against the reference."""

import numpy as np
import pytest

from tbuda_lab.core.errors import NetlistError
from tbuda_lab.sim import fused as fused_ops
from tests.sim.build import Net, sub
from tests.sim.harness import check, feeds_for, run


def fused(inputs, schedules, out=(1, 1, 1), grid=(1, 1), count=2, **op):
    net = Net("grayskull", "Float32")
    net.graph("g", count)
    names = [net.queue(f"in{i}", shape, entries=count) for i, shape in enumerate(inputs)]
    net.fused("0", len(inputs), schedules)
    net.op("op", "fused_op", names, out, grid=grid, fused_op_id=0, **op)
    net.queue("out", out, source="op", entries=count)
    net.streaming()
    return net.netlist()


def test_fused_tile_broadcasts():
    bc, br = {1: [("tile_broadcast", "c")]}, {1: [("tile_broadcast", "r")]}
    check(
        fused(
            [(1, 1, 1)] * 5,
            [
                [
                    sub("a", "add", ["input0", "input1"], "dest", (1, 1), tms=bc),
                    sub("b", "add", ["dest", "input2"], "intermed0", (1, 1), tms=br),
                    sub("c", "subtract", ["input3", "intermed0"], "dest", (1, 1), tms=br, pop=["intermed0"]),
                    sub("d", "multiply", ["dest", "input4"], "output", (1, 1), tms=bc, relu_en=True, relu_mode="min"),
                ]
            ],
        ),
        rtol=1e-5,
    )


@pytest.mark.parametrize("second", ["tile_broadcast", None])
def test_fused_column_0_is_repeated_before_or_after_its_broadcast(second):
    tms = {1: [("tile_broadcast", "c")]}
    net = fused(
        [(2, 2, 3), (1, 2, 1)],
        [
            [
                sub("a", "subtract", ["input0", "input1"], "dest", (2, 3), tms=tms),
                sub("b", "multiply", ["dest", "input1"], "output", (2, 3), tms=tms if second else {}),
            ]
        ],
        out=(2, 2, 3),
        tms={1: [("broadcast", "c", 3), ("broadcast", "z", 2)]},
    )
    check(net, rtol=1e-5)


@pytest.mark.parametrize("size", [2, 12], ids=["whole", "in pieces"])
@pytest.mark.parametrize("later", [False, True])
def test_a_fused_op_overwrites_only_what_nobody_reads_later(later, size):
    """`s` may be written over, unless `out` reads it after the fused op."""
    shape = (4, 8, size)
    net = Net("grayskull", "Float32")
    net.graph("g", 2)
    net.queue("x", shape, entries=2)
    net.queue("largest", (4, 8, 1), entries=2)
    net.fused(
        "0",
        2,
        [
            [
                sub("a", "subtract", ["input0", "input1"], "dest", shape[1:], tms={1: [("tile_broadcast", "c")]}),
                sub("e", "exp", ["dest"], "dest", shape[1:]),
                sub("m", "multiply", ["dest", "input1"], "output", shape[1:], tms={1: [("tile_broadcast", "c")]}),
            ]
        ],
    )
    net.op("s", "abs", ["x"], shape)
    net.op("f", "fused_op", ["s", "largest"], shape, fused_op_id=0, tms={1: [("broadcast", "c", size)]})
    net.op("o", "add", ["f", "s" if later else "x"], shape)
    net.queue("out", shape, source="o", entries=2)
    net.streaming()
    check(net.netlist(), rtol=1e-5)


@pytest.mark.parametrize("mode", ["golden", "device"])
def test_fused_ops_of_elements_go_piece_by_piece(monkeypatch, mode):
    """The same bits, and the inputs stay as they are: a copy of one may be `dest`."""
    net = fused(
        [(3, 5, 2), (3, 5, 1), (3, 5, 2)],
        [
            [
                sub("n", "nop", ["input0"], "dest", (5, 2)),
                sub("a", "subtract", ["dest", "input1"], "dest", (5, 2), tms={1: [("tile_broadcast", "c")]}),
                sub("e", "exp", ["dest"], "dest", (5, 2)),
                sub("m", "multiply", ["dest", "input2"], "intermed0", (5, 2)),
                sub("b", "add", ["intermed0", "input0"], "dest", (5, 2), pop=["intermed0"]),
                sub("g", "gelu", ["dest"], "output", (5, 2)),
            ]
        ],
        out=(3, 5, 2),
        tms={1: [("broadcast", "c", 2)]},
        intermed="Float16_b",
    )
    feeds = feeds_for(net)
    whole, _ = run(net, feeds, mode=mode)
    if mode == "golden":
        check(net, feeds=feeds, rtol=1e-5)
    monkeypatch.setattr(fused_ops, "PIECE", 2 * 32 * 64)
    np.testing.assert_array_equal(run(net, feeds, mode=mode)[0]["out"], whole["out"])


def test_fused_softmax_over_the_cores_of_a_column():
    check(
        fused(
            [(2, 4, 2), (2, 2, 1)],
            [
                [sub("e", "exp", ["input0"], "intermed0", (2, 2))],
                [sub("s", "matmul", ["intermed0", "input1"], "intermed1", (2, 1), m_k=2, u_kt=1)],
                [
                    sub("r", "reciprocal", ["intermed1"], "intermed2", (2, 1), pop=["intermed1"]),
                    sub(
                        "m",
                        "multiply",
                        ["intermed0", "intermed2"],
                        "output",
                        (2, 2),
                        tms={1: [("broadcast", "c", 2)]},
                        pop=["intermed0", "intermed2"],
                    ),
                ],
            ],
            out=(2, 4, 2),
            grid=(2, 1),
        ),
        low=0.1,
        rtol=1e-5,
    )


@pytest.mark.parametrize(
    ("grid", "passes", "expected"),
    [
        ((1, 1), 1, 260),
        ((1, 1), 4, 256),
        ((1, 2), 1, 260),
        ((1, 2), 4, 256),
    ],
)
def test_the_running_sum_of_a_fused_matmul_is_rounded_between_passes(grid, passes, expected):
    """256 + 1 is 256 in Float16_b, three times; 259 at once is 260."""
    columns = grid[1]
    net = fused(
        [(1, 1, 4 * columns), (1, 4, columns)],
        [
            [sub("s", "matmul", ["input0", "input1"], "intermed0", (1, 1), m_k=passes, u_kt=4 // passes)],
            [sub("n", "nop", ["intermed0"], "output", (1, 1), pop=["intermed0"])],
        ],
        out=(1, 1, columns),
        grid=grid,
        count=1,
        intermed="Float16_b",
        acc="Float16_b",
    )
    x = np.zeros((1, 1, 32, 4 * 32 * columns), np.float32)
    x[..., ::32] = 1
    x[..., :: 4 * 32] = 256
    ones = np.ones((1, 1, 4 * 32, 32 * columns), np.float32)
    assert (run(net, {"in0": x, "in1": ones}, mode="device")[0]["out"] == expected).all()
    assert (run(net, {"in0": x, "in1": ones}, mode="golden")[0]["out"] == 259).all()


def test_fused_reduce_broadcast_and_unary_attributes():
    check(
        fused(
            [(1, 2, 4)],
            [
                [sub("x", "reduce", ["input0"], "intermed0", (2, 1), dim="c", type="max", m_k=4, u_kt=1)],
                [
                    sub(
                        "n",
                        "subtract",
                        ["input0", "intermed0"],
                        "dest",
                        (2, 4),
                        tms={1: [("broadcast", "c", 4), ("tile_broadcast", "c")]},
                        pop=["intermed0"],
                    ),
                    sub("l", "lrelu", ["dest"], "dest", (2, 4), slope=0.5),
                    sub("p", "power", ["dest"], "output", (2, 4), exp=3),
                ],
            ],
            out=(1, 2, 4),
        ),
        rtol=1e-5,
    )


def test_fused_broadcast_repeats_what_each_core_holds():
    check(
        fused(
            [(1, 1, 2), (1, 2, 4)],
            [
                [sub("c", "nop", ["input0"], "intermed0", (1, 1))],
                [
                    sub(
                        "a",
                        "add",
                        ["input1", "intermed0"],
                        "output",
                        (2, 2),
                        tms={1: [("broadcast", "c", 2), ("broadcast", "r", 2)]},
                        pop=["intermed0"],
                    )
                ],
            ],
            out=(1, 2, 4),
            grid=(1, 2),
        )
    )


def test_fused_op_reading_an_empty_buffer_is_refused():
    net = fused([(1, 1, 1)], [[sub("a", "nop", ["intermed0"], "output", (1, 1))]], count=1)
    with pytest.raises(NetlistError, match="sub-op 'a': reads 'intermed0', which no earlier sub-op has written"):
        run(net, {"in0": np.zeros((1, 1, 32, 32), np.float32)})
