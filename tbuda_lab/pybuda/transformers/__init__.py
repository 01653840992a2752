"""`pybuda.transformers`."""

from tbuda_lab.pybuda.transformers import pipeline

__all__ = ["pipeline"]
