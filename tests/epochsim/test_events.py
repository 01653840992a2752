"""The simulator of epochs against a second one that shares no code with it, on small random epochs: chains, forks and
joins of element-wise ops and matmuls on grids that do not match."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pytest

from tbuda_lab.core.emit import emit
from tbuda_lab.core.epochsim import EpochConstants, op_costs, simulate
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwUnary
from tbuda_lab.core.netlist.schema import NetGraph
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tests.epochsim.compiled import placed
from tests.epochsim.events import Events
from tests.placer.graphs import Sketch, linear

CONSTANTS = EpochConstants(switch=0)


def random_epoch(seed: int) -> tuple[SimpleNamespace, NetGraph]:
    """A placed graph of some ops of one shape, most on grids that are asked for, and the graph of its netlist."""
    rng, s = random.Random(seed), Sketch()
    rows, cols = (rng.choice((2, 4, 8, 16)) for _ in range(2))
    shape = (1, 1, 32 * rows, 32 * cols)
    values = [s.input("x", *shape)]
    for k in range(rng.randint(3, 6)):
        name = f"o{k}"
        if k >= 2 and rng.random() < 0.4:
            values.append(s.op(name, HwBinary("add"), shape, *rng.sample(values[1:], 2)))
        elif rng.random() < 0.25:
            values.append(linear(s, name, values[-1], 32 * rows, 32 * cols, 32 * cols))
        else:
            kind = HwUnary(rng.choice(("exp", "gelu", "nop", "sqrt", "tanh")))
            values.append(s.op(name, kind, shape, rng.choice(values[-2:]) if k else values[0]))
    graph = s.output(values[-1])
    sizes = tuple(
        Override("op_size", op.name, (rng.choice((1, 2)), rng.choice((1, 2)))) for op in graph.ops if rng.random() < 0.7
    )
    result = placed(graph, overrides=sizes, options=CompileOptions(objective="throughput"))
    (net,) = emit(graph, result.placement, result.device, 1).netlist.graphs.values()
    return result, net


def both(result: SimpleNamespace, net: NetGraph, batch: int) -> tuple[int, int]:
    """Cycles of a batch by the events, and by the simulator."""
    costs = op_costs(result)  # type: ignore[arg-type]
    first = {name: CONSTANTS.dram_latency if {"dram", "host"} & set(c.where) else 0 for name, c in costs.items()}
    ready = {name: max(c.preload, first[name]) for name, c in costs.items()}
    events = Events(net, {name: c.cycles for name, c in costs.items()}, ready, CONSTANTS.noc_latency)
    return events.run(batch), int(simulate(result, batch, CONSTANTS).end.max())  # type: ignore[arg-type]


@pytest.mark.parametrize("seed", [1, 12, 13, 23, 27, 31, 38, 39])
def test_an_epoch_takes_as_long_as_tile_by_tile(seed: int) -> None:
    """Cores that need other ublocks of an op at the same time do not go in step (31), nor do those that read cores of
    one that do not (12)."""
    result, net = random_epoch(seed)
    for batch in (1, 8):
        events, simulated = both(result, net, batch)
        assert simulated == pytest.approx(events, rel=0.03), (batch, events / simulated)
