"""`pybuda.tvm_to_python`: models as Python modules on disk, without TVM."""

from tbuda_lab.runtime.codegen import ModuleWriter, compile_tvm_to_python

__all__ = ["ModuleWriter", "compile_tvm_to_python"]
