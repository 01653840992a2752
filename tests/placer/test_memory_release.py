"""What a placement worked out on the way goes with it: a session recompiles hundreds of times."""

from __future__ import annotations

import gc
import weakref

import pytest

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.device import load_device
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.placer import place_and_repair
from tests.placer.graphs import encoder


@pytest.mark.parametrize("policy", ["Optimal", "Ribbon", "NLP", "Random"])
def test_nothing_is_kept_of_a_placement_that_is_dropped(policy: str) -> None:
    device, options = load_device("wormhole_b0"), CompileOptions(balancer_policy=policy)
    graph = encoder(1)
    outcome = place_and_repair(graph, op_models(graph, device, options), device, options)
    retained = weakref.ref(outcome.problem)
    del outcome
    gc.collect()
    assert retained() is None
