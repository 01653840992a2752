"""`pybuda.parameter`."""

from tbuda_lab.core.frontend.pybuda import Parameter

__all__ = ["Parameter"]
