"""What cannot be imported is refused with one typed error that names the place and says what to do."""

from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import nn

import tbuda_lab as pybuda
from tbuda_lab.core.errors import InputError, ModelError, UnsupportedOp
from tbuda_lab.core.frontend import feeds, from_any, from_torch, large_values
from tbuda_lab.core.frontend.provenance import short_path
from tbuda_lab.core.frontend.pybuda.foreign import graph_outputs
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.frontend.ops_zoo import Fn

X = torch.randn(1, 8)


def line_of(mark: str) -> int:
    """Number of the line of this file that ends with a comment of this mark."""
    return next(i for i, text in enumerate(Path(__file__).read_text().split("\n"), 1) if text.endswith(f"# {mark}"))


class Inverse(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.linalg.inv(x)  # inverse


class TwoGaps(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inverse()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.inner(x))
        return torch.sort(y).values + torch.rand_like(y)  # random


LAZY: dict[str, Callable[[nn.Module, torch.Tensor], object]] = {
    "session": lambda model, x: Session(model, (x,), cache=False).run(),
    "training": lambda model, x: Session.for_training(model, (x,), nn.MSELoss(), torch.ones(4, 8), cache=False),
    "device": lambda model, x: pybuda.PyTorchModule("lazy", model).run(x),
}


@pytest.mark.parametrize("door", LAZY)
def test_a_lazy_module_is_refused_until_it_has_shapes(door: str) -> None:
    with pytest.raises(ModelError, match=r"'0.weight' of a lazy module has no shape yet; call the model once"):
        LAZY[door](nn.Sequential(nn.LazyLinear(8), nn.ReLU()), torch.randn(4, 6))
    pybuda.shutdown()


def test_all_unsupported_ops_at_once() -> None:
    with pytest.raises(UnsupportedOp) as caught:
        from_torch(TwoGaps(), (torch.eye(8)[None],))
    text = str(caught.value)
    assert "inv" in text and f"test_errors.py:{line_of('inverse')}" in text and "inner" in text
    assert "sort" in text and f"test_errors.py:{line_of('random')}" in text and "random numbers inside" in text
    assert len(caught.value.diagnostics) >= 3
    assert all(d.severity == "error" and d.fix for d in caught.value.diagnostics)


class Weighed(nn.Module):
    """Bags of one row, with weights; one more is empty."""

    def forward(self, i: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        starts = torch.tensor([0, 1, 2])
        return torch.nn.functional.embedding_bag(i, torch.eye(4), starts, mode="sum", per_sample_weights=w)


def test_weights_of_an_empty_bag_are_refused_with_what_would_work() -> None:
    with pytest.raises(UnsupportedOp, match=r"empty or padded; give \(batch, bag\)"):
        from_torch(Weighed(), (torch.tensor([1, 2]), torch.rand(2)))


@pytest.mark.parametrize("rounding", ["trunc", "floor"])
def test_what_is_said_of_a_rounded_division_holds(rounding: str) -> None:
    class Halved(nn.Module):
        def forward(self, i: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.embedding(torch.div(i, 2, rounding_mode=rounding), torch.eye(8))

    inputs = (torch.tensor([[7, 3]]),)
    graph = from_torch(Halved(), inputs)
    (got,) = evaluate(graph, feeds(graph, inputs)).values()
    assert torch.equal(got, Halved()(*inputs))


class Branches(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # branch
            return x + 1
        return x - 1


class Counts(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for _ in range(int(x.sum())):  # loop
            x = x + 1
        return x


@pytest.mark.parametrize(("module", "mark"), [(Branches(), "branch"), (Counts(), "loop")])
def test_data_dependent_control_flow_names_the_line(
    module: nn.Module, mark: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(ModelError) as caught:
        from_torch(module, (X,))
    assert f"test_errors.py:{line_of(mark)}" in str(caught.value)
    assert "depends on the value of a tensor" in str(caught.value)
    assert capfd.readouterr() == ("", "")


class Broken(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        raise KeyError("no such thing")  # broken


def test_code_that_raises_names_the_line() -> None:
    with pytest.raises(ModelError, match="KeyError") as caught:
        from_torch(Broken(), (X,))
    assert f"test_errors.py:{line_of('broken')}" in str(caught.value)


@pytest.mark.parametrize(
    "inputs",
    [
        (torch.randn(1, 9),),
        (torch.zeros(1, 8, dtype=torch.int64),),
        (),
        (X, X),
        ("eight",),
        {"y": X},
        (None,),
    ],
    ids=["shape", "dtype", "none", "surplus", "string", "name", "None"],
)
def test_sample_inputs_that_do_not_fit(inputs: object) -> None:
    with pytest.raises(InputError) as caught:
        from_torch(nn.Linear(8, 4), inputs)
    assert "Traceback" not in str(caught.value)


@pytest.mark.parametrize(
    ("inputs", "says"),
    [
        ((torch.randn(1, 9),), "traced for"),
        ((torch.zeros(1, 8, dtype=torch.int64),), "torch.float32"),
        ((), "0 input tensor"),
        ((X, X), "2 input tensor"),
        ({"y": X}, "'y'"),
        ({}, "missing"),
        ((torch.randn(8),), "traced for"),
    ],
)
def test_later_inputs_that_do_not_fit(inputs: object, says: str) -> None:
    graph = from_torch(nn.Linear(8, 4), (X,))
    with pytest.raises(InputError, match=says):
        feeds(graph, inputs)


def test_several_tensors_go_as_one_list_only_where_one_tensor_is_not_declared() -> None:
    class Total(nn.Module):
        def forward(self, parts):  # type: ignore[no-untyped-def]
            return parts[0] + parts[1]

    class Twice(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return 2 * x

    graph = from_torch(Total(), (X, X))
    (got,) = evaluate(graph, feeds(graph, (X, 3 * X))).values()
    torch.testing.assert_close(got, 4 * X)
    with pytest.raises(InputError, match="too many positional arguments"):
        from_torch(Twice(), (X, X))


def test_one_sample_tensor_for_two_arguments_is_two_inputs() -> None:
    class Difference(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x - y

    graph = from_torch(Difference(), (X, X))
    (got,) = evaluate(graph, feeds(graph, (X, 3 * X))).values()
    torch.testing.assert_close(got, -2 * X)


def test_inputs_of_different_microbatch() -> None:
    class Sum(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return x + y

    graph = from_torch(Sum(), (X, X))
    with pytest.raises(InputError, match="microbatch"):
        feeds(graph, (torch.randn(2, 8), torch.randn(3, 8)))
    assert feeds(graph, (torch.randn(2, 8), torch.randn(2, 8)))["x"].shape == (2, 8)


def test_randomness_and_active_dropout_are_refused() -> None:
    class Noise(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.randn(1, 8)

    class Drop(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return nn.functional.dropout(x, 0.5)

    with pytest.raises(UnsupportedOp, match="random"):
        from_torch(Noise(), (X,))
    with pytest.raises(UnsupportedOp, match="dropout"):
        from_torch(Drop(), (X,))


def test_indices_of_a_pool_are_the_hosts() -> None:
    class Pool(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return nn.functional.max_pool2d(2 * x, 2, return_indices=True)

    inputs = (torch.randn(1, 2, 4, 4),)
    graph = from_torch(Pool(), inputs)
    values, indices = evaluate(graph, feeds(graph, inputs)).values()
    assert torch.equal(values, Pool()(*inputs)[0]) and torch.equal(indices, Pool()(*inputs)[1])
    strict = CompileOptions(cpu_fallback="none")
    with pytest.raises(UnsupportedOp, match="the device has no max_pool2d_with_indices"):
        Session(Pool(), inputs, options=strict).compile()


@pytest.mark.parametrize(
    ("forward", "says"),
    [
        (lambda x: x[x > 0], "depends on the values of a tensor"),
        (lambda x: (lambda y: y * y.shape[0] + y.reshape(-1).sum())(x[x > 0]), "depends on the values of a tensor"),
        (lambda x: torch.nonzero(x > 0).float().sum(), "depends on the values of a tensor"),
        (lambda x: torch.masked_select(x, x > 0) + 1, "depends on the values of a tensor"),
        (lambda x: x * x.sum().item(), "go on with the tensor itself"),
    ],
)
def test_sizes_and_numbers_that_values_decide_are_refused(forward: object, says: str) -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return forward(torch.relu(x))  # type: ignore[operator, no-any-return]

    with pytest.raises(UnsupportedOp, match=says) as refused:
        from_torch(Model(), (X,))
    assert len(refused.value.diagnostics) == 1  # what reads the result is no gap of its own


def test_control_flow_and_gradients_inside_a_model_are_refused() -> None:
    with pytest.raises(UnsupportedOp, match=r"cond: control flow of torch; .* torch\.where"):
        from_torch(Fn(lambda x: torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))), (X,))
    with pytest.raises(ModelError, match="cannot be traced"):  # torch fails behind its own trace
        from_torch(Fn(torch.func.grad(lambda x: (x.tanh() ** 2).sum())), (X,))


def test_outputs_of_a_tensorflow_graph() -> None:
    nodes = [
        ("x", "Placeholder", []),
        ("w", "Const", []),
        ("mul", "Mul", ["x", "w"]),
        ("same", "Identity", ["mul:0"]),
        ("wait", "NoOp", ["^mul"]),
    ]
    graph = SimpleNamespace(node=[SimpleNamespace(name=n, op=op, input=i) for n, op, i in nodes])
    assert graph_outputs(graph, None) == ["same:0"]
    assert graph_outputs(graph, ["mul", "same:0"]) == ["mul:0", "same:0"]
    with pytest.raises(ModelError, match="no node 'sane' for output_names; close names: same"):
        graph_outputs(graph, ["sane:0"])


def test_what_is_no_model() -> None:
    with pytest.raises(ModelError, match="not a model"):
        from_any(lambda x: x, (X,))
    with pytest.raises(ModelError, match=r"torch\.nn\.Module"):
        from_torch(lambda x: x, (X,))  # type: ignore[arg-type]


def test_code_of_a_cell_is_called_as_the_cell(monkeypatch: pytest.MonkeyPatch) -> None:
    compilerop = pytest.importorskip("IPython.core.compilerop")
    compiler = compilerop.CachingCompiler()
    file = compiler.cache("def forward(self, x): ...", 3)
    monkeypatch.setattr("IPython.get_ipython", lambda: SimpleNamespace(compile=compiler))
    assert short_path(file) == "In[3]"
    assert short_path(__file__).endswith("test_errors.py")


def test_refused_inputs_leave_no_traceback_on_stderr(capfd: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InputError):
        from_torch(nn.Linear(8, 8), (torch.randn(1, 4),))
    assert capfd.readouterr().err == ""


def _scripts() -> dict[str, Any]:
    layers = nn.Sequential(nn.Linear(5, 5), nn.ReLU()).eval()
    scripted, traced = torch.jit.script(layers), torch.jit.trace(layers, torch.randn(1, 5))
    return {
        "scripted": scripted,
        "traced": traced,
        "frozen": torch.jit.freeze(torch.jit.script(layers)),
        "inside": nn.Sequential(scripted, nn.ReLU()),
    }


@pytest.mark.parametrize("kind", ["scripted", "traced", "frozen", "inside"])
def test_torchscript_is_refused_with_what_would_work(kind: str) -> None:
    with pytest.raises(ModelError, match=r"TorchScript module.*nn\.Module"):
        from_torch(_scripts()[kind], (torch.randn(1, 5),))


def test_exported_programs_and_their_modules_are_read() -> None:
    layers, x = nn.Sequential(nn.Linear(5, 5), nn.ReLU()).eval(), torch.randn(1, 5)
    program = torch.export.export(layers, (x,))
    for model in (program, program.module()):
        graph = from_any(model, (x,))
        (have,) = evaluate(graph, feeds(graph, (x,))).values()
        torch.testing.assert_close(have, layers(x).detach())


class Placed(nn.Module):
    """What it does to an element depends on its place in dim 0."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x)


def _added(x: torch.Tensor) -> torch.Tensor:
    y = x + 0
    y[1:2] += 0.1
    return y


@pytest.mark.parametrize(
    "function",
    [
        _added,
        lambda x: torch.cat([x[:3], x[3:4] * 2, x[4:]]),
        lambda x: x.flatten(1).triu(1).max(-1, keepdim=True)[0],
        lambda x: x + torch.arange(7.0)[:, None, None],
        lambda x: x.roll(1, 0),
        lambda x: torch.where(torch.arange(7)[:, None, None] == 4, x, -x),
        lambda x: x.flatten(1).tril(-1),
    ],
    ids=[
        "a slice is written",
        "one is doubled",
        "a triangle's largest",
        "places are added",
        "turned",
        "one is kept",
        "below the diagonal",
    ],
)
@pytest.mark.parametrize("seed", [0, 1])
def test_dim_0_is_no_microbatch_where_places_matter(
    function: Callable[[torch.Tensor], torch.Tensor], seed: int
) -> None:
    torch.manual_seed(seed)
    x = torch.randn(7, 2, 3)
    graph = from_torch(Placed(function), (x,))
    assert graph.inputs[0].shape == (7, 2, 3)
    (have,) = evaluate(graph, feeds(graph, (x,))).values()
    torch.testing.assert_close(have, function(x))


def test_warnings_of_other_threads_are_heard_while_one_traces() -> None:
    heard: list[str] = []
    inside = threading.Event()
    leave = threading.Event()

    class Slow(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            warnings.warn("of the trace", stacklevel=1)
            inside.set()
            assert leave.wait(30)
            return x + 1

    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        tracing = threading.Thread(target=lambda: from_torch(Slow(), (X,)))
        tracing.start()
        assert inside.wait(30)
        stderr = sys.stderr
        warnings.warn("of another thread", stacklevel=1)
        leave.set()
        tracing.join()
        heard = [str(w.message) for w in seen]
    assert "of another thread" in heard and "of the trace" not in heard and sys.stderr is stderr


def test_a_constant_is_refused_by_its_size_before_it_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    class Counted(torch.nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + torch.arange(128).float() + torch.ones(1).expand(4096)[:128]

    monkeypatch.setattr(large_values, "LARGE", 128)
    from_torch(Counted().eval(), torch.zeros(1, 128))
    monkeypatch.setattr(large_values, "LARGE", 127)
    with pytest.raises(UnsupportedOp, match=r"test_errors\.py:\d+\): aten\.arange.*128 elements; 127 are the most"):
        from_torch(Counted().eval(), torch.zeros(1, 128))


HUGE = 10**10
TOO_LARGE: dict[str, tuple[Callable[..., Any], torch.Tensor]] = {
    "an input, repeated in memory": (torch.relu, torch.ones(1).expand(1, HUGE)),
    "a constant": (lambda x: x + torch.arange(HUGE), torch.ones(1, 1)),
    "zeros": (lambda x: x + torch.zeros(HUGE), torch.ones(1, 1)),
    "a broadcast sum": (lambda x: x.reshape(-1, 1) + x, torch.ones(1, 10**5)),
    "a product": (lambda x: x.reshape(-1, 1) @ x, torch.ones(1, 10**5)),
    "a repeated one": (lambda x: torch.relu(x).repeat(1, HUGE), torch.ones(1, 1)),
    "an expanded one": (lambda x: torch.relu(x.expand(1, HUGE)), torch.ones(1, 1)),
    "a padded one": (lambda x: nn.functional.pad(x, (0, HUGE)), torch.ones(1, 1)),
}


@pytest.mark.parametrize("name", TOO_LARGE)
def test_a_value_that_no_device_holds_is_refused_before_it_takes_memory(name: str) -> None:
    """Had one of them been made, the test would end for want of memory: 40 GB."""
    call, x = TOO_LARGE[name]
    with pytest.raises(UnsupportedOp, match=r"value of 10,000,000,00\d elements; 8,589,934,592 are the most"):
        from_torch(Fn(call), x)


def test_values_too_large_to_hold_several_times_are_traced_and_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(large_values, "LARGE", 1000)
    graph = from_torch(Fn(lambda x: torch.relu(x) * 2), torch.randn(1, 1001))
    assert [node.shape for node in graph.outputs] == [(1, 1001)]
    assert "makes 1,001 elements" in caplog.text


ONNX_TOO_LARGE = {
    "Range": (["a", "b", "c"], {"a": 0.0, "b": 1e10, "c": 1.0}),
    "ConstantOfShape": (["s"], {"s": [HUGE]}),
    "Expand": (["x", "s"], {"s": [1, HUGE]}),
    "Tile": (["x", "s"], {"s": [1, HUGE]}),
    "Pad": (["x", "s"], {"s": [0, 0, 0, HUGE]}),
}


@pytest.mark.parametrize("kind", ONNX_TOO_LARGE)
def test_an_onnx_file_is_refused_by_size_too(kind: str) -> None:
    onnx = pytest.importorskip("onnx")
    helper, types = onnx.helper, onnx.TensorProto
    operands, values = ONNX_TOO_LARGE[kind]
    stored = [
        helper.make_tensor(n, types.INT64, [len(v)], v)
        if isinstance(v, list)
        else helper.make_tensor(n, types.FLOAT, [], [v])
        for n, v in values.items()
    ]
    nodes = [helper.make_node(kind, operands, ["r"]), helper.make_node("Add", ["x", "r"], ["y"])]
    ends = [helper.make_tensor_value_info(n, types.FLOAT, s) for n, s in (("x", [1, 1]), ("y", None))]
    graph = helper.make_graph(nodes, "g", ends[:1], ends[1:], initializer=stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    with pytest.raises(UnsupportedOp, match=f"node 0.*onnx.{kind}"):
        from_any(model, torch.zeros(1, 1), name="large")


@pytest.mark.parametrize("traced", [torch.uint8, torch.int8, torch.int16, torch.int64])
def test_whole_numbers_of_another_width_are_refused_where_they_wrap(traced: torch.dtype) -> None:
    model = Fn(lambda x: (x + 100).float())
    graph = from_torch(model, (torch.full((1, 8), 100, dtype=traced),))
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64):
        x = torch.full((1, 8), 100, dtype=dtype)
        if dtype == traced or {dtype, traced} == {torch.int32, torch.int64}:
            torch.testing.assert_close(evaluate(graph, feeds(graph, (x,)))["model.output_0"], model(x))
        else:
            with pytest.raises(InputError, match="whose sums wrap elsewhere"):
                feeds(graph, (x,))


def test_sparse_weights_and_constants_are_refused() -> None:
    class Sparse(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("weight", torch.eye(8).to_sparse())

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.sparse.mm(self.weight, x.T)

    with pytest.raises(ModelError, match=r"'weight' of the model is of layout torch.sparse_coo"):
        from_torch(Sparse(), (X,))
    with pytest.raises(UnsupportedOp, match="sparse"):
        from_torch(Fn(lambda x: torch.sparse.mm(torch.eye(8).to_sparse(), x.T)), (X,))
