"""From a graph to a placed netlist: the stages in order, what they are asked for, and what they leave."""

from tbuda_lab.core.compiler.pipeline import STAGES, CompileResult

__all__ = ["STAGES", "CompileResult"]
