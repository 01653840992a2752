"""The report: one HTML page with everything inside, which works from a file and without a network."""

from __future__ import annotations

import base64
import dataclasses
import json
import pathlib
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import numpy as np

from tbuda_lab.core.diff import Diff
from tbuda_lab.core.diff.frame import diff_frame
from tbuda_lab.core.errors import InputError, OutputError
from tbuda_lab.core.files import atomic_text
from tbuda_lab.core.frames import Frame, epoch_time, session_frames, static_tiles, trace_frame
from tbuda_lab.core.frames.analysis_frames import cluster_frame, memory_frame
from tbuda_lab.core.frames.graph_frame import pass_frame, passes_frame
from tbuda_lab.core.frames.measured_frame import measured_frame
from tbuda_lab.core.frames.ops_frame import L1_COLUMNS
from tbuda_lab.core.session import Session
from tbuda_lab.core.verification import Comparison
from tbuda_lab.widgets.handlers.edit_messages import legal_frame
from tbuda_lab.widgets.handlers.frames import session_diff_frame, shown_links
from tbuda_lab.widgets.handlers.queries import suggestion_list, why_data
from tbuda_lab.widgets.pictures import fragments
from tbuda_lab.widgets.pictures.diff import diff_fragment
from tbuda_lab.widgets.protocol import StatusBoard

BATCH = 8
"""Inputs of the timeline."""

STATIC = pathlib.Path(__file__).parent / "static"
CLOSER = frozenset(("findings", "measured", "cluster", "memory", "diff", "trace", "passes"))
"""Frames whose views are in a second script, which pages without them do not carry (`src/views/closerviews.ts`)."""

_POLICY = "default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:"

PAGES = ("summary", "epochs", "ops", "memory", "cluster", "diff", "trace", "passes", "measured")
"""Parts of a report: numbers and warnings; graphs and grids; op table and netlist; then a part for each word."""


def chosen_pages(pages: str | Sequence[str]) -> tuple[str, ...]:
    """The parts that are meant, in their order: "all", or names with commas. Raises `InputError` for another name."""
    words = [w.strip() for w in pages.split(",")] if isinstance(pages, str) else list(pages)
    wrong = [w for w in words if w not in (*PAGES, "all")]
    if wrong or not words:
        raise InputError(f"a report has no page {', '.join(map(repr, wrong))}; there are all, {', '.join(PAGES)}")
    return PAGES if "all" in words else tuple(p for p in PAGES if p in words)


def report_html(
    session: Session,
    comparisons: Sequence[Comparison] = (),
    *,
    pages: str | Sequence[str] = "all",
    redact: str = "nothing",
    tables: Mapping[str, Any] | None = None,
) -> str:
    """The page as text: summary, graph of each stage, grid of each epoch, op table, netlist, warnings, memory, what the
    edits changed, timeline, passes.

    tables: what `shared_tables` gives, so that the reader can drag within them; such a page is packed. pages: which of
    `PAGES`, with commas. redact: "names", "shapes" or "both" take those out; see `redact_frames`.
    A session that has not compiled gives a page of what there is (its problems). Raises `InputError` for other words,
    `OutputError` if the front end is not built.
    """
    chosen = chosen_pages(pages)
    result = session.result
    times = session.time(result) if result is not None else None
    frames = session_frames(result, session.device, session.problems, session.name, comparisons, times)
    frames += _timeline(session) if "trace" in chosen else []
    frames += look_frames(session, "passes" in chosen, "epochs" in chosen)
    frames = redact_frames([f for f in frames if _page_of(f.key) in ("", *chosen)], redact)
    frames = [_with_pages(f, chosen) for f in frames]
    name = session.name if redact in ("nothing", "shapes") else "A model"
    if tables is not None and redact != "nothing":
        raise InputError('tables of ops name them and their shapes: share a page with redact="nothing"')
    return page_html(f"{name} on {session.device.name}", frames, _status(session), tables)


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


def page_html(
    title: str,
    frames: Sequence[Frame],
    status: Mapping[str, Any],
    tables: Mapping[str, Any] | None = None,
) -> str:
    """The page of a session; where scripts are off, the static pictures show (not in a packed page)."""
    by_key = {f.key: f for f in frames}
    static = (
        "This page needs scripts."
        if tables is not None
        else (fragments.bringup_html(by_key) + fragments.problems_html(by_key))
    )
    return document(title, frames, status, static, tables)


def document(
    title: str,
    frames: Sequence[Frame],
    status: Mapping[str, Any],
    static: str,
    tables: Mapping[str, Any] | None = None,
) -> str:
    """Frames, status and the bundle in one page; where scripts are off, `static` shows. tables: see `report_html`.

    Raises `OutputError` if the front end is not built.
    """
    embedded: dict[str, Any] = {"title": title, "status": status, "frames": [_embed(f) for f in frames]}
    kind, packed = "application/json", ""
    if tables is not None:
        embedded["tables"] = {**tables, "legal": [_embed(f) for f in tables["legal"]]}
        kind, packed = "text/plain", ' data-packed="deflate"'
    data = json.dumps(embedded, ensure_ascii=False).replace("<", "\\u003c")
    if packed:
        data = base64.b64encode(zlib.compress(data.encode(), 9)).decode("ascii")
    scripts = "\n".join(f'<script type="module">{text}</script>' for text in _scripts(frames))
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
<script type="{kind}" id="tb-data"{packed}>{data}</script>
{scripts}
</body>
</html>
"""


def _scripts(frames: Iterable[Frame]) -> list[str]:
    """The scripts of a page with these frames, in their order, as they may stand in HTML."""
    names = [*(["closer.js"] if CLOSER.intersection(f.key for f in frames) else []), "page.js"]
    try:
        texts = [(STATIC / name).read_text(encoding="utf-8") for name in names]
    except FileNotFoundError:
        raise OutputError("the front end is not built: run `make front-end`, or install the wheel") from None
    return [text.replace("</script", "<\\/script") for text in texts]


def _embed(frame: Frame) -> dict[str, Any]:
    header, buffer = frame.pack()
    return {"header": header, "data": base64.b64encode(buffer).decode("ascii")}


SHARED = 50
"""Single edits that a page that is sent has."""
TABLES = 400
"""Ops whose legal shapes it has, those of the edits and those that take most time first; equal layers pack well."""


def shared_tables(session: Session, count: int = SHARED, seconds: float | None = 60.0) -> dict[str, Any]:
    """What the reader of a page can try without a kernel: the `count` best single edits with what they do, the legal
    shapes of their ops and of those that take most time, and why these stand where they do.

    seconds: to search for edits. Compiles what is not compiled yet.
    """
    session.compile()
    edits = session.suggest(count, seconds=seconds)
    hints = suggestion_list(session, edits)
    placed = session.compile().placement.ops
    named = [op for hint in hints for op in hint["ops"] if op in placed]
    by_time = [row.op for row in sorted(session.profile().ops, key=lambda row: -row.time)]
    ops = list(dict.fromkeys((*named, *by_time)))[: max(count, TABLES)]
    why = {op: {"ok": True, "rev": session.rev, **why_data(session, {"op": op})} for op in ops[:count]}
    return {
        "suggest": hints,
        "why": why,
        "count": len(ops),
        "legal": [legal_frame(session.legal(op), session.rev, 0) for op in ops],
    }


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
    frame = diff_frame(diff)
    return document(f"{diff.a} → {diff.b}", [frame], StatusBoard(()).message(), diff_fragment(frame))


PASSES = 1 << 20
"""Bytes of graphs of passes in a report."""
LINKS = 1 << 18
"""Bytes of loads of NoC links in a report."""


def look_frames(session: Any, passes: bool = False, links: bool = False) -> list[Frame]:
    """Memory; the cluster where there are several chips; start against now where something was edited; if they are
    wanted, the links of the epochs and the passes, with as many graphs as there is room for.

    Nothing for what has not compiled, or is no session of the compiler.
    """
    if not isinstance(session, Session) or session.result is None or session.stale:
        return []
    frames = [memory_frame(session.result, session.rev)]
    if len(session.device.chips) > 1:
        frames.append(cluster_frame(session.result, session.rev))
    if session.history:
        frames.append(session_diff_frame(session, session.diff("start")))
    if session.measured is not None:
        frames.append(measured_frame(session.measured))
    return [*frames, *(_links(session) if links else []), *(_passes(session) if passes else [])]


def _links(session: Session) -> list[Frame]:
    """The links of the epochs, each transfer over the shorter way, the slowest epochs first while there is room."""
    cycles = epoch_time(session.frames.ops(session.compile())).tolist()
    frames: list[Frame] = []
    room = LINKS
    for epoch in sorted(range(len(cycles)), key=lambda e: -cycles[e]):
        frame = shown_links(session, epoch, "both")
        room -= len(frame.pack()[1]) + sum(map(len, frame.strings))
        if room < 0:
            break
        frames.append(frame)
    return frames


def _passes(session: Session) -> list[Frame]:
    """The list, the first pass that changed something as `passgraph`, others as `passgraph:NUMBER:SIDE`."""
    trace = session.passes()
    changed = [s.index for s in trace.steps if s.changes]
    frames = [passes_frame(trace, session.rev)]
    room = PASSES
    for index, side in [(k, side) for k in changed for side in ("after", "before")]:
        frame = pass_frame(trace, index, side)
        room -= len(frame.pack()[1]) + sum(map(len, frame.strings))
        if room < 0 and len(frames) > 1:
            break
        if len(frames) == 1:
            frames.append(frame)
        frames.append(dataclasses.replace(frame, key=f"passgraph:{index}:{side}"))
    return frames


WHAT = ("nothing", "names", "shapes", "both")
LEFT_OUT = "(left out)"

_WORDS = (
    "op_type",
    "op_df",
    "op_fidelity",
    "op_stream",
    "op_limiter",
    "node_type",
    "node_df",
    "queue_kind",
    "queue_df",
    "queue_what",
    "step_name",
    "step_label",
    "step_doc",
    "severity",
    "rule",
)
"""Columns whose strings are the compiler's own words."""
_META = (
    "kinds",
    "locations",
    "classes",
    "totals",
    "device",
    "arch",
    "stage",
    "side",
    "pass",
    "label",
    "noc",
    "doc",
    "verdict",
    "options",
    "channels",
    "directions",
    "grid_a",
    "grid_b",
)
_KEPT = ("start", "now", "previous")
_SHAPES = (
    "op_t",
    "op_mblock_m",
    "op_mblock_n",
    "op_ublock_r",
    "op_ublock_c",
    "op_m_k",
    "op_u_kt",
    "op_buf_size_mb",
    "op_l1_total",
    *(f"op_{column}" for column in L1_COLUMNS.values()),
)
_SIZES = re.compile(r"\d+(?:\s*[x×,]\s*\d+)+|(?<=[\[(=])\d+")
_NUMBERS = re.compile(r"[\d\s()\[\]x×,.:-]*")


def redact_frames(frames: Sequence[Frame], what: str) -> list[Frame]:
    """The frames without names, without shapes, or without both; the text of the netlist goes in any case.

    Without shapes: no tensor shapes, blocks, bytes, no page of memory and no loads of links. Raises `InputError` for
    another word.
    """
    if what not in WHAT:
        raise InputError(f"redact is one of {', '.join(WHAT)}, not {what!r}")
    if what == "nothing":
        return list(frames)
    names, shapes = what in ("names", "both"), what in ("shapes", "both")
    removed = {"netlist", "measured", *(["memory"] if shapes else [])}
    rename = _Renaming(frames, names, shapes)
    return [rename.frame(f) for f in frames if f.key not in removed and not (shapes and f.key.startswith("links:"))]


class _Renaming:
    def __init__(self, frames: Iterable[Frame], names: bool, shapes: bool) -> None:
        self.names, self.shapes = names, shapes
        self.harmless = {"", *_KEPT}
        self.given: dict[str, str] = {}
        for frame in frames:
            for column in _WORDS:
                if column in frame.columns:
                    self.harmless.update(frame.text(column))
            for key in ("kinds", "locations", "classes"):
                self.harmless.update(map(str, frame.meta.get(key, ())))

    def string(self, text: str) -> str:
        if text in self.harmless:
            return text
        if self.shapes and _SIZES.search(text):
            if not self.names:
                return _SIZES.sub("…", text)
            return LEFT_OUT
        if not self.names or _NUMBERS.fullmatch(text):
            return text
        if ".py" in text or " " in text or "=" in text:
            return LEFT_OUT
        return self.given.setdefault(text, f"name{len(self.given) + 1}")

    def meta(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.string(value)
        if isinstance(value, dict):
            return {k: v if k in _META else self.meta(v) for k, v in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.meta(v) for v in value]
        return value

    def frame(self, frame: Frame) -> Frame:
        columns = dict(frame.columns)
        if self.shapes:
            columns |= {k: np.zeros_like(v) for k, v in columns.items() if k in _SHAPES}
        strings = tuple(self.string(s) for s in frame.strings)
        return dataclasses.replace(frame, strings=strings, columns=columns, meta=self.meta(frame.meta))
