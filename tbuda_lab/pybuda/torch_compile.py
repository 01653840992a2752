"""`pybuda.torch_compile`: a backend for torch.compile. Not supported."""

from tbuda_lab.pybuda.op.common import refused

compile_torch = refused("compile_torch", "wrap the model in PyTorchModule")

__all__ = ["compile_torch"]
