"""Random programs of views, in-place ops, arithmetic, calls, repeats, conditionals and streams against NumPy with its
own views.

`python -m tests.popxl.test_random_programs 2000 [FIRST]` runs as many; the suite runs a few.
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

OPS = 30
TRANSFERS = 4
LOADED = (2, 3)
"""The shape of what is loaded from a stream."""


class Pair:
    """A tensor of the program, None where it is run again, and the array that NumPy has for it."""

    def __init__(self, tensor: popxl.Tensor | None, array: np.ndarray) -> None:
        self.tensor, self.array = tensor, array


class _Nothing:
    """Ops that make nothing: for parts of a program that are made already."""

    def __getattr__(self, name: str) -> _Nothing:
        return self

    def __call__(self, *operands: Any) -> None:
        return None


@dataclasses.dataclass
class World:
    """What a program reads and writes beside its tensors. data: of the stream, slot by slot."""

    rng: np.random.Generator
    data: np.ndarray
    loads: Any
    stores: Any
    loaded: int = 0
    stored: list[np.ndarray] = dataclasses.field(default_factory=list)

    def load(self, o: Any, live: bool) -> Pair:
        array = self.data[self.loaded % TRANSFERS].copy() if live else np.zeros(LOADED, np.float32)
        self.loaded += live
        return Pair(o.host_load(self.loads), array)

    def store(self, o: Any, one: Pair, live: bool) -> None:
        o.host_store(self.stores, one.tensor)
        if live:
            self.stored.append(one.array.copy())


def _number(o: Any, value: float) -> Any:
    return None if isinstance(o, _Nothing) else popxl.constant(np.float32(value))


def _view(rng: np.random.Generator, o: Any, one: Pair, reshapes: bool = True) -> Pair:
    t, a = one.tensor, one.array
    kind = rng.integers(3)
    if kind == 0:
        order = [int(k) for k in rng.permutation(a.ndim)]
        return Pair(o.transpose_(t, order), a.transpose(order))
    if kind == 1:
        axis = int(rng.integers(a.ndim))
        size = a.shape[axis]
        start = int(rng.integers(size))
        stop = int(rng.integers(start + 1, size + 1))
        if rng.integers(2) and start > 0:  # backwards, down to the first element at least
            low = int(rng.integers(start))
            begin, end, step = start, low - 1 if low else None, -1
        else:
            begin, end, step = start, stop, 1
        cut = (slice(None),) * axis + (slice(begin, end, step),)
        return Pair(o.slice_(t, [begin], [end], [step], [axis]), a[cut])
    if not reshapes or not a.flags["C_CONTIGUOUS"]:  # NumPy would copy
        return one
    return Pair(o.reshape_(t, (a.size,)), a.reshape(a.size))


def _write(rng: np.random.Generator, o: Any, pairs: list[Pair], one: Pair) -> None:
    same = [p for p in pairs if p.array.shape == one.array.shape and not np.shares_memory(p.array, one.array)]
    number = np.float32(rng.integers(-3, 4))
    kind = rng.integers(5)
    if kind == 0:
        o.relu_(one.tensor)
        one.array[...] = np.maximum(one.array, 0)
    elif kind == 1 and same:
        other = same[int(rng.integers(len(same)))]
        o.add_(one.tensor, other.tensor)
        one.array[...] = one.array + other.array
    elif kind == 2 and same:
        other = same[int(rng.integers(len(same)))]
        o.var_updates.copy_var_update_(one.tensor, other.tensor)
        one.array[...] = other.array
    elif kind == 3:
        o.var_updates.accumulator_scale_(one.tensor, 0.5)
        one.array[...] = one.array * np.float32(0.5)
    else:
        o.add_(one.tensor, _number(o, number))
        one.array[...] = one.array + number


def _fresh(rng: np.random.Generator, o: Any, pairs: list[Pair], one: Pair) -> Pair:
    same = [p for p in pairs if p.array.shape == one.array.shape]
    other = same[int(rng.integers(len(same)))]
    kind = rng.integers(9)
    if kind < 2:
        return Pair(o.add(one.tensor, other.tensor), one.array + other.array)
    if kind < 4:
        return Pair(o.maximum(one.tensor, other.tensor), np.maximum(one.array, other.array))
    if kind < 6:
        return Pair(o.concat([one.tensor, other.tensor], 0), np.concatenate([one.array, other.array], 0))
    if kind == 6:  # a step of the host
        return Pair(o.fmod(one.tensor, _number(o, 3.0)), np.fmod(one.array, np.float32(3)))
    return Pair(o.sum(one.tensor, [0], True), one.array.sum(0, keepdims=True, dtype=np.float32))


def _body(seed: int, world: World, o: Any, given: list[Pair], results: list[int], live: bool) -> list[Pair]:
    """A few ops on `given`, the same for the same seed and shapes. results: numbers of those whose shapes the results
    have; live: whether the program comes by here, and does not only have it."""
    rng = np.random.default_rng(seed)
    pairs = list(given)
    for _ in range(int(rng.integers(1, 5))):
        one = pairs[int(rng.integers(len(pairs)))]
        kind = rng.integers(8)
        if kind < 2:
            pairs.append(_view(rng, o, one, reshapes=False))
        elif kind < 5:
            _write(rng, o, pairs, one)
        elif kind < 7:
            pairs.append(_fresh(rng, o, pairs, one))
        else:
            pairs.append(world.load(o, live))
    if rng.integers(4) == 0:
        loaded = world.load(o, live)
        world.store(o, Pair(o.add(loaded.tensor, loaded.tensor), loaded.array + loaded.array), live)
    made = []
    for number in results:
        fitting = [p for p in pairs if p.array.shape == given[number].array.shape]
        made.append(fitting[int(rng.integers(len(fitting)))])
    return made


def _graph(ir: popxl.Ir, fill: Callable[[list[popxl.Tensor]], list[Pair]], inputs: list[Pair], refs: list[bool]) -> Any:
    """A graph of which `fill` makes the results, of inputs by value or by reference."""
    graph = ir.create_empty_graph()
    with graph, popxl.in_sequence():
        taken = [
            popxl.graph_input(p.array.shape, popxl.float32, by_ref=ref) for p, ref in zip(inputs, refs, strict=True)
        ]
        for one in fill(taken):
            popxl.graph_output(one.tensor)
    return graph


def _copies(pairs: list[Pair]) -> list[np.ndarray]:
    return [np.array(p.array, order="C") for p in pairs]


def _called(world: World, ir: popxl.Ir, pairs: list[Pair]) -> list[Pair]:
    """A call, a repeat or a conditional."""
    rng, seed = world.rng, int(world.rng.integers(1 << 30))
    inputs = [pairs[int(k)] for k in rng.integers(len(pairs), size=int(rng.integers(1, 4)))]
    tensors = [p.tensor for p in inputs]
    form = rng.integers(3)
    if form == 2:
        return _conditional(world, ir, inputs, seed)
    count = 1 if form == 0 else int(rng.integers(4))
    carried = 1 if form == 1 else 0
    refs = [k >= carried and bool(rng.integers(2)) for k in range(len(inputs))]
    values, plain = _copies(inputs), _copies(inputs)  # as they are before what the call does by reference
    arrays = [p.array if ref and count else value for p, ref, value in zip(inputs, refs, values, strict=True)]
    made: list[Pair] = []

    def fill(taken: list[popxl.Tensor]) -> list[Pair]:
        given = [Pair(t, a) for t, a in zip(taken, arrays, strict=True)]
        made[:] = _body(seed, world, ops, given, [0], live=count > 0)
        return made

    graph = _graph(ir, fill, inputs, refs)
    if form == 0:
        outs = ops.call(graph, *tensors)
        return [Pair(t, p.array.copy()) for t, p in zip(outs, made, strict=True)]
    outs = ops.repeat(graph, count, *tensors)
    state = made[0].array.copy() if count else plain[0]
    for _ in range(count - 1):
        own = [state, *(p.array if ref else v for p, ref, v in zip(inputs[1:], refs[1:], plain[1:], strict=True))]
        own = [a if ref else np.array(a, order="C") for a, ref in zip(own, refs, strict=True)]
        state = _body(seed, world, _Nothing(), [Pair(None, a) for a in own], [0], live=True)[0].array.copy()
    return [Pair(outs[0], state)]


def _conditional(world: World, ir: popxl.Ir, inputs: list[Pair], seed: int) -> list[Pair]:
    truth = bool(world.rng.integers(2))
    made: list[list[Pair]] = []

    def branch(number: int, live: bool) -> Any:
        arrays = _copies(inputs)

        def fill(taken: list[popxl.Tensor]) -> list[Pair]:
            given = [Pair(t, a) for t, a in zip(taken, arrays, strict=True)]
            made.append(_body(seed + number, world, ops, given, [0], live))
            return made[-1]

        return _graph(ir, fill, inputs, [False] * len(inputs))

    graphs = [branch(0, truth), branch(1, not truth)]
    tensors = [p.tensor for p in inputs]
    condition = popxl.variable(truth)
    outs = ops.conditional(condition, *graphs, tensors, tensors)
    return [Pair(t, p.array.copy()) for t, p in zip(outs, made[0 if truth else 1], strict=True)]


def check(seed: int) -> None:
    """One program. Values are small halves, so sums are exact in any order."""
    rng = np.random.default_rng(seed)
    ir = popxl.Ir()
    ir.num_host_transfers = TRANSFERS
    with ir.main_graph, popxl.in_sequence():
        loads, stores = (make(LOADED, popxl.float32) for make in (popxl.h2d_stream, popxl.d2h_stream))
        world = World(rng, rng.integers(-4, 5, (TRANSFERS, *LOADED)).astype(np.float32), loads, stores)
        pairs = [world.load(ops, True)]
        for k in range(2):
            data = rng.integers(-4, 5, (int(rng.integers(1, 5)), int(rng.integers(1, 5)))).astype(np.float32)
            pairs.append(Pair(popxl.variable(data, name=f"v{k}"), data.copy()))
        variables = pairs[1:]
        world.store(ops, pairs[0], True)
        for _ in range(OPS):
            one = pairs[int(rng.integers(len(pairs)))]
            kind = rng.integers(10)
            if kind < 3 and one.array.ndim:
                made = _view(rng, ops, one)
                if made is not one:
                    pairs.append(made)
            elif kind < 6:
                _write(rng, ops, pairs, one)
            elif kind < 9:
                if one.array.size < 64:
                    pairs.append(_fresh(rng, ops, pairs, one))
            else:
                pairs += _called(world, ir, pairs)
        streams = []
        for p in pairs:
            assert p.tensor is not None
            stream = popxl.d2h_stream(p.tensor.shape, p.tensor.dtype)
            ops.host_store(stream, p.tensor)
            streams.append(stream)
    session = popxl.Session(ir, "ipu_model")
    with session:
        got = session.run({loads: world.data})
    for p, stream in zip(pairs, streams, strict=True):
        np.testing.assert_array_equal(got[stream][0], p.array, err_msg=f"seed {seed}, {p.tensor}")
    slots = np.zeros((TRANSFERS, *LOADED), np.float32)
    for at, array in enumerate(world.stored):
        slots[at % TRANSFERS] = array
    np.testing.assert_array_equal(got[stores], slots, err_msg=f"seed {seed}, stored")
    for p in variables:
        np.testing.assert_array_equal(session.get_tensor_data(p.tensor), p.array, err_msg=f"seed {seed}, {p.tensor}")


@pytest.mark.parametrize("seed", [0, 1, 2, 3])
def test_a_random_program_is_numpy_s(seed: int) -> None:
    check(seed)


if __name__ == "__main__":
    wrong = []
    popxl.options(balancer_policy="MinimizeGrid")  # twice as quick: what a program means does not hang on its places
    count, first = (int(a) for a in (*sys.argv[1:3], *("200", "0")[len(sys.argv) - 1 :]))
    for number in range(first, first + count):
        if number % 100 == 0:
            print(f"from {number}", flush=True)
        try:
            check(number)
        except Exception as error:
            wrong.append(number)
            print(number, type(error).__name__, str(error).strip().split("\n")[0][:160], flush=True)
    print(f"{len(wrong)} wrong")
