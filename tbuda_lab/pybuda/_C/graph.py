"""`pybuda._C.graph`."""

from tbuda_lab.runtime.enums import RuntimeTensorTransformType

__all__ = ["RuntimeTensorTransformType"]
