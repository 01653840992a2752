"""`pybuda.torch_schedulers`."""

from tbuda_lab.runtime.training import TorchLearningRateScheduler

__all__ = ["TorchLearningRateScheduler"]
