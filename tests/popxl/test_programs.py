"""Programs in PopXL, from the graph to the numbers: the grid does the floats, and NumPy or torch says what is right."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tbuda_lab.popxl as popxl
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError, UnsupportedOp
from tbuda_lab.dialects.host_program import Branch, steps_of
from tbuda_lab.dialects.program import program_frame
from tbuda_lab.dialects.replicas import collective_cycles
from tbuda_lab.popxl import executable, ops, transforms


def run(ir: popxl.Ir, outputs: dict[str, popxl.Tensor], inputs: dict | None = None) -> dict[str, np.ndarray]:
    """What a program gives, by name."""
    with ir.main_graph:
        streams = {name: popxl.d2h_stream(t.shape, t.dtype, name=f"{name}_out") for name, t in outputs.items()}
        for name, t in outputs.items():
            ops.host_store(streams[name], t)
    with popxl.Session(ir, "ipu_model") as session:
        made = session.run(inputs)
    return {name: made[stream] for name, stream in streams.items()}


def test_addition_of_streams_runs_on_the_grid() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        a, b = (popxl.h2d_stream((3, 5), popxl.float32, name=n) for n in "ab")
        total = ops.host_load(a) + ops.host_load(b)
        out = popxl.d2h_stream(total.shape, total.dtype)
        ops.host_store(out, total)
    session = popxl.Session(ir, "ipu_model")
    x, y = np.random.default_rng(0).standard_normal((2, 3, 5)).astype(np.float32)
    with session:
        np.testing.assert_array_equal(session.run({a: x, b: y})[out], x + y)
    assert [entry.kind for entry in session.report if entry.type == "Add"] == ["grid"]


def test_views_and_in_place_ops_are_numpy_views() -> None:
    data = np.arange(24, dtype=np.float32).reshape(4, 6)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        v = popxl.variable(data, name="v")
        part = ops.transpose_(ops.slice_(v, [1, 5], [3, 1], [1, -1], [0, 1]))
        ops.add_(part, popxl.constant(np.full((4, 2), 0.5, np.float32)))
        got = run(ir, {"v": v, "part": part})
    wanted = data.copy()
    view = wanted[1:3, 5:1:-1].T
    view += 0.5
    np.testing.assert_array_equal(got["v"], wanted)
    np.testing.assert_array_equal(got["part"], view)


def test_a_call_copies_its_operands_unless_it_takes_them_by_reference() -> None:
    def by_value(x: popxl.Tensor) -> popxl.Tensor:
        return ops.add_(x, popxl.constant(1.0))

    def by_reference(x: popxl.TensorByRef) -> popxl.Tensor:
        return ops.add_(x, popxl.constant(1.0))

    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        v = popxl.variable(np.ones(3, np.float32))
        (first,) = ops.call(ir.create_graph(by_value, v), v)
        kept = v + 0.0
        (second,) = ops.call(ir.create_graph(by_reference, v), v)
        got = run(ir, {"first": first, "kept": kept, "second": second, "v": v})
    assert {name: float(value[0]) for name, value in got.items()} == {"first": 2, "kept": 1, "second": 2, "v": 2}


def test_a_repeat_of_a_pure_body_is_one_program() -> None:
    rng = np.random.default_rng(1)
    weight, start = rng.standard_normal((4, 4)).astype(np.float32), rng.standard_normal((2, 4)).astype(np.float32)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        w, x = popxl.variable(weight), popxl.variable(start)
        body = ir.create_graph(lambda x, w: ops.tanh(x @ w), x, w)
        (y,) = ops.repeat(body, 8, x, w)
        stream = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(stream, y)
    session = popxl.Session(ir, "ipu_model")
    with session:
        got = session.run()[stream]
    wanted = torch.from_numpy(start)
    for _ in range(8):
        wanted = torch.tanh(wanted @ torch.from_numpy(weight))
    np.testing.assert_allclose(got, wanted.numpy(), atol=1e-6)
    assert len(session.executable.parts) == 1


@pytest.mark.parametrize("host", [False, True])
def test_a_repeat_reads_and_writes_streams_turn_by_turn(host: bool) -> None:
    """Without steps of the host its streams are queues of one program, which runs all turns."""
    rng = np.random.default_rng(3)
    turns, weight = 6, rng.standard_normal((4, 4)).astype(np.float32)
    data = rng.standard_normal((2 * turns, 2, 4)).astype(np.float32)
    ir = popxl.Ir()
    ir.num_host_transfers = 2 * turns
    with ir.main_graph, popxl.in_sequence():
        loads, stores = popxl.h2d_stream((2, 4), popxl.float32), popxl.d2h_stream((2, 4), popxl.float32)
        w, state = popxl.variable(weight), popxl.variable(np.zeros((2, 4), np.float32))

        def step(state: popxl.Tensor, w: popxl.Tensor) -> popxl.Tensor:
            first, second = ops.host_load(loads), ops.host_load(loads)
            state = ops.tanh(first @ w + state * 0.5)
            ops.host_store(stores, state)
            ops.host_store(stores, ops.print_tensor(second) if host else second - state)
            return state

        (last,) = ops.repeat(ir.create_graph(step, state, w), turns, state, w)
        ops.var_updates.copy_var_update_(state, last)
    session = popxl.Session(ir, "ipu_model")
    with session:
        first, second = (session.run({loads: data})[stores] for _ in range(2))
    value = np.zeros((2, 4))
    for got in (first, second):
        for k in range(turns):
            value = np.tanh(data[2 * k].astype(np.float64) @ weight + value * 0.5)
            np.testing.assert_allclose(got[2 * k], value, atol=1e-6)
            np.testing.assert_allclose(got[2 * k + 1], data[2 * k + 1] - (0 if host else value), atol=1e-6)
    np.testing.assert_allclose(session.get_tensor_data(state), value, atol=1e-6)
    steps = [type(step).__name__ for _, step in session.executable.programs["main"].steps]
    assert ("HostLoop" in steps) == host
    assert host or [s for s in steps if s != "Move"] == ["Feed", "Run", "Drain"]


@pytest.mark.parametrize("by_ref", [False, True])
@pytest.mark.parametrize("host", [False, True])
def test_a_variable_keeps_what_a_repeat_makes_of_it(by_ref: bool, host: bool) -> None:
    def add(x: popxl.Tensor) -> popxl.Tensor | None:
        y = ops.add_(x, popxl.constant(np.ones(2, np.float32)))
        return ops.print_tensor(y) if host and not by_ref else None if by_ref else y

    if by_ref:
        add.__annotations__["x"] = popxl.TensorByRef
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        v = popxl.variable(np.zeros(2, np.float32))
        outs = ops.repeat(ir.create_graph(add, v), 3, v)
        if not by_ref:
            ops.var_updates.copy_var_update_(v, outs[0])
    session = popxl.Session(ir, "ipu_model")
    with session:
        session.run()
        session.run()
    np.testing.assert_array_equal(session.get_tensor_data(v), [6, 6])


def test_a_repeat_s_operands_by_reference_may_be_parts_of_one_tensor() -> None:
    """As with NumPy's views; what it hands on may come from outside of it."""

    def body(x: popxl.Tensor, a: popxl.TensorByRef, b: popxl.TensorByRef, y: popxl.Tensor) -> popxl.Tensor:
        ops.add_(a, popxl.constant(1.0))
        ops.var_updates.copy_var_update_(b, a)
        return y

    data = np.arange(12, dtype=np.float32).reshape(4, 3)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        v = popxl.variable(data)
        made = v * 2.0
        first, second = ops.slice_(v, [0], [2], [1], [0]), ops.slice_(v, [1], [3], [1], [0])
        (y,) = ops.repeat(ir.create_graph(body, first, first, second, first), 3, first, first, second, made[:2])
        stream = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(stream, y)
    session = popxl.Session(ir, "ipu_model")
    wanted = data.copy()
    for _ in range(3):
        wanted[:2] += 1
        wanted[1:3] = wanted[:2].copy()
    with session:
        np.testing.assert_array_equal(session.run()[stream], data[:2] * 2)
    np.testing.assert_array_equal(session.get_tensor_data(v), wanted)


@pytest.mark.parametrize("truth", [True, False])
def test_a_conditional_takes_one_branch_without_a_cut(truth: bool) -> None:
    """On the grid both are calculated; what is not a number in the other one does not get through."""
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.float32([3.0, 0.0]))
        bad = popxl.variable(np.float32([np.nan, np.inf]))
        condition = popxl.variable(truth)
        fine = ir.create_graph(lambda x, bad: (x * 2.0, x + 1.0), x, bad)
        wrong = ir.create_graph(lambda x, bad: (bad * x, ops.div(bad, x)), x, bad)
        first, second = (fine, wrong) if truth else (wrong, fine)
        outs = ops.conditional(condition, first, second, [x, bad], [x, bad])
        streams = [popxl.d2h_stream(t.shape, t.dtype) for t in outs]
        for stream, t in zip(streams, outs, strict=True):
            ops.host_store(stream, t * 1.0)
    session = popxl.Session(ir, "ipu_model")
    with session:
        got = session.run()
    np.testing.assert_array_equal(got[streams[0]], [6.0, 0.0])
    np.testing.assert_array_equal(got[streams[1]], [4.0, 1.0])
    assert len(session.executable.parts) == 1 and {"If", "Where"} & {e.type for e in session.report}


@pytest.mark.parametrize(("host", "cut_costs"), [(False, 1.0), (False, -1.0), (True, 1.0)])
def test_a_conditional_is_cut_where_that_is_cheaper_or_the_host_is_needed(
    host: bool, cut_costs: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """cut_costs: cycles that a cut takes more than a selection."""
    monkeypatch.setattr(executable.LoweredForm, "cycles", lambda form: 10.0 + (0.0 if form.selected else cut_costs))
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x, condition = popxl.variable(np.float32([3.0])), popxl.variable(False)
        twice = ir.create_graph(lambda x: x * 2.0, x)
        other = ir.create_graph(lambda x: ops.print_tensor(x) if host else x * 5.0, x)
        (y,) = ops.conditional(condition, twice, other, [x], [x])
        stream = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(stream, y)
    session = popxl.Session(ir, "ipu_model")
    with session:
        assert float(session.run()[stream][0]) == (3.0 if host else 15.0)
    cut = any(isinstance(step, Branch) for step in steps_of(session.executable.programs["main"]))
    assert cut == (host or cut_costs < 0)


def test_replicas_take_their_own_branches() -> None:
    ir = popxl.Ir(replication=2)
    alone = ir.replica_grouping(group_size=1)
    with ir.main_graph, popxl.in_sequence():
        condition = popxl.variable(np.array([True, False]), replica_grouping=alone)
        x, total = popxl.variable(np.float32([1.0, 2.0])), popxl.h2d_stream((2,), popxl.float32)
        loads = ir.create_graph(lambda x: ops.print_tensor(x) + ops.host_load(total), x)
        plain = ir.create_graph(lambda x: x * 5.0, x)
        (y,) = ops.conditional(condition, loads, plain, [x], [x])
        stream = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(stream, y)
    with popxl.Session(ir, "ipu_model") as session:
        got = session.run({total: np.float32([[10.0, 20.0], [30.0, 40.0]])})
    np.testing.assert_array_equal(got[stream], [[11.0, 22.0], [5.0, 10.0]])


def test_a_collective_that_some_replicas_do_not_reach_is_refused() -> None:
    ir = popxl.Ir(replication=2)
    with ir.main_graph, popxl.in_sequence():
        condition = popxl.variable(np.array([True, False]), replica_grouping=ir.replica_grouping(group_size=1))
        x = popxl.variable(np.float32([1.0, 2.0]))
        sums = ir.create_graph(lambda x: ops.collectives.replicated_all_reduce(x), x)
        (y,) = ops.conditional(condition, sums, ir.create_graph(lambda x: x * 5.0, x), [x], [x])
        stream = popxl.d2h_stream(y.shape, y.dtype)
        ops.host_store(stream, y)
    with (
        popxl.Session(ir, "ipu_model") as session,
        pytest.raises(popxl.popart_exception, match="some replicas do not reach"),
    ):
        session.run()


def test_a_training_step_is_torch_s() -> None:
    rng = np.random.default_rng(2)
    data, weight = rng.standard_normal((8, 6)).astype(np.float32), rng.standard_normal((6, 4)).astype(np.float32)
    labels = rng.integers(0, 4, 8).astype(np.int32)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        x, w, target = popxl.variable(data), popxl.variable(weight, name="w"), popxl.variable(labels)
        forward = ir.create_graph(lambda x, w: ops.gelu(x @ w), x, w)
        call = ops.call_with_info(forward, x, w)
        probs = ops.softmax(call.outputs[0], -1)
        loss, slope = ops.nll_loss_with_softmax_grad(probs, target)
        info = transforms.autodiff(forward, grads_required=[forward.inputs[1]])
        (grad,) = ops.call(info.graph, slope, inputs_dict=info.inputs_dict(call))
        ops.scaled_add_(w, grad, b=-0.1)
        stream = popxl.d2h_stream(loss.shape, loss.dtype)
        ops.host_store(stream, loss)
    session = popxl.Session(ir, "ipu_model")
    with session:
        got = float(session.run()[stream])
    model = torch.tensor(weight, requires_grad=True)
    logits = torch.nn.functional.gelu(torch.from_numpy(data) @ model, approximate="tanh")
    wanted = torch.nn.functional.cross_entropy(logits, torch.from_numpy(labels).long())
    wanted.backward()
    assert got == pytest.approx(wanted.item(), abs=1e-5)
    updated = session.get_tensor_data(w)
    np.testing.assert_allclose(updated, (model - 0.1 * model.grad).detach().numpy(), atol=5e-5)
    assert len(session.executable.parts) <= 3


def test_an_order_that_decides_the_result_has_to_be_said() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        v = popxl.variable(np.ones(3, np.float32))
        ops.relu_(v)
        ops.add_(v, popxl.constant(1.0))
    with pytest.raises(popxl.popart_exception, match="Inplacing ambiguity"):
        popxl.Session(ir, "ipu_model")


def test_replicas_sum_over_their_groups() -> None:
    ir = popxl.Ir(replication=4)
    group = ir.replica_grouping(stride=2, group_size=2)
    data = np.array([[1.0, 2.0], [10.0, 20.0]], np.float32)
    with ir.main_graph:
        v = popxl.variable(data, replica_grouping=group)
        total = ops.collectives.replicated_all_reduce(v * 1.0, "add", group)
        got = run(ir, {"total": total})["total"]
    np.testing.assert_array_equal(got, 2 * data[group.assignment])


EDGES = np.array([0, 1, -1, 2**31 - 1, -(2**31), 2**24 + 1, -(2**24) - 1], np.int32)


def _link_by_link(kind: str, size: int, groups: list[int], bandwidth: float) -> float:
    """Cycles of ring algorithms step by step: what every member sends to the next in its ring, over links of a row."""
    rings = [[k for k, own in enumerate(groups) if own == g] for g in dict.fromkeys(groups)]
    n = len(rings[0])
    steps, part = {
        "ReplicatedAllReduce": (2 * (n - 1), size / n),
        "ReplicatedReduceScatter": (n - 1, size / n),
        "ReplicatedAllGather": (n - 1, float(size)),
    }[kind]
    cycles = 0.0
    for _ in range(steps):
        sent: dict[tuple[int, int], float] = {}
        for ring in rings:
            for k, source in enumerate(ring):
                target = ring[(k + 1) % n]
                way = 1 if target > source else -1
                for at in range(source, target, way):
                    sent[at, at + way] = sent.get((at, at + way), 0.0) + part
        cycles += max(sent.values(), default=0.0) / bandwidth
    return cycles


@pytest.mark.parametrize("kind", ["ReplicatedAllReduce", "ReplicatedReduceScatter", "ReplicatedAllGather"])
@pytest.mark.parametrize(
    "groups",
    [[0, 0], [0, 0, 0, 0], [0, 1, 0, 1], [0, 0, 1, 1], [0, 1, 2, 0, 1, 2], [0, 1, 0, 1, 2, 3, 2, 3], [0, 1, 2]],
)
def test_a_collective_takes_what_its_rings_send(kind: str, groups: list[int]) -> None:
    device = load_device("wormhole_b0")
    wanted = _link_by_link(kind, 9_600, groups, device.eth_bytes_per_cycle)
    assert collective_cycles(kind, 9_600, groups, device) == pytest.approx(wanted)
    assert collective_cycles("ReplicatedSlice", 9_600, groups, device) == 0.0
    with pytest.raises(InputError, match="no collective 'Send'"):
        collective_cycles("Send", 4, groups, device)


def test_collectives_are_on_the_timeline_of_the_replicas() -> None:
    ir = popxl.Ir(replication=4)
    with ir.main_graph, popxl.in_sequence():
        v = popxl.variable(np.ones((32, 32), np.float32))
        total = ops.collectives.replicated_all_reduce(v * 2.0, "add", ir.replica_grouping(stride=2, group_size=2))
        out = popxl.d2h_stream(total.shape, total.dtype)
        ops.host_store(out, total + 1.0)
    session = popxl.Session(ir, "ipu_model")
    program, result = session.buda_programs()[0], session.executable.result
    assert result is not None
    meta = program_frame(program, result).meta
    times = meta["timelines"]["normal"]
    (first, second), ((said, start, end),) = times["device"], times["link"]
    assert meta["replicas"] == 4 and said.startswith("ReplicatedAllReduce of")
    assert first[2] == start and end == second[1] and second[2] == times["cycles"]
    sent = 2 * (2 - 1) / 2 * 4 * 32 * 32  # bytes; rings of two that are two apart share links
    assert end - start == pytest.approx(2 * sent / result.device.eth_bytes_per_cycle)


def test_shards_are_gathered_over_the_replicas_that_share_a_tensor() -> None:
    """Groups of four that are four apart, each tensor sharded over two of them."""
    data = np.arange(4 * 32, dtype=np.float32).reshape(4, 32)
    ir = popxl.Ir(replication=16)
    group, pair = ir.replica_grouping(stride=4, group_size=4), ir.replica_grouping(stride=4, group_size=2)
    with ir.main_graph, popxl.in_sequence():
        handle, shard = popxl.replica_sharded_variable(data, replica_grouping=group, shard_over=2)
        for wrong, error in (({"group": None}, ValueError), ({"axis": pair}, TypeError), ({"group": 2}, TypeError)):
            with pytest.raises(error):
                ops.collectives.replicated_all_gather(shard, **wrong)
        with pytest.raises(ValueError, match="of 2 replicas, the Ir has 16"):
            ops.collectives.replicated_all_gather(shard, group=popxl.Ir(2).replica_grouping())
        whole = ops.collectives.replicated_all_gather(shard, group=pair)
        own = ops.collectives.replica_sharded_slice(whole + 1.0, pair)
        ops.var_updates.copy_var_update_(shard, own)
    session = popxl.Session(ir, "ipu_model")
    with session:
        session.run()
    np.testing.assert_array_equal(session.get_tensor_data(handle), data + 1)


def test_int32_runs_on_the_grid_and_wraps() -> None:
    """Streams, a variable, a repeat that counts, a mask: with NumPy's numbers at the edges of 32 bits."""
    rng, shape = np.random.default_rng(3), (5, 40)
    x, y = (
        np.where(rng.random(shape) < 0.3, rng.choice(EDGES, shape), rng.integers(-(2**31), 2**31, shape)).astype(
            np.int32
        )
        for _ in range(2)
    )
    mask = rng.random(shape) < 0.5
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        streams = [popxl.h2d_stream(shape, t) for t in (popxl.int32, popxl.int32, popxl.bool)]
        a, b, c = map(ops.host_load, streams)
        v = popxl.variable(np.full(shape, 2**31 - 2, np.int32), name="v")
        total = a + b
        ops.add_(v, total)
        body = ir.create_graph(lambda n, step: n + step, a, b)
        (counted,) = ops.repeat(body, 5, a, b)
        made = {
            "total": total,
            "most": ops.maximum(total, b),
            "chosen": ops.where(c, total, b),
            "relu": ops.relu(a),
            "less": a - 5,
            "counted": counted,
            "turned": ops.transpose(a),
            "product": a * b,
            "v": v,
            "at": ops.argmax(ops.cast(a, popxl.float32), dim=1) + 1,
        }
        outs = {name: popxl.d2h_stream(t.shape, t.dtype) for name, t in made.items()}
        for name, t in made.items():
            ops.host_store(outs[name], t)
    session = popxl.Session(ir, "ipu_model")
    with session:
        got = session.run(dict(zip(streams, (x, y, mask), strict=True)))
    with np.errstate(over="ignore"):
        s = x + y
        wanted = {
            "total": s,
            "most": np.maximum(s, y),
            "chosen": np.where(mask, s, y),
            "relu": np.maximum(x, 0),
            "less": x - 5,
            "counted": x + 5 * y,
            "turned": x.T,
            "product": x * y,
            "v": s + np.int32(2**31 - 2),
            "at": np.argmax(x.astype(np.float32), 1) + 1,
        }
    for name, want in wanted.items():
        assert got[outs[name]].dtype == np.int32 and np.array_equal(got[outs[name]], want), name
    places = {(e.type, e.kind, e.reason) for e in session.report if e.kind != "program"}
    assert {(k, r) for t, k, r in places if t in ("Add", "AddLhsInplace", "Max", "Relu", "Sub")} == {("grid", "")}
    assert {t for t, k, r in places if r == "integer arithmetic"} == {"Transpose", "Mul"}


def test_sums_of_whole_slices_of_int32_run_on_the_grid() -> None:
    rng = np.random.default_rng(5)
    data = rng.integers(-(2**31), 2**31, (3, 4, 5, 6)).astype(np.int32)
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(data)
        outs = {
            "both": ops.sum(x, [0, 1]),
            "second": ops.sum(x, [1], keepdims=True),
            "most": ops.max(x, [0]),
            "rows": ops.sum(x, [2]),
        }
        streams = {name: popxl.d2h_stream(t.shape, t.dtype) for name, t in outs.items()}
        for name, t in outs.items():
            ops.host_store(streams[name], t)
    session = popxl.Session(ir, "ipu_model")
    with session:
        got = session.run()
    wanted = {
        "both": data.sum((0, 1), dtype=np.int32),
        "second": data.sum(1, dtype=np.int32, keepdims=True),
        "most": data.max(0),
        "rows": data.sum(2, dtype=np.int32),
    }
    for name, value in wanted.items():
        np.testing.assert_array_equal(got[streams[name]], value, err_msg=name)
    places = [(e.kind, e.reason) for e in session.report if e.type.startswith("Reduce")]
    assert places == [*[("grid", "")] * 3, ("host", "integer arithmetic")]


def test_a_strict_run_accepts_integers_and_names_what_else_the_host_does() -> None:
    popxl.options(strict=True)
    try:
        ir = popxl.Ir()
        with ir.main_graph:
            x = popxl.variable(np.arange(6, dtype=np.int32))
            assert np.array_equal(run(ir, {"y": x * x})["y"], np.arange(6) ** 2)
        ir = popxl.Ir()
        with ir.main_graph:
            floored = ops.floor(popxl.variable(np.arange(6, dtype=np.float32)))
            with pytest.raises(UnsupportedOp, match="rounding"):
                run(ir, {"y": floored})
    finally:
        popxl.options(strict=False)


@pytest.mark.parametrize("form", [np.int32, np.uint32])
def test_a_scaled_sum_of_whole_numbers_wraps(form: type) -> None:
    x, y = np.array([2**30, 5, 7], form), np.array([2**30, 2**31 - 1, 9], form)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        total = ops.scaled_add(popxl.variable(x), popxl.variable(y), 2, 3)
        stream = popxl.d2h_stream(total.shape, total.dtype)
        ops.host_store(stream, total)
    with popxl.Session(ir, "ipu_model") as session:
        np.testing.assert_array_equal(session.run()[stream], x * form(2) + y * form(3))


def test_what_is_calculated_of_constants_is_told() -> None:
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        total = ops.exp(popxl.constant(np.ones(3, np.float32))) + popxl.variable(np.ones(3, np.float32))
        ops.host_store(popxl.d2h_stream((3,), popxl.float32), total)
    told = {entry.type: (entry.kind, entry.allowed) for entry in popxl.Session(ir, "ipu_model").report}
    assert told == {"Exp": ("host", "weights"), "Add": ("grid", ""), "HostStore": ("program", "")}


def test_a_transposed_convolution_takes_the_whole_shape_of_its_result() -> None:
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 2, 3, 3)).astype(np.float32), rng.standard_normal((2, 4, 2, 2)).astype(np.float32)
    ir = popxl.Ir()
    with ir.main_graph:
        t, weight = popxl.variable(x), popxl.variable(w)
        made = {str(s): ops.conv_transpose(t, weight, output_shape=s) for s in ((1, 4, 2, 2), (2, 2), ())}
        for wrong in ((1, 3, 2, 2), (2, 2, 2)):
            with pytest.raises(popxl.popart_exception, match="output_shape"):
                ops.conv_transpose(t, weight, output_shape=wrong)
        got = run(ir, {name: y for name, y in made.items()})
    for name, pads in (("(1, 4, 2, 2)", 1), ("(2, 2)", 1), ("()", 0)):
        want = torch.nn.functional.conv_transpose2d(torch.from_numpy(x), torch.from_numpy(w), padding=pads)
        np.testing.assert_allclose(got[name], want.numpy(), 1e-5, 1e-5)


def test_gradients_of_integers_are_integers() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.array([3, -2], np.int32))
        graph = ir.create_graph(lambda x: x * x + x, x)
        site = ops.call_with_info(graph, x)
        info = transforms.autodiff(graph)
        (grad,) = ops.call(info.graph, popxl.constant(np.ones(2, np.int32)), inputs_dict=info.inputs_dict(site))
        np.testing.assert_array_equal(run(ir, {"grad": grad})["grad"], [7, -3])


BROADCASTS = {
    "stacks": ((3, 2, 2, 4, 5), (3, 1, 2, 1, 1)),
    "slices below one of several": ((3, 2, 2, 4, 5), (3, 1, 1, 4, 5)),
    "two dims": ((2, 3, 2, 2, 4, 5), (2, 1, 2, 1, 1, 1)),
    "both operands": ((3, 1, 2, 4, 5), (1, 2, 2, 1, 5)),
    "a dim that one lacks": ((2, 1, 3, 1, 2), (3, 1, 1, 1, 1, 1)),
}


@pytest.mark.parametrize("name", BROADCASTS)
def test_dims_between_larger_ones_broadcast_on_the_grid(name: str) -> None:
    """The device repeats slices, or all of them; stacks of them in between are put together."""
    rng = np.random.default_rng(7)
    left, right = (rng.standard_normal(shape).astype(np.float32) for shape in BROADCASTS[name])
    ir = popxl.Ir()
    with ir.main_graph:
        x, y = popxl.variable(left), popxl.variable(right)
        got = run(ir, {"product": x * y, "chosen": ops.where(ops.greater(x, y), x, y)})
    np.testing.assert_allclose(got["product"], left * right, atol=1e-6)
    np.testing.assert_array_equal(got["chosen"], np.maximum(left, right))


@pytest.mark.parametrize(("left", "right"), [((3, 1, 2, 4, 5), (3, 2, 2, 5, 6)), ((3, 2, 2, 4, 5), (3, 1, 1, 5, 6))])
def test_products_of_stacks_broadcast_between_larger_dims(left: tuple[int, ...], right: tuple[int, ...]) -> None:
    rng = np.random.default_rng(8)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in (left, right))
    ir = popxl.Ir()
    with ir.main_graph:
        got = run(ir, {"out": popxl.variable(a) @ popxl.variable(b)})
    np.testing.assert_allclose(got["out"], a @ b, atol=1e-5)


def test_logsumexp_of_rows_with_infinities() -> None:
    x = np.random.default_rng(3).standard_normal((4, 5)).astype(np.float32)
    x[0, 1], x[1], x[2, 3] = np.inf, -np.inf, -np.inf
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream(x.shape, popxl.float32)
        y = ops.logsumexp(ops.host_load(stream), 1)
    wanted = torch.from_numpy(x).logsumexp(1)
    np.testing.assert_allclose(run(ir, {"y": y}, {stream: x})["y"], wanted, rtol=1e-5)


WHOLE_UPDATES: dict[str, tuple[Callable[[popxl.Tensor, popxl.Tensor], Any], Callable[[np.ndarray], np.ndarray]]] = {
    "by a number": (lambda t, x: ops.var_updates.accumulate_(t, x, 3), lambda n: n + n * np.int32(3)),
    "by a tensor": (
        lambda t, x: ops.var_updates.accumulate_(t, x, popxl.constant(np.int32(3))), lambda n: n + n * np.int32(3)),
    "squares": (lambda t, x: ops.var_updates.accumulate_square_(t, x, 2.0), lambda n: n + n * n * np.int32(2)),
    "a factor": (lambda t, x: ops.var_updates.accumulator_scale_(t, 3), lambda n: n * np.int32(3)),
    "some rows": (
        lambda t, x: ops.var_updates.sparse_accumulate_(t, x, popxl.constant([2, 1, 0], popxl.int32), 0, 3.0),
        lambda n: n + n[::-1] * np.int32(3)),
}  # fmt: skip


@pytest.mark.parametrize("what", WHOLE_UPDATES)
def test_updates_of_integers_are_exact_and_wrap(what: str) -> None:
    update, wanted = WHOLE_UPDATES[what]
    numbers = np.array([[7, -3], [2**31 - 1, -(2**31)], [2**24 + 1, 0]], np.int32)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        t = popxl.variable(numbers)
        update(t, popxl.variable(numbers))
        got = run(ir, {"t": t})["t"]
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(got, wanted(numbers))


@pytest.mark.parametrize("axis", [0, 1, 2, 3, 4])
def test_places_of_the_largest_along_any_of_five_dims(axis: int) -> None:
    x = np.random.default_rng(5).standard_normal((3, 2, 2, 2, 3)).astype(np.float32)
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable(x)
        got = run(ir, {"most": ops.argmax(t, axis), "least": ops.argmin(t, axis, keepdim=True)})
    np.testing.assert_array_equal(got["most"], x.argmax(axis))
    np.testing.assert_array_equal(got["least"], x.argmin(axis, keepdims=True))


def test_numpy_s_integers_are_whole_numbers() -> None:
    x, one = np.arange(24, dtype=np.float32).reshape(4, 6), np.int64(1)
    ir = popxl.Ir()
    with ir.main_graph:
        t = popxl.variable(x)
        got = run(
            ir,
            {
                "sum": ops.sum(t, one),
                "slice": ops.slice(t, one, one + 2),
                "strides": ops.subsample(t, one + 1),
                "joined": ops.concat([t, t], one),
                "part": ops.split(t, one + 1, one)[1],
                "parts": ops.split(t, np.array([1, 3]), 0)[1],
                "array": ops.subsample(t, np.array([1, 2])),
            },
        )
    wanted = {"sum": x.sum(1), "slice": x[1:3], "strides": x[::2, ::2], "joined": np.hstack([x, x]), "part": x[:, 3:]}
    wanted |= {"parts": x[1:], "array": x[:, ::2]}
    for name, value in wanted.items():
        np.testing.assert_array_equal(got[name], value)


def _add_to_first(a: popxl.Tensor, b: popxl.Tensor) -> popxl.Tensor:
    ops.add_(a, b)
    return b * 1.0


def _take_from_first(a: popxl.Tensor, b: popxl.Tensor) -> popxl.Tensor:
    ops.add_(a, ops.fmod(b, popxl.constant(0.5)) * -1.0)  # a step of the host: a branch and no selection
    return b * 2.0


def _branches_change(
    v: popxl.Tensor, x: popxl.Tensor, c: popxl.Tensor, first: Any, second: Any, operands: Any
) -> popxl.Tensor:
    """A conditional that may change each of its operands; operands: of the two graphs."""
    one, two = operands
    graphs = v.ir.create_graph(first, *one), v.ir.create_graph(second, *two)
    site = ops.conditional_with_info(c, *graphs, one, two)
    for t in dict.fromkeys((*one, *two)):
        site.set_parent_input_modified(t)
    return site.outputs[0]


CHANGED: dict[str, tuple[Callable[..., Any], Callable[[np.ndarray, np.ndarray, bool], np.ndarray]]] = {
    "one variable in both": (
        lambda v, x, c: _branches_change(v, x, c, _add_to_first, _take_from_first, [(v, x), (v, x)]),
        lambda v, x, truth: v + x if truth else v - np.fmod(x, 0.5)),
    "both on the grid": (
        lambda v, x, c: _branches_change(v, x, c, _add_to_first, lambda a, b: _add_to_first(a, -b), [(v, x), (v, x)]),
        lambda v, x, truth: v + x if truth else v - x),
    "parts of one variable": (
        lambda v, x, c: _branches_change(
            v, x, c, _add_to_first, _add_to_first,
            [(ops.slice_(v, 0, 2), ops.slice(x, 0, 2)), (ops.slice_(v, 2, 4), ops.slice(x, 2, 4))]),
        lambda v, x, truth: v + x * (np.arange(4) < 2 if truth else np.arange(4) >= 2)),
    "a variable twice": (
        lambda v, x, c: _branches_change(
            v, x, c, _add_to_first, lambda a, b: _add_to_first(b, a), [(v, ops.slice(v, 3, None, -1)), (v, v)]),
        lambda v, x, truth: v + v[::-1] if truth else v + v),
}  # fmt: skip


@pytest.mark.parametrize("truth", [True, False])
@pytest.mark.parametrize("what", CHANGED)
def test_both_branches_change_what_they_are_given(what: str, truth: bool) -> None:
    """A variable that both branches change is changed by the one that runs."""
    write, wanted = CHANGED[what]
    rng = np.random.default_rng(9)
    start, x = (rng.standard_normal(4).astype(np.float32) for _ in range(2))
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        v = popxl.variable(start)
        write(v, popxl.variable(x), popxl.variable(np.array(truth)))
        got = run(ir, {"v": v})["v"]
    np.testing.assert_allclose(got, wanted(start, x, truth), atol=1e-6)


@pytest.mark.parametrize(("turns", "carried"), [(1, False), (3, False), (3, True), (0, False)])
def test_a_loop_changes_an_operand_that_is_said_to_be_modified(turns: int, carried: bool) -> None:
    """Without inputs by reference: the call says it."""
    x, start = (np.random.default_rng(6).standard_normal((2, 4))[k].astype(np.float32) for k in range(2))
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        total, t = popxl.variable(start), popxl.variable(x)

        def body(a: popxl.Tensor, b: popxl.Tensor) -> popxl.Tensor:
            ops.add_(b, a)
            return a * 2.0

        graph = ir.create_graph(body, t, total)
        site = ops.repeat_with_info(graph, turns, t, total)
        site.set_parent_input_modified(total)
        if carried:
            site.set_parent_input_modified(t)
        got = run(ir, {"total": total, "t": t, "out": site.outputs[0]})
    np.testing.assert_allclose(got["total"], start + x * (2**turns - 1), rtol=1e-6)
    np.testing.assert_allclose(got["out"], x * 2**turns, rtol=1e-6)
    np.testing.assert_allclose(got["t"], x * 2**turns if carried else x, rtol=1e-6)
