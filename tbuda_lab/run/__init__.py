"""`pybuda.run`."""

from tbuda_lab.run import api

__all__ = ["api"]
