"""A look at torch's calls that stops one before it takes more memory than a machine has."""

from __future__ import annotations

import contextlib
import math
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from tbuda_lab.sim.arrays import held_too_large

LARGE = 1 << 29
"""Elements that one call may make while a model is traced: 2 GiB in Float32."""
LARGEST = 1 << 33
"""Elements of a value above which nothing is traced: 16 GiB in Float16_b, more than the DRAM of a chip of any device
but Blackhole's, which holds it once and nothing beside it."""

_BYTES_OF_CONSTANT = 80
"""What a compile holds for each element of a constant, at most (measured: 82 for `arange` of 2 * 10^7)."""


class LargeValue(Exception):
    """A call would make a tensor of `size` elements. op: as torch names it."""

    def __init__(self, op: str, size: int) -> None:
        super().__init__(f"{op} makes {size:,} elements")
        self.op, self.size = op, size


class LargeValues(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """While it is on, a call that would make a tensor of more than `LARGE` elements raises `LargeValue` and is not
    made. What a call makes is asked of the meta device where its operands and numbers leave that possible; calls whose
    sizes depend on values are made."""

    supports_higher_order_operators = True

    @classmethod
    def ignore_compile_internals(cls) -> bool:
        """torch compiles what `torch.cond` and its like are given: not with this mode's own code in it."""
        return True

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._sizes: dict[tuple[Any, ...], int] = {}

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, torch._ops.OpOverload) and _most(args, kwargs) > LARGE:
            size = self._size(func, args, kwargs)
            if size > LARGE:
                raise LargeValue(func._schema.name, size)
        return func(*args, **kwargs)

    def _size(self, func: Any, args: Any, kwargs: Any) -> int:
        """`_made`, asked once for all calls with operands of the same shapes: equal layers make equal calls."""
        leaves, spec = pytree.tree_flatten((args, kwargs))
        key = (func, spec, *((t.shape, t.stride(), t.dtype) if isinstance(t, torch.Tensor) else t for t in leaves))
        try:
            size = self._sizes.get(key)
        except TypeError:  # an operand that has no hash
            return _made(func, args, kwargs)
        if size is None:
            size = self._sizes[key] = _made(func, args, kwargs)
        return size


def _most(args: Any, kwargs: Any) -> float:
    """No call makes more elements than the product of its operands' and of its numbers."""
    most = 1.0
    for leaf in pytree.tree_leaves((args, kwargs)):
        if isinstance(leaf, torch.Tensor):
            most *= max(1, leaf.numel())
        elif isinstance(leaf, int | float) and not isinstance(leaf, bool) and math.isfinite(leaf):
            most *= max(1.0, abs(leaf))
    return most


def _made(func: Any, args: Any, kwargs: Any) -> int:
    """Elements in memory of the largest tensor that a call makes; 0 where its operands' values decide."""

    def shape_of(t: torch.Tensor) -> torch.Tensor:
        return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype, device="meta")

    with contextlib.suppress(Exception):
        args, kwargs = pytree.tree_map_only(torch.Tensor, shape_of, (args, kwargs))
        if "device" in kwargs or not any(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(args)):
            kwargs = {**kwargs, "device": torch.device("meta")}
        return elements(func(*args, **kwargs))
    return 0


def problem_of_constant(size: int) -> str:
    """Why a constant of so many elements is not made while a model is traced, or ""."""
    if size > LARGE:
        return f"a constant of {size:,} elements; {LARGE:,} are the most"
    problem = held_too_large(_BYTES_OF_CONSTANT * size)
    return problem and f"a constant of {size:,} elements, whose copies in all stages are held at a time: {problem}"


def elements(made: Any) -> int:
    """Elements that the largest of some tensors has in memory: one that is expanded has those that it repeats."""
    tensors = [t for t in pytree.tree_leaves(made) if isinstance(t, torch.Tensor)]
    dense = [t for t in tensors if t.layout is torch.strided]
    return max((t.untyped_storage().nbytes() // t.element_size() for t in dense), default=0)
