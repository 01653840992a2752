"""Modules that hold a model of another framework: read into a graph, compared with the framework's own answer.
TensorFlow's are converted to ONNX by tf2onnx, then read as ONNX."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import InputError, ModelError, UnsupportedOp, not_supported
from tbuda_lab.core.files import bounded_bytes
from tbuda_lab.core.frontend.inputs import as_tensor
from tbuda_lab.core.frontend.jax_model import from_jax
from tbuda_lab.core.frontend.jax_model.importer import as_array
from tbuda_lab.core.frontend.onnx import from_onnx, opens_batch, read
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

    @property
    def takes_any_batch(self) -> bool:
        """Whether dim 0 of its inputs may have any size. Where the model says it, more elements are more calls."""
        return False

    def trace_whole(self, inputs: Sequence[torch.Tensor]) -> Graph:
        """The graph for inputs of these sizes, of which none is a microbatch."""
        return self.trace(tuple(inputs), self.get_name())

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
        except (InputError, ModelError, UnsupportedOp):  # the weights are known once sample inputs are
            return []
        return [
            Parameter(torch.from_numpy(node.value.copy()), requires_grad=False, name=node.name)
            for node in graph.of_kind(NodeKind.PARAMETER)
            if node.value is not None
        ]


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
        return from_onnx(self._proto(()), sample_inputs, name=name, progress=progress)

    @property
    def takes_any_batch(self) -> bool:
        return self.module is None or opens_batch(self.module)

    def trace_whole(self, inputs: Sequence[torch.Tensor]) -> Graph:
        return from_onnx(self._proto(inputs), tuple(inputs), name=self.get_name(), whole=True)

    def _proto(self, inputs: Sequence[torch.Tensor]) -> Any:
        """The model for inputs of these sizes: its file, or what was read."""
        return self.onnx_path or self.module

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

    @property
    def takes_any_batch(self) -> bool:
        return True

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


def open_model(model: Any, name: str = "model") -> Any:
    """The module of a model file or of an object of another framework; anything else unchanged."""
    if isinstance(model, str | os.PathLike):
        kind = SUFFIXES.get(Path(model).suffix.lower())
        if kind is None:
            raise ModelError(f"{model} is not a model file; known: {', '.join(SUFFIXES)}")
        return kind(name, None, model)  # type: ignore[call-arg]
    if type(model).__name__ == "ModelProto" and type(model).__module__.startswith("onnx"):
        return OnnxModule(name, model)
    if {cls.__module__.split(".")[0] for cls in type(model).__mro__} & {"keras", "tensorflow"}:
        return TFModule(name, model)
    return model.module() if isinstance(model, torch.export.ExportedProgram) else model


MISSING = (
    "reading TensorFlow models needs tensorflow and tf2onnx: pip install 'tbuda-lab[tf]'; or convert the model where "
    "they are installed (python -m tf2onnx.convert --saved-model DIR --output model.onnx) and give model.onnx"
)


def _converter() -> Any:
    try:
        import tensorflow  # noqa: F401
        import tf2onnx.convert
    except ImportError:
        raise ModelError(MISSING) from None
    return tf2onnx.convert


def _declared_inputs(module: Any) -> list[Any] | None:
    """Shapes and types of the inputs of a built Keras model, of a `tf.function` or of a `tf.Module` whose call is one;
    None where it says none."""
    import tensorflow as tf

    if getattr(module, "inputs", None):  # Keras
        return [tf.TensorSpec(i.shape, i.dtype, name=i.name.split(":")[0]) for i in module.inputs]
    function = module if hasattr(module, "get_concrete_function") else getattr(module, "__call__", None)  # noqa: B004
    signature = getattr(function, "input_signature", None)
    return None if signature is None else list(signature)


def _of_samples(module: Any, samples: Sequence[torch.Tensor]) -> list[Any]:
    """Shapes and types of sample inputs, under the names of the model's arguments."""
    import tensorflow as tf

    function = getattr(module, "call", module)
    try:
        names = list(inspect.signature(getattr(function, "python_function", function)).parameters)
    except (TypeError, ValueError):
        names = []
    names += [f"input_{i}" for i in range(len(names), len(samples))]
    return [tf.TensorSpec(t.shape, t.numpy().dtype, name=name) for name, t in zip(names, samples, strict=False)]


def _call(module: Any, inputs: Sequence[Any]) -> Any:
    """A Keras model of several declared inputs takes a list; anything else takes them one by one."""
    return module(list(inputs)) if len(getattr(module, "inputs", None) or ()) > 1 else module(*inputs)


def _proto(module: Any, signature: list[Any]) -> Any:
    """The ModelProto for inputs of a signature. Raises `ModelError` where the conversion fails."""
    convert = _converter()
    import tensorflow as tf

    try:
        if getattr(module, "built", True) is False:  # Keras makes the weights at the first call
            _call(module, [tf.zeros([size or 1 for size in spec.shape], spec.dtype) for spec in signature])
        function = tf.function(lambda *x: tf.nest.flatten(_call(module, x)), input_signature=signature)
        return convert.from_function(function, input_signature=signature)[0]
    except Exception as error:  # what tf2onnx raises has no common type
        raise ModelError(f"tf2onnx cannot convert {type(module).__name__}: {type(error).__name__}: {error}") from error


class TFModule(OnnxModule):
    """A Keras model, a `tf.function`, or a `tf.Module` whose call takes tensors. Where it declares no shapes of its
    inputs, they are those of the sample inputs.

    Raises `ModelError` that says what to install where TensorFlow or tf2onnx is missing, and what a model lacks that
    cannot be converted.
    """

    framework = "TensorFlow"

    def __init__(self, name: str, module: Any) -> None:
        ForeignModule.__init__(self, name)
        _converter()
        if not callable(module):
            raise ModelError(
                f"TFModule {name!r} takes a Keras model, a tf.function or a tf.Module, not {type(module).__name__}"
            )
        self.tf_module, self.onnx_path = module, None
        signature = _declared_inputs(module)
        self.module = None if signature is None else read.load(_proto(module, signature))[0]
        self._of_shapes: dict[object, Any] = {}

    def trace(self, sample_inputs: Any, name: str, progress: Callable[[str], None] | None = None) -> Graph:
        if self.module is not None:
            return super().trace(sample_inputs, name, progress)
        if sample_inputs is None:
            raise InputError(
                f"TFModule {self.get_name()!r} needs sample inputs: {type(self.tf_module).__name__} "
                "declares no shapes of its inputs (a Keras model does with keras.Input, a tf.function "
                "with input_signature)"
            )
        samples = tensors(sample_inputs)
        return from_onnx(self._proto(samples), samples, name=name, progress=progress)

    def _proto(self, inputs: Sequence[torch.Tensor]) -> Any:
        if self.module is not None:
            return self.module
        key = tuple((tuple(t.shape), t.dtype) for t in inputs)
        if key not in self._of_shapes:
            signature = _of_samples(self.tf_module, inputs)
            self._of_shapes[key] = read.load(_proto(self.tf_module, signature))[0]
        return self._of_shapes[key]

    def call(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The model's own call, on the host: its outputs as TensorFlow's tensors."""
        import tensorflow as tf

        return tuple(tf.nest.flatten(self.tf_module(*args, **kwargs)))

    def backward(self, *args: Any) -> None:
        """Raises `NotSupported`: TensorFlow takes gradients from a tape that watched the call."""
        raise not_supported(
            "TFModule.backward",
            "take gradients with tf.GradientTape around `call`, or bring the model to PyTorch to train it on a device",
        )

    def answer(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """TensorFlow's own answer."""
        import tensorflow as tf

        returned = _call(self.tf_module, [tf.constant(t.detach().cpu().numpy()) for t in inputs])
        return [torch.from_numpy(np.array(leaf)) for leaf in tf.nest.flatten(returned)]


def _graph_def(path: str | None) -> Any:
    """The GraphDef in a file. Raises `ModelError` where there is none."""
    import tensorflow as tf

    if path is None:
        raise ModelError("a TFGraphDefModule needs a frozen GraphDef, or the path of a file that holds one")
    graph = tf.compat.v1.GraphDef()
    try:
        content = bounded_bytes(Path(path), read.LARGEST, "holds no frozen GraphDef")
    except InputError as error:
        raise ModelError(str(error)) from None
    try:
        graph.ParseFromString(content)
    except Exception as error:  # protobuf's two implementations raise types of their own
        raise ModelError(f"{path} holds no frozen GraphDef: {error}") from None
    return graph


def graph_outputs(graph: Any, names: Sequence[str] | None) -> list[str]:
    """`names` with an output number each ("Identity" is "Identity:0"); without names, every node that no other reads.

    Raises `ModelError` for a name of no node.
    """
    if not names:
        read = {source.lstrip("^").split(":")[0] for node in graph.node for source in node.input}
        last = [
            node.name
            for node in graph.node
            if node.name not in read and node.op not in ("Placeholder", "Const", "NoOp")
        ]
        return [f"{name}:0" for name in last]
    nodes = {node.name for node in graph.node}
    unknown = [name for name in names if name.split(":")[0] not in nodes]
    if unknown:
        close = get_close_matches(unknown[0].split(":")[0], nodes, 3)
        raise ModelError(
            f"the GraphDef has no node {unknown[0].split(':')[0]!r} for output_names"
            + (f"; close names: {', '.join(close)}" if close else f"; it has {len(nodes)} nodes")
        )
    return [name if ":" in name else f"{name}:0" for name in names]


class TFGraphDefModule(OnnxModule):
    """A frozen GraphDef, or the `path` of a file that holds one. `output_names` are its outputs ("Identity:0"); without
    them, these are the nodes that no other node reads.

    Raises `ModelError` where TensorFlow or tf2onnx is missing, the file holds no graph, an output is no node, or
    tf2onnx cannot convert the graph.
    """

    framework = "TensorFlow"

    def __init__(
        self, name: str, module: Any = None, path: str | None = None, output_names: Sequence[str] | None = None
    ) -> None:
        convert = _converter()
        graph = _graph_def(path) if module is None else module
        inputs = [f"{node.name}:0" for node in graph.node if node.op == "Placeholder"]
        outputs = graph_outputs(graph, output_names)
        try:
            proto = convert.from_graph_def(graph, input_names=inputs, output_names=outputs)[0]
        except Exception as error:  # what tf2onnx raises has no common type
            raise ModelError(f"tf2onnx cannot convert the GraphDef: {type(error).__name__}: {error}") from error
        super().__init__(name, proto)
