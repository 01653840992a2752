"""A simulated device that compiles its modules and runs them: a TTDevice, or one that was made of an image."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core import frontend
from tbuda_lab.core.bindings import in_model_dtypes
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.fallback import SplitResult, compile_with_fallback
from tbuda_lab.core.compiler.pybuda_stages import StagedCompile
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import BatchError, ModelError, PipelineError, UnsupportedOp, not_supported
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.inputs import as_tensor, elements
from tbuda_lab.core.frontend.pybuda import Module, Parameter, PyTorchModule
from tbuda_lab.core.frontend.pybuda.tensor import TORCH_FORMATS
from tbuda_lab.core.frontend.torch_model.export import set_evaluation
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.lowering.data_formats import device_format
from tbuda_lab.core.options import CompileOptions, TrainingOptions
from tbuda_lab.core.passes.fracture import named_by_place
from tbuda_lab.core.runner import Runner
from tbuda_lab.pybuda import config, subgraphs
from tbuda_lab.pybuda.compile_outputs import compile_to_depth, netlist_folder, stops_early, write_files, write_trace
from tbuda_lab.pybuda.compiler_config import ENVIRONMENT, environment, warn_environment, warn_once, warn_options
from tbuda_lab.pybuda.context import CONTEXT
from tbuda_lab.pybuda.enums import BackendDevice, BackendType, CompileDepth, DeviceMode, PerfTraceLevel
from tbuda_lab.pybuda.loopback import LoopbackCaches
from tbuda_lab.pybuda.optimizers import LearningRateScheduler, Optimizer
from tbuda_lab.pybuda.results import (
    CompileResults,
    DeviceConfig,
    IntermediateOutputs,
    add_taps,
    io_queues,
    taps,
)
from tbuda_lab.pybuda.specs import check_chips, default_arch, device_spec
from tbuda_lab.pybuda.stage import Inputs, Outputs, blank_outputs, microbatch_of
from tbuda_lab.pybuda.subgraphs import SubgraphDevice
from tbuda_lab.serving.torch_backend import BrokenModel, HostRunner, depends_on_data, nothing_for_device

QUEUE_TYPES = ("input", "output", "target", "bw_input", "bw_output", "parameter")


def _shapes(inputs: Inputs) -> tuple[Any, ...]:
    """Shapes and types of the tensors of an input."""
    return tuple((tuple(v.shape), v.dtype) for v in pytree.tree_leaves(inputs) if isinstance(v, torch.Tensor))


BATCHES = (
    "Batch size mismatch between first input and current input: {first} and {current}; a pipeline is compiled for one "
    "microbatch (dim 0)"
)


def beside_batch(inputs: Inputs) -> list[tuple[int, ...]]:
    """Shapes of the tensors of an input, without dim 0."""
    return [shape[1:] for shape, _ in _shapes(inputs)]


def with_fractures(graph: Graph, options: CompileOptions) -> CompileOptions:
    """The options with fracture groups that name ops of the graph; a warning says what a name of TVM's stands for."""
    groups, chosen = named_by_place(graph, options.fracture_groups)
    whole = [name for name, _, _ in groups if name in graph and graph[name].kind is NodeKind.INPUT]
    if whole:
        shown = ", ".join(whole)
        warnings.warn(
            f"insert_fracture_group: {shown} stays one queue; cut the ops that read an input", UserWarning, stacklevel=4
        )
    if chosen:
        pairs = ", ".join(f"{theirs} is taken for {ours}" for theirs, ours in chosen.items())
        warnings.warn(f"insert_fracture_group: names of TVM's graph: {pairs}", UserWarning, stacklevel=4)
    return dataclasses.replace(options, fracture_groups=groups)


class CompiledDevice(SubgraphDevice):
    """What a TTDevice is but for its training and its images: it compiles its modules, runs and generates."""

    def __init__(
        self,
        name: str,
        num_chips: int | None = None,
        chip_ids: Sequence[int] | None = None,
        arch: BackendDevice | None = None,
        devtype: BackendType | None = None,
        device_mode: DeviceMode | None = None,
        optimizer: Optimizer | None = None,
        scheduler: LearningRateScheduler | None = None,
        fp32_fallback: DataFormat = DataFormat.Float16_b,
        mp_context: Any = None,
        module: Module | Sequence[Module] | None = None,
    ) -> None:
        if optimizer is not None and not isinstance(optimizer, Optimizer):
            raise PipelineError(f"device {name!r}: optimizer is one of pybuda.optimizers, not {optimizer!r}")
        if scheduler is not None and not isinstance(scheduler, LearningRateScheduler):
            raise PipelineError(f"device {name!r}: scheduler is a LearningRateScheduler, not {scheduler!r}")
        self.optimizer, self.scheduler = optimizer, scheduler
        chip_ids = chip_ids or None  # an empty list, as an image may name it, is the default
        check_chips(name, num_chips, chip_ids)
        if arch is not None and not isinstance(arch, BackendDevice):
            names = ", ".join(f"BackendDevice.{a.name}" for a in BackendDevice if a is not BackendDevice.Invalid)
            raise PipelineError(f"device {name!r}: arch is one of {names}, not {arch!r}")
        if num_chips and chip_ids is not None and num_chips != len(chip_ids):
            raise PipelineError(f"device {name!r}: num_chips is {num_chips}, chip_ids names {len(chip_ids)}")
        self.arch = arch or default_arch()
        self.devtype = devtype or BackendType.Golden
        self.device_mode = device_mode or DeviceMode.CompileAndRun
        self.fp32_fallback = fp32_fallback
        self.chip_ids = list(chip_ids) if chip_ids is not None else list(range(num_chips or 1))
        self._compiled_state: tuple[Any, ...] = ()
        self._compiled_contents: list[Any] = []
        self._compiled_shapes: tuple[Any, ...] = ()
        self.compiled_sample: Inputs | None = None
        """The inputs that one graph was compiled for; None for subgraphs and training."""
        self._microbatch = 0  # elements that one input holds
        self._batch = 0  # dim 0 of its first tensor
        self._result: CompileResult | None = None
        self._caches = LoopbackCaches(name)
        self._hosted: BrokenModel | HostRunner | None = None  # of a model that the host leads, or runs as a whole
        self._split: SplitResult | None = None  # of a model that trains, and whose ops do not all run on the device
        self._runner: Runner | None = None
        self.numerics = _numerics(devtype)
        self.imaged = False  # compiled to an image, and not meant to run itself
        if self.devtype is BackendType.Silicon and not CONTEXT.warned_of_silicon:
            CONTEXT.warned_of_silicon = True
            warnings.warn(
                f"device {name!r} asks for silicon; there is none here, the simulated device is used",
                UserWarning,
                stacklevel=2,
            )
        super().__init__(name, mp_context, module)

    # -- compiling -------------------------------------------------------------------------------------------
    @property
    def spec(self) -> DeviceSpec:
        """The device as the compiler sees it: architecture or configured device, chips, harvested rows."""
        return device_spec(self.arch, self.chip_ids)

    @property
    def runs(self) -> bool:
        """Whether it is there to run, not to compile only."""
        return self.devtype is not BackendType.NoBackend and self.device_mode is not DeviceMode.CompileOnly

    def trace(self, sample: Inputs, training: bool = False) -> Graph:
        """The nD graph of the placed modules for inputs like `sample`; training: parameters that require a gradient are
        marked."""
        if not self.modules:
            raise PipelineError(f"no module has been placed on device {self.name!r}; call place_module first")
        if self.has_subgraphs:
            return subgraphs.trace_subgraphs(self.modules, sample, config._get_global_compiler_config())
        return frontend.from_pybuda(self.modules, sample, training=training)

    def compile_for_inputs(self, sample: Inputs, microbatch_size: int = 1) -> CompileResult:
        """Compile for inputs like `sample`, unless that has been done and nothing has changed since. microbatch_size:
        how many of them one pass of the program takes."""
        shapes = (microbatch_size, *_shapes(sample))
        if self._result is not None and shapes == self._compiled_shapes and self._is_current():
            return self._result
        state = self._state()
        if self.device_mode is DeviceMode.RunOnly:
            raise PipelineError(
                f"device {self.name!r} is RunOnly and has nothing compiled for these inputs: take CompileAndRun, or "
                "load an image with TTDevice.load_image"
            )
        settings = config._get_global_compiler_config()
        warn_options(settings)
        warn_environment(ENVIRONMENT)
        if len(self.spec.chips) == 1 and any(call.kind == "chip_break" for call in settings.overrides):
            warn_once("set_chip_break", f"device {self.name!r} has one chip; give it more by chip_ids or num_chips")
        if settings.enable_training:
            contents = self._contents()
            self.trainer = self.training()
            self.trainer.prepare(sample, None, True, 1)
            assert self._result is not None
            self._compiled_state, self._compiled_contents, self._compiled_shapes = state, contents, shapes
            return self._result
        for module in self.modules:
            if isinstance(module, PyTorchModule):
                set_evaluation(module.module)  # as the device runs it
        graph = self.trace(sample)
        if self.has_subgraphs:
            sample = subgraphs.Subgraphs(graph, self.name).sample(sample)
        add_taps(graph, settings.op_intermediates_to_save)
        microbatch = sum(1 for _ in elements(graph, frontend.feeds(graph, sample))) * microbatch_size
        if self.has_subgraphs:
            subgraphs.Subgraphs(graph, self.name).check(microbatch)
        self._runner = None
        options = settings.options(microbatch, self.fp32_fallback)
        options = dataclasses.replace(options, default_df_override=self._format(graph, options))
        options = with_fractures(graph, options)
        self._result = self.compile_in_sections(graph, options, settings)
        self._compiled_state, self._compiled_contents, self._compiled_shapes = state, self._contents(), shapes
        self._microbatch = microbatch
        self.compiled_sample = None if self.has_subgraphs else sample
        self._batch = microbatch_of(sample) * microbatch_size
        write_files(self._result, self.file_stem, settings)
        for diagnostic in self._result.diagnostics:
            if diagnostic.rule in ("override-unmatched", "whole-numbers"):
                warnings.warn(f"{diagnostic.where}: {diagnostic.message}; {diagnostic.fix}", UserWarning, stacklevel=2)
        return self._result

    def compile_in_sections(self, graph: Graph, options: CompileOptions, settings: Any) -> CompileResult:
        """Compile a graph; what the device has no form for runs on the host (see `compiler.fallback`), and a warning
        says so. Returns the compile; for training in sections that of the largest device section, with the graph of
        the whole model."""
        automatic = settings.enable_tvm_cpu_fallback
        automatic &= not self.has_subgraphs
        compiled = compile_with_fallback(graph, self.spec, options, settings.resolve_overrides, automatic)
        self._split = compiled if isinstance(compiled, SplitResult) else None
        chain = compiled if isinstance(compiled, SplitResult) else compiled.chain
        if self.has_subgraphs and chain is not None:
            reasons = "; ".join(d.message for d in chain.reasons[:4])
            raise not_supported(
                f"subgraphs of which the host runs a part ({reasons})",
                "calculate that part before, and give its result to the module",
            )
        if chain is not None and chain.reasons:
            names = [d.message for d in chain.reasons]
            shown = "; ".join(names[:4]) + (f"; and {len(names) - 4} more" if len(names) > 4 else "")
            parts = len(chain.sections if isinstance(chain, SplitResult) else chain.stages)
            warnings.warn(
                f"device {self.name!r} runs the model in {parts} sections: {shown}", UserWarning, stacklevel=4
            )
        if isinstance(compiled, CompileResult):
            return compiled
        largest = max(compiled.results, key=lambda result: len(result.graph.ops))
        return dataclasses.replace(largest, graph=graph, diagnostics=(*compiled.reasons, *largest.diagnostics))

    @property
    def split(self) -> SplitResult | None:
        """The sections of the last compile for training, where the host runs a part of the model."""
        return self._split

    def fallback_report(self) -> str:
        """Which part of the model runs where, and why; empty where all of it runs on the device."""
        if self._hosted is not None:
            return self._hosted.report()
        chain = self._split if self._result is None or self._result.chain is None else self._result.chain
        return "" if chain is None else chain.report()

    def compile_to_depth(self, sample: Inputs, depth: CompileDepth) -> StagedCompile:
        """The stages of a compile for inputs like `sample`, up to `depth`; the device keeps nothing of it."""
        settings = config._get_global_compiler_config()
        graph = self.trace(sample, settings.enable_training)
        if self.has_subgraphs:
            sample = subgraphs.Subgraphs(graph, self.name).sample(sample)
        options = settings.options(sum(1 for _ in elements(graph, frontend.feeds(graph, sample))), self.fp32_fallback)
        options = dataclasses.replace(options, default_df_override=self._format(graph, options))
        if settings.enable_training:
            options = dataclasses.replace(options, training=TrainingOptions(recompute=settings.enable_recompute))
        return compile_to_depth(graph, self.spec, options, settings.resolve_overrides(graph), depth)

    def _format(self, graph: Graph, options: CompileOptions) -> DataFormat:
        """The format that was asked for, else that of the model: of its first float input, else of its first weight.
        Float32 becomes `fp32_fallback` on a device that accumulates in 16 bits (Grayskull)."""
        chosen = options.default_df_override
        if chosen is None:
            dtypes = [getattr(torch, str(node.attrs.get("dtype", "float32"))) for node in graph.inputs]
            for module in self.modules:
                dtypes += [p.pt_data_format for p in module.get_parameters()]
            floats = [d for d in dtypes if d.is_floating_point]
            chosen = TORCH_FORMATS.get(floats[0], DataFormat.Float32) if floats else DataFormat.Float32
        return device_format(chosen, self.spec, options)

    def _state(self) -> tuple[Any, ...]:
        """What a compile depends on beside inputs and the modules' contents; writes to weights as far as they are
        counted."""
        states = tuple((id(m), m.state) for m in self.modules)
        settings = config._get_global_compiler_config()
        return states, repr(settings), repr(environment()), self.arch, tuple(self.chip_ids)

    def _contents(self) -> list[Any]:
        return [module.contents for module in self.modules]

    def _is_current(self) -> bool:
        """Whether nothing that a compile depends on has changed since; inputs are not looked at."""
        return self._state() == self._compiled_state and self._contents() == self._compiled_contents

    def _check_batch(self, inputs: Inputs) -> None:
        microbatch = microbatch_of(inputs)
        if self._batch and microbatch != self._batch:
            raise BatchError(BATCHES.format(first=self._batch, current=microbatch))

    def check_pushed(self, inputs: Inputs) -> None:
        if self.has_subgraphs or self._hosted is not None or CONTEXT.training or self.trainer is not None:
            return  # each of these takes what it is given, or says at its run what it does not
        if self.result is not None and self._state() == self._compiled_state:
            if beside_batch(inputs) == [shape[1:] for shape, _ in self._compiled_shapes[1:]]:
                self._check_batch(inputs)
        elif self.inputs and beside_batch(inputs) == beside_batch(self.inputs[0]):
            first, current = microbatch_of(self.inputs[0]), microbatch_of(inputs)
            if first != current:
                raise BatchError(BATCHES.format(first=first, current=current))

    def prepare(self, sample: Inputs) -> Outputs:
        settings = config._get_global_compiler_config()
        if self.has_subgraphs and CONTEXT.devices[:1] != [self]:
            raise not_supported(
                f"subgraphs on device {self.name!r} behind another device",
                "make it the first device, and push to it what the other one gives",
            )
        if stops_early(settings):
            staged = self.compile_to_depth(sample, settings.effective("compile_depth"))
            graph = staged.graph("generate_initial_graph") or self.trace(sample)
            return blank_outputs(graph, sum(1 for _ in elements(graph, frontend.feeds(graph, sample))))
        self._compile_or_break(sample)
        if self._hosted is not None:
            return tuple(torch.zeros_like(value) for value in self._run_hosted(sample))
        assert self._result is not None
        if self.has_subgraphs:
            self._runner = None  # caches begin anew
            return self.blank_of_active(self._result.graph, self._microbatch)
        self._caches.begin(self._result.graph, sample, settings.loopback_outputs)
        outputs = blank_outputs(self._result.graph, self._microbatch)
        return outputs[: len(outputs) - len(taps(self._result.graph))]

    def _run_hosted(self, inputs: Inputs) -> Outputs:
        if isinstance(self._hosted, HostRunner):
            self._check_batch(inputs)
            return tuple(self._hosted.run([inputs])[0])
        assert self._hosted is not None
        return tuple(self._hosted.run(inputs))

    def _compile_or_break(self, sample: Inputs) -> None:
        """Compile for inputs like `sample`. A torch module whose path depends on data is broken in graphs instead; a
        model of which the device has no op runs on the host, and a warning says so."""
        settings = config._get_global_compiler_config()
        try:
            self.compile_for_inputs(sample)
            self._hosted = None
        except (ModelError, UnsupportedOp) as error:
            module = self.modules[0] if self.modules else None
            allowed = settings.enable_tvm_cpu_fallback and not settings.enable_training and not self.has_subgraphs
            if allowed and isinstance(error, UnsupportedOp) and nothing_for_device(error):
                names = "; ".join(d.message for d in error.diagnostics[:4])
                warnings.warn(
                    f"device {self.name!r} has no op of the model, and the host runs all of it: {names}",
                    UserWarning,
                    stacklevel=3,
                )
                self._hosted = HostRunner(self.trace(sample))
                self._result = self._runner = self._split = None
                self._compiled_state, self._compiled_contents = self._state(), self._contents()
                self._batch = microbatch_of(sample)
                return
            allowed &= len(self.modules) == 1
            if not allowed or not isinstance(module, PyTorchModule) or not depends_on_data(error):
                raise
            warnings.warn(
                f"device {self.name!r}: the path of {module.get_name()!r} depends on data; the host runs it, and the "
                f"device what stands between: {error.diagnostics[0]}",
                UserWarning,
                stacklevel=3,
            )
            options = settings.options(1, self.fp32_fallback)
            options = dataclasses.replace(options, default_df_override=self._format(Graph("none"), options))
            self._hosted = BrokenModel(set_evaluation(module.module), self.spec, options)
            self._result = self._runner = self._split = None
            self._compiled_state, self._compiled_contents, self._batch = self._state(), self._contents(), 0

    def run_forward(self, inputs: Inputs) -> Outputs:
        depth = config._get_global_compiler_config().effective("compile_depth")
        if depth < CompileDepth.BACKEND_GOLDEN_VERIFY:
            raise PipelineError(
                f"compile_depth is {depth.name}: the compile ends there and nothing runs; "
                "pybuda_compile gives its stages"
            )
        if self.has_subgraphs:
            return self.run_subgraph(inputs, 0)
        if (self._result is None and self._hosted is None) or not self._is_current():
            self._compile_or_break(inputs)
        if self._hosted is not None:
            return self._run_hosted(inputs)
        self._check_batch(inputs)
        result = self._result
        assert result is not None
        if not self.runs:
            raise PipelineError(f"device {self.name!r} only compiles (NoBackend or CompileOnly); it cannot run inputs")
        if self.trainer is not None and result.options.training is not None:
            return self.trainer.evaluate(inputs)
        if self._runner is None:
            self._runner = Runner(result, self.numerics)
        op_names = config._get_global_compiler_config().op_intermediates_to_save
        if not op_names:
            return tuple(self._runner.run([inputs])[0])
        intermediates = IntermediateOutputs(result, op_names)
        self._runner.executor.on_op = intermediates.take
        try:
            outputs = tuple(self._runner.run([inputs])[0])
        finally:
            self._runner.executor.on_op = None
        own = len(outputs) - len(intermediates.taps)
        CONTEXT.intermediates.put(intermediates.tensors(outputs[own:]))
        return outputs[:own]

    def generate_one(self, inputs: Inputs, start: int) -> Outputs:
        """Outputs for one input but for those that `loopback_outputs` names: {input: number of the output}. Such an
        output is written into the input that the device keeps: whole where the shapes are equal, else along the one dim
        that differs, from `start` on. What is kept begins with the sample that the pipeline was set up with, or is
        given with the first input, or again to begin anew.

        A module in two parts (see `frontend.torch_model.caches`) keeps its caches in rams of the device: the first
        input is one for both parts; later ones may have the inputs of one part, whose program then runs by itself.
        Raises `PipelineError` for names and shapes that do not fit.
        """
        if self.has_subgraphs:
            return self.run_subgraph(inputs, start)
        loops = dict(config._get_global_compiler_config().loopback_outputs)
        if not loops:
            outputs_of_part = self._part_forward(inputs)
            return self.run_forward(inputs) if outputs_of_part is None else outputs_of_part
        if self._result is not None and self._hosted is None:
            inputs = self._caches.fill_in(self._result.graph, inputs, loops)
        elif isinstance(inputs, dict):
            raise PipelineError("the first input of a generation is a tuple of all inputs, in the model's order")
        outputs = self.run_forward(inputs)
        if self._result is None:
            raise not_supported(
                f"loopback_outputs on device {self.name!r}, whose model the host runs",
                "write the model without the ops that the host takes, or hand outputs back yourself",
            )
        return self._caches.write(self._result.graph, tuple(inputs), outputs, loops, start)

    def subgraph_runner(self, inputs: Inputs) -> Runner:
        stale, several = self._result is None or not self._is_current(), len(self.modules) > 1
        if stale and several:
            what = "are not compiled" if self._result is None else "were compiled for other settings or other weights"
            raise PipelineError(
                f"the subgraphs of device {self.name!r} {what}; initialize_pipeline(training=False, "
                "sample_inputs=((inputs of the first), ...)) does it"
            )
        if stale:
            self.compile_for_inputs(inputs)
        assert self._result is not None
        if not self.runs:
            raise PipelineError(f"device {self.name!r} only compiles (NoBackend or CompileOnly); it cannot run inputs")
        if config._get_global_compiler_config().op_intermediates_to_save:
            raise not_supported("op_intermediates_to_save of subgraphs", "give each module a TTDevice of its own")
        if not isinstance(self._runner, Runner):
            self._runner = Runner(self._result, self.numerics)
        return self._runner

    def _part_forward(self, inputs: Inputs) -> Outputs | None:
        """Outputs of the part of a generating model whose inputs these are; None where they are not those of one."""
        result, runner = self._result, self._runner
        if result is None or not isinstance(runner, Runner) or not runner.caches or runner.keeps_state:
            return None
        for program in result.netlist.programs:
            read = {source for binding in runner.ends(program.name)[0] for source in binding.sources}
            nodes = [node for node in result.graph.inputs if node.name in read]
            names = [str(node.attrs.get("argument", node.name)) for node in nodes]
            tensors = inputs if isinstance(inputs, dict) else dict(zip(names, inputs, strict=False))
            feeds = {
                node.name: as_tensor(tensors[name]) for node, name in zip(nodes, names, strict=True) if name in tensors
            }
            if len(inputs) == len(nodes) and all(
                node.name in feeds and tuple(feeds[node.name].shape) == node.shape for node in nodes
            ):
                by_name = runner.run_program(program.name, feeds)
                return in_model_dtypes(result.graph, list(by_name.values()), list(by_name))
        return None

    @property
    def file_stem(self) -> str:
        """What files of a compile are named after: the last module; of a device with a loss alone, the device."""
        return self.modules[-1].get_name() if self.modules else self.name

    def write_trace(self) -> None:
        if isinstance(self._result, CompileResult):
            folder = netlist_folder(config._get_global_compiler_config())
            write_trace(self._result, folder, self.file_stem, PerfTraceLevel.VERBOSE)

    # -- results ---------------------------------------------------------------------------------------------
    @property
    def _compile_output(self) -> Any:
        return self.get_compiled_results()

    def get_compiled_results(self) -> Any:
        """Results of the last compile (see `pybuda.results.CompileResults`). Raises `PipelineError` before it."""
        if self._result is None:
            raise PipelineError(f"device {self.name!r} has not been compiled yet")
        return CompileResults(self._result, self.modules[-1].get_name())

    def get_device_config(self, compiler_cfg: Any = None) -> Any:
        """Grid, chips and harvested rows of the device as `compiler_cfg` has them, the global configuration where none
        is given. Raises `InputError`, `UnknownDevice` as `load_device` does."""
        with config.using(compiler_cfg):
            return DeviceConfig(self.spec, self.devtype)

    def get_parameters(self, ignore_unused_parameters: bool = True) -> list[Parameter]:
        """Parameters of all modules. ignore_unused_parameters: without those that the graph of the last compile does
        not read; before the first compile without those of no elements, which no op can read."""
        result = self._split or self._result
        if result is None or not ignore_unused_parameters:
            return super().get_parameters(ignore_unused_parameters)
        read = {source for node in result.graph for source in node.sources}
        return [parameter for name, (_, parameter) in self.named_parameters().items() if name in read]

    def remove_modules(self) -> None:
        super().remove_modules()
        self._result = self._runner = self._split = self._hosted = None

    # -- images ----------------------------------------------------------------------------------------------
    @property
    def result(self) -> CompileResult | None:
        """The last compile; None before it."""
        return self._result

    def get_dram_io_queues(self, queue_type: str) -> tuple[list[Any], list[list[int]], list[tuple[int, ...]]]:
        """The netlist's queues of one kind (see `pybuda.results.io_queues`). Raises `PipelineError` for an unknown
        kind, and before a compile."""
        if queue_type not in QUEUE_TYPES:
            raise PipelineError(f"get_dram_io_queues knows {', '.join(QUEUE_TYPES)}, not {queue_type!r}")
        if self._result is None:
            raise PipelineError(f"device {self.name!r} has not been compiled yet")
        return io_queues(self._result, queue_type)

    def get_optimizer_params(self, is_buda: bool) -> Any:
        """Learning rate and state of the optimizer by weight and suffix ("lr", "mean", ...), in the device's shapes
        (is_buda) or the model's."""
        return self.in_training().states(is_buda)

    def get_scheduler_params(self, is_buda: bool) -> Any:
        """What the scheduler gives the optimizer; nothing without one."""
        return {} if self.scheduler is None else self.scheduler.get_scheduler_params()


def _numerics(devtype: BackendType | None) -> str:
    """What rounds (see `sim.numerics`) on a device of this type; None where the script names none."""
    if devtype is BackendType.Golden and "TT_BACKEND_GOLDEN_QUANTIZE" not in os.environ:
        return "exact"
    return "golden" if devtype in (None, BackendType.Golden, BackendType.NoBackend) else "device"
