"""Rams: pointers, views of the same bytes, gradients that accumulate."""

import numpy as np
import pytest

from tbuda_lab.core.errors import QueueError
from tbuda_lab.core.netlist.schema import EndLoop, Execute, Loop, Param, QueueBuffer, Var, VarInst
from tbuda_lab.sim import Executor
from tests.sim.build import Net
from tests.sim.harness import check, feeds_for
from tests.sim.test_programs import ONE, firsts, ones, run_with, setting


def cache(entries=3):
    """A writer that fills a slot chosen by a param and a reader of another one."""
    net = Net("grayskull", "Float32")
    net.queue("in", ONE, entries=4)
    net.op("w", "nop", ["in"], ONE, graph="write")
    net.ram("cache", ONE, source="w", entries=entries)
    net.op("r", "nop", ["cache"], ONE, graph="read")
    net.queue("out", ONE, source="r", entries=4)
    net.program(
        "put",
        [
            Param(["$slot"]),
            Var(True, {"$p": 0}),
            Var(False, {"$v": 0}),
            VarInst("$v", "set", ["$slot"]),
            Execute(
                "write",
                {
                    "in": setting(rd_ptr_local="$p", rd_ptr_global="$p"),
                    "cache": setting(wr_ptr_global="$v", rd_ptr_global=0),
                },
            ),
            VarInst("$p", "incwrap", [1, 8]),
        ],
    )
    net.program(
        "get",
        [Param(["$slot"]), Execute("read", {"cache": setting(wr_ptr_global=0, rd_ptr_global="$slot", read_only=True)})],
    )
    return net


def test_ram_pointers_choose_slots():
    executor = Executor(cache().netlist())
    executor.push("in", ones(3))
    for slot in (2, 0, 1):
        executor.run("put", {"$slot": slot})
    assert firsts(executor.pop_all("cache")) == [2, 3, 1]
    executor.run("get", {"slot": 2})
    assert firsts(executor.pop_all("out")) == [1]
    assert executor.io["cache"].wr == 1  # the reader is read_only
    with pytest.raises(QueueError, match="write pointer 5 of ram 'cache'"):
        executor.push("in", ones(1))
        executor.run("put", {"$slot": 5})


def test_ram_pointers_that_move_by_themselves():
    net = Net("grayskull", "Float32")
    net.graph("g", 2)
    net.ram("src", ONE, entries=4)
    net.op("op", "nop", ["src"], ONE)
    net.ram("dst", ONE, source="op", entries=4)
    net.streaming(
        loops=3,
        src={"prologue": False, "global_rdptr_autoinc": 1, "rd_ptr_global": 1, "wr_ptr_global": 0},
        dst=setting(rd_ptr_global=0, wr_ptr_global=3, global_wrptr_autoinc=1).fields,
    )
    executor = run_with(net, push={"src": ones(4)})
    assert firsts(executor.pop_all("dst")) == [3, 0, 0, 2]
    check(net.netlist())


@pytest.mark.parametrize("blocking", ["slices", "rows"])
def test_a_view_of_a_ram_shows_the_same_bytes(blocking):
    net = Net("grayskull", "Float32")
    buffers = [QueueBuffer(0, 0x20000000), QueueBuffer(0, 0x30000000)]
    net.queue("in", (1, 2, 1), entries=4)
    net.op("w", "nop", ["in"], (1, 2, 1), graph="write", grid=(2, 1))
    net.ram("cache", (1, 2, 1), source="w", entries=4, grid=(2, 1), buffers=buffers)
    shape = (4, 2, 1) if blocking == "slices" else (1, 8, 1)
    net.ram("view", shape, entries=1, grid=(2, 1), buffers=list(buffers), alias="cache")
    net.op("r", "nop", ["view"], shape, graph="read", grid=(2, 1))
    net.queue("out", shape, source="r")
    x = np.random.default_rng(0).normal(size=(4, 1, 64, 32)).astype(np.float32)
    executor = Executor(net.netlist())
    executor.push("in", x)
    net.program(
        "put",
        [
            Loop(4),
            Execute(
                "write",
                {
                    "in": setting(rd_ptr_local=0, rd_ptr_global=0, rd_ptr_autoinc=1),
                    "cache": setting(rd_ptr_global=0, wr_ptr_global=0),
                },
            ),
            EndLoop(),
        ],
    )
    for slot in range(4):
        executor.write("cache", x[slot], slot)
    net.program("get", [Execute("read", {"view": setting(rd_ptr_global=0, wr_ptr_global=0, read_only=True)})])
    executor.run("get")
    got = executor.pop("out")
    if blocking == "slices":
        np.testing.assert_array_equal(got, x[:, 0])
    else:  # each buffer holds the upper (lower) tile of all entries, one after the other
        top, bottom = x[:, 0, :32], x[:, 0, 32:]
        np.testing.assert_array_equal(got[0, :128], top.reshape(128, 32))
        np.testing.assert_array_equal(got[0, 128:], bottom.reshape(128, 32))
    executor.write("view", got * 2)
    np.testing.assert_array_equal(executor.pop_all("cache"), x * 2)


def test_a_view_of_a_ram_may_arrange_its_buffers_otherwise():
    net = Net("grayskull", "Float32")
    buffers = [QueueBuffer(0, 0x20000000), QueueBuffer(0, 0x30000000)]
    net.ram("cache", (1, 1, 2), entries=4, grid=(1, 2), buffers=buffers)
    net.ram("view", (4, 2, 1), entries=1, grid=(2, 1), buffers=list(buffers), alias="cache")
    executor = Executor(net.netlist())
    x = np.random.default_rng(0).normal(size=(4, 1, 32, 64)).astype(np.float32)
    executor.push("cache", x)
    stacked = np.concatenate([x[..., :32], x[..., 32:]], axis=2)[:, 0]  # the left tile lies in the first buffer
    np.testing.assert_array_equal(executor.read("view"), stacked)
    executor.write("view", -stacked)
    np.testing.assert_array_equal(executor.pop_all("cache"), -x)


def test_rams_at_equal_addresses_are_one_memory():
    net = Net("grayskull", "Float32")
    net.ram("a", ONE, buffers=[QueueBuffer(0, 0x1000)])
    net.ram("b", ONE, buffers=[QueueBuffer(0, 0x1000)])
    net.ram("c", ONE, buffers=[QueueBuffer(0, 0x1000)], target_device=1)
    executor = Executor(net.netlist())
    executor.write("a", ones(1)[0])
    assert executor.read("b").any() and not executor.read("c").any()


def gradient(loops=2, count=2, zero: object = False):
    net = Net("grayskull", "Float32")
    net.graph("g", count)
    net.queue("a", (1, 1, 2), entries=4)
    net.queue("b", (1, 2, 1), entries=4)
    net.op("mm", "matmul", ["a", "b"], ONE, gradient=True, m_k=2, u_kt=1)
    net.ram("acc", ONE, source="mm")
    net.streaming(
        loops=loops,
        acc={"prologue": True, "epilogue": True, "zero": zero, "rd_ptr_global": "$c_zero", "wr_ptr_global": "$c_zero"},
    )
    return net.netlist()


@pytest.mark.parametrize("zero", [False, True])
def test_gradients_accumulate_until_zeroed(zero):
    net = gradient(zero=zero)
    got, _ = check(net, rtol=1e-5)
    feeds = feeds_for(net)
    products = feeds["a"].astype(float) @ feeds["b"].astype(float)
    expected = products[2:].sum(0) if zero else products.sum(0)
    np.testing.assert_allclose(got["acc"][0], expected, atol=1e-4)


# -- programs ---------------------------------------------------------------------------------------------------------
