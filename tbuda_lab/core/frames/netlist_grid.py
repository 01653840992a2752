"""The placement frame of a netlist file: every graph is an epoch, every op a rectangle where the file puts it, coloured
by its cycles in the cost model, as far as the file has the fields."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.analysis.memory import NetlistMemory
from tbuda_lab.core.cost import cycles, fused_share
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.formats import DataFormat, MathFidelity, tile_bytes
from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.frames.ops_frame import L1_COLUMNS, total_cycles
from tbuda_lab.core.netlist.check.special import rectangle
from tbuda_lab.core.netlist.schema import FusedOp, Netlist, NetOp, SubOp
from tbuda_lab.core.netlist.tables import linked_graphs

_MOST = 1 << 20  # of a count in a file that is shown, not compiled


def op_cycles(n: Netlist, arch: str) -> npt.NDArray[np.float64]:
    """Cycles per input of every op in file order; 0 where there is no estimate.

    The same as the kernel cycles of the compile (`balancer.enumerate`) for what this compiler wrote. A fused op counts
    as its sub-ops, a matmul with an activation as both. A sparse matmul has none: its cycles depend on the encoding,
    which comes at run time. Alike ops are estimated together.
    """
    ops = [op for _, op in n.ops()]
    pieces: dict[tuple[Any, ...], list[tuple[int, tuple[int, ...]]]] = {}
    for index, op in enumerate(ops):
        parts: list[NetOp | SubOp] = [op]
        if op.type == "fused_op":
            parts = _sub_ops(n.fused_ops.get(str(op.attributes.get("fused_op_id"))))
        for part in parts:
            key = _key(op, part)
            if key is not None:
                pieces.setdefault(key, []).append((index, _counts(op, part)))
        if op.type == "matmul" and isinstance(activation := op.attributes.get("sfpu_op"), str):
            key = _key(op, SubOp(op.name, activation, [], "", op.blocking.mblock, op.blocking.ublock))
            if key is not None:  # it runs on the finished block
                counts = (*_counts(op, op)[:5], 1, 1, 1)
                pieces.setdefault((key[0], op.out_df, None, *key[3:]), []).append((index, counts))
    total = np.zeros(len(ops))
    for (kind, df, acc, fidelity, dim, approximate, vector, l1_acc, share), members in pieces.items():
        t, mm, mn, ur, uc, m_k, u_kt, z = np.array([counts for _, counts in members], np.int64).T
        try:
            per_input = cycles(
                kind,
                arch=arch,
                df=df,
                acc_df=acc,
                fidelity=fidelity,
                t=t,
                mblock_m=mm,
                mblock_n=mn,
                ublock_r=ur,
                ublock_c=uc,
                m_k=m_k,
                u_kt=u_kt,
                z=z,
                dim=dim,
                approximate=approximate,
                vector=vector,
                l1_acc=l1_acc,
            )
        except (TbudaError, KeyError, ValueError):
            continue
        np.add.at(total, [index for index, _ in members], per_input * share)
    return np.rint(total)


def _sub_ops(fused: FusedOp | None) -> list[NetOp | SubOp]:
    return [sub for schedule in fused.schedules for sub in schedule] if fused else []


def _key(op: NetOp, part: NetOp | SubOp) -> tuple[Any, ...] | None:
    a = part.attributes
    if a.get("identity") or not op.inputs:
        return None
    dim, vector = a.get("dim"), a.get("vector", "rc")
    try:
        fidelity = MathFidelity[op.math_fidelity or "HiFi3"]
    except KeyError:
        fidelity = MathFidelity.HiFi3
    supported = dim in (None, "r", "c", "z", "rc") and vector in ("r", "c", "rc")
    if not supported or op.inputs[0].df is DataFormat.Invalid:
        return None
    return (
        part.type,
        op.inputs[0].df,
        op.acc_df,
        fidelity,
        dim,
        bool(a.get("approximate_mode")),
        vector,
        bool(a.get("l1_acc")),
        fused_share(part.type, isinstance(part, SubOp) and "dest" in part.inputs),
    )


def _counts(op: NetOp, part: NetOp | SubOp) -> tuple[int, ...]:
    if isinstance(part, NetOp):
        mblock, ublock = part.blocking.mblock, part.blocking.ublock
    else:
        mblock, ublock = part.mblock, part.ublock
    a = part.attributes
    raw = (op.blocking.t, *mblock, *ublock, a.get("m_k", 1), a.get("u_kt", 1), a.get("z", 1))
    return tuple(min(max(v, 1), _MOST) if isinstance(v, int) else 1 for v in raw)


_MOST_SIDE = 64  # cores of a drawn grid; ops beyond are in the table only
_I4 = (1 << 31) - 1

Columns = dict[str, npt.NDArray[np.generic]]


def ops_frame(n: Netlist, device: DeviceSpec) -> Frame:
    """The columns of `core.frames.ops_frame`, from the file alone: no candidates, cycles estimated (0: no estimate).

    An op without cores (ethernet_datacopy, or a place that no grid has) has 0 rows. The grid grows beyond the device
    where ops lie outside (`meta["device_rows"]`, `meta["device_cols"]`). `op_line`: line of the op, 0 if unknown.
    """
    ops = [op for _, op in n.ops()]
    strings = Strings()
    epoch = {name: k for k, name in enumerate(n.graphs)}
    homes = np.array([epoch[g.name] for g, _ in n.ops()], dtype="<u4")
    chips = np.array([_chip(g.target_device) for g in n.graphs.values()], dtype="<u2")
    boxes = np.array([_box(op) for op in ops], np.int64).reshape(-1, 4)
    maps = NetlistMemory(n, device).all_l1()
    use = [m.by_kind() for m in maps]
    cycles = op_cycles(n, device.arch)
    lines = [s.line if (s := n.source.get(("graphs", g.name, op.name))) else 0 for g, op in n.ops()]
    blocks = np.array([_numbers(op) for op in ops], np.int64).reshape(-1, 8)
    zero = np.zeros(len(ops))
    columns: Columns = {
        "op_name": strings.column(op.name for op in ops),
        "op_type": strings.column(op.type for op in ops),
        "op_module": strings.column(g.name for g, _ in n.ops()),
        "op_location": strings.column(f"line {line}" if line else "" for line in lines),
        "op_df": strings.column(op.out_df.name for op in ops),
        "op_fidelity": strings.column(op.math_fidelity or "" for op in ops),
        "op_stream": strings.column("" for _ in ops),
        "op_line": np.array(lines, dtype="<u4"),
        "op_epoch": homes,
        "op_chip": chips[homes],
        **{f"op_{key}": boxes[:, k].astype("<u2") for k, key in enumerate(("row", "col", "rows", "cols"))},
        "op_transposed": np.array([bool(op.grid_transpose) for op in ops], dtype="u1"),
        "op_cycles": cycles.astype("<f8"),
        "op_candidates": zero.astype("<u4"),
        "op_legal": zero.astype("<u4"),
        "op_fastest": zero.astype("<f8"),
        "op_cores": (boxes[:, 2] * boxes[:, 3]).astype("<i4"),
        **{f"op_{column}": np.array([u[kind] for u in use], dtype="<f8") for kind, column in L1_COLUMNS.items()},
        "op_l1_total": np.array([m.used for m in maps], dtype="<f8"),
        "op_l1_bound": zero.astype("u1"),
    }
    names = ("t", "mblock_m", "mblock_n", "ublock_r", "ublock_c", "m_k", "u_kt", "buf_size_mb")
    columns |= {f"op_{key}": blocks[:, k].astype("<i4") for k, key in enumerate(names)}
    tiles = (boxes[:, 2] * boxes[:, 3]) * blocks[:, :5].prod(axis=1)
    align = device.tile_align
    sizes = np.array([0 if op.out_df is DataFormat.Invalid else tile_bytes(op.out_df, align=align) for op in ops])
    columns["op_out_bytes"] = (tiles * sizes).astype("<f8")
    columns |= _epochs(n, device, columns)
    columns |= _edges(n, ops)
    rows = min(max([device.rows, *(boxes[:, 0] + boxes[:, 2]).tolist()]), _MOST_SIDE)
    cols = min(max([device.cols, *(boxes[:, 1] + boxes[:, 3]).tolist()]), _MOST_SIDE)
    meta = {
        "device": device.name,
        "arch": device.arch,
        "rows": rows,
        "cols": cols,
        "device_rows": device.rows,
        "device_cols": device.cols,
        "harvested": [],
        "physical": list(range(rows)),
        "chips": sorted(set(chips.tolist())),
        "clock_hz": float(device.clock_hz),
        "l1": int(device.l1_usable),
        "graphs": list(n.graphs),
        "total_cycles": total_cycles(columns["epoch_temporal"], columns["epoch_cycles"]),
        "directions": ["fwd"] * len(n.graphs),
    }
    return Frame("ops", meta, columns, strings.table)


def _chip(device: int | list[int]) -> int:
    first = (device[0] if device else 0) if isinstance(device, list) else device
    return min(max(first, 0), 0xFFFF)


def _box(op: NetOp) -> tuple[int, int, int, int]:
    """(row, column, rows, columns), cut to what can be drawn; (0, 0, 0, 0) without cores."""
    box = rectangle(op)
    if box is None or not all(0 <= v < _MOST_SIDE for v in box[:2]):
        return 0, 0, 0, 0
    row, col, rows, cols = box
    return row, col, min(rows, _MOST_SIDE - row), min(cols, _MOST_SIDE - col)


def _numbers(op: NetOp) -> list[int]:
    b, a = op.blocking, op.attributes
    raw = [b.t, *b.mblock, *b.ublock, a.get("m_k", 0), a.get("u_kt", 0), op.buf_size_mb or 0]
    return [min(max(v, -1), _I4) if isinstance(v, int) else 0 for v in raw]


def _epochs(n: Netlist, device: DeviceSpec, ops: Columns) -> Columns:
    count = len(n.graphs)
    temporal = {name: k for k, group in enumerate(linked_graphs(n)) for name in group}
    homes = ops["op_epoch"].astype(np.int64)
    cores, each = ops["op_cores"].astype(np.float64), ops["op_cycles"].astype(np.float64)
    slowest = np.zeros(count)
    np.maximum.at(slowest, homes, each)
    work = np.bincount(homes, weights=cores * each, minlength=count)
    busy = np.divide(work, slowest * device.rows * device.cols, out=np.zeros(count), where=slowest > 0)
    return {
        "epoch_temporal": np.array([temporal[name] for name in n.graphs], dtype="<u4"),
        "epoch_chip": np.array([_chip(g.target_device) for g in n.graphs.values()], dtype="<u2"),
        "epoch_cycles": slowest.astype("<f8"),
        "epoch_ops": np.bincount(homes, minlength=count).astype("<u4"),
        "epoch_cores": np.bincount(homes, weights=cores, minlength=count).astype("<u4"),
        "epoch_busy": busy.astype("<f4"),
    }


def _edges(n: Netlist, ops: list[NetOp]) -> Columns:
    """Producer and consumer of every value, through the queue between them if there is one."""
    index = {op.name: k for k, op in enumerate(ops)}
    pairs = []
    for op in ops:
        for i in op.inputs:
            queue = n.queues.get(i.source)
            source = index.get(queue.input if queue is not None else i.source)
            if source is not None:
                pairs.append((source, index[op.name]))
    edges = np.array(pairs, dtype="<u4").reshape(-1, 2)
    return {"edge_source": np.ascontiguousarray(edges[:, 0]), "edge_target": np.ascontiguousarray(edges[:, 1])}
