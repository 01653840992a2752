"""Runs that are watched, paused, stepped and compared op by op."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest
import torch

from tbuda_lab.core.errors import Cancelled, InputError, UnsupportedOp
from tbuda_lab.core.lowering.evaluate import evaluate_ops
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session import EpochBreak, FormatOp, Session
from tbuda_lab.core.session.op_checks import OpChecks
from tbuda_lab.core.session.runs import LiveStep
from tests.session.models import encoder, perceptron


@pytest.fixture(scope="module")
def session() -> Session:
    """Two epochs of one encoder layer."""
    session = Session(*encoder(1), "n150", name="encoder")
    ops = [node.name for node in session.graph("lowered").ops]
    session.apply(EpochBreak(ops[len(ops) // 2]))
    assert len(session.compile().placement.epochs) == 2
    return session


@pytest.fixture
def heard(session: Session) -> Iterator[list[LiveStep]]:
    steps: list[LiveStep] = []
    stop = session.on("live", steps.append)
    yield steps
    stop()
    session.control.reset()


def started(session: Session, inputs: int = 1) -> tuple[threading.Thread, list[object]]:
    """A run in a thread; the list gets its outputs or its error."""
    came: list[object] = []

    def work() -> None:
        try:
            came.append(session.run([session.sample_inputs] * inputs))
        except Cancelled as error:
            came.append(error)

    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread, came


def until(condition: Callable[[], bool], patience: float = 120) -> None:
    deadline = time.monotonic() + patience
    while not condition():
        assert time.monotonic() < deadline, "it did not happen"
        time.sleep(0.005)


class TickingClock:
    """Time that goes on by 10 ms whenever somebody looks, in place of the module `time`: no machine is too slow."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        self.now += 0.01
        return self.now

    perf_counter = monotonic


# -- live -------------------------------------------------------------------------------------------------------------
def test_the_last_report_says_that_every_op_has_worked_on_every_input(session: Session, heard: list[LiveStep]) -> None:
    session.run([session.sample_inputs] * 3)
    last = heard[-1]
    assert not last.running and last.total == 3 and last.input == 3
    assert last.done.tolist() == [3] * len(last.ops) and set(last.ops) == set(session.result.placement.ops)
    for a, b in itertools.pairwise(heard):
        assert (b.done >= a.done).all()


def test_reports_are_rare(session: Session, heard: list[LiveStep], monkeypatch: pytest.MonkeyPatch) -> None:
    clock = TickingClock()
    monkeypatch.setattr("tbuda_lab.core.session.runs.time", clock)
    monkeypatch.setattr("tbuda_lab.sim.Executor.at_once", lambda *_: 1)
    began = clock.now
    session.run([session.sample_inputs] * 12)
    seconds = clock.now - began
    assert seconds > 2
    assert seconds / 0.25 - 3 <= len(heard) <= seconds / 0.25 + 3


# -- pause and step ---------------------------------------------------------------------------------------------------
def test_a_paused_run_stands_and_steps_epoch_by_epoch(session: Session, heard: list[LiveStep]) -> None:
    session.control.pause()
    thread, came = started(session, 2)
    until(lambda: session.control.waiting)
    assert heard[-1].paused and heard[-1].done.sum() == 0
    epoch = {n: p.epoch for n, p in session.result.placement.ops.items()}
    first = np.array([epoch[n] == 0 for n in heard[-1].ops])

    session.control.step_epoch()
    until(lambda: heard[-1].paused and heard[-1].done.any())
    assert heard[-1].done[first].tolist() == [1] * first.sum() and heard[-1].done[~first].sum() == 0
    between = [heard[-1].levels[i] for i, q in enumerate(heard[-1].queues) if "e2e" in q]
    assert between and min(between) == 1  # what the second epoch is going to read lies there

    session.control.step_input()
    until(lambda: heard[-1].paused and heard[-1].done[~first].all())
    assert heard[-1].done.tolist() == [1] * len(first)

    session.control.resume()
    thread.join(120)
    assert heard[-1].done.tolist() == [2] * len(first)
    outputs = came[0]
    torch.testing.assert_close(outputs[0][0], outputs[1][0])  # type: ignore[index]


def test_a_pause_in_the_middle_holds_and_a_cancel_ends_it(session: Session, heard: list[LiveStep]) -> None:
    stop = session.on("run", lambda done, _: done and session.control.pause())  # however fast the machine is
    thread, came = started(session, 200)
    until(lambda: session.control.waiting)
    stop()
    before = heard[-1].done.sum()
    time.sleep(0.4)
    assert 0 < before == heard[-1].done.sum() < 200 * len(heard[-1].ops)
    session.cancel()
    thread.join(120)
    assert isinstance(came[0], Cancelled) and not heard[-1].running
    assert session.run()  # what was cancelled has left nothing behind


def test_the_next_run_is_not_paused(session: Session, heard: list[LiveStep]) -> None:
    session.control.pause()
    thread, _ = started(session)
    until(lambda: session.control.waiting)
    session.control.step_input()
    thread.join(120)
    assert not thread.is_alive() and not session.control.paused
    session.run()


# -- against torch ----------------------------------------------------------------------------------------------------
def test_the_lowered_graph_evaluates_as_the_model_does(session: Session) -> None:
    result = session.result
    (name,) = (n.name for n in result.graph.inputs)
    inputs = {b.name: torch.from_numpy(b.encode({name: session.sample_inputs[0]})) for b in result.inputs}
    values = {node.name: value for node, value in evaluate_ops(result.lowered, inputs)}
    assert set(values) == {n.name for n in result.lowered.ops}
    with torch.no_grad():
        expected = session.model(session.sample_inputs[0])
    (output,) = result.lowered.outputs
    _, _, rows, cols = output.shape
    got = values[output.sources[0]][:, :rows, :cols].reshape(expected.shape)
    torch.testing.assert_close(got, expected, rtol=2e-4, atol=2e-4)


def test_an_evaluation_that_is_left_half_way_changes_no_mode_of_torch(session: Session) -> None:
    """It begins where gradients are off, and what it works on is dropped where they are on."""
    result = session.compile()
    (name,) = (n.name for n in result.graph.inputs)
    inputs = {b.name: torch.from_numpy(b.encode({name: session.sample_inputs[0]})) for b in result.inputs}
    with torch.no_grad():
        values = evaluate_ops(result.lowered, inputs)
        next(values)
    assert torch.is_grad_enabled()
    next(values)
    assert torch.is_grad_enabled()
    del values
    assert torch.is_grad_enabled()


def test_every_op_of_a_good_run_is_good(session: Session) -> None:
    heard: list[object] = []
    stop = session.on("checked", heard.append)
    checks = session.verify_ops()
    stop()
    assert heard == [checks]
    assert not checks.unchecked and checks.first_failure is None
    assert {c.op for c in checks.ops} == set(session.result.placement.ops)
    assert min(c.comparison.pcc for c in checks.ops) > 0.999
    outputs = {node.name for node in session.result.graph.outputs}
    for stage in ("passed", "lowered"):
        assert outputs <= {c.name for c in checks.stages[stage]}
        assert min(c.pcc for c in checks.stages[stage]) > 0.9999


def test_streamed_ops_are_put_together_before_they_are_compared() -> None:
    from tbuda_lab.core.session import StreamOp

    session = Session(*perceptron(), "n150")
    session.apply(StreamOp("first.matmul", "r", (4, 1)))
    row = session.compile().placement.ops["first.matmul"].row
    assert session.result.placement.models["first.matmul"].rows[row]["stream_r"] == 4
    checks = session.verify_ops()
    assert checks.first_failure is None and checks["first.matmul"].comparison.pcc > 0.999


def test_a_broken_parameter_is_found_at_the_op_that_reads_it() -> None:
    session = Session(*perceptron(), "n150")
    result = session.compile()
    runner = Runner(result)
    broken = next(n for n in result.lowered["second.matmul"].sources if n in result.parameters and "weight" in n)
    right = result.parameters[broken]
    runner.executor.write(broken, np.random.default_rng(0).permutation(right.reshape(-1)).reshape(right.shape))
    checks = session.verify_ops(runner=runner)
    assert checks.first_failure is not None and checks.first_failure.op == "second.matmul"
    assert checks["first.matmul"].comparison.pcc > 0.999
    failed = checks.first_failure
    z, r, c = failed.first
    assert (
        failed.tiles.reshape(-1)[: np.ravel_multi_index((z, r, c), failed.tiles.shape)].max(initial=0)
        <= (0.05 * failed.comparison.scale)
        < failed.tiles[z, r, c]
    )
    assert failed.tiles.max() == pytest.approx(failed.comparison.max_abs)
    with pytest.raises(KeyError):
        checks["nobody"]
    other = Session(*perceptron(), "n150")
    other.compile()
    with pytest.raises(InputError):
        other.verify_ops(runner=runner)


# -- breaking at the first failure ------------------------------------------------------------------------------------
def test_a_run_pauses_behind_the_first_op_that_differs(heard: list[LiveStep]) -> None:
    """Bfp2_b leaves an op one bit of mantissa: that op is the first that fails, and nothing behind it has worked."""
    session = Session(*encoder(1), "n150", name="encoder")
    bad = "0.key.matmul"
    session.apply(FormatOp(bad, "Bfp2_b"))
    session.compile()
    steps: list[LiveStep] = []
    checks: list[OpChecks] = []
    session.on("live", steps.append)
    session.on("checked", checks.append)
    outputs: list[object] = []
    thread = threading.Thread(target=lambda: outputs.append(session.run(break_below=0.99)), daemon=True)
    thread.start()
    until(lambda: session.control.waiting)
    (result,) = checks
    assert result.first_failure is not None and result.first_failure.op == bad == steps[-1].op
    assert result.first_failure.first is not None and result.first_failure.comparison.pcc < 0.99
    worked = {n for n, done in zip(steps[-1].ops, steps[-1].done.tolist(), strict=True) if done}
    assert worked == {c.op for c in result.ops}
    session.control.step_op()
    until(lambda: session.control.waiting and steps[-1].done.sum() == len(worked) + 1)
    session.control.resume()
    thread.join(120)
    assert len(outputs) == 1 and len(checks) == 2
    assert {c.op for c in checks[-1].ops} == set(session.result.placement.ops)
    whole = session.verify_ops()
    for check in checks[-1].ops:
        assert check.comparison.pcc == pytest.approx(whole[check.op].comparison.pcc)
    session.undo()
    session.run(break_below=0.9)  # nothing fails: it comes to its end, nobody has to resume it


def test_a_step_of_one_op_is_smaller_than_a_microbatch() -> None:
    session = Session(*perceptron(), "n150", CompileOptions(microbatch=4))
    session.compile()
    steps: list[LiveStep] = []
    session.on("live", steps.append)
    session.control.pause()
    thread, came = started(session, 4)
    for count in range(1, 1 + len(session.result.placement.ops)):
        until(lambda: session.control.waiting)
        session.control.step_op()
        until(lambda c=count: (steps[-1].done > 0).sum() >= c and (steps[-1].paused or not steps[-1].running))
        assert (steps[-1].done > 0).sum() == count
    session.control.resume()
    thread.join(120)
    assert steps[-1].done.tolist() == [4] * len(steps[-1].ops) and len(came) == 1


def test_the_sample_fills_a_microbatch() -> None:
    model, inputs = perceptron()
    session = Session(model, inputs, "n150", options=CompileOptions(microbatch=4), name="four")
    done: list[tuple[int, int]] = []
    session.on("run", lambda *of: done.append(of))
    assert all(c.passes(0.99) for c in session.verify())
    assert done[-1] == (4, 4)
    assert len(session.run()) == 1 and len(session.run([inputs[0]] * 8)) == 8
    assert all(c.passes(0.99) for c in session.verify(torch.randn(2, 128, 256)))  # two of four
    with pytest.raises(InputError, match="3 inputs given, the model runs 4 at a time"):
        session.run([inputs[0]] * 3)


# -- inputs by name -------------------------------------------------------------------------------------------------
class Weighted(torch.nn.Module):
    def forward(self, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return left - 2 * right


def test_a_dict_of_inputs_is_taken_by_argument_name():
    torch.manual_seed(0)
    left, right = torch.randn(1, 32, 32), torch.randn(1, 32, 32)
    session = Session(Weighted(), {"right": right, "left": left})
    (comparison,) = session.verify()
    assert comparison.pcc > 0.999
    (output,) = session.run([{"left": right, "right": left}])[0]
    torch.testing.assert_close(output, right - 2 * left, rtol=2e-2, atol=5e-2)


@pytest.mark.parametrize("one", [torch.ones(1, 64), np.ones((1, 64)), {"x": torch.ones(1, 64)}, 3])
def test_one_sample_is_no_list_of_samples(one: object) -> None:
    session = Session(torch.nn.Linear(64, 32).eval(), (torch.ones(1, 64),), "n150", cache=False)
    for run in (session.run, session.run_on_workers):
        with pytest.raises(InputError, match=r"run takes a list of samples, not .*write run\(\[sample\]\)"):
            run(one)


def test_outputs_of_whole_numbers_are_exact_and_stand_where_the_model_has_them() -> None:
    class Tagged(torch.nn.Module):
        def forward(self, x: torch.Tensor, ids: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return ids + 12345, torch.relu(x), torch.arange(500), ids > 3, ids

    x, ids = torch.randn(2, 4, 32), torch.randint(0, 100_000, (2, 4))
    session = Session(Tagged(), (x, ids), cache=False)
    outputs = session.run()[0]
    for have, want in zip(outputs, Tagged()(x, ids), strict=True):
        if want.dtype == torch.int64 and want.shape == ids.shape:
            assert have.dtype == torch.int64
            assert torch.equal(have, want)
    assert torch.equal(outputs[2].flatten()[:500].long(), torch.arange(500))
    assert all(c.pcc > 0.99 for c in session.verify()[:2])


def test_a_model_of_whole_numbers_alone_is_refused_by_name() -> None:
    class Next(torch.nn.Module):
        def forward(self, ids: torch.Tensor) -> torch.Tensor:
            return ids + 1

    with pytest.raises(UnsupportedOp, match=r"no op of the model runs on the device.*\n.*add.*whole numbers"):
        Session(Next(), (torch.arange(4)[None],), cache=False).compile()


def test_a_sample_that_fills_a_microbatch_gives_the_bits_of_equal_samples() -> None:
    torch.manual_seed(4)
    model = torch.nn.Sequential(torch.nn.Linear(64, 96), torch.nn.GELU(), torch.nn.Linear(96, 64), torch.nn.Softmax(-1))
    x = torch.randn(1, 32, 64)
    session = Session(model.eval(), (x,), "n150", CompileOptions(microbatch=4), cache=False)
    session.apply(EpochBreak(session.compile().placement.schedule[1]))  # what is equal passes from epoch to epoch
    same, equal = session.run([x] * 4), session.run([x.clone() for _ in range(4)])
    assert all(torch.equal(a[0], b[0]) for a, b in zip(same, equal, strict=True))
    other = torch.randn(1, 32, 64)
    mixed = session.run([x, x, other, x])
    assert torch.equal(mixed[1][0], equal[0][0]) and torch.equal(mixed[3][0], equal[0][0])
    assert torch.equal(mixed[2][0], session.run([other.clone() for _ in range(4)])[0][0])
