"""The trace: columns, moments, zooming, Chrome's format."""

from __future__ import annotations

import dataclasses
import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tbuda_lab.core.epochsim import KIND_NAMES, Spans, Trace, TraceEpoch, TraceOp, WaitKind, simulate
from tbuda_lab.core.errors import OutputError
from tests.epochsim.compiled import placed
from tests.placer.graphs import encoder


def made_up(seed: int, ops: int, spans: int, idle: float = 0.2) -> Trace:
    """Random spans without overlap, `spans` of them over all ops."""
    rng = np.random.default_rng(seed)
    op = np.sort(rng.integers(0, ops, spans)).astype(np.int32)
    length = rng.integers(1, 60, spans)
    gap = np.where(rng.random(spans) < idle, rng.integers(1, 40, spans), 0)
    ends = np.cumsum(length + gap)
    first = np.searchsorted(op, np.arange(ops))
    offset = np.concatenate([[0], ends])[first][op]
    start = (ends - length - offset).astype(np.int64)
    end = start + length
    lanes = tuple(TraceOp(f"op{i}", i % 3, i % 2, (i % 8, 0, 1, 1)) for i in range(ops))
    total = int(end.max(initial=0))
    epochs = tuple(TraceEpoch(i, i % 2, 0, 0, total) for i in range(3))
    cause = np.where(rng.random(spans) < 0.5, rng.integers(0, ops, spans), -1).astype(np.int32)
    return Trace(
        op,
        rng.integers(0, 9, spans).astype(np.int32),
        start,
        end,
        rng.integers(0, 4, spans).astype(np.uint8),
        cause,
        lanes,
        epochs,
        1e9,
    )


@pytest.fixture(scope="module")
def trace() -> Trace:
    return simulate(placed(encoder(2)), 24).trace  # type: ignore[arg-type]  # enough to fill the buffers


# -- columns ----------------------------------------------------------------------------------------------------------
def test_spans_are_in_order_and_never_overlap(trace: Trace) -> None:
    assert len(trace) > 0
    assert (trace.end > trace.start).all()
    same = trace.op[1:] == trace.op[:-1]
    assert (trace.op[1:] >= trace.op[:-1]).all()
    assert (trace.start[1:] >= trace.end[:-1])[same].all()
    assert trace.cycles == trace.epochs[-1].end >= trace.end.max()


def test_every_span_lies_in_its_epoch_and_rectangle(trace: Trace) -> None:
    begin = {e.epoch: e.start for e in trace.epochs}
    end = {e.epoch: e.end for e in trace.epochs}
    assert (trace.start >= np.array([begin[e] for e in trace.epoch.tolist()])).all()
    assert (trace.end <= np.array([end[e] for e in trace.epoch.tolist()])).all()
    assert trace.cores.shape == (len(trace), 4)
    assert (trace.cores[:, 2:] > 0).all()


def test_waits_name_what_is_waited_for(trace: Trace) -> None:
    assert (trace.cause[trace.kind == WaitKind.COMPUTE] == -1).all()
    readers: dict[str, set[str]] = {}
    graph = encoder(2)
    for node in graph.ops:
        for source in node.sources:
            readers.setdefault(source, set()).add(node.name)
    names = [op.name for op in trace.ops]
    pairs = {(names[o], k, names[c]) for o, k, c in zip(trace.op, trace.kind, trace.cause, strict=True) if c >= 0}
    assert {kind for _, kind, _ in pairs} == {WaitKind.INPUT, WaitKind.SPACE}
    for op, kind, cause in pairs:
        assert cause in readers[op] if kind == WaitKind.SPACE else op in readers[cause]
    assert KIND_NAMES[WaitKind.SPACE] == "wait for space"


# -- moments ----------------------------------------------------------------------------------------------------------
@settings(max_examples=60)
@given(st.integers(0, 5), st.integers(-5, 3000))
def test_a_moment_is_what_a_search_through_all_spans_finds(seed: int, cycle: int) -> None:
    trace = made_up(seed, 7, 150)
    moment = trace.at(cycle)
    expected = [i for i in range(len(trace)) if trace.start[i] <= cycle < trace.end[i]]
    assert moment.op.tolist() == trace.op[expected].tolist()
    assert moment.kind.tolist() == trace.kind[expected].tolist()
    assert moment.input.tolist() == trace.input[expected].tolist()
    assert moment.cause.tolist() == trace.cause[expected].tolist()
    assert len(moment) == len(expected)


# -- zooming ----------------------------------------------------------------------------------------------------------
def check_rows(spans: Spans, limit: int) -> None:
    assert len(spans) <= limit
    columns = (spans.op, spans.input, spans.start, spans.end, spans.kind, spans.count)
    assert {len(c) for c in columns} == {len(spans)}
    assert spans.share.shape == (len(spans), len(WaitKind))
    assert (spans.end > spans.start).all()
    same = spans.op[1:] == spans.op[:-1]
    assert (spans.op[1:] >= spans.op[:-1]).all()
    assert (spans.start[1:] >= spans.end[:-1])[same].all()


@settings(max_examples=80)
@given(st.integers(0, 4), st.integers(0, 4000), st.integers(1, 4000), st.integers(20, 400))
def test_a_window_shows_the_time_that_was_spent_in_it(seed: int, start: int, width: int, limit: int) -> None:
    trace = made_up(seed, 9, 900)
    result = trace.zoom(start, start + width, limit)
    check_rows(result, limit)
    inside = (trace.end > start) & (trace.start < min(start + width, trace.cycles + 1))
    assert result.exact == (inside.sum() <= limit)
    if result.exact:
        assert (result.start.astype(np.int64) + result.origin).tolist() == trace.start[inside].tolist()
        assert result.op.tolist() == trace.op[inside].tolist()
        return
    clipped = np.minimum(trace.end, result.end_of_window) - np.maximum(trace.start, start)
    for kind in WaitKind:
        spent = clipped[inside & (trace.kind == kind)].sum()
        shown = (result.share[:, kind].astype(float) * (result.end - result.start) * result.lanes / 255).sum()
        # a share is kept in 8 bits and rounded down
        slack = (result.end - result.start).sum() * result.lanes / 255
        assert spent - slack - 1 <= shown <= spent + 1
    most = np.take_along_axis(result.share, result.kind[:, None].astype(np.int64), axis=1)[:, 0]
    assert (most == result.share.max(axis=1)).all()


def test_more_ops_than_rows_are_drawn_together() -> None:
    trace = made_up(1, 301, 20_000)
    result = trace.zoom(0, trace.cycles, 50)
    check_rows(result, 50)
    assert result.lanes >= 8 and not result.exact
    busy = (result.share.astype(float).sum(axis=1) * (result.end - result.start) * result.lanes / 255).sum()
    assert busy == pytest.approx((trace.end - trace.start).sum(), rel=0.05)


def test_tiles_divide_the_trace() -> None:
    trace = made_up(2, 20, 5000)
    whole = trace.tile(0, 0)
    assert whole.origin == 0 and whole.end_of_window == trace.cycles
    edges = [trace.tile(3, i) for i in range(8)]
    assert all(a.end_of_window <= b.end_of_window for a, b in itertools.pairwise(edges))
    assert edges[-1].end_of_window == trace.cycles
    for bad in ((0, 1), (2, 4), (2, -1), (-1, 0)):
        with pytest.raises(IndexError):
            trace.tile(*bad)


def test_an_empty_window_and_an_empty_trace() -> None:
    trace = made_up(3, 4, 40)
    assert len(trace.zoom(10**9, 2 * 10**9)) == 0
    nothing = made_up(0, 3, 0)
    assert len(nothing.zoom(0, 100)) == 0 and len(nothing.at(0)) == 0 and nothing.cycles == 0
    with pytest.raises(ValueError, match="room"):
        trace.zoom(0, 10, 0)


@pytest.mark.slow
def test_of_a_million_spans_no_more_than_4096_are_shown() -> None:
    trace = made_up(4, 1200, 1_000_000)
    rng = np.random.default_rng(0)
    windows = [
        (0, trace.cycles),
        *(
            (int(a), int(a + w))
            for a, w in zip(rng.integers(0, trace.cycles, 20), 2 ** rng.integers(3, 16, 20), strict=True)
        ),
    ]
    for start, end in windows:
        result = trace.zoom(start, end)
        check_rows(result, 4096)
        assert result.nbytes <= 100_000


# -- Chrome -----------------------------------------------------------------------------------------------------------
def test_chrome_trace_has_the_structure_that_viewers_load(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "trace.json"
    trace.to_chrome_trace(path)
    content = json.loads(path.read_text())
    assert set(content) == {"displayTimeUnit", "traceEvents"}
    events = content["traceEvents"]
    spans = [e for e in events if e["ph"] == "X" and e["cat"] != "epoch"]
    epochs = [e for e in events if e.get("cat") == "epoch"]
    assert len(spans) == len(trace) and len(epochs) == len(trace.epochs)
    assert {e["ph"] for e in events} == {"X", "M"}
    threads = {(e["pid"], e["tid"]) for e in events if e["ph"] == "M" and e["name"] == "thread_name"}
    for event in events:
        assert isinstance(event["pid"], int) and isinstance(event["tid"], int)
        if event["ph"] == "X":
            assert event["ts"] >= 0 and event["dur"] > 0
            assert (event["pid"], event["tid"]) in threads
    # a thread shows one thing at a time, as the viewers stack what overlaps
    lanes: dict[tuple[int, int], list[tuple[float, float]]] = {}
    for event in spans:
        lanes.setdefault((event["pid"], event["tid"]), []).append((event["ts"], event["ts"] + event["dur"]))
    for times in lanes.values():
        times.sort()
        assert all(a[1] <= b[0] + 1e-6 for a, b in itertools.pairwise(times))
    scale = 1e6 / trace.clock_hz
    assert spans[0]["ts"] == trace.start[0] * scale
    compute = [e for e in spans if e["cat"] == "op"]
    assert len(compute) == (trace.kind == WaitKind.COMPUTE).sum()
    assert compute[0]["name"] == compute[0]["args"]["op"]
    assert {e["name"] for e in spans if e["cat"] == "wait"} <= set(KIND_NAMES)


def test_names_with_quotes_survive(tmp_path: Path) -> None:
    trace = made_up(1, 2, 5)
    lanes = TraceOp('a"b\\c', 0, 0, (0, 0, 1, 1)), TraceOp("d", 0, 0, (0, 1, 1, 1))
    odd = dataclasses.replace(trace, ops=lanes, epochs=trace.epochs[:1], clock_hz=1.2e9)
    odd.to_chrome_trace(tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    assert any(e["args"].get("op") == 'a"b\\c' for e in events)


def test_a_trace_is_written_whole_or_not_at_all(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(OutputError):
        trace.to_chrome_trace(tmp_path / "no" / "trace.json")
    broken = Trace(
        np.array([3]), trace.input[:1], trace.start[:1], trace.end[:1], trace.kind[:1], trace.cause[:1], (), (), 1e9
    )
    with pytest.raises(IndexError):
        broken.to_chrome_trace(tmp_path / "t.json")
    assert list(tmp_path.iterdir()) == []


def test_the_same_trace_is_the_same_file(trace: Trace, tmp_path: Path) -> None:
    for name in ("a", "b"):
        trace.to_chrome_trace(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()
