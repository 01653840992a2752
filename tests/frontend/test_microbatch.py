"""A model that mixes its batch is never cut into elements, however well its outputs hide it; others are."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tbuda_lab as pybuda
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.frontend.inputs import bind
from tbuda_lab.core.frontend.pybuda import JaxModule
from tbuda_lab.core.frontend.torch_model.export import traced_mode
from tbuda_lab.core.frontend.torch_model.microbatch import elementwise_in_batch
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import Session
from tbuda_lab.core.session.exports import export_tti
from tbuda_lab.core.tti import load_image
from tbuda_lab.pybuda import BackendDevice, PyTorchModule, TTDevice, shutdown
from tbuda_lab.pybuda import DataFormat as PybudaFormat
from tests.frontend.ops_zoo import Fn

Way = Callable[[torch.Tensor], torch.Tensor]
SIZE = 4


def written(x: torch.Tensor) -> torch.Tensor:
    x = x.clone()
    x[1:] += x[:-1].clone()
    return x


def places_in_part(x: torch.Tensor) -> torch.Tensor:
    made = torch.empty(x.shape)
    made[:, :2] = torch.arange(float(len(x)))[:, None]
    made[:, 2:] = x[:, 2:]
    return made


MIXES: dict[str, Way] = {
    "triu": lambda x: x.triu(),
    "running sum": lambda x: x.cumsum(0),
    "mean": lambda x: x - x.mean(0),
    "largest": lambda x: x - x.amax(0, keepdim=True),
    "softmax": lambda x: x.softmax(0),
    "sort": lambda x: x.sort(0)[0],
    "flip": lambda x: x.flip(0),
    "roll": lambda x: x.roll(1, 0),
    "first": lambda x: x + x[0],
    "place": lambda x: x + torch.arange(float(len(x)))[:, None],
    "small place": lambda x: x + 1e-9 * torch.arange(float(len(x)))[:, None],
    "count": lambda x: x / len(x),
    "count in a tensor": lambda x: x * torch.ones(len(x)).sum(),
    "product": lambda x: (x @ x.T) @ x,
    "reshape": lambda x: x.reshape(-1).roll(1).reshape(x.shape),
    "written": written,
    "places in a part": places_in_part,
    "transpose": lambda x: x[: len(x), : len(x)].T @ x,
    "statistics": lambda x: F.batch_norm(x, None, None, training=True),
}
HIDES: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "shown": lambda m, x: m,
    "beside huge numbers": lambda m, x: m + 16777217.0,
    "tiny": lambda m, x: x + m * 1e-30,
    "under a bend": lambda m, x: x + torch.relu(m - 1e4),
    "rounded": lambda m, x: x + torch.round(m * 1e-4),
    "where none is": lambda m, x: torch.where(x > 1e3, m, x),
}


@pytest.mark.parametrize("mixes, hides", list(itertools.product(MIXES, HIDES)))
def test_what_mixes_the_batch_is_no_microbatch(mixes: str, hides: str) -> None:
    torch.manual_seed(0)
    model = Fn(lambda x: HIDES[hides](MIXES[mixes](x), x))
    assert not elementwise_in_batch(model, bind(model.forward, (torch.randn(SIZE, 5),)), traced_mode)


def test_what_mixes_the_batch_is_traced_on_all_of_it() -> None:
    model = Fn(lambda x: x.triu() + 16777217.0)
    assert from_torch(model, (torch.randn(SIZE, 5),)).inputs[0].shape == (SIZE, 5)


def loop(x: torch.Tensor) -> torch.Tensor:
    state, made = torch.zeros(x.shape[0], x.shape[2]), torch.empty(x.shape)
    for k in range(x.shape[1]):
        state = torch.tanh(state + x[:, k])
        made[:, k] = state
    return made


def by_place(x: torch.Tensor) -> torch.Tensor:
    return x[torch.arange(len(x)).view(-1, 1), x.argmax(1)[:, :1]]


def windows(x: torch.Tensor) -> torch.Tensor:
    cut = x.reshape(len(x), 2, 3, 4).permute(0, 2, 1, 3).reshape(-1, 2, 4)
    return cut.softmax(1).reshape(len(x), 3, 2, 4).transpose(1, 2).reshape(x.shape)


ALONE: dict[str, Way] = {
    "attention": lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True),
    "einsum": lambda x: torch.einsum("bij,bkj->bik", x, x),
    "triu of each": lambda x: x.triu(),
    "mask": lambda x: x.masked_fill(x > 0, float("-inf")).softmax(-1),
    "sequence first": lambda x: x.transpose(0, 1).contiguous().reshape(6, -1).reshape(6, -1, 4).transpose(0, 1),
    "loop": loop,
    "by place": by_place,
    "windows": windows,
    "inverse": lambda x: torch.linalg.inv(x @ x.transpose(1, 2) + 10 * torch.eye(6)),
    "image": lambda x: F.interpolate(F.unfold(x[:, None], 3), scale_factor=2),
}


@pytest.mark.parametrize("kind", ALONE)
def test_what_takes_elements_one_by_one_is_traced_on_one(kind: str) -> None:
    torch.manual_seed(0)
    assert from_torch(Fn(ALONE[kind]), (torch.randn(3, 6, 4),)).inputs[0].shape == (1, 6, 4)


@pytest.mark.parametrize("kind", [nn.GRU, nn.LSTM])
def test_recurrent_layers_take_elements_one_by_one(kind: type[nn.GRU | nn.LSTM]) -> None:
    torch.manual_seed(0)
    layer = kind(4, 4, batch_first=True)
    assert from_torch(Fn(lambda x: layer(x)[0]), (torch.randn(3, 6, 4),)).inputs[0].shape == (1, 6, 4)


MIXING = {
    "softmax": lambda x: x.softmax(0),
    "mean": lambda x: x - x.mean(0),
    "size": lambda x: x / x.shape[0],
    "norm": lambda x: x / x.norm(),
    "loss": lambda x: x.square().mean(),
    "flip": lambda x: x.flip(0),
    "first": lambda x: x[0],
    "squeeze": lambda x: x.squeeze(0),
    "places": lambda x: x + torch.arange(x.shape[0])[:, None],
}
"""Models that answer a batch otherwise than its elements."""
APART = {
    "linear": lambda x: x @ torch.ones(4, 3),
    "rows": lambda x: torch.stack([row * 2 for row in x]),
    "reshape": lambda x: x.reshape(x.shape[0], 2, 2).sum(-1),
}


VECTORS = {
    "softmax": lambda x: x.softmax(0),
    "mean": lambda x: x - x.mean(0),
    "outer": lambda x: x[:, None] * x,
}
"""Models of vectors that answer a batch otherwise than its elements."""
VECTORS_APART = {
    "double": lambda x: x * 2,
    "column": lambda x: x[:, None] @ torch.ones(1, 4),
}


@pytest.mark.parametrize("name", [*VECTORS, *VECTORS_APART])
def test_a_batch_of_numbers_for_a_model_that_was_traced_on_one(name: str) -> None:
    module, batch = Fn((VECTORS | VECTORS_APART)[name]), torch.tensor([0.5, -1.0, 3.0])
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session(module, (torch.ones(1),), options=options, cache=False)
    if name in VECTORS:
        with pytest.raises(InputError, match="traced on 1 and that answers a batch otherwise"):
            session.run([(batch,)])
        with pytest.raises(InputError, match="traced on 1 and that answers a batch otherwise"):
            session.run_on_workers([(batch,)])
    else:
        torch.testing.assert_close(session.run([(batch,)])[0][0], module(batch), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", ["softmax", "linear"])
def test_a_batch_for_an_image_of_a_model_that_was_traced_on_one(name: str, tmp_path: Path) -> None:
    """It is read without the model, so that it says itself whether a batch may run element by element."""
    module, batch = Fn((MIXING | APART)[name]), torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    options = CompileOptions(default_df_override=DataFormat.Float32)
    export_tti(Session(module, (torch.ones(1, 4),), options=options, cache=False), tmp_path / "session.tti")
    fp32 = {"arch": BackendDevice.Wormhole_B0, "fp32_fallback": PybudaFormat.Float32}
    device = TTDevice("tt0", module=PyTorchModule("m", module), **fp32)
    device.compile_to_image(str(tmp_path / "device.tti"), sample_inputs=(torch.ones(1, 4),))
    shutdown()  # devices of one process are a pipeline
    for path in (tmp_path / "session.tti", tmp_path / "device.tti"):
        loaded = load_image(path)
        if name in MIXING:
            with pytest.raises(InputError, match="traced on 1 and that answers a batch otherwise"):
                Runner(loaded).run([(batch,)])
        else:
            torch.testing.assert_close(Runner(loaded).run([(batch,)])[0][0], module(batch), rtol=1e-5, atol=1e-5)
        torch.testing.assert_close(Runner(loaded).run([(batch[:1],)])[0][0], module(batch[:1]), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", [*MIXING, *APART])
def test_a_batch_for_a_model_that_was_traced_on_one(name: str) -> None:
    module, batch = Fn((MIXING | APART)[name]), torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session(module, (torch.ones(1, 4),), options=options, cache=False)
    if name in MIXING:
        with pytest.raises(InputError, match="traced on 1 and that answers a batch otherwise"):
            session.run([(batch,)])
    else:
        torch.testing.assert_close(session.run([(batch,)])[0][0], module(batch), rtol=1e-5, atol=1e-5)
    (one,) = session.run([(batch[:1],)])[0]
    torch.testing.assert_close(one, module(batch[:1]), rtol=1e-5, atol=1e-5)


def onnx_model(kind: str) -> onnx.ModelProto:
    """Of one input (batch, 5), whose leading size is open."""
    node, ints = onnx.helper.make_node, {name: np.array(v) for name, v in INTEGERS.items()}
    nodes = [node(op, [name or "x" for name in sources], [out], **more) for op, sources, out, more in ONNX[kind]]
    value = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, ["batch", 5])
    stored = [onnx.numpy_helper.from_array(v, name) for name, v in (ints | {"w": np.ones((5, 3), np.float32)}).items()]
    graph = onnx.helper.make_graph(nodes, "g", [value], [onnx.helper.make_empty_tensor_value_info("y")], stored)
    opset = [onnx.helper.make_opsetid("", 18)]
    return onnx.shape_inference.infer_shapes(onnx.helper.make_model(graph, opset_imports=opset, ir_version=9))


INTEGERS = {"zero": [0], "first": 0, "last": [-1], "before": [-99], "ones": [1], "five": [5]}
ONNX: dict[str, list[tuple[str, list[str], str, dict[str, object]]]] = {
    "softmax": [("Softmax", [""], "y", {"axis": 0})],
    "mean": [("ReduceMean", ["", "zero"], "m", {}), ("Sub", ["", "m"], "y", {})],
    "running sum": [("CumSum", ["", "first"], "y", {})],
    "flip": [("Slice", ["", "last", "before", "zero", "last"], "y", {})],
    "size": [("Shape", [""], "s", {"end": 1}), ("Cast", ["s"], "t", {"to": 1}), ("Div", ["", "t"], "y", {})],
    "first": [("Gather", ["", "first"], "m", {}), ("Add", ["", "m"], "y", {})],
    "product": [("MatMul", ["", "w"], "y", {})],
    "rows": [("Softmax", [""], "y", {"axis": 1})],
    "reduced rows": [("ReduceMean", ["", "ones"], "m", {}), ("Sub", ["", "m"], "y", {})],
}
ONNX_APART = ("product", "rows", "reduced rows")
"""Models that take elements one by one; the others mix them."""


@pytest.mark.parametrize("kind", ONNX)
def test_an_onnx_model_with_an_open_batch(kind: str) -> None:
    proto, batch = onnx_model(kind), torch.randn(3, 5, generator=torch.Generator().manual_seed(3))
    runtime = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    expected = torch.from_numpy(runtime.run(None, {"x": batch.numpy()})[0])
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session(proto, (batch,), options=options, cache=False)
    assert session.trace().inputs[0].shape == ((1, 5) if kind in ONNX_APART else (3, 5))
    torch.testing.assert_close(session.run([(batch,)])[0][0], expected, rtol=1e-5, atol=1e-5)
    assert all(c.passes(0.999) for c in session.verify())
    on_one = Session(proto, (batch[:1],), options=options, cache=False)
    if kind in ONNX_APART:
        torch.testing.assert_close(on_one.run([(batch,)])[0][0], expected, rtol=1e-5, atol=1e-5)
    else:
        with pytest.raises(InputError, match="traced on 1 and that answers a batch otherwise"):
            on_one.run([(batch,)])


@pytest.mark.parametrize("mixes", [True, False])
def test_a_batch_for_a_jax_function_that_was_traced_on_one(mixes: bool) -> None:
    def function(x: Any) -> Any:
        return jax.nn.softmax(x, axis=0 if mixes else 1)

    batch = torch.randn(3, 5, generator=torch.Generator().manual_seed(3))
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session(JaxModule("m", function), (batch[:1],), options=options, cache=False)
    if mixes:
        with pytest.raises(InputError, match="traced on 1 and that answers a batch otherwise"):
            session.run([(batch,)])
    else:
        torch.testing.assert_close(session.run([(batch,)])[0][0], batch.softmax(1), rtol=1e-5, atol=1e-5)


class Counts(nn.Module):
    """One call counts once, however many elements it is given."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(1, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.count.add_(1)
        return x * self.count


def test_a_batch_for_a_model_that_keeps_something() -> None:
    options, x = CompileOptions(default_df_override=DataFormat.Float32), torch.ones(1, 4)
    session = Session(Counts(), (x,), options=options, cache=False)
    with pytest.raises(InputError, match="traced on 1 and that answers a batch otherwise"):
        session.run([(torch.ones(3, 4),)])
    assert [float(y[0, 0]) for (y,) in session.run([(x,), (x,)])] == [1.0, 2.0]


def test_a_batch_for_a_model_that_takes_none() -> None:
    module = Fn(lambda x: x.view(1, 2, 2).sum(-1))
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session(module, (torch.ones(1, 4),), options=options, cache=False)
    with pytest.raises(InputError, match="traced on 1 and that answers a batch otherwise"):
        session.run([(torch.ones(3, 4),)])


PYBUDA: dict[str, tuple[Callable[[Any], Any], Callable[[torch.Tensor], torch.Tensor]]] = {
    "softmax": (lambda x: pybuda.op.Softmax("f", x, dim=0), lambda x: x.softmax(0)),
    "softmax of dim -4": (lambda x: pybuda.op.Softmax("f", x, dim=-4), lambda x: x.softmax(0)),
    "log_softmax": (lambda x: pybuda.op.LogSoftmax("f", x, dim=0), lambda x: x.log_softmax(0)),
    "less its mean": (
        lambda x: pybuda.op.Subtract("f", x, pybuda.op.ReduceAvg("mean", x, dim=0)),
        lambda x: x - x.mean(0, keepdim=True),
    ),
    "less its largest": (
        lambda x: pybuda.op.Subtract("f", x, pybuda.op.ReduceMax("most", x, dim=0)),
        lambda x: x - x.amax(0, keepdim=True),
    ),
}


class OfPyBuda(pybuda.PyBudaModule):
    def __init__(self, function: Callable[[Any], Any]) -> None:
        super().__init__("mixes")
        self.function = function

    def forward(self, x: Any) -> Any:
        return self.function(x)


@pytest.mark.parametrize("name", PYBUDA)
def test_modules_of_pybuda_that_mix_a_batch_are_traced_on_it(name: str) -> None:
    of_pybuda, of_torch = PYBUDA[name]
    x = torch.randn(4, 1, 32, 32, generator=torch.Generator().manual_seed(4))
    options = CompileOptions(default_df_override=DataFormat.Float32)
    (result,) = Session(OfPyBuda(of_pybuda), (x,), options=options, cache=False).run()[0]
    torch.testing.assert_close(result, of_torch(x), rtol=1e-3, atol=1e-4)
    of_one = Session(OfPyBuda(of_pybuda), (x[:1],), options=options, cache=False)
    torch.testing.assert_close(of_one.run()[0][0], of_torch(x[:1]), rtol=1e-3, atol=1e-4)
    with pytest.raises(InputError, match="holds 4 elements of a model that was traced on 1"):
        of_one.run([(x,)])


def test_a_module_of_pybuda_that_takes_elements_is_traced_on_one() -> None:
    module = OfPyBuda(lambda x: pybuda.op.Softmax("f", pybuda.op.Exp("e", x), dim=-1))
    session = Session(module, (torch.randn(4, 1, 32, 32),), cache=False)
    assert session.graph("traced").inputs[0].shape == (1, 1, 32, 32)
