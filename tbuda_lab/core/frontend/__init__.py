"""Models in, Graphs out: `from_torch`, `from_pybuda`, or `from_any` for whichever it is."""

from tbuda_lab.core.frontend.inputs import feeds
from tbuda_lab.core.frontend.torch_model import from_torch

__all__ = ["feeds", "from_torch"]
