"""`pybuda.torch_schedulers`: they belong to training, which is not supported."""

from tbuda_lab.runtime.training import TorchLearningRateScheduler

__all__ = ["TorchLearningRateScheduler"]
