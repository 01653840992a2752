"""TMs in any legal order, pads and unpads, against the reference's tile loops."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.errors import NetlistError
from tbuda_lab.core.formats import DataFormat, quantise
from tbuda_lab.sim import tms as moves
from tests.sim.build import Net
from tests.sim.harness import check, run


@st.composite
def chains(draw):
    """A start shape in tiles and a list of TMs that fit one after the other."""
    shape = [draw(st.sampled_from([1, 2, 3, 4])) for _ in range(3)]
    start, listed = tuple(shape), []
    for _ in range(draw(st.integers(1, 5))):
        z, r, c = shape
        options = ["transpose", "broadcast", "pad"]
        options += ["hslice"] * (c > 1) + ["vslice"] * (r > 1) + ["hstack", "vstack"] * (z > 1)
        name = draw(st.sampled_from(options))
        if name == "transpose":
            listed.append(name)
            shape = [z, c, r]
        elif name == "broadcast":
            dims = draw(st.lists(st.sampled_from("rcz"), min_size=1, max_size=2, unique=True))
            factors = [draw(st.sampled_from([1, 2, 3])) for _ in dims]
            if z * r * c * np.prod(factors) > 96:
                continue
            listed.append(("broadcast", *[v for pair in zip(dims, factors, strict=True) for v in pair]))
            for d, k in zip(dims, factors, strict=True):
                shape["zrc".index(d)] *= k
        elif name == "pad":
            if any(t[0] == "pad" for t in listed if isinstance(t, tuple)):
                continue
            rt, ct = draw(st.integers(0, 2)), draw(st.integers(0, 2))
            listed.append(("pad", rt, ct, draw(st.sampled_from([0.0, -1.5]))))
            shape = [z, r + rt, c + ct]
        else:
            size = {"hslice": c, "vslice": r, "hstack": z, "vstack": z}[name]
            n = draw(st.sampled_from([d for d in range(1, size + 1) if size % d == 0]))
            listed.append((name, 0 if "stack" in name and n == size and draw(st.booleans()) else n))
            shape = {
                "hslice": [z * n, r, c // n],
                "vslice": [z * n, r // n, c],
                "hstack": [z // n, r, c * n],
                "vstack": [z // n, r * n, c],
            }[name]
    return start, listed, tuple(shape)


@settings(max_examples=120, deadline=None)
@given(chains(), st.integers(1, 3), st.sampled_from(["ram", "queue"]))
def test_chains_of_tms(chain, count, kind):
    start, listed, end = chain
    net = Net("grayskull", "Float32")
    net.graph("g", count)
    net.queue("a", start, kind=kind, entries=count if kind == "queue" else 1)
    net.op("op", "nop", ["a"], end, tms={0: listed})
    net.queue("out", end, source="op", entries=count)
    net.streaming()
    check(net.netlist(), rtol=0)


@settings(max_examples=40, deadline=None)
@given(chains(), chains())
def test_tms_between_ops_and_on_both_inputs(first, second):
    net = Net("grayskull", "Float32")
    net.graph("g", 2)
    net.queue("a", first[0], entries=2)
    net.ram("b", second[0])
    net.op("x", "nop", ["a"], first[2], tms={0: first[1]})
    net.op("y", "exp", ["b"], second[2], tms={0: second[1]})
    net.op("sum", "add", ["x", "x"], first[2])
    net.op("back", "abs", ["x"], first[2])
    net.queue("out", first[2], source="sum", entries=2)
    net.queue("out1", second[2], source="y", entries=2)
    net.queue("out2", first[2], source="back", entries=2)
    net.streaming()
    check(net.netlist())


def test_unpad_before_and_pad_after_the_list():
    net = Net("grayskull", "Float32")
    net.graph("g", 2)
    net.queue("a", (2, 3, 3), entries=2)
    net.op(
        "op",
        "nop",
        ["a"],
        (1, 5, 4),
        tms={0: [("vstack", 2)]},
        unpad={0: {"rt": 1, "ct": 0}},
        pad={0: {"rt": 1, "ct": 1, "pad_value": 2.5}},
    )
    net.queue("out", (1, 5, 4), source="op", entries=2)
    net.streaming()
    check(net.netlist(), rtol=0)


def test_tms_on_the_way_into_a_queue():
    net = Net("grayskull", "Float32")
    net.queue("a", (4, 2, 2))
    net.op("op", "nop", ["a"], (4, 2, 2))
    from tests.sim.build import tm

    net.queue("out", (2, 1, 8), source="op", input_tms=[tm(("vslice", 2)), tm(("hstack", 4))])
    net.streaming()
    check(net.netlist(), rtol=0)


@pytest.mark.parametrize(
    "listed, text",
    [
        (
            [("hslice", 3)],
            "op 'op', input 0 ('a'): hslice: 3 does not fit a tensor (z, R, C) = (2, 64, 64): 3 does not "
            "divide the 2 tile columns",
        ),
        ([("vstack", 4)], "4 does not divide the 2 slices"),
        ([("broadcast", "w", 2)], "a broadcast repeats r, c or z"),
    ],
)
def test_tms_that_do_not_fit_are_refused_by_name(listed, text):
    net = Net()
    net.queue("a", (2, 2, 2))
    net.op("op", "nop", ["a"], (2, 2, 2), tms={0: listed})
    net.queue("out", (2, 2, 2), source="op")
    net.streaming()
    with pytest.raises(NetlistError) as error:
        run(net.netlist(), {"a": np.zeros((1, 2, 64, 64), np.float32)})
    assert text in str(error.value)


def test_a_shape_that_the_op_does_not_declare_is_refused():
    net = Net()
    net.queue("a", (1, 2, 2))
    net.op("op", "nop", ["a"], (1, 2, 1))
    net.queue("out", (1, 2, 1), source="op")
    net.streaming()
    with pytest.raises(NetlistError, match=r"op 'op' \(nop\): its inputs make a tensor"):
        run(net.netlist(), {"a": np.zeros((1, 1, 64, 64), np.float32)})


MOVES = {
    "hslice": lambda x: moves.hslice(x, 2),
    "hstack": lambda x: moves.hstack(x, 2),
    "vslice": lambda x: moves.vslice(x, 2),
    "vstack": lambda x: moves.vstack(x, 2),
    "broadcast": lambda x: moves.broadcast(x, "c", 3),
    "rows": lambda x: moves.tile_broadcast(x, "r", (32, 32)),
    "pad": lambda x: moves.pad(x, 32, 32, 0.0),
}


@settings(max_examples=60, deadline=None)
@given(st.sampled_from(sorted(MOVES)), st.sampled_from([d for d in DataFormat if d.is_float]), st.integers(0, 2**31))
def test_rounding_commutes_with_moving_tiles(name, df, seed):
    x = np.random.default_rng(seed).normal(0, 3, (1, 2, 64, 64)).astype(np.float32)
    move = MOVES[name]
    np.testing.assert_array_equal(quantise(np.ascontiguousarray(move(x)), df), move(quantise(x, df)))


def test_hslice_of_one_slice_is_a_view():
    x = np.zeros((1, 1, 64, 128), np.float32)
    assert np.shares_memory(moves.hslice(x, 4), x)
    assert np.shares_memory(moves.broadcast(x, "z", 4), x)
    assert np.shares_memory(moves.vslice(x, 2), x)
