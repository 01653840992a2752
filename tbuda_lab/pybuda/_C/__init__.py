"""`pybuda._C`: the enumerations that scripts take from PyBuda's compiled part."""

from tbuda_lab.core.errors import UnsupportedOp as UnsupportedHWOpsError
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.pybuda._C import backend_api, balancer, graph, placer
from tbuda_lab.runtime.config import AMPNodeProperties
from tbuda_lab.runtime.enums import NodeEpochType

__all__ = [
    "AMPNodeProperties",
    "DataFormat",
    "MathFidelity",
    "NodeEpochType",
    "UnsupportedHWOpsError",
    "backend_api",
    "balancer",
    "graph",
    "placer",
]

globals().update(DataFormat.__members__)  # scripts write `pybuda._C.Float16_b`, too
