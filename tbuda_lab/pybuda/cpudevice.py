"""`pybuda.cpudevice`."""

from tbuda_lab.runtime.device import CPUDevice

__all__ = ["CPUDevice"]
