"""CPU fallback: models in sections of host and device, against torch."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable

import pytest
import torch
from torch import nn

import tbuda_lab.pybuda as pybuda
from tbuda_lab.core.compiler.fallback import SplitResult, compile_with_fallback
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import BatchError, NotSupported, UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runner
from tests.frontend.ops_zoo import Fn

FLOAT = CompileOptions(default_df_override=DataFormat.Float32)


@pytest.fixture(autouse=True)
def _quiet() -> None:
    torch.manual_seed(0)
    pybuda.config.set_configuration_options(default_df_override=DataFormat.Float32)


class Routed(nn.Module):
    """The largest values of a hidden layer are kept, then a second layer; an inverse and whole numbers go out."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 32)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        hidden = torch.relu(self.first(x))
        values, places = torch.topk(hidden, 8, dim=-1)
        sparse = torch.zeros_like(hidden).scatter(-1, places, values)
        last = self.second(sparse) + hidden
        return torch.sinh(last), torch.linalg.inv(last @ last.transpose(-1, -2) + torch.eye(16)), places + 1000


def test_sections_alternate_and_answer_as_torch_does() -> None:
    model, x = Routed(), torch.randn(2, 16, 32)
    split = compile_with_fallback(from_torch(model, (x,)), load_device("wormhole_b0"), FLOAT)
    assert not isinstance(split, SplitResult) and split.chain is not None
    assert [s.place for s in split.chain.stages] == ["device", "host", "device", "host"]
    assert [p.name for p in split.netlist.programs] == ["run_fwd_0", "run_fwd_1"]
    assert "aten.topk.default" in split.chain.report()
    for have, want in zip(Runner(split).run([x])[0], model(x), strict=True):
        torch.testing.assert_close(have, want.detach(), rtol=1e-4, atol=1e-4)


class Ranked(nn.Module):
    """Floats and whole numbers by turns, all of them by the host."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        values, places = torch.topk(x, 3, dim=-1)
        return values, places, x.floor(), torch.argsort(x, dim=-1), x.ceil()


def test_outputs_keep_their_order_where_the_device_only_copies() -> None:
    model, x = Ranked(), torch.randn(1, 16, 32)
    split = compile_with_fallback(from_torch(model, (x,)), load_device("grayskull"), FLOAT)
    assert not isinstance(split, SplitResult) and split.chain is not None
    have, want = Runner(split).run([x])[0], model(x)
    assert [t.dtype for t in have] == [t.dtype for t in want]
    for h, w in zip(have, want, strict=True):
        torch.testing.assert_close(h, w, rtol=0.01, atol=0.01)


def test_without_fallback_the_error_names_op_and_line() -> None:
    graph = from_torch(Routed(), (torch.randn(1, 16, 32),))
    with pytest.raises(UnsupportedOp, match=r"test_fallback\.py:\d+.*topk"):
        compile_with_fallback(graph, load_device("wormhole_b0"), FLOAT, automatic=False)


class Transformed(nn.Module):
    """A layer before and after something that the host computes."""

    def __init__(self, function: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self.first, self.second, self.function = nn.Linear(32, 32), nn.Linear(32, 32), function

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.second(self.function(self.first(x)))
        return y


@pytest.mark.parametrize(
    "function",
    [
        lambda x: torch.fft.fftn(x, dim=(1, 2)).real,  # FNet
        lambda x: torch.fft.irfft(torch.fft.rfft(x) * torch.complex(torch.arange(17.0), torch.ones(17)), n=32),
        lambda x: torch.fft.fft(x).abs() + torch.fft.fft(x, dim=1).imag,
        lambda x: nn.functional.adaptive_max_pool2d(x[:, None], (5, 32))[:, 0],
        lambda x: torch.polar(x.abs(), x).real + torch.linalg.eigvals(x[:, :4, :4]).abs().sum(),
        lambda x: torch.fake_quantize_per_channel_affine(x, torch.full((16,), 0.01), torch.zeros(16), 1, -128, 127),
        lambda x: nn.functional.interpolate(x[:, None], (5, 32), mode="bilinear", antialias=True)[:, 0],
    ],
    ids=[
        "fft",
        "filter",
        "spectrum",
        "windows of several sizes",
        "polar",
        "fake quantisation by channel",
        "smoothed pixels",
    ],
)
def test_complex_numbers_and_uneven_windows_are_the_hosts(function: Callable[[torch.Tensor], torch.Tensor]) -> None:
    model, x = Transformed(function), torch.randn(2, 16, 32)
    split = compile_with_fallback(from_torch(model, (x,)), load_device("wormhole_b0"), FLOAT)
    assert not isinstance(split, SplitResult) and split.chain is not None
    assert [s.place for s in split.chain.stages] == ["device", "host", "device"]
    torch.testing.assert_close(Runner(split).run([x])[0][0], model(x).detach(), rtol=1e-4, atol=1e-3)


def test_values_that_a_mask_places_one_after_the_other() -> None:
    model, x = Transformed(lambda x: x.masked_scatter(x > 0, x * 2)), torch.randn(1, 16, 32)
    split = compile_with_fallback(from_torch(model, (x,)), load_device("wormhole_b0"), FLOAT)
    assert not isinstance(split, SplitResult) and split.chain is not None
    torch.testing.assert_close(Runner(split).run([x])[0][0], model(x).detach(), rtol=1e-4, atol=1e-3)


def test_a_complex_output_is_refused_with_what_would_work() -> None:
    with pytest.raises(UnsupportedOp, match=r"complex; return torch\.view_as_real"):
        from_torch(Fn(torch.fft.fft), (torch.randn(1, 16, 32),))


class Reader(nn.Module):
    """Tokens to scores, with the look-up table as the last weight too."""

    def __init__(self) -> None:
        super().__init__()
        self.table, self.norm = nn.Embedding(40, 32), nn.LayerNorm(32)
        self.layer = nn.Linear(32, 32)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = torch.sinh(self.norm(torch.relu(self.layer(self.table(tokens)))) * 0.3)
        return hidden @ self.table.weight.T


def test_named_ops_run_on_the_host_and_the_device_says_so() -> None:
    model, tokens = Reader().eval(), torch.randint(0, 40, (2, 8))
    pybuda.config.add_cpu_fallback_ops("layernorm")
    device = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=pybuda.PyTorchModule("reader", model))
    with pytest.warns(UserWarning, match="3 sections: layernorm .* cpu_fallback_ops names it"):
        outputs = pybuda.run_inference(inputs=[(tokens,)]).get()
    torch.testing.assert_close(outputs[0].value(), model(tokens).detach(), rtol=1e-4, atol=1e-4)
    assert "section 1, host: norm.layernorm" in device.fallback_report()
    pybuda.config.remove_cpu_fallback_ops("layernorm")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        pybuda.run_inference(inputs=[(tokens,)])
    assert device.fallback_report() == ""


@pytest.mark.parametrize("kind", ["sgd", "adam"])
def test_a_model_in_sections_trains_as_in_torch(kind: str) -> None:
    """A look-up table that is trained on the host and read by a product on the device; two steps of one batch."""
    model, tokens, target = Reader(), torch.randint(0, 40, (1, 8)), torch.randn(1, 8, 40)
    pybuda.config.add_cpu_fallback_ops("layernorm")
    ours = pybuda.SGD(0.1, device_params=True) if kind == "sgd" else pybuda.Adam(0.01, device_params=True)
    device = pybuda.TTDevice(
        "tt0",
        arch=pybuda.BackendDevice.Wormhole_B0,
        optimizer=ours,
        module=pybuda.PyTorchModule("reader", copy.deepcopy(model)),
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", nn.L1Loss()))
    with pytest.warns(UserWarning, match="its weight is trained"):
        pybuda.initialize_pipeline(training=True, sample_inputs=(tokens,), sample_targets=(target,))
    theirs = torch.optim.SGD(model.parameters(), 0.1) if kind == "sgd" else torch.optim.Adam(model.parameters(), 0.01)
    for _ in range(2):
        device.push_to_inputs(tokens)
        device.push_to_target_inputs(target)
        pybuda.run_forward(input_count=1)
        pybuda.run_backward(input_count=1, zero_grad=True)
        theirs.zero_grad()
        loss = nn.functional.l1_loss(model(tokens), target)
        loss.backward()
        torch.testing.assert_close(pybuda.get_loss_queue().get()[0].value().sum(), loss.detach(), rtol=1e-4, atol=1e-5)
        gradients = pybuda.get_parameter_gradients(device)[0]
        for name, weight in model.named_parameters():
            assert weight.grad is not None
            torch.testing.assert_close(gradients[name].value(), weight.grad, rtol=1e-3, atol=1e-6)
        pybuda.run_optimizer()
        theirs.step()
    trained = device.get_parameter_checkpoint()
    for name, weight in model.named_parameters():
        torch.testing.assert_close(trained[name].value(), weight.detach(), rtol=1e-3, atol=1e-5)


class Selecting(nn.Module):
    """How many rows are read depends on the numbers in them, before and after a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(32, 32), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x[0][(x[0].sum(-1) > 0).nonzero()[:, 0]]
        hidden = torch.relu(self.first(rows))
        if hidden.sum() > 1e6:
            hidden = hidden * 0
        return self.second(hidden)


def test_a_path_that_depends_on_data_runs_between_breaks() -> None:
    torch._dynamo.reset()
    model, x = Selecting().eval(), torch.randn(1, 16, 32)
    device = pybuda.TTDevice(
        "tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=pybuda.PyTorchModule("selecting", model)
    )
    with pytest.warns(UserWarning, match="depends on data"):
        outputs = pybuda.run_inference(inputs=[(x,)]).get()
    torch.testing.assert_close(outputs[0].value(), model(x).detach(), rtol=1e-4, atol=1e-4)
    assert "device: 2 ops" in device.fallback_report()
    again = -x
    outputs = pybuda.run_inference(inputs=[(again,)]).get()
    torch.testing.assert_close(outputs[0].value(), model(again).detach(), rtol=1e-4, atol=1e-4)


class Counting(nn.Module):
    """How many are positive, and where the largest is, beside something for the device."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.relu(x), (x > 0).sum(-1), torch.argmax(x, -1), torch.arange(900) + 100


@pytest.mark.parametrize(("df", "counted_by"), [(DataFormat.Float16_b, "host"), (DataFormat.Float32, "device")])
def test_counts_beyond_what_a_format_holds_are_the_hosts(df: DataFormat, counted_by: str) -> None:
    x = torch.rand(1, 2, 1000) - 0.1
    x[..., 999] = 3.0
    options = CompileOptions(default_df_override=df)
    split = compile_with_fallback(from_torch(Counting(), (x,)), load_device("wormhole_b0"), options)
    assert not isinstance(split, SplitResult) and split.chain is not None
    assert ("argmax" in " ".join(d.message for d in split.chain.reasons)) == (counted_by == "host")
    for have, want in list(zip(Runner(split).run([x])[0], Counting()(x), strict=True))[1:]:
        assert torch.equal(have.long(), want)


def test_a_model_that_only_counts_is_refused_where_the_format_does_not_hold_its_numbers() -> None:
    class Where(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.argmax(x, -1)

    x = torch.zeros(1, 2, 1000)
    x[..., 997] = 1.0
    graph, device = from_torch(Where(), (x,)), load_device("wormhole_b0")
    with pytest.raises(UnsupportedOp, match="numbers up to 1000 in Float16_b; Float32 holds them"):
        compile_with_fallback(graph, device, CompileOptions(default_df_override=DataFormat.Float16_b))
    result = compile_with_fallback(graph, device, CompileOptions(default_df_override=DataFormat.Float32))
    assert not isinstance(result, SplitResult) and result.chain is None
    assert not [d for d in result.diagnostics if d.rule == "whole-numbers"]


@pytest.mark.parametrize("name", ["atan2", "fmod", "hypot", "copysign", "fmax"])
def test_a_model_of_which_the_device_has_no_op_runs_and_says_so(name: str) -> None:
    class One(nn.Module):
        def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
            return getattr(torch, name)(x, y)

    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("one", One()))
    x, y = torch.randn(1, 3, 20), torch.randn(1, 3, 20)
    device.push_to_inputs(x, y)
    with pytest.warns(UserWarning, match=f"{name} '{name}' runs on the host|host_call '{name}' runs on the host"):
        (have,) = pybuda.run_inference().get()
    torch.testing.assert_close(have.value(), getattr(torch, name)(x, y), rtol=0.02, atol=0.01)


def test_experts_of_a_gate_count_their_rows_on_the_host() -> None:
    """300 rows in groups, more than Float16_b counts exactly: a row in its neighbour's group would be far off."""
    from transformers import MixtralConfig
    from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock

    config = MixtralConfig(hidden_size=32, intermediate_size=32, num_local_experts=4, num_experts_per_tok=2)
    config._experts_implementation = "grouped_mm"
    model, x = MixtralSparseMoeBlock(config).eval(), torch.randn(1, 150, 32)
    for weight in model.parameters():
        nn.init.normal_(weight, std=0.3)
    split = compile_with_fallback(from_torch(model, (x,)), load_device("wormhole_b0"), CompileOptions())
    assert not isinstance(split, SplitResult) and split.chain is not None
    assert {"experts.cumsum", "gate.topk"} <= {n.name for s in split.chain.stages if s.place == "host" for n in s.graph}
    (have,), want = Runner(split).run([x])[0], model(x).detach()
    assert float((have - want).abs().max()) < 0.2 * float(want.abs().max())
    narrow = model.bfloat16()(x.bfloat16()).float().detach()  # one row's second expert is nearly a tie
    alike = [torch.corrcoef(torch.stack([y.flatten(), want.flatten()]))[0, 1] for y in (have, narrow)]
    assert alike[0] > alike[1]


@pytest.mark.parametrize(
    "model",
    [
        Fn(lambda x: (2 * x).norm(3, -1)),
        Fn(lambda x: nn.functional.max_unpool2d(*nn.functional.max_pool2d(2 * x, 2, return_indices=True), 2)),
        Fn(lambda x: (2 * x).sort(-1).values),
    ],
)
def test_forms_that_the_device_has_not_are_the_hosts(model: nn.Module) -> None:
    x = torch.randn(1, 2, 8, 8)
    split = compile_with_fallback(from_torch(model, (x,)), load_device("wormhole_b0"), FLOAT)
    assert not isinstance(split, SplitResult) and split.chain is not None
    (got,) = Runner(split).run([x])[0]
    torch.testing.assert_close(got, model(x), rtol=1e-4, atol=1e-4)


def test_pooling_by_windows_of_several_sizes_runs_on_the_host() -> None:
    model, x = nn.Sequential(nn.Conv2d(3, 4, 1), nn.AdaptiveMaxPool2d((3, 2))), torch.randn(1, 3, 7, 5)
    split = compile_with_fallback(from_torch(model, (x,)), load_device("wormhole_b0"), FLOAT)
    assert not isinstance(split, SplitResult) and split.chain is not None
    torch.testing.assert_close(Runner(split).run([x])[0][0], model(x).detach(), rtol=1e-4, atol=1e-4)


def test_a_model_without_a_device_op_runs_on_the_host_with_a_warning() -> None:
    class Places(nn.Module):
        def forward(self, tokens: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return torch.sort(tokens)[1], tokens + 1, tokens > 3

    model, tokens = Places(), torch.tensor([[5, 2, 7, 1]]) + 2**25
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("places", model))
    with pytest.warns(UserWarning, match="no op of the model, and the host runs all of it: .*whole numbers"):
        outputs = pybuda.run_inference(inputs=[(tokens,)]).get()
    for have, want in zip(outputs, model(tokens), strict=True):
        torch.testing.assert_close(have.value(), want, rtol=0, atol=0)
    assert device.fallback_report().startswith("host: ")
    with pytest.raises(BatchError, match="microbatch"):
        device.run_forward((torch.zeros(2, 4, dtype=torch.int64),))


def test_loop_back_is_refused_where_the_host_runs_the_model() -> None:
    pybuda.config._get_global_compiler_config().loopback_outputs = {"args[0]": 0}
    device = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("m", Fn(lambda x: x * 2 if x.sum() > 0 else x)))
    with pytest.warns(UserWarning), pytest.raises(NotSupported, match="loopback_outputs on device 'tt0'"):
        device.generate_one((torch.eye(16)[None],), 0)


SECTIONS = {
    "round": lambda y: y.round() * 0.1 + y,
    "sort": lambda y: y.sort(-1)[0],
    "topk": lambda y: y + y.topk(1)[0],
    "cumprod": lambda y: y.tanh().cumprod(-1),
}


class Before(nn.Module):
    """A layer of the device before an op of the host."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.layer, self.name = nn.Linear(6, 6), name

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return SECTIONS[self.name](self.layer(x))


@pytest.mark.parametrize("name", SECTIONS)
def test_ops_of_the_host_hand_torchs_gradients_to_the_device(name: str) -> None:
    torch.manual_seed(0)
    model, x, target = Before(name), torch.randn(1, 4, 6), torch.randn(1, 4, 6)
    pybuda.config.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    device = pybuda.TTDevice(
        "tt0",
        arch=pybuda.BackendDevice.Wormhole_B0,
        optimizer=pybuda.SGD(0.1, device_params=True),
        module=pybuda.PyTorchModule("model", copy.deepcopy(model)),
    )
    device.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
    with pytest.warns(UserWarning, match=name):
        pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(target,))
    device.push_to_inputs(x)
    device.push_to_target_inputs(target)
    pybuda.run_forward(input_count=1)
    pybuda.run_backward(input_count=1, zero_grad=True)
    nn.functional.mse_loss(model(x), target).backward()
    gradients = pybuda.get_parameter_gradients(device)[0]
    for weight_name, weight in model.named_parameters():
        torch.testing.assert_close(gradients[weight_name].value(), weight.grad, rtol=1e-3, atol=1e-6)
