"""Edges in the terms of the router's rules: of a netlist, or written as JSON objects, one a line."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TextIO

from tbuda_lab.core.errors import InputError, NetlistError
from tbuda_lab.core.netlist.op_spec import BINARY, SFPU, UNARY
from tbuda_lab.core.netlist.routing.edge import MOST_TILES, EdgeVerdict, RoutedEdge, judge, judge_alone
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
    return Source(
        producer.grid_size,
        b.t,
        b.mblock,
        b.ublock,
        order,
        producer.buf_size_mb or 0,
        producer.type,
        bool(producer.untilize_output),
    )


def reader_of(op: NetOp, port: int, fused: FusedOp | None) -> EdgeReader | None:
    """How an op reads an input; None where nothing is known of that."""
    a: dict[str, Any] = op.attributes
    b = op.blocking
    factor, per_t = _kernel_broadcast(a, port)
    plain = EdgeReader(
        "eltwise",
        port,
        op.grid_size,
        b.t,
        b.mblock,
        b.ublock,
        b.order or "r",
        op.type,
        op.buf_size_mb or 0,
        _attribute(a, "m_k"),
        _attribute(a, "u_kt"),
        _attribute(a, "z"),
        str(a.get("dim", "")),
        a.get("bias") is True,
        kernel_broadcast=factor,
        per_t=per_t,
    )
    if op.type in ELTWISE:
        return plain
    if op.type in ("matmul", "depthwise"):
        if a.get("identity") is True:
            tiles = _attribute(a, "num_index_tiles" if port == 2 else "num_sparse_tiles")
            tiles *= _attribute(a, "fracture_factor")
            return dataclasses.replace(plain, type="sparse_matmul", tiles=tiles) if port < 3 else None
        return dataclasses.replace(plain, type=op.type, z=plain.z if a.get("accumulate") else 1)
    if op.type in ("reduce", "splice"):
        by = "ublock" if a.get("granularity") == "ublock" else "t"
        return dataclasses.replace(plain, type=op.type, splice_by=by)
    return _fused_reader(plain, fused) if op.type == "fused_op" and fused is not None else None


def _fused_reader(plain: EdgeReader, fused: FusedOp) -> EdgeReader | None:
    """As its first sub-op that reads the input; by its matmul or reduce only if all that read it are such."""
    name = f"input{plain.port}"
    users = [sub for schedule in fused.schedules for sub in schedule if name in sub.inputs]
    if not users:
        return None
    fused_reader = dataclasses.replace(plain, type="fused", mblock=users[0].mblock, ublock=users[0].ublock)
    if any(sub.type not in ("matmul", "reduce") for sub in users):
        return fused_reader
    use = users[0]
    a = use.attributes
    return dataclasses.replace(
        fused_reader,
        use=use.type,
        operand=use.inputs.index(name),
        m_k=_attribute(a, "m_k"),
        u_kt=_attribute(a, "u_kt"),
        dim=str(a.get("dim", "")),
    )


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
    return RoutedEdge(
        source_of(producer),
        steps_of(i.tms or (), producer.blocking.t),
        reader,
        input_count,
        _padding(i.unpad),
        _padding(i.pad),
        arch,
        dst,
    )


def edge_to_queue(op: NetOp, q: Queue, input_count: int, arch: str, dst: int) -> RoutedEdge:
    """The edge from an op to a queue that it writes."""
    return RoutedEdge(
        source_of(op),
        steps_of(q.input_tms or (), op.blocking.t),
        queue_reader(q),
        input_count,
        (0, 0),
        (0, 0),
        arch,
        dst,
    )


@functools.lru_cache(maxsize=1 << 14)
def verdict_of(edge: RoutedEdge) -> EdgeVerdict:
    """`judge`, kept: the layers of a model have equal edges."""
    return judge(edge)


def _attribute(attributes: dict[str, Any], name: str) -> int:
    value = attributes.get(name, 1)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 1


def _padding(pad: dict[str, Any] | None) -> tuple[int, int]:
    return (int(pad.get("rt", 0)), int(pad.get("ct", 0))) if pad else (0, 0)


def _kernel_broadcast(attributes: dict[str, Any], port: int) -> tuple[int, bool]:
    for key, per_t in (("kernel_broadcast", False), ("kernel_broadcast_per_t", True)):
        entry = attributes.get(key)
        if isinstance(entry, dict) and f"input_{port}" in entry:
            return int(entry[f"input_{port}"]), per_t
    single = attributes.get("single_tile")
    return (1, False) if isinstance(single, list) and port in single else (0, False)


MOST_LINE = 1 << 20
_TYPES = ("matmul", "depthwise", "reduce", "splice", "sparse_matmul", "fused", "queue")


def judge_file(cases: TextIO) -> Iterator[str]:
    """What `judge_lines` says of an open file, of which no more than a line is held."""
    return judge_lines(iter(lambda: cases.readline(MOST_LINE + 1), ""))


def judge_lines(lines: Iterable[str]) -> Iterator[str]:
    """One JSON object for each case: its `id` and what `judge_case` says. Raises InputError with the number of a line
    that is no case."""
    return judged_lines(lines, judge_case, "an edge")


def judged_lines(
    lines: Iterable[str], judge_one: Callable[[Mapping[str, Any]], Mapping[str, Any]], what: str
) -> Iterator[str]:
    """One JSON object for each line that is a case: its `id`, or the line's number, and what `judge_one` says of it.
    Raises InputError with the number of a line that does not describe `what`, or is longer than `MOST_LINE`."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            if len(line) > MOST_LINE:
                raise ValueError(f"longer than {MOST_LINE} characters")
            case = json.loads(line)
            verdict = judge_one(case)
        except (ValueError, TypeError, KeyError, IndexError, AttributeError, RecursionError, NetlistError) as error:
            text = f"no field {error}" if isinstance(error, KeyError) else str(error)
            raise InputError(f"line {number} does not describe {what}: {text}") from None
        yield json.dumps({"id": case.get("id", number), **verdict})


def judge_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """The `verdict` "legal" or "illegal" on an edge and the `rule` ("ok" if legal). Raises ValueError, KeyError or
    TypeError for what is no case, or too large a one."""
    edge = edge_of(case)
    outcome = judge_alone(edge, dram_inputs(edge.source))
    if outcome.huge:
        raise ValueError(f"an edge of more than {MOST_TILES} tiles")
    return {"verdict": "illegal" if outcome.rule else "legal", "rule": outcome.rule.label}


def dram_inputs(source: Source) -> tuple[int, ...]:
    """Reads from DRAM that each core of a producer carries whose operands all lie in DRAM, one for all but products.
    A product's operand 0 is multicast from column 0 along rows of several cores, operand 1 from the last row along
    columns; on a single column, or row, every core reads for itself."""
    if source.op_type not in ("matmul", "depthwise"):
        return (1,)
    rows, columns = int(source.grid[0]), int(source.grid[1])
    return tuple(
        int(columns == 1 or c == 0) + int(rows == 1 or r == rows - 1) for r in range(rows) for c in range(columns)
    )


def edge_of(case: Mapping[str, Any]) -> RoutedEdge:
    """The edge of a case; the module says what the fields are. Raises ValueError, KeyError or TypeError for no case."""
    producer, consumer = case["producer"], case["consumer"]
    kind = consumer["type"] if consumer["type"] in _TYPES else "eltwise"
    source = Source(
        pair_of(producer["grid"]),
        whole_of(producer["t"]),
        pair_of(producer["mblock"]),
        pair_of(producer["ublock"]),
        order_of(producer["order"]),
        whole_of(producer.get("buf_size_mb", 1), least=0),
        "queue" if producer["kind"] == "queue" else str(producer["type"]),
        bool(producer.get("untilize_output", False)),
    )
    use = str(consumer.get("fused", "eltwise"))
    port = whole_of(consumer["input"], least=0)
    tiles = consumer.get("num_index_tiles" if port == 2 else "num_sparse_tiles", 1)
    reader = EdgeReader(
        kind,
        port,
        pair_of(consumer["grid"]),
        whole_of(consumer["t"]),
        pair_of(consumer["mblock"]),
        pair_of(consumer["ublock"]),
        order_of(consumer["order"]),
        {"sparse_matmul": "matmul", "fused": "fused_op"}.get(consumer["type"], str(consumer["type"])),
        whole_of(consumer.get("buf_size_mb", 2), least=0),
        whole_of(consumer.get("m_k", 1), least=0),
        whole_of(consumer.get("u_kt", 1), least=0),
        whole_of(consumer.get("z", 1)),
        str(consumer.get("dim", "")),
        bool(consumer.get("bias", False)),
        use,
        whole_of(consumer.get("operand", 0), least=0),
        str(consumer.get("mode", "t")),
        whole_of(tiles),
        whole_of(consumer.get("kernel_broadcast", 0) or 0, least=0),
        bool(consumer.get("kb_per_t", False)),
    )
    steps = tuple(step_of(step) for step in case.get("tms", ()))
    return RoutedEdge(
        source,
        steps,
        reader,
        whole_of(case.get("input_count", 1)),
        pair_of(case.get("unpad") or (0, 0), least=0),
        pair_of(case.get("pad") or (0, 0), least=0),
        str(case["arch"]),
        whole_of(case.get("dst", 8)),
    )


def whole_of(value: Any, least: int = 1) -> int:
    """An integer of at least `least`. Raises ValueError."""
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= 1 << 31:
        raise ValueError(f"{value!r} is not a whole number of at least {least}")
    return value


def pair_of(value: Any, least: int = 1) -> tuple[int, int]:
    """Two such integers."""
    if not isinstance(value, (list, tuple)) or len(value) != 2:
        raise ValueError(f"{value!r} is not a pair")
    return whole_of(value[0], least), whole_of(value[1], least)


def order_of(value: Any) -> str:
    """A ublock order, "r" or "c". Raises ValueError."""
    if value not in ("r", "c"):
        raise ValueError(f"{value!r} is not a ublock order")
    return str(value)


def step_of(value: Any) -> Step:
    """A TM as a step. Raises ValueError."""
    name, *arguments = value
    count = {"transpose": 0, "pad": 2, "tile_broadcast": 0}.get(name, 1)
    if name not in ("hslice", "vslice", "hstack", "vstack", "r", "c", "z", "transpose", "pad", "tile_broadcast"):
        raise ValueError(f"{name!r} is not a TM")
    if len(arguments) < count:
        raise ValueError(f"the TM {name} takes {count} numbers")
    return (name, *(whole_of(a, least=0 if name == "pad" else 1) for a in arguments[:count]))
