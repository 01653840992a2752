"""Dense products against the reference, by whichever library multiplies."""

import warnings

import numpy as np
import pytest

from tbuda_lab.core.errors import NetlistError
from tbuda_lab.sim import Executor
from tbuda_lab.sim.arrays import repeated_column
from tbuda_lab.sim.kernels import matmul
from tbuda_lab.sim.kernels import matmul as mm
from tests.sim.build import Net, one
from tests.sim.harness import check, feeds_for, run


@pytest.mark.parametrize("grid, ublock", [((1, 1), (1, 1)), ((2, 1), (1, 2)), ((1, 2), (2, 1))])
@pytest.mark.parametrize("weights", ["ram", "queue"])
def test_matmul(grid, ublock, weights):
    check(
        one("matmul", [(2, 2, 4), (2, 4, 4)], (2, 2, 4), grid=grid, ublock=ublock, m_k=2, u_kt=2, in_kinds={1: weights})
    )


@pytest.mark.parametrize("extra", [{"sfpu_op": "gelu"}, {"relu_en": True, "relu_mode": "min"}, {"l1_acc": True}, {}])
def test_matmul_bias_gelu_relu(extra):
    check(
        one(
            "matmul",
            [(2, 2, 2), (1, 2, 2), (1, 1, 2)],
            (2, 2, 2),
            m_k=1,
            u_kt=2,
            bias=True,
            tms={1: [("broadcast", "z", 2)], 2: [("broadcast", "r", 2), ("broadcast", "z", 2)]},
            **extra,
        )
    )


def test_matmul_accumulates_slices():
    check(one("matmul", [(6, 2, 2), (6, 2, 1)], (2, 2, 1), m_k=2, u_kt=1, accumulate=True, z=3))


def test_matmul_ignores_more_slices_of_its_second_input():
    check(one("matmul", [(1, 1, 1), (3, 1, 1)], (1, 1, 1), m_k=1, u_kt=1))


@pytest.fixture(params=["torch", "numpy"])
def library(request, monkeypatch):
    """Whose BLAS multiplies."""
    module = __import__("torch") if request.param == "torch" else None
    monkeypatch.setattr(matmul, "faster_torch", lambda: module)


@pytest.mark.parametrize(
    "left, right",
    [
        ((40, 60), (60, 70)),
        ((1, 3, 40, 60), (1, 3, 60, 70)),
        ((2, 3, 40, 60), (1, 1, 60, 70)),
        ((1, 3, 40, 60), (2, 1, 60, 70)),
        ((2, 3, 40, 60), (2, 3, 60, 70)),
        ((1, 1, 640, 64), (1, 1, 64, 1)),
    ],
)
@pytest.mark.parametrize("layout", ["rows", "turned", "spread", "once"])
def test_products_of_both_libraries(library, left, right, layout):
    rng = np.random.default_rng(7)
    a, b = (rng.standard_normal(shape).astype(np.float32) for shape in (left, right))
    if layout == "turned":
        a, b = (np.ascontiguousarray(x.swapaxes(-1, -2)).swapaxes(-1, -2) for x in (a, b))
    elif layout == "spread":
        b = np.concatenate([b, b], axis=-1)[..., : right[-1]]
    elif layout == "once" and len(left) == 4:
        a, b = (np.broadcast_to(x[:, :1], x.shape) for x in (a, b))
    expected = a.astype(np.float64) @ b.astype(np.float64)
    out = np.empty(expected.shape, np.float32)
    np.testing.assert_allclose(matmul.product(a, b), expected, rtol=1e-5, atol=1e-5)
    assert matmul.product(a, b, out) is out or np.shares_memory(matmul.product(a, b, out), out)
    np.testing.assert_allclose(out, expected, rtol=1e-5, atol=1e-5)


@pytest.fixture
def packs(monkeypatch):
    """Packed products, whatever the processor is; not every build of torch has MKL."""
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(mm, "faster_torch", lambda: torch)
    mm.packed_products.cache_clear()
    if mm.packed_products() is None:
        pytest.skip("this torch has no MKL")
    yield
    mm.packed_products.cache_clear()


@pytest.mark.parametrize("layout", ["rows", "turned", "spread", "strided"])
def test_products_of_a_packed_operand(packs, layout):
    """They are those of float64; another matrix, or the same memory with other contents in a new array, is seen."""
    rng = np.random.default_rng(3)
    operand, found = mm.PackedOperand(), []
    for _ in range(2):
        b = rng.standard_normal((1024, 600)).astype(np.float32)
        if layout == "turned":
            b = np.ascontiguousarray(b.T).T
        elif layout == "spread":
            b = mm.spread_rows(np.ascontiguousarray(b[:, :512].repeat(2, axis=1)))
        elif layout == "strided":
            b = np.lib.stride_tricks.as_strided(b, (1024, 599), b.strides)
        for rows in (64, 64, 64, 64, 64, 64, 40, 64):
            a = rng.standard_normal((rows, 1024)).astype(np.float32)
            out = operand.product(a, b)
            found.append(out is not None)
            if out is not None:
                np.testing.assert_allclose(out, a.astype(np.float64) @ b, rtol=1e-4, atol=1e-3)
    assert found == [False, False, False, True, True, True, False, False] * 2


def test_an_operand_is_not_packed_twice_for_memory_that_is_used_anew(packs):
    operand = mm.PackedOperand()
    a = np.ones((64, 1024), np.float32)
    for value in range(8):  # the allocator gives the same address again
        b = np.full((1024, 600), value, np.float32)
        assert operand.product(a, b) is None
        del b


def test_a_product_of_what_nobody_may_write_to(monkeypatch):
    """As NumPy 2.0 and torch have it: such an array is not exported, and `from_numpy` warns of it."""
    torch = pytest.importorskip("torch")

    def refuses(x):
        raise BufferError("Cannot export readonly array")

    monkeypatch.setattr(matmul, "faster_torch", lambda: torch)
    monkeypatch.setattr(torch, "from_dlpack", refuses)
    a = np.broadcast_to(np.arange(64, dtype=np.float32), (64, 64))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        np.testing.assert_array_equal(matmul.product(a, np.eye(64, dtype=np.float32)), a)


@pytest.mark.parametrize("m_k", [1, 2])
def test_columns_cut_into_slices_are_one_product(library, m_k):
    """512 columns of weights in memory have a gap after each row."""
    net = one(
        "matmul",
        [(1, 2, 2), (1, 2, 16), (1, 1, 16)],
        (4, 2, 4),
        m_k=m_k,
        u_kt=2 // m_k,
        bias=True,
        in_kinds={1: "ram", 2: "ram"},
        sfpu_op="gelu",
        tms={0: [("broadcast", "z", 4)], 1: [("hslice", 4)], 2: [("broadcast", "r", 2), ("hslice", 4)]},
    )
    _, executor = check(net, rtol=1e-5)
    (weights,) = (port for port in next(iter(executor.plans.values())).steps[0].ports[1:2])
    assert weights.cache.strides[2] > 4 * 512 and weights.cache.strides[1] == 4 * 128


@pytest.mark.parametrize(
    "extra",
    [
        {"sfpu_op": "gelu"},
        {"relu_en": True, "relu_threshold": 0.25, "relu_mode": "min"},
        {"relu_en": True, "relu_threshold": 0.25, "relu_mode": "max"},
    ],
)
@pytest.mark.parametrize("slices", [1, 2])
def test_products_finished_piece_by_piece(monkeypatch, extra, slices):
    """Bias and relu of one piece of rows before the next is multiplied; the last piece is a smaller one."""

    def op(left):
        return one(
            "matmul",
            [left, (1, 2, 2), (1, 1, 2)],
            (slices, 5, 2),
            m_k=1,
            u_kt=2,
            bias=True,
            tms={1: [("broadcast", "z", slices)], 2: [("broadcast", "r", 5), ("broadcast", "z", slices)]},
            **extra,
            in_kinds={1: "ram", 2: "ram"},
        )

    net = op((slices, 5, 2))
    feeds = feeds_for(net)
    whole = run(net, feeds)[0]["out"]
    monkeypatch.setattr(mm, "PIECE", 2 * 32 * 64)
    check(net, feeds=feeds, rtol=1e-5)
    np.testing.assert_allclose(run(net, feeds)[0]["out"], whole, rtol=1e-6, atol=1e-5)


@pytest.mark.parametrize("low", [0.1, -1.0])
def test_equal_columns_stay_one(low):
    """A mean as a product with equal columns, what follows of it, and its broadcast: as if every column were there."""
    net = Net("grayskull", "Float32")
    net.graph("g", 2)
    net.queue("x", (2, 2, 3), entries=2)
    for name, shape in (("mean", (1, 3, 1)), ("eps", (1, 1, 1))):
        net.ram(name, shape)
    net.op("m", "matmul", ["x", "mean"], (2, 2, 1), m_k=1, u_kt=3, tms={1: [("broadcast", "z", 2)]})
    net.op("a", "add", ["m", "eps"], (2, 2, 1), tms={1: [("broadcast", "r", 2), ("broadcast", "z", 2)]})
    net.op("e", "exp", ["a"], (2, 2, 1), relu_en=True, relu_mode="min")
    net.op("f", "abs", ["m"], (2, 2, 1))
    net.op("s", "subtract", ["x", "e"], (2, 2, 3), tms={1: [("broadcast", "c", 3)]})
    net.op("d", "multiply", ["s", "f"], (2, 2, 3), tms={1: [("broadcast", "c", 3)]})
    net.queue("out", (2, 2, 3), source="d", entries=2)
    net.streaming()
    equal = {"mean": np.full((1, 1, 96, 32), 1 / 96, np.float32), "eps": np.full((1, 1, 32, 32), 0.5, np.float32)}
    check(net.netlist(), low=low, rtol=1e-5, **equal)
    rng = np.random.default_rng(8)
    rows = np.broadcast_to(rng.uniform(0, 0.1, (1, 1, 96, 1)), (1, 1, 96, 32)).astype(np.float32)
    netlist = net.netlist()
    check(netlist, low=low, rtol=1e-5, mean=rows, eps=rows[:, :, :32])
    once = set()
    run(netlist, feeds_for(netlist, **equal), on_op=lambda name, x: once.add(name) if repeated_column(x) else None)
    assert once == {"m", "a", "f"}


@pytest.mark.parametrize("mode", ["golden", "device", "exact"])
def test_a_row_that_stands_for_all_is_worked_on_once(library, mode):
    """What the host hands over as one row in memory: the bits of as many rows as there are, through products of
    joined weights, bias, relu, TMs and ops of elements, and again with other weights."""
    net = Net("wormhole_b0", "Float16_b")
    net.graph("g", 1)
    net.queue("x", (1, 1, 25))
    for name, shape in (("w", (1, 25, 16)), ("b", (1, 1, 16)), ("v", (1, 16, 4)), ("c", (1, 1, 4))):
        net.ram(name, shape)
    net.op(
        "m",
        "matmul",
        ["x", "w", "b"],
        (2, 1, 8),
        m_k=1,
        u_kt=25,
        bias=True,
        relu_en=True,
        relu_mode="min",
        tms={0: [("broadcast", "z", 2)], 1: [("hslice", 2)], 2: [("hslice", 2)]},
    )
    net.op("n", "matmul", ["m", "v", "c"], (1, 1, 4), m_k=1, u_kt=16, bias=True, tms={0: [("hstack", 2)]})
    net.op("g", "gelu", ["n"], (1, 1, 4))
    net.op("s", "multiply", ["g", "n"], (1, 1, 4), relu_en=True, relu_mode="min")
    net.queue("out", (1, 1, 4), source="s")
    net.streaming()
    rng = np.random.default_rng(9)
    feeds = {
        q: rng.uniform(-1, 1, (1, 1, 32 * r, 32 * c)).astype(np.float32)
        for q, r, c in (("w", 25, 16), ("b", 1, 16), ("v", 16, 4), ("c", 1, 4))
    }
    row = rng.uniform(-1, 1, (1, 1, 1, 800)).astype(np.float32)
    outputs = []
    for x in (np.broadcast_to(row, (1, 1, 32, 800)), np.repeat(row, 32, axis=2)):
        executor = Executor(net.netlist(), mode=mode)
        for name, array in feeds.items():
            executor.push(name, array)
        for turn in range(2):
            executor.push("x", x)
            executor.run()
            outputs.append(executor.pop_all("out"))
            executor.write("w", feeds["w"][0] * (turn + 2))
    np.testing.assert_array_equal(outputs[0], outputs[2])
    np.testing.assert_array_equal(outputs[1], outputs[3])
    assert not np.array_equal(outputs[0], outputs[1])
    if mode == "golden":
        check(net.netlist(), rtol=1e-5, feeds={**feeds, "x": np.broadcast_to(row, (1, 1, 32, 800))})


def test_matmul_refuses_what_does_not_fit():
    net = one("matmul", [(1, 1, 2), (1, 2, 1)], (1, 1, 1), m_k=3, u_kt=1, count=1)
    with pytest.raises(NetlistError, match=r"op 'op' \(matmul\): inner dimensions 64 and 64"):
        run(net, {"in0": np.zeros((1, 1, 32, 64), np.float32), "in1": np.zeros((1, 1, 64, 32), np.float32)})


@pytest.mark.parametrize("kind", ["ram", "queue"])
def test_integer_matmul_and_requantisation(kind):
    ints = dict(acc="Int32", intermed="Int32", m_k=1, u_kt=2)
    check(
        one(
            "matmul",
            [(1, 1, 2), (1, 2, 1)],
            (1, 1, 1),
            fmts={0: "Int8", 1: "Int8"},
            fmt="Int32",
            in_kinds={1: kind},
            **ints,
        )
    )
    check(
        one(
            "matmul",
            [(1, 1, 2), (1, 2, 1), (1, 1, 1), (1, 1, 1)],
            (1, 1, 1),
            bias=True,
            requant=True,
            fmts={0: "Int8", 1: "Int8", 2: "Int32"},
            fmt="Int8",
            zero_point=3.0,
            **ints,
        ),
        low=0.001,
        high=0.1,
    )
    check(
        one(
            "matmul",
            [(1, 1, 2), (1, 2, 1), (1, 1, 1)],
            (1, 1, 1),
            dequant=True,
            zero_point=-2.0,
            fmts={0: "Int8", 1: "UInt8"},
            fmt="Float32",
            **ints,
        ),
        low=0.001,
        high=0.1,
    )


def test_tiny_tile_matmul_with_bias():
    net = Net("wormhole_b0", "Float16_b")
    net.queue("a", (1, 2, 2), tile_dim=(16, 32))
    net.queue("b", (1, 2, 2))
    net.queue("c", (1, 1, 2))
    net.op(
        "mm",
        "matmul",
        ["a", "b", "c"],
        (1, 2, 2),
        tile_dim=(16, 32),
        m_k=2,
        u_kt=1,
        bias=True,
        tms={2: [("broadcast", "r", 2)]},
    )
    net.queue("out", (1, 2, 2), source="mm", tile_dim=(16, 32))
    net.streaming()
    check(net.netlist())
