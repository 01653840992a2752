"""The ops of a traced model as TTNN would run them, one by one: what a table of kernels is asked for."""

from __future__ import annotations

import math
from collections.abc import Sequence

from tbuda_lab.core.graph import Graph, Node
from tbuda_lab.core.measured.kernels import Estimate, KernelTable, Machine
from tbuda_lab.core.measured.op_codes import group_of
from tbuda_lab.core.measured.profile import TILE, MeasuredOp, MeasuredTensor
from tbuda_lab.core.measured.steps import graph_steps

_SHAPES_ONLY = ("squeeze", "unsqueeze")


def model_ops(graph: Graph, cores: int, datatype: str = "BFLOAT16", fidelity: str = "HiFi4") -> list[MeasuredOp]:
    """Every op of a traced graph as an op without a time: in tiles, interleaved in DRAM, on as many of `cores` as its
    output has tiles. Ops that work on parameters alone are left out, as `graph_steps` does."""
    ops = []
    for step in graph_steps(graph):
        node = graph[step.name]
        if node.op is None or node.op.type in _SHAPES_ONLY:
            continue
        inputs = tuple(_tensor(graph[s].shape, datatype) for s in node.sources)
        output = _tensor(node.shape, datatype)
        used = max(1, min(cores, output.tiles if group_of(step.kind) not in ("norm", "softmax") else _rows(output)))
        ops.append(
            MeasuredOp(
                node.name,
                node.op.type,
                step.kind,
                0,
                None,
                cores=used,
                available=cores,
                fidelity=fidelity,
                inputs=inputs,
                outputs=(output,),
                section=node.origin.module,
                facts=_facts(node),
            )
        )
    return ops


def model_estimates(graph: Graph, table: KernelTable, machine: Machine, cores: int) -> dict[str, Estimate]:
    """By op of a traced graph, what it would take of a stack that runs ops one by one."""
    return {op.name: table.estimate(op, machine) for op in model_ops(graph, cores)}


def _rows(tensor: MeasuredTensor) -> int:
    """Tile rows: ops along rows are shared out by them."""
    return math.prod(tensor.padded[:-2]) * -(-tensor.padded[-2] // TILE)


def _tensor(shape: Sequence[int], datatype: str) -> MeasuredTensor:
    logical = (1,) * max(0, 4 - len(shape)) + tuple(shape)
    logical = (math.prod(logical[:-3]), *logical[-3:])
    padded = (*logical[:-2], *(-(-n // TILE) * TILE for n in logical[-2:]))
    return MeasuredTensor(logical, padded, "TILE", datatype, "DEV_0_DRAM_INTERLEAVED")


def _facts(node: Node) -> tuple[tuple[str, str], ...]:
    rank = len(node.shape)
    dims = sorted(getattr(node.op, name, 0) % max(1, rank) for name in ("dim0", "dim1")) if node.op else []
    if node.op is not None and node.op.type == "transpose" and rank >= 2 and dims == [rank - 2, rank - 1]:
        return (("dim", "WH"),)
    return ()
