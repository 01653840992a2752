"""Graphs that run together, on one chip and on many."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.errors import NetlistError, QueueError
from tbuda_lab.core.netlist.schema import Execute
from tbuda_lab.sim import Executor
from tests.sim.build import Net
from tests.sim.harness import check, feeds_for
from tests.sim.test_programs import ONE, across_chips, firsts, ones, run_with, setting


def test_graphs_linked_by_ops_run_together():
    net = across_chips()
    assert Executor(net).epoch_of("g0") == ("g0", "g1")
    check(net)


def test_neighbours_on_other_chips_run_together_but_on_grayskull():
    net = across_chips(link="queue", entries=1)
    executor = Executor(net)
    assert executor.epoch_of("g0") == ("g0", "g1")
    feeds = feeds_for(net)
    executor.push("in", feeds["in"])
    executor.run()  # a relay queue of one entry is enough, since both run at once
    np.testing.assert_allclose(executor.pop_all("out"), np.exp(feeds["in"]), rtol=1e-6)
    apart = Executor(across_chips("grayskull", link="queue", entries=1))
    assert apart.epoch_of("g0") == ("g0",)
    apart.push("in", feeds["in"])
    with pytest.raises(QueueError, match=r"push to full queue 'link' .fed by op 'a', read by op b"):
        apart.run()


def test_a_variable_that_moves_before_its_epoch_is_complete_moves_no_pointer_yet():
    net = across_chips()
    program = net.programs[0]
    declared, first, second, move, _ = program.instructions
    program.instructions = [declared, first, move, second]
    executor = Executor(net)
    x = feeds_for(net)["in"]
    executor.push("in", x)
    executor.run()
    np.testing.assert_allclose(executor.pop_all("out"), np.exp(x), rtol=1e-6)
    assert executor.statics("run")["$p"] == 4
    np.testing.assert_array_equal(executor.pop_all("in"), x)  # its setting was read before


def test_op_links_within_one_device_are_refused():
    net = across_chips()
    net.graphs["g1"].target_device = 0
    with pytest.raises(NetlistError, match="op 'b': reads op 'a' of graph 'g0', which is on the same device"):
        Executor(net)


def test_a_chain_over_33_chips():
    net = Net("blackhole", "Float32")
    net.queue("in", ONE, entries=2)
    source = "in"
    for chip in range(33):
        net.graph(f"g{chip}", 2, device=chip)
        source = net.op(
            f"op{chip}", "nop" if chip % 8 else "add", [source] * (1 if chip % 8 else 2), ONE, graph=f"g{chip}"
        )
    net.queue("out", ONE, source=source, entries=2, target_device=32)
    net.program(
        "run", [Execute(f"g{c}", {"in": setting(rd_ptr_local=0, rd_ptr_global=0)} if c == 0 else {}) for c in range(33)]
    )
    got, _ = check(net.netlist())
    np.testing.assert_array_equal(got["out"], feeds_for(net.netlist())["in"] * 32)


def test_epochs_that_are_not_completed_are_refused():
    net = across_chips()
    net.programs[0].instructions = net.programs[0].instructions[:2]
    executor = Executor(net)
    executor.push("in", ones(4))
    with pytest.raises(NetlistError, match="graphs g0 wait for g1 of their temporal epoch"):
        executor.run()


def test_a_ram_may_be_read_and_written_by_one_graph():
    net = Net("grayskull", "Float32")
    net.graph("g", 3)
    net.queue("in", ONE, entries=3)
    net.ram("state", ONE, source="op")
    net.op("op", "add", ["in", "state"], ONE)
    net.queue("out", ONE, source="op", entries=3)
    net.streaming()
    executor = run_with(net, push={"in": ones(3), "state": ones(1, 100)})
    assert firsts(executor.pop_all("out")) == [101, 103, 106]


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 6), st.sampled_from([1, 2, 5, 1000]), st.integers(0, 1000))
def test_inputs_side_by_side_equal_inputs_one_by_one(count, chunk, seed):
    net = Net("grayskull", "Float16_b")
    net.graph("g", count)
    net.queue("in", (2, 1, 2), entries=count)
    net.ram("w", (1, 2, 2))
    net.op("mm", "matmul", ["in", "w"], (2, 1, 2), m_k=2, u_kt=1, tms={1: [("broadcast", "z", 2)]})
    net.op("k", "exp", ["w"], (1, 2, 2))
    net.op("t", "nop", ["k"], (2, 2, 1), tms={0: [("hslice", 2)]})
    net.op("s", "add", ["mm", "t"], (2, 1, 2), tms={1: [("vstack", 2), ("vslice", 4), ("hstack", 2)]})
    net.queue("out", (2, 1, 2), source="s", entries=count)
    net.queue("out2", (2, 2, 1), source="t", entries=count)
    net.streaming()
    feeds = feeds_for(net.netlist(), seed)
    results = []
    for sequential in (True, False):
        executor = Executor(net.netlist(), keep="all")
        for name, array in feeds.items():
            executor.push(name, array)
        plan = executor.plan(("g",))
        plan.sequential, plan.chunk = sequential, chunk
        executor.run()
        results.append((executor.pop_all("out"), executor.pop_all("out2"), executor.intermediates))
    for one, other in zip(*results, strict=True):
        if isinstance(one, dict):
            assert {n: a.shape for n, a in one.items()} == {n: a.shape for n, a in other.items()}
            for name in one:
                np.testing.assert_allclose(one[name], other[name], rtol=1e-5, atol=1e-6)
        else:
            np.testing.assert_allclose(one, other, rtol=2**-7)
