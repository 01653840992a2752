"""scikit-learn's digits as files in MNIST's format: 8 x 8 images, three times as large, in the middle of 28 x 28."""

from __future__ import annotations

from pathlib import Path

import numpy as np


def write_digits(root: Path, train: int = 1472, test: int = 288) -> None:
    """root/MNIST/raw as torchvision lays it out; train and test are whole numbers of batches of 32."""
    from sklearn.datasets import load_digits  # half a second, which every worker would spend

    folder = root / "MNIST" / "raw"
    folder.mkdir(parents=True)
    digits = load_digits()
    images = np.zeros((train + test, 28, 28), np.uint8)
    images[:, 2:26, 2:26] = digits.images[: train + test].repeat(3, 1).repeat(3, 2) * 15.9
    for kind, part in (("train", slice(0, train)), ("t10k", slice(train, train + test))):
        pixels, labels = images[part], digits.target[: train + test][part].astype(np.uint8)
        header = np.array([0x803, len(pixels), 28, 28], ">u4").tobytes()
        (folder / f"{kind}-images-idx3-ubyte").write_bytes(header + pixels.tobytes())
        header = np.array([0x801, len(labels)], ">u4").tobytes()
        (folder / f"{kind}-labels-idx1-ubyte").write_bytes(header + labels.tobytes())
