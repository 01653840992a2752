"""`pybuda.run.api`: the run loop."""

from tbuda_lab.runtime.pipeline import (
    detect_available_devices,
    error_raised,
    get_intermediates_queue,
    get_parameter_checkpoint,
    get_parameter_gradients,
    initialize_pipeline,
    run_forward,
    run_generate,
    run_generative_inference,
    run_inference,
    shutdown,
    sync,
    update_device_parameters,
)
from tbuda_lab.runtime.training_loop import (
    get_checkpoint_queue,
    get_loss_queue,
    run_backward,
    run_optimizer,
    run_schedulers,
    run_training,
)

__all__ = [
    "detect_available_devices",
    "error_raised",
    "get_checkpoint_queue",
    "get_intermediates_queue",
    "get_loss_queue",
    "get_parameter_checkpoint",
    "get_parameter_gradients",
    "initialize_pipeline",
    "run_backward",
    "run_forward",
    "run_generate",
    "run_generative_inference",
    "run_inference",
    "run_optimizer",
    "run_schedulers",
    "run_training",
    "shutdown",
    "sync",
    "update_device_parameters",
]
