"""`pybuda.device`."""

from tbuda_lab.runtime.device import Device

__all__ = ["Device"]
