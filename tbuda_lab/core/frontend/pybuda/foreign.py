"""Modules that hold a model of another framework: read into a graph, compared with the framework's own answer."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import InputError, ModelError
from tbuda_lab.core.frontend.inputs import as_tensor
from tbuda_lab.core.frontend.jax_model import from_jax
from tbuda_lab.core.frontend.jax_model.importer import as_array
from tbuda_lab.core.frontend.onnx import from_onnx, read
from tbuda_lab.core.frontend.pybuda.module import Module, PyBudaModelError
from tbuda_lab.core.frontend.pybuda.tensor import Parameter
from tbuda_lab.core.frontend.tflite_model import from_tflite
from tbuda_lab.core.frontend.tflite_model.importer import read_model
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.ops.evaluate import evaluate


class ForeignModule(Module):
    """A model of another framework. Subclasses say how it is read and what its own framework answers."""

    framework = ""

    def trace(self, sample_inputs: Any, name: str, progress: Callable[[str], None] | None = None) -> Graph:
        """The model's nD graph; `sample_inputs` as for the framework's own call, None where the model knows shapes.
        progress: as of `Calls`."""
        raise NotImplementedError

    def answer(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """What the model's own framework answers; without it, its graph evaluated in torch."""
        graph = self.trace(tuple(inputs), self.get_name())
        return list(evaluate(graph, dict(zip((n.name for n in graph.inputs), inputs, strict=True))).values())

    def sample_inputs(self) -> tuple[torch.Tensor, ...]:
        """Inputs of the shapes and types that the model declares; the same numbers every time."""
        graph = self.trace(None, self.get_name())
        generator = torch.Generator().manual_seed(0)
        return tuple(
            torch.randn(node.shape, generator=generator).to(dtype)
            if (dtype := getattr(torch, str(node.attrs.get("dtype", "float32")))).is_floating_point
            else torch.zeros(node.shape, dtype=dtype)
            for node in graph.inputs
        )

    def __call__(self, *args: Any) -> Any:
        return self.forward(*args)

    def forward(self, *args: Any) -> tuple[torch.Tensor, ...]:
        """The model in its own framework, on the host."""
        return tuple(self.answer([torch.as_tensor(as_tensor(a)) for a in args]))

    def get_parameters(self, submodules: bool = True) -> list[Parameter]:
        try:
            graph = self.trace(None, self.get_name())
        except InputError:  # open shapes: the weights are known once sample inputs are
            return []
        return [
            Parameter(torch.from_numpy(node.value.copy()), requires_grad=False, name=node.name)
            for node in graph.of_kind(NodeKind.PARAMETER)
            if node.value is not None
        ]

    @property
    def state(self) -> tuple[int, ...]:
        """The weights of a model that was read do not change."""
        return ()


def tensors(inputs: Any) -> list[torch.Tensor]:
    """Tensors of a call's inputs in order."""
    values = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    flat = pytree.tree_leaves(list(values) if isinstance(values, tuple | list) else [values])
    return [t for t in map(as_tensor, flat) if isinstance(t, torch.Tensor)]


class OnnxModule(ForeignModule):
    """An ONNX model: a ModelProto, or the path of a file (`onnx_path`; its external data lies beside it)."""

    framework = "ONNX"

    def __init__(self, name: str, module: Any = None, onnx_path: str | os.PathLike[str] | None = None) -> None:
        super().__init__(name)
        if module is None and not onnx_path:
            raise PyBudaModelError(f"OnnxModule {name!r} takes a ModelProto or the path of a model")
        self.onnx_path = None if not onnx_path else Path(onnx_path)
        self.module = read.load(module if module is not None else self.onnx_path)[0]

    def trace(self, sample_inputs: Any, name: str, progress: Callable[[str], None] | None = None) -> Graph:
        return from_onnx(self.onnx_path or self.module, sample_inputs, name=name, progress=progress)

    def answer(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """onnxruntime's answer where it is installed."""
        try:
            import onnxruntime
        except ImportError:
            return super().answer(inputs)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        source = str(self.onnx_path) if self.onnx_path else self.module.SerializeToString()
        try:
            session = onnxruntime.InferenceSession(source, options, providers=["CPUExecutionProvider"])
        except Exception:  # a version or op that onnxruntime does not know
            return super().answer(inputs)
        names = [entry.name for entry in session.get_inputs()]
        answers = session.run(None, {n: t.detach().cpu().numpy() for n, t in zip(names, inputs, strict=True)})
        return [torch.from_numpy(np.asarray(a).copy()) for a in answers]


class JaxModule(ForeignModule):
    """A JAX function of arrays, with its weights in `params` (its first argument then) or closed over."""

    framework = "JAX"

    def __init__(self, name: str, module: Any, params: Any = None) -> None:
        super().__init__(name)
        if not callable(module):
            raise PyBudaModelError(f"JaxModule {name!r} takes a function of arrays, not {type(module).__name__}")
        self.module, self.params = module, params

    def trace(self, sample_inputs: Any, name: str, progress: Callable[[str], None] | None = None) -> Graph:
        if sample_inputs is None:
            raise InputError(f"JaxModule {self.get_name()!r} needs sample inputs: a function declares no shapes")
        return from_jax(self.module, tensors(sample_inputs), self.params, name=name, progress=progress)

    def answer(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        import jax

        arrays = [as_array(t) for t in inputs]
        returned = self.module(*arrays) if self.params is None else self.module(self.params, *arrays)
        return [torch.from_numpy(np.array(leaf)) for leaf in jax.tree_util.tree_leaves(returned)]


class TFLiteModule(ForeignModule):
    """A TFLite model: the path of a file, or its bytes. Quantised inputs and outputs are the floats they stand for."""

    framework = "TFLite"

    def __init__(
        self, name: str, module: bytes | None = None, tflite_path: str | os.PathLike[str] | None = None
    ) -> None:
        super().__init__(name)
        source = module if module is not None else tflite_path
        if source is None:
            raise PyBudaModelError(f"TFLiteModule {name!r} takes the path of a model, or its bytes")
        self.module = read_model(source)

    def trace(self, sample_inputs: Any, name: str, progress: Callable[[str], None] | None = None) -> Graph:
        return from_tflite(self.module, sample_inputs, name=name, progress=progress)

    def answer(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """The LiteRT interpreter's answer where it is installed."""
        try:
            from ai_edge_litert.interpreter import Interpreter
        except ImportError:
            return super().answer(inputs)
        interpreter = Interpreter(model_content=self.module, num_threads=1)
        interpreter.allocate_tensors()
        for entry, tensor in zip(interpreter.get_input_details(), inputs, strict=True):
            scale, zero = entry["quantization"]
            array = tensor.detach().cpu().numpy()
            if scale:
                limits = np.iinfo(entry["dtype"])
                array = np.clip(np.round(array / scale) + zero, limits.min, limits.max)
            interpreter.set_tensor(entry["index"], array.astype(entry["dtype"]))
        interpreter.invoke()
        answers = []
        for entry in interpreter.get_output_details():
            array = interpreter.get_tensor(entry["index"])
            scale, zero = entry["quantization"]
            answers.append(torch.from_numpy(np.array((array.astype(np.float32) - zero) * scale if scale else array)))
        return answers


SUFFIXES: dict[str, type[ForeignModule]] = {".onnx": OnnxModule, ".tflite": TFLiteModule}
"""Files that are models, by the end of their names."""


def opened(model: Any, name: str = "model") -> Any:
    """The module of a model file or of an object of another framework; anything else unchanged."""
    if isinstance(model, str | os.PathLike):
        kind = SUFFIXES.get(Path(model).suffix.lower())
        if kind is None:
            raise ModelError(f"{model} is not a model file; known: {', '.join(SUFFIXES)}")
        return kind(name, None, model)  # type: ignore[call-arg]
    if type(model).__name__ == "ModelProto" and type(model).__module__.startswith("onnx"):
        return OnnxModule(name, model)
    if {cls.__module__.split(".")[0] for cls in type(model).__mro__} & {"keras", "tensorflow"}:
        from tbuda_lab.core.frontend.pybuda.tensorflow import TFModule

        return TFModule(name, model)
    return model
