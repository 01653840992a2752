"""A comparison as one page that works from a file, without kernel and network."""

from __future__ import annotations

from tbuda_lab.core.diff import Diff
from tbuda_lab.core.diff.frame import diff_frame
from tbuda_lab.core.errors import OutputError
from tbuda_lab.widgets.pictures.diff import diff_twin
from tbuda_lab.widgets.protocol.stage_status import StatusBoard
from tbuda_lab.widgets.report import PAGE, document


def diff_html(diff: Diff) -> str:
    """The page as text. Raises `OutputError` if the front end is not built."""
    try:
        script = PAGE.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise OutputError("the front end is not built: run `make front-end`, or install the wheel") from None
    frame = diff_frame(diff)
    return document(f"{diff.a} → {diff.b}", [frame], StatusBoard(()).message(), script, diff_twin(frame))
