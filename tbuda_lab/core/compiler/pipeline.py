"""The stages of a compile in order, with what they can keep: after an edit, only what depends on it runs again.

A plain compile (`compile_graph`) is the pipeline with nothing kept yet.

Kept: the passed and lowered graph per front-end options; op profiles and candidate tables per options and signature;
the placement of the whole model per options and base overrides (`Request.base`).
"""

from __future__ import annotations

import dataclasses
import functools
import threading
from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from tbuda_lab.core import passes
from tbuda_lab.core.balancer import OpModels, op_models
from tbuda_lab.core.balancer.enumerate import Choice, candidates
from tbuda_lab.core.balancer.models import profiles
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.compiler.cache import CompileCache, LruCache
from tbuda_lab.core.compiler.host_chain import HostChain, chain_of
from tbuda_lab.core.compiler.integer_outputs import meant_by, sections_of_host, with_grid_integers
from tbuda_lab.core.compiler.rams import refuse_microbatch, refuse_unordered, unordered_writes
from tbuda_lab.core.compiler.request import Clock, Request, StageHook
from tbuda_lab.core.compiler.result import (
    CompileResult,
    HostParameters,
    check_netlist,
    finish,
    host_parameters,
    objective_notes,
)
from tbuda_lab.core.compiler.sections import CutGraph, cut_graph, refuse_moves_without_place, refuse_unwritten
from tbuda_lab.core.constraints import FREE, Constraints, choices, resolve
from tbuda_lab.core.device import DeviceSpec, load_device
from tbuda_lab.core.emit import EmitMemory
from tbuda_lab.core.errors import Diagnostic, OverrideError, UnsupportedOp
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.phases import keeps_state, writes_by_parameter
from tbuda_lab.core.lowering import lower
from tbuda_lab.core.lowering.edits import edit
from tbuda_lab.core.lowering.fuse import inner_names, inner_targets
from tbuda_lab.core.netlist.check import CheckCache
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.core.options import LOWERING, CompileOptions, Stage, front_end, read_from
from tbuda_lab.core.overrides import Override, frozen, refuse_malformed
from tbuda_lab.core.passes import Pass, Report
from tbuda_lab.core.placer import (
    Fusion,
    Outcome,
    StartedPlacement,
    begin,
    decide,
    place_and_repair,
    refuse_impossible,
    refuse_unknown,
)
from tbuda_lab.core.placer.interactive.engine import IncrementalPlacer
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps, share_netlist
from tbuda_lab.core.placer.memory.dram import refuse_weights
from tbuda_lab.core.placer.model.costs import CostCache
from tbuda_lab.core.run_control import no_collections

CHOOSING = read_from(Stage.PLACER)
"""Options that choose among candidates: tables are the same whatever they say, but for `streams_parameters`."""
_SEARCHING = read_from(Stage.SEARCH)

T = TypeVar("T")
_FREE = Choice()


@functools.lru_cache(maxsize=256)
def _without(options: CompileOptions, names: tuple[str, ...]) -> CompileOptions:
    """Options with these at their defaults."""
    plain = CompileOptions()
    return dataclasses.replace(options, **{name: getattr(plain, name) for name in names})


def report_passes(clock: Clock, options: CompileOptions) -> Callable[[Pass, Report, Graph], None]:
    """What `passes.run` calls after every pass: says how many are done, and stops once it is asked to."""
    done = 0
    count = len(passes.PIPELINE if options.training is None else passes.TRAINING_PIPELINE)

    def report_step(step: Pass, report: Report, graph: Graph) -> None:
        nonlocal done
        done += 1
        clock.stop_or_tell("passes", f"pass {done} of {count}, {step.name}")

    return report_step


@dataclasses.dataclass(frozen=True)
class FrontEndResult:
    """What comes before the balancer. plain: the same without nops and queues on edges, if there are any. chain: of a
    model of which the host runs a part."""

    key: Hashable
    passed: Graph
    lowered: Graph
    notes: tuple[Diagnostic, ...] = ()
    plain: FrontEndResult | None = None
    fusion: Fusion | None = None
    chain: HostChain | None = None

    @functools.cached_property
    def parameters(self) -> HostParameters:
        """What the host writes once; all results of this graph share the arrays."""
        return self.plain.parameters if self.plain is not None else host_parameters(self.lowered)

    @functools.cached_property
    def inner(self) -> tuple[str, ...]:
        """Ops inside fused ops (see `lowering.fuse.inner_targets`)."""
        return inner_names(self.lowered)


class Pipeline:
    """Runs the stages for one traced graph and device. Not thread-safe: one compile at a time. keep_epochs: whether
    edits are placed into the epochs there are, instead of placing the whole model anew. cache: placements of earlier
    compiles; None: every model is placed. chains: whether the host may run ops of the model between those of the device
    (see `host_chain`); without that they are refused."""

    def __init__(
        self, device: DeviceSpec, keep_epochs: bool = True, cache: CompileCache | None = None, chains: bool = True
    ) -> None:
        self.device, self.keep_epochs, self.cache, self.chains = device, keep_epochs, cache, chains
        self.runs: dict[str, int] = {}
        self._passed = LruCache(4)
        self._fronts = LruCache(8)
        self._profiles = LruCache(16)
        self._inner_targets = LruCache(16)
        self._constraints = LruCache(16)
        self._tables = LruCache(4096)
        self._anchors = LruCache(6)
        self._costs = LruCache(2)  # of candidates, by options: graphs that are tried, and edited ones, share them
        self._begun = LruCache(2)  # epochs chosen while fusing was decided
        self._placed = LruCache(64)
        self._mended = LruCache(8)
        self._balanced = LruCache(64)  # options and overrides whose tables are made
        self._netlists = LruCache(8)  # the first one of a graph, whose objects later ones use
        self._emitted = LruCache(8)
        self._checks = LruCache(8)  # what the check found in them

    def anew(self) -> Pipeline:
        """One like it, for another graph, with nothing kept yet."""
        return Pipeline(self.device, self.keep_epochs, self.cache, self.chains)

    def _count(self, stage: str, times: int = 1) -> None:
        self.runs[stage] = self.runs.get(stage, 0) + times

    # -- stage by stage --------------------------------------------------------------------------------------
    def front(self, graph: Graph, request: Request, clock: Clock) -> FrontEndResult:
        """Passes and lowering, with the nops and queues that the overrides ask for."""
        options = request.options
        key = front_end(options)

        def make() -> FrontEndResult:
            refused: dict[str, str] = {}
            apart: tuple[str, ...] = ()
            refuse_microbatch(graph, options.microbatch)
            while True:
                cut, chain, passed = self._passed_graph(graph, options, clock, refused, apart)
                try:
                    with clock.stage("lower"):
                        self._count("lower")
                        made = (key, tuple(refused), apart) if refused or apart else key  # of what is kept
                        front = FrontEndResult(made, passed, lower(passed, self.device, options), chain=chain)
                        refuse_unwritten(graph, () if chain is None else chain.held_names, front.lowered)
                        self._leave_to_host(cut, front, options)
                    unordered = unordered_writes(front.lowered) if keeps_state(graph) else set()
                    if unordered.issubset(apart):
                        break
                    refuse_unordered(graph, unordered if cut is None else ())
                    apart = tuple(sorted({*apart, *unordered}))
                except UnsupportedOp as error:
                    self._refuse_more(cut, options, error, refused)
            if request.overrides:  # told before the model is placed to decide on fusing
                with clock.stage("lower"):
                    self._refuse_impossible(front, request)
            return self._decide_fusing(front, key, clock)

        front: FrontEndResult = self._named_apart(self._fronts.get_or(key, make), request, clock)
        if not request.edits:
            return front
        edited_key = front.key, frozen(request.edits)

        def with_edits() -> FrontEndResult:
            result = edit(front.lowered, self.device, options, request.edits)
            return FrontEndResult(
                edited_key, front.passed, result.graph, result.notes, front, front.fusion, front.chain
            )

        return self._fronts.get_or(edited_key, with_edits)

    def _refuse_impossible(self, front: FrontEndResult, request: Request) -> None:
        """Raises `OverrideError` for what cannot be honoured, whatever is fused."""
        key, lowered, options = front.key, front.lowered, request.options
        named = self._named(front, request)
        if named:
            key, lowered = (key, named), lower(front.passed, self.device, options, named)
        if request.edits:
            key, lowered = (key, frozen(request.edits)), edit(lowered, self.device, options, request.edits).graph
        asked = self.constraints(FrontEndResult(key, front.passed, lowered), request)
        refuse_impossible(lowered, self.device, options, asked)

    def _passed_graph(
        self, graph: Graph, options: CompileOptions, clock: Clock, refused: dict[str, str], apart: tuple[str, ...]
    ) -> tuple[CutGraph | None, HostChain | None, Graph]:
        """How the graph is cut, if it may be, and what the passes make of the device's part. refused: ops that a stage
        has refused, with the reasons; those that passes refuse are added. apart: see `cut_graph`."""

        def run_passes() -> tuple[CutGraph | None, HostChain | None, Graph]:
            refuse_weights(graph, self.device, options)
            while True:
                automatic = options.cpu_fallback == "automatic"
                source, cut = graph, None
                if self._may_cut(options):
                    source = with_grid_integers(graph, self.device, refused)
                    cut = cut_graph(source, options, automatic, sections_of_host(refused), apart)
                    source = cut.graph if keeps_state(graph) else source
                chain = None if cut is None else chain_of(cut)
                on_device = source if chain is None else chain.device
                try:
                    with clock.stage("passes"):
                        self._count("passes")
                        passed = passes.run(on_device, options, on_pass=report_passes(clock, options)).graph
                    return cut, chain, passed
                except UnsupportedOp as error:
                    self._refuse_more(cut, options, error, refused)

        key = _without(front_end(options), LOWERING), tuple(refused), apart
        outcome = self._passed.get_or(key, run_passes)
        self._passed.store((key[0], tuple(refused), apart), outcome)
        return outcome

    def _may_cut(self, options: CompileOptions) -> bool:
        """Whether the host may run a part of the model. Training in sections is `compiler.fallback`'s."""
        return self.chains and options.training is None and options.cpu_fallback != "none"

    @staticmethod
    def _refuse_more(
        cut: CutGraph | None, options: CompileOptions, error: UnsupportedOp, refused: dict[str, str]
    ) -> None:
        """Add the ops that a stage refuses to those of the host. Raises the error where the host may not run them."""
        more = {} if cut is None or options.cpu_fallback != "automatic" else cut.host_reasons(error)
        more = {} if cut is None else meant_by(cut.graph, more, refused)
        if not set(more) - set(refused):
            raise error
        refused |= more

    def _leave_to_host(self, cut: CutGraph | None, front: FrontEndResult, options: CompileOptions) -> None:
        """Raises `UnsupportedOp` for moves of data that no core can hold and that no streaming gives, where the host
        may run them: whatever it reads and writes of them fits its memory, and no program writes what a section would
        have to hand on."""
        asked = options.manual_t_streaming or not options.enable_t_streaming  # then more would stream if it may
        if cut is None or options.cpu_fallback != "automatic" or asked:
            return
        if writes_by_parameter(cut.graph) and not keeps_state(cut.graph):
            return
        profiles = self.profiles(front, options)
        stuck = [n for n, p in profiles.items() if not len(self.table(p, p.signature, options, _FREE).legal())]
        if stuck:
            refuse_moves_without_place(cut.graph, front.lowered, stuck)

    def chain(self, graph: Graph, options: CompileOptions, clock: Clock) -> HostChain | None:
        """The sections of a model of which the host runs a part; None for others. Raises what `front` raises."""
        return self.front(graph, Request(options), clock).chain

    def _decide_fusing(self, front: FrontEndResult, options: CompileOptions, clock: Clock) -> FrontEndResult:
        """The front with what the price of fusing decides; epochs that were chosen for it are kept for `anchor`."""
        fronts: dict[int, FrontEndResult] = {}

        def start(graph: Graph) -> StartedPlacement:
            key = front.key, "fusing", len(fronts)
            trial = fronts[id(graph)] = FrontEndResult(key, front.passed, graph, chain=front.chain)
            return self._begin(trial, options, clock)

        def choose_fusing() -> Fusion:
            return decide(front.passed, front.lowered, self.device, options, start)

        problem = front.passed, front.lowered, self.device, options
        fusion = choose_fusing() if self.cache is None else self.cache.fusion(*problem, choose_fusing)
        if fusion.start is None:
            key = (front.key, "fused") if fusion.ends else front.key
            return FrontEndResult(key, front.passed, fusion.lowered, fusion=fusion, chain=front.chain)
        fused = dataclasses.replace(fronts[id(fusion.lowered)], fusion=dataclasses.replace(fusion, start=None))
        self._begun.store((fused.key, options), fusion.start)
        return fused

    def start_placement(self, front: FrontEndResult, options: CompileOptions, clock: Clock) -> StartedPlacement:
        """The epochs of a front without overrides and edits, to be held against those of another one."""
        options = _without(options, _SEARCHING)
        started: StartedPlacement = self._begun.get_or((front.key, options), lambda: self._begin(front, options, clock))
        return started

    def _begin(self, front: FrontEndResult, options: CompileOptions, clock: Clock) -> StartedPlacement:
        with clock.stage("balance"):
            models = self.models(front, Request(options), clock)
        progress, costs = self._progress(clock, share=False), self._cost(options)  # begun again for another fusing
        stage = functools.partial(clock.stage, "place")
        return begin(front.lowered, models, self.device, options, clock.cancel, progress, costs, stage)

    def _cost(self, options: CompileOptions) -> CostCache:
        """What candidates cost under these options."""
        key = _without(options, (*LOWERING, *_SEARCHING))
        costs: CostCache = self._costs.get_or(key, lambda: CostCache(self.device, options))
        return costs

    def _progress(self, clock: Clock, *, share: bool = True) -> Callable[[float, str], None]:
        """What the placer calls to say how far it is. share: with a number, which goes up only of what is done once."""

        def tell(part: float, what: str) -> None:
            clock.report("place", part)
            clock.stop_or_tell("place", f"{what}, {100 * part:.0f} %" if share else what)

        return tell

    def _named_apart(self, front: FrontEndResult, request: Request, clock: Clock) -> FrontEndResult:
        """Lowered again if overrides name ops that were fused into others: those stay ops of their own."""
        named = self._named(front, request)
        if not named:
            return front

        def make() -> FrontEndResult:
            with clock.stage("lower"):
                self._count("lower")
                ends = front.fusion.ends if front.fusion is not None else ()
                lowered = lower(front.passed, self.device, request.options, named, ends)
            return FrontEndResult((front.key, named), front.passed, lowered, fusion=front.fusion, chain=front.chain)

        named_apart: FrontEndResult = self._fronts.get_or((front.key, named), make)
        return named_apart

    def _named(self, front: FrontEndResult, request: Request) -> frozenset[str]:
        """Ops inside fused ones that overrides name."""
        named: frozenset[str] = self._inner_targets.get_or(
            (front.key, request.overrides_key), lambda: inner_targets(front.inner, request.overrides)
        )
        return named

    def profiles(self, front: FrontEndResult, options: CompileOptions) -> dict[str, OpProfile]:
        """What of every op decides its candidates."""
        return self._profiles.get_or((front.key, options), lambda: profiles(front.lowered, options))

    def constraints(self, front: FrontEndResult, request: Request) -> Constraints:
        """What overrides mean for the ops and queues of a front. What is wrong with them is in `faults`."""
        if not request.overrides:
            return FREE
        options = request.options
        constraints: Constraints = self._constraints.get_or(
            (front.key, options, request.overrides_key),
            lambda: resolve(request.overrides, front.lowered, self.device, options, self.profiles(front, options)),
        )
        return constraints

    def table(self, profile: OpProfile, signature: str, options: CompileOptions, choice: Choice) -> OpModels:
        """The candidates of one op with these things fixed."""

        def make() -> OpModels:
            self._count("table")
            rows = candidates(profile, self.device, options, choice)
            return OpModels(signature if choice == Choice() else f"{signature}|{choice!r}", rows, profile)

        key = (_without(options, CHOOSING), options.streams_parameters, signature, choice)
        return self._tables.get_or(key, make)

    def signatures(self, front: FrontEndResult, options: CompileOptions) -> dict[str, str]:
        """The signature of every op's profile."""
        return self._profiles.get_or(
            ("signatures", front.key, options),
            lambda: {name: p.signature for name, p in self.profiles(front, options).items()},
        )

    def models(self, front: FrontEndResult, request: Request, clock: Clock | None = None) -> dict[str, OpModels]:
        """`balancer.op_models`, making only the tables that are not known yet. Raises what it raises, and
        `Cancelled`."""
        options = request.options
        result = self.profiles(front, options)
        signatures = self.signatures(front, options)
        fixed = self.constraints(front, request).checked().choices
        free: dict[str, OpModels] = {}  # by signature, where nothing is fixed: layers ask for the same ones
        models: dict[str, OpModels] = {}
        for number, (name, profile) in enumerate(result.items(), 1):
            if clock is not None:
                clock.stop_or_tell("balance", f"op {number} of {len(result)}")
            signature, choice = signatures[name], fixed.get(name, _FREE)
            plain = choice is _FREE
            table = free.get(signature) if plain else None
            if table is None:
                table = self.table(profile, signature, options, choice)
                if plain:
                    free[signature] = table
            models[name] = table
        if not all(len(table.legal()) for table in {id(t): t for t in models.values()}.values()):
            return op_models(front.lowered, self.device, options, fixed)  # raises, and says everything there is
        self._balanced.store((options, request.overrides_key), True)
        return models

    def free_table(
        self, front: FrontEndResult, options: CompileOptions, overrides: Sequence[Override], op: str
    ) -> OpModels:
        """The candidates of one op under overrides that need not be those of the current request."""
        if op not in self.profiles(front, options) and front.key in self._mended:
            front = self._mended[front.key]  # a nop of the placer's
        profile = self.profiles(front, options)[op]
        choice = choices({op: profile}, self.device, overrides).get(op, Choice())
        return self.table(profile, self.signatures(front, options)[op], options, choice)

    def anchor(
        self,
        front: FrontEndResult,
        request: Request,
        clock: Clock,
        start: Callable[[], StartedPlacement | None] = lambda: None,
    ) -> IncrementalPlacer:
        """The whole model placed with the base overrides. start: what a search goes on from if there are any."""

        def make() -> IncrementalPlacer:
            self._count("place")
            plain = front.key, _without(request.options, _SEARCHING)
            begun = start() if request.base else self._begun.pop(plain, None)
            result = self._whole(front, request.of_base, clock, begun)
            placer = IncrementalPlacer(self.device, self.constraints(front, request.of_base), result)
            if self.keep_epochs:
                placer.whole().before()  # what the first edit would wait for
            return placer

        return self._anchors.get_or(request.of_base.key, make)

    def take_over(self, before: Request, same: Request) -> None:
        """What is known of a request without edits holds for another one, which comes to the same placement. The first
        is forgotten: it depends on time, and may come to something else when it is asked for again."""
        for store in (self._placed, self._anchors):
            value = store.pop(before.key, None)
            if value is not None and same is not before:
                store.store(same.key, value)

    def _whole(
        self,
        front: FrontEndResult,
        request: Request,
        clock: Clock,
        begun: StartedPlacement | None = None,
    ) -> Outcome:
        with clock.stage("balance"):
            models = self.models(front, request, clock)
        problem = front.lowered, models, self.device, request.options, self.constraints(front, request)
        costs = self._cost(request.options)

        def place() -> Outcome:
            progress, watch = self._progress(clock), clock.watch
            return place_and_repair(
                *problem, cancel=clock.cancel, on_progress=progress, costs=costs, begun=begun, watch=watch
            )

        with clock.stage("place"):
            return place() if self.cache is None else self.cache.outcome(*problem, place, costs)

    def with_insertions(self, front: FrontEndResult, anchor: IncrementalPlacer) -> FrontEndResult:
        """The front with the nops and queues that the placer inserted."""
        if not anchor.edits:
            return front
        key = front.key, "repair", frozen(anchor.edits)
        result: FrontEndResult = self._fronts.get_or(
            key, lambda: dataclasses.replace(front, key=key, lowered=anchor.graph, plain=front.plain or front)
        )
        self._mended.store(front.key, result)
        return result

    def place(self, graph: Graph, request: Request, clock: Clock) -> tuple[FrontEndResult, PlacedOps]:
        """Where every op goes. Raises `OverrideError` and `PlacementError` as `compile_graph` does."""
        refuse_unknown(request.options)
        front = self.front(graph, request, clock)

        def whole(request: Request) -> tuple[FrontEndResult, PlacedOps]:
            anchor = self.anchor(front, request, clock, lambda: self._start_of_search(graph, front, request, clock))
            return self.with_insertions(front, anchor), anchor.whole()

        def make() -> tuple[FrontEndResult, PlacedOps]:
            refuse_impossible(front.lowered, self.device, request.options, self.constraints(front, request))
            if request.overrides == request.base:
                return whole(request)
            reused = self._reused_anchor(graph, front, request, clock) if self.keep_epochs else None
            if reused is None:
                return whole(dataclasses.replace(request, base=request.overrides))
            near, anchor = reused
            if frozen(anchor.constraints.records) == request.overrides_key:
                return near, anchor.whole()
            with clock.stage("balance"):
                models, constraints = self.models(near, request, clock), self.constraints(near, request)
            with clock.stage("place"):
                self._count("edit")
                epochs_before = anchor.new_epochs
                edited = anchor.with_constraints(models, constraints, clock.cancel)
                self._count("epoch", anchor.new_epochs - epochs_before)
            if edited is None:
                return whole(dataclasses.replace(request, base=request.overrides))
            return near, edited

        return self._placed.get_or(request.key, make)

    def _start_of_search(
        self, graph: Graph, front: FrontEndResult, request: Request, clock: Clock
    ) -> StartedPlacement | None:
        """What a search with overrides goes on from: the same edit of the placement without them that a compile which
        does not search is, and not another placement made anew. None where nothing is searched, or where that edit
        has other ops, or needs the whole model placed anew."""
        if _without(request.options, _SEARCHING) == request.options:
            return None
        plain = Request(_without(request.options, _SEARCHING), request.base)
        reused = self._reused_anchor(graph, front, plain, clock)
        if reused is None or reused[0].lowered is not front.lowered:
            return None
        models, constraints = self.models(front, plain, clock), self.constraints(front, plain)
        edited = reused[1].with_constraints(models, constraints, clock.cancel)
        if edited is None:
            return None
        return StartedPlacement(edited.problem, edited.policy, lambda most: edited.segments)

    def _reused_anchor(
        self, graph: Graph, front: FrontEndResult, request: Request, clock: Clock
    ) -> tuple[FrontEndResult, IncrementalPlacer] | None:
        """The placement that the overrides of a request are an edit of, with its front: that of the base overrides, for
        nops, queues and formats beside them carried over to the edited graph. None where there is none: other ops are
        fused, edits of the base are gone, or an epoch finds no room for what they add."""
        plain = self.front(graph, request.of_base, clock)
        if (plain.plain or plain).key != (front.plain or front).key:
            return None
        anchor = self.anchor(plain, request, clock)
        near = self.with_insertions(plain, anchor)
        had, has = request.of_base.edits, request.edits
        if frozen(had) == frozen(has):
            return near, anchor
        if frozen(had) != frozen(has[: len(had)]):
            return None
        added = has[len(had) :]

        def make() -> tuple[FrontEndResult, IncrementalPlacer] | None:
            try:
                result = edit(near.lowered, self.device, request.options, added)
            except OverrideError:  # not beside what the placer inserted
                return None
            key = (near.key, "edited", frozen(added))
            front = FrontEndResult(
                key,
                near.passed,
                result.graph,
                (*near.notes, *result.notes),
                near.plain or near,
                near.fusion,
                near.chain,
            )
            with clock.stage("balance"):
                asked = Request(request.options, (*request.base, *added))
                models, constraints = self.models(front, asked, clock), self.constraints(front, asked)
            with clock.stage("place"):
                self._count("regraph")
                before = anchor.new_epochs
                placing = anchor.regraph(result.graph, models, constraints, clock.cancel)
                self._count("epoch", anchor.new_epochs - before)
            return None if placing is None else (front, placing)

        base = request.of_base.key
        result: tuple[FrontEndResult, IncrementalPlacer] | None = self._anchors.get_or((base, frozen(added)), make)
        if result is not None:
            self._mended.store(front.key, result[0])
        return result

    def is_known(self, graph: Graph, request: Request, clock: Clock) -> bool:
        """Whether a placement comes from memory or from disk: in a moment. Passes and lowering are run for that."""
        if request.key in self._placed:
            return True
        if self.cache is None or front_end(request.options) in self._fronts:
            return self.cache is not None
        passed = self._passed_graph(graph, request.options, clock, {}, ())[2]
        lowered = lower(passed, self.device, request.options)
        return self.cache.knows_fusion(lowered, self.device, front_end(request.options))

    def last_known_stage(self, request: Request) -> str:
        """The last stage whose work for a request is known: "placed", "balanced", "lowered" or ""."""
        if request.key in self._placed:
            return "placed"
        if front_end(request.options) not in self._fronts:
            return ""
        return "balanced" if (request.options, request.overrides_key) in self._balanced else "lowered"

    def compile(self, graph: Graph, request: Request, clock: Clock) -> CompileResult:
        """Everything up to the checked netlist."""
        front, placed = self.place(graph, request, clock)
        with clock.stage("place"):
            placement = placed.placement()
        constraints = self.constraints(front, request)

        def check(netlist: Netlist) -> list[Diagnostic]:
            first = front.key not in self._netlists
            share_netlist(netlist, self._netlists.get_or(front.key, lambda: netlist))
            subject = front.lowered, placement, self.device, request.options, constraints

            def find() -> list[Diagnostic]:
                findings = check_netlist(netlist, self.device, self._checks.get_or(front.key, CheckCache))
                return [*findings, *objective_notes(*subject)]

            # after an edit most of a netlist is known to be good: the rest takes less than the text of all
            return self.cache.findings(netlist, *subject, find) if self.cache is not None and first else find()

        return finish(
            graph,
            front.passed,
            front.lowered,
            placement,
            self.device,
            request.options,
            constraints,
            clock,
            front.notes,
            front.parameters,
            check,
            self._emitted.get_or((front.key, request.options), EmitMemory),
            front.fusion,
            front.chain,
        )


def compile_graph(
    graph: Graph,
    device: DeviceSpec | str,
    options: CompileOptions | None = None,
    overrides: Sequence[Override] = (),
    on_stage: StageHook | None = None,
    cancel: threading.Event | None = None,
    cache: bool = True,
    chains: bool = True,
) -> CompileResult:
    """Compile an nD graph (a frontend's) for a device. cache: whether placements are kept on disk (`compiler.cache`).
    chains: whether the host may run ops between those of the device, as `CompileOptions.cpu_fallback` says.

    Raises `UnsupportedOp`, `OverrideError`, `PlacementError`, `UnknownDevice`, or `Cancelled` once `cancel` is set.
    """
    spec = device if isinstance(device, DeviceSpec) else load_device(device)
    refuse_malformed(overrides)
    requested = tuple(overrides)
    request = Request(options or CompileOptions(), requested, requested)
    pipeline = Pipeline(spec, keep_epochs=False, cache=CompileCache() if cache else None, chains=chains)
    with no_collections():
        return pipeline.compile(graph, request, Clock(on_stage, cancel))
