"""What the simulator reads of a compile: what each op of a placement costs per input, and where its operands
come from."""

from __future__ import annotations

import csv
import dataclasses
import io
import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

import numpy as np

from tbuda_lab.core.balancer.bandwidth import (
    DRAM,
    HOST,
    NOC,
    EpochLoad,
    Traffic,
    dram_divider,
    limiter_name,
    limits,
    traffic,
)
from tbuda_lab.core.balancer.l1 import load_times, preloads, preloads_encoding
from tbuda_lab.core.balancer.types import Placement, graph_name
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.files import atomic_text
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.lowering.edits import queued_ports
from tbuda_lab.core.lowering.hwops import HwSparseMatmul
from tbuda_lab.core.overrides import Override

if TYPE_CHECKING:
    from tbuda_lab.core.balancer.profile import OpProfile
    from tbuda_lab.core.balancer.types import OpModels

class PlacedGraph(Protocol):
    """A lowered graph and its placement on a device."""

    @property
    def lowered(self) -> Graph: ...
    @property
    def placement(self) -> Placement: ...
    @property
    def device(self) -> DeviceSpec: ...


class SimulatedCompile(PlacedGraph, Protocol):
    """overrides: those asked for, of which input buffer multipliers count. loaded_once: the epochs were loaded before
    and stay, so that a batch takes no time to switch to them."""

    @property
    def overrides(self) -> tuple[Override, ...]: ...
    @property
    def loaded_once(self) -> bool: ...


@dataclasses.dataclass(frozen=True)
class OpCost:
    """Cycles per input of one op. limiter: what the slowest of kernel, operands and output is ("kernel",
    "input 1 dram", ...); preload: cycles from the start of an epoch until its parameters are in L1, not part of
    `cycles`. All ops of an epoch load at once and share DRAM (`load_times`).

    where: over what each operand moves, "noc", "dram" or "host"; output: the same, "" if nobody reads it.
    """

    kernel: int
    cycles: int
    limiter: str
    preload: int
    where: tuple[str, ...]
    output: str


@dataclasses.dataclass(frozen=True)
class RowMoves:
    """What one candidate moves. rows: (1,) the candidate; loaded: of each operand, whether it is fetched once; cores:
    that read each; once: (3 + operands,) which entries of `limits` are fetched once; speeds: what `speed` found."""

    profile: OpProfile
    rows: np.ndarray
    move: Traffic
    loaded: tuple[bool, ...]
    cores: tuple[int, ...]
    once: np.ndarray
    speeds: dict[tuple[object, ...], tuple[int, int, str]] = dataclasses.field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, table: OpModels, at: int, device: DeviceSpec) -> RowMoves:
        """Of the row `at` of an op's table."""
        profile, rows = table.profile, table.rows[at : at + 1]
        assert profile is not None
        move = traffic(profile, rows, device)
        ports = range(len(move.operand_cores))
        loaded = tuple(bool(preloads(profile, port, rows)[0]) for port in ports)
        encoding = move.picker_bytes is not None and bool(preloads_encoding(rows)[0])
        once = np.array([False, *loaded, False, encoding])
        return cls(profile, rows, move, loaded, tuple(int(c[0]) for c in move.operand_cores), once)

    def speed(self, device: DeviceSpec, where: tuple[str, ...], output: str, load: EpochLoad) -> tuple[int, int, str]:
        """(kernel cycles, cycles, limiter) as `OpCost` has them, once for each load that tells a difference."""
        key = where, output, dram_divider(device, load.dram_cores), load.host_cores
        entry = self.speeds.get(key)
        if entry is None:
            column = limits(self.profile, self.rows, device, where, output, load, 1, self.move)[:, 0]
            running = np.where(self.once, 0, column)
            slowest = int(running.argmax())
            entry = int(column[0]), math.ceil(running[slowest]), limiter_name(slowest, where, output)
            self.speeds[key] = entry
        return entry


def op_costs(
    result: SimulatedCompile,
    moves_by_row: dict[tuple[str, int], RowMoves] | None = None,
    users: Mapping[str, list[tuple[str, int]]] | None = None,
) -> dict[str, OpCost]:
    """By op. The balancer's own bandwidth model, with the cores that use DRAM and the host link counted per epoch.
    moves_by_row: what candidates move on this device, by table and row; those that are missing are added. users: those
    of the lowered graph, where they are known."""
    moves_by_row = {} if moves_by_row is None else moves_by_row
    graph, placement = result.lowered, result.placement
    users = graph.users() if users is None else users
    outer = {
        queue.source: HOST if queue.location == "host" else DRAM
        for queue in placement.queues.values()
        if queue.kind in ("input", "output", "parameter", "constant")
    }
    moves = {name: _moves(result, outer, users[name], name) for epoch in placement.epochs for name in epoch.ops}
    costs: dict[str, OpCost] = {}
    for epoch in placement.epochs:
        columns: dict[str, RowMoves] = {}
        loads: list[tuple[str, int, int]] = []  # op, bytes that each core fetches once, cores that fetch
        dram = host = 0
        for name in epoch.ops:
            table, at = placement.models[name], placement.ops[name].row
            row = moves_by_row.get((table.signature, at))
            if row is None:
                row = moves_by_row[table.signature, at] = RowMoves.of(table, at, result.device)
            where, output = moves[name]
            move, loaded, cores = row.move, row.loaded, row.cores
            dram += sum(c for c, place, once in zip(cores, where, loaded, strict=True) if place == DRAM and not once)
            host += sum(c for c, place in zip(cores, where, strict=True) if place == HOST)
            dram += int(move.output_cores[0]) if output == DRAM else 0
            host += int(move.output_cores[0]) if output == HOST else 0
            columns[name] = row
            loads += [(name, int(b[0]), c) for b, c, o in zip(move.operand_bytes, cores, loaded, strict=True) if o]
            if move.picker_bytes is not None:
                readers = int(row.rows["grid_r"][0])
                if row.once[-1]:
                    loads.append((name, int(move.picker_bytes[0]), readers))
                else:
                    dram += readers
        load = EpochLoad(dram, host)
        ready = dict.fromkeys(epoch.ops, 0)
        ends = load_times([size for _, size, _ in loads], [count for _, _, count in loads], result.device)
        for (name, _, _), end in zip(loads, ends.tolist(), strict=True):
            ready[name] = max(ready[name], math.ceil(end))
        for name, row in columns.items():
            where, output = moves[name]
            costs[name] = OpCost(*row.speed(result.device, where, output, load), ready[name], where, output)
    return costs


def _moves(
    result: SimulatedCompile, outer: dict[str, str], users: list[tuple[str, int]], name: str
) -> tuple[tuple[str, ...], str]:
    """Over what each operand and the output move; `outer`: where the queues of the graph's leaves and outputs lie."""
    graph, placement = result.lowered, result.placement
    epoch = placement.ops[name].epoch

    def between(other: str, reader: str, port: int) -> str:
        queued = placement.ops[other].epoch != epoch or port in queued_ports(graph[reader])
        return DRAM if queued else NOC

    where = tuple(
        between(s, name, port) if s in placement.ops else outer.get(s, DRAM)
        for port, s in enumerate(graph[name].sources)
    )
    output = ""
    for user, port in users:
        if user in placement.ops:
            place = between(user, user, port)
        else:
            place = outer.get(user, DRAM) if graph[user].kind is NodeKind.OUTPUT else ""
        output = max(output, place, key=("", NOC, HOST, DRAM).index)
    return where, output


COLUMNS = ("op", "graph", "kernel_cycles", "limiter_cycles", "limiter")


def write_cycles_csv(result: SimulatedCompile, path: str | Path) -> None:
    """One line per op in the netlist's order: cycles per input of the kernel, of whatever limits the op (the slowest of
    kernel, operands and output at the compile's microbatch), and what that is: "kernel", "input 1 dram",
    "output noc", ... with inputs counted as the netlist lists them. Raises `OutputError`."""
    with atomic_text(path) as stream:
        stream.write(cycles_csv(result))


def cycles_csv(result: SimulatedCompile) -> str:
    """The text of that file."""
    report = result.placement.report
    limiters = report.op_limiters if report is not None else {}
    costs = {} if report is not None else op_costs(result)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for epoch in result.placement.epochs:
        graph = graph_name(epoch)
        for name in epoch.ops:
            if name in limiters:
                kernel, limiter, what = limiters[name]
            else:
                kernel, limiter, what = costs[name].kernel, costs[name].cycles, costs[name].limiter
            writer.writerow((name, graph, kernel, limiter, _in_netlist(result.lowered[name], what)))
    return stream.getvalue()


def _in_netlist(node: Node, limiter: str) -> str:
    """A limiter whose input has its place in the netlist: there the tiles of a picker stand before its operand."""
    return limiter.replace("input 0", "input 1") if isinstance(node.op, HwSparseMatmul) else limiter


def cycles_path(netlist: str | Path) -> Path:
    """Where the cycles of a netlist stand: beside it, `NAME.yaml` -> `NAME.cycles.csv`."""
    return Path(netlist).with_suffix(".cycles.csv")
