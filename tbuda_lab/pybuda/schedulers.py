"""`pybuda.schedulers`."""

from tbuda_lab.runtime.training import LearningRateScheduler

__all__ = ["LearningRateScheduler"]
