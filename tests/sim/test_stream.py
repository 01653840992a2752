"""Several turns of a program's loop at once: the same bits, in fewer steps, and state is respected."""

from __future__ import annotations

import threading

import numpy as np
import pytest
import torch
from torch import nn

from tbuda_lab.core.compiler.pipeline import compile_graph
from tbuda_lab.core.errors import Cancelled, QueueError
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.netlist.schema import EndLoop, Execute, Loop, Var, VarInst
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.run_control import RunControl
from tbuda_lab.core.runner import Runner
from tbuda_lab.sim import Executor
from tests.sim.build import Net
from tests.sim.test_programs import ONE, firsts, ones, setting


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(64, 2, 96, batch_first=True)
        self.head = nn.Linear(64, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(self.head(self.layer(x)[:, -1]), -1)


CONV = nn.Sequential(
    nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, stride=2, groups=8), nn.Flatten(), nn.Linear(72, 7)
)
MODELS = {
    "mlp": (nn.Sequential(nn.Linear(72, 100), nn.ReLU(), nn.LayerNorm(100), nn.Linear(100, 40), nn.GELU()), (9, 72)),
    "long sums": (nn.Sequential(nn.Linear(2048, 64), nn.Tanh(), nn.Linear(64, 40)), (9, 4, 2048)),
    "conv": (CONV, (9, 3, 8, 8)),
    "attention": (Attention(), (9, 10, 64)),
}


@pytest.mark.parametrize("mode", ["golden", "device"])
@pytest.mark.parametrize("name", MODELS)
def test_together_gives_the_bits_of_one_after_the_other(name: str, mode: str, monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    model, shape = MODELS[name]
    x = torch.randn(*shape)
    result = compile_graph(from_torch(model.eval(), (x,), name=name), "wormhole_b0", CompileOptions(microbatch=3))
    together, apart = Runner(result, mode), Runner(result, mode)
    got = together.run([(x,)])[0]
    monkeypatch.setattr(Executor, "at_once", lambda *_: 1)
    expected = apart.run([(x,)])[0]
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))
    assert together.executor.stats.ops < apart.executor.stats.ops
    assert together.executor.stats.inputs == apart.executor.stats.inputs
    again = together.run([(x,)])[0]  # one by one after it, on the same queues
    assert all(torch.equal(a, b) for a, b in zip(again, expected, strict=True))


def relay(turns: int, entries: int = 2, *, kind: str = "dropout", count: int = 1) -> Net:
    """Two epochs of one device with a queue between."""
    net = Net("grayskull", "Float32")
    net.graph("first", count)
    net.graph("second", count)
    net.queue("in", ONE, entries=2 * count)
    net.op("a", kind, ["in"], ONE, graph="first", **({"p": 0.5, "seed": 3} if kind == "dropout" else {}))
    net.queue("link", ONE, source="a", entries=2 * count)
    net.op("b", "nop", ["link"], ONE, graph="second")
    net.queue("out", ONE, source="b", entries=entries)
    moves = [VarInst(f"${p}", "incwrap", [count, 4 * count]) for p in ("i", "l")]
    net.program(
        "run",
        [
            Var(True, {"$i": 0, "$l": 0}),
            Loop(turns),
            Execute("first", {"in": setting(rd_ptr_local="$i", rd_ptr_global="$i")}),
            Execute("second", {"link": setting(rd_ptr_local="$l", rd_ptr_global="$l")}),
            *moves,
            EndLoop(),
        ],
    )
    return net


def one_by_one(net: Net, array: np.ndarray) -> np.ndarray:
    executor = Executor(net.netlist())
    executor.listen("out")
    executor.feed("in", array)
    executor.run()
    return executor.pop_all("out")


@pytest.mark.parametrize("kind", ["dropout", "exp"])
def test_each_epoch_takes_all_turns_in_one_step_and_random_numbers_are_those_of_each_turn(kind: str) -> None:
    net, array = relay(5, kind=kind, count=2), ones(10)
    executor = Executor(net.netlist())
    assert executor.at_once(["in"], ["out"]) == 64
    (got,) = executor.stream({"in": array}, ["out"], {})
    np.testing.assert_array_equal(got, one_by_one(net, array))
    assert executor.stats.ops == 2 and executor.stats.executes == 10
    executor.push("in", ones(2))  # nobody listens any more
    assert executor.io["out"].sink is None


@pytest.mark.parametrize("across", [False, True])
def test_a_sum_that_passes_from_turn_to_turn_is_the_same(across: bool) -> None:
    net = Net("grayskull", "Float32")
    net.graph("g")
    net.queue("in", ONE, entries=2)
    net.ram("sum", ONE, source="back" if across else "add")
    net.op("scaled", "exp", ["in"], ONE, graph="g")
    net.op("add", "add", ["in", "sum"], ONE, graph="g")
    if across:
        net.queue("link", ONE, source="add", entries=2)
        net.op("back", "nop", ["link"], ONE, graph="after")
    net.queue("out", ONE, source="add", entries=2)
    ram = setting(rd_ptr_global=0, wr_ptr_global=0)
    body = [Execute("g", {"in": setting(rd_ptr_local="$p", rd_ptr_global="$p"), "sum": ram})]
    if across:
        body.append(Execute("after", {"link": setting(rd_ptr_local="$l", rd_ptr_global="$l"), "sum": ram}))
    moves = [VarInst("$p", "incwrap", [1, 4]), VarInst("$l", "incwrap", [1, 4])]
    net.program("run", [Var(True, {"$p": 0, "$l": 0}), Loop(6), *body, *moves, EndLoop()])
    executor = Executor(net.netlist())
    (got,) = executor.stream({"in": ones(6)}, ["out"], {})
    assert firsts(got) == [1, 3, 6, 10, 15, 21]
    assert firsts(executor.pop_all("sum")) == [21]


def test_turns_are_bounded_by_memory_and_by_who_watches() -> None:
    net = relay(1)
    assert Executor(net.netlist()).at_once(["in"], ["out"]) == 64
    assert Executor(net.netlist(), keep={"a"}).at_once(["in"], ["out"]) == 1
    assert Executor(net.netlist(), on_op=lambda name, x: None).at_once(["in"], ["out"]) == 1
    assert Executor(net.netlist()).at_once(["in"], ["link"]) == 1  # an op reads it
    wide = Net("grayskull", "Float32")
    wide.queue("in", (1, 64, 64))
    wide.op("op", "nop", ["in"], (1, 64, 64))
    wide.queue("out", (1, 64, 64), source="op")
    wide.streaming()
    assert Executor(wide.netlist()).at_once(["in"], ["out"]) == 1  # 16 MB each: nothing to gain
    for i in range(200):
        net.queue(f"more{i}", (1, 8, 8), source="a")
    assert Executor(net.netlist()).at_once(["in"], ["out"]) == 5  # 52 MB a turn


def test_what_came_before_an_error_is_there_and_a_stopped_run_leaves_zeros() -> None:
    executor = Executor(relay(3).netlist())
    executor.push("in", ones(2))
    with pytest.raises(QueueError, match="read from empty queue 'in'"):
        executor.stream({}, [], {})
    assert firsts(executor.pop_all("out")) == firsts(one_by_one(relay(2), ones(2)))
    stop = threading.Event()
    executor = Executor(relay(2).netlist())
    executor.on_step = lambda name, inputs: stop.set()
    with pytest.raises(Cancelled, match="before op 'b'"):
        executor.stream({"in": ones(2)}, ["out"], {}, cancel=stop)
    executor.io["link"].rd = 0
    assert not executor.read("out").any()


def test_a_run_that_is_stepped_goes_input_by_input() -> None:
    model = nn.Linear(32, 32).eval()
    x = torch.randn(6, 32)
    result = compile_graph(from_torch(model, (x,), name="m"), "wormhole_b0", CompileOptions())
    done: list[int] = []
    control = RunControl()
    control.step_input()
    runner = Runner(result)
    thread = threading.Thread(target=lambda: runner.run([(x,)], lambda at, of: done.append(at), control=control))
    thread.start()
    while thread.is_alive() and not control.waiting:
        thread.join(0.01)
    assert done == [1]
    control.resume()
    thread.join()
    assert done == [1, 2, 6] or done == [1, 6]
