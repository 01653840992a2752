"""Views of a session for notebooks, and the static report. The report works without ipywidgets; the views need it."""

from __future__ import annotations

import importlib
from typing import Any

from tbuda_lab.widgets.handlers import lab

_HOMES = {
    "handlers.exports": ("export_image", "export_plots", "export_report", "image_svg"),
    "report": ("report_html", "write_report"),
    "views.base": ("keep_in_step",),
    "views.cluster": ("ClusterView",),
    "views.diff": ("DiffView", "diff"),
    "views.explore": ("ExploreView",),
    "views.memory": ("MemoryView",),
    "views.measured": ("MeasuredView", "open_profile"),
    "views.files": ("ImageFile", "NetlistFile", "open_netlist", "open_tti"),
    "views.passes": ("PassStepper",),
    "views.program": ("ProgramView",),
    "views.placements": ("PlacementsView",),
    "views.plots": ("PlotsView",),
    "views.profile": ("ProfileView",),
    "views.trace": ("RunTrace",),
    "views.workbench": (
        "BringUp",
        "EpochGrid",
        "GraphView",
        "NetlistView",
        "OpTable",
        "OverridesPanel",
        "ProblemsView",
        "StaticView",
    ),
}
_HOME = {name: home for home, names in _HOMES.items() for name in names}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(importlib.import_module(f"tbuda_lab.widgets.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


lab.register()  # in a kernel: JupyterLab may ask for the sessions there are
