"""`PlacementsView`: what a session has come to, in one table."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import ClassVar

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session.placements import PlacementRow
from tbuda_lab.widgets.views.base import View

HEAD = ("placement", "from", "made", "cycles per input", "epochs", "chips", "L1", "PCC")


class PlacementsView(View):
    """Every placement of a session: compiles, checkpoints, results of searches, netlist files that were opened. The
    page sorts them, compares any two and goes back to any; `session.placements`, `diff`, `go_back` and
    `open_placement` do the same in Python."""

    kind = "placements"
    frames_shown: ClassVar[tuple[str, ...]] = ("placements", "ops", "edits", "summary")

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        return placements_table(self.session.placements)


def placements_table(rows: tuple[PlacementRow, ...]) -> str:
    """The table as HTML."""
    body = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in _cells(row))}</tr>" for row in rows)
    return f"<table><tr>{''.join(f'<th>{title}</th>' for title in HEAD)}</tr>{body}</table>"


def _cells(row: PlacementRow) -> tuple[str, ...]:
    facts = row.facts
    return (
        f"{row.name} (shown)" if row.current else row.name,
        row.kind,
        facts.at,
        "" if facts.cycles is None else f"{facts.cycles:,.0f}",
        f"{facts.epochs}",
        f"{facts.chips}",
        "" if facts.l1 is None else f"{100 * facts.l1:.0f} %",
        "" if facts.pcc is None else f"{facts.pcc:.5f}",
    )
