"""Exports that need the views: the report page, and pictures. Importing this module adds them to `EXPORTS`."""

from __future__ import annotations

from pathlib import Path

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import atomic_text
from tbuda_lab.core.frames import graph_frame
from tbuda_lab.core.session import GRAPH_STAGES, ExportKind, ExportSetting, Session
from tbuda_lab.core.session.exports import register
from tbuda_lab.widgets.pictures.graph import graph_svg
from tbuda_lab.widgets.pictures.grid import epoch_svg
from tbuda_lab.widgets.protocol.redact import WHAT
from tbuda_lab.widgets.report import PAGES, chosen_pages, write_report
from tbuda_lab.widgets.views.plots import write_plots


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
        "report", "Report", "one HTML page with everything, works offline", ".report.html",
        "tbuda_lab.widgets.export_report(session, {})", export_report,
        (
            ExportSetting("verify", False, "run one sample and compare it with torch"),
            ExportSetting("pages", "all", f"all, or some of {', '.join(PAGES)}"),
            ExportSetting("redact", "nothing", "what is left out of names and shapes", WHAT),
        ),
    )
)  # fmt: skip
register(
    ExportKind(
        "plots", "Plots", "utilisation, roofline, gap to bounds, cost history; one page, works offline", ".plots.html",
        "tbuda_lab.widgets.export_plots(session, {})", export_plots,
    )
)  # fmt: skip
register(
    ExportKind(
        "image", "Image", "the grid of an epoch or a graph, as SVG", ".svg",
        "tbuda_lab.widgets.export_image(session, {})", export_image,
        (
            ExportSetting("view", "grid", "grid or graph", ("grid", "graph")),
            ExportSetting("epoch", 0, "which epoch the grid shows"),
            ExportSetting("stage", "lowered", "which graph", GRAPH_STAGES),
        ),
    )
)  # fmt: skip
