"""What a pipeline is made of: stages that take inputs and give outputs, how a stage trains, and the values between."""

from __future__ import annotations

import abc
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.bindings import output_dtype
from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.frontend.inputs import as_tensor
from tbuda_lab.core.frontend.pybuda import Module, Parameter, Tensor, device_names, to_torch
from tbuda_lab.core.graph import Graph

Inputs = tuple[Any, ...] | dict[str, Any]
Outputs = tuple[torch.Tensor, ...]

Gradients = tuple[torch.Tensor | None, ...]
"""By output or input of a device; None where no gradient flows."""

ROOM = 4
"""Inputs for which the queues between forward and backward have room when nobody says how many there will be."""


class DeviceTraining(abc.ABC):
    """Forward, backward and update of one device. Inputs that ran forward wait for their backward pass, in order."""

    @abc.abstractmethod
    def prepare(self, sample: Inputs, targets: tuple[Any, ...] | None, sends_back: bool, batches: int) -> Outputs:
        """Make ready for inputs like `sample`; returns outputs of the right shapes for the next device.

        sends_back: whether the device before needs gradients; batches: inputs that run forward before the first runs
        backward.
        """

    @abc.abstractmethod
    def forward(self, inputs: Inputs, targets: tuple[Any, ...] | None) -> Outputs:
        """Outputs for one input; with targets, of the loss."""

    @abc.abstractmethod
    def backward(self, gradients: Gradients | None, zero_grad: bool) -> Gradients:
        """The backward pass of the oldest input that waits: gradients by its inputs. gradients: by the outputs, None
        behind a loss; zero_grad: whether the sums of gradients begin anew."""

    @abc.abstractmethod
    def optimize(self) -> None:
        """One step of the optimizer; nothing without one."""

    @abc.abstractmethod
    def schedule(self) -> None:
        """One step of the learning-rate scheduler; nothing without one."""

    @abc.abstractmethod
    def parameters(self) -> dict[str, torch.Tensor]: ...

    @abc.abstractmethod
    def gradients(self) -> dict[str, torch.Tensor]: ...

    @abc.abstractmethod
    def set_parameters(self, values: Mapping[str, torch.Tensor]) -> None: ...

    def contents(self) -> dict[str, np.ndarray]:
        """What the rams of weights and of the optimizer's state hold, by queue."""
        raise NotImplementedError

    @property
    def drops(self) -> bool:
        """Whether dropouts are active on a TT device; a CPUDevice leaves them to torch."""
        return False

    def room_for(self, count: int) -> None:
        """Make sure that so many inputs can run forward before one runs backward; torch keeps any number."""
        return

    def states(self, is_buda: bool) -> dict[str, dict[str, torch.Tensor]]:
        """State of the optimizer by weight."""
        return {}

    def evaluate(self, inputs: Inputs) -> Outputs:
        """Outputs for one input that no backward pass follows."""
        raise NotImplementedError

    def total(self, losses: Outputs) -> torch.Tensor:
        """The loss that the gradients are by, of what `forward` gave for one input."""
        return torch.stack([v.sum() for v in losses]).sum()


class Waiting:
    """What waits between the calls of one stage."""

    def __init__(self) -> None:
        self.results: deque[Outputs] = deque()  # for the stage behind
        self.gradients: deque[Gradients] = deque()  # from the stage behind
        self.sent_back: deque[Gradients] = deque()  # for the stage before


class Stage(abc.ABC):
    """A stage of the pipeline: runs its modules in order on inputs pushed to it or given by the stage before."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.modules: list[Module] = []
        self.inputs: deque[Inputs] = deque()
        self.targets: deque[tuple[Any, ...]] = deque()
        self.loss_module: Module | None = None
        self.trainer: DeviceTraining | None = None  # made when a pipeline is set up for training
        self.waiting = Waiting()

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
        return

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
    @abc.abstractmethod
    def run_forward(self, inputs: Inputs) -> Outputs:
        """Outputs of the device's modules for one input."""

    @abc.abstractmethod
    def prepare(self, sample: Inputs) -> Outputs:
        """Make ready for inputs like `sample`; returns outputs of the right shapes for the next device."""

    @abc.abstractmethod
    def training(self) -> DeviceTraining:
        """How the device trains, made anew."""

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
        return

    def generate_one(self, inputs: Inputs, start: int) -> Outputs:
        """Outputs for one input of a generation; a TT device writes its loop-back outputs at row `start`."""
        return self.run_forward(inputs)

    def forward(self, loop_count: int = 1) -> None:
        """Run so many inputs that wait on this device; `dc_transfer("forward")` hands each result on."""
        for _ in range(loop_count):
            inputs = self.next_inputs()
            if self.trainer is None:
                self.waiting.results.append(self.run_forward(inputs))
                continue
            targets = self.get_first_targets() if self.ends_in_loss else None
            self.waiting.results.append(self.trainer.forward(inputs, targets))

    def generate(
        self, loop_count: int = 1, write_index: int = 0, tokens_per_iter: int = -1, token_id: int = -1
    ) -> None:
        """As `forward`, with the device's loop-back outputs written into its caches: from token `token_id` on where it
        is told, else from the tile row `write_index` (32 tokens each); every further input one place, or
        `tokens_per_iter` places, behind the one before."""
        step = tokens_per_iter if tokens_per_iter > 0 else 32 if token_id < 0 else 1
        start = token_id if token_id >= 0 else write_index * 32
        for turn in range(loop_count):
            self.waiting.results.append(self.generate_one(self.next_inputs(), start + turn * step))

    def backward(self, loop_count: int = 1, zero_grad: bool = False) -> None:
        """The backward pass of so many inputs that ran forward; `dc_transfer("backward")` hands gradients on."""
        for turn in range(loop_count):
            seeds = None
            if not self.ends_in_loss:
                if not self.waiting.gradients:
                    raise PipelineError(
                        f"no gradients have come to device {self.name!r}: dc_transfer('backward') of "
                        "the device behind it sends them"
                    )
                seeds = self.waiting.gradients.popleft()
            self.waiting.sent_back.append(self.in_training().backward(seeds, zero_grad and turn == 0))

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
        return

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
    return tuple(
        torch.zeros((microbatch, *n.shape[1:]) if n.shape else (), dtype=output_dtype(n)) for n in graph.outputs
    )


def microbatch_of(inputs: Inputs) -> int:
    """Dim 0 of the first tensor."""
    for leaf in pytree.tree_leaves(inputs):
        if isinstance(leaf, torch.Tensor) and leaf.dim():
            return int(leaf.shape[0])
    return 1


def device_trainings(stages: Sequence[Stage]) -> list[DeviceTraining]:
    """How the devices of a pipeline train. Raises `PipelineError` for one that is not set up for training."""
    return [stage.in_training() for stage in stages]


def sample_targets_of(stage: Stage, targets: Any) -> tuple[Any, ...]:
    """Sample targets; where none are given, the first ones pushed. A device made of an image needs none."""
    if stage.loss_module is None and stage.ends_in_loss:
        return ()
    if isinstance(targets, tuple | list) and not targets:
        if not stage.targets:
            raise PipelineError("training needs sample_targets, or targets pushed to the last device")
        return stage.targets[0]
    one = as_inputs((targets,))
    return tuple(one.values()) if isinstance(one, dict) else one
