"""Two tensors against each other the way PyBuda judges them, and a run against the model itself: correlation and
relative error, both of them, and both reported."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tbuda_lab.core import frontend, passes
from tbuda_lab.core.files import atomic_file, file_stem, make_folder
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.frontend.pybuda import to_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.phases import ROLE
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session.op_checks import check_ops
from tbuda_lab.core.verification import compare
from tbuda_lab.pybuda.compiler_config import warn_once

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
    want, got = trim(want), trim(got)
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


def trim(tensor: torch.Tensor) -> torch.Tensor:
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


_RUN = "the netlist that is run is checked by every rule of the format, always"
_FRAMEWORK = "a PyTorch module's outputs are compared with torch's own, always"
NO_EFFECT: dict[str, str] = {
    "run_golden": "there is one executor, and devtype selects its numerics",
    "run_net2pipe": _RUN,
    "verify_tvm_compile": _FRAMEWORK,
    "verify_pipeline_result_vs_framework": _FRAMEWORK,
    "verify_pybuda_codegen_vs_framework": _FRAMEWORK,
    "verify_post_autograd_passes": "verify_each_buda_pass compares after every pass",
    "verify_post_placer": "placement changes no numbers; the netlist is run",
    "sequential": "everything runs in the calling thread",
    "skip_shutdown": "devices stay usable after a verification",
}
"""Fields of a VerifyConfig that change nothing, and why; setting one to anything but its default says so once."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    """One tensor. pcc: correlation (None for a single element); relative: largest difference over the largest wanted
    magnitude; allowed: how large it may be; reason: what fails, "" where it passes."""

    name: str
    pcc: float | None
    relative: float
    allowed: float
    reason: str

    def __str__(self) -> str:
        shown = "n/a" if self.pcc is None else f"{self.pcc:.6f}"
        text = f"{self.name}: correlation {shown}, relative error {self.relative:.6f} of {self.allowed:.6f}"
        return f"{text}: {self.reason}" if self.reason else text


def judge(name: str, golden: Any, calculated: Any, cfg: Any) -> Verdict:
    """Whether `calculated` is `golden` by correlation (`cfg.pcc`) and by error (`cfg.rtol`, `cfg.atol`, or
    `cfg.relative_atol` of the largest magnitude). Truth values must be equal. With `cfg.golden_compare_callback` this
    function of both tensors judges in the place of the error. Padding behind the golden shape is cut off."""
    want, got = trim(to_torch(golden).detach()), trim(to_torch(calculated).detach())
    if got.shape != want.shape and got.dim() == want.dim():
        got = got[tuple(slice(0, n) for n in want.shape)]
    if got.shape != want.shape:
        return Verdict(name, None, float("inf"), 0.0, f"shape {tuple(got.shape)}, {tuple(want.shape)} expected")
    if want.dtype == torch.bool:
        wrong = int((want != got.bool()).sum())
        return Verdict(name, None, float(wrong > 0), 0.0, f"{wrong} truth values differ" if wrong else "")
    dtype = want.dtype
    want, got = want.float(), got.float()
    scale = float(want.abs().max()) if want.numel() else 0.0
    rtol = setting(None, cfg, "rtol", dtype, 0.0)
    atol = setting(None, cfg, "atol", dtype, setting(None, cfg, "relative_atol", dtype, 0.1) * scale)
    close = min(rtol, atol) >= 0 and bool(torch.allclose(want, got, rtol=rtol, atol=atol, equal_nan=True))
    callback = getattr(cfg, "golden_compare_callback", None)
    if callback is not None:
        close = bool(callback(want, got))
    measured = compare(name, want.numpy(), got.numpy())
    relative = measured.max_abs / scale if scale else measured.max_abs
    pcc = measured.pcc if want.numel() > 1 else None
    least = setting(None, cfg, "pcc", dtype, 0.99)
    faults = []
    if pcc is not None and pcc < least:
        faults.append(f"correlation below {least:g}")
    if not close:
        faults.append("golden_compare_callback says no" if callback is not None else "the error is too large")
    return Verdict(name, pcc, relative, atol / scale if scale else atol, " and ".join(faults))


def require(verdicts: Sequence[Verdict]) -> None:
    """Log every verdict. Raises `AssertionError` that names each that fails with both measures."""
    for verdict in verdicts:
        LOG.log(logging.ERROR if verdict.reason else logging.INFO, "%s", verdict)
    failed = [str(v) for v in verdicts if v.reason]
    if failed:
        raise AssertionError("data mismatch: " + "; ".join(failed))


def judge_outputs(modules: Sequence[Any], sample: Any, got: Sequence[Any], number: int, cfg: Any) -> None:
    """One input's outputs against the modules themselves, in torch. Raises `AssertionError`."""
    want: Any = sample
    for module in modules:
        want = tuple(frontend.reference(module, want))
    label = f"{cfg.graph_name} input {number}"
    if len(want) != len(got):
        raise AssertionError(f"{label}: {len(got)} outputs, {len(want)} expected")
    if cfg.dump_tensors_path:
        dump(Path(cfg.dump_tensors_path), file_stem(label), want, got)
    require([judge(f"{label} output {k}", w, g, cfg) for k, (w, g) in enumerate(zip(want, got, strict=True))])


def dump(folder: Path, stem: str, golden: Sequence[Any], calculated: Sequence[Any]) -> None:
    """Write every output twice: `<stem>_output_<k>.golden.npy` and `.calculated.npy`."""
    make_folder(folder)
    for k, pair in enumerate(zip(golden, calculated, strict=True)):
        for kind, tensor in zip(("golden", "calculated"), pair, strict=True):
            with atomic_file(folder / f"{stem}_output_{k}.{kind}.npy") as path, path.open("wb") as stream:
                np.save(stream, to_torch(tensor).detach().float().numpy(), allow_pickle=False)


def judge_passes(graph: Graph, options: CompileOptions, sample: Any, cfg: Any) -> None:
    """The graph after every pass, evaluated, against the graph before all of them. Raises `AssertionError` that names
    the first pass that changes a number. In training gradients and updates are compared from the pass on that adds
    them."""
    feed = next(iter(elements(graph, frontend.feeds(graph, sample))))
    want = evaluate(graph, feed)
    generator = torch.Generator().manual_seed(2)

    def after(step: passes.Pass, report: passes.Report, now: Graph) -> None:
        for node in now.inputs:
            if node.attrs.get(ROLE) == "gradient" and node.name not in feed:
                feed[node.name] = torch.randn(node.shape, generator=generator)
        got = evaluate(now, feed)
        require(
            [
                judge(f"{cfg.graph_name} after pass {step.name}, output {k}", w, got[k].reshape(w.shape), cfg)
                for k, w in want.items()
            ]
        )
        want.update({k: value for k, value in got.items() if k not in want})  # gradients and updates, from autograd on

    passes.run(graph, options, on_pass=after)


def judge_ops(runner: Runner, sample: Any, cfg: Any) -> None:
    """Every op of the device against the lowered graph in torch. Raises `AssertionError` that names the first op whose
    correlation is below `cfg.pcc`."""
    checks = check_ops(runner, sample, cfg.pcc)
    first = checks.first_failure
    if first is not None:
        wrong = sum(not c.comparison.passes(cfg.pcc) for c in checks.ops)
        raise AssertionError(
            f"{cfg.graph_name}: op {first.op} has correlation {first.comparison.pcc:.6f} < "
            f"{cfg.pcc:g} ({wrong} of {len(checks.ops)} ops)"
        )


TRAINS_ONLY = (
    "scale_loss",
    "optimizer",
    "scheduler",
    "checkpoint_interval",
    "waive_gradient_errors",
    "enable_input_gradient_checking",
    "enable_parameter_gradient_checking",
)
"""Fields of a VerifyConfig that only a training test_kind reads."""


def warn_fields(cfg: Any) -> None:
    """Warn of every field that is not at its default and has no effect."""
    plain = type(cfg)()
    trains = cfg.test_kind.is_training() or not cfg.enabled
    idle = {} if trains else dict.fromkeys(TRAINS_ONLY, "it belongs to a training test_kind")
    for name, reason in (NO_EFFECT | idle).items():
        if getattr(cfg, name) != getattr(plain, name):
            warn_once(f"VerifyConfig.{name}", reason)
