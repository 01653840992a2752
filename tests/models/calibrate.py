"""Batch norms with statistics as after training, and images that are not all alike.

A freshly made CNN in eval mode normalises by mean 0 and variance 1, so its activations shrink layer by layer; at the
end only the last bias is left, every output is alike, and a correlation against it says nothing. Here every batch norm
gets random affine parameters and the true statistics of random images. White noise is no substitute for images either:
averaged over 224x224 pixels one noise is as good as another. `images` has structure at all scales.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional


def images(count: int, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
    """`count` random images of `shape` (C, H, W), zero mean and unit variance each, with structure at every octave."""
    channels, height, width = shape
    picture = torch.zeros(count, *shape)
    size = 2
    while size <= min(height, width):
        octave = torch.randn(count, channels, size, size, generator=generator)
        picture += functional.interpolate(octave, size=(height, width), mode="bilinear") / size**0.5
        size *= 2
    flat = picture.flatten(1)
    flat = (flat - flat.mean(1, keepdim=True)) / flat.std(1, keepdim=True)
    return flat.reshape(picture.shape)


def calibrate(module: nn.Module, shape: tuple[int, ...], seed: int, batch: int = 8) -> nn.Module:
    """Randomise scale (0.5 to 1) and shift (0.5 +- 0.2) of every batch norm, then set running mean and variance.

    shape: of one sample, (C, H, W); `batch` random images are used. Returns `module` in eval mode, with no parameter
    requiring a gradient. The shift keeps most of each rectifier open: a random network with unit scale and no shift is
    chaotic (Yang et al., "A Mean Field Theory of Batch Normalization", 2019: perturbations grow by about 1.2 a layer),
    which no trained one is, and 50 layers of that turn the last bit of a weight into a different answer.
    """
    generator = torch.Generator().manual_seed(seed + 1000)
    module.eval().requires_grad_(False)
    norms = [m for m in module.modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)]
    for norm in norms:
        norm.weight.copy_(0.5 + 0.5 * torch.rand(norm.weight.shape, generator=generator))
        norm.bias.copy_(0.5 + 0.2 * torch.randn(norm.bias.shape, generator=generator))
        norm.reset_running_stats()
        norm.momentum = None  # cumulative average: one batch sets the statistics outright
        norm.train()
    with torch.no_grad():
        module(images(batch, shape, generator))
    return module.eval()


def sample(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    """One image (1, C, H, W) that the calibration has not seen."""
    return images(1, shape, torch.Generator().manual_seed(seed))
