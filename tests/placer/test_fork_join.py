"""Fork-joins: which branches hold too little, by hand-counted cases, and that larger buffers stay within L1."""

from __future__ import annotations

import pytest

from tbuda_lab.core.balancer import op_models
from tbuda_lab.core.balancer.l1 import ordinary_tiles
from tbuda_lab.core.device import load_device
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.tm import broadcast
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwReduce, HwUnary
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.schedule import schedule
from tbuda_lab.core.placer.model.segment import Segment, place_rows
from tbuda_lab.core.placer.stalls.fork_join import Branch, ForkJoin, buffer, find
from tests.placer.graphs import Sketch, linear
from tests.placer.test_place import placed

DEVICE = load_device("wormhole_b0")


def diamond(tiles: int, reduce: bool) -> Graph:
    """exp of a row of tiles, and the same times its maximum over the row (or times its gelu)."""
    s = Sketch()
    shape = (1, 1, 32, 32 * tiles)
    x = s.op("fork", HwUnary("exp"), shape, s.input("x", *shape))
    if reduce:
        top = s.op("way", HwReduce("c"), (1, 1, 32, 32), x)
        return s.output(s.op("join", HwBinary("multiply"), shape, x, (top, (broadcast("c", tiles),))))
    return s.output(s.op("join", HwBinary("multiply"), shape, x, s.op("way", HwUnary("gelu"), shape, x)))


def epoch(graph: Graph, ublock: int, parts: int = 1) -> tuple[Problem, Segment]:
    """All ops in one epoch on a core each, `ublock` columns at a time, double output buffer. Rows of tiles come in so
    many parts; what reduces them, and what the host reads, is in one part."""
    options = CompileOptions()
    models = op_models(graph, DEVICE, options)
    problem = Problem.of(graph, models, DEVICE, options, schedule(graph))
    rows = {}
    for op, table in enumerate(problem.tables):
        data, name = table.rows, problem.order[op]
        whole = name.startswith("way") or (parts > 1 and name.endswith("_output_nop"))
        rows[op] = next(
            int(i)
            for i in table.legal()
            if data["cores"][i] == 1
            and data["t"][i] == (1 if whole else parts)
            and int(data["ublock_c"][i]) in (1, ublock)
            and (data["ublock_c"][i] == ublock or whole)
        )
    segment = place_rows(problem, 0, len(problem.order), rows)
    assert segment is not None
    return problem, segment


def test_tiles_that_a_branch_lacks_are_whole() -> None:
    """A part of a tile needs the room of a whole one; a branch that holds as much as is needed lacks nothing."""
    for needs, holds, missing in ((3.25, 1.0, 3), (3.0, 1.0, 2), (2.0, 2.0, 0), (1.0, 2.5, 0)):
        assert ForkJoin(0, 2, Branch((), 0, 0.0, holds), Branch((1,), 1, needs, 8.0)).missing == missing


@pytest.mark.parametrize("tiles", [8, 64])
def test_a_branch_that_needs_all_before_its_first_result_starves_the_other_unless_it_is_held(tiles: int) -> None:
    """The reduction needs the whole row once; the other branch holds the fork's output (two rows) or less."""
    problem, segment = epoch(diamond(tiles, True), 8)
    pairs = find(problem, segment)
    fork, join = problem.number["fork"], problem.number["join"]
    row = problem.tables[fork].rows[segment.rows[fork]]
    join_row = problem.tables[join].rows[segment.rows[join]]
    capacity = int(row["buf_size_mb"]) * tiles + ordinary_tiles(problem.profiles[join], 0, join_row)[1]
    assert bool(pairs) == (capacity < tiles)


def test_branches_of_equal_kind_need_no_more_than_they_hold() -> None:
    assert not find(*epoch(diamond(64, False), 8))


def test_larger_buffers_hold_what_was_missing_and_stay_within_l1() -> None:
    """A streamed attention-like diamond: the fork keeps slices only, so its short branch must wait in the join."""
    graph = diamond(64, True)
    # slices of 4 columns: the fork's buffer holds 8 of 64 tiles, the reduction needs them all
    p = placed(graph, DEVICE, tuple(Override("t_stream_shape", n, (1, 16)) for n in ("fork", "join")))
    options = CompileOptions()
    problem = Problem.of(graph, p.models, DEVICE, options, p.schedule)
    if p.ops["fork"].epoch == p.ops["join"].epoch:
        fork, join = p.candidate("fork"), p.candidate("join")
        slice_tiles = 64 // int(fork["stream_c"])
        capacity = slice_tiles * int(fork["buf_size_mb"]) + p.input_buffers["join"][0] * int(join["cores"])
        assert capacity >= 64
        assert any(d.rule == "fork-join" and "join" in d.message for d in p.diagnostics)
    for op, tiles in p.input_buffers.items():
        row, profile = p.candidate(op), p.models[op].profile
        assert profile is not None
        usual = [ordinary_tiles(profile, i, row)[1] for i in range(len(profile.operands))]
        more = sum(
            max(0, t - u) * tile_bytes(o.df, align=DEVICE.tile_align)
            for t, u, o in zip(tiles, usual, profile.operands, strict=True)
        )
        assert int(row["l1_total"]) + more <= DEVICE.l1_usable
    at = 0
    for i, e in enumerate(p.epochs):
        rows = tuple(p.ops[n].row for n in e.ops)
        segment = Segment(at, at + len(rows), rows, ((0, 0, False),) * len(rows), 0, 0)
        at += len(rows)
        for pair in find(problem, segment):
            message = buffer(problem, segment, i)
            join = problem.order[pair.join]
            assert message.input_tiles.get(join) or any(d.severity == "warning" for d in message.diagnostics)


def test_a_note_speaks_of_forks_only_where_there_are_any() -> None:
    """In a chain of matmuls those that read a stream get larger buffers: no branch of a fork is short."""
    s = Sketch()
    up = linear(s, "up", s.input("x", 1, 1, 256, 512), 256, 512, 2048)
    down = linear(s, "down", up, 256, 2048, 512)
    streams = (Override("t_stream_dir", "up", "c"), Override("t_stream_shape", "up", (1, 4)))
    p = placed(s.output(down), DEVICE, streams)
    assert p.candidate("up")["t"] == 4 and p.input_buffers["down"][0]
    (note,) = (d for d in p.diagnostics if d.severity == "note")
    assert note.rule == "stream-reader" and "down" in note.message and "fork" not in note.message


def crossed(tiles: int) -> Graph:
    """Two rows of tiles, each times the maximum of the other, and their product: it joins the branches of both forks,
    the short one of each over another operand."""
    s = Sketch()
    shape = (1, 1, 32, 32 * tiles)
    forks = [s.op(f"fork{i}", HwUnary("exp"), shape, s.input(f"x{i}", *shape)) for i in range(2)]
    tops = [s.op(f"way{i}", HwReduce("c"), (1, 1, 32, 32), fork) for i, fork in enumerate(forks)]
    scaled = [
        s.op(f"scaled{i}", HwBinary("multiply"), shape, forks[i], (tops[1 - i], (broadcast("c", tiles),)))
        for i in range(2)
    ]
    return s.output(s.op("join", HwBinary("multiply"), shape, *scaled))


def test_two_forks_that_meet_in_one_op_share_its_l1() -> None:
    """Either row would fit beside the blocks of the join; both do not."""
    problem, segment = epoch(crossed(480), 4, 60)
    join = problem.number["join"]
    row, profile = problem.tables[join].rows[segment.rows[join]], problem.profiles[join]
    pairs = [pair for pair in find(problem, segment) if pair.join == join]
    assert {pair.short.port for pair in pairs} == {0, 1}
    tile = tile_bytes(profile.operands[0].df, align=DEVICE.tile_align)
    room = DEVICE.l1_usable - int(row["l1_total"])
    assert all(pair.missing * tile < room < 2 * pair.missing * tile for pair in pairs)
    tiles = buffer(problem, segment, 0).input_tiles["join"]
    usual = [ordinary_tiles(profile, port, row)[1] for port in (0, 1)]
    more = [max(0, now - before) * tile for now, before in zip(tiles, usual, strict=True)]
    assert 0 < sum(more) <= room


def test_a_chain_has_no_forks() -> None:
    s = Sketch()
    x = s.input("x", 1, 1, 64, 64)
    for i in range(4):
        x = s.op(f"n{i}", HwUnary("exp"), (1, 1, 64, 64), x)
    p = placed(s.output(x), DEVICE)
    assert not p.input_buffers
