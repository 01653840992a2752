"""`pybuda.tensor`."""

from tbuda_lab.core.frontend.pybuda import SomeTensor, Tensor, TensorShape, to_pt_tensors

__all__ = ["SomeTensor", "Tensor", "TensorShape", "to_pt_tensors"]
