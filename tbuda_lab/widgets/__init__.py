"""Views of a session for notebooks, and the static report. The report works without ipywidgets; the views need it."""

from __future__ import annotations

import importlib
from typing import Any

_VIEWS = ("BringUp", "EpochGrid", "GraphView", "NetlistView", "OpTable", "OverridesPanel", "ProblemsView", "StaticView")
_FILES = ("NetlistFile", "open_netlist")
_REPORT = ("report_html", "write_report")

__all__ = [*_VIEWS, *_FILES, *_REPORT]


def __getattr__(name: str) -> Any:
    if name in _VIEWS:
        return getattr(importlib.import_module("tbuda_lab.widgets.views"), name)
    if name in _FILES:
        return getattr(importlib.import_module("tbuda_lab.widgets.netlist_file"), name)
    if name in _REPORT:
        return getattr(importlib.import_module("tbuda_lab.widgets.report"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
