"""Runs netlists with NumPy.

executor = Executor(netlist, mode="golden")
executor.push("input", array)
executor.run()
result = executor.pop("output")
"""

from tbuda_lab.sim.executor import Executor, Stats

__all__ = ["Executor", "Stats"]
