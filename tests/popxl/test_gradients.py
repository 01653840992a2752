"""The gradient of every op against torch in float64: the program's gradient graph, run on the grid."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as nn

import tbuda_lab.popxl as popxl
from tbuda_lab.core.errors import NotSupported
from tbuda_lab.popxl import ops, transforms


@dataclasses.dataclass
class Case:
    """program: of PopXL tensors; torch: of float64 ones; shapes: of the operands whose gradients are wanted. positive:
    operands above 0.2; rest: further operands, which have no gradient; rtol: by the numbers of the op."""

    program: Callable[..., Any]
    torch: Callable[..., torch.Tensor]
    shapes: Sequence[tuple[int, ...]] = ((3, 4),)
    positive: bool = False
    rest: tuple[np.ndarray, ...] = ()
    rtol: float = 1e-4

    def operands(self, seed: int) -> list[np.ndarray]:
        rng = np.random.default_rng(seed)
        made = [rng.standard_normal(s) for s in self.shapes]
        return [(np.abs(a) + 0.2 if self.positive else a).astype(np.float32) for a in made]


MASK = np.array([[True, False, True, False]] * 3)
INDICES = np.array([2, 0, 2], np.int32)
LABELS = np.array([1, 3, 0], np.int32)
WEIGHT = np.random.default_rng(4).standard_normal((2, 2, 2, 2)).astype(np.float32)
TWO, IMAGE, ROW = ((3, 4), (3, 4)), ((1, 2, 6, 6),), ((1, 2, 6), (3, 2, 3))
AT = np.array([1], np.uint32)
SEED = np.array([3, 4], np.uint32)


def _loop(turns: int) -> tuple[Callable[..., Any], Callable[..., torch.Tensor]]:
    def program(x: Any, w: Any, u: Any) -> Any:
        body = popxl.gcg().ir.create_graph(lambda x, w, u: ops.tanh(x @ w) * u, x, w, u)
        return ops.repeat(body, turns, x, w, u)[0] * x

    def plain(x: torch.Tensor, w: torch.Tensor, u: torch.Tensor) -> torch.Tensor:
        y = x
        for _ in range(turns):
            y = torch.tanh(y @ w) * u
        return y * x

    return program, plain


def _called(x: Any, y: Any) -> Any:
    return ops.call(popxl.gcg().ir.create_graph(lambda a, b: ops.tanh(a + b), x, y), x, y)[0] * x


def _branch(truth: bool) -> tuple[Callable[..., Any], Callable[..., torch.Tensor]]:
    def program(x: Any, w: Any) -> Any:
        ir = popxl.gcg().ir
        first = ir.create_graph(lambda x, w: ops.tanh(x @ w), x, w)
        second = ir.create_graph(lambda x: x * x, x)
        return ops.conditional(popxl.constant(truth, popxl.bool), first, second, [x, w], [x])[0] * x + ops.sum(w)

    def plain(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (torch.tanh(x @ w) if truth else x * x) * x + w.sum()

    return program, plain


GROUPS: dict[str, dict[str, Case]] = {
    "one operand": {
        "abs": Case(ops.abs, torch.abs),
        "cos": Case(ops.cos, torch.cos),
        "sin": Case(ops.sin, torch.sin),
        "exp": Case(ops.exp, torch.exp),
        "log": Case(ops.log, torch.log, positive=True),
        "log2": Case(ops.log2, torch.log2, positive=True),
        "sqrt": Case(ops.sqrt, torch.sqrt, positive=True),
        "tanh": Case(ops.tanh, torch.tanh),
        "relu": Case(ops.relu, torch.relu),
        "gelu": Case(ops.gelu, lambda x: nn.gelu(x, approximate="tanh"), rtol=1e-3),
        "geluerf": Case(ops.geluerf, nn.gelu, rtol=1e-3),
        "swish": Case(ops.swish, nn.silu),
        "negate": Case(ops.negate, torch.neg),
        "clip": Case(lambda x: ops.clip(x, -0.5, 0.5), lambda x: torch.clamp(x, -0.5, 0.5)),
        "pow": Case(lambda x: ops.pow(x, 3.0), lambda x: x**3),
        "identity": Case(ops.identity, torch.clone),
    },
    "two operands": {
        "add": Case(ops.add, torch.add, ((3, 4), (4,))),
        "sub": Case(ops.sub, torch.sub, ((3, 4), (3, 1))),
        "mul": Case(ops.mul, torch.mul, ((3, 4), (1, 4))),
        "div": Case(ops.div, torch.div, TWO, True),
        "maximum": Case(ops.maximum, torch.maximum, TWO),
        "matmul": Case(ops.matmul, torch.matmul, ((3, 4), (4, 2))),
        "matmul of vectors": Case(ops.matmul, torch.matmul, ((4,), (4, 3))),
        "matmul of stacks": Case(ops.matmul, torch.matmul, ((2, 3, 4), (4, 2))),
        "scaled_add": Case(lambda x, y: ops.scaled_add(x, y, 2.0, 0.5), lambda x, y: 2 * x + 0.5 * y, TWO),
        "where": Case(lambda x, y, c: ops.where(c, x, y), lambda x, y, c: torch.where(c, x, y), TWO, rest=(MASK,)),
        "concat": Case(lambda x, y: ops.concat([x, y], 1), lambda x, y: torch.cat([x, y], 1), TWO),
    },
    "moves": {
        "reshape": Case(lambda x: ops.reshape(x, (2, 6)), lambda x: x.reshape(2, 6)),
        "flatten": Case(ops.flatten, torch.flatten),
        "transpose": Case(ops.transpose, lambda x: x.T),
        "squeeze": Case(ops.squeeze, torch.squeeze, ((3, 1, 4),)),
        "slice": Case(lambda x: ops.slice(x, [0, 3], [2, 0], [1, -1], [0, 1]), lambda x: x[:2].flip(1)[:, :3]),
        "subsample": Case(lambda x: ops.subsample(x, [2, 3]), lambda x: x[::2, ::3]),
        "split": Case(lambda x: ops.split(x, [1, 3], 1)[1], lambda x: x[:, 1:]),
        "cast": Case(lambda x: ops.cast(ops.cast(x, popxl.float16), popxl.float32), lambda x: x, rtol=2e-3),
        "gather": Case(lambda x, i: ops.gather(x, i, 0), lambda x, i: x[i.long()], rest=(INDICES,)),
        "tied_gather": Case(lambda x, i: ops.tied_gather(x, i, 1), lambda x, i: x[:, i.long()], rest=(INDICES,)),
    },
    "reductions": {
        "sum": Case(lambda x: ops.sum(x, 1), lambda x: x.sum(1)),
        "mean": Case(ops.mean, torch.mean),
        "l1": Case(lambda x: ops.l1(x, 1), lambda x: x.abs().sum(1)),
        "l2": Case(lambda x: ops.l2(x, 0, True), lambda x: x.norm(dim=0, keepdim=True)),
        "logsum": Case(lambda x: ops.logsum(x, 1), lambda x: x.sum(1).log(), positive=True),
        "logsumexp": Case(lambda x: ops.logsumexp(x, 1), lambda x: x.logsumexp(1)),
        "max": Case(lambda x: ops.max(x, 1), lambda x: x.amax(1)),
        "min": Case(lambda x: ops.min(x, 1), lambda x: x.amin(1)),
        "prod": Case(lambda x: ops.prod(x, 1), lambda x: x.prod(1)),
        "sumsquare": Case(lambda x: ops.sumsquare(x, 0), lambda x: x.square().sum(0)),
        "cumsum": Case(lambda x: ops.cumsum(x, 1), lambda x: x.cumsum(1)),
        "softmax": Case(lambda x: ops.softmax(x, 1), lambda x: x.softmax(1)),
        "nll_loss": Case(
            lambda x, i: ops.nll_loss(ops.softmax(x, 1), i), lambda x, i: nn.cross_entropy(x, i.long()), rest=(LABELS,)
        ),
    },
    "layers": {
        "layer_norm": Case(
            ops.layer_norm, lambda x, w, b: nn.layer_norm(x, (4,), w, b), ((3, 4), (4,), (4,)), rtol=1e-3
        ),
        "group_norm": Case(
            lambda x, w, b: ops.group_norm(x, w, b, 2),
            lambda x, w, b: nn.group_norm(x, 2, w, b),
            ((3, 4), (4,), (4,)),
            rtol=1e-3,
        ),
        "conv": Case(
            lambda x: ops.conv(x, popxl.constant(WEIGHT), padding=(1, 0, 0, 1)),
            lambda x: nn.conv2d(nn.pad(x, (0, 1, 1, 0)), torch.from_numpy(WEIGHT).double()),
            IMAGE,
        ),
        "average_pool": Case(lambda x: ops.average_pool(x, (2, 2), (2, 2)), lambda x: nn.avg_pool2d(x, 2), IMAGE),
        "max_pool": Case(lambda x: ops.max_pool(x, (2, 2), (2, 2)), lambda x: nn.max_pool2d(x, 2), IMAGE),
        "interpolate": Case(
            lambda x: ops.interpolate(x, (1.0, 1.0, 2.0, 2.0)), lambda x: nn.interpolate(x, scale_factor=2.0), IMAGE
        ),
    },
    "picked": {
        "dynamic_slice": Case(lambda x, i: ops.dynamic_slice(x, i, [0], [2], True), lambda x, i: x[1:3], rest=(AT,)),
        "dynamic_update": Case(
            lambda x, y, i: ops.dynamic_update(x, i, y, [0], [2], True),
            lambda x, y, i: torch.cat([x[:1], y * 1.0]),
            ((3, 4), (2, 4)),
            rest=(AT,),
        ),
        "scatter": Case(
            lambda x, v, i: ops.scatter(x, i, v, 0),
            lambda x, v, i: x.scatter(0, i.long(), v),
            ((3, 4), (1, 4)),
            rest=(np.array([[2, 0, 1, 2]], np.int32),),
        ),
        "groupedgather": Case(
            lambda x, i: ops.groupedgather(x, i, 1, 2),
            lambda x, i: torch.stack([x[k][i[k].long()] for k in range(2)]),
            ((2, 4, 3),),
            rest=(np.array([[1, 2, 1], [3, 0, 0]], np.int32),),
        ),
        "topk": Case(lambda x: ops.topk(x, 2, 1, True, True)[0], lambda x: x.topk(2, 1).values),
        "median": Case(lambda x: ops.median(x, 1), lambda x: x.median(1).values),
        "roi_align": Case(
            lambda x, r, i: ops.roi_align(x, r, i, (2, 2), 1.0, 1),
            lambda x, r, i: 0.25 * sum(x[:, :, a : a + 4 : 2, b : b + 4 : 2] for a in (1, 2) for b in (2, 3)),
            IMAGE,
            rest=(np.array([[1.0, 0.0, 5.0, 4.0]], np.float32) + 0.5, np.array([0], np.int32)),
        ),
        **{
            f"scatter_reduce {name}": Case(
                lambda x, i, name=name: ops.scatter_reduce(x, i, name, axis=0, axis_size=4),
                lambda x, i, form=form: (
                    torch.zeros(4, 4).double().index_reduce(0, i.long(), x, form, include_self=False)
                    if form != "sum"
                    else torch.zeros(4, 4).double().index_add(0, i.long(), x)
                ),
                rest=(INDICES,),
            )
            for name, form in (("sum", "sum"), ("max", "amax"), ("min", "amin"))
        },
    },
    "weights and dims": {
        "conv of weights": Case(
            lambda x, w: ops.conv(x, w, (2, 2), dilation=(1, 2)),
            lambda x, w: nn.conv2d(x, w, stride=2, dilation=(1, 2)),
            (*IMAGE, (2, 2, 2, 2)),
        ),
        "conv of a row": Case(
            lambda x, w: ops.conv(x, w, (1,), (1, 1), (1,)), lambda x, w: nn.conv1d(x, w, padding=1), ROW
        ),
        "conv_transpose": Case(
            lambda x, w: ops.conv_transpose(x, w, (2, 2)),
            lambda x, w: nn.conv_transpose2d(x, w, stride=2),
            ((1, 2, 3, 3), (2, 2, 2, 2)),
        ),
        "conv of a volume": Case(
            lambda x, w: ops.conv(x, w, (1, 1, 1), (0,) * 6, (1, 1, 1)), nn.conv3d, ((1, 1, 3, 3, 3), (1, 1, 2, 2, 2))
        ),
        "max_pool of a row": Case(lambda x: ops.max_pool(x, (2,), (2,)), lambda x: nn.max_pool1d(x, 2), ROW[:1]),
        "average_pool of a volume": Case(
            lambda x: ops.average_pool(x, (2, 2, 2), (1, 1, 1)), lambda x: nn.avg_pool3d(x, 2, 1), ((1, 1, 3, 3, 3),)
        ),
        "average_pool with gaps": Case(
            lambda x: ops.average_pool(x, (2, 2), (1, 1), dilation=(2, 3)),
            lambda x: (x[..., :4, :3] + x[..., 2:, :3] + x[..., :4, 3:] + x[..., 2:, 3:]) / 4,
            IMAGE,
        ),
        "softmax between dims": Case(lambda x: ops.softmax(x, 1), lambda x: x.softmax(1), ((3, 2, 2, 2, 3),)),
        "logsumexp between dims": Case(
            lambda x: ops.logsumexp(x, [1, 3]), lambda x: x.logsumexp((1, 3)), ((3, 2, 2, 2, 3),)
        ),
        "batch_norm_inference": Case(
            ops.batch_norm_inference,
            lambda x, w, b, m, v: (
                (x - m.view(2, 1, 1)) / (v + 1e-5).sqrt().view(2, 1, 1) * w.view(2, 1, 1) + b.view(2, 1, 1)
            ),
            (*IMAGE, (2,), (2,), (2,), (2,)),
            positive=True,
            rtol=1e-3,
        ),
        "interpolate linear": Case(
            lambda x: ops.interpolate(x, (1.0, 1.0, 2.0, 2.0), "linear"),
            lambda x: nn.interpolate(x, scale_factor=2.0, mode="bilinear"),
            IMAGE,
        ),
    },
    "further": {
        "fmod": Case(ops.fmod, torch.fmod, TWO, True),
        "lamb_square": Case(ops.lamb_square, lambda x: x.square().sum()),
        "sum of three": Case(lambda x, y: ops.maximum(x, y, x * y), lambda x, y: x.maximum(y).maximum(x * y), TWO),
        "call": Case(_called, lambda x, y: torch.tanh(x + y) * x, TWO),
        "io_tile_copy": Case(lambda x: ops.io_tile_copy(x) * 2.0, lambda x: 2 * x),
        "ipu_copy": Case(lambda x: ops.ipu_copy(x, 0, 0) * x, lambda x: x * x),
        "detach": Case(lambda x: ops.detach(x) * x, lambda x: x.detach() * x),
        "print_tensor": Case(lambda x: ops.print_tensor(x) * x, lambda x: x * x),
        "dropout": Case(lambda x, s: ops.dropout(x * 1.0, s, 0.0), lambda x, s: x * 1.0, rest=(SEED,)),
        "shaped_dropout": Case(lambda x, s: ops.shaped_dropout(x, s, (3, 1), 0.0), lambda x, s: x * 1.0, rest=(SEED,)),
        "logical": Case(
            lambda x, y: ops.where(ops.logical_or(ops.greater(x, y), ops.equal(x, y)), x, y),
            lambda x, y: torch.where((x > y) | (x == y), x, y),
            TWO,
        ),
        **{
            f"nll_loss {reduction}": Case(
                lambda x, i, r=reduction: ops.nll_loss(ops.log(ops.softmax(x, 1)), i, 3, r, True),
                lambda x, i, r=reduction: nn.cross_entropy(x, i.long(), ignore_index=3, reduction=r),
                rest=(LABELS,),
            )
            for reduction in ("none", "sum", "mean")
        },
        "cast and back": Case(
            lambda x: ops.cast(ops.cast(x, popxl.float16), popxl.float32) * x,
            lambda x: x.half().double() * x,
            rtol=2e-3,
        ),
    },
    "control": {
        "repeat": Case(*_loop(3), ((3, 4), (4, 4), (3, 4))),
        "repeat once": Case(*_loop(1), ((3, 4), (4, 4), (3, 4))),
        "then": Case(*_branch(True), ((3, 4), (4, 4))),
        "else": Case(*_branch(False), ((3, 4), (4, 4))),
    },
}


@pytest.mark.parametrize("group", GROUPS)
def test_gradients_are_torchs(group: str) -> None:
    cases = GROUPS[group]
    ir = popxl.Ir()
    streams: dict[str, list[Any]] = {}
    operands = {name: case.operands(k) for k, (name, case) in enumerate(cases.items())}
    with ir.main_graph:
        for name, case in cases.items():
            ins = [popxl.variable(a) for a in (*operands[name], *case.rest)]
            graph = ir.create_graph(lambda *xs, case=case: case.program(*xs), *ins)
            site = ops.call_with_info(graph, *ins)
            info = transforms.autodiff(graph, graph.outputs[:1], graph.inputs[: len(case.shapes)])
            seed = np.cos(np.arange(np.prod(graph.outputs[0].shape))).astype(np.float32)
            grads = ops.call(
                info.graph, popxl.constant(seed.reshape(graph.outputs[0].shape)), inputs_dict=info.inputs_dict(site)
            )
            streams[name] = [popxl.d2h_stream(g.shape, g.dtype) for g in grads]
            for stream, grad in zip(streams[name], grads, strict=True):
                ops.host_store(stream, grad)
    with popxl.Session(ir, "ipu_model") as session:
        got = session.run()
    for name, case in cases.items():
        leaves = [torch.from_numpy(a).double().requires_grad_() for a in operands[name]]
        y = case.torch(*leaves, *map(torch.from_numpy, case.rest))
        y.backward(torch.cos(torch.arange(y.numel(), dtype=torch.float64)).float().double().reshape(y.shape))
        for stream, leaf in zip(streams[name], leaves, strict=True):
            assert leaf.grad is not None
            np.testing.assert_allclose(got[stream], leaf.grad.numpy(), case.rtol, case.rtol / 5, err_msg=name)


def test_what_is_calculated_twice_for_a_gradient_may_not_load() -> None:
    ir = popxl.Ir()
    with ir.main_graph:
        stream = popxl.h2d_stream((2,), popxl.float32)
        x = popxl.variable(np.ones(2, np.float32))
        body = ir.create_graph(lambda x: x * ops.host_load(stream), x)
        graph = ir.create_graph(lambda x: ops.repeat(body, 2, x)[0], x)
        with pytest.raises(NotSupported, match="HostLoad"):
            transforms.autodiff(graph)
