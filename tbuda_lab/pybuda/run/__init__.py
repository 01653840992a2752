"""`pybuda.run`."""

from tbuda_lab.pybuda.run import api
from tbuda_lab.pybuda.run.api import *  # noqa: F403
from tbuda_lab.pybuda.run.api import __all__ as _functions

__all__ = ["api", *_functions]
