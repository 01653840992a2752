"""What one process has set up through the PyBuda API: devices in order of creation, and the running pipeline."""

from __future__ import annotations

import dataclasses
import queue
from typing import TYPE_CHECKING, Any

from tbuda_lab.runtime import config

if TYPE_CHECKING:
    from tbuda_lab.core.frontend.pybuda import Module
    from tbuda_lab.runtime.device import Device


@dataclasses.dataclass
class RuntimeContext:
    """devices form the pipeline; `pending` inputs are still to be run as they arrive (None: any number).

    intermediates: what `op_intermediates_to_save` names, a list of tensors per input; between: queues that get what
    goes from each device but the last to the next. `ended`: `shutdown` was called and nothing has run since; the next
    device then begins a pipeline of its own.
    """

    devices: list[Device] = dataclasses.field(default_factory=list)
    modules: list[Module] = dataclasses.field(default_factory=list)
    output_queue: queue.Queue[Any] | None = None
    pending: int | None = 0
    intermediates: queue.Queue[Any] = dataclasses.field(default_factory=queue.Queue)
    between: list[queue.Queue[Any]] = dataclasses.field(default_factory=list)
    verify: Any = None  # the VerifyConfig that every input is judged by, or None
    number: int = 0  # inputs that have been judged
    training: bool = False  # the pipeline is set up for training
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
    CONTEXT.intermediates = queue.Queue()
    CONTEXT.between = []
    CONTEXT.pending = 0
    CONTEXT.verify, CONTEXT.number = None, 0
    CONTEXT.training = False
    CONTEXT.loss_queue = CONTEXT.checkpoint_queue = None
    CONTEXT.back = []
    CONTEXT.failed = False
    CONTEXT.ended = False
    CONTEXT.warned_of_silicon = False
    config._clear_global_compiler_config()
