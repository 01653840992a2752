"""The frame of a placement: one row per op in schedule order, one per epoch, the edges between ops, and the grid.

Rows of the op table beyond one per op: one per core, and sub-totals per epoch. All from the frame of a placement.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.balancer.types import CANDIDATE, OpModels, Placement
from tbuda_lab.core.balancer.types import total_cycles as total_cycles
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim.batch_time import BatchTime, OpTime, epoch_limits
from tbuda_lab.core.formats import DataFormat, tile_bytes
from tbuda_lab.core.frames.frame import Frame, Strings
from tbuda_lab.core.frames.graph_frame import node_type
from tbuda_lab.core.graph import TILE, Graph, Node

INTEGERS = ("t", "mblock_m", "mblock_n", "ublock_r", "ublock_c", "m_k", "u_kt", "buf_size_mb", "cores")
L1_COLUMNS = {
    "input": "l1_input",
    "output": "l1_output",
    "parameter": "l1_param",
    "intermediate": "l1_intermed",
    "staging": "l1_staging",
    "relay": "l1_relays",
    "headers": "l1_headers",
    "state": "l1_state",
    "overlay": "l1_overlay",
}
"""By kind of buffer (`analysis.memory.KINDS`) the column of its bytes."""


@dataclasses.dataclass(frozen=True)
class OpColumns:
    """What of an ops frame no placement changes: the ops in schedule order, their names and kinds, and the edges
    between them. strings: the table as far as these columns index it."""

    names: tuple[str, ...]
    strings: tuple[str, ...]
    columns: dict[str, np.ndarray]
    edges: np.ndarray  # (n, 2) producer and consumer


def op_facts(lowered: Graph, names: Sequence[str]) -> OpColumns:
    """The facts of ops of a lowered graph."""
    strings = Strings()
    nodes = [lowered[n] for n in names]
    columns = {
        "op_name": strings.column(names),
        "op_type": strings.column(node_type(n) for n in nodes),
        "op_module": strings.column(n.origin.module for n in nodes),
        "op_location": strings.column(n.origin.location for n in nodes),
        "op_df": strings.column(n.df.name if n.df is not None else "" for n in nodes),
        "op_fidelity": strings.column(_name(n.attrs.get("fidelity")) for n in nodes),
        "op_out_bytes": np.array([_out_bytes(n) for n in nodes], dtype="<f8"),
    }
    index = {name: i for i, name in enumerate(names)}
    pairs = [(index[e.source], index[n.name]) for n in nodes for e in n.inputs if e.source in index]
    edges = np.array(pairs, dtype="<u4").reshape(-1, 2)
    return OpColumns(tuple(names), tuple(strings.table), columns, edges)


def op_names(placement: Placement) -> tuple[str, ...]:
    """The placed ops in schedule order: the rows of the frame."""
    return tuple([n for n in placement.schedule if n in placement.ops])


def ops_frame(
    lowered: Graph,
    placement: Placement,
    device: DeviceSpec,
    facts: OpColumns | None = None,
    times: BatchTime | None = None,
    l1: Mapping[str, Mapping[str, int]] | None = None,
) -> Frame:
    """Columns of a placement.

    `op_*`: name, type, epoch, chip, rectangle (row, col, rows, cols in logical cores), the chosen candidate's fields,
    cycles per input of the op's kernel (`cycles`), with its operands and output (`limiter_cycles`; `limiter`: what
    takes longest), bytes of L1 on its fullest core (`l1_total`, and by kind: `L1_COLUMNS`; `l1_bound` is 1 where they
    are the estimate of the candidate), which operands are parameters and which of these wait in L1 from before the
    first input (`parameters`, `preloaded`: bit k is operand k; others are streamed for every input), bytes handed on
    per input (`out_bytes`), how many candidates the op had and how many were legal. `epoch_*`: temporal number, chip,
    cycles per input of the slowest kernel (`cycles`) and of the slowest op with its data (`limiter_cycles`),
    `kernel_work` (sum of cores x kernel cycles) and busy (that over all cores x the epoch's cycles: `epoch_time` where
    it is simulated, else its slowest kernel).
    `edge_*`: producer and consumer as op indices. `edges between epochs` go through queues and are listed alike.

    With `times`, the simulation of a batch, also these, in cycles per input unless they say otherwise. `epoch_time` =
    `epoch_steady` + `epoch_fill` + `epoch_stall` + `epoch_switch`; `epoch_bound`: what takes the largest part of it;
    `epoch_limits`: what limits it, in a sentence; `epoch_slowest`: row of its slowest op, `epoch_limiting`: row of the
    op that is worth enlarging, -1 for none (see `epochsim.EpochLimit`). `op_compute`, `op_wait_input`, `op_wait_space`,
    `op_wait_dram`, `op_wait_host`: what the op did, the mean over its cores; `op_bound`, `op_critical` (on the chain
    that decides when the epoch ends). meta `time`: of the whole model, `batch`: inputs that it was simulated for,
    `time_parts`: sums over the epochs. meta `curve`, where the placement was searched on from: [[steps,
    cycles per input], ...].

    facts: `op_facts` of this graph and the placement's `op_names`, where they are known. l1: by op the bytes of each
    kind of buffer as the check of the netlist counts them (`analysis.memory.l1_by_kind`); of an op without them there
    is the estimate.
    """
    facts = op_facts(lowered, op_names(placement)) if facts is None else facts
    names, strings = facts.names, Strings(facts.strings)
    placed = [placement.ops[n] for n in names]
    models = [placement.models[n] for n in names]
    counts = _candidate_counts(models)
    chosen = np.empty(len(names), dtype=CANDIDATE)
    for i, (spot, table) in enumerate(zip(placed, models, strict=True)):
        chosen[i] = table.rows[spot.row]
    places = np.array([(p.epoch, p.chip, *p.start, *p.size, p.transposed) for p in placed], dtype="<i8").reshape(-1, 7)
    columns: dict[str, np.ndarray] = {
        **facts.columns,
        "op_stream": strings.column(chosen["stream"].tolist()),
        "op_epoch": places[:, 0].astype("<u4"),
        "op_chip": places[:, 1].astype("<u2"),
        "op_row": places[:, 2].astype("<u2"),
        "op_col": places[:, 3].astype("<u2"),
        "op_rows": places[:, 4].astype("<u2"),
        "op_cols": places[:, 5].astype("<u2"),
        "op_transposed": places[:, 6].astype("u1"),
        "op_cycles": chosen["cycles"].astype("<f8"),
        "op_candidates": counts[:, 0].astype("<u4"),
        "op_legal": counts[:, 1].astype("<u4"),
        "op_fastest": counts[:, 2].copy(),
    }
    limits = _limits(placement, names, chosen["cycles"].tolist())
    columns["op_limiter_cycles"] = np.array([cycles for _, cycles, _ in limits], dtype="<f8")
    columns["op_limiter"] = strings.column([what for _, _, what in limits])
    for field in INTEGERS:
        columns[f"op_{field}"] = chosen[field].astype("<i4")
    columns |= _l1(names, chosen, l1 or {})
    columns["op_parameters"] = np.array([_parameter_bits(m) for m in models], dtype="<u4")
    columns["op_preloaded"] = chosen["prologue"].astype("<u4") & columns["op_parameters"]
    columns |= _epochs(placement, device, columns)
    if times is not None:
        columns |= _times(names, placement, times, _op_times(placement, times), strings)
        share = columns["epoch_kernel_work"] / (columns["epoch_time"] * device.rows * device.cols)
        columns["epoch_busy"] = share.astype("<f4")
    columns["edge_source"] = np.ascontiguousarray(facts.edges[:, 0])
    columns["edge_target"] = np.ascontiguousarray(facts.edges[:, 1])
    meta = _meta(placement, device, columns)
    if placement.report is not None and placement.report.curve:
        meta["curve"] = [[steps, cycles] for steps, cycles in placement.report.curve]
    if times is not None:
        meta |= {"time": times.per_input, "batch": times.batch, "time_parts": times.parts}
    return Frame("ops", meta, columns, strings.table)


def _candidate_counts(models: Sequence[OpModels]) -> np.ndarray:
    """(ops, 3): candidates of each op, how many of them are legal, and the kernel cycles of the fastest of those."""
    of_table: dict[int, tuple[int, int, float]] = {}
    for table in {id(m): m for m in models}.values():
        rows = table.legal()
        fastest = float(table.rows["cycles"][rows].min()) if rows.size else 0.0
        of_table[id(table)] = (table.rows.size, rows.size, fastest)
    return np.array([of_table[id(m)] for m in models], dtype="<f8").reshape(-1, 3)


def _limits(placement: Placement, names: Sequence[str], kernels: Sequence[float]) -> list[tuple[float, float, str]]:
    """Of each op its kernel cycles, those with operands and output, and what takes longest; without a report the kernel
    alone."""
    known = {} if placement.report is None else placement.report.op_limiters
    return [known.get(n) or (c, c, "kernel") for n, c in zip(names, kernels, strict=True)]


def _l1(names: Sequence[str], chosen: np.ndarray, known: Mapping[str, Mapping[str, int]]) -> dict[str, np.ndarray]:
    """Bytes of L1 by kind, as they are known, else as candidates estimate them: tile headers are what is left of
    their sum."""
    kinds = list(L1_COLUMNS)
    sizes = np.array([[of.get(kind, 0) for kind in kinds] for of in (known.get(n, {}) for n in names)], dtype="<f8")
    sizes = sizes.reshape(-1, len(kinds))
    bound = np.array([n not in known for n in names], dtype=bool)
    if bound.any():
        row = chosen[bound]
        fields = ("l1_input", "l1_output", "l1_param", "l1_intermed")
        rest = row["l1_total"] - sum(row[field] for field in fields)
        estimates = {**{field: row[field] for field in fields}, "l1_headers": rest}
        sizes[bound] = np.stack([estimates.get(c, np.zeros(len(row))) for c in L1_COLUMNS.values()], axis=1)
    columns = {f"op_{column}": sizes[:, k].copy() for k, column in enumerate(L1_COLUMNS.values())}
    return {**columns, "op_l1_total": sizes.sum(axis=1), "op_l1_bound": bound.astype("u1")}


def _op_times(placement: Placement, times: BatchTime) -> dict[str, OpTime]:
    pairs = zip(placement.epochs, times.epochs, strict=True)
    return {name: op for epoch, time in pairs for name, op in zip(epoch.ops, time.ops, strict=True)}


def _times(
    names: Sequence[str], placement: Placement, times: BatchTime, timed: dict[str, OpTime], strings: Strings
) -> dict[str, np.ndarray]:
    """The columns that a simulation adds; see `ops_frame`."""
    row = {name: i for i, name in enumerate(names)}
    ops = [timed[n] for n in names]
    limits = epoch_limits(placement, times)
    columns = {
        "op_bound": strings.column(t.bound.value for t in ops),
        "op_critical": np.array([t.critical for t in ops], dtype="u1"),
        "epoch_bound": strings.column(t.bound.value for t in times.epochs),
        "epoch_limits": strings.column(limit.text for limit in limits),
        "epoch_slowest": np.array([row.get(limit.slowest, -1) for limit in limits], dtype="<i4"),
        "epoch_limiting": np.array([row.get(limit.limiting, -1) for limit in limits], dtype="<i4"),
    }
    for field in ("compute", "wait_input", "wait_space", "wait_dram", "wait_host"):
        columns[f"op_{field}"] = np.array([getattr(t, field) for t in ops], dtype="<f8") / times.batch
    for name, field in (("time", "cycles"), *((f, f) for f in ("steady", "fill", "stall", "switch"))):
        columns[f"epoch_{name}"] = np.array([getattr(t, field) for t in times.epochs], dtype="<f8") / times.batch
    return columns


def _parameter_bits(table: OpModels) -> int:
    """Bit k: operand k is a parameter."""
    operands = table.profile.operands if table.profile is not None else ()
    return sum(1 << port for port, operand in enumerate(operands[:31]) if operand.feed == "parameter")


def _out_bytes(node: Node) -> int:
    """Bytes of an op's output per input, in whole tiles."""
    *outer, rows, cols = node.shape
    tiles = math.prod(outer) * -(-rows // TILE) * -(-cols // TILE)
    return tiles * tile_bytes(node.df or DataFormat.Float16_b)


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
        "epoch_kernel_work": work,
    }


def model_time(ops: Frame) -> float:
    """Cycles per input of the whole model: simulated where the frame has that (see `ops_frame`), else those of the
    slowest kernels, which is all that a file says."""
    return float(ops.meta.get("time", ops.meta["total_cycles"]))


def epoch_time(ops: Frame) -> npt.NDArray[np.float64]:
    """The same by epoch."""
    column: npt.NDArray[np.float64] = ops.columns.get("epoch_time", ops.columns["epoch_cycles"])
    return column


def op_load(ops: Frame) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """By op: cycles per input with its data (a file knows those of the kernel only), that over the same of the slowest
    op of its epoch, and whether it is worth enlarging, which a file does not tell."""
    c = ops.columns
    cycles = c.get("op_limiter_cycles", c["op_cycles"])
    slowest = np.zeros(c["epoch_cycles"].size)
    np.maximum.at(slowest, c["op_epoch"], cycles)
    load = np.divide(cycles, slowest[c["op_epoch"]], out=np.zeros(cycles.size), where=cycles > 0)
    first = np.zeros(cycles.size, dtype=bool)
    if "epoch_limiting" in c:
        first[c["epoch_limiting"][c["epoch_limiting"] >= 0]] = True
    return cycles, load, first


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
        **({"chip_rows": [[*map(list, pair)] for pair in rows]} if (rows := device.chip_rows) else {}),
    }


TEXTS = {
    "op_name",
    "op_type",
    "op_module",
    "op_location",
    "op_df",
    "op_fidelity",
    "op_stream",
    "op_limiter",
    "op_bound",
}


def op_columns(frame: Frame, per_core: bool = False) -> dict[str, np.ndarray]:
    """All columns by name, one entry per op in schedule order. per_core: one per core instead, row by row, with its
    logical `core_row` and `core_col`."""
    columns = {
        name.removeprefix("op_"): np.array(frame.text(name)) if name in TEXTS else values
        for name, values in frame.columns.items()
        if name.startswith("op_")
    }
    if not per_core:
        return columns
    high, wide = columns["rows"].astype(np.int64), columns["cols"].astype(np.int64)
    count = high * wide
    op = np.repeat(np.arange(len(count)), count)
    within = np.arange(len(op)) - np.repeat(np.cumsum(count) - count, count)
    op_columns = {name: values[op] for name, values in columns.items()}
    op_columns["core_row"] = (columns["row"][op] + within // wide[op]).astype("<u2")
    op_columns["core_col"] = (columns["col"][op] + within % wide[op]).astype("<u2")
    return op_columns


def epoch_totals(frame: Frame) -> list[dict[str, Any]]:
    """One dict per epoch: `epoch`, `temporal`, `chip`, `ops`, `cores`, `time` per input (see `epoch_time`),
    `cycles` and `limiter_cycles` per input of its slowest op by kernel alone and with its data, `slowest` (that op with
    its data, of a file by kernel), `limits` (what limits it, "" of a file), `balance` (sum of cores x kernel cycles
    over all cores x `time`)."""
    c, names = frame.columns, frame.text("op_name")
    limits = c.get("epoch_limiter_cycles", c["epoch_cycles"])  # a file says nothing of what limits its ops
    paces = c.get("op_limiter_cycles", c["op_cycles"])
    texts = frame.text("epoch_limits") if "epoch_limits" in c else None
    times = epoch_time(frame)
    epoch_totals = []
    for epoch in range(len(c["epoch_cycles"])):
        members = np.flatnonzero(c["op_epoch"] == epoch)
        slowest = names[members[paces[members].argmax()]] if members.size else ""
        epoch_totals.append(
            {
                "epoch": epoch,
                "temporal": int(c["epoch_temporal"][epoch]),
                "chip": int(c["epoch_chip"][epoch]),
                "ops": int(members.size),
                "cores": int(c["epoch_cores"][epoch]),
                "cycles": float(c["epoch_cycles"][epoch]),
                "limiter_cycles": float(limits[epoch]),
                "slowest": slowest,
                "time": float(times[epoch]),
                "limits": "" if texts is None else texts[epoch],
                "balance": float(c["epoch_busy"][epoch]),
            }
        )
    return epoch_totals
