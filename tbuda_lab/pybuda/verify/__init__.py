"""`pybuda.verify`: outputs and gradients judged by the module run in torch. Names are looked up on first use."""

from __future__ import annotations

import importlib
from typing import Any

from tbuda_lab.pybuda.face import homes_of, look_up

_HOMES = homes_of(
    {
        "tbuda_lab.pybuda.enums": ("TestKind",),
        "tbuda_lab.pybuda.verify.backend": ("VerifyConfig", "verify_module", "verify_module_pipeline"),
    }
)
__all__ = ["TestKind", "VerifyConfig", "backend", "config", "utils", "verify_module", "verify_module_pipeline"]


def __getattr__(name: str) -> Any:
    if name in ("backend", "config", "utils"):
        return importlib.import_module(f"{__name__}.{name}")
    if name in _HOMES:
        return look_up(_HOMES, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
