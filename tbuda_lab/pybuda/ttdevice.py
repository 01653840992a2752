"""`pybuda.ttdevice`."""

from tbuda_lab.runtime.device import TTDevice
from tbuda_lab.runtime.results import DeviceConfig, get_device_config

__all__ = ["DeviceConfig", "TTDevice", "get_device_config"]
