"""How aten ops become nD ops: one mapping function for each family, found by `lookup`."""

from tbuda_lab.core.frontend.aten import convolution, eltwise, host, indexing, nn, powers, shape
from tbuda_lab.core.frontend.aten.call import TABLE, AtenValue, Call, CannotMap, FoldedValue, lookup

__all__ = [
    "TABLE",
    "AtenValue",
    "Call",
    "CannotMap",
    "FoldedValue",
    "convolution",
    "eltwise",
    "host",
    "indexing",
    "lookup",
    "nn",
    "powers",
    "shape",
]
