"""`quantise` against the scalar encoder, the properties it must have, and torch where a format is torch's too."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.errors import InputError, NetlistError
from tbuda_lab.core.formats import DataFormat, MathFidelity, cut_blocks, parse_fidelity, parse_format, quantise, tf32
from tbuda_lab.core.formats.chunks import CHUNK, within
from tests.formats import reference
from tests.sim import reference_formats

CONVERTED = [df for df in DataFormat if (df.is_float or df.is_integer) and df is not DataFormat.Float32]
FLOATS = [df for df in CONVERTED if df.is_float]
BLOCKS = [df for df in DataFormat if df.is_bfp]
SINGLES = [df for df in FLOATS if not df.is_bfp]

any_bits = st.integers(0, 2**32 - 1).map(reference.float_of)
near_ties = st.builds(
    lambda m, e, s: math.ldexp(m, e) * s, st.integers(0, 511), st.integers(-20, 20), st.sampled_from([1, -1])
)
ordinary = st.floats(-1e4, 1e4, width=32)
edges = st.sampled_from(
    [
        0.0,
        -0.0,
        math.inf,
        -math.inf,
        math.nan,
        0.5,
        -0.5,
        1.5,
        126.5,
        127.5,
        -127.5,
        2.0**-126,
        2.0**-149,
        -(2.0**-130),
        3.4028234663852886e38,
        65504.0,
        131008.0,
        480.0,
        496.0,
        2.0**31,
    ]
)
blocks_of_16 = st.lists(st.one_of(any_bits, near_ties, ordinary, edges), min_size=16, max_size=16)


def same(got: np.ndarray, expected: list[float]) -> bool:
    """Equal bit for bit, any NaN equal to any NaN."""
    want = np.array(expected, np.float32)
    both_nan = np.isnan(got) & np.isnan(want)
    return bool((both_nan | (got.view(np.uint32) == want.view(np.uint32))).all())


@pytest.mark.parametrize("df", CONVERTED, ids=str)
@settings(max_examples=150, deadline=None)
@given(values=blocks_of_16)
def test_agrees_with_scalar_encoder(df: DataFormat, values: list[float]) -> None:
    x = np.array(values, np.float32)
    assert same(quantise(x, df), reference.convert([float(v) for v in x], df))


@pytest.mark.parametrize("df", CONVERTED, ids=str)
def test_large_arrays_agree_with_scalar_encoder(df: DataFormat) -> None:
    """Across the seams of the pieces, with extreme blocks mixed among ordinary ones."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal((CHUNK // 64 + 3, 64)) * np.exp2(rng.integers(-30, 30, (CHUNK // 64 + 3, 1)))
    x = x.astype(np.float32)
    x[5, 3], x[6, 20], x[7], x[8, :16] = np.inf, np.nan, 0, 2.0**-140
    assert same(quantise(x, df).ravel(), reference.convert([float(v) for v in x.ravel()], df))


@pytest.mark.parametrize("df", [df for df in CONVERTED if df.is_bfp], ids=str)
@settings(max_examples=100, deadline=None)
@given(values=blocks_of_16)
def test_blocks_that_are_cut_agree_with_the_scalar_encoder(df: DataFormat, values: list[float]) -> None:
    x = np.array(values, np.float32)
    expected: list[float] = []
    for start in range(0, len(x), 16):
        block = [float(v) for v in x[start : start + 16]]
        expected += reference.block_values(*reference.block_codes(block, df, cut=True), df)
    assert same(cut_blocks(x, df), expected)


@pytest.mark.parametrize("df", CONVERTED, ids=str)
@settings(max_examples=100, deadline=None)
@given(values=blocks_of_16)
def test_idempotent(df: DataFormat, values: list[float]) -> None:
    """Also for infinities and NaN; the only exception is a block of the 8-bit exponent family below 2**-119, whose
    results are denormals, which the machine reads with a hidden bit."""
    x = np.array(values, np.float32)
    if df.is_bfp and df.family == "b" and 0 < np.nanmax(np.append(np.abs(x), 0)) < 2.0**-119:
        x = np.where(np.abs(x) < 2.0**-119, 0, x).astype(np.float32)
    once = quantise(x, df)
    assert same(quantise(once, df), list(once))


@pytest.mark.parametrize("df", SINGLES, ids=str)
@settings(max_examples=100, deadline=None)
@given(x=any_bits)
def test_truncation_never_grows_a_magnitude(df: DataFormat, x: float) -> None:
    y = float(quantise(np.float32([x]), df)[0])
    if not math.isnan(x) and not math.isnan(y):
        assert abs(y) <= abs(x)
        assert math.copysign(1, y) == math.copysign(1, x)


@pytest.mark.parametrize("df", BLOCKS, ids=str)
@settings(max_examples=100, deadline=None)
@given(st.lists(st.floats(-(2.0**15), 2.0**15, width=32), min_size=16, max_size=16))
def test_block_error_is_half_a_unit(df: DataFormat, values: list[float]) -> None:
    x = np.array(values, np.float32)
    largest = float(np.abs(x).max())
    if largest < 2.0**-14:
        return
    unit = 2.0 ** (math.floor(math.log2(largest)) - (df.mantissa_bits - 1))
    error = np.abs(quantise(x, df).astype(np.float64) - x)
    limit = np.where(np.abs(x) > unit * (2**df.mantissa_bits - 1), unit, unit / 2)  # saturation costs up to one unit
    assert (error <= limit).all()


@pytest.mark.parametrize("df", CONVERTED, ids=str)
def test_commutes_with_movements_that_keep_blocks_whole(df: DataFormat) -> None:
    """Rows, whole blocks and tiles may move before or after; in-tile transposition may not."""
    x = np.random.default_rng(1).standard_normal((2, 64, 96)).astype(np.float32) * 50
    y = quantise(x, df)
    stacked = x.reshape(2, 64, 3, 32).transpose(0, 2, 1, 3)
    assert same(quantise(stacked, df).ravel(), list(y.reshape(2, 64, 3, 32).transpose(0, 2, 1, 3).ravel()))
    assert same(quantise(x[:, ::-1], df).ravel(), list(y[:, ::-1].ravel()))
    if df.is_bfp:
        turned = quantise(np.swapaxes(x, 1, 2), df)
        assert (turned != np.swapaxes(y, 1, 2)).any()


def test_special_values() -> None:
    inf, nan = np.float32(np.inf), np.float32(np.nan)
    x = np.array([inf, -inf, nan, -0.0], np.float32)
    assert list(quantise(x[:2], DataFormat.Float16_b)) == [np.inf, -np.inf]
    assert math.isnan(quantise(x, DataFormat.Float16_b)[2])
    assert list(quantise(x[:3], DataFormat.Float16)) == [131008, -131008, 131008]
    assert list(quantise(x[:3], DataFormat.Lf8)) == [114688, -114688, 114688]
    assert list(quantise(x[:3], DataFormat.Fp8_e4m3)) == [480, -480, 480]
    assert list(quantise(x, DataFormat.Int8)) == [127, -127, 0, 0]
    assert list(quantise(x, DataFormat.UInt16)) == [65535, 0, 0, 0]
    for df in (DataFormat.Float16_b, DataFormat.Float16, DataFormat.Lf8, DataFormat.Fp8_e4m3):
        assert math.copysign(1, quantise(x, df)[3]) == -1
    for df in (DataFormat.Int8, DataFormat.Int32, DataFormat.UInt8):
        assert math.copysign(1, quantise(x, df)[3]) == 1


def test_block_special_values() -> None:
    x = np.zeros(16, np.float32)
    x[:4] = [np.inf, -np.inf, 2.0**127, -0.0]
    b = quantise(x, DataFormat.Bfp8_b)
    assert list(b[:4]) == [np.inf, -np.inf, 2.0**127, 0] and math.copysign(1, b[3]) == 1
    a = quantise(x, DataFormat.Bfp8)
    assert list(a[:4]) == [127 * 2.0**10, -127 * 2.0**10, 127 * 2.0**10, 0]
    x[0] = np.nan
    assert math.isnan(quantise(x, DataFormat.Bfp8_b)[0])


@pytest.mark.parametrize("df", [DataFormat.Float16_b, DataFormat.Float16])
def test_values_torch_represents_survive(df: DataFormat) -> None:
    dtype = torch.bfloat16 if df is DataFormat.Float16_b else torch.float16
    words = torch.arange(-(2**15), 2**15, dtype=torch.int32).to(torch.int16).view(dtype)
    values = words.float().numpy()
    normal = values[np.isfinite(values) & (np.abs(values) >= (0 if df is DataFormat.Float16_b else 2.0**-14))]
    assert np.array_equal(quantise(normal, df), normal)


def test_tf32_keeps_ten_fraction_bits() -> None:
    x = np.random.default_rng(3).standard_normal(1000).astype(np.float32)
    y = tf32(x)
    scaled = np.ldexp(y.astype(np.float64), 11 - np.frexp(y)[1])
    assert np.array_equal(scaled, np.trunc(scaled))
    assert (np.abs(x - y) < np.abs(x) * 2.0**-10).all()


def test_float32_and_raw_words_pass() -> None:
    x = np.array([1.1, np.nan, -0.0], np.float32)
    assert quantise(x, DataFormat.Float32) is x
    words = np.array([2**31 - 1, -5, 7], np.int32)
    assert quantise(words, DataFormat.RawUInt32) is words


def test_integer_arrays_stay_exact() -> None:
    x = np.array([2**31 - 1, -(2**31), 2**24 + 1, 300], np.int32)
    assert list(quantise(x, DataFormat.Int32)) == [2**31 - 1, -(2**31) + 1, 2**24 + 1, 300]
    assert list(quantise(x, DataFormat.Int8)) == [127, -127, 127, 127]
    assert quantise(x, DataFormat.UInt8).dtype == np.int32


@pytest.mark.parametrize("df", CONVERTED, ids=str)
def test_out_may_be_the_input_or_strided(df: DataFormat) -> None:
    x = np.random.default_rng(2).standard_normal((40, 64)).astype(np.float32) * 9
    expected = quantise(x, df)
    strided = np.zeros((40, 128), np.float32)[:, ::2]
    assert quantise(x, df, out=strided) is strided and np.array_equal(strided, expected)
    from_view = quantise(np.asfortranarray(x), df)
    assert np.array_equal(from_view, expected)
    assert quantise(x, df, out=x) is x and np.array_equal(x, expected)


def test_wrong_arguments_say_what_is_needed() -> None:
    with pytest.raises(InputError, match="multiple of 16"):
        quantise(np.zeros((3, 20), np.float32), DataFormat.Bfp4)
    with pytest.raises(InputError, match="float32 of shape"):
        quantise(np.zeros(32, np.float32), DataFormat.Lf8, out=np.zeros(16, np.float32))
    with pytest.raises(NetlistError, match="Bfp8_b"):
        parse_format("bfp8")
    with pytest.raises(NetlistError, match="HiFi4"):
        parse_fidelity("Invalid")
    assert parse_format("Float16_b") is DataFormat.Float16_b
    assert parse_fidelity("HiFi2_B") is MathFidelity.HiFi2


def test_empty_arrays() -> None:
    for df in CONVERTED:
        assert quantise(np.zeros((0, 32), np.float32), df).shape == (0, 32)


@pytest.mark.parametrize("df", CONVERTED, ids=str)
def test_the_reference_reader_of_netlists_converts_alike(df: DataFormat) -> None:
    """Its array code from bit widths against the one value at a time, also where bits are cut."""
    rng = np.random.default_rng(3)
    x = rng.standard_normal((64, 16)) * np.exp2(rng.integers(-40, 40, (64, 1)) + rng.integers(-6, 6, (64, 16)))
    x = x.astype(np.float32)
    x[0], x[1, ::2], x[2, 3:7] = 0, -0.0, [0.5, -0.5, 1.5, 126.5]
    values = [float(v) for v in x.ravel()]
    assert same(reference_formats.stored(x, df).astype(np.float32).ravel(), reference.convert(values, df))
    if df.is_bfp:
        codes = [reference.block_codes(row, df, cut=True) for row in x.tolist()]
        expected = [v for shared, block in codes for v in reference.block_values(shared, block, df)]
        assert same(reference_formats.cut(x, df).astype(np.float32).ravel(), expected)


@pytest.mark.parametrize("largest", [0.0, 1.0, 60_000.0, 65_536.0, 70_000.0, 1e30, np.inf, np.nan])
@pytest.mark.parametrize("shape", [(), (3,), (40, 50), (0,)])
def test_a_norm_tells_whether_all_is_within_a_bound(largest: float, shape: tuple[int, ...]) -> None:
    array = np.full(shape, -0.25, np.float32)
    array.reshape(-1)[-1:] = largest
    told = [within(array, bound) for bound in (0.5, 65_536.0, 1e19)]
    true = [bool((np.abs(array) <= bound).all()) for bound in (0.5, 65_536.0, 1e19)]
    assert all(actually or not claimed for claimed, actually in zip(told, true, strict=True))
    assert told[2] or largest > 1e18 or np.isnan(largest)


def test_a_norm_tells_nothing_of_other_types() -> None:
    array = np.zeros((4, 5), np.float32)
    assert within(array, 1.0)
    assert within(array.T, 1.0)
    assert within(array[:, ::2], 1.0)
    assert not within(array.astype(np.float64), 1.0)
