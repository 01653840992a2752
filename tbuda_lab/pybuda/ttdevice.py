"""`pybuda.ttdevice`."""

from tbuda_lab.runtime.results import DeviceConfig, get_device_config
from tbuda_lab.runtime.ttdevice import TTDevice

__all__ = ["DeviceConfig", "TTDevice", "get_device_config"]
