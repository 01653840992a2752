"""Models of real size with random weights: nothing is downloaded, everything is a function of the seed.

Every module of this folder has `make_model(seed=0) -> (module in eval mode, tuple of sample inputs)` and
`make_inputs(seed) -> tuple of inputs`.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

NAMES = ("mlp", "unet", "resnet18", "mobilenet_v2", "gpt2", "bert")


def make(name: str, seed: int = 0) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """The model `name` (one of NAMES) and its sample inputs. Raises `KeyError` for another name."""
    if name not in NAMES:
        raise KeyError(f"no model {name!r}; there are {', '.join(NAMES)}")
    module: torch.nn.Module
    module, inputs = importlib.import_module(f"tests.models.{name}").make_model(seed)
    return module, inputs


def unseen(name: str, seed: int) -> tuple[Any, ...]:
    """Inputs of the model `name` alone; those of `make(name, seed)` when the seeds are equal."""
    inputs: tuple[Any, ...] = importlib.import_module(f"tests.models.{name}").make_inputs(seed)
    return inputs
