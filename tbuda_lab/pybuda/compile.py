"""`pybuda.compile`: one device compiled and checked, whole (`pybuda_compile`) or by stages, without a run loop.

The stages are functions of a `CompileContext` under PyBuda's names. A stage leaves its graph and its report in
`context.stages` and returns the stage to run next: without constant folding, patterns or training the stages for them
are passed over.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.pybuda_stages import DEPTHS, StagedCompile, StageResult, all_stages
from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.frontend.pybuda import Tensor, with_loss
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.core.ops.evaluate import evaluate_nodes
from tbuda_lab.core.runner import join_elements
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.compile_outputs import stops_early
from tbuda_lab.pybuda.compiled_device import CompiledDevice
from tbuda_lab.pybuda.compiler_config import CompilerConfig
from tbuda_lab.pybuda.config import _get_global_compiler_config as _get_global_compiler_config
from tbuda_lab.pybuda.enums import CompileDepth
from tbuda_lab.pybuda.judging import judge, judge_outputs, require
from tbuda_lab.pybuda.results import CompileResults, match_result
from tbuda_lab.pybuda.stage import as_inputs


def pybuda_compile(
    device: CompiledDevice,
    graph_name: str,
    *inputs: Any,
    compiler_cfg: CompilerConfig | None = None,
    verify_cfg: Any = None,
    targets: Sequence[Any] = (),
    losses: Any = None,
    microbatch_size: int = 1,
    microbatch_count: int = 1,
) -> CompileResults:
    """Compile the modules placed on a device for these inputs, run them, and judge the outputs if `verify_cfg` says so.

    microbatch_size: inputs that one pass of the program takes; the sample is repeated to fill it. It decides whether
    weights are preloaded (see `default_dram_parameters`). The depth below which nothing is compiled for a device gives
    `stages` only.
    Without `compiler_cfg` the global configuration and its overrides apply. A compile depth below
    BACKEND_GOLDEN_VERIFY, NoBackend and CompileOnly compile only; `outputs` are then the reference's. Raises
    `AssertionError` on a mismatch.
    """
    sample = as_inputs(inputs)
    before = config._get_global_compiler_config()
    config._set_global_compiler_config(compiler_cfg or before)
    try:
        settings = config._get_global_compiler_config()
        depth = settings.effective("compile_depth")
        if targets or losses is not None or microbatch_count != 1:
            raise not_supported(
                "pybuda_compile with targets, losses or microbatch_count",
                "place_loss_module and run_training train; initialize_pipeline compiles for it",
            )
        _refuse_subgraphs(device, "pybuda_compile")
        copies = settings.match_subgraph_patterns
        if stops_early(settings):
            staged = StagedResults(device.compile_to_depth(sample, depth), device, sample)
            staged.pass_specific_output_kwargs |= match_result(staged.stages, copies) if copies else {}
            return staged
        result = device.compile_for_inputs(sample, microbatch_size)
        golden = [t.detach() for t in _reference(device, sample)]
        outputs = reference = [Tensor.create_from_torch(t) for t in golden]
        if depth >= CompileDepth.BACKEND_GOLDEN_VERIFY and device.runs:
            outputs = [Tensor.create_from_torch(t) for t in device.run_forward(repeat_sample(device, sample))]
            outputs = [
                Tensor.create_from_torch(t.value()[: g.shape[0]]) if g.shape else t
                for t, g in zip(outputs, golden, strict=True)
            ]
    finally:
        config._set_global_compiler_config(before)
    if verify_cfg is not None and verify_cfg.enabled and outputs is not reference:
        require(
            [
                judge(f"{graph_name} output {k}", want, got, verify_cfg)
                for k, (want, got) in enumerate(zip(golden, outputs, strict=True))
            ]
        )
    results = CompileResults(result, device.modules[-1].get_name(), outputs, golden)
    results.depth = depth
    results.evaluate_intermediates = _intermediates(device, sample)
    results.pass_specific_output_kwargs |= match_result(results.stages, copies) if copies else {}
    return results


def _refuse_subgraphs(device: CompiledDevice, call: str) -> None:
    if device.has_subgraphs:
        raise not_supported(
            f"{call} of a device with subgraphs",
            "initialize_pipeline(training=False, sample_inputs=("
            "(inputs of the first), ...)) compiles them, get_compiled_results and Session show them",
        )


def repeat_sample(device: CompiledDevice, sample: Any) -> Any:
    """The sample as often, along dim 0, as the microbatch that the device was compiled for needs."""
    assert device.result is not None
    graph, microbatch = device.result.graph, device.result.options.microbatch
    feeds = frontend.feeds(graph, sample)
    factor = microbatch // max(1, sum(1 for _ in elements(graph, feeds)))
    if factor == 1:
        return sample
    return tuple(torch.cat([t] * factor) if graph[n].shape[:1] == (1,) else t for n, t in feeds.items())


class StagedResults(CompileResults):
    """A compile that `compile_depth` stopped before a netlist: `stages`, and the graphs that there are."""

    def __init__(self, staged: StagedCompile, device: CompiledDevice, sample: Any) -> None:
        self.staged = staged
        self.name = device.modules[-1].get_name()
        self.golden_outputs = [t.detach() for t in _reference(device, sample)]
        self.outputs = [Tensor.create_from_torch(t) for t in self.golden_outputs]
        self.pass_specific_output_kwargs = {}
        self.evaluate_intermediates = dict
        self.perf_model_results = {}

    @property
    def stages(self) -> tuple[StageResult, ...]:
        return self.staged.stages

    @property
    def initial_graph(self) -> Any:
        return self.staged.graph("generate_initial_graph")

    @property
    def lowered_graph(self) -> Any:
        """The lowered graph; None where the compile ended before it."""
        return self.staged.last.graph if self.staged.last.name == "buda_graph_pre_placer" else None

    @property
    def netlist_filename(self) -> str | None:
        """None: the compile ended before the netlist."""
        return None


def generate_graph(
    device: CompiledDevice,
    sample: Any,
    targets: Any,
    training: bool,
    return_intermediate: bool,
    trace_only: bool,
    verify_cfg: Any,
) -> tuple[Graph, tuple[Tensor, ...], dict[str, Tensor], tuple[Tensor, ...], Tensor | None]:
    """See `TTDevice.generate_graph`."""
    if not device.modules:
        raise PipelineError(f"no module has been placed on device {device.name!r}; call place_module first")
    _refuse_subgraphs(device, "generate_graph")
    graph = frontend.from_pybuda(device.modules, sample, training=training)
    feeds = dict(frontend.feeds(graph, sample))
    tensors = tuple(Tensor.create_from_torch(tensor) for tensor in feeds.values())
    if (device.loss_module is None) != (not targets) and not (trace_only and not targets):
        raise PipelineError(f"device {device.name!r}: target_tensors and place_loss_module belong together")
    if device.loss_module is not None and targets:
        graph, names = with_loss(graph, device.loss_module, targets)
        feeds.update(zip(names, targets, strict=True))
    target = Tensor.create_from_torch(targets[0]) if targets else None
    if trace_only:
        return graph, tuple(Tensor(node.shape, node=node.name) for node in graph.outputs), {}, tensors, target
    parts = [evaluate_nodes(graph, one) for one in elements(graph, feeds)]
    values = [join_elements([part[node.name] for part in parts]) for node in graph.outputs]
    if verify_cfg is not None and verify_cfg.enabled and not targets:
        judge_outputs(device.modules, sample, values, 0, verify_cfg)
    between = {node.name: Tensor.create_from_torch(parts[0][node.name]) for node in graph.ops if return_intermediate}
    return graph, tuple(Tensor.create_from_torch(value) for value in values), between, tensors, target


def _intermediates(device: CompiledDevice, sample: Any) -> Callable[[], dict[str, Tensor]]:
    """What evaluates every op of the traced graph in torch, for the first element of the sample as it is now."""
    graph = device.trace(sample)
    feed = {name: value.clone() for name, value in next(iter(elements(graph, frontend.feeds(graph, sample)))).items()}

    def evaluate() -> dict[str, Tensor]:
        values = evaluate_nodes(graph, feed)
        return {node.name: Tensor.create_from_torch(values[node.name]) for node in graph.ops}

    return evaluate


def _reference(device: CompiledDevice, sample: Any) -> Any:
    value = sample
    for module in device.modules:
        value = tuple(frontend.reference(module, value))
    return value


# -- stage by stage ----------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class CompileContext:
    """What a compile is given, and what its stages leave. stages: by name, as far as the compile has come; results: of
    the last stage. Without `compiler_cfg` the global configuration applies."""

    dev: CompiledDevice
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
                until = (
                    depth
                    if depth < CompileDepth.POST_INITIAL_GRAPH_PASS
                    else max(depth, CompileDepth.PRE_LOWERING_PASS)
                )
                staged = self.dev.compile_to_depth(as_inputs(tuple(self.inputs)), CompileDepth(until))
                self._known |= {stage.name: stage for stage in staged.stages}
            self.stages[name] = self._known[name]
        if depth is CompileDepth.BACKEND_GOLDEN_VERIFY:
            self.finish()

    def finish(self) -> CompileResults:
        """The results of `pybuda_compile`, which takes the placed compile as it is."""
        if self.results is None:
            self.results = pybuda_compile(
                self.dev,
                self.graph_name,
                *self.inputs,
                compiler_cfg=self.compiler_cfg,
                verify_cfg=self.verify_cfg,
                microbatch_size=self.microbatch_size,
            )
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
generate_initial_graph = _stage(
    CompileDepth.GENERATE_INITIAL_GRAPH, "generate_initial_graph", "The modules of the device, traced: an nD graph."
)
run_post_initial_graph_pass = _stage(
    CompileDepth.POST_INITIAL_GRAPH_PASS,
    "run_post_initial_graph_pass",
    "Ops in terms of simpler ones; requested fractures.",
)
run_consteval_pass = _stage(CompileDepth.CONSTEVAL_GRAPH, "run_consteval_pass", "What depends on constants is folded.")
run_post_pattern_matcher = _stage(
    CompileDepth.POST_PATTERN_MATCHER,
    "run_post_pattern_matcher",
    "Changes nothing: repeated parts share their tables without patterns.",
)
run_optimization_pass = _stage(
    CompileDepth.OPTIMIZED_GRAPH,
    "run_optimization_pass",
    "Moves of data cancel, factors and biases join the ops before them.",
)
run_autograd_pass = _stage(CompileDepth.AUTOGRAD, "run_autograd_pass", "Backward ops and the optimizer are added.")
run_post_autograd_pass = _stage(
    CompileDepth.POST_AUTOGRAD_PASS, "run_post_autograd_pass", "Ops that waited for their gradients are taken apart."
)
run_pre_lowering_pass = _stage(CompileDepth.PRE_LOWERING_PASS, "run_pre_lowering_pass", "The rest of the nD passes.")
run_pre_placer_pass = _stage(
    CompileDepth.BUDA_GRAPH_PRE_PLACER, "run_pre_placer_pass", "The graph of hardware ops on tiles."
)
run_balancer_and_placer = _stage(CompileDepth.BALANCER_PASS, "run_balancer_and_placer", "Epochs, grids and places.")
run_pre_netlist_pass = _stage(CompileDepth.PRE_NETLIST_PASS, "run_pre_netlist_pass", "What the compile has to say.")
generate_netlist = _stage(CompileDepth.GENERATE_NETLIST, "generate_netlist", "The netlist, checked by every rule.")
run_backend_golden_verify = _stage(
    CompileDepth.BACKEND_GOLDEN_VERIFY,
    "run_backend_golden_verify",
    "The netlist runs, and its outputs are judged as `verify_cfg` says.",
)

stage_to_func: dict[CompileDepth, Callable[[CompileContext], CompileDepth]] = dict(
    zip(
        CompileDepth,
        (
            init_compile,
            generate_initial_graph,
            run_post_initial_graph_pass,
            run_consteval_pass,
            run_post_pattern_matcher,
            run_optimization_pass,
            run_autograd_pass,
            run_post_autograd_pass,
            run_pre_lowering_pass,
            run_pre_placer_pass,
            run_balancer_and_placer,
            run_pre_netlist_pass,
            generate_netlist,
            run_backend_golden_verify,
        ),
        strict=False,
    )
)


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
