"""Random programs of remote buffers, streams, groupings and collectives on several replicas against NumPy.

`python -m tests.popxl.test_random_replicas 400 [FIRST]` runs as many; the suite runs a few.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tbuda_lab.popxl as popxl
from tbuda_lab.popxl import ops

SHAPE = (2, 3)
"""Of what is loaded and stored."""
GROUPINGS = {1: ((1, 1),), 2: ((1, 1), (1, 2)), 4: ((1, 1), (1, 2), (2, 2), (1, 4))}
"""By the number of replicas, strides and sizes of groups."""
REDUCTIONS: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "add": lambda parts: parts.sum(0),
    "max": lambda parts: parts.max(0),
    "min": lambda parts: parts.min(0),
    "mean": lambda parts: parts.mean(0),
}
MOST = 2**20
"""Of a number: sums of larger ones are not exact in any order."""


@dataclasses.dataclass
class Pair:
    """A tensor of the program, and what each replica has of it in NumPy."""

    tensor: popxl.Tensor
    arrays: np.ndarray


class World:
    """A program as it is written. memory: the entries of the remote buffer by replica; data: of the stream by turn and
    replica."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.replicas, self.transfers = int(self.rng.choice([1, 2, 4])), int(self.rng.choice([1, 2]))
        self.ir = popxl.Ir(self.replicas)
        self.ir.num_host_transfers = self.transfers
        self.groupings = [self.ir.replica_grouping(*given) for given in GROUPINGS[self.replicas]]
        self.entries = int(self.rng.integers(1, 4))
        self.memory = np.zeros((self.replicas, self.entries, *SHAPE), np.float32)
        self.data = self.numbers(self.transfers, self.replicas, *SHAPE)
        self.loaded = 0
        self.stored: list[np.ndarray] = []
        self.pairs: list[Pair] = []

    def numbers(self, *shape: int) -> np.ndarray:
        return self.rng.integers(-4, 5, shape).astype(np.float32)

    def pick(self, some: list[Any]) -> Any:
        return some[int(self.rng.integers(len(some)))]

    def begin(self) -> None:
        """Streams, a buffer with a variable in it, variables of random groupings."""
        self.loads, self.stores = (make(SHAPE, popxl.float32) for make in (popxl.h2d_stream, popxl.d2h_stream))
        self.buffer = popxl.remote_buffer(SHAPE, popxl.float32, self.entries)
        self.offsets = [popxl.variable(np.array(k, np.uint32), name=f"offset{k}") for k in range(self.entries)]
        self.home, far = int(self.rng.integers(self.entries)), self.numbers(*SHAPE)
        self.far = popxl.remote_variable(far, self.buffer, self.home, name="far")
        self.memory[:, self.home] = far
        self.variables = []
        for k in range(2):
            grouping = self.pick(self.groupings)
            groups = grouping.num_groups
            own = self.numbers(groups, *SHAPE)
            variable = popxl.variable(own if groups > 1 else own[0], name=f"v{k}", replica_grouping=grouping)
            self.pairs.append(Pair(variable, own[list(grouping.assignment)]))
            self.variables.append((self.pairs[-1], grouping))

    def offset(self, entry: int) -> Any:
        """An entry's number, known or in a variable."""
        return self.pick([entry, self.offsets[entry]])

    def next_load(self) -> np.ndarray:
        self.loaded += 1
        return self.data[(self.loaded - 1) % self.transfers]


def parts_of(world: World, grouping: Any, arrays: np.ndarray) -> list[tuple[np.ndarray, int]]:
    """By replica what the replicas of its group have, and its place among them."""
    where = np.asarray(grouping.assignment)
    members = [np.flatnonzero(where == where[r]) for r in range(world.replicas)]
    return [(arrays[m], int(np.flatnonzero(m == r)[0])) for r, m in enumerate(members)]


def add(world: World, one: Pair) -> Pair:
    other = world.pick([p for p in world.pairs if p.arrays.shape == one.arrays.shape])
    return Pair(ops.add(one.tensor, other.tensor), one.arrays + other.arrays)


def add_in_place(world: World, one: Pair) -> None:
    ops.add_(one.tensor, popxl.constant(np.float32(1)))
    one.arrays += 1


def store(world: World, one: Pair) -> None:
    entry = int(world.rng.integers(world.entries))
    ops.remote_store(world.buffer, world.offset(entry), one.tensor)
    world.memory[:, entry] = one.arrays


def store_in_a_call(world: World, one: Pair) -> Pair:
    entry = int(world.rng.integers(world.entries))

    def body(x: popxl.Tensor, offset: popxl.Tensor) -> popxl.Tensor:
        ops.remote_store(world.buffer, offset, x)
        return x + 1.0

    graph = world.ir.create_graph(body, one.tensor, world.offsets[entry])
    (made,) = ops.call(graph, one.tensor, world.offsets[entry])
    world.memory[:, entry] = one.arrays
    return Pair(made, one.arrays + 1)


def load(world: World, one: Pair) -> Pair:
    entry = int(world.rng.integers(world.entries))
    return Pair(ops.remote_load(world.buffer, world.offset(entry)), world.memory[:, entry].copy())


def load_in_place(world: World, one: Pair) -> None:
    entry = int(world.rng.integers(world.entries))
    ops.remote_load_(world.buffer, world.offset(entry), one.tensor)
    one.arrays[...] = world.memory[:, entry]


def load_in_a_repeat(world: World, one: Pair) -> Pair:
    entry, count = int(world.rng.integers(world.entries)), int(world.rng.integers(1, 4))

    def body(x: popxl.Tensor, offset: popxl.Tensor) -> popxl.Tensor:
        return ops.remote_load(world.buffer, offset) + x

    graph = world.ir.create_graph(body, one.tensor, world.offsets[entry])
    (made,) = ops.repeat(graph, count, one.tensor, world.offsets[entry])
    return Pair(made, one.arrays + np.float32(count) * world.memory[:, entry])


def host_load(world: World, one: Pair) -> Pair:
    return Pair(ops.host_load(world.loads), world.next_load().copy())


def host_load_in_a_repeat(world: World, one: Pair) -> Pair:
    graph = world.ir.create_graph(lambda x: x + ops.host_load(world.loads), one.tensor)
    count = int(world.rng.integers(1, 4))
    (made,) = ops.repeat(graph, count, one.tensor)
    return Pair(made, one.arrays + sum(world.next_load() for _ in range(count)))


def host_store(world: World, one: Pair) -> None:
    ops.host_store(world.stores, one.tensor)
    world.stored.append(one.arrays.copy())


def reduce(world: World, one: Pair) -> Pair | None:
    grouping, (word, function) = world.pick(world.groupings), world.pick(list(REDUCTIONS.items()))
    made = np.stack([function(parts) for parts, _ in parts_of(world, grouping, one.arrays)])
    if not world.rng.integers(2):
        return Pair(ops.collectives.replicated_all_reduce(one.tensor, word, grouping), made)
    ops.collectives.replicated_all_reduce_(one.tensor, word, grouping)
    one.arrays[...] = made
    return None


def gather(world: World, one: Pair) -> Pair:
    grouping = world.pick(world.groupings)
    made = np.stack([np.concatenate(list(parts), 0) for parts, _ in parts_of(world, grouping, one.arrays)])
    return Pair(ops.collectives.replicated_all_gather(one.tensor, 0, grouping, "concat"), made)


def scatter(world: World, one: Pair) -> Pair:
    grouping = world.pick(world.groupings)
    size = -(-one.arrays[0].size // grouping.group_size)
    made = np.zeros((world.replicas, size), np.float32)
    for r, (parts, place) in enumerate(parts_of(world, grouping, one.arrays)):
        own = parts.sum(0).reshape(-1)[place * size : (place + 1) * size]
        made[r, : own.size] = own
    return Pair(ops.collectives.replicated_reduce_scatter(one.tensor, "add", grouping), made)


ANY = (add, add_in_place, load, host_load)
"""Steps on tensors of any shape."""
OF_ENTRIES = (store, store_in_a_call, load_in_place, load_in_a_repeat, host_load_in_a_repeat, host_store)
"""Steps on tensors of the shape of entries."""
OF_REPLICAS = (reduce, gather, scatter)


def write(world: World) -> None:
    """A program of 4 to 13 steps."""
    for _ in range(int(world.rng.integers(4, 14))):
        one = world.pick(world.pairs)
        steps: list[Callable[[World, Pair], Pair | None]] = [*ANY]
        if one.arrays.shape[1:] == SHAPE:
            steps += OF_ENTRIES
        if world.replicas > 1 and one.arrays.size < 200:
            steps += OF_REPLICAS
        if np.abs(one.arrays).max() < MOST:
            made = world.pick(steps)(world, one)
            world.pairs += [made] if made is not None else []


def check(seed: int) -> None:
    """One program. Values are small and in eighths, so sums are exact in any order."""
    world = World(seed)
    with world.ir.main_graph, popxl.in_sequence():
        world.begin()
        write(world)
        outs = [popxl.d2h_stream(p.tensor.shape, popxl.float32) for p in world.pairs]
        for p, out in zip(world.pairs, outs, strict=True):
            ops.host_store(out, p.tensor)
    lead = [n for n in (world.transfers, world.replicas) if n > 1]
    session = popxl.Session(world.ir, "ipu_model")
    with session:
        got = session.run({world.loads: world.data.reshape(*lead, *SHAPE)} if world.loaded else {})
    whole = {s: a.reshape(world.transfers, world.replicas, *s.shape) for s, a in got.items()}
    for p, out in zip(world.pairs, outs, strict=True):
        np.testing.assert_array_equal(whole[out][0], p.arrays, err_msg=f"seed {seed}, {p.tensor}")
    if world.stored:
        slots = np.zeros_like(world.data)
        for at, arrays in enumerate(world.stored):
            slots[at % world.transfers] = arrays
        np.testing.assert_array_equal(whole[world.stores], slots, err_msg=f"seed {seed}, stored")
    for p, grouping in world.variables:
        firsts = [grouping.assignment.index(k) for k in range(grouping.num_groups)]
        own = p.arrays[firsts] if len(firsts) > 1 else p.arrays[0]
        np.testing.assert_array_equal(session.get_tensor_data(p.tensor), own, err_msg=f"seed {seed}, {p.tensor}")
    far = session.get_tensor_data(world.far)
    np.testing.assert_array_equal(far, world.memory[0, world.home], err_msg=f"seed {seed}, far")


@pytest.mark.parametrize("seed", [0, 1, 2, 3, 4, 5])
def test_a_random_program_of_replicas_is_numpy_s(seed: int) -> None:
    check(seed)


if __name__ == "__main__":
    wrong = 0
    popxl.options(balancer_policy="MinimizeGrid")  # twice as quick: what a program means does not hang on its places
    count, first = (int(a) for a in (*sys.argv[1:3], *("200", "0")[len(sys.argv) - 1 :]))
    for number in range(first, first + count):
        try:
            check(number)
        except Exception as error:
            wrong += 1
            print(number, type(error).__name__, str(error).strip().split("\n")[0][:160], flush=True)
    print(f"{wrong} wrong")
