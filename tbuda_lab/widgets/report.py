"""The report: one HTML page with everything inside, which works from a file and without a network."""

from __future__ import annotations

import base64
import dataclasses
import json
import pathlib
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from tbuda_lab.core.diff import Diff
from tbuda_lab.core.diff.frame import diff_frame
from tbuda_lab.core.errors import InputError, OutputError
from tbuda_lab.core.files import atomic_text
from tbuda_lab.core.frames import Frame, session_frames, static_tiles, trace_frame
from tbuda_lab.core.session import Session
from tbuda_lab.core.verification import Comparison
from tbuda_lab.widgets.pictures import fragments
from tbuda_lab.widgets.pictures.diff import diff_twin
from tbuda_lab.widgets.protocol.redact import redacted
from tbuda_lab.widgets.protocol.report_traits import look_frames
from tbuda_lab.widgets.protocol.stage_status import StatusBoard

BATCH = 8
"""Inputs of the timeline."""

PAGE = pathlib.Path(__file__).parent / "static" / "page.js"

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"


PAGES = ("summary", "epochs", "ops", "memory", "cluster", "diff", "trace", "passes")
"""Parts of a report: numbers and warnings; graphs and grids; op table and netlist; then a part for each word."""


def chosen_pages(pages: str | Sequence[str]) -> tuple[str, ...]:
    """The parts that are meant, in their order: "all", or names with commas. Raises `InputError` for another name."""
    words = [w.strip() for w in pages.split(",")] if isinstance(pages, str) else list(pages)
    wrong = [w for w in words if w not in (*PAGES, "all")]
    if wrong or not words:
        raise InputError(f"a report has no page {', '.join(map(repr, wrong))}; there are all, {', '.join(PAGES)}")
    return PAGES if "all" in words else tuple(p for p in PAGES if p in words)


def report_html(
    session: Session, comparisons: Sequence[Comparison] = (), *, pages: str | Sequence[str] = "all",
    redact: str = "nothing",
) -> str:  # fmt: skip
    """The page as text: summary, graph of each stage, grid of each epoch, op table, netlist, warnings, memory, what the
    edits changed, timeline, passes.

    pages: which of `PAGES`, with commas. redact: "names", "shapes" or "both" take those out; see `redact.redacted`.
    A session that has not compiled gives a page of what there is (its problems). Raises `InputError` for other words,
    `OutputError` if the front end is not built.
    """
    chosen = chosen_pages(pages)
    try:
        script = PAGE.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise OutputError("the front end is not built: run `make front-end`, or install the wheel") from None
    result = session.result
    times = session.time(result) if result is not None else None
    frames = session_frames(result, session.device, session.problems, session.name, comparisons, times)
    frames += _timeline(session) if "trace" in chosen else []
    frames += look_frames(session, "passes" in chosen, "epochs" in chosen)
    frames = redacted([f for f in frames if _page_of(f.key) in ("", *chosen)], redact)
    frames = [_with_pages(f, chosen) for f in frames]
    name = session.name if redact in ("nothing", "shapes") else "A model"
    return page_html(f"{name} on {session.device.name}", frames, _status(session), script)


def _page_of(key: str) -> str:
    """The part that alone needs a frame; "" for frames of several."""
    stem = key.split(":")[0]
    homes = {"graph": "epochs", "netlist": "ops", "passgraph": "passes", "trace": "trace", "tracetile": "trace"}
    return homes.get(stem, stem if stem in PAGES and stem not in ("summary", "ops") else "")


def _with_pages(frame: Frame, pages: tuple[str, ...]) -> Frame:
    if frame.key != "summary" or pages == PAGES:
        return frame
    return dataclasses.replace(frame, meta={**frame.meta, "pages": list(pages)})


def write_report(
    session: Session, path: str | pathlib.Path, comparisons: Sequence[Comparison] = (), **settings: Any
) -> pathlib.Path:
    """Write the page, whole or not at all; settings: as for `report_html`. Raises `OutputError` naming the path where
    that fails."""
    return write_page(report_html(session, comparisons, **settings), path)


def write_page(text: str, path: str | pathlib.Path) -> pathlib.Path:
    """Write a page, whole or not at all. Raises `OutputError` naming the path where that fails."""
    with atomic_text(path) as file:
        file.write(text)
    return pathlib.Path(path)


def page_html(title: str, frames: Sequence[Frame], status: Mapping[str, Any], script: str) -> str:
    """The page of a session; where scripts are off, the static twins show."""
    by_key = {f.key: f for f in frames}
    return document(title, frames, status, script, fragments.bringup_html(by_key) + fragments.problems_html(by_key))


def document(title: str, frames: Sequence[Frame], status: Mapping[str, Any], script: str, static: str) -> str:
    """Frames, status and the bundle in one page; where scripts are off, `static` shows."""
    embedded = {"title": title, "status": status, "frames": [_embed(f) for f in frames]}
    data = json.dumps(embedded, ensure_ascii=False).replace("<", "\\u003c")
    module = script.replace("</script", "<\\/script")
    return f"""<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="Content-Security-Policy" content="{_POLICY}">
<title>{escape(title)}</title>
<style>:root {{ color-scheme: light dark; }} body {{ margin: 0; background: #f4f6f9; }}
@media (prefers-color-scheme: dark) {{ body {{ background: #14181f; }} }}</style>
</head>
<body>
<div id="tb-report"></div>
<noscript>{static}</noscript>
<script type="application/json" id="tb-data">{data}</script>
<script type="module">{module}</script>
</body>
</html>
"""


def _embed(frame: Frame) -> dict[str, Any]:
    header, buffer = frame.pack()
    return {"header": header, "data": base64.b64encode(buffer).decode("ascii")}


def _timeline(session: Session) -> list[Frame]:
    """The placement in time for a few inputs, as coarse as a page without a kernel can carry it."""
    if session.result is None or not isinstance(session, Session):
        return []
    result = session.timeline(BATCH)
    return [trace_frame(result, session.rev), *static_tiles(result.trace)]


def _status(session: Session) -> dict[str, Any]:
    board = StatusBoard(tuple(n for n in session.stages if n in session.timings))
    for name in list(board.stages):
        board.done(name, session.timings[name])
    return board.message()


def diff_html(diff: Diff) -> str:
    """A comparison as one page that works from a file, without kernel and network. Raises `OutputError` if the front
    end is not built."""
    try:
        script = PAGE.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise OutputError("the front end is not built: run `make front-end`, or install the wheel") from None
    frame = diff_frame(diff)
    return document(f"{diff.a} → {diff.b}", [frame], StatusBoard(()).message(), script, diff_twin(frame))
