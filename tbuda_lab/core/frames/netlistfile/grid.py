"""The placement frame of a netlist file: every graph is an epoch, every op a rectangle where the file puts it."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import DataFormat, tile_bytes
from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.frames.netlistfile.estimate import op_cycles
from tbuda_lab.core.frames.opsframe import total_cycles
from tbuda_lab.core.netlist.check.special import rectangle
from tbuda_lab.core.netlist.epochs import linked_graphs
from tbuda_lab.core.netlist.schema import Execute, Netlist, NetOp
from tbuda_lab.core.netlist.sizes import l1_use
from tbuda_lab.core.netlist.tables import Tables

_MOST_SIDE = 64  # cores of a drawn grid; ops beyond are in the table only
_I4 = (1 << 31) - 1

Columns = dict[str, npt.NDArray[np.generic]]


def ops_frame(n: Netlist, device: DeviceSpec) -> Frame:
    """The columns of `core.frames.ops_frame`, from the file alone: no candidates, cycles estimated (0: no estimate).

    An op without cores (ethernet_datacopy, or a place that no grid has) has 0 rows. The grid grows beyond the device
    where ops lie outside (`meta["device_rows"]`, `meta["device_cols"]`). `op_line`: line of the op, 0 if unknown.
    """
    ops = [op for _, op in n.ops()]
    tables = Tables(n)
    strings = Strings()
    epoch = {name: k for k, name in enumerate(n.graphs)}
    homes = np.array([epoch[g.name] for g, _ in n.ops()], dtype="<u4")
    chips = np.array([_chip(g.target_device) for g in n.graphs.values()], dtype="<u2")
    boxes = np.array([_box(op) for op in ops], np.int64).reshape(-1, 4)
    preloaded = frozenset(name for p in n.programs for i in p.instructions if isinstance(i, Execute)
                          for name, s in (i.settings or {}).items() if s.fields.get("prologue") not in (None, False))
    use = [l1_use(tables, op, device.tile_align, preloaded) for op in ops]
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
        "op_l1_input": np.array([u.inputs for u in use], dtype="<f8"),
        "op_l1_output": np.array([u.output for u in use], dtype="<f8"),
        "op_l1_param": np.array([u.parameters for u in use], dtype="<f8"),
        "op_l1_intermed": np.array([u.intermediate for u in use], dtype="<f8"),
        "op_l1_total": np.array([u.total for u in use], dtype="<f8"),
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
        "device": device.name, "arch": device.arch, "rows": rows, "cols": cols,
        "device_rows": device.rows, "device_cols": device.cols,
        "harvested": [], "physical": list(range(rows)), "chips": sorted(set(chips.tolist())),
        "clock_hz": float(device.clock_hz), "l1": int(device.l1_usable), "graphs": list(n.graphs),
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
