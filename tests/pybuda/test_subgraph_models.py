"""Encoder and decoders of a model of transformers as subgraphs of one device, in the manner of PyBuda's demos."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tbuda_lab import pybuda
from tbuda_lab.core.netlist import check
from tbuda_lab.pybuda import PyTorchModule, TTDevice

transformers = pytest.importorskip("transformers")
HEADS, SIZE, PLACES, STEP, LAYERS = 2, 32, 64, 32, 2


def model() -> Any:
    torch.manual_seed(6)
    config = transformers.WhisperConfig(
        vocab_size=96,
        d_model=HEADS * SIZE,
        encoder_layers=1,
        decoder_layers=LAYERS,
        encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS,
        encoder_ffn_dim=96,
        decoder_ffn_dim=96,
        max_source_positions=32,
        max_target_positions=PLACES + STEP,
        num_mel_bins=32,
        attn_implementation="eager",
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
        decoder_start_token_id=3,
    )
    result = transformers.WhisperForConditionalGeneration(config).eval()
    for parameter in result.parameters():
        parameter.data = torch.randn(parameter.shape) * 0.2 if parameter.dim() > 1 else parameter.data
    return result


class Encoder(nn.Module):
    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, sound: torch.Tensor) -> torch.Tensor:
        return self.model.model.encoder(sound, return_dict=False)[0]  # type: ignore[no-any-return]


class Decoder(nn.Module):
    """Takes the encoder's states, and of each layer its own keys and values and those of the states; where the latter
    have one place (as samples of demos have them) it makes them anew. Returns all of them."""

    def __init__(self, model: Any) -> None:
        super().__init__()
        self.model = model

    def forward(self, embedded: Any, mask: Any, states: Any, *past: Any) -> tuple[torch.Tensor, ...]:
        own, cross = transformers.DynamicCache(), transformers.DynamicCache()
        for layer in range(LAYERS):
            keys, values, cross_keys, cross_values = past[4 * layer : 4 * layer + 4]
            own.update(keys, values, layer)
            if cross_keys.shape[-2] > 1:
                cross.update(cross_keys, cross_values, layer)
        hidden = self.model.model.decoder(
            inputs_embeds=embedded,
            encoder_hidden_states=states,
            attention_mask=mask,
            use_cache=True,
            past_key_values=transformers.EncoderDecoderCache(own, cross),
            position_ids=torch.zeros(1, STEP, dtype=torch.long),
        )[0]
        pairs = [layer for both in zip(own.layers, cross.layers, strict=True) for layer in both]
        return self.model.proj_out(hidden), *(t for layer in pairs for t in (layer.keys, layer.values))


def empty(places: int) -> torch.Tensor:
    return torch.zeros(1, HEADS, places, SIZE)


@pytest.mark.slow
@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated")
def test_whisper_decodes_from_caches_of_the_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the demos have it: one decoder twice, and after each row of tiles the caches are rotated."""
    pybuda.pybuda_reset()
    monkeypatch.setenv("PYBUDA_ROTATE_PAST_CACHE_PARAMS", "1")
    whisper = model()
    encoder, decoder = Encoder(whisper), Decoder(whisper)
    settings = pybuda.config._get_global_compiler_config()
    settings.compile_subgraphs = settings.enable_link_past_cache_ios = True
    settings.default_df_override = pybuda.DataFormat.Float32
    modules = [PyTorchModule("encoder", encoder), PyTorchModule("first", decoder), PyTorchModule("later", decoder)]
    exact = pybuda.BackendType.Golden
    tt0 = TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, devtype=exact, module=modules)
    sound, x, states = torch.randn(1, 32, 64), torch.randn(1, STEP, HEADS * SIZE), torch.zeros(1, 32, 64)
    mask, none = torch.zeros(1, 1, STEP, PLACES + STEP), torch.zeros(1, 1, 1, 1)
    past = [empty(PLACES) if k % 4 < 2 else empty(STEP) for k in range(4 * LAYERS)]
    first = [p if k % 4 < 2 else none for k, p in enumerate(past)]
    results = pybuda.initialize_pipeline(
        training=False, sample_inputs=((sound,), (x, mask, states, *first), (x, mask, states, *past))
    )
    result = tt0.result
    assert result is not None and not check(result.netlist)
    assert [p.name for p in result.netlist.programs] == [f"run_fwd_{k}" for k in range(4)]
    tt0.push_to_inputs(sound)
    pybuda.run_forward()
    (states,) = (tensor.value() for tensor in results.get(timeout=1))
    with torch.no_grad():
        wanted = encoder(sound)
        assert float((states - wanted).abs().max()) < 1e-3 * float(wanted.abs().max())
        for step in range(2 * PLACES // STEP):  # twice around
            x = torch.randn(1, STEP, HEADS * SIZE)
            mask = torch.full((1, 1, STEP, PLACES + STEP), -1e4)
            mask[..., max(0, PLACES - STEP * step) :] = 0
            tt0.set_active_subgraph(1 if step == 0 else 2)
            tt0.push_to_inputs((x, mask, states) if step == 0 else (x, mask))  # what nothing reads is left out
            pybuda.run_generate(input_count=1, write_index=0)
            if step == 0:
                past = [p if k % 4 < 2 else none for k, p in enumerate(past)]
            want, *new = decoder(x, mask, states, *past)
            (got,) = (tensor.value() for tensor in results.get(timeout=1))
            assert float(want.std()) > 0.1 and float((got - want).abs().max()) < 1e-3 * float(want.abs().max())
            tt0.set_active_subgraph(3)
            pybuda.run_generate(input_count=0, write_index=0)
            past = [t[:, :, STEP:] if k % 4 < 2 else t for k, t in enumerate(new)]  # the oldest rows go
    pybuda.pybuda_reset()


class T5Encoder(nn.Module):
    def __init__(self, t5: Any) -> None:
        super().__init__()
        self.t5 = t5

    def forward(self, ids: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return self.t5.encoder(input_ids=ids, attention_mask=mask)[0]  # type: ignore[no-any-return]


class T5Decoder(nn.Module):
    def __init__(self, t5: Any) -> None:
        super().__init__()
        self.t5 = t5

    def forward(self, ids: Any, mask: Any, states: Any, states_mask: Any, *past: Any) -> tuple[torch.Tensor, ...]:
        own, cross = transformers.DynamicCache(), transformers.DynamicCache()
        own.update(past[0], past[1], 0)
        if past[2].shape[-2] > 1:
            cross.update(past[2], past[3], 0)
        hidden = self.t5.decoder(
            input_ids=ids,
            attention_mask=mask,
            encoder_hidden_states=states,
            encoder_attention_mask=states_mask,
            past_key_values=transformers.EncoderDecoderCache(own, cross),
            use_cache=True,
        )[0]
        mine, others = own.layers[0], cross.layers[0]
        logits = self.t5.lm_head(hidden * self.t5.model_dim**-0.5)
        return logits, mine.keys, mine.values, others.keys, others.values


@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated")
def test_t5_generates_token_by_token(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ids go in, and the loop is that of the demos: a row of 32 tokens is decoded again for each of them, and kept when
    it is full."""
    pybuda.pybuda_reset()
    monkeypatch.setenv("PYBUDA_ROTATE_PAST_CACHE_PARAMS", "1")
    torch.manual_seed(8)
    config = transformers.T5Config(
        vocab_size=96,
        d_model=64,
        d_kv=SIZE,
        d_ff=96,
        num_layers=1,
        num_heads=HEADS,
        decoder_start_token_id=0,
    )
    t5 = transformers.T5ForConditionalGeneration(config).eval()
    for parameter in t5.parameters():
        parameter.data = torch.randn(parameter.shape) * 0.3 if parameter.dim() > 1 else parameter.data
    encoder, decoder = T5Encoder(t5), T5Decoder(t5)
    settings = pybuda.config._get_global_compiler_config()
    settings.compile_subgraphs = settings.enable_link_past_cache_ios = True
    settings.enable_tvm_cpu_fallback = False
    settings.default_df_override = pybuda.DataFormat.Float32
    modules = [PyTorchModule("encoder", encoder), PyTorchModule("first", decoder), PyTorchModule("later", decoder)]
    exact = pybuda.BackendType.Golden
    tt0 = TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, devtype=exact, module=modules)
    source, source_mask = torch.randint(0, 96, (1, 64)).int(), torch.ones(1, 64)
    ids, mask, none = torch.zeros(1, STEP).int(), torch.zeros(1, PLACES + STEP), torch.zeros(1, 1, 1, 1)
    mask[0, PLACES] = 1
    past, cross = [empty(PLACES), empty(PLACES)], [none, none]
    both = [ids, mask, torch.zeros(1, 64, 64), source_mask, *past]
    samples = ((source, source_mask), [*both, none, none], [*both, empty(64), empty(64)])
    results = pybuda.initialize_pipeline(training=False, sample_inputs=samples)
    tt0.push_to_inputs((source, source_mask))
    pybuda.run_forward()
    (states,) = (tensor.value() for tensor in results.get(timeout=1))
    tokens: list[int] = []
    with torch.no_grad():
        while len(tokens) < STEP + 3:
            tt0.set_active_subgraph(2 if tokens else 1)
            tt0.push_to_inputs((ids, mask, source_mask) if tokens else (ids, mask, states, source_mask))
            pybuda.run_generate(input_count=1, write_index=0)
            (got,) = (tensor.value() for tensor in results.get(timeout=1))
            want, keys, values, *cross = decoder(ids, mask, encoder(source, source_mask), source_mask, *past, *cross)
            assert float((got - want).abs().max()) < 1e-3 * float(want.abs().max())
            tokens.append(int(got[0, len(tokens) % STEP].argmax()))
            at, ids, mask = len(tokens) % STEP, ids.clone(), mask.clone()
            if at == 0:
                tt0.set_active_subgraph(3)
                pybuda.run_generate(input_count=0, write_index=0)
                past = [keys[:, :, STEP:], values[:, :, STEP:]]
                mask[0, -2 * STEP : PLACES], mask[0, PLACES:], ids = 1, 0, torch.zeros(1, STEP).int()
            ids[0, at], mask[0, PLACES + at] = tokens[-1], 1
    assert len(set(tokens)) > 2
    pybuda.pybuda_reset()
