"""`DiffView`: two checkpoints of a session compared."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from tbuda_lab.core.diff import Diff
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.diff_frames import session_diff_frame
from tbuda_lab.widgets.diff_twin import diff_twin
from tbuda_lab.widgets.views import View


class DiffView(View):
    """What differs between two states of a session: grids side by side, blinking, or coloured by change of cycles.

    a, b: checkpoints, or "start" (as the session was opened), "previous" (before the last edit), "now".
    """

    kind = "diff"
    frames_shown: ClassVar[tuple[str, ...]] = ("diff", "edits", "ops")

    def __init__(self, session: Session, a: str = "start", b: str = "now", *, height: int = 0) -> None:
        super().__init__(session, height=height)
        if session.result is not None:
            self.compare(a, b)

    def compare(self, a: str, b: str = "now") -> Diff:
        """Compare two other states, here and in every other view of the session. Raises `InputError`."""
        diff = self.session.diff(a, b)
        self.hub.publish([session_diff_frame(self.session, diff)])
        return diff

    def to_markdown(self) -> str:
        """The comparison shown, as Markdown. Raises `InputError` before there is one."""
        frame = self.hub.frame("diff")
        names = ("start", "now") if frame is None else (frame.meta["a"], frame.meta["b"])
        return self.session.diff(*names).to_markdown()

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        frame: Any = frames.get("diff")
        if frame is None:
            return "<p>nothing compared yet</p>"
        try:
            return diff_twin(session_diff_frame(self.session, self.session.diff(frame.meta["a"], frame.meta["b"])))
        except TbudaError:
            return diff_twin(frame)
