"""Depthwise and sparse products against the reference: what they pick, and where they read it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.errors import NetlistError
from tbuda_lab.core.formats import DataFormat, round_to
from tbuda_lab.core.netlist.sparse import encode_picker
from tbuda_lab.sim import tms, windows
from tbuda_lab.sim.kernels import matmul as mm
from tbuda_lab.sim.sparse import DepthwiseRows, PickedRows, RowPicker
from tests.sim.build import Net, one
from tests.sim.harness import check


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("grid", [(1, 1), (2, 3)])
def test_depthwise(bias, grid):
    shapes = [(1, 2, 9), (1, 3, 3)] + [(1, 1, 3)] * bias
    check(
        one("depthwise", shapes, (1, 2, 3), grid=grid, m_k=3, u_kt=1, bias=bias, tms={2: [("broadcast", "r", 2)]}),
        rtol=1e-5,
    )


def _diagonal(rng, blocks, columns):
    """(1, 1, 32 * blocks, 32 * columns): every tile holds numbers on its diagonal alone."""
    tiles = np.eye(32) * rng.uniform(-1, 1, (blocks, columns, 32, 1))
    return tiles.transpose(0, 2, 1, 3).reshape(1, 1, 32 * blocks, 32 * columns).astype(np.float32)


@pytest.mark.parametrize("parts", ["side by side", "slices"])
def test_depthwise_of_diagonal_tiles(parts):
    rng = np.random.default_rng(2)
    stacked = {} if parts == "side by side" else {"tms": {0: [("hstack", 3)]}}
    shape = (1, 2, 9) if parts == "side by side" else (3, 2, 3)
    net = one("depthwise", [shape, (1, 3, 3)], (1, 2, 3), m_k=3, u_kt=1, count=1, **stacked)
    x = rng.uniform(-1, 1, (1, shape[0], 32 * shape[1], 32 * shape[2])).astype(np.float32)
    check(net, feeds={"in0": x, "in1": _diagonal(rng, 3, 3)}, rtol=1e-5)


def test_infinity_reaches_all_channels_of_a_depthwise_tile():
    """As in the product of the tiles: infinity times the zeros beside the diagonal is not a number."""
    rng = np.random.default_rng(3)
    net = one("depthwise", [(3, 1, 1), (1, 3, 1)], (1, 1, 1), m_k=3, u_kt=1, count=1, tms={0: [("hstack", 3)]})
    x = rng.uniform(-1, 1, (1, 3, 32, 32)).astype(np.float32)
    x[0, 1, 5, 7] = np.inf
    got, _ = check(net, feeds={"in0": x, "in1": _diagonal(rng, 3, 1)}, rtol=1e-5, device=False)
    assert not np.isfinite(got["out"][0, 0, 5]).any() and np.isfinite(got["out"][0, 0, :5]).all()


def test_channels_one_by_one_give_the_bits_of_the_product_of_tiles():
    """Of numbers with 8 significand bits, whose products float32 holds."""
    rng = np.random.default_rng(4)
    a = round_to(rng.standard_normal((2, 1, 64, 9 * 96)).astype(np.float32), DataFormat.Float16_b)
    b = round_to(_diagonal(rng, 9, 3), DataFormat.Float16_b)
    taps = a.reshape(2, 1, 64, 9, 96).swapaxes(2, 3)
    np.testing.assert_array_equal(mm.depthwise_taps(taps, mm.diagonals(b, 9, 32)), mm.depthwise(a, b, 9, (32, 32)))


@pytest.mark.parametrize("library", ["torch", "numpy"])
@pytest.mark.parametrize("down", [(-1, 0, 1), (-1, 0), (0, 1), (-4, -2, 0), (1, 2, 3)])
@pytest.mark.parametrize("stride", [1, 2])
def test_picked_rows_are_read_where_they_are(stride, down, library, monkeypatch):
    """A depthwise convolution of an image of 7 x 9 pixels with a border, of kernels of 3 columns whose rows reach above
    and below, in two slices: the bits of the product of copied taps, and what is copied is the same in every order of
    rows."""
    module = __import__("torch") if library == "torch" else None
    monkeypatch.setattr(windows, "loaded_torch", lambda: module)
    taps_of = [(dy, dx) for dy in down for dx in (-1, 0, 1)]
    blocks = len(taps_of)
    rng = np.random.default_rng(5)
    height, width, columns, rows = 7, 9, 96, 64
    index = np.full((blocks, rows), -1)
    for k, (dy, dx) in enumerate(taps_of):
        places = [(y + dy, x + dx) for y in range(0, height, stride) for x in range(0, width, stride)]
        index[k, : len(places)] = [y * width + x if 0 <= y < height and 0 <= x < width else -1 for y, x in places]
    index = np.concatenate([index[:, :32], index[:, 32:]])[..., None]  # two slices of 32 rows
    picker = RowPicker(np.maximum(index, 0), np.flatnonzero(index < 0))
    source = round_to(rng.standard_normal((2, height * width, columns)).astype(np.float32), DataFormat.Float16_b)
    weights = round_to(rng.standard_normal((1, 1, blocks, columns)).astype(np.float32), DataFormat.Float16_b)
    weights = np.broadcast_to(weights, (1, 2, blocks, columns))
    picked = PickedRows(source, picker)
    copied = np.where(index >= 0, source[:, np.maximum(index[..., 0], 0)], np.float32(0))
    np.testing.assert_array_equal(picked.as_array(), copied)
    taps = copied.reshape(2, 2, blocks, 32, columns)
    np.testing.assert_array_equal(DepthwiseRows(weights).of(picked), mm.depthwise_taps(taps, weights))
    assert picker.windows(blocks) is not None
    assert DepthwiseRows(weights * np.array([1, 2]).reshape(1, 2, 1, 1)).of(picked) is None  # each slice its own

    def side_by_side(x):
        return tms.hstack(tms.vstack(x, 2), 3)

    np.testing.assert_array_equal(picked.move(side_by_side).as_array(), side_by_side(copied))
    source[0, 4 * width + 4, 4] = np.inf
    assert DepthwiseRows(weights).of(picked) is None


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**31),
    st.sampled_from([(1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 2, 2), (3, 4, 2)]),
    st.integers(1, 2),
    st.integers(1, 2),
    st.integers(1, 3),
    st.booleans(),
)
def test_sparse_matmul(seed, cores, ublock_r, u_kt, t, bias):
    grid_r, grid_c, fracture = cores
    rng = np.random.default_rng(seed)
    mblock_m, act_rt, act_z = 2, 2 * u_kt, 2
    rows, inner = grid_r * mblock_m * ublock_r * 32, act_rt * act_z * 32
    picked = np.argwhere(rng.random((t * fracture, rows)) < 0.2)
    coo = np.column_stack([picked, rng.integers(0, inner, len(picked))])
    enc = encode_picker(
        coo,
        grid_r=grid_r,
        t=t,
        mblock_m=mblock_m,
        ublock_r=ublock_r,
        u_kt=u_kt,
        act_rt=act_rt,
        act_z=act_z,
        fracture=fracture,
    )
    net = Net("wormhole_b0", "Float16_b")
    net.graph("g", 2)
    rt, ct = grid_r * mblock_m * ublock_r, 2 * grid_c
    net.ram("tiles", (1, grid_r, enc.num_sparse_tiles * fracture), fmt="Bfp2_b")
    net.queue("act", (act_z, act_rt, ct), entries=2)
    net.ram("words", (1, grid_r, enc.num_index_tiles * fracture), fmt="RawUInt32")
    inputs = ["tiles", "act", "words"]
    repeat = [("broadcast", "c", grid_c // fracture)]
    tms = {0: repeat, 2: repeat}
    if bias:
        inputs.append(net.ram("bias", (1, 1, ct)))
        tms[3] = [("broadcast", "r", rt), ("broadcast", "z", t)]
    net.op(
        "op",
        "matmul",
        inputs,
        (t, rt, ct),
        grid=(grid_r, grid_c),
        ublock=(ublock_r, 1),
        tms=tms,
        identity=True,
        m_k=act_rt // u_kt,
        u_kt=u_kt,
        num_sparse_tiles=enc.num_sparse_tiles,
        num_index_tiles=enc.num_index_tiles,
        sparse_tile_ptr_bits=enc.sparse_tile_ptr_bits,
        sparse_ublock_idx_bits=enc.sparse_ublock_idx_bits,
        fracture_factor=fracture,
        bias=bias,
    )
    net.queue("out", (t, rt, ct), source="op", entries=2)
    net.streaming()
    tiles = enc.sparse_tensor()[None]
    _, executor = check(net.netlist(), seed=seed % 1000, tiles=tiles, words=enc.index_tensor()[None])
    # the picker says the same without any encoding
    dense = np.zeros((t * fracture, rows, inner))
    dense[coo[:, 0], coo[:, 1], coo[:, 2]] = 1
    x = np.stack([executor.read("act", i) for i in range(2)]).reshape(2, inner, -1).astype(float)
    if not bias:
        got = np.stack([executor.read("out", i) for i in range(2)])
        parts = [
            dense[g * t : (g + 1) * t] @ x[:, None, :, g * x.shape[2] // fracture : (g + 1) * x.shape[2] // fracture]
            for g in range(fracture)
        ]
        np.testing.assert_array_equal(got, np.concatenate(parts, axis=3))


@pytest.mark.parametrize("reader", ["depthwise", "nop"])
def test_what_is_picked_is_not_overwritten_before_it_is_read(reader):
    """`over` is the last op to name `first`, whose memory it might take; the picked rows are read after it."""
    rng = np.random.default_rng(6)
    coo = np.array([[k, r, r + k - 1] for k in range(3) for r in range(64) if 0 <= r + k - 1 < 64])
    enc = encode_picker(coo, grid_r=1, t=3, mblock_m=2, ublock_r=1, u_kt=2, act_rt=2, act_z=1)
    net = Net("wormhole_b0", "Float16_b")
    net.graph("g", 1)
    net.ram("tiles", (1, 1, enc.num_sparse_tiles), fmt="Bfp2_b")
    net.ram("words", (1, 1, enc.num_index_tiles), fmt="RawUInt32")
    net.ram("weights", (1, 3, 1))
    net.queue("act", (1, 2, 1))
    net.op("first", "exp", ["act"], (1, 2, 1))
    net.op(
        "pick",
        "matmul",
        ["tiles", "first", "words"],
        (3, 2, 1),
        identity=True,
        m_k=1,
        u_kt=2,
        num_sparse_tiles=enc.num_sparse_tiles,
        num_index_tiles=enc.num_index_tiles,
        sparse_tile_ptr_bits=enc.sparse_tile_ptr_bits,
        sparse_ublock_idx_bits=enc.sparse_ublock_idx_bits,
    )
    net.op("over", "add", ["first", "act"], (1, 2, 1))
    if reader == "depthwise":
        net.op("last", "depthwise", ["pick", "weights"], (1, 2, 1), m_k=3, u_kt=1, tms={0: [("hstack", 3)]})
    else:
        net.op("last", "nop", ["pick"], (3, 2, 1))
    net.queue("out", (1, 2, 1) if reader == "depthwise" else (3, 2, 1), source="last")
    net.queue("sum", (1, 2, 1), source="over")
    net.streaming()
    check(
        net.netlist(),
        feeds={
            "tiles": enc.sparse_tensor()[None],
            "words": enc.index_tensor()[None],
            "act": rng.uniform(-1, 1, (1, 1, 64, 32)).astype(np.float32),
            "weights": _diagonal(rng, 3, 1),
        },
        rtol=1e-5,
    )


def test_sparse_matmul_without_a_written_index_width():
    """The width of the tile pointers then counts for the ublock rows too."""
    rng = np.random.default_rng(5)
    picked = np.argwhere(rng.random((2, 64)) < 0.5)
    coo = np.column_stack([picked, rng.integers(0, 128, len(picked))])
    enc = encode_picker(
        coo, grid_r=2, t=2, mblock_m=1, ublock_r=1, u_kt=2, act_rt=2, act_z=2, pointer_bits=8, index_bits=8
    )
    net = Net("wormhole_b0", "Float16_b")
    net.ram("tiles", (1, 2, enc.num_sparse_tiles), fmt="Bfp2_b")
    net.queue("act", (2, 2, 1))
    net.ram("words", (1, 2, 1), fmt="RawUInt32")
    net.op(
        "op",
        "matmul",
        ["tiles", "act", "words"],
        (2, 2, 1),
        grid=(2, 1),
        identity=True,
        m_k=1,
        u_kt=2,
        num_sparse_tiles=enc.num_sparse_tiles,
        num_index_tiles=1,
        sparse_tile_ptr_bits=8,
    )
    net.queue("out", (2, 2, 1), source="op")
    net.streaming()
    check(net.netlist(), tiles=enc.sparse_tensor()[None], words=enc.index_tensor()[None])
    net.net.graphs["g"].ops["op"].attributes["sparse_tile_ptr_bits"] = 3
    with pytest.raises(NetlistError, match="op 'op': the encodings cannot be decoded"):
        check(net.netlist(), tiles=enc.sparse_tensor()[None], words=enc.index_tensor()[None])
