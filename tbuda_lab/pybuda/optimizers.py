"""What a script says about training: optimizers, their parameters, and learning-rate schedulers.

An optimizer describes the update of each parameter; the backward graph and the update itself are the compiler's.
Formulas: compiler.md 5.3.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, ClassVar

import torch

from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.frontend.pybuda import Parameter
from tbuda_lab.core.options import OptimizerOptions
from tbuda_lab.core.passes.autograd.optimizers import optimizer_options


class Optimizer:
    """Base of the optimizers. Exactly one of `parameters` and `device_params=True` says what is trained.

    parameters: Parameters, or a dict of them by name; device_params: every parameter of the device that requires a
    gradient. Raises `AssertionError` otherwise, as PyBuda does, and `PipelineError` for a number out of its range.
    """

    type: ClassVar[str] = ""

    def __init__(self, learning_rate: float, parameters: Any = None, device_params: bool = False) -> None:
        assert (parameters is not None) != bool(device_params), (
            f"{type(self).__name__} takes exactly one of parameters= and device_params=True"
        )
        self.device_params = bool(device_params)
        self.parameters: dict[str, Parameter] | None = None if parameters is None else _by_name(parameters)
        self.learning_rate = self._number("learning_rate", learning_rate)

    def _number(self, name: str, value: Any, low: float = 0.0, high: float = float("inf")) -> float:
        if isinstance(value, torch.Tensor) and value.numel() == 1:
            value = value.item()
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise PipelineError(f"{type(self).__name__}: {name} is a number in [{low:g}, {high:g}], not {value!r}")
        return float(value)

    def set_optimizer_parameters(self, learning_rate: float | None = None) -> None:
        """Give the learning rate a new value for the steps that follow; 0.0 is a value, None leaves it."""
        if learning_rate is not None:
            self.learning_rate = self._number("learning_rate", learning_rate)

    def trains(self, name: str) -> bool:
        """Whether the parameter of this name is updated."""
        return self.parameters is None or name in self.parameters

    def hyperparameters(self) -> dict[str, Any]:
        """Every number of the update rule by name."""
        return {k: v for k, v in vars(self).items() if k not in ("parameters", "device_params")}

    def options(self) -> OptimizerOptions:
        """What the compiler is told of it. Raises `NotSupported` for what its update on the device has no form for."""
        settings = self.hyperparameters()
        kind = self.type
        if settings.pop("enable_adam_w", False):
            kind = "adamw"
        if settings.pop("dampening", 0.0) or (kind == "lars" and settings.pop("nesterov", False)):
            raise not_supported(f"{type(self).__name__} with nesterov or dampening", "leave them at their defaults")
        return optimizer_options(kind, **settings)

    def get_pytorch_optimizer(self, parameters: Any, lr: float | None = None) -> torch.optim.Optimizer:
        """The same update rule in torch, for tensors or a dict of them by name. Raises `PipelineError` where torch has
        no such rule."""
        raise PipelineError(f"torch has no {type(self).__name__}; a CPUDevice takes any torch optimizer (optimizer_f=)")

    def _leaves(self, parameters: Any) -> list[torch.Tensor]:
        return list(parameters.values()) if isinstance(parameters, Mapping) else list(parameters)


def _by_name(parameters: Any) -> dict[str, Parameter]:
    if isinstance(parameters, Mapping):
        return dict(parameters)
    if not isinstance(parameters, Iterable):
        raise PipelineError(f"parameters= takes Parameters, not a {type(parameters).__name__}")
    by_name = {}
    for one in parameters:
        if not isinstance(one, Parameter):
            raise PipelineError(f"parameters= takes Parameters, not a {type(one).__name__}")
        by_name[one.get_name()] = one
    return by_name


class SGD(Optimizer):
    """p - lr * g. Beyond PyBuda, torch's momentum, nesterov and weight_decay."""

    type = "sgd"

    def __init__(
        self,
        learning_rate: float,
        parameters: Any = None,
        device_params: bool = False,
        *,
        momentum: float = 0.0,
        nesterov: bool = False,
        weight_decay: float = 0.0,
    ) -> None:
        super().__init__(learning_rate, parameters, device_params)
        self.momentum = self._number("momentum", momentum)
        self.nesterov = bool(nesterov)
        self.weight_decay = self._number("weight_decay", weight_decay)

    def get_pytorch_optimizer(self, parameters: Any, lr: float | None = None) -> torch.optim.Optimizer:
        return torch.optim.SGD(
            self._leaves(parameters),
            lr=self.learning_rate if lr is None else lr,
            momentum=self.momentum,
            nesterov=self.nesterov,
            weight_decay=self.weight_decay,
        )


class Adam(Optimizer):
    """Adam: running means of g and g^2, divided by 1 - beta^t with `bias_correction`; weight_decay is added to g, or
    with `enable_adam_w` to the direction."""

    type = "adam"

    def __init__(
        self,
        learning_rate: float,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.0,
        bias_correction: bool = True,
        parameters: Any = None,
        device_params: bool = False,
        enable_adam_w: bool = False,
        eps: float | None = None,
    ) -> None:
        """eps: another name of epsilon."""
        super().__init__(learning_rate, parameters, device_params)
        epsilon = epsilon if eps is None else eps
        self.beta1 = self._number("beta1", beta1, 0.0, 1.0)
        self.beta2 = self._number("beta2", beta2, 0.0, 1.0)
        self.epsilon = self._number("epsilon", epsilon)
        self.weight_decay = self._number("weight_decay", weight_decay)
        self.bias_correction = bool(bias_correction)
        self.enable_adam_w = bool(enable_adam_w)

    def get_pytorch_optimizer(self, parameters: Any, lr: float | None = None) -> torch.optim.Optimizer:
        """torch always corrects the bias: without `bias_correction` it has no such rule."""
        if not self.bias_correction:
            return super().get_pytorch_optimizer(parameters, lr)
        kind = torch.optim.AdamW if self.enable_adam_w else torch.optim.Adam
        return kind(
            self._leaves(parameters),
            lr=self.learning_rate if lr is None else lr,
            betas=(self.beta1, self.beta2),
            eps=self.epsilon,
            weight_decay=self.weight_decay,
        )


class AdamW(Adam):
    """Adam with decoupled weight decay."""

    type = "adamw"

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        bias_correction: bool = True,
        parameters: Any = None,
        device_params: bool = False,
        eps: float | None = None,
    ) -> None:
        """eps: another name of epsilon."""
        super().__init__(
            learning_rate,
            beta1,
            beta2,
            epsilon,
            weight_decay,
            bias_correction,
            parameters,
            device_params,
            enable_adam_w=True,
            eps=eps,
        )


class LAMB(Optimizer):
    """Adam's direction, scaled by |p| / |direction| within `clip_value`; 1 where a norm is 0. Its running means are
    divided by 1 - beta^t with `correction` (PyBuda takes that argument and does not)."""

    type = "lamb"

    def __init__(
        self,
        learning_rate: float = 0.001,
        beta1: float = 0.9,
        beta2: float = 0.999,
        epsilon: float = 1e-8,
        weight_decay: float = 0.01,
        correction: bool = False,
        clip_value: tuple[float, float] = (0.0, 10.0),
        parameters: Any = None,
        device_params: bool = False,
        eps: float | None = None,
    ) -> None:
        """eps: another name of epsilon."""
        super().__init__(learning_rate, parameters, device_params)
        epsilon = epsilon if eps is None else eps
        self.beta1 = self._number("beta1", beta1, 0.0, 1.0)
        self.beta2 = self._number("beta2", beta2, 0.0, 1.0)
        self.epsilon = self._number("epsilon", epsilon)
        self.weight_decay = self._number("weight_decay", weight_decay)
        self.correction = bool(correction)
        low, high = clip_value
        self.clip_value = (self._number("clip_value", low, 0.0, 10.0), self._number("clip_value", high, 0.0, 10.0))


class LARS(Optimizer):
    """SGD with momentum whose rate is scaled by lars_coeff * |p| / (|g| + weight_decay * |p| + epsilon)."""

    type = "lars"

    def __init__(
        self,
        learning_rate: float = 0.001,
        momentum: float = 0.9,
        nesterov: bool = False,
        dampening: float = 0.0,
        weight_decay: float = 0.01,
        lars_coeff: float = 0.001,
        epsilon: float = 1e-8,
        parameters: Any = None,
        device_params: bool = False,
        eps: float | None = None,
    ) -> None:
        """eps: another name of epsilon."""
        super().__init__(learning_rate, parameters, device_params)
        epsilon = epsilon if eps is None else eps
        self.momentum = self._number("momentum", momentum)
        self.nesterov = bool(nesterov)
        self.dampening = self._number("dampening", dampening)
        self.weight_decay = self._number("weight_decay", weight_decay)
        self.lars_coeff = self._number("lars_coeff", lars_coeff)
        self.epsilon = self._number("epsilon", epsilon)


OPTIMIZERS: dict[str, type[Optimizer]] = {kind.type: kind for kind in (SGD, Adam, AdamW, LAMB, LARS)}
"""Type name of a `VerifyConfig.optimizer` -> class."""


def get_optimizer_type_from_string(name: str) -> type[Optimizer]:
    """The class of an optimizer's type name ("sgd", "adamw", ...). Raises `PipelineError`."""
    kind = OPTIMIZERS.get(str(name).lower())
    if kind is None:
        raise PipelineError(f"there is no optimizer {name!r}; there are {', '.join(OPTIMIZERS)}")
    return kind


def optimizer_of(options: OptimizerOptions) -> Optimizer:
    """The optimizer of a device that a compile was made for. Raises `PipelineError` for numbers out of their range."""
    settings: dict[str, Any] = dict(options.settings)
    try:
        return get_optimizer_type_from_string(options.kind)(device_params=True, **settings)
    except TypeError as error:
        raise PipelineError(f"{options.kind} has no such settings: {error}") from error


class LearningRateScheduler:
    """Base of the schedulers: a subclass defines `get_lr`; `step` gives the optimizer its answer, once per epoch."""

    def __init__(self, optimizer: Optimizer) -> None:
        self.optimizer = optimizer
        self.torch_scheduler: Any = None  # subclasses keep what `get_pytorch_scheduler` made

    def get_lr(self) -> float:
        """The learning rate of the next epoch."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_lr")

    def step(self) -> None:
        """Begin the next epoch."""
        self.optimizer.set_optimizer_parameters(learning_rate=self.get_lr())

    def get_scheduler_params(self, *_: Any) -> dict[str, Any]:
        """What the scheduler gives the optimizer."""
        return {"learning_rate": self.optimizer.learning_rate}

    def get_pytorch_scheduler(self, optimizer: torch.optim.Optimizer) -> Any:
        """The same schedule for a torch optimizer."""
        raise NotImplementedError(f"{type(self).__name__} defines no get_pytorch_scheduler")


class TorchLearningRateScheduler(torch.optim.lr_scheduler.LRScheduler):
    """Base of the schedulers of torch optimizers; a subclass defines `get_lr`, a list of a rate per group."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        super().__init__(optimizer)
