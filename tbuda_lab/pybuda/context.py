"""What one process has set up through the PyBuda API: devices in order of creation, and the running pipeline."""

from __future__ import annotations

import abc
import dataclasses
import queue
import threading
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.frontend.pybuda import Module, Tensor
from tbuda_lab.pybuda import config
from tbuda_lab.pybuda.stage import Inputs, Stage

_EARLIER = weakref.WeakSet(thread for thread in threading.enumerate() if thread.daemon)
"""Daemon threads that were there before this module, as those of a notebook's kernel: none of them runs a pipeline."""


class PipelineQueue(queue.Queue[Any]):
    """Where a run puts its results before it returns. `filled_by`: the calls that do so."""

    def __init__(self, filled_by: str) -> None:
        super().__init__()
        self.filled_by = filled_by

    def get(self, block: bool = True, timeout: float | None = None) -> Any:
        """As `queue.Queue.get`. Raises `PipelineError` where it would wait for ever: the queue is empty, there is no
        timeout, and the script has no other thread that could fill it."""
        if block and timeout is None:
            idle = {*_EARLIER, threading.current_thread()}
            if all(thread in idle for thread in threading.enumerate()) and self.empty():  # in this order: one may end
                raise PipelineError(
                    f"the queue is empty, and no other thread could fill it; call {self.filled_by} first, or "
                    "get(timeout=...)"
                )
        return super().get(block, timeout)


def new_output_queue() -> PipelineQueue:
    """A queue for outputs of inference."""
    return PipelineQueue("push_to_inputs and then run_forward or run_inference")


def new_intermediates_queue() -> PipelineQueue:
    """A queue for `op_intermediates_to_save`."""
    return PipelineQueue("run_forward or run_inference with op_intermediates_to_save set")


class StepJudge(abc.ABC):
    """Is told of every part of a training step as it ends; each raises `AssertionError` for what is wrong."""

    @abc.abstractmethod
    def ran_forward(self, sample: Inputs, targets: Any, losses: Any) -> None:
        """One input ran forward."""

    @abc.abstractmethod
    def ran_backward(self, gradients: Sequence[torch.Tensor | None], first: bool) -> None:
        """The oldest input that ran forward ran backward. gradients: by the inputs of the model; first: of a step."""

    @abc.abstractmethod
    def on_backward(self) -> None:
        """A round of inputs ran backward."""

    @abc.abstractmethod
    def on_optimizer_step(self) -> None:
        """The optimizers made their step."""


@dataclasses.dataclass
class RuntimeContext:
    """devices form the pipeline; `pending` inputs are still to be run as they arrive (None: any number).

    intermediates: what `op_intermediates_to_save` names, a list of tensors per input; between: queues that get what
    goes from each device but the last to the next. judge: what judges the training; forwarded: inputs of it that ran
    forward and not yet backward; stepped: whether its optimizers made a step. `ended`: `shutdown` was called and
    nothing has run since; the next device then begins a pipeline of its own.
    """

    devices: list[Stage] = dataclasses.field(default_factory=list)
    modules: list[Module] = dataclasses.field(default_factory=list)
    output_queue: queue.Queue[Any] | None = None
    pending: int | None = 0
    intermediates: queue.Queue[Any] = dataclasses.field(default_factory=new_intermediates_queue)
    between: list[queue.Queue[Any]] = dataclasses.field(default_factory=list)
    verify: Any = None  # the VerifyConfig that every input is judged by, or None
    number: int = 0  # inputs that have been judged
    training: bool = False  # the pipeline is set up for training
    judge: StepJudge | None = None
    forwarded: int = 0
    stepped: bool = False
    loss_queue: queue.Queue[Any] | None = None
    checkpoint_queue: queue.Queue[Any] | None = None
    back: list[queue.Queue[Any]] = dataclasses.field(default_factory=list)  # gradients on their way back, by device
    failed: bool = False
    ended: bool = False
    on_arrival: Callable[[Stage], None] | None = None  # of the run loop, which takes an input as it is pushed
    warned_of_silicon: bool = False


CONTEXT = RuntimeContext()


def reset() -> None:
    """Forget devices, modules, queues and overrides."""
    for device in CONTEXT.devices:
        device.shutdown_device()
    CONTEXT.devices.clear()
    CONTEXT.modules.clear()
    CONTEXT.output_queue = None
    CONTEXT.intermediates = new_intermediates_queue()
    CONTEXT.between = []
    CONTEXT.pending = 0
    CONTEXT.verify, CONTEXT.number = None, 0
    CONTEXT.training, CONTEXT.judge, CONTEXT.forwarded, CONTEXT.stepped = False, None, 0, False
    CONTEXT.loss_queue = CONTEXT.checkpoint_queue = None
    CONTEXT.back = []
    CONTEXT.failed = False
    CONTEXT.ended = False
    CONTEXT.warned_of_silicon = False
    config._clear_global_compiler_config()


def transfer(stage: Stage, direction: str) -> None:
    """Hand the oldest result on to the next device, or from the last to the output queue ("forward"); the oldest
    gradients to the device before ("backward"); what the host pushed is there already ("forward_input", "target",
    "intermediates"). Raises `PipelineError` for another direction, or where nothing waits."""
    if direction in ("forward_input", "target", "intermediates"):
        return
    if direction not in ("forward", "backward"):
        raise PipelineError(f"dc_transfer goes forward or backward, not {direction!r}")
    number = CONTEXT.devices.index(stage)
    if direction == "forward":
        if not stage.waiting.results:
            raise PipelineError(f"device {stage.name!r} has no result to hand on; forward() makes one")
        value = stage.waiting.results.popleft()
        if number + 1 < len(CONTEXT.devices):
            CONTEXT.devices[number + 1].inputs.append(value)
        else:
            out = CONTEXT.loss_queue if CONTEXT.training else CONTEXT.output_queue
            if out is None:
                out = CONTEXT.output_queue = new_output_queue()
            out.put([Tensor.create_from_torch(v) for v in value])
        return
    if not stage.waiting.sent_back:
        raise PipelineError(f"device {stage.name!r} has no gradients to hand on; backward() makes them")
    back = stage.waiting.sent_back.popleft()
    if number:
        CONTEXT.devices[number - 1].waiting.gradients.append(back)
