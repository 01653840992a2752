"""How aten ops become nD ops: one mapping function for each family, found by `lookup`."""

from tbuda_lab.core.frontend.aten import eltwise, host, nn, shape
from tbuda_lab.core.frontend.aten.call import TABLE, Call, CannotMap, Folded, Value, lookup

__all__ = ["TABLE", "Call", "CannotMap", "Folded", "Value", "eltwise", "host", "lookup", "nn", "shape"]
