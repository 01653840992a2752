"""`pybuda.optimizers`: they belong to training, which is not supported."""

from tbuda_lab.runtime.training import LAMB, LARS, SGD, Adam, AdamW, Optimizer

__all__ = ["LAMB", "LARS", "SGD", "Adam", "AdamW", "Optimizer"]
