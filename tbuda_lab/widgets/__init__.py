"""Views of a session for notebooks, and the static report. The report works without ipywidgets; the views need it."""

from __future__ import annotations

import importlib
from typing import Any

from tbuda_lab.widgets.handlers import lab

_VIEWS = ("BringUp", "EpochGrid", "GraphView", "NetlistView", "OpTable", "OverridesPanel", "ProblemsView", "StaticView")
_TRACE = ("RunTrace",)
_LOOKS = {
    "ClusterView": "cluster_view", "DiffView": "diff_view", "diff": "diff_view",
    "MemoryView": "memory_view", "PassStepper": "pass_view", "PlotsView": "plots_view",
}  # fmt: skip
_FILES = ("NetlistFile", "open_netlist")
_IMAGES = ("ImageFile", "open_tti")
_REPORT = ("report_html", "write_report")
_EXPORTS = ("export_image", "export_plots", "export_report", "image_svg")

__all__ = [*_VIEWS, *_TRACE, *_LOOKS, *_FILES, *_IMAGES, *_REPORT, *_EXPORTS]


def __getattr__(name: str) -> Any:
    if name in _VIEWS:
        return getattr(importlib.import_module("tbuda_lab.widgets.views.workbench"), name)
    if name in _TRACE:
        return getattr(importlib.import_module("tbuda_lab.widgets.views.trace"), name)
    if name in _LOOKS:
        return getattr(importlib.import_module(f"tbuda_lab.widgets.{_LOOKS[name]}"), name)
    if name in _FILES:
        return getattr(importlib.import_module("tbuda_lab.widgets.views.netlist_file"), name)
    if name in _IMAGES:
        return getattr(importlib.import_module("tbuda_lab.widgets.views.image_file"), name)
    if name in _REPORT:
        return getattr(importlib.import_module("tbuda_lab.widgets.report"), name)
    if name in _EXPORTS:
        return getattr(importlib.import_module("tbuda_lab.widgets.handlers.view_exports"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)


lab.register()  # in a kernel: JupyterLab may ask for the sessions there are
