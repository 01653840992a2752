"""The passes one by one: what they say they changed is what leads from graph to graph."""

from __future__ import annotations

import threading

import pytest

from tbuda_lab.core import passes
from tbuda_lab.core.errors import Cancelled
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.frames.graph_frame import CHANGES, pass_frame, passes_frame
from tbuda_lab.core.graph.diff import diff
from tbuda_lab.core.graph.text import print_graph
from tbuda_lab.core.passes import Pass, Report, pipeline
from tbuda_lab.core.passes.pipeline import PassTrace, light, trace_passes
from tbuda_lab.core.session import Session
from tests.session.models import encoder


@pytest.fixture(scope="module")
def session() -> Session:
    session = Session(*encoder(1), "n150")
    session.trace()
    return session


@pytest.fixture(scope="module")
def trace(session: Session) -> PassTrace:
    return session.passes()


def test_every_pass_is_there_in_order(session: Session, trace: PassTrace) -> None:
    assert [s.name for s in trace.steps] == [p.name for p in passes.PIPELINE] and trace.error == ""
    assert [s.rewrites for s in trace.steps] == [r.rewrites for r in passes.run(session.trace()).reports]
    assert session.passes() is trace, "they are not run again while the options stay"
    session.configure(enable_t_streaming=False)
    assert session.passes() is not trace
    session.undo()


def test_the_last_graph_is_the_passed_one(session: Session, trace: PassTrace) -> None:
    expected = light(session.graph("passed"))
    assert not diff(expected, trace.steps[-1].graph)
    assert print_graph(expected) == print_graph(trace.steps[-1].graph)


def test_changes_lead_from_graph_to_graph(trace: PassTrace) -> None:
    for step in trace.steps:
        before, after = trace.before(step.index), step.graph
        assert (len(before), len(after)) == (step.before, step.after)
        names = set(before.nodes)
        assert set(step.changes.removed) <= names
        assert (names - set(step.changes.removed)) | set(step.changes.added) == set(after.nodes)
        for change in step.changes.changed:
            assert change.name in before.nodes and change.name in after.nodes and change.facets
        assert bool(step.changes) or step.before == step.after


def test_values_are_not_kept(trace: PassTrace) -> None:
    assert any(n.value is not None for n in Session(*encoder(1), "n150").trace())
    for graph in (trace.first, *(s.graph for s in trace.steps)):
        assert all(n.value is None and n.recipe is None for n in graph)


def test_a_pass_that_refuses_ends_the_list(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    from tbuda_lab.core.errors import UnsupportedOp

    class Refuses(Pass):
        name, doc = "refuses", "Take nothing"

        def apply(self, graph: object) -> Report:
            raise UnsupportedOp("not this one")

    monkeypatch.setattr(pipeline, "PIPELINE", (*passes.PIPELINE[:3], Refuses(), *passes.PIPELINE[3:]))
    ended = trace_passes(session.trace())
    assert len(ended.steps) == 3 and "not this one" in ended.error


def test_cancel(session: Session) -> None:
    stop = threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        trace_passes(session.trace(), cancel=stop)


def test_frames(trace: PassTrace) -> None:
    listed = Frame.unpack(*passes_frame(trace).pack())
    assert listed.text("step_name") == [s.name for s in trace.steps]
    for step in trace.steps:
        counts = [int(listed.columns[f"step_{k}"][step.index]) for k in ("added", "removed", "changed")]
        assert counts == [len(step.changes.added), len(step.changes.removed), len(step.changes.changed)]
        for side, kinds in (("after", {1: step.changes.added}), ("before", {3: step.changes.removed})):
            frame = Frame.unpack(*pass_frame(trace, step.index, side).pack())
            names = frame.text("node_name")
            pairs = list(zip(names, frame.columns["node_change"].tolist(), strict=True))
            marked = {k: {n for n, c in pairs if c == k} for k in (1, 2, 3)}
            for kind, expected in kinds.items():
                assert marked[kind] == set(expected) & set(names)
            assert marked[2] == {c.name for c in step.changes.changed} & set(names)
            assert frame.meta["changes"] == sum(counts)
            for name, what in zip(frame.text("change_name"), frame.columns["change_what"].tolist(), strict=True):
                groups = {
                    "added": step.changes.added,
                    "removed": step.changes.removed,
                    "changed": tuple(c.name for c in step.changes.changed),
                }
                assert name in groups[CHANGES[what]]
            parents = frame.columns["group_parent"].tolist()
            assert all(parents[g] in frame.meta["open"] for g in frame.meta["open"] if g)
