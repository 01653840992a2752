"""The numbers behind the plots: costs of epochs and ops, bounds, and how edits changed the cost."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING

from tbuda_lab.core.analysis.memory import dram_map
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import TbudaError

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session

BOUNDS = {
    "area": "area: cheapest cores × cycles",
    "theoretical_matmul": "matmul maths alone",
    "dram": "what must cross DRAM",
    "critical_op": "slowest op at its fastest",
    "no_packing": "best epochs without packing",
}
"""What each bound of a placement's report says."""


@dataclasses.dataclass(frozen=True)
class EpochBar:
    """Cycles per input of an epoch; `cores`: share of the chip's cores with an op; `balance`: share of the core cycles
    until the limiter is done in which kernels work."""

    index: int
    chip: int
    kernel: int
    limiter: int
    cores: float
    balance: float
    limited_by: str  # "op: what"


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
    """A state of the session's history: cycles per input of the whole model, by kernels alone and by what limits them.
    `label`: the edit that led to it."""

    label: str
    kernel: int
    limiter: int
    epochs: int


def epoch_costs(result: CompileResult) -> list[EpochBar]:
    """One row per epoch, in order. Empty for a placement without a report."""
    placement, report = result.placement, result.placement.report
    if report is None:
        return []
    return [
        EpochBar(
            e.index, placement.epochs[e.index].chip, e.kernel_cycles, e.limiter_cycles, e.cores / result.device.cores,
            e.balance, f"{e.limiter_op}: {e.limiter}",
        )
        for e in report.epochs
    ]  # fmt: skip


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


def bound_costs(result: CompileResult) -> list[tuple[str, int]]:
    """(what it is, cycles per input): every lower bound, then what the kernels alone and the limiters take."""
    report = result.placement.report
    if report is None:
        return []
    rows = [(text, int(getattr(report.bounds, name))) for name, text in BOUNDS.items()]
    return [*rows, ("achieved: kernels", report.bounds.achieved_kernel),
            ("achieved: with limiters", report.bounds.achieved_limiter)]


def cost_history(session: Session) -> list[StepCost]:
    """The cost of every state from the first to the current one. States that could not be placed are left out."""
    states = [("start", session._state.history.first)] + [(step.label, step.after) for step in session.history]
    rows = []
    for label, state in states:
        try:
            placed = session.placed(state)
        except TbudaError:
            continue
        kernels, limits = placed.kernel_cycles, placed.limiter_cycles
        rows.append(StepCost(label, placed.per_input(kernels), placed.per_input(limits), len(limits)))
    return rows
