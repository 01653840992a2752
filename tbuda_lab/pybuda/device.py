"""A device of the PyBuda API: a stage of the pipeline, with what PyBuda's own run loop asks of it: commands, transfers
between devices, evaluation on the host. Scripts rarely call those; `run_inference` and `run_training` do the same in
order."""

from __future__ import annotations

import dataclasses
import enum
import queue
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.frontend.pybuda import Module, Tensor, to_torch
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.compiler_config import warn_once
from tbuda_lab.pybuda.context import CONTEXT, transfer
from tbuda_lab.pybuda.evaluation import evaluate_module
from tbuda_lab.pybuda.stage import ROOM, Inputs, Stage, as_inputs

_ONE_PROCESS = "all devices run in the calling thread: run_forward, run_backward and run_optimizer run them in order"


class CommandType(enum.Enum):
    QUIT = 0
    RUN_FORWARD = 1
    RUN_GENERATE = 10
    RUN_BACKWARD = 2
    RUN_OPTIMIZER = 3
    RUN_SCHEDULERS = 4
    GET_PARAMETER_CHECKPOINT = 5
    GET_PARAMETER_GRADIENTS = 6
    UPDATE_DEVICE_PARAMETERS = 7
    DC_TRANSFER = 8
    SYNC = 9


@dataclasses.dataclass(frozen=True)
class Command:
    """A command of the run loop; params: the arguments of the device's method of that name."""

    command_type: CommandType
    params: Mapping[str, Any] = dataclasses.field(default_factory=dict)


class Device(Stage):
    """A stage of the pipeline: runs its modules in order on inputs pushed to it or given by the stage before. It makes
    itself the last stage of the pipeline."""

    def __init__(self, name: str, mp_context: Any = None, module: Module | Sequence[Module] | None = None) -> None:
        if mp_context is not None:
            warn_once("mp_context", "no processes are made: every device works in the calling thread")
        super().__init__(name)
        self._answers: deque[dict[str, Any]] = deque()  # of commands
        self._evaluated: tuple[Any, tuple[torch.Tensor, ...], dict[str, torch.Tensor]] | None = None
        if CONTEXT.ended:  # a script, or a cell, that is run again: its first device is no stage after the old ones
            CONTEXT.devices.clear()
            CONTEXT.ended = False
        CONTEXT.devices.append(self)
        if module is not None:
            self.place_module(module)

    # -- inputs --------------------------------------------------------------------------------------------------
    def push_to_inputs(self, *tensors: Any) -> None:
        """Queue one input: tensors in order, one tuple or list of them, or a dict by argument name. Raises `BatchError`
        for another microbatch than the device was compiled for, or than the input has that waits."""
        one = as_inputs(tensors)
        self.check_pushed(one)
        self.inputs.append(one)
        if CONTEXT.on_arrival is not None:
            CONTEXT.on_arrival(self)

    def push_to_target_inputs(self, *tensors: Any) -> None:
        """Queue the targets of one input: tensors in order, or one tuple or list of them."""
        one = as_inputs(tensors)
        self.targets.append(tuple(one.values()) if isinstance(one, dict) else one)
        if CONTEXT.on_arrival is not None:
            CONTEXT.on_arrival(self)

    def check_pushed(self, inputs: Inputs) -> None:
        """Raise `BatchError` for an input of another microbatch than a device of one compile can take."""

    # -- commands ------------------------------------------------------------------------------------------------
    def push_to_command_queue(self, cmd: Command) -> None:
        """Run a command now; its answer waits for `get_command_queue_response`."""
        self.run_next_command(cmd)

    def get_command_queue_response(self) -> dict[str, Any] | None:
        """The oldest answer of a command, None where there is none."""
        return self._answers.popleft() if self._answers else None

    def get_next_command(self, command_queue: queue.Queue[Command]) -> Command | None:
        """The next command of a queue; None when it is empty, for nobody else could fill it meanwhile."""
        try:
            return command_queue.get_nowait()
        except queue.Empty:
            return None

    def run_next_command(self, cmd: Command) -> bool:
        """Run a command; True for QUIT. Raises `PipelineError` for what is no command."""
        if not isinstance(cmd, Command):
            raise PipelineError(f"a command is a Command(CommandType, params), not {cmd!r}")
        params = dict(cmd.params)
        answer: dict[str, Any] = {}
        match cmd.command_type:
            case CommandType.QUIT:
                self.shutdown_device()
            case CommandType.RUN_FORWARD:
                self.forward(**params)
            case CommandType.RUN_GENERATE:
                self.generate(**params)
            case CommandType.RUN_BACKWARD:
                self.backward(**params)
            case CommandType.RUN_OPTIMIZER:
                self.in_training().optimize()
            case CommandType.RUN_SCHEDULERS:
                self.in_training().schedule()
            case CommandType.GET_PARAMETER_CHECKPOINT:
                answer["checkpoint"] = self.get_parameter_checkpoint()
            case CommandType.GET_PARAMETER_GRADIENTS:
                answer["gradients"] = self.get_parameter_gradients()
            case CommandType.UPDATE_DEVICE_PARAMETERS:
                self.update_device_parameters(**params)
            case CommandType.DC_TRANSFER:
                self.dc_transfer(**params)
            case CommandType.SYNC:
                self.sync()
        self._answers.append(answer)
        return cmd.command_type is CommandType.QUIT

    def run(self, output_dir: str = "") -> None:
        raise not_supported("Device.run, the loop of a process of its own", _ONE_PROCESS)

    def dc_transfer_thread(self, direction: str, direction_queue: Any = None) -> None:
        raise not_supported("Device.dc_transfer_thread", _ONE_PROCESS)

    # -- one device ----------------------------------------------------------------------------------------------
    def compile_for(
        self,
        inputs: Any,
        compiler_cfg: Any = None,
        targets: Sequence[Any] = (),
        microbatch_size: int = 0,
        microbatch_count: int = 1,
        verify_cfg: Any = None,
    ) -> tuple[Tensor, ...]:
        """Compile for inputs like these (a host has nothing to compile); returns outputs of the right shapes. With
        targets for training. compiler_cfg: instead of the global one."""

        if isinstance(inputs, bool):
            raise not_supported(
                "compile_for(training, microbatch_size, microbatch_count)",
                "compile_for(inputs, compiler_cfg, targets, ...), or initialize_pipeline",
            )
        before = config._get_global_compiler_config()
        sample = as_inputs((inputs,))
        if compiler_cfg is not None:
            config._set_global_compiler_config(compiler_cfg)
        try:
            if targets or self.ends_in_loss:
                self.trainer = self.training()
                first = not CONTEXT.devices or CONTEXT.devices[0] is self
                goal = tuple(to_torch(t) for t in targets)
                outputs = self.trainer.prepare(sample, goal, not first, max(microbatch_count, ROOM))
            else:
                outputs = self.prepare(sample)
        finally:
            config._set_global_compiler_config(before)
        return tuple(Tensor.create_from_torch(v) for v in outputs)

    def dc_transfer(self, direction: str) -> None:
        """Hand the oldest result on to the next device, or from the last to the output queue ("forward"); the oldest
        gradients to the device before ("backward"); what the host pushed is there already ("forward_input", "target",
        "intermediates"). Raises `PipelineError` for another direction, or where nothing waits."""
        transfer(self, direction)

    # -- the host's evaluation -----------------------------------------------------------------------------------
    def cpueval_forward(
        self,
        inputs: Sequence[Any],
        parameters: Mapping[str, Any] | None = None,
        save_for_backward: bool = False,
        targets: Sequence[Any] = (),
    ) -> list[torch.Tensor]:
        """The device's modules (and with targets its loss) in torch, with these values of parameters by name.
        save_for_backward: `cpueval_backward` may follow."""
        leaves = {
            n: to_torch(v).detach().clone().requires_grad_(save_for_backward and to_torch(v).is_floating_point())
            for n, v in (parameters or {}).items()
        }
        plain = tuple(to_torch(v).detach().clone() for v in inputs)
        value: Any = tuple(v.requires_grad_(save_for_backward) if v.is_floating_point() else v for v in plain)
        sources = value
        with torch.set_grad_enabled(save_for_backward):
            for module in self.modules:
                value = evaluate_module(module, value, leaves)
            if targets and self.loss_module is not None:
                value = evaluate_module(self.loss_module, (*value, *(to_torch(t) for t in targets)), leaves)
        self._evaluated = (sources, tuple(value), leaves) if save_for_backward else None
        return [v.detach() for v in value]

    def cpueval_backward(
        self, bw_inputs: Sequence[Any], parameters: Mapping[str, Any] | None = None
    ) -> tuple[list[torch.Tensor | None], dict[str, torch.Tensor]]:
        """Gradients by the inputs and by the parameters of the last `cpueval_forward`; bw_inputs: by its outputs, none
        for a loss. Raises `PipelineError` where it did not save for it."""
        if self._evaluated is None:
            raise PipelineError("cpueval_backward follows cpueval_forward(save_for_backward=True)")
        sources, outputs, leaves = self._evaluated
        self._evaluated = None
        seeds = [to_torch(g).reshape(o.shape) for g, o in zip(bw_inputs, outputs, strict=False)]
        seeds += [torch.ones_like(o) for o in outputs[len(seeds) :]]
        pairs = [(o, g) for o, g in zip(outputs, seeds, strict=True) if o.requires_grad]
        torch.autograd.backward([o for o, _ in pairs], [g for _, g in pairs])
        selected = leaves if parameters is None else {n: v for n, v in leaves.items() if n in parameters}
        return (
            [v.grad for v in pytree.tree_leaves(sources)],
            {n: v.grad for n, v in selected.items() if v.grad is not None},
        )

    def pop_parameter_checkpoint(self) -> dict[str, Tensor]:
        """Current weights by name."""
        return self.get_parameter_checkpoint()


__all__ = ["Command", "CommandType", "Device", "as_inputs"]
