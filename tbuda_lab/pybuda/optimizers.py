"""`pybuda.optimizers`."""

from tbuda_lab.runtime.training import (
    LAMB,
    LARS,
    SGD,
    Adam,
    AdamW,
    Optimizer,
    get_optimizer_type_from_string,
)

__all__ = ["LAMB", "LARS", "SGD", "Adam", "AdamW", "Optimizer", "get_optimizer_type_from_string"]
