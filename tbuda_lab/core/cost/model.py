"""Cycles of an op on its cores, for all candidates at once: formats by class, the block of one core, and the features
made of them."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.cost.tables import Fit, Key, Pieces, Table, load_table, published_coefficients, unknown_kind
from tbuda_lab.core.formats import DataFormat, MathFidelity, tile_bytes

F64 = npt.NDArray[np.float64]
Count = npt.ArrayLike

_CLASSES = {
    "fp16": (DataFormat.Float16, DataFormat.Float16_b, DataFormat.UInt16, DataFormat.RawUInt16),
    "fp32": (DataFormat.Float32, DataFormat.RawUInt32),
    "int8": (DataFormat.Int8, DataFormat.UInt8, DataFormat.RawUInt8),
    "int32": (DataFormat.Int32,),
}
_CLASS_OF = {df: name for name, members in _CLASSES.items() for df in members}


def format_class(df: DataFormat) -> str:
    """fp16, fp32, int8, int32, or bfp for block formats and 8-bit floats: formats that move and compute alike."""
    return _CLASS_OF.get(df, "bfp")


@dataclasses.dataclass(frozen=True)
class Block:
    """The work of one core; every field an array or number, broadcast against each other."""

    t: Count
    mblock_m: Count
    mblock_n: Count
    ublock_r: Count
    ublock_c: Count
    m_k: Count = 1
    u_kt: Count = 1
    z: Count = 1
    fidelity: MathFidelity | npt.NDArray[np.int64] = MathFidelity.LoFi
    nz_tiles: Count = 0
    nz_ublocks: Count = 0
    nz_strips: Count = 0

    def features(self) -> Features:
        """Every feature by name, broadcast to one shape when it is read."""
        passes = self.fidelity.passes if isinstance(self.fidelity, MathFidelity) else self.fidelity
        counts = (
            self.t,
            self.mblock_m,
            self.mblock_n,
            self.ublock_r,
            self.ublock_c,
            self.m_k,
            self.u_kt,
            self.z,
            passes,
            self.nz_tiles,
            self.nz_ublocks,
            self.nz_strips,
        )
        return Features(_Counts(*(np.asarray(v, dtype=np.float64) for v in counts)))


@dataclasses.dataclass(frozen=True)
class _Counts:
    """Fields of a block as floats; c, k, kt: columns of a ublock, and the two factors of the inner dimension."""

    t: F64
    m: F64
    n: F64
    r: F64
    c: F64
    k: F64
    kt: F64
    z: F64
    passes: F64
    nz: F64
    nzu: F64
    strips: F64

    @functools.cached_property
    def blocks(self) -> F64:
        return self.t * self.m * self.n

    @functools.cached_property
    def tiles(self) -> F64:
        return self.blocks * (self.r * self.c)

    @functools.cached_property
    def inner(self) -> F64:
        return self.k * self.kt * self.blocks

    @functools.cached_property
    def again(self) -> F64:
        """Nonzero ublocks beyond one for every ublock of output: for these a partial result is read back."""
        return np.maximum(self.nzu - self.t * self.m, 0) * self.n

    @functools.cached_property
    def restrips(self) -> F64:
        """Strips beyond the first of each slice."""
        return np.maximum(self.strips - self.t, 0)


FEATURES: dict[str, Callable[[_Counts], F64]] = {
    "one": lambda b: np.ones(()),
    "blocks": lambda b: b.blocks,
    "tiles": lambda b: b.tiles,
    "looped": lambda b: b.blocks * (b.r * b.c > 1),  # ublocks whose tiles are gone through by a loop
    "ublock_tiles": lambda b: b.tiles * (b.r * b.c),
    "z_blocks": lambda b: b.z * b.blocks,
    "z_tiles": lambda b: b.z * b.tiles,
    "z_slices": lambda b: b.z * b.t,
    "z_step_tiles": lambda b: (b.z - 1) * b.tiles,
    "z_step_blocks": lambda b: (b.z - 1) * b.blocks,
    "z_wait": lambda b: (b.z - 1) * b.t * (b.m * b.n == 1),
    "math": lambda b: b.k * b.kt * b.tiles * b.passes,
    "spill": lambda b: (b.k - 1) * b.tiles,
    "spill_blocks": lambda b: (b.k - 1) * b.blocks,
    "reload": lambda b: (b.k > 1) * b.tiles,  # read back once from where steps add up, and packed
    "reload_blocks": lambda b: (b.k > 1) * b.blocks,
    "passes": lambda b: (b.k - 1) * b.t,
    "step": lambda b: b.k * b.blocks,
    "inner": lambda b: b.inner,
    "inner_rows": lambda b: b.inner * b.r,
    "inner_tiles": lambda b: b.inner * (b.r * b.c),
    "operands": lambda b: b.inner * (b.r + b.c),
    "unpack": lambda b: b.inner * b.r * (1 + b.c),
    "in0": lambda b: b.t * b.m * b.r * b.k * b.kt,  # tiles that come in, of either operand of a matmul
    "in1": lambda b: b.t * b.n * b.c * b.k * b.kt,
    "nz": lambda b: b.nz,
    "nz_cols": lambda b: b.nz * b.n,
    "nz_math": lambda b: b.nz * b.n * b.c * b.passes,
    "nzu": lambda b: b.nzu,
    "nzu_cols": lambda b: b.nzu * b.n,
    "nzu_tiles": lambda b: b.nzu * b.n * b.r * b.c,
    "again": lambda b: b.again,
    "again_tiles": lambda b: b.again * (b.r * b.c),
    "strips": lambda b: b.strips,
    "strip_rows": lambda b: b.strips * b.m,
    "strip_cols": lambda b: b.strips * b.n,
    "strip_blocks": lambda b: b.strips * b.n * b.m,
    "restrip_blocks": lambda b: b.restrips * b.n * b.m,
    "restrip_tiles": lambda b: b.restrips * b.n * b.m * (b.r * b.c),
}
"""What happens on a core per input, by name: how often, from the block (docs/cost-model.md, "Form")."""


class Features(Mapping[str, F64]):
    """The features of blocks, worked out when they are read, all of one shape."""

    def __init__(self, counts: _Counts) -> None:
        self._counts, self._known = counts, dict[str, F64]()
        self.shape = np.broadcast_shapes(*(np.shape(getattr(counts, f.name)) for f in dataclasses.fields(counts)))

    def __getitem__(self, name: str) -> F64:
        if name not in self._known:
            self._known[name] = np.broadcast_to(FEATURES[name](self._counts), self.shape)
        return self._known[name]

    def __iter__(self) -> Iterator[str]:
        return iter(FEATURES)

    def __len__(self) -> int:
        return len(FEATURES)


def evaluate(pieces: list[dict[str, float]], features: Mapping[str, F64]) -> F64:
    """The slowest of several units that work side by side: the maximum of the pieces, each a weighted sum."""
    first, *rest = (_weighted_sum(piece, features) for piece in pieces)
    for other in rest:
        first = np.maximum(first, other)
    return first


def _weighted_sum(piece: dict[str, float], features: Mapping[str, F64]) -> F64:
    total = np.zeros(features["one"].shape)
    for name, weight in piece.items():
        total = total + weight * features[name]
    return total


UNARY = (
    "nop",
    "abs",
    "clip",
    "cosine",
    "dropout",
    "exp",
    "gelu",
    "gelu_derivative",
    "log",
    "lrelu",
    "power",
    "reciprocal",
    "sigmoid",
    "sine",
    "sqrt",
    "square",
    "tanh",
)
BINARY = ("add", "subtract", "multiply", "maximum", "quantization", "dequantization", "requantization")
MOVES = ("datacopy", "ethernet_datacopy", "buffer", "tilizer", "topk")  # priced as nop
KINDS = (*UNARY, *BINARY, *MOVES, "splice", "reduce", "embedding", "matmul", "sparse_matmul", "depthwise")
"""Every op type that has an estimate."""

EMBEDDING_CYCLES = 10_000  # per input, whatever the block: the published figure
_LIMIT = 1 << 30
_PUBLISHED_NAME = {"sparse_matmul": "matmul_sparse"}
_NEAREST = {
    "bfp": ("bfp", "fp16", "fp32"),
    "fp16": ("fp16", "bfp", "fp32"),
    "fp32": ("fp32", "fp16", "bfp"),
    "int8": ("int8", "int32"),
    "int32": ("int32", "int8"),
}
_SAMPLE = {
    "bfp": DataFormat.Bfp8_b,
    "fp16": DataFormat.Float16_b,
    "fp32": DataFormat.Float32,
    "int8": DataFormat.Int8,
    "int32": DataFormat.Int32,
}

_FROM_DEST = 0.5
_ARITHMETIC = ("add", "subtract", "multiply")


def fused_share(kind: str, from_dest: bool) -> float:
    """What a sub-op of a fused op takes, as a share of the same op on its own: arithmetic on a value that waits in dest
    takes half (placement.md#kernel-cycles)."""
    return _FROM_DEST if from_dest and kind in _ARITHMETIC else 1.0


def cycles(
    kind: str,
    *,
    arch: str,
    df: DataFormat,
    acc_df: DataFormat | None = None,
    fidelity: MathFidelity | npt.NDArray[np.int64] = MathFidelity.HiFi3,
    t: Count,
    mblock_m: Count,
    mblock_n: Count,
    ublock_r: Count,
    ublock_c: Count,
    m_k: Count = 1,
    u_kt: Count = 1,
    z: Count = 1,
    dim: str | None = None,
    approximate: bool = False,
    vector: str = "rc",
    l1_acc: bool = False,
    sparse: tuple[Count, Count, Count] | None = None,
    table: Table | None = None,
) -> npt.NDArray[np.int64]:
    """Cycles that one core of an op takes per input.

    kind: the netlist's op type, "sparse_matmul" for an identity matmul. df: format of the input that decides (in0;
    the dense operand of a sparse matmul). acc_df: integer matmuls count as integer whatever accumulates. Block
    arguments are those of one core and may be arrays that broadcast; the result has their common shape. Matmul with
    `z` > 1 accumulates z slices. reduce: `dim` "r", "c" or "z" (z slices in); the block is the output's, and m_k x u_kt
    tiles along r or c are read for each of its tiles.
    sparse: (nonzero tiles, nonzero ublocks, strips) of one core. fidelity may be an array of passes.

    The formula is the largest of a few sums over the features of `blocks`, fitted to silicon (docs/cost-model.md),
    or the published one. Raises `UnsupportedOp` for an unknown kind and `UnknownDevice` for an unknown arch.
    """
    if kind not in KINDS:
        raise unknown_kind(kind, KINDS)
    table = table or load_table(arch)
    if kind in MOVES:
        kind = "nop"
    zs = np.asarray(z)
    if kind == "embedding":
        shape = np.broadcast_shapes(*(np.shape(v) for v in (t, mblock_m, mblock_n, ublock_r, ublock_c)))
        return np.full(shape, EMBEDDING_CYCLES, np.int64)
    if kind == "reduce":
        dim = dim or ("z" if (zs > 1).any() else "r")
    elif kind == "matmul" and (zs > 1).any():  # z passes over the inner dimension into one output
        m_k, zs = np.multiply(m_k, zs), np.asarray(1)
    nz, nzu, strips = sparse if sparse is not None else (0, 0, 0)
    block = Block(t, mblock_m, mblock_n, ublock_r, ublock_c, m_k, u_kt, zs, fidelity, nz, nzu, strips)
    variant = _variant(kind, dim, approximate, l1_acc)
    estimate = _estimate(table, kind, format_class(df), variant, vector, block)
    return np.clip(np.rint(estimate), 1, _LIMIT).astype(np.int64)


def _variant(kind: str, dim: str | None, approximate: bool, l1_acc: bool) -> str:
    if kind == "reduce":
        return dim or ""
    if kind in ("matmul", "depthwise"):
        return "l1_acc" if l1_acc else ""
    return "approximate" if approximate else ""


def _estimate(table: Table, kind: str, format: str, variant: str, vector: str, block: Block) -> F64:
    features = block.features()
    if _PUBLISHED_NAME.get(kind, kind) not in table.published and not any(key.kind == kind for key in table.fits):
        kind = "nop"
    fit = _fit(table, kind, format, variant) if vector == "rc" else None
    if fit is None:
        return _published_cycles(table, kind, format, variant, vector, block, features)
    estimate = evaluate(list(fit.pieces), features)
    moves = kind in UNARY + BINARY + ("splice",)
    if moves and fit.key.format != format:  # measured in another format: at least this format's own traffic
        estimate = np.maximum(estimate, _traffic(table, format, features))
    return estimate


def _fit(table: Table, kind: str, format: str, variant: str) -> Fit | None:
    """The fit of the nearest format; an approximate op without runs of its own takes the exact one's."""
    for name in dict.fromkeys((variant, "" if kind != "reduce" else variant)):
        for nearest in _NEAREST[format]:
            fit = table.fits.get(Key(kind, nearest, name))
            if fit is not None:
                return fit
    return None


def _traffic(table: Table, format: str, features: Mapping[str, F64]) -> F64:
    """Cycles to bring in and take away the tiles of a format: nop's, scaled by bytes where nop was not measured."""
    own = table.fits.get(Key("nop", format))
    if own is not None:
        return evaluate(list(own.pieces), features)
    for near in ("fp16", "bfp"):
        fit = table.fits.get(Key("nop", near))
        if fit is not None:
            scale = tile_bytes(_SAMPLE[format]) / tile_bytes(_SAMPLE[near])
            pieces = [
                {name: weight * (scale if name == "tiles" else 1) for name, weight in piece.items()}
                for piece in fit.pieces
            ]
            return evaluate(pieces, features)
    return np.zeros(features["one"].shape)


def _published_cycles(
    table: Table, kind: str, format: str, variant: str, vector: str, block: Block, features: Mapping[str, F64]
) -> F64:
    name = "reduce_z" if (kind, variant) == ("reduce", "z") else _PUBLISHED_NAME.get(kind, kind)
    counted = "int32" if (kind, format) == ("matmul", "int8") else format  # what an integer matmul accumulates in
    conditions = {f"df_{counted}"} | ({f"vector_{vector}"} if vector != "rc" else set())
    conditions |= {"approximate": {"approx"}, "l1_acc": {"l1_acc_en"}, "c": {"dim_c"}}.get(variant, set())
    weights = published_coefficients(table, name, frozenset(conditions)) or published_coefficients(
        table, "nop", frozenset()
    )
    assert weights is not None  # every table has a nop
    if kind == "sparse_matmul":
        return _sparse_published(weights, block)
    return evaluate(_published_pieces(kind, format, weights), features)


def _published_pieces(kind: str, format: str, weights: dict[str, float]) -> Pieces:
    names = {"ublock_weight": "blocks", "tile_weight": "tiles"}
    if "z_weight" in weights:
        names = {"ublock_weight": "z_blocks", "tile_weight": "z_tiles", "z_weight": "z_slices"}
    elif kind == "reduce":
        names = {"ublock_weight": "step", "tile_weight": "inner_tiles"}
    elif "m_k_weight" in weights:
        names = {"m_k_weight": "passes", "ublock_weight": "step", "tile_weight": "math"}
    elif "math_tiles_weight" in weights:
        names = {
            "math_tiles_weight": "math",
            "math_dest_spill_weight": "spill",
            "unpack_ublocks_weight": "step",
            "unpack_tiles_weight": "unpack",
        }
    piece = {names[name]: float(weight) for name, weight in weights.items()}
    if kind in ("add", "subtract", "multiply"):
        piece["tiles"] *= {"fp16": 2.0, "fp32": 4.0}.get(format, 1.0)
    return [piece]


def _sparse_published(weights: dict[str, float], block: Block) -> F64:
    """The published first form of a sparse matmul: decode, math, reload and pack one after another."""
    t, m, n, r, c, k, nz, nzu, strips = (
        np.asarray(v, dtype=np.float64)
        for v in (
            block.t,
            block.mblock_m,
            block.mblock_n,
            block.ublock_r,
            block.ublock_c,
            block.m_k,
            block.nz_tiles,
            block.nz_ublocks,
            block.nz_strips,
        )
    )
    passes = block.fidelity.passes if isinstance(block.fidelity, MathFidelity) else block.fidelity
    every = np.maximum(strips * m, nzu)
    reload_ublock = weights["reload_config"] + weights["reload"] * c * r
    math = nz * n * c * weights["tile_weight"] * passes
    reloads = (every * weights["reload_wait_pop"] + nzu * reload_ublock) * n
    reloads = reloads + np.where(k > 1, m * t * reload_ublock * n, 0)
    pack = weights["pack_wait_push"] * (every - nzu) * n + weights["pack"] * 2 * t * n * m * c * r
    decode = nz * weights["nz_tile_decode"] * (2 + n) + every * weights["ublock_decode"]
    return np.asarray(math + reloads + pack + decode + nzu * weights["nz_ublock_decode"])
