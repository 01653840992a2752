"""The numbers behind the plots: costs of epochs and ops, bounds, and how edits changed the cost."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tbuda_lab.core.analysis.memory import dram_map
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.epochsim import BatchTime
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.session.batch_times import time_of

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session

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
    `busy`: share of its core cycles in which kernels work; `bound`: what takes the largest part of it; `limiting`: the
    op to enlarge first."""

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
    limiting: str

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
    for e, epoch, time in zip(report.epochs, placement.epochs, times.epochs, strict=True):
        work = sum(float(c["cycles"]) * float(c["cores"]) for c in map(placement.candidate, epoch.ops))
        rows.append(
            EpochBar(
                e.index, epoch.chip, e.kernel_cycles,
                time.steady / times.batch, time.fill / times.batch, time.stall / times.batch, time.switch / times.batch,
                e.cores / result.device.cores, work * times.batch / (max(1, time.cycles) * result.device.cores),
                time.bound.value, epoch.ops[time.limiting] if time.limiting >= 0 else "",
            )
        )  # fmt: skip
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
        OpBar(name, placement.ops[name].epoch, *report.op_limiters[name][:2], traffic.get(name, 0.0),
               report.op_limiters[name][2])
        for name in placement.schedule
        if name in report.op_limiters
    ]  # fmt: skip


def bound_costs(result: CompileResult, times: BatchTime) -> list[tuple[str, int]]:
    """(what it is, cycles per input): every lower bound, then what the slowest kernels alone, the slowest kernels or
    transfers, and the simulated batch (`times`) take."""
    report = result.placement.report
    if report is None:
        return []
    rows = [(text, int(getattr(report.bounds, name))) for name, text in BOUNDS.items()]
    return [*rows, ("reached: slowest kernels alone", report.bounds.achieved_kernel),
            ("reached: slowest kernels or transfers", report.bounds.achieved_limiter),
            (SIMULATED.format(batch=times.batch), round(times.per_input))]


def cost_history(session: Session) -> list[StepCost]:
    """The cost of every state from the first to the current one. States that could not be placed are left out."""
    states = [("start", session._state.history.first)] + [(step.label, step.after) for step in session.history]
    rows = []
    for label, state in states:
        try:
            placed = session.placed(state)
        except TbudaError:
            continue
        kernels = placed.kernel_cycles
        rows.append(StepCost(label, time_of(placed).per_input, placed.per_input(kernels), len(kernels)))
    return rows
