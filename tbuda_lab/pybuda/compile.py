"""`pybuda.compile`."""

from tbuda_lab.runtime.compile import pybuda_compile
from tbuda_lab.runtime.config import _get_global_compiler_config
from tbuda_lab.runtime.results import CompileResults

__all__ = ["CompileResults", "_get_global_compiler_config", "pybuda_compile"]
