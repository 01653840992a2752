"""What an op of a profile is: patterns of op codes to kinds, and kinds to groups that are priced and matched alike.

Op codes of TT-Metal have no fixed names: `Matmul`, `MatmulDeviceOperation` and `MinimalMatmulOp` are one thing, and
names change from version to version. The first pattern that is found in a code, read without capitals and underscores,
decides; what none knows is "other" and keeps its own name and time. Names of PyTorch's operators are short words, which
patterns would find in others: they stand in a table of their own.
"""

from __future__ import annotations

import functools
import re

OTHER = "other"
"""The kind of an op that no pattern knows."""

_PATTERNS: tuple[tuple[str, str], ...] = (
    # what crosses chips, before the ops that such kernels also do
    (
        "collective",
        r"allgather|reducescatter|allreduce|alltoall|broadcastdevice|pointtopoint|sendasync|recvasync|"
        r"collective|meshpartition",
    ),
    ("attention", r"sdpa|scaleddotproduct|flashattention|flashmla|ringattention|attention(?!.*(softmax|mask))"),
    ("conv", r"fprop|dgrad|wgrad|implicitgemm|implicitconvolve|winograd"),  # products within kernels of convolutions
    (
        "matmul",
        r"matmul|linear(?!algvector)|fullyconnected|sparsemm|moecompute|addb?mm|addmv|bmm|gemm|gemv|^b?mm$|^mv$",
    ),
    (
        "conv",
        r"convolve|conv(depthwise|tbc)|conv(1|2|3)?d|conv(olution|new|transpose)|optimizedconv|conv(device)?op",
    ),
    ("rotary", r"rotary|rope"),
    ("norm", r"norm(?!al)"),
    ("softmax", r"softmax"),
    ("cache", r"kvcache|cache"),
    ("heads", r"(create|concat|split|merge).*heads|headsdevice|splitquery|fusedqkv|createqkv"),
    ("embedding", r"embedding"),
    ("halo", r"halo"),
    ("pool", r"pool"),
    ("upsample", r"upsample|gridsample|interpolate"),
    ("untilize", r"untilize"),
    ("tilize", r"tilize"),
    ("reshard", r"shard"),
    ("transpose", r"transpose"),
    ("permute", r"permute"),
    ("slice_write", r"slicewrite"),
    ("slice", r"slice|narrow|unstack|split|chunk"),
    ("concat", r"concat|stack"),
    ("reshape", r"reshape|view|squeeze|fold"),
    ("pad", r"pad"),
    ("typecast", r"typecast|quantize|bitcast"),
    ("scan", r"accumulation|cumsum|cumprod|scan"),
    ("sort", r"topk|sort|argmax|argmin|sampling|nonzero|uniquex?"),
    ("reduce", r"reduce|prod|mean|variance|sumdevice|maxdevice"),
    ("gather", r"gather|scatter|indexfill|indexed|repeatinterleave"),
    ("binary", r"binary|add|subtract|multiply|mul(?!ti)|div|where|ternary|addc|eltwise|squareddifference|comparison"),
    ("unary", r"unary|activation|gelu|relu|silu|sigmoid|tanh|exp(?!and)|sqrt|clamp|dropout|glu"),
    ("repeat", r"repeat|expand|broadcast|bcast"),
    ("fill", r"full|fill|arange|zeros|ones|eye|rand|uniform|bernoulli"),
    ("copy", r"memcpy|move|copy|clone|assign|datacopy|identity|todevice|tomemory|tolayout|nop"),
    ("fill", r"memset"),
    ("binary", r"elementwise"),  # kernels of a graphics card, of which no word before says more
)
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)
KINDS = (*dict.fromkeys(kind for kind, _ in _PATTERNS), OTHER)
"""Every kind there is."""

_WORDS = {
    "matmul": "mm bmm addmm baddbmm addbmm addmv addr mv dot vdot ger outer inner matmul linear einsum tensordot "
    "chain_matmul int_mm scaled_mm grouped_mm sparse_mm",
    "binary": "add sub rsub mul div true_divide floor_divide remainder fmod pow eq ne lt le gt ge maximum minimum "
    "where logical_and logical_or logical_xor bitwise_and bitwise_or bitwise_xor addcmul addcdiv atan2 lerp "
    "masked_fill heaviside copysign",
    "unary": "abs neg exp exp2 expm1 log log1p log2 log10 sqrt rsqrt square sin cos tan asin acos atan sinh cosh tanh "
    "sigmoid relu relu6 gelu silu elu selu celu leaky_relu prelu hardswish hardsigmoid hardtanh mish softplus "
    "erf erfc erfinv reciprocal floor ceil round trunc frac sign clamp clamp_min clamp_max clip dropout "
    "native_dropout logical_not bitwise_not isnan isinf isfinite tril triu",
    "reduce": "sum nansum mean prod max min amax amin aminmax any all var std var_mean std_mean norm logsumexp "
    "linalg_vector_norm count_nonzero median",
    "transpose": "t mt numpy_t matrix_h adjoint",
    "permute": "permute movedim flip roll rot90",
    "reshape": "as_strided detach alias unsafe_view flatten unflatten ravel",
    "slice": "select unbind split chunk",
    "concat": "cat hstack vstack dstack",
    "gather": "index index_select index_put index_put_impl index_add index_copy take take_along_dim gather scatter "
    "scatter_add masked_select",
    "typecast": "float half double bfloat16 int long bool type_as",
    "copy": "to to_copy contiguous item local_scalar_dense lift_fresh",
    "fill": "empty empty_like empty_strided zeros zeros_like ones ones_like new_empty new_zeros new_ones arange randn "
    "rand",
}
_TORCH = {word: kind for kind, words in _WORDS.items() for word in words.split()}
"""Kinds of PyTorch's operators, by their names without underscores around them."""

_GROUPS = {
    "binary": "eltwise",
    "unary": "eltwise",
    "typecast": "eltwise",
    "norm": "norm",
    "softmax": "softmax",
    "matmul": "matmul",
    "conv": "conv",
    "attention": "attention",
    "collective": "collective",
    "reduce": "reduce",
    "scan": "reduce",
    "pool": "conv",
    "rotary": "eltwise",
    "sort": "reduce",
    OTHER: OTHER,
}


def group_of(kind: str) -> str:
    """matmul, conv, attention, eltwise, norm, softmax, reduce, collective, other, or move: what only moves data."""
    return _GROUPS.get(kind, "move")


@functools.lru_cache(4096)
def kind_of(code: str) -> str:
    """The kind of an op code. The words of namespaces (`ttnn::operations::matmul::...`) count, too, but those of
    PyTorch (`aten::addmm`, `aten.addmm.default`)."""
    torch = re.match(r"aten(?:::|\.)(\w+)", code.lower())
    if torch and (kind := _TORCH.get(torch.group(1).strip("_"))):
        return kind
    plain = re.sub(r"[^a-z0-9]", "", code.lower())[:400]
    found = next((kind for kind, pattern in _COMPILED if pattern.search(plain)), OTHER)
    return found if found != OTHER else _TORCH.get(code.lower().strip("_"), OTHER)
