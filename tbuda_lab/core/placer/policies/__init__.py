"""Policies by name: each turns a `Problem` into a list of placed epochs.

The names are PyBuda's, and mean what they mean there (placement.md#policies); `Optimal` is the default.
"""

from __future__ import annotations

from tbuda_lab.core.errors import need_known
from tbuda_lab.core.placer.policies.optimal import optimal
from tbuda_lab.core.placer.policies.portfolio import Policy, never_worse
from tbuda_lab.core.placer.policies.preferences import cnn, maximize_t, minimize_grid, nlp, random, single_op
from tbuda_lab.core.placer.policies.ribbon import ribbon

OTHERS: dict[str, Policy] = {
    "NLP": nlp,
    "CNN": cnn,
    "Ribbon": ribbon,
    "MinimizeGrid": minimize_grid,
    "MaximizeTMinimizeGrid": maximize_t,
    "Random": random,
    "SingleOpPerEpoch": single_op,
}

POLICIES: dict[str, Policy] = {"Optimal": never_worse(optimal, OTHERS), **OTHERS}

NAMES = ("default", *POLICIES)
"""What options may call a policy, in any case."""


def full_name(name: str) -> str:
    """The policy that a name stands for ("default" or nothing is Optimal); the name itself where there is none."""
    if name.lower() in ("default", ""):
        return "Optimal"
    return next((policy for policy in POLICIES if policy.lower() == name.lower()), name)


def policy(name: str) -> tuple[str, Policy]:
    """The policy of that name, and its full name. Raises `PlacementError` listing the names."""
    key = full_name(name)
    need_known(("balancer policy", key, NAMES))
    return key, POLICIES[key]
