"""TFLite models in: `from_tflite`."""

from tbuda_lab.core.frontend.tflite_model.importer import from_tflite
from tbuda_lab.core.frontend.tflite_model.operators import TABLE

__all__ = ["TABLE", "from_tflite"]
