"""Every mapped aten op: the imported graph, evaluated op by op, gives what torch gives; and so does the device."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from unittest import mock

import pytest
import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core import passes
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend import aten, feeds, from_torch, reference
from tbuda_lab.core.frontend.aten.host import mapping_of
from tbuda_lab.core.graph import REGISTRY, Graph
from tbuda_lab.core.graph.phases import DROPOUT, WRITES
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.evaluate import evaluate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import Session
from tests.e2e.references import pcc
from tests.frontend.ops_zoo import CASES, SAFE_SOFTMAX, Fn

IDS = [case[0] for case in CASES]


def _eager(module: torch.nn.Module, inputs: tuple[torch.Tensor, ...]) -> list[torch.Tensor]:
    with torch.no_grad():
        leaves = pytree.tree_leaves(module(*inputs))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]


Imported = tuple[torch.nn.Module, Graph, frozenset[object]]


@functools.cache
def imported(number: int) -> Imported:
    """The module of a case, its graph, and the mappings that were looked up on the way."""
    _, function, inputs = CASES[number]
    module = (function if isinstance(function, torch.nn.Module) else Fn(function)).eval()
    for buffer_name, buffer in module.named_buffers():
        if buffer.is_floating_point():
            buffer.uniform_(0.5, 1.5) if "var" in buffer_name else buffer.uniform_(-0.5, 0.5)
    _eager(module, inputs)  # what a forward imports is imported here: during a trace transformers registers no outputs
    reached: set[object] = set()

    def watched(target: object) -> object:
        mapping = mapping_of(target)
        reached.add(mapping)
        return mapping

    with mock.patch("tbuda_lab.core.frontend.torch_model.importer.mapping_of", watched):
        return module, from_torch(module, inputs), frozenset(reached)


@pytest.mark.parametrize("number", range(len(CASES)), ids=IDS)
def test_import_agrees_with_torch(number: int) -> None:
    inputs = CASES[number][2]
    module, graph, _ = imported(number)
    want = _eager(module, inputs)
    got = list(evaluate(graph, feeds(graph, inputs)).values())
    assert len(got) == len(want)
    for w, g in zip(want, got, strict=True):
        assert tuple(g.shape) == tuple(w.shape)
        torch.testing.assert_close(g.float(), w.float(), rtol=1e-5, atol=2e-5)


@pytest.mark.e2e
@pytest.mark.parametrize("number", range(len(CASES)), ids=IDS)
def test_the_device_agrees_with_torch(number: int) -> None:
    """Alone through the whole pipeline, in Float32 on wormhole_b0: within 1 % of the largest value everywhere, and
    correlated >= 0.9999."""
    _, _, inputs = CASES[number]
    module, graph, _ = imported(number)
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session(graph, inputs, device="wormhole_b0", options=options)
    got, want = session.run()[0], reference(module, inputs)
    assert len(got) == len(want)
    for g, w in zip(got, want, strict=True):
        assert g.shape == w.shape and (g.dtype == w.dtype or w.is_floating_point())
        assert float((g.float() - w.float()).abs().max()) <= 0.01 * float(w.float().abs().max()) + 1e-6
        assert w.numel() < 3 or float(w.float().std()) == 0 or pcc(w.float(), g.float()) >= 0.9999


def test_every_mapping_is_exercised() -> None:
    """The cases above reach every mapping function, so a new one needs a case. Masks of dropouts come in training, and
    running statistics are written in training mode (tests/session/test_kept_buffers.py)."""
    reached = {mapping for number in range(len(CASES)) for mapping in imported(number)[2]}
    trained = from_torch(torch.nn.Dropout(0.5), (torch.ones(1, 8),), drops=lambda _: True)
    if any(DROPOUT in node.attrs for node in trained.inputs):
        reached.add(aten.TABLE["tbuda_lab.dropout"])
    if any(WRITES in node.attrs for node in from_torch(torch.nn.BatchNorm1d(6), (torch.ones(2, 6, 8),)).outputs):
        reached.add(aten.TABLE["aten._native_batch_norm_legit_functional"])
    marks = {t for t, kind in REGISTRY.items() if issubclass(kind, NdOp) and kind.marks_gradients}
    reached |= {aten.TABLE[name] for mark in marks if (name := f"tbuda_lab.{mark}") in aten.TABLE}  # only in training
    missing = sorted(name for name, function in aten.TABLE.items() if function not in reached)
    functions = {aten.TABLE[name] for name in missing}
    unreached = sorted({f.__qualname__ for f in functions if f not in reached})
    assert not unreached, missing


@pytest.mark.parametrize("name", ["elu", "selu", "celu", "softplus", "logsigmoid", "leaky_relu"])
def test_activations_of_infinities_are_torchs(name: str) -> None:
    """Written with max(x, 0) and min(x, 0), of which neither is a difference of infinities."""
    x = torch.tensor([[math.inf, -math.inf, 0.0, 1e30, -1e30, 3.0, -3.0]])
    function = getattr(torch.nn.functional, name)
    graph = passes.run(from_torch(Fn(function), (x,))).graph
    torch.testing.assert_close(evaluate(graph, {graph.inputs[0].name: x})[graph.outputs[0].name], function(x))


WHOLE = {
    "a sum of one number": lambda x: x.int().max().sum(),
    "a sum along a dim of one": lambda x: x.int()[:, :1].sum(1),
    "a sum of one truth value": lambda x: (x > 0)[:, :1].sum(1),
    "a product of one": lambda x: x.int()[:, :1].prod(1),
    "a number beyond the type": lambda x: x.abs().to(torch.uint8) == 16777217,
    "a negative number beside bytes": lambda x: x.abs().to(torch.uint8) > -1,
    "a remainder by a number beyond the type": lambda x: x.abs().to(torch.uint8) % 300,
    "a number beyond int32": lambda x: x.int() == 2**32,
}


@pytest.mark.parametrize("name", WHOLE)
def test_whole_numbers_have_torchs_type_and_wrap(name: str) -> None:
    x = torch.tensor([[0.0, 1.0, 2.5, 44.0, 255.0]])
    graph = from_torch(Fn(WHOLE[name]), (x,))
    want = WHOLE[name](x)
    (got,) = evaluate(graph, {graph.inputs[0].name: x}).values()
    assert graph.outputs[0].attrs["dtype"] == str(want.dtype).removeprefix("torch.")
    assert torch.equal(got.to(want.dtype), want) and (got.dtype == want.dtype or want.dtype == torch.bool)


AT, PLACE = torch.tensor([0]), torch.tensor(0)
NUMBERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "index_fill": lambda y: y.index_fill(0, AT, 2.0) + y,
    "index_copy": lambda y: y.index_copy(0, AT, torch.ones(1)) + y,
    "index_select": lambda y: y.index_select(0, AT),
    "gather": lambda y: y.gather(0, PLACE),
    "scatter": lambda y: y.scatter(0, PLACE, 3.0) + y,
    "scatter_add": lambda y: y.scatter_add(0, PLACE, torch.ones(())),
    "flip": lambda y: y.flip(0),
    "roll": lambda y: y.roll(1),
    "cumsum": lambda y: y.cumsum(-1),
    "sum": lambda y: y.sum(0),
    "amax": lambda y: y.amax(-1),
    "argmax": lambda y: y.argmax(0) + y,
    "softmax": lambda y: y.softmax(0) * y,
    "log_softmax": lambda y: y.log_softmax(-1) + y,
    "logsumexp": lambda y: y.logsumexp(0),
    "norm": lambda y: y.norm(dim=0),
    "sort": lambda y: y.sort(0)[0],
    "topk": lambda y: y.topk(1, 0)[0],
    "transpose": lambda y: y.transpose(0, -1),
    "permute": lambda y: y.permute(()),
    "movedim": lambda y: y.movedim(0, 0),
    "unfold": lambda y: y.unfold(0, 1, 1),
    "squeeze": lambda y: y.squeeze(0),
    "unsqueeze": lambda y: y.unsqueeze(-1),
    "repeat": lambda y: y.repeat(3),
    "expand": lambda y: y.expand(2, 3),
    "flatten": lambda y: y.flatten(),
    "take": lambda y: y.take(AT),
}
"""Ops that count dims, on a tensor that has none."""


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_are_vectors_of_one_where_dims_are_counted(name: str) -> None:
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(2))
    of_number = NUMBERS[name]
    graph = from_torch(Fn(lambda x: of_number(x.mean())), (x,))
    (got,) = evaluate(graph, {graph.inputs[0].name: x}).values()
    torch.testing.assert_close(got, of_number(x.mean()), rtol=1e-5, atol=1e-6)


HIDDEN = torch.tensor([[True, False, True], [False, False, False], [True, True, True]])


def _in_place(x: torch.Tensor) -> torch.Tensor:
    y = torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=x[0, 0] > 0)
    y.reshape(-1)[0] = 2.0
    return y


HIDES: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "constant mask": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=HIDDEN),
    "mask of an input": lambda x: torch.nn.functional.scaled_dot_product_attention(x, x, x, attn_mask=x[0, 0] > 0),
    "causal, large scores": lambda x: torch.nn.functional.scaled_dot_product_attention(
        -x * 1e7, x.abs() * 1e7, x, is_causal=True
    ),
    "large scores": lambda x: torch.nn.functional.scaled_dot_product_attention(
        -x * 1e7, x.abs() * 1e7, x, attn_mask=HIDDEN
    ),
    "safe softmax": lambda x: SAFE_SOFTMAX(x.masked_fill(~HIDDEN, -torch.inf), -1),
    "written to": _in_place,
}


@pytest.mark.parametrize("name", HIDES)
def test_what_a_mask_hides_is_hidden_whatever_the_scores(name: str) -> None:
    x = torch.randn(1, 2, 3, 3, generator=torch.Generator().manual_seed(1))
    x[0, 0, 1] = -1.0
    session = Session(Fn(HIDES[name]), (x,), options=CompileOptions(default_df_override=DataFormat.Float32))
    torch.testing.assert_close(session.run()[0][0], HIDES[name](x), rtol=1e-4, atol=1e-5)


ATTENTION = torch.nn.functional.scaled_dot_product_attention
ADDED: dict[str, Callable[[torch.Tensor, torch.Tensor], torch.Tensor]] = {
    "a mask of floats": lambda x, m: ATTENTION(x, x, x, attn_mask=m),
    "shared heads": lambda x, m: ATTENTION(x, x[:, :1], x[:, :1], attn_mask=m, enable_gqa=True),
    "written out": lambda x, m: (x @ x.transpose(-1, -2) + m).softmax(-1) @ x,
    "its logarithm": lambda x, m: (x + m).log_softmax(-1),
}


def test_rows_of_minus_infinities_are_torchs() -> None:
    """Compiled with a mask that hides nothing: 0 in attention, NaN in a softmax that the model writes."""
    x = torch.randn(1, 2, 3, 3, generator=torch.Generator().manual_seed(2))
    model = Fn(lambda x, m: tuple(f(x, m) for f in ADDED.values()))
    options = CompileOptions(default_df_override=DataFormat.Float32)
    session = Session(model, (x, torch.zeros(3, 3)), options=options)
    hidden = torch.zeros(3, 3).masked_fill(~HIDDEN, -torch.inf)
    for mask in (hidden, hidden[1].expand(3, 3), torch.full((3, 3), torch.finfo(torch.float32).min)):
        for (name, function), ours in zip(ADDED.items(), session.run([(x, mask)])[0], strict=True):
            wanted = function(x, mask)
            torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-5, equal_nan=True, msg=name)


LARGE: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "sum of all": lambda n: n.sum(),
    "sum of a dim": lambda n: n.sum(-1),
    "sum of two dims": lambda n: n.sum((0, 1)),
    "sum of a product": lambda n: (n * -1).sum(),
    "running sum": lambda n: n.cumsum(0),
    "sum and a number": lambda n: n.sum() + 1,
    "kept dims": lambda n: n.sum((0, 1), keepdim=True),
    "wraps": lambda n: (n * 100).sum(-1, keepdim=True, dtype=torch.int32),
}


@pytest.mark.parametrize("name", LARGE)
@pytest.mark.parametrize("dtype", [torch.int32, torch.int64])
def test_sums_beyond_what_float32_counts_to_are_exact(name: str, dtype: torch.dtype) -> None:
    n = torch.full((5, 7), 2**24 + 1, dtype=dtype)
    x = torch.randn(5, 7)
    function = LARGE[name]

    class Both(torch.nn.Module):
        def forward(self, x: torch.Tensor, n: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return x * 2, function(n)

    session = Session(Both(), (x, n), options=CompileOptions(default_df_override=DataFormat.Float32))
    have = session.run()[0][1]
    assert torch.equal(have, function(n)) and have.dtype == function(n).dtype


EXPONENTS = torch.tensor([2.0, 3.0, 1.0, 4.0, 0.5, 0.0, 1.5, 5.0])
POWERS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "mixed": lambda x: x**EXPONENTS,
    "even": lambda x: x ** (2 * torch.arange(8.0)),
    "odd": lambda x: x ** (2 * torch.arange(8.0) + 1),
    "negative": lambda x: (x + torch.sign(x)) ** -EXPONENTS,
    "of a column": lambda x: x[..., :1] ** EXPONENTS,
    "computed": lambda x: x ** (x * 0 + EXPONENTS),
    "computed and negative": lambda x: (x + torch.sign(x)) ** (x * 0 - EXPONENTS),
    "of one that is never negative": lambda x: (x.clamp(min=0.5) * x.exp()).mean(-1, keepdim=True) ** x,
    "of a power": lambda x: ((x + torch.sign(x)) ** -EXPONENTS.round()) ** (x * 0 + 3),
    "of what wraps": lambda x: (x.abs() * 200).to(torch.int8).float() ** (x * 0 + 3),
    "of a negative number": lambda x: (-2.0) ** (x * 0 + EXPONENTS),
    "of zero": lambda x: 0.0 ** (x * 0 + EXPONENTS),
}


@pytest.mark.parametrize("name", POWERS)
def test_powers_take_negative_numbers(name: str) -> None:
    x = torch.randn(1, 6, 8, generator=torch.Generator().manual_seed(0))
    session = Session(Fn(POWERS[name]), (x,), options=CompileOptions(default_df_override=DataFormat.Float32))
    torch.testing.assert_close(session.run()[0][0], POWERS[name](x), rtol=1e-4, atol=1e-5, equal_nan=True)


def _agrees(function: Callable[..., object], *inputs: torch.Tensor) -> None:
    """Values, shapes and types are torch's."""
    options = CompileOptions(default_df_override=DataFormat.Float32)
    have = Session(Fn(function).eval(), inputs, options=options, cache=False).run()[0]
    for ours, wanted in zip(have, _eager(Fn(function), inputs), strict=True):
        assert ours.dtype == wanted.dtype and ours.shape == wanted.shape
        digit = torch.finfo(wanted.dtype).eps if wanted.is_floating_point() else 0.0
        torch.testing.assert_close(ours, wanted, rtol=max(1e-4, 2 * digit), atol=max(1e-5, digit), equal_nan=True)


NOTHING, THREE = torch.ones(0, 4), torch.randn(3, 4, generator=torch.Generator().manual_seed(3))
EMPTY: dict[str, Callable[[torch.Tensor, torch.Tensor], object]] = {
    "product over nothing": lambda e, x: e.T @ e + x.sum(),
    "with a bias": lambda e, x: torch.addmm(x[0], e.T, e),
    "sum": lambda e, x: x + e.sum(0),
    "mean": lambda e, x: x + e.mean(0),
    "variance": lambda e, x: (x * 2, *torch.var_mean(e, 0)),
    "joined": lambda e, x: torch.cat([e, x, e]) * 2,
    "split": lambda e, x: [part * 2 for part in torch.split(x, [3, 0])],
    "split of the middle": lambda e, x: [part.sum() for part in torch.split(x, [1, 0, 2])],
    "returned beside others": lambda e, x: (x + 1, e + 1),
}


@pytest.mark.parametrize("name", EMPTY)
def test_tensors_without_elements_are_known(name: str) -> None:
    _agrees(EMPTY[name], NOTHING, THREE)


def _of_host(x: torch.Tensor) -> dict[str, Callable[[], object]]:
    special, functional = torch.special, torch.nn.functional
    polynomials = [f"{kind}_polynomial_{k}" for kind in ("chebyshev", "shifted_chebyshev") for k in "tuvw"]
    polynomials += ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l", "legendre_polynomial_p"]
    orders = torch.arange(4.0)
    bessel = [f"{kind}_k{n}" for kind in ("modified_bessel", "scaled_modified_bessel") for n in (0, 1)]
    bessel += ["airy_ai", "bessel_y0", "bessel_y1", "modified_bessel_i0", "modified_bessel_i1", "spherical_bessel_j0"]
    image = x.reshape(1, 2, 2, 3)
    spread = torch.eye(3) * 4 + x[:, :3] @ x[:, :3].T
    return {
        **{name: lambda name=name: getattr(special, name)(x.abs() + 0.1) for name in bessel},
        **{name: lambda name=name: getattr(special, name)(x.tanh(), orders) for name in polynomials},
        "angle": lambda: torch.angle(x),
        "as_strided_scatter": lambda: torch.as_strided_scatter(x, x[:2, :2] * 2, (2, 2), (4, 1)),
        "frexp": lambda: torch.frexp(x),
        "histogram": lambda: torch.histogram(x, 4, range=(-2.0, 2.0)),
        "ldl_factor": lambda: torch.linalg.ldl_factor(spread),
        "lu_solve": lambda: torch.linalg.lu_solve(*torch.linalg.lu_factor(spread), x),
        "adaptive averages of unlike sizes": lambda: functional.adaptive_avg_pool2d(image.repeat(1, 1, 4, 3), (3, 4)),
        "adaptive maxima with indices": lambda: functional.adaptive_max_pool2d(image, (1, 2), return_indices=True),
        "bilinear by 1.7": lambda: functional.interpolate(image, scale_factor=1.7, mode="bilinear"),
        "indices apart": lambda: image[:, [1, 0], :, [0, 2]],
    }


@pytest.mark.parametrize("name", _of_host(THREE))
def test_calls_without_a_form_for_the_device_are_the_hosts(name: str) -> None:
    _agrees(lambda x: (x + 1, *pytree.tree_leaves(_of_host(x)[name]())), THREE)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64, torch.float32])
def test_outputs_come_in_the_types_of_the_model(dtype: torch.dtype) -> None:
    _agrees(lambda x: ((x * 2).to(dtype), x.relu()), THREE)
    _agrees(lambda x: torch.fft.rfft(x).real.to(dtype) + 1, THREE)  # a part of the host
