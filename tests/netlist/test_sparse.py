"""Sparse encodings: round trip through the word stream, against dense arithmetic and hand-made words."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.errors import InputError, NetlistError, PlacementError
from tbuda_lab.core.netlist.sparse import PickerProfile, decode_to_csr, encode_picker


@st.composite
def cases(draw):
    """A blocking and a picker with at most one entry per output row, or any number of them."""
    case = dict(
        grid_r=draw(st.integers(1, 3)),
        t=draw(st.integers(1, 3)),
        mblock_m=draw(st.integers(1, 4)),
        ublock_r=draw(st.integers(1, 4)),
        u_kt=draw(st.sampled_from([1, 2, 3, 4])),
        act_z=draw(st.integers(1, 2)),
        fracture=draw(st.sampled_from([1, 1, 2])),
    )
    case["act_rt"] = case["u_kt"] * draw(st.integers(1, 3))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = case["grid_r"] * case["mblock_m"] * case["ublock_r"] * 32
    inner = case["act_rt"] * case["act_z"] * 32
    density = draw(st.sampled_from([0.0, 0.01, 0.3, 1.0]))
    t_all = case["t"] * case["fracture"]
    picked = np.argwhere(rng.random((t_all, rows)) < density)
    columns = rng.integers(0, inner, len(picked)) // draw(st.sampled_from([1, 7, 32])) % inner
    coo = np.column_stack([picked, columns])
    if draw(st.booleans()) and len(coo):
        more = coo[rng.integers(0, len(coo), len(coo) // 2 + 1)]
        coo = np.concatenate([coo, np.column_stack([more[:, :2], rng.integers(0, inner, len(more))])])
    return np.unique(coo, axis=0), case


def decode(encoding, case):
    """The picker that an encoding stands for, and the matrices."""
    grid_r, f = case["grid_r"], case["fracture"]
    rows = grid_r * case["mblock_m"] * case["ublock_r"] * 32
    matrices = decode_to_csr(
        encoding.sparse_tiles.reshape(grid_r, f, encoding.num_sparse_tiles, 32, 32),
        encoding.encodings.reshape(grid_r, f, -1),
        t=case["t"],
        mblock_m=case["mblock_m"],
        ublock_r=case["ublock_r"],
        u_kt=case["u_kt"],
        act_rows=case["act_rt"] * case["act_z"] * 32,
        pointer_bits=encoding.sparse_tile_ptr_bits,
        index_bits=encoding.sparse_ublock_idx_bits,
        fracture=f,
    )
    entries = []
    for group, matrix in enumerate(matrices):
        m = matrix.tocoo()
        assert set(m.data.tolist()) <= {1.0}
        entries.append(np.column_stack([m.row // rows + group * case["t"], m.row % rows, m.col]))
    return np.unique(np.concatenate(entries).astype(np.int64), axis=0)


@settings(max_examples=150, deadline=None)
@given(cases())
def test_decoding_an_encoding_gives_the_picker(drawn):
    coo, case = drawn
    try:
        encoding = encode_picker(coo, **case)
    except PlacementError as error:
        assert "16" in str(error) or "page" in str(error)
        return
    np.testing.assert_array_equal(decode(encoding, case), coo)


@settings(max_examples=60, deadline=None)
@given(cases())
def test_statistics_count_what_the_encoder_writes(drawn):
    coo, case = drawn
    case["fracture"] = 1
    coo = coo[coo[:, 0] < case["t"]]
    rows = case["mblock_m"] * case["ublock_r"]
    result = PickerProfile(coo).statistics(
        rt=case["grid_r"] * rows, grid_r=[case["grid_r"]], ublock_r=case["ublock_r"], u_kt=[case["u_kt"]]
    )
    tile = np.unique(np.column_stack([coo[:, 0], coo[:, 1] // 32, coo[:, 2] // 32]), axis=0)
    ublock = np.unique(tile // [1, case["ublock_r"], case["u_kt"]], axis=0)
    strip = np.unique(tile // [1, rows, case["u_kt"]], axis=0)
    assert result.nz_tiles.tolist() == [len(tile)]
    assert result.nz_ublocks.tolist() == [len(ublock)]
    assert result.nz_strips.tolist() == [len(strip)]
    if not result.fits[0]:
        return
    encoding = encode_picker(coo, **case)  # fits promises that this works
    assert int(encoding.nz_tiles.sum()) == len(tile)
    assert int(encoding.nz_ublocks.sum()) == len(ublock)
    assert int(encoding.nz_strips.sum()) == len(strip)
    assert encoding.num_sparse_tiles == max(1, int(result.distinct[0]))


def test_words_of_one_small_picker():
    """Two slices on one core; tile (1, 0) of slice 0 picks, slice 1 picks nothing."""
    encoding = encode_picker([[0, 32, 5], [0, 33, 6]], grid_r=1, t=2, mblock_m=2, ublock_r=1, u_kt=2, act_rt=2, act_z=1)
    words = encoding.encodings.view("<u2").reshape(-1)
    # strip 0, last in slice; one ublock: row 1, one tile; tile 0 at row 0, depth 0
    assert words[:5].tolist() == [0, 0x4000, 1, 1 | 1 << 1, 0]
    # the empty strip of slice 1: last in slice and in page
    assert words[5:8].tolist() == [0, 0xC000, 0]
    assert not words[8:].any()
    assert encoding.sparse_tile_ptr_bits == 1 and encoding.sparse_ublock_idx_bits == 1
    assert np.argwhere(encoding.sparse_tiles[0, 0]).tolist() == [[0, 5], [1, 6]]
    assert encoding.sparse_tensor().shape == (1, 32, 32) and encoding.index_tensor().shape == (1, 32, 32)


def test_a_stream_of_many_pages_keeps_strips_within_pages():
    rng = np.random.default_rng(0)
    coo = np.column_stack([np.zeros(20000, int), np.arange(20000), rng.integers(0, 64 * 32, 20000)])
    case = dict(grid_r=5, t=1, mblock_m=125, ublock_r=1, u_kt=4, act_rt=64, act_z=1, fracture=1)
    with pytest.raises(PlacementError, match="sparse tiles need"):
        encode_picker(coo, **{**case, "u_kt": 64})  # random tiles are all different
    coo[:, 2] = coo[:, 1] * 64 * 32 // 20000 // 32 * 32 + coo[:, 1] % 32
    coo[:, 2] = (coo[:, 2] + rng.integers(0, 60, 20000 // 32 + 1)[coo[:, 1] // 32] * 32) % (64 * 32)
    encoding = encode_picker(coo, **case)
    np.testing.assert_array_equal(decode(encoding, case), coo)


def test_a_dense_picker_fills_several_pages():
    coo = np.argwhere(np.ones((1, 32 * 32, 64)))[::33]
    coo[:, 2] *= 32
    case = dict(grid_r=1, t=1, mblock_m=32, ublock_r=1, u_kt=1, act_rt=64, act_z=1, fracture=1)
    full = np.argwhere(np.ones((1, 32, 64), bool)) * [1, 32, 32]
    encoding = encode_picker(full, **case)
    assert encoding.num_index_tiles == 3  # 64 strips of 3 + 32 + 32 words, 30 to a page
    np.testing.assert_array_equal(decode(encoding, case), full)


def test_entries_outside_the_tensors_are_refused():
    with pytest.raises(InputError, match="out_row 32"):
        encode_picker([[0, 32, 0]], grid_r=1, t=1, mblock_m=1, ublock_r=1, u_kt=1, act_rt=1, act_z=1)
    with pytest.raises(InputError, match="negative"):
        encode_picker([[0, 0, -1]], grid_r=1, t=1, mblock_m=1, ublock_r=1, u_kt=1, act_rt=1, act_z=1)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(0, 2**32 - 1), min_size=1, max_size=40))
def test_arbitrary_words_decode_or_are_refused(words):
    encodings = np.zeros((1, 1, 1024), np.uint32)
    encodings[0, 0, : len(words)] = words
    try:
        decode_to_csr(
            np.ones((1, 1, 3, 32, 32), np.float32),
            encodings,
            t=1,
            mblock_m=2,
            ublock_r=2,
            u_kt=2,
            act_rows=128,
            pointer_bits=4,
            index_bits=None,
        )
    except NetlistError as error:
        assert "cannot be decoded" in str(error)
