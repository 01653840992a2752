"""TensorFlow models: converted to ONNX by tf2onnx, then read as ONNX."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from tbuda_lab.core.errors import ModelError
from tbuda_lab.core.frontend.pybuda.foreign import OnnxModule

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


def _proto(module: Any) -> Any:
    """The ModelProto of a Keras model, of a `tf.function`, or of a `tf.Module` whose call is one.

    Raises `ModelError` where the inputs' shapes are not known, or the conversion fails.
    """
    convert = _converter()
    import tensorflow as tf

    function, signature = module, getattr(module, "input_signature", None)
    if getattr(module, "inputs", None):  # Keras
        signature = [tf.TensorSpec(i.shape, i.dtype, name=i.name.split(":")[0]) for i in module.inputs]
        single = len(signature) == 1
        function = tf.function(lambda *x: module(x[0] if single else list(x)), input_signature=signature)
    elif not hasattr(module, "get_concrete_function"):
        function = getattr(module, "__call__", None)  # noqa: B004
        signature = getattr(function, "input_signature", None)
    if signature is None or not hasattr(function, "get_concrete_function"):
        raise ModelError(
            f"{type(module).__name__} declares no input shapes; give a built Keras model (keras.Input with a shape), "
            "or a tf.function with input_signature"
        )
    try:
        return convert.from_function(function, input_signature=list(signature))[0]
    except Exception as error:  # what tf2onnx raises has no common type
        raise ModelError(f"tf2onnx cannot convert {type(module).__name__}: {type(error).__name__}: {error}") from error


class TFModule(OnnxModule):
    """A Keras model, a `tf.function` or a `tf.Module` whose call is one, with `input_signature`.

    Raises `ModelError` that says what to install where TensorFlow or tf2onnx is missing, and what a model lacks that
    cannot be converted.
    """

    framework = "TensorFlow"

    def __init__(self, name: str, module: Any) -> None:
        super().__init__(name, _proto(module))
        self.tf_module = module


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
