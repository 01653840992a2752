"""Devices as data: archs, boards, descriptor files, harvesting, clusters."""

from tbuda_lab.core.device.load import ARCHS, BOARDS, MOST_CHIPS, load_device
from tbuda_lab.core.device.spec import CROSSING_STREAMS, DeviceSpec, StreamLimits

__all__ = ["ARCHS", "BOARDS", "CROSSING_STREAMS", "MOST_CHIPS", "DeviceSpec", "StreamLimits", "load_device"]
