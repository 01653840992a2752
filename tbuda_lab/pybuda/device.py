"""A device of the PyBuda API as a stage of the pipeline, and the host, which runs torch."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.frontend.inputs import as_tensor
from tbuda_lab.core.frontend.pybuda import Module, Parameter, PyTorchModule, Tensor, device_names, to_torch
from tbuda_lab.core.frontend.torch_model.export import evaluation
from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.graph.phases import LOSS, WRITES
from tbuda_lab.pybuda.compiler_config import warn_once
from tbuda_lab.pybuda.context import CONTEXT
from tbuda_lab.pybuda.internals import Command, CommandType, DeviceInternals

if TYPE_CHECKING:
    from tbuda_lab.pybuda.trainers import DeviceTraining

Inputs = tuple[Any, ...] | dict[str, Any]
Outputs = tuple[torch.Tensor, ...]


class Device(DeviceInternals):
    """A stage of the pipeline: runs its modules in order on inputs pushed to it or given by the stage before."""

    def __init__(self, name: str, mp_context: Any = None, module: Module | Sequence[Module] | None = None) -> None:
        if mp_context is not None:
            warn_once("mp_context", "no processes are made: every device works in the calling thread")
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

        Raises `PipelineError` for what is not a module, for a second module of one name, or for a parameter name that
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

        Raises `PipelineError` for what is not a module, or when the device has a loss already.
        """
        if not isinstance(module, Module):
            raise PipelineError(f"a loss module is placed on {self.name!r}, not a {type(module).__name__}")
        self._accepts(module)
        if self.loss_module is not None:
            raise PipelineError(f"device {self.name!r} already has the loss {self.loss_module.get_name()!r}")
        self.loss_module = module
        module.__dict__["device"] = self

    @property
    def runs(self) -> bool:
        """Whether it is there to run, not to compile only."""
        return True

    @property
    def running_modules(self) -> list[Module]:
        """The modules that a run goes through."""
        return self.modules

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
        """Queue one input: tensors in order, one tuple or list of them, or a dict by argument name. Raises `BatchError`
        for another microbatch than the device was compiled for, or than the input has that waits."""
        one = as_inputs(tensors)
        self.check_pushed(one)
        self.inputs.append(one)
        from tbuda_lab.pybuda.pipeline import data_arrived

        data_arrived(self)

    def check_pushed(self, inputs: Inputs) -> None:
        """Raise `BatchError` for an input of another microbatch than a device of one compile can take."""

    def push_to_target_inputs(self, *tensors: Any) -> None:
        """Queue the targets of one input: tensors in order, or one tuple or list of them."""
        one = as_inputs(tensors)
        self.targets.append(tuple(one.values()) if isinstance(one, dict) else one)
        from tbuda_lab.pybuda.pipeline import data_arrived

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

    def sample(self, values: Any) -> Inputs:
        """The sample inputs that a script gives; where it gives none, the first one pushed."""
        none = len(values) == 0 if isinstance(values, tuple | list | Mapping) else values is None
        return self.next_inputs(peek=True) if none else as_inputs((values,))

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

    def write_trace(self) -> None:
        """Write when each op of the last compile works, beside its netlist; the host has none."""

    def generate_one(self, inputs: Inputs, start: int) -> Outputs:
        """Outputs for one input of a generation; a TT device writes its loop-back outputs at row `start`."""
        return self.run_forward(inputs)

    def get_parameters(self, ignore_unused_parameters: bool = True) -> list[Parameter]:
        """Parameters of all modules. ignore_unused_parameters: without those of no elements, which no op reads."""
        parameters = [p for module in self.modules for p in module.get_parameters()]
        return [p for p in parameters if 0 not in p.shape] if ignore_unused_parameters else parameters

    def named_parameters(self) -> dict[str, tuple[Module, Parameter]]:
        """By the name on the device (`device_names`), the module and its parameter; those of no elements, too."""
        return {
            names[p.get_name()]: (module, p)
            for module, names in zip(self.modules, device_names(self.modules), strict=True)
            for p in module.get_parameters()
        }

    def get_parameter_checkpoint(self) -> dict[str, Tensor]:
        """Current weights by name: the module's, with "<module>." in front where a module before it has the same."""
        named = {name: p for name, (_, p) in self.named_parameters().items() if 0 not in p.shape}
        if self.trainer is not None:
            values = {n: Tensor.create_from_torch(v) for n, v in self.trainer.parameters().items()}
            return {name: values.get(name, p) for name, p in named.items()}
        return {name: Tensor.create_from_torch(p.fill()) for name, p in named.items()}

    def get_all_parameters(self) -> dict[str, Tensor]:
        return self.get_parameter_checkpoint()

    def get_parameter_gradients(self) -> dict[str, Tensor]:
        """Gradients as they have added up, by the name of the weight."""
        return {n: Tensor.create_from_torch(v) for n, v in self.in_training().gradients().items()}

    def update_device_parameters(self, parameters: Sequence[Mapping[str, Any]]) -> None:
        """Give weights new values by name; the device takes them up with the next input."""
        updates: list[tuple[Any, str, str, Any]] = []
        named = self.named_parameters()
        for name, value in new_values(self.name, parameters).items():
            if name not in named:
                raise PipelineError(f"device {self.name!r} has no parameter {name!r}")
            owner, parameter = named[name]
            tensor, shape = to_torch(value), parameter.shape
            if tuple(tensor.shape) != tuple(shape):
                raise PipelineError(
                    f"parameter {name!r} has shape {tuple(shape)}; got a value of {tuple(tensor.shape)}"
                )
            if tensor.is_complex():
                raise PipelineError(f"parameter {name!r} is real; got a value of {tensor.dtype}")
            updates.append((owner, parameter.get_name(), name, tensor))
        for owner, own, _, tensor in updates:  # all of them, or none
            owner.set_parameter(own, tensor)
        if self.trainer is not None:
            self.trainer.set_parameters({name: tensor for _, _, name, tensor in updates})

    def sync(self) -> None:
        """Nothing runs in the background, so nothing is waited for."""

    def shutdown_device(self) -> None:
        """Drop inputs and targets that still wait."""
        self.inputs.clear()
        self.targets.clear()


def new_values(device: str, parameters: Any) -> dict[str, Any]:
    """Weights by name out of a list of dicts. Raises `PipelineError` for anything else."""
    parts: Any = [parameters] if isinstance(parameters, Mapping) else parameters
    if isinstance(parts, Iterable):
        parts = list(parts)
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
    """Zeros of the shapes and dtypes that a model's graph gives for that many elements."""
    return tuple(torch.zeros((microbatch, *n.shape[1:]) if n.shape else (), dtype=_dtype_of(n)) for n in graph.outputs)


def in_model_dtypes(graph: Graph, outputs: Sequence[torch.Tensor], names: Sequence[str] | None = None) -> Outputs:
    """What the device computed, in the dtypes of the model's own outputs where these are float16 or bfloat16.

    names: of the outputs' nodes; None: all that the model gives. The executor gives float32. A float32 above 65,504
    becomes an infinity in float16, as in torch. A loss and outputs of whole numbers stay as they are.
    """
    given = [node for node in graph.outputs if WRITES not in node.attrs]  # what writes a cache stays on the device
    if names is not None:
        given = [graph[name] for name in names]
    return tuple(
        v.to(_dtype_of(node)) if v.dtype == torch.float32 else v for v, node in zip(outputs, given, strict=True)
    )


def _dtype_of(output: Node) -> torch.dtype:
    halves = {"float16": torch.float16, "bfloat16": torch.bfloat16}
    return torch.float32 if output.attrs.get(LOSS) else halves.get(str(output.attrs.get("dtype")), torch.float32)


def microbatch_of(inputs: Inputs) -> int:
    """Dim 0 of the first tensor."""
    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return int(leaf.shape[0])
    return 1


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

    # PyBuda's names of the same for each framework; a TensorFlow module is not a module of a CPUDevice (`_accepts`).
    forward_pt = forward_tf = DeviceInternals.forward
    compile_for_pt = compile_for_tf = DeviceInternals.compile_for
    cpueval_forward_pt = cpueval_forward_tf = DeviceInternals.cpueval_forward

    def set_debug_gradient_trace_queue(self, q: Any) -> None:
        """A queue that gets, at every backward pass, the gradients that come in and then those that go out."""
        self.gradient_trace = q

    def prepare(self, sample: Inputs) -> Outputs:
        return self.run_forward(sample)

    def training(self) -> DeviceTraining:
        from tbuda_lab.pybuda.trainers import CPUTraining

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


__all__ = ["CPUDevice", "Command", "CommandType", "Device", "as_inputs"]
