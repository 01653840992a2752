"""What of an op decides its candidates: shapes in tiles, formats, operands, readers. Equal profiles share a table."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import DataFormat, MathFidelity, tile_bytes
from tbuda_lab.core.graph import TM, Edge, Graph, Node, NodeKind, TileShape, apply_shape
from tbuda_lab.core.graph.phases import ACCUMULATES, ENTRIES, ONCE, RAM, ROLE, WRITES, direction_of, is_cache
from tbuda_lab.core.lowering.fused_steps import OperandUse, operand_uses, step_block
from tbuda_lab.core.lowering.hw_ops import (
    HwBinary,
    HwDepthwise,
    HwFused,
    HwMatmul,
    HwOp,
    HwReduce,
    HwSparseMatmul,
    HwUnary,
    output_tiles,
    tile_shape,
)
from tbuda_lab.core.options import CompileOptions

Users = Mapping[str, Sequence[tuple[str, int]]]

MATMUL_KINDS = frozenset({"matmul", "sparse_matmul", "depthwise"})

HOST_QUEUE_BYTES = 896 << 20
"""Bytes of a queue that lies in host memory at most: its first channel has so many (placement.md#device-limits)."""


def queue_entries(node: Node, options: CompileOptions) -> int:
    """Tensors that the queue of an INPUT or OUTPUT holds."""
    return max(2 * options.microbatch, int(node.attrs.get(ENTRIES, 0)))


def _fits_host(node: Node, options: CompileOptions) -> bool:
    tile = tile_bytes(node.df or options.data_format)
    return math.prod(tile_shape(node.shape)) * tile * queue_entries(node, options) <= HOST_QUEUE_BYTES


def output_on_host(node: Node, options: CompileOptions) -> bool:
    """Whether the queue of an OUTPUT lies in host memory; one that is too large for that lies in DRAM."""
    return options.output_queues_on_host and _fits_host(node, options)


def input_on_host(node: Node, device: DeviceSpec, options: CompileOptions, on_one_chip: bool = False) -> bool:
    """The same of an INPUT, where what reads it can read host memory: one chip, not grayskull, or the one of several
    that has all ops, which the host reaches (on_one_chip)."""
    readable = device.arch != "grayskull" and (len(device.chips) == 1 or on_one_chip)
    return options.input_queues_on_host and readable and _fits_host(node, options)


@dataclasses.dataclass(frozen=True)
class Operand:
    """One operand. `role`: "in0", "in1", "bias" of a matmul-like op or of a sum in a fused one, else "elt". `feed`:
    "parameter" | "activation".
    `may_stream`: ops write the parameter, or others read it too. Then the queue decides whether it is preloaded, and a
    candidate that wants it preloaded has room to stream it as well."""

    role: str
    feed: str
    source_tiles: TileShape  # before the TMs
    tiles: TileShape  # after the TMs
    tms: tuple[TM, ...]
    df: DataFormat
    may_stream: bool = False


@dataclasses.dataclass(frozen=True)
class OpProfile:
    """Everything `enumerate_candidates` reads. `kind` is the cost model's op kind; `inner` the tiles summed over
    (matmul K, kernel of a depthwise, reduced dimension, that of a fused op's sums), 0 where there is none."""

    kind: str
    op: HwOp
    out: TileShape
    operands: tuple[Operand, ...]
    df: DataFormat
    intermed_df: DataFormat
    acc_df: DataFormat
    fidelity: MathFidelity
    inner: int
    inner_run: int  # tiles of the inner dimension that lie together in every operand
    user_stacks: tuple[int, ...]  # factors of stacks and slices on edges to reading ops
    feeds_host: bool  # written to a host queue: untilized, so rows in order
    feeds_ram: bool = False  # written to a ram that is read again as it is: in one piece
    accumulates: bool = False  # a sum of gradients: the whole output stays in L1, however many parts it has
    stream_parameters: bool = False  # the user wants no parameter preloaded, not even a small one
    once: bool = False  # it runs once for a whole batch: an op of the optimizer
    headers: int = 0  # bytes of tile headers on every core, for the sizes of tiles that the model has
    shared_ram: bool = False  # it writes a ram that others write or read too: tiles row by row, whoever writes it

    @property
    def signature(self) -> str:
        """Equal for equal profiles, in every process."""
        return hashlib.sha256(repr(self).encode()).hexdigest()[:20]

    @property
    def matmul_like(self) -> bool:
        return self.kind in MATMUL_KINDS

    @property
    def fused_sums(self) -> str:
        """Along which dimension, "r" or "c", the sums of a fused op go; "" where there are none."""
        return self.op.dim if isinstance(self.op, HwFused) else ""

    @functools.cached_property
    def uses(self) -> tuple[OperandUse, ...]:
        """How a fused op with sums reads each operand; nothing for other ops."""
        return operand_uses(self.op, len(self.operands)) if self.fused_sums else ()

    @property
    def z_group(self) -> int:
        """Input slices summed (matmul accumulate) or compared (reduce over z) per output slice."""
        if isinstance(self.op, HwMatmul) and self.op.accumulate:
            return self.op.z
        if isinstance(self.op, HwReduce) and self.op.dim == "z":
            return self.op.z
        return 1


Candidate = np.void | dict[str, Any]
"""One row of a table of candidates (`types.CANDIDATE`), or its fields by name as Python's numbers, which are quicker
to take one by one."""

Rows = TypeVar("Rows", np.ndarray, np.void, Candidate)
_BLOCK = ("mblock_m", "mblock_n", "ublock_r", "ublock_c")


def as_read(profile: OpProfile, port: int, rows: Rows) -> Rows:
    """Candidates with the block of the step that reads an operand first, which a fused op with sums has
    beside that of its output; the same for all other ops."""
    if not profile.fused_sums:
        return rows
    assert isinstance(profile.op, HwFused)
    m, n, u, v = (rows[field] for field in _BLOCK)
    blocks = step_block(profile.op, profile.uses[port].narrow, (m, n, u, v), rows["m_k"], rows["u_kt"])
    changed = rows.copy()
    for field, value in zip(_BLOCK, blocks, strict=True):
        changed[field] = value
    return changed


def contiguous_run(tms: Sequence[TM], source: TileShape, dim: str) -> int:
    """Largest n such that runs of n tiles along `dim` ("r" or "c") after the TMs were neighbours before them."""
    shape = source
    runs = {"r": source[1], "c": source[2]}
    for tm in tms:
        shape = apply_shape(tm, shape)
        if tm.name == "transpose":
            runs = {"r": runs["c"], "c": runs["r"]}
        else:
            # a slice shortens the run, a stack or broadcast keeps the run it was made of
            runs = {"r": math.gcd(runs["r"], shape[1]), "c": math.gcd(runs["c"], shape[2])}
    return runs[dim]


def _feed(node: Node) -> str:
    stored = node.kind in (NodeKind.PARAMETER, NodeKind.CONSTANT) and not is_cache(node)
    return "parameter" if stored else "activation"


def _roles(op: HwOp, count: int) -> tuple[str, ...]:
    if isinstance(op, HwSparseMatmul):
        return ("in1",)
    if isinstance(op, (HwMatmul, HwDepthwise)):
        return ("in0", "in1", "bias")[:count]
    if isinstance(op, HwFused) and op.sums:
        return tuple(use.role for use in operand_uses(op, count))
    return ("elt",) * count


def cost_kind(op: HwOp) -> str:
    """The cost model's name of an op."""
    if isinstance(op, HwMatmul):
        return "matmul"
    if isinstance(op, HwSparseMatmul):
        return "sparse_matmul"
    if isinstance(op, HwDepthwise):
        return "depthwise"
    if isinstance(op, (HwUnary, HwBinary)):
        return op.fn
    return op.netlist_type


def _operand(graph: Graph, edge: Edge, role: str, fallback: DataFormat, users: Users) -> Operand:
    source = graph[edge.source]
    before = tile_shape(source.shape)
    after = before
    for tm in edge.tms:
        after = apply_shape(tm, after)
    feed = _feed(source)
    may_stream = feed == "parameter" and (ROLE in source.attrs or len({name for name, _ in users[edge.source]}) > 1)
    return Operand(role, feed, before, after, edge.tms, source.df or fallback, may_stream)


def profile_of(
    graph: Graph, node: Node, options: CompileOptions, users: Users, phase: Mapping[str, str], headers: int = 0
) -> OpProfile:
    """Profile of one op of a lowered graph. users: of every node its readers as (name, operand index); phase: of every
    op the part of the graph that it is in, see `phases`; headers: `header_bytes` of the graph."""
    op = node.op
    if not isinstance(op, HwOp):
        raise TypeError(f"{node.name!r} is not a hardware op: {op!r}")
    df = node.df or options.data_format
    roles = _roles(op, len(node.inputs))
    roled = zip(node.inputs, roles, strict=True)
    operands = tuple(_operand(graph, e, role, options.data_format, users) for e, role in roled)
    inner = run = 0
    first = operands[0]
    if isinstance(op, HwMatmul):
        second = operands[1]
        inner = first.tiles[2]
        run = math.gcd(
            contiguous_run(first.tms, first.source_tiles, "c"), contiguous_run(second.tms, second.source_tiles, "r")
        )
    elif isinstance(op, HwSparseMatmul):
        inner = run = first.tiles[1]
    elif isinstance(op, HwDepthwise):
        inner = op.kernel
        run = 1
    elif isinstance(op, HwFused):
        inner = op.length
    elif isinstance(op, HwReduce) and op.dim in "rc":
        inner = first.tiles[1] if op.dim == "r" else first.tiles[2]
        run = contiguous_run(first.tms, first.source_tiles, op.dim)
    stacks: set[int] = set()
    feeds_host = feeds_ram = accumulates = shared_ram = False
    for name, port in users[node.name]:
        user = graph[name]
        if user.kind is NodeKind.OUTPUT and WRITES in user.attrs:
            feeds_ram = True
            shared_ram |= RAM in user.attrs
            accumulates |= bool(user.attrs.get(ACCUMULATES))
        elif user.kind is NodeKind.OUTPUT:
            feeds_host |= output_on_host(user, options)
        elif user.kind is NodeKind.OP:
            stacks |= {int(tm.args[0]) for tm in user.inputs[port].tms if tm.name in ("hstack", "vstack")}
    return OpProfile(
        kind=cost_kind(op),
        op=op,
        out=output_tiles(node),
        operands=operands,
        df=df,
        intermed_df=node.attrs.get("intermed_df") or df,
        acc_df=node.attrs.get("acc_df") or df,
        fidelity=node.attrs.get("fidelity") or options.default_math_fidelity,
        inner=inner,
        inner_run=run,
        user_stacks=tuple(sorted(stacks)),
        feeds_host=feeds_host,
        feeds_ram=feeds_ram,
        accumulates=accumulates,
        stream_parameters=options.default_dram_parameters is True,
        shared_ram=shared_ram,
        headers=headers,
        once=direction_of(phase.get(node.name, "forward")) == ONCE,
    )
