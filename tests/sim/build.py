"""Netlists made in code: just enough to say what a test is about."""

from __future__ import annotations

import dataclasses
from typing import Any

from tbuda_lab.core.formats import DataFormat, parse_format
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


def tm(text: Any) -> Tm:
    """ "transpose", ("hslice", 2), ("broadcast", "r", 4) or ("pad", rt, ct, value)."""
    if isinstance(text, str):
        return Tm(text)
    name, *args = text
    if name == "broadcast":
        return Tm(name, tuple(zip(args[::2], args[1::2], strict=True)))
    return Tm(name, tuple(args))


def df(name: str | DataFormat) -> DataFormat:
    return name if isinstance(name, DataFormat) else parse_format(name)


@dataclasses.dataclass
class Net:
    """Collects queues, ops and programs; `netlist()` hands them over."""

    arch: str = "wormhole_b0"
    default: str = "Float16_b"
    net: Netlist = dataclasses.field(init=False)
    address: int = 0x10000000

    def __post_init__(self) -> None:
        self.net = Netlist([self.arch])

    def queue(
        self,
        name: str,
        tiles: tuple[int, int, int],
        *,
        source: str = "HOST",
        kind: str = "queue",
        entries: int = 1,
        grid: tuple[int, int] = (1, 1),
        ublock: tuple[int, int] = (1, 1),
        fmt: str | None = None,
        order: str | None = None,
        **fields: Any,
    ) -> str:
        """tiles: (t, rt, ct) of an entry, on `grid` in ublocks of `ublock`."""
        t, rt, ct = tiles
        mblock = rt // (grid[0] * ublock[0]), ct // (grid[1] * ublock[1])
        buffers = []
        for _ in range(grid[0] * grid[1]):
            buffers.append(QueueBuffer(0, self.address))
            self.address += 0x1000000
        fields.setdefault("buffers", buffers)
        fields.setdefault("target_device", 0)
        self.net.queues[name] = Queue(
            name,
            kind,
            source,
            entries,
            grid,
            Blocking(t, mblock, ublock, order),
            df(fmt or self.default),
            loc="dram",
            **fields,
        )
        return name

    def ram(self, name: str, tiles: tuple[int, int, int], **fields: Any) -> str:
        return self.queue(name, tiles, kind="ram", **fields)

    def graph(self, name: str = "g", input_count: int = 1, device: int = 0) -> str:
        self.net.graphs[name] = NetGraph(name, device, input_count)
        return name

    def op(
        self,
        name: str,
        kind: str,
        inputs: list[str],
        tiles: tuple[int, int, int],
        *,
        graph: str = "g",
        grid: tuple[int, int] = (1, 1),
        ublock: tuple[int, int] = (1, 1),
        fmt: str | None = None,
        in_df: list[str] | None = None,
        tms: dict[int, list[Any]] | None = None,
        order: str = "r",
        pad: dict[int, Any] | None = None,
        unpad: dict[int, Any] | None = None,
        acc: str | None = None,
        intermed: str | None = None,
        fidelity: str = "HiFi4",
        tile_dim: tuple[int, int] | None = None,
        gradient: bool | None = None,
        **attributes: Any,
    ) -> str:
        if graph not in self.net.graphs:
            self.graph(graph)
        t, rt, ct = tiles
        out = df(fmt or self.default)
        ports = []
        for i, source in enumerate(inputs):
            result = df(in_df[i]) if in_df else self._format_of(source)
            listed = [tm(x) for x in (tms or {}).get(i, [])] or None
            ports.append(OpInput(source, result, listed, (pad or {}).get(i), (unpad or {}).get(i)))
        mblock = rt // (grid[0] * ublock[0]), ct // (grid[1] * ublock[1])
        self.net.graphs[graph].ops[name] = NetOp(
            name,
            kind,
            grid,
            ports,
            Blocking(t, mblock, ublock, order),
            out,
            grid_loc=(0, len(self.net.graphs[graph].ops)),
            intermed_df=df(intermed) if intermed else out,
            acc_df=df(acc) if acc else out,
            math_fidelity=fidelity,
            tile_dim=tile_dim,
            buf_size_mb=2,
            gradient_op=gradient,
            attributes=attributes,
        )
        return name

    def fused(self, identity: str, inputs: int, schedules: list[list[SubOp]]) -> None:
        self.net.fused_ops[identity] = FusedOp(identity, inputs, 8, schedules)

    def _format_of(self, source: str) -> DataFormat:
        if source in self.net.queues:
            return self.net.queues[source].df
        return next(g.ops[source].out_df for g in self.net.graphs.values() if source in g.ops)

    def program(self, name: str, instructions: list[Any]) -> None:
        self.net.programs.append(Program(name, instructions))

    def streaming(self, graph: str = "g", loops: int = 1, **settings: dict[str, Any]) -> None:
        """One program that executes a graph `loops` times: queues stream, rams are prologued."""
        self.net.programs.append(Program("run", self.instructions(graph, loops, settings)))

    def instructions(self, graph: str, loops: int, settings: dict[str, dict[str, Any]]) -> list[Any]:
        g = self.net.graphs[graph]
        chosen: dict[str, QueueSetting] = {}
        pointers, moves = {}, []
        read = dict.fromkeys(p.source for op in g.ops.values() for p in op.inputs if p.source in self.net.queues)
        for name in read:
            queue = self.net.queues[name]
            fields: dict[str, Any] = {"prologue": queue.type == "ram", "epilogue": False, "zero": False}
            if queue.type == "queue":
                pointers[f"$p_{name}"] = 0
                fields |= {"rd_ptr_local": f"$p_{name}", "rd_ptr_global": f"$p_{name}"}
                moves.append(VarInst(f"$p_{name}", "incwrap", [g.input_count, 2 * queue.entries]))
            else:
                fields |= {"rd_ptr_global": "$c_zero", "wr_ptr_global": "$c_zero"}
            chosen[name] = QueueSetting({**fields, **settings.get(name, {})})
        for name in settings:
            chosen.setdefault(name, QueueSetting(dict(settings[name])))
        declared = [Var(True, pointers)] if pointers else []
        return [*declared, Var(False, {"$c_zero": 0}), Loop(loops), Execute(graph, chosen), *moves, EndLoop()]

    def netlist(self) -> Netlist:
        return self.net


def sub(
    name: str,
    kind: str,
    inputs: list[str],
    output: str,
    tiles: tuple[int, int],
    *,
    tms: dict[int, list[Any]] | None = None,
    pop: list[str] | None = None,
    zero_point: float | None = None,
    **attributes: Any,
) -> SubOp:
    """A sub-op of a fused op; tiles: (rt, ct) of its output on one core."""
    return SubOp(
        name,
        kind,
        inputs,
        output,
        tiles,
        (1, 1),
        {i: [tm(x) for x in listed] for i, listed in (tms or {}).items()},
        pop,
        None,
        zero_point,
        attributes,
    )


def one(kind, shapes, out, *, fmts=None, arch="grayskull", in_kinds=None, count=2, **op):
    """A graph of one op fed by queues, float32 in and out."""
    net = Net(arch, "Float32")
    net.graph("g", count)
    names = []
    for i, shape in enumerate(shapes):
        names.append(
            net.queue(
                f"in{i}",
                shape,
                entries=count if (in_kinds or {}).get(i) != "ram" else 1,
                kind=(in_kinds or {}).get(i, "queue"),
                fmt=(fmts or {}).get(i, "Float32"),
            )
        )
    grid, ublock = op.get("grid", (1, 1)), op.get("ublock", (1, 1))
    net.op("op", kind, names, out, **op)
    net.queue(
        "out",
        out,
        source="op",
        entries=count,
        grid=grid,
        ublock=ublock,
        fmt=op.get("fmt", "Float32"),
        tile_dim=op.get("tile_dim"),
    )
    net.streaming()
    return net.netlist()
