"""What the balancer and the placer hand on: candidate tables, placements, queues."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import TM
from tbuda_lab.core.graph.phases import netlist_part


class Reason(IntEnum):
    """Why a candidate is refused (0: it is legal). The texts stand in `balancer.models`."""

    LEGAL = 0
    OUTPUT_BUFFER = 1
    USER_ACCESS_PREVENTS_STREAMING = 2
    OPERAND_ACCESS_PREVENTS_STREAMING = 3
    OPERAND_AND_USER_ACCESS_PREVENTS_STREAMING = 4
    ILLEGAL_STREAMING = 5
    L1_OVER_LIMIT = 6
    DRAM_CHANNEL_CAPACITY = 7
    INPUT_BUFFER_ALLOCATION = 8
    PADDING_NOT_SATISFIED = 9
    ILLEGAL_SPARSE_MATMUL = 10
    OVERRIDDEN = 11
    GRID_EXCEEDS_DEVICE = 12
    GRID_DOES_NOT_DIVIDE = 13  # of shapes that no table has a row for
    EXTRA_STREAMS = 14


CANDIDATE = np.dtype(
    [
        ("grid_r", "i2"),
        ("grid_c", "i2"),  # cores, before any transposition
        ("stream", "U2"),  # "" none, "r", "c", "rz" (slices outer, z inner)
        ("stream_r", "i4"),
        ("stream_c", "i4"),  # t-stream factors; t = z * stream_r * stream_c
        ("t", "i4"),
        ("mblock_m", "i4"),
        ("mblock_n", "i4"),
        ("ublock_r", "i2"),
        ("ublock_c", "i2"),
        ("m_k", "i4"),
        ("u_kt", "i4"),  # matmul-like and reduce; else 0
        ("buf_size_mb", "i2"),  # output buffer in macro blocks
        ("prologue", "u4"),  # operands that wait in L1 from before the first input: bit p, `ENCODING` (parameters.py)
        ("l1_input", "i8"),
        ("l1_output", "i8"),
        ("l1_param", "i8"),
        ("l1_intermed", "i8"),
        ("l1_total", "i8"),  # bytes, where ops of the same epoch make all that is no parameter
        ("l1_staged", "i8"),  # bytes more where a queue does: larger buffers, staging of reads
        ("queued", "?"),  # meant for operands from queues alone, where a row like it has too little L1
        ("nz_tiles", "i8"),
        ("nz_ublocks", "i8"),
        ("nz_strips", "i8"),  # sparse matmul: mean per grid row, else 0
        ("cycles", "i8"),  # per input, one core
        ("cores", "i4"),
        ("reason", "u1"),  # Reason
    ]
)
"""One row per candidate of an op; refused ones stay in the table with their reason."""

LAYOUT = tuple(
    [
        "grid_r",
        "grid_c",
        "stream",
        "stream_r",
        "stream_c",
        "mblock_m",
        "mblock_n",
        "ublock_r",
        "ublock_c",
        "buf_size_mb",
    ]
)
"""Its fields that say on which cores an op runs and how its output leaves them."""


@dataclasses.dataclass(frozen=True)
class OpModels:
    """All candidates of one op (shared between ops of the same signature)."""

    signature: str
    rows: np.ndarray  # CANDIDATE
    profile: OpProfile | None = None

    def legal(self) -> np.ndarray:
        """Indices of the rows that are legal."""
        return np.flatnonzero(self.rows["reason"] == Reason.LEGAL)

    @property
    def overridden(self) -> bool:
        """Whether the table lacks candidates because an override fixes something of the op."""
        return self.profile is not None and self.signature != self.profile.signature

    def histogram(self) -> dict[Reason, int]:
        """How many rows carry each reason, most frequent first."""
        counts = np.bincount(self.rows["reason"], minlength=len(Reason))
        return {Reason(int(k)): int(counts[k]) for k in np.argsort(-counts, kind="stable") if counts[k]}


@dataclasses.dataclass(frozen=True)
class OpPlacement:
    """Where an op runs, and with which candidate."""

    op: str
    epoch: int  # index into Placement.epochs (a global epoch: one netlist graph)
    chip: int
    start: tuple[int, int]  # (row, column) of the top left core
    size: tuple[int, int]  # (rows, columns) occupied; grid rows and columns swapped when transposed
    transposed: bool
    row: int  # index into the op's OpModels.rows


@dataclasses.dataclass(frozen=True)
class Epoch:
    """Ops that run together on one chip."""

    index: int
    temporal: int  # epochs with the same number run at the same time on different chips
    chip: int
    ops: tuple[str, ...]  # in schedule order
    direction: str = "fwd"


@dataclasses.dataclass(frozen=True)
class QueuePlacement:
    """A netlist queue: name, what feeds it, its shape in tiles and where its buffers lie.

    kind: input, parameter, constant, output, e2e, accumulator, sparse_tiles, sparse_encoding. `source`: lowered node
    that feeds or owns it (for the two sparse kinds: the sparse matmul that reads it).
    """

    name: str
    kind: str
    source: str
    grid: tuple[int, int]
    t: int
    mblock: tuple[int, int]
    ublock: tuple[int, int]
    ublock_order: str
    entries: int
    df: DataFormat
    access: str  # "queue" | "ram"
    location: str  # "dram" | "host"
    chip: int
    buffers: tuple[tuple[int, int], ...]  # (channel, address) per core of the grid, row-major
    bytes_per_buffer: int
    prologue: bool = False
    tms: tuple[TM, ...] = ()  # TMs from the stored form to the logical tensor (undo the producer's streaming)
    layout: str = "tilized"  # "tilized" | "untilized" (rows in plain order, no tile headers)
    writer: str = ""  # the op that writes a ram which ops read: a weight, an optimizer's state, a gradient
    direction: str = "fwd"  # of an e2e queue: which program reads it
    ram: str = ""  # the ram of a cache that subgraphs share, of which this is a view: tiles row by row
    alias: str = ""  # of such a view the queue that has its bytes too, where that is another one
    lifetime: tuple[int, int] | None = None  # first and last epoch that needs it, when it shares its addresses


@dataclasses.dataclass(frozen=True)
class EpochReport:
    """What an epoch costs and why: cycles per input; `kernel_op`, `limiter_op` are its slowest ops."""

    index: int
    ops: int
    cores: int  # cores used
    kernel_cycles: int  # slowest op, kernel only
    limiter_cycles: int  # slowest op, its kernel or its slowest operand or output
    kernel_op: str
    limiter_op: str
    limiter: str  # what limits it: "kernel", "input <k> dram", "output noc", ...
    dram_cores: int  # cores that read or write DRAM queues
    balance: float  # sum(kernel cycles * cores) / (limiter_cycles * cores of the device)
    end_reason: str = ""  # why the next op did not join
    no_larger: str = ""  # why `limiter_op` is not on more cores
    larger: tuple[int, int] | None = None  # a shape of it, rows and columns, with which the epoch would be faster


@dataclasses.dataclass(frozen=True)
class Bounds:
    """Lower bounds on the sum over epochs, cycles per input (placement.md#lower-bounds), and what was reached."""

    area: int  # sum of the cheapest cycles * cores / cores of the device
    theoretical_matmul: int
    dram: int  # bytes that must cross DRAM / its total bandwidth
    critical_op: int  # slowest of the fastest legal candidates
    no_packing: int  # best way to cut the schedule into epochs by area and DRAM alone
    achieved_kernel: int
    achieved_limiter: int

    @property
    def best(self) -> int:
        return max(self.area, self.theoretical_matmul, self.dram, self.critical_op, self.no_packing)

    @property
    def gap(self) -> float:
        """Achieved limiter cycles over the best bound (>= 1)."""
        return self.achieved_limiter / max(1, self.best)


def _no_bound() -> float:
    return 0.0


@dataclasses.dataclass(frozen=True)
class Objective:
    """What `Optimal` minimises, in cycles per input summed over the epochs (docs/cost-model.md). limiter: of the
    slowest op; waiting: what full buffers, or repairing that, preloading and filling cost on top; switch: of the
    epochs, shared by the batch; kernel: of the slowest kernels, times their weight. On several chips it is the slowest
    one's sum that counts, without `kernel`: `slowest_chip`. inputs: of the batch that it is for; least: works out
    `bound`."""

    limiter: float
    waiting: float
    switch: float
    kernel: float
    slowest_chip: float
    inputs: int = 1
    least: Callable[[], float] = dataclasses.field(default=_no_bound, repr=False, compare=False)

    @functools.cached_property
    def bound(self) -> float:
        """What no way to cut the schedule into epochs stays below (area, DRAM, the first input's way and switches); 0
        where nothing is known of it. Worked out when it is first read, which takes up to two seconds for a batch: a
        compile that nobody asks for it does without."""
        return self.least()

    def __getstate__(self) -> dict[str, Any]:
        """Of a copy or a pickle: the number, not what it is worked out from."""
        return {**self.__dict__, "bound": self.bound, "least": _no_bound}

    @property
    def time(self) -> float:
        """Cycles per input that the epochs take: all but the share of the kernels."""
        return self.limiter + self.waiting + self.switch

    @property
    def total(self) -> float:
        return self.time + self.kernel

    @property
    def gap(self) -> float:
        """The time over its lower bound (>= 1)."""
        return self.time / max(1.0, self.bound)


@dataclasses.dataclass(frozen=True)
class PlacementReport:
    """objective: of a whole placement; None after an edit. curve: (steps, cycles per input) of the search that went on
    from the first placement, where it was asked for: its start, every gain, its end."""

    policy: str
    epochs: tuple[EpochReport, ...]
    bounds: Bounds
    op_limiters: dict[str, tuple[int, int, str]]  # op -> (kernel cycles, limiter cycles, what limits it)
    objective: Objective | None = None
    curve: tuple[tuple[int, float], ...] = ()


@dataclasses.dataclass(frozen=True)
class Placement:
    """Immutable result of balancer, placer and DRAM allocation; an edit makes a new one."""

    ops: dict[str, OpPlacement]
    epochs: tuple[Epoch, ...]
    queues: dict[str, QueuePlacement]
    models: dict[str, OpModels]  # by op name; equal signatures share one object
    schedule: tuple[str, ...]
    epoch_cycles: tuple[int, ...]  # slowest op of each epoch, kernel cycles per input
    ublock_order: dict[str, str] = dataclasses.field(default_factory=dict)  # by op: "r" | "c"
    report: PlacementReport | None = None
    diagnostics: tuple[Diagnostic, ...] = ()
    input_buffers: dict[str, tuple[int, ...]] = dataclasses.field(default_factory=dict)
    """By op, where short branches of a fork have to wait: least tiles per core of each input buffer (0: the usual)."""

    def candidate(self, op: str) -> np.void:
        """The chosen row of an op's table."""
        row: np.void = self.models[op].rows[self.ops[op].row]
        return row


def copy_name(name: str, chip: int) -> str:
    """The queue of a parameter or constant on a further chip. Not with a dot: `<queue>.<chip>` means something else to
    the router."""
    return f"{name}_chip_{chip}"


def copied_from(queue: str) -> str:
    """The parameter or constant of whose queue this name is a copy's; empty for any other name."""
    name, _, chip = queue.rpartition("_chip_")
    return name if chip.isdecimal() else ""


def graph_name(epoch: Epoch) -> str:
    """The netlist graph of an epoch: its number and that of its temporal epoch."""
    return f"{netlist_part(epoch.direction)}_{epoch.index}_temporal_epoch_{epoch.temporal}"


def total_cycles(temporal: npt.ArrayLike, cycles: npt.ArrayLike) -> float:
    """Cycles per input of the whole model, from the temporal number and the cycles of each epoch: chips of one temporal
    epoch run together, the slowest counts."""
    temporal, cycles = np.asarray(temporal), np.asarray(cycles)
    if not cycles.size:
        return 0.0
    slowest = np.zeros(int(temporal.max()) + 1)
    np.maximum.at(slowest, temporal, cycles)
    return float(slowest.sum())
