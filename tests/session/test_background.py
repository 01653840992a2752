"""Compiling in a thread: the last good result stays, a new edit cancels, events tell."""

from __future__ import annotations

import re
import threading

import pytest
import torch

from tbuda_lab.core.compiler import request
from tbuda_lab.core.errors import Cancelled, OverrideError
from tbuda_lab.core.session import EpochBreak, ResizeOp, Session
from tests.session.models import encoder
from tests.session.test_edits import matmuls


def test_the_last_good_result_stays_until_the_next(mlp):
    first = mlp.result
    told: list[object] = []
    mlp.on("stale", told.append)
    mlp.apply(ResizeOp(matmuls(mlp)[0], (1, 1)))
    assert mlp.result is first and mlp.stale
    mlp.compile_async()
    second = mlp.wait(120)
    assert second is mlp.result is not first and not mlp.stale and told == [True, False]


def test_a_new_edit_cancels_the_running_compile(traced):
    graph, inputs = traced["mlp"]
    session = Session(graph, inputs, "e300")
    op = [node.name for node in session.graph("lowered").ops][1]
    reached, go_on = threading.Event(), threading.Event()

    def hold(stage: str, fraction: float) -> None:
        if stage == "place" and not reached.is_set():
            reached.set()
            go_on.wait(120)

    session.on("stage", hold)
    compiled: list[object] = []
    session.on("compiled", compiled.append)
    worker = session.compile_async()
    assert reached.wait(120)
    session.apply(EpochBreak(op))
    go_on.set()
    worker.join(120)
    assert not worker.is_alive() and compiled == [] and session.result is None
    assert session.wait(120).overrides == session.overrides
    assert len(compiled) == 1


def test_errors_of_the_background_come_out(mlp):
    problems: list[object] = []
    mlp.on("problem", problems.append)
    good = mlp.result
    mlp.apply(ResizeOp(matmuls(mlp)[0], (7, 7)))
    mlp.compile_async()
    with pytest.raises(OverrideError):
        mlp.wait(120)
    assert problems and mlp.result is good and mlp.stale


def test_cancel_stops_a_compile_and_it_can_be_started_again(traced):
    graph, inputs = traced["encoder"]
    session = Session(graph, inputs, "e300")
    forget = session.on("stage", lambda stage, _: session.cancel() if stage == "place" else None)
    with pytest.raises(Cancelled):
        session.compile()
    forget()
    assert session.compile() is session.result


@pytest.mark.parametrize("stage", ["passes", "lower", "balance", "place", "emit"])
def test_a_cancel_in_any_stage_ends_there(stage, traced):
    """The stage after it does not begin; nothing is shown of what was cut short, and the next compile is whole."""
    graph, inputs = traced["mlp"]
    session = Session(graph, inputs, "e300")
    begun: list[str] = []

    def heard(name: str, fraction: float) -> None:
        if fraction == 0.0:
            begun.append(name)
            if begun.count(stage) == 1 and name == stage:
                session.cancel()

    session.on("stage", heard)
    with pytest.raises(Cancelled):
        session.compile()
    assert begun[-1] == stage and session.result is None
    assert session.compile().netlist == Session(graph, inputs, "e300").compile().netlist


def test_edits_are_told(mlp):
    labels: list[str] = []
    mlp.on("edited", labels.append)
    op = matmuls(mlp)[0]
    mlp.apply(ResizeOp(op, (1, 1)))
    mlp.undo()
    mlp.redo()
    assert labels == [f"resize {op} to 1x1", f"undo resize {op} to 1x1", f"redo resize {op} to 1x1"]


@pytest.mark.parametrize(
    ("stage", "message"),
    [("trace", r"call \d+ of a module"), ("trace", r"op \d+ of \d+"), ("passes", r"pass \d+ of \d+, \w+")],
)
def test_a_compile_stops_inside_tracing_and_passes(stage: str, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says how far it was, and the next compile begins anew."""
    monkeypatch.setattr(request, "DETAIL_INTERVAL", 0.0)  # every word comes
    session = Session(*encoder(1), "n150", name="layer")
    told: list[str] = []

    def cancel(where: str, text: str) -> None:
        if where == stage and not told and re.fullmatch(f"{message}.*", text):
            told.append(text)
            session.cancel()

    session.on("detail", cancel)
    with pytest.raises(Cancelled, match=f"cancelled in stage '{stage}', "):
        session.compile()
    assert told and session.result is None and session.error is None
    assert session.stage == ("empty" if stage == "trace" else "traced")
    assert session.compile().netlist == Session(*encoder(1), "n150", name="layer").compile().netlist


def test_wait_starts_a_compile_and_says_cancelled_only_where_somebody_cancelled() -> None:
    session = Session(torch.nn.Linear(32, 32).eval(), (torch.randn(1, 32),), name="alone")
    assert session.wait(120) is session.result
    session.configure(enable_auto_fusing=False)
    assert session.wait(120).options.enable_auto_fusing is False
    session.configure(schedule_swaps=3)
    session.cancel()
    with pytest.raises(Cancelled):
        session.wait(120)
    session.compile_async()
    assert session.wait(120).options.schedule_swaps == 3
