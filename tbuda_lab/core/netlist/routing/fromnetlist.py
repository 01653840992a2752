"""Edges of a netlist in the terms of the router's rules."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence
from typing import Any

from tbuda_lab.core.netlist.opspec import BINARY, SFPU, UNARY
from tbuda_lab.core.netlist.routing.edge import EdgeVerdict, RoutedEdge, judge
from tbuda_lab.core.netlist.routing.layout import EdgeReader, Source, Step
from tbuda_lab.core.netlist.schema import FusedOp, NetOp, OpInput, Queue, Tm

ELTWISE = BINARY | UNARY | SFPU
UNSEEN = frozenset(("embedding", "tilizer", "topk", "ethernet_datacopy", "drainer", "buffer"))
"""Types of readers of which nothing is known for sure: their edges are not judged."""


def source_of(producer: NetOp | Queue) -> Source:
    """The layout of an op's output or of a queue, whose fields are sound."""
    b, order = producer.blocking, producer.blocking.order or "r"
    if isinstance(producer, Queue):
        return Source(producer.grid_size, b.t, b.mblock, b.ublock, order, 1, "queue")
    return Source(producer.grid_size, b.t, b.mblock, b.ublock, order, producer.buf_size_mb or 0, producer.type,
                  bool(producer.untilize_output))


def reader_of(op: NetOp, port: int, fused: FusedOp | None) -> EdgeReader | None:
    """How an op reads an input; None where nothing is known of that."""
    a: dict[str, Any] = op.attributes
    b = op.blocking
    factor, per_t = _kernel_broadcast(a, port)
    plain = EdgeReader("eltwise", port, op.grid_size, b.t, b.mblock, b.ublock, b.order or "r", op.type,
                   op.buf_size_mb or 0, _whole(a, "m_k"), _whole(a, "u_kt"), _whole(a, "z"), str(a.get("dim", "")),
                   a.get("bias") is True, kernel_broadcast=factor, per_t=per_t)
    if op.type in ELTWISE:
        return plain
    if op.type in ("matmul", "depthwise"):
        if a.get("identity") is True:
            tiles = _whole(a, "num_index_tiles" if port == 2 else "num_sparse_tiles") * _whole(a, "fracture_factor")
            return dataclasses.replace(plain, type="sparse_matmul", tiles=tiles) if port < 3 else None
        return dataclasses.replace(plain, type=op.type, z=plain.z if a.get("accumulate") else 1)
    if op.type in ("reduce", "splice"):
        by = "ublock" if a.get("granularity") == "ublock" else "t"
        return dataclasses.replace(plain, type=op.type, splice_by=by)
    return _fused_reader(plain, fused) if op.type == "fused_op" and fused is not None else None


def _fused_reader(plain: EdgeReader, fused: FusedOp) -> EdgeReader | None:
    """As its first sub-op that reads the input, if that and all others are matmuls and reduces."""
    name = f"input{plain.port}"
    users = [sub for schedule in fused.schedules for sub in schedule if name in sub.inputs]
    if not users:
        return None
    fused_reader = dataclasses.replace(plain, type="fused")
    if any(sub.type not in ("matmul", "reduce") for sub in users):
        return fused_reader
    use = users[0]
    a = use.attributes
    return dataclasses.replace(fused_reader, mblock=use.mblock, ublock=use.ublock, use=use.type,
                               operand=use.inputs.index(name), m_k=_whole(a, "m_k"), u_kt=_whole(a, "u_kt"),
                               dim=str(a.get("dim", "")))


def queue_reader(q: Queue) -> EdgeReader:
    """A queue as what an op writes into."""
    b = q.blocking
    return EdgeReader("queue", 0, q.grid_size, b.t, b.mblock, b.ublock, b.order or "r")


def steps_of(tms: Sequence[Tm], t: int) -> tuple[Step, ...]:
    """TMs as steps; `t` of the source, which a stack of 0 takes whole."""
    steps: list[Step] = []
    for tm in tms:
        if tm.name == "broadcast":
            steps += [(dim, int(n)) for dim, n in tm.args]
        elif tm.name == "pad":
            steps.append(("pad", int(tm.args[0]), int(tm.args[1])))
        elif tm.name in ("transpose", "tile_broadcast"):
            steps.append((tm.name,))
        else:
            n = int(tm.args[0])
            n = _t_before(steps, t) if n == 0 and tm.name in ("hstack", "vstack") else n
            steps.append((tm.name, n))
    return tuple(steps)


def _t_before(steps: Sequence[Step], t: int) -> int:
    for name, *arguments in steps:
        if name in ("hslice", "vslice", "z"):
            t *= arguments[0]
        elif name in ("hstack", "vstack"):
            t //= arguments[0]
    return t


def edge_of_input(
    producer: NetOp | Queue, op: NetOp, port: int, fused: FusedOp | None, input_count: int, arch: str, dst: int
) -> RoutedEdge | None:
    """The edge of an input of an op; None where nothing is known of how the op reads it."""
    i: OpInput = op.inputs[port]
    reader = reader_of(op, port, fused)
    if reader is None:
        return None
    return RoutedEdge(source_of(producer), steps_of(i.tms or (), producer.blocking.t), reader, input_count,
                      _pair(i.unpad), _pair(i.pad), arch, dst)


def edge_to_queue(op: NetOp, q: Queue, input_count: int, arch: str, dst: int) -> RoutedEdge:
    """The edge from an op to a queue that it writes."""
    return RoutedEdge(source_of(op), steps_of(q.input_tms or (), op.blocking.t), queue_reader(q), input_count,
                      (0, 0), (0, 0), arch, dst)


@functools.lru_cache(maxsize=1 << 14)
def verdict_of(edge: RoutedEdge) -> EdgeVerdict:
    """`judge`, kept: the layers of a model have equal edges."""
    return judge(edge)


def _whole(attributes: dict[str, Any], name: str) -> int:
    value = attributes.get(name, 1)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def _pair(pad: dict[str, Any] | None) -> tuple[int, int]:
    return (int(pad.get("rt", 0)), int(pad.get("ct", 0))) if pad else (0, 0)


def _kernel_broadcast(attributes: dict[str, Any], port: int) -> tuple[int, bool]:
    for key, per_t in (("kernel_broadcast", False), ("kernel_broadcast_per_t", True)):
        entry = attributes.get(key)
        if isinstance(entry, dict) and f"input_{port}" in entry:
            return int(entry[f"input_{port}"]), per_t
    single = attributes.get("single_tile")
    return (1, False) if isinstance(single, list) and port in single else (0, False)


