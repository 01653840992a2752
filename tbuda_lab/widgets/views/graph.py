"""`GraphView`: the graph of a stage, or after any pass."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from html import escape
from typing import Any

from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.graph.diff import GraphDiff
from tbuda_lab.core.verification import Comparison
from tbuda_lab.widgets.pictures import fragments
from tbuda_lab.widgets.pictures.graph import graph_svg
from tbuda_lab.widgets.views.base import View
from tbuda_lab.widgets.views.graph_traits import GraphTraits, opened, overlay_frame
from tbuda_lab.widgets.views.pass_graph import after_pass

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
        groups = opened(frame, self.depth, self.collapsed)
        return graph_svg(frame, groups, direction=self.direction, show_tms=self.show_tms)

    def _twin(self, frames: Mapping[str, Frame]) -> str:
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
