"""The cheapest formats that hold an accuracy: op errors are measured, changes ranked by error per cycle saved, and the
longest part of that ranking that holds is found by compiling and running."""

from __future__ import annotations

import dataclasses
import re
import threading
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import Clock, CompileResult
from tbuda_lab.core.errors import Cancelled, InputError
from tbuda_lab.core.formats import DataFormat, MathFidelity, round_to
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.graph import Node, NodeKind
from tbuda_lab.core.lowering.data_formats import legal_formats
from tbuda_lab.core.lowering.evaluate import evaluate_ops
from tbuda_lab.core.lowering.hw_ops import HwMatmul
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import PrecisionRule
from tbuda_lab.core.runner import Runner, fill_microbatch, refuse_without_weights
from tbuda_lab.core.session.commands import SetOptions
from tbuda_lab.core.session.op_checks import lowered_inputs
from tbuda_lab.core.verification import compare

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session
    from tbuda_lab.core.session.state import SessionState

PASSES = {MathFidelity.LoFi: 1, MathFidelity.HiFi2: 2, MathFidelity.HiFi3: 3, MathFidelity.HiFi4: 4}
"""Passes of the multiplier."""
FIDELITY_ERROR = {MathFidelity.HiFi2: 2.0**-14, MathFidelity.LoFi: 2.0**-10}
"""Relative error, squared, of a product whose low mantissa bits are left out: one operand has 5 bits in the first pass,
the other 7 (numerics of a LoFi product); with the second pass 10."""
LEVELS = (
    ("8-bit blocks", MathFidelity.HiFi2, {"a": DataFormat.Bfp8, "b": DataFormat.Bfp8_b}),
    ("4-bit weights", MathFidelity.LoFi, {"a": DataFormat.Bfp4, "b": DataFormat.Bfp4_b}),
)


@dataclasses.dataclass(frozen=True)
class FormatChange:
    """A cheaper form of one op. error: the relative squared error that it adds to the op's result, measured on its
    tensors; saved: about how many cycles times cores; reason: both in words."""

    op: str
    rule: PrecisionRule
    error: float
    saved: float

    @property
    def reason(self) -> str:
        return self.rule.reason


@dataclasses.dataclass(frozen=True)
class TunedFormats:
    """What `Session.tune_formats` chose. changes: those taken, in the order of their rank; left: those that were not;
    pcc and cycles (per input, simulated) before and after; trials: (changes taken, pcc, cycles) of every measurement.
    """

    changes: tuple[FormatChange, ...]
    left: tuple[FormatChange, ...]
    pcc_before: float
    pcc_after: float
    cycles_before: float
    cycles_after: float
    trials: tuple[tuple[int, float, float], ...]

    def __str__(self) -> str:
        head = (
            f"{len(self.changes)} of {len(self.changes) + len(self.left)} changes taken: PCC {self.pcc_before:.6f} -> "
            f"{self.pcc_after:.6f}, cycles per input {self.cycles_before:,.0f} -> {self.cycles_after:,.0f}"
        )
        return "\n".join([head, *(f"  {change.op}: {change.reason}" for change in self.changes)])


def tune_formats(
    session: Session,
    state: SessionState,
    min_pcc: float,
    inputs: Any,
    progress: Callable[[int, int], None] | None,
    cancel: threading.Event | None,
) -> TunedFormats:
    """See `Session.tune_formats`."""
    if not (isinstance(min_pcc, int | float) and 0 < min_pcc <= 1):
        raise InputError(f"min_pcc is a correlation above 0 and at most 1, not {min_pcc!r}")
    if session.options.training is not None:
        raise InputError("formats are tuned for inference; tune a session of the same model, and train with its rules")
    with state.work_lock:
        result = session.compile()
        with state.edit_lock:
            state.cancel = stop = cancel or threading.Event()
        sample = session.sample_inputs if inputs is None else inputs
        expected = _reference(result, sample)
        before = _correlation(result, sample, expected, stop)
        cycles_before = session.time(result).per_input
        if before < min_pcc:
            raise InputError(f"the present formats give a correlation of {before:.6f}, not {min_pcc:g}; start from "
                             "wider ones (default_df_override=Float32, math_fidelity HiFi4), or ask for less")
        changes = rank_changes(result, sample)
        request = state.history.state
        graph = session.trace()
        existing = request.options.precision
        steps = 2 + len(changes).bit_length()
        trials = [(0, before, cycles_before)]

        def trial(count: int) -> bool:
            if stop.is_set():
                raise Cancelled("tuning formats was cancelled; nothing was changed")
            if progress is not None:
                progress(min(len(trials), steps), steps)
            state.events.emit("stage", "tune", min(1.0, len(trials) / steps))
            rules = (*existing, *_order_rules(changes[:count]))
            compiled = state.pipeline.compile(graph, SetOptions(precision=rules).apply(request), Clock(None, stop))
            pcc = _correlation(compiled, sample, expected, stop)
            trials.append((count, pcc, session.time(compiled).per_input))
            return pcc >= min_pcc

        _search(len(changes), trial)
        best = min((t for t in trials if t[1] >= min_pcc), key=lambda t: (t[2], t[0]))
        state.events.emit("stage", "tune", 1.0)
        if best[0]:
            edit = SetOptions(precision=(*existing, *_order_rules(changes[: best[0]])))
            session.edits.attempt(edit, label=f"tune formats for PCC {min_pcc:g}")
    return TunedFormats(
        tuple(changes[: best[0]]), tuple(changes[best[0] :]), before, best[1], cycles_before, best[2], tuple(trials)
    )


def _search(most: int, holds: Callable[[int], bool]) -> None:
    """Try all changes, then halve between what holds and what does not."""
    if most == 0 or holds(most):
        return
    low, high = 0, most
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle


def _order_rules(changes: list[FormatChange]) -> list[PrecisionRule]:
    """Rules of changes; of several for one op the last, which is the cheapest, stands alone."""
    return list({change.op: change.rule for change in changes}.values())


def _reference(result: CompileResult, sample: Any) -> list[torch.Tensor]:
    """Outputs of the traced graph in torch."""
    refuse_without_weights(result.graph)
    feeds = frontend.feeds(result.graph, sample)
    parts = [list(evaluate(result.graph, feed).values()) for feed in elements(result.graph, feeds)]
    return [torch.cat(column) if len(parts) > 1 else column[0] for column in zip(*parts, strict=True)]


def _correlation(
    result: CompileResult, sample: Any, expected: list[torch.Tensor], cancel: threading.Event | None
) -> float:
    """The lowest correlation of any output, with the machine's own rounding."""
    samples = fill_microbatch(result, [sample])
    got = Runner(result, "device").run(samples, cancel=cancel)[0]
    return min(compare(str(k), w.numpy(), g.numpy()).pcc for k, (w, g) in enumerate(zip(expected, got, strict=True)))


def rank_changes(result: CompileResult, sample: Any) -> list[FormatChange]:
    """Cheaper forms of every op, by error added per work saved; a form of an op comes after its milder ones."""
    feed = next(iter(elements(result.graph, frontend.feeds(result.graph, sample))))
    lowered = result.lowered
    changes: list[FormatChange] = []
    for node, value in evaluate_ops(lowered, lowered_inputs(result, feed)):
        placed = result.placement.ops.get(node.name)
        if placed is None or node.df is None or not node.df.is_float:
            continue
        row = result.placement.candidate(node.name)
        work = float(row["cycles"]) * int(row["grid_r"]) * int(row["grid_c"])
        legal = legal_formats(lowered, node.name, result.device)
        for level, fidelity, blocks in LEVELS:
            change = _change(result, node, value.numpy(), work, legal, level, fidelity, blocks)
            if change is not None:
                changes.append(change)
    rank: dict[str, float] = {}
    keyed = []
    for number, change in enumerate(changes):
        rank[change.op] = max(rank.get(change.op, 0.0), change.error / change.saved)
        keyed.append((rank[change.op], number, change))
    return [change for _, _, change in sorted(keyed, key=lambda entry: entry[:2])]


def _change(
    result: CompileResult,
    node: Node,
    value: np.ndarray,
    work: float,
    legal: tuple[DataFormat, ...],
    level: str,
    fidelity: MathFidelity,
    blocks: dict[str, DataFormat],
) -> FormatChange | None:
    """One op at one level: outputs in 8-bit blocks where the host does not read them; of products the weights in
    blocks, and fewer passes."""
    assert node.df is not None
    family = node.df.family if node.df.family in blocks else "b"
    eight = LEVELS[0][2][family]
    output = eight if eight in legal and not node.df.is_bfp else None
    weights, passes, error, saved = None, None, 0.0, 0.0
    if isinstance(node.op, HwMatmul):
        now = node.attrs["fidelity"]
        if PASSES[fidelity] < PASSES[now]:
            passes = fidelity
            error += FIDELITY_ERROR[fidelity]
            saved += work * (1 - PASSES[fidelity] / PASSES[now])
        source = result.lowered[node.sources[1]] if len(node.sources) > 1 else None
        if source is not None and source.kind is NodeKind.PARAMETER and source.value is not None:
            weights = blocks[family]
            error += _error(np.asarray(source.value, np.float32), weights)
            saved += 0.1 * work
    elif level != LEVELS[0][0]:
        return None
    if output is not None:
        error += _error(value, output)
        saved += 0.25 * work
    if output is None and weights is None and passes is None:
        return None
    parts = [f"output {output.name}" if output else "", f"weights {weights.name}" if weights else "",
             passes.name if passes else ""]  # fmt: skip
    error, saved = max(error, 1e-12), max(saved, 1.0)
    reason = f"{level}: {', '.join(p for p in parts if p)}; relative error {error**0.5:.2e}, {saved:,.0f} core cycles"
    rule = PrecisionRule(
        reason, re.escape(node.name), output_df=output, math_fidelity=passes,
        inputs=() if weights is None else ((1, weights, False),),
    )  # fmt: skip
    return FormatChange(node.name, rule, error, saved)


def _error(value: np.ndarray, df: DataFormat) -> float:
    """The relative squared error of rounding to a format."""
    flat = np.ascontiguousarray(value, np.float32)
    power = float(np.square(flat, dtype=np.float64).sum())
    return float(np.square(round_to(flat, df) - flat, dtype=np.float64).sum()) / power if power else 0.0
