"""The questions to a session: which shapes are legal, what an edit would do, why an op stands as it does."""

from __future__ import annotations

import contextlib
import difflib
import threading
from typing import TYPE_CHECKING, cast

from tbuda_lab.core.analysis.memory import DramMap, L1Map, dram_map, l1_map
from tbuda_lab.core.analysis.noc import LinkMap, link_map, sibling
from tbuda_lab.core.compiler import Clock, CompileResult, Request
from tbuda_lab.core.epochsim import BatchTime, batch_time
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.passes.steps import PassTrace, trace_passes
from tbuda_lab.core.placer.interactive.placed import Placed
from tbuda_lab.core.session.card import OpCard, card_of
from tbuda_lab.core.session.commands import Command, SetOverride
from tbuda_lab.core.session.diff import Diff, diff_results
from tbuda_lab.core.session.editing import Editing
from tbuda_lab.core.session.legal import LegalTable, legal_table
from tbuda_lab.core.session.pace import time_of
from tbuda_lab.core.session.quiet import quiet
from tbuda_lab.core.session.records import OverrideRecord, records_of, vetoed
from tbuda_lab.core.session.suggest import Suggestion, Told, suggestions
from tbuda_lab.core.session.whatif import WhatIf, compare_placed
from tbuda_lab.core.session.why import Reasons, reasons_of

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session


class Questions(Editing):
    """What can be asked of a session without changing it. See `Session`."""

    _pass_trace: tuple[CompileOptions, PassTrace] | None = None

    @property
    def records(self) -> tuple[OverrideRecord, ...]:
        """For every override: what it asked, for how many ops, and what they got; after a failed compile, why not."""
        with self._edit:
            if self.error is not None:
                return vetoed(self.overrides, self.error)
            return records_of(self.overrides, self.result, pending=self.stale)

    def placed(self, state: Request | None = None, cancel: threading.Event | None = None) -> Placed:
        """The placement of a state without queues; may place what is not placed yet. `Cancelled` once `cancel` is set.
        """
        with self._work:
            clock = Clock(None, cancel)
            return self._pipeline.placed(self.trace(), state or self._history.state, clock)[1]

    def time(self, result: CompileResult | None = None) -> BatchTime:
        """How long a batch takes that the model is compiled for, simulated: the time that every view shows. Compiles
        what is not compiled yet. result: another one of this session, by default the current one."""
        found = self.compile() if result is None else result
        with contextlib.suppress(TbudaError):
            placed = self.placed()
            if placed.complete and placed.placement() is found.placement:
                return time_of(placed)
        return batch_time(found, found.options.microbatch)

    @quiet()
    def legal(self, op: str) -> LegalTable:
        """Every shape an op could have: verdict, cycles, memory, and where it could stand. Raises `InputError`."""
        placed = self.placed()
        self._known(op, placed)
        state = self._history.state
        rest = tuple(o for o in state.overrides if not (o.kind == "op_size" and o.matches([op])))
        front = self._front(state)
        table = self._pipeline.free_table(front, state.options, rest, op)
        return legal_table(placed, op, table)

    @quiet()
    def whatif(
        self, *edits: Command | Override, queues: bool = True, cancel: threading.Event | None = None
    ) -> WhatIf:
        """What edits would do, without doing them. Raises what compiling them would raise.

        queues: place them too and say what they take of DRAM; without them it answers sooner. cancel: once it is set,
        `Cancelled` is raised at the next epoch.
        """
        now = state = self._history.state
        for edit in edits:
            state = (edit if isinstance(edit, Command) else SetOverride(edit)).apply(state)
        return compare_placed(self.placed(now, cancel), self.placed(state, cancel), queues=queues)

    @quiet()
    def suggest(
        self,
        n: int = 10,
        progress: Told | None = None,
        cancel: threading.Event | None = None,
        seconds: float | None = None,
    ) -> list[Suggestion]:
        """The best single edits there are, by cycles saved over all epochs, each one checked by `whatif`.

        progress: is told the best so far and the fraction of the search that is done. cancel: once it is set,
        `Cancelled` is raised. seconds: after that time the best so far are returned; without it the same placement
        gives the same.
        """
        return suggestions(cast("Session", self), n, progress, cancel, seconds)

    @quiet()
    def why(self, op: str) -> Reasons:
        """Why an op stands as it does. Raises `InputError` for a name that is not placed."""
        table = self.legal(op)
        result = cast("Session", self).result
        fused = next((p.text for p in result.fused if op in p.members), "") if result is not None else ""
        return reasons_of(self.placed(), op, table, fused)

    def __getitem__(self, op: str) -> OpCard:
        """`session["matmul_14"]`: what there is to say of an op. Raises `InputError` with near names."""
        return card_of(self, op)

    def _ipython_key_completions_(self) -> list[str]:
        return [] if self.result is None else list(self.result.placement.ops)

    def _known(self, op: str, placed: Placed) -> None:
        if op not in placed.problem.number:
            near = difflib.get_close_matches(op, placed.problem.order, n=3, cutoff=0.3) if isinstance(op, str) else []
            raise InputError(
                f"{op!r} is not an op of the placed graph" + (f"; near it: {', '.join(near)}" if near else "")
            )

    def passes(self) -> PassTrace:
        """Every pass with the graph after it and what it changed; runs them again when the options are new."""
        with self._work:
            options = self._history.state.options
            if self._pass_trace is None or self._pass_trace[0] != options:
                self._pass_trace = options, trace_passes(self.trace(), options)
            return self._pass_trace[1]

    def l1(self, op: str) -> L1Map:
        """The buffers of an op in the L1 of its cores. Raises `InputError` for a name that is not placed."""
        return l1_map(self.compile(), op)

    def dram(self) -> DramMap:
        """Where every queue lies in DRAM or host memory, when it is needed, and what is asked of the channels."""
        return dram_map(self.compile())

    def links(self, epoch: int, chip: int | None = None, noc: str = "both") -> LinkMap:
        """What the links of the NoCs carry in an epoch, estimated: netlists assign no NoC.

        chip: that chip in the epoch's time, where several run together; noc: "0" or "1" for everything over that one,
        "both" for each transfer over the one with the shorter way. Raises `InputError`.
        """
        result = self.compile()
        return link_map(result, epoch if chip is None else sibling(result, epoch, chip), noc)

    def diff(self, a: str, b: str = "now") -> Diff:
        """What differs between two checkpoints; compiles what is not compiled yet.

        "now" is the current state, "previous" the one before the last step, "start" the one the session was opened
        with; a checkpoint of that name comes first.
        """
        with self._work:
            return diff_results(self._result_of(a), self._result_of(b), a, b)

    def _result_of(self, name: str) -> CompileResult:
        if name == "now":
            return self.compile()
        state = self._history.marked.get(name)
        if state is None and name == "start":
            state = self._history.first
        elif state is None and name == "previous":
            state = self._history.done[-1].before if self._history.done else self._history.state
        if state is None:
            known = ", ".join((*self._history.marked, "start", "previous", "now"))
            raise InputError(f"no checkpoint {name!r}; there are: {known}")
        return self._results.get_or(state.key, lambda: self._pipeline.compile(self.trace(), state, Clock(None, None)))
