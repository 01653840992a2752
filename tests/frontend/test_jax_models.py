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
from tbuda_lab.core.frontend.jax_model import from_jax
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tbuda_lab.runtime.modules import JaxModule

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
    "attention": (attention, (X,)), "layer norm": (normed, (X,)), "conv": (conv, (IMG,)),
    "conv transpose": (up, (IMG,)),
    "max pool": (pool, (IMG,)), "mean pool": (mean_pool, (IMG,)), "scan": (loop, (X,)),
    "embedding": (lambda i: jnp.asarray(TABLE)[i], (np.array([[1, 4, 19]], np.int32),)),
    "take": (lambda x: jnp.take(x, jnp.array([3, 0]), axis=1), (X,)),
    "relu": (nn.relu, (X,)), "silu": (nn.silu, (X,)), "elu": (nn.elu, (X,)), "softplus": (nn.softplus, (X,)),
    "log softmax": (nn.log_softmax, (X,)), "clip": (lambda x: jnp.clip(x, -0.5, 1.0), (X,)),
    "slices": (lambda x: jnp.concatenate([x[:, ::2], x[:, 1:3, ::-1]], 1), (X,)),
    "update": (lambda x: lax.dynamic_update_slice(x, jnp.ones((1, 2, 16)), (0, 2, 0)), (X,)),
    "pad": (lambda x: jnp.pad(x, ((0, 0), (1, 2), (0, 3))), (X,)), "powers": (lambda x: x**3 + jnp.abs(x) ** 0.5, (X,)),
    "argmax": (lambda x: jnp.argmax(x, -1), (X,)), "cumsum": (lambda x: jnp.cumsum(x, 1), (X,)),
    "erf": (lambda x: nn.gelu(x, approximate=False), (X,)),
    "cond": (lambda x: lax.cond(x.sum() > 0, jnp.sin, jnp.cos, x), (X,)),
    "jit": (jax.jit(lambda x: jnp.where(x > 0, x, 0.1 * x).sum(1)), (X,)),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_the_same_as_jax(name: str) -> None:
    function, inputs = CASES[name]
    graph = from_jax(function, inputs)
    feeds = dict(zip((n.name for n in graph.inputs), (torch.from_numpy(x) for x in inputs), strict=True))
    got = list(evaluate(graph, feeds).values())
    want = jax.tree_util.tree_leaves(function(*inputs))
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


def test_what_has_no_form_is_named_with_its_line() -> None:
    with pytest.raises(UnsupportedOp, match=r"jax\.(lu|eigh|cholesky).*"):
        from_jax(lambda x: jnp.linalg.cholesky(x), (np.eye(4, dtype=np.float32)[None],))
    with pytest.raises(ModelError, match="cannot trace"):
        from_jax(lambda x: x if x.sum() > 0 else -x, (X,))


def test_reading_is_heard_of() -> None:
    heard: list[str] = []
    frontend.from_any(JaxModule("mlp", mlp, params=PARAMS), (torch.from_numpy(X),), progress=heard.append)
    count = int(heard[0].split()[-1])
    assert heard[0] == f"op 1 of {count}" and f"op {count} of {count}" in heard
