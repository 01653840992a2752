"""The demo's encoder without `transformers` is the one with it."""

from __future__ import annotations

import torch

from tbuda_lab.cli.demo import Encoder


def test_plain_encoder_calculates_what_bert_does() -> None:
    from transformers import BertConfig, BertModel  # a second, which every worker would spend

    theirs = BertModel(BertConfig(num_hidden_layers=2)).encoder.eval()
    ours = Encoder(layers=2).eval()
    names = {
        "attention.self.query": "attention.query", "attention.self.key": "attention.key",
        "attention.self.value": "attention.value", "attention.output.dense": "attention.dense",
        "attention.output.LayerNorm": "norm_1", "intermediate.dense": "feed_forward.0",
        "output.dense": "feed_forward.2", "output.LayerNorm": "norm_2",
    }
    state = {}
    for key, value in theirs.state_dict().items():
        _, layer, rest = key.split(".", 2)
        stem, kind = rest.rsplit(".", 1)
        state[f"layers.{layer}.{names[stem]}.{kind}"] = value
    ours.load_state_dict(state)
    for norm in (m for m in ours.modules() if isinstance(m, torch.nn.LayerNorm)):
        norm.eps = BertConfig().layer_norm_eps
    x = torch.randn(1, 32, 768)
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x)[0], rtol=1e-4, atol=1e-4)
