"""Names in the options of a compile that the placer looks up: wrong ones are refused before anything runs."""

from __future__ import annotations

from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer import chips, schedule
from tbuda_lab.core.placer.dram import ALGORITHMS
from tbuda_lab.core.placer.policies import POLICIES


def refuse_unknown(options: CompileOptions) -> None:
    """Raises `PlacementError` with a diagnostic for each name of a policy or algorithm that there is not."""
    balancers = ("default", *POLICIES)
    lower = (*(name.lower() for name in balancers), "")
    given = (
        ("balancer policy", options.balancer_policy, options.balancer_policy.lower() in lower, balancers),
        ("scheduler policy", options.scheduler_policy, options.scheduler_policy in schedule.POLICIES,
         schedule.POLICIES),
        ("chip placement policy", options.chip_placement_policy, options.chip_placement_policy in chips.POLICIES,
         chips.POLICIES),
        ("DRAM placement algorithm", options.dram_placement_algorithm,
         options.dram_placement_algorithm in ALGORITHMS, ALGORITHMS),
    )  # fmt: skip
    wrong = [(what, name, known) for what, name, good, known in given if not good]
    if wrong:
        raise PlacementError(
            "; ".join(f"unknown {what} {name!r}" for what, name, _ in wrong),
            [
                Diagnostic("error", name, "name-in-options", f"no such {what}", f"known: {', '.join(known)}")
                for what, name, known in wrong
            ],
        )
