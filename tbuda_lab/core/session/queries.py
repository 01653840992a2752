"""The questions to a session: which shapes are legal, what an edit would do, why an op stands as it does."""

from __future__ import annotations

import contextlib
import difflib
import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tbuda_lab.core.analysis.memory import DramMap, L1Map, dram_map, l1_map
from tbuda_lab.core.analysis.noc import LinkMap, link_map, sibling
from tbuda_lab.core.compiler import Clock, CompileResult, Request
from tbuda_lab.core.diff import Diff, compare_sides, netlist_side
from tbuda_lab.core.epochsim import BatchTime, batch_time
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.passes.pipeline import PassTrace, trace_passes
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
from tbuda_lab.core.run_control import no_collections
from tbuda_lab.core.session.command import Command
from tbuda_lab.core.session.commands import SetOverride
from tbuda_lab.core.session.explain import Reasons, reasons_of
from tbuda_lab.core.session.legal import LegalTable, legal_table
from tbuda_lab.core.session.profile import Profile, profile_of
from tbuda_lab.core.session.records import OverrideRecord, records_of, veto_records
from tbuda_lab.core.session.suggest import Suggestion, Told, suggestions
from tbuda_lab.core.session.whatif import WhatIf, compare_placed, diff_results, time_of

if TYPE_CHECKING:
    from tbuda_lab.core.session.session import Session
    from tbuda_lab.core.session.state import SessionState


class Queries:
    """What can be asked of a session without changing it."""

    def __init__(self, session: Session, state: SessionState) -> None:
        self._session, self._state = session, state
        self._pass_trace: tuple[CompileOptions, PassTrace] | None = None

    @property
    def records(self) -> tuple[OverrideRecord, ...]:
        """See `Session.records`."""
        with self._state.edit_lock:
            if self._session.error is not None:
                return veto_records(self._session.overrides, self._session.error)
            return records_of(self._session.overrides, self._session.result, pending=self._session.stale)

    def placed(self, state: Request | None = None, cancel: threading.Event | None = None) -> PlacedOps:
        """See `Session.placed`."""
        with self._state.work_lock:
            clock = Clock(None, cancel)
            return self._state.pipeline.place(self._session.trace(), state or self._state.history.state, clock)[1]

    def time(self, result: CompileResult | None = None) -> BatchTime:
        """See `Session.time`."""
        time = self._session.compile() if result is None else result
        with contextlib.suppress(TbudaError):
            placed = self.placed()
            if placed.complete and placed.placement() is time.placement:
                return time_of(placed)
        return batch_time(time, time.options.microbatch)

    @no_collections()
    def legal(self, op: str) -> LegalTable:
        """See `Session.legal`."""
        placed = self.placed()
        self._number_of(op, placed)
        state = self._state.history.state
        rest = tuple(o for o in state.overrides if not (o.kind == "op_size" and o.matches([op])))
        front = self._session.compiles.front(state)
        table = self._state.pipeline.free_table(front, state.options, rest, op)
        return legal_table(placed, op, table)

    @no_collections()
    def whatif(self, *edits: Command | Override, queues: bool = True, cancel: threading.Event | None = None) -> WhatIf:
        """See `Session.whatif`."""
        now = state = self._state.history.state
        for edit in edits:
            state = (edit if isinstance(edit, Command) else SetOverride(edit)).apply(state)
        return compare_placed(self.placed(now, cancel), self.placed(state, cancel), queues=queues)

    @no_collections()
    def suggest(
        self,
        n: int = 10,
        progress: Told | None = None,
        cancel: threading.Event | None = None,
        seconds: float | None = None,
    ) -> list[Suggestion]:
        """See `Session.suggest`."""
        return suggestions(self._session, n, progress, cancel, seconds)

    def profile(self, edits: Sequence[Suggestion] | int = 0) -> Profile:
        """See `Session.profile`."""
        result = self._session.compile()
        chosen = self.suggest(edits) if isinstance(edits, int) else edits
        return profile_of(result, self.time(result), chosen)

    @no_collections()
    def why(self, op: str) -> Reasons:
        """See `Session.why`."""
        table = self.legal(op)
        result = self._session.result
        fused = ""
        if result is not None:
            inside = result.lowered[op].attrs.get("fused", (op,)) if op in result.lowered else (op,)
            fused = next((p.text for p in result.fused if not set(p.members).isdisjoint(inside)), "")
        return reasons_of(self.placed(), op, table, lambda edit: self.whatif(edit, queues=False).time[1], fused)

    def _number_of(self, op: str, placed: PlacedOps) -> None:
        if op not in placed.problem.number:
            near = difflib.get_close_matches(op, placed.problem.order, n=3, cutoff=0.3) if isinstance(op, str) else []
            raise InputError(
                f"{op!r} is not an op of the placed graph" + (f"; near it: {', '.join(near)}" if near else "")
            )

    def passes(self) -> PassTrace:
        """See `Session.passes`."""
        with self._state.work_lock:
            options = self._state.history.state.options
            if self._pass_trace is None or self._pass_trace[0] != options:
                graph = self._session.trace()
                chain = self._state.pipeline.chain(graph, options, Clock(None, None))
                self._pass_trace = options, trace_passes(graph if chain is None else chain.device, options)
            return self._pass_trace[1]

    def l1(self, op: str) -> L1Map:
        """See `Session.l1`."""
        return l1_map(self._session.compile(), op)

    def dram(self) -> DramMap:
        """See `Session.dram`."""
        return dram_map(self._session.compile())

    def links(self, epoch: int, chip: int | None = None, noc: str = "both") -> LinkMap:
        """See `Session.links`."""
        result = self._session.compile()
        return link_map(result, epoch if chip is None else sibling(result, epoch, chip), noc)

    def diff(self, a: str, b: str = "now") -> Diff:
        """See `Session.diff`."""
        with self._state.work_lock:
            files = self._session.placement_table
            if files.file(a) is not None or files.file(b) is not None:  # netlists both, so that both are counted alike
                sides = (files.file(n) or netlist_side(self._result_of(n).netlist, n) for n in (a, b))
                return compare_sides(*sides)
            before, after = self._result_of(a), self._result_of(b)
            return diff_results(before, after, a, b, (self.time(before), self.time(after)))

    def _result_of(self, name: str) -> CompileResult:
        if name == "now":
            return self._session.compile()
        state = self._state.history.state_of(name)
        if state is None and name == "previous":
            state = self._state.history.done[-1].before if self._state.history.done else self._state.history.state
        if state is None:
            names = ", ".join((*self._state.history.marked, "start", "previous", "now"))
            raise InputError(f"no checkpoint or placement {name!r}; there are: {names}")
        clock = Clock(None, None)
        make = partial(self._state.pipeline.compile, self._session.trace(), state, clock)
        return self._state.results.get_or(state.key, make)
