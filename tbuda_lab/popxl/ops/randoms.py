"""Random numbers of a seed tensor: two uint32."""

from __future__ import annotations

from collections.abc import Sequence

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.ops.utils import need_tensor, one
from tbuda_lab.popxl.tensor import Tensor, constant
from tbuda_lab.popxl.utils import checked_shape


def _seed(name: str, t: Tensor) -> None:
    need_tensor(name, t)
    if t.dtype is not dtypes.uint32 or t.shape != (2,):
        raise popart_exception(f"{name} is uint32 of shape (2,), not {t.dtype} of shape {t.shape}")


def _ratio(p: float) -> float:
    if not 0 <= p < 1:
        raise ValueError(f"the ratio of a dropout is in [0, 1), not {p}")
    return float(p)


def _floats(data_type: dtype) -> dtype:
    form = dtype.as_dtype(data_type)
    if not form.is_floating_point or form.is_float8:
        raise ValueError(f"random numbers are float16, float32 or float64, not {form}: cast them")
    return form


def random_normal(
    seed_tensor: Tensor, shape: Sequence[int], mean: float = 0.0, std: float = 1.0, dtype: dtype = dtypes.float32
) -> Tensor:
    """Normal numbers. Equal seeds give equal ones."""
    _seed("seed_tensor", seed_tensor)
    sizes, form = checked_shape(shape, "random numbers"), _floats(dtype)
    attrs = {"shape": sizes, "mean": float(mean), "std": float(std), "dtype": form.name}
    return one("RandomNormal", {"seed_tensor": seed_tensor}, sizes, form, attrs)


def random_uniform(
    seed_tensor: Tensor, shape: Sequence[int], low: float = 0.0, high: float = 1.0, dtype: dtype = dtypes.float32
) -> Tensor:
    """Numbers between low and high. Equal seeds give equal ones."""
    _seed("seed_tensor", seed_tensor)
    sizes, form = checked_shape(shape, "random numbers"), _floats(dtype)
    attrs = {"shape": sizes, "low": float(low), "high": float(high), "dtype": form.name}
    return one("RandomUniform", {"seed_tensor": seed_tensor}, sizes, form, attrs)


def dropout(t: Tensor, seed_tensor: Tensor, p: float) -> Tensor:
    """Zeros with probability p, the rest over 1 - p."""
    need_tensor("t", t)
    _seed("seed_tensor", seed_tensor)
    attrs = {"ratio": _ratio(p)}
    inputs = {"t": t, "seed_tensor": seed_tensor}
    return one("Dropout", inputs, t.shape, t.dtype, attrs)


def shaped_dropout(t: Tensor, seed_tensor: Tensor, shape: Sequence[int], ratio: float) -> Tensor:
    """A dropout whose mask has another shape, which broadcasts to that of t."""
    need_tensor("t", t)
    _seed("seed_tensor", seed_tensor)
    sizes = checked_shape(shape, "shaped_dropout")
    if len(sizes) > t.rank or any(a not in (1, b) for a, b in zip(reversed(sizes), reversed(t.shape), strict=False)):
        raise popart_exception(f"shaped_dropout: a mask of shape {sizes} does not broadcast to {t.shape}")
    inputs = {"t": t, "seed_tensor": seed_tensor}
    return one("ShapedDropout", inputs, t.shape, t.dtype, {"shape": sizes, "ratio": _ratio(ratio)})


def create_random_seed(seed: Tensor, modifier: int | Tensor) -> Tensor:
    """A seed made of another one and a number."""
    _seed("seed", seed)
    number = modifier if isinstance(modifier, Tensor) else constant(modifier, dtypes.uint32)
    return one("ModifyRandomSeed", {"seed": seed, "modifier": number}, (2,), dtypes.uint32)


def split_random_seed(seed: Tensor, n: int = 2) -> tuple[Tensor, ...]:
    """n seeds made of one."""
    _seed("seed", seed)
    return tuple(create_random_seed(seed, k) for k in range(n))
