"""Models of real size with random weights: nothing is downloaded, everything is a function of the seed.

Every module of this folder has `make_model(seed=0) -> (module in eval mode, tuple of sample inputs)` and
`make_inputs(seed) -> tuple of inputs`. Of images both take `size` as well, rows and columns alike.
"""

from __future__ import annotations

import importlib
from typing import Any

import torch

NAMES = ("mlp", "unet", "resnet18", "mobilenet_v2", "gpt2", "bert")


def make(name: str, seed: int = 0, **sizes: int) -> tuple[torch.nn.Module, tuple[Any, ...]]:
    """The model `name` (one of NAMES) and its sample inputs. sizes: what its `make_model` takes beside the seed. Raises
    `KeyError` for another name."""
    if name not in NAMES:
        raise KeyError(f"no model {name!r}; there are {', '.join(NAMES)}")
    module: torch.nn.Module
    module, inputs = importlib.import_module(f"tests.models.{name}").make_model(seed, **sizes)
    return module, inputs


def unseen(name: str, seed: int, **sizes: int) -> tuple[Any, ...]:
    """Inputs of the model `name` alone; those of `make(name, seed)` when the seeds are equal. sizes: `size` of images
    alone is looked at."""
    inputs: tuple[Any, ...] = importlib.import_module(f"tests.models.{name}").make_inputs(
        seed, **{key: value for key, value in sizes.items() if key == "size"}
    )
    return inputs
