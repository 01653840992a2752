"""Programs: loops, pointers, rams, views, parameters, several graphs and chips. Values are small and exact."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.netlist.schema import (
    Allocate,
    Deallocate,
    EndLoop,
    Execute,
    Loop,
    Netlist,
    Param,
    Program,
    QueueSetting,
    Var,
    VarInst,
)
from tests.netlist import builders as b
from tests.netlist_acceptance.harness import agree, run

ONE = (1, 1, 1)
EYE = {"m_k": 1, "u_kt": 1}


def entries(*values: float) -> np.ndarray:
    return np.broadcast_to(np.array(values, np.float32)[:, None, None, None], (len(values), 1, 32, 32)).copy()


def firsts(x: np.ndarray) -> list[float]:
    assert (x == x[:, :1, :1, :1]).all()
    return x[:, 0, 0, 0].tolist()


def stream(pointer: str = "$ptr", **more: Any) -> QueueSetting:
    return QueueSetting(
        {"prologue": False, "epilogue": False, "zero": False, "rd_ptr_local": pointer, "rd_ptr_global": pointer, **more}
    )


def ram(read: Any = "$c_zero", write: Any = "$c_zero", **more: Any) -> QueueSetting:
    return QueueSetting(
        {"prologue": False, "epilogue": False, "zero": False, "rd_ptr_global": read, "wr_ptr_global": write, **more}
    )


def with_program(n: Netlist, *programs: Program) -> Netlist:
    n.programs = list(programs)
    return n


def test_microbatches_in_a_loop_with_a_parameter(tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "add", ["x", "w"], ONE)],
        None,
        [
            b.queue("x", ONE, entries=4),
            b.queue("w", ONE, kind="ram", entries=1),
            b.queue("out", ONE, source="o", entries=8),
        ],
        input_count=2,
        program=False,
    )
    with_program(
        n,
        Program(
            "run",
            [
                Param(["$p_loop_count"]),
                Var(False, {"$c_zero": 0, "$c_two": 2}),
                Var(True, {"$ptr": 0}),
                Loop("$p_loop_count"),
                Execute("g", {"x": stream(), "w": ram(prologue=True)}),
                VarInst("$ptr", "incwrap", ["$c_two", 8]),
                EndLoop(),
            ],
        ),
    )
    feeds = {"x": entries(*range(8)), "w": entries(10)}
    agree(tmp_path, n, feeds, {"out": entries(10, 11)}, exact=True)
    agree(tmp_path, n, feeds, {"out": entries(*range(10, 18))}, params=("p_loop_count=4",), exact=True)
    agree(tmp_path, n, feeds, {"out": entries(*range(10, 14))}, params=("$p_loop_count=2",), exact=True)


def test_two_programs_and_static_variables(tmp_path: Path) -> None:
    """The second program runs the first's graph again from its own pointer: entries are still there after no pop."""
    n = b.build(
        {"g": [b.op("o", "nop", ["x"], ONE)], "h": [b.op("p", "multiply", ["keep", "keep"], ONE)]},
        None,
        [
            b.queue("x", ONE, entries=2),
            b.queue("keep", ONE, source="o", kind="ram", entries=2),
            b.queue("out", ONE, source="p", entries=2),
        ],
        program=False,
    )
    fill = Program(
        "fill",
        [
            Var(False, {"$c_zero": 0, "$c_one": 1, "$slot": 0}),
            Var(True, {"$ptr": 0}),
            Loop(2),
            Execute("g", {"x": stream(), "keep": ram(0, "$slot")}),
            VarInst("$ptr", "incwrap", ["$c_one", 4]),
            VarInst("$slot", "inc", ["$c_one"]),
            EndLoop(),
        ],
    )
    use = Program(
        "use",
        [
            Var(False, {"$c_zero": 0, "$c_one": 1, "$r": 1}),
            Loop(2),
            Execute("h", {"keep": ram("$r", 0)}),
            VarInst("$r", "set", [0]),
            EndLoop(),
        ],
    )
    with_program(n, fill, use)
    agree(tmp_path, n, {"x": entries(3, 5)}, {"out": entries(25, 9), "keep": entries(3, 5)}, exact=True)


def test_variable_arithmetic_chooses_slots(tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "nop", ["t"], ONE)],
        None,
        [b.queue("t", ONE, kind="ram", entries=16), b.queue("out", ONE, source="o", entries=8)],
        program=False,
    )
    with_program(
        n,
        Program(
            "run",
            [
                Var(False, {"$c_zero": 0, "$c_three": 3, "$k": 1}),
                Loop(4),
                Execute("g", {"t": ram("$k", 0)}),
                VarInst("$k", "mul", ["$k", "$c_three"]),
                VarInst("$k", "add", ["$k", 2]),
                VarInst("$k", "incwrap", [-1, 16]),
                EndLoop(),
            ],
        ),
    )
    slots, k = [], 1
    for _ in range(4):
        slots.append(k)
        k = (k * 3 + 2 - 1) % 16
    agree(tmp_path, n, {"t": entries(*range(100, 116))}, {"out": entries(*(100 + s for s in slots))}, exact=True)


def test_nested_loops_and_negative_pointers(tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "nop", ["t"], ONE)],
        None,
        [b.queue("t", ONE, kind="ram", entries=6), b.queue("out", ONE, source="o", entries=8)],
        program=False,
    )
    with_program(
        n,
        Program(
            "run",
            [
                Var(False, {"$c_zero": 0, "$k": 5}),
                Loop(2),
                Loop(3),
                Execute("g", {"t": ram("$k", 0)}),
                VarInst("$k", "incwrap", [-2, 6]),
                EndLoop(),
                VarInst("$k", "inc", [-1]),
                EndLoop(),
            ],
        ),
    )
    agree(tmp_path, n, {"t": entries(*range(6))}, {"out": entries(5, 3, 1, 4, 2, 0)}, exact=True)


def test_a_cache_that_is_written_and_read_with_initial_contents(tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "add", ["x", "cache"], ONE)],
        None,
        [b.queue("x", ONE, entries=4), b.queue("cache", ONE, source="o", kind="ram", entries=4)],
        program=False,
    )
    with_program(
        n,
        Program(
            "run",
            [
                Var(False, {"$c_zero": 0, "$c_one": 1, "$r": 0, "$w": 1}),
                Var(True, {"$ptr": 0}),
                Loop(3),
                Execute("g", {"x": stream(), "cache": ram("$r", "$w")}),
                VarInst("$ptr", "incwrap", ["$c_one", 8]),
                VarInst("$r", "incwrap", [1, 4]),
                VarInst("$w", "incwrap", [1, 4]),
                EndLoop(),
            ],
        ),
    )
    x = entries(1, 2, 4)
    agree(tmp_path, n, {"x": x}, {"cache": entries(0, 1, 3, 7)}, exact=True)
    agree(tmp_path, n, {"x": x, "cache": entries(10, 0, 0, 0)}, {"cache": entries(10, 11, 13, 17)}, exact=True)


@pytest.mark.parametrize("zero", [True, False])
def test_gradients_accumulate(zero: bool, tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "matmul", ["x", "w"], ONE, gradient_op=True, attributes=EYE)],
        None,
        [
            b.queue("x", ONE, entries=4),
            b.queue("w", ONE, kind="ram", entries=1),
            b.queue("acc", ONE, source="o", kind="ram", entries=1),
        ],
        input_count=2,
        program=False,
    )
    with_program(
        n,
        Program(
            "run",
            [
                Var(False, {"$c_zero": 0, "$c_two": 2, "$v_zero": int(zero)}),
                Var(True, {"$ptr": 0}),
                Loop(2),
                Execute(
                    "g",
                    {"x": stream(), "w": ram(prologue=True), "acc": ram(prologue=True, epilogue=True, zero="$v_zero")},
                ),
                VarInst("$ptr", "incwrap", ["$c_two", 8]),
                VarInst("$v_zero", "set", [0]),
                EndLoop(),
            ],
        ),
    )
    eye = np.eye(32, dtype=np.float32)[None, None]
    agree(tmp_path, n, {"x": entries(1, 2, 4, 8), "w": eye}, {"acc": entries(15)}, exact=True)


def test_a_view_of_a_ram(tmp_path: Path) -> None:
    """Four slots of one tile seen as two slots of two slices."""
    base = b.queue("base", ONE, source="o", kind="ram", entries=4)
    view = b.queue("view", (2, 1, 1), kind="ram", entries=2, alias="base")
    n = b.build(
        {"g": [b.op("o", "nop", ["x"], ONE)], "h": [b.op("p", "nop", ["view"], (2, 1, 1))]},
        None,
        [b.queue("x", ONE, entries=4), base, view, b.queue("out", (2, 1, 1), source="p", entries=2)],
        program=False,
    )
    view.buffers = list(base.buffers)
    with_program(
        n,
        Program(
            "run",
            [
                Var(False, {"$c_zero": 0, "$c_one": 1, "$w": 0}),
                Var(True, {"$ptr": 0}),
                Loop(4),
                Execute("g", {"x": stream(), "base": ram(0, "$w")}),
                VarInst("$ptr", "incwrap", ["$c_one", 8]),
                VarInst("$w", "incwrap", [1, 4]),
                EndLoop(),
                Execute("h", {"view": ram(1, 0, read_only=True)}),
                Execute("h", {"view": ram(0, 0, read_only=True)}),
            ],
        ),
    )
    expected = np.stack([np.concatenate([entries(i)[0], entries(j)[0]]) for i, j in ((3, 4), (1, 2))])
    agree(tmp_path, n, {"x": entries(1, 2, 3, 4)}, {"base": entries(1, 2, 3, 4), "out": expected}, exact=True)


def test_linked_graphs_of_three_chips(tmp_path: Path) -> None:
    n = b.build(
        {
            "g0": [b.op("a", "nop", ["x"], ONE)],
            "g1": [b.op("c", "square", ["a"], ONE)],
            "g2": [b.op("d", "add", ["c", "a"], ONE)],
        },
        None,
        [b.queue("x", ONE, entries=4), b.queue("out", ONE, source="d", entries=4)],
        chips={"g0": 0, "g1": 1, "g2": 2},
        input_count=2,
    )
    agree(tmp_path, n, {"x": entries(1, 2)}, {"out": entries(2, 6)}, exact=True)


def test_a_queue_between_epochs_on_one_chip(tmp_path: Path) -> None:
    n = b.build(
        {"g": [b.op("a", "square", ["x"], ONE)], "h": [b.op("c", "add", ["e2e", "x2"], ONE)]},
        None,
        [
            b.queue("x", ONE, entries=4),
            b.queue("x2", ONE, entries=4),
            b.queue("e2e", ONE, source="a", entries=4),
            b.queue("out", ONE, source="c", entries=4),
        ],
        input_count=2,
        program=False,
    )
    with_program(
        n,
        Program(
            "run",
            [
                Var(False, {"$c_zero": 0, "$c_two": 2}),
                Var(True, {"$ptr": 0, "$q": 0}),
                Loop(2),
                Execute("g", {"x": stream()}),
                Execute("h", {"e2e": stream("$q"), "x2": stream()}),
                VarInst("$ptr", "incwrap", ["$c_two", 8]),
                VarInst("$q", "incwrap", ["$c_two", 8]),
                EndLoop(),
            ],
        ),
    )
    feeds = {"x": entries(1, 2, 3, 4), "x2": entries(0, 1, 2, 3)}
    agree(tmp_path, n, feeds, {"out": entries(1, 5, 11, 19)}, exact=True)


def test_allocated_queues(tmp_path: Path) -> None:
    n = b.build(
        {"g": [b.op("a", "nop", ["x"], ONE)], "h": [b.op("c", "square", ["mid"], ONE)]},
        None,
        [
            b.queue("x", ONE, entries=2),
            b.queue("mid", ONE, source="a", entries=2),
            b.queue("out", ONE, source="c", entries=2),
        ],
        program=False,
    )
    with_program(
        n,
        Program(
            "run",
            [
                Var(False, {"$c_zero": 0, "$c_one": 1}),
                Var(True, {"$ptr": 0}),
                Loop(2),
                Allocate(["mid"]),
                Execute("g", {"x": stream()}),
                Execute("h", {"mid": stream("$c_zero")}),
                Deallocate(["mid"]),
                VarInst("$ptr", "incwrap", ["$c_one", 4]),
                EndLoop(),
            ],
        ),
    )
    agree(tmp_path, n, {"x": entries(2, 3)}, {"out": entries(4, 9)}, exact=True)


def test_a_constant_that_never_moves(tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "multiply", ["x", "c"], ONE)],
        None,
        [b.queue("x", ONE, entries=4), b.queue("c", ONE, entries=1), b.queue("out", ONE, source="o", entries=4)],
        input_count=4,
        program=False,
    )
    with_program(
        n,
        Program(
            "run",
            [
                Var(False, {"$c_zero": 0}),
                Var(True, {"$ptr": 0}),
                Execute("g", {"x": stream(), "c": stream("$c_zero", rd_ptr_autoinc=0)}),
            ],
        ),
    )
    agree(tmp_path, n, {"x": entries(1, 2, 3, 4), "c": entries(8)}, {"out": entries(8, 16, 24, 32)}, exact=True)


def test_ram_pointers_that_move_by_themselves(tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "nop", ["t"], ONE)],
        None,
        [b.queue("t", ONE, kind="ram", entries=4), b.queue("kept", ONE, source="o", kind="ram", entries=4)],
        input_count=3,
        program=False,
    )
    with_program(
        n,
        Program(
            "run",
            [
                Var(False, {"$c_zero": 0}),
                Execute("g", {"t": ram(1, 0, global_rdptr_autoinc=1), "kept": ram(0, 2, global_wrptr_autoinc=1)}),
            ],
        ),
    )
    agree(tmp_path, n, {"t": entries(1, 2, 3, 4)}, {"kept": entries(4, 0, 2, 3)}, exact=True)


def test_a_host_queue_is_read_out(tmp_path: Path) -> None:
    n = b.build(
        [b.op("o", "nop", ["x"], (1, 2, 2), untilize_output=True)],
        {"x": (1, 2, 2)},
        [b.queue("out", (1, 2, 2), source="o", loc="host")],
    )
    x = np.arange(64 * 64, dtype=np.float32).reshape(1, 1, 64, 64) % 128
    assert (run(tmp_path, n, {"x": x})["out"] == x).all()


def test_instances_have_their_own_allocated_queues(tmp_path: Path) -> None:
    """Queues and graphs on two chips each: every instruction about them stands for one per chip."""
    n = b.build(
        {"g": [b.op("a", "nop", ["x"], ONE)], "h": [b.op("c", "square", ["mid"], ONE)]},
        None,
        [
            b.queue("x", ONE, entries=2),
            b.queue("mid", ONE, source="a", entries=2),
            b.queue("out", ONE, source="c", entries=2),
        ],
        program=False,
    )
    for element in (*n.queues.values(), *n.graphs.values()):
        element.target_device = [0, 1]
    with_program(
        n,
        Program(
            "run",
            [
                Var(False, {"$c_zero": 0, "$c_one": 1}),
                Var(True, {"$ptr": 0}),
                Loop(2),
                Allocate(["mid"]),
                Execute("g", {"x": stream()}),
                Execute("h", {"mid": stream("$c_zero")}),
                Deallocate(["mid"]),
                VarInst("$ptr", "incwrap", ["$c_one", 4]),
                EndLoop(),
            ],
        ),
    )
    got = run(tmp_path, n, {"x.0": entries(2, 3), "x.1": entries(4, 5)})
    assert {name: firsts(x) for name, x in got.items()} == {"out.0": [4, 9], "out.1": [16, 25]}
