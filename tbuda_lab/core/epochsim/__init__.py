"""The epoch simulator: a placement in time, per op and input, with buffers and back pressure, and its trace.

`simulate(result, batch)` builds a network of the placement (`build`, `tile_order`, `costs`), turns it into a max-plus
recurrence (`event_graph`, `solve`), and says what every op did and waited for (`run`, `fork_join_stalls`, `trace`).
"""

from tbuda_lab.core.epochsim.batch_time import (
    BatchTime,
    Bound,
    EpochLimit,
    EpochTime,
    OpTime,
    batch_time,
    epoch_limits,
    epoch_times,
)
from tbuda_lab.core.epochsim.costs import OpCost, cycles_csv, cycles_path, op_costs, write_cycles_csv
from tbuda_lab.core.epochsim.fills import Fill
from tbuda_lab.core.epochsim.network import EpochConstants, FlowEdge, FlowOp, Network
from tbuda_lab.core.epochsim.pyramid import KIND_NAMES, Pyramid, Spans, WaitKind
from tbuda_lab.core.epochsim.run import NetworkRun, run_network
from tbuda_lab.core.epochsim.simulate import (
    EpochTimes,
    EpochTrace,
    OpWaits,
    Stall,
    cycles_of_batches,
    simulate,
    simulated_cycles,
)
from tbuda_lab.core.epochsim.trace import Moment, Trace, TraceEpoch, TraceOp

__all__ = [
    "KIND_NAMES",
    "BatchTime",
    "Bound",
    "EpochConstants",
    "EpochLimit",
    "EpochTime",
    "EpochTimes",
    "EpochTrace",
    "Fill",
    "FlowEdge",
    "FlowOp",
    "Moment",
    "Network",
    "NetworkRun",
    "OpCost",
    "OpTime",
    "OpWaits",
    "Pyramid",
    "Spans",
    "Stall",
    "Trace",
    "TraceEpoch",
    "TraceOp",
    "WaitKind",
    "batch_time",
    "cycles_csv",
    "cycles_of_batches",
    "cycles_path",
    "epoch_limits",
    "epoch_times",
    "op_costs",
    "run_network",
    "simulate",
    "simulated_cycles",
    "write_cycles_csv",
]
