"""Tile sizes and storage order."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import TILE_DIMS, DataFormat, pack_tiles, quantise, tile_bytes, unpack_tiles
from tests.formats import reference

FORMATS = [df for df in DataFormat if df is not DataFormat.Invalid]


@pytest.mark.parametrize(
    ("name", "size"),
    [
        ("Float32", 4128),
        ("Int32", 4128),
        ("RawUInt32", 4128),
        ("Float16", 2080),
        ("Float16_b", 2080),
        ("UInt16", 2080),
        ("RawUInt16", 2080),
        ("Bfp8", 1120),
        ("Bfp8_b", 1120),
        ("Bfp4_b", 608),
        ("Bfp2", 352),
        ("Lf8", 1056),
        ("Int8", 1056),
        ("RawUInt8", 1056),
    ],
)
def test_tile_bytes_of_full_tiles(name: str, size: int) -> None:
    assert tile_bytes(DataFormat[name]) == size


def test_tile_bytes_variants() -> None:
    assert tile_bytes(DataFormat.Float16_b, align=64) == 2112
    assert tile_bytes(DataFormat.Bfp8_b, (8, 32)) == 288  # 256 + 16 + 16
    assert tile_bytes(DataFormat.Bfp8_b, (16, 32)) == 576  # 512 + 32 + 16 -> 576
    assert tile_bytes(DataFormat.Bfp8_b, header=False) == 1088
    assert tile_bytes(DataFormat.Float16_b, (1, 32), header=False) == 64
    with pytest.raises(InputError, match="32x16"):
        tile_bytes(DataFormat.Float16_b, (16, 16))


def sample(df: DataFormat, shape: tuple[int, ...], seed: int = 0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    if df.is_raw:
        return rng.integers(0, 2**df.datum_bits, shape, dtype=np.uint32).view(np.int32)
    if df.is_integer:
        return rng.integers(-100, 100, shape).astype(np.int32)
    return (rng.standard_normal(shape) * np.exp2(rng.integers(-8, 8, shape))).astype(np.float32)


@pytest.mark.parametrize("df", FORMATS, ids=str)
@pytest.mark.parametrize("dim", TILE_DIMS, ids=lambda d: f"{d[0]}x{d[1]}")
def test_unpack_gives_the_quantised_values(df: DataFormat, dim: tuple[int, int]) -> None:
    x = sample(df, (2, dim[0] * 3, dim[1] * 2))
    packed = pack_tiles(x, df, dim)
    assert packed.dtype == np.uint8 and packed.shape == (2, 3, 2, tile_bytes(df, dim, header=False))
    back = unpack_tiles(packed, df, dim)
    assert back.dtype == (np.float32 if df.is_float else np.int32)
    assert np.array_equal(back, quantise(x, df))


@pytest.mark.parametrize("df", FORMATS, ids=str)
@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**31))
def test_words_survive_unpack_and_pack(df: DataFormat, seed: int) -> None:
    """Any packed array that came from values packs to itself again."""
    packed = pack_tiles(sample(df, (1, 32, 32), seed), df)
    assert np.array_equal(pack_tiles(unpack_tiles(packed, df), df), packed)


def test_faces_are_top_left_top_right_bottom_left_bottom_right() -> None:
    x = np.arange(1024, dtype=np.float32).reshape(1, 32, 32)
    words = pack_tiles(x, DataFormat.Float32).view("<f4")[0, 0, 0]
    assert list(words[:17]) == [*range(16), 32.0]
    assert [words[256], words[512], words[768]] == [16, 16 * 32, 16 * 32 + 16]


def test_raw_words_are_in_plain_row_order() -> None:
    x = np.arange(2048, dtype=np.int32).reshape(1, 32, 64)
    words = pack_tiles(x, DataFormat.RawUInt16).view("<u2")
    assert list(words[0, 0, 1, :33]) == [*range(32, 64), 96]


@pytest.mark.parametrize("df", [DataFormat.Bfp8, DataFormat.Bfp4_b, DataFormat.Bfp2_b], ids=str)
def test_block_bytes_agree_with_scalar_encoder(df: DataFormat) -> None:
    x = sample(df, (1, 32, 32), 4)
    packed = pack_tiles(x, df)[0, 0, 0]
    row = 37 - 32  # face 1 (top right), its row 5: columns 16..31 of tile row 5
    shared, codes = reference.block_codes([float(v) for v in x[0, row, 16:]], df)
    assert packed[16 + row] == shared
    per = 8 // df.datum_bits
    first = 64 + (256 + row * 16) // per
    stored = packed[first : first + 16 // per]
    expected = [
        sum(code << (i * df.datum_bits) for i, code in enumerate(codes[k : k + per])) for k in range(0, 16, per)
    ]
    assert list(stored) == expected


@pytest.mark.parametrize(
    ("df", "value", "word"),
    [
        (DataFormat.Float16_b, -1.5, 0xBFC0),
        (DataFormat.Float16, 1.0, 0x3C00),
        (DataFormat.Float16, -131008.0, 0xFFFF),
        (DataFormat.Lf8, 1.0, 0x3C),
        (DataFormat.Lf8, -0.0, 0x80),
        (DataFormat.Fp8_e4m3, 1.0, 0x38),
        (DataFormat.Fp8_e4m3, 480.0, 0x7F),
        (DataFormat.Fp8_e4m3, 2.0**-6, 0x08),
        (DataFormat.Int8, -5, 0x85),
        (DataFormat.UInt8, 200, 200),
        (DataFormat.Int32, -1, 0x80000001),
        (DataFormat.UInt16, 65535, 0xFFFF),
    ],
)
def test_known_words(df: DataFormat, value: float, word: int) -> None:
    x = np.full((1, 32, 32), value, np.float32)
    packed = pack_tiles(x, df)
    assert (packed.view(f"<u{df.datum_bits // 8}") == word).all()
    assert (unpack_tiles(packed, df) == value).all()


def test_wrong_shapes_say_what_is_needed() -> None:
    with pytest.raises(InputError, match="whole tiles"):
        pack_tiles(np.zeros((1, 30, 32), np.float32), DataFormat.Float16_b)
    with pytest.raises(InputError, match="2048"):
        unpack_tiles(np.zeros((1, 1, 1, 2000), np.uint8), DataFormat.Float16_b)
