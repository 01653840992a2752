"""The PyBuda API's tensors and modules, and how they become a graph."""

from tbuda_lab.core.frontend.pybuda.foreign import (
    ForeignModule,
    JaxModule,
    OnnxModule,
    TFGraphDefModule,
    TFLiteModule,
    TFModule,
    open_model,
    tensors,
)
from tbuda_lab.core.frontend.pybuda.importer import from_pybuda, with_loss
from tbuda_lab.core.frontend.pybuda.module import Module, PyBudaModule, PyTorchModule, device_names
from tbuda_lab.core.frontend.pybuda.tensor import (
    Parameter,
    SomeTensor,
    Tensor,
    TensorShape,
    apply,
    to_pt_tensors,
    to_torch,
)

__all__ = [
    "ForeignModule",
    "JaxModule",
    "Module",
    "OnnxModule",
    "Parameter",
    "PyBudaModule",
    "PyTorchModule",
    "SomeTensor",
    "TFGraphDefModule",
    "TFLiteModule",
    "TFModule",
    "Tensor",
    "TensorShape",
    "apply",
    "device_names",
    "from_pybuda",
    "open_model",
    "tensors",
    "to_pt_tensors",
    "to_torch",
    "with_loss",
]
