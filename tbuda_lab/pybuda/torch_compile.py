"""`pybuda.torch_compile`: the backend for torch.compile."""

from tbuda_lab.runtime.torch_backend import tbuda as compile_torch

__all__ = ["compile_torch"]
