"""One row per op and corner of its attributes: the op, operand shapes, and torch's own word for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F

from tbuda_lab.core import ops as o
from tbuda_lab.core.graph import Op, Payload, Shape

Tensor = torch.Tensor


@dataclasses.dataclass(frozen=True)
class Case:
    """`positive`: operands are drawn above 0.1. `stored`: operands that are parameters, the others are inputs."""

    name: str
    op: Op
    shapes: tuple[Shape, ...]
    expected: Callable[..., Tensor]
    positive: bool = False
    stored: tuple[int, ...] = ()
    integers: bool = False
    tolerance: float = 2e-5


def truth(condition: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    return lambda a, b: condition(a, b).float()


def slope_of(function: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    with torch.enable_grad():
        x = x.detach().requires_grad_()
        return torch.autograd.grad(function(x).sum(), x)[0]


X = (1, 2, 32, 64)
ODD = (1, 3, 5, 7)
IMAGE = (1, 6, 9, 11)
BATCH = (3, 6, 9, 11)

UNARY = [
    Case("nop", o.Nop(), (X,), lambda x: x),
    Case("buffer", o.Buffer(), (X,), lambda x: x),
    Case("erf", o.Erf(), (X,), torch.erf),
    Case("round_whole", o.RoundWhole(3), (X,), torch.round, tolerance=0.0),
    Case("abs", o.Abs(), (X,), torch.abs),
    Case("exp", o.Exp(), (X,), torch.exp),
    Case("log", o.Log(), (X,), torch.log, positive=True),
    Case("reciprocal", o.Reciprocal(), (X,), torch.reciprocal, positive=True),
    Case("sqrt", o.Sqrt(), (X,), torch.sqrt, positive=True),
    Case("relu", o.Relu(), (X,), torch.relu),
    Case("relu-threshold", o.Relu(0.5), (X,), lambda x: torch.threshold(x, 0.5, 0.0)),
    Case("relu-threshold-below-zero", o.Relu(-0.4), (X,), lambda x: torch.threshold(x, -0.4, 0.0)),
    Case("relu-max", o.Relu(0.7, "max"), (X,), lambda x: x.clamp(0, 0.7)),
    Case("leaky_relu", o.LeakyRelu(0.1), (X,), lambda x: F.leaky_relu(x, 0.1)),
    Case("gelu", o.Gelu(), (X,), F.gelu),
    Case("gelu-tanh", o.Gelu("tanh"), (X,), lambda x: F.gelu(x, approximate="tanh")),
    Case("gelu_derivative", o.GeluDerivative(), (X,), lambda x: slope_of(F.gelu, x)),
    Case("sigmoid", o.Sigmoid(), (X,), torch.sigmoid),
    Case("tanh", o.Tanh(), (X,), torch.tanh),
    Case("sine", o.Sine(), (X,), torch.sin),
    Case("cosine", o.Cosine(), (X,), torch.cos),
    Case("clip-both-signs", o.Clip(-0.5, 0.75), (X,), lambda x: x.clamp(-0.5, 0.75)),
    Case("clip-zero", o.Clip(0.0, 6.0), (X,), F.relu6),
    Case("clip-zero-open", o.Clip(0.0, None), (X,), torch.relu),
    Case("clip-positive", o.Clip(0.25, 0.75), (X,), lambda x: x.clamp(0.25, 0.75)),
    Case("clip-negative", o.Clip(-0.75, -0.25), (X,), lambda x: x.clamp(-0.75, -0.25)),
    Case("clip-low", o.Clip(-0.5, None), (X,), lambda x: x.clamp(min=-0.5)),
    Case("clip-high", o.Clip(None, 0.5), (X,), lambda x: x.clamp(max=0.5)),
    Case("clip-empty", o.Clip(0.5, 0.25), (X,), lambda x: x.clamp(0.5, 0.25)),
    *(
        Case(f"pow-{n}", o.Pow(n), (X,), lambda x, n=n: torch.pow(x, n), positive=n < 0 or n % 1 != 0, tolerance=1e-4)
        for n in (0.0, 1.0, 2.0, 3.0, 0.5, 1.5, -0.5, -1.0, -2.0, 0.3, 2.7)
    ),
    Case("logical_not", o.LogicalNot(), (X,), lambda x: (x == 0).float(), integers=True),
    Case("cast", o.Cast("bfloat16"), (X,), lambda x: x.bfloat16().float(), tolerance=1e-2),
]

BINARY = [
    *(
        Case(f"{op.type}-{i}", op, shapes, expected)
        for op, expected in (
            (o.Add(), torch.add),
            (o.Subtract(), torch.sub),
            (o.Multiply(), torch.mul),
            (o.Maximum(), torch.maximum),
            (o.Minimum(), torch.minimum),
        )
        for i, shapes in enumerate(((X, X), (X, (64,)), ((1, 1, 32, 1), X), (ODD, (1, 5, 1))))
    ),
    Case("divide", o.Divide(), (X, X), torch.div, positive=True),
    Case("divide-stored", o.Divide(), (X, (64,)), torch.div, positive=True, stored=(1,)),
    Case("power", o.Power(), (X, X), torch.pow, positive=True, tolerance=1e-4),
    Case("heaviside", o.Heaviside(), (X, X), torch.heaviside, integers=True),
    *(
        Case(op.type, op, (X, X), truth(condition), integers=True)
        for op, condition in (
            (o.Greater(), torch.gt),
            (o.GreaterEqual(), torch.ge),
            (o.Less(), torch.lt),
            (o.LessEqual(), torch.le),
            (o.Equal(), torch.eq),
            (o.NotEqual(), torch.ne),
            (o.LogicalAnd(), torch.logical_and),
        )
    ),
    Case("greater-floats", o.Greater(), (X, (1, 1, 1, 64)), truth(torch.gt)),
    Case("where", o.Where(), (X, X, (64,)), lambda c, x, y: torch.where(c != 0, x, y), integers=True),
]

MATMUL_REDUCE = [
    Case("matmul", o.Matmul(), ((1, 2, 32, 64), (1, 2, 64, 96)), torch.matmul),
    Case("matmul-broadcast", o.Matmul(), ((4, 33, 17), (17, 65)), torch.matmul),
    Case("matmul-bias", o.Matmul(), (X, (64, 32), (32,)), lambda a, b, c: a @ b + c, stored=(1, 2)),
    *(
        Case(f"{op.type}({op.dim})-{i}", op, (shape,), lambda x, f=f, d=op.dim: f(x, d, keepdim=True))
        for i, shape in enumerate((X, (2, 3, 4, 5), (2, 1, 3, 4, 5)))
        for kind, f in ((o.ReduceSum, torch.sum), (o.ReduceAvg, torch.mean), (o.ReduceMax, torch.amax))
        for op in (kind(-1), kind(-2), kind(-3), kind(-4), kind(2))
    ),
    Case("argmax", o.Argmax(-1), (X,), lambda x: torch.argmax(x, -1, keepdim=True).float()),
    Case("argmax-rows", o.Argmax(-2), (ODD,), lambda x: torch.argmax(x, -2, keepdim=True).float()),
    *(Case(f"cumsum({a})", o.CumSum(a), (ODD,), lambda x, a=a: torch.cumsum(x, a)) for a in (-1, -2, -3, 1)),
    Case("cumsum-vector", o.CumSum(0), ((9,),), lambda x: torch.cumsum(x, 0)),
]


def flat_pad(pads: tuple[tuple[int, int], ...]) -> list[int]:
    return [n for pair in reversed(pads) for n in pair]


EDGES = ((0, 0), (0, 0), (2, 1), (1, 3))
TMS = [
    Case("transpose", o.Transpose(-1, -2), (X,), lambda x: x.transpose(-1, -2)),
    Case("transpose-positive", o.Transpose(1, 2), (X,), lambda x: x.transpose(1, 2)),
    Case("transpose-far", o.Transpose(-1, -3), (ODD,), lambda x: x.transpose(-1, -3)),
    Case("reshape-heads", o.Reshape((1, 2, 32, 2, 32)), (X,), lambda x: x.reshape(1, 2, 32, 2, 32)),
    Case("reshape-flat", o.Reshape((1, -1)), (ODD,), lambda x: x.reshape(1, -1)),
    Case("reshape-crossing", o.Reshape((1, 15, 7)), ((1, 7, 15),), lambda x: x.reshape(1, 15, 7)),
    *(
        Case(f"index({d},{a}:{b}:{s})", o.Index(d, a, b, s), ((1, 4, 64, 96),), f)
        for d, a, b, s, f in (
            (-1, 32, 64, 1, lambda x: x[..., 32:64]),
            (-1, 5, 90, 1, lambda x: x[..., 5:90]),
            (-1, 1, 96, 3, lambda x: x[..., 1:96:3]),
            (-2, 3, 60, 2, lambda x: x[..., 3:60:2, :]),
            (-3, 1, 4, 2, lambda x: x[:, 1:4:2]),
            (1, 1, 3, 1, lambda x: x[:, 1:3]),
        )
    ),
    Case("select", o.Select(-2, 8, 16, 32), (X,), lambda x: x[..., 8:24, :]),
    Case(
        "select-repeated",
        o.Select(-1, 1, 2, 8),
        (X,),
        lambda x: x.reshape(1, 2, 32, 8, 8)[..., 1:3].reshape(1, 2, 32, 16),
    ),
    Case("select-none-begins", o.Select(-3, 1, 1, 2), (ODD,), lambda x: x[:, 1:2]),
    Case("select-left-over", o.Select(-1, 3, 2, 5), (ODD,), lambda x: x[..., 3:5]),
    Case("select-whole-last", o.Select(-2, 0, 1, 2), (ODD,), lambda x: x[..., ::2, :]),
    Case(
        "select-short",
        o.Select(-1, 2, 2, 4),
        (ODD,),
        lambda x: torch.cat([x[..., 2:4], x[..., 6:7], torch.zeros(1, 3, 5, 1)], -1),
    ),
    Case("pad", o.Pad(EDGES), (ODD,), lambda x: F.pad(x, flat_pad(EDGES))),
    Case("pad-value", o.Pad(EDGES, value=1.5), (ODD,), lambda x: F.pad(x, flat_pad(EDGES), value=1.5)),
    Case("pad-reflect", o.Pad(EDGES, "reflect"), (ODD,), lambda x: F.pad(x, flat_pad(EDGES)[:4], mode="reflect")),
    Case("pad-replicate", o.Pad(EDGES, "replicate"), (ODD,), lambda x: F.pad(x, flat_pad(EDGES)[:4], mode="replicate")),
    *(
        Case(f"concatenate({a})", o.Concatenate(a), (ODD, ODD, ODD), lambda *x, a=a: torch.cat(x, a))
        for a in (-1, -2, -3, 1)
    ),
    *(Case(f"stack({a})", o.Stack(a), ((5, 7), (5, 7)), lambda *x, a=a: torch.stack(x, a)) for a in (0, 1, -1)),
    Case("interleave", o.Interleave(), (X, X), lambda a, b: torch.stack([a, b], 2).reshape(1, 4, 32, 64)),
    Case("interleave-odd", o.Interleave(), (ODD, ODD), lambda a, b: torch.stack([a, b], 2).reshape(1, 6, 5, 7)),
    Case("interleave-rows", o.Interleave(-2), (X, X), lambda a, b: torch.stack([a, b], 3).reshape(1, 2, 64, 64)),
    Case("unsqueeze", o.Unsqueeze(1), ((5, 7),), lambda x: x[:, None]),
    Case("squeeze", o.Squeeze(1), ((5, 1, 7),), lambda x: x[:, 0]),
    Case("broadcast_to", o.BroadcastTo((1, 4, 32, 64)), ((32, 1),), lambda x: x.expand(1, 4, 32, 64)),
    Case("repeat", o.Repeat((1, 2, 3, 2)), (ODD,), lambda x: x.repeat(1, 2, 3, 2)),
    Case("repeat-rank", o.Repeat((2, 1, 3)), ((5, 1),), lambda x: x.repeat(2, 1, 3)),
    Case("hslice", o.HSlice(2), (X,), lambda x: torch.stack([t for z in x[0] for t in z.split(32, -1)])[None]),
    Case("hslice-odd", o.HSlice(3), ((5, 12),), lambda x: torch.stack(x.split(4, -1))),
    Case("hstack", o.HStack(2), (X,), lambda x: torch.cat([x[:, 0:1], x[:, 1:2]], -1)),
    Case("hstack-all", o.HStack(), (ODD,), lambda x: torch.cat([x[:, i : i + 1] for i in range(3)], -1)),
    Case("vslice", o.VSlice(2), ((1, 2, 64, 32),), lambda x: torch.stack([h for z in x[0] for h in z.split(32)])[None]),
    Case("vslice-odd", o.VSlice(5), (ODD,), lambda x: torch.stack([h for z in x[0] for h in z.split(1)])[None]),
    Case("vstack", o.VStack(2), (X,), lambda x: torch.cat([x[:, 0:1], x[:, 1:2]], -2)),
    Case("vstack-all", o.VStack(), (ODD,), lambda x: torch.cat([x[:, i : i + 1] for i in range(3)], -2)),
    Case(
        "gather_rows",
        o.GatherRows(Payload(np.array([3, -1, 0, 3]))),
        (ODD,),
        lambda x: torch.stack([x[:, :, 3], torch.zeros(1, 3, 7), x[:, :, 0], x[:, :, 3]], 2),
    ),
    Case(
        "scatter_rows",
        o.ScatterRows(Payload(np.array([3, -1, 0, 3, 3])), 4),
        (ODD,),
        lambda x: torch.stack([x[:, :, 2], 0 * x[:, :, 1], 0 * x[:, :, 1], x[:, :, 0] + x[:, :, 3] + x[:, :, 4]], 2),
    ),
    Case(
        "sum_rows",
        o.SumRows(Payload(np.array([[0, 2], [0, 4], [2, 0]])), 3),
        (ODD,),
        lambda x: torch.stack([x[:, :, 2] + x[:, :, 4], 0 * x[:, :, 1], x[:, :, 0]], 2),
    ),
]

C6 = (6,)
NN = [
    *(Case(f"softmax({d})", o.Softmax(d), (ODD,), lambda x, d=d: torch.softmax(x, d)) for d in (-1, -2, 1)),
    Case("softmax-unstable", o.Softmax(-1, False), (X,), lambda x: torch.softmax(x, -1)),
    Case("log_softmax", o.LogSoftmax(-1), (ODD,), lambda x: torch.log_softmax(x, -1)),
    Case("layernorm", o.Layernorm(-1, 1e-5), (X, (64,), (64,)), lambda x, w, b: F.layer_norm(x, (64,), w, b, 1e-5)),
    Case(
        "batchnorm",
        o.Batchnorm(1e-3),
        (IMAGE, C6, C6, C6, C6),
        lambda x, w, b, m, v: F.batch_norm(x, m, v, w, b, False, 0, 1e-3),
        positive=True,
        stored=(1, 2, 3, 4),
    ),
    Case(
        "batchnorm_training",
        o.BatchnormTraining(1e-3),
        (IMAGE, C6, C6, C6, C6),
        lambda x, w, b, m, v: F.batch_norm(x, None, None, w, b, True, 0, 1e-3),
        positive=True,
        stored=(1, 2, 3, 4),
    ),
    Case(
        "group_norm",
        o.GroupNorm(3, 1e-5),
        (IMAGE, C6, C6),
        lambda x, w, b: F.group_norm(x, 3, w, b, 1e-5),
        stored=(1, 2),
    ),
    *(
        Case(
            f"conv2d-{i}",
            op,
            shapes,
            lambda x, w, *b, op=op: F.conv2d(
                F.pad(x, op.padding), w, *b, stride=op.stride, dilation=op.dilation, groups=op.groups
            ),
            stored=tuple(range(1, len(shapes))),
        )
        for i, (op, shapes) in enumerate(
            (
                (o.Conv2d(padding=(1, 1, 1, 1)), (IMAGE, (8, 6, 3, 3), (8,))),
                (o.Conv2d((2, 1), (0, 2, 1, 3), (1, 2)), (IMAGE, (8, 6, 3, 2))),
                (o.Conv2d((2, 2), (1, 1, 1, 1), groups=6), (IMAGE, (6, 1, 3, 3), (6,))),
                (o.Conv2d(groups=2), (IMAGE, (4, 3, 1, 1))),
                (o.Conv2d(padding=(1, 1, 1, 1)), ((3, 6, 5, 5), (4, 6, 3, 3), (4,))),
                (o.Conv2d((2, 1), (0, 2, 1, 3), (1, 2)), (BATCH, (8, 6, 3, 2))),
                (o.Conv2d((3, 2), groups=6), (BATCH, (6, 1, 3, 3), (6,))),
                (o.Conv2d((2, 2)), (BATCH, (4, 6, 1, 1))),
            )
        )
    ),
    *(
        Case(
            f"conv2d-channel-last-{n}",
            o.Conv2d((2, 2), (1, 1, 1, 1), channel_last=True),
            ((n, 9, 11, 6), (8, 6, 3, 3)),
            lambda x, w: F.conv2d(x.permute(0, 3, 1, 2), w, stride=2, padding=1).permute(0, 2, 3, 1),
            stored=(1,),
        )
        for n in (1, 3)
    ),
    *(
        Case(
            f"conv2d_transpose-{i}",
            op,
            shapes,
            lambda x, w, *b, a=a: F.conv_transpose2d(x, w, *b, **a),
            stored=tuple(range(1, len(shapes))),
        )
        for i, (op, shapes, a) in enumerate(
            (
                (o.Conv2dTranspose((2, 2)), (IMAGE, (6, 4, 2, 2), (4,)), {"stride": 2}),
                (
                    o.Conv2dTranspose((2, 2), (1, 1, 1, 1), output_padding=(1, 1)),
                    (IMAGE, (6, 4, 3, 3)),
                    {"stride": 2, "padding": 1, "output_padding": 1},
                ),
                (o.Conv2dTranspose((1, 1), (3, 3, 3, 3)), (IMAGE, (6, 4, 2, 2)), {"padding": 3}),
                (
                    o.Conv2dTranspose((3, 2), (1, 1, 0, 0), (2, 1), 2),
                    (IMAGE, (6, 4, 3, 3), (8,)),
                    {"stride": (3, 2), "padding": (0, 1), "dilation": (2, 1), "groups": 2},
                ),
            )
        )
    ),
    *(
        Case(f"max_pool2d-{i}-of-{images[0]}", op, (images,), lambda x, a=a: F.max_pool2d(x, **a))
        for images in (IMAGE, BATCH)
        for i, (op, a) in enumerate(
            (
                (o.MaxPool2d((2, 2), (2, 2)), {"kernel_size": 2}),
                (o.MaxPool2d((3, 3), (2, 2), (1, 1, 1, 1)), {"kernel_size": 3, "stride": 2, "padding": 1}),
                (
                    o.MaxPool2d((2, 3), (2, 2), (1, 1, 0, 0), ceil_mode=True),
                    {"kernel_size": (2, 3), "stride": 2, "padding": (0, 1), "ceil_mode": True},
                ),
                (o.MaxPool2d((2, 2), (1, 1), dilation=(2, 3)), {"kernel_size": 2, "stride": 1, "dilation": (2, 3)}),
            )
        )
    ),
    *(
        Case(f"avg_pool2d-{i}-of-{images[0]}", op, (images,), lambda x, a=a: F.avg_pool2d(x, **a))
        for images in (IMAGE, BATCH)
        for i, (op, a) in enumerate(
            (
                (o.AvgPool2d((2, 2), (2, 2)), {"kernel_size": 2}),
                (o.AvgPool2d((3, 3), (2, 2), (1, 1, 1, 1)), {"kernel_size": 3, "stride": 2, "padding": 1}),
                (
                    o.AvgPool2d((3, 3), (2, 2), (1, 1, 1, 1), count_include_pad=False),
                    {"kernel_size": 3, "stride": 2, "padding": 1, "count_include_pad": False},
                ),
                (
                    o.AvgPool2d((2, 3), (2, 3), (1, 1, 0, 0), ceil_mode=True),
                    {"kernel_size": (2, 3), "padding": (0, 1), "ceil_mode": True},
                ),
                (
                    o.AvgPool2d((4, 4), (3, 3), (1, 1, 1, 1), ceil_mode=True, count_include_pad=False),
                    {"kernel_size": 4, "stride": 3, "padding": 1, "ceil_mode": True, "count_include_pad": False},
                ),
                (o.AvgPool2d((9, 11), (9, 11)), {"kernel_size": (9, 11)}),
            )
        )
    ),
    *(
        Case(f"adaptive-{out}", o.AdaptiveAvgPool2d(out), (IMAGE,), lambda x, s=out: F.adaptive_avg_pool2d(x, s))
        for out in ((1, 1), (3, 11), (4, 5), (9, 11))
    ),
    *(
        Case(
            f"resize2d-{size}-{mode}-{corners}",
            o.Resize2d(size, mode, corners),
            (IMAGE,),
            lambda x, s=size, m=mode, c=corners: F.interpolate(
                x, s, mode=m, align_corners=c if m == "bilinear" else None
            ),
        )
        for size, mode, corners in (
            ((18, 22), "nearest", False),
            ((5, 7), "nearest", False),
            ((18, 33), "bilinear", False),
            ((18, 22), "bilinear", True),
            ((4, 5), "bilinear", False),
            ((9, 22), "bilinear", False),
        )
    ),
    Case("pixel_shuffle", o.PixelShuffle(2), ((1, 8, 3, 5),), lambda x: F.pixel_shuffle(x, 2)),
    Case("pixel_shuffle-aligned", o.PixelShuffle(2), ((1, 128, 4, 8),), lambda x: F.pixel_shuffle(x, 2)),
    Case("to_rows", o.ToRows(), (IMAGE,), lambda x: x.flatten(2).transpose(1, 2)[None]),
    Case("from_rows", o.FromRows((3, 5)), ((1, 1, 15, 4),), lambda x: x.permute(0, 3, 1, 2).reshape(1, 4, 3, 5)),
    Case(
        "conv2d_rows",
        o.ConvRows((3, 5), (3, 3), (1, 2), (1, 1, 1, 1)),
        ((1, 1, 15, 4), (6, 4, 3, 3), (6,)),
        lambda x, w, b: F.conv2d(x.mT.reshape(1, 4, 3, 5), w, b, (1, 2), 1).flatten(2).transpose(1, 2)[None],
        stored=(1, 2),
    ),
    Case(
        "patches_rows",
        o.PatchesRows((5, 6), (3, 2), (3, 4), (2, 3), (1, 1)),
        ((1, 1, 30, 2),),
        lambda x: F.unfold(F.pad(x.mT.reshape(1, 2, 5, 6), (1, 0, 1, 1)), (3, 4), stride=(2, 3)).transpose(1, 2)[
            :, None
        ],
    ),
    Case(
        "max_pool2d_rows",
        o.MaxPoolRows((4, 6), (2, 3), (2, 3)),
        ((1, 1, 24, 4),),
        lambda x: F.max_pool2d(x.transpose(2, 3).reshape(1, 4, 4, 6), (2, 3)).flatten(2).transpose(1, 2)[None],
    ),
    Case(
        "sum_pool2d_rows",
        o.SumPoolRows((4, 6), (2, 3), (2, 3), (0, 0, 1, 1)),
        ((1, 1, 24, 4),),
        lambda x: (
            6
            * F.avg_pool2d(F.pad(x.transpose(2, 3).reshape(1, 4, 4, 6), (0, 0, 1, 1)), (2, 3))
            .flatten(2)
            .transpose(1, 2)[None]
        ),
    ),
]

CASES = [*UNARY, *BINARY, *MATMUL_REDUCE, *TMS, *NN]
