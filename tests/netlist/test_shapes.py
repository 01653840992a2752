"""Shapes through TMs against NumPy arrays that are really cut and stacked; bytes against the published tile sizes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core import netlist
from tbuda_lab.core.formats import DataFormat as D
from tbuda_lab.core.netlist.schema import Execute, OpInput, QueueBuffer, Tm
from tbuda_lab.core.netlist.sizes import NetlistShapeError, apply_tms, l1_use, operand_shape, queue_buffer_bytes
from tbuda_lab.core.netlist.tables import Tables
from tests.netlist import builders as b

sizes = st.tuples(st.sampled_from((1, 2, 4, 6)), st.sampled_from((1, 2, 3, 8)), st.sampled_from((1, 2, 4, 12)))
tms = st.lists(
    st.one_of(
        st.just(b.tm("transpose")),
        st.builds(lambda d, n: b.tm("broadcast", **{d: n}), st.sampled_from("rcz"), st.integers(1, 3)),
        st.builds(b.tm, st.sampled_from(("hslice", "hstack", "vslice", "vstack")), st.integers(0, 4)),
        st.builds(lambda r, c: b.tm("pad", r, c, 0.0), st.integers(0, 2), st.integers(0, 2)),
    ),
    max_size=5,
)


def apply_to_array(x: np.ndarray, tm: Tm) -> np.ndarray:
    """One TM on an array of one element per tile, by the definitions of the netlist format."""
    if tm.name == "transpose":
        return x.transpose(0, 2, 1)
    if tm.name == "broadcast":
        for dim, n in tm.args:
            x = np.concatenate([x] * n, "zrc".index(dim))
        return x
    if tm.name == "pad":
        return np.pad(x, ((0, 0), (0, tm.args[0]), (0, tm.args[1])))
    n = tm.args[0] or len(x)
    if tm.name in ("hslice", "vslice"):
        pieces = [np.split(slab, tm.args[0] or 1 / 0, "vh".index(tm.name[0])) for slab in x]  # type: ignore[arg-type]
        return np.stack([piece for slab in pieces for piece in slab])
    groups = np.split(x, len(x) // n) if len(x) % n == 0 else 1 / 0
    axis = "vh".index(tm.name[0])
    return np.stack([np.concatenate(list(group), axis) for group in groups])  # type: ignore[union-attr]


@given(sizes, tms)
def test_tms_against_arrays(shape: Any, items: list[Tm]) -> None:
    x: np.ndarray | None = np.arange(np.prod(shape)).reshape(shape)
    try:
        for tm in items:
            x = apply_to_array(x, tm)  # type: ignore[arg-type]
    except (ValueError, ZeroDivisionError):
        x = None
    if x is None:
        with pytest.raises(NetlistShapeError):
            apply_tms(shape, items)
    else:
        assert apply_tms(shape, items) == x.shape


def test_unpad_comes_first_and_pad_last() -> None:
    i = OpInput("x", D.Float16, [b.tm("hslice", 2)], {"rt": 0, "ct": 1, "pad_value": 0}, {"rt": 1, "ct": 1})
    assert operand_shape((1, 3, 5), i) == (2, 2, 3)
    with pytest.raises(NetlistShapeError, match="unpad"):
        operand_shape((1, 1, 5), i)


@pytest.mark.parametrize(
    ("df", "tile"),
    [
        (D.Float32, 4128),
        (D.Float16_b, 2080),
        (D.Bfp8_b, 1120),
        (D.Bfp4, 608),
        (D.Bfp2_b, 352),
        (D.Int8, 1056),
        (D.RawUInt32, 4128),
    ],
)
def test_queue_bytes(df: D, tile: int) -> None:
    n = b.unary()
    q = b.queue("q", (3, 2, 4), grid=(2, 1), ublock=(1, 2), entries=5, df=df)
    assert queue_buffer_bytes(Tables(n), q, 32) == 32 + 5 * 3 * 4 * tile
    q.layout = "flat"
    assert queue_buffer_bytes(Tables(n), q, 32) < 32 + 5 * 3 * 4 * tile


def test_l1_of_a_matmul() -> None:
    n = b.matmul({"min_buffer_input": 1})
    op = n.graphs["g"].ops["mm"]
    use = l1_use(Tables(n), op, 32, frozenset())
    tile = 2080
    # op0: 2 x mblock_m 2 x ublock_rt 1 x u_kt 2; op1, kept minimal: 2 x u_kt 2 x one ublock column; output: 2 mblocks
    assert (use.inputs, use.output, use.parameters, use.intermediate) == ((8 + 4) * tile, 2 * 4 * tile, 0, 0)
    use = l1_use(Tables(n), op, 32, frozenset(("w",)))
    assert (use.inputs, use.parameters) == (8 * tile, 8 * tile)
    op.intermed_df = D.Float32
    assert l1_use(Tables(n), op, 32, frozenset()).intermediate == 4 * 4128


def test_expand_clones_graph_queues_and_settings() -> None:
    n = b.build([b.op("a", "nop", ["x"])], {"x": (1, 2, 2)})
    n.graphs["g"].target_device = [0, 1]
    for q in n.queues.values():
        q.target_device = [0, 1]
    n.queues["a.out"].loc, n.queues["a.out"].buffers = "host", [QueueBuffer(0, 0)]
    out = netlist.expand(n)
    assert list(out.queues) == ["x.0", "x.1", "a.out.0", "a.out.1"] and list(out.graphs) == ["g.0", "g.1"]
    assert [q.target_device for q in out.queues.values()] == [0, 1, 0, 0]
    assert out.queues["x.1"].buffers == out.queues["x.0"].buffers
    size = queue_buffer_bytes(Tables(n), n.queues["a.out"], 32)
    assert out.queues["a.out.1"].buffers[0].address == -(-size // 32) * 32
    assert out.graphs["g.1"].target_device == 1 and out.graphs["g.1"].ops["a.1"].inputs[0].source == "x.1"
    executes = [i for i in out.programs[0].instructions if isinstance(i, Execute)]
    assert [(e.graph, list(e.settings or {})) for e in executes] == [("g.0", ["x.0"]), ("g.1", ["x.1"])]
    assert not [f for f in netlist.check(b.reread(n), profile="strict") if f.severity == "error"]
    assert netlist.expand(b.unary()).queues.keys() == b.unary().queues.keys()


def test_dynamic_queues_may_share_memory_one_after_the_other() -> None:
    from tbuda_lab.core.netlist.schema import Allocate, Deallocate

    n = b.binary()
    n.queues["y"].buffers = list(n.queues["x"].buffers)
    body = n.programs[0].instructions
    body[0:0] = [Allocate(["x"]), Deallocate(["x"]), Allocate(["y"])]
    assert "R5" not in {f.rule for f in netlist.check(n)}
    body[0:2] = [Allocate(["x"])]
    assert "R5" in {f.rule for f in netlist.check(n)}
