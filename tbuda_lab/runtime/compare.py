"""Two tensors against each other, the way PyBuda judges them; measured by `core.verification`, as everywhere else."""

from __future__ import annotations

import logging
from typing import Any

import torch

from tbuda_lab.core.frontend.pybuda import to_torch
from tbuda_lab.core.verification import compare

LOG = logging.getLogger("tbuda_lab.pybuda.verify")


def calculate_pcc(a: Any, b: Any) -> float:
    """Pearson's correlation of all elements (see `core.verification.compare`)."""
    return compare("pcc", to_torch(a).detach().float().numpy(), to_torch(b).detach().float().numpy()).pcc


def compare_tensor_to_golden(
    name: str,
    golden: Any,
    calculated: Any,
    is_buda: bool = False,
    rtol: float | None = None,
    atol: float | None = None,
    pcc: float | None = None,
    warning_only: bool = False,
    relative_atol: float | None = None,
    verify_cfg: Any = None,
) -> bool:
    """Whether `calculated` is `golden` by either of two measures: all elements close, or correlation >= pcc.

    atol defaults to relative_atol (0.1) times the largest magnitude of golden, rtol to 0, pcc to 0.99; `verify_cfg`
    gives defaults. Leading dims of size 1 do not count; `is_buda` cuts padding off; truth values must be equal. A
    mismatch is logged with both measures. `verify_cfg.golden_compare_callback` must agree with the first measure.
    """
    want, got = to_torch(golden).detach(), to_torch(calculated).detach()
    rtol = setting(rtol, verify_cfg, "rtol", want.dtype, 0.0)
    pcc = setting(pcc, verify_cfg, "pcc", want.dtype, 0.99)
    relative = setting(relative_atol, verify_cfg, "relative_atol", want.dtype, 0.1)
    want, got = trimmed(want), trimmed(got)
    if is_buda and got.shape != want.shape and got.dim() == want.dim():
        got = got[tuple(slice(0, n) for n in want.shape)]
    if got.shape != want.shape:
        LOG.error("%s: shape %s against %s", name, tuple(got.shape), tuple(want.shape))
        return False
    if want.dtype == torch.bool:
        return bool(torch.equal(want, got.bool()))
    want, got = want.float(), got.float()
    tolerance = setting(
        atol, verify_cfg, "atol", want.dtype, relative * float(want.abs().max()) if want.numel() else 0.0
    )
    close = bool(torch.allclose(want, got, rtol=rtol, atol=tolerance, equal_nan=True))
    callback = getattr(verify_cfg, "golden_compare_callback", None)
    if callback is not None:
        close = close and bool(callback(want, got))
    measured = compare(name, want.numpy(), got.numpy())
    correlation = measured.pcc if want.numel() > 1 else 0.0
    passed = close or correlation >= pcc
    if not passed:
        level = logging.WARNING if warning_only else logging.ERROR
        text = "%s: correlation %.6f < %g, largest difference %g > %g"
        LOG.log(level, text, name, correlation, pcc, measured.max_abs, tolerance)
    return passed


def trimmed(tensor: torch.Tensor) -> torch.Tensor:
    """Without leading dims of size 1."""
    while tensor.dim() > 1 and tensor.shape[0] == 1:
        tensor = tensor[0]
    return tensor


def setting(explicit: float | None, verify_cfg: Any, name: str, dtype: torch.dtype, default: float) -> float:
    """What was given, else the field of `verify_cfg` (a number, or one per dtype), else the default."""
    if explicit is not None:
        return explicit
    value = getattr(verify_cfg, name, None)
    if isinstance(value, dict):
        value = value.get(dtype)
    return default if value is None else float(value)
