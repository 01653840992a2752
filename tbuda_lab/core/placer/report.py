"""What a placement costs and how far it is from what no placement can beat (place-and-route 11.3)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, limiter_name, limits
from tbuda_lab.core.balancer.parameters import preloads
from tbuda_lab.core.balancer.types import Bounds, EpochReport, PlacementReport
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import NodeKind
from tbuda_lab.core.lowering.hwops import tile_shape
from tbuda_lab.core.placer.problem import Problem
from tbuda_lab.core.placer.segment import Segment, measure


def report(problem: Problem, segments: Sequence[Segment], policy: str, blocked: Sequence[str]) -> PlacementReport:
    """Cycles of every epoch and op, and the lower bounds. `blocked[i]`: why epoch i ends where it does."""
    epochs: list[EpochReport] = []
    ops: dict[str, tuple[int, int, str]] = {}
    for index, segment in enumerate(segments):
        rows = dict(zip(range(segment.first, segment.last), segment.rows, strict=True))
        kernel, limiter, load = measure(problem, segment.first, segment.last, rows)
        work = cores = 0
        worst_kernel = worst_limiter = segment.first
        for op, row in rows.items():
            where, output = problem.places(op, segment.first, segment.last)
            table = problem.tables[op].rows[row : row + 1]
            column = limits(
                problem.profiles[op], table, problem.device, where, output, load, problem.options.microbatch
            )[:, 0]
            slowest = int(column.argmax())
            ops[problem.order[op]] = (
                int(column[0]),
                int(np.ceil(column[slowest])),
                limiter_name(slowest, where, output),
            )
            work += int(column[0]) * int(table["cores"][0])
            cores += int(table["cores"][0])
            if int(column[0]) > ops[problem.order[worst_kernel]][0]:
                worst_kernel = op
            if ops[problem.order[op]][1] > ops[problem.order[worst_limiter]][1]:
                worst_limiter = op
        epochs.append(
            EpochReport(
                index,
                len(rows),
                cores,
                kernel,
                limiter,
                problem.order[worst_kernel],
                problem.order[worst_limiter],
                ops[problem.order[worst_limiter]][2],
                load.dram_cores,
                work / max(1, limiter * problem.cores),
                blocked[index],
            )
        )
    return PlacementReport(policy, tuple(epochs), bounds(problem, epochs), ops)


def bounds(problem: Problem, epochs: Sequence[EpochReport]) -> Bounds:
    """Lower bounds over all legal candidates; none of them knows about packing, edges or epochs."""
    area = critical = theoretical = 0.0
    for op, table in enumerate(problem.tables):
        rows = table.rows[problem.legal[table.signature]]
        profile = problem.profiles[op]
        area += float((rows["cycles"] * rows["cores"]).min())
        critical = max(critical, float(rows["cycles"].min()))
        if profile.kind == "matmul":
            z, rt, ct = profile.out
            per_tile = 32 if problem.device.arch == "grayskull" else 16
            theoretical += z * profile.z_group * rt * ct * profile.inner * profile.fidelity.value * per_tile
    traffic = _must_cross_dram(problem)
    total = problem.device.dram_bytes_per_cycle * problem.device.dram_channels * problem.device.dram_subchannels / 1.5
    return Bounds(
        int(area / problem.cores),
        int(theoretical / problem.cores),
        int(traffic / total),
        int(critical),
        sum(e.kernel_cycles for e in epochs),
        sum(e.limiter_cycles for e in epochs),
    )


def _must_cross_dram(problem: Problem) -> int:
    """Bytes per input that every placement moves through DRAM: inputs that lie there, and parameters that no reader has
    a legal candidate to preload (a preload is not shared with other traffic, see `limits`)."""
    users = problem.graph.users()
    total = 0
    for node in problem.graph:
        if node.kind not in (NodeKind.INPUT, NodeKind.PARAMETER, NodeKind.CONSTANT):
            continue
        readers = [(problem.number[u], p) for u, p in users[node.name] if u in problem.number]
        if node.kind is NodeKind.INPUT:
            streamed = any(problem.facts[op].queue_place[port] == DRAM for op, port in readers)
        else:
            streamed = bool(readers) and not any(
                preloads(
                    problem.profiles[op], port, problem.tables[op].rows[problem.legal[problem.tables[op].signature]]
                ).any()
                for op, port in readers
            )
        if streamed:
            z, rt, ct = tile_shape(node.shape)
            df = node.df or problem.options.data_format
            total += z * rt * ct * tile_bytes(df, align=problem.device.tile_align)
    return total


def blocked_reasons(problem: Problem, segments: Sequence[Segment], refusals: dict[tuple[int, int], str]) -> list[str]:
    """For each epoch, why the next op did not join it."""
    texts: list[str] = []
    for segment in segments:
        if segment.last == len(problem.order):
            texts.append("")
            continue
        name = problem.order[segment.last]
        if name in problem.breaks:
            texts.append(f"epoch break before {name}")
            continue
        said = refusals.get((segment.first, segment.last + 1))
        texts.append(said or f"with {name} the epoch would cost more than a new one")
    return texts
