"""`pybuda.device`."""

from tbuda_lab.runtime.device import Device
from tbuda_lab.runtime.internals import Command, CommandType

__all__ = ["Command", "CommandType", "Device"]
