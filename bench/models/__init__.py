"""The models of `bench/placement.py`: those of the tests, and larger or other ones built here from published tables.

Nothing is downloaded; weights are random, batch norms calibrated (`tests/models/calibrate.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Made = tuple[torch.nn.Module, tuple[Any, ...]]


def _zoo(name: str) -> Callable[[], Made]:
    def build() -> Made:
        from tests.models import make

        return make(name)

    return build


def _bert_large() -> Made:
    from bench.models.transformers_large import bert_large

    return bert_large()


def _gpt2_small() -> Made:
    from tests.models.gpt2 import make_model

    return make_model(layers=12, sequence=256)


def _resnet50() -> Made:
    from bench.models.resnet50 import make_model

    return make_model()


def _yolo() -> Made:
    from bench.models.yolov5 import make_model

    return make_model()


MODELS: dict[str, Callable[[], Made]] = {
    **{name: _zoo(name) for name in ("mlp", "unet", "resnet18", "mobilenet_v2", "gpt2", "bert")},
    "resnet50": _resnet50,
    "yolov5": _yolo,
    "gpt2_small": _gpt2_small,
    "bert_large": _bert_large,
}
"""Name -> builder of (module in eval mode, sample inputs). "gpt2" has 4 layers, "gpt2_small" all 12."""


def make(name: str) -> Made:
    """The model `name`. Raises `KeyError` listing the names."""
    if name not in MODELS:
        raise KeyError(f"no model {name!r}; there are {', '.join(MODELS)}")
    return MODELS[name]()
