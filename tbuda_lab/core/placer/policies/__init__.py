"""Policies by name: each turns a `Problem` into a list of placed epochs."""

from __future__ import annotations

from collections.abc import Callable

from tbuda_lab.core.errors import Diagnostic, PlacementError
from tbuda_lab.core.placer.policies.greedy import minimize_grid, nlp, random, single_op
from tbuda_lab.core.placer.policies.optimal import optimal
from tbuda_lab.core.placer.problem import Problem
from tbuda_lab.core.placer.segment import Segment

Policy = Callable[[Problem, Callable[[float], None]], list[Segment]]

POLICIES: dict[str, Policy] = {
    "Optimal": optimal,
    "NLP": nlp,
    "MinimizeGrid": minimize_grid,
    "Random": random,
    "SingleOpPerEpoch": single_op,
}


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
