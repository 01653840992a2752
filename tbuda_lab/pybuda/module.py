"""The module classes scripts use: the frontend's, able to run themselves."""

from __future__ import annotations

from typing import Any

from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.frontend import pybuda
from tbuda_lab.core.frontend.pybuda import Module, SomeTensor, Tensor
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.context import CONTEXT


class _Runs:
    """`run` for modules, and their entry in the process's list."""

    def run(self, *args: SomeTensor) -> tuple[Tensor, ...]:
        """Inference of this module alone on a TT device of its own; the outputs of one input."""
        from tbuda_lab.pybuda.pipeline import run_module

        assert isinstance(self, Module)
        return run_module(self, args)


class PyBudaModule(_Runs, pybuda.PyBudaModule):
    """Base of modules written with `pybuda.op`; subclasses define `forward(self, *tensors)`."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        CONTEXT.modules.append(self)

    def insert_tapout_queue_for_op(self, op_name: str, output_index: int = 0) -> int:
        """Keep what an op gives, for every input that runs: `get_intermediates_queue` has a list of tensors per input,
        and the handle that this returns is the op's place in it. Raises `PipelineError` for another output than 0."""
        if output_index != 0:
            raise PipelineError(f"op {op_name!r} has one output, number 0, not {output_index}")
        wanted_ops = config._get_global_compiler_config().op_intermediates_to_save
        if op_name not in wanted_ops:
            wanted_ops.append(op_name)
        return wanted_ops.index(op_name)


class PyTorchModule(_Runs, pybuda.PyTorchModule):
    """A torch.nn.Module for a device: lowered on a TTDevice, run as it is on a CPUDevice."""

    def __init__(self, name: str, module: Any, redirect_forward: bool = True) -> None:
        super().__init__(name, module, redirect_forward)
        CONTEXT.modules.append(self)


def _foreign(name: str, framework: str, instead: str) -> type[Module]:
    def refuse(self: Module, *_: Any, **__: Any) -> None:
        raise not_supported(f"{name} ({framework} models)", instead)

    return type(name, (Module,), {"__init__": refuse, "__doc__": f"{framework} models are not supported; {instead}."})


_EXPORT = "bring the model to PyTorch and wrap it in PyTorchModule"


class TFModule(_Runs, pybuda.TFModule):
    """A Keras model for a device, converted by tf2onnx."""

    def __init__(self, name: str, module: Any) -> None:
        super().__init__(name, module)
        CONTEXT.modules.append(self)


class TFGraphDefModule(_Runs, pybuda.TFGraphDefModule):
    """A frozen TensorFlow graph for a device, converted by tf2onnx."""

    def __init__(self, name: str, module: Any = None, path: str | None = None, output_names: Any = None) -> None:
        super().__init__(name, module, path, output_names)
        CONTEXT.modules.append(self)


class TFLiteModule(_Runs, pybuda.TFLiteModule):
    """A TFLite model for a device: the path of a file, or its bytes."""

    def __init__(self, name: str, module: bytes | None = None, tflite_path: str | None = None) -> None:
        super().__init__(name, module, tflite_path)
        CONTEXT.modules.append(self)


class OnnxModule(_Runs, pybuda.OnnxModule):
    """An ONNX model for a device: a ModelProto, or the path of a file."""

    def __init__(self, name: str, module: Any = None, onnx_path: str | None = None) -> None:
        super().__init__(name, module, onnx_path)
        CONTEXT.modules.append(self)


class JaxModule(_Runs, pybuda.JaxModule):
    """A JAX function for a device; `params`: a pytree of weights that it takes first."""

    def __init__(self, name: str, module: Any, params: Any = None) -> None:
        super().__init__(name, module, params)
        CONTEXT.modules.append(self)


MXNetModule = _foreign("MXNetModule", "MXNet", _EXPORT)
