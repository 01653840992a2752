"""What no placement can honour is refused before any candidate is made, all of it at once: names of policies and
algorithms, overrides.

What depends on candidates (L1, edges) or on the finished placement is told later, by the stage that finds it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.constraints import Constraints
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, OverrideError, need_known
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer import policies
from tbuda_lab.core.placer.memory.dram import ALGORITHMS
from tbuda_lab.core.placer.model import chip_stages
from tbuda_lab.core.placer.model.schedule import POLICIES as SCHEDULERS
from tbuda_lab.core.placer.model.schedule import constrain_order, schedule


def refuse_unknown(options: CompileOptions) -> None:
    """Raises `PlacementError` with a diagnostic for each name of a policy or algorithm that there is not."""
    need_known(
        ("balancer policy", policies.full_name(options.balancer_policy), policies.NAMES),
        ("scheduler policy", options.scheduler_policy, SCHEDULERS),
        ("chip placement policy", options.chip_placement_policy, chip_stages.POLICIES),
        ("DRAM placement algorithm", options.dram_placement_algorithm, ALGORITHMS),
    )


def refuse_impossible(graph: Graph, device: DeviceSpec, options: CompileOptions, constraints: Constraints) -> None:
    """Looks at everything that is asked of a lowered (and edited) graph as far as that takes no candidates.

    Raises one `OverrideError` with a diagnostic for each thing that is wrong, naming what would be legal.
    """
    faults = list(constraints.faults)
    if constraints.orders or constraints.breaks:
        order = schedule(graph, options.scheduler_policy)
        try:
            chip_breaks(constrain_order(graph, order, constraints), device, constraints)
        except OverrideError as error:
            faults += [d for d in error.diagnostics if d not in faults]
    dataclasses.replace(constraints, faults=tuple(faults)).checked()


def refuse_pins(models: Mapping[str, OpModels], device: DeviceSpec, constraints: Constraints) -> None:
    """Raises `OverrideError` for pins that leave no room for any legal candidate of their op."""
    wrong: list[Diagnostic] = []
    for name, pin in constraints.pins.items():
        data = models[name].rows[models[name].legal()]
        codes = np.unique(data["grid_r"].astype(np.int64) << 16 | data["grid_c"])
        fault = pin.on_device([(code >> 16, code & 0xFFFF) for code in codes.tolist()], device)
        if fault is not None:
            wrong.append(Diagnostic("error", name, "override-op_placement", *fault))
    if wrong:
        raise OverrideError("op placements cannot be met", wrong)


def chip_breaks(order: Sequence[str], device: DeviceSpec, constraints: Constraints) -> frozenset[str]:
    """Ops that begin a stage. Raises `OverrideError` for more breaks than there are chips to break to."""
    starts = constraints.chip_starts(order)
    if len(starts) >= len(device.chips) > 1:
        text = f"{len(starts)} chip breaks need {len(starts) + 1} chips; {device.name} has {len(device.chips)}"
        raise OverrideError(
            "too many chip breaks",
            [Diagnostic("error", min(starts), "override-chip_break", text, "remove some, or make them epoch breaks")],
        )
    return starts
