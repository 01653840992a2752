"""What golden mode cuts from values that ops read, against the rules evaluated in float64.

Rules: routing.md#packing-in-the-golden-model. On wormhole whoever reads Float32 that the host wrote cuts it to ten bits
of fraction; what an op made of such values no op cuts again, nor where it went through a queue. Blocks of four or two
bits are as the host wrote them behind a transpose too: they are not formed anew along the other axis.
"""

import numpy as np
import pytest

from tests.sim.build import Net
from tests.sim.harness import feeds_for, run


def ten_bits(x):
    """float64 with the fraction cut after ten bits, towards zero."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float64))
    return np.ldexp(np.trunc(mantissa * 2**11) / 2**11, exponent)


def written(x, bits):
    """Blocks of 16 values of a row as the host writes them: in units by the largest of them, half up, saturating."""
    blocks = np.asarray(x, np.float64).reshape(-1, 16)
    largest = np.abs(blocks).max(axis=1, keepdims=True)
    unit = np.exp2(np.floor(np.log2(np.where(largest > 0, largest, 1))) - (bits - 1))
    steps = np.minimum(np.floor(np.abs(blocks) / unit + 0.5), 2**bits - 1)
    return (np.sign(blocks) * steps * unit).reshape(x.shape)


def perceptron(arch, queue_between):
    """relu(x a) b in Float32, in one epoch or in two with a queue between them."""
    net = Net(arch, "Float32")
    for name, tiles in (("x", (1, 2, 3)), ("a", (1, 3, 4)), ("b", (1, 4, 2))):
        net.queue(name, tiles)
    net.op("h", "matmul", ["x", "a"], (1, 2, 4), m_k=1, u_kt=3, relu_en=True, relu_threshold=0.0, relu_mode="min")
    if queue_between:
        net.queue("e2e", (1, 2, 4), source="h")
        net.streaming("g")
        net.graph("next")
    net.op(
        "y",
        "matmul",
        ["e2e" if queue_between else "h", "b"],
        (1, 2, 2),
        m_k=1,
        u_kt=4,
        graph="next" if queue_between else "g",
    )
    net.queue("out", (1, 2, 2), source="y")
    net.streaming("next" if queue_between else "g")
    if queue_between:
        net.net.programs[1].name = "then"
    return net.netlist()


@pytest.mark.parametrize("queue_between", [False, True])
@pytest.mark.parametrize("arch", ["wormhole_b0", "blackhole", "grayskull"])
def test_float32_is_cut_where_the_hosts_values_are_read(arch, queue_between):
    net = perceptron(arch, queue_between)
    feeds = feeds_for(net)
    cut = ten_bits if arch == "wormhole_b0" else np.float64
    x, a, b = (cut(feeds[name]) for name in "xab")
    hidden = np.maximum(x @ a, 0)
    got, _ = run(net, feeds)
    scale = np.abs(hidden @ b).max()
    np.testing.assert_allclose(got["out"], hidden @ b, rtol=0, atol=1e-6 * scale)
    if arch == "wormhole_b0":
        assert np.abs(ten_bits(hidden) @ b - hidden @ b).max() > 1e-4 * scale  # it would show
        machine, _ = run(net, feeds, mode="device")  # products take ten bits of whatever they read
        np.testing.assert_allclose(machine["out"], ten_bits(hidden) @ b, rtol=0, atol=5e-4 * scale)
        assert np.abs(machine["out"] - hidden @ b).max() > 1e-4 * scale


@pytest.mark.parametrize("kind, port", [("matmul", 1), ("add", 0), ("exp", 0)])
@pytest.mark.parametrize("fmt, bits", [("Bfp4_b", 3), ("Bfp2_b", 1), ("Bfp4", 3)])
def test_small_blocks_stay_as_written_behind_a_transpose(kind, port, fmt, bits):
    net = Net("wormhole_b0", fmt)
    names = ["x"] if kind == "exp" else ["x", "y"]
    for name in names:
        net.queue(name, (1, 2, 3) if name == names[port] else (1, 3, 3) if kind == "matmul" else (1, 3, 2))
    inner = {"m_k": 1, "u_kt": 3} if kind == "matmul" else {}
    tiles = (1, 3, 2)
    net.op("o", kind, names, tiles, fmt="Float32", tms={port: ["transpose"]}, **inner)
    net.queue("out", tiles, source="o", fmt="Float32")
    net.streaming()
    feeds = {name: x * np.exp2(-np.arange(x.shape[2]) % 4)[:, None] for name, x in feeds_for(net.netlist()).items()}
    values = [written(feeds[name][0, 0], bits) for name in names]
    values[port] = values[port].T
    compute = {"matmul": np.matmul, "add": np.add, "exp": np.exp}[kind]
    expected = compute(*values)
    got, _ = run(net.netlist(), feeds)
    np.testing.assert_allclose(got["out"][0, 0], expected, rtol=0, atol=1e-6 * np.abs(expected).max())
    anew = list(values)
    anew[port] = written(values[port], bits)
    assert np.abs(compute(*anew) - expected).max() > 1e-2 * np.abs(expected).max()  # it would show


def test_small_blocks_that_are_not_turned_are_cut_where_an_op_reads_them():
    """A tensor of an op counts as of the format of that op's first input, whatever its own."""
    net = Net("wormhole_b0", "Bfp4_b")
    net.queue("x", (1, 2, 2))
    net.op("a", "exp", ["x"], (1, 2, 2), fmt="Float32")
    net.op("b", "nop", ["a"], (1, 2, 2), fmt="Float32")
    net.queue("out", (1, 2, 2), source="b", fmt="Float32")
    net.streaming()
    feeds = feeds_for(net.netlist())
    made = np.exp(written(feeds["x"][0, 0], 3))
    unit = np.exp2(np.floor(np.log2(made.reshape(-1, 16).max(axis=1, keepdims=True))) - 2)
    expected = (np.floor(made.reshape(-1, 16) / unit) * unit).reshape(made.shape)
    got, _ = run(net.netlist(), feeds)
    np.testing.assert_allclose(got["out"][0, 0], expected, rtol=0, atol=1e-6 * expected.max())
