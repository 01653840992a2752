"""Where the time of a model goes, by op and module, what bounds each and which edit would help; and the numbers behind
the plots: costs of epochs and ops, bounds, how edits changed the cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tbuda_lab.core.analysis.memory import dram_map
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.epochsim import BatchTime, EpochTime, epoch_limits
from tbuda_lab.core.epochsim.batch_time import attribute_to_ops
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.frames.graph_frame import node_type
from tbuda_lab.core.session.commands import Constrain
from tbuda_lab.core.session.suggest import Suggestion
from tbuda_lab.core.session.whatif import time_of

if TYPE_CHECKING:
    from tbuda_lab.core.balancer.types import Epoch
    from tbuda_lab.core.session.compiles import Compiles
    from tbuda_lab.core.session.history import History

BOUNDS = {
    "area": "area: cheapest cores × cycles",
    "theoretical_matmul": "matmul arithmetic",
    "dram": "DRAM traffic",
    "critical_op": "fastest candidate of the slowest op",
    "no_packing": "best epochs, placement ignored",
}
"""What each bound of a placement's report says."""

SIMULATED = "reached: simulated, batch of {batch}"
"""The row of what the model takes."""


@dataclasses.dataclass(frozen=True)
class EpochBar:
    """Cycles per input of an epoch, simulated for the batch of the session: `steady`, `fill`, `stall` and `switch` (see
    `epochsim.EpochTime`); `kernel`: of its slowest kernel alone. `cores`: share of the chip's cores with an op;
    `busy`: share of its core cycles in which kernels work; `bound`: what takes the largest part of it; `limits`: what
    limits it, in a sentence (`epochsim.EpochLimit`)."""

    index: int
    chip: int
    kernel: int
    steady: float
    fill: float
    stall: float
    switch: float
    cores: float
    busy: float
    bound: str
    limits: str

    @property
    def time(self) -> float:
        """Cycles per input of the epoch."""
        return self.steady + self.fill + self.stall + self.switch


@dataclasses.dataclass(frozen=True)
class OpBar:
    """An op on the roofline: kernel cycles per DRAM byte of one channel's share, and kernel over limiter cycles (1: the
    maths decides). dram: bytes per input that it reads from and writes to DRAM; it is inf cycles per byte without."""

    op: str
    epoch: int
    kernel: int
    limiter: int
    dram: float
    limited_by: str

    @property
    def intensity(self) -> float:
        """Kernel cycles per byte of DRAM traffic."""
        return self.kernel / self.dram if self.dram else float("inf")

    @property
    def achieved(self) -> float:
        return self.kernel / max(1, self.limiter)


@dataclasses.dataclass(frozen=True)
class StepCost:
    """A state of the session's history: cycles per input of the whole model, simulated for its batch (`time`) and of
    the slowest kernels alone. `label`: the edit that led to it."""

    label: str
    time: float
    kernel: int
    epochs: int


def epoch_costs(result: CompileResult, times: BatchTime) -> list[EpochBar]:
    """One row per epoch, in order. times: the batch, simulated. Empty for a placement without a report."""
    placement, report = result.placement, result.placement.report
    if report is None:
        return []
    rows = []
    limits = epoch_limits(placement, times)
    for e, epoch, time, limit in zip(report.epochs, placement.epochs, times.epochs, limits, strict=True):
        work = sum(float(c["cycles"]) * float(c["cores"]) for c in map(placement.candidate, epoch.ops))
        rows.append(
            EpochBar(
                e.index,
                epoch.chip,
                e.kernel_cycles,
                time.steady / times.batch,
                time.fill / times.batch,
                time.stall / times.batch,
                time.switch / times.batch,
                e.cores / result.device.cores,
                work * times.batch / (max(1, time.cycles) * result.device.cores),
                time.bound.value,
                limit.text,
            )
        )
    return rows


def op_costs(result: CompileResult) -> list[OpBar]:
    """One row per op, in schedule order. Empty for a placement without a report."""
    placement, report = result.placement, result.placement.report
    if report is None:
        return []
    traffic: dict[str, float] = {}
    for use in dram_map(result).queues.values():
        if use.queue.location != "dram":
            continue
        for epoch, size in use.reads.items():
            # readers in one epoch share what is read there
            readers = [r for r in use.readers if placement.ops[r].epoch == epoch]
            for reader in readers:
                traffic[reader] = traffic.get(reader, 0.0) + size / len(readers)
        if use.writer:
            traffic[use.writer] = traffic.get(use.writer, 0.0) + sum(use.writes.values())
    return [
        OpBar(
            name,
            placement.ops[name].epoch,
            *report.op_limiters[name][:2],
            traffic.get(name, 0.0),
            report.op_limiters[name][2],
        )
        for name in placement.schedule
        if name in report.op_limiters
    ]


def bound_costs(result: CompileResult, times: BatchTime) -> list[tuple[str, int]]:
    """(what it is, cycles per input): every lower bound, then what the slowest kernels alone, the slowest kernels or
    transfers, and the simulated batch (`times`) take."""
    report = result.placement.report
    if report is None:
        return []
    rows = [(text, int(getattr(report.bounds, name))) for name, text in BOUNDS.items()]
    return [
        *rows,
        ("reached: slowest kernels alone", report.bounds.achieved_kernel),
        ("reached: slowest kernels or transfers", report.bounds.achieved_limiter),
        (SIMULATED.format(batch=times.batch), round(times.per_input)),
    ]


def history_costs(compiles: Compiles, history: History) -> list[StepCost]:
    """The cost of every state from the first to the current one. States that could not be placed are left out."""
    states = [("start", history.first)] + [(step.label, step.after) for step in history.done]
    rows = []
    for label, state in states:
        try:
            placed = compiles.placed(state)
        except TbudaError:
            continue
        kernels = placed.kernel_cycles
        rows.append(StepCost(label, time_of(placed).per_input, placed.per_input(kernels), len(kernels)))
    return rows


@dataclasses.dataclass(frozen=True)
class ProfiledOp:
    """An op's part of the time of the model. Cycles per input.

    time: what the model takes because of this op (see `Profile`); share: of all of it. cycles: of the op itself, its
    kernel or its slowest transfer; kernel: its kernel alone. work: core cycles of its kernel over all core cycles of
    the model. bound: what bounds it (see `epochsim.Bound`). dram: bytes per input to and from DRAM.
    edit: the edit about this op that gains most, None where none is known to gain.
    """

    op: str
    type: str
    module: str
    epoch: int
    time: float
    share: float
    cycles: float
    kernel: float
    work: float
    bound: str
    dram: float
    edit: Suggestion | None = None

    @property
    def intensity(self) -> float:
        """Kernel cycles per byte of DRAM traffic; infinite without traffic."""
        return self.kernel / self.dram if self.dram else float("inf")

    @property
    def achieved(self) -> float:
        """Kernel cycles over the cycles of the op: 1 where its arithmetic decides."""
        return self.kernel / self.cycles if self.cycles else 0.0

    @property
    def gain(self) -> float:
        """Cycles per input that `edit` saves in the batch of the session."""
        return 0.0 if self.edit is None or self.edit.batch is not None else self.edit.gain


@dataclasses.dataclass(frozen=True)
class ModuleProfile:
    """The ops of a module together. bound: of the op with most of its time."""

    module: str
    ops: int
    time: float
    share: float
    work: float
    bound: str


@dataclasses.dataclass(frozen=True)
class Profile:
    """The simulated time of a batch (`Session.time`), shared out among ops: `total` = sum of their `time` + `switch`.

    Ops of an epoch work at the same time, so an op has the time that it decides: the slowest op of an epoch the steady
    part; those on the critical chain the filling, by their cycles; those that wait for space the stalls, by how long
    they wait. Switches of epochs belong to no op. Of epochs that run side by side on chips the slowest counts.

    ops: what to do next first: by the gain of the edit, then by time.
    """

    total: float
    batch: int
    switch: float
    ops: tuple[ProfiledOp, ...]

    def modules(self, depth: int | None = None) -> tuple[ModuleProfile, ...]:
        """The same by module, most time first. depth: of how many parts of a module's path, None for all."""
        groups: dict[str, list[ProfiledOp]] = {}
        for op in self.ops:
            path = op.module.split(".")
            groups.setdefault(".".join(path if depth is None else path[:depth]), []).append(op)
        rows = [
            ModuleProfile(
                name,
                len(ops),
                sum(o.time for o in ops),
                sum(o.share for o in ops),
                sum(o.work for o in ops),
                max(ops, key=lambda o: o.time).bound,
            )
            for name, ops in groups.items()
        ]
        return tuple(sorted(rows, key=lambda r: (-r.time, r.module)))


def profile_of(result: CompileResult, times: BatchTime, edits: Iterable[Suggestion] = ()) -> Profile:
    """The profile of a compile. times: its batch, simulated; edits: those to assign to ops."""
    placement, total = result.placement, times.per_input
    spent, switch = attribute_to_ops(placement.epochs, times)
    traffic = {row.op: row.dram for row in op_costs(result)}
    best = _by_op(edits, placement.epochs, times.epochs)
    cores = result.device.rows * result.device.cols * len({e.chip for e in placement.epochs})
    rows = []
    for epoch, time in zip(placement.epochs, times.epochs, strict=True):
        for name, op in zip(epoch.ops, time.ops, strict=True):
            node, candidate = result.lowered[name], placement.candidate(name)
            work = float(candidate["cycles"]) * float(candidate["cores"]) / (cores * total) if total else 0.0
            rows.append(
                ProfiledOp(
                    name,
                    node_type(node),
                    node.origin.module,
                    epoch.index,
                    spent[name],
                    spent[name] / total if total else 0.0,
                    op.cycles,
                    op.kernel,
                    work,
                    op.bound.value,
                    traffic.get(name, 0.0),
                    best.get(name),
                )
            )
    rows.sort(key=lambda r: (-r.gain, -r.time))
    return Profile(total, times.batch, switch, tuple(rows))


def _by_op(edits: Iterable[Suggestion], epochs: Sequence[Epoch], times: Sequence[EpochTime]) -> dict[str, Suggestion]:
    """The best edit for each op: of those that name it; one that names no op of its epoch is about the longest op
    of its critical chain."""
    best: dict[str, Suggestion] = {}
    for edit in sorted(edits, key=lambda e: (e.batch is not None, -e.gain)):
        named = [op for c in edit.commands if isinstance(op := getattr(c, "op", None), str)]
        named += [op for c in edit.commands if isinstance(c, Constrain) for op in c.ops]
        inside = [op for op in named if op in epochs[edit.epoch].ops]
        longest = times[edit.epoch].longest
        if edit.kind in ("split", "merge") and longest >= 0:
            inside = [epochs[edit.epoch].ops[longest]]
        for op in inside[:1]:
            best.setdefault(op, edit)
    return best
