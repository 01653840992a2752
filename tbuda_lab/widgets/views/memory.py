"""`MemoryView`: L1 of the cores, queues in DRAM channels."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import traitlets

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.analysis.memory import DramMap, FileMemory, L1Map
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.memoryframe import memory_frame
from tbuda_lab.core.frames.netlistfile import netlist_frames
from tbuda_lab.core.session import QueueChannel, Session
from tbuda_lab.widgets.pictures.fragments import LIMIT
from tbuda_lab.widgets.pictures.l1_heat import heat_svg
from tbuda_lab.widgets.pictures.memory import lanes_svg, memory_twin
from tbuda_lab.widgets.views.base import View
from tbuda_lab.widgets.views.netlist_file import FileHub, memory_of


class MemoryView(View):
    """How full the L1 of every core is and with what; where queues lie in DRAM and what is asked of the channels.

    `MemoryView(session)`: of a placement; dragging a queue to another channel is `put`, an edit like any other.
    `MemoryView("a.netlist.yaml")`: of a netlist file, as far as the file says: buffers at the least they can be, one
    entry read per reader and input, loads against estimated cycles. Raises `NetlistError` for what is not a netlist,
    `InputError` for one without ops.

    mode: "l1" for the cores of an epoch, "dram" for the channels. epoch: the one shown. core: the (row, column) of the
    core whose buffers are listed, () for the fullest; choosing it selects its op. channel: the DRAM channel that is
    marked, None for none. The page sets them too.
    """

    kind = "memory"
    frames_shown: ClassVar[tuple[str, ...]] = ("memory", "ops", "edits")

    mode = traitlets.Enum(("l1", "dram"), "l1").tag(sync=True)
    epoch = traitlets.Int(0, min=0).tag(sync=True)
    core = traitlets.List(traitlets.Int(min=0)).tag(sync=True)
    channel = traitlets.Int(None, allow_none=True, min=0).tag(sync=True)

    @traitlets.validate("core")
    def _on_the_grid(self, proposal: Any) -> list[int]:
        value: list[int] = proposal["value"]
        ops = self.hub.frames.get("ops") if value else None
        size = (ops.meta["rows"], ops.meta["cols"]) if ops is not None else None
        if len(value) not in (0, 2) or (size is not None and not (value[0] < size[0] and value[1] < size[1])):
            grid = f"; there are {size[0]} rows and {size[1]} columns" if size else ""
            raise traitlets.TraitError(f"a core is (row, column), or (), not {tuple(value)}{grid}")
        return value

    @traitlets.validate("channel")
    def _of_the_device(self, proposal: Any) -> int | None:
        value: int | None = proposal["value"]
        frame = self.hub.frames.get("memory") if value is not None else None
        there = [value] if frame is None else [c for kind, c, *_ in frame.meta["channels"] if kind == "dram"]
        if value is not None and value not in there:
            raise traitlets.TraitError(f"there is no DRAM channel {value}; there are {', '.join(map(str, there))}")
        return value

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

    def svg(self, chip: int | None = None) -> str:
        """What `mode` says, as SVG: the L1 of the cores of `epoch` with `core` marked, or the DRAM channels of a chip
        (default: the first) with `channel` marked. Compiles what is not compiled. Raises `InputError` for an epoch or
        chip that there is not."""
        if self._file is None:
            self.session.compile()
        memory = self._frame(self.hub.frames)
        assert memory is not None  # there is a placement
        chips, ops = list(memory.meta["chips"]), self.hub.frames["ops"]
        if self.mode == "l1":
            epochs = ops.columns["epoch_cycles"].size
            if self.epoch >= epochs:
                raise InputError(f"there is no epoch {self.epoch}; there are {epochs}")
            return heat_svg(ops, memory, self.epoch, self.core)
        if chip is not None and chip not in chips:
            raise InputError(f"there is no chip {chip}; there are {', '.join(map(str, chips))}")
        return lanes_svg(memory, chips[0] if chip is None else chip, self.channel)

    def __repr__(self) -> str:
        return super().__repr__() if self._file is None else f"MemoryView({self._name!r})"

    def _frame(self, frames: Mapping[str, Frame]) -> Frame | None:
        """The frame of memory, of the newest placement."""
        frame = frames.get("memory")
        if self._file is None:
            result = self.session.result
            if result is not None and (frame is None or frame.meta["rev"] != self.session.rev):
                frame = memory_frame(result, self.session.rev)
        return frame

    def _twin(self, frames: Mapping[str, Frame]) -> str:
        frame, ops = self._frame(frames), frames.get("ops")
        if frame is None:
            return "<p>no placement yet</p>"
        heat = ""
        if self.mode == "l1" and ops is not None:
            epoch = min(self.epoch, ops.columns["epoch_cycles"].size - 1)
            heat = f"<p>L1 of epoch {epoch}: share of what buffers may use</p>{heat_svg(ops, frame, epoch, self.core)}"
        return heat + memory_twin(frame, self.channel, LIMIT - len(heat))
