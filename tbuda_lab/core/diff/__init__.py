"""Two placements compared: of two compiles, of two netlist files, or of one of each."""

from tbuda_lab.core.diff.compare import Diff, OpChange, QueueChange, compare_sides, same_epochs, to_markdown
from tbuda_lab.core.diff.files import file_sides, netlist_side
from tbuda_lab.core.diff.sides import DeviceGrid, EpochState, OpState, QueueState, Side, side_of_result

__all__ = [
    "DeviceGrid",
    "Diff",
    "EpochState",
    "OpChange",
    "OpState",
    "QueueChange",
    "QueueState",
    "Side",
    "compare_sides",
    "file_sides",
    "netlist_side",
    "same_epochs",
    "side_of_result",
    "to_markdown",
]
