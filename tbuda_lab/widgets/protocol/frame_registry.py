"""Frames that pages may want: the small makers, and by importing this the registration of all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.clusterframe import cluster_frame
from tbuda_lab.core.frames.memoryframe import memory_frame
from tbuda_lab.core.frames.passframes import SIDES, pass_frame, passes_frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.protocol import diff_frames
from tbuda_lab.widgets.protocol.lazy_frames import MAKERS, frames_of, makes
from tbuda_lab.widgets.views import plot_scripts

__all__ = ["MAKERS", "diff_frames", "frames_of", "plot_scripts"]


@makes("cluster")
def _cluster(session: Session, _question: Mapping[str, Any]) -> list[Frame]:
    return [cluster_frame(session.compile(), session.rev)]


@makes("memory")
def _memory(session: Session, _question: Mapping[str, Any]) -> list[Frame]:
    return [memory_frame(session.compile(), session.rev)]


@makes("passes")
def _passes(session: Session, _question: Mapping[str, Any]) -> list[Frame]:
    """The passes, run again: the list, and the graph of the first that changed something."""
    trace = session.passes()
    first = next((s.index for s in trace.steps if s.changes), 0)
    frames = [passes_frame(trace, session.rev)]
    return [*frames, pass_frame(trace, first)] if trace.steps else frames


@makes("passgraph")
def _pass(session: Session, question: Mapping[str, Any]) -> list[Frame]:
    trace = session.passes()
    index, side = question.get("index"), str(question.get("side", "after"))
    if type(index) is not int or not 0 <= index < len(trace.steps) or side not in SIDES:
        last = len(trace.steps) - 1
        raise InputError(f"there is no graph {side!r} of a pass {index!r}; passes count from 0 to {last}")
    return [pass_frame(trace, index, side)]
