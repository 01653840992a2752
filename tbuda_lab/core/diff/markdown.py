"""A comparison as Markdown, for the text of a pull request."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tbuda_lab.core.diff.sides import CLASSES, CYCLES, OpState, QueueState
from tbuda_lab.core.errors import quantity

if TYPE_CHECKING:
    from tbuda_lab.core.diff.compare import Diff, OpChange


REST = "other ops and switches of epochs"
"""What `Diff.rest` is of, as views say it."""
_MARKUP = re.compile(r"[\\\\`*_{}\[\]()#+!|~<>&@:]")


def to_markdown(diff: Diff, limit: int = 25) -> str:
    """Totals, then at most `limit` ops and queues that differ, the largest change of cycles first."""
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
        lines += ["Nothing differs.", ""]
    lines += [line for note in diff.notes for line in (f"> {_plain(note)}", "")]
    return "\n".join(lines)


def verdict(diff: Diff) -> str:
    """One sentence: more cycles, fewer or as many, and by how much."""
    before, after = diff.time
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
