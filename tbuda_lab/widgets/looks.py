"""What a report has beyond the compile: memory, the chips of a cluster, what the edits changed."""

from __future__ import annotations

from typing import Any

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.clusterframe import cluster_frame
from tbuda_lab.core.frames.memoryframe import memory_frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.diff_frames import session_diff_frame


def look_frames(session: Any) -> list[Frame]:
    """Memory; the cluster where there are several chips; start against now where something was edited.

    Nothing for what has not compiled, or is no session of the compiler.
    """
    if not isinstance(session, Session) or session.result is None or session.stale:
        return []
    frames = [memory_frame(session.result, session.rev)]
    if len(session.device.chips) > 1:
        frames.append(cluster_frame(session.result, session.rev))
    if session.history:
        frames.append(session_diff_frame(session, session.diff("start")))
    return frames
