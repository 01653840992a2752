"""Devices as data: archs, boards, descriptor files, harvesting, clusters."""

from tbuda_lab.core.device.load import ARCHS, BOARDS, MOST_CHIPS, load_device
from tbuda_lab.core.device.spec import DeviceSpec, StreamLimits

__all__ = ["ARCHS", "BOARDS", "MOST_CHIPS", "DeviceSpec", "StreamLimits", "load_device"]
