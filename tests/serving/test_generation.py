"""Generation on the simulated grid: token by token what torch's own greedy search gives."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.errors import InputError, ModelError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import from_any
from tbuda_lab.core.frontend.torch_model.caches import left
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session.op_checks import check_ops
from tbuda_lab.core.tti import load_image
from tbuda_lab.pybuda.transformers.pipeline import pipeline
from tbuda_lab.serving.experts import every_expert
from tbuda_lab.serving.generation import Generator, facts_of
from tbuda_lab.serving.generation_model import Sizes, windows_of

transformers = pytest.importorskip("transformers")
SEEDED = {name: torch.Generator().manual_seed(5) for name in ("Llama", "GPT-2", "T5")}
FLOAT = CompileOptions(default_df_override=DataFormat.Float32)


def made(name: str) -> Any:
    torch.manual_seed(3)
    if name == "Llama":
        config = transformers.LlamaConfig(
            vocab_size=96,
            hidden_size=32,
            intermediate_size=64,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            max_position_embeddings=64,
            attn_implementation="eager",
        )
        model = transformers.LlamaForCausalLM(config)
    elif name == "GPT-2":
        config = transformers.GPT2Config(
            vocab_size=96,
            n_embd=32,
            n_layer=1,
            n_head=2,
            n_positions=64,
            attn_implementation="eager",
            bos_token_id=1,
            eos_token_id=2,
        )
        model = transformers.GPT2LMHeadModel(config)
    else:
        config = transformers.T5Config(
            vocab_size=96,
            d_model=32,
            d_kv=16,
            d_ff=64,
            num_layers=1,
            num_heads=2,
            decoder_start_token_id=0,
        )
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
    expected = want[0].tolist()[1:] if name == "T5" else want[0].tolist()
    assert answer["generated_token_ids"] == expected
    assert len(set(expected)) > 2
    assert answer["tokens_per_second"] > 0


SMALL = {
    "vocab_size": 96,
    "hidden_size": 32,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "max_position_embeddings": 64,
}
DECODERS = {
    "OPT": {"ffn_dim": 64, "word_embed_proj_dim": 32},
    "GPTNeoX": {"intermediate_size": 64},
    "Mistral": {"intermediate_size": 64, "num_key_value_heads": 1, "sliding_window": None},
    "Qwen2": {"intermediate_size": 64, "num_key_value_heads": 1},
    "Phi": {"intermediate_size": 64},
}
# the prompt of 5 tokens and 6 more are longer than what layers look back: one of both kinds; of one kind, with experts
WINDOWS = {
    "Qwen3": {"intermediate_size": 64, "num_key_value_heads": 1, "head_dim": 16, "sliding_window": 3}
    | {"use_sliding_window": True, "max_window_layers": 1, "num_hidden_layers": 2},
    "Mixtral": {"intermediate_size": 64, "num_local_experts": 4, "sliding_window": 4, "num_key_value_heads": 1}
    | {"num_experts_per_tok": 2},
}
FEW = {"num_key_value_heads": 1, "num_experts_per_tok": 2}
EXPERTS = {
    "Mixtral": {"intermediate_size": 64, "num_local_experts": 4, **FEW},
    "Qwen3Moe": {"moe_intermediate_size": 32, "intermediate_size": 64, "num_experts": 5, "head_dim": 16, **FEW},
    "Olmoe": {"intermediate_size": 64, "num_experts": 4, **FEW},
    "GptOss": {"intermediate_size": 64, "num_local_experts": 4, "head_dim": 16, "sliding_window": 3, **FEW}
    | {"num_hidden_layers": 2, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    "Dots1": {"moe_intermediate_size": 32, "intermediate_size": 64, "n_routed_experts": 4, "n_group": 1, **FEW}
    | {"first_k_dense_replace": 0, "topk_group": 1, "n_shared_experts": 1},
    "DeepseekV3": {"moe_intermediate_size": 32, "intermediate_size": 64, "n_routed_experts": 4, "n_group": 2}
    | {"topk_group": 1, "num_experts_per_tok": 2, "num_key_value_heads": 2, "first_k_dense_replace": 0, "v_head_dim": 8}
    | {"q_lora_rank": 8, "kv_lora_rank": 8, "qk_rope_head_dim": 8, "qk_nope_head_dim": 8},
}


@pytest.mark.parametrize("name", EXPERTS)
def test_every_expert_gives_what_the_chosen_ones_do(name: str) -> None:
    """Routers that take the largest, that gather by places, and that mask groups; in torch, without a grid."""
    torch.manual_seed(3)
    config = getattr(transformers, f"{name}Config")(**{**SMALL, **EXPERTS[name]})
    model = getattr(transformers, f"{name}ForCausalLM")(config).eval()
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape) * 0.3 if parameter.dim() > 1 else parameter.data
    ids = torch.randint(0, 96, (1, 9))
    with torch.no_grad():
        want = model(input_ids=ids).logits
        with every_expert(model):
            have = model(input_ids=ids).logits
            few = torch.topk(torch.tensor([[3.0, 5.0, 5.0, -torch.inf]]), 3)
        again = model(input_ids=ids).logits
    torch.testing.assert_close(have, want, rtol=1e-4, atol=1e-4)
    assert torch.equal(again, want) and not any("forward" in vars(layer) for layer in model.modules())
    assert few.values.tolist() == [[5.0, 5.0, 3.0]] and few.indices.tolist() == [[1.0, 2.0, 0.0]]


@pytest.mark.e2e
@pytest.mark.parametrize(
    ("name", "more"), [(name, more) for kind in (DECODERS, WINDOWS) for name, more in kind.items()]
)
def test_other_decoders_as_torch_has_them(name: str, more: dict[str, Any]) -> None:
    config = getattr(transformers, f"{name}Config")(**{**SMALL, **more})
    torch.manual_seed(3)
    model, prompt = getattr(transformers, f"{name}ForCausalLM")(config).eval(), [5, 17, 33, 8, 71]
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape) * 0.3 if parameter.dim() > 1 else parameter.data
    model.generation_config.eos_token_id = None
    generator = Generator(model, options=FLOAT, places=16, bucket=8)
    ids = torch.tensor([prompt])
    want = model.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=6, do_sample=False, pad_token_id=0)
    assert generator.generate(prompt, 6) == want[0].tolist()[5:]
    assert generator.session().trace().outputs[0].shape == (1, 1, 96), "of the prompt's last token alone"


@pytest.fixture(scope="module")
def llama() -> Generator:
    return Generator(made("Llama"), options=FLOAT, places=16, bucket=8)


def test_the_two_programs_share_the_rams_of_the_cache(llama: Generator) -> None:
    netlist = llama.session().compile().netlist
    assert [p.name for p in netlist.programs] == ["run_fwd_0", "run_fwd_1"]
    of_op = {op.name: graph.name[:5] for graph in netlist.graphs.values() for op in graph.ops.values()}
    readers = {
        port.source: of_op[op.name]
        for graph in netlist.graphs.values()
        for op in graph.ops.values()
        for port in op.inputs
    }
    for kind in ("keys", "values"):
        prompt, new = netlist.queues[f"cache.0.prompt_{kind}"], netlist.queues[f"cache.0.new_{kind}"]
        assert prompt.type == new.type == "ram"
        assert (of_op[prompt.input], readers[prompt.name]) == ("fwd_0", "fwd_1")
        assert (of_op[new.input], readers[new.name]) == ("fwd_1", "fwd_1")
    weights = {q for q, spec in netlist.queues.items() if spec.input == "HOST" and "weight" in q}
    both = {
        p.source
        for g in netlist.graphs.values()
        if g.name.startswith("fwd_0")
        for o in g.ops.values()
        for p in o.inputs
    } & set(readers)
    assert len(weights & both) >= 8, "the weights lie on the device once"


def test_an_image_is_opened_without_the_model(llama: Generator, tmp_path: Path) -> None:
    prompt = [5, 17, 33, 8, 71]
    expected = llama.generate(prompt, 6)
    llama.save(tmp_path / "llama.tti")
    assert load_image(tmp_path / "llama.tti").manifest["compiled_graph_state"]["has_cache_buffers"] is True
    opened = Generator.open(tmp_path / "llama.tti")
    assert opened.generate(prompt, 6) == expected and len(set(expected)) > 1
    assert opened.tokens_per_second() == llama.tokens_per_second() > 0
    assert opened.generate(prompt[:2], 6) == llama.generate(prompt[:2], 6), "what an earlier prompt left does not count"
    with pytest.raises(InputError, match="up to 8 tokens"):
        opened.generate(list(range(3, 12)), 2)
    with pytest.raises(InputError, match="copy that file"):
        opened.save(tmp_path / "again.tti")
    with pytest.raises(InputError, match="for generation"):
        facts_of(from_any(torch.nn.Linear(4, 4), torch.zeros(1, 4)))


def test_the_speed_of_a_model_without_weights_is_that_of_the_real_one(llama: Generator) -> None:
    with torch.device("meta"):
        bare = Generator(type(llama.model)(llama.model.config), options=FLOAT, places=16, bucket=8)
    assert bare.tokens_per_second() == llama.tokens_per_second()
    with pytest.raises(InputError, match="has no weights"):
        bare.generate([5, 17], 2)


def test_every_op_of_both_programs_is_checked_against_torch(llama: Generator) -> None:
    session = llama.session()
    want, (got,) = frontend.reference(session.model, session.sample_inputs), session.run()
    assert all(torch.allclose(w, g, atol=1e-4) for w, g in zip(want, got, strict=True))
    checks = check_ops(Runner(session.compile()), session.sample_inputs)
    assert not checks.unchecked and {e.direction for e in session.compile().placement.epochs} == {"fwd", "fwd_1"}
    assert all(c.comparison.max_abs <= 1e-5 * max(1.0, c.comparison.scale) for c in checks.ops)


class Shares(torch.nn.Module):
    """Both parts read x."""

    ram: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("ram", torch.zeros(1, 32))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return left(x.exp(), self.ram) + x


def test_what_cannot_be_generated_with_is_refused() -> None:
    with pytest.raises(ModelError, match="'x' is read by the prompt's part and by the decode part"):
        from_any(Shares(), torch.randn(1, 32))
    local = transformers.GPTNeoConfig(
        vocab_size=96,
        hidden_size=32,
        num_layers=1,
        num_heads=2,
        attention_types=[[["local"], 1]],
        window_size=8,
    )
    with pytest.raises(InputError, match="looks back 8 tokens"):
        Generator(transformers.GPTNeoForCausalLM(local), places=16, bucket=8).session()
    chunks = transformers.Qwen3Config(**SMALL, intermediate_size=64, layer_types=["chunked_attention"])
    with pytest.raises(ModelError, match="no cache for layers of the kind 'chunked_attention'"):
        windows_of(chunks, Sizes(8, 8))
    bert = transformers.BertForMaskedLM(
        transformers.BertConfig(
            vocab_size=96, hidden_size=32, intermediate_size=64, num_hidden_layers=1, num_attention_heads=2
        )
    )
    with pytest.raises(ModelError, match="keeps no cache"):
        Generator(bert).session()
    bloom = transformers.BloomForCausalLM(transformers.BloomConfig(vocab_size=96, hidden_size=32, n_layer=1, n_head=2))
    with pytest.raises(ModelError, match="BloomForCausalLM: it takes no position_ids"):
        Generator(bloom).session()


def test_sampling_repeats_with_its_seed_and_bad_settings_are_refused() -> None:
    from tbuda_lab.serving.generation import Sampling

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
