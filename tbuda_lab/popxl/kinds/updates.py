"""Updates of variables and accumulators."""

from __future__ import annotations

from typing import Any

import numpy as np

from tbuda_lab.core.ops import binary, unary
from tbuda_lab.popxl.kinds.table import INPLACE, Attrs, Ground, add


class _Numbers:
    """Arithmetic of the formulas below on arrays, as `_Nodes` does on nodes of a graph: one formula for both."""

    def lift(self, x: Any) -> Any:
        return x if isinstance(x, np.ndarray) else np.float32(x)

    def add(self, x: Any, y: Any) -> Any:
        return x + y

    def sub(self, x: Any, y: Any) -> Any:
        return x - y

    def mul(self, x: Any, y: Any) -> Any:
        return x * y

    def div(self, x: Any, y: Any) -> Any:
        return x / y

    def sqrt(self, x: Any) -> Any:
        return np.sqrt(x)

    def power(self, base: Any, x: Any) -> Any:
        """base^x of a number and a tensor."""
        return np.power(base, x)

    def maximum(self, x: Any, y: Any) -> Any:
        return np.maximum(x, y)

    def minimum(self, x: Any, y: Any) -> Any:
        return np.minimum(x, y)

    def absolute(self, x: Any) -> Any:
        return np.abs(x)

    def where_zero(self, x: Any, yes: Any, no: Any) -> Any:
        return np.where(x == 0, yes, no)


class _Nodes(_Numbers):
    def __init__(self, g: Ground) -> None:
        self.g = g

    def lift(self, x: Any) -> Any:
        return x if isinstance(x, str) else self.g.full((1,), float(x))

    def add(self, x: Any, y: Any) -> Any:
        return self.g.add(x, y)

    def sub(self, x: Any, y: Any) -> Any:
        return self.g.sub(x, y)

    def mul(self, x: Any, y: Any) -> Any:
        return self.g.mul(x, y)

    def div(self, x: Any, y: Any) -> Any:
        return self.g.op(binary.Divide(), self.lift(x), self.lift(y))

    def sqrt(self, x: Any) -> Any:
        return self.g.op(unary.Sqrt(), x)

    def power(self, base: Any, x: Any) -> Any:
        """base^x = e^(x ln base), of a base in (0, 1)."""
        if isinstance(base, str):
            return self.g.op(unary.Exp(), self.g.mul(x, self.g.op(unary.Log(), base)))
        return self.g.op(unary.Exp(), self.g.mul(x, float(np.log(base))))

    def maximum(self, x: Any, y: Any) -> Any:
        return self.g.op(binary.Maximum(), self.lift(x), self.lift(y))

    def minimum(self, x: Any, y: Any) -> Any:
        return self.g.op(binary.Minimum(), self.lift(x), self.lift(y))

    def absolute(self, x: Any) -> Any:
        return self.g.op(unary.Abs(), x)

    def where_zero(self, x: Any, yes: Any, no: Any) -> Any:
        zero = self.g.op(binary.Equal(), x, self.g.full((1,), 0.0))
        return self.g.op(binary.Where(), zero, self.lift(yes), no)


def _named(a: Attrs, operands: tuple[Any, ...]) -> dict[str, Any]:
    """By name of an argument its number, or the operand that it is: `inputs` has their names in order. The number of
    an array of integers is one: whole numbers times a float would be floats."""
    numbers, first = a.get("numbers", {}), operands[0]
    if isinstance(first, np.ndarray) and first.dtype.kind in "iu":
        numbers = {name: np.array(int(v)).astype(first.dtype) for name, v in numbers.items()}
    return {**numbers, **dict(zip(a["inputs"], operands, strict=True))}


def _accumulate(n: _Numbers, a: Attrs, *operands: Any) -> Any:
    """Formulas of dialects.md 2.2."""
    v = _named(a, operands)
    t, x, f = v["t"], v["X"], v.get("f")
    kind = a["mode"]
    if kind == "add":
        return n.add(t, x if f is None else n.mul(x, f))
    if kind == "square":
        square = n.mul(x, x)
        return n.add(t, square if f is None else n.mul(square, f))
    if kind == "mean":
        behind = n.add(f, 1.0)
        return n.add(n.mul(t, n.div(f, behind)), n.div(x, behind))
    part = n.mul(x, x) if kind == "moving_square" else x
    return n.add(n.mul(t, f), n.mul(part, n.sub(n.lift(1.0), f)))


def _scale(n: _Numbers, a: Attrs, *operands: Any) -> Any:
    v = _named(a, operands)
    if not isinstance(v["f"], str | np.ndarray) and v["f"] == 0:  # also of what is no number
        return n.sub(v["t"], v["t"]) if not isinstance(n, _Nodes) else n.g.full(n.g.shape(v["t"]), 0.0)
    return n.mul(v["t"], v["f"])


def _updater(n: _Numbers, a: Attrs, *operands: Any) -> Any:
    """adam: m' / (sqrt(v') + eps), with bias correction where there is a time step; adamax: m' / max(v, eps).
    Weight decay adds its part of the weight. The time step is one larger after it."""
    v = _named(a, operands)
    first, second, step = v["m"], v["v"], v.get("time_step")
    after = None if step is None else n.add(step, 1.0)
    if a["mode"] == "adamax":
        first = n.div(first, n.sub(n.lift(1.0), n.power(v["beta1"], after)))
        result = n.div(first, n.add(second, v["epsilon"]))
    else:
        if after is not None:
            first = n.div(first, n.sub(n.lift(1.0), n.power(v["beta1"], after)))
            second = n.div(second, n.sub(n.lift(1.0), n.power(v["beta2"], after)))
        result = n.div(first, n.add(n.sqrt(second), v["epsilon"]))
    if v.get("weight_decay") is not None:
        result = n.add(result, n.mul(v["weight"], v["weight_decay"]))
    return result if after is None else (result, after)


def _var_update(n: _Numbers, a: Attrs, *operands: Any) -> Any:
    """w - lr * phi(|w|) / |x| * x, of squared norms r1 and r2; the ratio is 1 where one of them is 0."""
    v = _named(a, operands)
    top = n.sqrt(v["r1"])
    if v.get("max_weight_norm") is not None:
        top = n.minimum(top, v["max_weight_norm"])
    bottom = n.sqrt(v["r2"])
    ratio = n.where_zero(v["r1"], 1.0, n.where_zero(v["r2"], 1.0, n.div(top, bottom)))
    rate = v.get("learning_rate")
    part = n.mul(v["x"], ratio)
    return n.sub(v["t"], part if rate is None else n.mul(part, rate))


def _sparse(a: Attrs, *operands: np.ndarray) -> np.ndarray:
    v = _named(a, operands)
    t, x, indices = np.array(v["t"]), v["X"], v["indices"].astype(np.int64).reshape(-1)
    axis = a["axis"]
    rows = np.moveaxis(t, axis, 0)
    parts = np.moveaxis(x, axis, 0).reshape(len(indices), *rows.shape[1:])
    factor = v.get("f")
    np.add.at(rows, indices, parts if factor is None else (parts * factor).astype(t.dtype))
    return t


def _add(name: str, formula: Any) -> None:
    def numpy(a: Attrs, *xs: np.ndarray) -> Any:
        made = formula(_Numbers(), a, *xs)
        if isinstance(made, tuple):
            return tuple(np.asarray(m) for m in made)
        return np.asarray(made)

    add(name, numpy=numpy, grid=lambda g, a, *xs: formula(_Nodes(g), a, *xs))


_add("AccumulateUpdate", _accumulate)
_add("AccumulatorScaleUpdate", _scale)
_add("AdamUpdater", _updater)
_add("AdamVarUpdateValue", _var_update)
add("CopyUpdate", numpy=lambda a, t, x: np.array(x), grid=lambda g, a, t, x: g.op(unary.Nop(), x))
add("SparseAccumulateUpdate", numpy=_sparse, host_reason="integer index")

INPLACE |= {
    "Accumulate": "AccumulateUpdate",
    "AccumulatorScale": "AccumulatorScaleUpdate",
    "AdamVarUpdate": "AdamVarUpdateValue",
    "CopyVarUpdate": "CopyUpdate",
    "PopartSparseAccumulate": "SparseAccumulateUpdate",
}
