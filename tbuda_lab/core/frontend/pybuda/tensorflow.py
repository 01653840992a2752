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


class TFModule(OnnxModule):
    """A Keras model. Raises `ModelError` that says what to install where TensorFlow or tf2onnx is missing."""

    framework = "TensorFlow"

    def __init__(self, name: str, module: Any) -> None:
        super().__init__(name, _converter().from_keras(module)[0])


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
