"""`round_to`: nearest, ties to even, and stochastic rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.formats import DataFormat, quantise, round_to
from tests.formats import reference

FLOATS = [df for df in DataFormat if df.is_float and df is not DataFormat.Float32]
any_bits = st.integers(0, 2**32 - 1).map(reference.float_of)


@settings(max_examples=300, deadline=None)
@given(st.lists(any_bits, min_size=1, max_size=40))
def test_float16_b_is_torch_bfloat16(values: list[float]) -> None:
    x = np.array(values, np.float32)
    expected = torch.from_numpy(x).bfloat16().float().numpy()
    assert np.array_equal(round_to(x, DataFormat.Float16_b), expected, equal_nan=True)


@settings(max_examples=300, deadline=None)
@given(
    st.lists(st.floats(-65000, 65000, width=32).filter(lambda v: v == 0 or abs(v) >= 2.0**-13), min_size=1, max_size=40)
)
def test_float16_is_ieee_half_where_both_have_the_value(values: list[float]) -> None:
    x = np.array(values, np.float32)
    assert np.array_equal(round_to(x, DataFormat.Float16), x.astype(np.float16).astype(np.float32))


def test_nan_with_any_payload_stays_nan() -> None:
    x = np.array([0x7FFFFFFF, 0xFFFFFFFF, 0x7F800001, 0x3F800000], np.uint32).view(np.float32)
    y = round_to(x, DataFormat.Float16_b)
    assert np.isnan(y[:3]).all() and y[3] == 1


@pytest.mark.parametrize("df", [d for d in FLOATS if d.is_bfp], ids=str)
def test_block_ties_go_to_even(df: DataFormat) -> None:
    top = 2.0 ** (df.mantissa_bits - 1)
    x = np.zeros(16, np.float32)
    x[0] = top
    ties = np.arange(0.5, min(top, 8), 1, dtype=np.float32)
    x[1 : 1 + ties.size] = ties
    assert np.array_equal(round_to(x, df), np.rint(x))


@pytest.mark.parametrize("df", FLOATS, ids=str)
def test_representable_values_stay(df: DataFormat) -> None:
    x = quantise(np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32), df)
    assert np.array_equal(round_to(x, df), x)
    assert np.array_equal(round_to(x, df, rng=np.random.default_rng(1)), x)


@pytest.mark.parametrize("df", FLOATS, ids=str)
def test_stochastic_rounding_is_unbiased(df: DataFormat) -> None:
    """The mean of n draws lies within five standard errors; a unit at 1.0 is 2**-(mantissa bits - 1)."""
    unit = 2.0 ** -(df.mantissa_bits - 1)
    n = 16 * 4096
    x = np.full(n, 1 + 0.3 * unit, np.float32)
    if df in (DataFormat.Bfp2, DataFormat.Bfp2_b):
        x[::16] = 1.0  # one bit holds 0 or 1 only: values between need a neighbour that sets the exponent
        x[1::16] = 0.3
        y = round_to(x, df, rng=np.random.default_rng(5))[1::16]
        expected, spread = 0.3, 1.0
    else:
        y = round_to(x, df, rng=np.random.default_rng(5))
        expected, spread = float(x[0]), unit
    assert abs(float(y.astype(np.float64).mean()) - expected) < 5 * spread * 0.5 / math.sqrt(y.size)
    again = round_to(x, df, rng=np.random.default_rng(5))
    assert np.array_equal(again, round_to(x, df, rng=np.random.default_rng(5)))


@pytest.mark.parametrize("df", FLOATS, ids=str)
def test_out_may_be_the_input(df: DataFormat) -> None:
    x = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    expected = round_to(x, df)
    assert round_to(x, df, out=x) is x and np.array_equal(x, expected)


def test_integers_and_raw_words_as_on_the_host() -> None:
    x = np.array([0.5, -1.5, 300.0], np.float32)
    assert list(round_to(x, DataFormat.Int8)) == [1, -2, 127]
    assert round_to(x, DataFormat.RawUInt16) is x
