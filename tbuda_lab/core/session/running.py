"""What a session tells of runs: its placement simulated in time, every op against torch."""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Any

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.epochsim import EpochTrace, simulate
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.runner import Runner
from tbuda_lab.core.session.opchecks import OpChecks, check_ops
from tbuda_lab.core.session.questions import Questions
from tbuda_lab.core.session.working import as_sample
from tbuda_lab.core.verification import PCC_WANTED

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


class Running(Questions):
    """What can be learnt of a run. See `Session`."""

    _timelines: Timelines | None = None

    def timeline(self, batch: int = 1, per_run: int | None = None) -> EpochTrace:
        """The current placement in time for `batch` inputs: see `epochsim.simulate`. The last few are kept.

        per_run: inputs that each epoch takes before the next one follows; by default all of them. May be called while
        the session runs. Raises `ValueError` for a batch below 1, and what `compile` raises before there is a result.
        """
        if batch < 1 or (per_run is not None and per_run < 1):
            raise ValueError("a batch has one input at least")
        result = self.result if self.result is not None else self.compile()
        with self._edit:
            kept = self._timelines
            if kept is None or kept.result is not result:
                kept = self._timelines = Timelines(result)
        return kept.get(batch, per_run)

    def verify_ops(
        self, inputs: Any = None, mode: str = "golden", wanted: float = PCC_WANTED, *, runner: Runner | None = None
    ) -> OpChecks:
        """Run one sample and compare every op's tensor with torch in float32: see `opchecks.check_ops`.

        runner: a runner of the current result, to look at what it holds. Raises what the run raises.
        """
        sample = self.sample_inputs if inputs is None else as_sample(inputs)
        with self._work:
            with self._edit:
                if self._cancel.is_set() and not self.stale:
                    self._cancel = threading.Event()  # it was meant for the work before
            result = self.compile()
            cancel = self._cancel
            if runner is not None and runner.result is not result:
                raise InputError("that runner belongs to another placement")
            found = self._guarded(lambda: check_ops(runner or Runner(result, mode), sample, wanted, cancel))
        self._events.emit("checked", found)
        return found
