"""What the balancer and the placer hand on: candidate tables, placements, queues."""

from __future__ import annotations

import dataclasses
from enum import IntEnum

import numpy as np

from tbuda_lab.core.formats import DataFormat


class Reason(IntEnum):
    """Why a candidate is refused (0: it is legal). The texts stand in `reasons.py`."""

    LEGAL = 0
    ILLEGAL_STACK_FOR_GRID = 1
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


CANDIDATE = np.dtype([
    ("grid_r", "i2"), ("grid_c", "i2"),          # cores, before any transposition
    ("stream", "U2"),                            # "" none, "r", "c", "rz", "cz"
    ("stream_r", "i4"), ("stream_c", "i4"),      # t-stream factors; t = z * stream_r * stream_c
    ("t", "i4"), ("mblock_m", "i4"), ("mblock_n", "i4"), ("ublock_r", "i2"), ("ublock_c", "i2"),
    ("m_k", "i4"), ("u_kt", "i4"),               # matmul-like and reduce; else 0
    ("buf_size_mb", "i2"),                       # output buffer in macro blocks
    ("prologue", "?"),                           # all parameters preloaded into L1
    ("l1_input", "i8"), ("l1_output", "i8"), ("l1_param", "i8"), ("l1_intermed", "i8"), ("l1_total", "i8"),  # bytes
    ("cycles", "i8"),                            # per input, one core
    ("cores", "i4"),
    ("reason", "u1"),                            # Reason
])
"""One row per candidate of an op; refused ones stay in the table with their reason."""


@dataclasses.dataclass(frozen=True)
class OpModels:
    """All candidates of one op (shared between ops of the same signature)."""

    signature: str
    rows: np.ndarray  # CANDIDATE

    def legal(self) -> np.ndarray:
        """Indices of the rows that are legal."""
        return np.flatnonzero(self.rows["reason"] == Reason.LEGAL)


@dataclasses.dataclass(frozen=True)
class OpPlacement:
    op: str
    epoch: int               # index into Placement.epochs (a global epoch: one netlist graph)
    chip: int
    start: tuple[int, int]   # (row, column) of the top left core
    size: tuple[int, int]    # (rows, columns) occupied; grid rows and columns swapped when transposed
    transposed: bool
    row: int                 # index into the op's OpModels.rows


@dataclasses.dataclass(frozen=True)
class Epoch:
    index: int
    temporal: int            # epochs with the same number run at the same time on different chips
    chip: int
    ops: tuple[str, ...]     # in schedule order
    direction: str = "fwd"


@dataclasses.dataclass(frozen=True)
class QueuePlacement:
    """A netlist queue: name, what feeds it, its shape in tiles and where its buffers lie.

    kind: input, parameter, constant, output, e2e. `source`: lowered node that feeds or owns it.
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
    access: str              # "queue" | "ram"
    location: str            # "dram" | "host"
    chip: int
    buffers: tuple[tuple[int, int], ...]  # (channel, address) per core of the grid, row-major
    bytes_per_buffer: int
    prologue: bool = False
    tms: tuple[object, ...] = ()          # TMs between the producer's stored form and the queue (output un-streaming)


@dataclasses.dataclass(frozen=True)
class Placement:
    """Immutable result of balancer, placer and DRAM allocation; an edit makes a new one."""

    ops: dict[str, OpPlacement]
    epochs: tuple[Epoch, ...]
    queues: dict[str, QueuePlacement]
    models: dict[str, OpModels]           # by op name; equal signatures share one object
    schedule: tuple[str, ...]
    epoch_cycles: tuple[int, ...]         # slowest op of each epoch, kernel cycles per input

    def candidate(self, op: str) -> np.void:
        """The chosen row of an op's table."""
        return self.models[op].rows[self.ops[op].row]
