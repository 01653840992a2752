"""Sides made by hand."""

from __future__ import annotations

from typing import Any

from tbuda_lab.core.diff import DeviceGrid, EpochState, OpState, QueueState, Side

GRID = DeviceGrid("two by four", 2, 4, (0, 1), ())


def op(
    epoch: int = 0,
    start: tuple[int, int] = (0, 0),
    grid: tuple[int, int] = (1, 1),
    cycles: int = 100,
    limiter: int | None = None,
    chip: int = 0,
    transposed: bool = False,
) -> OpState:
    return OpState(epoch, chip, start, grid, transposed, cycles, cycles if limiter is None else limiter)


def queue(channels: tuple[int, ...] = (0,), size: int = 4096, chip: int = 0) -> QueueState:
    return QueueState(chip, "dram", channels, 2, size)


def side(name: str, ops: dict[str, OpState], queues: dict[str, QueueState] | None = None, **more: Any) -> Side:
    """Epochs follow from the ops; `temporal`: numbers of the epochs, where they are not 0, 1, 2, ..."""
    count = 1 + max((o.epoch for o in ops.values()), default=-1)
    temporal = more.pop("temporal", range(count))
    epochs = tuple(
        EpochState(
            temporal[k],
            next((o.chip for o in ops.values() if o.epoch == k), 0),
            max((o.cycles for o in ops.values() if o.epoch == k), default=0),
            max((o.limiter_cycles for o in ops.values() if o.epoch == k), default=0),
        )
        for k in range(count)
    )
    return Side(name, ops, queues or {}, epochs, more.pop("grid", GRID), **more)
