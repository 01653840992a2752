"""Static pictures as HTML fragments: what a reader sees where no script runs (converted notebooks, mail, paper)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from html import escape
from typing import Any
from urllib.parse import quote

import numpy as np

from tbuda_lab.core.frames import Frame, epoch_time, model_time
from tbuda_lab.core.frames.ops_frame import epoch_totals, op_columns
from tbuda_lab.widgets.pictures.graph import graph_svg
from tbuda_lab.widgets.pictures.grid import epoch_svg
from tbuda_lab.widgets.pictures.svg import short

STORED_START = "<div class='tb-twin'>"  # JupyterLab's side finds our pictures by it
LIMIT = 190_000  # characters of a fragment: a notebook must stay small
AROUND = 20  # lines of a long text before the one that is marked


def metrics_html(frames: Mapping[str, Frame]) -> str:
    """One line of numbers."""
    summary = frames["summary"].meta if "summary" in frames else {}
    words = [str(summary.get("name", "")), str(summary.get("device", ""))]
    if "ops" in frames:
        ops = frames["ops"]
        total = model_time(ops)
        time = time_text(ops)
        count, epochs = ops.columns["op_name"].size, ops.columns["epoch_cycles"].size
        words += [
            f"{count} {'op' if count == 1 else 'ops'}",
            f"{epochs} {'epoch' if epochs == 1 else 'epochs'}",
            time,
        ]
        if total:
            words.append(f"{short(ops.meta['clock_hz'] / total)} inputs/s (estimated)")
    if "pcc" in summary:
        words.append(f"PCC {summary['pcc']:.5f}")
    return f"<p>{escape(' · '.join(w for w in words if w))}</p>"


def time_text(ops: Frame) -> str:
    """What the time of a model counts: simulated for a batch, with the sums of limiters and kernels over the epochs
    beside it; or its kernels alone, which is all a file says."""
    if "time" not in ops.meta:
        return f"{short(ops.meta['total_cycles'])} cycles per input, kernels only"
    batch, directions = ops.meta["batch"], ops.meta["directions"]
    runs = np.array([1 / batch if direction == "opt" else 1.0 for direction in directions])
    limiters, kernels = (short(float(runs @ ops.columns[f"epoch_{name}"])) for name in ("limiter_cycles", "cycles"))
    update = " and one update" if "opt" in directions else ""
    return (
        f"{short(ops.meta['time'])} cycles per input, simulated for {batch} input{'s' if batch > 1 else ''}{update} "
        f"(limiters {limiters}, kernels {kernels})"
    )


_PICTURE = re.compile(r"<svg [^>]*?width='(\d+)'[^>]*?aria-label='([^']*)'.*?</svg>", re.DOTALL)
_MORE = re.compile(r"<details><summary>(?:(?!<details>).)*?</details>", re.DOTALL)


def stored_html(html: str) -> str:
    """A fragment as a notebook keeps it. Pictures become images with a text, which a sanitiser leaves alone (JupyterLab
    takes SVG out of notebooks that are not trusted); they lie on white, so that they can be read on a dark page too.
    What is folded away goes, the last first, where the whole would be longer than `LIMIT`."""
    result = _PICTURE.sub(_image, html)
    while len(result) >= LIMIT and (folded := list(_MORE.finditer(result))):
        result = result[: folded[-1].start()] + result[folded[-1].end() :]
    return f"{STORED_START}{result}</div>"


def _image(match: re.Match[str]) -> str:
    width, title = match.groups()
    data = quote(match[0], safe=" !$'()*+,-./:;=?@_~")
    style = "max-width:100%;background:#fff"
    return f"<img alt='{title}' width='{width}' style='{style}' src=\"data:image/svg+xml,{data}\">"


def _graph(frames: Mapping[str, Frame]) -> str:
    """The graph of the furthest stage there is, as a first view shows it."""
    for name in ("lowered", "passed", "traced"):
        if f"graph:{name}" in frames:
            return graph_svg(frames[f"graph:{name}"])
    return "<p>no graph yet</p>"


def problems_html(frames: Mapping[str, Frame], search: str = "") -> str:
    """The diagnostics that have `search` in what the page searches too: severity, place, rule, message or fix."""
    frame = frames.get("problems")
    if frame is None or not frame.columns["severity"].size:
        return "<p>nothing to report</p>"
    rows = list(zip(*(frame.text(c) for c in ("severity", "where", "rule", "message", "fix")), strict=True))
    part = search.strip().lower()
    selected = [row for row in rows if part in " ".join(row).lower()]
    text = f"<p>{len(selected)} of {len(rows)} with {escape(part)}</p>" if part else ""
    items = (f"<li>{escape(s)}: {escape(w)}: {escape(m)} {escape(f)}</li>" for s, w, _, m, f in selected)
    return f"{text}<ul>{''.join(items)}</ul>"


def netlist_html(frames: Mapping[str, Frame], mark: int | None = None) -> str:
    """The text of the netlist, as much as there is room for. mark: a line, counted from 1, that is marked; where there
    is no room for all that comes before it, the text begins shortly before."""
    if "netlist" not in frames:
        return "<p>no netlist yet</p>"
    lines = [escape(line) for line in frames["netlist"].columns["text"].tobytes().decode().splitlines()]
    room, first, shown = LIMIT - 300, 0, []
    if mark is not None and sum(len(line) + 1 for line in lines[:mark]) > room:
        first = max(0, mark - AROUND)
    for number, line in enumerate(lines[first:], first + 1):
        room -= len(line) + 1
        if room < 0:
            break
        shown.append(f"<mark>{line}</mark>" if number == mark else line)
    hidden = len(lines) - first - len(shown)
    before = f"<p>after {first:,} lines</p>" if first else ""
    more = f"<p>and {hidden:,} more lines</p>" if hidden else ""
    state = " open" if mark is not None else ""
    return f"<details{state}><summary>Netlist</summary>{before}<pre>{chr(10).join(shown)}</pre>{more}</details>"


def overrides_html(frames: Mapping[str, Frame]) -> str:
    """Every override with what it obtained."""
    records = frames["edits"].meta["overrides"] if "edits" in frames else []
    if not records:
        return "<p>no overrides</p>"
    fields = ("target", "field", "requested", "obtained", "state", "because", "python")
    head = "".join(f"<th>{name}</th>" for name in fields)
    rows = ("".join(f"<td>{escape(str(r[name])).replace(chr(10), '<br>')}</td>" for name in fields) for r in records)
    return f"<table><tr>{head}</tr>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def bringup_html(frames: Mapping[str, Frame]) -> str:
    """The workbench at a glance: numbers, the busiest epoch, the slowest ops; the graph where there is room."""
    parts = [metrics_html(frames)]
    if "ops" not in frames and not any(key.startswith("graph:") for key in frames):
        return (
            f"{parts[0]}<p>The compile was still running when this was stored; <code>view.static()</code> shows its "
            "present state.</p>"
        )
    if "ops" in frames and frames["ops"].columns["epoch_cycles"].size:
        epoch = int(epoch_time(frames["ops"]).argmax())
        parts.append(f"<p>Epoch {epoch}, the longest:</p>{epoch_svg(frames['ops'], epoch)}")
    picture = _graph(frames)
    if sum(map(len, parts)) + len(picture) < LIMIT:
        parts.append(f"<details><summary>Graph</summary>{picture}</details>")
    table = table_html(frames, rows=20)
    if sum(map(len, parts)) + len(table) < LIMIT:
        parts.append(f"<details><summary>Slowest ops</summary>{table}</details>")
    return "".join(parts)


ROWS = 60


def table_html(frames: Mapping[str, Frame], group: bool = False, per_core: bool = False, rows: int = ROWS) -> str:
    """The slowest ops first. group: epoch by epoch, each under its sub-total; per_core: a row per core. At most `rows`
    of ops; what is left out is said."""
    if "ops" not in frames:
        return "<p>no placement yet</p>"
    frame = frames["ops"]
    c = op_columns(frame, per_core)
    order = c["cycles"].argsort(kind="stable")[::-1]
    if group:
        order = order[c["epoch"][order].argsort(kind="stable")]
    shown = order[:rows].tolist()
    limits = ["kernel or transfer", "limited by"] if "limiter" in c else []  # a file says nothing of them
    heads = ["op", "type", "epoch", "cycles", *limits, "grid", "core" if per_core else "at"]
    totals = {t["epoch"]: t for t in epoch_totals(frame)} if group else {}
    body, last = [], -1
    for i in shown:
        epoch = int(c["epoch"][i])
        if group and epoch != last:
            body.append(_total(totals[epoch], len(heads)))
            last = epoch
        body.append(_row(c, i, per_core))
    hidden = len(order) - len(shown)
    more = f"<p>and {hidden:,} more</p>" if hidden else ""
    head = "".join(f"<th>{h}</th>" for h in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>{more}"


def _row(c: dict[str, np.ndarray], i: int, per_core: bool) -> str:
    at = ("core_row", "core_col") if per_core else ("row", "col")
    limits = f"<td>{c['limiter_cycles'][i]:,.0f}</td><td>{escape(c['limiter'][i])}</td>" if "limiter" in c else ""
    return (
        f"<tr><td>{escape(c['name'][i])}</td><td>{escape(c['type'][i])}</td><td>{c['epoch'][i]}</td>"
        f"<td>{c['cycles'][i]:,.0f}</td>{limits}<td>{c['rows'][i]}×{c['cols'][i]}</td><td>{c[at[0]][i]},{c[at[1]][i]}</td></tr>"
    )


def _total(total: dict[str, Any], wide: int) -> str:
    what = "op" if total["limits"] else "kernel"
    return (
        f"<tr><th colspan='{wide}' style='text-align:left'>Epoch {total['epoch']}: {total['ops']} ops, "
        f"{total['time']:,.0f} cycles per input, slowest {what} {escape(total['slowest'])}, {total['cores']} cores, "
        f"{100 * total['balance']:.0f} % balance</th></tr>"
    )
