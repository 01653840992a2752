"""What an op of a profile is: patterns of op codes to kinds, and kinds to groups that are priced and matched alike.

Op codes of TT-Metal have no fixed names: `Matmul`, `MatmulDeviceOperation` and `MinimalMatmulOp` are one thing, and
names change from version to version. The first pattern that is found in a code, read without capitals and underscores,
decides; what none knows is "other" and keeps its own name and time.
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
    ("matmul", r"matmul|linear|fullyconnected|sparsemm|moecompute"),
    ("conv", r"conv(1|2|3)?d|conv(olution|new|transpose)|optimizedconv|conv(device)?op"),
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
    ("copy", r"move|copy|clone|assign|datacopy|identity|todevice|tomemory|tolayout|nop"),
)
_COMPILED = tuple((kind, re.compile(pattern)) for kind, pattern in _PATTERNS)
KINDS = (*(kind for kind, _ in _PATTERNS), OTHER)
"""Every kind there is."""

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
    """The kind of an op code. The words of namespaces (`ttnn::operations::matmul::...`) count, too."""
    plain = re.sub(r"[^a-z0-9]", "", code.lower())[:400]
    return next((kind for kind, pattern in _COMPILED if pattern.search(plain)), OTHER)
