"""What would let an op fit its cores: other settings of its own, tried one at a time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tbuda_lab.core.netlist.cores.operands import CoreOp, CoreOperand
from tbuda_lab.core.netlist.cores.usage import core_buffers

_MOST_TIMES = 4


def what_fits(
    op: CoreOp,
    readers: tuple[CoreOperand, ...],
    input_count: int,
    arch: str,
    room: int,
    names: Sequence[str],
    columns: int,
    rows: int,
) -> str:
    """Settings with which every core of an op takes at most `room` bytes; names: of its inputs; rows, columns: of the
    device. Empty where none of those that are tried is enough."""
    ways = [f"without a prologue of {names[k]!r}" for k in _fitting_prologues(op, readers, input_count, arch, room)]
    for depth in (2, 1):
        less = dataclasses.replace(op, buf_size_mb=depth)
        if depth < op.buf_size_mb and _fits(less, readers, input_count, arch, room):
            ways.append(f"with buf_size_mb {depth}")
            break
    ways += [
        way
        for axis in (1, 0)
        if (way := _more_cores(op, readers, input_count, arch, room, axis, (rows, columns)[axis]))
    ]
    return ", or ".join(ways)


def _fits(op: CoreOp, readers: tuple[CoreOperand, ...], input_count: int, arch: str, room: int) -> bool:
    if not all(operand.fits for operand in op.operands):
        return False
    return int(core_buffers(op, readers, input_count, arch).total.max()) <= room


def _fitting_prologues(
    op: CoreOp, readers: tuple[CoreOperand, ...], input_count: int, arch: str, room: int
) -> list[int]:
    """Operands each of which it is enough to stream."""
    fitting = []
    for k, operand in enumerate(op.operands):
        if operand.preloaded:
            others = [*op.operands]
            others[k] = dataclasses.replace(operand, preloaded=False)
            if _fits(dataclasses.replace(op, operands=tuple(others)), readers, input_count, arch, room):
                fitting.append(k)
    return fitting


def _more_cores(
    op: CoreOp, readers: tuple[CoreOperand, ...], input_count: int, arch: str, room: int, axis: int, most: int
) -> str:
    """The least number of further rows (axis 0) or columns with which an op fits."""
    if readers or op.kind == "fused" or (op.kind == "depthwise" and axis == 1):
        return ""
    for times in range(2, _MOST_TIMES + 1):
        if op.mblock[axis] % times or op.grid[axis] * times > most:
            continue
        down, along = (times, 1) if axis == 0 else (1, times)
        grid, mblock = (op.grid[0] * down, op.grid[1] * along), (op.mblock[0] // down, op.mblock[1] // along)
        operands = tuple(
            dataclasses.replace(o, reader=dataclasses.replace(o.reader, grid=grid, mblock=mblock)) for o in op.operands
        )
        wider = dataclasses.replace(op, operands=operands, grid=grid, mblock=mblock)
        if _fits(wider, readers, input_count, arch, room):
            more = op.grid[axis] * (times - 1)
            return f"with {more} more {('row', 'column')[axis]}{'s' if more > 1 else ''} of cores"
    return ""
