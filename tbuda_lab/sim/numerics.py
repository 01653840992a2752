"""Where values are rounded, in the three modes of the executor.

exact: nowhere. Formats decide about memory only; arithmetic is float32. Quantization ops alone make whole numbers. It
is what the vendor's golden model does unless it is told to quantise.

golden: arithmetic in float32. The host's conversion rounds what is pushed and popped; besides, inputs in a 4- or
2-bit block format are cut to it again after their TMs (before them, if one is a transpose: its op turns what was cut),
Float32 inputs lose the bits beyond Tf32 on wormhole, outputs in a 4- or 2-bit block format are cut to it (bits are
dropped, where the host's conversion rounds to nearest), and outputs in an integer format are rounded. An op's output
counts as of the format of its first input, and Float32 that was cut as Tf32, which is cut by no further op: so only
what the host wrote loses bits, where it is read.

device: an approximation of the machine, whose own rules are not published. Tensors are rounded wherever they are
packed: to `out_df`, and to `intermed_df` where a matmul spills between its `m_k` passes; to `acc_df` first where that
holds less. Operands of products lose the bits that the fidelity's passes don't cover. Inputs are converted to `in_df`
where the producer's format differs. The sum inside one pass is exact to float32.

In every mode sums and maxima of Int32 tensors are exact, and sums wrap: the vector unit adds 32-bit words. (The
vendor's golden model makes float32 of them.)
"""

from __future__ import annotations

import dataclasses
import zlib
from collections.abc import Callable

import numpy as np

from tbuda_lab.core.formats import DataFormat, cut_blocks, round_to, tf32
from tbuda_lab.core.netlist.schema import NetOp
from tbuda_lab.sim.arrays import Array
from tbuda_lab.sim.io import clip_integer, round_half_away

Convert = Callable[[Array], Array]
"""Returns a new array, or the given one if nothing changes."""

_SMALL_BLOCKS = frozenset((DataFormat.Bfp4, DataFormat.Bfp4_b, DataFormat.Bfp2, DataFormat.Bfp2_b))
_TF32_ARCHS = frozenset(("wormhole", "wormhole_b0"))
_PRODUCTS = frozenset(("matmul", "multiply", "depthwise"))
_MAY_ALIAS = frozenset(("nop", "datacopy", "ethernet_datacopy", "buffer", "tilizer", "drainer", "fused_op", "splice"))
_WORDS = frozenset(("add", "maximum"))
_QUANTISE = frozenset(("quantization", "requantization"))
_FPU = _PRODUCTS | {"add", "subtract", "reduce"}

# Significand bits (the leading one included) that the passes of a fidelity multiply: (source A, source B), 0 = all.
# One pass covers 5 bits of A and 7 of B; a second one adds the rest of A (of B in HiFi2_B), a third the rest of the
# other one; only the product of both rests is missing from HiFi3: less than 2**-10 of a product, nothing where A has no
# more than 5 bits or B no more than 7 (Bfp8). Taking it away makes a matmul twice as long. It is done where accumulator
# and output hold `_SHOWN` significand bits or more (Float32, Float16: a third of the stored values change). Of a
# Float16_b matmul of normal random numbers it would change a twentieth of the stored values, and is left out.
_THREE_PASSES = (5, 7)
_SHOWN = 11
_COVERED = {"LoFi": (5, 7), "HiFi2": (0, 7), "HiFi2_A": (0, 7), "HiFi2_B": (5, 0)}


def covered_bits(op_type: str, fidelity: str, index: int) -> int:
    """Significand bits of an operand that the passes of a fidelity multiply; 0 for all."""
    if op_type not in _PRODUCTS or index > 1:
        return 0
    a, b = _COVERED.get(fidelity, (0, 0))
    # a matmul's second input is source A, an eltwise op's first one
    return (b, a)[index] if op_type != "multiply" else (a, b)[index]


def leading_bits(x: Array, bits: int) -> Array:
    """Float32 numbers cut to so many significand bits."""
    return _mask(x, np.uint32(0xFFFFFFFF & ~((1 << (24 - bits)) - 1)))


@dataclasses.dataclass(frozen=True)
class Numerics:
    """The rules for one run: mode "exact", "golden" or "device", the arch, and the seed of everything stochastic.

    reread: whether golden mode rounds what ops read (small blocks, Tf32); without it only the host's conversion and
    the packer round.
    """

    mode: str
    arch: str
    seed: int = 0
    reread: bool = True

    @property
    def device(self) -> bool:
        return self.mode == "device"

    @property
    def exact(self) -> bool:
        return self.mode == "exact"

    def generator(self, name: str, own_seed: int = 0) -> np.random.Generator:
        """A generator of its own for an op, the same in every run with the same seed."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode()), own_seed & 0xFFFFFFFF])

    def unpack(self, op: NetOp, index: int, source_df: DataFormat, tag: DataFormat | None) -> Convert | None:
        """What an input goes through before its TMs; `source_df` is the producer's format, `tag` the golden one, None
        for Tf32."""
        if not self.device:
            if self.exact or not self.reread:
                return None
            if tag in _SMALL_BLOCKS and _turns(op, index):
                return _cutter(tag)
            return _tf32 if tag is DataFormat.Float32 and self.arch in _TF32_ARCHS else None
        steps: list[Convert] = []
        in_df = op.inputs[index].df
        if not (in_df.is_integer or source_df.is_integer or covers(in_df, source_df)):
            steps.append(lambda x: _round(x, in_df))
        if in_df is DataFormat.Float32 and op.type in _FPU:
            steps.append(_tf32)
        bits = 0 if "identity" in op.attributes else covered_bits(op.type, op.math_fidelity or "", index)
        if bits and bits < max(in_df.mantissa_bits, 1) and not in_df.is_integer:
            steps.append(lambda x: leading_bits(x, bits))
        return _sequence(steps)

    def missing_products(self, op: NetOp) -> tuple[Convert, Convert] | None:
        """From both operands of a product to the parts whose product the three passes of HiFi3 do not compute; None
        where nothing is missed, or the result is kept in too few bits (`_SHOWN`)."""
        if not self.device or op.math_fidelity != "HiFi3" or op.type not in _PRODUCTS or "identity" in op.attributes:
            return None
        if any(df.mantissa_bits < _SHOWN for df in (op.out_df, op.acc_df) if df is not None):
            return None
        bits = _THREE_PASSES if op.type == "multiply" else _THREE_PASSES[::-1]
        mantissas = [port.df.mantissa_bits for port in op.inputs[:2] if not port.df.is_integer]
        if len(mantissas) < 2 or any(h <= b for h, b in zip(mantissas, bits, strict=True)):
            return None
        first, second = (np.uint32(0xFFFFFFFF & ~((1 << (24 - b)) - 1)) for b in bits)
        return lambda x: x - _mask(x, first), lambda x: x - _mask(x, second)

    def extend(self, op: NetOp, index: int) -> Convert | None:
        """What an operand of a matmul goes through after its TMs: beside each of its `m_k` parts of the inner
        dimension stands the part that three passes miss, negative on one side, so that one product takes it away."""
        missed = self.missing_products(op) if op.type == "matmul" and index < 2 else None
        if missed is None:
            return None
        written, rest = op.attributes.get("m_k"), missed[index]
        parts = written if isinstance(written, int) and written > 0 else 1
        return lambda x: _beside(x, rest, 3 if index == 0 else 2, parts)

    def after_moves(self, op: NetOp, index: int, tag: DataFormat | None) -> Convert | None:
        """What an input goes through after its TMs; `tag` as for `unpack`."""
        if self.device:
            return self.extend(op, index)
        cut = self.reread and not self.exact and tag in _SMALL_BLOCKS and not _turns(op, index)
        return _cutter(tag) if cut else None

    def pack(self, op: NetOp, *, moves_only: bool, source_df: DataFormat | None) -> Convert | None:
        """What an output goes through last. moves_only: the op changes no value, so that its first input's format
        `source_df` still holds them."""
        out = op.out_df
        if out is DataFormat.Int32 and op.type in _WORDS and all(port.df is out for port in op.inputs):
            return _words
        if self.exact:
            return (lambda x: to_integer(x, out)) if out.is_integer and op.type in _QUANTISE else None
        if out.is_integer:
            return lambda x: to_integer(x, out)
        if not self.device:
            return (lambda x: cut_blocks(x, out)) if out in _SMALL_BLOCKS else None
        formats = [out]
        if op.acc_df is not None and not op.acc_df.is_integer and not op.acc_df.is_raw and not covers(op.acc_df, out):
            formats.insert(0, op.acc_df)
        if moves_only and source_df is not None and all(covers(df, source_df) for df in formats):
            return None
        rng, owned = self.stochastic(op, "pack"), not moves_only and op.type not in _MAY_ALIAS
        return _sequence([_rounder(df, rng, owned) for df in formats if df is not DataFormat.Float32 and not df.is_raw])

    def spill(self, op: NetOp) -> Convert | None:
        """Rounding of a running sum between two passes of a matmul, in place; None if it loses nothing."""
        if not self.device:
            return None
        formats = [
            df
            for df in (op.acc_df, op.intermed_df)
            if df is not None and df is not DataFormat.Float32 and not df.is_integer and not df.is_raw
        ]
        if len(formats) == 2 and covers(formats[0], formats[1]):
            formats = formats[1:]
        return _sequence([_rounder(df, self.stochastic(op, "fpu"), True) for df in formats])

    def intermediate(self, op: NetOp) -> Convert | None:
        """Rounding of a fused op's intermediate buffer."""
        df = op.intermed_df
        if df is None or df.is_raw or self.exact:
            return None
        if df.is_integer:
            return lambda x: to_integer(x, df)
        return _rounder(df, self.stochastic(op, "pack")) if self.device and df is not DataFormat.Float32 else None

    def stochastic(self, op: NetOp, where: str) -> np.random.Generator | None:
        """The op's generator if its `stoch_rnd_mode` covers `where` ("fpu" or "pack"), in device mode."""
        mode = op.attributes.get("stoch_rnd_mode", "fpu" if op.attributes.get("srnd_fpu_en") else "none")
        return self.generator(op.name) if self.device and str(mode) in (where, "all") else None


def _turns(op: NetOp, index: int) -> bool:
    """Whether an input is transposed on its way."""
    return any(tm.name == "transpose" for tm in op.inputs[index].tms or ())


def _cutter(df: DataFormat | None) -> Convert:
    assert df is not None
    return lambda x: cut_blocks(x, df)


def _beside(x: Array, rest: Convert, axis: int, parts: int) -> Array:
    """(n, z, R, C) in `parts` parts along `axis`, each followed by its rest, which is negative along rows (2)."""
    if x.shape[1] > 1 and x.strides[1] == 0:  # one slice for all
        one = _beside(x[:, :1], rest, axis, parts)
        return np.broadcast_to(one, (x.shape[0], x.shape[1], *one.shape[2:]))
    length = x.shape[axis]
    parts = parts if length % parts == 0 else 1  # what does not fit is refused by the op
    cut = x.reshape(*x.shape[:axis], parts, length // parts, *x.shape[axis + 1 :])
    both = np.stack([cut, rest(cut) if axis == 3 else -rest(cut)], axis=axis + 1)
    return both.reshape(*x.shape[:axis], 2 * length, *x.shape[axis + 1 :])


def covers(df: DataFormat, other: DataFormat) -> bool:
    """Whether `df` holds every value of `other` (denormals aside)."""
    if df is other or df is DataFormat.Float32:
        return True
    if df.is_integer or other.is_integer or df.is_raw or other.is_raw or df.family != other.family:
        return False
    return df.mantissa_bits >= other.mantissa_bits and (df.is_bfp <= other.is_bfp)


def to_integer(x: Array, df: DataFormat) -> Array:
    """Whole numbers in the range of an integer format; integer arrays stay integer, others become float64."""
    if x.dtype.kind in "iu":
        return clip_integer(x, df)
    return clip_integer(round_half_away(x.astype(np.float64)), df)


def _words(x: Array) -> Array:
    """Whole numbers as 32-bit words, the bits beyond left out; float32, which only exact mode has here, as it is."""
    return x if x.dtype == np.float32 else x.astype(np.int64).astype(np.int32)


def _rounder(df: DataFormat, rng: np.random.Generator | None, in_place: bool = False) -> Convert:
    return lambda x: _round(x, df, rng, in_place)


def _round(x: Array, df: DataFormat, rng: np.random.Generator | None = None, in_place: bool = False) -> Array:
    result: Array = round_to(x, df, rng=rng, out=x if in_place and x.dtype == np.float32 else None)
    return result


def _tf32(x: Array) -> Array:
    return tf32(x) if x.dtype == np.float32 else x


def _mask(x: Array, mask: np.uint32) -> Array:
    if x.dtype != np.float32:
        return x
    return (np.ascontiguousarray(x).view(np.uint32) & mask).view(np.float32)


def _sequence(steps: list[Convert]) -> Convert | None:
    if not steps:
        return None
    if len(steps) == 1:
        return steps[0]

    def run(x: Array) -> Array:
        for step in steps:
            x = step(x)
        return x

    return run
