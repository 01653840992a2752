"""TM chains of t-streaming against arrays of numbered tiles, moved by reshape and transpose."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from tbuda_lab.core import passes
from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.balancer.edges import EdgeReason, pipe
from tbuda_lab.core.balancer.layout import buffer_address, consumer_walk
from tbuda_lab.core.balancer.streaming import edge_tms, simplify, stored_shape, stream_tms, to_source, unstream_tms
from tbuda_lab.core.device import load_device
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import TM
from tbuda_lab.core.graph.tm import broadcast, hslice, hstack, transpose, vslice, vstack
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul
from tbuda_lab.core.options import CompileOptions
from tests.placer.graphs import Sketch, convolutions, encoder


def move(tiles: np.ndarray, tm: TM) -> np.ndarray:
    """One TM on an array (z, rt, ct) of tile numbers, from netlist-format.md#tms."""
    z, r, c = tiles.shape
    if tm.name == "transpose":
        return tiles.transpose(0, 2, 1)
    if tm.name == "broadcast":
        reps = {"z": (tm.args[1], 1, 1), "r": (1, tm.args[1], 1), "c": (1, 1, tm.args[1])}[tm.args[0]]
        return np.tile(tiles, reps)
    n = int(tm.args[0])
    if tm.name == "hslice":
        return np.stack(np.split(tiles, n, axis=2), axis=1).reshape(z * n, r, c // n)
    if tm.name == "vslice":
        return np.stack(np.split(tiles, n, axis=1), axis=1).reshape(z * n, r // n, c)
    if tm.name == "hstack":
        return np.concatenate(np.split(tiles.reshape(z // n, n, r, c), n, axis=1), axis=3)[:, 0]
    return np.concatenate(np.split(tiles.reshape(z // n, n, r, c), n, axis=1), axis=2)[:, 0]


def moved(tiles: np.ndarray, tms: tuple[TM, ...]) -> np.ndarray:
    for tm in tms:
        tiles = move(tiles, tm)
    return tiles


def numbered(shape: tuple[int, int, int]) -> np.ndarray:
    return np.arange(np.prod(shape)).reshape(shape)


@st.composite
def chains(draw: st.DrawFn) -> tuple[tuple[int, int, int], tuple[TM, ...]]:
    shape = draw(st.tuples(st.sampled_from([1, 2, 4, 6]), st.sampled_from([1, 2, 4, 6]), st.sampled_from([1, 2, 4, 6])))
    now, tms = numbered(shape), []
    for _ in range(draw(st.integers(0, 6))):
        z, r, c = now.shape
        options = [transpose(), broadcast("z", 2), broadcast("r", 2), broadcast("c", 2)]
        options += [hslice(n) for n in (2, 3) if c % n == 0] + [vslice(n) for n in (2, 3) if r % n == 0]
        options += [f(n) for n in (2, 3, 4) if z % n == 0 for f in (hstack, vstack)]
        tm = draw(st.sampled_from(options))
        now = move(now, tm)
        tms.append(tm)
        if now.size > 4000:
            break
    return shape, tuple(tms)


@given(chains())
def test_simplify_keeps_the_mapping(chain: tuple[tuple[int, int, int], tuple[TM, ...]]) -> None:
    shape, tms = chain
    assert (moved(numbered(shape), simplify(tms)) == moved(numbered(shape), tms)).all()
    assert len(simplify(tms)) <= len(tms)


@given(chains())
def test_to_source_inverts_the_chain(chain: tuple[tuple[int, int, int], tuple[TM, ...]]) -> None:
    shape, tms = chain
    after = moved(numbered(shape), tms)
    z, r, c = to_source(tms, shape, *np.indices(after.shape))
    assert (numbered(shape)[z, r, c] == after).all()


def cut(tiles: np.ndarray, row: np.void) -> np.ndarray:
    """The slices that a t-streaming op works on, in its order, from the whole tensor."""
    fr, fc = int(row["stream_r"]), int(row["stream_c"])
    pieces = [[p for part in np.split(slice_, fr, axis=0) for p in np.split(part, fc, axis=1)] for slice_ in tiles]
    if str(row["stream"]) == "rz":
        return np.stack([pieces[z][i] for i in range(fr) for z in range(len(pieces))])
    return np.stack([p for group in pieces for p in group])


def test_unstream_puts_the_slices_back() -> None:
    seen = set()
    for graph in (encoder(1), convolutions(16, 64, 1)):
        for table in op_models(graph, load_device("wormhole_b0"), CompileOptions()).values():
            for row in table.rows[:: max(1, len(table.rows) // 50)]:
                whole = numbered(table.profile.out)
                stored = cut(whole, row)
                assert stored.shape == stored_shape(table.profile, row)
                assert (moved(stored, unstream_tms(table.profile, row)) == whole).all()
                seen.add(str(row["stream"]))
    assert seen == {"", "r", "c", "rz"}


def matmul_models(z: int):
    s = Sketch()
    a, b = s.input("a", 1, z, 128, 192), s.input("b", 1, z, 192, 256)
    x = s.op("x", HwBinary("add"), (1, z, 128, 192), a, a)
    y = s.op("y", HwBinary("add"), (1, z, 192, 256), b, b)
    return op_models(
        s.output(s.op("mm", HwMatmul(), (1, z, 128, 256), x, y)), load_device("wormhole_b0"), CompileOptions()
    )


def test_a_streaming_matmul_multiplies_the_right_slices() -> None:
    """Slices of the product of numbered matrices, against the product of the operands cut by the TMs."""
    for z in (1, 2, 3):
        table = matmul_models(z)["mm"]
        a, b = numbered((z, 4, 6)).astype(float), numbered((z, 6, 8)).astype(float)
        for row in table.rows[:: max(1, len(table.rows) // 60)]:
            first = moved(a, stream_tms(table.profile, 0, row))
            second = moved(b, stream_tms(table.profile, 1, row))
            assert len(first) == len(second) == row["t"]
            assert (first @ second == cut(a @ b, row)).all()


def test_streams_that_agree_cancel_on_the_edge() -> None:
    models = op_models(convolutions(32, 32, 1), load_device("wormhole_b0"), CompileOptions())
    pick, dense = models["c0.pick"], models["c0.dense"]
    p = next(r for r in pick.rows if str(r["stream"]) == "rz" and r["stream_r"] == 4)
    c = next(r for r in dense.rows if str(r["stream"]) == "r" and r["stream_r"] == 4)
    assert edge_tms(pick.profile, p, dense.profile, 0, c) == (hstack(9),)


def scalar_pipe(producer, p: np.void, order: str, consumer, port: int, c: np.void, c_order: str) -> tuple[int, int]:
    """(fan out, fan in) by loops over tiles and sets of cores."""
    tms = edge_tms(producer, p, consumer, port, c)
    zs, rs, cs = consumer_walk(consumer, port, c, c_order)
    readers: dict[int, set[int]] = {}
    writers: dict[int, set[int]] = {}
    for reader in range(len(zs)):
        for z, r, col in zip(zs[reader].tolist(), rs[reader].tolist(), cs[reader].tolist(), strict=True):
            source = to_source(tms, stored_shape(producer, p), np.array(z), np.array(r), np.array(col))
            core = int(buffer_address(p, order, *source)[0])
            readers.setdefault(core, set()).add(reader)
            writers.setdefault(reader, set()).add(core)
    return max(map(len, readers.values())), max(map(len, writers.values()))


def test_fans_are_those_of_a_walk_over_single_tiles() -> None:
    models = matmul_models(1)
    rng = np.random.default_rng(0)
    producer, consumer = models["x"], models["mm"]
    for _ in range(25):
        p, c = producer.rows[rng.integers(len(producer.rows))], consumer.rows[rng.integers(len(consumer.rows))]
        cost = pipe(producer.profile, p, "c", consumer.profile, 0, c, "r", from_queue=False)
        if cost.reason in (EdgeReason.LEGAL, EdgeReason.FAN_OUT, EdgeReason.PHASES):
            assert (cost.fan_out, cost.fan_in) == scalar_pipe(producer.profile, p, "c", consumer.profile, 0, c, "r")


def test_a_reader_that_goes_back_needs_a_buffer_of_that_depth() -> None:
    """Heads side by side, read row by row: the second row starts again at the first head."""
    models = op_models(encoder(1, seq=64, heads=4), load_device("wormhole_b0"), CompileOptions())
    producer, consumer = models["l0.ctx"], models["l0.join"]
    plain = (producer.rows["stream"] == "") & (producer.rows["cores"] == 1)
    reader = next(
        r for r in consumer.rows if r["cores"] == 1 and str(r["stream"]) == "" and r["ublock_r"] * r["ublock_c"] == 1
    )
    matches = {}
    for depth in (2, 8):
        p = producer.rows[plain & (producer.rows["buf_size_mb"] == depth)][0]
        matches[depth] = pipe(producer.profile, p, "r", consumer.profile, 0, reader, "r").reason
        by_columns = pipe(producer.profile, p, "r", consumer.profile, 0, reader, "c").reason
        assert by_columns is EdgeReason.LEGAL
    assert matches == {2: EdgeReason.BUFFERING, 8: EdgeReason.LEGAL}


def test_one_core_feeding_twenty_is_refused() -> None:
    s = Sketch()
    x = s.op("x", HwBinary("add"), (1, 1, 640, 640), s.input("a", 1, 1, 640, 640), "a")
    y = s.op("y", HwBinary("add"), (1, 1, 640, 640), x, x)
    models = op_models(s.output(y), load_device("wormhole_b0"), CompileOptions())

    def row(name: str, r: int, c: int) -> np.void:
        rows = models[name].rows
        return rows[(rows["grid_r"] == r) & (rows["grid_c"] == c) & (rows["stream"] == "")][0]

    def reason(p: tuple[int, int], c: tuple[int, int]) -> EdgeReason:
        a, b = models["x"], models["y"]
        return pipe(a.profile, row("x", *p), "r", b.profile, 0, row("y", *c), "r").reason

    assert reason((1, 1), (5, 4)) is EdgeReason.FAN_OUT
    assert reason((1, 1), (4, 4)) is EdgeReason.LEGAL
    assert reason((2, 1), (5, 4)) is EdgeReason.LEGAL


def test_a_depthwise_reads_its_first_operand_in_columns_of_ublocks() -> None:
    """As the router has it: m x (taps * n) ublocks a core, one column after the other, tiles of a ublock by rows."""
    device, options = load_device("wormhole_b0"), CompileOptions()
    model = torch.nn.Conv2d(64, 64, 3, padding=1, groups=64).eval()
    graph = from_torch(model, (torch.zeros(1, 64, 16, 16),), name="depthwise")
    lowered = lower(passes.run(graph, options).graph, device, options)
    models = [m for m in op_models(lowered, device, options).values() if m.profile and m.profile.kind == "depthwise"]
    seen = set()
    for one in models:
        assert one.profile is not None
        for row in one.rows[one.legal()][::7]:
            m, n, ur, uc = (int(row[k]) for k in ("mblock_m", "mblock_n", "ublock_r", "ublock_c"))
            expected = [
                [
                    (t, (core * m + i) * ur + a, j * uc + b)
                    for t in range(int(row["t"]))
                    for j in range(one.profile.inner * n)
                    for i in range(m)
                    for a in range(ur)
                    for b in range(uc)
                ]
                for core in range(int(row["grid_r"]))
            ]
            walk = np.stack(consumer_walk(one.profile, 0, row, "r"), axis=-1)
            assert walk.tolist() == [[list(tile) for tile in core] for core in expected]
            seen.add((m > 1, n > 1))
    assert (True, False) in seen or (True, True) in seen
