"""Powers: x ** y in the forms that the device has, exact where it can be, else as e^(y ln x)."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch

from tbuda_lab.core.frontend.aten.call import Call, Result, maps
from tbuda_lab.core.frontend.aten.eltwise import times
from tbuda_lab.core.frontend.aten.host import host_call
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.ops import (
    Abs,
    Add,
    BroadcastTo,
    Cast,
    Clip,
    Divide,
    Exp,
    Maximum,
    Minimum,
    Multiply,
    Pow,
    Power,
    Reciprocal,
    ReduceAvg,
    ReduceMax,
    ReduceSum,
    Relu,
    Sigmoid,
    Softmax,
    Sqrt,
)
from tbuda_lab.core.ops.tm import MOVES


def power_of(c: Call, x: str, exponent: float) -> str:
    """x ** exponent with a known exponent, in the cheapest exact form."""
    if exponent == 1:
        return x
    if c.counts() and float(exponent).is_integer() and 0 < exponent <= 16:
        return functools.reduce(lambda a, b: c.op(Multiply(), a, b), [x] * int(exponent))
    if exponent == 2:
        return c.op(Multiply(), x, x)
    if exponent in (0.5, -0.5):
        root = c.op(Sqrt(), x)
        return root if exponent > 0 else c.op(Reciprocal(), root)
    if exponent < 0 and float(exponent).is_integer():
        return c.op(Reciprocal(), power_of(c, x, -exponent))
    return c.op(Pow(float(exponent)), x)


@maps("aten.pow")
def power(c: Call) -> Result:
    base, exponent = c.arguments["self"], c.arguments["exponent"]
    if isinstance(exponent, int | float):
        return power_of(c, c.node_of(base), exponent)
    if isinstance(base, int | float):
        if base <= 0:
            return host_call(c)
        return c.op(Exp(), times(c, c.node_of(exponent), math.log(base)))
    known = c.folded_value("exponent")
    if known is not None and (y := _whole_powers(c, c.node_of(base), known)) is not None:
        return y
    if known is None and not _never_negative(c.emit.graph, c.node_of(base)):
        return host_call(c)  # the device's power takes the logarithm of its base
    return c.op(Power(), c.node_of(base), c.node_of(exponent))


NEVER_NEGATIVE = (Abs, Exp, Sigmoid, Softmax, Sqrt)
"""Ops that give no number below 0."""
KEEP_SIGNS = (*MOVES, ReduceAvg, ReduceMax, ReduceSum, Add, Multiply, Divide, Reciprocal, Minimum, Pow)
"""Ops of which no result is below 0 where no operand is."""


def _never_negative(graph: Graph, name: str) -> bool:
    """Whether what a value holds is never below 0, by the ops that make it."""
    known: dict[str, bool] = {}
    pending = [name]
    while pending:
        node: Node = graph[pending[-1]]
        missing = [s for s in node.sources if s not in known] if node.kind is NodeKind.OP else []
        if missing:
            pending += missing
            continue
        known[pending.pop()] = _gives_none_below_0(node, [known[s] for s in node.sources])
    return known[name]


def _gives_none_below_0(node: Node, of_operands: Sequence[bool]) -> bool:
    """of_operands: the same of what it reads."""
    op: Any = node.op
    if node.kind is not NodeKind.OP:
        return node.kind is NodeKind.CONSTANT and node.value is not None and bool((node.value >= 0).all())
    if isinstance(op, NEVER_NEGATIVE) or (isinstance(op, Multiply) and len(set(node.sources)) == 1):
        return True
    if isinstance(op, Relu):
        return op.threshold >= 0
    if isinstance(op, Clip):
        return op.min is not None and op.min >= 0
    if isinstance(op, Power):
        return of_operands[0]
    if isinstance(op, Cast):  # a cast to whole numbers may wrap
        return of_operands[0] and op.dtype.startswith(("float", "bfloat", "uint"))
    return any(of_operands) if isinstance(op, Maximum) else isinstance(op, KEEP_SIGNS) and all(of_operands)


def _whole_powers(c: Call, x: str, exponents: torch.Tensor) -> str | None:
    """x to known whole exponents from 0 to 16: each of the few powers where it is meant. The device's own power with a
    tensor of exponents takes the logarithm of x, which must be positive for that; None leaves it to that."""
    distinct = sorted({float(e) for e in exponents.flatten().tolist()})
    if len(distinct) > 8 or any(e not in range(17) for e in distinct):
        return None
    if len(distinct) == 1 and distinct[0] > 0:  # whole numbers stay what they are
        y = power_of(c, x, int(distinct[0]))
        return y if c.shape(y) == c.out_shape else c.op(BroadcastTo(c.out_shape), y)
    terms = []
    for e in distinct:
        meant = c.constant((exponents == e).to(c.out.dtype if c.counts() else torch.float32))
        terms.append(meant if e == 0 else c.op(Multiply(), power_of(c, x, e), meant))
    y = functools.reduce(lambda a, b: c.op(Add(), a, b), terms)
    return y if c.shape(y) == c.out_shape else c.op(BroadcastTo(c.out_shape), y)
