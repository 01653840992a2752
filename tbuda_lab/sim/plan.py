"""A temporal epoch made ready to run: ops in order, ports, caches, and when each tensor is used for the last time."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping, Sequence
from typing import cast

import numpy as np

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.op_spec import BINARY, SFPU, UNARY
from tbuda_lab.core.netlist.schema import Netlist, NetOp, Tm
from tbuda_lab.sim import builders, tms
from tbuda_lab.sim.arrays import (
    FULL_TILE,
    LONG_ROW,
    Array,
    TileDim,
    as_number,
    misfit,
    once,
    op_shape,
    repeat_to,
    repeated_row,
    shape_text,
    too_large,
)
from tbuda_lab.sim.context import GradientOutput, Kernel, OpContext
from tbuda_lab.sim.fused import hands_on
from tbuda_lab.sim.io import Entry, Io, QueueIo, RamIo, ViewIo, is_host_fed
from tbuda_lab.sim.numerics import Convert, Numerics
from tbuda_lab.sim.sparse import PickedRows

ELTWISE = BINARY | SFPU | UNARY
_POINTER = 64  # bytes that a pointer's way through one input takes
_PIECE = 1 << 19
"""Elements of the largest tensor up to which several inputs go through the graph side by side."""


@dataclasses.dataclass
class Port:
    """Where an op's input comes from and what happens on the way; `cache` holds the result for the entry `stamp`.
    by_rows: `move` puts whole rows elsewhere; each_row: it does the same in each row; takes_rows: the op reads
    `PickedRows` as they are; long_row: columns from which the op gains from equal rows that memory holds once, as it
    does from equal columns; 0: it gains from neither.
    """

    value: int
    io: Io | None
    prepare: Convert | None
    move: tms.Move | None
    finish: Convert | None = None
    stamp: object = None
    cache: Array | None = None
    by_rows: bool = False
    each_row: bool = False
    takes_rows: bool = False
    long_row: int = 0

    def __post_init__(self) -> None:
        self._as_it_is = self.prepare is None and self.move is None and self.finish is None

    def fetch(self, values: list[Array | None], stamps: list[object]) -> Array:
        """The tensor as the op sees it. stamps: by value, the entry that it is, None if what is made of it should not
        be kept and `values` holds it."""
        stamp = stamps[self.value]
        if stamp is None:
            x = values[self.value]
            return x if self._as_it_is and x.__class__ is np.ndarray else self._prepared_array(x)
        if stamp is not self.stamp or self.cache is None:
            assert self.io is not None
            x = self._prepared_array(self.io.gather([cast(Entry, stamp)]))
            self.stamp, self.cache = stamp, once(x, self.long_row) if self.long_row else x
        return self.cache

    def _prepared_array(self, x: Array | PickedRows | None) -> Array:
        assert x is not None
        move = self.move
        if isinstance(x, PickedRows):
            if self.by_rows and self.prepare is None and move is not None:
                x, move = x.move(move), None
            if self.takes_rows and self.prepare is None and move is None and self.finish is None:
                return cast(Array, x)
            x = x.as_array()
        if self.prepare is not None:
            x = self.prepare(x)
        if move is not None and self.each_row and repeated_row(x):
            row = move(x[:, :, :1])
            x = repeat_to(row, (*row.shape[:2], x.shape[2], row.shape[3]))
        elif move is not None:
            x = move(x)
        if self.finish is not None:
            x = self.finish(x)
        return x


@dataclasses.dataclass
class PlanStep:
    """One op: its ports, the value it makes, the values that are not needed after it, and the port whose memory it
    may overwrite (None if there is none)."""

    op: NetOp
    kernel: Kernel
    ports: list[Port]
    value: int
    history: GradientOutput | None = None
    last_use: tuple[int, ...] = ()
    free: int | None = None


@dataclasses.dataclass
class Write:
    """A queue or ram that an op of the epoch fills."""

    io: QueueIo | RamIo
    value: int
    move: tms.Move | None


@dataclasses.dataclass
class EpochPlan:
    """Values are numbered: first those read from queues and rams, then the ops'. fifos and rams: those among `reads`,
    with the numbers. views: it reads or writes a ram in another blocking than the one it is kept in."""

    name: str
    input_count: int
    reads: list[tuple[QueueIo | RamIo, int]]
    fifos: list[tuple[int, QueueIo]]
    rams: list[tuple[int, RamIo]]
    steps: list[PlanStep]
    writes: list[Write]
    values: int
    gradient: dict[str, GradientOutput]
    sequential: bool
    chunk: int
    views: bool


def plan_epoch(
    netlist: Netlist,
    graphs: Sequence[str],
    io: Mapping[str, QueueIo | RamIo],
    numerics: Numerics,
    keep: Callable[[str], bool],
) -> EpochPlan:
    """Builds everything that does not depend on data.

    keep: which ops' outputs somebody wants to see, so that they are not overwritten. Raises `NetlistError` for an
    input that does not exist, a cycle, or an op that cannot be built.
    """
    ops = {op.name: op for g in graphs for op in netlist.graphs[g].ops.values()}
    name = " + ".join(graphs)
    written = {q.name: op for q in netlist.queues.values() if (op := ops.get(q.input)) is not None}
    order = _topological(ops, netlist, written, name)
    tags = _tags(order, netlist)

    numbers: dict[str, int] = {}
    for op in order:
        for port in op.inputs:
            if port.source not in ops:
                numbers.setdefault(port.source, len(numbers))
    reads = [(io[source], number) for source, number in numbers.items()]
    for op in order:
        numbers[op.name] = len(numbers)

    steps = [_step(op, ops, netlist, io, numbers, numerics, tags) for op in order]
    writes = []
    for queue_name, op in written.items():
        spec = netlist.queues[queue_name]
        move = tms.compile_tms(spec.input_tms or (), op.tile_dim or FULL_TILE, f"queue {queue_name!r}, input_tms")
        writes.append(Write(io[queue_name], numbers[op.name], move))
    handed = {
        op.name
        for op in order
        if op.type == "splice"
        or (op.type == "fused_op" and hands_on(netlist.fused_ops.get(str(op.attributes.get("fused_op_id")))))
    }
    _mark_last_uses(steps, writes, keep, handed, {numbers[name] for name in numbers if name not in ops})

    counts = {netlist.graphs[g].input_count for g in graphs}
    if len(counts) != 1:
        raise misfit(
            f"graphs {name}",
            "G5",
            f"they form one temporal epoch with input counts {sorted(counts)}",
            "graphs that exchange data without a queue need one input_count",
        )
    gradient = {step.op.name: step.history for step in steps if step.history is not None}
    memory = [{r.memory for r, _ in reads}, {w.io.memory for w in writes}]
    largest = max((math.prod(op_shape(op)) for op in order), default=1)
    count = counts.pop()
    _check_memory(name, order, writes, count)
    return EpochPlan(
        name,
        count,
        reads,
        [(i, r) for r, i in reads if isinstance(r, QueueIo)],
        [(i, r) for r, i in reads if isinstance(r, RamIo)],
        steps,
        writes,
        len(numbers),
        gradient,
        sequential=bool(gradient) or bool(memory[0] & memory[1]),
        chunk=max(1, _PIECE // largest),
        views=any(isinstance(each, ViewIo) for each in [*(r for r, _ in reads), *(w.io for w in writes)]),
    )


def _check_memory(name: str, order: list[NetOp], writes: list[Write], count: int) -> None:
    """Raises `NetlistError` for an op or for outputs of `count` inputs that this machine cannot hold."""
    for op in order:
        shape = op_shape(op)
        problem = too_large(4 * math.prod(shape))
        if problem:
            raise misfit(
                f"op {op.name!r}",
                "memory",
                f"one output is (z, R, C) = {shape_text(shape)}: {problem}",
                "make t, mblock, ublock or grid_size smaller",
            )
    for write in writes:
        keep = count if isinstance(write.io, QueueIo) else min(count, write.io.entries)
        problem = too_large(4 * keep * math.prod(write.io.shape))
        problem = problem or too_large(_POINTER * count)
        if problem:
            raise misfit(
                f"graphs {name}",
                "memory",
                f"{keep} entries of {write.io.describe()}: {problem}",
                "make input_count smaller",
            )


def _topological(ops: dict[str, NetOp], netlist: Netlist, written: dict[str, NetOp], name: str) -> list[NetOp]:
    """Ops in an order in which producers come first; a queue written here makes its readers wait, a ram does not."""
    waiting: dict[str, set[str]] = {}
    users: dict[str, list[str]] = {}
    for op in ops.values():
        needs = set()
        for port in op.inputs:
            if port.source in ops:
                needs.add(port.source)
            elif port.source not in netlist.queues:
                raise misfit(
                    f"op {op.name!r}",
                    "G3",
                    f"input {port.source!r} is neither a queue nor an op of its epoch",
                    f"the epoch is {name}",
                )
            elif port.source in written and netlist.queues[port.source].type == "queue":
                needs.add(written[port.source].name)
        waiting[op.name] = needs
        for need in needs:
            users.setdefault(need, []).append(op.name)
    ready = [n for n, needs in waiting.items() if not needs]
    order: list[NetOp] = []
    for current in ready:  # grows while it is walked
        order.append(ops[current])
        for user in users.get(current, ()):
            waiting[user].discard(current)
            if not waiting[user]:
                ready.append(user)
    if len(order) < len(ops):
        stuck = [n for n, needs in waiting.items() if needs]
        raise misfit(
            f"graphs {name}",
            "cycle",
            f"ops {', '.join(stuck[:5])} wait for one another",
            "a cycle needs a ram, which is read before it is written",
        )
    return order


def _tags(order: list[NetOp], netlist: Netlist) -> dict[str, DataFormat | None]:
    """The golden format of every source: a queue's own, an op's that of its first input. None: Tf32, that is Float32
    cut by an op that read it; no op cuts it again. A Float32 queue that an op fills holds such values.

    An identity matmul is the exception: its input 0 holds the picker's zeros and ones, usually in Bfp2, and what comes
    out are rows of input 1. Tagged as Bfp2, whatever reads a convolution would see two bits of it, which no machine
    and no reference evaluation does; it counts as of the format of input 1.
    """
    tags: dict[str, DataFormat | None] = {
        name: None if q.df is DataFormat.Float32 and not is_host_fed(q) else q.df for name, q in netlist.queues.items()
    }
    for op in order:
        leading = 1 if op.attributes.get("identity") and len(op.inputs) > 1 else 0
        first = op.inputs[leading].source if op.inputs else None
        tag = tags.get(first, op.out_df) if first is not None else op.out_df
        tags[op.name] = None if tag is DataFormat.Float32 else tag
    return tags


def _step(
    op: NetOp,
    ops: dict[str, NetOp],
    netlist: Netlist,
    io: Mapping[str, QueueIo | RamIo],
    numbers: dict[str, int],
    numerics: Numerics,
    tags: dict[str, DataFormat | None],
) -> PlanStep:
    ports, source_dfs = [], []
    result = [_source_tile(port.source, ops, netlist) for port in op.inputs]
    turned = [
        t[::-1] if sum(tm.name == "transpose" for tm in port.tms or ()) % 2 else t
        for t, port in zip(result, op.inputs, strict=True)
    ]
    tiles = computed_tiles(op, turned)
    for i, (port, tile) in enumerate(zip(op.inputs, result, strict=True)):
        producer = ops.get(port.source)
        df = producer.out_df if producer is not None else netlist.queues[port.source].df
        prepare = numerics.unpack(op, i, df, tags[port.source])
        if op.type not in builders.KEEPS_INTEGERS and not df.is_raw and (prepare is None or df.is_integer):
            prepare = as_number if df.is_integer else prepare
        finish = numerics.after_moves(op, i, tags[port.source])
        if i == 0 and builders.stack_of_depthwise(op):
            port = dataclasses.replace(port, tms=list(port.tms or ())[:-1])
        elif finish is None and tiles[i] == tile and builders.reads_columns_0(op, i, netlist.fused_ops):
            port = dataclasses.replace(port, tms=[Tm("tile_broadcast", ("c",)), *(port.tms or ())])
        move = tms.compile_input(op.name, i, port, tile, tiles[i])
        plain = not (port.pad or port.unpad) and tiles[i] == tile
        by_rows = plain and all(tm.name in tms.OF_ROWS for tm in port.tms or ())
        each_row = plain and all(map(tms.is_of_columns, port.tms or ()))
        ports.append(
            Port(
                numbers[port.source],
                None if producer is not None else io[port.source],
                prepare,
                move,
                finish,
                by_rows=by_rows,
                each_row=each_row,
                long_row=_long_row(op, i),
                takes_rows=i == 0 and builders.stack_of_depthwise(op),
            )
        )
        source_dfs.append(df)
    history = GradientOutput() if op.gradient_op else None
    context = OpContext(op, numerics, netlist.fused_ops, tuple(source_dfs), tuple(tiles))
    return PlanStep(op, builders.build(context, history), ports, numbers[op.name], history)


def _long_row(op: NetOp, index: int) -> int:
    """`long_row` of the port of an op's input."""
    product = op.type in ("matmul", "depthwise")
    if product and index == 2 and op.attributes.get("bias"):
        return 1  # each row of the product takes it as it comes
    return LONG_ROW if op.type in ELTWISE or op.type == "fused_op" or (op.type == "matmul" and index == 1) else 0


def _source_tile(source: str, ops: dict[str, NetOp], netlist: Netlist) -> TileDim:
    producer = ops.get(source)
    return (producer.tile_dim if producer is not None else netlist.queues[source].tile_dim) or FULL_TILE


def computed_tiles(op: NetOp, tiles: Sequence[TileDim]) -> list[TileDim]:
    """The tile sizes that an op computes in, given those of its inputs after TMs.

    An eltwise op works in tiles of its output's size. A matmul takes rows from its left operand and columns from its
    right one; inside, the narrower of both counts: what a smaller tile does not have is zero.
    """
    out = op.tile_dim or FULL_TILE
    if op.type in ELTWISE:
        return [out] * len(tiles)
    if op.type == "matmul" and len(tiles) > 1 and op.attributes.get("identity"):
        return [tiles[0], (tiles[0][1], out[1]), *tiles[2:]]  # the picker's tiles are full ones
    if op.type == "matmul" and len(tiles) > 1:
        inner = min(tiles[0][1], tiles[1][0])
        return [(out[0], inner), (inner, out[1]), *((t[0], out[1]) for t in tiles[2:])]
    return list(tiles)


def _mark_last_uses(
    steps: list[PlanStep], writes: list[Write], keep: Callable[[str], bool], handed: set[str], from_io: set[int]
) -> None:
    """Fills `last_use` and `free`. Tensors that share memory (an op that only moves values, a TM that is a view,
    rows that a picker chose) count as one. handed: ops that may hand on any of their inputs."""
    owner: dict[int, int] = {}
    for step in steps:
        picks = step.op.type == "matmul" and len(step.ports) > 1 and bool(step.op.attributes.get("identity"))
        shares = picks or step.op.type in builders.MOVES or step.op.name in handed
        source = step.ports[1 if picks else 0].value if shares and step.ports else step.value
        owner[step.value] = owner.get(source, source)
    pinned = set(from_io) | {owner.get(w.value, w.value) for w in writes}
    pinned |= {owner[s.value] for s in steps if keep(s.op.name) or s.op.gradient_op}
    pinned |= {owner.get(p.value, p.value) for s in steps if s.op.name in handed for p in s.ports}
    last: dict[int, int] = {}
    last_of_owner: dict[int, int] = {}
    for index, step in enumerate(steps):
        for port in step.ports:
            last[port.value] = index
            last_of_owner[owner.get(port.value, port.value)] = index
    for write in writes:
        last[write.value] = len(steps)
    for index, step in enumerate(steps):
        last.setdefault(step.value, index)
        step.last_use = tuple(
            sorted(
                {p.value for p in step.ports if last[p.value] == index}
                | ({step.value} if last[step.value] == index else set())
            )
        )
        for i, port in enumerate(step.ports):
            mine = owner.get(port.value, port.value)
            alone = sum(owner.get(p.value, p.value) == mine for p in step.ports) == 1
            if port.io is None and mine == port.value and alone and mine not in pinned and last_of_owner[mine] == index:
                step.free = i
                break


def check_shape(write: Write, x: Array) -> None:
    """Raises `NetlistError` if what an op pushes is not what the queue holds."""
    if x.shape[1:] != write.io.shape:
        raise misfit(
            write.io.describe(),
            "shape",
            f"its producer makes (z, R, C) = {shape_text(x)}",
            f"an entry is {shape_text(write.io.shape)}",
        )
