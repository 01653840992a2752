"""The frames of a session's results, made once: graphs that no edit changes, and results that undo comes back to."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.analysis.memory import l1_by_kind, l1_of_placed
from tbuda_lab.core.epochsim import BatchTime
from tbuda_lab.core.errors import InputError
from tbuda_lab.core.frames import Frame, graph_frame, netlist_frame, ops_frame, problems_frame, summary_frame
from tbuda_lab.core.frames.ops_frame import OpColumns, op_facts, op_names
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.session.whatif import time_of

if TYPE_CHECKING:
    from tbuda_lab.core.balancer.types import Placement
    from tbuda_lab.core.compiler import CompileResult
    from tbuda_lab.core.device import DeviceSpec
    from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
    from tbuda_lab.core.session.compiles import Compiles
    from tbuda_lab.core.session.state import SessionState

_RESULTS = 8
_GRAPHS = 8


class ResultFrames:
    """Frames by graph and by result. The same result gives the very same frames, so that nobody sends them twice."""

    def __init__(self, times: Callable[[CompileResult], BatchTime]) -> None:
        self._times = times
        self._graphs: OrderedDict[tuple[int, str], tuple[Graph, Frame]] = OrderedDict()
        self._texts = netlists.Texts()
        self._facts_known: tuple[Graph, OpColumns] | None = None
        self._placements: OrderedDict[int, tuple[Placement, Frame]] = OrderedDict()
        self._results: OrderedDict[int, tuple[CompileResult, list[Frame]]] = OrderedDict()

    def of(self, result: CompileResult) -> list[Frame]:
        """Three graphs, the placement, the netlist: see `core.frames.result_frames`."""
        entry = self._results.get(id(result))
        if entry is None or entry[0] is not result:
            frames = [
                self.graph(result.graph, "traced"),
                self.graph(result.passed, "passed"),
                self.graph(result.lowered, "lowered"),
                self.result(result),
                netlist_frame(netlists.dumps(result.netlist, self._texts)),
            ]
            entry = self._results[id(result)] = (result, frames)
            while len(self._results) > _RESULTS:
                self._results.popitem(last=False)
        self._results.move_to_end(id(result))
        return list(entry[1])

    def result(self, result: CompileResult) -> Frame:
        """The frame "ops" of a compile."""
        times, l1 = (lambda: self._times(result)), (lambda: l1_by_kind(result))
        return self.placement(result.lowered, result.placement, result.device, times, l1, final=True)

    def placement(
        self,
        lowered: Graph,
        placement: Placement,
        device: DeviceSpec,
        times: Callable[[], BatchTime],
        l1: Callable[[], Mapping[str, Mapping[str, int]]],
        *,
        final: bool = False,
    ) -> Frame:
        """The frame "ops" of a placement that nobody changes any more. times, l1: see `ops_frame`; asked for where
        there is no frame yet. final: l1 knows of all ops."""
        entry = self._placements.get(id(placement))
        if entry is None or entry[0] is not placement or (final and entry[1].columns["op_l1_bound"].any()):
            frame = ops_frame(lowered, placement, device, self._facts(lowered, placement), times(), l1())
            entry = self._placements[id(placement)] = (placement, frame)
            while len(self._placements) > _RESULTS:
                self._placements.popitem(last=False)
        self._placements.move_to_end(id(placement))
        return entry[1]

    def _facts(self, lowered: Graph, placement: Placement) -> OpColumns:
        """What the ops frames of placements of one graph and order have in common."""
        names = op_names(placement)
        facts_of = self._facts_known
        if facts_of is None or facts_of[0] is not lowered or facts_of[1].names != names:
            facts_of = self._facts_known = lowered, op_facts(lowered, names)
        return facts_of[1]

    def graph(self, graph: Graph, stage: str) -> Frame:
        """The frame of a graph that nobody changes any more."""
        key = id(graph), stage
        entry = self._graphs.get(key)
        if entry is None or entry[0] is not graph:
            entry = self._graphs[key] = (graph, graph_frame(graph, stage))
            while len(self._graphs) > _GRAPHS:
                self._graphs.popitem(last=False)
        self._graphs.move_to_end(key)
        return entry[1]


class Frames:
    """What views show of a session, as columns: `session.frames.get("ops")`."""

    def __init__(self, state: SessionState, compiles: Compiles) -> None:
        self._state, self._compiles = state, compiles
        self._by_result = ResultFrames(compiles.time)

    def of(self, result: CompileResult) -> list[Frame]:
        """The frames of one result, made once."""
        return self._by_result.of(result)

    def ops(self, result: CompileResult) -> Frame:
        """The frame "ops" of one result, made once."""
        return self._by_result.result(result)

    def ops_frame(self, placed: PlacedOps) -> Frame:
        """The frame "ops" of a placement of this session, before there is a netlist of it; its result has the same."""
        times, l1 = (lambda: time_of(placed)), (lambda: l1_of_placed(placed))
        return self._by_result.placement(placed.problem.graph, placed.placement(), self._state.device, times, l1)

    def graph(self, stage: str) -> Frame:
        """The graph of a stage; runs what has to run for it."""
        result = self._state.result
        if stage == "traced" and result is not None and not self._state.stale:
            return self._by_result.graph(result.graph, stage)  # it says what the host runs
        return self._by_result.graph(self._compiles.graph(stage), stage)

    def all(self) -> Sequence[Frame]:
        """Everything there is now; nothing is compiled."""
        state = self._state
        frames = [summary_frame(state.device, state.name), problems_frame(state.problems)]
        return frames + (self.of(state.result) if state.result is not None else [])

    def get(self, key: str) -> Frame:
        """The frame of a key: "summary", "problems", "graph:<stage>", "ops" or "netlist" (the last two of the current
        result). Raises `InputError` naming those there are."""
        if key.startswith("graph:"):
            return self.graph(key.partition(":")[2])
        frames = {frame.key: frame for frame in self.all()}
        if key not in frames:
            raise InputError(f"no frame {key!r}; there are: {', '.join(frames)}")
        return frames[key]
