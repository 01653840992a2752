"""Programs, queues and epochs."""

import threading

import numpy as np
import pytest

from tbuda_lab.core.errors import Cancelled, InputError, NetlistError, QueueError
from tbuda_lab.core.netlist.schema import (
    Allocate,
    Deallocate,
    EndLoop,
    Execute,
    Loop,
    Param,
    QueueBuffer,
    QueueSetting,
    Var,
    VarInst,
)
from tbuda_lab.sim import Executor
from tests.sim.build import Net
from tests.sim.harness import check, feeds_for

ONE = (1, 1, 1)


def ones(n, value=1.0):
    return np.full((n, 1, 32, 32), value, np.float32) * np.arange(1, n + 1, dtype=np.float32)[:, None, None, None]


def firsts(array):
    return [float(a[0, 0, 0]) for a in array]


def setting(**fields):
    return QueueSetting({"prologue": False, "epilogue": False, "zero": False, **fields})


def chain(net=None, count=1, entries=4, kind="nop", fmt="Float32"):
    net = net or Net("grayskull", fmt)
    net.graph("g", count)
    net.queue("in", ONE, entries=entries)
    net.op("op", kind, ["in"], ONE)
    net.queue("out", ONE, source="op", entries=entries)
    return net


def run_with(net, *, push, **options):
    executor = Executor(net.netlist(), **options)
    for name, array in push.items():
        executor.push(name, array)
    executor.run()
    return executor


def across_chips(arch="blackhole", link="op", count=4, entries=4):
    net = Net(arch, "Float32")
    net.graph("g0", count, device=0)
    net.graph("g1", count, device=1)
    net.queue("in", ONE, entries=count)
    net.op("a", "nop", ["in"], ONE, graph="g0")
    source = "a"
    if link == "queue":
        source = net.queue("link", ONE, source="a", entries=entries, target_device=1)
    net.op("b", "exp", [source], ONE, graph="g1")
    net.queue("out", ONE, source="b", entries=count, target_device=1)
    relay = setting(rd_ptr_local="$l", rd_ptr_global="$l", global_rdptr_autoinc=1)
    settings = {"link": relay} if link == "queue" else {}
    net.program(
        "run",
        [
            Var(True, {"$p": 0, "$l": 0}),
            Execute("g0", {"in": setting(rd_ptr_local="$p", rd_ptr_global="$p")}),
            Execute("g1", settings),
            VarInst("$p", "incwrap", [count, 2 * count]),
            VarInst("$l", "incwrap", [count, 2 * entries]),
        ],
    )
    return net.netlist()


# -- queues and pointers ----------------------------------------------------------------------------------------------
def test_a_loop_streams_and_pops_what_it_read():
    net = chain(count=2)
    net.streaming(loops=2)
    executor = run_with(net, push={"in": ones(4)})
    assert executor.io["in"].occupancy == 0
    assert firsts(executor.pop_all("out")) == [1, 2, 3, 4]


def test_static_variables_go_on_in_the_next_call_and_pointers_wrap_at_twice_the_entries():
    net = chain(count=2)
    net.streaming(loops=1)
    executor = Executor(net.netlist())
    seen = []
    for i in range(7):
        executor.push("in", ones(2) + 2 * i)
        executor.run()
        seen += firsts(executor.pop_all("out"))
    assert seen == list(range(1, 15))
    assert executor.io["in"].rd == 14 % 8


def test_what_does_not_fit_is_fed_as_programs_pop():
    net = chain(count=2, entries=2)
    net.net.queues["out"].entries = 6
    net.net.queues["out"].df = net.net.queues["in"].df
    net.streaming(loops=3)
    executor = Executor(net.netlist())
    executor.feed("in", ones(6))
    executor.run()
    assert firsts(executor.pop_all("out")) == [1, 2, 3, 4, 5, 6]


def test_errors_of_a_queue_name_both_ends():
    net = chain(count=1, entries=2)
    net.streaming(loops=3)
    executor = Executor(net.netlist())
    with pytest.raises(
        QueueError,
        match=r"program 'run', instruction \d: execute 'g': read from empty queue 'in' "
        r"\(fed by HOST, read by op op\)",
    ):
        executor.run()
    executor.push("in", ones(2))
    with pytest.raises(QueueError, match="push to full queue 'in'"):
        executor.push("in", ones(1))
    executor = Executor(net.netlist())
    executor.feed("in", ones(3))
    with pytest.raises(QueueError, match=r"push to full queue 'out' \(fed by op 'op', read by HOST\)"):
        executor.run()
    assert firsts(executor.pop_all("out")) == [1, 2]
    with pytest.raises(QueueError, match="pop from empty queue 'out'"):
        executor.pop("out")


def test_a_prologued_queue_gives_the_same_entry_to_all_inputs():
    net = Net("grayskull", "Float32")
    net.graph("g", 3)
    net.queue("in", ONE, entries=3)
    net.queue("c", ONE)
    net.op("op", "add", ["in", "c"], ONE)
    net.queue("out", ONE, source="op", entries=3)
    net.streaming(c={"prologue": True, "rd_ptr_local": "$c_zero", "rd_ptr_global": "$c_zero"})
    executor = run_with(net, push={"in": ones(3), "c": ones(1, 10)})
    assert firsts(executor.pop_all("out")) == [11, 12, 13]
    check(net.netlist())


def test_without_local_increment_one_entry_serves_all_inputs():
    net = chain(count=2)
    net.streaming(**{"in": {"rd_ptr_autoinc": 0}})
    executor = run_with(net, push={"in": ones(4)})
    assert firsts(executor.pop_all("out")) == [1, 1]


def test_global_increment_pops_input_by_input():
    net = chain(count=4, entries=4)
    net.streaming(**{"in": {"rd_ptr_autoinc": 1, "global_rdptr_autoinc": 1, "rd_ptr_local": 0, "rd_ptr_global": 0}})
    net.net.programs[0].instructions = [i for i in net.net.programs[0].instructions if not isinstance(i, VarInst)]
    executor = run_with(net, push={"in": ones(4)})
    assert executor.io["in"].occupancy == 0
    assert firsts(executor.pop_all("out")) == [1, 2, 3, 4]


def test_a_pointer_that_overtakes_the_write_pointer_pops_everything():
    net = chain(count=1, entries=4)
    net.program(
        "run",
        [
            Var(True, {"$p": 0}),
            Execute("g", {"in": setting(rd_ptr_local="$p", rd_ptr_global="$p")}),
            VarInst("$p", "incwrap", [4, 8]),
        ],
    )
    executor = run_with(net, push={"in": ones(2)})
    assert executor.io["in"].occupancy == 0
    assert executor.io["in"].rd == executor.io["in"].wr == 4


# -- rams -------------------------------------------------------------------------------------------------------------
def test_params_and_nested_loops():
    net = chain(entries=8)
    net.program(
        "run",
        [
            Param(["$n"]),
            Var(True, {"$p": 0}),
            Var(False, {"$inner": 2}),
            Loop("$n"),
            Loop("$inner"),
            Execute("g", {"in": setting(rd_ptr_local="$p", rd_ptr_global="$p")}),
            VarInst("$p", "incwrap", [1, 16]),
            EndLoop(),
            EndLoop(),
        ],
    )
    executor = Executor(net.netlist())
    executor.push("in", ones(8))
    calls = []
    executor.run(params={"n": 3}, progress=lambda done, graph: calls.append((done, graph)))
    assert calls == [(i, "g") for i in range(1, 7)]
    executor.run()  # params are 1 by default
    assert firsts(executor.pop_all("out")) == [1, 2, 3, 4, 5, 6, 7, 8]
    with pytest.raises(InputError, match=r"no program takes the param m\n.*the programs take \$n"):
        executor.run(params={"m": 3})
    with pytest.raises(InputError, match="there is no program 'go'; there are run"):
        executor.run("go")


def test_variable_arithmetic():
    net = chain()
    net.program(
        "run",
        [
            Var(True, {"$s": 5}),
            Var(False, {"$a": None, "$b": 3, "$c": "true"}, as_list=False),
            VarInst("$a", "add", ["$b", 4]),
            VarInst("$b", "mul", ["$a", "$c"]),
            VarInst("$s", "inc", [1]),
            VarInst("$a", "incwrap", [-9, 5]),
            VarInst("$c", "set", ["$s"]),
        ],
    )
    executor = Executor(net.netlist())
    executor.run()
    executor.run()
    assert executor.statics("run") == {"$s": 7}


def wrong_program(*instructions):
    net = chain(count=1)
    net.program("run", list(instructions))
    executor = Executor(net.netlist())
    executor.push("in", ones(4))
    return executor.run


IN = setting(rd_ptr_local=0, rd_ptr_global=0)


@pytest.mark.parametrize(
    "instructions, text",
    [
        ([VarInst("$x", "inc", [1])], "instruction 0: variable $x is used and not declared"),
        ([VarInst("x", "set", [1])], "varinst writes 'x', which is not a variable"),
        ([Var(False, {"$x": 0}), Var(False, {"$x": 0})], "var $x hides a variable of the same name"),
        ([Var(False, {"$x": 0}), Loop("$x"), EndLoop()], "instruction 1: a loop of 0 turns ($x)"),
        ([EndLoop()], "endloop without a loop"),
        ([Execute("h", {})], "there is no graph 'h'"),
        ([Execute("g", {"nil": IN})], "sets 'nil', which is not a queue"),
        ([Var(False, {"$x": 0}), VarInst("$x", "div", [1])], "unknown varinst opcode 'div'"),
        ([Execute("g", {"in": setting(rd_ptr_local=0, rd_ptr_global=0, zero=True)})], "is zeroed without prologue"),
        (
            [Param(["$p"]), Execute("g", {"in": setting(rd_ptr_local=0, rd_ptr_global=0, prologue="$p")})],
            "prologue of 'in' is bound to the param $p",
        ),
        ([Execute("g", {"in": setting(rd_ptr_local="x", rd_ptr_global=0)})], "'x' is neither a number nor a variable"),
    ],
)
def test_what_a_program_must_not_do(instructions, text):
    with pytest.raises(NetlistError) as error:
        wrong_program(*instructions)()
    assert text in str(error.value)


def test_set_declares_a_variable_until_the_program_ends():
    """Rule P15: `set` may write a variable that nothing declares; later instructions use it, the next run does not."""
    net = chain(entries=8)
    net.program(
        "run",
        [
            VarInst("$n", "set", [3]),
            Var(True, {"$p": 0}),
            Loop("$n"),
            Execute("g", {"in": setting(rd_ptr_local="$p", rd_ptr_global="$p")}),
            VarInst("$p", "incwrap", [1, 16]),
            EndLoop(),
        ],
    )
    executor = run_with(net, push={"in": ones(4)})
    assert firsts(executor.pop_all("out")) == [1, 2, 3]
    assert executor.statics("run") == {"$p": 3}
    run = wrong_program(VarInst("$n", "inc", [1]), VarInst("$n", "set", [3]))
    for _ in range(2):
        with pytest.raises(NetlistError, match=r"instruction 0: variable \$n is used and not declared"):
            run()


def test_a_queue_shorter_than_its_inputs_is_refused():
    net = chain(count=3, entries=4)
    net.streaming()
    executor = Executor(net.netlist())
    executor.push("in", ones(4))
    with pytest.raises(NetlistError, match=r"queue 'in' .* has 4 entries for 3 inputs at a time"):
        executor.run()


def test_dynamic_queues():
    net = Net("grayskull", "Float32")
    net.queue("in", ONE, entries=4)
    net.op("a", "nop", ["in"], ONE, graph="g0")
    net.queue("mid", ONE, source="a", entries=1)
    net.op("b", "exp", ["mid"], ONE, graph="g1")
    net.queue("out", ONE, source="b", entries=4)
    net.program(
        "run",
        [
            Var(True, {"$p": 0}),
            Loop(3),
            Allocate(["mid"]),
            Execute("g0", {"in": setting(rd_ptr_local="$p", rd_ptr_global="$p")}),
            Execute("g1", {"mid": setting(rd_ptr_local=0, rd_ptr_global=0)}),
            Deallocate(["mid"]),
            VarInst("$p", "incwrap", [1, 8]),
            EndLoop(),
        ],
    )
    executor = run_with(net, push={"in": ones(4)})
    np.testing.assert_allclose(firsts(executor.pop_all("out")), np.exp([1, 2, 3]), rtol=1e-6)
    net.net.programs[0].instructions.insert(3, Allocate(["mid"]))
    with pytest.raises(QueueError, match=r"queue 'mid' .* is allocated twice"):
        run_with(net, push={"in": ones(4)})
    net.net.programs[0].instructions[2:4] = [Deallocate(["mid"])]
    with pytest.raises(QueueError, match="is deallocated and was not allocated"):
        run_with(net, push={"in": ones(4)})


def test_dynamic_queues_must_not_lie_on_one_another():
    net = chain()
    net.queue("q1", ONE, buffers=[QueueBuffer(0, 0x1000)])
    net.queue("q2", ONE, buffers=[QueueBuffer(0, 0x1100)])
    net.program("run", [Allocate(["q1"]), Deallocate(["q1"]), Allocate(["q2"]), Allocate(["q1"])])
    with pytest.raises(QueueError, match=r"queue 'q1' .* is allocated over queue 'q2'"):
        Executor(net.netlist()).run()


def test_cancel_stops_between_ops():
    net = chain(count=4)
    net.streaming()
    executor = Executor(net.netlist())
    executor.push("in", ones(4))
    with pytest.raises(Cancelled):
        executor.run(cancel=lambda: True)
    event = threading.Event()
    executor = Executor(net.netlist(), on_op=lambda name, x: event.set())
    executor.push("in", ones(4))
    with pytest.raises(Cancelled, match="at instruction"):
        executor.run(cancel=event)


def test_the_hook_and_kept_outputs_see_every_op():
    net = across_chips()
    seen = {}
    executor = Executor(net, keep={"a"}, on_op=lambda name, x: seen.setdefault(name, []).append(x.copy()))
    feeds = feeds_for(net)
    executor.push("in", feeds["in"])
    executor.run()
    np.testing.assert_array_equal(np.concatenate(seen["a"]), feeds["in"])
    np.testing.assert_array_equal(executor.intermediates["a"], feeds["in"])
    assert set(executor.intermediates) == {"a"} and set(seen) == {"a", "b"}
    assert executor.stats.inputs == 4 and set(executor.stats.op_seconds) == {"a", "b"}


@pytest.mark.parametrize(
    "array, text",
    [
        (np.zeros((1, 1, 32, 64)), r"takes \(n, t, R, C\) = \(n, 1, 32, 32\), not \(1, 1, 32, 64\)"),
        (np.zeros((1, 1, 32, 32), complex), "takes numbers, not complex128"),
    ],
)
def test_pushes_of_the_wrong_kind_are_refused(array, text):
    net = chain()
    with pytest.raises(InputError, match=text):
        Executor(net.netlist()).push("in", array)
    with pytest.raises(InputError, match="there is no queue or ram 'nil'"):
        Executor(net.netlist()).push("nil", array)


def test_a_popped_entry_can_be_read_again_from_behind():
    """The global pointer moves input by input, the local one stands still: every input sees the first entry."""
    net = chain(count=3)
    net.streaming("g", **{"in": {"rd_ptr_autoinc": 0, "global_rdptr_autoinc": 1}})
    executor = run_with(net, push={"in": ones(4)})
    assert firsts(executor.pop_all("out")) == [1, 1, 1]
    assert executor.io["in"].occupancy == 1


def test_a_host_that_listens_without_end_stops_before_its_memory_does(monkeypatch):
    """A loop over a ram never runs out of inputs: the entries that the host takes are counted."""
    net = Net()
    net.graph("g", 1)
    net.ram("w", ONE)
    net.op("o", "nop", ["w"], ONE)
    net.queue("out", ONE, source="o", entries=1)
    net.streaming("g", loops=10**6)
    monkeypatch.setattr("tbuda_lab.sim.arrays.physical", lambda: 2 * 100 * 4096)
    executor = Executor(net.netlist())
    executor.listen("out")
    executor.push("w", ones(1))
    with pytest.raises(QueueError, match="took 100 entries of queue 'out'"):
        executor.run()
