"""The timeline's frames and messages, without a page: what is sent, how much, and that it tells the truth."""

from __future__ import annotations

import json
import threading
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tbuda_lab.core.epochsim import KIND_NAMES, EpochTrace, WaitKind
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame, fills_frame, moment_frame, static_tiles, tile_frame, trace_frame
from tbuda_lab.core.frames.run_frames import blocks, flows_frame
from tbuda_lab.core.session import EpochBreak, ResizeOp, Session
from tbuda_lab.widgets.handlers.runs import trace_service_of
from tbuda_lab.widgets.handlers.session_hub import Hub
from tbuda_lab.widgets.protocol import HANDLERS, dispatch
from tbuda_lab.widgets.views.trace import trace_html, trace_svg, viewport_of
from tests.epochsim.test_trace import made_up
from tests.session.models import encoder
from tests.widgets.talk import Page


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(*encoder(1), "n150", name="encoder")
    ops = [node.name for node in session.graph("lowered").ops]
    session.apply(EpochBreak(ops[len(ops) // 2]))
    assert len(session.compile().placement.epochs) > 1
    return session


@pytest.fixture(scope="module")
def found(session: Session) -> EpochTrace:
    return session.timeline(4)


# -- frames -----------------------------------------------------------------------------------------------------------
def test_the_head_names_every_lane_and_every_lane_is_in_one_block(found: EpochTrace) -> None:
    frame = Frame.unpack(*trace_frame(found, 3, (1, 8)).pack())
    assert frame.text("lane_name") == [op.name for op in found.trace.ops]
    covered = [
        i for a, b in zip(frame.columns["block_first"], frame.columns["block_end"], strict=True) for i in range(a, b)
    ]
    assert covered == list(range(len(found.trace.ops)))
    for low, high in blocks(found.trace):
        assert len({op.epoch for op in found.trace.ops[low:high]}) == 1 and high - low <= 32
    assert frame.meta["events"] == len(found.trace) and frame.meta["rev"] == 3
    assert frame.columns["run_end"].max() == found.trace.cycles


def test_tiles_of_a_level_together_show_all_time_spent() -> None:
    trace = made_up(5, 70, 30_000)
    spent = np.zeros(4)
    for block in range(len(blocks(trace))):
        for index in range(4):
            header, buffer = tile_frame(trace, 2, index, block).pack()
            assert len(buffer) <= 100 * 1024
            tile = Frame.unpack(header, buffer)
            low, high = blocks(trace)[block]
            lanes = tile.columns["lane"]
            assert ((lanes >= low) & (lanes < high)).all()
            first, last = trace.cycles * index >> 2, trace.cycles * (index + 1) >> 2
            start = tile.columns["start"].astype(np.int64) + tile.meta["origin"]
            end = tile.columns["end"].astype(np.int64) + tile.meta["origin"]
            width = np.minimum(end, last) - np.maximum(start, first)
            if tile.meta["exact"]:
                spent += np.bincount(tile.columns["kind"], width, 4)
            else:
                spent += (tile.columns["share"].reshape(-1, 4) * width[:, None] / 255).sum(axis=0)
    truth = np.bincount(trace.kind, trace.end - trace.start, 4)
    # shares are rounded down to 1/255 of a row's time
    assert (spent <= truth + 1).all() and (spent >= truth - trace.cycles * 70 / 255).all()


def test_there_is_no_tile_outside() -> None:
    trace = made_up(1, 9, 100)
    for bad in ((0, 0, 99), (0, 1, 0), (1, 2, 0), (0, 0, -1)):
        with pytest.raises(IndexError):
            tile_frame(trace, *bad)


def test_a_moment_says_what_a_search_finds(found: EpochTrace) -> None:
    trace = found.trace
    cycle = int(trace.end.max()) // 2
    frame = moment_frame(trace, cycle)
    inside = np.flatnonzero((trace.start <= cycle) & (cycle < trace.end))
    assert frame.columns["lane"].tolist() == trace.op[inside].tolist()
    assert frame.columns["kind"].tolist() == trace.kind[inside].tolist()
    assert frame.text("op") == [trace.ops[i].name for i in trace.op[inside]]
    cores = np.stack([frame.columns[c] for c in ("row", "col", "rows", "cols")], axis=1)
    assert cores.tolist() == [list(trace.ops[i].cores) for i in trace.op[inside]]
    assert frame.meta["epochs"] == [e.epoch for e in trace.epochs if e.start <= cycle < e.end]


def test_static_tiles_are_few_and_cover_every_block(found: EpochTrace) -> None:
    tiles = static_tiles(made_up(7, 200, 60_000), 5_000)
    assert sum(len(t.columns["lane"]) for t in tiles) <= 5_000
    assert sorted(t.meta["block"] for t in tiles) == list(range(len(tiles)))
    assert len({t.key for t in tiles}) == len(tiles)
    assert len(static_tiles(found.trace)) == len(blocks(found.trace))


# -- levels of buffers ------------------------------------------------------------------------------------------------
def test_a_buffer_never_holds_more_than_fits_and_is_empty_at_the_end(found: EpochTrace) -> None:
    seen = 0
    for op in found.levels.names:
        for fill in found.fills(op, points=10**6):
            seen += 1
            assert op in (fill.producer, fill.consumer)
            assert (np.diff(fill.time) > 0).all() and (fill.level >= 0).all()
            assert fill.level[-1] == 0
            if fill.capacity is not None:
                assert fill.level.max() <= fill.capacity
    assert seen > len(found.levels.names)


def test_queues_between_epochs_count_the_inputs_in_between(found: EpochTrace) -> None:
    number = {name: i for i, name in enumerate(found.levels.names)}
    checked = 0
    for op in found.levels.names:
        for fill in found.fills(op, points=10**6):
            if fill.unit == "inputs":
                checked += 1
                result, read = found.end[number[fill.producer]], found.end[number[fill.consumer]]
                for time, level in zip(fill.time.tolist(), fill.level.tolist(), strict=True):
                    assert level == (result <= time).sum() - (read <= time).sum()
    assert checked


def test_few_points_keep_the_highest_levels(found: EpochTrace) -> None:
    op = max(found.levels.names, key=lambda n: max((len(f.time) for f in found.fills(n, points=10**6)), default=0))
    for whole, few in zip(found.fills(op, points=10**6), found.fills(op, points=20), strict=True):
        assert len(few.time) <= 21 and few.level.max() == whole.level.max()
    frame = fills_frame(op, found.fills(op), (0, found.cycles))
    assert frame.columns["fill_points"].sum() == len(frame.columns["point_time"])
    with pytest.raises(KeyError):
        found.fills("nobody")


# -- messages ---------------------------------------------------------------------------------------------------------
def asked(session: Session) -> tuple[Hub, Page]:
    hub, page = Hub(session), Page("ops")
    hub.attach(page)
    return hub, page


def say(hub: Hub, page: Page, content: dict[str, Any]) -> None:
    dispatch(hub, page, content)


def test_a_page_asks_for_the_trace_and_then_for_tiles(session: Session) -> None:
    hub, page = asked(session)
    say(hub, page, {"type": "need_trace", "batch": 2})
    trace_service_of(hub).wait(120)
    assert page.frames()["trace"].meta["batch"] == 2
    assert [m["state"] for m, _ in page.messages if m["type"] == "trace_state"] == ["working"]
    page.messages.clear()
    say(hub, page, {"type": "need_tile", "tiles": [[0, 0, 0], [3, 99, 0], ["x"], [1, 1, 0]]})
    ((message, tiles),) = page.messages  # one message, whatever was asked for
    assert message["type"] == "frames" and len(message["frames"]) == len(tiles)
    headers = [m["header"]["meta"] for m in message["frames"]]
    assert [(h["level"], h["index"]) for h in headers] == [(0, 0), (1, 1)]
    assert all(len(data) <= 100 * 1024 for data in tiles)
    page.messages.clear()
    say(hub, page, {"type": "need_moment", "cycle": 30_000.0})
    assert page.frames()["moment"].meta["cycle"] == 30_000
    op = session.timeline(2).levels.names[1]
    say(hub, page, {"type": "need_fills", "op": op, "start": 0, "end": 50_000})
    assert page.frames()["fills"].meta["op"] == op
    say(hub, page, {"type": "need_fills", "op": "nobody", "start": 0, "end": 50_000})
    say(hub, page, {"type": "need_fills", "op": op, "start": "0", "end": None})
    assert sum(m.get("key") == "fills" for m, _ in page.messages) == 1


def test_grids_of_other_cells_get_the_moment_too(session: Session) -> None:
    hub, page = asked(session)
    grid, table = Page("ops"), Page("ops")
    grid.kind, table.kind = "grid", "table"  # type: ignore[attr-defined]
    hub.attach(grid)
    hub.attach(table)
    say(hub, page, {"type": "need_trace", "batch": 2})
    trace_service_of(hub).wait(120)
    say(hub, page, {"type": "need_moment", "cycle": 30_000})
    assert page.frames()["moment"].text("op") == grid.frames()["moment"].text("op")
    assert "moment" not in table.frames() and "trace" not in grid.frames()


def test_tiles_without_a_trace_are_no_answer(session: Session) -> None:
    hub, page = asked(session)
    say(hub, page, {"type": "need_tile", "tiles": [[0, 0, 0]]})
    say(hub, page, {"type": "need_moment", "cycle": 1})
    assert page.messages == []


def test_after_an_edit_there_is_no_old_tile_and_the_page_gets_the_new_trace_when_it_asks() -> None:
    from tests.session.models import perceptron

    session = Session(*perceptron(), "n150")
    session.compile()
    hub, page = asked(session)
    say(hub, page, {"type": "need_trace", "batch": 8})
    trace_service_of(hub).wait(60)
    first = page.frames()["trace"]
    op = "first.matmul"
    shape = next(s for s in session.legal(op).legal if s != session.result.placement.ops[op].size)
    session.apply(ResizeOp(op, shape))
    session.compile()
    assert trace_service_of(hub).trace is None, "nobody asked: nothing is simulated"
    count = len(page.messages)
    say(hub, page, {"type": "need_tile", "tiles": [[0, 0, 0]]})
    assert len(page.messages) == count
    say(hub, page, {"type": "need_trace", "batch": 8})
    trace_service_of(hub).wait(60)
    second = page.frames()["trace"]
    assert second.meta["rev"] > first.meta["rev"]
    at = [second.text("lane_name").index(op), first.text("lane_name").index(op)]
    assert (second.columns["lane_rows"][at[0]], second.columns["lane_cols"][at[0]]) != (
        first.columns["lane_rows"][at[1]],
        first.columns["lane_cols"][at[1]],
    )


def test_an_edit_while_the_old_placement_is_simulated_gets_its_own_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.session.models import perceptron

    session = Session(*perceptron(), "n150")
    session.compile()
    hub, page = asked(session)
    at_work, go, simulate = threading.Event(), threading.Event(), session.timeline

    def slow(*args: Any) -> EpochTrace:
        slow = simulate(*args)
        at_work.set()
        assert go.wait(60)
        return slow

    monkeypatch.setattr(session, "timeline", slow)
    say(hub, page, {"type": "need_trace", "batch": 8})
    assert at_work.wait(60)
    op = "first.matmul"
    session.apply(ResizeOp(op, next(s for s in session.legal(op).legal if s != session.result.placement.ops[op].size)))
    session.compile()
    say(hub, page, {"type": "need_trace", "batch": 8})  # the very same question
    go.set()
    trace_service_of(hub).wait(60)
    frame = page.frames()["trace"]
    at = frame.text("lane_name").index(op)
    size = (frame.columns["lane_rows"][at], frame.columns["lane_cols"][at])
    assert frame.meta["rev"] == session.rev == trace_service_of(hub).rev
    assert size == session.result.placement.ops[op].size
    assert sum(m.get("key") == "trace" for m, _ in page.messages) == 1, "nothing of the placement that is gone"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_view_that_asks_as_soon_as_it_has_the_ops_gets_the_trace_of_these(when: str) -> None:
    """The page's question may come before everybody has heard of a compile, or while the one before is simulated."""
    from tests.session.models import perceptron

    session = Session(*perceptron(), "n150")
    session.compile()
    hub, page = asked(session)
    eager: list[int] = []

    def compiled(_: Any) -> None:
        if not eager:
            eager.append(session.rev)
            HANDLERS["need_trace"](hub, page, {"type": "need_trace", "batch": 8})
            if when == "before":
                trace_service_of(hub).wait(60)

    session.on("compiled", compiled)
    trace_service_of(hub)  # hears of a compile behind the one above
    op = "first.matmul"
    session.apply(ResizeOp(op, next(s for s in session.legal(op).legal if s != session.result.placement.ops[op].size)))
    session.compile()
    trace_service_of(hub).wait(60)
    frame = page.frames()["trace"]
    at = frame.text("lane_name").index(op)
    size = (frame.columns["lane_rows"][at], frame.columns["lane_cols"][at])
    assert eager == [session.rev] and size == session.result.placement.ops[op].size
    count = len(page.messages)
    say(hub, page, {"type": "need_tile", "tiles": [[0, 0, 0]]})
    assert len(page.messages) > count, "there are tiles of it"


def test_the_fix_of_a_stall_inserts_a_nop_on_its_edge() -> None:
    session = Session(*encoder(2), "n150", name="encoder")
    session.compile()
    hub, page = asked(session)
    say(hub, page, {"type": "need_trace", "batch": 8})
    trace_service_of(hub).wait(60)
    before = page.frames()["trace"]
    assert len(before.columns["stall_cycles"])
    source, target = before.text("stall_source")[0], before.text("stall_target")[0]
    say(hub, page, {"type": "edit", "do": "insert-nop", "op": source, "to": [target]})
    assert hub.edit_controller is not None
    hub.edit_controller.wait(120)
    say(hub, page, {"type": "need_trace", "batch": 8})
    trace_service_of(hub).wait(60)
    answer = [m for m, _ in page.messages if m["type"] == "edited"][-1]
    assert answer["ok"], answer["text"]
    after = page.frames()["trace"]
    (nop,) = set(after.text("lane_name")) - set(before.text("lane_name"))
    assert [e.source for e in session.result.lowered[nop].inputs] == [source]
    assert nop in session.result.lowered[target].sources


# -- the view ---------------------------------------------------------------------------------------------------------
def test_the_view_says_what_happens_at_a_cycle_and_exports(session: Session, tmp_path: Path) -> None:
    widgets = pytest.importorskip("tbuda_lab.widgets")
    from tbuda_lab.widgets.views.workbench import BUNDLE

    if not BUNDLE.is_file():
        pytest.skip("the front end is not built: make front-end")
    view = widgets.RunTrace(session, batch=4)
    trace = view.trace.trace
    cycle = int(trace.start[len(trace) // 2])
    moment = view.at(cycle)
    assert {m["doing"] for m in moment} <= set(KIND_NAMES) and len(moment) == len(trace.at(cycle))
    path = view.to_chrome_trace(tmp_path / "t.json")
    assert sum(e["ph"] == "X" for e in json.loads(path.read_text())["traceEvents"]) == len(trace) + len(trace.epochs)
    assert "<svg" in view.static().html and len(view.static().html) < 190_000
    with pytest.raises(InputError):
        widgets.RunTrace(session, batch=0)


def test_the_picture_draws_every_op_of_the_epoch(found: EpochTrace) -> None:
    epoch = max(found.trace.epochs, key=lambda e: e.end - e.start).epoch
    root = ElementTree.fromstring(trace_svg(found, viewport_of(found)).replace("&nbsp;", " "))
    titles = [t.text for t in root.iter("{http://www.w3.org/2000/svg}title")]
    names = [op.name for op in found.trace.ops if op.epoch == epoch]
    assert titles == names[: len(titles)] and titles
    html = trace_html(found)
    assert len(html) < 120_000
    for stall in found.stalls:
        assert not stall.critical or stall.fork in html
    assert int(WaitKind.DRAM) == 3


def test_a_slice_is_the_sum_of_its_spans(found: EpochTrace) -> None:
    """Against a loop over the spans, for three stretches; the whole is what `ops` says."""
    columns = found.trace
    whole = columns.slice(0, columns.cycles + 1)
    for waits in found.ops:
        if waits.op in whole.ops:
            row = whole.cycles[whole.ops.index(waits.op)]
            assert row.tolist() == pytest.approx(
                [waits.compute, waits.wait_input, waits.wait_space, waits.wait_dram, waits.wait_host], abs=0.51
            )
    for start, end in ((0, 500), (columns.cycles // 3, columns.cycles // 2), (columns.cycles - 7, columns.cycles)):
        spent: dict[str, float] = {}
        for span in range(len(columns)):
            lane = columns.ops[columns.op[span]]
            inside = min(columns.end[span], end) - max(columns.start[span], start)
            if inside > 0:
                every = sum(o.cores[2] * o.cores[3] for o in columns.ops if o.name == lane.name)
                spent[lane.name] = spent.get(lane.name, 0) + inside * lane.cores[2] * lane.cores[3] / every
        stats = columns.slice(start, end)
        assert dict(zip(stats.ops, stats.cycles.sum(axis=1).tolist(), strict=True)) == pytest.approx(spent)


def test_flows_begin_where_both_ops_begin(found: EpochTrace) -> None:
    names = found.levels.names
    frame = flows_frame(found, names[1], [(names[0], names[1]), ("nobody", names[1])])
    assert frame.meta["edges"] == 1 and frame.columns["input"].tolist() == list(range(found.batch))
    assert frame.columns["leaves"].tolist() == found.start[0].tolist()
    assert frame.columns["arrives"].tolist() == found.start[1].tolist()
