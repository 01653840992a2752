"""Policies by name: each turns a `Problem` into a list of placed epochs.

The names are PyBuda's, and mean what they mean there (place-and-route section 5); `Optimal` is the default.
"""

from __future__ import annotations

from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.placer.policies.cnn import cnn
from tbuda_lab.core.placer.policies.guard import Policy, never_worse
from tbuda_lab.core.placer.policies.maximize_t import maximize_t
from tbuda_lab.core.placer.policies.minimize_grid import minimize_grid
from tbuda_lab.core.placer.policies.nlp import nlp
from tbuda_lab.core.placer.policies.optimal import optimal
from tbuda_lab.core.placer.policies.random_policy import random
from tbuda_lab.core.placer.policies.ribbon import ribbon
from tbuda_lab.core.placer.policies.single_op import single_op

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


def policy(name: str) -> tuple[str, Policy]:
    """The policy of that name ("default" is Optimal). Raises `PlacementError` listing the names."""
    key = "Optimal" if name in ("default", "") else name
    for known, function in POLICIES.items():
        if known.lower() == key.lower():
            return known, function
    raise PlacementError(
        f"unknown balancer policy {name!r}",
        [Diagnostic("error", name, "balancer-policy", "no such policy", f"known: default, {', '.join(POLICIES)}")],
    )
