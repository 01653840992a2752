"""The picture of an exploration as data for the page, and as one page that works offline."""

from __future__ import annotations

import base64
import json
import shlex
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from tbuda_lab.core.errors import InputError, OutputError
from tbuda_lab.core.explore import NUMBERS, Objective, Plan, Trial, front, holding, plan_of, read, read_placement
from tbuda_lab.core.files import atomic_text
from tbuda_lab.core.session.explore import Explore, command_words, csv_of, overrides_text, table_of

SCRIPT = Path(__file__).parents[1] / "static" / "explore.js"
"""Bundled from `labextension/src/explorepage.ts`."""
THUMBNAILS = 300
"""Trials whose epochs are drawn, those of the front first."""
_POLICY = "default-src 'none'; script-src 'unsafe-inline' data:; style-src 'unsafe-inline'; img-src data:"


def picture_data(
    plan: Plan,
    trials: Sequence[Trial],
    stale: Sequence[Trial],
    folder: Path,
    title: str,
    progress: Mapping[str, Any],
    running: bool = False,
) -> dict[str, Any]:
    """What a page draws: axes, numbers with unit and direction, a row a trial. progress: done, total,
    seconds_left."""
    directions = {name: number.better for name, number in NUMBERS.items()}
    directions |= {o.number: o.direction for o in plan.objectives}
    best = front(trials, plan.objectives, plan.requirements)
    drawn = {t.placement for t in (*best, *trials)[:THUMBNAILS] if t.placement}
    epochs: dict[str, Any] = {}
    for trial in trials:
        if trial.placement in drawn and trial.placement not in epochs:
            try:
                epochs[trial.placement] = read_placement(folder, trial)
            except InputError:  # the file has gone; the row stays
                continue
    rows = [_row(plan, t, t in stale, epochs) for t in (*trials, *stale)]
    known = {name for row in rows for name in row["numbers"]}
    return {
        "title": title,
        "progress": dict(progress),
        "running": running,
        "axes": [{"name": name, "values": list(values)} for name, values in plan.space.axes.items()],
        "objectives": [o.number for o in plan.objectives],
        "names": [n for n in NUMBERS if n in known or n in plan.wanted],
        "directions": directions,
        "units": {name: number.unit for name, number in NUMBERS.items()},
        "requirements": list(map(str, plan.requirements)),
        "trials": rows,
        "grids": {name: record["grid"] for name, record in epochs.items() if "grid" in record},
    }


def picture_of(exploration: Explore) -> dict[str, Any]:
    """The picture of an exploration as it stands."""
    e, p = exploration, exploration.progress
    progress = {"done": p.done, "total": p.total, "seconds_left": p.seconds_left}
    return picture_data(e.plan, e.trials, e.stale, e.folder, e.session.name, progress, e.running)


def _row(plan: Plan, trial: Trial, stale: bool, epochs: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "n": -1 - trial.n if stale else trial.n,
        "point": dict(trial.point),
        "state": trial.state,
        "reason": None if trial.reason is None else dict(trial.reason),
        "numbers": dict(trial.numbers),
        "placement": trial.placement,
        "epochs": epochs.get(trial.placement, {}).get("epochs"),
        "stale": stale,
        "version": trial.version,
        "holds": not stale and all(r.holds(trial.numbers) for r in plan.requirements),
        "command": shlex.join(["tbuda", "compile", *command_words(plan, trial.point)]),
    }


def folder_data(folder: Path, keep_old: bool = True) -> dict[str, Any]:
    """The picture of a folder, without its model. Raises `InputError`."""
    record = read(folder)
    plan = plan_of(record.header, str(folder))
    trials = [record.trials[n] for n in sorted(record.trials)]
    progress = {"done": len(trials), "total": min(plan.budget, plan.space.size), "seconds_left": None}
    stale = record.stale if keep_old else ()
    return picture_data(plan, trials, stale, folder, str(record.header["model"]), progress)


_COLOURS = "#5a6675", "#0b6bcb"
_W, _H, _LEFT, _BOTTOM, _TOP = 560, 320, 76, 40, 12
_LISTED = 40
"""Rows of a table without a script."""


def front_svg(plan: Plan, trials: Sequence[Trial]) -> str:
    """The first two objectives against each other, the front drawn, refused points on the axis: the static twin of the
    picture. "" where nothing is done."""
    names = list(dict.fromkeys((*(o.number for o in plan.objectives), "samples/s", "dram_bytes")))
    up, across = names[:2]
    done = [t for t in trials if across in t.numbers and up in t.numbers]
    if not done:
        return ""
    spans = {n: (min(t.numbers[n] for t in done), max(t.numbers[n] for t in done)) for n in (up, across)}

    def place(trial: Trial) -> tuple[float, float]:
        parts = [(trial.numbers[n] - low) / ((high - low) or 1.0) for n, (low, high) in spans.items()]
        return _LEFT + 20 + parts[1] * (_W - _LEFT - 40), _H - _BOTTOM - 16 - parts[0] * (_H - _BOTTOM - _TOP - 32)

    best = front(done, _along(plan, up, across), plan.requirements)
    ring = {t.n for t in best}
    held = {t.n for t in holding(trials, plan.requirements)}
    dots = "".join(_dot(plan, t, place(t), t.n in ring, t.n in held) for t in sorted(done, key=lambda t: t.n in ring))
    corners = sorted(map(place, best))
    steps = "".join(f"{'H' if k else 'M'}{x:.1f}{'V' if k else ' '}{y:.1f}" for k, (x, y) in enumerate(corners))
    refused = [t for t in trials if t.state != "done"]
    apart = min(12.0, (_W - _LEFT - 40) / max(1, len(refused)))
    crosses = "".join(
        f"<path d='M{_LEFT + 16 + apart * k:.1f} {_H - _BOTTOM - 4}l8 8m0 -8l-8 8' stroke='#c2570c' stroke-width='1.6'>"
        f"<title>{_words(plan, t)}: {escape(str((t.reason or {}).get('text', t.state)))}</title></path>"
        for k, t in enumerate(refused)
    )
    texts = [
        (_LEFT + 20, _H - 22, "start", f"{spans[across][0]:,.4g}"),
        (_W - 20, _H - 22, "end", f"{spans[across][1]:,.4g}" if spans[across][1] > spans[across][0] else ""),
        ((_LEFT + _W) / 2, _H - 6, "middle", _axis(across)),
        (_LEFT - 6, _H - _BOTTOM - 12, "end", f"{spans[up][0]:,.4g}"),
        (_LEFT - 6, _TOP + 20, "end", f"{spans[up][1]:,.4g}" if spans[up][1] > spans[up][0] else ""),
        (4, _H / 2, "start", _axis(up)),
    ]
    words = "".join(f"<text x='{x}' y='{y}' text-anchor='{a}' fill='#333'>{escape(t)}</text>" for x, y, a, t in texts)
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {_W} {_H}' width='{_W}' font-size='11' "
        f"font-family='sans-serif' role='img' aria-label='{escape(up)} against {escape(across)} of {len(done)} trials, "
        f"{len(best)} on the front, {len(refused)} refused'><rect width='{_W}' height='{_H}' fill='#fff'/>"
        f"<path d='M{_LEFT} {_TOP}V{_H - _BOTTOM}H{_W - 6}' fill='none' stroke='#5a6675'/>"
        f"<path d='{steps}' fill='none' stroke='{_COLOURS[1]}' stroke-width='1.6'/>{words}{crosses}{dots}</svg>"
    )


def _along(plan: Plan, *numbers: str) -> tuple[Objective, ...]:
    """Objectives of two numbers: the plan's, else what is usually wanted of the number."""
    known = {o.number: o for o in plan.objectives}
    return tuple(known.get(n) or Objective(n, NUMBERS[n].better) for n in numbers)


def _axis(name: str) -> str:
    return f"{name} ({NUMBERS[name].unit})" if NUMBERS[name].unit else name


def _words(plan: Plan, trial: Trial) -> str:
    return escape(f"trial {trial.n}: " + ", ".join(str(trial.point[axis]) for axis in plan.space.axes), quote=True)


def _dot(plan: Plan, trial: Trial, at: tuple[float, float], ring: bool, holds: bool) -> str:
    """A point; hollow where it misses a requirement, named where it is on the front."""
    x, y = at
    colour = _COLOURS[ring]
    fill = f"fill='{colour}'" if holds else f"fill='#fff' stroke='{colour}'"
    name = ", ".join(str(trial.point[axis]) for axis in plan.space.axes)
    side = ("end", -9) if x > _W - 150 else ("start", 9)
    label = f"<text x='{x + side[1]:.1f}' y='{y + 4:.1f}' text-anchor='{side[0]}' fill='#333'>{escape(name)}</text>"
    return (
        f"<circle cx='{x:.1f}' cy='{y:.1f}' r='{5 if ring else 3}' {fill}><title>{_words(plan, trial)}</title></circle>"
        + (label if ring else "")
    )


def explore_fragment(plan: Plan, trials: Sequence[Trial], title: str) -> str:
    """What a reader sees without a script: how many trials, the front as a picture, and the best of them as a table."""
    best = front(trials, plan.objectives, plan.requirements)
    total = min(plan.budget, plan.space.size)
    refused = sum(t.state != "done" for t in trials)
    wanted = ", ".join(map(str, (*plan.objectives, *plan.requirements)))
    listed = (*best, *(t for t in trials if t not in best))[:_LISTED]
    head, rows = table_of(plan, listed)
    keep = [k for k, name in enumerate(head) if name != "key" and (name not in NUMBERS or name in plan.wanted)]
    cells = "".join(
        "<tr>" + "".join(f"<td>{'★ ' * (k == 0 and t in best)}{escape(_shown(row[k]))}</td>" for k in keep) + "</tr>"
        for t, row in zip(listed, rows, strict=True)
    )
    table = f"<table><tr>{''.join(f'<th>{escape(head[k])}</th>' for k in keep)}</tr>{cells}</table>"
    more = f"<p>and {len(trials) - len(listed)} more</p>" if len(trials) > len(listed) else ""
    note = f"{len(trials)} of {total} trials, {len(best)} on the front, {refused} refused; wanted: {wanted}"
    return f"<p><b>{escape(title)}</b> · {escape(note)}</p>{front_svg(plan, trials)}{table}{more}"


def _shown(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"
    return "" if value is None else str(value)


def explore_script() -> str:
    """The script of the picture. Raises `OutputError` where the front end is not built."""
    try:
        return SCRIPT.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise OutputError("the front end is not built: run `make front-end`, or install the wheel") from None


def explore_html(folder: Path, keep_old: bool = True) -> str:
    """One page: no request leaves it. Where scripts are off, the table shows. Raises `InputError`."""
    record = read(folder)
    plan = plan_of(record.header, str(folder))
    trials = [record.trials[n] for n in sorted(record.trials)]
    shown = {**folder_data(folder, keep_old), "files": _files(folder, plan, trials)}
    data = json.dumps(shown, ensure_ascii=False).replace("<", "\\u003c")
    head, rows = table_of(plan, trials)
    cells = "".join("<tr>" + "".join(f"<td>{escape(str(c))}</td>" for c in row) + "</tr>" for row in rows)
    table = f"<table><tr>{''.join(f'<th>{escape(c)}</th>' for c in head)}</tr>{cells}</table>"
    twin = front_svg(plan, trials)
    script = base64.b64encode(explore_script().encode()).decode("ascii")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(str(record.header["model"]))}: exploration</title>
<style>:root {{ color-scheme: light dark; }} body {{ margin: 0; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #1b212a; }} }}</style>
</head>
<body>
<main id="explore"></main>
<noscript>{twin}{table}</noscript>
<script type="application/json" id="data">{data}</script>
<script type="module">
import {{ draw }} from 'data:text/javascript;base64,{script}';
draw(document.getElementById('explore'), JSON.parse(document.getElementById('data').textContent));
</script>
</body>
</html>
"""


def _files(folder: Path, plan: Plan, trials: Sequence[Trial]) -> dict[str, Any]:
    """What the page hands out without a kernel: the table as CSV, and overrides of the front's points by number."""
    overrides: dict[int, str] = {}
    for trial in front(trials, plan.objectives, plan.requirements):
        try:
            overrides[trial.n] = overrides_text(folder, trial)
        except InputError:  # the file has gone; the row stays
            continue
    return {"csv": csv_of(plan, trials), "overrides": overrides}


def write_explore_page(folder: Path, path: str | Path, keep_old: bool = True) -> Path:
    """Write the page, whole or not at all. Raises `InputError`, `OutputError`."""
    text = explore_html(folder, keep_old)
    with atomic_text(path) as file:
        file.write(text)
    return Path(path)
