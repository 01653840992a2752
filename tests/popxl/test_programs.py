"""Programs in PopXL, from the graph to the numbers: the grid does the floats, and NumPy or torch says what is right."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import tbuda_lab.popxl as popxl
from tbuda_lab.popxl import ops, transforms


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


@pytest.mark.parametrize("truth", [True, False])
def test_a_conditional_takes_one_branch(truth: bool) -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        x = popxl.variable(np.float32(3.0))
        condition = popxl.variable(truth)
        twice, half = ir.create_graph(lambda x: x * 2.0, x), ir.create_graph(lambda x: x * 0.5, x)
        (y,) = ops.conditional(condition, twice, half, [x], [x])
        assert float(run(ir, {"y": y})["y"]) == (6.0 if truth else 1.5)


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
