"""Measured times beside predicted ones, by placed op."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.graph import Node
from tbuda_lab.core.measured.kernels import Estimate, KernelTable, Machine, bounds_of, features, profile_machine
from tbuda_lab.core.measured.match import Match, traced_name
from tbuda_lab.core.measured.model_ops import model_estimates
from tbuda_lab.core.measured.profile import MeasuredOp


@dataclasses.dataclass(frozen=True)
class OverlaidOp:
    """A placed op. All times in ns. measured: of the profile's ops that it stands for, None where none is
    matched or one of them has no time; ttnn: what the table of kernels says of those, run one by one, and
    `extrapolated`, "" or why; pipelined: what it takes of its epoch here, as Buda runs it (never to be compared with
    the two as if they were one machine). bounds: "compute", "dram" and "noc" of the ops that were measured; names: of
    those in the profile."""

    op: str
    measured: float | None
    ttnn: float | None
    pipelined: float
    bounds: Mapping[str, float]
    names: tuple[str, ...]
    extrapolated: str = ""

    @property
    def ratio(self) -> float | None:
        """Measured over what the table says."""
        return self.measured / self.ttnn if self.measured is not None and self.ttnn else None

    @property
    def lost(self) -> float:
        """Measured time beyond the roofline."""
        return max(0.0, (self.measured or 0.0) - max(self.bounds.values(), default=0.0))


@dataclasses.dataclass(frozen=True)
class MeasuredOverlay:
    """A profile laid over a compile: one row for each placed op, in schedule order. machine: the profile's chip;
    modules: by op of the traced graph the path of its module."""

    match: Match
    ops: tuple[OverlaidOp, ...]
    kernels: KernelTable
    machine: Machine
    modules: Mapping[str, str] = dataclasses.field(default_factory=dict)

    def __getitem__(self, op: str) -> OverlaidOp:
        for row in self.ops:
            if row.op == op:
                return row
        raise KeyError(f"{op!r} is no placed op")

    def __str__(self) -> str:
        have = [op for op in self.ops if op.measured is not None]
        return f"{self.match}; {len(have)} of {len(self.ops)} placed ops have a measured time"


def overlay(match: Match, result: CompileResult, kernels: KernelTable) -> MeasuredOverlay:
    """Lay matched times over the ops of a placement. Where an op of the model became several, its time is shared by
    their cycles; where several became one, theirs are added."""
    machine = profile_machine(match.profile)
    times = match.times()
    cores = max((op.available or op.cores for op in match.profile.ops), default=0) or result.device.cores
    guesses = model_estimates(result.graph, kernels, machine, cores)
    parts = _parts(result)
    cycles = {name: _cycles(result, name) for name in result.placement.ops}
    whole: dict[str, float] = {}
    for name, sources in parts.items():
        for source in sources:
            whole[source] = whole.get(source, 0.0) + cycles[name]
    ran: dict[str, list[MeasuredOp]] = {}
    for pair in match.pairs:
        ran.setdefault(pair.op, []).append(pair.measured)
    rows = [
        _row(
            name,
            sources,
            {s: cycles[name] / whole[s] if whole[s] else 1.0 for s in sources},
            times,
            ran,
            kernels,
            machine,
            guesses,
            cycles[name] / result.device.clock_hz * 1e9,
        )
        for name, sources in ((n, parts[n]) for n in result.placement.schedule if n in parts)
    ]
    modules = {node.name: node.origin.module for node in result.graph if node.op is not None}
    return MeasuredOverlay(match, tuple(rows), kernels, machine, modules)


def _row(
    name: str,
    sources: tuple[str, ...],
    share: Mapping[str, float],
    times: Mapping[str, float],
    ran: Mapping[str, list[MeasuredOp]],
    kernels: KernelTable,
    machine: Machine,
    guesses: Mapping[str, Estimate],
    pipelined: float,
) -> OverlaidOp:
    have = [s for s in sources if s in ran]
    measured = sum(times[s] * share[s] for s in have) if have and all(s in times for s in have) else None
    bounds: dict[str, float] = {}
    ttnn, why = 0.0, ""
    for source in sources:
        op = ran[source][0] if source in ran else None
        if op is not None and not op.unread:
            work = features(op, machine)
            guess = kernels.estimate(op, machine, work)
            for key, value in bounds_of(op, machine, work).items():
                bounds[key] = bounds.get(key, 0.0) + value * share[source]
        elif source in guesses and (op is not None or not have):
            guess = guesses[source]
        else:
            continue
        ttnn += guess.time * share[source]
        why = why or guess.extrapolated
    names = tuple(dict.fromkeys(op.name for s in have for op in ran[s]))
    return OverlaidOp(name, measured, ttnn or None, pipelined, bounds, names, why)


def _cycles(result: CompileResult, name: str) -> float:
    report = result.placement.report
    if report is not None and name in report.op_limiters:
        return float(report.op_limiters[name][1])
    return float(result.placement.candidate(name)["cycles"])


def _parts(result: CompileResult) -> dict[str, tuple[str, ...]]:
    """By placed op the ops of the traced graph that it does, or takes part in. What became part of another op, an
    activation behind a product or a move on an edge, counts to where its operand comes from."""
    traced = result.graph
    parts: dict[str, list[str]] = {}
    owner: dict[str, str] = {}
    for name in result.placement.ops:
        node = result.lowered[name]
        names = node.attrs.get("fused") or (_source(node),)
        parts[name] = list(dict.fromkeys(t for n in names if (t := traced_name(traced, str(n))) is not None))
        owner.update((t, name) for t in parts[name])
    for node in traced.topological():
        if node.op is None or node.name in owner:
            continue
        home = next((owner[s] for s in node.sources if s in owner), None)
        if home is not None:
            owner[node.name] = home
            parts[home].append(node.name)
    return {name: tuple(names) for name, names in parts.items()}


def _source(node: Node) -> str:
    return str(node.attrs.get("source", node.name))
