"""L1 and DRAM of compiled models against the tables, the addresses and the sizes they come from."""

from __future__ import annotations

import csv
import dataclasses
import io
import itertools
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.analysis.memory import KINDS, DramMap, l1_of_placed, preloaded_queues
from tbuda_lab.core.device import load_device
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.explore.numbers import numbers_of
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.frames import Frame, ops_frame, session_frames
from tbuda_lab.core.frames.analysis_frames import GAP, bent_axis, memory_frame
from tbuda_lab.core.frames.netlist_grid import ops_frame as netlist_ops_frame
from tbuda_lab.core.frames.ops_frame import L1_COLUMNS, op_columns
from tbuda_lab.core.netlist.cores.epochs import epoch_cores
from tbuda_lab.core.netlist.tables import Tables
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.placer import plan_queues
from tbuda_lab.core.session import QueueChannel, Session
from tbuda_lab.widgets.views.table import OpTable
from tests.session.models import encoder


def image() -> tuple[torch.nn.Module, tuple[torch.Tensor]]:
    """Sparse and dense matmuls: a strided convolution and one that keeps the size."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 16, 3, 2, 1), torch.nn.ReLU(), torch.nn.Conv2d(16, 32, 3, 1, 1))
    return model.eval(), (torch.randn(1, 3, 32, 32),)


@pytest.fixture(scope="module")
def bert() -> Session:
    session = Session(*encoder(4), "n150", name="encoder")
    session.compile()
    return session


@pytest.fixture(scope="module")
def crowded() -> Session:
    """The same with so little DRAM that queues between epochs have to take turns."""
    device = load_device("n150")
    options = CompileOptions(microbatch=64, balancer_policy="SingleOpPerEpoch", enable_auto_fusing=False)
    plain = Session(*encoder(2), device, options)
    uses = [use for use in plain.dram().queues.values() if use.queue.location == "dram"]
    e2e = sorted(use.bytes for use in uses if use.queue.kind == "e2e")
    assert len(e2e) > 4
    room = (sum(use.bytes for use in uses) - e2e[-1] // 2) // device.dram_channels
    bare = dataclasses.replace(device, dram_reserved=(0,) * device.dram_channels, dram_top_reserved=0)
    small = dataclasses.replace(bare, dram_channel_bytes=bare.dram_start(0) + room)
    session = Session(plain.trace(), plain.sample_inputs, small, options)
    session.compile()
    return session


@pytest.fixture(scope="module")
def conv() -> Session:
    session = Session(*image(), "n150", name="image")
    session.compile()
    return session


@pytest.fixture(params=["bert", "conv"])
def session(request: pytest.FixtureRequest) -> Session:
    session: Session = request.getfixturevalue(request.param)
    return session


def test_the_parts_of_l1_are_what_the_placer_counts(session: Session) -> None:
    placement = session.result.placement
    planner = plan_queues(session.placed().problem, placement.ops, None, placement.input_buffers)
    planner.plan()
    counts = planner.core_loads()
    for op in placement.ops:
        result, row = session.l1(op), placement.candidate(op)
        size = {kind: sum(p.bytes for p in result.parts if p.kind == kind) for kind in KINDS}
        assert result.used - size["headers"] == counts[op][1]
        assert 0 < size["output"] <= int(row["l1_output"]) and size["intermediate"] <= int(row["l1_intermed"])
        assert sum(size.values()) == result.used
        assert result.used + result.free + result.reserved == result.size == session.device.l1_size
        assert result.largest_hole == result.free >= 0


def test_buffers_do_not_overlap(session: Session) -> None:
    for op in session.result.placement.ops:
        result = session.l1(op)
        address = result.reserved
        for part in result.parts:
            assert part.start == address and part.bytes > 0
            address += part.bytes
        assert address <= result.size


def test_operands_have_the_buffers_that_were_asked_for(bert: Session) -> None:
    op = next(n for n in bert.result.placement.ops if n.endswith("up.matmul"))
    usual = {(p.kind, p.operand): p.bytes for p in bert.l1(op).parts}
    table = bert.result.placement.models[op].profile
    row = bert.result.placement.candidate(op)
    tile = tile_bytes(table.operands[0].df, align=bert.device.tile_align)
    granule = int(row["ublock_r"]) * int(row["u_kt"])  # a row of ublocks
    assert usual["input", 0] >= max(2 * granule, 16) * tile  # twice, and at least 16 tiles
    bert.apply(Override("input_buffer_multiplier", op, {0: 4}))
    try:
        row = bert.compile().placement.candidate(op)
        now = {(p.kind, p.operand): p.bytes for p in bert.l1(op).parts}
        assert now["input", 0] >= max(4 * int(row["ublock_r"]) * int(row["u_kt"]), 16) * tile
        assert bert.l1(op).used <= int(row["l1_total"])
    finally:
        bert.undo()
        bert.compile()


def test_a_name_that_is_not_placed(bert: Session) -> None:
    with pytest.raises(InputError, match="no such op"):
        bert.l1("no such op")


def overlaps(dram: DramMap) -> list[tuple[str, str]]:
    """Every two queues that have an address in common, by brute force."""
    blocks = [
        (u.queue.chip, u.queue.location, channel, address, address + u.queue.bytes_per_buffer, u)
        for u in dram.queues.values()
        for channel, address in u.queue.buffers
    ]
    return [
        (x[5].name, y[5].name)
        for x, y in itertools.combinations(blocks, 2)
        if x[:3] == y[:3] and x[3] < y[4] and y[3] < x[4]
    ]


def test_no_address_has_two_queues(session: Session) -> None:
    assert overlaps(session.dram()) == []


def test_queues_that_share_addresses_are_needed_at_other_times(crowded: Session) -> None:
    dram = crowded.dram()
    pairs = overlaps(dram)
    assert pairs, "the device is not small enough for this test"
    for a, b in pairs:
        x, y = dram.queues[a], dram.queues[b]
        assert x.shares and y.shares
        assert x.last < y.first or y.last < x.first


def test_every_buffer_lies_in_its_channel(session: Session) -> None:
    dram = session.dram()
    ranges = {(c.location, c.channel): (c.start, c.end) for c in dram.channels}
    for use in dram.queues.values():
        assert len(use.queue.buffers) == use.queue.grid[0] * use.queue.grid[1]
        for channel, address in use.queue.buffers:
            start, end = ranges[use.queue.location, channel]
            assert start <= address and address + use.queue.bytes_per_buffer <= end


def test_an_epoch_writes_whole_tensors(session: Session) -> None:
    """What an op gives away in one input is its output tensor, tile for tile."""
    result = session.result
    for use in session.dram().queues.values():
        if use.queue.kind in ("e2e", "output"):
            z, rows, cols = (result.lowered[use.writer].shape[k] for k in (1, 2, 3))
            tiles = z * -(-rows // 32) * -(-cols // 32)
            size = tile_bytes(result.lowered[use.writer].df, align=session.device.tile_align)
            assert use.writes == {result.placement.ops[use.writer].epoch: tiles * size}
            assert use.first <= use.last


def test_demand_is_the_traffic_of_the_queues(session: Session) -> None:
    dram = session.dram()
    total = sum(
        sum(u.reads.values()) + sum(u.writes.values()) for u in dram.queues.values() if u.queue.location == "dram"
    )
    assert dram.demand.sum() == pytest.approx(total) and (dram.demand >= 0).all()
    assert dram.load().shape == (len(session.result.placement.epochs), session.device.dram_channels)
    preloaded = [u for u in dram.queues.values() if u.queue.prologue and u.queue.kind != "sparse_encoding"]
    assert preloaded and all(sum(u.reads.values()) == 0 for u in preloaded)


def test_a_queue_put_into_a_channel_lies_there(bert: Session) -> None:
    name = next(n for n, u in bert.dram().queues.items() if u.queue.location == "dram" and u.queue.kind == "e2e")
    bert.apply(QueueChannel(name, 4))
    try:
        assert {c for c, _ in bert.dram().queues[name].queue.buffers} == {4}
        assert "override_dram_queue_placement" in bert.to_python()
    finally:
        bert.undo()


def test_the_frame_says_the_same(session: Session) -> None:
    frame = Frame.unpack(*memory_frame(session.result, 3).pack())
    c, dram = frame.columns, session.dram()
    names = frame.text("op_name")
    used = np.bincount(c["part_op"], weights=c["part_bytes"], minlength=len(names))
    np.testing.assert_array_equal(used, c["op_used"])
    assert {n: int(u) for n, u in zip(names, used, strict=True)} == {n: session.l1(n).used for n in names}
    queues = frame.text("queue_name")
    assert queues == list(dram.queues)
    got = [
        (queues[q], int(ch), int(a))
        for q, ch, a in zip(
            c["block_queue"].tolist(), c["block_channel"].tolist(), c["block_address"].tolist(), strict=True
        )
    ]
    assert got == [(n, ch, a) for n, u in dram.queues.items() for ch, a in u.queue.buffers]
    assert ((c["block_x"] >= 0) & (c["block_w"] > 0) & (c["block_x"] + c["block_w"] <= 1 + 1e-9)).all()
    load = np.zeros_like(dram.demand)
    load[c["load_epoch"], c["load_channel"]] = c["load_bytes"]
    np.testing.assert_allclose(load, dram.demand)


blocks = st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 10**4)), min_size=1, max_size=20)


@settings(deadline=None)
@given(blocks, st.integers(2 * 10**6, 10**9))
def test_the_bent_axis(pairs: list[tuple[int, int]], end: int) -> None:
    address, size = (np.array(v) for v in zip(*pairs, strict=True))
    knots, places, gaps = bent_axis(address, size, 0, end)
    assert (np.diff(knots) > 0).all() and (np.diff(places) > 0).all()
    assert places[0] == 0 and places[-1] == pytest.approx(1)
    assert knots[0] == 0 and knots[-1] == end
    width = np.interp(address + size, knots, places) - np.interp(address, knots, places)
    scale = width / size
    assert scale == pytest.approx(np.full(len(size), scale[0]))  # blocks keep their proportions
    inside = np.array([any(a < h and low < a + n for low, h in _stretches(knots, places, gaps)) for a, n in pairs])
    assert not inside.any()  # no block lies in a gap
    assert all(w >= GAP / 2 or len(gaps) > 15 for _, w, _ in gaps)


def _stretches(knots: np.ndarray, places: np.ndarray, gaps: list[tuple[float, float, float]]) -> list[tuple[int, int]]:
    return [(round(np.interp(x, places, knots)), round(np.interp(x + w, places, knots))) for x, w, _ in gaps]


def _of_the_check(session: Session) -> dict[str, tuple[int, dict[str, int]]]:
    """(bytes of the fullest core, bytes by kind of the check) of every op, as rule R6 counts them."""
    n = session.compile().netlist
    counts: dict[str, tuple[int, dict[str, int]]] = {}
    for graph in n.graphs.values():
        ahead = preloaded_queues(n, graph.name)
        preloads = {op.name: frozenset(i.source for i in op.inputs if i.source in ahead) for op in graph.ops.values()}
        cores = epoch_cores(Tables(n), (graph.name,), session.device.tile_align, preloads, session.device.arch)
        for op in graph.ops:
            at, size = cores.fullest(op)
            counts[op] = size, {kind: sum(sizes) for kind, sizes in cores.kinds(op, at).items()}
    return counts


def _columns(rows: list[dict[str, str]]) -> dict[str, tuple[int, dict[str, int]]]:
    """The same of a table's rows: all, and by column."""
    return {
        row["name"]: (int(float(row["l1_total"])), {c: int(float(row[c])) for c in L1_COLUMNS.values()}) for row in rows
    }


def _of_frame(frame: Frame) -> dict[str, tuple[int, dict[str, int]]]:
    columns = op_columns(frame)
    assert not columns["l1_bound"].any(), "an estimate"
    return _columns([dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)])


def test_every_view_has_the_l1_that_the_check_counts(session: Session, tmp_path: Path) -> None:
    """Memory view, tables, card, reasons, CSV, reports, placements, explorations and files of one placement."""
    result, checked, usable = session.compile(), _of_the_check(session), session.device.l1_usable
    l1 = {op: session.l1(op) for op in session.compile().placement.ops}
    assert {op: m.used for op, m in l1.items()} == {op: size for op, (size, _) in checked.items()}
    for op, (size, kinds) in checked.items():
        assert sum(kinds.values()) == size
        of = l1[op].by_kind()
        assert of["headers"] == kinds.get("tile_headers", 0) and of["intermediate"] == kinds.get("intermediates", 0)
        assert of["output"] + of["staging"] == kinds.get("output", 0) + kinds.get("dram_io", 0)
        assert of["input"] == sum(n for kind, n in kinds.items() if kind.startswith("input_"))
        assert of["parameter"] == sum(n for kind, n in kinds.items() if kind.startswith("prologue_"))
    wanted = {op: (m.used, {L1_COLUMNS[k]: size for k, size in m.by_kind().items()}) for op, m in l1.items()}

    csv_path, early = tmp_path / "ops.csv", l1_of_placed(session.placed())
    session.export_table(csv_path)
    read = netlists.loads(netlists.dumps(session.compile().netlist))
    view = OpTable(session)
    ops_of = {frame.key: frame for frame in session_frames(session.compile(), session.device, session.problems)}
    file = netlist_ops_frame(read, session.device)
    views = {
        "ops frame": _of_frame(session.frames.get("ops")),
        "before the netlist": _of_frame(ops_frame(result.lowered, result.placement, session.device, l1=early)),
        "report": _of_frame(ops_of["ops"]),
        "table view": _columns(view.to_rows()),
        "table as CSV": _columns(list(csv.DictReader(io.StringIO(view.to_csv())))),
        "exported table": _columns(list(csv.DictReader(csv_path.open()))),
        "netlist file": _of_frame(file),
    }
    for name, table in views.items():
        assert table == wanted, name
    memory = memory_frame(session.compile())
    assert dict(zip(memory.text("op_name"), memory.columns["op_used"], strict=True)) == {
        op: size for op, (size, _) in checked.items()
    }
    for op in list(l1)[:: max(1, len(l1) // 4)]:
        assert session[op]["L1"].startswith(f"{l1[op].used:,} of {usable:,} bytes (")
    assert session.why(op).l1_bytes == l1[op].used
    most = max(m.used for m in l1.values())
    assert numbers_of(session.compile())["l1_bytes"] == most
    (row,) = [row for row in session.placements if row.current]
    assert row.facts.l1 == pytest.approx(most / usable)


def test_an_estimate_is_marked(bert: Session) -> None:
    """Where nobody counts cores, as of a shape that is not placed, the candidate's own sum."""
    frame = ops_frame(bert.compile().lowered, bert.compile().placement, bert.device)
    columns = op_columns(frame)
    assert columns["l1_bound"].all()
    kinds = np.sum([columns[c] for c in L1_COLUMNS.values()], axis=0)
    rows = [int(bert.compile().placement.candidate(name)["l1_total"]) for name in columns["name"]]
    assert columns["l1_total"].tolist() == kinds.tolist() == rows
