"""The PyBuda API: names and modules as PyBuda has them, looked up on first use.

A module of PyBuda's that has something of its own is a file here; those that only hand on names are in `face.py`.
"""

from __future__ import annotations

import importlib
import sys
from typing import Any

from tbuda_lab import API_MODULES
from tbuda_lab._version import __version__
from tbuda_lab.pybuda import face

_NAMES = {
    "tbuda_lab.core.formats": ("DataFormat", "MathFidelity"),
    "tbuda_lab.core.frontend.pybuda": ("Module", "Parameter", "SomeTensor", "Tensor", "TensorShape"),
    "tbuda_lab.pybuda.compile": ("pybuda_compile",),
    "tbuda_lab.pybuda.config": (
        "CompilerConfig",
        "configure_mixed_precision",
        "insert_buffering_nop",
        "insert_nop",
        "_internal_insert_fj_buffering_nop",
        "override_dram_queue_placement",
        "override_op_size",
        "set_chip_break",
        "set_configuration_options",
        "set_epoch_break",
    ),
    "tbuda_lab.pybuda.cpudevice": ("CPUDevice",),
    "tbuda_lab.pybuda.device": ("Device",),
    "tbuda_lab.pybuda.ttdevice": ("TTDevice",),
    "tbuda_lab.pybuda.enums": (
        "BackendDevice",
        "BackendType",
        "CompileDepth",
        "DeviceMode",
        "DRAMPlacementAlgorithm",
        "PerfTraceLevel",
    ),
    "tbuda_lab.pybuda.tti": ("TTDeviceImage",),
    "tbuda_lab.pybuda.module": (
        "JaxModule",
        "MXNetModule",
        "OnnxModule",
        "PyBudaModule",
        "PyTorchModule",
        "TFGraphDefModule",
        "TFLiteModule",
        "TFModule",
    ),
    "tbuda_lab.pybuda.pipeline": (
        "detect_available_devices",
        "error_raised",
        "get_intermediates_queue",
        "get_parameter_checkpoint",
        "get_parameter_gradients",
        "get_tenstorrent_device",
        "initialize_pipeline",
        "is_silicon",
        "pybuda_reset",
        "run_forward",
        "run_generate",
        "run_generative_inference",
        "run_inference",
        "set_device_pipeline",
        "shutdown",
        "sync",
        "update_device_parameters",
    ),
    "tbuda_lab.pybuda.verify.backend": ("VerifyConfig",),
    "tbuda_lab.pybuda.training_loop": (
        "get_checkpoint_queue",
        "get_loss_queue",
        "run_backward",
        "run_optimizer",
        "run_schedulers",
        "run_training",
    ),
    "tbuda_lab.pybuda.optimizers": ("LAMB", "LARS", "SGD", "Adam", "AdamW"),
    "tbuda_lab.serving.torch_backend": ("tbuda as compile_torch",),
}
_HOMES = face.homes_of(_NAMES)

__all__ = ["__version__", *_HOMES, *(name for name in API_MODULES if name != "_C")]


def __getattr__(name: str) -> Any:
    if name == "pybuda":  # scripts that say `from pybuda import pybuda`
        return sys.modules[__name__]
    if name in API_MODULES:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        value = face.look_up(_HOMES, name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


face.provide(__name__)
