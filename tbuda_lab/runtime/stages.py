"""The stages of a compile as functions of a `CompileContext`, under PyBuda's names, and the loop that runs them.

A stage leaves its graph and its report in `context.stages` and returns the stage to run next: without constant folding,
patterns or training the stages for them are passed over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.pybuda_stages import DEPTHS, StageResult, all_stages
from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.runtime import config
from tbuda_lab.runtime.compile import pybuda_compile
from tbuda_lab.runtime.compiler_config import CompilerConfig
from tbuda_lab.runtime.device import as_inputs
from tbuda_lab.runtime.enums import CompileDepth
from tbuda_lab.runtime.results import CompileResults
from tbuda_lab.runtime.ttdevice import TTDevice


@dataclasses.dataclass
class CompileContext:
    """What a compile is given, and what its stages leave. stages: by name, as far as the compile has come; results: of
    the last stage. Without `compiler_cfg` the global configuration applies."""

    dev: TTDevice
    graph_name: str
    inputs: Sequence[Any]
    compiler_cfg: CompilerConfig | None = None
    verify_cfg: Any = None
    microbatch_size: int = 1
    stages: dict[str, StageResult] = dataclasses.field(default_factory=dict)
    placed: CompileResult | None = None
    results: CompileResults | None = None
    _known: dict[str, StageResult] = dataclasses.field(default_factory=dict, repr=False)

    @property
    def graph(self) -> Graph | None:
        """As the last stage left it: nD up to PRE_LOWERING_PASS, then lowered."""
        return next((s.graph for s in reversed(self.stages.values()) if s.graph is not None), None)

    @property
    def initial_graph(self) -> Graph | None:
        stage = self.stages.get(DEPTHS[CompileDepth.GENERATE_INITIAL_GRAPH])
        return None if stage is None else stage.graph

    @property
    def lowered_graph(self) -> Graph | None:
        stage = self.stages.get(DEPTHS[CompileDepth.BUDA_GRAPH_PRE_PLACER])
        return None if stage is None else stage.graph

    @property
    def netlist(self) -> Netlist | None:
        """There from GENERATE_NETLIST on."""
        return self.placed.netlist if self.placed and DEPTHS[CompileDepth.GENERATE_NETLIST] in self.stages else None

    @contextmanager
    def settings(self) -> Iterator[CompilerConfig]:
        """The configuration of this compile, as the global one."""
        before = config._get_global_compiler_config()
        config._set_global_compiler_config(self.compiler_cfg or before)
        try:
            yield config._get_global_compiler_config()
        finally:
            config._set_global_compiler_config(before)

    def reach(self, depth: CompileDepth) -> None:
        """Take in the result of a stage. Passes run once for all stages that are passes, placement once for all behind
        it. Raises `PipelineError` for a stage whose predecessors have not run."""
        if len(self.stages) != sum(DEPTHS[d] in self.stages for d in CompileDepth if d < depth):
            raise PipelineError(f"stage {depth.name} comes before {list(self.stages)[-1]}, which has run")
        if depth > CompileDepth.INIT_COMPILE and DEPTHS[0] not in self.stages:
            raise PipelineError(f"stage {depth.name} needs init_compile before it")
        name = DEPTHS[depth]
        with self.settings():
            if depth >= CompileDepth.BALANCER_PASS and self.placed is None:
                self.placed = self.dev.compile_for_inputs(as_inputs(tuple(self.inputs)), self.microbatch_size)
                self._known = {stage.name: stage for stage in all_stages(self.placed)}
            if name not in self._known:
                until = depth if depth < CompileDepth.POST_INITIAL_GRAPH_PASS else max(depth,
                    CompileDepth.PRE_LOWERING_PASS)
                staged = self.dev.compile_to_depth(as_inputs(tuple(self.inputs)), CompileDepth(until))
                self._known |= {stage.name: stage for stage in staged.stages}
            self.stages[name] = self._known[name]
        if depth is CompileDepth.BACKEND_GOLDEN_VERIFY:
            self.finish()

    def finish(self) -> CompileResults:
        """The results of `pybuda_compile`, which takes the placed compile as it is."""
        if self.results is None:
            self.results = pybuda_compile(
                self.dev, self.graph_name, *self.inputs, compiler_cfg=self.compiler_cfg, verify_cfg=self.verify_cfg,
                microbatch_size=self.microbatch_size,
            )  # fmt: skip
        return self.results


def next_stage(depth: CompileDepth, settings: CompilerConfig) -> CompileDepth:
    """The stage behind one, those passed over that these settings have no use for."""
    unused = {
        CompileDepth.CONSTEVAL_GRAPH: not settings.enable_consteval,
        CompileDepth.POST_PATTERN_MATCHER: not settings.match_subgraph_patterns,
        CompileDepth.AUTOGRAD: not settings.enable_training,
    }
    behind = CompileDepth(depth + 1)
    return next_stage(behind, settings) if unused.get(behind) else behind


def _stage(depth: CompileDepth, name: str, doc: str) -> Callable[[CompileContext], CompileDepth]:
    def run(context: CompileContext) -> CompileDepth:
        context.reach(depth)
        with context.settings() as settings:
            return next_stage(depth, settings)

    run.__name__ = run.__qualname__ = name
    run.__doc__ = f"{doc} Returns the next stage; raises the errors of a compile."
    return run


init_compile = _stage(CompileDepth.INIT_COMPILE, "init_compile", "The device and its settings.")
generate_initial_graph = _stage(CompileDepth.GENERATE_INITIAL_GRAPH, "generate_initial_graph",
                                "The modules of the device, traced: an nD graph.")  # fmt: skip
run_post_initial_graph_pass = _stage(CompileDepth.POST_INITIAL_GRAPH_PASS, "run_post_initial_graph_pass",
                                     "Ops in terms of simpler ones; requested fractures.")  # fmt: skip
run_consteval_pass = _stage(CompileDepth.CONSTEVAL_GRAPH, "run_consteval_pass", "What depends on constants is folded.")
run_post_pattern_matcher = _stage(CompileDepth.POST_PATTERN_MATCHER, "run_post_pattern_matcher",
                                  "Changes nothing: repeated parts share their tables without patterns.")  # fmt: skip
run_optimization_pass = _stage(CompileDepth.OPTIMIZED_GRAPH, "run_optimization_pass",
                               "Moves of data cancel, factors and biases join the ops before them.")  # fmt: skip
run_autograd_pass = _stage(CompileDepth.AUTOGRAD, "run_autograd_pass", "Backward ops and the optimizer are added.")
run_post_autograd_pass = _stage(CompileDepth.POST_AUTOGRAD_PASS, "run_post_autograd_pass",
                                "Ops that waited for their gradients are taken apart.")  # fmt: skip
run_pre_lowering_pass = _stage(CompileDepth.PRE_LOWERING_PASS, "run_pre_lowering_pass", "The rest of the nD passes.")
run_pre_placer_pass = _stage(CompileDepth.BUDA_GRAPH_PRE_PLACER, "run_pre_placer_pass",
                             "The graph of hardware ops on tiles.")  # fmt: skip
run_balancer_and_placer = _stage(CompileDepth.BALANCER_PASS, "run_balancer_and_placer", "Epochs, grids and places.")
run_pre_netlist_pass = _stage(CompileDepth.PRE_NETLIST_PASS, "run_pre_netlist_pass", "What the compile has to say.")
generate_netlist = _stage(CompileDepth.GENERATE_NETLIST, "generate_netlist", "The netlist, checked by every rule.")
run_backend_golden_verify = _stage(CompileDepth.BACKEND_GOLDEN_VERIFY, "run_backend_golden_verify",
                                   "The netlist runs, and its outputs are judged as `verify_cfg` says.")  # fmt: skip

stage_to_func: dict[CompileDepth, Callable[[CompileContext], CompileDepth]] = dict(zip(CompileDepth, (
    init_compile, generate_initial_graph, run_post_initial_graph_pass, run_consteval_pass, run_post_pattern_matcher,
    run_optimization_pass, run_autograd_pass, run_post_autograd_pass, run_pre_lowering_pass, run_pre_placer_pass,
    run_balancer_and_placer, run_pre_netlist_pass, generate_netlist, run_backend_golden_verify,
), strict=False))  # fmt: skip


def pybuda_compile_from_context(context: CompileContext) -> CompileResults:
    """Run the stages up to `compile_depth`; the results of `pybuda_compile`. Raises what it raises."""
    with context.settings() as settings:
        depth = settings.effective("compile_depth")
    stage = CompileDepth.INIT_COMPILE
    while stage < CompileDepth.FULL:
        following = stage_to_func[stage](context)
        if stage >= depth:
            break
        stage = following
    return context.finish()
