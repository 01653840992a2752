"""Every op type against the reference."""

import numpy as np
import pytest

from tbuda_lab.core.errors import NetlistError
from tbuda_lab.sim.kernels import eltwise
from tests.sim.build import Net, one
from tests.sim.harness import check, run

UNARY = [
    "nop",
    "datacopy",
    "ethernet_datacopy",
    "exp",
    "log",
    "sqrt",
    "gelu",
    "gelu_derivative",
    "reciprocal",
    "sigmoid",
    "tanh",
    "square",
    "sine",
    "cosine",
    "abs",
    "lrelu",
    "power",
    "tilizer",
]


@pytest.mark.parametrize("kind", UNARY)
def test_unary(kind):
    extra = {"slope": 0.3} if kind == "lrelu" else {"exp": 3} if kind == "power" else {}
    low = 0.01 if kind in ("log", "sqrt", "reciprocal") else -4
    check(one(kind, [(2, 2, 2)], (2, 2, 2), grid=(2, 1), **extra), low=low, high=4.0)


@pytest.mark.parametrize(
    "attributes", [{"slope": 0.0}, {"slope": 1.0}, {"slope": 1.5}, {"slope": -0.25}, {"exp": 0}, {"exp": 1}, {"exp": 2}]
)
def test_slopes_and_exponents(attributes):
    """On both sides of zero; beyond 1 a slope is no maximum of two lines."""
    check(one("lrelu" if "slope" in attributes else "power", [(1, 1, 1)], (1, 1, 1), **attributes), low=-4, high=4.0)


@pytest.mark.parametrize("kind", ["add", "subtract", "multiply", "maximum"])
@pytest.mark.parametrize(
    "relu",
    [
        {},
        {"relu_en": True, "relu_threshold": 0.25, "relu_mode": "min"},
        {"relu_en": True, "relu_threshold": 0.25, "relu_mode": "max"},
        {"relu_en": True, "relu_threshold": 0.0, "relu_mode": "min"},
    ],
)
def test_binary_and_relu(kind, relu):
    check(one(kind, [(1, 2, 2), (1, 2, 2)], (1, 2, 2), **relu))


@pytest.mark.parametrize("repeats", ["columns", "rows", "nothing"])
@pytest.mark.parametrize("rare", [None, 0, np.inf, np.nan])
@pytest.mark.parametrize("target", [None, 0, 1])
def test_zero_times_anything_is_zero_wherever_the_product_is_written(target, rare, repeats):
    """Of 256 x 128 numbers, some of them zero, infinite or not numbers; `rare` is one of the repeated ones."""
    rng = np.random.default_rng(3)
    operands = [rng.uniform(-2, 2, (1, 1, 256, 128)).astype(np.float32) for _ in range(2)]
    few = {"columns": np.s_[..., :1], "rows": np.s_[:, :, :1], "nothing": np.s_[...]}[repeats]
    x, y = operands[0], operands[1][few].copy()
    for i, value in enumerate((0, np.inf, -np.inf, np.nan)):
        x[0, 0, i::7, i::5] = value
    if rare is not None:
        y[0, 0, y.shape[2] // 2, y.shape[3] // 2] = rare
    y = np.broadcast_to(y, x.shape) if repeats != "nothing" else y
    with np.errstate(invalid="ignore"):
        expected = np.where((x == 0) | (y == 0), np.float32(0), x * y)
        for pair in ((x.copy(), y), (y, x.copy())):
            out = (
                next((p for p in pair if p.flags.writeable), None)
                if target == 0
                else np.empty_like(x)
                if (target)
                else None
            )
            np.testing.assert_array_equal(eltwise.multiply(*pair, out), expected)


def test_special_values():
    x = np.zeros((1, 1, 32, 32), np.float32)
    x[0, 0, 0, :5] = [0.0, -0.0, np.inf, 200.0, -200.0]
    y = np.full_like(x, np.inf)
    for feeds in ({"in0": x, "in1": y}, {"in0": y, "in1": x}):
        got, _ = run(one("multiply", [(1, 1, 1)] * 2, (1, 1, 1), count=1), feeds)
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


def test_int32_is_exact_beyond_24_bits():
    net = one("add", [(1, 1, 1)] * 2, (1, 1, 1), fmts={0: "Int32", 1: "Int32"}, fmt="Int32", acc="Int32", count=1)
    x = np.full((1, 1, 32, 32), 2**30 + 1, np.int32)
    y = np.full((1, 1, 32, 32), 2, np.int32)
    got, _ = run(net, {"in0": x, "in1": y})
    assert (got["out"] == 2**30 + 3).all() and got["out"].dtype == np.int32
    got, _ = run(net, {"in0": x, "in1": x})
    assert (got["out"] == -(2**31) + 2).all()  # routing.md#packing-in-the-golden-model


@pytest.mark.parametrize("mode", ["exact", "golden", "device"])
def test_sums_and_maxima_of_int32_are_those_of_words(mode):
    rng, shape = np.random.default_rng(5), (1, 1, 32, 32)
    edges = np.array([0, 1, -1, 2**31 - 1, -(2**31), 2**24 + 1, -(2**24) - 1, 2**30], np.int32)
    x, y = (
        np.where(rng.random(shape) < 0.5, rng.choice(edges, shape), rng.integers(-(2**31), 2**31, shape)).astype(
            np.int32
        )
        for _ in range(2)
    )
    for kind, function in (("add", np.add), ("maximum", np.maximum)):
        net = one(kind, [(1, 1, 1)] * 2, (1, 1, 1), fmts={0: "Int32", 1: "Int32"}, fmt="Int32", acc="Int32", count=1)
        got, _ = run(net, {"in0": x, "in1": y}, mode=mode)
        assert np.array_equal(got["out"], function(x, y)) and got["out"].dtype == np.int32


@pytest.mark.parametrize(
    "kind, fmts, fmt",
    [
        ("quantization", {0: "Float32", 1: "Float32"}, "Int8"),
        ("requantization", {0: "Int32", 1: "Float32"}, "Int8"),
        ("dequantization", {0: "Int32", 1: "Float32"}, "Float32"),
        ("dequantization", {0: "Int8", 1: "Float32"}, "Float32"),
    ],
)
def test_quantisation_family(kind, fmts, fmt):
    net = one(kind, [(1, 2, 1), (1, 2, 1)], (1, 2, 1), fmts=fmts, fmt=fmt, acc="Int32", zero_point=5.0)
    check(net, low=-30, high=30)


@pytest.mark.parametrize(
    "dim, shape, out, grid, extra",
    [
        ("r", (2, 4, 2), (2, 1, 2), (1, 1), {"m_k": 2, "u_kt": 2}),
        ("c", (2, 2, 4), (2, 2, 1), (2, 1), {"m_k": 4, "u_kt": 1}),
        ("rc", (1, 2, 2), (1, 1, 1), (1, 1), {}),
        ("z", (6, 1, 2), (2, 1, 2), (1, 2), {"z": 3}),
        ("c", (1, 2, 4), (1, 2, 2), (1, 2), {"m_k": 2, "u_kt": 1}),
    ],
)
@pytest.mark.parametrize("func", ["max", "sum"])
def test_reduce(dim, shape, out, grid, extra, func):
    check(one("reduce", [shape], out, grid=grid, dim=dim, type=func, **extra), low=-5, high=-1, rtol=1e-5)


@pytest.mark.parametrize(
    "order, shapes, out, grid, ublock, triples",
    [
        ("r", [(2, 2, 3), (2, 2, 2)], (2, 2, 5), (1, 1), (1, 1), [[0, 3, 3], [0, 2, 2]]),
        ("r", [(1, 4, 2), (1, 4, 4)], (1, 4, 6), (2, 2), (2, 1), [[0, 1, 1], [0, 2, 2]]),
        ("c", [(1, 4, 2), (1, 4, 4)], (1, 4, 6), (2, 2), (2, 1), [[0, 1, 1], [0, 2, 2]]),
        ("r", [(1, 2, 4), (1, 4, 4)], (1, 6, 4), (2, 1), (1, 2), [[0, 2, 2], [0, 4, 4]]),
        ("c", [(1, 2, 4), (1, 4, 4)], (1, 6, 4), (2, 1), (1, 2), [[0, 1, 1], [0, 2, 2]]),
        ("r", [(1, 4, 6)], (1, 4, 2), (1, 1), (1, 1), [[1, 1, 2]]),
        ("c", [(1, 4, 6)], (1, 4, 2), (1, 1), (1, 1), [[0, 4, 12]]),
        ("r", [(1, 4, 4), (1, 4, 4)], (1, 4, 4), (1, 1), (2, 1), [[1, 2, 3], [0, 2, 4]]),
        ("c", [(1, 4, 4), (1, 4, 4)], (1, 4, 4), (1, 1), (2, 1), [[2, 2, 2], [1, 2, 3]]),
    ],
)
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


def test_embedding():
    net = one(
        "embedding", [(1, 4, 3), (1, 2, 1)], (1, 4, 3), grid=(2, 1), num_indices=64, fmts={1: "RawUInt32"}, count=1
    )
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
    net = one(
        "topk",
        [(1, 2, 4), (1, 2, 4)],
        (1, 2, out),
        grid=grid,
        k=k,
        sort=sort,
        kreduce=0,
        m_k=1,
        u_kt=4,
        fmts={1: "UInt16"},
        fmt="UInt16" if sort == "argmax" else "Float32",
    )
    places = np.broadcast_to(np.arange(128, dtype=np.int32), (2, 1, 64, 128))
    check(net, in1=places)


@pytest.mark.parametrize("sort", ["max", "argmax"])
@pytest.mark.parametrize("ram", [0, 1])
def test_topk_beside_a_ram_that_serves_all_inputs(ram, sort):
    net = one(
        "topk",
        [(1, 1, 2)] * 2,
        (1, 1, 1),
        k=5,
        sort=sort,
        kreduce=0,
        m_k=1,
        u_kt=2,
        in_kinds={ram: "ram"},
        fmts={1: "UInt16"},
        fmt="UInt16" if sort == "argmax" else "Float32",
    )
    check(net, in1=np.stack([np.full((1, 32, 64), i) + np.arange(64) for i in range(2 - ram)]).astype(np.int32))


def test_embedding_of_two_tables_by_indices_of_a_ram():
    net = one(
        "embedding", [(1, 2, 1), (1, 1, 1)], (1, 2, 1), num_indices=64, fmts={1: "RawUInt32"}, in_kinds={1: "ram"}
    )
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
