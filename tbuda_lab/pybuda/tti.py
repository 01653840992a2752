"""`pybuda.tti`."""

from tbuda_lab.runtime.image import TTDeviceImage

__all__ = ["TTDeviceImage"]
