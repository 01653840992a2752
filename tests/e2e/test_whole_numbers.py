"""32-bit whole numbers on the device, against torch and NumPy: exact up to 2^31 - 1, and sums wrap."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import tbuda_lab as pybuda
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import Session, op_checks
from tests.frontend.ops_zoo import Fn
from tests.pybuda.conftest import fresh as fresh  # devices of other tests are gone

EDGES = (0, 1, -1, 2**31 - 1, -(2**31), -(2**31) + 1, 2**24 + 1, -(2**24) - 1, 2**30)


def words(*shape: int, seed: int = 0) -> torch.Tensor:
    """Whole numbers of all of 32 bits, of which a third is at an edge."""
    rng = np.random.default_rng(seed)
    anything = rng.integers(-(2**31), 2**31, shape)
    return torch.from_numpy(np.where(rng.random(shape) < 0.3, rng.choice(EDGES, shape), anything).astype(np.int32))


def mask(*shape: int) -> torch.Tensor:
    return torch.from_numpy(np.random.default_rng(9).random(shape) < 0.5)


def compiled(function: Callable[..., object], inputs: tuple[torch.Tensor, ...], device: str = "n150") -> CompileResult:
    session = Session(Fn(function), inputs, device)
    result = session.compile()
    assert isinstance(result, CompileResult)
    return result


def types_of(result: CompileResult) -> list[str]:
    """The types of the netlist's ops on Int32, which is all of them."""
    ops = [op for graph in result.netlist.graphs.values() for op in graph.ops.values()]
    assert all(op.out_df is DataFormat.Int32 for op in ops)
    return sorted(op.type for op in ops)


PROGRAMS: dict[str, tuple[Callable[..., object], list[str]]] = {
    "a sum and a maximum": (lambda x, y, c: torch.maximum(x + y, y), ["add", "maximum"]),
    "numbers beyond float32": (lambda x, y, c: (x + 2147483647, y - 16777217), ["add", "add"]),
    "a selection": (lambda x, y, c: torch.where(c, x + y, y), ["add", "add", "add", "maximum", "maximum"]),
    "a selection of a number": (lambda x, y, c: torch.where(c, x, 3), ["add", "add", "maximum", "maximum"]),
    "lower bounds": (lambda x, y, c: (torch.relu(x), torch.clamp(y, min=-7)), ["maximum", "maximum"]),
    "a row for all": (lambda x, y, c: x + y[:, :1], ["add"]),
    "slices one after the other": (lambda x, y, c: torch.cat([x + y, y], 0) + 1, ["add", "add", "splice"]),
    "what the host does before": (lambda x, y, c: torch.minimum(x * 3, y) + y, ["add"]),
    "a move that Int32 has not": (lambda x, y, c: (x + y).transpose(-1, -2) + 1, ["add"]),
    "a move twice": (lambda x, y, c: (x.transpose(-1, -2), x.transpose(-1, -2), x + y), ["add"]),
    "half a tile": (lambda x, y, c: (x + y)[:, 3:20] + 1, ["add"]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_programs_of_whole_numbers_are_torchs(name: str) -> None:
    function, types = PROGRAMS[name]
    inputs = words(1, 40, 70), words(1, 40, 70, seed=1), mask(1, 40, 70)
    result = compiled(function, inputs)
    assert types_of(result) == types
    wanted = function(*inputs)
    for mode in ("golden", "exact", "device"):
        for got, want in zip(
            Runner(result, mode).run([inputs])[0], wanted if isinstance(wanted, tuple) else (wanted,), strict=True
        ):
            assert got.dtype == want.dtype and torch.equal(got, want), mode


SINGLE: dict[str, Callable[..., torch.Tensor]] = {
    "a selection": lambda x, y, c: torch.where(c, x, y),
    "a filled mask": lambda x, y, c: x.masked_fill(c, y),
    "a selection of a number": lambda x, y, c: torch.where(c, x, 3),
}


@pytest.mark.parametrize("name", SINGLE)
def test_programs_of_single_whole_numbers_are_torchs(name: str) -> None:
    """Tensors without dims; beside them floats, as a device without anything to do is refused."""
    scaled = torch.rand(4, 4)
    inputs = words(1)[0], words(1, seed=1)[0], torch.tensor(True), scaled
    session = Session(Fn(lambda x, y, c, z: (SINGLE[name](x, y, c), z * 2)), inputs, "n150")
    for chosen in (True, False):
        given = (*inputs[:2], torch.tensor(chosen), scaled)
        assert torch.equal(session.run([given])[0][0], SINGLE[name](*given[:3]))


def test_ten_thousand_sums_and_maxima_are_numpys_on_both_chips_that_have_them() -> None:
    x, y = words(1, 100, 100), words(1, 100, 100, seed=1)
    for device in ("n150", "blackhole"):
        result = compiled(lambda a, b: (a + b, torch.maximum(a, b)), (x, y), device)
        total, most = Runner(result).run([(x, y)])[0]
        with np.errstate(over="ignore"):
            assert np.array_equal(total.numpy(), x.numpy() + y.numpy())
        assert np.array_equal(most.numpy(), np.maximum(x.numpy(), y.numpy()))


@pytest.mark.parametrize("slices", [1, 2, 5, 32])
def test_sums_and_maxima_of_slices_are_the_devices(slices: int) -> None:
    """Along a dim before the last two; along those the host does them."""
    x = words(slices, 40, 70)
    session = compiled(lambda a: (torch.sum(a + 1, 0, dtype=torch.int32), torch.amax(a + 1, 0)), (x,))
    assert set(types_of(session)) <= {"add", "maximum", "nop", "splice"} and len(session.placement.ops) >= 1
    total, most = Runner(session).run([(x,)])[0]
    with np.errstate(over="ignore"):
        one = x.numpy() + np.int32(1)
        assert np.array_equal(total.numpy(), one.sum(0, dtype=np.int32))
    assert np.array_equal(most.numpy(), one.max(0))
    if slices > 1:
        with pytest.raises(UnsupportedOp, match="no op of the model runs on the device"):
            compiled(lambda a: torch.sum(a, 1, dtype=torch.int32), (x,))


def test_grayskull_has_no_whole_numbers_and_says_so() -> None:
    with pytest.raises(UnsupportedOp, match="no op of the model runs on the device"):
        compiled(lambda a, b: a + b, (words(1, 32, 32), words(1, 32, 32)), "grayskull")


def test_the_check_of_ops_compares_words() -> None:
    """One number among thousands that is off by one, and a difference that wraps, are found; all others are equal."""
    sample = (words(1, 64, 64), words(1, 64, 64, seed=1))
    result = compiled(lambda a, b: torch.maximum(a + 16777217, b), sample)
    checks = op_checks.check_ops(Runner(result), sample)
    assert checks.first_failure is None and all(c.comparison.exact and not c.tiles.any() for c in checks.ops)
    node = result.lowered[checks.ops[0].op]
    wanted = words(*node.shape[1:]).numpy()
    for at, value in (((0, 1, 40), wanted[0, 1, 40] ^ 1), ((0, 40, 2), None)):
        got = wanted.copy()
        wanted[0, 40, 2] = -(2**31)
        got[at] = 2**31 - 1 if value is None else value
        check = op_checks.compare_op(node, wanted, got)
        assert not check.comparison.passes(0.99) and check.first == (0, at[1] // 32, at[2] // 32)
        assert float(check.tiles.max()) >= (1.0 if value is not None else 2.0**32 - 1)


def test_whole_numbers_that_an_embedding_reads_stay_the_hosts() -> None:
    class Embeds(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(50, 64)

        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return torch.tanh(self.table(ids + 1))

    ids = torch.arange(32, dtype=torch.int32).reshape(1, 32)
    result = Session(Embeds(), (ids,), "n150").compile()
    assert isinstance(result, CompileResult)
    formats = {op.out_df for graph in result.netlist.graphs.values() for op in graph.ops.values()}
    assert DataFormat.Int32 not in formats


def test_wider_and_narrower_whole_numbers_are_not_taken_for_words() -> None:
    for kind in (torch.int64, torch.int16, torch.uint8):
        x = torch.full((1, 32, 32), 100, dtype=kind)
        with pytest.raises(UnsupportedOp, match="no op of the model runs on the device"):
            compiled(lambda a: a + a + a, (x,))


def test_a_device_image_of_whole_numbers_gives_the_same(tmp_path: object) -> None:
    x, y = words(1, 40, 70), words(1, 40, 70, seed=1)
    session = Session(Fn(lambda a, b: torch.maximum(a + 16777217, b)), (x, y), "n150")
    path = f"{tmp_path}/words.tti"
    session.export_tti(path)
    device = pybuda.TTDevice.load_image(img_path=path)
    device.push_to_inputs(x, y)
    (got,) = pybuda.run_inference().get()
    pybuda.shutdown()
    assert torch.equal(got.value(), torch.maximum(x + 16777217, y))


@pytest.mark.parametrize("arch", ["Wormhole_B0", "Blackhole", "Grayskull"])
def test_a_pybuda_module_of_whole_numbers_is_exact(arch: str) -> None:
    """Beyond 2^24, too; where the device has no such numbers, and says so, by the host."""
    x, y = words(1, 1, 40, 70), words(1, 1, 40, 70, seed=1)
    with (
        contextlib.nullcontext() if arch != "Grayskull" else pytest.warns(UserWarning, match="the host runs all of it")
    ):
        got = of_pybuda(lambda op, a, b: op.Max("most", op.Add("sum", a, b), b), (x, y), arch)
    assert got.dtype is torch.int32
    assert torch.equal(got, torch.maximum(x + y, y))


def of_pybuda(function: Callable[..., object], inputs: tuple[torch.Tensor, ...], arch: str) -> torch.Tensor:
    """What a PyBuda module of two inputs gives; function takes PyBuda's ops first."""

    class Module(pybuda.PyBudaModule):
        def forward(self, a: object, b: object) -> object:
            return function(pybuda.op, a, b)

    device = pybuda.TTDevice("tt0", arch=getattr(pybuda.BackendDevice, arch))
    device.place_module(Module("module"))
    device.push_to_inputs(*inputs)
    got: torch.Tensor = pybuda.run_inference().get()[0].value()
    pybuda.shutdown()
    return got


INFINITE = float("inf")
PYBUDA: dict[str, tuple[Callable[..., Any], Callable[..., torch.Tensor]]] = {
    "a difference": (lambda op, a, b: op.Subtract("s", a, b), lambda a, b: a - b),
    "a product": (lambda op, a, b: op.Multiply("s", a, b), lambda a, b: a * b),
    "an amount": (lambda op, a, b: op.Abs("s", a), lambda a, b: a.abs()),
    "a lower bound": (lambda op, a, b: op.Clip("s", a, 16777217.0, INFINITE), lambda a, b: a.clamp(min=16777217)),
    "two bounds": (lambda op, a, b: op.Clip("s", a, -7.0, 16777217.0), lambda a, b: a.clamp(-7, 16777217)),
    "a sum of columns": (
        lambda op, a, b: op.ReduceSum("s", a, -1),
        lambda a, b: a.sum(-1, keepdim=True, dtype=torch.int32),
    ),
    "a product in a sum": (
        lambda op, a, b: op.Add("s", op.Multiply("m", a, a), b),
        lambda a, b: a * a + b,
    ),
    "a sum in a product": (lambda op, a, b: op.Multiply("m", op.Add("s", a, b), b), lambda a, b: (a + b) * b),
}


@pytest.mark.filterwarnings("ignore:.*the host runs all of it")
@pytest.mark.parametrize("name", PYBUDA)
def test_whole_numbers_of_pybuda_s_ops_are_torchs(name: str) -> None:
    """What the grid does not have of them is the host's, not rounded."""
    function, reference = PYBUDA[name]
    x, y = words(1, 1, 40, 70), words(1, 1, 40, 70, seed=1)
    got = of_pybuda(function, (x, y), "Wormhole_B0")
    assert got.dtype is torch.int32 and torch.equal(got, reference(x, y))


def test_floats_of_pybuda_s_whole_numbers_are_floats() -> None:
    x, y = (words(1, 1, 40, 70, seed=k) % 10 for k in range(2))

    def scaled(op: Any, a: object, b: object) -> object:
        return op.Softmax("soft", op.Multiply("half", op.Multiply("m", a, b), torch.tensor([[[[0.03]]]])), dim=-1)

    got = of_pybuda(scaled, (x, y), "Wormhole_B0")
    assert got.dtype is torch.float32
    torch.testing.assert_close(got, (x * y * 0.03).softmax(-1), rtol=0.05, atol=1e-3)


def test_an_onnx_model_of_whole_numbers_is_exact() -> None:
    onnx = pytest.importorskip("onnx")
    make = onnx.helper
    ends = [make.make_tensor_value_info(n, onnx.TensorProto.INT32, [1, 40, 70]) for n in "aby"]
    nodes = [make.make_node("Add", ["a", "b"], ["s"]), make.make_node("Max", ["s", "b"], ["y"])]
    graph = make.make_graph(nodes, "whole", ends[:2], ends[2:])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 17)])
    a, b = words(1, 40, 70), words(1, 40, 70, seed=1)
    result = Session(model, (a, b), "n150").compile()
    assert isinstance(result, CompileResult) and types_of(result) == ["add", "maximum"]
    assert torch.equal(Runner(result).run([(a, b)])[0][0], torch.maximum(a + b, b))


def test_nothing_is_found_wrong_with_sums_that_wrap() -> None:
    """The search for a wrong op evaluates every stage in words, as the device does."""
    inputs = words(1, 40, 70), words(1, 40, 70, seed=1), mask(1, 40, 70)
    session = Session(Fn(lambda x, y, c: torch.where(c, x + y, y) + 7), inputs, "n150")
    assert session.find_error().right


def test_counts_cross_to_the_host_as_whole_numbers() -> None:
    """What the device counts and the host makes larger than 2^24 is calculated in int64, not in float32."""

    def counts(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        count, place = (x > 0).sum(0), x.argmax(0)
        return (
            count * 16777217,
            x.count_nonzero(-2) * 16777217,
            place * 16777217,
            count + 16777216 + place,
            torch.maximum(count, count) * 16777217,
        )

    x = torch.from_numpy(np.random.default_rng(5).standard_normal((5, 7)).astype(np.float32))
    (got,) = Session(Fn(counts), (x,)).run()
    for ours, torchs in zip(got, counts(x), strict=True):
        assert ours.dtype == torchs.dtype and torch.equal(ours, torchs)
