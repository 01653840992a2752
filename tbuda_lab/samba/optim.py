"""SambaFlow's optimizers: torch's own, for the host, with what the device needs to run the same step."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.options import OptimizerOptions
from tbuda_lab.core.passes.autograd.optimizers import optimizer_options


def _named_region(name: str) -> str:
    """Tells that a region of its own for an optimizer's numbers has no form."""
    if name:
        warnings.warn(
            f"argin_region_name={name!r} has no effect: hyperparam_dict of session.run sets lr, momentum and "
            "weight_decay of all optimizers of a graph",
            stacklevel=3,
        )
    return name


class SGD(torch.optim.SGD):
    """m = momentum m + g + weight_decay p, p - lr m; the three numbers may change from run to run."""

    max_grad_norm: float | None = None

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.0,
        weight_decay: float = 0.0,
        *,
        dampening: float = 0.0,
        nesterov: bool = False,
        argin_region_name: str = "",
    ) -> None:
        """Raises `ValueError` for a dampening, which the device does not have, and as torch's does."""
        if dampening:
            raise ValueError("dampening is not supported on the device; set it to 0")
        super().__init__(params, lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov)
        self.argin_region_name = _named_region(argin_region_name)

    def core_options(self, group: dict[str, Any]) -> OptimizerOptions:
        """The step of one parameter group on the device."""
        options = optimizer_options(
            "sgd",
            learning_rate=float(group["lr"]),
            momentum=float(group["momentum"]),
            weight_decay=float(group["weight_decay"]),
            nesterov=bool(group["nesterov"]),
        )
        return OptimizerOptions(options.kind, options.settings, ("momentum", "weight_decay"))

    def device_state(self, parameter: torch.nn.Parameter) -> tuple[dict[str, torch.Tensor], int]:
        """What the device begins with for one parameter, by the device's names, and the steps taken so far (0: they are
        not counted)."""
        buffer = self.state.get(parameter, {}).get("momentum_buffer")
        return ({} if buffer is None else {"momentum": buffer}), 0

    def take_state(self, parameter: torch.nn.Parameter, state: dict[str, torch.Tensor], steps: int) -> None:
        """The state of one parameter from the device becomes this optimizer's; none before the first step."""
        if steps and "momentum" in state:
            self.state[parameter]["momentum_buffer"] = state["momentum"].reshape(parameter.shape)


class AdamW(torch.optim.AdamW):
    """torch's AdamW with SambaFlow's defaults. max_grad_norm: gradients are scaled so that their common norm is at most
    this before the step."""

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        betas: tuple[float, float] = (0.9, 0.997),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
        amsgrad: bool = False,
        max_grad_norm: float | None = None,
        fp32_params: bool = False,
        argin_region_name: str = "",
    ) -> None:
        """Raises `ValueError` for amsgrad, which the device does not have, and as torch's does."""
        if amsgrad:
            raise ValueError("amsgrad is not supported on the device; use AdamW without it, or SGD")
        super().__init__(params, lr=lr, betas=betas, eps=eps, weight_decay=weight_decay)
        self.max_grad_norm, self.fp32_params = max_grad_norm, fp32_params  # all parameters are Float32 here
        self.argin_region_name = _named_region(argin_region_name)

    def core_options(self, group: dict[str, Any]) -> OptimizerOptions:
        """The step of one parameter group on the device."""
        options = optimizer_options(
            "adamw",
            learning_rate=float(group["lr"]),
            beta1=float(group["betas"][0]),
            beta2=float(group["betas"][1]),
            epsilon=float(group["eps"]),
            weight_decay=float(group["weight_decay"]),
            bias_correction=True,
        )
        return OptimizerOptions(options.kind, options.settings, ("weight_decay",))

    def device_state(self, parameter: torch.nn.Parameter) -> tuple[dict[str, torch.Tensor], int]:
        """What the device begins with for one parameter, by the device's names, and the steps taken so far."""
        own = self.state.get(parameter, {})
        if not own:
            return {}, 0
        step = int(own["step"])
        betas = next(g["betas"] for g in self.param_groups if any(p is parameter for p in g["params"]))
        powers = {f"beta{k}_pow": torch.tensor([beta**step]) for k, beta in enumerate(betas, 1)}
        return {"mean": own["exp_avg"], "variance": own["exp_avg_sq"], **powers}, step

    def take_state(self, parameter: torch.nn.Parameter, state: dict[str, torch.Tensor], steps: int) -> None:
        """The state of one parameter from the device becomes this optimizer's; none before the first step."""
        if steps:
            moments = {"exp_avg": state["mean"], "exp_avg_sq": state["variance"]}
            self.state[parameter] = {
                "step": torch.tensor(float(steps)),
                **{k: v.reshape(parameter.shape) for k, v in moments.items()},
            }

    def step(self, closure: Any = None) -> Any:
        """The step on the host: clipped first, as the device does it."""
        if self.max_grad_norm is not None:
            parameters = [p for group in self.param_groups for p in group["params"] if p.grad is not None]
            torch.nn.utils.clip_grad_norm_(parameters, self.max_grad_norm)
        return super().step(closure)


class SparseAdamW:
    """SambaFlow's AdamW of tables of which a step reads a few rows. It has no form on this device."""

    def __init__(self, *_arguments: Any, **_settings: Any) -> None:
        """Raises `UnsupportedOp`: gradients are dense here."""
        raise UnsupportedOp(
            "SparseAdamW does not run on this device",
            [
                Diagnostic(
                    "error",
                    "SparseAdamW",
                    "samba",
                    "gradients of embedding tables are dense here",
                    "use samba.optim.AdamW, which also updates rows whose gradient is zero",
                )
            ],
        )


Optimizer = SGD | AdamW


def as_list(optim: Any) -> list[Optimizer]:
    """One optimizer, several or none as a list. Raises `TypeError` for what is none of ours."""
    as_list: Sequence[Any] = optim if isinstance(optim, list | tuple) else [] if optim is None else [optim]
    wrong = [type(o).__name__ for o in as_list if not isinstance(o, SGD | AdamW)]
    if wrong:
        raise TypeError(f"{', '.join(wrong)} does not run on the device; use samba.optim.SGD or samba.optim.AdamW")
    return list(as_list)
