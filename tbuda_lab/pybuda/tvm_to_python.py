"""`pybuda.tvm_to_python`: models become graphs without TVM and without generated code."""

from tbuda_lab.pybuda.op.common import refused

compile_tvm_to_python = refused("compile_tvm_to_python", "place the PyTorchModule on a TTDevice directly")

__all__ = ["compile_tvm_to_python"]
