"""What of a placement lies in memory: the buffers of every core's L1, the queues in DRAM channels and on the host."""

from tbuda_lab.core.analysis.memory.dram import ChannelRange, DramMap, QueueUse, dram_map
from tbuda_lab.core.analysis.memory.files import FileMemory
from tbuda_lab.core.analysis.memory.l1 import L1Map, L1Part, l1_map

__all__ = ["ChannelRange", "DramMap", "FileMemory", "L1Map", "L1Part", "QueueUse", "dram_map", "l1_map"]
