"""Cases: programs, workload, run time."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.netlist.schema import (
    Allocate,
    Deallocate,
    EndLoop,
    Execute,
    Loop,
    Netlist,
    Param,
    Program,
    QueueBuffer,
    Var,
    VarInst,
)
from tests.netlist import builders as b
from tests.netlist.builders import op, queue
from tests.netlist.rules.common import (
    before_loop,
    both,
    case,
    execute,
    in_loop,
    setting,
    without,
)

case("P0", b.unary, lambda n: n.programs.clear(), "programs")
case("P1", b.unary, in_loop(VarInst("$lptr", "sub", [1])), "programs/run/6")
case("P1", b.unary, in_loop(VarInst("$lptr", "incwrap", [1])), "programs/run/6")
case("P2", b.unary, before_loop(Allocate(["nothing"])), "programs/run/2")
case("P3", b.unary, lambda n: setattr(execute(n), "graph", "h"), "programs/run/3")
case("P4", b.unary, lambda n: execute(n).settings.update(nothing=execute(n).settings["x"]), "queue_settings/nothing")
case(
    "P4",
    b.two_counts,
    lambda n: (
        n.queues.update(y=queue("y", (1, 2, 2), buffers=[QueueBuffer(1, 0x20000000)])),
        execute(n).settings.update(y=execute(n).settings["x"]),
    ),
    "queue_settings/y",
)
case("P5", b.unary, without("x", "rd_ptr_local"), "programs/run/3/queue_settings/x")
case("P5", b.unary, setting(wr_ptr_global="$c_zero"), "programs/run/3/queue_settings/x/wr_ptr_global")
case("P5", b.identity, setting("s", rd_ptr_local="$c_zero"), "programs/run/3/queue_settings/s/rd_ptr_local")
case(
    "P6",
    b.unary,
    lambda n: execute(n).settings.update(
        {
            "op0.out": dataclasses.replace(
                execute(n).settings["x"], fields={**execute(n).settings["x"].fields, "epilogue": True}
            )
        }
    ),
    "queue_settings/op0.out/epilogue",
)
case("P7", b.unary, setting(rd_ptr_autoinc=1, global_rdptr_autoinc=2), "queue_settings/x/global_rdptr_autoinc")
case("P8", b.unary, lambda n: execute(n).settings.clear(), "programs/run/3")
case("P8", b.gradient, lambda n: execute(n).settings.pop("acc"), "programs/run/3")
case("P10", b.unary, before_loop(Param(["$p_n"])), "programs/run/2")
case("P13", b.unary, lambda n: n.programs[0].instructions.append(EndLoop()), "programs/run/7")
case("P13", b.unary, lambda n: n.programs[0].instructions.__setitem__(2, Loop(0)), "programs/run/2")
case(
    "P13",
    b.unary,
    both(lambda n: n.programs[0].instructions.__setitem__(2, Loop("$n")), before_loop(Var(False, {"$n": 0}))),
    "programs/run/3",
)
case("P14", b.unary, lambda n: n.programs[0].instructions.pop(), "programs/run/2")
case("P15", b.unary, setting(rd_ptr_local="$other"), "queue_settings/x/rd_ptr_local")
case("P15", b.unary, lambda n: n.programs[0].instructions.__setitem__(2, Loop("$n")), "programs/run/2")
case("P15", b.unary, before_loop(Var(False, {"$lptr": 1})), "programs/run/2")
case("P15", b.unary, before_loop(VarInst("$new", "inc", [1])), "programs/run/2")
case(
    "P15",
    b.unary,
    both(lambda n: n.programs[0].instructions.__setitem__(2, Loop(2)), in_loop(Var(False, {"$v": 1}))),
    "programs/run/6",
)
case(
    "P15",
    b.unary,
    both(
        lambda n: n.programs[0].instructions.__setitem__(2, Loop("$n")),
        in_loop(Var(False, {"$v": 1})),
        before_loop(Var(False, {"$n": None}), VarInst("$n", "set", [2])),
    ),
    "programs/run/8",
)
case("P11", b.unary, in_loop(VarInst("$c_one", "set", [2])), "programs/run/6")
case("P11", b.unary, before_loop(Var(True, {"$c_k": 0}), VarInst("$c_k", "inc", [1])), "programs/run/3")
case("P12", b.two_chips, lambda n: n.programs[0].instructions.remove(execute(n, 1)), "programs/run")
case("P12", b.two_chips, in_loop(Execute("g0", {})), "programs/run")
case("G5.group", b.two_chips, lambda n: setattr(n.graphs["g1"], "input_count", 2), "graphs/g1/input_count")
case(
    "G5.settings",
    lambda: b.build(
        {"g0": [op("a", "nop", ["x"])], "g1": [op("c", "add", ["a", "x"])]}, {"x": (1, 2, 2)}, chips={"g1": 1}
    ),
    lambda n: execute(n, 1).settings["x"].fields.update(prologue=True),
    "queue_settings/x",
)


def side_by_side() -> Netlist:
    """Two graphs on two chips that share no tensor."""
    return b.build(
        {"g0": [op("a", "nop", ["x"])], "g1": [op("c", "nop", ["y"])]},
        {"x": (1, 2, 2), "y": (1, 2, 2)},
        chips={"g1": 1},
    )


case(
    "P12.merged",
    side_by_side,
    lambda n: n.programs.append(
        Program("more", [i for i in n.programs[0].instructions if not isinstance(i, Execute) or i.graph == "g0"])
    ),
    "programs/more",
)


def one_after_the_other() -> Netlist:
    """A program on chip 0 and one that begins on both chips and ends on chip 1, with an empty graph on chip 0."""
    n = b.build(
        {"g0": [op("a", "nop", ["x"])], "g1": [op("c", "nop", ["y"])], "idle": []},
        {"x": (1, 2, 2), "y": (1, 2, 2)},
        chips={"g1": 1},
    )
    (run,) = n.programs
    body = [i for i in run.instructions if not isinstance(i, Execute)]
    at = next(k for k, i in enumerate(body) if isinstance(i, Loop)) + 1
    executes = {i.graph: i for i in run.instructions if isinstance(i, Execute)}
    n.programs = [
        Program("run_a", [*body[:at], executes["g0"], *body[at:]]),
        Program("run_b", [*body[:at], executes["idle"], executes["g1"], *body[at:]]),
    ]
    return n


def only_chip_1(n: Netlist) -> None:
    del n.graphs["idle"]
    n.programs[1].instructions = [
        i for i in n.programs[1].instructions if not isinstance(i, Execute) or i.graph == "g1"
    ]


case("P12.programs", one_after_the_other, only_chip_1, "programs/run_a")
case("P12.programs", one_after_the_other, only_chip_1, "programs/run_b")
case("G5.merged", one_after_the_other, lambda n: setattr(n.graphs["idle"], "input_count", 2), "input_count")
case("G5.merged", side_by_side, lambda n: setattr(n.graphs["g1"], "input_count", 2), "graphs/g1/input_count")
case("G1.zero", b.unary, setting(zero=True), "programs/run/3/queue_settings/x/zero")
case("G2.wrptr", b.gradient, setting("acc", global_wrptr_autoinc=1), "queue_settings/acc/prologue")
case("G3.stream", b.unary, lambda n: setattr(n.graphs["g"], "input_count", 3), "programs/run/3/queue_settings/x")
case(
    "G4.bound",
    b.unary,
    both(lambda n: n.programs[0].instructions.insert(0, Param(["$p_first"])), setting(prologue="$p_first")),
    "queue_settings/x/prologue",
)
case("G7.lifetime", b.unary, before_loop(Deallocate(["x"])), "programs/run/2")
case("G7.lifetime", b.unary, before_loop(Allocate(["x"]), Allocate(["x"])), "programs/run/3")
