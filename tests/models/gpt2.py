"""GPT-2 with 4 layers: hidden 768, sequence 256, token ids in, hidden states out; random weights."""

from __future__ import annotations

import torch
from torch import nn

VOCABULARY = 50257


def make_model(seed: int = 0, layers: int = 4, sequence: int = 256) -> tuple[nn.Module, tuple[torch.Tensor]]:
    from transformers import GPT2Config, GPT2Model

    torch.manual_seed(seed)
    model = GPT2Model(GPT2Config(n_layer=layers, vocab_size=VOCABULARY, use_cache=False))
    return model.eval().requires_grad_(False), make_inputs(seed, sequence)


def make_inputs(seed: int, sequence: int = 256) -> tuple[torch.Tensor]:
    return (torch.randint(0, VOCABULARY, (1, sequence), generator=torch.Generator().manual_seed(seed)),)
