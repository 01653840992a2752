"""What an edit reuses must be what would be made anew, and a refused edit must leave nothing behind."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest

from tbuda_lab.core.compiler import host_parameters
from tbuda_lab.core.epochsim import batch_time
from tbuda_lab.core.errors import OverrideError, TbudaError
from tbuda_lab.core.frames import result_frames
from tbuda_lab.core.session import EpochBreak, PlaceOp, QueueChannel, ResizeOp, Session
from tests.session.scratch import same_as_from_scratch


def edits_of(session: Session, seed: int, count: int) -> list:
    rng = np.random.default_rng(seed)
    ops = list(session.compile().placement.ops)
    result = []
    while len(result) < count:
        op = ops[int(rng.integers(len(ops)))]
        table = session.legal(op)
        size = table.legal[int(rng.integers(len(table.legal)))]
        start = table.starts(*size)[0] if table.starts(*size) else (0, 0)
        kinds = [ResizeOp(op, size), EpochBreak(op), PlaceOp(op, start)]
        result.append(kinds[int(rng.integers(3))])
    return result


@pytest.mark.parametrize("seed", range(2))
def test_an_edited_result_is_what_its_epochs_give_from_scratch(bert: Session, seed: int) -> None:
    result = 0
    for edit in edits_of(bert, seed, 4):
        try:
            bert.attempt(edit)
        except TbudaError:
            continue
        result += 1
        expected, got = same_as_from_scratch(bert), bert.compile().placement
        notes = [d for d in got.diagnostics if d in expected.diagnostics]
        assert len(notes) == len(expected.diagnostics)
        assert got.report is not None and expected.report is not None
        without = [[dataclasses.replace(e, end_reason="") for e in r.epochs] for r in (got.report, expected.report)]
        assert without[0] == without[1]
        # bounds of the whole placement hold; those of the narrower tables are no lower
        ours, theirs = got.report.bounds, expected.report.bounds
        assert (ours.achieved_kernel, ours.achieved_limiter) == (theirs.achieved_kernel, theirs.achieved_limiter)
        assert ours.area <= theirs.area and ours.dram <= theirs.dram and ours.critical_op <= theirs.critical_op
    assert result >= 2


def test_frames_are_those_of_the_result_and_made_once(bert: Session) -> None:
    edit = next(e for e in edits_of(bert, 1, 20) if isinstance(e, ResizeOp) and e.size != bert.legal(e.op).grid)
    first = {f.key: f for f in bert.frames.of(bert.compile())}
    bert.attempt(edit)
    second = {f.key: f for f in bert.frames.of(bert.compile())}
    fresh = bert.compile()
    for frame in result_frames(fresh, batch_time(fresh, fresh.options.microbatch)):
        header, buffer = frame.pack()
        assert second[frame.key].pack() == (header, buffer)
    assert all(first[key] is second[key] for key in first if key.startswith("graph:"))
    assert first["ops"] is not second["ops"]
    bert.undo()
    assert all(first[f.key] is f for f in bert.frames.of(bert.compile()))


def test_results_share_what_no_edit_changed(bert: Session) -> None:
    before = bert.compile()
    edit = next(e for e in edits_of(bert, 2, 20) if isinstance(e, ResizeOp) and e.size != bert.legal(e.op).grid)
    after = bert.attempt(edit)
    old = {op.name: op for _, op in before.netlist.ops()}
    new = {op.name: op for _, op in after.netlist.ops()}
    assert all((old[name] is op) == (old[name] == op) for name, op in new.items() if name in old)
    assert any(old.get(name) is op for name, op in new.items())
    fresh = host_parameters(after.lowered)
    assert fresh.keys() <= after.parameters.keys()
    for name, value in fresh.items():
        assert after.parameters[name] is before.parameters[name]
        np.testing.assert_array_equal(after.parameters[name], value)


def test_an_edit_refused_late_is_forgotten(mlp: Session) -> None:
    op = next(iter(mlp.compile().placement.ops))
    size = next(s for s in mlp.legal(op).legal if s != mlp.legal(op).grid)
    mlp.attempt(ResizeOp(op, size))
    mlp.undo()
    queue = next(iter(mlp.compile().placement.queues))
    done, waiting, result = mlp.history, mlp.future, mlp.compile()
    assert waiting
    with pytest.raises(OverrideError):
        mlp.attempt(QueueChannel(queue, channel=99))
    assert (mlp.history, mlp.future, mlp.overrides) == (done, waiting, ())
    assert mlp.result is result and not mlp.stale and mlp.error is None
    assert mlp.redo() and mlp.legal(op).grid == size


def test_a_transaction_taken_back_keeps_what_can_be_done_again(mlp: Session) -> None:
    op = next(iter(mlp.compile().placement.ops))
    mlp.apply(EpochBreak(op))
    mlp.undo()
    with pytest.raises(RuntimeError), mlp.transaction("nothing"):
        mlp.apply(ResizeOp(op, (1, 1)))
        raise RuntimeError
    assert [s.label for s in mlp.future] == [f"epoch break before {op}"] and not mlp.history
