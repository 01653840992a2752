"""The encoder of BERT-base: 12 layers, hidden 768, sequence 128; random weights, configuration of `transformers`."""

from __future__ import annotations

import torch
from torch import nn


def make_model(seed: int = 0, layers: int = 12, sequence: int = 128) -> tuple[nn.Module, tuple[torch.Tensor]]:
    from transformers import BertConfig, BertModel

    torch.manual_seed(seed)
    encoder = BertModel(BertConfig(num_hidden_layers=layers)).encoder
    return encoder.eval().requires_grad_(False), make_inputs(seed, sequence)


def make_inputs(seed: int, sequence: int = 128) -> tuple[torch.Tensor]:
    return (torch.randn(1, sequence, 768, generator=torch.Generator().manual_seed(seed)),)
