"""A program on the simulated device against the same module run eagerly by torch."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import itertools
import math
import tempfile
import traceback
import warnings
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

import tbuda_lab as pybuda
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.random_programs.generate import Program

RELATIVE, ABSOLUTE = 1e-4, 1e-5
ROUNDING = 1e-6
"""Relative error that any op may have: what grows out of it is no difference."""
SQUARED = 1.8e19
"""Numbers beyond have squares beyond float32."""
EXACT = {
    "view",
    "reshape",
    "_reshape_copy",
    "_unsafe_view",
    "expand",
    "transpose",
    "permute",
    "slice",
    "select",
    "unsqueeze",
    "squeeze",
    "clone",
    "copy_",
    "detach",
    "alias",
    "as_strided",
    "cat",
    "stack",
    "where",
    "masked_fill",
    "relu",
    "neg",
    "abs",
    "maximum",
    "minimum",
    "clamp",
    "clamp_min",
    "clamp_max",
    "max",
    "min",
    "amax",
    "amin",
    "flip",
    "roll",
    "index",
    "gather",
    "index_select",
    "constant_pad_nd",
    "t",
    "split",
    "unbind",
    "diagonal",
    "unfold",
    "fill_",
    "zero_",
    "scatter",
    "index_put_",
    "lift_fresh",
    "zeros_like",
    "ones_like",
    "full_like",
    "full",
    "zeros",
    "ones",
    "arange",
    "empty",
    "empty_like",
    "new_empty",
    "new_zeros",
    "_to_copy",
    "round",
    "floor",
    "ceil",
    "trunc",
    "sign",
    "sort",
    "topk",
    "tril",
    "triu",
    "masked_fill_",
    "nan_to_num",
    "repeat",
    "isnan",
    "embedding",
    "hardtanh",
    "threshold",
    "copysign",
    "reflection_pad1d",
    "max_pool2d_with_indices",
    "im2col",
    "eye",
}


class Shaken(TorchDispatchMode):
    """Every inexact op of floats is off by up to `size`: what comes out otherwise depends on the rounding of ops."""

    def __init__(self, seed: int, size: float = ROUNDING) -> None:
        super().__init__()
        self.generator, self.size = torch.Generator().manual_seed(seed), size

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if str(function).split(".")[1] in EXACT:
            return out
        for t in pytree.tree_leaves(out):
            if isinstance(t, torch.Tensor) and t.is_floating_point() and t.numel():
                noise = torch.rand(t.shape, generator=self.generator, dtype=torch.float32).mul_(2).sub_(1)
                t.copy_(t * (1 + self.size * noise.to(t.dtype)))
        return out


GATED = ("silu", "gelu", "hardswish", "mish")
"""Ops that multiply their operand with a gate: with one of 0 the device makes 0 of an infinity (rule "zero times").
Of gelu(inf) torch makes NaN, but infinity of a single number, as the device does of all."""


class Rules(TorchDispatchMode):
    """torch with the device's own arithmetic (docs/numbers.md): 0 * anything is 0, so is what is divided by infinity,
    1 / 0 and log 0 are those of 2^-23, e^x ends at the largest number, means do not overflow where their sums would,
    norms square in float32, a row with NaN has its largest at 0, x / y is x times 1 / y. folded: whether a divisor of 0
    is a constant, whose inverse is folded and is torch's. lost: what a normalisation makes of rows whose squares
    are beyond float32: NaN, or 0 where that is multiplied by 0."""

    def __init__(self, lost: float = math.nan, folded: bool = False) -> None:
        super().__init__()
        self.lost, self.folded = lost, folded

    def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        name = str(function).split(".")[1].rstrip("_")
        if name == "native_layer_norm":
            dims = list(range(-len(args[1]), 0))
            far = ~(args[0].abs().amax(dims, keepdim=True) <= SQUARED)
            out[0].copy_(torch.where(far, self.lost, out[0]))
        if name in ("var", "std"):
            dims = args[1] if len(args) > 1 else None
            far = ~(args[0].abs().amax(dims if dims is not None else (), keepdim=out.dim() == args[0].dim()) <= SQUARED)
            out.copy_(torch.where(far, self.lost, out))
        if name == "native_batch_norm" and args[5]:
            channels = args[0].transpose(0, 1).flatten(1)
            far = ~(channels.abs().amax(1) <= SQUARED).reshape(1, -1, *[1] * (args[0].dim() - 2))
            out[0].copy_(torch.where(far, self.lost, out[0]))
        if name == "native_group_norm":
            groups = args[0].reshape(args[0].shape[0], args[6], -1)
            far = ~(groups.abs().amax(-1, keepdim=True) <= SQUARED)
            out[0].copy_(torch.where(far, self.lost, out[0].reshape(groups.shape)).reshape(out[0].shape))
        if name in ("argmax", "argmin") and len(args) > 1 and args[1] is not None:
            bad = args[0].isnan().any(args[1], keepdim=len(args) > 2 and bool(args[2]))
            out.copy_(torch.where(bad, 0, out))
        if not isinstance(out, torch.Tensor) or not out.is_floating_point():
            return out
        eps = 2.0**-23
        if name in ("mul", "addcmul"):
            zero = torch.zeros_like(out, dtype=torch.bool)
            for a in args[-2:]:
                zero = zero | (torch.as_tensor(a) == 0)
            out.copy_(torch.where(zero, args[0] if name == "addcmul" else 0.0, out))
        elif name in GATED:
            out.copy_(torch.where(out.isnan() & ~args[0].isnan(), args[0].clamp(min=0.0), out))
        elif name in ("div", "reciprocal") and not (kwargs or {}).get("rounding_mode"):
            a, b = (1.0, args[0]) if name == "reciprocal" else args[:2]
            if str(function).split(".")[1] == "div":
                out.copy_(torch.where(torch.as_tensor(b) == 0, out, torch.as_tensor(a) * (1.0 / torch.as_tensor(b))))
            if not (self.folded and torch.as_tensor(b).dim() == 0):
                out.copy_(torch.where(torch.as_tensor(b) == 0, torch.as_tensor(a) / eps, out))
            out.copy_(torch.where(torch.as_tensor(b).isinf(), 0.0, out))
        elif name == "linalg_vector_norm" and out.isfinite().any():
            dims, keep = (args[2], args[3] if len(args) > 3 else False) if len(args) > 2 else (None, False)
            out.copy_((args[0] * args[0]).sum(dims, keep).sqrt())
        elif name == "mean" and out.isinf().any():
            wide = function(args[0].double(), *args[1:], **(kwargs or {}))
            out.copy_(wide.to(out.dtype))
        elif name in ("exp", "expm1"):
            out.clamp_(max=torch.finfo(torch.float32).max)
        elif name == "log":
            out.masked_fill_(out == -torch.inf, float(torch.log(torch.tensor(eps))))
        return out


@dataclasses.dataclass(frozen=True)
class Verdict:
    """what: "same" | "rule" (the device's own arithmetic) | "refused" (a typed error) | "differs" | "raw"."""

    seed: int
    mode: str
    what: str
    text: str = ""


def mode_of(program: Program) -> str:
    if program.trains:
        return "training"
    return ("session", "session", "device", "device", "bf16")[program.seed % 5]


def flat(outputs: Any) -> list[torch.Tensor]:
    return [t for t in pytree.tree_leaves(outputs) if isinstance(t, torch.Tensor)]


def eager(program: Program, inputs: tuple[torch.Tensor, ...], way: Any = None) -> list[torch.Tensor]:
    module = program.module()
    with torch.no_grad(), way or torch.no_grad():
        return [t.detach().clone() for t in flat(module(*copy.deepcopy(inputs)))]


def on_device(program: Program, inputs: tuple[torch.Tensor, ...], mode: str) -> list[torch.Tensor]:
    df = DataFormat.Float16_b if mode == "bf16" else DataFormat.Float32
    module = program.module()
    if mode == "device":
        pybuda.pybuda_reset()
        pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float32)
        pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("m", module), arch=pybuda.BackendDevice.Wormhole_B0)
        with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):  # where it leaves its netlist
            return [v.value() for v in pybuda.run_inference(inputs=[inputs]).get()]
    device = "grayskull" if program.seed % 3 == 0 else "wormhole_b0"
    session = Session(module, inputs, device=device, options=CompileOptions(default_df_override=df), cache=False)
    return session.run()[0]


def wrong(got: list[torch.Tensor], want: list[torch.Tensor], slack: list[torch.Tensor], loose: bool) -> str:
    """What is not torch's; "" if nothing. slack: what each element may be off; NaN where anything is right."""
    if len(got) != len(want):
        return f"{len(got)} outputs, torch has {len(want)}"
    for k, (g, w, free) in enumerate(zip(got, want, slack, strict=True)):
        if g.shape != w.shape:
            return f"output {k} has shape {tuple(g.shape)}, torch's {tuple(w.shape)}"
        if g.dtype != w.dtype and not (g.is_floating_point() and w.is_floating_point()):
            return f"output {k} is {g.dtype}, torch's {w.dtype}"
        a, b = g.to(w.dtype).double(), w.double()
        exact = not w.is_floating_point()
        largest = float(b[b.isfinite()].abs().max()) if b.isfinite().any() else 1.0
        relative, absolute = (6e-2, 6e-2 * largest) if loose else (RELATIVE, ABSOLUTE)
        near = (a - b).abs() <= free + (0.0 if exact else absolute + relative * b.abs())
        same = (a == b) | (a.isnan() & b.isnan()) | (near & b.isfinite()) | free.isnan()
        if not bool(same.all()):
            at = int((~same).flatten().nonzero()[0])
            return (
                f"output {k}: {int((~same).sum())} of {same.numel()} differ; first at {at}: "
                f"ours {g.flatten()[at].item()!r}, torch {w.flatten()[at].item()!r}"
            )
    return ""


def shaken_inputs(inputs: tuple[torch.Tensor, ...], seed: int, size: float) -> tuple[torch.Tensor, ...]:
    """Inputs that the format has rounded."""
    generator = torch.Generator().manual_seed(seed)

    def shaken(x: torch.Tensor) -> torch.Tensor:
        noise = torch.rand(x.shape, generator=generator, dtype=torch.float32).mul_(2).sub_(1)
        return x * (1 + size * noise.to(x.dtype)) if x.is_floating_point() else x

    return tuple(map(shaken, inputs))


def freedom(
    program: Program, inputs: tuple[torch.Tensor, ...], want: list[torch.Tensor], size: float
) -> list[torch.Tensor]:
    """How far each element may be off, for the rounding of the ops before it, and of the inputs where the format is
    narrower than theirs; NaN where that decides what it is."""
    free = [torch.zeros(w.shape, dtype=torch.float64) for w in want]
    narrow = size > ROUNDING
    for seed in range(1, 13 if narrow else 5):
        given = shaken_inputs(inputs, seed, size) if narrow else inputs
        for f, w, o in zip(free, want, eager(program, given, Shaken(seed, size)), strict=True):
            apart = (o.double() - w.double()).abs()
            same_kind = (o.isnan() == w.isnan()) & (o.isinf() == w.isinf())
            apart = torch.where((o == w) | (o.isnan() & w.isnan()), 0.0, apart)
            if not w.is_floating_point():
                apart = torch.where(apart > 0, torch.nan, 0.0)
            f.copy_(torch.where(same_kind, torch.maximum(f, 20 * apart), torch.nan))
    return free


def judge(program: Program) -> Verdict:
    mode = mode_of(program)
    inputs = program.sample()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if mode == "training":
            from tests.random_programs.training import judge_training

            return judge_training(program)
        want = eager(program, inputs)
        try:
            got = on_device(program, copy.deepcopy(inputs), mode)
        except TbudaError as error:
            return Verdict(program.seed, mode, "refused", f"{type(error).__name__}: {error}")
        except Exception:
            return Verdict(program.seed, mode, "raw", traceback.format_exc(limit=-6))
        loose = mode == "bf16"
        if not wrong(got, want, [torch.zeros(w.shape, dtype=torch.float64) for w in want], loose):
            return Verdict(program.seed, mode, "same")
        free = freedom(program, inputs, want, 4e-3 if loose else ROUNDING)
        text = wrong(got, want, free, loose)
        if not text:
            return Verdict(program.seed, mode, "same")
        ways = itertools.product((math.nan, 0.0), (False, True))
        if any(not wrong(got, eager(program, inputs, Rules(*way)), free, loose) for way in ways):
            return Verdict(program.seed, mode, "rule", text)
        return Verdict(program.seed, mode, "differs", text)
