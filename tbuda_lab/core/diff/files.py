"""Sides from files: folders of `tbuda compile`, and netlists of any origin."""

from __future__ import annotations

import csv
import hashlib
import os
from pathlib import Path

import numpy as np

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.diff.measured import SUFFIXES, profile_sides
from tbuda_lab.core.diff.sides import DeviceGrid, EpochState, OpState, QueueState, Side, grid_of
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files import bounded_text, csv_rows, json_map
from tbuda_lab.core.frames.netlist_grid import ops_frame
from tbuda_lab.core.netlist.check.registry import ARCHS, facts_of
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.core.netlist.sizes import queue_buffer_bytes
from tbuda_lab.core.netlist.tables import Tables

NETLIST, RECORD = "netlist.yaml", "compile.json"
_LARGEST_CSV = 64 << 20

Cycles = dict[str, tuple[int, int]]


def file_sides(a: str | Path, b: str | Path, *, arch: str | None = None) -> tuple[Side, Side]:
    """Two folders of `tbuda compile`, two netlist files, or one of each, as sides of a comparison; or two measured runs
    (`profile_sides`).

    Cycles are the compiler's own where both netlists have them beside them (`NAME.cycles.csv`), else both are estimated
    from the netlists' fields: what is compared is counted alike. arch: as for `netlist.check`; default: the netlist's.
    Raises `InputError` or `NetlistError` naming the file.
    """
    measured = [Path(p).suffix.lower() in SUFFIXES and not os.path.isdir(p) for p in (a, b)]
    if all(measured):
        if arch is not None:
            raise InputError(f"arch {arch!r}: of netlists alone; a measured run says its own device")
        return profile_sides(Path(a), Path(b), _names(Path(a), Path(b)))
    if any(measured):
        raise InputError(f"{a} and {b}: a measured run is compared with a measured run")
    paths = [_netlist_path(Path(p)) for p in (a, b)]
    loaded = [netlists.load(p) for p in paths]
    recorded = [_recorded_cycles(p, n) for p, n in zip(paths, loaded, strict=True)]
    both = all(k is not None for k in recorded)
    names = _names(Path(a), Path(b))
    first, second = (
        netlist_side(n, name, arch=arch, cycles=k if both else None)
        for n, name, k in zip(loaded, names, recorded, strict=True)
    )
    return first, second


def _names(a: Path, b: Path) -> tuple[str, str]:
    """The last part of each path, or all of it where those are equal."""
    return (a.name, b.name) if a.name != b.name else (str(a), str(b))


def _netlist_path(path: Path) -> Path:
    if os.path.isdir(path):  # not `Path.is_dir`, which raises OSError for a name that no file system takes
        inside = path / NETLIST
        if not inside.is_file():
            raise InputError(f"{path} has no {NETLIST}: give a folder of `tbuda compile` or a netlist file")
        return inside
    if not os.path.exists(path):
        raise InputError(f"{path} does not exist: give a folder of `tbuda compile` or a netlist file")
    return path


def netlist_side(n: Netlist, name: str, *, arch: str | None = None, cycles: Cycles | None = None) -> Side:
    """A netlist as one side. cycles: (kernel, limiter) per op; None: estimated from the netlist's fields."""
    facts = facts_of(arch if arch is not None else next((x for x in n.archs if x in ARCHS), "wormhole_b0"))
    shown = netlists.expand(n, facts.align)
    frame = ops_frame(shown, facts.device)
    c = frame.columns
    names = frame.text("op_name")
    kernel = c["op_cycles"].astype(np.int64)
    limiter = kernel
    unknown: tuple[str, ...] = ()
    if cycles is not None:
        kernel, limiter = np.array([cycles.get(op, (0, 0)) for op in names], np.int64).reshape(-1, 2).T
    else:
        unknown = tuple(op for op, k in zip(names, kernel.tolist(), strict=True) if not k)
    turned = c["op_transposed"].astype(bool).tolist()
    homes = c["op_epoch"].astype(np.int64)
    rows = zip(
        names,
        homes.tolist(),
        c["op_chip"].tolist(),
        c["op_row"].tolist(),
        c["op_col"].tolist(),
        c["op_rows"].tolist(),
        c["op_cols"].tolist(),
        turned,
        kernel.tolist(),
        limiter.tolist(),
        strict=True,
    )
    ops = {
        op: OpState(epoch, chip, (row, col), (wide, high) if turn else (high, wide), turn, k, limit)
        for op, epoch, chip, row, col, high, wide, turn, k, limit in rows
    }
    slowest = np.zeros((2, c["epoch_temporal"].size), np.int64)
    for at, values in enumerate((kernel, limiter)):
        np.maximum.at(slowest[at], homes, values)
    epochs = tuple(map(EpochState, c["epoch_temporal"].tolist(), c["epoch_chip"].tolist(), *slowest.tolist()))
    grid = _grid(facts.device, frame.meta["rows"], frame.meta["cols"])
    source = "estimate" if cycles is None else "cycles.csv"
    return Side(name, ops, _queues(shown, facts.align), epochs, grid, source, unknown)


def _grid(device: DeviceSpec, rows: int, cols: int) -> DeviceGrid:
    """The device's grid without harvesting (a netlist says nothing of it), as large as the ops need it."""
    return DeviceGrid(grid_of(device).device, rows, cols, tuple(range(rows)), ())


def _queues(n: Netlist, align: int) -> dict[str, QueueState]:
    tables = Tables(n)
    return {
        q.name: QueueState(
            q.target_device if isinstance(q.target_device, int) else 0,
            str(q.loc),
            tuple(b.channel for b in q.buffers),
            q.entries,
            queue_buffer_bytes(tables, q, align) * len(q.buffers),
        )
        for q in n.queues.values()
    }


def _recorded_cycles(path: Path, n: Netlist) -> Cycles | None:
    """The cycles that the compiler wrote beside a netlist; None where there are none, or the netlist was changed since.

    Raises `InputError` for a file that is not what the compiler writes.
    """
    file = path.with_suffix(".cycles.csv")
    if not file.is_file() or _differs_from_record(path):
        return None
    rows = csv_rows(bounded_text(file, _LARGEST_CSV, "is not a table of cycles"))
    by_op: Cycles = {}
    line = 1
    try:
        header = next(rows, (1, []))[1]
        if not {"op", "kernel_cycles", "limiter_cycles"} <= set(header):
            raise InputError(f"{file}: line 1: the columns op, kernel_cycles and limiter_cycles are needed")
        for line, cells in rows:  # noqa: B007
            row = dict(zip(header, cells, strict=False))
            pair = int(row["kernel_cycles"]), int(row["limiter_cycles"])
            if not 0 <= min(pair) <= max(pair) < 1 << 63:
                raise ValueError("cycles below 0 or beyond 63 bits")
            by_op[row["op"]] = pair
    except (ValueError, KeyError, csv.Error) as error:
        reason = f"there is no {error}" if isinstance(error, KeyError) else error
        raise InputError(f"{file}: line {line}: {reason}; compile again, or remove it") from None
    return by_op if {op.name for _, op in n.ops()} <= set(by_op) else None


def _differs_from_record(path: Path) -> bool:
    """Whether a netlist differs from the one that the record beside it describes."""
    record = path.parent / RECORD
    if path.name != NETLIST or not record.is_file():
        return False
    try:
        digest = json_map(record, "record of `tbuda compile`").get("netlist_sha256")
    except InputError:
        return True
    return bool(digest != hashlib.sha256(netlists.file_text(path).encode()).hexdigest())
