"""What each op of a placement costs per input, and where its operands come from."""

from __future__ import annotations

import dataclasses
import math
from typing import TYPE_CHECKING

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST, NOC, Load, limiter_name, limits, traffic
from tbuda_lab.core.balancer.parameters import load_times, preloads, preloads_encoding
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.core.lowering.edits import queued_ports

if TYPE_CHECKING:
    from tbuda_lab.core.epochsim.compiled import Compiled


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


def op_costs(result: Compiled) -> dict[str, OpCost]:
    """By op. The balancer's own bandwidth model, with the cores that use DRAM and the host link counted per epoch."""
    graph, placement = result.lowered, result.placement
    users = graph.users()
    outer = {
        queue.source: HOST if queue.location == "host" else DRAM
        for queue in placement.queues.values()
        if queue.kind in ("input", "output", "parameter", "constant")
    }
    moves = {name: _moves(result, outer, users[name], name) for name in placement.ops}
    costs: dict[str, OpCost] = {}
    for epoch in placement.epochs:
        columns = {}
        loads: list[tuple[str, int, int]] = []  # op, bytes that each core fetches once, cores that fetch
        dram = host = 0
        for name in epoch.ops:
            table, at = placement.models[name], placement.ops[name].row
            profile, rows = table.profile, table.rows[at : at + 1]
            assert profile is not None
            where, output = moves[name]
            move = traffic(profile, rows, result.device)
            loaded = [bool(preloads(profile, port, rows)[0]) for port in range(len(where))]
            cores = [int(c[0]) for c in move.operand_cores]
            dram += sum(c for c, place, once in zip(cores, where, loaded, strict=True) if place == DRAM and not once)
            host += sum(c for c, place in zip(cores, where, strict=True) if place == HOST)
            dram += int(move.output_cores[0]) if output == DRAM else 0
            host += int(move.output_cores[0]) if output == HOST else 0
            columns[name] = (profile, rows, move, loaded)
            loads += [(name, int(b[0]), c) for b, c, o in zip(move.operand_bytes, cores, loaded, strict=True) if o]
            if move.picker_bytes is not None and preloads_encoding(rows)[0]:
                loads.append((name, int(move.picker_bytes[0]), int(rows["grid_r"][0])))
        load = Load(dram, host)
        ready = dict.fromkeys(epoch.ops, 0)
        ends = load_times([size for _, size, _ in loads], [count for _, _, count in loads], result.device)
        for (name, _, _), end in zip(loads, ends.tolist(), strict=True):
            ready[name] = max(ready[name], math.ceil(end))
        for name, (profile, rows, move, loaded) in columns.items():
            where, output = moves[name]
            column = limits(profile, rows, result.device, where, output, load, 1, move)[:, 0]
            once = np.zeros(len(column), dtype=bool)
            once[1 : 1 + len(where)] = loaded
            once[-1] = move.picker_bytes is not None and bool(preloads_encoding(rows)[0])
            running = np.where(once, 0, column)
            slowest = int(running.argmax())
            costs[name] = OpCost(
                int(column[0]),
                math.ceil(running[slowest]),
                limiter_name(slowest, where, output),
                ready[name],
                where,
                output,
            )
    return costs


def _moves(
    result: Compiled, outer: dict[str, str], users: list[tuple[str, int]], name: str
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
