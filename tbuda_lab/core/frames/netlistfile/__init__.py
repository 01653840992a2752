"""Frames of a netlist from a file, valid or not: what a view of the file is sent."""

from tbuda_lab.core.frames.memoryframe import file_memory_frame
from tbuda_lab.core.frames.netlistfile.snapshot import netlist_frames

__all__ = ["file_memory_frame", "netlist_frames"]
