"""`ProfileView`: where the time goes, by op and module, what bounds each, and the edit that would help."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from typing import ClassVar

import traitlets

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session.profile import Profile
from tbuda_lab.widgets.views.base import View

ROWS = 60  # of a table


class ProfileView(View):
    """Per cent of the simulated time by op or module, what bounds each, a roofline, the edits that gain, best first.

    by: "op" or "module". fold_layers: one row for what is the same in layers that repeat; None: from 200 ops on. The
    page sets both too. `profile(edits=n)` of the session has the same as Python objects.
    """

    kind = "profile"
    frames_shown: ClassVar[tuple[str, ...]] = ("profile", "ops", "edits")

    by = traitlets.Enum(("op", "module"), "op").tag(sync=True)
    fold_layers = traitlets.Bool(None, allow_none=True).tag(sync=True)

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        if self.session.result is None:
            return "<p>no placement yet</p>"
        profile = self.session.profile()
        return profile_table(profile) if self.by == "op" else module_table(profile)


def profile_table(profile: Profile) -> str:
    """The ops with most time as a table, and the switches of epochs."""
    ops = sorted(profile.ops, key=lambda o: -o.time)
    rows: list[tuple[object, ...]] = [(o.op, o.type, o.module, o.share, o.time, o.bound) for o in ops[:ROWS]]
    share = profile.switch / profile.total if profile.total else 0.0
    rows.append(("epoch switches", "", "", share, profile.switch, "switch"))
    return _table(("op", "type", "module", "time", "cycles per input", "bound by"), rows, len(ops) - ROWS)


def module_table(profile: Profile) -> str:
    """The same by module."""
    modules = profile.modules()
    rows: list[tuple[object, ...]] = [(m.module, f"{m.ops}", m.share, m.time, m.bound) for m in modules[:ROWS]]
    return _table(("module", "ops", "time", "cycles per input", "bound by"), rows, len(modules) - ROWS)


def _table(head: tuple[str, ...], rows: Sequence[tuple[object, ...]], more: int) -> str:
    def cell(title: str, value: object) -> str:
        if title == "time" and isinstance(value, float):
            return f"{100 * value:.1f} %"
        return f"{value:,.0f}" if isinstance(value, float) else escape(str(value))

    body = "".join(
        f"<tr>{''.join(f'<td>{cell(t, v)}</td>' for t, v in zip(head, row, strict=True))}</tr>" for row in rows
    )
    more_text = f"<p>and {more} more</p>" if more > 0 else ""
    return f"<table><tr>{''.join(f'<th>{t}</th>' for t in head)}</tr>{body}</table>{more_text}"
