"""Every function of the guide's index is run: what it gives is NumPy's or torch's, operands stay as they are unless it
writes over them, and it runs where the table in docs/popxl.md says."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nn

import tbuda_lab.popxl as popxl
from tbuda_lab.popxl import executable, fp8_utils, ops
from tbuda_lab.popxl.graph import Op
from tbuda_lab.popxl.lowering.report import entries_by_op
from tests.popxl.test_names import TABLE

RNG = np.random.default_rng(17)
EIGHT = popxl.float8_143.as_numpy()


def floats(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


def positive(*shape: int) -> np.ndarray:
    return np.abs(floats(*shape)) + np.float32(0.2)


def whole(*values: Any, dtype: type = np.int32) -> np.ndarray:
    return np.array(values, dtype)


def eights(*shape: int) -> tuple[np.ndarray, np.ndarray]:
    """8-bit floats, and the numbers that they are."""
    codes = fp8_utils.host_pow2scale_cast_to_fp8(floats(*shape), popxl.float8_143, 0, True)
    return codes, fp8_utils.host_pow2scale_cast_from_fp8(codes, popxl.float32, 0)


@dataclasses.dataclass
class Case:
    """program: of the function and its operands, variables; wanted: of the operands as float64 torch tensors (whole
    numbers as they are), the results; after: the first operand afterwards where the function changes it.
    replicas: each has its own operands, stacked along a dim in front for `wanted`, which stacks results likewise."""

    program: Callable[..., Any]
    wanted: Callable[..., Any]
    operands: Sequence[np.ndarray] = dataclasses.field(default_factory=lambda: (floats(3, 4),))
    after: Callable[..., Any] | None = None
    rtol: float = 1e-5
    replicas: int = 1


def writes(program: Callable[..., Any], wanted: Callable[..., Any], *operands: np.ndarray, rtol: float = 1e-5) -> Case:
    """Of a function that writes its result over its first operand."""
    return Case(program, wanted, operands or (floats(3, 4),), wanted, rtol)


def views(program: Callable[..., Any], wanted: Callable[..., Any]) -> Case:
    """Of a function that gives a view: what is added to it is in the operand, too."""

    def added(f: Any, x: Any) -> Any:
        view = program(f, x)
        ops.add_(view, popxl.constant(np.float32(2)))
        return view

    def after(x: torch.Tensor) -> torch.Tensor:
        changed = x.clone()
        wanted(changed).add_(2.0)
        return changed

    return Case(added, lambda x: wanted(x) + 2.0, after=after)


def plain(wanted: Callable[..., Any], *operands: np.ndarray, rtol: float = 1e-5) -> Case:
    """Of a function that takes its operands alone."""
    return Case(lambda f, *xs: f(*xs), wanted, operands or (floats(3, 4),), rtol=rtol)


def between(program: Callable[..., Any], wanted: Callable[..., Any], after: Callable[..., Any] | None = None) -> Case:
    """Of a collective over two replicas."""
    return Case(program, wanted, (floats(2, 4, 3),), after, replicas=2)


def _graph(function: Callable[..., Any], *xs: Any) -> Any:
    return popxl.gcg().ir.create_graph(function, *xs)


def _bernoulli(x: torch.Tensor, seed: torch.Tensor) -> Callable[[np.ndarray], None]:
    """x with some half of its elements twice as large, the others 0."""

    def check(got: np.ndarray) -> None:
        kept = got != 0
        np.testing.assert_allclose(got[kept], 2 * x.numpy()[kept], rtol=1e-6)
        assert 0.4 < kept.mean() < 0.6

    return check


def _rows_dropped(x: torch.Tensor, seed: torch.Tensor) -> Callable[[np.ndarray], None]:
    def check(got: np.ndarray) -> None:
        kept = (got != 0).all(1)
        assert (kept | (got == 0).all(1)).all() and 0.2 < kept.mean() < 0.8
        np.testing.assert_allclose(got[kept], 2 * x.numpy()[kept], rtol=1e-6)

    return check


def _spread(mean: float, deviation: float, low: float, high: float) -> Callable[..., Any]:
    """Checks of numbers of two equal seeds and another one: equal, different; of that mean and deviation."""

    def wanted(*seeds: torch.Tensor) -> list[Callable[[np.ndarray], None]]:
        first: list[np.ndarray] = []

        def check(got: np.ndarray) -> None:
            first.append(got)
            assert np.array_equal(got, first[0]) == (len(first) < 3)
            assert low <= got.min() < got.max() <= high
            assert abs(got.mean() - mean) < 4 * deviation / got.size**0.5
            assert abs(got.std() - deviation) < 0.1 * deviation

        return [check] * 3

    return wanted


def _seeds_apart(seed: torch.Tensor) -> list[Callable[[np.ndarray], None]]:
    seen: set[bytes] = set()

    def check(got: np.ndarray) -> None:
        assert got.dtype == np.uint32 and got.tobytes() not in seen
        seen.add(got.tobytes())

    return [check] * 3


def _adam(m: torch.Tensor, v: torch.Tensor, w: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
    """With the correction of step + 1 and a decay of a tenth."""
    t = float(step) + 1
    return m / (1 - 0.9**t) / ((v / (1 - 0.99**t)).sqrt() + 1e-7) + 0.1 * w


def _remote(load: Callable[..., Any]) -> Callable[..., Any]:
    """An operand written to the second entry of a buffer, twice it to the first, and what `load` makes of that."""

    def program(f: Any, x: Any, *rest: Any) -> Any:
        buffer = popxl.remote_buffer((3, 4), popxl.float32, 2)
        ops.remote_store(buffer, 1, x)
        ops.remote_store(buffer, 0, x + x)
        return load(f, buffer, *rest)

    return program


def _stored(f: Any, x: Any) -> Any:
    buffer = popxl.remote_buffer((3, 4), popxl.float32, 2)
    f(buffer, 1, x)
    f(buffer, popxl.constant(0, popxl.uint32), x + x)
    return ops.remote_load(buffer, 0) + ops.remote_load(buffer, 1)


SEED, OTHER = whole(3, 4, dtype=np.uint32), whole(3, 5, dtype=np.uint32)
AT = whole(1, dtype=np.uint32)
PROBS = np.full((3, 4), 0.1, np.float32) + 0.6 * np.eye(4, dtype=np.float32)[[0, 2, 3]]
LABELS = whole(0, 2, 1)
CODES, NUMBERS = eights(4, 4)
IMAGES, IMAGE_NUMBERS = eights(1, 2, 4, 4)
KERNELS, KERNEL_NUMBERS = eights(2, 2, 2, 2)
TWO = (floats(3, 4), floats(3, 4))
FED = {"fed": floats(3, 4)}
ROI = np.array([[1.5, 0.5, 5.5, 4.5]], np.float32)


def _pick(x: torch.Tensor, i: torch.Tensor) -> torch.Tensor:
    return x[i.long()]


CASES: dict[str, Case] = {
    # element by element
    "abs": plain(torch.abs),
    "add": plain(torch.add, floats(3, 4), floats(4)),
    "add_": writes(lambda f, x, y: f(x, y), torch.add, floats(3, 4), floats(4)),
    "cos": plain(torch.cos),
    "div": plain(torch.div, floats(3, 4), positive(3, 4)),
    "equal": plain(torch.eq, whole(1, 2, 3).astype(np.float32), whole(1, 0, 3).astype(np.float32)),
    "exp": plain(torch.exp),
    "exp_": writes(lambda f, x: f(x), torch.exp),
    "fmod": plain(torch.fmod, 4 * floats(3, 4), positive(3, 4)),
    "gelu": plain(lambda x: nn.gelu(x, approximate="tanh"), rtol=1e-4),
    "gelu_": writes(lambda f, x: f(x), lambda x: nn.gelu(x, approximate="tanh"), rtol=1e-4),
    "greater": plain(torch.gt, floats(3, 4), floats(3, 4)),
    "increment_mod": Case(lambda f, x: f(x, 2, 5), lambda x: (x + 2) % 5, (whole(0, 3, 4),)),
    "increment_mod_": writes(lambda f, x: f(x, 2, 5), lambda x: (x + 2) % 5, whole(0, 3, 4)),
    "log": plain(torch.log, positive(3, 4)),
    "logical_and": plain(torch.logical_and, whole(0, 1, 1).astype(bool), whole(1, 0, 1).astype(bool)),
    "logical_not": plain(torch.logical_not, whole(0, 1, 1).astype(bool)),
    "logical_or": plain(torch.logical_or, whole(0, 1, 0).astype(bool), whole(1, 0, 0).astype(bool)),
    "maximum": Case(lambda f, *xs: f(*xs), lambda x, y, z: x.maximum(y).maximum(z), [floats(3, 4) for _ in range(3)]),
    "mul": plain(torch.mul, floats(3, 4), floats(3, 1)),
    "negate": plain(torch.neg),
    "relu": plain(torch.relu),
    "relu_": writes(lambda f, x: f(x), torch.relu),
    "scaled_add": Case(lambda f, x, y: f(x, y, 2.0, -0.5), lambda x, y: 2 * x - y / 2, (floats(3, 4), floats(3, 4))),
    "scaled_add_": writes(lambda f, x, y: f(x, y, 2.0, -0.5), lambda x, y: 2 * x - y / 2, floats(3, 4), floats(3, 4)),
    "sin": plain(torch.sin),
    "sqrt": plain(torch.sqrt, positive(3, 4)),
    "sub": plain(torch.sub, floats(3, 4), floats(3, 4)),
    "swish": plain(nn.silu),
    "swish_": writes(lambda f, x: f(x), nn.silu),
    "tanh": plain(torch.tanh),
    "where": plain(lambda c, x, y: torch.where(c, x, y), whole(0, 1, 0, 1).astype(bool), floats(3, 4), floats(3, 4)),
    # reductions
    "argmax": Case(lambda f, x: f(x, 1), lambda x: x.argmax(1)),
    "argmin": Case(lambda f, x: f(x, 1, True), lambda x: x.argmin(1, keepdim=True)),
    "cumsum": Case(lambda f, x: f(x, 1), lambda x: x.cumsum(1)),
    "histogram": Case(
        lambda f, x: f(x, [-1.0, 0.0, 1.0], False),
        lambda x: whole(1, 2, 1, 2),
        (whole(-2, -1, -0.5, 0.5, 1, 2, dtype=np.float32),),
    ),
    "l1": Case(lambda f, x: f(x, 1), lambda x: x.abs().sum(1)),
    "l2": Case(lambda f, x: f(x, 0, True), lambda x: x.norm(dim=0, keepdim=True)),
    "lamb_square": plain(lambda x: x.square().sum()),
    "logsum": Case(lambda f, x: f(x, 1), lambda x: x.sum(1).log(), (positive(3, 4),)),
    "logsumexp": Case(lambda f, x: f(x, 1), lambda x: x.logsumexp(1)),
    "max": Case(lambda f, x: f(x, [0, -1]), lambda x: x.amax((0, 2)), (floats(2, 3, 4),)),
    "mean": Case(lambda f, x: f(x, [0, -1]), lambda x: x.mean((0, 2)), (floats(2, 3, 4),)),
    "median": Case(lambda f, x: f(x, 1), lambda x: x.median(1).values),
    "min": Case(lambda f, x: f(x, [0, -1]), lambda x: x.amin((0, 2)), (floats(2, 3, 4),)),
    "prod": Case(lambda f, x: f(x, 1), lambda x: x.prod(1)),
    "softmax": Case(lambda f, x: f(x, 0), lambda x: x.softmax(0)),
    "sum": Case(lambda f, x: f(x, [0, -1], True), lambda x: x.sum((0, 2), keepdim=True), (floats(2, 3, 4),)),
    "sumsquare": Case(lambda f, x: f(x, 0), lambda x: x.square().sum(0)),
    "topk": Case(lambda f, x: f(x, 2, 1, True, True), lambda x: tuple(x.topk(2, 1))),
    # products and layers
    "average_pool": Case(
        lambda f, x: f(x, (2, 2), (1, 2), (0, 0, 0, 0)), lambda x: nn.avg_pool2d(x, 2, (1, 2)), (floats(1, 2, 6, 6),)
    ),
    "batch_norm_inference": plain(
        lambda x, w, b, m, v: nn.batch_norm(x, m, v, w, b),
        floats(1, 2, 3, 3),
        floats(2),
        floats(2),
        floats(2),
        positive(2),
        rtol=1e-4,
    ),
    "conv": Case(
        lambda f, x: f(x, popxl.constant(KERNEL_NUMBERS), (2, 1), (1, 0, 0, 1)),
        lambda x: nn.conv2d(nn.pad(x, (0, 1, 1, 0)), torch.from_numpy(KERNEL_NUMBERS).double(), stride=(2, 1)),
        (floats(1, 2, 6, 6),),
    ),
    "conv_pow2scaled": Case(
        lambda f, x, w: f(x, w, 1),
        lambda x, w: 2 * nn.conv2d(torch.from_numpy(IMAGE_NUMBERS), torch.from_numpy(KERNEL_NUMBERS)),
        (IMAGES, KERNELS),
        rtol=1e-3,
    ),
    "conv_transpose": Case(
        lambda f, x, w: f(x, w, (2, 2)),
        lambda x, w: nn.conv_transpose2d(x, w, stride=2),
        (floats(1, 2, 3, 3), floats(2, 2, 2, 2)),
    ),
    "conv_transpose_pow2scaled": Case(
        lambda f, x, w: f(x, w, 1),
        lambda x, w: 2 * nn.conv_transpose2d(torch.from_numpy(IMAGE_NUMBERS), torch.from_numpy(KERNEL_NUMBERS)),
        (IMAGES, KERNELS),
        rtol=1e-3,
    ),
    "group_norm": Case(
        lambda f, x, w, b: f(x, w, b, 2),
        lambda x, w, b: nn.group_norm(x, 2, w, b),
        (floats(3, 4), floats(4), floats(4)),
        rtol=1e-3,
    ),
    "interpolate": Case(
        lambda f, x: f(x, (1.0, 1.0, 2.0, 2.0), "linear"),
        lambda x: nn.interpolate(x, scale_factor=2.0, mode="bilinear"),
        (floats(1, 2, 3, 3),),
    ),
    "layer_norm": plain(lambda x, w, b: nn.layer_norm(x, (4,), w, b), floats(3, 4), floats(4), floats(4), rtol=1e-3),
    "matmul": plain(torch.matmul, floats(2, 3, 4), floats(4, 5)),
    "matmul_pow2scaled": Case(
        lambda f, x, y: f(x, y, -1), lambda x, y: NUMBERS @ NUMBERS / 2, (CODES, CODES), rtol=1e-3
    ),
    "max_pool": Case(lambda f, x: f(x, (2, 2), (2, 1)), lambda x: nn.max_pool2d(x, 2, (2, 1)), (floats(1, 2, 6, 6),)),
    "nll_loss": Case(
        lambda f, x, i: f(x, i, 2), lambda x, i: nn.nll_loss(x.log(), i.long(), ignore_index=2), (PROBS, LABELS)
    ),
    "nll_loss_with_softmax_grad": Case(
        lambda f, x, i: f(x, i),
        lambda x, i: (nn.nll_loss(x.log(), i.long()), (x - nn.one_hot(i.long(), 4)) / 3),
        (PROBS, LABELS),
    ),
    "roi_align": Case(
        lambda f, x, r, i: f(x, r, i, (2, 2), 1.0, 1),
        lambda x, r, i: sum(x[:, :, a : a + 4 : 2, b : b + 4 : 2] for a in (1, 2) for b in (2, 3)) / 4,
        (floats(1, 2, 6, 6), ROI, whole(0)),
    ),
    # moves
    "cast": Case(lambda f, x: f(x, popxl.float32), lambda x: x, (whole(1, 0, 1).astype(bool),)),
    "cast_then_pow2scale": Case(lambda f, x: f(x, 2, popxl.float32), lambda x: NUMBERS * 4, (CODES,)),
    "concat": Case(lambda f, x, y: f([x, y], 1), lambda x, y: torch.cat([x, y], 1), (floats(3, 4), floats(3, 2))),
    "concat_": Case(lambda f, x, y: f([x, y], 1), lambda x, y: torch.cat([x, y], 1), (floats(3, 4), floats(3, 2))),
    "detach": plain(lambda x: x),
    "detach_": views(lambda f, x: f(x), lambda x: x),
    "flatten": plain(torch.flatten),
    "flatten_": views(lambda f, x: f(x), lambda x: x.view(-1)),
    "init": Case(lambda f: f((3, 4), popxl.float32), lambda: np.zeros((3, 4)), ()),
    "io_tile_copy": plain(lambda x: x),
    "ipu_copy": Case(lambda f, x: f(x, 1, 0), lambda x: x),
    "pow2scale_then_cast": Case(
        lambda f, x: ops.cast_then_pow2scale(f(x, 1, popxl.float8_143), -1, popxl.float32), lambda x: x, (NUMBERS,)
    ),
    "reshape": Case(lambda f, x: f(x, (2, -1)), lambda x: x.reshape(2, 6)),
    "reshape_": views(lambda f, x: f(x, (2, -1)), lambda x: x.view(2, 6)),
    "slice": Case(lambda f, x: f(x, [0, 3], [2, 0], [1, -1], [0, 1]), lambda x: x[:2].flip(1)[:, :3]),
    "slice_": views(lambda f, x: f(x, [1], [3], [1], [1]), lambda x: x[:, 1:3]),
    "split": Case(lambda f, x: f(x, [1, 3], 1), lambda x: x.split([1, 3], 1)),
    "squeeze": Case(lambda f, x: f(x, [1]), lambda x: x.squeeze(1), (floats(3, 1, 4, 1),)),
    "subsample": Case(lambda f, x: f(x, [2, 3]), lambda x: x[::2, ::3]),
    "transpose": Case(lambda f, x: f(x, (2, 0, 1)), lambda x: x.permute(2, 0, 1), (floats(2, 3, 4),)),
    "transpose_": views(lambda f, x: f(x), lambda x: x.T),
    # picks
    "dynamic_slice": Case(lambda f, x, i: f(x, i, [0], [2], True), lambda x, i: x[1:3], (floats(3, 4), AT)),
    "dynamic_update": Case(
        lambda f, x, i, y: f(x, i, y, [0], [2], True),
        lambda x, i, y: torch.cat([x[:1], y]),
        (floats(3, 4), AT, floats(2, 4)),
    ),
    "dynamic_update_": writes(
        lambda f, x, i, y: f(x, i, y, [0], [2], True),
        lambda x, i, y: torch.cat([x[:1], y]),
        floats(3, 4),
        AT,
        floats(2, 4),
    ),
    "gather": plain(_pick, floats(3, 4), whole(2, 0, 2)),
    "onehot": Case(
        lambda f, i, v: f(i, popxl.constant(4, popxl.int32), v, 1),
        lambda i, v: torch.where(nn.one_hot(i.long(), 4) > 0, v[1], v[0]),
        (LABELS, np.array([-1, 2], np.float32)),
    ),
    "scatter": Case(
        lambda f, x, i, v: f(x, i, v, 0),
        lambda x, i, v: x.scatter(0, i.long(), v),
        (floats(3, 4), whole([2, 0, 1, 2]), floats(1, 4)),
    ),
    "scatter_reduce": Case(
        lambda f, x, i: f(x, i, "sum", axis=0, axis_size=4),
        lambda x, i: torch.zeros(4, 4).double().index_add(0, i.long(), x),
        (floats(3, 4), whole(2, 0, 2)),
    ),
    "tied_gather": plain(_pick, floats(3, 4), whole(2, 0, 2)),
    # random numbers
    "dropout": Case(lambda f, x, s: f(x, s, 0.5), _bernoulli, (positive(64, 32), SEED)),
    "random_normal": Case(
        lambda f, *seeds: [f(s, (64, 64), 1.0, 2.0) for s in seeds], _spread(1, 2, -12, 12), (SEED, SEED, OTHER)
    ),
    "random_uniform": Case(
        lambda f, *seeds: [f(s, (64, 64), 1.0, 3.0) for s in seeds], _spread(2, 2 / 12**0.5, 1, 3), (SEED, SEED, OTHER)
    ),
    "shaped_dropout": Case(lambda f, x, s: f(x, s, (64, 1), 0.5), _rows_dropped, (positive(64, 3), SEED)),
    "split_random_seed": Case(lambda f, s: f(s, 3), _seeds_apart, (SEED,)),
    # control
    "call": Case(
        lambda f, x, y: f(_graph(lambda a, b: ops.tanh(a + b), x, y), x, y),
        lambda x, y: (x + y).tanh(),
        (floats(3, 4), floats(3, 4)),
    ),
    "call_with_info": Case(lambda f, x: f(_graph(lambda a: (a + a, a * a), x), x).outputs, lambda x: (x + x, x * x)),
    "conditional": Case(
        lambda f, c, x: f(c, _graph(lambda a: a + a, x), _graph(lambda a: a * a, x), [x], [x]),
        lambda c, x: x * x,
        (np.array(False), floats(3, 4)),
    ),
    "conditional_with_info": Case(
        lambda f, c, x: f(c, _graph(lambda a: a + a, x), _graph(lambda a: a * a, x), [x], [x]).outputs,
        lambda c, x: x + x,
        (np.array(True), floats(3, 4)),
    ),
    "host_load": Case(lambda f: f(popxl.h2d_stream((3, 4), popxl.float32, "fed")), lambda: FED["fed"], ()),
    "host_store": Case(lambda f, x: f(popxl.d2h_stream((3, 4), popxl.float32, "told"), x + x), lambda x: ()),
    "print_tensor": Case(lambda f, x: f(x, title="shown"), lambda x: x),
    "remote_load": Case(
        _remote(lambda f, buffer: (f(buffer, 1), f(buffer, popxl.constant(0, popxl.uint32)))), lambda x: (x, x + x)
    ),
    "remote_load_": Case(
        _remote(lambda f, buffer, y: (f(buffer, 0, y), y)), lambda x, y: (x + x, x + x), (floats(3, 4), floats(3, 4))
    ),
    "remote_store": Case(_stored, lambda x: 3 * x),
    "repeat": Case(
        lambda f, x, y: f(_graph(lambda a, b: a * b + b, x, y), 3, x, y),
        lambda x, y: ((x * y + y) * y + y) * y + y,
        (floats(3, 4), floats(3, 4)),
    ),
    "repeat_with_info": Case(lambda f, x: f(_graph(lambda a: a + a, x), 3, x).outputs, lambda x: 8 * x),
    # IPUs of one replica, and replicas
    "collectives.all_reduce": Case(lambda f, x, y: f([x, y], [0, 1]), lambda x, y: (x + y, x + y), TWO),
    "collectives.all_reduce_identical_grad_inputs": Case(
        lambda f, x, y: f([x, y], [0, 1]), lambda x, y: (x + y, x + y), TWO
    ),
    "collectives.all_reduce_identical_inputs": Case(
        lambda f, x, y: f([x, y], [0, 1]), lambda x, y: (x, y), (TWO[0], TWO[0].copy())
    ),
    "collectives.replica_sharded_slice": between(
        lambda f, x: f(x), lambda x: torch.stack([x[0].flatten()[:6], x[1].flatten()[6:]])
    ),
    "collectives.replicated_all_gather": between(
        lambda f, x: f(x, 1), lambda x: torch.cat([x[0], x[1]], 1).expand(2, 4, 6)
    ),
    "collectives.replicated_all_reduce": between(lambda f, x: f(x, "max"), lambda x: x.amax(0).expand(2, 4, 3)),
    "collectives.replicated_all_reduce_": between(
        lambda f, x: f(x), lambda x: x.sum(0).expand(2, 4, 3), lambda x: x.sum(0).expand(2, 4, 3)
    ),
    "collectives.replicated_reduce_scatter": between(lambda f, x: f(x, "mean"), lambda x: x.mean(0).reshape(2, 6)),
    "collectives.replicated_slice": between(lambda f, x: f(x), lambda x: torch.stack([x[0, :2], x[1, 2:]])),
    # updates of variables
    "var_updates.accumulate_": writes(lambda f, x, y: f(x, y, 0.5), lambda x, y: x + y / 2, floats(3, 4), floats(3, 4)),
    "var_updates.accumulate_mean_": writes(
        lambda f, x, y, n: f(x, y, n),
        lambda x, y, n: (3 * x + y) / 4,
        floats(3, 4),
        floats(3, 4),
        np.array(3, np.float32),
    ),
    "var_updates.accumulate_moving_average_": writes(
        lambda f, x, y: f(x, y, 0.9), lambda x, y: 0.9 * x + 0.1 * y, floats(3, 4), floats(3, 4)
    ),
    "var_updates.accumulate_moving_average_square_": writes(
        lambda f, x, y: f(x, y, 0.9), lambda x, y: 0.9 * x + 0.1 * y * y, floats(3, 4), floats(3, 4)
    ),
    "var_updates.accumulate_square_": writes(
        lambda f, x, y: f(x, y, 0.5), lambda x, y: x + y * y / 2, floats(3, 4), floats(3, 4)
    ),
    "var_updates.accumulator_scale_": writes(lambda f, x: f(x, 0.25), lambda x: x / 4),
    "var_updates.accumulator_zero_": writes(lambda f, x: f(x), lambda x: 0 * x),
    "var_updates.adam_updater": Case(
        lambda f, m, v, w, t: f(m, v, w, t, 0.1, 0.9, 0.99),
        _adam,
        (floats(3, 4), positive(3, 4), floats(3, 4), np.array(2, np.float32)),
        rtol=1e-4,
    ),
    "var_updates.adam_var_update": writes(
        lambda f, x, d, a, b: f(x, d, a, b, 0.1, 10.0),
        lambda x, d, a, b: x - 0.1 * (2.0 / 3.0) * d,
        floats(3, 4),
        floats(3, 4),
        np.array(4, np.float32),
        np.array(9, np.float32),
    ),
    "var_updates.adamax_updater": Case(
        lambda f, m, v, t: f(m, v, time_step=t, beta1=0.9),
        lambda m, v, t: m / (1 - 0.9 ** (float(t) + 1)) / (v + 1e-7),
        (floats(3, 4), positive(3, 4), np.array(2, np.float32)),
        rtol=1e-4,
    ),
    "var_updates.copy_var_update_": writes(lambda f, x, y: f(x, y), lambda x, y: y, floats(3, 4), floats(3, 4)),
    "var_updates.lamb_updater": Case(
        lambda f, m, v: f(m, v), lambda m, v: m / (v.sqrt() + 1e-7), (floats(3, 4), positive(3, 4)), rtol=1e-4
    ),
    "var_updates.sparse_accumulate_": writes(
        lambda f, x, y, i: f(x, y, i, 0, 0.5),
        lambda x, y, i: x.index_add(0, i.long(), y / 2),
        floats(3, 4),
        floats(3, 4),
        whole(2, 0, 2),
    ),
}

PER_PROGRAM = 12


def _programs() -> dict[str, tuple[str, ...]]:
    """By function those of its program: a few of one number of replicas, and of one place by the table."""
    said = {name: where.split(" ")[0].strip(":,") for name, where in TABLE}
    kinds: dict[tuple[int, str], list[str]] = {}
    for name, case in CASES.items():
        kinds.setdefault((case.replicas, said[name]), []).append(name)
    parts = [tuple(names[k : k + PER_PROGRAM]) for names in kinds.values() for k in range(0, len(names), PER_PROGRAM)]
    return {name: part for part in parts for name in part}


@dataclasses.dataclass
class Run:
    """What a program gave, by function: results, the first operand afterwards; the ops that its call made and what
    became of every op; streams of the program's own; what it printed."""

    results: dict[str, list[np.ndarray]]
    operands: dict[str, np.ndarray]
    ops: dict[str, list[Op]]
    entries: dict[Op, Any]
    streams: dict[str, np.ndarray]
    printed: str


def _watched(function: Callable[..., Any], graph: Any, made: list[Op]) -> Callable[..., Any]:
    """The function; `made` gets the ops that it adds to the graph."""

    def called(*args: Any, **kwargs: Any) -> Any:
        hook = graph.register_op_created_hook(made.append)
        try:
            return function(*args, **kwargs)
        finally:
            graph.remove_op_created_hook(hook)

    return called


@functools.cache
def run(names: tuple[str, ...]) -> Run:
    replicas = CASES[names[0]].replicas
    ir = popxl.Ir(replicas)
    own = ir.replica_grouping(group_size=1)
    results: dict[str, list[Any]] = {}
    operands: dict[str, Any] = {}
    made: dict[str, list[Op]] = {}
    with ir.main_graph, popxl.in_sequence():
        for name in names:
            grouping = own if replicas > 1 else None
            ins = [popxl.variable(a, replica_grouping=grouping) for a in CASES[name].operands]
            made[name] = []
            found = functools.reduce(getattr, name.split("."), ops)
            gave = CASES[name].program(_watched(found, ir.main_graph, made[name]), *ins)
            gave = [gave] if isinstance(gave, popxl.Tensor) else [] if gave is None else list(gave)
            results[name] = [popxl.d2h_stream(t.shape, t.dtype) for t in gave]
            for stream, t in zip(results[name], gave, strict=True):
                ops.host_store(stream, t)
            operands[name] = ins[0] if ins else None
    before = executable.SETTINGS
    popxl.options(balancer_policy="MinimizeGrid")  # half the time; what an op means does not hang on its place
    fed = {s: FED[s.tensor_id] for s in ir.get_all_h2d_streams()}
    with contextlib.redirect_stderr(io.StringIO()) as printed, popxl.Session(ir, "ipu_model") as session:
        got = session.run(fed)
        after = {name: session.get_tensor_data(v) for name, v in operands.items() if v is not None}
    executable.SETTINGS = before
    return Run(
        {name: [got[s] for s in streams] for name, streams in results.items()},
        after,
        made,
        entries_by_op(session.executable.blocks, session.executable.folded),
        {s.tensor_id: array for s, array in got.items()},
        printed.getvalue(),
    )


def _as_oracle(array: np.ndarray) -> Any:
    if array.dtype.names:
        return array
    tensor = torch.from_numpy(np.array(array).astype(np.int64) if array.dtype == np.uint32 else np.array(array))
    return tensor.double() if tensor.is_floating_point() else tensor


def _compare(got: np.ndarray, wanted: Any, rtol: float) -> None:
    if callable(wanted):
        wanted(got)
        return
    array = np.asarray(wanted)
    assert got.shape == array.shape
    np.testing.assert_allclose(got.astype(np.float64), array.astype(np.float64), rtol, rtol)


@pytest.mark.parametrize("name", CASES)
def test_a_function_gives_what_its_oracle_does(name: str) -> None:
    case, ran = CASES[name], run(_programs()[name])
    operands = [_as_oracle(a) for a in case.operands]
    wanted = case.wanted(*operands)
    several = wanted if isinstance(wanted, list | tuple) else [wanted]
    assert len(several) == len(ran.results[name])
    for got, one in zip(ran.results[name], several, strict=True):
        _compare(got, one, case.rtol)
    if operands:
        after = operands[0] if case.after is None else case.after(*operands)
        if case.operands[0].dtype.names:
            assert np.array_equal(ran.operands[name], case.operands[0])
        else:
            _compare(ran.operands[name], after, case.rtol if case.after else 0)


def _graphs(ops: Sequence[Op]) -> list[Any]:
    """The graphs that calls lead to."""
    found = [g for op in ops for g in op.calls]
    for g in found:
        found += [inner for inner in g.called_graphs if all(inner is not other for other in found)]
    return found


WORDS = {"grid": {"grid", "decomposed"}, "decomposed": {"decomposed"}, "host": {"host"}, "program": {"program"}}


@pytest.mark.parametrize(("name", "where"), TABLE, ids=[name for name, _ in TABLE])
def test_a_function_runs_where_the_table_says(name: str, where: str) -> None:
    """Every op that the function made, and that is read: in the netlist, on the host for the reason that the table has,
    in the host program, or nowhere. Of a call what it calls."""
    ran = run(_programs()[name])
    made = ran.ops[name]
    assert made
    said = where.split(" ")[0].strip(":,")
    entries = [ran.entries[op] for op in made if op in ran.entries]
    if graphs := _graphs(made):
        inside = [e.kind for op, e in ran.entries.items() if not op.calls and any(op.graph is g for g in graphs)]
        assert inside and set(inside) <= WORDS["grid"]
        assert {e.kind for e in entries} <= {"program", *WORDS[said]}
    elif said == "no":
        assert not entries
    else:
        assert entries and {e.kind for e in entries} <= WORDS[said]
        if where.startswith("host: "):
            assert {e.reason for e in entries} == {where.removeprefix("host: ")}


def test_every_function_has_a_case() -> None:
    assert sorted(CASES) == sorted(name for name, _ in TABLE)


def test_a_printed_tensor_and_a_stored_one_are_seen() -> None:
    assert "shown" in run(_programs()["print_tensor"]).printed
    stored = run(_programs()["host_store"]).streams["told"]
    np.testing.assert_allclose(stored, 2 * CASES["host_store"].operands[0])
