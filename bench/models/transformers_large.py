"""The encoder of BERT-large (Devlin et al., 2018): 24 layers, hidden 1024, 16 heads; sequence 384, random weights."""

from __future__ import annotations

import torch
from torch import nn


def bert_large(seed: int = 0, layers: int = 24, sequence: int = 384) -> tuple[nn.Module, tuple[torch.Tensor]]:
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    config = BertConfig(
        hidden_size=1024, num_attention_heads=16, intermediate_size=4096, num_hidden_layers=layers, vocab_size=32
    )
    encoder = BertModel(config).encoder
    x = torch.randn(1, sequence, 1024, generator=torch.Generator().manual_seed(seed))
    return encoder.eval().requires_grad_(False), (x,)
