"""What a search for the wrong op found."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.verification import FLAT, MIN_PCC, TensorError

STAGES = ("traced", "passed", "lowered", "netlist", "golden", "device")
"""In the order of the compile: the traced graph against the module; the passed and the lowered graph each against the
one before; the netlist run without rounding against the lowered graph; with its formats; as the machine rounds."""


_NAMED = 5  # ops that may be meant beside the first, in the text
WORTH = 0.1
"""Share of the outputs' error from which the format of an op is worth a word."""


@dataclasses.dataclass(frozen=True)
class OpError:
    """One op of a run. isolated: against what its inputs, as they came, should give; accumulated: against the
    reference. expected: relative L2 error that rounding to its format explains; first: the first tile (z, row, column)
    that is off, None where none is."""

    op: str
    isolated: TensorError
    accumulated: TensorError
    expected: float
    first: tuple[int, int, int] | None


@dataclasses.dataclass(frozen=True)
class FormatCost:
    """What the rounding of one op costs. share: relative L2 error of the outputs that it makes alone; df: its format,
    or its fidelity where that costs more; instead: the one to give it."""

    op: str
    df: str
    share: float
    instead: str


@dataclasses.dataclass(frozen=True)
class ErrorReport:
    """stage: the first wrong one of `STAGES`, "" where all are right. op: the op of that stage's graph; source: the op
    of the traced graph that it is of; nodes: ops that it stands for, between it and what is right before it. location:
    its line in the user's model; tile: the first one that is off. outputs: of the last stage that was run against the
    reference. ops: in schedule order, where a netlist was run. costs: of formats, largest first. error: of the
    outputs, relative L2. checked: stages that were looked at. not_finite: share of the model's own outputs that is
    NaN or infinite, of which the errors say nothing; differing: of outputs that are whole numbers or truth values what
    differs from the model's in the run, which formats may make of near ties and is no verdict."""

    stage: str
    op: str
    source: str
    nodes: tuple[str, ...]
    location: str
    tile: tuple[int, int, int] | None
    outputs: tuple[TensorError, ...]
    ops: tuple[OpError, ...]
    costs: tuple[FormatCost, ...]
    error: float
    checked: tuple[str, ...]
    reason: str = ""
    not_finite: float = 0.0
    differing: float = 0.0

    @property
    def right(self) -> bool:
        return not self.stage

    def __str__(self) -> str:
        if self.stage:
            tile = f", tile {self.tile}" if self.tile is not None else ""
            line = f" ({self.location})" if self.location else ""
            others = [name for name in self.nodes if name != self.op]
            more = f", {len(others) - _NAMED} more" if len(others) > _NAMED else ""
            names = ", ".join(others[-_NAMED:])
            near = f"; it, or one of those that nothing tells from it: {names}{more}" if others else ""
            return f"{self.op or 'the outputs'}{line}{tile}: first wrong at `{self.stage}`; {self.reason}{near}"
        text = f"right everywhere ({', '.join(self.checked)}); relative error of the outputs {self.error:.3g}"
        if self.not_finite:
            text += f"; {self.not_finite:.1%} of what the model itself gives is NaN or infinite, and has no error"
        if self.differing:
            text += f"; {self.differing:.1%} of an output of whole numbers or truth values differ from the model's"
        for output in self.outputs:
            if output.pcc < MIN_PCC and output.spread < FLAT and not output.constant:
                text += (
                    f"; {output.name} varies by {output.spread:.2g} of its size alone, so its pcc is {output.pcc:.4g}"
                )
        if self.costs and self.error > 0:
            worst = self.costs[0]
            if worst.share >= WORTH * self.error:
                advice = f": give it {worst.instead}" if worst.instead else ""
                text += f"; {worst.df} at {worst.op} costs {worst.share:.3g} of the {self.error:.3g} error{advice}"
            else:
                text += f"; no single op costs a tenth of it, most {worst.df} at {worst.op}: {worst.share:.2g}"
        return text
