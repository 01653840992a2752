"""The module run eagerly, with every tensor that it makes on the way: the reference of the traced graph.

Values are known again by their fingerprints (shape, sum, sum of squares and a weighted sum), so that nothing of the
importer is trusted. A traced op whose value the module never had is wrong if it leads to a wrong output.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tbuda_lab.core.frontend.eager import classes_kept, own_copy
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.session.find_error.graphs import unmasked

Tensor = torch.Tensor
_CLOSE = 2e-4


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, prints: Fingerprints) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.prints = prints

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and leaf.is_floating_point():
                self.prints.add(leaf)
        return result


class Fingerprints:
    """Values by what little can be said of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], list[np.ndarray]] = {}
        self._weights: dict[int, np.ndarray] = {}

    def _of(self, value: Tensor) -> np.ndarray:
        flat = value.detach().float().reshape(-1).numpy()
        weights = self._weights.get(flat.size)
        if weights is None:
            weights = self._weights[flat.size] = np.random.default_rng(flat.size).random(flat.size, np.float32)
        rest = unmasked(flat)
        if rest is not None:  # beside a mask nothing else would show
            flat = np.where(rest, flat, np.sign(flat) * 2 * np.abs(flat[rest]).max())
        size = float(np.sqrt(np.vdot(flat, flat)))
        if not np.isfinite(size):
            flat = np.nan_to_num(flat, nan=1.0, posinf=2.0, neginf=3.0).clip(-1e15, 1e15)
            size = float(np.sqrt(np.vdot(flat, flat)))
        size += 1e-30
        return np.array([size, float(flat.sum()) / size, float(np.vdot(flat, weights)) / size])

    def add(self, value: Tensor) -> None:
        if value.numel() and value.device.type == "cpu" and not isinstance(value, torch._subclasses.FakeTensor):
            self._known.setdefault(_core(value.shape), []).append(self._of(value))

    def has(self, value: Tensor) -> bool:
        """Whether such a value was there."""
        own = self._of(value)
        prints = self._known.get(_core(value.shape))
        if not prints:
            return False
        off = np.abs(np.stack(prints) - own) / np.array([own[0], *[np.sqrt(value.numel())] * 2])
        return bool((off.max(axis=1) < _CLOSE).any())


def _core(shape: Iterable[int]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def run_eagerly(module: torch.nn.Module, args: Any, kwargs: Any, prints: Fingerprints | None = None) -> list[Tensor]:
    """Outputs of the module in the mode that it is in, in the order of `torch.utils._pytree`. prints: takes all values
    on the way."""
    own = own_copy(module)
    recorder = contextlib.nullcontext() if prints is None else _Recorder(prints)
    with torch.no_grad(), classes_kept(module), recorder:
        returned = (module if own is None else own)(*args, **kwargs)
    return [leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]


def unseen(graph: Graph, values: dict[str, Tensor], prints: Fingerprints, wrong: Iterable[str]) -> str:
    """The first op on the way to a wrong output whose value the module never had, and whose way to it has no value
    that it had; "" where there is none."""
    order = {node.name: k for k, node in enumerate(graph.topological())}
    seen: dict[str, bool] = {}

    def right(name: str) -> bool:
        node = graph[name]
        if node.kind is not NodeKind.OP:
            return node.kind is not NodeKind.OUTPUT
        if name not in seen:
            seen[name] = name in values and values[name].is_floating_point() and prints.has(values[name])
        return seen[name]

    reached, stack = set(wrong), list(wrong)
    while stack:
        for source in graph[stack.pop()].sources:
            if source not in reached and not right(source):
                reached.add(source)
                stack.append(source)
    ops = sorted((n for n in reached if graph[n].kind is NodeKind.OP), key=order.__getitem__)
    return ops[0] if ops else ""
