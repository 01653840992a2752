"""Small networks by hand and at random."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tbuda_lab.core.epochsim import FlowEdge, FlowOp, Network


def op(name: str, cycles: int, steps: int = 1, **facts: int) -> FlowOp:
    """One tile per step."""
    return FlowOp(name, cycles, np.arange(1, steps + 1, dtype=np.int64), **facts)


def edge(ops: list[FlowOp], producer: int, consumer: int, capacity: int | None, port: int = 0) -> FlowEdge:
    """Tile by tile where both have as many steps; else the reader takes in equal shares."""
    whole, steps = ops[producer].total, ops[consumer].steps
    share = -(-whole * np.arange(1, steps + 1, dtype=np.int64) // steps)
    return FlowEdge(producer, consumer, port, share, whole * np.arange(1, steps + 1, dtype=np.int64) // steps, capacity)


def chain(cycles: list[int], capacity: int | None = 2, steps: int = 1) -> Network:
    ops = [op(f"op{i}", c, steps) for i, c in enumerate(cycles)]
    edges = [edge(ops, i, i + 1, None if capacity is None else capacity * steps) for i in range(len(ops) - 1)]
    return Network(tuple(ops), tuple(edges))


@st.composite
def networks(draw: st.DrawFn) -> Network:
    """Random acyclic networks with uneven steps, gradual and late packing, readers that go back, and small buffers."""
    count = draw(st.integers(1, 6))
    ops = []
    for i in range(count):
        steps = draw(st.integers(1, 4))
        tiles = draw(st.lists(st.integers(0, 2), min_size=steps, max_size=steps))
        tiles[-1] = max(1, tiles[-1])
        ops.append(FlowOp(f"op{i}", draw(st.integers(0, 12)), np.cumsum(np.array(tiles)), draw(st.integers(0, 9))))
    edges = []
    for consumer in range(1, count):
        chosen = st.lists(st.integers(0, consumer - 1), min_size=1, max_size=3)
        for port, producer in enumerate(draw(chosen)):
            whole, steps = ops[producer].total, ops[consumer].steps
            sizes = st.lists(st.integers(0, whole), min_size=steps, max_size=steps)
            need = np.maximum.accumulate(np.array(draw(sizes)))
            # what is not needed yet cannot have been freed
            freed = np.minimum(np.sort(np.array(draw(sizes))), need)
            freed[-1] = whole
            capacity = draw(st.none() | st.integers(1, 2 * whole))
            edges.append(FlowEdge(producer, consumer, port, need, freed, capacity, draw(st.integers(0, 3))))
    return Network(tuple(ops), tuple(edges))
