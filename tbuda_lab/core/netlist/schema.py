"""The netlist as dataclasses. `None` means "not written", so that a file survives load and dump unchanged.

Order is kept: dicts are in file order, `Netlist.order` holds the order of the top-level sections. A scalar that a
program may bind to a variable is `int | bool | str`, where a string starts with "$". A mandatory field that is not
written holds what the backend holds then: -1, (-1, -1), (0, 0), "" or `DataFormat.Invalid`; no valid netlist has it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any, NamedTuple

from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.formats import DataFormat


@dataclasses.dataclass(frozen=True)
class Finding:
    """One broken rule at one element.

    `where` is the path of the element, such as ("graphs", "fwd_0", "matmul_1", "ublock"); `line` and `column` are
    1-based, None for a netlist made in code; `fix` says what would be legal.
    """

    severity: str  # "error" | "warning"
    rule: str
    where: tuple[str, ...]
    message: str
    fix: str = ""
    line: int | None = None
    column: int | None = None

    def text(self, path: str | None = None) -> str:
        """One line: file, place, element, what is wrong, the rule, what would be legal."""
        place = f"{path or '<netlist>'}:"
        if self.line is not None:
            place += f"{self.line}:{self.column}:"
        line = f"{place} {self.severity}: {'/'.join(self.where) or 'netlist'}: {self.message} [{self.rule}]"
        return " ".join((f"{line}; {self.fix}" if self.fix else line).split())

    def diagnostic(self, path: str | None = None) -> Diagnostic:
        """The same for a `NetlistError`."""
        where = "/".join(self.where) or "netlist"
        if self.line is not None:
            where = f"{path or '<netlist>'}:{self.line}:{self.column} {where}"
        return Diagnostic(self.severity, where, self.rule, self.message, self.fix)

    def __str__(self) -> str:
        return self.text()


Value = int | float | bool | str
TileDim = tuple[int, int]


@dataclasses.dataclass
class Tm:
    """One entry of an `input_N_tms` list: transpose, broadcast, hslice, hstack, vslice, vstack, pad, tile_broadcast.

    args: broadcast -> (("r", 4), ("c", 2)) in written order; h/v slice/stack -> (n,); pad -> (rt, ct, value);
    tile_broadcast -> ("r",); transpose -> ().
    """

    name: str
    args: tuple[Any, ...] = ()


class NoTms(list[Tm]):
    """An empty TM list that is written as a single word, as `input_0_tms: None` is; it equals any empty list."""

    def __init__(self, word: str = "") -> None:
        super().__init__()
        self.word = word

    def __deepcopy__(self, memo: object) -> NoTms:
        return NoTms(self.word)

    def __reduce__(self) -> tuple[type[NoTms], tuple[str]]:
        return NoTms, (self.word,)


@dataclasses.dataclass
class Blocking:
    """How one core cuts its part of a tensor: `t` slices in time, each of mblock (rows, columns) ublocks, each of
    ublock (rows, columns) tiles."""

    t: int
    mblock: tuple[int, int]
    ublock: tuple[int, int]
    order: str | None = None  # ublock_order "r" or "c"; None = not written

    def tiles(self, grid: tuple[int, int]) -> tuple[int, int, int]:
        """(z, rt, ct) of the whole tensor on a grid of (rows, columns)."""
        return self.t, grid[0] * self.mblock[0] * self.ublock[0], grid[1] * self.mblock[1] * self.ublock[1]


@dataclasses.dataclass
class QueueBuffer:
    """Where one core's part of a queue lies: DRAM channel (of host memory: its region) and byte address."""

    channel: int
    address: int
    bare: bool = False  # a host buffer written as an address without a channel
    alone: bool = False  # and that without a list around it: `host: 0x0`


@dataclasses.dataclass
class Queue:
    """A queue or ram in DRAM or host memory. grid_size: (rows, columns) of its buffers, which lie row by row in
    `buffers`; entries: tensors that it holds; target_device: the chip, or several."""

    name: str
    type: str  # "queue" | "ram"
    input: str  # "HOST" or the producing op
    entries: int
    grid_size: tuple[int, int]
    blocking: Blocking
    df: DataFormat
    target_device: int | list[int]
    loc: str  # "dram" | "host"
    buffers: list[QueueBuffer] = dataclasses.field(default_factory=list)
    tile_dim: TileDim | None = None
    layout: str | None = None
    alias: str | None = None
    input_tms: list[Tm] | None = None
    read_ports: list[int] | None = None
    write_ports: list[int] | None = None
    other: dict[str, Any] = dataclasses.field(default_factory=dict)  # written but unused (e.g. `host` beside loc: dram)


@dataclasses.dataclass
class OpInput:
    """An operand of an op: the op or queue that gives it, its format, and what happens to it on the way."""

    source: str
    df: DataFormat
    tms: list[Tm] | None = None
    pad: dict[str, Value] | None = None
    unpad: dict[str, Value] | None = None


@dataclasses.dataclass
class NetOp:
    """An op on its cores. grid_size: (rows, columns); inputs: in the order of `input_0`, `input_1`, ...; buffer sizes
    are in mblocks (buf_size_mb), bytes (overlay_size) or tiles."""

    name: str
    type: str
    grid_size: tuple[int, int]
    inputs: list[OpInput]
    blocking: Blocking
    out_df: DataFormat
    grid_loc: tuple[int, int] | None = None  # (row, column); ethernet_datacopy has none
    grid_transpose: bool | None = None
    intermed_df: DataFormat | None = None
    acc_df: DataFormat | None = None
    math_fidelity: str | None = None
    tile_dim: TileDim | None = None
    buf_size_mb: int | None = None
    overlay_size: int | None = None
    input_buf_min_size_tiles: list[int] | None = None
    input_dram_io_buf_size_tiles: list[int] | None = None
    untilize_output: bool | None = None
    gradient_op: bool | None = None
    forked_dram_inputs: list[dict[str, str]] | None = None
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class NetGraph:
    """An epoch on one chip: ops that run together, for `input_count` inputs at a time."""

    name: str
    target_device: int | list[int]
    input_count: int
    ops: dict[str, NetOp] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class SubOp:
    """A step of a fused op. inputs: `inputN`, `intermedN` or `dest`; output: `intermedN`, `dest` or `output`; tms: by
    number of the operand; pop, pop_last: operands that no later step reads."""

    name: str
    type: str
    inputs: list[str]
    output: str
    mblock: tuple[int, int]
    ublock: tuple[int, int]
    tms: dict[int, list[Tm]] = dataclasses.field(default_factory=dict)
    pop: list[str] | None = None
    pop_last: list[str] | None = None
    zero_point: float | None = None
    attributes: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class FusedOp:
    """What a fused op computes: schedules of steps, and how many inputs and intermediates they have."""

    id: str
    inputs: int
    intermediates: int
    schedules: list[list[SubOp]]
    other: dict[str, Any] = dataclasses.field(default_factory=dict)


# -- programs ----------------------------------------------------------------------------------------------------
@dataclasses.dataclass
class Param:
    """`param`: names that the host gives values to for each run; they start with "$"."""

    names: list[str]


@dataclasses.dataclass
class Var:
    """`var` or `staticvar`; `values[name]` is None where the list form declared it (value 0)."""

    static: bool
    values: dict[str, Value | None]
    as_list: bool = False


@dataclasses.dataclass
class VarInst:
    """`varinst`: write what an opcode gives for these arguments to a variable."""

    out: str
    opcode: str  # set add mul inc incwrap
    args: list[Value]


@dataclasses.dataclass
class Loop:
    """`loop`: run what follows, up to `endloop`, so many times."""

    count: Value


@dataclasses.dataclass
class EndLoop:
    """`endloop`. as_map: written with a colon, as a map without a value."""

    as_map: bool = False


@dataclasses.dataclass
class QueueSetting:
    """Written fields only, in written order: prologue epilogue zero read_only rd_ptr_local rd_ptr_global wr_ptr_global
    rd_ptr_autoinc global_rdptr_autoinc global_wrptr_autoinc."""

    fields: dict[str, Value]


@dataclasses.dataclass
class Execute:
    """`execute`: run a graph, with settings by name of the queues that it reads or writes."""

    graph: str
    settings: dict[str, QueueSetting] | None = None


@dataclasses.dataclass
class Allocate:
    """`allocate_queue`: the queues are used from here on."""

    queues: list[str]


@dataclasses.dataclass
class Deallocate:
    """`deallocate_queue`: the addresses of the queues are free for others."""

    queues: list[str]


Instruction = Param | Var | VarInst | Loop | EndLoop | Execute | Allocate | Deallocate


@dataclasses.dataclass
class Program:
    """A program: instructions in order."""

    name: str
    instructions: list[Instruction] = dataclasses.field(default_factory=list)


class SourceSpan(NamedTuple):
    """Where an element stands in its file."""

    line: int  # 1-based
    column: int  # 1-based


@dataclasses.dataclass
class Netlist:
    """A whole netlist: architectures, and queues, graphs and fused ops by name."""

    arch: list[str]  # as written; one entry unless the file gives a list
    queues: dict[str, Queue] = dataclasses.field(default_factory=dict)
    graphs: dict[str, NetGraph] = dataclasses.field(default_factory=dict)
    programs: list[Program] = dataclasses.field(default_factory=list)
    fused_ops: dict[str, FusedOp] = dataclasses.field(default_factory=dict)
    extra: dict[str, Any] = dataclasses.field(default_factory=dict)  # unknown top-level sections, plain data
    order: list[str] = dataclasses.field(default_factory=lambda: ["devices", "queues", "graphs", "programs"])
    arch_as_list: bool = False
    source: dict[tuple[str, ...], SourceSpan] = dataclasses.field(default_factory=dict, compare=False, repr=False)
    path: str | None = dataclasses.field(default=None, compare=False)
    # what reading the text already refused; empty unless the netlist was read leniently
    problems: list[Finding] = dataclasses.field(default_factory=list, compare=False, repr=False)

    @property
    def archs(self) -> list[str]:
        """The written archs in lower case, the spelling that devices go by."""
        return [a.lower() for a in self.arch]

    def ops(self) -> Iterator[tuple[NetGraph, NetOp]]:
        """All ops of all graphs in file order, each with its graph."""
        for graph in self.graphs.values():
            for op in graph.ops.values():
                yield graph, op

    def span(self, where: tuple[str, ...]) -> SourceSpan | None:
        """The line and column of an element, or of the nearest element around it that has one."""
        while where:
            if where in self.source:
                return self.source[where]
            where = where[:-1]
        return None
