"""The run loop: devices in order of creation, one input after the other, in the calling thread.

Nothing runs in the background. `run_inference` works off the inputs that have been pushed; what it was asked to run
beyond those is run as it is pushed, by `push_to_inputs` itself. Errors are raised where the work is done.
"""

from __future__ import annotations

import queue
from collections.abc import Mapping, Sequence
from typing import Any

from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.frontend.pybuda import Module, Tensor
from tbuda_lab.pybuda import context, training_loop
from tbuda_lab.pybuda.compiled_device import CompiledDevice
from tbuda_lab.pybuda.context import CONTEXT, new_output_queue, transfer
from tbuda_lab.pybuda.device import Device
from tbuda_lab.pybuda.enums import BackendType
from tbuda_lab.pybuda.judging import judge_outputs
from tbuda_lab.pybuda.stage import Inputs, Stage, as_inputs
from tbuda_lab.pybuda.ttdevice import TTDevice

Queue = queue.Queue


def run_inference(
    module: Module | None = None,
    inputs: Sequence[Any] = (),
    input_count: int = 1,
    output_queue: Queue[Any] | None = None,
    _sequential: bool = False,
    _perf_trace: bool = False,
    _verify_cfg: Any = None,
    *,
    num_inputs: int | None = None,
    sequential: bool | None = None,
) -> Queue[Any]:
    """Run inference through the pipeline of devices; returns the queue of outputs (a list of Tensors per input).

    module: placed on a device of its own ("tt0") unless it is placed already. inputs: one tensor, tuple or dict for
    each input; otherwise those pushed to the first device are used. input_count: how many to run; 0 means all that
    will ever be pushed. `num_inputs` and `sequential` are the older names of `input_count` and `_sequential`;
    sequential runs only what has been pushed. _perf_trace: each TTDevice's simulated trace is written beside its
    netlist. _verify_cfg: every input's outputs are judged against the modules (see `judging`); `AssertionError`.
    Raises `PipelineError` when there is nothing to run on, and the errors of compiling and running.
    """
    count = input_count if num_inputs is None else num_inputs
    training_loop.check_count("run_inference", "input_count", count)
    only_present = _sequential if sequential is None else sequential
    if module is not None:
        _place_alone(module)
    _check_pipeline()
    if inputs:
        if count not in (0, 1, len(inputs)):
            raise PipelineError(f"input_count is {count}, but {len(inputs)} inputs are given")
        count = len(inputs)
    out = _output_queue(output_queue)
    CONTEXT.verify = _verify_cfg if _verify_cfg is not None and _verify_cfg.enabled else None
    if not only_present:
        CONTEXT.pending = None if count == 0 else 0
    if inputs:
        CONTEXT.pending = 0
        for one in inputs:
            CONTEXT.devices[0].inputs.append(as_inputs((one,)))
    present = len(CONTEXT.devices[0].inputs)
    if only_present and not present:
        raise PipelineError("sequential inference with no input; call push_to_inputs first")
    run = present if count == 0 else min(count, present)
    for _ in range(run):
        _forward_one(out)
    if _perf_trace:
        training_loop.write_traces()
    if not only_present and count:
        CONTEXT.pending = count - run
    return out


def initialize_pipeline(
    training: bool,
    output_queue: Queue[Any] | None = None,
    checkpoint_queue: Queue[Any] | None = None,
    sample_inputs: Any = (),
    sample_targets: Any = (),
    microbatch_count: int = 1,
    d2d_fwd_queues: Sequence[Queue[Any]] = (),
    d2d_bwd_queues: Sequence[Queue[Any]] = (),
    _sequential: bool = False,
    _verify_cfg: Any = None,
    _device_mode: Any = None,
) -> Queue[Any]:
    """Compile all devices for inputs like `sample_inputs` (or the first one pushed; of subgraphs a tuple with those of
    each module); returns the output queue, or for training the checkpoint queue, which `run_optimizer(checkpoint=True)`
    and `run_training` fill.

    Runs put their results in before they return. `get()` of an empty queue raises `PipelineError` where no other thread
    could fill it; `get(timeout=...)` waits.

    training: the last device has a loss (place_loss_module); sample_targets are for it. microbatch_count: inputs that
    run forward before the first runs backward. d2d_bwd_queues: get the gradients that each device but the first sends
    back, in order from the second device.

    d2d_fwd_queues: get what each device but the last gives to the next, in order, as lists of Tensors.

    _verify_cfg: every run is judged against the modules, in training losses, gradients, running statistics and updated
    weights (`AssertionError`).
    """
    if _device_mode is not None:
        for device in CONTEXT.devices:
            if isinstance(device, CompiledDevice):
                device.device_mode = _device_mode
    if training:
        return training_loop.initialize(
            checkpoint_queue,
            output_queue,
            sample_inputs,
            sample_targets,
            microbatch_count,
            d2d_fwd_queues,
            d2d_bwd_queues,
            _verify_cfg,
        )
    if checkpoint_queue is not None or d2d_bwd_queues:
        raise PipelineError("checkpoint_queue and d2d_bwd_queues belong to training=True")
    _check_pipeline()
    CONTEXT.training = False
    CONTEXT.verify = _verify_cfg if _verify_cfg is not None and _verify_cfg.enabled else None
    if microbatch_count != 1 or (sample_targets is not None and len(sample_targets)):
        raise PipelineError("microbatch_count and sample_targets belong to training=True")
    value: Inputs = CONTEXT.devices[0].sample(sample_inputs)
    for device in CONTEXT.devices:
        value = device.prepare(value)
    CONTEXT.pending = 0
    CONTEXT.between = list(d2d_fwd_queues)
    return _output_queue(output_queue)


def run_forward(input_count: int = 1, _sequential: bool = False) -> None:
    """Run inputs that have been pushed; what is missing runs as it is pushed (0: any number)."""
    training_loop.check_count("run_forward", "input_count", input_count)
    _check_pipeline()
    if CONTEXT.training:
        training_loop.forward(input_count)
        return
    out = _output_queue(None)
    present = len(CONTEXT.devices[0].inputs)
    run = present if input_count == 0 else min(input_count, present)
    for _ in range(run):
        _forward_one(out)
    CONTEXT.pending = None if input_count == 0 else input_count - run


def data_arrived(device: Stage) -> None:
    """Called by `push_to_inputs`: run the input at once if a run is waiting for it."""
    if not CONTEXT.devices or device is not CONTEXT.devices[0] or CONTEXT.pending == 0 or CONTEXT.training:
        return
    if CONTEXT.output_queue is not None:
        if CONTEXT.pending is not None:
            CONTEXT.pending -= 1
        _forward_one(CONTEXT.output_queue)


CONTEXT.on_arrival = data_arrived


def _forward_one(out: Queue[Any]) -> None:
    first, *others = CONTEXT.devices
    inputs = first.next_inputs()
    try:
        outputs = first.run_forward(inputs)
        for number, device in enumerate(others):
            if number < len(CONTEXT.between):
                CONTEXT.between[number].put([Tensor.create_from_torch(v) for v in outputs])
            outputs = device.run_forward(outputs)
        if CONTEXT.verify is not None:
            modules = [module for device in CONTEXT.devices for module in device.running_modules]
            judge_outputs(modules, inputs, outputs, CONTEXT.number, CONTEXT.verify)
            CONTEXT.number += 1
    except Exception:
        CONTEXT.failed = True
        CONTEXT.pending = 0
        raise
    out.put([Tensor.create_from_torch(v) for v in outputs])


def _output_queue(requested: Queue[Any] | None) -> Queue[Any]:
    """The queue given, or the one that outputs already go to, or a new one."""
    if requested is not None:
        CONTEXT.output_queue = requested
    elif CONTEXT.output_queue is None:
        CONTEXT.output_queue = new_output_queue()
    return CONTEXT.output_queue


def _check_pipeline() -> None:
    if not CONTEXT.devices:
        raise PipelineError("there is no device; create a TTDevice and place a module on it, or pass a module")
    for device in CONTEXT.devices:
        if not device.modules:
            raise PipelineError(f"no module has been placed on device {device.name!r}; call place_module first")
    CONTEXT.ended = False
    first, *others = CONTEXT.devices
    astray = next((device for device in others if device.inputs and not first.inputs), None)
    if astray is not None:  # the first would be waited for without an end
        raise PipelineError(
            f"inputs were pushed to device {astray.name!r}, but the pipeline begins with {first.name!r}: push them "
            "there, or call shutdown() before making the devices of another pipeline"
        )


def _place_alone(module: Module) -> None:
    """Place a module on the one TT device, unless it is the only module there already."""
    if not CONTEXT.devices or (CONTEXT.ended and CONTEXT.devices[0].modules != [module]):
        TTDevice("auto_tt0")
    device = CONTEXT.devices[0]
    if device.modules == [module]:
        return
    if device.modules:
        raise PipelineError(
            f"device {device.name!r} already holds {', '.join(m.get_name() for m in device.modules)}; "
            "run_inference(module=...) needs a device of its own"
        )
    device.place_module(module)


def run_module(module: Module, args: Sequence[Any]) -> tuple[Tensor, ...]:
    """One input through one module on a device that exists for this call only."""
    placed = module.get_device()
    if isinstance(placed, CompiledDevice) and placed.modules == [module]:
        return tuple(Tensor.create_from_torch(v) for v in placed.run_forward(as_inputs(args)))
    if placed is not None:
        raise PipelineError(f"module {module.get_name()!r} shares its device with others; use run_inference")
    device = TTDevice(f"{module.get_name()}.run", module=module)
    try:
        return tuple(Tensor.create_from_torch(v) for v in device.run_forward(as_inputs(args)))
    finally:
        device.remove_modules()
        CONTEXT.devices.remove(device)


def get_parameter_checkpoint(device: Device | None = None, _sequential: bool = False) -> list[dict[str, Tensor]]:
    """Current weights, one dict (name -> Tensor) for each device, or for the one given."""
    return [d.get_parameter_checkpoint() for d in _those(device)]


def update_device_parameters(
    device: Device | None = None, parameters: Sequence[Mapping[str, Any]] = (), _sequential: bool = False
) -> None:
    """Give weights new values: one dict (name -> tensor) for each device, or those of the one given."""
    devices = _those(device)
    if device is not None or len(devices) == 1:
        devices[0].update_device_parameters(parameters)
        return
    parts = list(parameters)
    if len(parts) != len(devices):
        raise PipelineError(f"there are {len(devices)} devices: give a dict for each, not {len(parts)}")
    for one, values in zip(devices, parts, strict=True):
        one.update_device_parameters([values])


def _those(device: Device | None) -> list[Stage]:
    return list(CONTEXT.devices) if device is None else [device]


def shutdown() -> None:
    """End the run: inputs that still wait are dropped.

    Devices, modules and results stay, and may run again; a device made now begins a new pipeline.
    """
    for device in CONTEXT.devices:
        device.shutdown_device()
    CONTEXT.pending = 0
    CONTEXT.output_queue = None
    CONTEXT.training = False
    CONTEXT.ended = True


def pybuda_reset() -> None:
    """Back to the state after import: no devices, no modules, default configuration."""
    context.reset()


def error_raised() -> bool:
    """Whether a run has failed since the last reset."""
    return CONTEXT.failed


def sync() -> None:
    """Nothing runs in the background, so nothing is waited for."""


def get_devices() -> list[Stage]:
    return list(CONTEXT.devices)


def get_tenstorrent_device() -> CompiledDevice | None:
    """The first TTDevice of the pipeline."""
    return next((d for d in CONTEXT.devices if isinstance(d, CompiledDevice)), None)


def set_device_pipeline(devices: Sequence[Device]) -> None:
    """Make these devices, in this order, the pipeline."""
    if not all(isinstance(d, Device) for d in devices):
        raise PipelineError("set_device_pipeline takes devices only")
    CONTEXT.devices[:] = list(devices)


def detect_available_devices() -> list[Any]:
    """Devices with silicon: none."""
    return []


def is_silicon(devtype: BackendType) -> bool:
    """Whether inputs of this type run on silicon: never here."""
    return False


def get_parameter_gradients(device: Device | None = None, _sequential: bool = False) -> list[dict[str, Tensor]]:
    """Gradients as they have added up, one dict (name -> Tensor) for each device, or for the one given."""
    return [d.get_parameter_gradients() for d in _those(device)]


def run_generate(
    input_count: int = 1,
    write_index: int = 0,
    tokens_per_iter: int = -1,
    token_id: int = -1,
    _sequential: bool = False,
) -> Queue[Any]:
    """Run inputs that have been pushed (0: all that wait) through models with caches; returns the output queue.

    Caches are inputs to which `set_configuration_options(loopback_outputs={input: number of the output})` leads outputs
    back; a device keeps them from input to input, and they are not among its outputs. On a device with subgraphs the
    active one runs. write_index, tokens_per_iter and token_id: see `Device.generate`. Raises `PipelineError`
    where fewer inputs wait.
    """
    training_loop.check_count("run_generate", "input_count", input_count)
    _check_pipeline()
    out, first = _output_queue(None), CONTEXT.devices[0]
    if isinstance(first, CompiledDevice) and not first.takes_inputs:
        first.run_subgraph((), 0)
        return out
    count = len(first.inputs) if input_count == 0 else input_count
    if count > len(first.inputs):
        raise PipelineError(f"run_generate({count}): {len(first.inputs)} inputs wait on device {first.name!r}")
    for device in CONTEXT.devices:
        device.generate(count, write_index, tokens_per_iter, token_id)
        for _ in range(count):
            transfer(device, "forward")
    return out


def run_generative_inference(
    module: Module | None = None,
    inputs: Sequence[Any] = (),
    input_count: int = 1,
    write_index: int = 0,
    **settings: Any,
) -> Queue[Any]:
    """`run_generate` for a module that is placed here, unless it is, and inputs that are given or have been pushed."""
    if module is not None:
        _place_alone(module)
    _check_pipeline()
    for one in inputs:
        CONTEXT.devices[0].inputs.append(as_inputs((one,)))
    return run_generate(len(inputs) or input_count, write_index, **settings)


def get_intermediates_queue() -> Queue[Any]:
    """Where the outputs of the ops go that `set_configuration_options(op_intermediates_to_save=[...])` names: a list of
    Tensors per input and TTDevice, in the order of the names."""
    return CONTEXT.intermediates
