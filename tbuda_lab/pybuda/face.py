"""PyBuda's modules that are names alone: what is in them is implemented in a room of ours.

`MODULES` says which names a module has and where they live. `provide` makes the modules; each looks a name up when it
is asked for, so that `import pybuda` loads nothing.
"""

from __future__ import annotations

import importlib
import importlib.machinery
import sys
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any

from tbuda_lab.core.errors import not_supported

Names = dict[str, tuple[str, ...]]

_RUN: Names = {
    "tbuda_lab.pybuda.pipeline": (
        "detect_available_devices",
        "error_raised",
        "get_intermediates_queue",
        "get_parameter_checkpoint",
        "get_parameter_gradients",
        "initialize_pipeline",
        "run_forward",
        "run_generate",
        "run_generative_inference",
        "run_inference",
        "shutdown",
        "sync",
        "update_device_parameters",
    ),
    "tbuda_lab.pybuda.training_loop": (
        "get_checkpoint_queue",
        "get_loss_queue",
        "run_backward",
        "run_optimizer",
        "run_schedulers",
        "run_training",
    ),
}
_COMMANDS: Names = {"tbuda_lab.pybuda.device": ("Command", "CommandType")}
_FORMATS: Names = {"tbuda_lab.core.formats": ("DataFormat", "MathFidelity")}

MODULES: dict[str, Names] = {
    "_C": _FORMATS
    | {
        "tbuda_lab.core.errors": ("UnsupportedOp as UnsupportedHWOpsError",),
        "tbuda_lab.core.formats.DataFormat": ("*",),  # scripts write `pybuda._C.Float16_b`, too
        "tbuda_lab.pybuda.config": ("AMPNodeProperties",),
        "tbuda_lab.pybuda.enums": ("NodeEpochType",),
    },
    "_C.backend_api": {
        "tbuda_lab.pybuda.enums": ("BackendDevice", "BackendType", "DeviceMode"),
        "tbuda_lab.pybuda.pipeline": ("detect_available_devices as detect_available_silicon_devices",),
    },
    "_C.balancer": {"tbuda_lab.pybuda.results": ("OpOverride",)},
    "_C.graph": {"tbuda_lab.pybuda.enums": ("RuntimeTensorTransformType",)},
    "_C.placer": {"tbuda_lab.pybuda.enums": ("DRAMPlacementAlgorithm",)},
    "parameter": {"tbuda_lab.core.frontend.pybuda": ("Parameter",)},
    "pybudaglobal": {
        "tbuda_lab.core.graph": ("TILE as TILE_DIM",),
        "tbuda_lab.pybuda.pipeline": (
            "get_devices",
            "get_tenstorrent_device",
            "is_silicon",
            "pybuda_reset",
            "set_device_pipeline",
        ),
    },
    "run": _COMMANDS | _RUN,
    "run.api": _RUN,
    "run.commands": _COMMANDS,
    "schedulers": {"tbuda_lab.pybuda.optimizers": ("LearningRateScheduler",)},
    "tensor": {"tbuda_lab.core.frontend.pybuda": ("SomeTensor", "Tensor", "TensorShape", "to_pt_tensors")},
    "torch_compile": {"tbuda_lab.serving.torch_backend": ("tbuda as compile_torch",)},
    "torch_schedulers": {"tbuda_lab.pybuda.optimizers": ("TorchLearningRateScheduler",)},
    "transformers": {},
    "transformers.pipeline": {"tbuda_lab.serving.generation": ("pipeline",)},
    "verify.config": _FORMATS
    | {
        "tbuda_lab.pybuda.enums": ("BackendDevice", "BackendType", "DeviceMode", "TestKind"),
        "tbuda_lab.pybuda.verify.backend": ("NebulaGalaxy", "VerifyConfig"),
    },
    "verify.utils": {"tbuda_lab.pybuda.judging": ("calculate_pcc", "compare_tensor_to_golden")},
}
"""Module -> where its names live -> the names; `a as b` is `a` there and `b` here, "*" every name."""

REFUSED = {
    "_C.backend_api": {"get_output": "outputs are in the queue that run_inference returns"},
    "transformers.pipeline": {"NLPPipelineWrapper": "use transformers.pipeline"},
}
"""Functions of PyBuda's that are not supported, with what to use in their place."""


class NamesModule(ModuleType):
    """A module of PyBuda's that holds nothing of its own."""

    def __init__(self, package: str, name: str) -> None:
        super().__init__(f"{package}.{name}", f"`pybuda.{name}`.")
        self.__spec__ = importlib.machinery.ModuleSpec(self.__name__, None)
        self.__path__: list[str] = []  # modules may lie in it
        self._own = name
        self._homes = homes_of(MODULES[name])
        self.__all__ = [*(n for n in self._homes if n != "*"), *REFUSED.get(name, ())]

    def __getattr__(self, name: str) -> Any:
        value = look_up(self._homes, name)
        if value is None and name in REFUSED.get(self._own, ()):
            value = _refusal(f"pybuda.{self._own}.{name}", REFUSED[self._own][name])
        if value is None:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        setattr(self, name, value)
        return value

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *self.__all__})


def homes_of(names: Mapping[str, tuple[str, ...]]) -> dict[str, tuple[str, str]]:
    """Name here -> (module or class that has it, its name there)."""
    return {
        entry.split(" as ")[-1]: (home, entry.split(" as ")[0]) for home, entries in names.items() for entry in entries
    }


def look_up(homes: Mapping[str, tuple[str, str]], name: str) -> Any:
    """The value of a name; None where no home has it."""
    if name in homes:
        home, there = homes[name]
        return getattr(importlib.import_module(home), there)
    if "*" in homes and not name.startswith("_"):
        module, _, cls = homes["*"][0].rpartition(".")
        return getattr(getattr(importlib.import_module(module), cls), name, None)
    return None


def provide(package: str) -> None:
    """Put the modules of `MODULES` under a package, to be imported as if they were files."""
    for name in MODULES:
        module = sys.modules.setdefault(f"{package}.{name}", NamesModule(package, name))
        parent, _, last = name.rpartition(".")
        if parent in MODULES:
            setattr(sys.modules[f"{package}.{parent}"], last, module)


def _refusal(name: str, instead: str) -> Callable[..., Any]:
    def refuse(*_: Any, **__: Any) -> Any:
        raise not_supported(name, instead)

    refuse.__doc__ = f"Not supported; {instead}."
    return refuse
