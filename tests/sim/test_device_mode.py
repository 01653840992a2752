"""Where device mode rounds, and what it leaves alone."""

import numpy as np
import pytest

from tbuda_lab.core.formats import DataFormat, quantise, round_to
from tbuda_lab.sim.numerics import covers
from tests.sim.build import Net
from tests.sim.harness import feeds_for, pcc, run


def matmul(fidelity="HiFi4", m_k=4, acc="Float32", intermed="Float32", fmt="Float16_b", **attributes):
    net = Net("wormhole_b0", fmt)
    net.queue("a", (1, 2, 8))
    net.queue("b", (1, 8, 2))
    net.op(
        "mm",
        "matmul",
        ["a", "b"],
        (1, 2, 2),
        m_k=m_k,
        u_kt=8 // m_k,
        acc=acc,
        intermed=intermed,
        fidelity=fidelity,
        **attributes,
    )
    net.queue("out", (1, 2, 2), source="mm")
    net.streaming()
    return net.netlist()


def test_outputs_are_rounded_to_nearest():
    net = matmul()
    feeds = feeds_for(net)
    exact = quantise(feeds["a"], DataFormat.Float16_b) @ quantise(feeds["b"], DataFormat.Float16_b)
    got, _ = run(net, feeds, mode="device")
    np.testing.assert_array_equal(got["out"], round_to(exact, DataFormat.Float16_b))
    golden, _ = run(net, feeds)
    np.testing.assert_array_equal(golden["out"], quantise(exact, DataFormat.Float16_b))


def test_spills_lose_accuracy_pass_by_pass():
    errors = []
    for m_k in (1, 2, 8):
        net = matmul(m_k=m_k, acc="Float16_b", intermed="Bfp8_b")
        feeds = feeds_for(net)
        exact = quantise(feeds["a"], DataFormat.Float16_b).astype(float) @ quantise(feeds["b"], DataFormat.Float16_b)
        got, _ = run(net, feeds, mode="device")
        errors.append(float(np.sqrt(np.mean((got["out"] - exact) ** 2))))
        assert pcc(got["out"], exact) > 0.99
    assert errors[0] < errors[1] < errors[2]


def test_fewer_passes_lose_accuracy():
    errors = []
    for fidelity in ("HiFi4", "HiFi2", "LoFi"):
        net = matmul(fidelity, fmt="Float16")
        feeds = feeds_for(net)
        exact = quantise(feeds["a"], DataFormat.Float16).astype(float) @ quantise(feeds["b"], DataFormat.Float16)
        got, _ = run(net, feeds, mode="device")
        errors.append(float(np.sqrt(np.mean((got["out"] - exact) ** 2))))
    assert errors[0] < errors[1] < errors[2]
    # 5 and 7 significant bits, truncated
    a, b = (
        (quantise(feeds[name], DataFormat.Float16).view(np.uint32) >> (24 - bits) << (24 - bits)).view(np.float32)
        for name, bits in (("a", 7), ("b", 5))
    )
    np.testing.assert_allclose(got["out"], a @ b, rtol=2e-3, atol=2e-3)


def seen_by_three_passes(x, y, kind):
    """The 5 leading bits of one operand, the 7 of the other, both rests, but not rest times rest; in float64."""
    bits = (7, 5) if kind == "matmul" else (5, 7)
    (xh, xl), (yh, yl) = (
        (high.astype(float), (v - high).astype(float))
        for v, n in zip((x, y), bits, strict=True)
        for high in [(v.view(np.uint32) >> (24 - n) << (24 - n)).view(np.float32)]
    )
    product = np.matmul if kind == "matmul" else np.multiply
    return product(xh, yh) + product(xl, yh) + product(xh, yl), product(xh + xl, yh + yl)


def product(kind, fmt, *, m_k=1, z=1, tms=None):
    net = Net("blackhole", fmt)
    net.queue("x", (z, 2, 4))
    net.queue("y", (1, 4, 4) if kind == "matmul" else (z, 2, 4))
    inner = {"m_k": m_k, "u_kt": 4 // m_k} if kind == "matmul" else {}
    net.op("o", kind, ["x", "y"], (z, 2, 4), fidelity="HiFi3", tms=tms, **inner)
    net.queue("out", (z, 2, 4), source="o")
    net.streaming()
    return net.netlist()


@pytest.mark.parametrize("kind", ["matmul", "multiply"])
def test_three_passes_leave_out_the_product_of_both_rests(kind):
    net = product(kind, "Float32")
    feeds = feeds_for(net)
    got, _ = run(net, feeds, mode="device")
    x, y = ((v.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32) for v in (feeds["x"], feeds["y"]))  # Tf32
    expected, whole = seen_by_three_passes(x, y, kind)
    np.testing.assert_allclose(got["out"], expected, rtol=1e-5, atol=1e-5)
    assert np.abs(expected - whole).max() > 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("kind, m_k, z", [("matmul", 1, 1), ("matmul", 1, 3), ("matmul", 2, 1), ("multiply", 1, 2)])
def test_three_passes_in_ten_stored_bits(kind, m_k, z):
    """Also before each rounding between two parts of a matmul, and with one operand for all slices."""
    net = product(kind, "Float16", m_k=m_k, z=z, tms={1: [("broadcast", "z", z)]} if kind == "matmul" else None)
    feeds = feeds_for(net)
    got, _ = run(net, feeds, mode="device")
    x, y = (quantise(feeds[name], DataFormat.Float16) for name in "xy")
    step = x.shape[-1] // m_k
    parts = (
        [(x[..., k : k + step], y[..., k : k + step, :]) for k in range(0, x.shape[-1], step)] if m_k > 1 else [(x, y)]
    )
    expected, whole = (np.zeros(()) for _ in range(2))
    for a, b in parts:
        seen, everything = seen_by_three_passes(a, b, kind)
        expected, whole = (
            round_to((s + v).astype(np.float32), DataFormat.Float16) for s, v in ((expected, seen), (whole, everything))
        )
    assert (got["out"] == expected).mean() > 0.995  # the sum is one of float32
    assert (whole == expected).mean() < 0.95


@pytest.mark.parametrize("fmt, other", [("Float16_b", "Float16_b"), ("Bfp8", "Float16")])
def test_where_nothing_is_taken_away(fmt, other):
    """Outputs of seven stored bits, and a source B that seven bits hold: as with four passes."""
    results = []
    for fidelity in ("HiFi3", "HiFi4"):
        net = product("matmul", other)
        net.graphs["g"].ops["o"].math_fidelity = fidelity
        net.queues["x"].df = net.graphs["g"].ops["o"].inputs[0].df = DataFormat[fmt]
        results.append(run(net, feeds_for(net), mode="device")[0]["out"])
    np.testing.assert_array_equal(*results)


def test_stochastic_rounding_is_seeded_and_unbiased():
    net = Net("wormhole_b0", "Float32")
    net.queue("a", (1, 4, 4))
    net.op("op", "abs", ["a"], (1, 4, 4), fmt="Float16_b", stoch_rnd_mode="pack")
    net.queue("out", (1, 4, 4), source="op", fmt="Float16_b")
    net.streaming()
    x = np.full((1, 1, 128, 128), 1 + 2**-9, np.float32)  # a quarter of a step above 1
    results = [run(net.netlist(), {"a": x}, mode="device", seed=s)[0]["out"] for s in (1, 1, 2)]
    np.testing.assert_array_equal(results[0], results[1])
    assert (results[0] != results[2]).any()
    assert set(np.unique(results[0])) == {np.float32(1), np.float32(1 + 2**-7)}
    assert abs((results[0] > 1).mean() - 0.25) < 0.02
    golden, _ = run(net.netlist(), {"a": x})
    assert (golden["out"] == 1).all()


def test_moving_values_does_not_round_them_again():
    net = Net("wormhole_b0", "Bfp8_b")
    net.queue("a", (1, 2, 2))
    net.op("x", "nop", ["a"], (2, 2, 1), tms={0: [("hslice", 2)]})
    net.op("y", "nop", ["x"], (2, 1, 2), tms={0: ["transpose"]})
    net.queue("out", (2, 1, 2), source="y")
    net.streaming()
    feeds = feeds_for(net.netlist())
    rough, executor = run(net.netlist(), feeds, mode="device")
    moved = executor.read("a")[0].reshape(64, 2, 32).transpose(1, 2, 0)
    np.testing.assert_array_equal(rough["out"][0], quantise(moved, DataFormat.Bfp8_b))  # the host rounds at pop


@pytest.mark.parametrize(
    "one, other, yes",
    [
        ("Float32", "Bfp8", True),
        ("Float16_b", "Bfp8_b", True),
        ("Float16", "Float16_b", False),
        ("Bfp8_b", "Float16_b", False),
        ("Float16_b", "Float16", False),
        ("Bfp8", "Bfp4", True),
        ("Int8", "Bfp2", False),
    ],
)
def test_which_format_holds_which(one, other, yes):
    assert covers(DataFormat[one], DataFormat[other]) is yes
