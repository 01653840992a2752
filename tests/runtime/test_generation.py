"""Generation on the simulated grid: token by token what torch's own greedy search gives."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.pybuda.transformers.pipeline import pipeline

transformers = pytest.importorskip("transformers")
SEEDED = {name: torch.Generator().manual_seed(5) for name in ("Llama", "GPT-2", "T5")}
FLOAT = CompileOptions(default_df_override=DataFormat.Float32)


def made(name: str) -> Any:
    torch.manual_seed(3)
    if name == "Llama":
        config = transformers.LlamaConfig(
            vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2,
            num_key_value_heads=1, max_position_embeddings=64, attn_implementation="eager",
        )  # fmt: skip
        model = transformers.LlamaForCausalLM(config)
    elif name == "GPT-2":
        config = transformers.GPT2Config(
            vocab_size=96, n_embd=32, n_layer=1, n_head=2, n_positions=64, attn_implementation="eager",
            bos_token_id=1, eos_token_id=2,
        )  # fmt: skip
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.T5Config(
            vocab_size=96, d_model=32, d_kv=16, d_ff=64, num_layers=1, num_heads=2, decoder_start_token_id=0,
        )  # fmt: skip
        model = transformers.T5ForConditionalGeneration(config)
    for key, parameter in model.named_parameters():  # logits that differ, so that a wrong one shows
        if parameter.dim() > 1:
            scale = 2.0 if "relative" in key else 0.3
            parameter.data = torch.randn(parameter.shape, generator=SEEDED[name]) * scale
    model.generation_config.eos_token_id = None
    return model.eval()


@pytest.mark.e2e
@pytest.mark.parametrize("name", ["Llama", "GPT-2", "T5"])
def test_thirty_two_tokens_as_torch_has_them(name: str) -> None:
    model, prompt = made(name), [5, 17, 33, 8, 71]
    task = "text2text-generation" if name == "T5" else "text-generation"
    made_by = pipeline(task, model, options=FLOAT, places=37, bucket=8)
    (answer,) = made_by(prompt, max_new_tokens=32)
    ids = torch.tensor([prompt])
    want = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=32, do_sample=False, pad_token_id=0)
    wanted = want[0].tolist()[1:] if name == "T5" else want[0].tolist()
    assert answer["generated_token_ids"] == wanted
    assert len(set(wanted)) > 2
    assert answer["tokens_per_second"] > 0


def test_sampling_repeats_with_its_seed_and_bad_settings_are_refused() -> None:
    from tbuda_lab.runtime.generation import Sampling

    logits = torch.randn(50, generator=torch.Generator().manual_seed(0))
    drawn = [[Sampling(True, 0.8, 5, seed).chooser()(logits) for _ in range(2)] for seed in range(20)]
    assert all(a == b for a, b in drawn) and len({a for a, _ in drawn}) > 1
    assert all(logits[a] >= logits.topk(5).values[-1] for a, _ in drawn)
    with pytest.raises(InputError, match="temperature"):
        Sampling(temperature=0)
    with pytest.raises(InputError, match="only text-generation"):
        pipeline("image-classification", made("T5"))
    with pytest.raises(InputError, match="places"):
        pipeline("text-generation", made("Llama"), places=8)([1, 2, 3], max_new_tokens=32)
    with pytest.raises(InputError, match="from 0 to 95"):
        pipeline("text-generation", made("Llama"))([400])
