"""`DiffView`: two checkpoints of a session compared, or two netlists."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import traitlets

from tbuda_lab.core.diff import Diff, compare_sides, file_sides, side_of_result
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.diffframe import diff_frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.baseview import View
from tbuda_lab.widgets.diff_frames import session_diff_frame
from tbuda_lab.widgets.diff_twin import diff_twin
from tbuda_lab.widgets.netlist_file import FileHub

PathLike = str | os.PathLike[str]


def diff(a: Session | PathLike, b: Session | PathLike, *, arch: str | None = None, height: int = 0) -> DiffView:
    """A view of what differs between two netlist files, two folders of `tbuda compile`, or two sessions as they are.

    arch: of netlists, as for `netlist.check`; default: the netlist's first. Raises `InputError` or `NetlistError`
    naming the file.
    """
    if isinstance(a, Session) and isinstance(b, Session):
        names = (a.name, b.name) if a.name != b.name else (f"{a.name} (first)", f"{b.name} (second)")
        sides = side_of_result(a.compile(), names[0]), side_of_result(b.compile(), names[1])
    elif isinstance(a, Session) or isinstance(b, Session):
        raise InputError("a session is compared with a session; write its netlist with export_netlist for a file")
    else:
        sides = file_sides(Path(a), Path(b), arch=arch)
    return DiffView(compare_sides(*sides), height=height)


class DiffView(View):
    """What differs between two placements: grids side by side, blinking, or coloured by change of cycles.

    `DiffView(session, a, b)`: two checkpoints, or "start" (as the session was opened), "previous" (before the last
    edit), "now". `DiffView("a.yaml", "b.yaml")`: two netlist files of any origin, or folders of `tbuda compile`.
    `DiffView(diff)`: a comparison that is there already. mode: "split", "blink" or "delta" (coloured by change of
    cycles), how the page draws the grids; the static twin always has them side by side.
    """

    kind = "diff"
    frames_shown: ClassVar[tuple[str, ...]] = ("diff", "edits", "ops")

    mode = traitlets.Enum(("split", "blink", "delta"), "split").tag(sync=True)

    def __init__(
        self, source: Session | Diff | PathLike, a: str | PathLike = "start", b: str = "now", *,
        arch: str | None = None, height: int = 0,
    ) -> None:  # fmt: skip
        self._fixed: Diff | None = None
        if isinstance(source, Session):
            super().__init__(source, height=height)
            if source.result is not None:
                self.compare(os.fspath(a), b)
            return
        if not isinstance(source, Diff):
            if a == "start":
                raise InputError(f"{os.fspath(source)} is compared with what? Give a second netlist file or folder")
            source = compare_sides(*file_sides(Path(source), Path(a), arch=arch))
        self._fixed = source
        self._open(FileHub([diff_frame(source)]), height)

    @property
    def diff(self) -> Diff:
        """The comparison shown."""
        if self._fixed is not None:
            return self._fixed
        frame = self.hub.frame("diff")
        return self.session.diff(*(("start", "now") if frame is None else (frame.meta["a"], frame.meta["b"])))

    def compare(self, a: str, b: str = "now") -> Diff:
        """Compare two other states, here and in every other view of the session. Raises `InputError`."""
        if self._fixed is not None:
            raise InputError("this view compares two files; for checkpoints make DiffView(session, a, b)")
        found = self.session.diff(a, b)
        self.hub.publish([session_diff_frame(self.session, found)])
        return found

    def to_markdown(self) -> str:
        """The comparison shown, as Markdown."""
        return self.diff.to_markdown()

    def __repr__(self) -> str:
        return super().__repr__() if self._fixed is None else f"DiffView({self._fixed.a!r}, {self._fixed.b!r})"

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        frame: Any = frames.get("diff")
        if frame is None:
            return "<p>nothing compared yet</p>"
        if self._fixed is not None:
            return diff_twin(frame)
        try:
            return diff_twin(session_diff_frame(self.session, self.session.diff(frame.meta["a"], frame.meta["b"])))
        except TbudaError:
            return diff_twin(frame)
