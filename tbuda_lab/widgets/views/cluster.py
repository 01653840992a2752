"""`ClusterView`: the chips of a device, what runs on each and what crosses between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import traitlets

from tbuda_lab.core.analysis.cluster import ClusterMap, cluster_map
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.clusterframe import cluster_frame
from tbuda_lab.core.session import PlaceOp, Session
from tbuda_lab.widgets.pictures.cluster import cluster_svg, cluster_twin
from tbuda_lab.widgets.views.base import View


class ClusterView(View):
    """Chips as cards with their links, what each runs in a temporal epoch, and what crosses the links.

    Dragging an op or an epoch to another chip is `chip` or `chip_of_epoch`, an edit like any other. epoch:
    the epoch shown, and with it all that run at its time; the page sets it too.
    """

    kind = "cluster"
    frames_shown: ClassVar[tuple[str, ...]] = ("cluster", "ops", "edits")

    epoch = traitlets.Int(0, min=0).tag(sync=True)

    def __init__(self, session: Session, *, height: int = 0) -> None:
        super().__init__(session, height=height)
        if session.result is not None:
            self.hub.publish([cluster_frame(session.result, session.rev)])

    def map(self) -> ClusterMap:
        """Chips, links and what crosses them."""
        return cluster_map(self.session.compile())

    def chip(self, op: str, chip: int) -> None:
        """Put an op on a chip, and compile. Raises what the compile raises."""
        self.session.apply(PlaceOp(op, chip=chip))
        self.session.compile()

    def chip_of_epoch(self, epoch: int, chip: int) -> None:
        """Put all ops of an epoch on a chip as one edit, and compile. Raises `InputError` and what the compile does."""
        epochs = self.session.compile().placement.epochs
        if not 0 <= epoch < len(epochs):
            raise InputError(f"there is no epoch {epoch}; there are {len(epochs)}")
        self.session.apply(*(PlaceOp(op, chip=chip) for op in epochs[epoch].ops), label=f"epoch {epoch} to chip {chip}")
        self.session.compile()

    def svg(self, epoch: int | None = None) -> str:
        """The chips with their links, and what runs at the time of an epoch (default: the one shown), as SVG. Compiles
        what is not compiled. Raises `InputError` for an epoch that there is not."""
        epochs = self.session.compile().placement.epochs
        at = self.epoch if epoch is None else epoch
        if not 0 <= at < len(epochs):
            raise InputError(f"there is no epoch {at}; there are {len(epochs)}")
        frame = self._frame(self.hub.frames)
        assert frame is not None  # there is a placement
        return cluster_svg(frame, self.hub.frames["ops"], at)

    def _frame(self, frames: Mapping[str, Frame]) -> Frame | None:
        """The chips, of the newest placement."""
        frame, result = frames.get("cluster"), self.session.result
        if result is not None and (frame is None or frame.meta["rev"] != self.session.rev):
            frame = cluster_frame(result, self.session.rev)
        return frame

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        frame = self._frame(frames)
        if frame is None or "ops" not in frames:
            return "<p>no placement yet</p>"
        last = frames["ops"].columns["epoch_temporal"].size - 1
        return cluster_twin(frame, frames["ops"], max(0, min(self.epoch, last)))
