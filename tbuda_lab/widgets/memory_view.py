"""`MemoryView`: L1 of the cores, queues in DRAM channels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.memoryframe import memory_frame
from tbuda_lab.core.memory import DramMap, L1Map
from tbuda_lab.core.session import QueueChannel, Session
from tbuda_lab.widgets.memory_twin import memory_twin
from tbuda_lab.widgets.views import View


class MemoryView(View):
    """How full the L1 of every core is and with what; where queues lie in DRAM and what is asked of the channels.

    Dragging a queue to another channel is `put`, an edit like any other.
    """

    kind = "memory"
    frames_shown: ClassVar[tuple[str, ...]] = ("memory", "ops", "edits")

    def __init__(self, session: Session, *, height: int = 0) -> None:
        super().__init__(session, height=height)
        if session.result is not None:
            self.hub.publish([memory_frame(session.result, session.rev)])

    def l1(self, op: str) -> L1Map:
        """The buffers of an op in the L1 of its cores. Raises `InputError` for a name that is not placed."""
        return self.session.l1(op)

    def dram(self) -> DramMap:
        """Where every queue lies, when it is needed, and what is asked of the channels."""
        return self.session.dram()

    def put(self, queue: str, channel: int) -> None:
        """Put a queue into a DRAM channel, and compile. Raises what the compile raises."""
        self.session.apply(QueueChannel(queue, channel))
        self.session.compile()

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        frame = frames.get("memory")
        result = self.session.result
        if result is not None and (frame is None or frame.meta["rev"] != self.session.rev):
            frame = memory_frame(result, self.session.rev)
        return "<p>no placement yet</p>" if frame is None else memory_twin(frame)
