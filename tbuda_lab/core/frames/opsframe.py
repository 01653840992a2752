"""The frame of a placement: one row per op in schedule order, one per epoch, the edges between ops, and the grid."""

from __future__ import annotations

from typing import Any

import numpy as np

from tbuda_lab.core.balancer.types import Placement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.frames.graphframe import node_type
from tbuda_lab.core.graph import Graph

INTEGERS = ("t", "mblock_m", "mblock_n", "ublock_r", "ublock_c", "m_k", "u_kt", "buf_size_mb", "cores")
BYTES = ("l1_input", "l1_output", "l1_param", "l1_intermed", "l1_total")


def ops_frame(lowered: Graph, placement: Placement, device: DeviceSpec) -> Frame:
    """Columns of a placement.

    `op_*`: name, type, epoch, chip, rectangle (row, col, rows, cols in logical cores), the chosen candidate's fields,
    cycles per input of the op's kernel (`cycles`), with its operands and output (`limiter_cycles`; `limiter`: what
    takes longest), bytes of L1, how many candidates the op had and how many were legal. `epoch_*`: temporal number,
    chip, cycles per input of the slowest kernel (`cycles`) and of the slowest op with its data (`limiter_cycles`), busy
    (sum of cores x cycles over all cores x epoch cycles).
    `edge_*`: producer and consumer as op indices. `edges between epochs` go through queues and are listed alike.
    """
    strings = Strings()
    names = [n for n in placement.schedule if n in placement.ops]
    placed = [placement.ops[n] for n in names]
    nodes = [lowered[n] for n in names]
    chosen = [placement.models[n].rows[placement.ops[n].row] for n in names]
    index = {name: i for i, name in enumerate(names)}
    legal: dict[int, tuple[int, float]] = {}
    for n in names:
        models = placement.models[n]
        if id(models) not in legal:
            rows = models.legal()
            legal[id(models)] = (rows.size, float(models.rows["cycles"][rows].min()) if rows.size else 0.0)
    columns: dict[str, np.ndarray] = {
        "op_name": strings.column(names),
        "op_type": strings.column(node_type(n) for n in nodes),
        "op_module": strings.column(n.origin.module for n in nodes),
        "op_location": strings.column(n.origin.location for n in nodes),
        "op_df": strings.column(n.df.name if n.df is not None else "" for n in nodes),
        "op_fidelity": strings.column(_name(n.attrs.get("fidelity")) for n in nodes),
        "op_stream": strings.column(str(c["stream"]) for c in chosen),
        "op_epoch": np.array([p.epoch for p in placed], dtype="<u4"),
        "op_chip": np.array([p.chip for p in placed], dtype="<u2"),
        "op_row": np.array([p.start[0] for p in placed], dtype="<u2"),
        "op_col": np.array([p.start[1] for p in placed], dtype="<u2"),
        "op_rows": np.array([p.size[0] for p in placed], dtype="<u2"),
        "op_cols": np.array([p.size[1] for p in placed], dtype="<u2"),
        "op_transposed": np.array([p.transposed for p in placed], dtype="u1"),
        "op_cycles": np.array([float(c["cycles"]) for c in chosen], dtype="<f8"),
        "op_candidates": np.array([placement.models[n].rows.size for n in names], dtype="<u4"),
        "op_legal": np.array([legal[id(placement.models[n])][0] for n in names], dtype="<u4"),
        "op_fastest": np.array([legal[id(placement.models[n])][1] for n in names], dtype="<f8"),
    }
    kernels = [(int(c["cycles"]), int(c["cycles"]), "kernel") for c in chosen]
    report = placement.report
    limits = kernels if report is None else [report.op_limiters.get(n, k) for n, k in zip(names, kernels, strict=True)]
    columns["op_limiter_cycles"] = np.array([cycles for _, cycles, _ in limits], dtype="<f8")
    columns["op_limiter"] = strings.column(what for _, _, what in limits)
    for field in INTEGERS:
        columns[f"op_{field}"] = np.array([int(c[field]) for c in chosen], dtype="<i4")
    for field in BYTES:
        columns[f"op_{field}"] = np.array([float(c[field]) for c in chosen], dtype="<f8")
    columns |= _epochs(placement, device, columns)
    pairs = [(index[e.source], index[n.name]) for n in nodes for e in n.inputs if e.source in index]
    edges = np.array(pairs, dtype="<u4").reshape(-1, 2)
    columns["edge_source"] = np.ascontiguousarray(edges[:, 0])
    columns["edge_target"] = np.ascontiguousarray(edges[:, 1])
    return Frame("ops", _meta(placement, device, columns), columns, strings.table)


def _name(value: object) -> str:
    return "" if value is None else str(getattr(value, "name", value))


def _epochs(placement: Placement, device: DeviceSpec, ops: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    cycles = np.array(placement.epoch_cycles, dtype="<f8")
    count = len(placement.epochs)
    slowest = np.zeros(count)
    np.maximum.at(slowest, ops["op_epoch"], ops["op_limiter_cycles"])
    work = np.bincount(ops["op_epoch"], weights=ops["op_cores"] * ops["op_cycles"], minlength=count)
    cores = np.bincount(ops["op_epoch"], weights=ops["op_cores"], minlength=count)
    busy = np.divide(work, cycles * device.rows * device.cols, out=np.zeros(count), where=cycles > 0)
    return {
        "epoch_temporal": np.array([e.temporal for e in placement.epochs], dtype="<u4"),
        "epoch_chip": np.array([e.chip for e in placement.epochs], dtype="<u2"),
        "epoch_cycles": cycles,
        "epoch_limiter_cycles": slowest,
        "epoch_ops": np.bincount(ops["op_epoch"], minlength=count).astype("<u4"),
        "epoch_cores": cores.astype("<u4"),
        "epoch_busy": busy.astype("<f4"),
    }


def total_cycles(temporal: np.ndarray, cycles: np.ndarray) -> float:
    """Cycles per input of the whole model: chips of one temporal epoch run together, the slowest counts."""
    if not cycles.size:
        return 0.0
    slowest = np.zeros(int(temporal.max()) + 1)
    np.maximum.at(slowest, temporal, cycles)
    return float(slowest.sum())


def _meta(placement: Placement, device: DeviceSpec, columns: dict[str, np.ndarray]) -> dict[str, Any]:
    harvested = set(device.harvested_rows)
    return {
        "device": device.name,
        "arch": device.arch,
        "rows": device.rows,
        "cols": device.cols,
        "harvested": sorted(int(r) for r in harvested),
        "physical": [int(device.physical_row(r)) for r in range(device.rows)],
        "chips": [int(c) for c in device.chips],
        "clock_hz": float(device.clock_hz),
        "l1": int(device.l1_usable),
        "total_cycles": total_cycles(columns["epoch_temporal"], columns["epoch_cycles"]),
        "total_limiter_cycles": total_cycles(columns["epoch_temporal"], columns["epoch_limiter_cycles"]),
        "directions": [e.direction for e in placement.epochs],
    }
