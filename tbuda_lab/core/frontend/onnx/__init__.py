"""ONNX models in: `from_onnx`."""

from tbuda_lab.core.frontend.onnx import elementwise, networks, quantised, recurrent, resize, shapes
from tbuda_lab.core.frontend.onnx.importer import CONTROL, from_onnx
from tbuda_lab.core.frontend.onnx.node import TABLE

__all__ = [
    "CONTROL", "TABLE", "elementwise", "from_onnx", "networks", "quantised", "recurrent", "resize", "sequences",
    "shapes",
]  # fmt: skip
