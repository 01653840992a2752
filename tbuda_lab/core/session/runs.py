"""The runs of a session: simulated in time, run on the simulated device with progress, every op against torch."""

from __future__ import annotations

import contextlib
import dataclasses
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.epochsim import EpochTrace, simulate
from tbuda_lab.core.errors import Cancelled, InputError
from tbuda_lab.core.explore.chips import ChipRun, run_chips
from tbuda_lab.core.frontend.eager import same, same_seeds
from tbuda_lab.core.frontend.inputs import cut_inputs
from tbuda_lab.core.frontend.machine_rules import explained
from tbuda_lab.core.runner import Runner, fill_microbatch
from tbuda_lab.core.session.compiles import Compiles, as_sample
from tbuda_lab.core.session.op_checks import OpCheck, OpChecks, OpWatch, check_ops
from tbuda_lab.core.verification import MIN_PCC, Comparison, compare_tensors
from tbuda_lab.sim.io import QueueIo, RamIo

if TYPE_CHECKING:
    from tbuda_lab.core.graph import Graph
    from tbuda_lab.core.session.state import Events, SessionState
    from tbuda_lab.core.session.training import Training


INTERVAL = 0.25
"""Seconds between two reports: with the status messages beside them a run stays below ten messages a second."""
_QUEUES = ("input", "output", "e2e")


@dataclasses.dataclass(frozen=True)
class LiveStep:
    """Where a run stands.

    done: (ops,) inputs that each op has worked on, in the order of `ops`; levels: (queues,) entries that each queue of
    `queues` holds of its `capacity`; input: how many inputs are done of `total`; epoch: index of the epoch at work, op:
    its last op that worked ("" before there was one); paused: it stands and waits; running: False in the last report.
    """

    ops: tuple[str, ...]
    done: np.ndarray
    queues: tuple[str, ...]
    levels: np.ndarray
    capacity: np.ndarray
    total: int
    input: int
    epoch: int
    op: str
    paused: bool
    running: bool


class LiveRun:
    """Follows one run (a `Watcher`) and emits "live"(LiveStep) at most every `interval` seconds, and whenever it
    pauses, while anybody listens."""

    def __init__(self, result: CompileResult, events: Events, interval: float = INTERVAL) -> None:
        self._placement, self._events, self._interval = result.placement, events, interval
        self._done: dict[str, int] = {}
        self._io: Mapping[str, QueueIo | RamIo] = {}
        self._total, self._op, self._due = 0, "", 0.0

    def begins(self, runner: Runner, total: int) -> None:
        self._io, self._total = runner.executor.io, total
        self._report(running=True)

    def on_step(self, op: str, inputs: int) -> None:
        if op not in self._placement.ops:
            return
        self._done[op] = self._done.get(op, 0) + inputs
        self._op = op
        if time.monotonic() >= self._due:
            self._report(running=True)

    def epoch_ended(self, graph: str) -> None:
        """Nothing to say: the next op tells."""

    def waits(self) -> None:
        self._report(running=True, paused=True)

    def ends(self) -> None:
        self._report(running=False)

    def _report(self, *, running: bool, paused: bool = False) -> None:
        self._due = time.monotonic() + self._interval
        if not self._events.heard("live"):
            return
        placed = self._placement.ops
        ops = tuple(n for n in self._placement.schedule if n in placed)
        done = np.array([self._done.get(n, 0) for n in ops], dtype=np.uint32)
        names = [q.name for q in self._placement.queues.values() if q.kind in _QUEUES]
        fifos = {n: q for n in names if isinstance(q := self._io.get(n), QueueIo)}
        self._events.emit(
            "live",
            LiveStep(
                ops,
                done,
                tuple(fifos),
                np.array([q.occupancy for q in fifos.values()], dtype=np.uint32),
                np.array([q.entries for q in fifos.values()], dtype=np.uint32),
                self._total,
                int(done.min(initial=self._total)),
                placed[self._op].epoch if self._op else 0,
                self._op,
                paused,
                running,
            ),
        )


TRACES_KEPT = 3


class Timelines:
    """The last traces of one result, by batch and inputs per round."""

    def __init__(self, result: CompileResult) -> None:
        self.result = result
        self._lock = threading.Lock()
        self._traces: OrderedDict[tuple[int, int | None], EpochTrace] = OrderedDict()

    def get(self, batch: int, per_run: int | None) -> EpochTrace:
        """The trace of a batch, simulated unless it is there. One thread computes, others wait for it."""
        key = (batch, None if per_run is None or per_run >= batch else per_run)
        with self._lock:
            if key not in self._traces:
                self._traces[key] = simulate(self.result, batch, per_run=key[1])
                while len(self._traces) > TRACES_KEPT:
                    self._traces.popitem(last=False)
            self._traces.move_to_end(key)
            return self._traces[key]


class Runs:
    """What can be learnt of a run. See `Session`."""

    def __init__(self, state: SessionState, compiles: Compiles, training: Training) -> None:
        self._state, self._compiles, self._training = state, compiles, training
        self._timelines: Timelines | None = None
        self._by_elements: Graph | None = None
        """The trace of which it is known that batches run element by element."""

    def timeline(self, batch: int = 1, per_run: int | None = None) -> EpochTrace:
        """See `Session.timeline`."""
        if batch < 1 or (per_run is not None and per_run < 1):
            raise ValueError("a batch needs at least one input")
        result = self._state.result if self._state.result is not None else self._compiles.compile()
        with self._state.edit_lock:
            timelines = self._timelines
            if timelines is None or timelines.result is not result:
                timelines = self._timelines = Timelines(result)
        return timelines.get(batch, per_run)

    def verify_ops(
        self, inputs: Any = None, mode: str = "golden", min_pcc: float = MIN_PCC, *, runner: Runner | None = None
    ) -> OpChecks:
        """See `Session.verify_ops`."""
        sample = self._state.sample_inputs if inputs is None else as_sample(inputs)
        with self._state.work_lock:
            with self._state.edit_lock:
                if self._state.cancel.is_set() and not self._state.stale:
                    self._state.cancel = threading.Event()  # it was meant for the work before
            result = self._compiles.compile()
            cancel = self._state.cancel
            if runner is not None and runner.result is not result:
                raise InputError("that runner belongs to another placement")
            guarded = self._compiles.run_guarded
            verify_ops = guarded(lambda: check_ops(runner or Runner(result, mode), sample, min_pcc, cancel))
        self._state.events.emit("checked", verify_ops)
        return verify_ops

    def _refuse_mixed(self, graph: Graph, samples: Sequence[Any]) -> None:
        """Raise `InputError` for a batch of a model that was traced on one element and that mixes them (a softmax or a
        mean along dim 0): element by element it would answer something else."""
        if self._state.modules is not None or self._by_elements is graph:
            return
        first = self._state.sample_inputs
        if first is not None and cut_inputs(graph, frontend.feeds(graph, first)):
            self._by_elements = graph  # the trace has told it of a batch
            return
        for sample in samples:
            feed = frontend.feeds(graph, sample)
            if not (cut := cut_inputs(graph, feed)):
                continue
            of_any, of_these = frontend.runs_by_elements(self._state.model, sample, graph, cut)
            if of_any:
                self._by_elements = graph
                return
            if not of_these:
                count = feed[cut[0]].shape[0]
                raise InputError(
                    f"input {cut[0]!r} holds {count} elements of a model that was traced on 1 and that answers a "
                    f"batch otherwise than its elements; give the samples one by one, or open it with {count}"
                )

    def run(
        self, inputs: Sequence[Any] | None = None, mode: str = "golden", *, break_below: float | None = None
    ) -> list[list[torch.Tensor]]:
        """See `Session.run`."""
        with self._state.work_lock:
            with self._state.edit_lock:
                if self._state.cancel.is_set() and not self._state.stale:
                    self._state.cancel = threading.Event()  # it was meant for the work before
            result = self._compiles.compile()
            if self._state.runner is None or self._state.runner.mode != mode:
                self._state.runner = Runner(result, mode)
            runner, cancel = self._state.runner, self._state.cancel
            self._state.runner = None  # one that is stopped midway has queues half full
            batch = [self._state.sample_inputs] if inputs is None else _samples(inputs)
            samples = self._compiles.run_guarded(lambda: fill_microbatch(result, batch)) if inputs is None else batch
            if inputs is not None:
                self._refuse_mixed(result.graph, batch)
            watch: OpWatch | None = None
            if break_below is not None and samples:

                def on_failure(_: OpCheck) -> None:
                    self._state.control.pause()
                    self._state.events.emit("checked", watch.checks if watch is not None else None)

                watch = OpWatch(result, samples[0], break_below, on_failure)
                runner.executor.on_op = watch.take
            self._state.events.emit("stage", "run", 0.0)
            start = time.perf_counter()
            try:
                outputs = self._compiles.run_guarded(
                    lambda: runner.run(
                        samples,
                        lambda done, total: self._state.events.emit("run", done, total),
                        cancel,
                        self._state.control,
                        LiveRun(result, self._state.events),
                    )
                )
            finally:
                runner.executor.on_op = None
            if watch is not None:
                self._state.events.emit("checked", watch.checks)
            if self._state.result is result and (not runner.caches or runner.keeps_state):
                self._state.runner = runner  # generation begins anew in every run
            self._state.ran = result
            self._state.timings["run"] = time.perf_counter() - start
            self._state.events.emit("stage", "run", 1.0)
            self._state.events.emit("ran", outputs)
            return outputs[: len(batch)]

    def run_on_workers(
        self, inputs: Sequence[Any] | None = None, mode: str = "golden", *, workers: int = 0, scheduler: Any = None
    ) -> ChipRun:
        """See `Session.run_on_workers`."""
        with self._state.work_lock:
            with self._state.edit_lock:
                if self._state.cancel.is_set() and not self._state.stale:
                    self._state.cancel = threading.Event()  # it was meant for the work before
            result, cancel = self._compiles.compile(), self._state.cancel
            batch = [self._state.sample_inputs] if inputs is None else _samples(inputs)
            guarded = self._compiles.run_guarded
            samples = guarded(lambda: fill_microbatch(result, batch)) if inputs is None else batch
            if inputs is not None:
                self._refuse_mixed(result.graph, batch)
            self._state.events.emit("stage", "run", 0.0)
            found = guarded(lambda: run_chips(result, samples, mode, workers, scheduler, cancel))
            self._state.events.emit("stage", "run", 1.0)
            self._state.events.emit("ran", found.outputs)
            return dataclasses.replace(found, outputs=found.outputs[: len(batch)])

    def verify(self, inputs: Any = None, mode: str = "golden", *, break_below: float | None = None) -> list[Comparison]:
        """See `Session.verify`."""
        sample = self._state.sample_inputs if inputs is None else as_sample(inputs)
        samples = fill_microbatch(self._compiles.compile(), [sample])
        with self._first_run():
            with same_seeds():  # so that both draw the same masks
                got = self.run(samples, mode, break_below=break_below)[0]
            if self._state.cancel.is_set():
                raise Cancelled("cancelled before the outputs were compared with torch")
            verify = self.judge(sample, got, mode)
        self._state.events.emit("verified", verify)
        return verify

    @contextlib.contextmanager
    def _first_run(self) -> Iterator[None]:
        """What keeps something from run to run, buffers or the weights of a training, begins as it was compiled, and
        afterwards is where it was."""
        runner = self._state.runner
        if runner is None or not _is_changed_by_runs(runner):
            runner = None
        else:
            self._state.runner = None
        try:
            yield
        finally:
            now = self._state.runner
            if runner is not None and runner.result is self._state.result:
                self._state.runner = runner
            elif now is not None and _is_changed_by_runs(now):
                self._state.runner = None

    def judge(self, sample: Any, got: Sequence[torch.Tensor], mode: str = "golden") -> list[Comparison]:
        """The outputs of a run against the model itself, which is called twice: where the second call answers something
        else, the device runs a second time as well, and those outputs are compared too ("output 0, second run"). Of a
        session that trains the loss is compared."""
        if self._state.modules is not None:
            return [self._training.judge(sample, got)]
        expected = frontend.references(self._state.model, sample)
        verdicts = _compare_all(expected[0], got, "output {}")
        verdicts = explained(verdicts, got, self._state.model, sample, MIN_PCC)
        for again in expected[1:]:
            if not same(expected[0], again):
                second = self.run(fill_microbatch(self._compiles.compile(), [sample]), mode)[0]
                verdicts += _compare_all(again, second, "output {}, second run")
        return verdicts


def _is_changed_by_runs(runner: Runner) -> bool:
    """Whether a run answers otherwise after another one: its buffers are others, or its optimizer made a step."""
    return runner.keeps_state or runner.result.options.training is not None


def _samples(inputs: Any) -> list[Any]:
    """The samples of a run. A tensor or a dict is one sample, or a batch, or what an iteration gives of it: it is
    refused."""
    if isinstance(inputs, (torch.Tensor, np.ndarray, Mapping, str)) or not isinstance(inputs, Iterable):
        raise InputError(
            f"run takes a list of samples, not {type(inputs).__name__}; for one sample write run([sample])"
        )
    return list(inputs)


def _compare_all(expected: Sequence[torch.Tensor], got: Sequence[torch.Tensor], name: str) -> list[Comparison]:
    return [compare_tensors(name.format(k), w, g) for k, (w, g) in enumerate(zip(expected, got, strict=True))]
