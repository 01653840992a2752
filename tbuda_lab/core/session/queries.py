"""The questions to a session: which shapes are legal, what an edit would do, why an op stands as it does."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tbuda_lab.core.analysis.memory import DramMap, L1Map, dram_map, l1_map
from tbuda_lab.core.analysis.noc import LinkMap, link_map, sibling
from tbuda_lab.core.compiler import Clock, CompileResult
from tbuda_lab.core.diff import Diff, compare_sides, netlist_side
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes.pipeline import PassTrace, trace_passes
from tbuda_lab.core.run_control import no_collections
from tbuda_lab.core.session.compiles import Compiles
from tbuda_lab.core.session.explain import OpCard, Reasons, card_of, provenance, reasons_of
from tbuda_lab.core.session.legal import legal_of
from tbuda_lab.core.session.placements import Placements
from tbuda_lab.core.session.profile import Profile, StepCost, history_costs, profile_of
from tbuda_lab.core.session.records import OverrideRecord, records_of, veto_records
from tbuda_lab.core.session.suggest import Suggestion, Told, suggestions
from tbuda_lab.core.session.whatif import diff_results

if TYPE_CHECKING:
    from tbuda_lab.core.session.state import SessionState


class Queries:
    """What can be asked of a session without changing it."""

    def __init__(self, state: SessionState, compiles: Compiles, placements: Placements) -> None:
        self._state, self._compiles, self._placements = state, compiles, placements
        self._pass_trace: tuple[CompileOptions, PassTrace] | None = None

    @property
    def records(self) -> tuple[OverrideRecord, ...]:
        """See `Session.records`."""
        with self._state.edit_lock:
            overrides = self._state.request.overrides
            if self._state.error is not None:
                return veto_records(overrides, self._state.error)
            return records_of(overrides, self._state.result, pending=self._state.stale)

    @no_collections()
    def suggest(
        self,
        n: int = 10,
        progress: Told | None = None,
        cancel: threading.Event | None = None,
        seconds: float | None = None,
    ) -> list[Suggestion]:
        """See `Session.suggest`."""
        return suggestions(self._compiles, n, progress, cancel, seconds)

    def profile(self, edits: Sequence[Suggestion] | int = 0) -> Profile:
        """See `Session.profile`."""
        result = self._compiles.compile()
        chosen = self.suggest(edits) if isinstance(edits, int) else edits
        return profile_of(result, self._compiles.time(result), chosen)

    @no_collections()
    def why(self, op: str) -> Reasons:
        """See `Session.why`."""
        compiles = self._compiles
        table = legal_of(self._compiles, op)
        result = self._state.result
        fused = ""
        if result is not None:
            inside = result.lowered[op].attrs.get("fused", (op,)) if op in result.lowered else (op,)
            fused = next((p.text for p in result.fused if not set(p.members).isdisjoint(inside)), "")
        return reasons_of(compiles.placed(), op, table, lambda edit: compiles.whatif(edit, queues=False).time[1], fused)

    def passes(self) -> PassTrace:
        """See `Session.passes`."""
        with self._state.work_lock:
            options = self._state.history.state.options
            if self._pass_trace is None or self._pass_trace[0] != options:
                graph = self._compiles.trace()
                chain = self._state.pipeline.chain(graph, options, Clock(None, None))
                self._pass_trace = options, trace_passes(graph if chain is None else chain.device, options)
            return self._pass_trace[1]

    def card(self, op: str) -> OpCard:
        """See `Session.__getitem__`."""
        return card_of(self._compiles.compile(), self.records, op)

    def provenance(self, op: str) -> str:
        """Which step gave an op its shape and place, in a sentence or two. Raises `InputError` for a name that is not
        placed."""
        return provenance(self._compiles, op)

    def history_costs(self) -> list[StepCost]:
        """The cost of every state of the history; see `history_costs`."""
        return history_costs(self._compiles, self._state.history)

    def l1(self, op: str) -> L1Map:
        """See `Session.l1`."""
        return l1_map(self._compiles.compile(), op)

    def dram(self) -> DramMap:
        """See `Session.dram`."""
        return dram_map(self._compiles.compile())

    def links(self, epoch: int, chip: int | None = None, noc: str = "both") -> LinkMap:
        """See `Session.links`."""
        result = self._compiles.compile()
        return link_map(result, epoch if chip is None else sibling(result, epoch, chip), noc)

    def diff(self, a: str, b: str = "now") -> Diff:
        """See `Session.diff`."""
        with self._state.work_lock:
            files = self._placements
            if files.file(a) is not None or files.file(b) is not None:  # netlists both, so that both are counted alike
                sides = (files.file(n) or netlist_side(self._result_of(n).netlist, n) for n in (a, b))
                return compare_sides(*sides)
            before, after = self._result_of(a), self._result_of(b)
            return diff_results(before, after, a, b, (self._compiles.time(before), self._compiles.time(after)))

    def _result_of(self, name: str) -> CompileResult:
        if name == "now":
            return self._compiles.compile()
        state = self._state.history.state_of(name)
        if state is None and name == "previous":
            state = self._state.history.done[-1].before if self._state.history.done else self._state.history.state
        if state is None:
            names = ", ".join((*self._state.history.marked, "start", "previous", "now"))
            raise InputError(f"no checkpoint or placement {name!r}; there are: {names}")
        clock = Clock(None, None)
        make = partial(self._state.pipeline.compile, self._compiles.trace(), state, clock)
        return self._state.results.get_or(state.key, make)
