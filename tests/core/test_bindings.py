"""What the host writes and reads around the device."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core.bindings import InputBinding, OutputBinding, host_tensor, unstack
from tbuda_lab.core.compiler.result import host_parameters
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat, round_to
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.tm import hslice, hstack, vstack
from tbuda_lab.core.lowering.context import SHARES
from tbuda_lab.core.ops.tm import Reshape, Transpose
from tbuda_lab.core.verification import compare


@given(st.integers(1, 3), st.integers(1, 70), st.integers(1, 70))
def test_the_host_pads_with_zeros_and_replicates_sizes_of_one(z, rows, cols):
    value = np.random.default_rng(0).standard_normal((z, rows, cols)).astype(np.float32) + 3
    stored = host_tensor(value)
    assert stored.shape == (z, -(-rows // 32) * 32, -(-cols // 32) * 32)
    np.testing.assert_array_equal(stored[:, :rows, :cols], value)
    down = stored[:, rows:, :cols]
    right = stored[:, :rows, cols:]
    np.testing.assert_array_equal(down, np.broadcast_to(value, (z, 31, cols)) if rows == 1 else np.zeros_like(down))
    np.testing.assert_array_equal(right, np.broadcast_to(value, (z, rows, 31)) if cols == 1 else np.zeros_like(right))


def test_streamed_outputs_come_back_whole():
    rng = np.random.default_rng(1)
    whole = rng.standard_normal((2, 96, 64)).astype(np.float32)
    by_rows = whole.reshape(2, 3, 32, 64).reshape(6, 32, 64)
    np.testing.assert_array_equal(unstack(by_rows, vstack(3)), whole)
    by_cols = whole.reshape(2, 96, 2, 32).transpose(0, 2, 1, 3).reshape(4, 96, 32)
    np.testing.assert_array_equal(unstack(by_cols, hstack(2)), whole)
    np.testing.assert_array_equal(unstack(whole, hslice(2)), by_cols)
    binding = OutputBinding("out", "out", (1, 2, 90, 60), (vstack(3),))
    assert torch.equal(binding.decode(by_rows), torch.from_numpy(whole[:, :90, :60].reshape(1, 2, 90, 60)))


@pytest.mark.parametrize("op", [Reshape((1, 1, 6, 4)), Transpose(0, 1)], ids=["reshape", "transpose"])
def test_recipes_give_what_torch_gives_and_refuse_other_shapes(op):
    shape = op.infer((2, 3, 4))
    recipe = Graph("recipe")
    recipe.add(Node("x", NodeKind.INPUT, (2, 3, 4)))
    recipe.add(Node("op", NodeKind.OP, shape, op, inputs=(Edge("x"),)))
    recipe.add(Node("result", NodeKind.OUTPUT, shape, inputs=(Edge("op"),)))
    x = torch.randn(2, 3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(3)).requires_grad_()
    expected = (x.reshape(1, 1, 6, 4) if isinstance(op, Reshape) else x.transpose(0, 1)).detach().float()
    binding = InputBinding("in", "in", shape, ("x",), recipe)
    written = binding.encode({"x": x, "y": x})
    z, rows, cols = expected.reshape(-1, *shape[-2:]).shape
    np.testing.assert_array_equal(written[:z, :rows, :cols], expected.reshape(z, rows, cols).numpy())
    for wrong in ({"x": x.reshape(3, 2, 4)}, {"x": x[:1]}, {"y": x}):
        with pytest.raises(InputError, match=r"input .(x|in)."):
            binding.encode(wrong)
    popped = np.zeros((2, 32, 32), np.float32)
    popped[:2, :3, :4] = x.detach().float().numpy()
    assert torch.equal(OutputBinding("out", "out", (2, 3, 4), recipe=recipe).decode(popped), expected)


def test_correlation_is_pearsons():
    rng = np.random.default_rng(2)
    a, b = rng.standard_normal(1000), rng.standard_normal(1000)
    assert compare("x", a, a + 0.1 * b).pcc == pytest.approx(np.corrcoef(a, a + 0.1 * b)[0, 1])
    assert compare("x", np.ones(5), np.ones(5)).pcc == 1.0
    assert compare("x", np.ones(5), np.full(5, 2.0)).pcc == 0.0
    assert compare("x", a, np.full(1000, np.nan)).pcc == 0.0
    with pytest.raises(ValueError, match="against"):
        compare("x", a, b[:-1])


@pytest.mark.parametrize("df", [DataFormat.Float16_b, DataFormat.Float16])
@pytest.mark.parametrize("count", [2, 3, 7, 49, 64, 169, 768, 3000])
def test_the_weights_of_a_mean_are_numbers_of_the_format_and_add_up_to_one(count: int, df: DataFormat) -> None:
    value = np.zeros((1, 1, -(-count // 32) * 32, 1), np.float32)
    value[0, 0, :count] = 1 / count
    graph = Graph("mean")
    graph.add(Node("c", NodeKind.CONSTANT, value.shape, value=value, attrs={SHARES: True}, df=df))
    column = host_parameters(graph)["c"][0, :, 0]
    assert column.astype(np.float64).sum() == 1.0 and not column[count:].any()
    assert np.array_equal(round_to(column, df), column)
    spacing = 2.0 ** (np.floor(np.log2(1 / count)) - (7 if df is DataFormat.Float16_b else 10))
    assert np.abs(column[:count].astype(np.float64) - 1 / count).max() <= spacing


@pytest.mark.parametrize("df", [DataFormat.Float16_b, DataFormat.Float32, DataFormat.Bfp8_b, None])
def test_inputs_of_16_bits_are_rounded_to_nearest_as_torch_does(df):
    x = torch.randn(1, 32, 64, generator=torch.Generator().manual_seed(0)) * 100
    x[0, 0, :5] = torch.tensor([torch.inf, -torch.inf, torch.nan, 0.0, 1.0])
    binding = InputBinding("in", "in", (1, 32, 64), ("x",), df=df)
    wanted = x.to(torch.bfloat16).float() if df is DataFormat.Float16_b else x
    np.testing.assert_array_equal(binding.encode({"x": x}, rounded=True), wanted.numpy())
    np.testing.assert_array_equal(binding.encode({"x": x}), x.numpy())


def test_a_finite_input_stays_finite_when_it_is_rounded():
    lowest = torch.full((1, 32, 32), torch.finfo(torch.float32).min)
    for df, end in ((DataFormat.Float16_b, 2.0**128 - 2.0**120), (DataFormat.Float16, 131008.0)):
        stored = InputBinding("in", "in", (1, 32, 32), ("x",), df=df).encode({"x": lowest}, rounded=True)
        np.testing.assert_array_equal(stored, np.full((1, 32, 32), -end, np.float32))
