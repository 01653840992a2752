"""Names in the options of a compile that the placer looks up: wrong ones are refused before anything runs."""

from __future__ import annotations

from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer import policies
from tbuda_lab.core.placer.memory.dram import ALGORITHMS
from tbuda_lab.core.placer.model import schedule
from tbuda_lab.core.placer.model.known import need_known
from tbuda_lab.core.placer.search import chip_order


def refuse_unknown(options: CompileOptions) -> None:
    """Raises `PlacementError` with a diagnostic for each name of a policy or algorithm that there is not."""
    need_known(
        ("balancer policy", policies.full_name(options.balancer_policy), policies.NAMES),
        ("scheduler policy", options.scheduler_policy, schedule.POLICIES),
        ("chip placement policy", options.chip_placement_policy, chip_order.POLICIES),
        ("DRAM placement algorithm", options.dram_placement_algorithm, ALGORITHMS),
    )
