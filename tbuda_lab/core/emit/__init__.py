"""From a placement to the netlist."""

from tbuda_lab.core.balancer.types import graph_name
from tbuda_lab.core.emit.netlist import Emission, EmitMemory, emit

__all__ = ["Emission", "EmitMemory", "emit", "graph_name"]
