"""From a graph to a placed netlist: the stages in order, what they are asked for, and what they leave."""

from tbuda_lab.core.compiler.pipeline import Pipeline, compile_graph
from tbuda_lab.core.compiler.request import STAGES, Clock, Request, StageHook
from tbuda_lab.core.compiler.result import CompileResult, check_netlist, finish, host_parameters

__all__ = [
    "STAGES",
    "Clock",
    "CompileResult",
    "Pipeline",
    "Request",
    "StageHook",
    "check_netlist",
    "compile_graph",
    "finish",
    "host_parameters",
]
