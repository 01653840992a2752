"""The runs of a session: simulated in time, on the simulated device, every op against torch."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.epochsim import EpochTrace, simulate
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.runner import Runner, filled
from tbuda_lab.core.session.compiles import as_sample
from tbuda_lab.core.session.live import LiveRun
from tbuda_lab.core.session.opchecks import OpCheck, OpChecks, OpWatch, check_ops
from tbuda_lab.core.verification import PCC_WANTED, Comparison, compare

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session
    from tbuda_lab.core.session.state import SessionState

TRACES_KEPT = 3


class Timelines:
    """The last traces of one result, by batch and inputs per round."""

    def __init__(self, result: CompileResult) -> None:
        self.result = result
        self._lock = threading.Lock()
        self._found: OrderedDict[tuple[int, int | None], EpochTrace] = OrderedDict()

    def get(self, batch: int, per_run: int | None) -> EpochTrace:
        """The trace of a batch, simulated unless it is there. One thread computes, others wait for it."""
        key = (batch, None if per_run is None or per_run >= batch else per_run)
        with self._lock:
            if key not in self._found:
                self._found[key] = simulate(self.result, batch, per_run=key[1])
                while len(self._found) > TRACES_KEPT:
                    self._found.popitem(last=False)
            self._found.move_to_end(key)
            return self._found[key]


class Runs:
    """What can be learnt of a run. See `Session`."""

    def __init__(self, session: Session, state: SessionState) -> None:
        self._session, self._state = session, state
        self._timelines: Timelines | None = None

    def timeline(self, batch: int = 1, per_run: int | None = None) -> EpochTrace:
        """See `Session.timeline`."""
        if batch < 1 or (per_run is not None and per_run < 1):
            raise ValueError("a batch has one input at least")
        result = self._session.result if self._session.result is not None else self._session.compile()
        with self._state.edit_lock:
            retained = self._timelines
            if retained is None or retained.result is not result:
                retained = self._timelines = Timelines(result)
        return retained.get(batch, per_run)

    def verify_ops(
        self, inputs: Any = None, mode: str = "golden", wanted: float = PCC_WANTED, *, runner: Runner | None = None
    ) -> OpChecks:
        """See `Session.verify_ops`."""
        sample = self._session.sample_inputs if inputs is None else as_sample(inputs)
        with self._state.work_lock:
            with self._state.edit_lock:
                if self._state.cancel.is_set() and not self._session.stale:
                    self._state.cancel = threading.Event()  # it was meant for the work before
            result = self._session.compile()
            cancel = self._state.cancel
            if runner is not None and runner.result is not result:
                raise InputError("that runner belongs to another placement")
            guarded = self._session.compiles.guarded
            verify_ops = guarded(lambda: check_ops(runner or Runner(result, mode), sample, wanted, cancel))
        self._state.events.emit("checked", verify_ops)
        return verify_ops

    def run(
        self, inputs: Sequence[Any] | None = None, mode: str = "golden", *, break_below: float | None = None
    ) -> list[list[torch.Tensor]]:
        """See `Session.run`."""
        with self._state.work_lock:
            with self._state.edit_lock:
                if self._state.cancel.is_set() and not self._session.stale:
                    self._state.cancel = threading.Event()  # it was meant for the work before
            result = self._session.compile()
            if self._state.runner is None or self._state.runner.mode != mode:
                self._state.runner = Runner(result, mode)
            runner, cancel = self._state.runner, self._state.cancel
            self._state.runner = None  # one that is stopped midway has queues half full
            if inputs is not None and not isinstance(inputs, Iterable):
                raise InputError(f"run takes a list of samples, not {type(inputs).__name__}")
            given = [self._session.sample_inputs] if inputs is None else list(inputs)
            samples = self._session.compiles.guarded(lambda: filled(result, given)) if inputs is None else given
            watch: OpWatch | None = None
            if break_below is not None and samples:

                def failed(_: OpCheck) -> None:
                    self._session.control.pause()
                    self._state.events.emit("checked", watch.checks if watch is not None else None)

                watch = OpWatch(result, samples[0], break_below, failed)
                runner.executor.on_op = watch.take
            self._state.events.emit("stage", "run", 0.0)
            start = time.perf_counter()
            try:
                outputs = self._session.compiles.guarded(
                    lambda: runner.run(
                        samples,
                        lambda done, total: self._state.events.emit("run", done, total),
                        cancel,
                        self._session.control,
                        LiveRun(result, self._session.control, lambda step: self._state.events.emit("live", step)),
                    )
                )
            finally:
                runner.executor.on_op = None
            if watch is not None:
                self._state.events.emit("checked", watch.checks)
            if self._session.result is result:
                self._state.runner = runner
            self._state.ran = result
            self._session.timings["run"] = time.perf_counter() - start
            self._state.events.emit("stage", "run", 1.0)
            self._state.events.emit("ran", outputs)
            return list(outputs[: len(given)])

    def verify(
        self, inputs: Any = None, mode: str = "golden", *, break_below: float | None = None
    ) -> list[Comparison]:
        """See `Session.verify`."""
        sample = self._session.sample_inputs if inputs is None else as_sample(inputs)
        samples = None if inputs is None else filled(self._session.compile(), [sample])
        got = self.run(samples, mode, break_below=break_below)[0]
        wanted = frontend.reference(self._session.model, sample)
        verify = [
            compare(f"output {i}", w.detach().float().numpy(), g.detach().float().numpy())
            for i, (w, g) in enumerate(zip(wanted, got, strict=True))
        ]
        self._state.events.emit("verified", verify)
        return verify
