"""What PyBuda's devices offer to their own run loop, for one process: commands, transfers between devices, evaluation
on the host. Scripts rarely call it; `run_inference` and `run_training` do the same in order."""

from __future__ import annotations

import dataclasses
import enum
import queue
from collections import deque
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import PipelineError, not_supported
from tbuda_lab.core.frontend.pybuda import Tensor, to_torch
from tbuda_lab.pybuda.context import CONTEXT, new_output_queue

if TYPE_CHECKING:
    from tbuda_lab.pybuda.device import Device

_ONE_PROCESS = "all devices run in the calling thread: run_forward, run_backward and run_optimizer run them in order"
QUEUE_TYPES = ("input", "output", "target", "bw_input", "bw_output", "parameter")


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


class DeviceInternals:
    """Mixed into `Device`."""

    @property
    def _own(self) -> _Loop:
        loop: _Loop | None = self.__dict__.get("_loop")
        if loop is None:
            loop = self.__dict__["_loop"] = _Loop()
        return loop

    @property
    def _device(self) -> Device:
        from tbuda_lab.pybuda.device import Device

        assert isinstance(self, Device)
        return self

    # -- commands ------------------------------------------------------------------------------------------------
    def push_to_command_queue(self, cmd: Command) -> None:
        """Run a command now; its answer waits for `get_command_queue_response`."""
        self.run_next_command(cmd)

    def get_command_queue_response(self) -> dict[str, Any] | None:
        """The oldest answer of a command, None where there is none."""
        return self._own.answers.popleft() if self._own.answers else None

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
        device, params = self._device, dict(cmd.params)
        answer: dict[str, Any] = {}
        match cmd.command_type:
            case CommandType.QUIT:
                device.shutdown_device()
            case CommandType.RUN_FORWARD:
                self.forward(**params)
            case CommandType.RUN_GENERATE:
                self.generate(**params)
            case CommandType.RUN_BACKWARD:
                self.backward(**params)
            case CommandType.RUN_OPTIMIZER:
                device.in_training().optimize()
            case CommandType.RUN_SCHEDULERS:
                device.in_training().schedule()
            case CommandType.GET_PARAMETER_CHECKPOINT:
                answer["checkpoint"] = device.get_parameter_checkpoint()
            case CommandType.GET_PARAMETER_GRADIENTS:
                answer["gradients"] = device.get_parameter_gradients()
            case CommandType.UPDATE_DEVICE_PARAMETERS:
                device.update_device_parameters(**params)
            case CommandType.DC_TRANSFER:
                self.dc_transfer(**params)
            case CommandType.SYNC:
                device.sync()
        self._own.answers.append(answer)
        return cmd.command_type is CommandType.QUIT

    def run(self, output_dir: str = "") -> None:
        raise not_supported("Device.run, the loop of a process of its own", _ONE_PROCESS)

    def dc_transfer_thread(self, direction: str, direction_queue: Any = None) -> None:
        raise not_supported("Device.dc_transfer_thread", _ONE_PROCESS)

    # -- one device ----------------------------------------------------------------------------------------------
    def forward(self, loop_count: int = 1) -> None:
        """Run so many inputs that wait on this device; `dc_transfer("forward")` hands each result on."""
        device, own = self._device, self._own
        for _ in range(loop_count):
            inputs = device.next_inputs()
            if device.trainer is None:
                own.results.append(device.run_forward(inputs))
                continue
            targets = device.get_first_targets() if device.ends_in_loss else None
            own.results.append(device.trainer.forward(inputs, targets))

    def generate(
        self, loop_count: int = 1, write_index: int = 0, tokens_per_iter: int = -1, token_id: int = -1
    ) -> None:
        """As `forward`, with the device's loop-back outputs written into its caches: from token `token_id` on where it
        is told, else from the tile row `write_index` (32 tokens each); every further input one place, or
        `tokens_per_iter` places, behind the one before."""
        device, own = self._device, self._own
        step = tokens_per_iter if tokens_per_iter > 0 else 32 if token_id < 0 else 1
        start = token_id if token_id >= 0 else write_index * 32
        for turn in range(loop_count):
            own.results.append(device.generate_one(device.next_inputs(), start + turn * step))

    def backward(self, loop_count: int = 1, zero_grad: bool = False) -> None:
        """The backward pass of so many inputs that ran forward; `dc_transfer("backward")` hands gradients on."""
        device, own = self._device, self._own
        for turn in range(loop_count):
            seeds = None
            if not device.ends_in_loss:
                if not own.gradients:
                    raise PipelineError(
                        f"no gradients have come to device {device.name!r}: dc_transfer('backward') of "
                        "the device behind it sends them"
                    )
                seeds = own.gradients.popleft()
            own.sent_back.append(device.in_training().backward(seeds, zero_grad and turn == 0))

    def dc_transfer(self, direction: str) -> None:
        """Hand the oldest result on to the next device, or from the last to the output queue ("forward"); the oldest
        gradients to the device before ("backward"); what the host pushed is there already ("forward_input", "target",
        "intermediates"). Raises `PipelineError` for another direction, or where nothing waits."""
        device, own = self._device, self._own
        if direction in ("forward_input", "target", "intermediates"):
            return
        if direction not in ("forward", "backward"):
            raise PipelineError(f"dc_transfer goes forward or backward, not {direction!r}")
        number = CONTEXT.devices.index(device)
        if direction == "forward":
            if not own.results:
                raise PipelineError(f"device {device.name!r} has no result to hand on; forward() makes one")
            value = own.results.popleft()
            if number + 1 < len(CONTEXT.devices):
                CONTEXT.devices[number + 1].inputs.append(value)
            else:
                out = CONTEXT.loss_queue if CONTEXT.training else CONTEXT.output_queue
                if out is None:
                    out = CONTEXT.output_queue = new_output_queue()
                out.put([Tensor.create_from_torch(v) for v in value])
            return
        if not own.sent_back:
            raise PipelineError(f"device {device.name!r} has no gradients to hand on; backward() makes them")
        back = own.sent_back.popleft()
        if number:
            CONTEXT.devices[number - 1]._own.gradients.append(back)

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
        from tbuda_lab.pybuda import config
        from tbuda_lab.pybuda.device import as_inputs
        from tbuda_lab.pybuda.trainers import ROOM

        if isinstance(inputs, bool):
            raise not_supported(
                "compile_for(training, microbatch_size, microbatch_count)",
                "compile_for(inputs, compiler_cfg, targets, ...), or initialize_pipeline",
            )
        device, before = self._device, config._get_global_compiler_config()
        sample = as_inputs((inputs,))
        if compiler_cfg is not None:
            config._set_global_compiler_config(compiler_cfg)
        try:
            if targets or device.ends_in_loss:
                device.trainer = device.training()
                first = not CONTEXT.devices or CONTEXT.devices[0] is device
                goal = tuple(to_torch(t) for t in targets)
                outputs = device.trainer.prepare(sample, goal, not first, max(microbatch_count, ROOM))
            else:
                outputs = device.prepare(sample)
        finally:
            config._set_global_compiler_config(before)
        return tuple(Tensor.create_from_torch(v) for v in outputs)

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
        from tbuda_lab.pybuda.verify.training import evaluate_module

        device = self._device
        leaves = {
            n: to_torch(v).detach().clone().requires_grad_(save_for_backward and to_torch(v).is_floating_point())
            for n, v in (parameters or {}).items()
        }
        plain = tuple(to_torch(v).detach().clone() for v in inputs)
        value: Any = tuple(v.requires_grad_(save_for_backward) if v.is_floating_point() else v for v in plain)
        sources = value
        with torch.set_grad_enabled(save_for_backward):
            for module in device.modules:
                value = evaluate_module(module, value, leaves)
            if targets and device.loss_module is not None:
                value = evaluate_module(device.loss_module, (*value, *(to_torch(t) for t in targets)), leaves)
        self._own.saved = (sources, tuple(value), leaves) if save_for_backward else None
        return [v.detach() for v in value]

    def cpueval_backward(
        self, bw_inputs: Sequence[Any], parameters: Mapping[str, Any] | None = None
    ) -> tuple[list[torch.Tensor | None], dict[str, torch.Tensor]]:
        """Gradients by the inputs and by the parameters of the last `cpueval_forward`; bw_inputs: by its outputs, none
        for a loss. Raises `PipelineError` where it did not save for it."""
        if self._own.saved is None:
            raise PipelineError("cpueval_backward follows cpueval_forward(save_for_backward=True)")
        sources, outputs, leaves = self._own.saved
        self._own.saved = None
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
        return self._device.get_parameter_checkpoint()


class _Loop:
    """What waits between the calls of one device."""

    def __init__(self) -> None:
        self.answers: deque[dict[str, Any]] = deque()
        self.results: deque[tuple[Any, ...]] = deque()
        self.gradients: deque[tuple[Any, ...]] = deque()  # from the device behind
        self.sent_back: deque[tuple[Any, ...]] = deque()  # for the device before
        self.saved: tuple[Any, tuple[torch.Tensor, ...], dict[str, torch.Tensor]] | None = None
