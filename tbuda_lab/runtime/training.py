"""Names of PyBuda's training API. Each raises `NotSupported` when it is used."""

from __future__ import annotations

from typing import Any

from tbuda_lab.runtime.errors import training_is_not_supported


class Refused:
    """Base of the classes of training: making one raises `NotSupported`."""

    def __init__(self, *_: Any, **__: Any) -> None:
        raise training_is_not_supported(type(self).__name__)


class Optimizer(Refused):
    """Base of the optimizers."""


class SGD(Optimizer):
    """Stochastic gradient descent."""


class Adam(Optimizer):
    """Adam."""


class AdamW(Optimizer):
    """Adam with decoupled weight decay."""


class LAMB(Optimizer):
    """LAMB."""


class LARS(Optimizer):
    """LARS."""


class LearningRateScheduler(Refused):
    """Base of the schedulers."""


class TorchLearningRateScheduler(Refused):
    """Base of the schedulers that wrap torch's."""
