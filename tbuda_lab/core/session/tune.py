"""The cheapest formats that hold an accuracy: op errors are measured, changes ranked by error per cycle saved, and the
longest part of that ranking that holds is found by compiling and running."""

from __future__ import annotations

import base64
import dataclasses
import html
import math
import re
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import Clock, CompileResult
from tbuda_lab.core.errors import Cancelled, InputError
from tbuda_lab.core.formats import DataFormat, MathFidelity, round_to
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.graph import TILE, Node, NodeKind
from tbuda_lab.core.lowering.data_formats import legal_formats
from tbuda_lab.core.lowering.evaluate import evaluate_ops
from tbuda_lab.core.lowering.hw_ops import HwMatmul
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import PrecisionRule
from tbuda_lab.core.runner import Runner, fill_microbatch, refuse_without_weights
from tbuda_lab.core.session.commands import SetOptions
from tbuda_lab.core.session.op_checks import lowered_inputs
from tbuda_lab.core.verification import TensorError, measure_error

if TYPE_CHECKING:
    from tbuda_lab.core.session.compiles import Compiles
    from tbuda_lab.core.session.edits import Edits
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
    """A cheaper form of one op. level: its name in `LEVELS`; error: the relative squared error that it adds to the op's
    result, measured on its tensors; saved: about how many cycles times cores; reason: both in words."""

    op: str
    level: str
    rule: PrecisionRule
    error: float
    saved: float

    @property
    def reason(self) -> str:
        return self.rule.reason


MEASURES = ("pcc", "relative", "max_abs", "ulps")
"""What a target may bound: a correlation from below; relative L2 error, largest difference and units of the last place
from above."""
_TARGET = re.compile(r"\s*([a-z_]+)\s*(>=|<=)\s*([0-9.eE+-]+)\s*")


@dataclasses.dataclass(frozen=True)
class Target:
    """A bound of one of `MEASURES` that every output has to keep."""

    measure: str
    limit: float

    def value(self, error: TensorError) -> float:
        return error.relative_l2 if self.measure == "relative" else float(getattr(error, self.measure))

    def holds(self, error: TensorError) -> bool:
        value = self.value(error)
        return value >= self.limit if self.measure == "pcc" else value <= self.limit

    def worst(self, errors: Sequence[TensorError]) -> TensorError:
        """The output that is furthest from the target."""
        return min(errors, key=lambda e: self.value(e) if self.measure == "pcc" else -self.value(e))

    def __str__(self) -> str:
        return f"{self.measure}{'>=' if self.measure == 'pcc' else '<='}{self.limit:g}"


def parse_target(text: str | Target) -> Target:
    """ "pcc>=0.999", "relative<=0.01", "max_abs<=0.1" or "ulps<=1e5". Raises `InputError`."""
    if isinstance(text, Target):
        return text
    match = _TARGET.fullmatch(text) if isinstance(text, str) else None
    sign = ">=" if match and match.group(1) == "pcc" else "<="
    try:
        limit = float(match.group(3)) if match else math.nan
    except ValueError:
        limit = math.nan
    if match is None or match.group(1) not in MEASURES or match.group(2) != sign or not math.isfinite(limit):
        raise InputError(f'a target is "pcc>=0.999" or "relative<=0.01" (also max_abs, ulps), not {text!r}')
    if limit <= 0 or (match.group(1) == "pcc" and limit > 1):
        raise InputError(f"{text!r}: a correlation is above 0 and at most 1, an error above 0")
    return Target(match.group(1), limit)


@dataclasses.dataclass(frozen=True)
class FrontierPoint:
    """One measurement: how many changes were taken, cycles per input, the worst output's error, whether it held."""

    changes: int
    cycles: float
    error: TensorError
    holds: bool


MOST_LISTED = 12
"""Changes that are printed; a notebook has all of them folded away."""


@dataclasses.dataclass(frozen=True, repr=False)
class TunedFormats:
    """What `Session.tune_formats` chose. changes: those taken, in the order of their rank; left: those that were not;
    pcc and cycles (per input, simulated) before and after; trials: (changes taken, pcc, cycles) of every measurement;
    points: the same with all measures of the worst output; target: what had to hold.
    """

    changes: tuple[FormatChange, ...]
    left: tuple[FormatChange, ...]
    pcc_before: float
    pcc_after: float
    cycles_before: float
    cycles_after: float
    trials: tuple[tuple[int, float, float], ...]
    points: tuple[FrontierPoint, ...] = ()
    target: Target | None = None

    @property
    def first_left(self) -> tuple[FormatChange, ...]:
        """The changes that were the first with which it did not hold; () where it holds with all."""
        taken, held = len(self.changes), self._held
        failed = min((p.changes for p in self.points if not p.holds and p.changes > held), default=held)
        return self.left[held - taken : failed - taken]

    @property
    def _held(self) -> int:
        """With how many changes it holds at most; those beyond the ones taken make nothing faster."""
        return max((p.changes for p in self.points if p.holds), default=len(self.changes))

    @property
    def deciding(self) -> tuple[str, ...]:
        """The ops of `first_left`."""
        return tuple(dict.fromkeys(change.op for change in self.first_left))

    @property
    def frontier(self) -> tuple[FrontierPoint, ...]:
        """Measurements that no other one beats in both time and error, fastest first."""
        kept: list[FrontierPoint] = []
        for point in sorted(self.points, key=lambda p: (p.cycles, p.error.relative_l2)):
            if not kept or point.error.relative_l2 < kept[-1].error.relative_l2:
                kept.append(point)
        return tuple(kept)

    def svg(self) -> str:
        """Time against error as a picture: every measurement, and the frontier as a line."""
        return frontier_svg(self)

    def _repr_html_(self) -> str:
        svg = self.svg().replace("<svg ", '<svg color="#7a8594" ', 1)  # an image has no colour of its page
        image = base64.b64encode(svg.encode()).decode("ascii")
        picture = f'<img alt="time against error" src="data:image/svg+xml;base64,{image}">' if svg else ""
        listed = html.escape("\n".join(self._listed(len(self.changes))))
        every = f"<details><summary>changes taken, in the order of their rank</summary><pre>{listed}</pre></details>"
        return f"<pre>{html.escape(self._head())}</pre>{picture}{every if listed else ''}"

    def __str__(self) -> str:
        return "\n".join([self._head(), *self._listed(MOST_LISTED)])

    def _listed(self, most: int) -> list[str]:
        more = len(self.changes) - most
        lines = [f"  {change.op}: {change.reason}" for change in self.changes[:most]]
        return [*lines, *([f"  and {more} more: .changes has all of them"] if more > 0 else [])]

    def _head(self) -> str:
        measure = f"PCC {self.pcc_before:.6f} -> {self.pcc_after:.6f}"
        if self.target is not None and self.target.measure != "pcc" and self.points:
            last = next(p for p in self.points if p.changes == len(self.changes))
            before, after = (self.target.value(p.error) for p in (self.points[0], last))
            measure = f"{self.target.measure} {before:.3g} -> {after:.3g}"
        head = (
            f"{len(self.changes)} of {len(self.changes) + len(self.left)} changes taken: {measure}, cycles per input "
            f"{self.cycles_before:,.0f} -> {self.cycles_after:,.0f}"
        )
        if self._held > len(self.changes):
            head += f"; it holds with {self._held}, but those that are left make nothing faster"
        causes = ", ".join(f"{change.level} at {change.op}" for change in self.first_left[:4])
        decided = [f"decided by {causes}: with that {self.target or 'it'} does not hold"] if causes else []
        return "\n".join([head, *decided])

    __repr__ = __str__


def tune_formats(
    state: SessionState,
    compiles: Compiles,
    edits: Edits,
    target: Target,
    inputs: Any,
    progress: Callable[[int, int], None] | None,
    cancel: threading.Event | None,
) -> TunedFormats:
    """See `Session.tune_formats`."""
    if state.request.options.training is not None:
        raise InputError("formats are tuned for inference; tune a session of the same model, and train with its rules")
    with state.work_lock:
        result = compiles.compile()
        with state.edit_lock:
            state.cancel = stop = cancel or threading.Event()
        sample = state.sample_inputs if inputs is None else inputs
        expected = _reference(result, sample)
        first = target.worst(_errors(result, sample, expected, stop))
        cycles_before = compiles.time(result).per_input
        if not target.holds(first):
            what = "a correlation" if target.measure == "pcc" else target.measure
            raise InputError(
                f"the present formats give {what} of {target.value(first):.6g}, not {target.limit:g}; "
                "start from wider ones (default_df_override=Float32, math_fidelity HiFi4), or ask for "
                "less"
            )
        changes = rank_changes(result, sample)
        request = state.history.state
        graph = compiles.trace()
        rules_before = request.options.precision
        steps = 2 + len(changes).bit_length()
        trials = [FrontierPoint(0, cycles_before, first, True)]

        def trial(count: int) -> bool:
            if stop.is_set():
                raise Cancelled("tuning formats was cancelled; nothing was changed")
            if progress is not None:
                progress(min(len(trials), steps), steps)
            state.events.emit("stage", "tune", min(1.0, len(trials) / steps))
            rules = (*rules_before, *_order_rules(changes[:count]))
            compiled = state.pipeline.compile(graph, SetOptions(precision=rules).apply(request), Clock(None, stop))
            error = target.worst(_errors(compiled, sample, expected, stop))
            trials.append(FrontierPoint(count, compiles.time(compiled).per_input, error, target.holds(error)))
            return trials[-1].holds

        _search(len(changes), trial)
        best = min((t for t in trials if t.holds), key=lambda t: (t.cycles, t.changes))
        state.events.emit("stage", "tune", 1.0)
        if best.changes:
            edit = SetOptions(precision=(*rules_before, *_order_rules(changes[: best.changes])))
            name = f"PCC {target.limit:g}" if target.measure == "pcc" else str(target)
            edits.attempt(edit, label=f"tune formats for {name}")
    return TunedFormats(
        tuple(changes[: best.changes]),
        tuple(changes[best.changes :]),
        first.pcc,
        best.error.pcc,
        cycles_before,
        best.cycles,
        tuple((t.changes, t.error.pcc, t.cycles) for t in trials),
        tuple(trials),
        target,
    )


_W, _H, _LEFT, _BOTTOM = 420, 236, 56, 50


def frontier_svg(tuned: TunedFormats) -> str:
    """Cycles per input against the relative error of the worst output (logarithmic); filled dots hold the target, the
    ring is what was taken."""
    points = [p for p in tuned.points if np.isfinite(p.error.relative_l2)]
    if not points:
        return ""
    logs = [math.log10(max(p.error.relative_l2, 1e-12)) for p in points]
    low, high = math.floor(min(logs)), max(math.ceil(max(logs)), math.floor(min(logs)) + 1)
    fast, slow = min(p.cycles for p in points), max(p.cycles for p in points)
    span = max(slow - fast, 0.02 * slow, 1.0)

    def place(point: FrontierPoint) -> tuple[float, float]:
        across = (point.cycles - fast) / span
        up = (math.log10(max(point.error.relative_l2, 1e-12)) - low) / (high - low)
        return _LEFT + 12 + across * (_W - _LEFT - 24), _H - _BOTTOM - up * (_H - _BOTTOM - 12)

    grey = 'stroke="currentColor" stroke-opacity="0.25"'
    held = html.escape(f"{tuned.target} holds") if tuned.target is not None else "it holds"
    lines = []
    for power in range(low, high + 1):
        y = _H - _BOTTOM - (power - low) / (high - low) * (_H - _BOTTOM - 12)
        lines.append(
            f'<path d="M{_LEFT} {y:.1f}H{_W}" {grey}/>'
            f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">1e{power}</text>'
        )
    path = "L".join(f"{x:.1f} {y:.1f}" for x, y in map(place, tuned.frontier))
    dots = []
    for point in points:
        x, y = place(point)
        fill = "currentColor" if point.holds else "none"
        title = f"{point.changes} changes: {point.cycles:,.0f} cycles, error {point.error.relative_l2:.2e}"
        dots.append(
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="4" fill="{fill}" stroke="currentColor">'
            f"<title>{title}</title></circle>"
        )
        if point.changes == len(tuned.changes):
            dots.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="8" fill="none" stroke="#c2570c" stroke-width="2"/>')
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_W} {_H}" width="{_W}" role="img" '
        f'aria-label="Cycles per input against relative error of {len(points)} measurements" font-size="11" '
        f'fill="currentColor">'
        f'{"".join(lines)}<path d="M{path}" fill="none" stroke="currentColor" stroke-opacity="0.6"/>{"".join(dots)}'
        f'<text x="{(_LEFT + _W) / 2}" y="{_H - 22}" text-anchor="middle">cycles per input, {fast:,.0f} to '
        f"{slow:,.0f}; upwards: relative error</text>"
        f'<text x="{(_LEFT + _W) / 2}" y="{_H - 6}" text-anchor="middle">filled: {held}; in the ring: taken</text>'
        "</svg>"
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


def _errors(
    result: CompileResult, sample: Any, expected: list[torch.Tensor], cancel: threading.Event | None
) -> list[TensorError]:
    """The error of every output, with the machine's own rounding."""
    samples = fill_microbatch(result, [sample])
    got = Runner(result, "device").run(samples, cancel=cancel)[0]
    pairs = enumerate(zip(expected, got, strict=True))  # NumPy has no bfloat16
    return [measure_error(str(k), w.double().numpy(), g.double().numpy()) for k, (w, g) in pairs]


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
    block_format = eight if eight in legal and not node.df.is_bfp else None
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
    if block_format is not None:
        error += _error(value, block_format)
        saved += 0.25 * work
    if block_format is None and weights is None and passes is None:
        return None
    parts = [
        f"output {block_format.name}" if block_format else "",
        f"weights {weights.name}" if weights else "",
        passes.name if passes else "",
    ]
    error, saved = max(error, 1e-12), max(saved, 1.0)
    reason = f"{level}: {', '.join(p for p in parts if p)}; relative error {error**0.5:.2e}, {saved:,.0f} core cycles"
    rule = PrecisionRule(
        reason,
        re.escape(node.name),
        output_df=block_format,
        math_fidelity=passes,
        inputs=() if weights is None else ((1, weights, False),),
    )
    return FormatChange(node.name, level, rule, error, saved)


def _error(value: np.ndarray, df: DataFormat) -> float:
    """The relative squared error of rounding to a format, of the finite values: a mask's infinities stay what they
    are, or, in a format of blocks, do not tell what rounding costs. Rows are filled with zeros to whole tiles."""
    flat = np.ascontiguousarray(value, np.float32)
    if flat.ndim and flat.shape[-1] % TILE:
        flat = np.pad(flat, [(0, 0)] * (flat.ndim - 1) + [(0, -flat.shape[-1] % TILE)])
    finite = np.isfinite(flat)
    power = float(np.square(flat, dtype=np.float64, where=finite, out=np.zeros(flat.shape)).sum())
    rounded = round_to(flat, df)
    off = np.subtract(rounded, flat, where=finite & np.isfinite(rounded), out=np.zeros_like(flat))
    return float(np.square(off, dtype=np.float64).sum()) / power if power else 0.0
