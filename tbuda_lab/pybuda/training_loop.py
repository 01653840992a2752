"""The run loop of training: forward through the pipeline, backward through it in reverse, then the optimizers.

All of it runs in the calling thread, on inputs and targets that have been pushed.
"""

from __future__ import annotations

import queue
from collections.abc import Sequence
from typing import Any

import torch

from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.frontend.pybuda import Tensor
from tbuda_lab.pybuda.context import CONTEXT, PipelineQueue
from tbuda_lab.pybuda.cpudevice import CPUTraining
from tbuda_lab.pybuda.stage import ROOM, Gradients, Inputs, Stage, device_trainings, sample_targets_of
from tbuda_lab.pybuda.verify.training import judge_of

_CHECKPOINTS = "run_optimizer(checkpoint=True) or run_training"

Queue = queue.Queue


def initialize(
    checkpoint_queue: Queue[Any] | None,
    loss_queue: Queue[Any] | None,
    sample_inputs: Any,
    sample_targets: Any,
    microbatch_count: int,
    d2d_fwd_queues: Sequence[Queue[Any]],
    d2d_bwd_queues: Sequence[Queue[Any]],
    verify_cfg: Any = None,
) -> Queue[Any]:
    """Compile all devices for training; returns the checkpoint queue. verify_cfg: every loss, gradient, running
    statistic and updated weight is judged against torch by it; runs then raise `AssertionError` for what differs.

    Raises `PipelineError` for a pipeline without a loss on its last device, or with one elsewhere, and the errors of
    compiling.
    """
    devices = _check_devices()
    value: Inputs = devices[0].sample(sample_inputs)
    targets = sample_targets_of(devices[-1], sample_targets)
    for number, device in enumerate(devices):
        device.trainer = device.training()
        last = number == len(devices) - 1
        value = device.trainer.prepare(value, targets if last else None, number > 0, max(microbatch_count, ROOM))
    CONTEXT.training, CONTEXT.pending, CONTEXT.forwarded, CONTEXT.stepped = True, 0, 0, False
    CONTEXT.judge = judge_of(devices, verify_cfg, stepped=False) if _is_enabled(verify_cfg) else None
    CONTEXT.between, CONTEXT.back = list(d2d_fwd_queues), list(d2d_bwd_queues)
    CONTEXT.loss_queue = loss_queue if loss_queue is not None else get_loss_queue()
    CONTEXT.checkpoint_queue = checkpoint_queue if checkpoint_queue is not None else PipelineQueue(_CHECKPOINTS)
    return CONTEXT.checkpoint_queue


def _is_enabled(verify_cfg: Any) -> bool:
    return verify_cfg is not None and bool(verify_cfg.enabled)


def _check_devices() -> list[Stage]:
    devices = CONTEXT.devices
    if not devices:
        raise PipelineError("there is no device; create a TTDevice and place a module on it")
    for device in devices:
        if not device.modules and device.loss_module is None:
            raise PipelineError(f"no module has been placed on device {device.name!r}; call place_module first")
    early = next((d for d in devices[:-1] if d.ends_in_loss), None)
    if early is not None:
        raise PipelineError(f"device {early.name!r} has a loss but is not the last; place it on {devices[-1].name!r}")
    if not devices[-1].ends_in_loss:
        raise PipelineError(f"the last device, {devices[-1].name!r}, has no loss; call place_loss_module for training")
    CONTEXT.ended = False
    return devices


def forward(count: int) -> None:
    """Run `count` inputs forward (0: all that wait); their losses go to the loss queue."""
    first = CONTEXT.devices[0]
    run = len(first.inputs) if count == 0 else count
    if run > len(first.inputs):
        raise PipelineError(
            f"run_forward({count}): {len(first.inputs)} inputs wait on device {first.name!r}; push_to_inputs first"
        )
    idle = next((d for d in CONTEXT.devices if not d.runs), None)
    if idle is not None:
        raise PipelineError(f"device {idle.name!r} only compiles (NoBackend or CompileOnly); it cannot train")
    steps = device_trainings(CONTEXT.devices)
    for step in steps:
        step.room_for(run)
    for _ in range(run):
        value: Inputs = first.next_inputs()
        sample = value
        targets = CONTEXT.devices[-1].get_first_targets()
        for number, step in enumerate(steps):
            last = number == len(steps) - 1
            value = step.forward(value, targets if last else None)
            if not last and number < len(CONTEXT.between):
                CONTEXT.between[number].put([Tensor.create_from_torch(v) for v in value])
        CONTEXT.forwarded += 1
        if CONTEXT.judge is not None:
            CONTEXT.judge.ran_forward(sample, targets, value)
        if CONTEXT.loss_queue is not None:
            of_host = isinstance(steps[-1], CPUTraining)
            CONTEXT.loss_queue.put([_loss(v, of_host) for v in value if isinstance(v, torch.Tensor)])


def _loss(value: torch.Tensor, of_host: bool) -> Any:
    """A loss as it goes into the queue: of the host a torch number, of a TT device a Tensor with at least one dim."""
    if of_host and value.dim() == 0:
        return value
    value = value.reshape(value.shape or (1,))
    return Tensor.create_from_torch(
        value.reshape(value.shape[0], -1)[:, 0] if value.numel() == value.shape[0] else value
    )


def check_count(call: str, name: str, value: Any, least: int = 0) -> None:
    """Raises `PipelineError` where an argument is no whole number from `least` on."""
    if not isinstance(value, int) or value < least:
        raise PipelineError(f"{call}: {name} is a whole number from {least}, not {value!r}")


def run_backward(input_count: int = 1, zero_grad: bool = False, _sequential: bool = False) -> None:
    """The backward pass of the oldest inputs that ran forward. zero_grad: sums of gradients begin anew with the first.

    Raises `PipelineError` before `initialize_pipeline(training=True)`, or when fewer inputs wait.
    """
    steps = device_trainings(CONTEXT.devices)
    check_count("run_backward", "input_count", input_count)
    for turn in range(input_count):
        gradients: Gradients | None = None
        for number in range(len(steps) - 1, -1, -1):
            gradients = steps[number].backward(gradients, zero_grad and turn == 0)
            if 0 < number <= len(CONTEXT.back):
                seeds = [Tensor.create_from_torch(g) for g in gradients if g is not None]
                CONTEXT.back[number - 1].put(seeds)
        CONTEXT.forwarded -= 1
        if CONTEXT.judge is not None:
            CONTEXT.judge.ran_backward((), zero_grad and turn == 0)
    if CONTEXT.judge is not None and input_count:
        CONTEXT.judge.on_backward()


def run_optimizer(checkpoint: bool = False, _sequential: bool = False) -> None:
    """One step of every device's optimizer. checkpoint: put the weights into the checkpoint queue."""
    for step in device_trainings(CONTEXT.devices):
        step.optimize()
    CONTEXT.stepped = True
    if CONTEXT.judge is not None:
        CONTEXT.judge.on_optimizer_step()
    if checkpoint:
        _checkpoint()


def run_schedulers(_sequential: bool = False) -> None:
    """One step of every device's learning-rate scheduler."""
    for step in device_trainings(CONTEXT.devices):
        step.schedule()


def _checkpoint() -> None:
    get_checkpoint_queue().put([device.get_parameter_checkpoint() for device in CONTEXT.devices])


def run_training(
    epochs: int = 1,
    steps: int = 1,
    accumulation_steps: int = 1,
    microbatch_count: int = 1,
    checkpoint_queue: Queue[Any] | None = None,
    loss_queue: Queue[Any] | None = None,
    checkpoint_interval: int = 0,
    _sequential: bool = False,
    _perf_trace: bool = False,
    _verify_cfg: Any = None,
) -> Queue[Any]:
    """Train on epochs * steps * accumulation_steps * microbatch_count inputs that have been pushed.

    After accumulation_steps rounds of microbatch_count inputs forward and then backward the optimizers step; after an
    epoch the schedulers do. Weights go to the checkpoint queue, which is returned, every `checkpoint_interval` steps
    (0: never) and at the end. _perf_trace: see `write_traces`. _verify_cfg: see `initialize`. Raises `PipelineError`
    where fewer inputs or targets wait.
    """
    counts = {
        "epochs": epochs,
        "steps": steps,
        "accumulation_steps": accumulation_steps,
        "microbatch_count": microbatch_count,
    }
    for name, value in counts.items():
        check_count("run_training", name, value, 1)
    devices = _check_devices()
    total = epochs * steps * accumulation_steps * microbatch_count
    if len(devices[0].inputs) < total or len(devices[-1].targets) < total:
        raise PipelineError(
            f"run_training takes {total} inputs and targets; {len(devices[0].inputs)} inputs and "
            f"{len(devices[-1].targets)} targets wait"
        )
    if not CONTEXT.training:
        initialize(checkpoint_queue, loss_queue, (), (), microbatch_count, CONTEXT.between, CONTEXT.back, _verify_cfg)
    elif _is_enabled(_verify_cfg):
        if CONTEXT.forwarded:
            raise PipelineError(
                f"run_training(_verify_cfg): {CONTEXT.forwarded} inputs ran forward and not yet "
                "backward; call run_backward first"
            )
        if CONTEXT.judge is None:
            CONTEXT.judge = judge_of(devices, _verify_cfg, CONTEXT.stepped)
    if checkpoint_queue is not None:
        CONTEXT.checkpoint_queue = checkpoint_queue
    if loss_queue is not None:
        CONTEXT.loss_queue = loss_queue
    done = 0
    for _ in range(epochs):
        for _ in range(steps):
            for turn in range(accumulation_steps):
                forward(microbatch_count)
                run_backward(microbatch_count, zero_grad=turn == 0)
            done += 1
            run_optimizer(bool(checkpoint_interval) and done % checkpoint_interval == 0)
        run_schedulers()
    if _perf_trace:
        write_traces()
    _checkpoint()
    return get_checkpoint_queue()


def write_traces() -> None:
    """The simulated trace of every TT device's compile, in training of a step, beside its netlist."""
    for device in CONTEXT.devices:
        device.write_trace()


def get_loss_queue() -> Queue[Any]:
    """Where losses go: a list of tensors per input."""
    if CONTEXT.loss_queue is None:
        CONTEXT.loss_queue = PipelineQueue("push_to_inputs, push_to_target_inputs and then run_forward")
    return CONTEXT.loss_queue


def get_checkpoint_queue() -> Queue[Any]:
    """Where checkpoints go: a list of dicts, name -> Tensor, one per device."""
    if CONTEXT.checkpoint_queue is None:
        CONTEXT.checkpoint_queue = PipelineQueue(_CHECKPOINTS)
    return CONTEXT.checkpoint_queue
