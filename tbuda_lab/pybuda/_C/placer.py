"""`pybuda._C.placer`."""

from tbuda_lab.runtime.enums import DRAMPlacementAlgorithm

__all__ = ["DRAMPlacementAlgorithm"]
