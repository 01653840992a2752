"""`pybuda_compile`: one device compiled and checked, without a run loop."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler.pybuda_stages import StagedCompile, StageResult
from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.frontend.inputs import elements
from tbuda_lab.core.frontend.pybuda import Tensor, with_loss
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.ops.evaluate import evaluate_nodes
from tbuda_lab.core.runner import join_elements
from tbuda_lab.runtime import config
from tbuda_lab.runtime.compile_outputs import stops_early
from tbuda_lab.runtime.compiler_config import CompilerConfig
from tbuda_lab.runtime.device import as_inputs
from tbuda_lab.runtime.enums import CompileDepth
from tbuda_lab.runtime.judging import judge, judge_outputs, require
from tbuda_lab.runtime.results import CompileResults, match_result
from tbuda_lab.runtime.ttdevice import TTDevice


def pybuda_compile(
    device: TTDevice,
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
            raise not_supported("pybuda_compile with targets, losses or microbatch_count",
                                "place_loss_module and run_training train; initialize_pipeline compiles for it")
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
            outputs = [Tensor.create_from_torch(t.value()[: g.shape[0]]) if g.shape else t
                       for t, g in zip(outputs, golden, strict=True)]
    finally:
        config._set_global_compiler_config(before)
    if verify_cfg is not None and verify_cfg.enabled and outputs is not reference:
        require([judge(f"{graph_name} output {k}", want, got, verify_cfg)
                 for k, (want, got) in enumerate(zip(golden, outputs, strict=True))])
    results = CompileResults(result, device.modules[-1].get_name(), outputs, golden)
    results.depth = depth
    results.golden_intermediates = _intermediates(device, sample)
    results.pass_specific_output_kwargs |= match_result(results.stages, copies) if copies else {}
    return results


def _refuse_subgraphs(device: TTDevice, call: str) -> None:
    if device.has_subgraphs:
        raise not_supported(f"{call} of a device with subgraphs", "initialize_pipeline(training=False, sample_inputs=("
                            "(inputs of the first), ...)) compiles them, get_compiled_results and Session show them")


def repeat_sample(device: TTDevice, sample: Any) -> Any:
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

    def __init__(self, staged: StagedCompile, device: TTDevice, sample: Any) -> None:
        self.staged = staged
        self.name = device.modules[-1].get_name()
        self.golden_outputs = [t.detach() for t in _reference(device, sample)]
        self.outputs = [Tensor.create_from_torch(t) for t in self.golden_outputs]
        self.pass_specific_output_kwargs = {}
        self.golden_intermediates = {}
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
    device: TTDevice,
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


def _intermediates(device: TTDevice, sample: Any) -> dict[str, Tensor]:
    """Every op of the traced graph in torch, for the first element of the sample."""
    graph = device.trace(sample)
    feed = next(iter(elements(graph, frontend.feeds(graph, sample))))
    values = evaluate_nodes(graph, feed)
    return {node.name: Tensor.create_from_torch(values[node.name]) for node in graph.ops}


def _reference(device: TTDevice, sample: Any) -> Any:
    value = sample
    for module in device.modules:
        value = tuple(frontend.reference(module, value))
    return value
