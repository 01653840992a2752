"""The comparison: added, removed, moved, resized and retimed ops, queues that lie elsewhere, totals.

And how it reads: as Markdown, for the text of a pull request, and in the words of the views.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Iterable

from tbuda_lab.core.diff.sides import CLASSES, CYCLES, OpState, QueueState, Side, listed
from tbuda_lab.core.errors import quantity
from tbuda_lab.core.measured.profile import INCOMPLETE

REST = "other ops and switches of epochs"
"""What `Diff.rest` is of, as views say it."""
_TOLD = (*INCOMPLETE, "profile-replay-cut")
"""Rules of findings that stand beside the comparison."""
_MOST = 12
_MARKUP = re.compile(r"[\\\\`*_{}\[\]()#+!|~<>&@:]")


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
    def delta(self) -> float:
        """`compared_cycles` after less before (0 for an op that is missing on a side)."""
        return (self.after.compared_cycles if self.after else 0) - (self.before.compared_cycles if self.before else 0)

    @property
    def ratio(self) -> float | None:
        """`delta` as a share of the cycles before; None where there is nothing to compare with."""
        if self.before is None or self.after is None or not self.before.compared_cycles:
            return None
        return self.delta / self.before.compared_cycles

    @property
    def classes(self) -> tuple[str, ...]:
        """Which of `CLASSES` hold."""
        flags = (self.before is None, self.after is None, self.resized, self.moved, self.retimed)
        return tuple(name for name, flag in zip(CLASSES, flags, strict=True) if flag)


@dataclasses.dataclass(frozen=True)
class QueueChange:
    """A queue that is new, gone, lies elsewhere or has another size."""

    queue: str
    before: QueueState | None
    after: QueueState | None

    @property
    def what(self) -> str:
        if self.before is None or self.after is None:
            return "added" if self.before is None else "removed"
        x, y = self.before, self.after
        return "moved" if (x.chip, x.location, x.channels) != (y.chip, y.location, y.channels) else "resized"


@dataclasses.dataclass(frozen=True)
class Diff:
    """What differs between `before` and `after`. Pairs are (before, after); cycles per input.

    Totals count the slowest of epochs that run side by side on chips. Where both sides are simulated, deltas of ops are
    of simulated time and add up to that of `time`, with `rest`; else they are of limiter cycles. `pairs`: epochs that
    hold the same ops, as (before, after), None where an epoch is on one side only; in the order of `after`, lost ones
    last.
    """

    before: Side
    after: Side
    changes: tuple[OpChange, ...]
    queues: tuple[QueueChange, ...]
    pairs: tuple[tuple[int | None, int | None], ...]

    @property
    def a(self) -> str:
        return self.before.name

    @property
    def b(self) -> str:
        return self.after.name

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
    def epochs(self) -> tuple[int, int]:
        return len(self.before.epochs), len(self.after.epochs)

    @property
    def epoch_cycles(self) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Limiter cycles of every epoch."""
        return tuple(e.limiter_cycles for e in self.before.epochs), tuple(e.limiter_cycles for e in self.after.epochs)

    @property
    def kernel_cycles(self) -> tuple[int, int]:
        return self.before.cycles, self.after.cycles

    @property
    def limiter_cycles(self) -> tuple[int, int]:
        return self.before.limiter_cycles, self.after.limiter_cycles

    @property
    def has_simulated_time(self) -> bool:
        """Whether both sides have the simulated time of a batch; files have none."""
        return self.before.time is not None and self.after.time is not None

    @property
    def time(self) -> tuple[float, float]:
        """Cycles per input of the whole model: simulated where both sides are, else those of the limiters."""
        if self.before.time is not None and self.after.time is not None:
            return self.before.time, self.after.time
        return self.limiter_cycles

    @property
    def unit(self) -> str:
        """What times are in: "cycles per input", or "ns" of measured runs."""
        return self.after.unit

    @property
    def rest(self) -> float:
        """What `time` changes by beyond the deltas of `changes`: ops that are as they were but decide about more or
        less of the time, and switches of epochs. 0 where nothing is simulated."""
        return self.time[1] - self.time[0] - sum(c.delta for c in self.changes) if self.has_simulated_time else 0.0

    @property
    def slower(self) -> float:
        """How much slower the second is, as a share of the first (negative: faster)."""
        before, after = self.time
        return 0.0 if before == after else after / max(1, before) - 1

    @property
    def _sides(self) -> tuple[Side, Side]:
        return self.before, self.after

    @property
    def _untimed(self) -> list[tuple[str, bool]]:
        """Of each measured run that has ops without a time what they are, and whether it is one."""
        sides = [s for s in self._sides if s.unknown and s.unit != CYCLES]
        return [
            (f"{s.name}: {quantity(len(s.unknown), 'op')} without a time: {listed(s.unknown)}", len(s.unknown) == 1)
            for s in sides
        ]

    @property
    def doubts(self) -> tuple[str, ...]:
        """Why `slower` is not known: rows of measured runs that have no time, or are lost."""
        lost = [f"{f.where}: {f.message}" for s in self._sides for f in s.gaps]
        more = [f"and {len(lost) - _MOST} more"] if len(lost) > _MOST else []
        return (*(doubt for doubt, _ in self._untimed), *lost[:_MOST], *more)

    @property
    def other_work(self) -> tuple[str, ...]:
        """Why two measured runs are not of the same work, or not measured alike."""
        return tuple(f"{s.name}: {text}" for s in self._sides for text in s.other_work)

    @property
    def notes(self) -> tuple[str, ...]:
        """What to know before believing the cycles."""
        notes = []
        if self.unit != CYCLES:
            machines = [(s.grid.device, s.grid.cols) for s in (self.before, self.after)]
            if machines[0] != machines[1]:
                before, after = (f"{name}, {quantity(cores, 'core')}" for name, cores in machines)
                notes.append(f"The machines differ: {before} against {after}.")
            notes += [f"{text}." for text in self.other_work]
            notes += [f"{doubt}; {'it is' if one else 'they are'} in neither sum." for doubt, one in self._untimed]
            notes += [f"{f.where}: {f.message}." for s in self._sides for f in s.findings if f.rule in _TOLD][:_MOST]
        elif self.before.grid != self.after.grid:
            notes.append(f"The grids differ: {_grid(self.before)} against {_grid(self.after)}.")
        if self.has_simulated_time and self.before.batch != self.after.batch:
            notes.append(f"The batches differ: {self.before.batch} against {self.after.batch} inputs.")
        if self.has_simulated_time and self.before.loaded_once != self.after.loaded_once:
            stays, switches = (self.a, self.b) if self.before.loaded_once else (self.b, self.a)
            notes.append(f"{stays} is loaded once, before the first run; {switches} switches epochs in every run.")
        if "estimate" in (self.before.cycles_from, self.after.cycles_from):
            notes.append("Cycles are estimates from the netlists' own fields: kernels alone, without what limits them.")
        unknown = sorted({*self.before.unknown, *self.after.unknown})
        if unknown and self.unit == CYCLES:
            notes.append(f"No estimate for {listed(unknown)}; they count as 0 cycles.")
        return tuple(notes)

    def to_markdown(self, limit: int = 25) -> str:
        """See the function `to_markdown`."""
        return to_markdown(self, limit)


def _grid(side: Side) -> str:
    return f"{side.grid.device}, {side.grid.rows} rows x {side.grid.cols} columns"


def _not_simulated(side: Side) -> Side:
    return dataclasses.replace(side, ops={n: dataclasses.replace(s, time=None) for n, s in side.ops.items()})


def same_epochs(before: dict[str, int], after: dict[str, int]) -> dict[int, int]:
    """Epoch after -> the epoch before whose largest part it holds; epochs that are new are missing."""
    shared: dict[tuple[int, int], int] = {}
    for op, epoch in before.items():
        if op in after:
            pair = (epoch, after[op])
            shared[pair] = shared.get(pair, 0) + 1
    same_epochs: dict[int, int] = {}
    matched: set[int] = set()
    for (old, new), _ in sorted(shared.items(), key=lambda item: (-item[1], item[0])):
        if old not in matched and new not in same_epochs:
            same_epochs[new] = old
            matched.add(old)
    return same_epochs


def compare_sides(before: Side, after: Side) -> Diff:
    """Compare op by op and queue by queue, by name. An op whose epoch is only counted differently has not moved."""
    if before.time is None or after.time is None:  # what is compared is counted alike
        before, after = _not_simulated(before), _not_simulated(after)
    old, new = before.ops, after.ops
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
        if change.classes:
            changes.append(change)
    queues = tuple(
        QueueChange(name, before.queues.get(name), after.queues.get(name))
        for name in dict.fromkeys((*before.queues, *after.queues))
        if before.queues.get(name) != after.queues.get(name)
    )
    matched = set(same.values())
    pairs = [(same.get(k), k) for k in range(len(after.epochs))]
    lost: list[tuple[int | None, int | None]] = [(k, None) for k in range(len(before.epochs)) if k not in matched]
    return Diff(before, after, tuple(changes), queues, (*pairs, *lost))


# -- as text ----------------------------------------------------------------------------------------------------------
def to_markdown(diff: Diff, limit: int = 25) -> str:
    """A summary for a pull request: totals, then at most `limit` ops and queues, the largest change of cycles first."""
    lines = [
        f"### {_plain(diff.a)} → {_plain(diff.b)}",
        "",
        verdict(diff),
        "",
        "| | before | after | change |",
        "|---|---:|---:|---:|",
        *(_row(str(title), (before, after)) for title, before, after in totals(diff)),
        "",
    ]
    if diff.changes:
        counts = ((len(getattr(diff, name)), name) for name in CLASSES)
        lines += [f"**{_differ(len(diff.changes), 'op')}**: {', '.join(f'{n} {name}' for n, name in counts if n)}", ""]
        ranked = sorted(diff.changes, key=lambda c: -abs(c.delta))  # stable: equal changes stay in the order of the ops
        cycles = f"{diff.unit}, {_how(diff)}"
        lines += [f"| op | | before | after | {cycles} | change |", "|---|---|---|---|---:|---:|"]
        lines += [*(_op_row(c, diff.unit) for c in ranked[:limit]), *_more(len(ranked) - limit)]
        lines += [*([f"| {REST} | | | | {diff.rest:+,.0f} | |"] if round(diff.rest) else []), ""]
    if diff.queues:
        lines += [f"**{_differ(len(diff.queues), 'queue')}**", "", "| queue | | before | after |", "|---|---|---|---|"]
        lines += [
            f"| {_code(c.queue)} | {c.what} | {queue_text(c.before)} | {queue_text(c.after)} |"
            for c in diff.queues[:limit]
        ]
        lines += [*_more(len(diff.queues) - limit), ""]
    if not diff.changes and not diff.queues:
        lines += ["No op that both runs measured differs." if diff.doubts else "Nothing differs.", ""]
    lines += [line for note in diff.notes for line in (f"> {_plain(note)}", "")]
    return "\n".join(lines)


def verdict(diff: Diff) -> str:
    """One sentence: more cycles, fewer or as many, and by how much."""
    before, after = diff.time
    if diff.unit != CYCLES and not before and not after:
        return "No op has a time in both runs: there is nothing to compare."
    if before == after:
        return f"As fast as before: {whole(after)} {diff.unit}."
    if not before:
        return f"{whole(after)} {diff.unit}; there is nothing to compare with."
    word = "more" if after > before else "fewer"
    share = f"{100 * abs(after / before - 1):.1f} %"
    if diff.unit != CYCLES:
        return f"{share} {'more' if after > before else 'less'} time: {whole(before)} → {whole(after)} {diff.unit}."
    return f"{share} {word} cycles: {whole(before)} → {whole(after)} per input."


def _how(diff: Diff) -> str:
    if diff.unit != CYCLES:
        return "measured"
    return "simulated" if diff.has_simulated_time else "kernel or transfer"


def totals(diff: Diff) -> list[tuple[str, float, float]]:
    """(what it is, before, after) of the whole."""
    if diff.unit != CYCLES:
        return [(f"{diff.unit}, measured", *diff.time)]
    return [
        *([(f"{CYCLES}, simulated", *diff.time)] if diff.has_simulated_time else []),
        ("slowest op of each epoch", *diff.limiter_cycles),
        ("kernels alone", *diff.kernel_cycles),
        ("epochs", *diff.epochs),
    ]


def whole(cycles: float) -> str:
    """In whole cycles, halves upwards: as every page rounds."""
    return f"{math.floor(cycles + 0.5):,}"


def _differ(count: int, noun: str) -> str:
    return f"{quantity(count, noun)} differ{'s' if count == 1 else ''}"


def state_text(state: OpState | None, unit: str = CYCLES) -> str:
    """Grid, place and epoch of an op; of a measured one its cores."""
    if state is None:
        return ""
    if unit != CYCLES:
        return f"{state.grid[1]} cores"
    turned = " transposed" if state.transposed else ""
    chip = f", chip {state.chip}" if state.chip else ""
    return f"{state.grid[0]}x{state.grid[1]}{turned} at {state.start[0]},{state.start[1]}, epoch {state.epoch}{chip}"


def queue_text(state: QueueState | None) -> str:
    """Memory, channels, entries and bytes of a queue."""
    if state is None:
        return ""
    channels = sorted(set(state.channels))
    shown = ", ".join(map(str, channels)) if len(channels) < 5 else f"{channels[0]} to {channels[-1]}"
    chip = f", chip {state.chip}" if state.chip else ""
    entries = "1 entry" if state.entries == 1 else f"{state.entries} entries"
    return f"{state.location} {shown}{chip}, {entries}, {state.bytes:,} bytes"


def percent_text(share: float | None) -> str:
    """A signed share: "+12.5 %"."""
    return "" if share is None else f"{100 * share:+.1f} %"


def _row(title: str, pair: tuple[float, float]) -> str:
    change = percent_text(pair[1] / pair[0] - 1) if pair[0] else ""
    return f"| {title} | {whole(pair[0])} | {whole(pair[1])} | {change} |"


def _op_row(change: OpChange, unit: str) -> str:
    sides = [f"{whole(s.compared_cycles)}" if s is not None else "" for s in (change.before, change.after)]
    before, after = state_text(change.before, unit), state_text(change.after, unit)
    cells = (", ".join(change.classes), before, after, f"{sides[0]} → {sides[1]}")
    return f"| {_code(change.op)} | {' | '.join(cells)} | {percent_text(change.ratio)} |"


def _more(count: int) -> Iterable[str]:
    return (f"| and {count} more |",) if count > 0 else ()


def _code(name: str) -> str:
    """A name from a file in a cell of a table: no bar or backtick of it may end the cell."""
    name = "".join(c if c.isprintable() else " " for c in name)
    return "`" + name.replace("`", "'").replace("|", "\\|") + "`"


def _plain(text: str) -> str:
    """A name of a file or model as Markdown shows it, with none of its signs meant as markup."""
    line = "".join(c if c.isprintable() else " " for c in text)
    return _MARKUP.sub(lambda sign: "\\" + sign[0], line)
