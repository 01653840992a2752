"""TensorFlow models: converted to ONNX by tf2onnx, then read as ONNX."""

from __future__ import annotations

from collections.abc import Sequence
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


class TFGraphDefModule(OnnxModule):
    """A frozen GraphDef; `output_names` are its outputs ("Identity:0"). `path` is a file that holds it."""

    framework = "TensorFlow"

    def __init__(
        self, name: str, module: Any = None, path: str | None = None, output_names: Sequence[str] | None = None
    ) -> None:
        convert = _converter()
        if module is None:
            import tensorflow

            module = tensorflow.compat.v1.GraphDef()
            try:
                with open(str(path), "rb") as stream:
                    module.ParseFromString(stream.read())
            except OSError as error:
                raise ModelError(f"{path} cannot be read: {error.strerror or error}") from None
        names = [f"{node.name}:0" for node in module.node if node.op == "Placeholder"]
        result = convert.from_graph_def(module, input_names=names, output_names=list(output_names or []))
        super().__init__(name, result[0])
