"""`pybuda.module`."""

from tbuda_lab.core.frontend.pybuda import Module
from tbuda_lab.runtime.modules import (
    JaxModule,
    MXNetModule,
    OnnxModule,
    PyBudaModule,
    PyTorchModule,
    TFGraphDefModule,
    TFLiteModule,
    TFModule,
)

__all__ = [
    "JaxModule",
    "MXNetModule",
    "Module",
    "OnnxModule",
    "PyBudaModule",
    "PyTorchModule",
    "TFGraphDefModule",
    "TFLiteModule",
    "TFModule",
]
