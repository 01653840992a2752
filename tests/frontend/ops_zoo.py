"""One small module for every aten op that the frontend maps, in the ways that differ."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import torch
from torch import nn
from torch.nn import functional as F

Case = tuple[str, Callable[..., object] | nn.Module, tuple[torch.Tensor, ...]]


class Fn(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[..., object]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *args: torch.Tensor) -> object:
        return self.function(*args)


def r(*shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(sum(shape) + len(shape))
    return torch.randn(*shape, generator=generator)


def k(*shape: int) -> torch.Tensor:
    """A tensor known when the module is traced."""
    return KNOWN.setdefault(shape, r(*shape))


def p(*shape: int) -> torch.Tensor:
    return r(*shape).abs() + 0.1


def ids(high: int, *shape: int) -> torch.Tensor:
    return torch.randint(0, high, shape, generator=torch.Generator().manual_seed(high))


KNOWN: dict[tuple[int, ...], torch.Tensor] = {}
ROWS = r(20, 16)
PAIR, TRIPLE = r(1, 2, 8), r(1, 3, 8)
X = (r(1, 6, 8),)
XY = (r(1, 6, 8), p(1, 6, 8))
INF = float("inf")
IMG = (r(1, 4, 9, 11),)
SAFE_SOFTMAX = getattr(torch.ops.aten, "_safe_softmax")  # noqa: B009
"""What torch takes an attention apart into."""
MASK = torch.tensor([[True, False, True, True, False, True, True, True]])

CASES: list[Case] = [
    # element-wise
    ("fake quantisation", lambda x: torch.fake_quantize_per_tensor_affine(x, 0.05, 3, -128, 127), X),
    *(
        (f, getattr(torch, f), X)
        for f in (
            "relu",
            "sigmoid",
            "tanh",
            "exp",
            "abs",
            "sin",
            "cos",
            "erf",
            "neg",
            "square",
            "expm1",
            "exp2",
            "selu",
            "celu",
            "logical_not",
            "positive",
        )
    ),
    *((f, getattr(torch, f), (p(1, 6, 8),)) for f in ("log", "sqrt", "rsqrt", "reciprocal", "log2", "log10", "log1p")),
    *(
        (f, getattr(F, f), X)
        for f in (
            "silu",
            "hardswish",
            "hardsigmoid",
            "hardtanh",
            "relu6",
            "elu",
            "leaky_relu",
            "gelu",
            "softplus",
            "mish",
            "logsigmoid",
            "glu",
        )
    ),
    *(
        (f, getattr(torch, f), XY)
        for f in (
            "add",
            "sub",
            "mul",
            "div",
            "maximum",
            "minimum",
            "max",
            "min",
            "eq",
            "ne",
            "lt",
            "le",
            "gt",
            "ge",
            "logical_and",
            "logical_or",
            "rsub",
        )
    ),
    ("gelu tanh", lambda x: F.gelu(x, approximate="tanh"), X),
    ("random slope in eval mode", lambda x: F.rrelu(x, 0.1, 0.3), X),
    ("leaky slope", lambda x: F.leaky_relu(x, 0.2), X),
    ("elu alpha", lambda x: F.elu(x, 0.7), X),
    ("celu alpha", lambda x: F.celu(x, 1.7), X),
    ("softplus beta", lambda x: F.softplus(x, 2.0), X),
    ("add alpha", lambda x, y: torch.add(x, y, alpha=2.5), XY),
    ("sub alpha", lambda x, y: torch.sub(x, y, alpha=2.5), XY),
    ("rsub scalar", lambda x: 3.0 - x, X),
    ("scalars", lambda x: (2 * x + 1) / 4 - 0.5, X),
    ("divide into", lambda x: 2.0 / x, (p(1, 6, 8),)),
    ("pow 2 3 4", lambda x: x**2 + x**3 + x**4, X),
    ("pow roots", lambda x: x**0.5 + x**-0.5 + x**-2, (p(1, 6, 8),)),
    ("pow float", lambda x: x**1.3, (p(1, 6, 8),)),
    ("pow tensors", lambda x, y: torch.pow(x, y), (p(1, 6, 8), r(1, 6, 8))),
    ("pow base", lambda x: 2.0**x, X),
    ("clamp", lambda x: x.clamp(-0.5, 0.7), X),
    ("clamp min", lambda x: x.clamp(min=0.1), X),
    ("clamp max", lambda x: x.clamp_max(0.1), X),
    ("clamp tensors", lambda x, y: torch.clamp(x, -y, y), XY),
    ("prelu", nn.PReLU(6), X),
    ("prelu one", nn.PReLU(), X),
    ("addcmul", lambda x, y: torch.addcmul(x, x, y, value=0.5), XY),
    ("addcdiv", lambda x, y: torch.addcdiv(x, x, y, value=0.5), XY),
    ("lerp", lambda x, y: torch.lerp(x, y, 0.3), XY),
    ("lerp tensor", lambda x, y: torch.lerp(x, y, torch.sigmoid(x)), XY),
    ("where", lambda x, y: torch.where(x > 0, x, y), XY),
    ("where scalars", lambda x: torch.where(x > 0, x, 0.25) + torch.where(x > 0.5, -1.0, x), X),
    ("masked_fill known", lambda x: torch.softmax(x.masked_fill(~MASK, float("-inf")), -1), X),
    ("masked_fill", lambda x: x.masked_fill(x > 0.5, 2.0), X),
    ("bitwise", lambda x: torch.where((x > 0) & (x < 1) | ~(x > -1), x, 0.0), X),
    ("comparison to float", lambda x: (x > 0).float() * 2.0 + (x <= 0).to(torch.int64), X),
    ("identities", lambda x: x.contiguous().clone().detach().to(torch.float32), X),
    ("dropout off", lambda x: F.dropout(x, 0.5, training=False), X),
    ("in place", lambda x: F.relu_(x + 1).mul_(2).add_(1), X),
    ("in place view", lambda x: _write(x), X),
    ("in place, read before", lambda x: (y := x + 1) * 3 + F.relu_(y) + y, X),
    ("in place, viewed before", lambda x: ((y := x + 1).view(-1), y.relu_())[0], X),
    ("in place through a view", lambda x: ((y := x + 1), y[:, :3].mul_(2))[0], X),
    ("in place after dropout", lambda x: ((y := x + 1), F.dropout(y, training=False).relu_())[0], X),
    ("in place, other type", lambda x: (x + 1).mul_(x > 0), X),
    ("constants made on the way", lambda x: x + torch.arange(8.0).diff(prepend=torch.zeros(1)).cumsum(0), X),
    ("numbers that only a check reads", lambda x: _checked(x), X),
    ("float64", lambda x: (x.double() * 2).float(), X),
    # moving data
    ("view", lambda x: x.view(1, 2, 3, 8).reshape(1, 6, 2, 4).flatten(1, 2), X),
    ("squeeze", lambda x: x.squeeze(0).unsqueeze(1).squeeze(1).unsqueeze(0), X),
    ("unflatten", lambda x: x.unflatten(1, (2, 3)), X),
    ("permute", lambda x: x.permute(0, 2, 1), X),
    ("permute 4", lambda x: x.permute(3, 1, 0, 2), IMG),
    ("permute 5", lambda x: x.view(1, 2, 2, 9, 11).permute(2, 4, 0, 1, 3), IMG),
    ("transpose", lambda x: x.transpose(1, 2).mT, X),
    ("movedim", lambda x: x.movedim(1, 3).movedim((0, 1), (1, 0)), IMG),
    ("t", lambda x: x[0].t(), X),
    ("expand", lambda x: x[:, :1].expand(1, 5, 8) + x[:, :5], X),
    ("repeat", lambda x: x.repeat(2, 1, 3), X),
    ("repeat rank", lambda x: x.repeat(2, 1, 2, 1), X),
    ("repeat_interleave", lambda x: x.repeat_interleave(3, 1), X),
    ("repeat_interleave flat", lambda x: x.repeat_interleave(2), X),
    ("slices", lambda x: x[:, 1:5, ::2] + x[:, -4:, :4] * x[:, 2:, 3:4], X),
    ("narrow", lambda x: x.narrow(1, 2, 3), X),
    ("select", lambda x: x[:, 2] + x[:, -1], X),
    ("split", lambda x: torch.cat(x.split(4, 2)[::-1], 1), X),
    ("split sizes", lambda x: x.split([1, 2, 3], 1)[2], X),
    ("chunk", lambda x: torch.stack(x.chunk(3, 1), 1), X),
    ("unbind", lambda x: x.unbind(1)[3], X),
    ("tensor_split", lambda x: x.tensor_split(4, 2)[1], X),
    ("cat", lambda x, y: torch.cat([x, y, x], -1), XY),
    ("cat dim 0", lambda x, y: torch.cat([x, y]), XY),
    ("stack", lambda x, y: torch.stack([x, y], -1), XY),
    ("roll", lambda x: torch.roll(x, (2, -3), (1, 2)), X),
    ("roll flat", lambda x: torch.roll(x, 5), X),
    ("flip", lambda x: x.flip(1, 2), X),
    ("pad", lambda x: F.pad(x, (1, 2, 0, 3)), X),
    ("pad value", lambda x: F.pad(x, (1, 2), value=1.5), X),
    ("pad negative", lambda x: F.pad(x, (-1, 2, 1, -2)), X),
    ("pad reflect", lambda x: F.pad(x, (2, 1, 1, 3), mode="reflect"), IMG),
    ("pad circular", lambda x: F.pad(x, (2, 1, 1, 3), mode="circular"), IMG),
    ("pad replicate", lambda x: F.pad(x, (2, 1, 1, 3), mode="replicate"), IMG),
    ("reflection pad", nn.ReflectionPad2d((2, 1, 1, 3)), IMG),
    ("replication pad", nn.ReplicationPad2d(2), IMG),
    ("zero pad", nn.ZeroPad2d(2), IMG),
    ("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), IMG),
    ("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 3), (r(1, 2, 9, 12),)),
    ("windows", lambda x: x.view(1, 4, 4, 4, 4, 8).transpose(2, 3).reshape(16, 16, 8), (r(1, 256, 8),)),
    ("channel shuffle", nn.ChannelShuffle(2), IMG),
    ("index known", lambda x: x[:, torch.tensor([3, 0, 0, 5])], X),
    ("index slice", lambda x: x[:, torch.tensor([1, 3, 5])], X),
    ("index two", lambda x: x[:, torch.tensor([[0], [2]]), torch.tensor([1, 4, -1])], X),
    ("index mask", lambda x: x[:, :, torch.tensor([True, False] * 4)], X),
    ("index_select", lambda x: x.index_select(2, torch.tensor([7, 1, 1])), X),
    ("index by input", lambda x, i: x[:, i], (X[0], ids(6, 4))),
    ("index_select by input", lambda x, i: x.index_select(2, i), (X[0], ids(8, 5))),
    ("embedding", nn.Embedding(20, 16), (ids(20, 1, 7),)),
    ("embedding known", lambda x: x + F.embedding(torch.tensor([2, 4, 4, 1, 0, 5]), k(6, 8)), X),
    ("embedding bag", nn.EmbeddingBag(20, 16), (ids(20, 1, 7),)),
    ("embedding bag sum", nn.EmbeddingBag(20, 16, mode="sum", padding_idx=2), (ids(20, 1, 7),)),
    ("embedding bag max", nn.EmbeddingBag(20, 16, mode="max"), (ids(20, 1, 7),)),
    (
        "embedding bag weights",
        lambda i, w: F.embedding_bag(i, ROWS, mode="sum", per_sample_weights=w),
        (ids(20, 1, 7), p(1, 7)),
    ),
    (
        "embedding bag offsets",
        lambda i: F.embedding_bag(i[0], ROWS, torch.tensor([0, 2, 2, 7, 9]), include_last_offset=True, mode="mean"),
        (ids(20, 1, 9),),
    ),
    ("hashed ids", lambda i: F.embedding(i % 7 + i // 10, ROWS), (ids(100, 1, 7),)),
    ("gather line", lambda i: torch.arange(40.0)[None].gather(1, i), (ids(40, 1, 7),)),
    ("one_hot", lambda i: F.one_hot(i, 7).float(), (ids(7, 2, 3),)),
    ("bincount", lambda i: torch.bincount(i.reshape(-1), minlength=7).float(), (ids(7, 2, 9),)),
    ("tril", lambda x: x.tril(-1) + x.triu(2), X),
    ("slice assignment", lambda x: _assign(x), X),
    # products
    ("linear", nn.Linear(8, 5), X),
    ("linear no bias", nn.Linear(8, 5, bias=False), X),
    ("linear vector", lambda x: F.linear(x[0, 0], k(5, 8)), X),
    ("matmul", lambda x, y: x @ y.mT, XY),
    ("matmul broadcast", lambda x: x @ k(3, 2, 8, 4), (r(1, 1, 6, 8),)),
    ("matmul vectors", lambda x: (x @ k(8)) @ k(6), X),
    ("bmm", lambda x, y: torch.bmm(x, y.transpose(1, 2)), XY),
    ("mm", lambda x: torch.mm(x[0], k(8, 3)), X),
    ("addmm", lambda x: torch.addmm(k(3), x[0], k(8, 3)), X),
    ("addmm scaled", lambda x: torch.addmm(k(3), x[0], k(8, 3), beta=0.5, alpha=2.0), X),
    (
        "addmm without its summand",
        lambda c, x: torch.addmm(c, x[0], k(8, 3), beta=0),
        (torch.full((3,), torch.nan), r(1, 6, 8)),
    ),
    ("addmv", lambda x: torch.addmv(k(6), x[0], k(8)), X),
    ("addmv scaled", lambda x: torch.addmv(k(6), x[0], k(8), beta=2, alpha=3), X),
    ("baddbmm", lambda x, y: torch.baddbmm(k(1, 6, 6), x, y.mT), XY),
    ("einsum", lambda x, y: torch.einsum("bic,bjc->bij", x, y), XY),
    ("bilinear", nn.Bilinear(8, 8, 5), XY),
    ("bilinear product", lambda x: torch.outer(x[0, 0], x[0, 1]), X),
    ("sdpa", lambda q: F.scaled_dot_product_attention(q, q * 0.5, q + 1), (r(1, 3, 5, 8),)),
    ("sdpa causal", lambda q: F.scaled_dot_product_attention(q, q, q, is_causal=True, scale=0.3), (r(1, 3, 5, 8),)),
    ("sdpa float mask", lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=k(5, 5)), (r(1, 3, 5, 8),)),
    ("sdpa mask", lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=k(5, 5) > -0.5), (r(1, 3, 5, 8),)),
    (
        "sdpa mask of a hidden row",
        lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=torch.arange(25).reshape(5, 5) > 6),
        (r(1, 3, 5, 8),),
    ),
    (
        "sdpa mask of input",
        lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=q[..., :5] > -3),
        (r(1, 3, 5, 8),),
    ),
    (
        "sdpa mask of input that hides whole rows",
        lambda q: F.scaled_dot_product_attention(q, q, q, attn_mask=(q[..., :1] > 0).expand(1, 3, 5, 5)),
        (r(1, 3, 5, 8),),
    ),
    (
        "sdpa grouped, mask of input that hides whole rows",
        lambda q, m: F.scaled_dot_product_attention(q, q[:, :2], q[:, 2:4], attn_mask=m > 0, enable_gqa=True),
        (r(1, 4, 5, 8), torch.arange(25.0).reshape(1, 1, 5, 5) - 12),
    ),
    (
        "sdpa grouped",
        lambda q: F.scaled_dot_product_attention(q, q[:, :2], q[:, 2:4], is_causal=True, enable_gqa=True),
        (r(1, 4, 5, 8),),
    ),
    ("multihead", nn.MultiheadAttention(8, 2, batch_first=True), (X[0], X[0], X[0])),
    ("encoder layer", nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), X),
    # convolution and pooling
    ("conv2d", nn.Conv2d(4, 6, 3), IMG),
    ("conv2d all", nn.Conv2d(4, 6, (3, 2), (2, 1), (1, 2), (2, 1), groups=2, bias=False), IMG),
    ("conv2d depthwise", nn.Conv2d(4, 4, 3, padding=1, groups=4), IMG),
    ("conv2d same", nn.Conv2d(4, 6, 4, padding="same", dilation=1), IMG),
    ("conv2d valid", nn.Conv2d(4, 6, 3, padding="valid"), IMG),
    ("conv2d reflect", nn.Conv2d(4, 6, 3, padding=1, padding_mode="reflect"), IMG),
    ("convolution", lambda x: torch.convolution(x, k(2, 4, 3, 3), None, [1, 2], [1, 1], [1, 1], False, [0, 0], 1), IMG),
    ("conv2d unbatched", lambda x: F.conv2d(x[0], k(2, 4, 3, 3)), IMG),
    ("conv1d", nn.Conv1d(6, 4, 3, 2, 1, 1, groups=2), (r(1, 6, 10),)),
    ("conv1d same", nn.Conv1d(6, 4, 4, padding="same"), (r(1, 6, 10),)),
    ("conv_transpose2d", nn.ConvTranspose2d(4, 6, 3, 2, 1, 1, groups=2), IMG),
    ("conv_transpose1d", nn.ConvTranspose1d(6, 4, 4, 2, 1), (r(1, 6, 10),)),
    ("max_pool2d", nn.MaxPool2d(3, 2, 1), IMG),
    ("max_pool2d ceil", nn.MaxPool2d(2, 2, ceil_mode=True), IMG),
    ("max_pool2d dilated", nn.MaxPool2d((3, 2), (1, 2), (1, 0), (2, 1)), IMG),
    ("max_pool1d", nn.MaxPool1d(3, 2, 1), (r(1, 6, 10),)),
    ("avg_pool2d", nn.AvgPool2d(3, 2, 1), IMG),
    ("avg_pool2d other", nn.AvgPool2d((2, 3), 2, (1, 1), True, False), IMG),
    ("avg_pool2d larger than the image", nn.AvgPool2d(40, ceil_mode=True), IMG),
    ("avg_pool2d divisor", nn.AvgPool2d(2, divisor_override=3), IMG),
    ("avg_pool1d", nn.AvgPool1d(3, 2, 1), (r(1, 6, 10),)),
    ("adaptive one", nn.AdaptiveAvgPool2d(1), IMG),
    ("adaptive", nn.AdaptiveAvgPool2d((3, 4)), IMG),
    ("adaptive same", nn.AdaptiveAvgPool2d((9, 11)), IMG),
    ("adaptive 1d", nn.AdaptiveAvgPool1d(3), (r(1, 6, 10),)),
    ("adaptive max", nn.AdaptiveMaxPool2d((3, 2)), (r(1, 4, 9, 8),)),
    ("local response norm", nn.LocalResponseNorm(3), IMG),
    ("nearest", lambda x: F.interpolate(x, scale_factor=2.0), IMG),
    ("nearest size", lambda x: F.interpolate(x, size=(5, 22)), IMG),
    ("bilinear", lambda x: F.interpolate(x, scale_factor=2.0, mode="bilinear"), IMG),
    ("bilinear corners", lambda x: F.interpolate(x, size=(13, 20), mode="bilinear", align_corners=True), IMG),
    ("nearest 1d", lambda x: F.interpolate(x, scale_factor=3.0), (r(1, 6, 10),)),
    # normalisation
    ("batch_norm", nn.BatchNorm2d(4), IMG),
    ("batch_norm plain", nn.BatchNorm2d(4, affine=False), IMG),
    ("batch_norm 1d", nn.BatchNorm1d(6), X),
    ("batch_norm own statistics of a batch", nn.BatchNorm2d(4, track_running_stats=False), (r(3, 4, 5, 6),)),
    ("batch_norm own statistics", lambda x: F.batch_norm(x, None, None, PAIR[0, 0, :4], PAIR[0, 1, :4], True), IMG),
    ("batch_norm own batch", lambda x: F.batch_norm(x, None, None, training=True), (r(3, 4, 5, 6),)),
    ("layer_norm", nn.LayerNorm(8), X),
    ("layer_norm plain", nn.LayerNorm(8, elementwise_affine=False), X),
    ("layer_norm two", nn.LayerNorm((6, 8)), X),
    ("group_norm", nn.GroupNorm(2, 4), IMG),
    ("instance_norm", nn.InstanceNorm2d(4, affine=True), IMG),
    ("instance_norm by statistics", nn.InstanceNorm2d(4, affine=True, track_running_stats=True), IMG),
    ("rms_norm", nn.RMSNorm(8), X),
    ("softmax", lambda x: x.softmax(-1) + x.softmax(1), X),
    ("safe_softmax", lambda x: SAFE_SOFTMAX(x.masked_fill(~MASK, float("-inf")), -1), X),
    ("log_softmax", lambda x: x.log_softmax(-1), X),
    ("kl_div", lambda x: torch.nn.functional.kl_div(x.log_softmax(-1), x.softmax(-1) * 0.5, reduction="none"), X),
    # reductions
    ("mean", lambda x: x.mean(), X),
    ("mean dims", lambda x: x.mean((2, 3)) + x.mean((-1, -2), keepdim=True)[..., 0, 0], IMG),
    ("sum", lambda x: x.sum(1) + x.sum(), X),
    ("amax", lambda x: x.amax((1, 2)) + x.max() + x.max(1).values.sum(-1), X),
    ("amin", lambda x: x.amin((1, 2)) + x.min() + x.min(2, keepdim=True).values.sum(), X),
    ("logsumexp", lambda x: x.logsumexp(-1), X),
    ("var", lambda x: x.var(-1) + x.std(-1, unbiased=False), X),
    ("var_mean", lambda x: torch.var_mean(x, (1, 2), correction=0), X),
    *((f"norm of order {p}", lambda x, p=p: torch.linalg.vector_norm(x, p, 1), X) for p in (0, 1, INF, -INF)),
    ("pairwise distance", nn.PairwiseDistance(1, keepdim=True), XY),
    ("norm", lambda x: F.normalize(x, dim=-1), X),
    ("argmax", lambda x: x.argmax(-1), X),
    ("argmin", lambda x: x.argmin(1), X),
    ("column_stack", lambda x: torch.column_stack([x[0], x[0] + 1, x[0, :, 0]]), X),
    ("argmax all", lambda x: x.argmax(), X),
    ("cumsum", lambda x: x.cumsum(1), X),
    (
        "any all of numbers",
        lambda x: torch.stack([w(v, -1).to(torch.uint8) for w in (torch.any, torch.all) for v in (x.round(), x.int())]),
        X,
    ),
    ("any all, whole", lambda x: torch.stack([x.any(), (x.abs() > 9).int().any(), x.all(), (x * 0).all()]), X),
    (
        "any all of nan, bytes",
        lambda x: (
            (x.sign() - 1).sqrt().any(1),
            torch.log(x.sign()).all(1),
            (x > 0).to(torch.uint8).any(2, keepdim=True),
        ),
        X,
    ),
    ("any all", lambda x: torch.stack([(x > 1).any(-1), (x > -1).all(-1)]), X),
    # whole pieces
    ("lstm", nn.LSTM(8, 5, batch_first=True), X),
    ("gru", nn.GRU(8, 5, batch_first=True), X),
    ("outputs", lambda x: {"b": x + 1, "a": (x * 2, [x - 1])}, X),
    *((f, getattr(torch, f), X) for f in ("sign", "erfc", "sinh", "cosh", "tan", "asinh")),
    ("acosh", lambda x: torch.acosh(x.abs() + 1.5), X),
    ("atanh", lambda x: torch.atanh(torch.tanh(x) * 0.9), X),
    ("xor of truth values", lambda x, y: torch.bitwise_xor((x > 0) ^ (y > 0.5), x > 1).float(), XY),
    ("logical_xor", lambda x, y: torch.logical_xor(x > 0, y > 0.5).float(), XY),
    ("floor of floats", torch.floor, X),
    ("rows by expert", lambda x, w: _rows_by_expert(x, w), (r(7, 4), r(3, 4, 5))),
    ("gather elements", lambda x: x.gather(2, torch.tensor([[[0, 3, 2], [1, 1, 7]]])), X),
    (
        "scatter_add",
        lambda x, i: x.scatter_add(1, i, 2 * torch.ones(1, 3, 8)),
        (r(1, 6, 8), torch.tensor([[[0, 1, 2, 3, 4, 5, 0, 0], [0] * 8, [5] * 8]])),
    ),
    ("gather one row by input", lambda x, i: (2 * x).gather(1, i), (r(1, 10), ids(10, 1, 1))),
    ("gather by input", lambda x, i: x.gather(1, i), (r(1, 5, 4), ids(5, 1, 3, 4))),
    ("gather one by input", lambda x, i: (2 * x).gather(2, i), (r(1, 4, 6), ids(6, 1, 1, 1))),
    ("gather of fewer rows by input", lambda x, i: x.gather(2, i), (r(1, 5, 4), ids(4, 1, 3, 2))),
    ("gather of fewer columns by input", lambda x, i: x.gather(1, i), (r(1, 5, 4), ids(5, 1, 7, 3))),
    ("index by two inputs", lambda x, i, j: x.tanh()[i, j], (r(3, 5, 8), ids(3, 4), ids(5, 4))),
    ("diagonal", lambda x: x.diagonal(1, -2, -1), (r(1, 3, 6, 8),)),
    ("diagonal_scatter", lambda x: torch.diagonal_scatter(x, k(6, 2), -1, 0, 2), (r(3, 6, 8),)),
    ("as_strided", lambda x: x.as_strided((3, 4), (8, 2), 1), (r(48),)),
    ("unfold", lambda x: x.unfold(2, 4, 2), X),
    ("index_copy", lambda x: x.index_copy(1, torch.tensor([4, 1]), PAIR), X),
    ("index_copy by input", lambda x, i: x.index_copy(1, i, PAIR), (r(1, 6, 8), torch.tensor([4, 1]))),
    ("index_add", lambda x: x.index_add(1, torch.tensor([1, 1, 3]), TRIPLE), X),
    ("index_fill", lambda x: x.index_fill(2, torch.tensor([1, 5]), 0.5), X),
    ("conv3d", nn.Conv3d(3, 4, 3, stride=(1, 2, 1), padding=1), (r(1, 3, 4, 6, 6),)),
    ("conv3d groups", nn.Conv3d(4, 4, (2, 1, 3), groups=2, dilation=(2, 1, 1)), (r(1, 4, 5, 4, 6),)),
    ("conv_transpose3d", nn.ConvTranspose3d(2, 3, 2, stride=2), (r(1, 2, 3, 4, 4),)),
    ("max_pool3d", nn.MaxPool3d(2), (r(1, 3, 4, 6, 6),)),
    ("avg_pool3d", nn.AvgPool3d((2, 3, 2), stride=2), (r(1, 3, 4, 6, 6),)),
    ("adaptive_avg_pool3d", nn.AdaptiveAvgPool3d((2, 3, 1)), (r(1, 3, 4, 6, 6),)),
    ("upsample_nearest3d", lambda x: F.interpolate(x, scale_factor=2), (r(1, 3, 3, 4, 4),)),
    ("upsample_trilinear3d", lambda x: F.interpolate(x, (5, 8, 6), mode="trilinear"), (r(1, 3, 3, 4, 4),)),
]


def _assign(x: torch.Tensor) -> torch.Tensor:
    y = x.clone()
    y[:, 1:3] = 0.5
    y[:, 4] = x[:, 0]
    return y


def _rows_by_expert(x: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
    """Rows 0 and 1 times the first matrix, none times the second, rows 2 to 6 times the third."""
    import_module("transformers.integrations.moe")  # defines the op
    return torch.ops.transformers.grouped_mm_fallback(x, weights, torch.tensor([2, 2, 7]))


def _checked(x: torch.Tensor) -> torch.Tensor:
    assert x.argmax(-1).max().item() <= x.shape[-1]
    return x * 2


def _write(x: torch.Tensor) -> torch.Tensor:
    y = x * 1
    y.view(-1)[3:7].zero_()
    return y + x


for _shape in ((6, 8), (5, 8), (3, 2, 8, 4), (8,), (6,), (8, 3), (3,), (1, 6, 6), (5, 5), (2, 4, 3, 3)):
    k(*_shape)
