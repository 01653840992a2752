"""`pybuda.run`."""

from tbuda_lab.pybuda.run import api

__all__ = ["api"]
