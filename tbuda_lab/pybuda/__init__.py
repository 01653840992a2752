"""The PyBuda API: names and modules as PyBuda has them, looked up on first use.

The modules of this package have PyBuda's own names; what they hand on is implemented in `tbuda_lab.runtime` and below.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tbuda_lab import API_MODULES
from tbuda_lab._version import __version__

_NAMES = {
    "tbuda_lab.core.formats": ("DataFormat", "MathFidelity"),
    "tbuda_lab.core.frontend.pybuda": ("Module", "Parameter", "SomeTensor", "Tensor", "TensorShape"),
    "tbuda_lab.runtime.compile": ("pybuda_compile",),
    "tbuda_lab.runtime.config": (
        "CompilerConfig", "configure_mixed_precision", "insert_buffering_nop", "insert_nop",
        "_internal_insert_fj_buffering_nop", "override_dram_queue_placement", "override_op_size", "set_chip_break",
        "set_configuration_options", "set_epoch_break",
    ),
    "tbuda_lab.runtime.device": ("CPUDevice", "Device"),
    "tbuda_lab.runtime.ttdevice": ("TTDevice",),
    "tbuda_lab.runtime.enums": (
        "BackendDevice", "BackendType", "CompileDepth", "DeviceMode", "DRAMPlacementAlgorithm", "PerfTraceLevel",
    ),
    "tbuda_lab.runtime.image": ("TTDeviceImage",),
    "tbuda_lab.runtime.modules": (
        "JaxModule", "MXNetModule", "OnnxModule", "PyBudaModule", "PyTorchModule", "TFGraphDefModule", "TFLiteModule",
        "TFModule",
    ),
    "tbuda_lab.runtime.pipeline": (
        "detect_available_devices", "error_raised", "get_intermediates_queue",
        "get_parameter_checkpoint", "get_parameter_gradients", "get_tenstorrent_device",
        "initialize_pipeline", "is_silicon", "pybuda_reset", "run_forward", "run_generate",
        "run_generative_inference", "run_inference",
        "set_device_pipeline", "shutdown", "sync", "update_device_parameters",
    ),
    "tbuda_lab.runtime.verify": ("VerifyConfig",),
    "tbuda_lab.runtime.training_loop": (
        "get_checkpoint_queue", "get_loss_queue", "run_backward", "run_optimizer", "run_schedulers", "run_training",
    ),
    "tbuda_lab.pybuda.optimizers": ("LAMB", "LARS", "SGD", "Adam", "AdamW"),
    "tbuda_lab.pybuda.torch_compile": ("compile_torch",),
}  # fmt: skip
_HOME = {name: home for home, names in _NAMES.items() for name in names}

__all__ = ["__version__", *_HOME, *(name for name in API_MODULES if name != "_C")]


def __getattr__(name: str) -> Any:
    if name == "pybuda":  # scripts that say `from pybuda import pybuda`
        return sys.modules[__name__]
    if name in API_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOME:
        value = getattr(importlib.import_module(_HOME[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
