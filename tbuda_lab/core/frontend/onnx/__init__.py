"""ONNX models in: `from_onnx`."""

from tbuda_lab.core.frontend.onnx import (
    elementwise,
    networks,
    optimizers,
    quantised,
    recurrent,
    resize,
    shapes,
    signals,
    vision,
)
from tbuda_lab.core.frontend.onnx.importer import CONTROL, from_onnx, opens_batch
from tbuda_lab.core.frontend.onnx.node import TABLE

__all__ = [
    "CONTROL",
    "TABLE",
    "elementwise",
    "from_onnx",
    "networks",
    "opens_batch",
    "optimizers",
    "quantised",
    "recurrent",
    "resize",
    "shapes",
    "signals",
    "vision",
]
