"""The profile: its parts are the simulated time, each op's part is worked out anew here, edits keep their promise."""

from __future__ import annotations

import pytest

from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.session import EpochBreak, ResizeOp, Session
from tbuda_lab.widgets.handlers.queries import profile_frame
from tests.session.models import encoder, perceptron


@pytest.fixture(scope="module", params=[(1, "n150"), (8, "n150"), (4, "n300")], ids=str)
def session(request: pytest.FixtureRequest) -> Session:
    batch, device = request.param
    session = Session(*encoder(1), device, CompileOptions(microbatch=batch), name="layer")
    session.apply(ResizeOp("up.matmul", (1, 1)))
    session.compile()
    return session


def test_all_time_belongs_to_an_op_or_to_a_switch(session: Session) -> None:
    profile, time = session.profile(), session.time()
    assert sum(o.time for o in profile.ops) + profile.switch == pytest.approx(profile.total)
    assert profile.total == time.cycles / time.batch == session.frames.get("ops").meta["time"]
    assert sum(o.share for o in profile.ops) + profile.switch / profile.total == pytest.approx(1)
    assert sorted(o.op for o in profile.ops) == sorted(session.result.placement.ops)
    for depth in (None, 1):
        modules = profile.modules(depth)
        assert sum(m.time for m in modules) == pytest.approx(profile.total - profile.switch)
        assert sum(m.ops for m in modules) == len(profile.ops)


def test_the_steady_part_of_an_epoch_is_its_slowest_ops(session: Session) -> None:
    """By hand, from the trace of the simulation: the slowest op has at least batch x its cycles."""
    profile = {o.op: o for o in session.profile().ops}
    trace = session.timeline(session.options.microbatch)
    temporal = [e.temporal for e in session.result.placement.epochs]
    for epoch in trace.epochs:
        beside = [e for e in trace.epochs if temporal[e.index] == temporal[epoch.index]]
        if epoch is max(beside, key=lambda e: e.cycles):
            assert profile[epoch.slowest_op].time >= epoch.slowest * (1 - 1e-9)


def test_edits_belong_to_their_ops_and_keep_their_promise() -> None:
    session = Session(*perceptron(), "n150", CompileOptions(microbatch=8), name="mlp")
    session.apply(ResizeOp("first.matmul", (1, 1)))
    first = session.profile(edits=6).ops[0]
    assert first.op == "first.matmul" and first.edit is not None and first.gain > 0, "what to do next comes first"
    before = session.time().per_input
    session.apply(*first.edit.commands)
    assert before - session.time().per_input == pytest.approx(first.gain)


def test_the_frame_is_the_profile(session: Session) -> None:
    frame, profile = profile_frame(session, []), session.profile()
    assert frame.text("op_name") == [o.op for o in profile.ops]
    assert frame.columns["op_time"].tolist() == [o.time for o in profile.ops]
    assert (frame.columns["op_edit"] == -1).all() and frame.meta["edits"] == []


def test_rows_of_a_comparison_add_up_to_the_change_of_the_model() -> None:
    """Every delta is of simulated time; what the rows do not say is `rest`, worked out anew from the two profiles."""
    session = Session(*perceptron(), "n150", CompileOptions(microbatch=8), name="mlp")
    was, switch = {o.op: o.time for o in session.profile().ops}, session.profile().switch
    session.apply(ResizeOp("first.matmul", (1, 1)), EpochBreak("second.matmul"))
    session.compile()
    diff = session.diff("start", "now")
    assert diff.has_simulated_time and diff.time[1] == session.time().per_input
    assert sum(c.delta for c in diff.changes) + diff.rest == pytest.approx(diff.time[1] - diff.time[0])
    now = {o.op: o.time for o in session.profile().ops}
    listed = {c.op for c in diff.changes}
    assert "first.matmul" in listed
    assert {c.op: c.delta for c in diff.changes} == pytest.approx({op: now[op] - was[op] for op in listed})
    others = sum(now[op] - was[op] for op in now.keys() - listed)
    assert diff.rest == pytest.approx(others + session.profile().switch - switch, abs=1e-6)
