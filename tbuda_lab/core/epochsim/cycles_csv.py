"""`NAME.cycles.csv`: what each op of a netlist costs, as the compiler believes; sparse counts stand in no netlist."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import TYPE_CHECKING

from tbuda_lab.core.balancer.types import graph_name
from tbuda_lab.core.epochsim.costs import op_costs
from tbuda_lab.core.files import atomic_text
from tbuda_lab.core.graph import Node
from tbuda_lab.core.lowering.hwops import HwSparseMatmul

if TYPE_CHECKING:
    from tbuda_lab.core.epochsim.compiled import Compiled

COLUMNS = ("op", "graph", "kernel_cycles", "limiter_cycles", "limiter")


def write_cycles_csv(result: Compiled, path: str | Path) -> None:
    """One line per op in the netlist's order: cycles per input of the kernel, of whatever limits the op (the slowest of
    kernel, operands and output at the compile's microbatch), and what that is: "kernel", "input 1 dram",
    "output noc", ... with inputs counted as the netlist lists them. Raises `OutputError`."""
    with atomic_text(path) as stream:
        stream.write(cycles_csv(result))


def cycles_csv(result: Compiled) -> str:
    """The text of that file."""
    report = result.placement.report
    limiters = report.op_limiters if report is not None else {}
    costs = {} if report is not None else op_costs(result)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow(COLUMNS)
    for epoch in result.placement.epochs:
        graph = graph_name(epoch, result.device)
        for name in epoch.ops:
            if name in limiters:
                kernel, limiter, what = limiters[name]
            else:
                kernel, limiter, what = costs[name].kernel, costs[name].cycles, costs[name].limiter
            writer.writerow((name, graph, kernel, limiter, _in_netlist(result.lowered[name], what)))
    return stream.getvalue()


def _in_netlist(node: Node, limiter: str) -> str:
    """A limiter whose input has its place in the netlist: there the tiles of a picker stand before its operand."""
    return limiter.replace("input 0", "input 1") if isinstance(node.op, HwSparseMatmul) else limiter


def cycles_path(netlist: str | Path) -> Path:
    """Where the cycles of a netlist stand: beside it, `NAME.yaml` -> `NAME.cycles.csv`."""
    return Path(netlist).with_suffix(".cycles.csv")
