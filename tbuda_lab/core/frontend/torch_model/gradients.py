"""What a model's code says about gradients, as it is traced for training: `detach` and `.data`, regions of `no_grad`,
backwards of `autograd.Function`, hooks of tensors and parameters.

A trace sees what is calculated, not what flows back. So while one goes on a mode of torch looks at every call: what no
gradient passes becomes a `detach` that the graph keeps, and a gradient that the code calculates itself is traced on a
stand-in for the gradient that will come (`gradient_seed`), beside the value that it belongs to.
"""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import Any

import torch
from torch.autograd.function import _SingleLevelFunction
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.frontend.provenance import calling_line, foreign
from tbuda_lab.core.frontend.torch_model.caches import NAMESPACE

Tensor = torch.Tensor


@torch.library.custom_op(f"{NAMESPACE}::gradient_seed", mutates_args=())
def gradient_seed(value: Tensor) -> Tensor:
    """Stands for the gradient by `value`."""
    return torch.ones_like(value)


@torch.library.custom_op(f"{NAMESPACE}::own_gradient", mutates_args=())
def own_gradient(value: Tensor, seed: Tensor, operands: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    """`value`; the gradient by each operand is the one given for it, where the seed is the gradient by the result."""
    return value.clone()


@gradient_seed.register_fake
def _(value: Tensor) -> Tensor:
    return torch.empty_like(value)


@own_gradient.register_fake
def _(value: Tensor, seed: Tensor, operands: Sequence[Tensor], gradients: Sequence[Tensor]) -> Tensor:
    return torch.empty_like(value)


class KeepGradients(TorchFunctionMode):
    """While it is active, a trace keeps what stops or changes gradients. `on`: whether gradients are recorded."""

    def __init__(self) -> None:
        super().__init__()
        self._hooked: dict[int, tuple[Tensor, Tensor]] = {}
        """By id a tensor with a hook, and what is read in its place from then on."""

    def current(self, value: Any) -> Any:
        """What is read in the place of a value."""
        while id(value) in self._hooked:
            value = self._hooked[id(value)][1]
        return value

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self._hooked:
            args, kwargs = pytree.tree_map(self.current, (args, kwargs))
        if func is torch.Tensor.register_hook:
            return self.hook(*args, **kwargs)
        if func == torch.Tensor.data.__get__ and _users_own():  # type: ignore[attr-defined]
            return args[0].detach()
        result = func(*args, **kwargs)
        if torch.is_grad_enabled():
            return result
        operands = [v for v in pytree.tree_leaves((args, kwargs)) if isinstance(v, Tensor)]
        if not any(v.requires_grad for v in operands):
            return result
        known = {id(v) for v in operands}

        def left(value: Any) -> Any:
            new = isinstance(value, Tensor) and value.is_floating_point() and id(value) not in known
            return value.detach() if new and not value.requires_grad else value

        return pytree.tree_map(left, result)

    def hook(self, tensor: Tensor, function: Callable[[Tensor], Tensor | None]) -> Any:
        """A hook of a tensor: what reads it from now on gets what the hook makes of the gradient."""
        if not tensor.requires_grad:
            raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
        value = tensor.detach()
        seed = gradient_seed(value)
        made = function(seed)
        if made is not None:
            self._hooked[id(tensor)] = tensor, _trained(own_gradient(value, seed, [tensor], [made]))
        return _Handle(self._hooked, id(tensor))

    def apply(self, function: type[torch.autograd.Function], *args: Any) -> Any:
        """An `autograd.Function`: its forward without gradients, beside its backward. Raises `UnsupportedOp` for one of
        several results, and one that writes to its inputs."""
        leaves = [self.current(a) for a in args]
        needs = tuple(isinstance(a, Tensor) and a.requires_grad for a in leaves)
        context = _Context(function, needs)
        plain = [a.detach() if n else a for a, n in zip(leaves, needs, strict=True)]
        if function.setup_context is not torch.autograd.Function.setup_context:
            returned = function.forward(*plain)
            function.setup_context(context, tuple(plain), returned)
        else:
            returned = function.forward(context, *plain)
        if not any(needs) or not torch.is_grad_enabled():
            return returned
        results = list(returned) if isinstance(returned, tuple) else [returned]
        carrying = [
            k
            for k, v in enumerate(results)
            if isinstance(v, Tensor) and v.is_floating_point() and not any(v is other for other in context.constant)
        ]
        if len(carrying) != 1:
            raise refused(function, f"it returns {len(carrying)} tensors with gradients; one is supported")
        (at,) = carrying
        value = results[at].detach()
        seed = gradient_seed(value)
        seeds = [
            seed if k == at else torch.zeros_like(v) if isinstance(v, Tensor) else None for k, v in enumerate(results)
        ]
        given = function.backward(context, *seeds)
        pairs = [
            (a, g)
            for a, n, g in zip(leaves, needs, given if isinstance(given, tuple) else (given,), strict=False)
            if n and g is not None
        ]
        results[at] = _trained(own_gradient(value, seed, [a for a, _ in pairs], [g for _, g in pairs]))
        return tuple(results) if isinstance(returned, tuple) else results[at]


def _users_own() -> bool:
    """Whether the call that a mode is asked about stands in code outside torch."""
    frame: FrameType | None = sys._getframe(2)
    while frame is not None and frame.f_code.co_name == "__torch_function__":
        frame = frame.f_back
    return frame is not None and foreign(frame.f_code.co_filename)


def _trained(value: Tensor) -> Tensor:
    """A value that says that it requires a gradient, as code may ask it."""
    return value if value.requires_grad else value.requires_grad_()


class _Handle:
    """What `register_hook` returns."""

    def __init__(self, hooked: dict[int, tuple[Tensor, Tensor]], key: int) -> None:
        self._hooked, self._key = hooked, key

    def remove(self) -> None:
        self._hooked.pop(self._key, None)


class _Context:
    """What the forward of an `autograd.Function` leaves for its backward."""

    def __init__(self, function: type[torch.autograd.Function], needs: tuple[bool, ...]) -> None:
        self._function = function
        self.needs_input_grad = needs
        self.saved_tensors: tuple[Any, ...] = ()
        self.constant: tuple[Any, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        self.saved_tensors = tensors

    save_for_forward = save_for_backward

    def mark_non_differentiable(self, *tensors: Any) -> None:
        self.constant = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Gradients of results that nobody reads are zeros here, which adds up to the same."""

    def mark_dirty(self, *_: Any) -> None:
        raise refused(self._function, "it writes to its inputs; return new tensors")


def refused(function: type[torch.autograd.Function], why: str) -> UnsupportedOp:
    where = calling_line() or function.__name__
    fix = "write it in ops that torch differentiates, or place that part on a CPUDevice"
    finding = Diagnostic("error", where, "autograd.Function", f"{function.__name__}: {why}", fix)
    return UnsupportedOp("a backward of the model's own has no form on the device", [finding])


@contextlib.contextmanager
def functions_kept(mode: KeepGradients) -> Iterator[None]:
    """`apply` of every `autograd.Function` of the model's own code goes through the mode, in this thread."""
    me = threading.get_ident()

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        if threading.get_ident() != me or kwargs or _is_torchs_own(cls):
            return super(_SingleLevelFunction, cls).apply(*args, **kwargs)
        if cls is torch.utils.checkpoint.CheckpointFunction:
            run, _, *rest = args
            return run(*rest)
        return mode.apply(cls, *args)

    _SingleLevelFunction.apply = classmethod(apply)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del _SingleLevelFunction.apply  # type: ignore[attr-defined]


def _is_torchs_own(cls: type) -> bool:
    module = cls.__module__
    return module.startswith(("torch.", "torch_")) and cls is not torch.utils.checkpoint.CheckpointFunction


@contextlib.contextmanager
def parameters_hooked(module: torch.nn.Module, mode: KeepGradients) -> Iterator[None]:
    """Hooks of parameters, which a trace would lose with the parameters themselves."""
    hooks = {name: list(p._backward_hooks.values()) for name, p in module.named_parameters() if p._backward_hooks}
    if not hooks:
        yield
        return

    def before(root: torch.nn.Module, _: Any) -> None:
        for name, functions in hooks.items():
            for function in functions:
                mode.hook(mode.current(root.get_parameter(name)), function)

    handle = module.register_forward_pre_hook(before)
    try:
        yield
    finally:
        handle.remove()


@contextlib.contextmanager
def own_mode(module: torch.nn.Module) -> Iterator[None]:
    """The model's own layers in the mode that they are in, for the time of a trace. torch's own, but for dropouts, are
    in eval mode: what they do else in training is added to the graph (batch norms), or refused."""
    kept = torch.nn.Dropout | torch.nn.Dropout1d | torch.nn.Dropout2d | torch.nn.Dropout3d
    own = [
        m
        for m in module.modules()
        if m.training and type(m).__module__.startswith("torch.nn.modules.") and not isinstance(m, kept)
    ]
    for layer in own:
        layer.training = False
    try:
        yield
    finally:
        for layer in own:
            layer.training = True
