"""`pybuda.op.loss`: losses belong to training, which is not supported."""

from __future__ import annotations

from typing import Any

from tbuda_lab.runtime.errors import training_is_not_supported


class CrossEntropyLoss:
    """Raises `NotSupported`."""

    def __init__(self, name: str, *_: Any, **__: Any) -> None:
        raise training_is_not_supported("CrossEntropyLoss")


class L1Loss:
    """Raises `NotSupported`."""

    def __init__(self, name: str, *_: Any, **__: Any) -> None:
        raise training_is_not_supported("L1Loss")
