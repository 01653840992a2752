"""The cores of a netlist's ops: its ops as `operands` describes them, and their buffers."""

from __future__ import annotations

import dataclasses
from typing import Any

from tbuda_lab.core.netlist.cores import buffers
from tbuda_lab.core.netlist.cores.operands import CoreOp, CoreOperand
from tbuda_lab.core.netlist.cores.router import router_streams
from tbuda_lab.core.netlist.cores.usage import OpCores, core_buffers
from tbuda_lab.core.netlist.routing.cases import edge_of_input, edge_to_queue
from tbuda_lab.core.netlist.routing.edge import MOST_TILES
from tbuda_lab.core.netlist.schema import FusedOp, NetOp
from tbuda_lab.core.netlist.sizes import OVERLAY_BASE, l1_use, tile_size
from tbuda_lab.core.netlist.tables import FULL_TILE, Tables

KNOWN = frozenset(("fused", "eltwise", "matmul", "depthwise", "reduce", "splice", "sparse_matmul"))
"""Kinds of ops of which the rules are known; of others the least that their buffers can be is counted."""


@dataclasses.dataclass(frozen=True)
class EpochCores:
    """What a graph's ops keep: `of_op` the buffers of their cores, `headers` bytes of tile headers on every core, `of`
    what an op takes in all on its fullest core.
    least: of an op whose rules are not known; router: streams on its fullest core; overlay: bytes of an overlay beyond
    what every core has; ops, readers: what was counted."""

    of_op: dict[str, OpCores]
    least: dict[str, int]
    router: dict[str, int]
    headers: int
    overlay: dict[str, int]
    ops: dict[str, CoreOp]
    readers: dict[str, tuple[CoreOperand, ...]]

    def fullest(self, op: str) -> tuple[tuple[int, int], int]:
        """(core of the op's grid, bytes) of the core with the most."""
        if op not in self.of_op:
            return (0, 0), self.least.get(op, 0)
        at, size = self.of_op[op].fullest()
        return at, size + self.headers + self.overlay[op]

    def kinds(self, op: str, at: tuple[int, int]) -> dict[str, list[int]]:
        """Buffers of one core by kind."""
        kinds = dict(self.of_op[op].of_core(at)) if op in self.of_op else {}
        if self.headers:
            kinds["tile_headers"] = [self.headers]
        if self.overlay.get(op):
            kinds["overlay"] = [self.overlay[op]]
        return kinds


Operands = tuple[CoreOperand | None, ...]


def core_op(op: NetOp, operands: Operands, fused: FusedOp | None, align: int) -> CoreOp | None:
    """An op with its operands; None where its fields are not sound or nothing is known of how it reads."""
    if not operands or any(operand is None for operand in operands):
        return None
    known = [operand for operand in operands if operand is not None]
    kind = "fused" if op.type == "fused_op" else known[0].reader.type
    b, a = op.blocking, op.attributes
    if kind not in KNOWN or min(b.t, *b.mblock, *b.ublock, *op.grid_size) < 1:
        return None
    middle = op.intermed_df or op.out_df
    size = _intermediates(fused)
    return CoreOp(
        kind,
        op.grid_size,
        b.t,
        b.mblock,
        b.ublock,
        b.order or "r",
        max(op.buf_size_mb or 1, 1),
        tile_size(op.out_df, op.tile_dim, align),
        tile_size(op.out_df, op.tile_dim, align, header=False),
        tile_size(middle, op.tile_dim, align),
        tuple(known),
        _whole(a, "m_k"),
        _whole(a, "u_kt"),
        _whole(a, "z"),
        str(a.get("dim", "")),
        a.get("bias") is True,
        a.get("accumulate") is True,
        bool(op.untilize_output),
        _whole(a, "min_buffer_input", -1, 0),
        len(size),
        op.gradient_op is True,
        max(size, default=0),
    )


def operand_of(
    tables: Tables,
    op: NetOp,
    port: int,
    fused: FusedOp | None,
    align: int,
    input_count: int,
    preloaded: bool,
    arch: str,
) -> CoreOperand | None:
    """An input of an op; None where nothing is known of it, or where its lists are too long to be written down."""
    i = op.inputs[port]
    entry = tables.n.queues.get(i.source) or tables.ops.get(i.source)
    if entry is None or (entry.tile_dim or FULL_TILE) != FULL_TILE:
        return None
    try:
        edge = edge_of_input(entry, op, port, fused, input_count, arch, 1 << 30)
    except (TypeError, ValueError, ZeroDivisionError):
        return None
    if edge is None:
        return None
    minimum = op.input_buf_min_size_tiles or []
    least = minimum[port] if port < len(minimum) and minimum[port] > 0 else 0
    operand = CoreOperand(
        edge.source,
        edge.steps,
        edge.reader,
        tile_size(i.df, tables.tile_dim(i.source), align),
        preloaded,
        least,
        edge.unpad,
        edge.pad,
    )
    shape = edge.source.shape
    if min(shape) < 1 or shape[0] * shape[1] * shape[2] > MOST_TILES or not operand.tile:
        return None
    return operand if operand.fits else None


def epoch_cores(
    tables: Tables, names: tuple[str, ...], align: int, preloads: dict[str, frozenset[str]], arch: str
) -> EpochCores:
    """The cores of the graphs of one chip that run together. preloads: by op the queues with a prologue that it
    reads."""
    graphs = [tables.n.graphs[name] for name in names]
    ops = {op.name: (op, max(1, graph.input_count)) for graph in graphs for op in graph.ops.values()}
    operands: dict[str, Operands] = {}
    made: dict[str, CoreOp | None] = {}
    for name, (op, count) in ops.items():
        fused = tables.n.fused_ops.get(str(op.attributes.get("fused_op_id"))) if op.type == "fused_op" else None
        ahead = preloads.get(name, frozenset())
        operands[name] = tuple(
            operand_of(tables, op, port, fused, align, count, i.source in ahead, arch)
            for port, i in enumerate(op.inputs)
        )
        made[name] = core_op(op, operands[name], fused, align)
    sizes: set[int] = set()
    for name, (op, _) in ops.items():
        core = made[name]
        sizes |= {tile_size(i.df, tables.tile_dim(i.source), align) for i in op.inputs}
        sizes.add(tile_size(op.out_df, op.tile_dim, align, header=not op.untilize_output))
        sizes |= core.tile_sizes if core is not None else set()
    epoch = EpochCores({}, {}, {}, buffers.header_bytes(sizes), {}, {}, {})
    for name, (op, count) in ops.items():
        core = made[name]
        readers = _readers(tables, op, operands)
        epoch.overlay[name] = max((op.overlay_size or 0) - OVERLAY_BASE, 0)
        if core is None or readers is None:
            least = l1_use(tables, op, align, preloads.get(name, frozenset())).total
            epoch.least[name] = least + epoch.headers if least else 0
            continue
        epoch.ops[name], epoch.readers[name] = core, readers
        epoch.of_op[name] = core_buffers(core, readers, count, arch)
        epoch.router[name] = int(router_streams(core, readers, count, arch).max())
    return epoch


def _readers(tables: Tables, op: NetOp, operands: dict[str, Operands]) -> tuple[CoreOperand, ...] | None:
    """The operands of ops that read an op; None where one of them is not known."""
    readers: list[CoreOperand] = []
    for r in tables.readers.get(op.name, ()):
        operand = operands[r.op.name][r.index] if r.op.name in operands else None
        if operand is None:
            return None
        readers.append(operand)
    if readers:
        for q in tables.queues_by_writer.get(op.name, ()):
            edge = edge_to_queue(op, q, 1, "", 1 << 30)
            into = CoreOperand(edge.source, edge.steps, edge.reader, 1)
            if not op.untilize_output and into.fits:
                readers.append(into)
    return tuple(readers)


def _intermediates(fused: FusedOp | None) -> list[int]:
    """Tiles of a ublock of each intermediate buffer of a fused op."""
    sizes: dict[str, int] = {}
    for schedule in fused.schedules if fused is not None else ():
        for sub in schedule:
            if sub.output.startswith("intermed"):
                size = sub.ublock[0] * sub.ublock[1]
                sizes[sub.output] = max(sizes.get(sub.output, 0), size)
    return list(sizes.values())


def _whole(attributes: dict[str, Any], name: str, default: int = 1, least: int = 1) -> int:
    value = attributes.get(name, default)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= least else default
