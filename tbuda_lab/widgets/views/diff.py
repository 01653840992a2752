"""`DiffView`: two checkpoints of a session compared, or two netlists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any, ClassVar

import traitlets

from tbuda_lab.core.diff import Diff, compare_sides, file_sides, side_of_result
from tbuda_lab.core.diff.frame import diff_frame
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.handlers.frames import session_diff_frame, states_of
from tbuda_lab.widgets.pictures.diff import MODES, diff_fragment, pair_svg, pairs_of
from tbuda_lab.widgets.views.base import View
from tbuda_lab.widgets.views.files import FileHub

PathLike = str | os.PathLike[str]


def diff(a: Session | PathLike, b: Session | PathLike, *, arch: str | None = None, height: int = 0) -> DiffView:
    """A view of what differs between two netlist files, two folders of `tbuda compile`, or two sessions as they are.

    arch: of netlists, as for `netlist.check`; default: the netlist's first. Raises `InputError` or `NetlistError`
    naming the file.
    """
    if isinstance(a, Session) and isinstance(b, Session):
        names = (a.name, b.name) if a.name != b.name else (f"{a.name} (first)", f"{b.name} (second)")
        sides = side_of_result(a.compile(), names[0], a.time()), side_of_result(b.compile(), names[1], b.time())
    elif isinstance(a, Session) or isinstance(b, Session):
        raise InputError("a session is compared with a session; write its netlist with export_netlist for a file")
    else:
        sides = file_sides(Path(a), Path(b), arch=arch)
    return DiffView(compare_sides(*sides), height=height)


class DiffView(View):
    """What differs between two placements: grids side by side, blinking, or coloured by change of cycles.

    `DiffView(session, a, b)`: two checkpoints, or "start" (as the session was opened), "previous" (before the last
    edit), "now". `DiffView("a.yaml", "b.yaml")`: two netlist files of any origin, or folders of `tbuda compile`.
    `DiffView(diff)`: a comparison that is there already.

    a, b: what is compared, names as above; of files they stay as they are. mode: how the grids are drawn, "split" (side
    by side), "blink" (one after the other in the same place; where nothing moves, outlines over the second show what
    was before) or "delta" (coloured by change of cycles). The page sets them too.
    """

    kind = "diff"
    frames_shown: ClassVar[tuple[str, ...]] = ("diff", "edits", "ops")

    a = traitlets.Unicode("start").tag(sync=True)
    b = traitlets.Unicode("now").tag(sync=True)
    mode = traitlets.Enum(MODES, MODES[0]).tag(sync=True)

    @traitlets.validate("a", "b")
    def _state(self, proposal: Any) -> str:
        value: str = proposal["value"]
        if self._fixed is not None:
            if value != getattr(self._fixed, proposal["trait"].name):
                raise traitlets.TraitError(f"this view compares {self._fixed.a!r} with {self._fixed.b!r} and no others")
        elif value not in (known := states_of(self.session)):
            raise traitlets.TraitError(f"no checkpoint {value!r}; there are: {', '.join(known)}")
        return value

    def __init__(
        self,
        source: Session | Diff | PathLike,
        a: str | PathLike = "start",
        b: str = "now",
        *,
        arch: str | None = None,
        height: int = 0,
    ) -> None:
        self._fixed: Diff | None = None
        if isinstance(source, Session):
            super().__init__(source, height=height)
            try:
                self.a, self.b = os.fspath(a), b
            except traitlets.TraitError as error:
                raise InputError(str(error)) from None
            if source.result is not None:
                self.compare(self.a, self.b)
            return
        if not isinstance(source, Diff):
            if a == "start":
                raise InputError(f"{os.fspath(source)} needs a second netlist file or folder to compare with")
            source = compare_sides(*file_sides(Path(source), Path(a), arch=arch))
        self._fixed = source
        self._open(FileHub([diff_frame(source)]), height)
        self.a, self.b = source.a, source.b

    @property
    def diff(self) -> Diff:
        """The comparison of `a` with `b`."""
        return self._fixed if self._fixed is not None else self.session.diff(self.a, self.b)

    def compare(self, a: str, b: str = "now") -> Diff:
        """Compare two other states, here and in every other view of the session. Raises `InputError`."""
        if self._fixed is not None:
            raise InputError("this view compares two files; for checkpoints make DiffView(session, a, b)")
        result = self.session.diff(a, b)
        self.hub.publish([session_diff_frame(self.session, result)])
        for view in self.hub.views_of(self.kind):
            if isinstance(view, DiffView):
                view.a, view.b = a, b
        return result

    def svg(self, epoch: int | None = None) -> str:
        """The grids of a pair of epochs as SVG, as `mode` says. epoch: of the second side; default: the pair with most
        differing ops. Compiles what is not compiled. Raises `InputError` for an epoch that there is not."""
        frame = diff_frame(self.diff)
        pairs = [pair for _, pair in pairs_of(frame) if epoch is None or pair[1] == epoch]
        if not pairs:
            epochs = sorted(int(b) for b in frame.columns["pair_b"] if b >= 0)
            raise InputError(f"{self.b} has no epoch {epoch}; there are {', '.join(map(str, epochs))}")
        return pair_svg(frame, pairs[0], self.mode)

    def to_markdown(self) -> str:
        """The comparison shown, as Markdown."""
        return self.diff.to_markdown()

    def __repr__(self) -> str:
        return super().__repr__() if self._fixed is None else f"DiffView({self._fixed.a!r}, {self._fixed.b!r})"

    def _fragment(self, frames: Mapping[str, Frame]) -> str:
        if self._fixed is not None:
            return diff_fragment(frames["diff"], self.mode)
        if self.session.result is None:
            return "<p>nothing compared yet</p>"
        try:
            return diff_fragment(diff_frame(self.diff), self.mode)
        except TbudaError as error:
            return f"<p>{escape(str(error).splitlines()[0])}</p>"
