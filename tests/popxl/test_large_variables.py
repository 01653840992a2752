"""Variables of more tiles than one core holds lie in slices: nothing of that is seen in what a program calculates."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import tbuda_lab.popxl as popxl
from tbuda_lab.dialects.slots import LARGEST_SLICE, Slices
from tbuda_lab.popxl import ops

SHAPES = [
    (512, 512),
    (1000, 333),  # whole tiles neither way
    (31 * 32 + 5, 130),  # a prime number of rows of tiles
    (40, 5000),  # a row of more tiles than a slice
    (12544,),  # a shard of 784 x 32
    (3000, 1),
    (3, 500, 300),
    (2, 2, 64, 4000),
]


def _halves(shape: tuple[int, ...]) -> np.ndarray:
    """Small halves: sums of a few are exact in any order."""
    return np.random.default_rng(0).integers(-8, 9, shape).astype(np.float32) / 2


@pytest.mark.parametrize("shape", SHAPES[::2] + SHAPES[3:4], ids=str)
def test_a_large_variable_is_read_and_written(shape: tuple[int, ...]) -> None:
    data, other = _halves(shape), _halves(shape)[::-1]
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        v, w = popxl.variable(data, name="v"), popxl.variable(other, name="w")
        total = ops.maximum(v, w)
        ops.scaled_add_(v, w, b=-0.5)
        stream = popxl.d2h_stream(shape, popxl.float32)
        ops.host_store(stream, total)
    session = popxl.Session(ir, "ipu_model")
    with session:
        got = session.run()[stream]
    np.testing.assert_array_equal(got, np.maximum(data, other))
    np.testing.assert_array_equal(session.get_tensor_data(v), data - other / 2)
    assert {entry.kind for entry in session.report} <= {"grid", "program"}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_what_is_cut_is_joined_again(shape: tuple[int, ...]) -> None:
    slices = Slices.of(shape)
    assert slices is not None
    _, height, width = slices.shape
    assert -(-height // 32) * -(-width // 32) <= LARGEST_SLICE
    data = _halves(shape)
    np.testing.assert_array_equal(slices.join(slices.cut(data)).reshape(shape), data)


def test_a_layer_with_large_weights_trains() -> None:
    rng = np.random.default_rng(1)
    x, w = rng.normal(size=(16, 600)).astype(np.float32), rng.normal(size=(600, 500)).astype(np.float32)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        stream = popxl.h2d_stream(x.shape, popxl.float32)
        weight = popxl.variable(w, name="weight")
        forward = ir.create_graph(lambda a, b: ops.tanh(a @ b), popxl.TensorSpec(x.shape, popxl.float32), weight)
        call = ops.call_with_info(forward, ops.host_load(stream), weight)
        info = popxl.transforms.autodiff(forward, grads_required=[forward.inputs[1]])
        seed = popxl.constant(np.ones((16, 500), np.float32))
        (gradient,) = ops.call(info.graph, seed, inputs_dict=info.inputs_dict(call))
        ops.scaled_add_(weight, gradient, b=-0.1)
    session = popxl.Session(ir, "ipu_model")
    with session:
        session.run({stream: x})
    wide, wanted = x.astype(np.float64), w.astype(np.float64)
    wanted = wanted - 0.1 * wide.T @ (1 - np.tanh(wide @ wanted) ** 2)
    np.testing.assert_allclose(session.get_tensor_data(weight), wanted, atol=2e-5)
    assert len(session.executable.parts) == 1


@pytest.mark.parametrize(("shape", "place"), [((512, 160), "grid"), ((500, 200), "host")], ids=str)
def test_a_large_variable_of_whole_numbers_wraps(shape: tuple[int, ...], place: str, tmp_path: Path) -> None:
    data = np.random.default_rng(2).integers(-(2**31), 2**31, shape, np.int64).astype(np.int32)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        v = popxl.variable(data, name="v")
        body = ir.create_graph(lambda a: ops.add(a, a), v)
        (twice,) = ops.repeat(body, 3, v)
        ops.var_updates.copy_var_update_(v, twice)
    session = popxl.Session(ir, "ipu_model")
    assert place in [entry.kind for entry in session.report if entry.type == "Add"]
    session.save(tmp_path / "large.popxl")
    with session:
        session.run()
    np.testing.assert_array_equal(session.get_tensor_data(v), data * np.int32(8))
    opened = popxl.open_program(tmp_path / "large.popxl")
    opened.run()
    np.testing.assert_array_equal(opened.variables()[v.id], data * np.int32(8))
