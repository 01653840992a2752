"""As much of torchvision as the tutorials use: `datasets.MNIST`, read from files in MNIST's format."""

from . import datasets as datasets
