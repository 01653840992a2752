"""What one process has set up through the PyBuda API: devices in order of creation, and the running pipeline."""

from __future__ import annotations

import dataclasses
import queue
import threading
import weakref
from typing import TYPE_CHECKING, Any

from tbuda_lab.core.errors import PipelineError
from tbuda_lab.pybuda import config

if TYPE_CHECKING:
    from tbuda_lab.core.frontend.pybuda import Module
    from tbuda_lab.pybuda.device import Device
    from tbuda_lab.pybuda.verify.training import TrainingJudge


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


@dataclasses.dataclass
class RuntimeContext:
    """devices form the pipeline; `pending` inputs are still to be run as they arrive (None: any number).

    intermediates: what `op_intermediates_to_save` names, a list of tensors per input; between: queues that get what
    goes from each device but the last to the next. judge: what judges the training; forwarded: inputs of it that ran
    forward and not yet backward; stepped: whether its optimizers made a step. `ended`: `shutdown` was called and
    nothing has run since; the next device then begins a pipeline of its own.
    """

    devices: list[Device] = dataclasses.field(default_factory=list)
    modules: list[Module] = dataclasses.field(default_factory=list)
    output_queue: queue.Queue[Any] | None = None
    pending: int | None = 0
    intermediates: queue.Queue[Any] = dataclasses.field(default_factory=new_intermediates_queue)
    between: list[queue.Queue[Any]] = dataclasses.field(default_factory=list)
    verify: Any = None  # the VerifyConfig that every input is judged by, or None
    number: int = 0  # inputs that have been judged
    training: bool = False  # the pipeline is set up for training
    judge: TrainingJudge | None = None
    forwarded: int = 0
    stepped: bool = False
    loss_queue: queue.Queue[Any] | None = None
    checkpoint_queue: queue.Queue[Any] | None = None
    back: list[queue.Queue[Any]] = dataclasses.field(default_factory=list)  # gradients on their way back, by device
    failed: bool = False
    ended: bool = False
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
