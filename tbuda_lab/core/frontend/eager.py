"""The user's module run as it is, eagerly: the judge of everything that is made of it.

A run takes a copy, so that what forward writes stays out of the user's module, in the mode that the module is in, from
the same state of every random generator. Weights are shared until somebody writes to them.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import random
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from types import FunctionType, MethodType
from typing import Any

import numpy as np
import torch
from torch._subclasses import FakeTensor
from torch.utils import _pytree as pytree

from tbuda_lab.core.frontend.inputs import BoundInputs, bind
from tbuda_lab.core.frontend.uncopied import Touched, copied

SAME = 1e-5
"""Of the largest magnitude: runs that differ by more are not the same; sums in another order differ by less."""


def own_copy(module: torch.nn.Module, shares: bool = False) -> torch.nn.Module | None:
    """The module with parameters, buffers and attributes of its own; None where it cannot be copied, which locks and
    their like do not prevent (`uncopied`). Weights take no memory until they are written to. shares: parameters and
    buffers are the module's."""
    stored = [*module.parameters(), *module.buffers()] if shares else []
    memo: dict[int, Any] = {id(tensor): tensor for tensor in stored}
    for layer in module.modules():
        own = [v for k, v in vars(layer).items() if k != "_modules" and not (isinstance(v, dict) and not v)]
        for value in pytree.tree_leaves(own):
            if isinstance(value, torch.Tensor) and id(value) not in memo:
                memo[id(value)] = _tensor_copy(value)
    try:
        return copied(module, memo)
    except Exception:
        return None


def _copies_itself(tensor: torch.Tensor) -> bool:
    """Whether `copy.deepcopy` takes a tensor of somebody's own class: torch's asks that it makes new ones of its class,
    and asks so while functions of classes are off."""
    if type(tensor).__deepcopy__ is not torch.Tensor.__deepcopy__ or tensor.layout is not torch.strided:
        return True
    with torch._C.DisableTorchFunctionSubclass():
        return type(tensor.new_empty([])) is type(tensor)


def _tensor_copy(tensor: torch.Tensor) -> torch.Tensor:
    """Of the same class, with hooks, and without a history. Tensors that hold nothing, as tracing leaves them in
    attributes that a forward sets, stay what they are."""
    if isinstance(tensor, FakeTensor) or tensor.is_meta:
        return tensor
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    if not plain and _copies_itself(tensor):
        return copy.deepcopy(tensor if tensor.is_leaf else tensor.detach())
    if plain:
        clone = getattr(torch, "_lazy_clone", torch.clone)(tensor.detach())
    else:
        clone = tensor.detach().as_subclass(torch.Tensor).clone().as_subclass(type(tensor))
        clone.__dict__.update(vars(tensor))
    if isinstance(tensor, torch.nn.Parameter):
        clone = torch.nn.Parameter(clone, requires_grad=tensor.requires_grad)
    else:
        clone.requires_grad_(tensor.requires_grad and tensor.is_leaf)
    for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
        hooks_of_tensor = getattr(tensor, hooks, None)
        if hooks_of_tensor:
            setattr(clone, hooks, hooks_of_tensor)
    return clone


def own_classes(module: torch.nn.Module) -> list[type]:
    """The classes of a model's own, with their bases; torch's are left out."""
    kinds = {kind: None for layer in module.modules() for kind in type(layer).__mro__}
    return [k for k in kinds if k.__module__.partition(".")[0] not in ("torch", "builtins", "typing", "abc")]


def is_code(value: Any) -> bool:
    """Whether an attribute of a class is a function, a class or another thing that says what to do."""
    plain = isinstance(value, FunctionType | MethodType | staticmethod | classmethod | property | type)
    return plain or (hasattr(type(value), "__get__") and not isinstance(value, torch.Tensor))


@contextlib.contextmanager
def classes_kept(module: torch.nn.Module) -> Iterator[None]:
    """Class attributes, which copies of a module share with it, are afterwards what they were."""
    saved = [
        (kind, name, value, copy.copy(value) if isinstance(value, _CONTAINERS) else None)
        for kind in own_classes(module)
        for name, value in vars(kind).items()
        if not name.startswith("__") and not is_code(value)
    ]
    names = {kind: set(vars(kind)) for kind in own_classes(module)}
    try:
        yield
    finally:
        for kind, names_before in names.items():
            for name in set(vars(kind)).difference(names_before):
                delattr(kind, name)
        for kind, name, value, content in saved:
            if vars(kind).get(name) is not value:
                setattr(kind, name, value)
            if content is not None and _ids(value) != _ids(content):
                _refill(value, content)


_CONTAINERS = (list, dict, set, deque)


def _ids(container: Any) -> list[int]:
    """What a container holds, by identity; numbers and tensors have no common equality."""
    items = container.items() if isinstance(container, dict) else [(v, v) for v in container]
    return [id(part) for pair in items for part in pair]


def _refill(container: Any, content: Any) -> None:
    container.clear()
    (container.extend if isinstance(container, list | deque) else container.update)(content)


@contextlib.contextmanager
def same_seeds() -> Iterator[None]:
    """Whatever draws random numbers inside leaves no trace: generators go on from where they were before."""
    states = torch.get_rng_state(), random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        torch.set_rng_state(states[0])
        random.setstate(states[1])
        np.random.set_state(states[2])


class _FastPath:
    """torch's switch of its replaced encoder layers is one for the process: the first thread that wants it off takes
    it, the last one puts it back. Restored by each thread for itself, two that overlap would leave it off."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.users = 0
        self.before = True

    def off(self) -> None:
        with self.lock:
            if self.users == 0:
                self.before = torch.backends.mha.get_fastpath_enabled()
                torch.backends.mha.set_fastpath_enabled(False)
            self.users += 1

    def back(self) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                torch.backends.mha.set_fastpath_enabled(self.before)


_fast_path = _FastPath()


@contextlib.contextmanager
def as_trained() -> Iterator[None]:
    """torch's encoder layers as they are while gradients are taken: without gradients torch may replace them by one
    call, which drops what is padded, and gives 0 there."""
    _fast_path.off()
    try:
        yield
    finally:
        _fast_path.back()


def call(module: torch.nn.Module, inputs: BoundInputs) -> Any:
    """What forward returns for copies of the inputs, which it may write to. Raises `UnsupportedOp` where it uses what
    copies do not have."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, lambda t: t.clone(), (inputs.args, inputs.kwargs))
    try:
        with as_trained():
            return module(*args, **kwargs)
    except Touched as touched:
        raise touched.error from None


def answers(module: torch.nn.Module, inputs: BoundInputs, count: int = 2) -> list[list[torch.Tensor]]:
    """The tensors that a copy of the module returns when it is called `count` times one after the other, each time on
    the same inputs and with the same seeds. A module that cannot be copied is called itself, once."""
    own = own_copy(module)
    returns = []
    with torch.no_grad(), classes_kept(module):
        for _ in range(count if own is not None else 1):
            with same_seeds():
                returned = call(own if own is not None else module, inputs)
            returns.append([leaf.clone() for leaf in pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)])
    return returns


@dataclasses.dataclass(frozen=True)
class EagerStep:
    """A forward and a backward pass of a torch module with its loss. loss: what is shown, a number; outputs: what the
    loss returned; gradients: by name of the weights that have one, those of the loss behind those of the model."""

    loss: float
    outputs: list[torch.Tensor]
    gradients: dict[str, torch.Tensor]


def eager_steps(
    model: torch.nn.Module,
    loss: torch.nn.Module,
    inputs: Any,
    targets: Sequence[torch.Tensor],
    weights: Mapping[str, torch.Tensor],
    count: int = 2,
) -> list[EagerStep]:
    """Passes of copies of a model and its loss for one batch, one after the other, with the same seeds, no step of an
    optimizer between. weights: values instead of the modules' own, by name. Empty where a module cannot be copied."""
    bound = bind(model.forward, inputs)
    own, own_loss = own_copy(model), own_copy(loss)
    if own is None or own_loss is None:
        return []
    leaves = dict(own.named_parameters())
    leaves |= {n if n not in leaves else f"loss.{n}": p for n, p in own_loss.named_parameters()}
    steps = []
    with classes_kept(model):
        for _ in range(count):
            with torch.no_grad():
                for name, leaf in leaves.items():
                    leaf.grad = None
                    if name in weights:
                        leaf.copy_(weights[name].reshape(leaf.shape))
            steps.append(_step(own, own_loss, bound, targets, leaves))
    return steps


def _step(
    model: torch.nn.Module,
    loss: torch.nn.Module,
    bound: BoundInputs,
    targets: Sequence[torch.Tensor],
    leaves: Mapping[str, torch.nn.Parameter],
) -> EagerStep:
    with same_seeds(), torch.enable_grad():
        values = [v for v in pytree.tree_leaves(call(model, bound)) if isinstance(v, torch.Tensor)]
        returned = [v for v in pytree.tree_leaves(loss(*values, *targets)) if isinstance(v, torch.Tensor)]
        total = torch.stack([v.sum() for v in returned]).sum()
        if total.requires_grad:
            torch.autograd.backward([total])
    gradients = {n: p.grad.detach().to_dense().clone() for n, p in leaves.items() if p.grad is not None}
    return EagerStep(float(total.detach()), [v.detach() for v in returned], gradients)


def same(first: list[torch.Tensor], second: list[torch.Tensor]) -> bool:
    """Whether two runs gave the same."""
    return len(first) == len(second) and all(_same(a, b) for a, b in zip(first, second, strict=True))


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    if a.shape != b.shape or a.dtype != b.dtype:
        return False
    if not (a.is_floating_point() or a.is_complex()):
        return torch.equal(a, b)
    if a.element_size() == 1:  # floats of 8 bits have no arithmetic
        a, b = a.float(), b.float()
    finite = a[a.isfinite()].abs()
    scale = float(finite.max()) if finite.numel() else 0.0
    return torch.allclose(a, b, rtol=SAME, atol=SAME * scale, equal_nan=True)
