"""Models in, Graphs out: `from_torch`, `from_pybuda`, or `from_any` for whichever it is."""

from tbuda_lab.core.frontend.anything import from_any, reference
from tbuda_lab.core.frontend.inputs import bind, check_input, feeds
from tbuda_lab.core.frontend.pybuda import from_pybuda
from tbuda_lab.core.frontend.torch_model import from_torch

__all__ = ["bind", "check_input", "feeds", "from_any", "from_pybuda", "from_torch", "reference"]
