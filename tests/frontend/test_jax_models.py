"""JAX functions through our importer against JAX itself on the CPU."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.errors import ModelError, UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.aten.call import CannotMap, ReadArguments
from tbuda_lab.core.frontend.jax_model import from_jax
from tbuda_lab.core.frontend.jax_model.primitives import SAYS_NOTHING, SAYS_NOTHING_HERE, Equation, refuse_unread
from tbuda_lab.core.frontend.jax_model.primitives import TABLE as PRIMITIVES
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tbuda_lab.pybuda.module import JaxModule

jax = pytest.importorskip("jax")
jnp, lax, nn = jax.numpy, jax.lax, jax.nn
RNG = np.random.default_rng(0)


def r(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


W, K, TABLE = r(16, 16), r(3, 3, 4, 6), r(20, 8)
X, IMG = r(1, 6, 16), r(1, 9, 11, 4)
PARAMS = {"layers": [{"w": r(16, 32), "b": r(32)}, {"w": r(32, 16), "b": r(16)}]}


def mlp(params: Any, x: Any) -> Any:
    for k, layer in enumerate(params["layers"]):
        with jax.named_scope(f"layer{k}"):
            x = nn.gelu(x @ layer["w"] + layer["b"])
    return x


def attention(x: Any) -> Any:
    q, k, v = (jnp.moveaxis((x @ w).reshape(1, 6, 4, 4), 2, 1) for w in (W, W * 0.5, W.T))
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k) / 2.0
    mask = jnp.tril(jnp.ones((6, 6), bool))
    y = jnp.einsum("bhqk,bhkd->bhqd", nn.softmax(jnp.where(mask, scores, -1e9)), v)
    return jnp.moveaxis(y, 1, 2).reshape(1, 6, 16)


def normed(x: Any) -> Any:
    return (x - x.mean(-1, keepdims=True)) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5)


def conv(x: Any) -> Any:
    return lax.conv_general_dilated(x, K, (2, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def up(x: Any) -> Any:
    return lax.conv_transpose(x, r(2, 2, 4, 4) * 0 + K[:2, :2, :, :4], (2, 2), "VALID")


def pool(x: Any) -> Any:
    return lax.reduce_window(x, -jnp.inf, lax.max, (1, 3, 2, 1), (1, 2, 2, 1), "SAME")


def mean_pool(x: Any) -> Any:
    return lax.reduce_window(x, 0.0, lax.add, (1, 2, 2, 1), (1, 2, 2, 1), "VALID") / 4


def loop(x: Any) -> Any:
    return lax.scan(lambda h, v: (jnp.tanh(h @ W + v), h.sum(-1)), jnp.zeros((1, 16)), jnp.moveaxis(x, 1, 0))


CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...]]] = {
    "attention": (attention, (X,)),
    "layer norm": (normed, (X,)),
    "conv": (conv, (IMG,)),
    "conv transpose": (up, (IMG,)),
    "max pool": (pool, (IMG,)),
    "mean pool": (mean_pool, (IMG,)),
    "scan": (loop, (X,)),
    "embedding": (lambda i: jnp.asarray(TABLE)[i], (np.array([[1, 4, 19]], np.int32),)),
    "take": (lambda x: jnp.take(x, jnp.array([3, 0]), axis=1), (X,)),
    "relu": (nn.relu, (X,)),
    "silu": (nn.silu, (X,)),
    "elu": (nn.elu, (X,)),
    "softplus": (nn.softplus, (X,)),
    "log softmax": (nn.log_softmax, (X,)),
    "clip": (lambda x: jnp.clip(x, -0.5, 1.0), (X,)),
    "slices": (lambda x: jnp.concatenate([x[:, ::2], x[:, 1:3, ::-1]], 1), (X,)),
    "update": (lambda x: lax.dynamic_update_slice(x, jnp.ones((1, 2, 16)), (0, 2, 0)), (X,)),
    "pad": (lambda x: jnp.pad(x, ((0, 0), (1, 2), (0, 3))), (X,)),
    "powers": (lambda x: x**3 + jnp.abs(x) ** 0.5, (X,)),
    "argmax": (lambda x: jnp.argmax(x, -1), (X,)),
    "cumsum": (lambda x: jnp.cumsum(x, 1), (X,)),
    "erf": (lambda x: nn.gelu(x, approximate=False), (X,)),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (X,)),
    "logsumexp": (lambda x: nn.logsumexp(x, -1, b=jnp.abs(x)), (X,)),
    "whole powers": (lambda x: jnp.vander(x[0, 0], 4), (X,)),
    "running extreme": (lambda x: lax.cummax(x, 1, reverse=True), (X,)),
    "argsort": (jnp.argsort, (X,)),
    "take clipped": (lambda x, i: jnp.take(x, i, axis=0, mode="clip"), (X, np.array([7, -9, 1], np.int32))),
    "take wrapped": (lambda x, i: jnp.take(x, i, axis=0, mode="wrap"), (X, np.array([7, -9, 1], np.int32))),
    "take along": (lambda x: jnp.take_along_axis(x, jnp.argsort(-x, -1), -1), (X,)),
    "diagonal": (lambda x: jnp.diagonal(x, 1, 1, 2), (X,)),
    "set": (lambda x: x.at[:, jnp.array([1, 3])].set(0.5), (X,)),
    "scaled": (lambda x: x.at[:, :, 2].multiply(3.0), (X,)),
    "segments": (lambda x: jax.ops.segment_sum(x[0], jnp.array([0, 0, 1, 1, 2, 7]), 3), (X,)),
    "loop of known turns": (
        lambda x: lax.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, c[1] * 0.5), (0, x))[1],
        (X,),
    ),
    "fixed random numbers": (lambda x: x + jax.random.normal(jax.random.key(7), x.shape), (X,)),
    "round away": (lambda x: lax.round(x * 4) + lax.round(jnp.array([-2.5, -0.5, 0.5, 0.49999997])).sum(), (X,)),
    "round to even": (lambda x: jnp.round(x * 4) + jnp.round(jnp.array([-2.5, -0.5, 0.5, 1.5])).sum(), (X,)),
    "bfloat16 and back": (lambda x: lax.reduce_precision(x, 8, 7), (X,)),
    "float16 and back": (lambda x: lax.reduce_precision(x, 5, 10), (X,)),
    "named sum": (jax.vmap(lambda r: r - lax.pmean(r, "rows"), axis_name="rows"), (X,)),
    "stack and tile": (lambda x: jnp.tile(jnp.stack([x, -x], 1), (1, 1, 2, 1)), (X,)),
    "gamma": (lambda x: lax.lgamma(jnp.abs(x) + 1.0) + lax.erf_inv(jnp.tanh(x) * 0.9), (X,)),
    "solve": (lambda x: jnp.linalg.solve(x[0, :, :6] + 4 * jnp.eye(6), x[0, :, 6:9]), (X,)),
    "determinant": (lambda x: jnp.linalg.det(x[0, :4, :4]), (X,)),
    "cholesky": (lambda x: jnp.linalg.cholesky(x[0] @ x[0].T + jnp.eye(6)), (X,)),
    "singular values": (lambda x: jnp.linalg.svd(x[0], compute_uv=False), (X,)),
    "filter": (lambda x: jnp.fft.irfft(jnp.fft.rfft(x) * jnp.arange(9.0), n=16), (X,)),
    "spectrum": (lambda x: jnp.abs(jnp.conj(jnp.fft.fft2(x)) + 2.0) + jnp.imag(jnp.fft.ifft(x)), (X,)),
    "short floats": (lambda x: (x.astype(jnp.bfloat16) * 2).astype(jnp.float32) * 0 + x, (X,)),
    "jit": (jax.jit(lambda x: jnp.where(x > 0, x, 0.1 * x).sum(1)), (X,)),
}


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_jax(name: str) -> None:
    function, inputs = CASES[name]
    graph = from_jax(function, inputs)
    feeds = dict(zip((n.name for n in graph.inputs), (torch.from_numpy(x) for x in inputs), strict=True))
    got = list(evaluate(graph, feeds).values())
    want = jax.tree_util.tree_leaves(function(*map(jnp.asarray, inputs)))
    for g, w in zip(got, want, strict=True):
        assert tuple(g.shape) == w.shape
        np.testing.assert_allclose(g.numpy(), np.asarray(w), rtol=2e-4, atol=2e-5)


def test_weights_and_scopes_keep_their_names() -> None:
    graph = from_jax(mlp, (X,), PARAMS)
    names = {n.name for n in graph if n.value is not None}
    assert {"layers.0.w", "layers.0.b", "layers.1.w", "layers.1.b"} <= names
    assert {n.origin.module for n in graph.ops} >= {"layer0", "layer1"}
    assert any("test_jax_models.py" in n.origin.location for n in graph.ops)


@pytest.mark.e2e
def test_a_module_on_the_grid() -> None:
    module = JaxModule("mlp", mlp, params=PARAMS)
    session = Session(module, (torch.from_numpy(X),), options=CompileOptions(default_df_override=DataFormat.Float32))
    (got,), (want,) = session.run()[0], frontend.reference(module, (torch.from_numpy(X),))
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    ("function", "ops"),
    [
        (lambda x: nn.gelu(2 * x, approximate=False), {"gelu", "multiply"}),
        (lambda x: nn.gelu(2 * x), {"gelu", "multiply"}),
        (lambda x: x * 0.5 * lax.erfc(x * 0.70710678), None),  # of the other sign: no gelu
    ],
)
def test_gelu_as_jax_writes_it_is_the_devices(function: Any, ops: set[str] | None) -> None:
    session = Session(JaxModule("gelu", function), (torch.from_numpy(X),))
    session.compile("passed")
    used = {n.op.type for n in session.graph("passed").ops}
    assert used == ops if ops is not None else "gelu" not in used


def test_a_case_that_is_never_chosen_is_left_out() -> None:
    """jnp.var divides by a count and takes NaN if that is 0; times 0 it is NaN on the device."""
    session = Session(JaxModule("var", lambda x: x.var(-1, keepdims=True)), (torch.from_numpy(X),))
    (got,) = session.run()[0]
    np.testing.assert_allclose(got.numpy(), X.var(-1, keepdims=True), rtol=0.02)


@pytest.mark.e2e
@pytest.mark.parametrize(
    "function",
    [
        lambda x: nn.logsumexp(x, -1),
        lambda x: jnp.power(x, jnp.arange(16.0) % 4),  # a negative base has no logarithm
    ],
)
def test_what_jax_guards_runs_on_the_device_alone(function: Any) -> None:
    module = JaxModule("one", function)
    session = Session(module, (torch.from_numpy(X),), options=CompileOptions(default_df_override=DataFormat.Float32))
    (got,), (want,) = session.run()[0], frontend.reference(module, (torch.from_numpy(X),))
    torch.testing.assert_close(got, want, rtol=1e-3, atol=1e-3)


def test_the_logarithm_of_a_sum_of_exponentials_holds_infinities() -> None:
    """jax guards the maximum that it subtracts: rows with an infinity, and of minus infinities alone."""

    def sums(x: Any) -> Any:
        return nn.logsumexp(x, -1), nn.logsumexp(x, 0), nn.logsumexp(x), jnp.logaddexp(x[0], x[1])

    plain = np.array([[1, 2, 3], [0.5, -1, 2]], np.float32)
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session(JaxModule("sums", sums), (torch.from_numpy(plain),), options=options)
    for row in ([1, np.inf, 3], [-np.inf] * 3, [1, -np.inf, 3], [1, np.nan, 3], [3e38, 1, 2]):
        x = np.array([row, plain[1]], np.float32)
        for ours, jaxs in zip(session.run([(torch.from_numpy(x),)])[0], sums(x), strict=True):
            np.testing.assert_allclose(ours.numpy(), jaxs, rtol=1e-4)


def test_what_has_no_form_is_named_with_its_line() -> None:
    with pytest.raises(UnsupportedOp, match=r"test_jax_models\.py:\d+.*jax\.population_count"):
        from_jax(lambda x: lax.population_count(jnp.round(x).astype(jnp.int32)), (X,))
    with pytest.raises(UnsupportedOp, match="random numbers inside the model"):
        from_jax(lambda key: jax.random.normal(jax.random.wrap_key_data(key), (4,)), (np.array([1, 2], np.uint32),))
    with pytest.raises(UnsupportedOp, match=r"output .* is complex; return its real and imaginary parts"):
        from_jax(jnp.fft.fft, (X,))
    with pytest.raises(UnsupportedOp, match="how often the loop turns depends on an input"):
        from_jax(lambda x: lax.while_loop(lambda v: v.sum() < 9.0, lambda v: v + 1.0, x), (X,))
    with pytest.raises(ModelError, match="cannot trace"):
        from_jax(lambda x: x if x.sum() > 0 else -x, (X,))


def test_parameters_that_nothing_reads_are_refused() -> None:
    """Every primitive that is mapped: a parameter that no table knows, and one that its table says nothing of."""
    for kind in sorted(PRIMITIVES):
        known = {name: True for name in SAYS_NOTHING | SAYS_NOTHING_HERE.get(kind, set())}
        one = Equation(None, kind, ReadArguments({**known, "unheard": None, "of": False}), [], [])
        refuse_unread(one)
        one.params["novel"] = 3
        with pytest.raises(CannotMap, match="novel=3"):
            refuse_unread(one)
        assert one.params["novel"] == 3  # which reads it
        refuse_unread(one)
    with pytest.raises(UnsupportedOp, match="reduce_precision"):
        from_jax(lambda x: lax.reduce_precision(x, 5, 2), (X,))


def test_reading_is_heard_of() -> None:
    heard: list[str] = []
    frontend.from_any(JaxModule("mlp", mlp, params=PARAMS), (torch.from_numpy(X),), progress=heard.append)
    count = int(heard[0].split()[-1])
    assert heard[0] == f"op 1 of {count}" and f"op {count} of {count}" in heard
