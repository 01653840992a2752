"""Models with caches through the run loop: loop-back inputs, token by token against torch without a cache."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch
from torch import nn

import tbuda_lab.pybuda as pybuda
from tbuda_lab.core.frontend.torch_model.caches import kept, left

PLACES, WIDTH = 64, 32


class Attention(nn.Module):
    """One token (1, 1, width) attends to itself and to the places of its caches that the mask leaves open."""

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))

    def forward(
        self, x: torch.Tensor, mask: torch.Tensor, keys: torch.Tensor, values: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        key, value = self.k(x), self.v(x)
        every = torch.cat([keys, key], 1)
        scores = self.q(x) @ every.transpose(1, 2) / WIDTH**0.5 + mask
        return scores.softmax(-1) @ torch.cat([values, value], 1), key, value


def whole(model: Attention, x: torch.Tensor) -> torch.Tensor:
    """The same on the whole sequence, with torch's own attention."""
    return nn.functional.scaled_dot_product_attention(model.q(x), model.k(x), model.v(x), is_causal=True)


@pytest.fixture
def device() -> Iterator[pybuda.TTDevice]:
    torch.manual_seed(0)
    pybuda.config.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    pybuda.config._get_global_compiler_config().loopback_outputs = {"keys": 1, "values": 2}
    yield pybuda.TTDevice(
        "tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=pybuda.PyTorchModule("attention", Attention().eval())
    )


def mask(token: int) -> torch.Tensor:
    hidden = torch.full((1, 1, PLACES + 1), -1e9)
    hidden[..., :token] = 0
    hidden[..., -1] = 0
    return hidden


def test_tokens_with_loop_back_caches(device: pybuda.TTDevice) -> None:
    model, x = device.modules[0].module, torch.randn(1, 12, WIDTH)
    caches = torch.zeros(1, PLACES, WIDTH), torch.zeros(1, PLACES, WIDTH)
    for token in range(12):
        one = (x[:, token : token + 1], mask(token))
        device.push_to_inputs(*one, *caches) if token == 0 else device.push_to_inputs(*one)
    out = pybuda.run_generate(input_count=1, token_id=0)
    pybuda.run_generate(input_count=3, token_id=1)
    for token in range(4, 12):
        pybuda.run_generate(input_count=1, token_id=token)
    have = [out.get() for _ in range(12)]
    assert all(len(outputs) == 1 for outputs in have)
    expected = whole(model, x).detach()
    torch.testing.assert_close(torch.cat([o[0].value() for o in have], 1), expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    "names", [("input__56", "input__57"), ("k_past_9", "v_past_11"), ("args_10", "args_9"), ("keys", "values")]
)
def test_caches_by_the_names_of_tvm(device: pybuda.TTDevice, names: tuple[str, str]) -> None:
    """Which number an input has depends on what TVM inserts; their order does not."""
    first, second = (1, 2) if names != ("args_10", "args_9") else (2, 1)
    pybuda.config._get_global_compiler_config().loopback_outputs = {names[0]: first, names[1]: second}
    model, x = device.modules[0].module, torch.randn(1, 3, WIDTH)
    caches = torch.zeros(1, PLACES, WIDTH), torch.zeros(1, PLACES, WIDTH)
    out = None
    for token in range(3):
        one = (x[:, token : token + 1], mask(token))
        device.push_to_inputs(*one, *caches) if token == 0 else device.push_to_inputs(*one)
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            out = pybuda.run_generate(token_id=token)
        assert sum("is taken for keys" in str(w.message) for w in said) == (token == 0 and names[0] != "keys")
    assert out is not None
    have = torch.cat([out.get()[0].value() for _ in range(3)], 1)
    torch.testing.assert_close(have, whole(model, x).detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("loops", [{"cache_1": 1}, {"cache_1": 1, "values": 2}, {"cache": 1, "other": 2}, {"c_1": 9}])
def test_caches_that_cannot_be_told_are_refused(device: pybuda.TTDevice, loops: dict[str, int]) -> None:
    pybuda.config._get_global_compiler_config().loopback_outputs = loops
    zeros = torch.zeros(1, PLACES, WIDTH)
    device.push_to_inputs(torch.randn(1, 1, WIDTH), mask(0), zeros, zeros)
    with pytest.raises(RuntimeError, match="is to be one of the inputs"):
        pybuda.run_generate(token_id=0)


def test_a_tile_row_of_tokens_is_written_at_once() -> None:
    """write_index counts rows of 32 tokens, as the prefill of a model that takes 32 tokens at a time has them."""

    class Running(nn.Module):
        def forward(self, x: torch.Tensor, seen: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x.sum(1, keepdim=True) + seen.sum(1, keepdim=True), x * 1.0

    pybuda.config.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    pybuda.config._get_global_compiler_config().loopback_outputs = {"seen": 1}
    tt0 = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=pybuda.PyTorchModule("r", Running()))
    x = torch.randn(1, 96, 8)
    tt0.push_to_inputs(x[:, :32], torch.zeros(1, 96, 8))
    tt0.push_to_inputs(x[:, 32:64])
    tt0.push_to_inputs(x[:, 64:])
    out = pybuda.run_generate(input_count=2, write_index=0)
    pybuda.run_generate(input_count=1, write_index=2)
    for rows in (32, 64, 96):
        torch.testing.assert_close(out.get()[0].value(), x[:, :rows].sum(1, keepdim=True), rtol=1e-3, atol=1e-3)


def test_misuse(device: pybuda.TTDevice) -> None:
    x, caches = torch.randn(1, 1, WIDTH), (torch.zeros(1, PLACES, WIDTH), torch.zeros(1, PLACES, WIDTH))
    with pytest.raises(RuntimeError, match="0 inputs wait"):
        pybuda.run_generate(input_count=1)
    device.push_to_inputs(x, mask(0), *caches)
    pybuda.run_generate(token_id=0)
    device.push_to_inputs(x, mask(0))
    with pytest.raises(RuntimeError, match="64 places"):
        pybuda.run_generate(token_id=64)
    device.push_to_inputs(x)
    with pytest.raises(RuntimeError, match="mask is missing"):
        pybuda.run_generate(token_id=1)


class Quantised(pybuda.PyBudaModule):
    """An 8-bit product between quantisations, scales of its weights by column."""

    def __init__(self, name: str, weights: torch.Tensor, scales: torch.Tensor) -> None:
        super().__init__(name)
        self.weights = pybuda.Parameter(weights, requires_grad=False)
        self.scales = pybuda.Parameter(scales, requires_grad=False)

    def forward(self, x: pybuda.Tensor) -> pybuda.Tensor:
        whole_x = pybuda.op.Quantize("qx", x, 0.05, 3.0)
        real = pybuda.op.Dequantize("dx", whole_x, 0.05, 3.0)
        weights = pybuda.op.Dequantize("dw", self.weights, self.scales, 0.0, axis=-1)
        product = pybuda.op.Quantize("qy", pybuda.op.Matmul("mm", real, weights), 0.1)
        return pybuda.op.Requantize("rq", product, 0.1, 0.23)


def test_quantised_ops_are_exact() -> None:
    """Against torch's own quantised tensors."""
    torch.manual_seed(0)
    pybuda.config.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    weights, scales = torch.randint(-127, 128, (64, 32)).float(), torch.rand(32) / 50 + 0.001
    x = torch.randn(1, 1, 32, 64)
    pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=Quantised("q", weights, scales))
    with pytest.warns(UserWarning, match="only the host implements it"):
        (have,) = pybuda.run_inference(inputs=[(x,)]).get()
    real = torch.quantize_per_tensor(x, 0.05, 3, torch.qint8).dequantize()
    product = torch.quantize_per_tensor(real @ (weights * scales), 0.1, 0, torch.qint8)
    expected = torch.quantize_per_tensor(product.dequantize(), 0.23, 0, torch.qint8).int_repr().float()
    differ = (have.value() - expected).abs()  # a product that lies on the border of two numbers may fall to either side
    assert float(differ.max()) <= 1 and float((differ > 0).float().mean()) < 0.01
    assert expected.unique().numel() > 20


class Parts(nn.Module):
    """Causal attention of a prompt, then of one token over the prompt and the tokens since: two programs."""

    prompt_keys: torch.Tensor
    prompt_values: torch.Tensor
    new_keys: torch.Tensor
    new_values: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.q, self.k, self.v = (nn.Linear(WIDTH, WIDTH) for _ in range(3))
        for name in ("prompt_keys", "prompt_values", "new_keys", "new_values"):
            self.register_buffer(name, torch.zeros(1, 32, WIDTH))

    def forward(self, prompt: torch.Tensor, x: torch.Tensor, step: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = self.k(prompt), self.v(prompt)
        hidden = torch.full((32, 32), -1e4, dtype=x.dtype).triu(1)
        first = (self.q(prompt) @ keys.transpose(1, 2) / WIDTH**0.5 + hidden).softmax(-1) @ values
        places = torch.arange(32)
        here = (places == step).to(x.dtype).reshape(1, -1, 1)
        since = kept(self.new_keys * (1 - here) + self.k(x) * here, self.new_keys)
        every = torch.cat([left(keys, self.prompt_keys), since], 1)
        since = kept(self.new_values * (1 - here) + self.v(x) * here, self.new_values)
        mask = torch.cat([torch.zeros(1, 32), (places > step).float() * -1e4], -1).to(x.dtype)
        scores = (self.q(x) @ every.transpose(1, 2) / WIDTH**0.5 + mask).softmax(-1)
        return first, scores @ torch.cat([left(values, self.prompt_values), since], 1)


def test_a_module_in_two_parts_keeps_its_caches_on_the_device() -> None:
    torch.manual_seed(0)
    pybuda.config.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
    model, x = Parts().eval(), torch.randn(1, 36, WIDTH)
    device = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=pybuda.PyTorchModule("parts", model))
    tokens = [(x[:, 32 + k : 33 + k], torch.tensor([[k]])) for k in range(4)]
    device.push_to_inputs(x[:, :32], *tokens[0])
    for token in tokens[1:]:
        device.push_to_inputs(*token)
    out = pybuda.run_generate(input_count=4, token_id=0)
    first, *later = [out.get() for _ in range(4)]
    assert len(first) == 2 and all(len(outputs) == 1 for outputs in later)
    have = torch.cat([first[0].value(), first[1].value(), *(o[0].value() for o in later)], 1)
    expected = nn.functional.scaled_dot_product_attention(model.q(x), model.k(x), model.v(x), is_causal=True).detach()
    torch.testing.assert_close(have, expected, rtol=1e-3, atol=1e-4)


def test_parts_of_a_half_precision_model_give_its_dtype() -> None:
    torch.manual_seed(0)
    model, x = Parts().to(torch.bfloat16).eval(), torch.randn(1, 33, WIDTH).to(torch.bfloat16)
    device = pybuda.TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, module=pybuda.PyTorchModule("parts", model))
    device.push_to_inputs(x[:, :32], x[:, 32:], torch.tensor([[0]]))
    device.push_to_inputs(x[:, 32:], torch.tensor([[1]]))
    out = pybuda.run_generate(input_count=2, token_id=0)
    assert [v.value().dtype for _ in range(2) for v in out.get()] == [torch.bfloat16] * 3


def test_a_generation_begins_with_the_caches_of_the_sample(device: pybuda.TTDevice) -> None:
    model, x = device.modules[0].module, torch.randn(1, 1, WIDTH)
    torch.manual_seed(4)
    caches = torch.randn(1, PLACES, WIDTH), torch.randn(1, PLACES, WIDTH)
    open_places = torch.zeros(1, 1, PLACES + 1)
    pybuda.initialize_pipeline(training=False, sample_inputs=(x, open_places, *caches))
    device.push_to_inputs(x, open_places)
    have = pybuda.run_generate(input_count=1, token_id=0).get()[0].value()
    torch.testing.assert_close(have, model(x, open_places, *caches)[0].detach(), rtol=0.02, atol=0.02)


def test_ops_cut_by_the_names_of_another_tracer(device: pybuda.TTDevice) -> None:
    """TVM numbers all nodes in one count, so its names of matmuls are none of ours."""
    model, x = device.modules[0].module, torch.randn(1, 1, WIDTH)
    caches = torch.randn(1, PLACES, WIDTH), torch.randn(1, PLACES, WIDTH)
    open_places = torch.zeros(1, 1, PLACES + 1)
    pybuda.config.insert_fracture_group([("matmul_9", -1, 2), ("matmul_21", -1, 4), "keys"])
    with pytest.warns(UserWarning, match="matmul_9 is taken for"):
        have = device.run_forward((x, open_places, *caches))[0]
    ops = device.get_compiled_results().lowered_graph.nodes
    assert sum("fractured_" in name for name in ops) >= 6
    torch.testing.assert_close(have, model(x, open_places, *caches)[0].detach(), rtol=0.02, atol=0.02)
