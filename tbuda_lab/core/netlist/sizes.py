"""Shapes in tiles, (z, rows, columns), carried through TMs, and bytes: of queue buffers in DRAM or host memory, and of
an op's buffers in L1."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat, tile_bytes
from tbuda_lab.core.netlist.schema import NetOp, OpInput, Queue, Tm
from tbuda_lab.core.netlist.tables import FULL_TILE, Tables

Shape = tuple[int, int, int]


class NetlistShapeError(ValueError):
    """A TM that cannot be applied to a shape; the message says why and `fix` what could be."""

    def __init__(self, message: str, fix: str = "") -> None:
        super().__init__(message)
        self.fix = fix


def output_shape(op: NetOp) -> Shape:
    """What an op makes: (t, grid_r x mblock_m x ublock_rt, grid_c x mblock_n x ublock_ct)."""
    return op.blocking.tiles(op.grid_size)


def queue_shape(queue: Queue) -> Shape:
    """One entry of a queue."""
    return queue.blocking.tiles(queue.grid_size)


def source_shape(tables: Tables, name: str) -> Shape | None:
    """What a queue or op hands on; None if there is none of that name."""
    if name in tables.n.queues:
        return queue_shape(tables.n.queues[name])
    return output_shape(tables.ops[name]) if name in tables.ops else None


def apply_tms(shape: Shape, tms: Sequence[Tm]) -> Shape:
    """The shape after the TMs, in their order. Raises ShapeError."""
    for tm in tms:
        shape = _apply(shape, tm)
    return shape


def _apply(shape: Shape, tm: Tm) -> Shape:
    z, rt, ct = shape
    match tm.name:
        case "transpose":
            return z, ct, rt
        case "tile_broadcast":
            return shape
        case "broadcast":
            sizes = {"z": z, "r": rt, "c": ct}
            for dim, times in tm.args:
                if times < 1:
                    raise NetlistShapeError(f"broadcast {dim} by {times}", "broadcast by 1 or more")
                sizes[dim] *= times
            return sizes["z"], sizes["r"], sizes["c"]
        case "pad":
            return z, rt + tm.args[0], ct + tm.args[1]
    n: Any = tm.args[0]
    if tm.name in ("hslice", "vslice"):
        size, what = (ct, "columns") if tm.name == "hslice" else (rt, "rows")
        if n < 1 or size % n:
            raise NetlistShapeError(f"{tm.name} {n} of {size} {what} of tiles", f"the divisors of {size} are legal")
        return (z * n, rt, ct // n) if tm.name == "hslice" else (z * n, rt // n, ct)
    if tm.name in ("hstack", "vstack"):
        n = z if n == 0 else n
        if n < 1 or z % n:
            raise NetlistShapeError(f"{tm.name} {n} of z {z}", f"the divisors of {z} are legal")
        return (z // n, rt, ct * n) if tm.name == "hstack" else (z // n, rt * n, ct)
    raise NetlistShapeError(f"unknown TM {tm.name!r}")


def operand_shape(source: Shape, i: OpInput) -> Shape:
    """What the op sees of an input: unpad, then the TMs, then pad. Raises ShapeError."""
    z, rt, ct = source
    if i.unpad is not None:
        rt, ct = rt - int(i.unpad.get("rt", 0)), ct - int(i.unpad.get("ct", 0))
        if rt < 1 or ct < 1:
            raise NetlistShapeError(f"unpad leaves {rt}x{ct} tiles of {source[1]}x{source[2]}", "drop fewer tiles")
    z, rt, ct = apply_tms((z, rt, ct), i.tms or ())
    if i.pad is not None:
        rt, ct = rt + int(i.pad.get("rt", 0)), ct + int(i.pad.get("ct", 0))
    return z, rt, ct


OVERLAY_BASE = 64 * 1024  # every core has this much for its overlay blob; more comes out of the buffers


def tile_size(df: DataFormat, tile_dim: tuple[int, int] | None, align: int, *, header: bool = True) -> int:
    """Bytes of a tile; 0 for an unknown format or tile size."""
    try:
        return tile_bytes(df, tile_dim or FULL_TILE, align=align, header=header)
    except InputError:  # a tile that no machine has
        return 0


def queue_buffer_bytes(tables: Tables, q: Queue, align: int) -> int:
    """Bytes of one buffer of a queue: a header of `align` bytes and `entries` slots of t x mblock x ublock tiles.

    Flat queues and what an op untilizes into have no tile headers (netlist-format.md#tiles-and-blocks).
    """
    op = tables.ops.get(q.input)
    plain = q.layout == "flat" or bool(op is not None and op.untilize_output)
    b = q.blocking
    tiles = max(b.t, 0) * max(b.mblock[0], 0) * max(b.mblock[1], 0) * max(b.ublock[0], 0) * max(b.ublock[1], 0)
    entry = tiles * tile_size(q.df, q.tile_dim, align, header=not plain)
    return align + max(q.entries, 0) * entry


@dataclasses.dataclass(frozen=True)
class L1Use:
    """Bytes of L1 that one core of an op needs at least."""

    inputs: int
    output: int
    parameters: int
    intermediate: int
    overlay: int

    @property
    def total(self) -> int:
        return self.inputs + self.output + self.parameters + self.intermediate + self.overlay


def l1_use(tables: Tables, op: NetOp, align: int, preloaded: frozenset[str]) -> L1Use:
    """What the buffers of an op take in L1 at least, from the fields of the netlist alone: the sums of `l1_buffers`."""
    inputs = output = parameters = intermediate = overlay = 0
    for kind, _, size in l1_buffers(tables, op, align, preloaded):
        if kind == "input":
            inputs += size
        elif kind == "parameter":
            parameters += size
        elif kind == "output":
            output = size
        elif kind == "intermediate":
            intermediate = size
        else:
            overlay = size
    return L1Use(inputs, output, parameters, intermediate, overlay)


def l1_buffers(tables: Tables, op: NetOp, align: int, preloaded: frozenset[str]) -> list[tuple[str, int, int]]:
    """(kind, number of the input or -1, bytes) of every buffer of an op in L1: output, intermediate, overlay, and a
    parameter or an input for each input; some may have 0 bytes. Nothing for an op whose blocks have no size.

    The model of placement.md#l1-of-a-candidate, each term at the least it can be: double buffered input blocks
    (the operand that a matmul keeps minimal at one row or column of ublocks), `buf_size_mb` output mblocks (all t of a
    gradient op), the share of a preloaded queue that falls to one core, a block of intermediates in another format,
    and the overlay beyond its 64 KiB. `preloaded` names the queues with a prologue.
    """
    b = op.blocking
    if min(b.t, *b.mblock, *b.ublock, *op.grid_size) < 1:
        return []
    block = b.mblock[0] * b.mblock[1] * b.ublock[0] * b.ublock[1]
    depth = max(op.buf_size_mb or 1, 1)
    output = block * tile_size(op.out_df, op.tile_dim, align) * (max(depth, b.t) if op.gradient_op else depth)
    intermediate = 0
    k = op.attributes.get("m_k", 1)
    if op.intermed_df not in (None, op.out_df) and op.type == "matmul" and isinstance(k, int) and k > 1:
        intermediate = block * tile_size(op.intermed_df or op.out_df, op.tile_dim, align)
    l1_buffers = [
        ("output", -1, output),
        ("intermediate", -1, intermediate),
        ("overlay", -1, max((op.overlay_size or 0) - OVERLAY_BASE, 0)),
    ]
    for n, i in enumerate(op.inputs):
        tile = tile_size(i.df, tables.tile_dim(i.source), align)
        queue = tables.n.queues.get(i.source)
        if queue is not None and i.source in preloaded:
            z, rt, ct = queue.blocking.tiles(queue.grid_size)
            l1_buffers.append(("parameter", n, -(-max(z * rt * ct, 0) // (op.grid_size[0] * op.grid_size[1])) * tile))
        else:
            l1_buffers.append(("input", n, _input_tiles(op, n) * tile))
    return l1_buffers


def _input_tiles(op: NetOp, n: int) -> int:
    """Tiles of the buffer of input n, at the least."""
    sizes = op.input_buf_min_size_tiles or []
    size = sizes[n] if n < len(sizes) and sizes[n] > 0 else 0
    (m, k_n), (rt, ct) = op.blocking.mblock, op.blocking.ublock
    counts = op.attributes.get("kernel_broadcast")
    entry = counts.get(f"input_{n}") if isinstance(counts, dict) else None
    if isinstance(entry, int) and entry > 0:
        return max(size, entry)
    u_kt = op.attributes.get("u_kt", 1)
    u_kt = u_kt if isinstance(u_kt, int) and u_kt > 0 else 1
    if op.type == "matmul":
        identity = op.attributes.get("identity") is True
        small = op.attributes.get("min_buffer_input", 0)
        if n == 0:
            return max(size, 1 if identity else 2 * rt * u_kt * (1 if small == 0 else m))
        if n == 1:
            return max(size, 2 * u_kt * ct * (1 if small == 1 else k_n))
        return max(size, 1)
    if op.type in ("splice", "fused_op", "embedding", "topk", "reduce", "depthwise", "tilizer"):
        return max(size, 2)
    return max(size, 2 * rt * ct)
