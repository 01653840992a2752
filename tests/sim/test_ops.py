"""Every op type against the reference."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.errors import NetlistError
from tbuda_lab.core.formats import DataFormat, round_to
from tbuda_lab.core.netlist.sparse import encode_picker
from tbuda_lab.sim.kernels import matmul as mm
from tests.sim.build import Net, sub
from tests.sim.harness import check, run

EXACT = {"fmt": "Float32"}
UNARY = ["nop", "datacopy", "ethernet_datacopy", "exp", "log", "sqrt", "gelu", "gelu_derivative", "reciprocal",
         "sigmoid", "tanh", "square", "sine", "cosine", "abs", "lrelu", "power", "tilizer"]


def one(kind, shapes, out, *, fmts=None, arch="grayskull", in_kinds=None, count=2, **op):
    """A graph of one op fed by queues, float32 in and out."""
    net = Net(arch, "Float32")
    net.graph("g", count)
    names = []
    for i, shape in enumerate(shapes):
        names.append(net.queue(f"in{i}", shape, entries=count if (in_kinds or {}).get(i) != "ram" else 1,
                               kind=(in_kinds or {}).get(i, "queue"), fmt=(fmts or {}).get(i, "Float32")))
    grid, ublock = op.get("grid", (1, 1)), op.get("ublock", (1, 1))
    net.op("op", kind, names, out, **op)
    net.queue("out", out, source="op", entries=count, grid=grid, ublock=ublock, fmt=op.get("fmt", "Float32"),
              tile_dim=op.get("tile_dim"))
    net.streaming()
    return net.netlist()


@pytest.mark.parametrize("kind", UNARY)
def test_unary(kind):
    extra = {"slope": 0.3} if kind == "lrelu" else {"exp": 3} if kind == "power" else {}
    low = 0.01 if kind in ("log", "sqrt", "reciprocal") else -4
    check(one(kind, [(2, 2, 2)], (2, 2, 2), grid=(2, 1), **extra), low=low, high=4.0)


@pytest.mark.parametrize("kind", ["add", "subtract", "multiply", "maximum"])
@pytest.mark.parametrize("relu", [{}, {"relu_en": True, "relu_threshold": 0.25, "relu_mode": "min"},
                                  {"relu_en": True, "relu_threshold": 0.25, "relu_mode": "max"},
                                  {"relu_en": True, "relu_threshold": 0.0, "relu_mode": "min"}])
def test_binary_and_relu(kind, relu):
    check(one(kind, [(1, 2, 2), (1, 2, 2)], (1, 2, 2), **relu))


def test_special_values():
    x = np.zeros((1, 1, 32, 32), np.float32)
    x[0, 0, 0, :5] = [0.0, -0.0, np.inf, 200.0, -200.0]
    y = np.full_like(x, np.inf)
    got, _ = run(one("multiply", [(1, 1, 1)] * 2, (1, 1, 1), count=1), {"in0": x, "in1": y})
    assert got["out"][0, 0, 0, :5].tolist() == [0, 0, np.inf, np.inf, -np.inf]
    got, _ = run(one("exp", [(1, 1, 1)], (1, 1, 1), count=1), {"in0": x})
    assert got["out"][0, 0, 0, 2] == got["out"][0, 0, 0, 3] == np.finfo(np.float32).max
    got, _ = run(one("reciprocal", [(1, 1, 1)], (1, 1, 1), count=1), {"in0": x})
    np.testing.assert_allclose(got["out"][0, 0, 0, :2], 1 / np.float32(1.1920929e-7))
    got, _ = run(one("log", [(1, 1, 1)], (1, 1, 1), count=1), {"in0": x})
    np.testing.assert_allclose(got["out"][0, 0, 0, :2], np.log(1.1920929e-7), rtol=1e-6)


@pytest.mark.parametrize("mode", ["r", "c", "rc"])
def test_vector_modes_leave_the_rest_of_the_tile(mode):
    check(one("exp", [(1, 2, 2)], (1, 2, 2), vector=mode))


@pytest.mark.parametrize("grid, ublock", [((1, 1), (1, 1)), ((2, 1), (1, 2)), ((1, 2), (2, 1))])
@pytest.mark.parametrize("weights", ["ram", "queue"])
def test_matmul(grid, ublock, weights):
    check(one("matmul", [(2, 2, 4), (2, 4, 4)], (2, 2, 4), grid=grid, ublock=ublock, m_k=2, u_kt=2,
              in_kinds={1: weights}))


@pytest.mark.parametrize("extra", [{"sfpu_op": "gelu"}, {"relu_en": True, "relu_mode": "min"}, {"l1_acc": True}, {}])
def test_matmul_bias_gelu_relu(extra):
    check(one("matmul", [(2, 2, 2), (1, 2, 2), (1, 1, 2)], (2, 2, 2), m_k=1, u_kt=2, bias=True,
              tms={1: [("broadcast", "z", 2)], 2: [("broadcast", "r", 2), ("broadcast", "z", 2)]}, **extra))


def test_matmul_accumulates_slices():
    check(one("matmul", [(6, 2, 2), (6, 2, 1)], (2, 2, 1), m_k=2, u_kt=1, accumulate=True, z=3))


def test_matmul_ignores_more_slices_of_its_second_input():
    check(one("matmul", [(1, 1, 1), (3, 1, 1)], (1, 1, 1), m_k=1, u_kt=1))


def test_matmul_refuses_what_does_not_fit():
    net = one("matmul", [(1, 1, 2), (1, 2, 1)], (1, 1, 1), m_k=3, u_kt=1, count=1)
    with pytest.raises(NetlistError, match=r"op 'op' \(matmul\): inner dimensions 64 and 64"):
        run(net, {"in0": np.zeros((1, 1, 32, 64), np.float32), "in1": np.zeros((1, 1, 64, 32), np.float32)})


@pytest.mark.parametrize("kind", ["ram", "queue"])
def test_integer_matmul_and_requantisation(kind):
    ints = dict(acc="Int32", intermed="Int32", m_k=1, u_kt=2)
    check(one("matmul", [(1, 1, 2), (1, 2, 1)], (1, 1, 1), fmts={0: "Int8", 1: "Int8"}, fmt="Int32",
              in_kinds={1: kind}, **ints))
    check(one("matmul", [(1, 1, 2), (1, 2, 1), (1, 1, 1), (1, 1, 1)], (1, 1, 1), bias=True, requant=True,
              fmts={0: "Int8", 1: "Int8", 2: "Int32"}, fmt="Int8", zero_point=3.0, **ints), low=0.001, high=0.1)
    check(one("matmul", [(1, 1, 2), (1, 2, 1), (1, 1, 1)], (1, 1, 1), dequant=True, zero_point=-2.0,
              fmts={0: "Int8", 1: "UInt8"}, fmt="Float32", **ints), low=0.001, high=0.1)


def test_int32_is_exact_beyond_24_bits():
    net = one("add", [(1, 1, 1)] * 2, (1, 1, 1), fmts={0: "Int32", 1: "Int32"}, fmt="Int32", acc="Int32", count=1)
    x = np.full((1, 1, 32, 32), 2**30 + 1, np.int32)
    y = np.full((1, 1, 32, 32), 2, np.int32)
    got, _ = run(net, {"in0": x, "in1": y})
    assert (got["out"] == 2**30 + 3).all() and got["out"].dtype == np.int32
    got, _ = run(net, {"in0": x, "in1": x})
    assert (got["out"] == 2**31 - 1).all()


@pytest.mark.parametrize("kind, fmts, fmt", [("quantization", {0: "Float32", 1: "Float32"}, "Int8"),
                                             ("requantization", {0: "Int32", 1: "Float32"}, "Int8"),
                                             ("dequantization", {0: "Int32", 1: "Float32"}, "Float32"),
                                             ("dequantization", {0: "Int8", 1: "Float32"}, "Float32")])
def test_quantisation_family(kind, fmts, fmt):
    net = one(kind, [(1, 2, 1), (1, 2, 1)], (1, 2, 1), fmts=fmts, fmt=fmt, acc="Int32", zero_point=5.0)
    check(net, low=-30, high=30)


@pytest.mark.parametrize("dim, shape, out, grid, extra", [
    ("r", (2, 4, 2), (2, 1, 2), (1, 1), {"m_k": 2, "u_kt": 2}),
    ("c", (2, 2, 4), (2, 2, 1), (2, 1), {"m_k": 4, "u_kt": 1}), ("rc", (1, 2, 2), (1, 1, 1), (1, 1), {}),
    ("z", (6, 1, 2), (2, 1, 2), (1, 2), {"z": 3}), ("c", (1, 2, 4), (1, 2, 2), (1, 2), {"m_k": 2, "u_kt": 1})])
@pytest.mark.parametrize("func", ["max", "sum"])
def test_reduce(dim, shape, out, grid, extra, func):
    check(one("reduce", [shape], out, grid=grid, dim=dim, type=func, **extra), low=-5, high=-1, rtol=1e-5)


@pytest.mark.parametrize("order, shapes, out, grid, ublock, triples", [
    ("r", [(2, 2, 3), (2, 2, 2)], (2, 2, 5), (1, 1), (1, 1), [[0, 3, 3], [0, 2, 2]]),
    ("r", [(1, 4, 2), (1, 4, 4)], (1, 4, 6), (2, 2), (2, 1), [[0, 1, 1], [0, 2, 2]]),
    ("c", [(1, 4, 2), (1, 4, 4)], (1, 4, 6), (2, 2), (2, 1), [[0, 1, 1], [0, 2, 2]]),
    ("r", [(1, 2, 4), (1, 4, 4)], (1, 6, 4), (2, 1), (1, 2), [[0, 2, 2], [0, 4, 4]]),
    ("c", [(1, 2, 4), (1, 4, 4)], (1, 6, 4), (2, 1), (1, 2), [[0, 1, 1], [0, 2, 2]]),
    ("r", [(1, 4, 6)], (1, 4, 2), (1, 1), (1, 1), [[1, 1, 2]]),
    ("c", [(1, 4, 6)], (1, 4, 2), (1, 1), (1, 1), [[0, 4, 12]]),
    ("r", [(1, 4, 4), (1, 4, 4)], (1, 4, 4), (1, 1), (2, 1), [[1, 2, 3], [0, 2, 4]]),
    ("c", [(1, 4, 4), (1, 4, 4)], (1, 4, 4), (1, 1), (2, 1), [[2, 2, 2], [1, 2, 3]]),
])
def test_splice_by_ublocks(order, shapes, out, grid, ublock, triples):
    attributes = {f"input{i}": t for i, t in enumerate(triples)}
    check(one("splice", shapes, out, grid=grid, ublock=ublock, order=order, **attributes))


def test_splice_by_slices():
    check(one("splice", [(4, 1, 2), (6, 1, 2)], (4, 1, 2), granularity="t", input0=[1, 1, 1], input1=[0, 1, 3]))
    check(one("splice", [(2, 1, 2), (3, 1, 2)], (5, 1, 2), granularity="t", input0=[0, 2, 2], input1=[0, 3, 3]))


def test_splice_refuses_triples_that_do_not_use_up_an_input():
    net = one("splice", [(3, 1, 1)], (1, 1, 1), granularity="t", input0=[0, 1, 2], count=1)
    with pytest.raises(NetlistError, match=r"input0: \[0, 1, 2\] does not divide its 3 units"):
        run(net, {"in0": np.zeros((1, 3, 32, 32), np.float32)})


@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize("grid", [(1, 1), (2, 3)])
def test_depthwise(bias, grid):
    shapes = [(1, 2, 9), (1, 3, 3)] + [(1, 1, 3)] * bias
    check(one("depthwise", shapes, (1, 2, 3), grid=grid, m_k=3, u_kt=1, bias=bias,
              tms={2: [("broadcast", "r", 2)]}), rtol=1e-5)


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
    """As in the product of the tiles: infinity times the zeros beside the diagonal is no number."""
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


def test_embedding():
    net = one("embedding", [(1, 4, 3), (1, 2, 1)], (1, 4, 3), grid=(2, 1), num_indices=64, fmts={1: "RawUInt32"},
              count=1)
    rng = np.random.default_rng(1)
    indices = rng.integers(0, 128, (1, 1, 64, 32)).astype(np.int32)
    indices[0, 0, 0, 3] = -1
    table = rng.uniform(-1, 1, (1, 1, 128, 96)).astype(np.float32)
    got, _ = check(net, feeds={"in0": table, "in1": indices})
    assert not got["out"][0, 0, 3].any()
    indices[0, 0, 0, 4] = 128
    with pytest.raises(NetlistError, match="index 128 beyond the table's 128 rows"):
        run(net, {"in0": table, "in1": indices})


@pytest.mark.parametrize("sort", ["max", "argmax"])
@pytest.mark.parametrize("k, out, grid", [(5, 1, (1, 1)), (40, 2, (1, 1)), (3, 2, (1, 2))])
def test_topk(sort, k, out, grid):
    net = one("topk", [(1, 2, 4), (1, 2, 4)], (1, 2, out), grid=grid, k=k, sort=sort, kreduce=0, m_k=1, u_kt=4,
              fmts={1: "UInt16"}, fmt="UInt16" if sort == "argmax" else "Float32")
    places = np.broadcast_to(np.arange(128, dtype=np.int32), (2, 1, 64, 128))
    check(net, in1=places)


@pytest.mark.parametrize("sort", ["max", "argmax"])
@pytest.mark.parametrize("ram", [0, 1])
def test_topk_beside_a_ram_that_serves_all_inputs(ram, sort):
    net = one("topk", [(1, 1, 2)] * 2, (1, 1, 1), k=5, sort=sort, kreduce=0, m_k=1, u_kt=2, in_kinds={ram: "ram"},
              fmts={1: "UInt16"}, fmt="UInt16" if sort == "argmax" else "Float32")
    check(net, in1=np.stack([np.full((1, 32, 64), i) + np.arange(64) for i in range(2 - ram)]).astype(np.int32))


def test_embedding_of_two_tables_by_indices_of_a_ram():
    net = one("embedding", [(1, 2, 1), (1, 1, 1)], (1, 2, 1), num_indices=64, fmts={1: "RawUInt32"},
              in_kinds={1: "ram"})
    rng = np.random.default_rng(3)
    indices = rng.integers(0, 64, (1, 1, 32, 32)).astype(np.int32)
    indices[0, 0, 0, 3] = -1
    tables = rng.uniform(-1, 1, (2, 1, 64, 32)).astype(np.float32)
    got, _ = check(net, feeds={"in0": tables, "in1": indices})
    assert not got["out"][:, 0, 3].any() and (got["out"][0] != got["out"][1]).any()


def test_dropout_is_seeded_and_keeps_the_mean():
    net = one("dropout", [(1, 8, 8)], (1, 8, 8), p=0.25, seed=7, count=1)
    x = np.ones((1, 1, 256, 256), np.float32)
    first, _ = run(net, {"in0": x}, seed=1)
    again, _ = run(net, {"in0": x}, seed=1)
    other, _ = run(net, {"in0": x}, seed=2)
    np.testing.assert_array_equal(first["out"], again["out"])
    assert (first["out"] != other["out"]).any()
    assert set(np.unique(first["out"])) == {np.float32(0), np.float32(1 / 0.75)}
    assert abs((first["out"] == 0).mean() - 0.25) < 0.01


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**31), st.sampled_from([(1, 1, 1), (2, 1, 1), (2, 2, 1), (1, 2, 2), (3, 4, 2)]),
       st.integers(1, 2), st.integers(1, 2), st.integers(1, 3), st.booleans())
def test_sparse_matmul(seed, cores, ublock_r, u_kt, t, bias):
    grid_r, grid_c, fracture = cores
    rng = np.random.default_rng(seed)
    mblock_m, act_rt, act_z = 2, 2 * u_kt, 2
    rows, inner = grid_r * mblock_m * ublock_r * 32, act_rt * act_z * 32
    picked = np.argwhere(rng.random((t * fracture, rows)) < 0.2)
    coo = np.column_stack([picked, rng.integers(0, inner, len(picked))])
    enc = encode_picker(coo, grid_r=grid_r, t=t, mblock_m=mblock_m, ublock_r=ublock_r, u_kt=u_kt, act_rt=act_rt,
                        act_z=act_z, fracture=fracture)
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
    net.op("op", "matmul", inputs, (t, rt, ct), grid=(grid_r, grid_c), ublock=(ublock_r, 1), tms=tms, identity=True,
           m_k=act_rt // u_kt, u_kt=u_kt, num_sparse_tiles=enc.num_sparse_tiles, num_index_tiles=enc.num_index_tiles,
           sparse_tile_ptr_bits=enc.sparse_tile_ptr_bits, sparse_ublock_idx_bits=enc.sparse_ublock_idx_bits,
           fracture_factor=fracture, bias=bias)
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
        parts = [dense[g * t:(g + 1) * t] @ x[:, None, :, g * x.shape[2] // fracture:(g + 1) * x.shape[2] // fracture]
                 for g in range(fracture)]
        np.testing.assert_array_equal(got, np.concatenate(parts, axis=3))


def test_sparse_matmul_without_a_written_index_width():
    """The width of the tile pointers then counts for the ublock rows too."""
    rng = np.random.default_rng(5)
    picked = np.argwhere(rng.random((2, 64)) < 0.5)
    coo = np.column_stack([picked, rng.integers(0, 128, len(picked))])
    enc = encode_picker(coo, grid_r=2, t=2, mblock_m=1, ublock_r=1, u_kt=2, act_rt=2, act_z=2, pointer_bits=8,
                        index_bits=8)
    net = Net("wormhole_b0", "Float16_b")
    net.ram("tiles", (1, 2, enc.num_sparse_tiles), fmt="Bfp2_b")
    net.queue("act", (2, 2, 1))
    net.ram("words", (1, 2, 1), fmt="RawUInt32")
    net.op("op", "matmul", ["tiles", "act", "words"], (2, 2, 1), grid=(2, 1), identity=True, m_k=1, u_kt=2,
           num_sparse_tiles=enc.num_sparse_tiles, num_index_tiles=1, sparse_tile_ptr_bits=8)
    net.queue("out", (2, 2, 1), source="op")
    net.streaming()
    check(net.netlist(), tiles=enc.sparse_tensor()[None], words=enc.index_tensor()[None])
    net.net.graphs["g"].ops["op"].attributes["sparse_tile_ptr_bits"] = 3
    with pytest.raises(NetlistError, match="op 'op': the encodings cannot be decoded"):
        check(net.netlist(), tiles=enc.sparse_tensor()[None], words=enc.index_tensor()[None])


def fused(inputs, schedules, out=(1, 1, 1), grid=(1, 1), count=2, **op):
    net = Net("grayskull", "Float32")
    net.graph("g", count)
    names = [net.queue(f"in{i}", shape, entries=count) for i, shape in enumerate(inputs)]
    net.fused("0", len(inputs), schedules)
    net.op("op", "fused_op", names, out, grid=grid, fused_op_id=0, **op)
    net.queue("out", out, source="op", entries=count)
    net.streaming()
    return net.netlist()


def test_fused_tile_broadcasts():
    bc, br = {1: [("tile_broadcast", "c")]}, {1: [("tile_broadcast", "r")]}
    check(fused([(1, 1, 1)] * 5, [[
        sub("a", "add", ["input0", "input1"], "dest", (1, 1), tms=bc),
        sub("b", "add", ["dest", "input2"], "intermed0", (1, 1), tms=br),
        sub("c", "subtract", ["input3", "intermed0"], "dest", (1, 1), tms=br, pop=["intermed0"]),
        sub("d", "multiply", ["dest", "input4"], "output", (1, 1), tms=bc, relu_en=True, relu_mode="min"),
    ]]), rtol=1e-5)


def test_fused_softmax_over_the_cores_of_a_column():
    check(fused([(2, 4, 2), (2, 2, 1)], [
        [sub("e", "exp", ["input0"], "intermed0", (2, 2))],
        [sub("s", "matmul", ["intermed0", "input1"], "intermed1", (2, 1), m_k=2, u_kt=1)],
        [sub("r", "reciprocal", ["intermed1"], "intermed2", (2, 1), pop=["intermed1"]),
         sub("m", "multiply", ["intermed0", "intermed2"], "output", (2, 2), tms={1: [("broadcast", "c", 2)]},
             pop=["intermed0", "intermed2"])],
    ], out=(2, 4, 2), grid=(2, 1)), low=0.1, rtol=1e-5)


def test_fused_reduce_broadcast_and_unary_attributes():
    check(fused([(1, 2, 4)], [
        [sub("x", "reduce", ["input0"], "intermed0", (2, 1), dim="c", type="max", m_k=4, u_kt=1)],
        [sub("n", "subtract", ["input0", "intermed0"], "dest", (2, 4),
             tms={1: [("broadcast", "c", 4), ("tile_broadcast", "c")]}, pop=["intermed0"]),
         sub("l", "lrelu", ["dest"], "dest", (2, 4), slope=0.5), sub("p", "power", ["dest"], "output", (2, 4), exp=3)],
    ], out=(1, 2, 4)), rtol=1e-5)


def test_fused_broadcast_repeats_what_each_core_holds():
    check(fused([(1, 1, 2), (1, 2, 4)], [
        [sub("c", "nop", ["input0"], "intermed0", (1, 1))],
        [sub("a", "add", ["input1", "intermed0"], "output", (2, 2),
             tms={1: [("broadcast", "c", 2), ("broadcast", "r", 2)]}, pop=["intermed0"])],
    ], out=(1, 2, 4), grid=(1, 2)))


def test_fused_op_reading_an_empty_buffer_is_refused():
    net = fused([(1, 1, 1)], [[sub("a", "nop", ["intermed0"], "output", (1, 1))]], count=1)
    with pytest.raises(NetlistError, match="sub-op 'a': reads 'intermed0', which holds nothing"):
        run(net, {"in0": np.zeros((1, 1, 32, 32), np.float32)})


@pytest.mark.parametrize("tile", [(16, 32), (4, 32), (1, 32), (32, 16)])
def test_tiny_tiles(tile):
    net = Net("wormhole_b0", "Float16_b")
    net.graph("g", 2)
    net.queue("a", (1, 2, 2), entries=2, tile_dim=tile)
    net.queue("b", (1, 2, 2), entries=2, tile_dim=tile)
    net.op("sum", "add", ["a", "b"], (1, 2, 2), tile_dim=tile, tms={1: [("hslice", 2), ("hstack", 2)]})
    net.op("e", "exp", ["sum"], (1, 2, 2), tile_dim=tile)
    net.queue("out", (1, 2, 2), source="e", entries=2, tile_dim=tile)
    net.streaming()
    check(net.netlist())


def test_tiny_tile_matmul_with_bias():
    net = Net("wormhole_b0", "Float16_b")
    net.queue("a", (1, 2, 2), tile_dim=(16, 32))
    net.queue("b", (1, 2, 2))
    net.queue("c", (1, 1, 2))
    net.op("mm", "matmul", ["a", "b", "c"], (1, 2, 2), tile_dim=(16, 32), m_k=2, u_kt=1, bias=True,
           tms={2: [("broadcast", "r", 2)]})
    net.queue("out", (1, 2, 2), source="mm", tile_dim=(16, 32))
    net.streaming()
    check(net.netlist())


@pytest.mark.parametrize("fmt", ["Float16", "Float16_b", "Bfp8", "Bfp8_b", "Bfp4_b", "Bfp2_b", "Float32", "Lf8"])
@pytest.mark.parametrize("arch", ["grayskull", "wormhole_b0"])
def test_formats_are_rounded_where_golden_rounds(fmt, arch):
    net = Net(arch, fmt)
    net.graph("g", 2)
    net.queue("a", (1, 1, 2), entries=2)
    net.queue("b", (1, 1, 2), entries=2)
    net.op("x", "add", ["a", "b"], (1, 1, 2))
    net.op("y", "multiply", ["x", "b"], (1, 1, 2))
    net.queue("out", (1, 1, 2), source="y", entries=2)
    net.streaming()
    check(net.netlist(), device=fmt not in ("Bfp4_b", "Bfp2_b"))


def test_raw_words_pass_bit_for_bit():
    net = one("nop", [(2, 1, 2)], (2, 1, 2), fmts={0: "RawUInt32"}, fmt="RawUInt32", count=1)
    words = np.random.default_rng(3).integers(-(2**31), 2**31, (1, 2, 32, 64)).astype(np.int32)
    got, _ = run(net, {"in0": words})
    np.testing.assert_array_equal(got["out"], words)
