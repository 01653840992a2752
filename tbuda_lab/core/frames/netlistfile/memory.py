"""The memory frame of a netlist file."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tbuda_lab.core.analysis.memory.files import FILE_KINDS, FileMemory
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.frames.frame import Frame
from tbuda_lab.core.frames.memoryframe import frame_of_maps
from tbuda_lab.core.netlist.schema import Netlist


def file_memory_frame(n: Netlist, device: DeviceSpec, cycles: Sequence[float] = ()) -> Frame:
    """The columns of `core.frames.memoryframe.memory_frame`, from the file alone; see `core.memory.files`.

    n: expanded, as the grids show it. cycles: per input of each graph, as `ops_frame` estimates them (`epoch_cycles`);
    of a graph without an estimate (0) the load of channels is not known.
    """
    memory = FileMemory(n, device)
    frame = frame_of_maps(memory.all_l1(), memory.dram(cycles), device, memory.chips, 0, FILE_KINDS)
    return dataclasses.replace(frame, meta={**frame.meta, "sizes": "the least that the netlist's fields allow"})
