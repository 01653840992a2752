"""What an edge joins: the layout of a producer, a chain of TMs, and how a consumer reads what comes out.

Fields that differ between candidates may be arrays; all arrays of one edge broadcast against each other.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

Ints = Any
"""An int, or an integer array over candidates."""
Step = tuple[Any, ...]
"""One TM: ("hslice" | "hstack" | "vslice" | "vstack", n), ("r" | "c" | "z", n) for a broadcast, ("transpose",),
("pad", rows, columns) in tiles, ("tile_broadcast",)."""


@dataclasses.dataclass(frozen=True)
class Source:
    """The layout of what is read. grid, mblock, ublock: (rows, columns), of a grid before any transposition; mblock
    in ublocks, ublock in tiles; order "r" or "c"; buf_size_mb in mblocks, of no meaning for a queue. op_type: of the
    producing op, "queue" for a queue; extra_inputs: its DRAM reads that one core may carry."""

    grid: tuple[Ints, Ints]
    t: Ints
    mblock: tuple[Ints, Ints]
    ublock: tuple[Ints, Ints]
    order: str
    buf_size_mb: Ints = 1
    op_type: str = "nop"
    untilized: bool = False

    @property
    def queue(self) -> bool:
        return self.op_type == "queue"

    @property
    def tiles(self) -> Ints:
        """Tiles of an mblock: one t of one core."""
        return self.mblock[0] * self.mblock[1] * self.ublock[0] * self.ublock[1]

    @property
    def shape(self) -> tuple[Ints, Ints, Ints]:
        """(t, rows, columns) of the whole tensor in tiles."""
        (gr, gc), (m, n), (u, v) = self.grid, self.mblock, self.ublock
        return self.t, gr * m * u, gc * n * v

    @property
    def single(self) -> Ints:
        """Mblocks of one half of the output buffer: a double buffer is two of them, a buffer of 1 is one."""
        return np.where(np.asarray(self.buf_size_mb) == 1, 1, np.asarray(self.buf_size_mb) // 2)

    def slots(self, input_count: int) -> Ints:
        """Mblocks that a reader may address in one core."""
        if self.queue:
            return np.asarray(self.t)
        return np.minimum(input_count * np.asarray(self.t), self.single)


@dataclasses.dataclass(frozen=True)
class EdgeReader:
    """An op or queue with the input that is looked at. type: "eltwise", "matmul", "depthwise", "reduce", "splice",
    "sparse_matmul", "fused" or "queue"; op_type as the netlist writes it. use: what of a fused op reads the input
    first, "eltwise", "matmul" (as operand `operand`) or "reduce"; mblock and ublock are then those of that sub-op.
    rows, columns: of the operand after its TMs in tiles, which a splice goes by; tiles: num_sparse_tiles or
    num_index_tiles. kernel_broadcast: factor on this input, 0 for none."""

    type: str
    port: int
    grid: tuple[Ints, Ints]
    t: Ints
    mblock: tuple[Ints, Ints]
    ublock: tuple[Ints, Ints]
    order: str
    op_type: str = ""
    buf_size_mb: Ints = 2
    m_k: Ints = 1
    u_kt: Ints = 1
    z: Ints = 1
    dim: str = ""
    bias: bool = False
    use: str = "eltwise"
    operand: int = 0
    splice_by: str = "t"
    tiles: Ints = 1
    kernel_broadcast: int = 0
    per_t: bool = False


@dataclasses.dataclass(frozen=True)
class OperandView:
    """How an input is read: a tensor of (t, grid x mblock x ublock) tiles after the TMs, each core of `grid` for each t
    its ublocks in the order `scan`, the tiles of a ublock row by row. grid is 1 along a multicast. t None: whatever
    the TMs make."""

    t: Ints | None
    grid: tuple[Ints, Ints]
    mblock: tuple[Ints, Ints]
    ublock: tuple[Ints, Ints]
    scan: str
    multicast: str = ""  # "row": a pipe for each row of cores, "column": for each column

    @property
    def rows(self) -> Ints:
        return self.grid[0] * self.mblock[0] * self.ublock[0]

    @property
    def columns(self) -> Ints:
        return self.grid[1] * self.mblock[1] * self.ublock[1]


def view(reader: EdgeReader, after: tuple[Ints, Ints, Ints]) -> OperandView:
    """The view of an input (routing.md#views); `after`: (t, rows, columns) of the operand after unpad, TMs and
    padding."""
    (gr, gc), (m, n), (u, v), t = reader.grid, reader.mblock, reader.ublock, reader.t
    k, steps = reader.u_kt, reader.m_k
    kind, port = reader.type, reader.port
    if kind == "fused":
        return _fused_view(reader)
    if kind in ("matmul", "depthwise") and port == 0:
        if kind == "depthwise":
            return OperandView(t, (gr, 1), (m, steps * n), (u, v), "c", "row")
        return OperandView(t * reader.z, (gr, 1), (m, steps), (u, k), "c", "row")
    if kind in ("matmul", "depthwise") and port == 1:
        if kind == "depthwise":
            return OperandView(t, (1, gc), (steps, n), (1, v), "r", "column")
        return OperandView(t * reader.z, (1, gc), (steps, n), (k, v), "r", "column")
    if kind == "reduce":
        return _reduce_view(reader)
    if kind == "splice":
        mblock = after[1] // (gr * u), after[2] // (gc * v)
        return OperandView(t if reader.splice_by == "ublock" else None, (gr, gc), mblock, (u, v), reader.order)
    if kind == "sparse_matmul":
        if port == 1:
            return OperandView(None, (1, gc), (steps, n), (k, v), "r", "column")
        return OperandView(1, (gr, gc), (1, reader.tiles), (1, 1), reader.order)
    if kind in ("tilizer", "embedding", "topk"):
        return OperandView(None, (gr, gc), (after[1] // gr, after[2] // gc), (1, 1), reader.order)
    return OperandView(t, (gr, gc), (m, n), (u, v), reader.order)


def _reduce_view(reader: EdgeReader) -> OperandView:
    (m, n), (u, v), k, steps = reader.mblock, reader.ublock, reader.u_kt, reader.m_k
    if reader.dim == "r":
        return OperandView(reader.t, reader.grid, (steps, n), (k, v), "c")
    if reader.dim == "c":
        return OperandView(reader.t, reader.grid, (m, steps), (u, k), "r")
    return OperandView(reader.t * reader.z, reader.grid, (m, n), (u, v), "r")


def _fused_view(reader: EdgeReader) -> OperandView:
    (gr, gc), (m, n), (u, v), k, steps = reader.grid, reader.mblock, reader.ublock, reader.u_kt, reader.m_k
    if reader.use == "matmul" and reader.operand == 0:
        return OperandView(reader.t, (gr, 1), (m, steps), (u, k), "r", "row")
    if reader.use == "matmul":
        return OperandView(reader.t, (1, gc), (steps, n), (k, v), "c", "column")
    if reader.use == "reduce":
        return _reduce_view(dataclasses.replace(reader, z=1))
    return OperandView(reader.t, reader.grid, reader.mblock, reader.ublock, reader.order)


def shape_after(
    shape: tuple[Ints, Ints, Ints],
    steps: Sequence[Step],
    unpad: tuple[int, int] = (0, 0),
    pad: tuple[int, int] = (0, 0),
) -> tuple[Ints, Ints, Ints]:
    """(t, rows, columns) after unpad, the TMs and the padding. Divisibility is not looked at: see `divides`."""
    t, rows, columns = shape[0], shape[1] - unpad[0], shape[2] - unpad[1]
    for name, *arguments in steps:
        n = arguments[0] if arguments else 1
        match name:
            case "transpose":
                rows, columns = columns, rows
            case "hslice":
                t, columns = t * n, columns // n
            case "vslice":
                t, rows = t * n, rows // n
            case "hstack":
                t, columns = t // n, columns * n
            case "vstack":
                t, rows = t // n, rows * n
            case "r":
                rows = rows * n
            case "c":
                columns = columns * n
            case "z":
                t = t * n
            case "pad":
                rows, columns = rows + arguments[0], columns + arguments[1]
    return t, rows + pad[0], columns + pad[1]
