"""Images and labels from MNIST's idx files."""

from pathlib import Path

import numpy as np


class MNIST:
    """root/MNIST/raw holds the four files; nothing is downloaded."""

    def __init__(self, root, train=True, transform=None, download=False):
        folder, kind = Path(root) / "MNIST" / "raw", "train" if train else "t10k"
        images = (folder / f"{kind}-images-idx3-ubyte").read_bytes()
        count, rows, cols = np.frombuffer(images, ">u4", 3, 4)
        self.images = np.frombuffer(images, np.uint8, -1, 16).reshape(count, rows, cols)
        self.labels = np.frombuffer((folder / f"{kind}-labels-idx1-ubyte").read_bytes(), np.uint8, -1, 8)
        self.transform = transform

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        return self.transform(self.images[index]), int(self.labels[index])
