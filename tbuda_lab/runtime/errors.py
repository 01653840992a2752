"""Errors of the run loop. They are RuntimeErrors too, as scripts written for PyBuda expect."""

from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.frontend.pybuda.unsupported import NotSupported, not_supported


class PipelineError(TbudaError, RuntimeError):
    """Devices, modules and inputs that do not go together."""


class BatchError(InputError, RuntimeError):
    """An input that is not like the one the pipeline was compiled for."""


__all__ = ["BatchError", "NotSupported", "PipelineError", "not_supported"]
