"""`EpochGrid`: the cores of an epoch, of one chip or of all that work at the same time."""

from __future__ import annotations

from collections.abc import Mapping

import traitlets

from tbuda_lab.core.analysis.noc import LinkMap
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import EpochBreak, PlaceOp, ResizeOp
from tbuda_lab.widgets.handlers.frames import shown_links
from tbuda_lab.widgets.pictures.grid import chips_svg, epoch_svg
from tbuda_lab.widgets.views.base import View


class GridTraits(traitlets.HasTraits):
    """Traits of views with a core grid, settable from Python and from the page alike.

    epoch: the one shown. displacement: what becomes of ops where another is dropped: "free" (it takes the nearest free
    place), "push" (others make room), "swap" (an op of the same size changes places with it) or "evict" (they go to the
    next epoch). show_pipes: the edges between ops of the epoch, "none", those of the "selected" ops, or "all";
    link_threshold: bytes per cycle below which they are left out. noc: what the links of the two NoCs would carry if
    all went over NoC "0", over "1", or over the shorter way ("both"), an estimate; "none" draws no links;
    `link_threshold` holds for them too. show_critical: the ops whose work and waits decide when the epoch ends are lit,
    with the edges between them. chip: the one whose epochs are shown, None for all. chips_per_row: above 0, all
    chips of the time shown are drawn beside each other, that many in a row.
    """

    epoch = traitlets.Int(0, min=0).tag(sync=True)
    displacement = traitlets.Enum(("free", "push", "swap", "evict"), "free").tag(sync=True)
    show_pipes = traitlets.Enum(("none", "selected", "all"), "none").tag(sync=True)
    link_threshold = traitlets.Float(0.0, min=0.0).tag(sync=True)
    noc = traitlets.Enum(("none", "0", "1", "both"), "none").tag(sync=True)
    show_critical = traitlets.Bool(False).tag(sync=True)
    chip = traitlets.Int(None, allow_none=True, min=0).tag(sync=True)
    chips_per_row = traitlets.Int(0, min=0, max=64).tag(sync=True)


class EpochGrid(GridTraits, View):
    """The core grid of every epoch, with the film strip. `edit=False` only looks.

    See `GridTraits` for its other traits.
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

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        if "ops" not in frames:
            return "<p>no placement yet</p>"
        count = frames["ops"].columns["epoch_cycles"].size
        epoch = min(self.epoch, count - 1)
        picture = self._picture(frames, epoch)
        return f"<p>Epoch {epoch} of {count}</p>{picture}" if count > 1 else picture
