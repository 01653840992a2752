"""What the simulator reads of a compile: what each op of a placement costs per input, and where its operands
come from."""

from __future__ import annotations

import dataclasses
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
from tbuda_lab.core.files import atomic_text, csv_text
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.lowering.edits import queued_ports
from tbuda_lab.core.lowering.hw_ops import HwSparseMatmul

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
    """input_factors: by op and operand, how often the smallest input buffer is to fit into the one there is (what is
    not there, twice). loaded_once: the epochs were loaded before
    and stay, so that a batch takes no time to switch to them."""

    @property
    def input_factors(self) -> Mapping[str, Mapping[int, int]]: ...
    @property
    def loaded_once(self) -> bool: ...


@dataclasses.dataclass(frozen=True)
class OpCost:
    """Cycles per input of one op. limiter: what the slowest of kernel, operands and output is ("kernel",
    "input 1 dram", ...); preload: cycles from the start of an epoch until its parameters are in L1, not part of
    `cycles`. All ops of an epoch load at once and share DRAM, also with what is streamed (`load_times`).

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
    """What one candidate moves. rows: (1,) the candidate; cores: of each operand, that read it; streaming_cores: of
    each, that do for every input, if it lies in DRAM; output_cores: that write; picker_cores: that read a picker's
    tiles for every input; fetches: (bytes of each core, cores) of what is fetched once, operands and a picker's tiles;
    once: (3 + operands,) which entries of `limits` that is. costs: what `cost` gave."""

    profile: OpProfile
    rows: np.ndarray
    move: Traffic
    cores: tuple[int, ...]
    streaming_cores: tuple[int, ...]
    output_cores: int
    picker_cores: int
    fetches: tuple[tuple[int, int], ...]
    once: np.ndarray
    costs: dict[tuple[object, ...], OpCost] = dataclasses.field(default_factory=dict, repr=False)

    @classmethod
    def of(cls, table: OpModels, at: int, device: DeviceSpec) -> RowMoves:
        """Of the row `at` of an op's table."""
        profile, rows = table.profile, table.rows[at : at + 1]
        assert profile is not None
        move = traffic(profile, rows, device)
        cores = tuple(int(c[0]) for c in move.operand_cores)
        loaded = tuple(bool(preloads(profile, port, rows)[0]) for port in range(len(cores)))
        streamed = tuple(0 if once else count for count, once in zip(cores, loaded, strict=True))
        fetched = [(int(b[0]), c) for b, c, once in zip(move.operand_bytes, cores, loaded, strict=True) if once]
        encoding, picker_cores = False, 0
        if move.picker_bytes is not None:
            encoding, picker_cores = bool(preloads_encoding(rows)[0]), int(rows["grid_r"][0])
            if encoding:
                fetched.append((int(move.picker_bytes[0]), picker_cores))
                picker_cores = 0
        once = np.array([False, *loaded, False, encoding])
        output_cores = int(move.output_cores[0])
        return cls(profile, rows, move, cores, streamed, output_cores, picker_cores, tuple(fetched), once)

    def load(self, where: tuple[str, ...], output: str) -> tuple[int, int]:
        """Cores that use DRAM, and the host link, for every input."""
        dram = host = 0
        for place, streamed, cores in zip(where, self.streaming_cores, self.cores, strict=True):
            if place == DRAM:
                dram += streamed
            elif place == HOST:
                host += cores
        if output == DRAM:
            dram += self.output_cores
        elif output == HOST:
            host += self.output_cores
        return dram + self.picker_cores, host

    def streams(self, where: tuple[str, ...]) -> list[tuple[int, int]]:
        """(bytes of each core, cores) of what is read from DRAM for every input."""
        streams = [
            (int(size[0]), cores)
            for place, size, cores in zip(where, self.move.operand_bytes, self.streaming_cores, strict=True)
            if place == DRAM and cores
        ]
        if self.picker_cores and self.move.picker_bytes is not None:
            streams.append((int(self.move.picker_bytes[0]), self.picker_cores))
        return streams

    def cost(
        self, device: DeviceSpec, where: tuple[str, ...], output: str, load: EpochLoad, divider: int, preload: int
    ) -> OpCost:
        """The op's cost in an epoch of this load, whose cores divide the bandwidth of DRAM (`dram_divider`)."""
        key = where, output, divider, load.host_cores, preload
        entry = self.costs.get(key)
        if entry is None:
            column = limits(self.profile, self.rows, device, where, output, load, 1, self.move)[:, 0]
            running = np.where(self.once, 0, column)
            slowest = int(running.argmax())
            limiter = limiter_name(slowest, where, output)
            entry = OpCost(int(column[0]), math.ceil(running[slowest]), limiter, preload, where, output)
            self.costs[key] = entry
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
    graph, placement, device = result.lowered, result.placement, result.device
    users = graph.users() if users is None else users
    outer = {
        queue.source: HOST if queue.location == "host" else DRAM
        for queue in placement.queues.values()
        if queue.kind in ("input", "output", "parameter", "constant")
    }
    costs: dict[str, OpCost] = {}
    for epoch in placement.epochs:
        moves: list[tuple[str, RowMoves, tuple[str, ...], str]] = []
        dram = host = 0
        for name in epoch.ops:
            table, at = placement.models[name], placement.ops[name].row
            row = moves_by_row.get((table.signature, at))
            if row is None:
                row = moves_by_row[table.signature, at] = RowMoves.of(table, at, device)
            where, output = _moves(result, outer, users[name], name)
            op_dram, op_host = row.load(where, output)
            dram, host = dram + op_dram, host + op_host
            moves.append((name, row, where, output))
        streams = [stream for _, row, where, _ in moves for stream in row.streams(where)]
        ready = _ready([(name, row.fetches) for name, row, _, _ in moves if row.fetches], streams, device)
        load, divider = EpochLoad(dram, host), dram_divider(device, dram)
        for name, row, where, output in moves:
            costs[name] = row.cost(device, where, output, load, divider, ready.get(name, 0))
    return costs


def _ready(
    loads: list[tuple[str, tuple[tuple[int, int], ...]]], streams: list[tuple[int, int]], device: DeviceSpec
) -> dict[str, int]:
    """When what each op of an epoch fetches once is there, in cycles; loads: see `RowMoves.fetches`; streams: of all
    ops, see `RowMoves.streams`."""
    each = [(name, size, cores) for name, fetched in loads for size, cores in fetched]
    ends = load_times([size for _, size, _ in each], [cores for _, _, cores in each], device, streams)
    ready: dict[str, int] = {}
    for (name, _, _), end in zip(each, ends.tolist(), strict=True):
        ready[name] = max(ready.get(name, 0), math.ceil(end))
    return ready


_FARTHEST = ("", NOC, HOST, DRAM)


def _moves(
    result: SimulatedCompile, outer: dict[str, str], users: list[tuple[str, int]], name: str
) -> tuple[tuple[str, ...], str]:
    """Over what each operand and the output move; `outer`: where the queues of the graph's leaves and outputs lie."""
    graph, placed = result.lowered, result.placement.ops
    node, epoch = graph[name], placed[name].epoch
    queued = queued_ports(node)
    where = []
    for port, source in enumerate(node.sources):
        other = placed.get(source)
        if other is None:
            where.append(outer.get(source, DRAM))
        else:
            where.append(DRAM if other.epoch != epoch or port in queued else NOC)
    output = ""
    for user, port in users:
        other = placed.get(user)
        if other is not None:
            place = DRAM if other.epoch != epoch or port in queued_ports(graph[user]) else NOC
        else:
            place = outer.get(user, DRAM) if graph[user].kind is NodeKind.OUTPUT else ""
        if _FARTHEST.index(place) > _FARTHEST.index(output):
            output = place
    return tuple(where), output


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
    rows: list[tuple[str | int, ...]] = [COLUMNS]
    for epoch in result.placement.epochs:
        graph = graph_name(epoch)
        for name in epoch.ops:
            if name in limiters:
                kernel, limiter, what = limiters[name]
            else:
                kernel, limiter, what = costs[name].kernel, costs[name].cycles, costs[name].limiter
            rows.append((name, graph, kernel, limiter, _in_netlist(result.lowered[name], what)))
    return csv_text(rows)


def _in_netlist(node: Node, limiter: str) -> str:
    """A limiter whose input has its place in the netlist: there the tiles of a picker stand before its operand."""
    return limiter.replace("input 0", "input 1") if isinstance(node.op, HwSparseMatmul) else limiter


def cycles_path(netlist: str | Path) -> Path:
    """Where the cycles of a netlist stand: beside it, `NAME.yaml` -> `NAME.cycles.csv`."""
    return Path(netlist).with_suffix(".cycles.csv")
