"""`pybuda.op.nn`: modules with weights, and the normalisations under their second name."""

from tbuda_lab.pybuda.op.modules import (
    AvgPool2dModule,
    Conv2dModule,
    ConvTranspose2dModule,
    Linear,
    MaxPool1dModule,
    MaxPool2dModule,
    SparseMatmulModule,
)
from tbuda_lab.pybuda.op.nn_ops import Layernorm, Softmax

__all__ = [
    "AvgPool2dModule",
    "Conv2dModule",
    "ConvTranspose2dModule",
    "Layernorm",
    "Linear",
    "MaxPool1dModule",
    "MaxPool2dModule",
    "Softmax",
    "SparseMatmulModule",
]
