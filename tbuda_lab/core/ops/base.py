"""The base of the nD ops and the small helpers they share."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import torch

from tbuda_lab.core.errors import Diagnostic, UnsupportedOp
from tbuda_lab.core.graph import Node, Op, Shape, ShapeError
from tbuda_lab.core.ops.builder import Builder

Names = tuple[str, ...]
"""Names of nodes, operand by operand."""


class NdOp(Op):
    """An op of the nD graph: tensors of any rank, no tiles, no hardware.

    `infer` and `evaluate` take exactly the op's operands (shapes, torch tensors). `canonicalise` writes the op in
    simpler ones through a `Builder` and returns the name of the result; None says that the op is canonical as it is.
    `host`: the op never runs on the device; only a prologue that the host computes may hold it.
    `gives_truth`: its result holds 0 and 1 alone.
    `marks_gradients`: the op says something of gradients alone, and is gone after autograd.
    """

    host: ClassVar[bool] = False
    gives_truth: ClassVar[bool] = False
    marks_gradients: ClassVar[bool] = False

    def infer(self, *operands: Any, **_: Any) -> Shape:
        """Shape of the result for these operand shapes; raises `ShapeError` naming what would be legal."""
        raise NotImplementedError(f"{type(self).__name__} defines no shape rule")

    def evaluate(self, *operands: Any, **_: Any) -> torch.Tensor:
        """The op on torch tensors: the reference that every rewrite is held against."""
        raise NotImplementedError(f"{type(self).__name__} defines no reference")

    def result_dtype(self, shapes: Sequence[Shape], dtypes: Sequence[torch.dtype]) -> torch.dtype:
        """The type of `evaluate`'s result for operands of these shapes and types: torch's own rule, asked of tensors
        without values (of its "meta" device). An op whose `evaluate` looks at values says it itself."""
        floats = [d for d in dtypes if d.is_floating_point]
        widest = functools.reduce(torch.promote_types, floats) if floats else torch.float32
        alike = [widest if d.is_floating_point else d for d in dtypes]
        for device in ("meta", "cpu"):  # of few calls torch knows no result without values
            try:
                operands = [torch.ones(s, dtype=d, device=device) for s, d in zip(shapes, alike, strict=True)]
                with torch.no_grad():
                    return self.evaluate(*operands).dtype
            except (RuntimeError, NotImplementedError, TypeError):
                continue
        return widest

    def gradient(self, b: Builder, port: int, x: Names, y: str, g: str) -> str | None:
        """The gradient by operand `port`, in new ops.

        x: names of the operands, y: of the result, g: of the gradient by the result, of y's shape. Returns a name, or
        None where nothing flows back. Along dims that the op broadcasts the gradient may keep y's shape; who asks sums
        it (see `passes.autograd`). An op without a rule is written as `differentiable` says before anybody asks.
        """
        raise NotImplementedError(f"{type(self).__name__} has no gradient rule")

    def differentiable(self, b: Builder, node: Node, *operands: Any, **_: Any) -> str | None:
        """`node` in ops that have gradient rules: its canonical form where the op has no rule of its own, else None."""
        if type(self).gradient is not NdOp.gradient:
            return None
        return self.canonicalise(b, node, *operands)

    def canonicalise(self, b: Builder, node: Node, *operands: Any, **_: Any) -> str | None:
        """Rewrite `node` in simpler ops; the name of the value that replaces it, or None if it is canonical."""
        return None


def axis_of(dim: int, rank: int, what: str) -> int:
    """`dim` counted from the front; raises `ShapeError` when a tensor of `rank` has no such dim."""
    if not -rank <= dim < rank:
        raise ShapeError(f"{what}: dim {dim} does not exist in a tensor of rank {rank}; legal: {-rank}..{rank - 1}")
    return dim % rank


def negative(dim: int, rank: int) -> int:
    """`dim` counted from the back (-1 is the last)."""
    return dim if dim < 0 else dim - rank


def with_size(shape: Shape, axis: int, size: int) -> Shape:
    """`shape` with another size at `axis` (counted from the front)."""
    return (*shape[:axis], size, *shape[axis + 1 :])


def window(size: int, kernel: int, stride: int, before: int, after: int, dilation: int, ceil_mode: bool = False) -> int:
    """Positions of a sliding window along one dim, torch's rule: with `ceil_mode` the last window must start inside
    the input or the padding before it."""
    span = size + before + after - dilation * (kernel - 1) - 1
    if not ceil_mode:
        return span // stride + 1
    count = -(-span // stride) + 1
    return count - 1 if (count - 1) * stride >= size + before else count


FILLS_ROWS = "fills_rows"
"""Attribute of a move whose operand has NaN in whole rows or not at all, and no infinities: a product with a 0/1 matrix
may pick its columns."""


def need_rank(shape: Shape, rank: int, what: str) -> None:
    if len(shape) != rank:
        raise ShapeError(f"{what} takes a tensor of rank {rank}, not of shape {tuple(shape)}")


def truth(mask: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """A condition as 0 and 1 in the float type of the operand it came from (float32 for integers)."""
    return mask.to(like.dtype if like.is_floating_point() else torch.float32)


ON_HOST = "the host runs it with cpu_fallback=automatic, the default (in PyBuda enable_tvm_cpu_fallback)"
"""What works for an op that the device has no form for: see docs/frameworks.md."""


IN_TRAINING = (
    "a TTDevice trains the model with this op on the host (enable_tvm_cpu_fallback, the default); a training session "
    "runs all of it on the device"
)
"""What works for such an op in a model that trains."""


def not_on_device(node: Node, why: str) -> UnsupportedOp:
    """The error for an op that the device cannot run, with its place in the user's model."""
    kind = node.op.type if node.op is not None else node.kind.value
    where = node.origin.module or node.name
    if node.origin.location:
        where += f" ({node.origin.location})"
    source = f" (from {node.origin.source_op})" if node.origin.source_op else ""
    finding = Diagnostic("error", where, "unsupported-op", f"{kind} {node.name!r}{source}: {why}", ON_HOST)
    return UnsupportedOp("the model holds an op that the device cannot run", [finding], [node.name])
