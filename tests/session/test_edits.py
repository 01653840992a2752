"""Edits: one undo stack, results looked up, epochs that no edit touches left alone, values that stay right."""

from __future__ import annotations

import numpy as np
import pytest

from tbuda_lab.core import netlist
from tbuda_lab.core.errors import InputError, OverrideError, TbudaError
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import (
    ClearOp,
    EpochBreak,
    Optimise,
    PlaceOp,
    QueueChannel,
    ResizeOp,
    Session,
    SetOptions,
    SetOverride,
    SetUkt,
    StreamOp,
)


def matmuls(session: Session) -> list[str]:
    placement = session.result.placement
    return [n for n in placement.schedule if placement.models[n].profile.kind == "matmul"]


def other_shape(session: Session, op: str) -> tuple[int, int]:
    table = session.legal(op)
    return next(s for s in table.legal if s != table.grid)


def check_placement(session: Session) -> None:
    """Rectangles lie on the grid, do not overlap, are as large as their candidates, and no op reads a later epoch."""
    result = session.result
    placement, device = result.placement, result.device
    assert [op for e in placement.epochs for op in e.ops] == list(placement.schedule)
    for epoch in placement.epochs:
        busy = np.zeros((device.rows, device.cols), dtype=int)
        for name in epoch.ops:
            spot, row = placement.ops[name], placement.candidate(name)
            assert spot.epoch == epoch.index and row["reason"] == 0
            grid = (row["grid_r"], row["grid_c"])
            assert spot.size == (grid[::-1] if spot.transposed else grid)
            (top, left), (height, width) = spot.start, spot.size
            assert top + height <= device.rows and left + width <= device.cols
            busy[top : top + height, left : left + width] += 1
        assert busy.max() == 1
    for node in result.lowered.ops:
        for source in node.sources:
            if source in placement.ops:
                assert placement.ops[source].epoch <= placement.ops[node.name].epoch


def test_an_edit_changes_its_op_and_leaves_other_epochs_alone(bert):
    before = bert.result.placement
    op = matmuls(bert)[3]
    size = other_shape(bert, op)
    bert.apply(ResizeOp(op, size))
    assert bert.stale and bert.result.placement is before
    after = bert.compile().placement
    check_placement(bert)
    row = after.candidate(op)
    assert (row["grid_r"], row["grid_c"]) == size
    here = before.ops[op].epoch
    for epoch in before.epochs[:here]:
        for name in epoch.ops:
            assert after.ops[name] == before.ops[name]
    for epoch in before.epochs[here + 1 :]:
        for name in epoch.ops:
            assert after.ops[name].start == before.ops[name].start
            assert after.ops[name].size == before.ops[name].size


def test_only_what_depends_on_an_edit_runs_again(bert):
    runs = dict(bert.work)
    op = matmuls(bert)[0]
    bert.apply(ResizeOp(op, other_shape(bert, op)))
    bert.compile()
    again = {k: v - runs.get(k, 0) for k, v in bert.work.items() if v != runs.get(k, 0)}
    assert again == {"table": 1, "edit": 1, "epoch": 1}
    runs = dict(bert.work)
    bert.apply(EpochBreak(matmuls(bert)[2]))
    bert.compile()
    assert {k for k, v in bert.work.items() if v != runs.get(k, 0)} == {"edit", "epoch"}
    bert.configure(balancer_policy="MinimizeGrid")
    runs = dict(bert.work)
    bert.compile()
    assert "lower" not in {k for k, v in bert.work.items() if v != runs.get(k, 0)}


def test_undo_and_redo_are_lookups(bert):
    first = bert.result
    op = matmuls(bert)[1]
    bert.apply(ResizeOp(op, other_shape(bert, op)))
    second = bert.compile()
    done = bert.work
    assert bert.undo() == f"resize {op} to {second.placement.candidate(op)['grid_r']}x" + str(
        second.placement.candidate(op)["grid_c"]
    )
    assert bert.result is first and not bert.stale
    bert.redo()
    assert bert.result is second and not bert.stale
    assert bert.work == done, "nothing is worked out again"
    bert.undo()
    assert bert.undo() == "" and bert.overrides == ()
    assert bert.redo() and bert.redo() == ""


@pytest.mark.parametrize("number", range(6))
def test_every_command_has_an_inverse(shared, number):
    op = matmuls(shared)[0]
    state = shared.request
    busy = state.put(Override("op_size", op, (1, 1))).put(Override("epoch_break", op))
    command = [
        ResizeOp(op, (1, 2)),
        PlaceOp(op, (0, 0)),
        EpochBreak(op, on=False),
        ClearOp(op),
        SetOptions(seed=3),
        Optimise(),
    ][number]
    for start in (state, busy):
        after = command.apply(start)
        assert command.inverse(start).apply(after) == start


def test_a_transaction_is_one_step_and_an_exception_takes_it_back(mlp):
    ops = matmuls(mlp)
    with mlp.transaction("both"):
        mlp.apply(ResizeOp(ops[0], (1, 1)))
        mlp.apply(ResizeOp(ops[1], (1, 1)))
    assert [s.label for s in mlp.history] == ["both"] and len(mlp.overrides) == 2
    with pytest.raises(RuntimeError), mlp.transaction("never"):
        mlp.apply(EpochBreak(ops[1]))
        raise RuntimeError
    assert len(mlp.overrides) == 2 and len(mlp.history) == 1
    mlp.undo()
    assert mlp.overrides == () and not mlp.stale


def test_the_same_edits_give_the_same_netlist_in_any_order(traced):
    graph, inputs = traced["encoder"]
    texts = set()
    for order in ((0, 1, 2), (2, 1, 0), (1, 0, 2)):
        session = Session(graph, inputs, "e300", name="encoder")
        session.compile()
        ops = matmuls(session)
        edits = [ResizeOp(ops[0], (1, 1)), ResizeOp(ops[5], (1, 1)), EpochBreak(ops[7])]
        for i in order:
            session.apply(edits[i])
            session.compile()
        texts.add(netlist.dumps(session.result.netlist))
    assert len(texts) == 1


def test_epoch_breaks_come_and_go(bert):
    op = matmuls(bert)[2]
    first = bert.result.placement
    assert first.epochs[first.ops[op].epoch].ops[0] != op
    bert.gesture(f"break at {op}")
    after = bert.compile().placement
    check_placement(bert)
    assert after.epochs[after.ops[op].epoch].ops[0] == op
    assert [r.state for r in bert.records] == ["obtained"]
    bert.gesture(f"unbreak {op}")
    assert bert.result.placement is first
    # a break that stood from the beginning may go too
    session = Session(bert.model, bert.sample_inputs, "e300", overrides=[Override("epoch_break", op)])
    many = len(session.compile().placement.epochs)
    session.apply(EpochBreak(op, on=False))
    assert len(session.compile().placement.epochs) <= many
    check_placement(session)


def test_pins_hold_and_nothing_else_moves_when_there_is_room(bert):
    bert.apply(ResizeOp(matmuls(bert)[0], (1, 1)))  # the epoch was full: a core of it is free now
    tables = {op: bert.legal(op) for op in bert.compile().placement.schedule}
    free = ((op, s) for op, table in tables.items() for s in table.starts(*table.grid) if s != table.start)
    op, start = next(free)
    effect = bert.whatif(PlaceOp(op, start))
    assert {d.op for d in effect.displaced} == {op} and effect.total_cycles[0] == effect.total_cycles[1]
    bert.apply(PlaceOp(op, start))
    assert bert.compile().placement.ops[op].start == start
    check_placement(bert)
    assert [record.state for record in bert.records] == ["obtained"] * 2


def test_edited_placements_still_compute_the_model(mlp):
    first, second = matmuls(mlp)[:2]
    mlp.apply(ResizeOp(first, other_shape(mlp, first)), EpochBreak(second), label="apart")
    assert mlp.verify()[0].pcc > 0.99
    check_placement(mlp)


def test_random_edits_keep_every_promise(bert):
    rng = np.random.default_rng(5)
    for _ in range(12):
        names = list(bert.result.placement.schedule)
        op = names[rng.integers(len(names))]
        kind = rng.integers(4)
        if kind == 0:
            bert.apply(EpochBreak(op))
        elif kind == 1 and bert.overrides:
            bert.apply(ClearOp(str(bert.overrides[rng.integers(len(bert.overrides))].target)))
        else:
            legal = bert.legal(op).legal
            bert.apply(ResizeOp(op, legal[rng.integers(len(legal))]))
        bert.compile()
        check_placement(bert)
        assert {r.state for r in bert.records} <= {"obtained"}


def test_overrides_that_cannot_be_are_vetoed_with_a_reason(bert):
    op = matmuls(bert)[0]
    good = bert.result
    bert.apply(ResizeOp(op, (7, 7)))
    with pytest.raises(OverrideError):
        bert.compile()
    record = bert.records[0]
    assert record.state == "vetoed" and "legal rows" in record.because
    assert bert.result is good and bert.stale
    bert.undo()
    assert not bert.stale and bert.records == ()
    bert.apply(ResizeOp("no_such_op", (1, 1)))
    bert.compile()
    assert bert.records[0].state == "unmatched" and bert.records[0].matches == 0


def test_overrides_are_taken_as_before_and_python_says_them(mlp):
    op = matmuls(mlp)[0]
    mlp.apply(Override("u_kt", op, 1), QueueChannel(op, 1), StreamOp(op, "r", (2, 1)), PlaceOp(op, (1, 1), True, 0))
    assert [o.kind for o in mlp.overrides] == [
        "u_kt",
        "queue_channel",
        "t_stream_dir",
        "t_stream_shape",
        "op_placement",
    ]
    assert mlp.to_python().splitlines() == [
        f"pybuda.config.override_u_kt({op!r}, 1)",
        f"pybuda.config.override_dram_queue_placement({op!r}, channel=1)",
        f"pybuda.config.override_t_stream_dir({op!r}, 'r')",
        f"pybuda.config.override_t_stream_shape({op!r}, (2, 1))",
        f"pybuda.config.override_op_placement({op!r}, start=(1, 1), transpose_op=True, chip_id=0)",
    ]
    mlp.apply(SetUkt(op, 2))
    assert mlp.overrides[0].value == 2 and len(mlp.overrides) == 5


def test_python_of_a_pattern_names_what_it_matches(mlp):
    import re

    first, second = matmuls(mlp)[:2]
    mlp.compile()
    mlp.apply(Override("op_size", re.compile(r".*\.matmul"), (1, 1)))
    mlp.compile()
    lines = mlp.to_python().splitlines()
    calls = [line for line in lines if not line.startswith("#")]
    matched = [name for name in mlp.result.placement.ops if name.endswith(".matmul")]
    assert lines[0].startswith("# op_size of /.*") and {first, second} <= set(matched)
    assert calls == [f"pybuda.config.override_op_size({name!r}, (1, 1))" for name in matched]
    assert mlp.records[0].python.splitlines()[1:] == calls


def test_python_calls_mean_the_same_in_the_pybuda_face(mlp):
    import tbuda_lab as pybuda
    import tbuda_lab.pybuda.config
    from tbuda_lab.pybuda import config

    op = matmuls(mlp)[0]
    mlp.apply(ResizeOp(op, (2, 2)), PlaceOp(op, (1, 0), chip=0), EpochBreak(op), SetUkt(op, 1))
    config._clear_global_compiler_config()
    try:
        exec(mlp.to_python(), {"pybuda": pybuda})
        got = [(o.kind, o.target, o.value) for o in config._get_global_compiler_config().overrides]
    finally:
        config._clear_global_compiler_config()
    assert got == [(o.kind, o.target, o.value) for o in mlp.overrides]


def test_python_says_options_that_edits_changed(mlp):
    import tbuda_lab as pybuda
    from tbuda_lab.pybuda import config

    assert mlp.to_python() == ""
    mlp.apply(SetOptions(balancer_policy="Ribbon", enable_t_streaming=False, op_parts=(("up.matmul", 2),)))
    config._clear_global_compiler_config()
    try:
        exec(mlp.to_python(), {"pybuda": pybuda})
        got = config._get_global_compiler_config()
    finally:
        config._clear_global_compiler_config()
    assert (got.balancer_policy, got.enable_t_streaming) == ("Ribbon", False)
    call, comment = mlp.to_python().splitlines()
    assert call.startswith("pybuda.config.set_configuration_options(") and "op_parts" not in call
    assert comment.startswith("# ") and "SetOptions(op_parts=(('up.matmul', 2),))" in comment
    mlp.undo()
    assert mlp.to_python() == ""


def test_malformed_edits_never_enter_the_stack(mlp):
    for make in (
        lambda: ResizeOp("a", (0, 1)),
        lambda: ResizeOp("a", "44"),
        lambda: PlaceOp("a"),
        lambda: PlaceOp("a", (-1, 0)),
        lambda: StreamOp("a", "q"),
        lambda: StreamOp("a"),
        lambda: SetUkt("a", 0),
        lambda: QueueChannel("q"),
        lambda: SetOptions(no_such_option=1),
    ):
        with pytest.raises(TbudaError):
            make()


def test_gestures_say_what_they_know(mlp):
    op = matmuls(mlp)[0]
    mlp.gesture(f"resize {op} to 2x1")
    mlp.gesture(f"move '{op}' to 1,2 transposed")
    assert [o.value for o in mlp.overrides] == [(2, 1), {"start": (1, 2), "transpose": True}]
    mlp.gesture("undo")
    mlp.gesture("redo")
    mlp.gesture(f"clear {op}")
    assert mlp.overrides == () and len(mlp.history) == 3
    with pytest.raises(InputError) as refused:
        mlp.gesture(f"enlarge {op}")
    assert "resize OP to ROWSxCOLUMNS" in str(refused.value)


def test_checkpoints_differ_as_the_edits_say(bert):
    op = matmuls(bert)[0]
    bert.checkpoint("A")
    was = bert.legal(op).grid
    size = other_shape(bert, op)
    bert.apply(ResizeOp(op, size))
    diff = bert.diff("A")
    change = next(c for c in diff.resized if c.op == op)
    assert (change.before.grid, change.after.grid) == (was, size)
    assert diff.limiter_cycles[1] == sum(e.limiter_cycles for e in bert.result.placement.report.epochs)
    assert op in diff.to_markdown() and not diff.added and not diff.removed
    assert bert.diff("A", "A").changes == ()
    with pytest.raises(InputError, match="A"):
        bert.diff("B")


def test_patterns_and_predicates(mlp):
    mlp.apply(SetOverride(Override("epoch_break", lambda name: name == matmuls(mlp)[1])))
    mlp.compile()
    assert mlp.records[0].matched == (matmuls(mlp)[1],) and mlp.records[0].state == "obtained"
