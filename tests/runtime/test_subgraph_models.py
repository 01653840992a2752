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
        vocab_size=96, d_model=HEADS * SIZE, encoder_layers=1, decoder_layers=LAYERS, encoder_attention_heads=HEADS,
        decoder_attention_heads=HEADS, encoder_ffn_dim=96, decoder_ffn_dim=96, max_source_positions=32,
        max_target_positions=PLACES + STEP, num_mel_bins=32, attn_implementation="eager", pad_token_id=0,
        bos_token_id=1, eos_token_id=2, decoder_start_token_id=3,
    )  # fmt: skip
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
    """makes_cross: it takes the encoder's states and gives their keys and values, which the other decoder takes."""

    def __init__(self, model: Any, makes_cross: bool) -> None:
        super().__init__()
        self.model, self.makes_cross = model, makes_cross

    def forward(self, embedded: Any, mask: Any, *rest: Any) -> tuple[torch.Tensor, ...]:
        own, cross = transformers.DynamicCache(), transformers.DynamicCache()
        states = rest[0] if self.makes_cross else torch.zeros(1, STEP, HEADS * SIZE)
        past = rest[1:] if self.makes_cross else rest
        count = 2 if self.makes_cross else 4
        for layer in range(LAYERS):
            own.update(*past[count * layer : count * layer + 2], layer)
            if not self.makes_cross:
                cross.update(*past[count * layer + 2 : count * layer + 4], layer)
        hidden = self.model.model.decoder(
            inputs_embeds=embedded, encoder_hidden_states=states, attention_mask=mask, use_cache=True,
            past_key_values=transformers.EncoderDecoderCache(own, cross),
            position_ids=torch.zeros(1, STEP, dtype=torch.long),
        )[0]  # fmt: skip
        outputs = [self.model.proj_out(hidden)]
        for mine, others in zip(own.layers, cross.layers, strict=True):
            outputs += [mine.keys, mine.values] + ([others.keys, others.values] if self.makes_cross else [])
        return tuple(outputs)


def empty(places: int) -> torch.Tensor:
    return torch.zeros(1, HEADS, places, SIZE)


@pytest.mark.e2e
@pytest.mark.filterwarnings("ignore:.past_key_values. is deprecated")
def test_whisper_decodes_from_caches_of_the_device() -> None:
    pybuda.pybuda_reset()
    whisper = model()
    encoder, first, later = Encoder(whisper), Decoder(whisper, True), Decoder(whisper, False)
    settings = pybuda.config._get_global_compiler_config()
    settings.compile_subgraphs = settings.enable_link_past_cache_ios = True
    settings.default_df_override = pybuda.DataFormat.Float32
    modules = [PyTorchModule("encoder", encoder), PyTorchModule("first", first), PyTorchModule("later", later)]
    exact = pybuda.BackendType.Golden
    tt0 = TTDevice("tt0", arch=pybuda.BackendDevice.Wormhole_B0, devtype=exact, module=modules)
    sound, x = torch.randn(1, 32, 64), torch.randn(1, STEP, HEADS * SIZE)
    mask = torch.zeros(1, 1, STEP, PLACES + STEP)
    past, cross = [empty(PLACES) for _ in range(2 * LAYERS)], [empty(STEP) for _ in range(2 * LAYERS)]
    mixed = [cache for k in range(LAYERS) for cache in (*past[2 * k : 2 * k + 2], *cross[2 * k : 2 * k + 2])]
    results = pybuda.initialize_pipeline(
        training=False, sample_inputs=((sound,), (x, mask, torch.zeros(1, 32, 64), *past), (x, mask, *mixed))
    )
    assert tt0.result is not None and not check(tt0.result.netlist)
    tt0.push_to_inputs(sound)
    pybuda.run_forward()
    (states,) = (tensor.value() for tensor in results.get(timeout=1))
    with torch.no_grad():
        wanted = encoder(sound)
        assert float((states - wanted).abs().max()) < 1e-3 * float(wanted.abs().max())
        for step in range(PLACES // STEP):
            x = torch.randn(1, STEP, HEADS * SIZE)
            mask = torch.full((1, 1, STEP, PLACES + STEP), -1e4)
            mask[..., : STEP * step] = mask[..., PLACES:] = 0
            tt0.set_active_subgraph(1 if step == 0 else 2)
            tt0.push_to_inputs((x, mask, states) if step == 0 else (x, mask))
            pybuda.run_generate(input_count=1, write_index=step)
            if step == 0:
                want, *new = first(x, mask, states, *past)
                cross = [new[4 * k + n] for k in range(LAYERS) for n in (2, 3)]
                new = [new[4 * k + n] for k in range(LAYERS) for n in (0, 1)]
            else:
                mixed = [c for k in range(LAYERS) for c in (*past[2 * k : 2 * k + 2], *cross[2 * k : 2 * k + 2])]
                want, *new = later(x, mask, *mixed)
            (got,) = (tensor.value() for tensor in results.get(timeout=1))
            assert float(want.std()) > 0.1 and float((got - want).abs().max()) < 1e-3 * float(want.abs().max())
            for cache, rows in zip(past, new, strict=True):
                cache[:, :, STEP * step : STEP * (step + 1)] = rows[:, :, PLACES:]
    pybuda.pybuda_reset()
