"""`EpochGrid`: the cores of an epoch, of one chip or of all that work at the same time."""

from __future__ import annotations

from collections.abc import Mapping

import traitlets

from tbuda_lab.core.analysis.noc import LinkMap
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import EpochBreak, PlaceOp, ResizeOp
from tbuda_lab.widgets.pictures.grid import chips_svg, epoch_svg
from tbuda_lab.widgets.protocol.link_frames import shown_links
from tbuda_lab.widgets.views.base import View
from tbuda_lab.widgets.views.grid_traits import GridLooks


class EpochGrid(GridLooks, View):
    """The core grid of every epoch, with the film strip. `edit=False` only looks.

    See `GridLooks` for its other traits.
    """

    kind = "grid"
    frames_shown = ("ops", "netlist", "edits", "live", "queues", "checks")

    edit = traitlets.Bool(True).tag(sync=True)

    def resize(self, op: str, size: tuple[int, int]) -> None:
        """Give an op a grid of (rows, columns) cores, as a drag would: one undo step. Raises what compiling raises."""
        self.session.attempt(ResizeOp(op, size))

    def move(self, op: str, start: tuple[int, int], transpose: bool | None = None) -> None:
        """Pin an op to a (row, column). Raises what compiling raises."""
        self.session.attempt(PlaceOp(op, start, transpose))

    def epoch_break(self, op: str, on: bool = True) -> None:
        """Start a new epoch at an op, or not any more. Raises what compiling raises."""
        self.session.attempt(EpochBreak(op, on))

    def links(self) -> LinkMap:
        """What the links carry in the epoch shown, as `Session.links`; with `noc` "none" as with "both"."""
        return self.session.links(self.epoch, noc=self.noc if self.noc != "none" else "both")

    def svg(self, epoch: int | None = None) -> str:
        """The grid of an epoch (default: the one shown) as SVG, with the links and the chips beside it that the traits
        ask for. Raises `KeyError` before there is a placement, `IndexError` for an epoch that there is not."""
        return self._picture(self.hub.frames, self.epoch if epoch is None else epoch)

    def _picture(self, frames: Mapping[str, Frame], epoch: int) -> str:
        frame = frames["ops"]
        if self.chips_per_row:
            return chips_svg(frame, epoch, self.chips_per_row)
        links = None
        if self.noc != "none" and hasattr(self.hub, "session"):
            links = shown_links(self.session, epoch, self.noc)
        return epoch_svg(frame, epoch, links, self.link_threshold)

    def show(self, epoch: int) -> None:
        """Show an epoch."""
        self.epoch = epoch
        self.post({"type": "show", "epoch": epoch}, [])

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        if "ops" not in frames:
            return "<p>no placement yet</p>"
        count = frames["ops"].columns["epoch_cycles"].size
        epoch = min(self.epoch, count - 1)
        picture = self._picture(frames, epoch)
        return f"<p>Epoch {epoch} of {count}</p>{picture}" if count > 1 else picture
