"""`pybuda.transformers`."""

from tbuda_lab.transformers import pipeline

__all__ = ["pipeline"]
