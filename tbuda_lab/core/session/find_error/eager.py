"""The module run eagerly, with every tensor that it makes on the way: the reference of the traced graph.

Values are known again by their fingerprints (shape, length, and sums with random signs), so that nothing of the
importer is trusted. A traced op whose value the module never had is wrong if it leads to a wrong output.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tbuda_lab.core.frontend.eager import classes_kept, own_copy
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.session.find_error.graphs import unmasked

Tensor = torch.Tensor
_CLOSE, _PROJECTIONS = 1e-3, 3


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self, prints: Fingerprints) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.prints = prints

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for leaf in pytree.tree_leaves(result):
            if isinstance(leaf, torch.Tensor) and not leaf.is_complex():
                self.prints.add(leaf)
        return result


class Fingerprints:
    """Values by what little can be said of them."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, ...], list[np.ndarray]] = {}
        self._signs: dict[int, np.ndarray] = {}

    def _of(self, value: Tensor) -> np.ndarray:
        """[length, projections over it]. Two values that are the same but for noise of r of their length differ by
        about r in each; two that are not by about 1, whatever norm or mean all values of a model share."""
        flat = value.detach().float().reshape(-1).numpy()
        signs = self._signs.get(flat.size)
        if signs is None:
            bits = np.random.default_rng(flat.size).integers(0, 2, (_PROJECTIONS, flat.size), np.int8)
            signs = self._signs[flat.size] = np.float32(2) * bits - np.float32(1)
        rest = unmasked(flat)
        if rest is not None:  # beside a mask nothing else would show
            flat = np.where(rest, flat, np.sign(flat) * 2 * np.abs(flat[rest]).max())
        size = float(np.sqrt(np.vdot(flat, flat)))
        if not np.isfinite(size):
            flat = np.nan_to_num(flat, nan=1.0, posinf=2.0, neginf=3.0).clip(-1e15, 1e15)
            size = float(np.sqrt(np.vdot(flat, flat)))
        size += 1e-30
        return np.array([size, *(signs @ flat / size)])

    def add(self, value: Tensor) -> None:
        if value.numel() and value.device.type == "cpu" and not isinstance(value, torch._subclasses.FakeTensor):
            self._known.setdefault(_core(value.shape), []).append(self._of(value))

    def has(self, value: Tensor) -> bool:
        """Whether such a value was there."""
        own = self._of(value)
        prints = self._known.get(_core(value.shape))
        if not prints:
            return False
        off = np.abs(np.stack(prints) - own) / np.array([own[0], *[1.0] * _PROJECTIONS])
        return bool((off.max(axis=1) < _CLOSE).any())


def _core(shape: Iterable[int]) -> tuple[int, ...]:
    return tuple(n for n in shape if n != 1)


def run_eagerly(module: torch.nn.Module, args: Any, kwargs: Any, prints: Fingerprints | None = None) -> list[Tensor]:
    """Outputs of the module in the mode that it is in, in the order of `torch.utils._pytree`. prints: takes all values
    on the way."""
    own = own_copy(module)
    with torch.no_grad(), classes_kept(module), contextlib.ExitStack() as seen:
        if prints is not None:
            seen.enter_context(_in_single_calls(module))
            seen.enter_context(_Recorder(prints))
        returned = (module if own is None else own)(*args, **kwargs)
    return [leaf for leaf in pytree.tree_leaves(returned) if isinstance(leaf, torch.Tensor)]


@contextlib.contextmanager
def _in_single_calls(module: torch.nn.Module) -> Iterator[None]:
    """While it lasts torch calculates attention, encoder layers and recurrent layers op by op: a fused kernel would
    show none of the values on the way."""
    fast, onednn = torch.backends.mha.get_fastpath_enabled(), bool(torch.backends.mkldnn.enabled)
    torch.backends.mha.set_fastpath_enabled(False)
    if any(isinstance(layer, torch.nn.LSTM) for layer in module.modules()):
        torch.backends.mkldnn.set_flags(False)  # type: ignore[no-untyped-call]
    try:
        with sdpa_kernel(SDPBackend.MATH):
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        torch.backends.mkldnn.set_flags(onednn)  # type: ignore[no-untyped-call]


def unseen(graph: Graph, values: dict[str, Tensor], prints: Fingerprints, wrong: Iterable[str]) -> tuple[str, ...]:
    """The first op on the way to a wrong output whose value the module never had, and whose way to it has no value
    that it had, with those of the same call that follow it: of one call the module has the last value alone. () where
    there is none."""
    order = {node.name: k for k, node in enumerate(graph.topological())}
    seen: dict[str, bool] = {}

    def right(name: str) -> bool:
        node = graph[name]
        if node.kind is not NodeKind.OP:
            return node.kind is not NodeKind.OUTPUT
        if name not in seen:
            seen[name] = name in values and not values[name].is_complex() and prints.has(values[name])
        return seen[name]

    reached, stack = set(wrong), list(wrong)
    while stack:
        for source in graph[stack.pop()].sources:
            if source not in reached and not right(source):
                reached.add(source)
                stack.append(source)
    ops = sorted((n for n in reached if graph[n].kind is NodeKind.OP), key=order.__getitem__)
    call = [n for n in ops if graph[n].origin == graph[ops[0]].origin]
    found = set(call[:1])
    for name in call[1:]:
        if found.intersection(graph[name].sources):
            found.add(name)
    return (*(n for n in call if n in found), *(_unproven(graph, values, ops[0]) if ops else ()))


def _unproven(graph: Graph, values: dict[str, Tensor], name: str) -> list[str]:
    """Ops that lead to one and of which it proves nothing that the module had their value: one number throughout, and
    what an op of several operands gives where it is one of these, as a sum without its bias is."""
    found: list[str] = []
    stack = [name]
    while stack:
        for source in graph[stack.pop()].sources:
            node, value = graph[source], values.get(source)
            if node.kind is not NodeKind.OP or value is None or source in found:
                continue
            operands = [values[s] for s in node.sources if s in values] if len(node.sources) > 1 else []
            if bool((value == value.reshape(-1)[:1]).all()) or any(
                x.numel() == value.numel() and torch.equal(x.reshape(-1), value.reshape(-1)) for x in operands
            ):
                found.append(source)
                stack.append(source)
    return found
