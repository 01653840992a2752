"""Exports that need the views (the report page, pictures), and the kernel's side of the export dialog.

Importing this module adds its kinds to `tbuda_lab.core.session.exports.EXPORTS`.
"""

from __future__ import annotations

import base64
import binascii
import weakref
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.files import atomic_file, atomic_text, file_stem, path_inside
from tbuda_lab.core.frames import graph_frame
from tbuda_lab.core.session import GRAPH_STAGES, ExportKind, ExportSetting, Session
from tbuda_lab.core.session import exports as session_exports
from tbuda_lab.core.session.exports import register
from tbuda_lab.widgets.handlers.edit_controller import BUSY, refusal
from tbuda_lab.widgets.pictures.graph import graph_svg
from tbuda_lab.widgets.pictures.grid import epoch_svg
from tbuda_lab.widgets.pictures.plots import write_plots
from tbuda_lab.widgets.protocol import answers
from tbuda_lab.widgets.report import PAGES, WHAT, chosen_pages, write_report

if TYPE_CHECKING:
    from tbuda_lab.widgets.handlers.session_hub import Hub, Listener


def export_report(
    session: Session, path: str | Path, *, verify: bool = False, pages: str = "all", redact: str = "nothing"
) -> Path:
    """Write the report: one HTML page that works without a network. Compiles what is not compiled.

    verify: run one sample and compare it with torch first; the page then says how well they agree. pages, redact: as
    for `report_html`, and checked first.
    """
    chosen_pages(pages)
    session.compile()
    return write_report(session, path, session.verify() if verify else (), pages=pages, redact=redact)


def export_plots(session: Session, path: str | Path) -> Path:
    """Write the page of plots (Bokeh, about 1 MB). Raises `OutputError` without Bokeh."""
    return write_plots(session, path)


def image_svg(session: Session, view: str = "grid", epoch: int = 0, stage: str = "lowered") -> str:
    """A picture of the placement ("grid": of one epoch) or of the graph of a stage ("graph"), as SVG.

    Raises `InputError` for an epoch, stage or view that there is not.
    """
    result = session.compile()
    if view == "grid":
        count = len(result.placement.epochs)
        if not 0 <= epoch < count:
            raise InputError(f"no epoch {epoch}; there are 0 to {count - 1}")
        return epoch_svg(session.frames.ops(result), epoch)
    if view == "graph":
        if stage not in GRAPH_STAGES:
            raise InputError(f"no stage {stage!r}; there are {', '.join(GRAPH_STAGES)}")
        return graph_svg(graph_frame(session.graph(stage), stage))
    raise InputError(f"no view {view!r}; there are grid, graph")


def export_image(
    session: Session, path: str | Path, *, view: str = "grid", epoch: int = 0, stage: str = "lowered"
) -> Path:
    """Write a picture as SVG; see `image_svg`."""
    text = image_svg(session, view, epoch, stage)
    with atomic_text(Path(path)) as stream:
        stream.write(text + "\n")
    return Path(path)


register(
    ExportKind(
        "report",
        "Report",
        "one HTML page with everything, works offline",
        ".report.html",
        "tbuda_lab.widgets.export_report(session, {})",
        export_report,
        (
            ExportSetting("verify", False, "run one sample and compare it with torch"),
            ExportSetting("pages", "all", f"all, or some of {', '.join(PAGES)}"),
            ExportSetting("redact", "nothing", "what is left out of names and shapes", WHAT),
        ),
    )
)
register(
    ExportKind(
        "plots",
        "Plots",
        "utilisation, roofline, gap to bounds, cost history; one page, works offline",
        ".plots.html",
        "tbuda_lab.widgets.export_plots(session, {})",
        export_plots,
    )
)
register(
    ExportKind(
        "image",
        "Image",
        "the grid of an epoch or a graph, as SVG",
        ".svg",
        "tbuda_lab.widgets.export_image(session, {})",
        export_image,
        (
            ExportSetting("view", "grid", "grid or graph", ("grid", "graph")),
            ExportSetting("epoch", 0, "which epoch the grid shows", only=("view", "grid")),
            ExportSetting("stage", "lowered", "which graph", GRAPH_STAGES, only=("view", "graph")),
        ),
    )
)

MAX_PICTURE = 24 << 20
"""Bytes of a picture that a page may send."""

PNG = b"\x89PNG\r\n\x1a\n"

_parts: weakref.WeakKeyDictionary[Any, dict[int, bytes]] = weakref.WeakKeyDictionary()


@answers("exports")
def _kinds(hub: Hub, view: Listener, _content: Mapping[str, Any]) -> None:
    view.post({"type": "exports", "name": file_stem(hub.session.name), "kinds": kinds_data()}, [])


def kinds_data() -> list[dict[str, Any]]:
    """Every kind of export with its settings, as a dialog shows them."""
    return [
        {
            "name": kind.name,
            "title": kind.title,
            "meaning": kind.meaning,
            "suffix": kind.suffix,
            "settings": [
                {"name": s.name, "default": s.default, "meaning": s.meaning, "choices": list(s.choices)}
                for s in kind.settings
            ],
        }
        for kind in session_exports.EXPORTS.values()
    ]


def _plan(session: Session, content: Mapping[str, Any]) -> session_exports.Export:
    """What a page asks for: a file below the folder of the kernel, with an ending of its kind."""
    path, settings = content.get("path"), content.get("settings")
    inside = None if path is None else path_inside(Path(), path)
    if not isinstance(settings, Mapping):
        settings = {}
    chosen = {str(k): v for k, v in settings.items()}
    plan = session_exports.plan(session, str(content.get("kind")), inside, **chosen)
    _check_ending(plan.path, (Path(f"x{plan.kind.suffix}").suffix, *plan.kind.endings))
    return plan


def _check_ending(path: Path, endings: tuple[str, ...]) -> None:
    if path.suffix.lower() not in endings or path.stem.startswith("."):
        raise InputError(
            f"{path.name!r} is no name for this: give one that ends in {' or '.join(endings)}, "
            "and does not begin with a dot"
        )


@answers("export_plan")
def _describe_plan(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    head = {"type": "export_plan", "ask": content.get("ask"), "kind": content.get("kind")}
    try:
        plan = _plan(hub.session, content)
        answer = {
            "ok": True,
            "path": str(plan.path),
            "cli": plan.cli,
            "python": plan.python,
            "note": plan.note,
            "preview": plan.preview,
            "folder": str(Path.cwd()),
        }
    except TbudaError as error:
        answer = {"ok": False, "text": refusal(error)}
    view.post({**head, **answer}, [])


@answers("export")
def _write(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    head = {"type": "exported", "kind": content.get("kind")}
    if hub.edit_controller is None or hub.busy:
        view.post({**head, "ok": False, "text": BUSY}, [])
        return

    def work() -> None:
        try:
            plan = _plan(hub.session, content)
            exists = [path for path in plan.files if _would_overwrite(path, content)]
            if exists:
                answer: dict[str, Any] = {"ok": False, "exists": True, "text": f"{exists[0]} exists already."}
            else:
                path = plan.write()
                answer = {"ok": True, "path": str(path.resolve()), "text": f"written: {path.resolve()}"}
        except TbudaError as error:
            answer = {"ok": False, "text": refusal(error)}
        view.post({**head, **answer}, [])

    hub.edit_controller.submit(work)


def _would_overwrite(path: Path, content: Mapping[str, Any]) -> bool:
    return path.exists() and content.get("replace") is not True


@answers("export_picture")
def _picture(hub: Hub, view: Listener, content: Mapping[str, Any]) -> None:
    """A PNG that the page painted, in parts: `part: [i, n]`, `data` in base64. Written when the last one is there."""
    try:
        image = _collect(view, content)
        if image is None:
            return
        path = path_inside(Path(), content.get("path"))
        _check_ending(path, (".png",))
        if _would_overwrite(path, content):
            answer: dict[str, Any] = {"ok": False, "exists": True, "text": f"{path} exists already."}
        else:
            with atomic_file(path) as file:
                file.write_bytes(image)
            answer = {"ok": True, "path": str(path.resolve()), "text": f"written: {path.resolve()}"}
    except TbudaError as error:
        answer = {"ok": False, "text": refusal(error)}
    view.post({"type": "exported", "kind": "image", **answer}, [])


def _collect(view: Listener, content: Mapping[str, Any]) -> bytes | None:
    part, data = content.get("part"), content.get("data")
    numbers = part if isinstance(part, (list, tuple)) and all(type(v) is int for v in part) else ()
    if len(numbers) != 2 or not isinstance(data, str) or not isinstance(content.get("path"), str):
        raise InputError("a picture is sent in numbered parts")
    index, count = numbers
    if not 0 <= index < count <= 1024:
        raise InputError("a picture is sent in numbered parts")
    parts = _parts.setdefault(view, {})
    if index == 0:
        parts.clear()
    try:
        parts[index] = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        raise InputError("a part of a picture is not base64") from None
    if sum(map(len, parts.values())) > MAX_PICTURE:
        parts.clear()
        raise InputError(f"a picture has at most {MAX_PICTURE >> 20} MiB")
    if len(parts) < count:
        return None
    image = b"".join(parts[i] for i in range(count))
    parts.clear()
    if not image.startswith(PNG):
        raise InputError("that is not a PNG picture")
    return image
