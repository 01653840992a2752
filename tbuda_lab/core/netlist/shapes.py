"""Shapes in tiles, (z, rows, columns), carried through TMs: what an op reads and what it makes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tbuda_lab.core.netlist.schema import NetOp, OpInput, Queue, Tm
from tbuda_lab.core.netlist.tables import Tables

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
