"""`MemoryView`: L1 of the cores, queues in DRAM channels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.memoryframe import memory_frame
from tbuda_lab.core.frames.netlistfile import netlist_frames
from tbuda_lab.core.memory import DramMap, FileMemory, L1Map
from tbuda_lab.core.session import QueueChannel, Session
from tbuda_lab.widgets.baseview import View
from tbuda_lab.widgets.memory_twin import memory_twin
from tbuda_lab.widgets.netlist_file import FileHub, memory_of


class MemoryView(View):
    """How full the L1 of every core is and with what; where queues lie in DRAM and what is asked of the channels.

    `MemoryView(session)`: of a placement; dragging a queue to another channel is `put`, an edit like any other.
    `MemoryView("a.netlist.yaml")`: of a netlist file, as far as the file says: buffers at the least they can be, one
    entry read per reader and input, loads against estimated cycles. Raises `NetlistError` for what is no netlist,
    `InputError` for one without ops.
    """

    kind = "memory"
    frames_shown: ClassVar[tuple[str, ...]] = ("memory", "ops", "edits")

    def __init__(
        self, source: Session | str | os.PathLike[str], *, arch: str | None = None, height: int = 0
    ) -> None:
        self._file: FileMemory | None = None
        if isinstance(source, Session):
            super().__init__(source, height=height)
            if source.result is not None:
                self.hub.publish([memory_frame(source.result, source.rev)])
            return
        self._name = Path(source).name
        netlist = netlists.load(Path(source), lenient=True)
        shown = [f for f in netlist_frames(netlist, "", arch=arch) if f.key == "ops"]
        if not shown:
            raise InputError(f"{source} has no ops")
        self._file, frame = memory_of(netlist, arch, shown)
        self._open(FileHub([*shown, frame], lambda: frame), height)

    def l1(self, op: str) -> L1Map:
        """The buffers of an op in the L1 of its cores. Raises `InputError` for a name that is not placed."""
        return self.session.l1(op) if self._file is None else self._file.l1(op)

    def dram(self) -> DramMap:
        """Where every queue lies, when it is needed, and what is asked of the channels."""
        return self.session.dram() if self._file is None else self._file.dram()

    def put(self, queue: str, channel: int) -> None:
        """Put a queue into a DRAM channel, and compile. Raises what the compile raises; `InputError` for a file."""
        if self._file is not None:
            raise InputError(f"{self._name} is a file: only the queues of a session can be moved")
        self.session.apply(QueueChannel(queue, channel))
        self.session.compile()

    def __repr__(self) -> str:
        return super().__repr__() if self._file is None else f"MemoryView({self._name!r})"

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        frame = frames.get("memory")
        if self._file is None:
            result = self.session.result
            if result is not None and (frame is None or frame.meta["rev"] != self.session.rev):
                frame = memory_frame(result, self.session.rev)
        return "<p>no placement yet</p>" if frame is None else memory_twin(frame)
