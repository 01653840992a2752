"""TensorFlow models: converted to ONNX by tf2onnx, then read as ONNX."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.errors import InputError, ModelError
from tbuda_lab.core.frontend.onnx import from_onnx, read
from tbuda_lab.core.frontend.pybuda.foreign import ForeignModule, OnnxModule, tensors
from tbuda_lab.core.frontend.pybuda.unsupported import not_supported
from tbuda_lab.core.graph import Graph

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


def _declared(module: Any) -> list[Any] | None:
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


def _called(module: Any, inputs: Sequence[Any]) -> Any:
    """A Keras model of several declared inputs takes a list; anything else takes them one by one."""
    return module(list(inputs)) if len(getattr(module, "inputs", None) or ()) > 1 else module(*inputs)


def _proto(module: Any, signature: list[Any]) -> Any:
    """The ModelProto for inputs of a signature. Raises `ModelError` where the conversion fails."""
    convert = _converter()
    import tensorflow as tf

    try:
        if getattr(module, "built", True) is False:  # Keras makes the weights at the first call
            _called(module, [tf.zeros([size or 1 for size in spec.shape], spec.dtype) for spec in signature])
        function = tf.function(lambda *x: tf.nest.flatten(_called(module, x)), input_signature=signature)
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
            raise ModelError(f"TFModule {name!r} takes a Keras model, a tf.function or a tf.Module, not "
                             f"{type(module).__name__}")
        self.tf_module, self.onnx_path = module, None
        signature = _declared(module)
        self.module = None if signature is None else read.load(_proto(module, signature))[0]
        self._of_shapes: dict[object, Any] = {}

    def trace(self, sample_inputs: Any, name: str, progress: Callable[[str], None] | None = None) -> Graph:
        if self.module is not None:
            return super().trace(sample_inputs, name, progress)
        if sample_inputs is None:
            raise InputError(f"TFModule {self.get_name()!r} needs sample inputs: {type(self.tf_module).__name__} "
                             "declares no shapes of its inputs (a Keras model does with keras.Input, a tf.function "
                             "with input_signature)")
        samples = tensors(sample_inputs)
        key = tuple((tuple(t.shape), t.dtype) for t in samples)
        if key not in self._of_shapes:
            signature = _of_samples(self.tf_module, samples)
            self._of_shapes[key] = read.load(_proto(self.tf_module, signature))[0]
        return from_onnx(self._of_shapes[key], samples, name=name, progress=progress)

    def call(self, *args: Any, **kwargs: Any) -> tuple[Any, ...]:
        """The model's own call, on the host: its outputs as TensorFlow's tensors."""
        import tensorflow as tf

        return tuple(tf.nest.flatten(self.tf_module(*args, **kwargs)))

    def backward(self, *args: Any) -> None:
        """Raises `NotSupported`: TensorFlow takes gradients from a tape that watched the call."""
        raise not_supported("TFModule.backward", "take gradients with tf.GradientTape around `call`, or bring the "
                            "model to PyTorch to train it on a device")

    def answer(self, inputs: list[torch.Tensor]) -> list[torch.Tensor]:
        """TensorFlow's own answer."""
        import tensorflow as tf

        returned = _called(self.tf_module, [tf.constant(t.detach().cpu().numpy()) for t in inputs])
        return [torch.from_numpy(np.array(leaf)) for leaf in tf.nest.flatten(returned)]


def _graph_def(path: str | None) -> Any:
    """The GraphDef in a file. Raises `ModelError` where there is none."""
    import tensorflow as tf

    if path is None:
        raise ModelError("a TFGraphDefModule needs a frozen GraphDef, or the path of a file that holds one")
    graph = tf.compat.v1.GraphDef()
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
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
        last = [node.name for node in graph.node
                if node.name not in read and node.op not in ("Placeholder", "Const", "NoOp")]
        return [f"{name}:0" for name in last]
    nodes = {node.name for node in graph.node}
    unknown = [name for name in names if name.split(":")[0] not in nodes]
    if unknown:
        close = get_close_matches(unknown[0].split(":")[0], nodes, 3)
        raise ModelError(f"the GraphDef has no node {unknown[0].split(':')[0]!r} for output_names"
                         + (f"; close names: {', '.join(close)}" if close else f"; it has {len(nodes)} nodes"))
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
