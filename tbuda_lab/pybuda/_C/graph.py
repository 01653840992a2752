"""`pybuda._C.graph`."""

from enum import Enum


class RuntimeTensorTransformType(Enum):
    """What the host does to a tensor before the device gets it."""

    NoTransform = 0
    ReinterpretShape = 1
    Prestride = 2
    EmbeddingIndex = 3
    ConstantInput = 4


__all__ = ["RuntimeTensorTransformType"]
