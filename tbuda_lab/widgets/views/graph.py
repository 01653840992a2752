"""`GraphView`: the graph of a stage, or after any pass.

What a graph view is told besides its graph: what it searches, which groups are open, values to paint nodes by.
"""

from __future__ import annotations

import contextlib
import math
import numbers
from collections.abc import Iterable, Mapping
from html import escape
from typing import Any

import numpy as np
import traitlets

from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.frame import Strings
from tbuda_lab.core.frames.layout import DIRECTIONS
from tbuda_lab.core.graph.diff import GraphDiff
from tbuda_lab.core.verification import Comparison
from tbuda_lab.widgets.handlers.frames import after_pass
from tbuda_lab.widgets.pictures import fragments
from tbuda_lab.widgets.pictures.graph import graph_svg
from tbuda_lab.widgets.views.base import View


class GraphTraits(traitlets.HasTraits):
    """Traits of the graph view, settable from Python.

    query: what its search looks for, a regular expression on names and types; the page sets it when somebody types.
    depth: how many levels of groups are open, 0 for none; None: those that a first view opens. collapsed: module paths
    of groups that are closed besides. The page sets both when somebody opens or closes groups, for the stage in front.

    pass_name: the pass after which the graph is shown, as in `PassTrace.labels`, with what it changed marked; "" for
    the stages. direction: "TB" from top to bottom, "LR" from left to right. show_tms: tensor manipulations are written
    on their edges. viewport: the point in the middle of the view and the scale, (x, y, scale) in units of the graph, or
    () while it fits itself; the page sets it when the picture rests.
    """

    query = traitlets.Unicode("").tag(sync=True)
    depth = traitlets.Int(None, allow_none=True, min=0).tag(sync=True)
    collapsed = traitlets.List(traitlets.Unicode()).tag(sync=True)
    pass_name = traitlets.Unicode("").tag(sync=True)
    direction = traitlets.Enum(DIRECTIONS, "TB").tag(sync=True)
    show_tms = traitlets.Bool(False).tag(sync=True)
    viewport = traitlets.Tuple().tag(sync=True, echo_update=False)

    @traitlets.validate("viewport")
    def _three_numbers(self, proposal: Any) -> tuple[float, ...]:
        value = tuple(proposal["value"])
        if value and (len(value) != 3 or not all(_finite(v) for v in value) or value[2] <= 0):
            raise traitlets.TraitError(f"a viewport is (x, y, scale) with a scale above 0, or (), not {value}")
        return tuple(float(v) for v in value)


def _finite(value: object) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value)


def open_groups(frame: Frame, depth: int | None, collapsed: Iterable[str]) -> list[int]:
    """Numbers of the groups of a graph frame that are open, as `GraphTraits` says; the graph itself, 0, always is."""
    closed = set(collapsed)
    paths, parents = frame.text("group_path"), frame.columns["group_parent"].tolist()
    first = set(frame.meta["open"])

    def level(group: int) -> int:
        deep = 0
        while group > 0:
            group, deep = parents[group], deep + 1
        return deep

    shown = (g for g in range(1, len(paths)) if (g in first if depth is None else level(g) <= depth))
    return [0, *(g for g in shown if paths[g] not in closed)]


def overlay_frame(values: Mapping[str, float], name: str, scale: tuple[float, float] | None) -> Frame:
    """Values by node name, with the range that the colours go over (default: from the least to the largest).

    Raises `InputError` for a value that is no finite number and for a range that is not ascending.
    """
    bad = [n for n, v in values.items() if not _finite(v)]
    if bad:
        raise InputError(f"the value of {bad[0]} is {values[bad[0]]!r}; leave out nodes that have no finite value")
    low, high = scale or (min(values.values(), default=0.0), max(values.values(), default=0.0))
    if not (math.isfinite(low) and math.isfinite(high)) or (scale is not None and low >= high):
        raise InputError(f"a scale goes from a smaller finite number to a larger one, not from {low} to {high}")
    strings = Strings()
    columns = {
        "overlay_name": strings.column(values),
        "overlay_value": np.array([float(v) for v in values.values()], dtype="<f8"),
    }
    return Frame("overlay", {"name": name, "low": float(low), "high": float(high)}, columns, strings.table)


GRAPHS = ("graph:lowered", "graph:passed", "graph:traced", "graph:netlist")
"""What is shown first of those there are."""


class GraphView(GraphTraits, View):
    """The graph of any stage of a session: pan, zoom, search, groups by module path.

    See `GraphTraits` for its traits.
    """

    kind = "graph"
    frames_shown = ("graph", "ops", "edits", "checks")
    shown_overlay: Frame | None = None

    def focus(self, *names: str) -> None:
        """Select nodes, here and in the other views, and bring them into sight."""
        self.select(*names)

    def overlay(
        self, values: Mapping[str, float], *, name: str = "value", scale: tuple[float, float] | None = None
    ) -> None:
        """Paint nodes by values of your own, in this view alone; without values the usual colours come back.

        values: a finite number by node name; nodes that have none are empty, names that are no node are passed over.
        name: for the legend. scale: values of the quietest and the hottest colour (default: the least and the largest).
        Raises `InputError`.
        """
        self.shown_overlay = overlay_frame(values, name, scale)
        self.hub.send_frame(self, self.shown_overlay)

    def overlay_gradients(self, inputs: Any, targets: Any) -> list[Comparison]:
        """Compare the gradients of one batch with torch's and paint the ops by PCC: red where a gradient that the op
        makes, or that of a weight it reads, is far from torch. Returns the comparisons, one per weight. Raises what
        `Session.check_gradients` raises."""
        comparisons = self.session.check_gradients(inputs, targets)
        values = self.session.gradients_by_op(comparisons)
        self.overlay({op: 1.0 - pcc for op, pcc in values.items()}, name="1 - PCC of gradients", scale=(0.0, 0.01))
        return comparisons

    def receive(self, widget: object, content: Mapping[str, Any], buffers: object) -> None:
        super().receive(widget, content, buffers)
        # The hub keeps no frame of one view.
        if content.get("type") in ("hello", "resync") and self.shown_overlay is not None:
            self.hub.send_frame(self, self.shown_overlay)

    def step_pass(self, by: int = 1) -> GraphDiff:
        """Show the graph after the next pass that changed something (`by` < 0: the one before), what it changed marked;
        returns that. Without a pass shown it begins at the first, or the last. Raises `KeyError` where no pass changed
        anything."""
        trace = self.session.passes()
        index = trace.neighbour(self.pass_name or None, by)
        self.pass_name = trace.labels[index]
        return trace.steps[index].changes

    def svg(self, stage: str = "") -> str:
        """The graph as SVG, as the traits say: that after `pass_name`, else that of a stage ("lowered" where none is
        named). Raises `KeyError` before the stage is there, and for a name that is no pass."""
        if self.pass_name and not stage:
            return self._picture(after_pass(self.session, self.pass_name))
        return self._picture(self.hub.frames[f"graph:{stage or 'lowered'}"])

    def _picture(self, frame: Frame) -> str:
        groups = open_groups(frame, self.depth, self.collapsed)
        return graph_svg(frame, groups, direction=self.direction, show_tms=self.show_tms)

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        frame = next((frames[key] for key in GRAPHS if key in frames), None)
        if self.pass_name and hasattr(self.hub, "session"):
            with contextlib.suppress(KeyError, TbudaError):  # else the stage, as the page shows it then
                frame = after_pass(self.session, self.pass_name)
        if frame is None:
            return "<p>no graph yet</p>"
        meta = frame.meta
        text = f"<p>After pass {escape(meta['label'])}: {escape(meta['doc'])}</p>" if "label" in meta else ""
        picture = self._picture(frame)
        if len(picture) >= fragments.LIMIT - len(text):  # as a first view shows it
            picture = graph_svg(frame, direction=self.direction)
        return f"{text}<div style='overflow-x:auto'>{picture}</div>" if self.direction == "LR" else text + picture
