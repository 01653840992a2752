"""Models in, Graphs out: `from_torch`, `from_pybuda`, `from_onnx`, or `from_any` for whichever it is."""

from tbuda_lab.core.frontend.dispatch import (
    as_read_alone,
    contents_of,
    from_any,
    reference,
    references,
    runs_by_elements,
)
from tbuda_lab.core.frontend.inputs import bind, check_input, feeds
from tbuda_lab.core.frontend.onnx import from_onnx
from tbuda_lab.core.frontend.pybuda import from_pybuda, open_model
from tbuda_lab.core.frontend.torch_model import from_torch

__all__ = [
    "as_read_alone",
    "bind",
    "check_input",
    "contents_of",
    "feeds",
    "from_any",
    "from_onnx",
    "from_pybuda",
    "from_torch",
    "open_model",
    "reference",
    "references",
    "runs_by_elements",
]
