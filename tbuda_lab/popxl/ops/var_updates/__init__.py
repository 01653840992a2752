"""Updates of variables and accumulators, written over their first operand."""

from __future__ import annotations

from typing import Any

from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.ops import faults
from tbuda_lab.popxl.ops.utils import checked_axis, make, need_tensor, one
from tbuda_lab.popxl.tensor import Tensor

Factor = float | Tensor | None


def _attrs(
    tensors: dict[str, Any], numbers: dict[str, Factor], **more: Any
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The operands of an op, and its attributes with the names of the operands in order and the numbers."""
    inputs = {name: t for name, t in tensors.items() if t is not None}
    for name, t in inputs.items():
        need_tensor(name, t)
    inputs |= {name: v for name, v in numbers.items() if isinstance(v, Tensor)}
    plain = {name: float(v) for name, v in numbers.items() if v is not None and not isinstance(v, Tensor)}
    return inputs, {**more, "numbers": plain, "inputs": list(inputs)}


def handle_optimizer_value(f: Factor, ins: dict[int, Tensor], index: int) -> float | None:
    """A factor as a number; a tensor goes to the operands at `index`, and the number is None."""
    if isinstance(f, Tensor):
        ins[index] = f
        return None
    return None if f is None else float(f)


def _updated(kind: str, t: Tensor, x: Any, factor: Factor, mode: str) -> Tensor:
    inputs, attrs = _attrs({"t": t, "X": x}, {"f": factor}, mode=mode)
    if x.shape != t.shape:
        raise popart_exception(f"{kind}: {t.id!r} has shape {t.shape}, and what is added {x.shape}")
    return one("Accumulate", inputs, t.shape, t.dtype, attrs, modifies=(0,))


def accumulate_(t: Tensor, X: Tensor, f: Factor = None) -> Tensor:
    """t += f X."""
    return _updated("accumulate_", t, X, f, "add")


def accumulate_square_(t: Tensor, X: Tensor, f: Factor = 1.0) -> Tensor:
    """t += f X^2."""
    return _updated("accumulate_square_", t, X, f, "square")


def accumulate_mean_(t: Tensor, X: Tensor, step: Factor) -> Tensor:
    """t = t step / (step + 1) + X / (step + 1)."""
    return _updated("accumulate_mean_", t, X, step, "mean")


def accumulate_moving_average_(t: Tensor, X: Tensor, f: Factor) -> Tensor:
    """t = f t + (1 - f) X."""
    return _updated("accumulate_moving_average_", t, X, f, "moving")


def accumulate_moving_average_square_(t: Tensor, X: Tensor, f: Factor) -> Tensor:
    """t = f t + (1 - f) X^2."""
    return _updated("accumulate_moving_average_square_", t, X, f, "moving_square")


def accumulator_scale_(t: Tensor, f: Factor) -> Tensor:
    """t *= f."""
    inputs, attrs = _attrs({"t": t}, {"f": f})
    return one("AccumulatorScale", inputs, t.shape, t.dtype, attrs, modifies=(0,))


def accumulator_zero_(t: Tensor) -> Tensor:
    """t = 0."""
    return accumulator_scale_(t, 0.0)


def sparse_accumulate_(
    t: Tensor, X: Tensor, indices: Tensor, axis: int = 0, f: Factor = None, W: Tensor | None = None
) -> Tensor:
    """t[indices] += f X along an axis. W says how t is laid out, and changes nothing."""
    inputs, attrs = _attrs({"t": t, "X": X, "indices": indices, "W": W}, {"f": f})
    if not indices.dtype.is_int:
        raise popart_exception(f"sparse_accumulate_: indices are integers, not {indices.dtype}")
    own = axis if t.rank <= axis else checked_axis(t, axis, "sparse_accumulate_")
    return one("PopartSparseAccumulate", inputs, t.shape, t.dtype, {**attrs, "axis": own}, modifies=(0,))


def copy_var_update_(t: Tensor, X: Tensor) -> Tensor:
    """t = X."""
    need_tensor("t", t)
    need_tensor("X", X)
    if t.shape != X.shape or t.dtype is not X.dtype:
        raise popart_exception(f"copy_var_update_: {t.id!r} is {t.dtype} {t.shape}, {X.id!r} is {X.dtype} {X.shape}")
    return one("CopyVarUpdate", {"t": t, "X": X}, t.shape, t.dtype, {}, modifies=(0,))


def weight_decay_is_required(weight_decay: Factor) -> bool:
    """Whether there is any: a tensor, or a number other than 0."""
    return isinstance(weight_decay, Tensor) or (weight_decay is not None and weight_decay != 0)


def create_adamupdater(
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    ins: Any,
    mode: str,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Factor = None,
    beta1: Factor = None,
    beta2: Factor = None,
    epsilon: Factor = 1e-07,
) -> Tensor:
    """The update of an optimizer of Adam's family from its two accumulators."""
    decays = weight_decay_is_required(weight_decay)
    _decay(weight, weight_decay)
    tensors = {
        "m": acc_first_order,
        "v": acc_second_order,
        "weight": weight if decays else None,
        "time_step": time_step,
    }
    numbers = {"weight_decay": weight_decay if decays else None, "beta1": beta1, "beta2": beta2, "epsilon": epsilon}
    inputs, attrs = _attrs(tensors, numbers, mode=mode)
    if acc_first_order.shape != acc_second_order.shape:
        raise popart_exception(
            f"the accumulators have one shape, not {acc_first_order.shape} and {acc_second_order.shape}"
        )
    shape = weight.shape if weight is not None else acc_first_order.shape
    modifies = (attrs["inputs"].index("time_step"),) if time_step is not None else ()
    return make("AdamUpdater", inputs, [(shape, acc_first_order.dtype)], attrs, modifies=modifies).outputs[0]


def adam_updater(
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Factor = None,
    beta1: Factor = None,
    beta2: Factor = None,
    epsilon: Factor = 1e-07,
) -> Tensor:
    """m' / (sqrt(v') + epsilon), with bias correction where there is a time step, which then counts on."""
    _decay(weight, weight_decay)
    _bias(time_step, beta1, beta2)
    return create_adamupdater(
        acc_first_order, acc_second_order, {}, "adam", weight, time_step, weight_decay, beta1, beta2, epsilon
    )


def lamb_updater(
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Factor = None,
    beta1: Factor = None,
    beta2: Factor = None,
    epsilon: Factor = 1e-07,
) -> Tensor:
    """As `adam_updater`: what `adam_var_update` scales by the norms."""
    _decay(weight, weight_decay)
    _bias(time_step, beta1, beta2)
    return create_adamupdater(
        acc_first_order, acc_second_order, {}, "lamb", weight, time_step, weight_decay, beta1, beta2, epsilon
    )


def _decay(weight: Tensor | None, weight_decay: Factor) -> None:
    if weight_decay_is_required(weight_decay) and weight is None:
        raise ValueError("Weight decay requires weight to not be None.")


def _bias(time_step: Tensor | None, beta1: Factor, beta2: Factor) -> None:
    if time_step is not None and (beta1 is None or beta2 is None):
        raise ValueError("Bias correction requires both beta1 and beta2 to not be None.")


def adamax_updater(
    acc_first_order: Tensor,
    acc_second_order: Tensor,
    weight: Tensor | None = None,
    time_step: Tensor | None = None,
    weight_decay: Factor = None,
    beta1: Factor = 0.9,
    epsilon: Factor = 1e-07,
) -> Tensor:
    """m' / (v + epsilon) of the largest gradients v. Raises `ValueError` without a time step."""
    if time_step is None:
        raise ValueError("AdaMax requires time_step to not be None.")
    return create_adamupdater(
        acc_first_order, acc_second_order, {}, "adamax", weight, time_step, weight_decay, beta1, None, epsilon
    )


def adam_var_update(
    t: Tensor, x: Tensor, r1: Tensor, r2: Tensor, learning_rate: Factor = None, max_weight_norm: Factor = None
) -> Tensor:
    """t -= learning_rate |t| / |x| x, of the squared norms r1 and r2. Raises `ValueError` with neither a learning rate
    nor a largest norm."""
    if learning_rate is None and max_weight_norm is None:
        raise ValueError("adam_var_update takes learning_rate or max_weight_norm")
    numbers = {"learning_rate": learning_rate, "max_weight_norm": max_weight_norm}
    inputs, attrs = _attrs({"t": t, "x": x, "r1": r1, "r2": r2}, numbers)
    return one("AdamVarUpdate", inputs, t.shape, t.dtype, attrs, modifies=(0,))


faults.tell_where(globals())
