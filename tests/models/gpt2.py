"""GPT-2 with 4 layers: hidden 768, sequence 256, token ids in, hidden states out; random weights."""

from __future__ import annotations

import torch
from torch import nn


def make_model(seed: int = 0, layers: int = 4, sequence: int = 256) -> tuple[nn.Module, tuple[torch.Tensor]]:
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(seed)
    config = GPT2Config(n_layer=layers, use_cache=False)
    model = GPT2Model(config)
    return model.eval().requires_grad_(False), (torch.randint(0, config.vocab_size, (1, sequence)),)
