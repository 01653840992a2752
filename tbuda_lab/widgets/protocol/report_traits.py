"""What a report has beyond the compile: memory, the chips of a cluster, what the edits changed."""

from __future__ import annotations

import dataclasses
from typing import Any

from tbuda_lab.core.frames import Frame, epoch_time
from tbuda_lab.core.frames.clusterframe import cluster_frame
from tbuda_lab.core.frames.memoryframe import memory_frame
from tbuda_lab.core.frames.passframes import pass_frame, passes_frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.protocol.diff_frames import session_diff_frame
from tbuda_lab.widgets.protocol.link_frames import shown_links

PASSES = 1 << 20
"""Bytes of graphs of passes in a report."""
LINKS = 1 << 18
"""Bytes of loads of NoC links in a report."""


def look_frames(session: Any, passes: bool = False, links: bool = False) -> list[Frame]:
    """Memory; the cluster where there are several chips; start against now where something was edited; if they are
    wanted, the links of the epochs and the passes, with as many graphs as there is room for.

    Nothing for what has not compiled, or is no session of the compiler.
    """
    if not isinstance(session, Session) or session.result is None or session.stale:
        return []
    frames = [memory_frame(session.result, session.rev)]
    if len(session.device.chips) > 1:
        frames.append(cluster_frame(session.result, session.rev))
    if session.history:
        frames.append(session_diff_frame(session, session.diff("start")))
    return [*frames, *(_links(session) if links else []), *(_passes(session) if passes else [])]


def _links(session: Session) -> list[Frame]:
    """The links of the epochs, each transfer over the shorter way, the slowest epochs first while there is room."""
    cycles = epoch_time(session.frames.ops(session.compile())).tolist()
    frames: list[Frame] = []
    room = LINKS
    for epoch in sorted(range(len(cycles)), key=lambda e: -cycles[e]):
        frame = shown_links(session, epoch, "both")
        room -= len(frame.pack()[1]) + sum(map(len, frame.strings))
        if room < 0:
            break
        frames.append(frame)
    return frames


def _passes(session: Session) -> list[Frame]:
    """The list, the first pass that changed something as `passgraph`, others as `passgraph:NUMBER:SIDE`."""
    trace = session.passes()
    changed = [s.index for s in trace.steps if s.changes]
    frames = [passes_frame(trace, session.rev)]
    room = PASSES
    for index, side in [(k, side) for k in changed for side in ("after", "before")]:
        frame = pass_frame(trace, index, side)
        room -= len(frame.pack()[1]) + sum(map(len, frame.strings))
        if room < 0 and len(frames) > 1:
            break
        if len(frames) == 1:
            frames.append(frame)
        frames.append(dataclasses.replace(frame, key=f"passgraph:{index}:{side}"))
    return frames
