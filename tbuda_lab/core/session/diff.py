"""Two compiles of a model compared op by op."""

from __future__ import annotations

import dataclasses

from tbuda_lab.core.balancer.types import OpPlacement
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.session.whatif import same_epochs


@dataclasses.dataclass(frozen=True)
class OpState:
    """An op of one side: how it stands and what it takes (cycles per input)."""

    epoch: int
    chip: int
    start: tuple[int, int]
    grid: tuple[int, int]
    transposed: bool
    cycles: int
    limiter_cycles: int


@dataclasses.dataclass(frozen=True)
class OpChange:
    """An op that differs; one side is None where it does not exist. It may be in several classes at once."""

    op: str
    before: OpState | None
    after: OpState | None
    moved: bool = False
    resized: bool = False
    retimed: bool = False

    @property
    def delta(self) -> int:
        """Limiter cycles after less before (0 for an op that is missing on a side)."""
        return (self.after.limiter_cycles if self.after else 0) - (self.before.limiter_cycles if self.before else 0)


@dataclasses.dataclass(frozen=True)
class Diff:
    """What differs between `a` and `b`. Totals are sums over epochs, (before, after), cycles per input."""

    a: str
    b: str
    changes: tuple[OpChange, ...]
    epochs: tuple[int, int]
    epoch_cycles: tuple[tuple[int, ...], tuple[int, ...]]
    kernel_cycles: tuple[int, int]
    limiter_cycles: tuple[int, int]

    @property
    def added(self) -> tuple[OpChange, ...]:
        return tuple(c for c in self.changes if c.before is None)

    @property
    def removed(self) -> tuple[OpChange, ...]:
        return tuple(c for c in self.changes if c.after is None)

    @property
    def moved(self) -> tuple[OpChange, ...]:
        return tuple(c for c in self.changes if c.moved)

    @property
    def resized(self) -> tuple[OpChange, ...]:
        return tuple(c for c in self.changes if c.resized)

    @property
    def retimed(self) -> tuple[OpChange, ...]:
        return tuple(c for c in self.changes if c.retimed)

    @property
    def slower(self) -> float:
        """How much slower the second is, as a share of the first (negative: faster)."""
        return self.limiter_cycles[1] / max(1, self.limiter_cycles[0]) - 1

    def to_markdown(self) -> str:
        """A summary for a pull request."""
        lines = [
            f"### {self.a} → {self.b}",
            "",
            "| | before | after | change |",
            "|---|---:|---:|---:|",
            _row("cycles per input, sum over epochs", self.limiter_cycles),
            _row("kernels alone", self.kernel_cycles),
            _row("epochs", self.epochs),
            "",
        ]
        for title, group in (
            ("added", self.added), ("removed", self.removed), ("resized", self.resized),
            ("moved", self.moved), ("retimed", self.retimed),
        ):  # fmt: skip
            if group:
                lines += [f"**{len(group)} {title}**", "", "| op | before | after | cycles |", "|---|---|---|---:|"]
                lines += [f"| `{c.op}` | {_state(c.before)} | {_state(c.after)} | {_cycles(c)} |" for c in group]
                lines.append("")
        if not self.changes:
            lines += ["Nothing differs.", ""]
        return "\n".join(lines)


def _row(title: str, pair: tuple[int, int]) -> str:
    change = f"{100 * (pair[1] / pair[0] - 1):+.1f} %" if pair[0] else ""
    return f"| {title} | {pair[0]} | {pair[1]} | {change} |"


def _state(state: OpState | None) -> str:
    if state is None:
        return ""
    turned = " transposed" if state.transposed else ""
    return f"{state.grid[0]}x{state.grid[1]}{turned} at {state.start[0]},{state.start[1]}, epoch {state.epoch}"


def _cycles(change: OpChange) -> str:
    sides = [str(s.limiter_cycles) if s is not None else "" for s in (change.before, change.after)]
    return f"{sides[0]} → {sides[1]}"


def diff_results(a: CompileResult, b: CompileResult, name_a: str = "before", name_b: str = "after") -> Diff:
    """Compare two compiles by op name."""
    old, new = _states(a), _states(b)
    same = same_epochs({n: s.epoch for n, s in old.items()}, {n: s.epoch for n, s in new.items()})
    changes: list[OpChange] = []
    for name in dict.fromkeys((*old, *new)):
        x, y = old.get(name), new.get(name)
        if x is None or y is None:
            changes.append(OpChange(name, x, y))
            continue
        change = OpChange(
            name,
            x,
            y,
            moved=(x.start, x.transposed, x.chip, x.epoch) != (y.start, y.transposed, y.chip, same.get(y.epoch, -1)),
            resized=x.grid != y.grid,
            retimed=(x.cycles, x.limiter_cycles) != (y.cycles, y.limiter_cycles),
        )
        if change.moved or change.resized or change.retimed:
            changes.append(change)
    epochs_a, epochs_b = _epochs(a), _epochs(b)
    return Diff(
        name_a,
        name_b,
        tuple(changes),
        (len(epochs_a), len(epochs_b)),
        (epochs_a, epochs_b),
        (sum(a.placement.epoch_cycles), sum(b.placement.epoch_cycles)),
        (sum(epochs_a), sum(epochs_b)),
    )


def _epochs(result: CompileResult) -> tuple[int, ...]:
    report = result.placement.report
    return result.placement.epoch_cycles if report is None else tuple(e.limiter_cycles for e in report.epochs)


def _states(result: CompileResult) -> dict[str, OpState]:
    placement = result.placement
    limits = placement.report.op_limiters if placement.report is not None else {}

    def state(name: str, spot: OpPlacement) -> OpState:
        row = placement.candidate(name)
        kernel = int(row["cycles"])
        _, limiter, _ = limits.get(name, (kernel, kernel, "kernel"))
        grid = (int(row["grid_r"]), int(row["grid_c"]))
        return OpState(spot.epoch, spot.chip, spot.start, grid, spot.transposed, kernel, limiter)

    return {name: state(name, spot) for name, spot in placement.ops.items()}
