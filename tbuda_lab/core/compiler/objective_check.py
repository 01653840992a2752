"""Whether the number that was minimised is the time that passes: the objective beside the simulator of epochs."""

from __future__ import annotations

from collections.abc import Sequence

from tbuda_lab.core.balancer.types import Placement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.epochsim import simulate
from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.stalls.epoch_throughput import Trial

OFF = 0.05
"""By what part objective and simulator may differ before it is said."""


def objective_notes(
    lowered: Graph, placement: Placement, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]
) -> list[Diagnostic]:
    """A note where the cycles that were minimised are not those that the epoch simulator finds for the whole
    placement: which term is off, and by how much. Of one chip, for a batch as the objective estimates it."""
    value = placement.report.objective if placement.report is not None else None
    if value is None or len(device.chips) > 1 or not options.counts_fill or not options.enable_fork_join_buffering:
        return []
    result = simulate(Trial(lowered, placement, device, tuple(overrides)), value.inputs)
    took = result.cycles / value.inputs
    if abs(value.time - took) <= OFF * took:
        return []
    slowest = float(sum(epoch.slowest for epoch in result.epochs))
    switch = sum(epoch.switch for epoch in result.epochs) / value.inputs
    terms = {
        "slowest ops": (value.limiter, slowest),
        "filling and waiting": (value.waiting, took - slowest - switch),
        "switches": (value.switch, switch),
    }
    name = max(terms, key=lambda term: abs(terms[term][0] - terms[term][1]))
    ours, theirs = terms[name]
    text = (
        f"the objective estimates {value.time:,.0f} cycles per input, the epoch simulator finds {took:,.0f}; most of "
        f"that is in {name}: {ours:,.0f} against {theirs:,.0f}"
    )
    fix = "epoch_switch_cycles that the simulator does not have, or buffers that other epochs change, make a difference"
    return [Diagnostic("note", "placement", "objective", text, fix)]
