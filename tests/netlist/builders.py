"""Minimal valid netlists made in code: queues, ops, graphs and programs with sensible fields, all of which can be set.

n = build([op("exp0", "exp", ["x"])], shapes={"x": (1, 2, 2)})
n.graphs["g"].ops["exp0"].blocking.t = 4        # now it is wrong
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from tbuda_lab.core import netlist
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.schema import (
    Blocking,
    EndLoop,
    Execute,
    FusedOp,
    Loop,
    NetGraph,
    Netlist,
    NetOp,
    OpInput,
    Program,
    Queue,
    QueueBuffer,
    QueueSetting,
    SubOp,
    Tm,
    Var,
    VarInst,
)
from tbuda_lab.core.netlist.sizes import queue_buffer_bytes
from tbuda_lab.core.netlist.tables import Tables

F16B = DataFormat.Float16_b
Shape = tuple[int, int, int]
START = 0x10000000


def blocking(
    shape: Shape, grid: tuple[int, int] = (1, 1), ublock: tuple[int, int] = (1, 1), order: str | None = None
) -> Blocking:
    """The blocking of a tensor of (z, rows, columns) tiles on a grid."""
    z, rows, cols = shape
    assert rows % (grid[0] * ublock[0]) == 0 and cols % (grid[1] * ublock[1]) == 0, (shape, grid, ublock)
    return Blocking(z, (rows // grid[0] // ublock[0], cols // grid[1] // ublock[1]), ublock, order)


def queue(
    name: str,
    shape: Shape,
    *,
    source: str = "HOST",
    kind: str = "queue",
    entries: int = 2,
    grid: tuple[int, int] = (1, 1),
    ublock: tuple[int, int] = (1, 1),
    df: DataFormat = F16B,
    chip: int = 0,
    **fields: Any,
) -> Queue:
    """A queue without buffers: `build` lays them out."""
    return Queue(
        name, kind, source, entries, grid, blocking(shape, grid, ublock), df, chip, fields.pop("loc", "dram"), **fields
    )


def tm(name: str, *args: Any, **dims: int) -> Tm:
    """`tm("hslice", 2)`, `tm("transpose")`, `tm("broadcast", r=4)`."""
    return Tm(name, tuple(dims.items()) if dims else args)


def op(
    name: str,
    kind: str,
    inputs: Sequence[str],
    shape: Shape = (1, 2, 2),
    *,
    grid: tuple[int, int] = (1, 1),
    loc: tuple[int, int] | None = (0, 0),
    ublock: tuple[int, int] = (1, 1),
    order: str = "r",
    df: DataFormat = F16B,
    in_df: Sequence[DataFormat] | None = None,
    out_df: DataFormat | None = None,
    intermed_df: DataFormat | None = None,
    acc_df: DataFormat | None = None,
    fidelity: str = "HiFi3",
    tms: dict[int, list[Tm]] | None = None,
    attributes: dict[str, Any] | None = None,
    **fields: Any,
) -> NetOp:
    """An op that makes `shape`; every format is `df` unless said otherwise."""
    dfs = list(in_df) if in_df is not None else [df] * len(inputs)
    sources = [OpInput(s, f, (tms or {}).get(i)) for i, (s, f) in enumerate(zip(inputs, dfs, strict=True))]
    return NetOp(
        name,
        kind,
        grid,
        sources,
        blocking(shape, grid, ublock, order),
        out_df or df,
        loc,
        intermed_df=intermed_df or out_df or df,
        acc_df=acc_df or df,
        math_fidelity=fidelity,
        buf_size_mb=fields.pop("buf_size_mb", 2),
        attributes=attributes or {},
        **fields,
    )


def sub(
    name: str,
    kind: str,
    inputs: Sequence[str],
    output: str,
    *,
    mblock: tuple[int, int] = (1, 1),
    ublock: tuple[int, int] = (1, 1),
    **fields: Any,
) -> SubOp:
    """A sub-op of a fused op."""
    return SubOp(name, kind, list(inputs), output, mblock, ublock, **fields)


def fused(id: str, inputs: int, schedules: Sequence[Sequence[SubOp]], intermediates: int = 0) -> FusedOp:
    """A fused op with copies of the sub-ops."""
    return FusedOp(id, inputs, intermediates, copy.deepcopy([list(s) for s in schedules]))


def pointers(kind: str) -> dict[str, Any]:
    """The settings that a queue or ram needs."""
    if kind == "ram":
        return {
            "prologue": False,
            "epilogue": False,
            "zero": False,
            "rd_ptr_global": "$c_zero",
            "wr_ptr_global": "$c_zero",
        }
    return {"prologue": False, "epilogue": False, "zero": False, "rd_ptr_local": "$lptr", "rd_ptr_global": "$gptr"}


def build(
    ops: Sequence[NetOp] | dict[str, Sequence[NetOp]],
    shapes: dict[str, Shape] | None = None,
    queues: Sequence[Queue] = (),
    *,
    arch: str = "wormhole_b0",
    input_count: int = 1,
    chips: dict[str, int] | None = None,
    fused_ops: Sequence[FusedOp] = (),
    program: bool = True,
    outputs: bool = True,
) -> Netlist:
    """A netlist of these ops (one graph "g", or a dict of graphs).

    `shapes` gives host-fed queues by name; `queues` adds others; every op that nothing reads or holds gets a queue
    "<op>.out" unless `outputs` is False. Buffers are laid out one after the other; one program loops once over all
    graphs.
    """
    graphs = ops if isinstance(ops, dict) else {"g": ops}
    n = Netlist([arch])
    for name, shape in (shapes or {}).items():
        n.queues[name] = queue(name, shape)
    n.queues.update((q.name, q) for q in queues)
    for name, members in graphs.items():
        n.graphs[name] = NetGraph(name, (chips or {}).get(name, 0), input_count, {o.name: o for o in members})
    read = {i.source for _, o in n.ops() for i in o.inputs} | {q.input for q in n.queues.values()}
    for graph, o in list(n.ops()):
        if outputs and o.name not in read:
            n.queues[f"{o.name}.out"] = Queue(
                f"{o.name}.out",
                "queue",
                o.name,
                2,
                o.grid_size if not o.untilize_output else (1, 1),
                Blocking(o.blocking.t, o.blocking.mblock, o.blocking.ublock)
                if not o.untilize_output
                else blocking(o.blocking.tiles(o.grid_size)),
                o.out_df,
                graph.target_device,
                "dram",
                tile_dim=o.tile_dim,
            )
    n.fused_ops = {f.id: f for f in fused_ops}
    if n.fused_ops:
        n.order.append("fused_ops")
    lay_out(n)
    if program:
        n.programs.append(main_program(n))
    return n


def lay_out(n: Netlist, align: int = 64) -> None:
    """Gives every queue without buffers its own, one behind the other in channel 0 of its chip."""
    tables = Tables(n)
    address = START
    for q in n.queues.values():
        if q.buffers or not q.loc:
            continue
        size = -(-queue_buffer_bytes(tables, q, align) // align) * align
        for _ in range(q.grid_size[0] * q.grid_size[1]):
            q.buffers.append(QueueBuffer(0, address if q.loc == "dram" else address - START))
            address += size


def main_program(n: Netlist) -> Program:
    """One loop that executes every graph once, with settings for everything it reads from the host or keeps in rams."""
    body: list[Any] = [Var(True, {"$lptr": 0, "$gptr": 0}), Var(False, {"$c_zero": 0, "$c_one": 1}), Loop("$c_one")]
    for graph in n.graphs.values():
        read = dict.fromkeys(i.source for o in graph.ops.values() for i in o.inputs if i.source in n.queues)
        written = [q.name for q in n.queues.values() if q.type == "ram" and q.input in graph.ops]
        names = [
            name
            for name in dict.fromkeys([*read, *written])
            if n.queues[name].input == "HOST" or n.queues[name].type == "ram"
        ]
        body.append(Execute(graph.name, {name: QueueSetting(pointers(n.queues[name].type)) for name in names}))
    wrap = 2 * min((q.entries for q in n.queues.values() if q.input == "HOST"), default=1)
    count = max((g.input_count for g in n.graphs.values()), default=1)
    body += [VarInst("$lptr", "incwrap", [count, wrap]), VarInst("$gptr", "incwrap", [count, wrap]), EndLoop()]
    return Program("run", body)


def text(n: Netlist) -> str:
    return netlist.dumps(n)


def reread(n: Netlist) -> Netlist:
    """The same netlist with line numbers, as a user's file has them."""
    return netlist.loads(netlist.dumps(n), lenient=True)


# -- the netlists that tests start from ----------------------------------------------------------------------------
def unary(kind: str = "exp", **fields: Any) -> Netlist:
    return build([op("op0", kind, ["x"], **fields)], {"x": (1, 2, 2)})


def binary(kind: str = "add", **fields: Any) -> Netlist:
    return build([op("op0", kind, ["x", "y"], **fields)], {"x": (1, 2, 2), "y": (1, 2, 2)})


def matmul(attributes: dict[str, Any] | None = None, **fields: Any) -> Netlist:
    """(2, 4) x (4, 2) tiles with m_k 2, u_kt 2."""
    return build(
        [op("mm", "matmul", ["x", "w"], attributes={"m_k": 2, "u_kt": 2, **(attributes or {})}, **fields)],
        {"x": (1, 2, 4), "w": (1, 4, 2)},
    )


def matmul_bias(attributes: dict[str, Any] | None = None, **fields: Any) -> Netlist:
    attributes = {"m_k": 2, "u_kt": 2, "bias": True, **(attributes or {})}
    tms = {2: [tm("broadcast", r=2)]}
    return build(
        [op("mm", "matmul", ["x", "w", "b"], attributes=attributes, tms=tms, **fields)],
        {"x": (1, 2, 4), "w": (1, 4, 2), "b": (1, 1, 2)},
    )


def identity(attributes: dict[str, Any] | None = None, **fields: Any) -> Netlist:
    """A sparse matmul: 2 grid rows, 4 sparse tiles, 1 encoding tile each."""
    attributes = {
        "m_k": 2,
        "u_kt": 2,
        "identity": True,
        "num_sparse_tiles": 4,
        "num_index_tiles": 1,
        "sparse_tile_ptr_bits": 4,
        **(attributes or {}),
    }
    dfs = [DataFormat.Bfp2_b, F16B, DataFormat.RawUInt32]
    return build(
        [op("mm", "matmul", ["s", "x", "e"], grid=(2, 1), in_df=dfs, attributes=attributes, **fields)],
        {"x": (1, 4, 2)},
        [
            queue("s", (1, 2, 4), kind="ram", entries=1, grid=(2, 1), df=DataFormat.Bfp2_b),
            queue("e", (1, 2, 1), kind="ram", entries=1, grid=(2, 1), df=DataFormat.RawUInt32),
        ],
    )


def reduce(dim: str = "c", **fields: Any) -> Netlist:
    shape = {"r": (1, 1, 2), "c": (1, 2, 1), "z": (1, 2, 2)}[dim]
    attributes = {"dim": dim, "type": "max", **({"z": 2} if dim == "z" else {"m_k": 2, "u_kt": 1})}
    source = (2, 2, 2) if dim == "z" else (1, 2, 2)
    return build([op("red", "reduce", ["x"], shape, attributes=attributes, **fields)], {"x": source})


def gradient(**fields: Any) -> Netlist:
    """A matmul that accumulates into a ram."""
    attributes = {"m_k": 2, "u_kt": 2}
    n = build(
        [op("mm", "matmul", ["x", "w"], attributes=attributes, gradient_op=True, **fields)],
        {"x": (1, 2, 4), "w": (1, 4, 2)},
        [queue("acc", (1, 2, 2), source="mm", kind="ram", entries=1)],
    )
    execute = next(i for i in n.programs[0].instructions if isinstance(i, Execute))
    assert execute.settings is not None
    execute.settings["acc"].fields.update(prologue=True, epilogue=True, zero=True)
    return n


def fused_chain(**fields: Any) -> Netlist:
    """(x + y) * (x + y broadcast from one column) through dest and an intermediate."""
    schedule = [
        sub("s0", "add", ["input0", "input1"], "dest", mblock=(1, 2), ublock=(2, 1)),
        sub("s1", "exp", ["dest"], "intermed0", mblock=(1, 2), ublock=(2, 1)),
        sub(
            "s2",
            "multiply",
            ["intermed0", "input2"],
            "output",
            mblock=(1, 2),
            ublock=(2, 1),
            pop=["intermed0"],
            tms={1: [tm("tile_broadcast", "c")]},
        ),
    ]
    return build(
        [op("f", "fused_op", ["x", "y", "z"], ublock=(2, 1), attributes={"fused_op_id": "0"}, **fields)],
        {"x": (1, 2, 2), "y": (1, 2, 2), "z": (1, 2, 2)},
        fused_ops=[fused("0", 3, [schedule], 1)],
    )


def splice(**fields: Any) -> Netlist:
    attributes = {"input0": [0, 1, 1], "input1": [0, 1, 1]}
    return build(
        [op("cat", "splice", ["x", "y"], (1, 2, 2), attributes=attributes, **fields)], {"x": (1, 2, 1), "y": (1, 2, 1)}
    )


def two_chips() -> Netlist:
    """Two linked graphs on two chips."""
    return build(
        {"g0": [op("a", "nop", ["x"])], "g1": [op("b", "exp", ["a"])]}, {"x": (1, 2, 2)}, chips={"g0": 0, "g1": 1}
    )


def chain() -> Netlist:
    """Two ops in one graph, the second on another core."""
    return build([op("a", "nop", ["x"]), op("b", "exp", ["a"], loc=(0, 1))], {"x": (1, 2, 2)})


def two_counts() -> Netlist:
    """Two graphs that read one queue."""
    return build({"g0": [op("a", "nop", ["x"])], "g1": [op("c", "nop", ["x"])]}, {"x": (1, 2, 2)})


def untilized(kind: str = "nop", **fields: Any) -> Netlist:
    """An op that untilizes into its queue."""
    return unary(kind, untilize_output=True, **fields)


def depthwise() -> Netlist:
    """m_k 3 blocks of (2, 2) tiles."""
    return build(
        [op("dw", "depthwise", ["x", "w"], (1, 2, 2), attributes={"m_k": 3, "u_kt": 1})],
        {"x": (1, 2, 6), "w": (1, 3, 2)},
    )
