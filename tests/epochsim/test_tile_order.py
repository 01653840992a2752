"""Which tiles a step needs and frees: counted tile by tile in plain loops for edges where that is easy to say."""

from __future__ import annotations

import dataclasses
import math
from types import SimpleNamespace

import numpy as np
import pytest

from tbuda_lab.core.balancer.types import OpModels
from tbuda_lab.core.epochsim import EpochConstants, simulate
from tbuda_lab.core.epochsim.build import build
from tbuda_lab.core.epochsim.network import FlowEdge
from tbuda_lab.core.epochsim.tile_order import Stripes, op_steps
from tbuda_lab.core.graph import TM, Graph, NodeKind, Payload
from tbuda_lab.core.graph.tm import broadcast, hslice, hstack, transpose, vslice, vstack
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwReduce, HwSparseMatmul, HwSplice, HwUnary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tests.epochsim.compiled import placed
from tests.placer.graphs import Sketch, convolutions, encoder, linear, picker

CONSTANTS = EpochConstants(switch=0, noc_latency=0, dram_latency=0, max_steps=4096, steps=4096)


def pair(z: int, rows: int, cols: int, tms: tuple[TM, ...], shape: tuple[int, int, int, int]) -> Graph:
    """x -> exp -> (tms) -> nop -> out."""
    s = Sketch()
    x = s.input("x", 1, z, rows, cols)
    first = s.op("first", HwUnary("exp"), (1, z, rows, cols), x)
    s.op("second", HwUnary("gelu"), shape, (first, tms))
    return s.output("second")


def sized(*sizes: tuple[str, int, int]) -> tuple[Override, ...]:
    return tuple(Override("op_size", name, (r, c)) for name, r, c in sizes)


STEADY = CompileOptions(objective="throughput")
"""Nothing is filled, so no op streams to begin sooner."""


def edge_between(graph: Graph, overrides: tuple[Override, ...], reader: str) -> list[FlowEdge]:
    built = build(placed(graph, overrides=overrides, options=STEADY), CONSTANTS)  # type: ignore[arg-type]
    names = [op.name for op in built.network.ops]
    return [e for e in built.network.edges if names[e.consumer] == reader]


def positions(shape: tuple[int, int, int], row: np.void, order: str) -> np.ndarray:
    """(z, rt, ct) in which place each tile leaves its core, written as the format says: t by t, ublock by ublock."""
    z, rt, ct = shape
    ur, uc, m, n = (int(row[f]) for f in ("ublock_r", "ublock_c", "mblock_m", "mblock_n"))
    place = np.full(shape, -1)
    for t in range(z):
        for core_r in range(rt // (m * ur)):
            for core_c in range(ct // (n * uc)):
                count = t * m * n * ur * uc
                blocks = [(i, j) for i in range(m) for j in range(n)]
                for i, j in blocks if order == "r" else sorted(blocks, key=lambda b: (b[1], b[0])):
                    for a in range(ur):
                        for b in range(uc):
                            place[t, (core_r * m + i) * ur + a, (core_c * n + j) * uc + b] = count
                            count += 1
    return place


def through(tiles: np.ndarray, tm: TM) -> np.ndarray:
    """A TM on an array of tiles, in plain NumPy."""
    count = int(tm.args[0]) if tm.args and isinstance(tm.args[0], int) else 0
    match tm.name:
        case "transpose":
            return tiles.transpose(0, 2, 1)
        case "hslice":
            return np.concatenate([np.stack(np.split(s, count, axis=1)) for s in tiles])
        case "vslice":
            return np.concatenate([np.stack(np.split(s, count, axis=0)) for s in tiles])
        case "hstack":
            return np.stack([np.concatenate(list(tiles[i : i + count]), 1) for i in range(0, len(tiles), count)])
        case "vstack":
            return np.stack([np.concatenate(list(tiles[i : i + count]), 0) for i in range(0, len(tiles), count)])
        case "broadcast":
            axis = {"z": 0, "r": 1, "c": 2}[tm.args[0]]
            return np.concatenate([tiles] * tm.args[1], axis=axis)
    raise AssertionError(tm)


CASES = {
    "same": (1, 128, 128, (), (1, 1, 128, 128)),
    "slices": (3, 64, 128, (), (1, 3, 64, 128)),
    "transpose": (1, 128, 128, (transpose(),), (1, 1, 128, 128)),
    "transpose wide": (2, 64, 256, (transpose(),), (1, 2, 256, 64)),
    "hslice": (1, 64, 256, (hslice(4),), (1, 4, 64, 64)),
    "vslice": (1, 256, 64, (vslice(4),), (1, 4, 64, 64)),
    "hstack": (4, 64, 64, (hstack(4),), (1, 1, 64, 256)),
    "vstack": (4, 64, 64, (vstack(4),), (1, 1, 256, 64)),
    "broadcast": (1, 32, 128, (broadcast("r", 4),), (1, 1, 128, 128)),
    "heads": (1, 64, 256, (hslice(4), transpose()), (1, 4, 64, 64)),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("grid", [(1, 1), (1, 2), (2, 1)])
def test_each_step_needs_and_frees_what_counting_tiles_says(case: str, grid: tuple[int, int]) -> None:
    """One core reads, ublock by ublock, what one or two cores have packed."""
    z, rows, cols, tms, shape = CASES[case]
    grid = (math.gcd(grid[0], rows // 32), math.gcd(grid[1], cols // 32))
    whole = tuple(Override("t_stream_dir", name, "n") for name in ("first", "second"))
    overrides = (*sized(("first", *grid), ("second", 1, 1)), *whole)
    result = placed(pair(z, rows, cols, tms, shape), overrides=overrides)
    placement = result.placement
    built = build(result, CONSTANTS)  # type: ignore[arg-type]
    names = [op.name for op in built.network.ops]
    (edge,) = [e for e in built.network.edges if names[e.consumer] == "second"]
    first, second = placement.candidate("first"), placement.candidate("second")
    assert (first["t"], second["t"]) == (z, shape[1])
    tiles = positions((z, rows // 32, cols // 32), first, placement.ublock_order["first"])
    for tm in tms:
        tiles = through(tiles, tm)
    order = positions((shape[1], shape[2] // 32, shape[3] // 32), second, placement.ublock_order["second"])
    walk = tiles.reshape(-1)[np.argsort(order.reshape(-1))]
    size = int(second["ublock_r"]) * int(second["ublock_c"])
    ublocks = walk.reshape(-1, size)
    assert len(edge.need) == len(ublocks)
    assert edge.need.tolist() == [int(ublocks[: i + 1].max()) + 1 for i in range(len(ublocks))]
    total = z * rows * cols // 1024 // (grid[0] * grid[1])
    assert edge.frees.tolist() == [int(ublocks[i + 1 :].min(initial=total)) for i in range(len(ublocks))]


def test_cores_that_read_other_heads_do_not_go_in_step() -> None:
    graph = pair(4, 64, 64, (hstack(4),), (1, 1, 64, 256))
    edges = edge_between(graph, sized(("first", 1, 1), ("second", 1, 4)), "second")
    assert len(edges) == 4
    first = [int(e.need[0]) for e in edges]
    # core c starts with head c, four tiles each
    assert [n // 4 for n in (np.array(first) - 1)] == [0, 1, 2, 3]
    assert [int(e.need[-1]) for e in edges] == [4, 8, 12, 16]


def test_a_broadcast_is_kept_until_it_was_read_for_the_last_time() -> None:
    s = Sketch()
    x = s.input("x", 1, 1, 128, 128)
    top = s.op("top", HwReduce("c"), (1, 1, 128, 1), x)
    s.op("sub", HwBinary("subtract"), (1, 1, 128, 128), x, (top, (broadcast("c", 4),)))
    edges = edge_between(s.output("sub"), sized(("top", 1, 1), ("sub", 1, 1)), "sub")
    (edge,) = edges
    assert edge.port == 1
    assert edge.frees[-1] == 4 and (edge.frees <= edge.need).all()


@pytest.mark.parametrize("columns", [1, 2])
def test_a_matmul_reads_rows_as_it_goes_and_columns_whole(columns: int) -> None:
    s = Sketch()
    x, y = s.input("x", 1, 1, 128, 64), s.input("y", 1, 1, 64, 64 * columns)
    a, b = s.op("a", HwUnary("nop"), (1, 1, 128, 64), x), s.op("b", HwUnary("nop"), (1, 1, 64, 64 * columns), y)
    s.op("mm", HwMatmul(), (1, 1, 128, 64 * columns), a, b)
    overrides = (*sized(("a", 1, 1), ("b", 1, 1), ("mm", 1, columns)), Override("u_kt", "mm", 2))
    edges = {e.port: e for e in edge_between(s.output("mm"), overrides, "mm")}
    assert len(edges) == 2
    assert set(edges[1].need.tolist()) == {4 * columns}, "the second operand before the first row"
    assert set(edges[1].frees[:-1].tolist()) <= {0}
    rows = len(edges[0].need)
    assert (edges[0].need == 8 * np.arange(1, rows + 1) // rows).all()


def test_a_bias_is_there_before_a_block_begins_and_kept_for_all_of_it() -> None:
    s = Sketch()
    x, w, y = s.input("x", 1, 1, 128, 64), s.parameter("w", 1, 1, 64, 128), s.input("y", 1, 1, 32, 128)
    b = s.op("b", HwUnary("nop"), (1, 1, 32, 128), y)
    s.op("mm", HwMatmul(bias=True), (1, 1, 128, 128), x, w, (b, (broadcast("r", 4),)))
    overrides = (*sized(("b", 1, 1), ("mm", 1, 1)), Override("t_stream_dir", "mm", "n"))
    (edge,) = edge_between(s.output("mm"), overrides, "mm")
    assert edge.port == 2 and len(edge.need) > 1
    assert set(edge.need.tolist()) == {4}
    assert edge.frees.tolist() == [0] * (len(edge.frees) - 1) + [4]


def test_a_matmul_that_accumulates_gives_nothing_before_the_last_k() -> None:
    s = Sketch()
    x = s.input("x", 1, 1, 64, 256)
    linear(s, "fc", x, 64, 256, 128)
    result = placed(s.output("fc"), overrides=(Override("u_kt", "fc", 2),))
    built = build(result, CONSTANTS)  # type: ignore[arg-type]
    (op,) = [o for o in built.network.ops if o.name == "fc"][:1]
    row = result.placement.candidate("fc")
    assert row["m_k"] == 4 and op.steps == 4 * row["mblock_m"] * row["t"]
    block = op.total // int(row["t"])
    assert (op.emit == np.arange(1, op.steps + 1) // (op.steps // int(row["t"])) * block).all()


def test_concatenated_slices_come_from_the_operands_in_turn() -> None:
    s = Sketch()
    x, y = s.input("x", 1, 2, 64, 64), s.input("y", 1, 3, 64, 64)
    a, b = s.op("a", HwUnary("nop"), (1, 2, 64, 64), x), s.op("b", HwUnary("exp"), (1, 3, 64, 64), y)
    s.op("cat", HwSplice("z", ((0, 2, 0), (0, 3, 0))), (1, 5, 64, 64), a, b)
    overrides = sized(("a", 1, 1), ("b", 1, 1), ("cat", 1, 1))
    edges = {e.port: e for e in edge_between(s.output("cat"), overrides, "cat")}
    assert edges[0].need.tolist() == [4, 8, 8, 8, 8]
    assert edges[1].need.tolist() == [0, 0, 4, 8, 12]
    assert edges[0].frees[1] == 8 and edges[1].frees[1] == 0


def test_a_picker_goes_through_the_picture_for_every_tap() -> None:
    """A 3x3 convolution of 16x16 pixels, one slice per tap, strips of one tile of rows (two lines of pixels)."""
    plain = (Override("u_kt", "c1.pick", 1), Override("t_stream_dir", "c1.pick", "n"))
    overrides = (*sized(("c0.add", 1, 1), ("c1.pick", 1, 1)), *plain)
    result = placed(convolutions(16, 32, 2), overrides=overrides)
    built = build(result, CONSTANTS)  # type: ignore[arg-type]
    names = [op.name for op in built.network.ops]
    (edge,) = [e for e in built.network.edges if names[e.consumer] == "c1.pick"]
    need, freed = edge.need.reshape(9, 8), edge.frees.reshape(9, 8)
    assert need[0].tolist() == list(range(1, 9)) and (need[1:] == 8).all()
    assert (freed[:8] == 0).all() and freed[8].tolist() == list(range(1, 9))


def test_a_picker_that_streams_moves_down_the_picture() -> None:
    """Cut into slices of rows, a tap of a slice needs the lines around it only."""
    overrides = (
        *sized(("c0.add", 1, 1), ("c1.pick", 1, 1)),
        Override("u_kt", "c1.pick", 1),
        Override("t_stream_shape", "c1.pick", (8, 1)),
    )
    s = Sketch()
    x = s.input("x", 1, 1, 256, 32)
    a = s.op("c0.add", HwUnary("exp"), (1, 1, 256, 32), x)
    centre = picker(16).array
    s.op("c1.pick", HwSparseMatmul(Payload(centre[centre[:, 0] == 1] - [1, 0, 0])), (1, 1, 256, 32), a)
    result = placed(s.output("c1.pick"), overrides=overrides)
    built = build(result, CONSTANTS)  # type: ignore[arg-type]
    names = [op.name for op in built.network.ops]
    (edge,) = [e for e in built.network.edges if names[e.consumer] == "c1.pick"]
    # the tap one line up: slice i (lines 2i and 2i + 1) reads lines 2i - 1 and 2i, in tiles i - 1 and i
    last = edge.need.reshape(8, -1)[:, -1]
    assert last.tolist() == [1, 2, 3, 4, 5, 6, 7, 8]
    assert edge.frees.reshape(8, -1)[:-1, -1].tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_stripes_are_rectangles_that_cover_the_grid() -> None:
    result = Stripes((0, 2), (0, 1, 3))
    assert result.rectangles((5, 4)) == [
        (0, 0, 2, 1),
        (0, 1, 2, 2),
        (0, 3, 2, 1),
        (2, 0, 3, 1),
        (2, 1, 3, 2),
        (2, 3, 3, 1),
    ]
    part = result.part_of((5, 4))
    for number, (r, c, rows, cols) in enumerate(result.rectangles((5, 4))):
        assert (part[r : r + rows, c : c + cols] == number).all()


@pytest.mark.parametrize("graph", [encoder(1), convolutions()], ids=["encoder", "convolutions"])
@pytest.mark.parametrize("steps", [1, 16, 200])
def test_steps_end_with_the_whole_and_edges_are_consistent(graph: Graph, steps: int) -> None:
    result = placed(graph)
    for name in result.placement.ops:
        table: OpModels = result.placement.models[name]
        row = result.placement.candidate(name)
        assert table.profile is not None
        matches = op_steps(table.profile, row, result.placement.ublock_order[name], steps, max(steps, 64))
        emit = matches.emit
        tiles = int(row["t"]) * int(row["mblock_m"]) * int(row["mblock_n"]) * int(row["ublock_r"] * row["ublock_c"])
        assert emit[-1] == tiles and (np.diff(emit) >= 0).all() and (emit >= 0).all()
        assert matches.bounds[0] == 0 and (np.diff(matches.bounds) > 0).all()
    built = build(result, EpochConstants(steps=steps, max_steps=max(steps, 64)))  # type: ignore[arg-type]
    for edge in built.network.edges:
        whole = built.network.ops[edge.producer].total
        assert len(edge.need) == len(edge.frees) == built.network.ops[edge.consumer].steps
        assert (np.diff(edge.need) >= 0).all() and (np.diff(edge.frees) >= 0).all()
        assert edge.need[-1] <= whole == edge.frees[-1]
        assert (edge.frees[:-1] <= np.maximum.accumulate(edge.need)[1:].max(initial=whole)).all()
        assert edge.capacity is not None and edge.capacity > 0


def test_finer_steps_do_not_change_the_pace() -> None:
    """Steps are a matter of resolution: the time of a long batch hardly depends on them."""
    result = placed(encoder(2), options=CompileOptions(microbatch=16))
    ends = []
    for steps in (12, 48, 96):
        constants = EpochConstants(switch=0, steps=steps, max_steps=192)
        ends.append(simulate(result, 100, constants).cycles)  # type: ignore[arg-type]
    assert max(ends) < 1.06 * min(ends)


def test_larger_input_buffers_hold_more() -> None:
    """What the placer gives a short branch to wait in, or the user asks for, is room on the edge."""
    graph = pair(1, 256, 128, (), (1, 1, 256, 128))
    one = sized(("first", 1, 1), ("second", 1, 1))
    (usual,) = edge_between(graph, one, "second")
    (wider,) = edge_between(graph, (*one, Override("input_buffer_multiplier", "second", {0: 6})), "second")
    result = placed(graph, overrides=one, options=STEADY)
    row = result.placement.candidate("second")
    ublock = int(row["ublock_r"]) * int(row["ublock_c"])
    assert usual.capacity is not None and wider.capacity == usual.capacity + 4 * ublock
    more = dataclasses.replace(result.placement, input_buffers={"second": (2 * ublock + 24,)})
    built = build(SimpleNamespace(**{**vars(result), "placement": more}), CONSTANTS)  # type: ignore[arg-type]
    names = [op.name for op in built.network.ops]
    (edge,) = [e for e in built.network.edges if names[e.consumer] == "second"]
    assert edge.capacity == usual.capacity + 24


def test_inputs_on_the_way_are_leaves_only() -> None:
    result = placed(encoder(1))
    built = build(result, CONSTANTS)  # type: ignore[arg-type]
    names = [op.name for op in built.network.ops]
    pairs = {(names[e.producer], names[e.consumer]) for e in built.network.edges}
    expected = {
        (source, node.name)
        for node in result.lowered.ops
        for source in node.sources
        if result.lowered[source].kind is NodeKind.OP
        and result.placement.ops[source].epoch == result.placement.ops[node.name].epoch
    }
    assert pairs == expected
