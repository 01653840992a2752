"""`PassStepper`: the passes one by one."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import ClassVar

import traitlets

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.graph_frame import pass_frame, passes_frame
from tbuda_lab.core.graph.diff import GraphDiff
from tbuda_lab.core.passes.pipeline import PassTrace
from tbuda_lab.widgets.pictures.fragments import LIMIT
from tbuda_lab.widgets.pictures.graph import graph_svg
from tbuda_lab.widgets.views.base import View


class PassStepper(View):
    """The list of passes with what each did, and the graph before and after each. The passes are run again for it.

    pass_name: the pass shown, as in `PassTrace.labels`; "" before one was chosen.
    """

    kind = "passes"
    frames_shown: ClassVar[tuple[str, ...]] = ("passes", "passgraph")

    pass_name = traitlets.Unicode("").tag(sync=True)

    @property
    def trace(self) -> PassTrace:
        """Every pass with the graph after it and what it changed."""
        return self.session.passes()

    def show(self, name: str | int, side: str = "after") -> None:
        """Show the graph before or after a pass, given by its number or name ("name#2" where it runs again). Raises
        `KeyError`."""
        trace = self.trace
        index = trace.find(name)
        self.pass_name = trace.labels[index]
        self.hub.publish([passes_frame(trace, self.session.rev), pass_frame(trace, index, side)])

    def diff(self) -> GraphDiff:
        """What the pass shown changed; the first one where none was chosen yet. Raises `KeyError` for a name that
        is no pass."""
        return self.trace.steps[self.trace.find(self.pass_name or 0)].changes

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        listed, shown = frames.get("passes"), frames.get("passgraph")
        if listed is None and self.session.result is not None:
            listed = passes_frame(self.trace, self.session.rev)
        return passes_fragment(listed, shown)


def passes_fragment(listed: Frame | None, shown: Frame | None) -> str:
    """The list as a table, and the graph that was looked at."""
    if listed is None:
        return "<p>no passes yet</p>"
    names, docs = listed.text("step_name"), listed.text("step_doc")
    keys = ("before", "after", "rewrites", "added", "removed", "changed")
    numbers = zip(*(listed.columns[f"step_{k}"].tolist() for k in keys), strict=True)
    head = "".join(f"<th>{t}</th>" for t in ("", "pass", "what it does", *keys))
    body = "".join(
        f"<tr><td>{k}</td><td>{escape(name)}</td><td>{escape(doc)}</td>{''.join(f'<td>{n}</td>' for n in row)}</tr>"
        for k, (name, doc, row) in enumerate(zip(names, docs, numbers, strict=True))
    )
    error = f"<p>{escape(listed.meta['error'])}</p>" if listed.meta["error"] else ""
    table = f"{error}<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    if shown is None:
        return table
    picture = f"<p>{escape(shown.meta['side'])} pass {shown.meta['index']}, {escape(shown.meta['pass'])}:</p>"
    picture += graph_svg(shown)
    return table + picture if len(table) + len(picture) < LIMIT else table
