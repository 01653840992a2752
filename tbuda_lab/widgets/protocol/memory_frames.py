"""The memory of a placement, made when a page wants it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.memoryframe import memory_frame
from tbuda_lab.core.session import Session
from tbuda_lab.widgets.protocol.lazy_frames import makes


@makes("memory")
def _memory(session: Session, _question: Mapping[str, Any]) -> list[Frame]:
    return [memory_frame(session.compile(), session.rev)]
