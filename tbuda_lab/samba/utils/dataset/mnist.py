"""What the tutorials do to images of handwritten digits."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import torch

MEAN, STD = 0.1307, 0.3081
"""Of the pixels of MNIST's training images, scaled to 0 .. 1."""


def dataset_transform(args: Mapping[str, Any] | None = None) -> Callable[[Any], torch.Tensor]:
    """From an image (PIL or an array of bytes) to what a model takes: scaled to 0 .. 1 and normalised.

    args: the program's arguments; with `num_features` the image becomes a vector of as many elements (cut, or filled up
    with zeros), else it stays (1, height, width).
    """
    features = (args or {}).get("num_features")

    def transform(image: Any) -> torch.Tensor:
        pixels = torch.from_numpy(np.array(image, dtype=np.float32)) / 255.0
        normal = (pixels - MEAN) / STD
        if features is None:
            return normal.reshape(1, *normal.shape[-2:])
        flat = torch.zeros(int(features))
        count = min(int(features), normal.numel())
        flat[:count] = normal.reshape(-1)[:count]
        return flat

    return transform
