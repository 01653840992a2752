"""Devices of the PyBuda API: a host that runs torch, and the simulated TT device."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core import frontend
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.compiler.depths import StagedCompile
from tbuda_lab.core.compiler.fallback import SplitResult, compile_with_fallback
from tbuda_lab.core.device import MOST_CHIPS, DeviceSpec
from tbuda_lab.core.errors import ModelError, UnsupportedOp
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.frontend.inputs import as_tensor, elements
from tbuda_lab.core.frontend.pybuda import Module, Parameter, PyBudaModule, PyTorchModule, Tensor, to_torch
from tbuda_lab.core.frontend.pybuda.tensor import TORCH_FORMATS
from tbuda_lab.core.frontend.torch_model.export import evaluation
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.lowering.dataformats import device_format
from tbuda_lab.core.options import CompileOptions, TrainingOptions
from tbuda_lab.core.runner import Runner, SplitRunner
from tbuda_lab.runtime import config
from tbuda_lab.runtime.compilerconfig import ENVIRONMENT, environment
from tbuda_lab.runtime.context import CONTEXT
from tbuda_lab.runtime.enums import BackendDevice, BackendType, CompileDepth, DeviceMode
from tbuda_lab.runtime.errors import BatchError, PipelineError, not_supported
from tbuda_lab.runtime.internals import QUEUE_TYPES, DeviceInternals
from tbuda_lab.runtime.kept import IntermediateOutputs
from tbuda_lab.runtime.outcome import compile_to_depth, stops_early, write_files
from tbuda_lab.runtime.settings import tell_environment, tell_options
from tbuda_lab.runtime.specs import device_spec
from tbuda_lab.runtime.torch_backend import BrokenModel, depends_on_data
from tbuda_lab.runtime.training import LearningRateScheduler, Optimizer

if TYPE_CHECKING:
    from tbuda_lab.runtime.trainers import DeviceTraining

Inputs = tuple[Any, ...] | dict[str, Any]
Outputs = tuple[torch.Tensor, ...]


class Device(DeviceInternals):
    """A stage of the pipeline: runs its modules in order on inputs pushed to it or given by the stage before."""

    def __init__(self, name: str, mp_context: Any = None, module: Module | Sequence[Module] | None = None) -> None:
        self.name = name
        self.modules: list[Module] = []
        self.inputs: deque[Inputs] = deque()
        self.targets: deque[tuple[Any, ...]] = deque()
        self.loss_module: Module | None = None
        self.trainer: DeviceTraining | None = None  # made when a pipeline is set up for training
        if CONTEXT.ended:  # a script, or a cell, that is run again: its first device is no stage after the old ones
            CONTEXT.devices.clear()
            CONTEXT.ended = False
        CONTEXT.devices.append(self)
        if module is not None:
            self.place_module(module)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, modules={[m.get_name() for m in self.modules]})"

    def get_name(self) -> str:
        return self.name

    # -- modules ---------------------------------------------------------------------------------------------
    def place_module(self, module: Module | Sequence[Module]) -> None:
        """Place modules after those already here; each reads the outputs of the one before.

        Raises `PipelineError` for what is no module, for a second module of one name, or for a parameter name that
        two different parameters of the device share.
        """
        many = list(module) if isinstance(module, list | tuple) else [module]
        for one in many:
            if not isinstance(one, Module):
                raise PipelineError(f"a module is placed on {self.name!r}, not a {type(one).__name__}")
            self._accepts(one)
            if any(one.get_name() == other.get_name() for other in self.modules):
                raise PipelineError(f"device {self.name!r} already has a module {one.get_name()!r}; names are unique")
            self.modules.append(one)
            one.__dict__["device"] = self

    def _accepts(self, module: Module) -> None:
        """Raise `PipelineError` if this kind of device cannot run the module."""

    def remove_modules(self) -> None:
        for module in self.modules:
            module.__dict__["device"] = None
        self.modules.clear()

    def place_loss_module(self, module: Module) -> None:
        """Place the loss, which takes the outputs of the device's modules and then the targets.

        Raises `PipelineError` for what is no module, or when the device has a loss already.
        """
        if not isinstance(module, Module):
            raise PipelineError(f"a loss module is placed on {self.name!r}, not a {type(module).__name__}")
        self._accepts(module)
        if self.loss_module is not None:
            raise PipelineError(f"device {self.name!r} already has the loss {self.loss_module.get_name()!r}")
        self.loss_module = module
        module.__dict__["device"] = self

    @property
    def ends_in_loss(self) -> bool:
        """Whether what the device gives is a loss."""
        return self.loss_module is not None

    def remove_loss_module(self) -> None:
        if self.loss_module is not None:
            self.loss_module.__dict__["device"] = None
        self.loss_module = None

    # -- inputs ----------------------------------------------------------------------------------------------
    def push_to_inputs(self, *tensors: Any) -> None:
        """Queue one input: tensors in order, one tuple or list of them, or a dict by argument name."""
        self.inputs.append(as_inputs(tensors))
        from tbuda_lab.runtime.pipeline import data_arrived

        data_arrived(self)

    def push_to_target_inputs(self, *tensors: Any) -> None:
        """Queue the targets of one input: tensors in order, or one tuple or list of them."""
        one = as_inputs(tensors)
        self.targets.append(tuple(one.values()) if isinstance(one, dict) else one)
        from tbuda_lab.runtime.pipeline import data_arrived

        data_arrived(self)

    def get_first_targets(self) -> tuple[Any, ...]:
        """The oldest targets that wait. Raises `PipelineError` when none waits."""
        if not self.targets:
            raise PipelineError(f"no target has been pushed to device {self.name!r}; call push_to_target_inputs first")
        return self.targets.popleft()

    def get_first_inputs(self, peek: bool = False) -> tuple[int, Inputs]:
        """The microbatch size (dim 0) of the oldest input that waits, and that input; it stays when `peek`. Raises
        `PipelineError` when none waits."""
        inputs = self.next_inputs(peek)
        return microbatch_of(inputs), inputs

    def next_inputs(self, peek: bool = False) -> Inputs:
        """The oldest input that waits; it stays when `peek`. Raises `PipelineError` when none waits."""
        if not self.inputs:
            raise PipelineError(f"no input has been pushed to device {self.name!r}; call push_to_inputs first")
        return self.inputs[0] if peek else self.inputs.popleft()

    def sample(self, given: Any) -> Inputs:
        """The sample inputs that a script gives; where it gives none, the first one pushed."""
        none = len(given) == 0 if isinstance(given, tuple | list | Mapping) else given is None
        return self.next_inputs(peek=True) if none else as_inputs((given,))

    # -- running ---------------------------------------------------------------------------------------------
    def run_forward(self, inputs: Inputs) -> Outputs:
        """Outputs of the device's modules for one input."""
        raise NotImplementedError

    def prepare(self, sample: Inputs) -> Outputs:
        """Make ready for inputs like `sample`; returns outputs of the right shapes for the next device."""
        raise NotImplementedError

    def training(self) -> DeviceTraining:
        """How the device trains, made anew."""
        raise NotImplementedError

    def in_training(self) -> DeviceTraining:
        """How the device trains. Raises `PipelineError` before `initialize_pipeline(training=True)`."""
        if self.trainer is None:
            raise PipelineError(
                f"device {self.name!r} is not set up for training; call initialize_pipeline(training=True) or "
                "run_training first"
            )
        return self.trainer

    def generate_one(self, inputs: Inputs, start: int) -> Outputs:
        """Outputs for one input of a generation; a TT device writes its loop-back outputs at row `start`."""
        return self.run_forward(inputs)

    def get_parameters(self, ignore_unused_parameters: bool = True) -> list[Parameter]:
        """Parameters of all modules. ignore_unused_parameters: without those of no elements, which no op reads."""
        parameters = [p for module in self.modules for p in module.get_parameters()]
        return [p for p in parameters if 0 not in p.shape] if ignore_unused_parameters else parameters

    def get_parameter_checkpoint(self) -> dict[str, Tensor]:
        """Current weights by name."""
        if self.trainer is not None:
            values = {n: Tensor.create_from_torch(v) for n, v in self.trainer.parameters().items()}
            return {p.get_name(): values.get(p.get_name(), p) for p in self.get_parameters()}
        return {p.get_name(): Tensor.create_from_torch(p.fill()) for p in self.get_parameters()}

    def get_all_parameters(self) -> dict[str, Tensor]:
        return self.get_parameter_checkpoint()

    def get_parameter_gradients(self) -> dict[str, Tensor]:
        """Gradients as they have added up, by the name of the weight."""
        return {n: Tensor.create_from_torch(v) for n, v in self.in_training().gradients().items()}

    def update_device_parameters(self, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Give weights new values by name; the device takes them up with the next input."""
        given: list[tuple[Any, str, Any]] = []
        for name, value in new_values(self.name, parameters).items():
            owner, shape = next(((m, p.shape) for m in self.modules for p in m.get_parameters()
                                 if p.get_name() == name), (None, ()))
            if owner is None:
                raise PipelineError(f"device {self.name!r} has no parameter {name!r}")
            tensor = to_torch(value)
            if tuple(tensor.shape) != tuple(shape):
                raise PipelineError(f"parameter {name!r} has shape {tuple(shape)}; got a value of "
                                    f"{tuple(tensor.shape)}")
            if tensor.is_complex():
                raise PipelineError(f"parameter {name!r} is real; got a value of {tensor.dtype}")
            given.append((owner, name, tensor))
        for owner, name, tensor in given:  # all of them, or none
            owner.set_parameter(name, tensor)
        if self.trainer is not None:
            self.trainer.set_parameters({name: tensor for _, name, tensor in given})

    def sync(self) -> None:
        """Nothing runs in the background, so nothing is waited for."""

    def shutdown_device(self) -> None:
        """Drop inputs and targets that still wait."""
        self.inputs.clear()
        self.targets.clear()


def new_values(device: str, parameters: Any) -> dict[str, Any]:
    """Weights by name out of a list of dicts. Raises `PipelineError` for anything else."""
    given = list(parameters) if isinstance(parameters, Iterable) and not isinstance(parameters, Mapping) else parameters
    parts = [given] if isinstance(given, Mapping) else given
    if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
        raise PipelineError(f"device {device!r}: parameters are a list of dicts, name -> tensor")
    return {str(name): value for part in parts for name, value in part.items()}


def as_inputs(tensors: Sequence[Any]) -> Inputs:
    """One input from what was pushed: the tensors themselves, or one tuple, list or dict of them."""
    one = tensors[0] if len(tensors) == 1 else tensors
    if isinstance(one, Mapping):
        return {str(k): pytree.tree_map(as_tensor, v) for k, v in one.items()}
    many = one if isinstance(one, tuple | list) else (one,)
    return tuple(pytree.tree_map(as_tensor, v) for v in many)


def blank_outputs(graph: Graph, microbatch: int) -> Outputs:
    """Zeros of the shapes that a model's graph gives for that many elements."""
    return tuple(torch.zeros((microbatch, *n.shape[1:])) if n.shape else torch.zeros(()) for n in graph.outputs)


def microbatch_of(inputs: Inputs) -> int:
    """Dim 0 of the first tensor."""
    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return int(leaf.shape[0])
    return 1


def _shapes(inputs: Inputs) -> tuple[Any, ...]:
    """Shapes and types of the tensors of an input."""
    return tuple((tuple(v.shape), v.dtype) for v in pytree.tree_leaves(inputs) if isinstance(v, torch.Tensor))


class CPUDevice(Device):
    """The host: runs PyTorch modules with torch itself."""

    def __init__(
        self,
        name: str,
        optimizer_f: Any = None,
        scheduler_f: Any = None,
        mp_context: Any = None,
        retain_backward_graph: bool = False,
        module: Module | Sequence[Module] | None = None,
        input_dtypes: Sequence[torch.dtype] | None = None,
    ) -> None:
        for what, factory in (("optimizer_f", optimizer_f), ("scheduler_f", scheduler_f)):
            if factory is not None and not callable(factory):
                raise PipelineError(f"CPUDevice {name!r}: {what} is a function, not a {type(factory).__name__}")
        self.optimizer_f, self.scheduler_f = optimizer_f, scheduler_f
        self.retain_backward_graph = bool(retain_backward_graph)
        self.input_dtypes = input_dtypes
        self.gradient_trace: Any = None
        super().__init__(name, mp_context, module)

    def _accepts(self, module: Module) -> None:
        if not isinstance(module, PyTorchModule):
            raise PipelineError(
                f"CPUDevice {self.name!r} runs PyTorch modules; {module.get_name()!r} is a {type(module).__name__}"
            )

    def set_debug_gradient_trace_queue(self, q: Any) -> None:
        """A queue that gets, at every backward pass, the gradients that come in and then those that go out."""
        self.gradient_trace = q

    def prepare(self, sample: Inputs) -> Outputs:
        return self.run_forward(sample)

    def training(self) -> DeviceTraining:
        from tbuda_lab.runtime.trainers import CPUTraining

        return CPUTraining(self)

    def run_forward(self, inputs: Inputs) -> Outputs:
        value: Any = inputs
        if isinstance(value, tuple) and self.input_dtypes:
            value = tuple(v.to(d) for v, d in zip(value, self.input_dtypes, strict=True))
        for module in self.modules:
            assert isinstance(module, PyTorchModule)
            with evaluation(module.module), torch.no_grad():
                answer = module.forward(**value) if isinstance(value, dict) else module.forward(*value)
            value = tuple(leaf for leaf in pytree.tree_leaves(answer) if isinstance(leaf, torch.Tensor))
        return tuple(value.values()) if isinstance(value, dict) else value


def _check_chips(name: str, num_chips: Any, chip_ids: Any) -> None:
    """Raises `PipelineError` for chips that no device has."""
    if num_chips is not None and (type(num_chips) is not int or not 0 <= num_chips <= MOST_CHIPS):
        raise PipelineError(f"device {name!r}: num_chips is a number from 1 to {MOST_CHIPS}, not {num_chips!r}")
    if chip_ids is None:
        return
    listed = list(chip_ids) if isinstance(chip_ids, Iterable) and not isinstance(chip_ids, str) else None
    if listed is None or any(type(c) is not int or c < 0 for c in listed) or len(set(listed)) != len(listed):
        raise PipelineError(f"device {name!r}: chip_ids are different numbers from 0, not {chip_ids!r}")


class TTDevice(Device):
    """One or more chips of one architecture, simulated.

    arch: default Grayskull (Wormhole_B0 or Blackhole when GOLDEN_WORMHOLE_B0 or PYBUDA_GOLDEN_BLACKHOLE is set).
    devtype decides what rounds. None: a golden model, float32 arithmetic on inputs and weights in their formats.
    Golden: as the vendor's golden model, which ignores formats unless TT_BACKEND_GOLDEN_QUANTIZE is set: float32
    throughout. Silicon (which warns once, there is none), Model, Versim and Emulation round wherever the machine does:
    fidelity and formats of every op change the numbers. NoBackend compiles and does not run. num_chips or chip_ids:
    chips to use, default one.
    """

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
        _check_chips(name, num_chips, chip_ids)
        if arch is not None and not isinstance(arch, BackendDevice):
            names = ", ".join(f"BackendDevice.{a.name}" for a in BackendDevice if a is not BackendDevice.Invalid)
            raise PipelineError(f"device {name!r}: arch is one of {names}, not {arch!r}")
        if num_chips and chip_ids is not None and num_chips != len(chip_ids):
            raise PipelineError(f"device {name!r}: num_chips is {num_chips}, chip_ids names {len(chip_ids)}")
        self.arch = arch or _default_arch()
        self.devtype = devtype or BackendType.Golden
        self.device_mode = device_mode or DeviceMode.CompileAndRun
        self.fp32_fallback = fp32_fallback
        if any(not isinstance(chip, int) for chip in chip_ids or ()):
            raise PipelineError(f"device {name!r}: chip_ids are numbers, not {list(chip_ids or ())!r}; where chips "
                                "stand is said by the cluster descriptor (backend_cluster_descriptor_path)")
        self.chip_ids = list(chip_ids) if chip_ids is not None else list(range(num_chips or 1))
        self._compiled_state: tuple[Any, ...] = ()
        self._compiled_shapes: tuple[Any, ...] = ()
        self._microbatch = 0  # elements that one input holds
        self._batch = 0  # dim 0 of its first tensor
        self._result: CompileResult | None = None
        self._caches: dict[str, torch.Tensor] = {}  # inputs that outputs are looped back to
        self._broken: BrokenModel | None = None  # of a model whose path depends on data
        self._split: SplitResult | None = None  # of a model whose ops do not all run on the device
        self._runner: Runner | SplitRunner | None = None
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

    def trace(self, sample: Inputs) -> Graph:
        """The nD graph of the placed modules for inputs like `sample`."""
        if not self.modules:
            raise PipelineError(f"no module has been placed on device {self.name!r}; call place_module first")
        return frontend.from_pybuda(self.modules, sample)

    def compile_for_inputs(self, sample: Inputs, microbatch_size: int = 1) -> CompileResult:
        """Compile for inputs like `sample`, unless that has been done and nothing has changed since. microbatch_size:
        how many of them one pass of the program takes."""
        state, shapes = self._state(), (microbatch_size, *_shapes(sample))
        if self._result is not None and (state, shapes) == (self._compiled_state, self._compiled_shapes):
            return self._result
        settings = config._get_global_compiler_config()
        tell_options(settings)
        tell_environment(ENVIRONMENT)
        if settings.enable_training:
            self.trainer = self.training()
            self.trainer.prepare(sample, None, True, 1)
            assert self._result is not None
            self._compiled_state, self._compiled_shapes = state, shapes
            return self._result
        for module in self.modules:
            if isinstance(module, PyTorchModule):
                module.module.eval()  # as the device runs it
        graph = self.trace(sample)
        microbatch = sum(1 for _ in elements(graph, frontend.feeds(graph, sample))) * microbatch_size
        self._runner = None
        options = settings.options(microbatch, self.fp32_fallback)
        options = dataclasses.replace(options, default_df_override=self._format(graph, options))
        self._result = self.compile_in_sections(graph, options, settings)
        self._compiled_state, self._compiled_shapes, self._microbatch = state, shapes, microbatch
        self._batch = microbatch_of(sample) * microbatch_size
        write_files(self._result, self.modules[-1].get_name(), settings)
        for message in self._result.diagnostics:
            if message.rule == "override-unmatched":
                warnings.warn(f"{message.where}: {message.message}; {message.fix}", UserWarning, stacklevel=2)
        return self._result

    def compile_in_sections(self, graph: Graph, options: CompileOptions, settings: Any) -> CompileResult:
        """Compile a graph; what the device has no form for runs on the host (see `compiler.fallback`), and a warning
        says so. Returns the compile, or that of the largest device section, with the graph of the whole model."""
        automatic = settings.enable_tvm_cpu_fallback
        compiled = compile_with_fallback(graph, self.spec, options, settings.resolved, automatic)
        self._split = compiled if isinstance(compiled, SplitResult) else None
        if isinstance(compiled, CompileResult):
            return compiled
        names = [d.message for d in compiled.reasons]
        shown = "; ".join(names[:4]) + (f"; and {len(names) - 4} more" if len(names) > 4 else "")
        warnings.warn(f"device {self.name!r} runs the model in {len(compiled.sections)} sections: {shown}", UserWarning,
                      stacklevel=4)  # fmt: skip
        largest = max(compiled.results, key=lambda result: len(result.graph.ops))
        return dataclasses.replace(largest, graph=graph, diagnostics=(*compiled.reasons, *largest.diagnostics))

    def fallback_report(self) -> str:
        """Which part of the model runs where, and why; empty where all of it runs on the device."""
        if self._broken is not None:
            return self._broken.report()
        return "" if self._split is None else self._split.report()

    def compile_to_depth(self, sample: Inputs, depth: CompileDepth) -> StagedCompile:
        """The stages of a compile for inputs like `sample`, up to `depth`; the device keeps nothing of it."""
        settings = config._get_global_compiler_config()
        graph = frontend.from_pybuda(self.modules, sample, training=settings.enable_training)
        options = settings.options(sum(1 for _ in elements(graph, frontend.feeds(graph, sample))), self.fp32_fallback)
        options = dataclasses.replace(options, default_df_override=self._format(graph, options))
        if settings.enable_training:
            options = dataclasses.replace(options, training=TrainingOptions(recompute=settings.enable_recompute))
        return compile_to_depth(graph, self.spec, options, settings.resolved(graph), depth)

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
        """Everything but the inputs that a compile depends on: it is done again when, and only when, this changes."""
        states = tuple((id(m), m.state) for m in self.modules if isinstance(m, PyBudaModule | PyTorchModule))
        settings = config._get_global_compiler_config()
        return states, repr(settings), repr(environment()), self.arch, tuple(self.chip_ids)

    def training(self) -> DeviceTraining:
        from tbuda_lab.runtime.trainers import TTTraining

        return TTTraining(self)

    def _check_batch(self, inputs: Inputs) -> None:
        given = microbatch_of(inputs)
        if self._batch and given != self._batch:
            raise BatchError(
                f"Batch size mismatch between first input and current input: {self._batch} and {given}; "
                "a pipeline is compiled for one microbatch (dim 0)"
            )

    def prepare(self, sample: Inputs) -> Outputs:
        settings = config._get_global_compiler_config()
        if stops_early(settings):
            graph = self.compile_to_depth(sample, settings.effective("compile_depth"))["generate_initial_graph"].graph
            assert graph is not None
            return blank_outputs(graph, sum(1 for _ in elements(graph, frontend.feeds(graph, sample))))
        broken = self._compile_or_break(sample)
        if broken is not None:
            return tuple(torch.zeros_like(value) for value in broken.run(sample))
        assert self._result is not None
        return blank_outputs(self._result.graph, self._microbatch)

    def _compile_or_break(self, sample: Inputs) -> BrokenModel | None:
        """Compile for inputs like `sample`; a torch module whose path depends on data is broken in graphs instead."""
        settings = config._get_global_compiler_config()
        try:
            self.compile_for_inputs(sample)
            self._broken = None
        except (ModelError, UnsupportedOp) as error:
            module = self.modules[0] if self.modules else None
            allowed = settings.enable_tvm_cpu_fallback and not settings.enable_training and len(self.modules) == 1
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
            self._broken = BrokenModel(module.module.eval(), self.spec, options)
            self._result = self._runner = self._split = None
            self._compiled_state, self._batch = self._state(), 0
        return self._broken

    def run_forward(self, inputs: Inputs) -> Outputs:
        depth = config._get_global_compiler_config().effective("compile_depth")
        if depth < CompileDepth.BACKEND_GOLDEN_VERIFY:
            raise PipelineError(f"compile_depth is {depth.name}: the compile ends there and nothing runs; "
                                "pybuda_compile gives its stages")
        if (self._result is None and self._broken is None) or self._state() != self._compiled_state:
            self._compile_or_break(inputs)
        if self._broken is not None:
            return tuple(self._broken.run(inputs))
        self._check_batch(inputs)
        result = self._result
        assert result is not None
        if not self.runs:
            raise PipelineError(f"device {self.name!r} only compiles (NoBackend or CompileOnly); it cannot run inputs")
        if self.trainer is not None and result.options.training is not None:
            return self.trainer.evaluate(inputs)
        if self._runner is None:
            self._runner = Runner(result, self.numerics) if self._split is None else SplitRunner(self._split,
                                                                                                 self.numerics)
        wanted = config._get_global_compiler_config().op_intermediates_to_save
        if not wanted:
            return tuple(self._runner.run([inputs])[0])
        if isinstance(self._runner, SplitRunner):
            raise not_supported("op_intermediates_to_save of a model that is split by CPU fallback",
                                "keep its ops on one device, or place its parts on devices of their own")
        intermediates = IntermediateOutputs(result, wanted)
        self._runner.executor.on_op = intermediates.take
        try:
            outputs = tuple(self._runner.run([inputs])[0])
        finally:
            self._runner.executor.on_op = None
        CONTEXT.intermediates.put(intermediates.tensors())
        return outputs

    def generate_one(self, inputs: Inputs, start: int) -> Outputs:
        """Outputs for one input but for those that `loopback_outputs` names: {input: number of the output}. Such an
        output is written into the input that the device keeps: whole where the shapes are equal, else along the one dim
        that differs, from `start` on. What is kept is given with the first input, or again to begin anew.

        Raises `PipelineError` for names and shapes that do not fit.
        """
        loops = dict(config._get_global_compiler_config().loopback_outputs)
        if not loops:
            return self.run_forward(inputs)
        values = self._with_caches(inputs, loops)
        outputs = self.run_forward(values)
        assert self._result is not None
        names = [str(n.attrs.get("argument", n.name)) for n in self._result.graph.inputs]
        caches = dict(zip(names, values, strict=True))
        for name, index in loops.items():
            if name not in caches or not 0 <= index < len(outputs):
                raise PipelineError(f"loopback_outputs: {name!r} is to be one of the inputs {', '.join(names)}, "
                                    f"and its output a number below {len(outputs)}, not {index}")
            self._caches[name] = _written(name, caches[name], outputs[index], start)
        return tuple(o for k, o in enumerate(outputs) if k not in loops.values())

    def _with_caches(self, inputs: Inputs, loops: Mapping[str, int]) -> tuple[Any, ...]:
        """Inputs in the order of the model's, those that the device keeps filled in."""
        if self._result is None or self._broken is not None:
            if isinstance(inputs, dict):
                raise PipelineError("the first input of a generation is a tuple of all inputs, in the model's order")
            return tuple(inputs)
        names = [str(n.attrs.get("argument", n.name)) for n in self._result.graph.inputs]
        own = [n for n in names if n not in loops]
        given = inputs if isinstance(inputs, dict) else dict(
            zip(names if len(inputs) == len(names) else own, inputs, strict=False)
        )  # fmt: skip
        values = {**self._caches, **given}
        missing = [n for n in names if n not in values]
        if missing or len(given) != len(inputs):
            raise PipelineError(f"device {self.name!r} takes {', '.join(own)} and keeps {', '.join(loops)}; "
                                f"{missing[0] if missing else 'too much'} {'is missing' if missing else 'is given'}")
        return tuple(values[n] for n in names)

    # -- results ---------------------------------------------------------------------------------------------
    @property
    def _compile_output(self) -> Any:
        return self.get_compiled_results()

    def get_compiled_results(self) -> Any:
        """Results of the last compile (see `runtime.results.CompileResults`). Raises `PipelineError` before it."""
        from tbuda_lab.runtime.results import CompileResults

        if self._result is None:
            raise PipelineError(f"device {self.name!r} has not been compiled yet")
        return CompileResults(self._result, self.modules[-1].get_name())

    def get_device_config(self, compiler_cfg: Any = None) -> Any:
        from tbuda_lab.runtime.results import DeviceConfig

        return DeviceConfig(self.spec, self.devtype)

    def generate_graph(
        self,
        *inputs: Tensor,
        target_tensors: Sequence[Any] = (),
        return_intermediate: bool = False,
        graph_name: str = "default_graph",
        compiler_cfg: Any = None,
        trace_only: bool = False,
        verify_cfg: Any = None,
    ) -> tuple[Graph, tuple[Tensor, ...], dict[str, Tensor], tuple[Tensor, ...], Tensor | None]:
        """The nD graph of the placed modules, its outputs, intermediates by node, the inputs, and the first target.

        target_tensors: for the loss on the device, which then is a part of the graph. return_intermediate: what every
        op gives, of the first element. trace_only: outputs have no values. compiler_cfg: whether it is for training.
        verify_cfg: outputs are judged against the modules' own (`AssertionError`). Nothing is compiled. Raises
        `PipelineError` for targets without a loss, or for a loss without them.
        """
        from tbuda_lab.runtime.compile import generated

        settings = compiler_cfg or config._get_global_compiler_config()
        sample, targets = as_inputs(inputs), as_inputs(target_tensors)
        parts = generated(self, sample, targets, settings.enable_training, return_intermediate, trace_only, verify_cfg)
        parts[0].name = graph_name
        return parts

    def remove_modules(self) -> None:
        super().remove_modules()
        self._result = self._runner = self._split = self._broken = None

    def set_active_subgraph(self, subgraph_index: int) -> None:
        if subgraph_index != 0:
            raise not_supported("subgraphs", "one device holds one graph")

    def get_active_subgraph(self) -> int:
        return 0

    # -- images ----------------------------------------------------------------------------------------------
    @property
    def result(self) -> CompileResult | None:
        """The last compile; None before it."""
        return self._result

    @property
    def _compiled_graph_state(self) -> Any:
        from tbuda_lab.runtime.image import TTDeviceImage

        return TTDeviceImage.create_image_from_device(self).compiled_graph_state

    def compile_to_image(
        self,
        img_path: str | os.PathLike[str] | None = None,
        training: bool = False,
        sample_inputs: Any = (),
        sample_targets: Any = (),
        microbatch_count: int = 1,
        verify_cfg: Any = None,
        cpueval_outputs: Any = None,
    ) -> Any:
        """Compile for inputs like `sample_inputs` (or the first one pushed) and write a device image (`*.tti`), which
        `load_image` runs without the model. Works for any devtype; nothing runs.

        training: the image trains, with the loss and optimizer of the device; microbatch_count inputs run forward
        before the first runs backward. On a device that is set up for training already the image is a checkpoint:
        weights and the optimizer's state as they are now.
        img_path: see `TTDeviceImage.save_to_disk`. Returns the `TTDeviceImage`. Raises the errors of compiling, and
        `OutputError`.
        """
        from tbuda_lab.runtime.image import TTDeviceImage

        if training:
            self._prepare_training_image(sample_inputs, sample_targets, microbatch_count)
        else:
            self.compile_for_inputs(self.sample(sample_inputs))
        image = TTDeviceImage.create_image_from_device(
            self, training, microbatch_count, verify_cfg, sample_targets=sample_targets
        )
        image.save_to_disk(img_path)
        self.imaged = True
        return image

    def _prepare_training_image(self, sample_inputs: Any, sample_targets: Any, microbatch_count: int) -> None:
        from tbuda_lab.runtime.trainers import ROOM
        from tbuda_lab.runtime.trainingloop import sample_targets_of

        if self.trainer is None:
            targets = None if self.loss_module is None else sample_targets_of(self, sample_targets)
            first = not CONTEXT.devices or CONTEXT.devices[0] is self
            trainer = self.training()
            trainer.prepare(self.sample(sample_inputs), targets, not first, max(microbatch_count, ROOM))
            self.trainer = trainer

    @staticmethod
    def load_image(
        img: Any = None,
        img_path: str | os.PathLike[str] | None = None,
        device_id_overrides: Sequence[int] | None = None,
    ) -> TTDevice:
        """A device that runs an image (`img`, or the file at `img_path`): without the model, without compiling.

        Devices that were only compiled to images leave the pipeline. Raises `InputError` as
        `TTDeviceImage.load_from_disk` does.
        """
        from tbuda_lab.runtime.image import TTDeviceImage
        from tbuda_lab.runtime.loadeddevice import LoadedDevice

        if (img is None) == (img_path is None):
            raise PipelineError("load_image takes an image (img=) or the path of one (img_path=)")
        if img is None:
            img = TTDeviceImage.load_from_disk(img_path, device_id_overrides)
        elif not isinstance(img, TTDeviceImage):
            raise PipelineError(f"img is a TTDeviceImage, not a {type(img).__name__}; a path goes in img_path=")
        elif device_id_overrides is not None:
            img = img.on_chips(device_id_overrides)
        return LoadedDevice(img)

    def get_dram_io_queues(self, queue_type: str) -> tuple[list[Any], list[list[int]], list[tuple[int, ...]]]:
        """The netlist's queues of one kind, in order: their descriptions, the dims in which a value fills its tile, and
        the shapes that the model has. queue_type: "input", "output", "target", "bw_input" (gradients by outputs, from
        the next device), "bw_output" (gradients by inputs) or "parameter". Raises `PipelineError`."""
        if queue_type not in QUEUE_TYPES:
            raise PipelineError(f"get_dram_io_queues knows {', '.join(QUEUE_TYPES)}, not {queue_type!r}")
        result = self._result
        if result is None:
            raise PipelineError(f"device {self.name!r} has not been compiled yet")
        targets = {n.name for n in result.graph.inputs if n.attrs.get("target")}
        ends: list[tuple[str, tuple[int, ...]]] = []
        if queue_type in ("input", "target", "bw_input"):
            for source in result.inputs:
                kind = "bw_input" if source.gradient_of else "target" if set(source.sources) <= targets else "input"
                ends += [(source.queue, tuple(source.shape))] if kind == queue_type else []
        elif queue_type == "parameter":
            parameters = (n for n in result.lowered.of_kind(NodeKind.PARAMETER) if n.name in result.netlist.queues)
            ends += [(n.name, tuple(n.shape)) for n in parameters]
        else:
            phase = "backward" if queue_type == "bw_output" else "forward"
            ends += [(o.queue, tuple(o.shape)) for o in result.outputs if o.phase == phase]
        fills = [[-k for k in (2, 1) if len(shape) >= k and shape[-k] == 1] for _, shape in ends]
        return [result.netlist.queues[name] for name, _ in ends], fills, [shape for _, shape in ends]

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


def _written(name: str, cache: torch.Tensor, new: torch.Tensor, start: int) -> torch.Tensor:
    """A cache with new rows from `start` on, along the one dim in which the sizes differ. Raises `PipelineError`."""
    if new.shape == cache.shape:
        return new.clone()
    dims = [d for d in range(cache.dim()) if new.dim() == cache.dim() and new.shape[d] != cache.shape[d]]
    if len(dims) != 1 or new.shape[dims[0]] > cache.shape[dims[0]]:
        raise PipelineError(f"loop-back input {name!r} has shape {tuple(cache.shape)}; an output of "
                            f"{tuple(new.shape)} has no place in it")
    count = int(new.shape[dims[0]])
    if not 0 <= start <= cache.shape[dims[0]] - count:
        raise PipelineError(f"loop-back input {name!r} has {cache.shape[dims[0]]} places; {count} from {start} on are "
                            "more than that: give a longer cache")
    written = cache.clone()
    written.narrow(dims[0], start, count).copy_(new)
    return written


def _default_arch() -> BackendDevice:
    if "PYBUDA_GOLDEN_BLACKHOLE" in os.environ:
        return BackendDevice.Blackhole
    return BackendDevice.Wormhole_B0 if "GOLDEN_WORMHOLE_B0" in os.environ else BackendDevice.Grayskull
