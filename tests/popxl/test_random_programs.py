"""Random programs of views, in-place ops and arithmetic against NumPy with its own views.

`python -m tests.popxl.test_random_programs 2000 [FIRST]` runs as many; the suite runs a few.
"""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tbuda_lab.popxl as popxl
from tbuda_lab.popxl import ops

OPS = 30


class Pair:
    """A tensor of the program and the array that NumPy has for it."""

    def __init__(self, tensor: popxl.Tensor, array: np.ndarray) -> None:
        self.tensor, self.array = tensor, array


def _view(rng: np.random.Generator, one: Pair) -> Pair:
    t, a = one.tensor, one.array
    kind = rng.integers(3)
    if kind == 0:
        order = [int(k) for k in rng.permutation(a.ndim)]
        return Pair(ops.transpose_(t, order), a.transpose(order))
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
        return Pair(ops.slice_(t, [begin], [end], [step], [axis]), a[cut])
    if not a.flags["C_CONTIGUOUS"]:  # NumPy would copy
        return one
    return Pair(ops.reshape_(t, (a.size,)), a.reshape(a.size))


def _write(rng: np.random.Generator, pairs: list[Pair], one: Pair) -> None:
    same = [p for p in pairs if p.array.shape == one.array.shape and not np.shares_memory(p.array, one.array)]
    number = np.float32(rng.integers(-3, 4))
    kind = rng.integers(5)
    if kind == 0:
        ops.relu_(one.tensor)
        one.array[...] = np.maximum(one.array, 0)
    elif kind == 1 and same:
        other = same[int(rng.integers(len(same)))]
        ops.add_(one.tensor, other.tensor)
        one.array[...] = one.array + other.array
    elif kind == 2 and same:
        other = same[int(rng.integers(len(same)))]
        ops.var_updates.copy_var_update_(one.tensor, other.tensor)
        one.array[...] = other.array
    elif kind == 3:
        ops.var_updates.accumulator_scale_(one.tensor, 0.5)
        one.array[...] = one.array * np.float32(0.5)
    else:
        ops.add_(one.tensor, popxl.constant(number))
        one.array[...] = one.array + number


def _fresh(rng: np.random.Generator, pairs: list[Pair], one: Pair) -> Pair:
    same = [p for p in pairs if p.array.shape == one.array.shape]
    other = same[int(rng.integers(len(same)))]
    kind = rng.integers(4)
    if kind == 0:
        return Pair(one.tensor + other.tensor, one.array + other.array)
    if kind == 1:
        return Pair(ops.maximum(one.tensor, other.tensor), np.maximum(one.array, other.array))
    if kind == 2:
        return Pair(ops.concat([one.tensor, other.tensor], 0), np.concatenate([one.array, other.array], 0))
    return Pair(ops.sum(one.tensor, [0], True), one.array.sum(0, keepdims=True, dtype=np.float32))


def check(seed: int) -> None:
    """One program. Values are small halves, so sums are exact in any order."""
    rng = np.random.default_rng(seed)
    ir = popxl.Ir()
    with ir.main_graph, popxl.in_sequence():
        pairs = []
        for k in range(2):
            data = rng.integers(-4, 5, (int(rng.integers(1, 5)), int(rng.integers(1, 5)))).astype(np.float32)
            pairs.append(Pair(popxl.variable(data, name=f"v{k}"), data.copy()))
        variables = list(pairs)
        for _ in range(OPS):
            one = pairs[int(rng.integers(len(pairs)))]
            kind = rng.integers(3)
            if kind == 0 and one.array.ndim:
                made = _view(rng, one)
                if made is not one:
                    pairs.append(made)
            elif kind == 1:
                _write(rng, pairs, one)
            elif one.array.size < 64:
                pairs.append(_fresh(rng, pairs, one))
        streams = []
        for p in pairs:
            stream = popxl.d2h_stream(p.tensor.shape, p.tensor.dtype)
            ops.host_store(stream, p.tensor)
            streams.append(stream)
    session = popxl.Session(ir, "ipu_model")
    with session:
        got = session.run()
    for p, stream in zip(pairs, streams, strict=True):
        np.testing.assert_array_equal(got[stream], p.array, err_msg=f"seed {seed}, {p.tensor}")
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
