"""The candidate table against the definitions, row by row and without arrays."""

from __future__ import annotations

import dataclasses
import math
import re

import numpy as np
import pytest
import torch

from tbuda_lab.core import passes
from tbuda_lab.core.balancer import OpModels, op_models
from tbuda_lab.core.balancer.blocks import group_numbers
from tbuda_lab.core.balancer.enumerate import Choice, TableCache, enumerate_candidates
from tbuda_lab.core.balancer.types import Reason
from tbuda_lab.core.constraints import resolve
from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.errors import OverrideError, PlacementError
from tbuda_lab.core.formats import DataFormat, tile_bytes
from tbuda_lab.core.frontend import from_torch
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwReduce, HwSplice, HwUnary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tests.placer.graphs import Sketch, convolutions, encoder, picker

OPTIONS = CompileOptions()
DEVICES = ["grayskull", "wormhole_b0", "blackhole"]


def divisors(n: int) -> list[int]:
    return [d for d in range(1, n + 1) if n % d == 0]


def matmul_graph(rows: int, inner: int, cols: int, df: DataFormat = DataFormat.Float16_b, bias: bool = False):
    s = Sketch(df)
    a, b = s.input("a", 1, 1, rows, inner), s.parameter("b", 1, 1, inner, cols)
    operands = [a, b] + ([s.parameter("c", 1, 1, rows, cols)] if bias else [])
    return s.output(s.op("mm", HwMatmul(bias=bias), (1, 1, rows, cols), *operands))


@pytest.mark.parametrize("device", DEVICES)
def test_every_row_covers_the_output_and_fits_dst(device: str) -> None:
    spec = load_device(device)
    for graph in (encoder(1), convolutions(16, 64, 1)):
        for table in op_models(graph, spec, OPTIONS).values():
            z, rt, ct = table.profile.out
            for row in table.rows[:: max(1, len(table.rows) // 200)]:
                assert row["grid_r"] <= spec.rows and row["grid_c"] <= spec.cols
                assert row["t"] == z * row["stream_r"] * row["stream_c"]
                assert row["grid_r"] * row["mblock_m"] * row["ublock_r"] * row["stream_r"] == rt
                assert row["grid_c"] * row["mblock_n"] * row["ublock_c"] * row["stream_c"] == ct
                assert row["ublock_r"] * row["ublock_c"] <= 8
                assert row["cores"] == row["grid_r"] * row["grid_c"]
                assert row["cycles"] > 0
                if table.profile.inner:
                    assert row["m_k"] * row["u_kt"] == table.profile.inner


def test_all_grids_and_u_kts_of_a_matmul_are_there() -> None:
    spec = load_device("wormhole_b0")
    rows = op_models(matmul_graph(12 * 32, 6 * 32, 24 * 32), spec, OPTIONS)["mm"].rows
    grids = {(int(r["grid_r"]), int(r["grid_c"])) for r in rows}
    assert grids == {(r, c) for r in divisors(12) for c in divisors(24) if r <= spec.rows and c <= spec.cols}
    assert {int(u) for u in rows["u_kt"]} == set(divisors(6))
    streams = {(str(r["stream"]), int(r["stream_r"]), int(r["stream_c"])) for r in rows}
    assert streams == {("", 1, 1)} | {("r", d, 1) for d in divisors(12)[1:]} | {("c", 1, d) for d in divisors(24)[1:]}


def scalar_kernel(granule: int, tile: int) -> int:
    """Tiles of the ordinary buffer of an operand."""
    least = {2080: 16, 1120: 32, 4128: 8}[tile]
    return next(k for k in range(2 * granule, 1 << 20, 2 * granule) if k >= least)


def scalar_input(granule: int, length: int, tile: int, multicast: bool) -> int:
    """Tiles of a streamed operand by the words of routing.md#l1-of-a-core, a loop for each search: at worst of reads
    that run on and of reads that jump at every tile, or with relays of 12 tiles."""
    kernel = scalar_kernel(granule, tile)
    sizes = [kernel + 12]
    for step in (math.gcd(length, kernel), 1):
        chunk = math.lcm(math.gcd(2048 // granule * granule, length), step)
        if chunk * tile > 52 << 10:
            chunk = next(
                (
                    chunk // d
                    for d in range(2, chunk + 1)
                    if chunk % d == 0 and chunk // d % step == 0 and chunk // d * tile <= 52 << 10
                ),
                step,
            )
        joined = math.lcm(chunk, kernel)
        if multicast or joined * tile > max(100 << 10, kernel * tile):
            sizes.append(kernel + scalar_growth(chunk, length, granule, tile))
        else:
            sizes.append(scalar_growth(joined, length, kernel, tile))
    return max(sizes)


def scalar_growth(size: int, length: int, unit: int, tile: int) -> int:
    block = math.lcm(length, unit) if length > 2048 else length
    phase = 2048 // block * block if block <= 2048 else 2048
    phase = phase // unit * unit if length > 2048 and unit <= 2048 else phase
    factor = 1
    while (factor + 1) * size * tile < 52 << 10:
        if factor * size * tile >= 26 << 10 and phase % (factor * size) == 0:
            break
        factor += 1
    if factor == 1 and 2 * size * tile <= 100 << 10 and phase % (2 * size) == 0:
        factor = 2
    return size * factor


def scalar_matmul_l1(row: np.void, inner: int, df: DataFormat, bias: bool, made: bool) -> int:
    """Bytes of one core of a matmul that streams its operands: they, a double buffered output, and headers for the
    tiles of the host's queue, which have none themselves and therefore are a size of their own. made: another op makes
    the first operand, which then takes its ordinary buffer and relays."""
    tile = tile_bytes(df)
    t, m, n, u, v, k, rows, columns = (
        int(row[f]) for f in ("t", "mblock_m", "mblock_n", "ublock_r", "ublock_c", "u_kt", "grid_r", "grid_c")
    )
    tiles = scalar_kernel(u * k, tile) + 12 if made else scalar_input(u * k, t * m * u * inner, tile, columns > 1)
    tiles += scalar_input(n * v * k, t * n * v * inner, tile, rows > 1)
    tiles += scalar_input(u * v, t * m * n * u * v, tile, False) if bias else 0
    return (tiles + m * n * u * v * int(row["buf_size_mb"])) * tile + (32 << 10)


@pytest.mark.parametrize("df", [DataFormat.Float16_b, DataFormat.Bfp8_b, DataFormat.Float32])
def test_matmul_l1_is_the_page_s_formula(df: DataFormat) -> None:
    spec = load_device("wormhole_b0")
    graph = matmul_graph(16 * 32, 64 * 32, 40 * 32, df, bias=True)
    options = dataclasses.replace(OPTIONS, default_dram_parameters=True)
    rows = op_models(graph, spec, options)["mm"].rows
    for row in rows[:: max(1, len(rows) // 300)]:
        made, queued = (scalar_matmul_l1(row, 64, df, True, made) for made in (True, False))
        assert (row["l1_total"], row["l1_staged"]) == ((queued, 0) if row["queued"] else (made, queued - made))
        assert (row["reason"] == Reason.LEGAL) == (row["l1_total"] <= spec.l1_usable)


def test_parameters_out_of_dram_are_preloaded_wherever_they_fit() -> None:
    graph = matmul_graph(4 * 32, 32 * 32, 32 * 32)
    spec = load_device("wormhole_b0")
    free = op_models(graph, spec, OPTIONS)["mm"].rows
    rows = op_models(graph, spec, dataclasses.replace(OPTIONS, default_dram_parameters=False))["mm"].rows
    legal, streamed = rows["reason"] == Reason.LEGAL, rows["prologue"] == 0
    same = ["grid_r", "grid_c", "stream", "stream_r", "stream_c", "ublock_r", "ublock_c", "u_kt"]
    fitting = {tuple(row[same].tolist()) for row in free[(free["reason"] == Reason.LEGAL) & (free["prologue"] != 0)]}
    assert fitting and (legal & streamed).any()  # on a small grid the weights fit no core
    for row in rows[streamed]:
        expected = Reason.OVERRIDDEN if tuple(row[same].tolist()) in fitting else Reason.LEGAL
        assert row["reason"] in (expected, Reason.L1_OVER_LIMIT, Reason.INPUT_BUFFER_ALLOCATION)
    assert (rows["reason"][streamed] == Reason.OVERRIDDEN).any() and (legal & ~streamed).any()


def test_parameters_are_preloaded_for_a_large_batch_and_streamed_for_one() -> None:
    spec = load_device("wormhole_b0")
    graph = matmul_graph(4 * 32, 32 * 32, 32 * 32)
    single = op_models(graph, spec, dataclasses.replace(OPTIONS, balancer_policy="Ribbon"))["mm"].rows
    weighed = op_models(graph, spec, OPTIONS)["mm"].rows  # `Optimal` counts what loading takes, at one input as well
    batch = op_models(graph, spec, dataclasses.replace(OPTIONS, microbatch=64))["mm"].rows
    assert not single["prologue"].any()
    assert np.array_equal(weighed["prologue"], batch["prologue"])
    batch = batch[~batch["queued"]]
    keep = batch[batch["prologue"] != 0]
    assert len(keep) == len(batch) // 2
    for row in keep[(keep["stream_r"] == 1) & (keep["stream_c"] == 1)]:
        whole = 32 * (32 // int(row["grid_c"]))  # all rows of the weight, and the columns that the core multiplies
        granule = int(row["mblock_n"] * row["ublock_c"]) * int(row["u_kt"])
        # what its buffer holds is there as it is read; more is shared by the cores of a column
        cores = (
            1
            if whole <= -(-max(16, 2 * granule) // (2 * granule)) * 2 * granule
            else max(d for d in range(1, int(row["grid_r"]) + 1) if whole % d == 0)
        )
        assert row["l1_param"] == whole // cores * tile_bytes(DataFormat.Float16_b)


def test_preloaded_weights_are_there_with_all_parts_of_a_stream() -> None:
    """The cores of a grid hold parts of a weight; together they must hold all of it, however it streams."""
    spec = load_device("grayskull")
    options = dataclasses.replace(OPTIONS, microbatch=64)
    rows = op_models(matmul_graph(300, 777, 1000, bias=True), spec, options)["mm"].rows
    loaded = rows[rows["prologue"] & 0b10 != 0]
    assert (loaded["stream_c"] > 1).any() and (loaded["stream_r"] > 1).any()
    weight = 25 * 32 * tile_bytes(DataFormat.Float16_b)
    assert (loaded["l1_param"].astype(np.int64) * loaded["cores"] >= weight).all()


def test_equal_ops_share_a_table_and_others_do_not() -> None:
    models = op_models(encoder(3), load_device("wormhole_b0"), OPTIONS)
    assert models["l0.q"] is models["l2.k"]
    assert models["l0.exp"] is models["l1.exp"]
    assert models["l0.up"] is not models["l0.down"]
    assert len({id(m) for m in models.values()}) < len(models) / 2


@pytest.mark.parametrize("device", DEVICES)
def test_tall_maps_find_a_candidate(device: str) -> None:
    """256 x 256 pixels are 2048 tile rows of one column."""
    s = Sketch()
    x = s.input("x", 1, 1, 65536, 32)
    y = s.op("relu", HwUnary("nop"), (1, 1, 65536, 32), x)
    z = s.op("add", HwBinary("add"), (1, 1, 65536, 32), y, x)
    models = op_models(s.output(z), load_device(device), OPTIONS)
    rows = models["add"].rows
    legal = rows[rows["reason"] == Reason.LEGAL]
    assert len(legal) and (rows["reason"] == Reason.L1_OVER_LIMIT).any()
    one_core = legal[legal["cores"] == 1]
    assert (one_core["stream_r"] > 1).any()


def test_an_op_without_candidate_says_why() -> None:
    """One row of 60 000 tiles that may not be streamed: no grid holds its buffers."""
    s = Sketch()
    x = s.input("x", 1, 1, 32, 61 * 1009 * 32)
    graph = s.output(s.op("wide", HwUnary("exp"), (1, 1, 32, 61 * 1009 * 32), x))
    with pytest.raises(PlacementError) as raised:
        op_models(graph, load_device("grayskull"), dataclasses.replace(OPTIONS, enable_t_streaming=False))
    (first, *_) = [d for d in raised.value.diagnostics if d.where == "wide"]
    assert "none of" in first.message and "exceed the L1" in first.message
    assert "t-stream" in first.fix


def test_an_output_to_the_host_streams_rows_only() -> None:
    s = Sketch()
    graph = s.output(s.input("x", 1, 1, 256, 256))
    rows = op_models(graph, load_device("wormhole_b0"), OPTIONS)["x_output_nop"].rows
    refused = rows["reason"] == Reason.USER_ACCESS_PREVENTS_STREAMING
    assert (refused == (rows["stream_c"] > 1)).all()


def test_reduce_and_splice_keep_their_dimension_together() -> None:
    s = Sketch()
    x, y = s.input("x", 1, 2, 128, 256), s.input("y", 1, 2, 128, 256)
    r = s.op("reduce", HwReduce("c"), (1, 2, 128, 1), x)
    c = s.op("splice", HwSplice("c", ((0, 8, 8), (0, 8, 8))), (1, 2, 128, 512), x, y)
    s.output(r, "a")
    models = op_models(s.output(c, "b"), load_device("wormhole_b0"), OPTIONS)
    assert set(models["reduce"].rows["grid_c"]) == {1} and set(models["reduce"].rows["stream_c"]) == {1}
    assert set(models["splice"].rows["grid_c"]) == {1}
    assert {1, 2, 4} == set(models["splice"].rows["grid_r"])
    assert all(8 % u == 0 for u in models["splice"].rows["ublock_c"])


def test_sparse_counts_shrink_with_the_blocks() -> None:
    """Per grid row, every candidate has its share of the tiles that hold an entry, counted here by a set."""
    graph = convolutions(16, 32, 1)
    rows = op_models(graph, load_device("wormhole_b0"), OPTIONS)["c0.pick"].rows
    coo = picker(16).array
    tiles = {(t, r // 32, c // 32) for t, r, c in coo.tolist()}
    for row in rows:
        assert row["nz_tiles"] == -(-len(tiles) // int(row["grid_r"]))
        blocks = {(t, r // int(row["ublock_r"]), c // int(row["u_kt"])) for t, r, c in tiles}
        assert row["nz_ublocks"] == -(-len(blocks) // int(row["grid_r"]))
        height = int(row["mblock_m"]) * int(row["ublock_r"])
        strips = {(t, r // height, c // int(row["u_kt"])) for t, r, c in tiles}
        assert row["nz_strips"] == -(-len(strips) // int(row["grid_r"]))


# -- overrides -------------------------------------------------------------------------------------------------------
def with_overrides(graph: Graph, options: CompileOptions, *overrides: Override) -> dict[str, OpModels]:
    device = load_device("wormhole_b0")
    return op_models(graph, device, options, resolve(overrides, graph, device, options).checked().choices)


def test_overrides_leave_only_what_they_ask_for() -> None:
    overrides = [
        Override("op_size", "l0.up", (2, 4)),
        Override("t_stream_dir", "l0.gelu", "r"),
        Override("t_stream_shape", "l0.down", (2, 1)),
        Override("u_kt", ("l0.q", "l0.k"), 2),
        Override("output_buffer_multiplier", re.compile(r"l0\.exp"), 4),
    ]
    models = with_overrides(encoder(1), OPTIONS, *overrides)
    assert {(int(r["grid_r"]), int(r["grid_c"])) for r in models["l0.up"].rows} == {(2, 4)}
    assert set(models["l0.gelu"].rows["stream"]) == {"r"}
    assert set(models["l0.down"].rows["stream_r"]) == {2}
    assert set(models["l0.q"].rows["u_kt"]) == {2} and models["l0.q"] is models["l0.k"]
    assert models["l0.v"] is not models["l0.q"]
    assert set(models["l0.exp"].rows["buf_size_mb"]) == {4}


@pytest.mark.parametrize(
    ("override", "says"),
    [
        (Override("op_size", "l0.up", (3, 4)), "legal rows: 1, 2; legal columns: 1, 2, 4, 8"),
        (Override("op_size", "l0.up", (2, 16)), "device of 10x8"),
        (Override("op_size", "l0.up", "big"), "two positive numbers"),
        (Override("t_stream_dir", "l0.max", "c"), "legal: n, r"),
        (Override("t_stream_shape", "l0.gelu", (3, 1)), "must divide 2"),
        (Override("u_kt", "l0.q", 3), "legal: 1, 2, 4"),
        (Override("u_kt", "l0.exp", 1), "no inner dimension"),
        (Override("input_buffer_multiplier", "l0.exp", {7: 2}), "operands 0 to 0"),
        (Override("input_buffer_multiplier", "l0.exp", {0: 1 << 58}), "factors from 1 to 3665"),  # beyond 64 bits
        (Override("input_buffer_multiplier", "l0.exp", {0: 10**30}), "factors from 1 to 3665"),
        (Override("output_buffer_multiplier", "l0.exp", 0), "from 1"),
    ],
)
def test_an_illegal_override_names_what_is_legal(override: Override, says: str) -> None:
    with pytest.raises(OverrideError, match=re.escape(says)):
        with_overrides(encoder(1), OPTIONS, override)


@pytest.mark.parametrize(("kind", "value"), [("t_stream_shape", (2, 1)), ("t_stream_dir", "r")])
def test_streaming_that_is_switched_off_is_named(kind: str, value: object) -> None:
    options = dataclasses.replace(OPTIONS, enable_t_streaming=False)
    with pytest.raises(OverrideError, match="enable_t_streaming") as caught:
        with_overrides(encoder(1), options, Override(kind, "l0.gelu", value))
    assert [d.where for d in caught.value.diagnostics] == ["l0.gelu"]


@pytest.mark.parametrize("most", [2, 40, 1 << 40], ids=["few", "many", "wide"])
def test_equal_rows_have_one_number_and_numbers_follow_their_order(most: int) -> None:
    """NumPy numbers the distinct columns of a matrix in the same order."""
    random = np.random.default_rng(most)
    columns = [random.integers(0, most, 300, dtype=np.int64) for _ in range(4)]
    names = random.choice(np.array(["", "c", "r", "rz"]), 300)
    letters = {name: i for i, name in enumerate(sorted(set(names.tolist())))}
    expected = np.unique(np.stack([[letters[n] for n in names], *columns]), axis=1, return_inverse=True)[1].reshape(-1)
    assert (group_numbers(names, *columns) == expected).all()
    assert not len(group_numbers(names[:0], columns[0][:0]))


# -- what a refusal says would work --------------------------------------------------------------------------------
class Wide(torch.nn.Module):
    """Rows that are divided by nothing, a product with stored weights, and its sum."""

    def __init__(self, tiles: int) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(64, tiles * 32)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(x @ self.linear.weight.T)
        return y.sum(-2, keepdim=True) + self.linear.bias


def _lowered(tiles: int, device: DeviceSpec, df: DataFormat) -> tuple[Graph, CompileOptions]:
    options = CompileOptions(default_df_override=df)
    graph = from_torch(Wide(tiles), torch.zeros(1, 96, 64), name="wide")
    return lower(passes.run(graph, options).graph, device, options), options


def _refused(lowered: Graph, device: DeviceSpec, options: CompileOptions, asked: dict[str, Choice]) -> dict[str, str]:
    """By op without a legal candidate what is said to work."""
    try:
        op_models(lowered, device, options, asked)
    except (PlacementError, OverrideError) as error:
        return {d.where: str(d.fix) for d in error.diagnostics}
    return {}


SHAPES = [
    Choice(),
    Choice(stream_shape=(1, 13)),
    Choice(stream_shape=(2, 1)),
    Choice(grid=(5, 5)),
    Choice(grid=(1, 8), stream_shape=(1, 3)),
    Choice(u_kt=3),
    Choice(stream_dir="c"),
]


@pytest.mark.parametrize(("kilobytes", "tiles"), [(1024, 13), (560, 13), (520, 48), (500, 31), (480, 16), (470, 3)])
def test_what_a_refusal_says_works_when_it_is_followed(kilobytes: int, tiles: int) -> None:
    device = dataclasses.replace(load_device("wormhole_b0"), l1_size=kilobytes << 10)
    lowered, options = _lowered(tiles, device, DataFormat.Float32)
    followed = 0
    for choice in SHAPES:
        for name in [node.name for node in lowered.ops]:
            fix = _refused(lowered, device, options, {name: choice}).get(name)
            if fix is None:
                continue
            followed += 1
            if "take the override away" in fix:
                assert name not in _refused(lowered, device, options, {})
            elif "Float16_b" in fix:
                half, in_half = _lowered(tiles, device, DataFormat.Float16_b)
                assert name not in _refused(half, device, in_half, {name: choice})
            elif "in DRAM" in fix:
                in_dram = dataclasses.replace(options, default_dram_parameters=True)
                assert name not in _refused(lowered, device, in_dram, {name: choice})
            elif "no override leaves one" in fix:
                for other in SHAPES:
                    assert name in _refused(lowered, device, options, {name: other})
            for kind, shapes in re.findall(r"(grid|t-stream|u_kt): ([\dx, ]+\d)", fix):
                for shape in shapes.split(", "):
                    numbers = tuple(map(int, shape.split("x")))
                    fields = {
                        "grid": {"grid": numbers},
                        "t-stream": {"stream_shape": numbers, "stream_dir": None},
                        "u_kt": {"u_kt": numbers[0]},
                    }[kind]
                    again = dataclasses.replace(choice, **fields)
                    assert name not in _refused(lowered, device, options, {name: again}), (fix, again)
    assert followed


def test_graphs_share_the_tables_of_equal_ops_and_of_no_others() -> None:
    """The same array for the same request, which nobody can write to; and what is made anew each time has its rows."""
    spec = load_device("wormhole_b0")
    first, again, larger = (op_models(matmul_graph(128, 256, n), spec, OPTIONS)["mm"] for n in (192, 192, 384))
    assert first.rows is again.rows and not first.rows.flags.writeable
    assert first.rows.tobytes() == enumerate_candidates(first.profile, spec, OPTIONS).tobytes()
    others = {
        "shape": larger,
        "device": op_models(matmul_graph(128, 256, 192), load_device("grayskull"), OPTIONS)["mm"],
        "batch": op_models(matmul_graph(128, 256, 192), spec, CompileOptions(microbatch=4))["mm"],
        "choice": op_models(matmul_graph(128, 256, 192), spec, OPTIONS, {"mm": Choice(grid=(1, 1))})["mm"],
    }
    assert [name for name, other in others.items() if other.rows is first.rows] == []


def test_tables_beyond_the_room_go_the_least_recently_used_first() -> None:
    made: list[str] = []

    def make(name: str) -> np.ndarray:
        made.append(name)
        return np.zeros(40, np.uint8)

    cache = TableCache(100)
    for name in "abacab":
        cache.get_or(name, lambda name=name: make(name))
    assert "".join(made) == "abcb" and cache.bytes == 80
    assert len(cache.get_or("large", lambda: np.zeros(1000, np.uint8))) == 1000 and cache.bytes == 0
