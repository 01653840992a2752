"""The one time that views show is that of a simulation of the whole batch, and its parts add up to it."""

from __future__ import annotations

import dataclasses

import pytest

from tbuda_lab.core.epochsim import Bound, batch_time, simulate
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import PlaceOp, ResizeOp, Session
from tests.epochsim.compiled import placed
from tests.placer.graphs import encoder
from tests.session.models import encoder as encoder_model


@pytest.mark.parametrize("batch", [1, 8])
def test_parts_add_up_to_the_simulated_batch(batch: int) -> None:
    result = placed(encoder(3, seq=128, hidden=256), overrides=(Override("epoch_break", ("l1.q", "l2.q")),))
    times, trace = batch_time(result, batch), simulate(result, batch)
    assert times.cycles == trace.cycles and times.per_input == trace.cycles / batch
    assert sum(times.parts.values()) == pytest.approx(times.per_input)
    assert [e.cycles for e in times.epochs] == [e.cycles for e in trace.epochs]
    for epoch, time in zip(result.placement.epochs, times.epochs, strict=True):
        assert time.cycles == time.steady + time.fill + time.stall + time.switch
        assert len(time.ops) == len(epoch.ops) and time.ops[time.longest].critical
        assert time.ops[time.slowest].cycles == max(op.cycles for op in time.ops)
        for name, op in zip(epoch.ops, time.ops, strict=True):
            row = result.placement.candidate(name)
            assert op.cycles >= op.kernel == int(row["cycles"])


def test_one_input_is_bounded_by_filling_and_many_by_the_slowest_op() -> None:
    result = placed(encoder(3, seq=128, hidden=256))
    assert batch_time(result, 1).epochs[0].bound in (Bound.FILL, Bound.SWITCH)
    assert batch_time(result, 4096).epochs[0].bound not in (Bound.FILL, Bound.SWITCH)


def test_a_batch_without_inputs_is_refused() -> None:
    with pytest.raises(ValueError, match="one input"):
        batch_time(placed(encoder(1, seq=128, hidden=256)), 0)


@pytest.mark.parametrize("microbatch", [1, 16])
def test_a_session_says_the_same_after_edits_as_a_simulation_from_nothing(microbatch: int) -> None:
    model, inputs = encoder_model(1)
    options = dataclasses.replace(CompileOptions(), microbatch=microbatch)
    session = Session(model, inputs, "e300", options=options)
    result = session.compile()
    assert session.time() == batch_time(result, microbatch)
    before = session.time().per_input
    name = result.placement.epochs[0].ops[session.time().epochs[0].longest]
    table = session.legal(name)
    other = next(size for size in table.legal if size != table.grid)
    for edit in (ResizeOp(name, other), PlaceOp(name, table.starts(*other)[0])):
        session.attempt(edit)
        assert session.time() == batch_time(session.compile(), microbatch)
        frame = session.frames.get("ops")
        assert frame.meta["time"] == session.time().per_input and frame.meta["batch"] == microbatch
    session.undo()
    session.undo()
    assert session.time().per_input == before
