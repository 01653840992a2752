"""`pybuda._C.backend_api`."""

from tbuda_lab.pybuda.op.common import refusing
from tbuda_lab.runtime.enums import BackendDevice, BackendType, DeviceMode
from tbuda_lab.runtime.pipeline import detect_available_devices as detect_available_silicon_devices

get_output = refusing("_C.backend_api.get_output", "outputs are in the queue that run_inference returns")

__all__ = ["BackendDevice", "BackendType", "DeviceMode", "detect_available_silicon_devices", "get_output"]
