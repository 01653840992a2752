"""`pybuda.schedulers`: they belong to training, which is not supported."""

from tbuda_lab.runtime.training import LearningRateScheduler

__all__ = ["LearningRateScheduler"]
