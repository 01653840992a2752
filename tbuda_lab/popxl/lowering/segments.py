"""From blocks to a netlist and a host program: every group of grid instructions is a program of one netlist.

A value that several groups use lies in a slot: a ram of the device, a tensor of the host, or both. Programs read and
write rams; a variable is one. The last value of a state is written into its own slot where nothing reads the old one
after, else into another, and moved.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from typing import Any

import numpy as np

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind, Origin
from tbuda_lab.core.graph.phases import CACHE, ENTRIES, PHASE, RAM, ROLE, WRITES, forward_part
from tbuda_lab.core.ops.builder import Builder
from tbuda_lab.core.ops.unary import Buffer, Nop
from tbuda_lab.dialects import host_program as hp
from tbuda_lab.dialects.slots import Slices, Slot
from tbuda_lab.popxl.graph import Op
from tbuda_lab.popxl.kinds import Ground
from tbuda_lab.popxl.lowering.groups import Group, cut, drop_unread, needs_of
from tbuda_lab.popxl.lowering.placement import FLOATS, grid_array, place_instructions, write_ops
from tbuda_lab.popxl.lowering.predication import select_branches
from tbuda_lab.popxl.lowering.values import Block, Instr, Val
from tbuda_lab.popxl.utils import product


@dataclasses.dataclass
class Part:
    """A program of the netlist. instrs: what it does; why: what cut it from the part before."""

    number: int
    instrs: list[Instr]
    reads: list[str]
    writes: list[str]
    why: str = ""

    @property
    def program(self) -> str:
        return f"run_fwd_{self.number}"


class Segmenter:
    """Makes the core graph with a part for each group, the slots, and the steps of each block."""

    def __init__(self, blocks: dict[str, Block], device: DeviceSpec, selects: bool = False) -> None:
        """selects: whether conditionals are calculated on the grid where they can be; `selected`: how many are.
        `origins`: by step of the host the op that it is of; `ops`: by node of the graph."""
        self.graph = Graph("popxl")
        self.parts: list[Part] = []
        self.slots: dict[str, Slot] = {}
        self.slot_of: dict[Val, str] = {}
        self.origins: dict[hp.Step, Op] = {}
        self.ops: dict[str, Op] = {}
        self._streams: _LoopStreams | None = None
        self.programs: dict[str, hp.HostProgram] = {}
        for block in blocks.values():
            drop_unread(block)
            place_instructions(block, device)
        self.selected = sum(select_branches(block, device) for block in blocks.values()) if selects else 0
        for block in blocks.values():
            for val in block.reads():
                if val.state:
                    self._slot(val, val.state)
        for name, block in blocks.items():
            self.programs[name] = hp.HostProgram(tuple(("main", step) for step in self._steps(block)))

    # -- slots -----------------------------------------------------------------------------------------------
    def _slot(self, val: Val, name: str = "") -> str:
        """The slot of a value, made where there is none."""
        if val in self.slot_of:
            return self.slot_of[val]
        if not name:
            name = f"{val.label or 'value'}.v{len(self.slots)}"
        if name not in self.slots:
            self.slots[name] = Slot(name, val.shape, val.dtype.name)
        self.slot_of[val] = name
        if val.const is not None:
            self.slots[name].initial = val.const
        return name

    def _host(self, val: Val) -> str:
        """The slot of a value that the host reads or writes."""
        name = self._slot(val)
        self.slots[name].host = True
        return name

    # -- blocks ----------------------------------------------------------------------------------------------
    def _steps(self, block: Block) -> list[hp.Step]:
        groups = cut(block)
        moves = self._place_finals(block, groups)
        crossing = self._crossing(block, groups)
        steps: list[hp.Step] = []
        for number, group in enumerate(groups):
            if group.device:
                steps += self._device(group, crossing, number, groups)
            else:
                made = self._host_steps(group.instrs[0])
                if group.instrs[0].op is not None:
                    self.origins |= dict.fromkeys(made, group.instrs[0].op)
                steps += made
        if moves:
            steps.append(hp.Move(tuple(moves)))
        return steps

    def _place_finals(self, block: Block, groups: list[Group]) -> list[tuple[str, str]]:
        """Give final values the slots of their states where that is safe; what has to be moved at the end."""
        made_in = {v: k for k, group in enumerate(groups) for i in group.instrs for v in i.outs}
        reads: dict[str, list[int]] = {}
        for k, group in enumerate(groups):
            for instr in group.instrs:
                for v in needs_of(instr):
                    if v in self.slot_of:
                        reads.setdefault(self.slot_of[v], []).append(k)
        at_end = {self.slot_of[v] for s, v in block.final.items() if v in self.slot_of and self.slot_of[v] != s}
        moves: list[tuple[str, str]] = []
        for state, val in block.final.items():
            if state not in self.slots:
                self.slots[state] = Slot(state, val.shape, val.dtype.name)
            if self.slot_of.get(val) == state:
                continue
            at = made_in.get(val)
            free = at is not None and val not in self.slot_of and state not in at_end
            loops = free and groups[at].instrs[0].kind in ("Loop", "If")  # type: ignore[index]
            late = free and any(k > at for k in reads.get(state, ()))  # type: ignore[operator]
            same = free and at in reads.get(state, ()) and groups[at].device  # type: ignore[index]
            if free and not late and not loops and not (same and not self._behind(groups[at], val, state)):  # type: ignore[index]
                self.slot_of[val] = state
            else:
                moves.append((state, self._slot(val)))
        return moves

    def _behind(self, group: Group, val: Val, state: str) -> bool:
        """Whether a value depends, inside its group, on what the state held before."""
        made_by = {v: i for i in group.instrs for v in i.outs}
        todo, seen = [val], set()
        while todo:
            v = todo.pop()
            if self.slot_of.get(v) == state and v is not val:
                return True
            if v in seen or v not in made_by:
                continue
            seen.add(v)
            todo += made_by[v].ins
        return False

    def _crossing(self, block: Block, groups: list[Group]) -> set[Val]:
        """Values that another group, or the end of the block, reads."""
        crossing: set[Val] = {*block.final.values(), *block.results}
        for group in groups:
            made = {v for i in group.instrs for v in i.outs}
            for instr in group.instrs:
                crossing |= needs_of(instr) - made
        return crossing

    # -- parts of the grid -----------------------------------------------------------------------------------
    def _device(self, group: Group, crossing: set[Val], at: int, groups: list[Group]) -> list[hp.Step]:
        number = len(self.parts)
        part = Part(number, group.instrs, [], [], "" if at == 0 else groups[at - 1].instrs[0].kind)
        self.parts.append(part)
        names: dict[Val, str] = {}
        steps: list[hp.Step] = []
        if self._streams is not None:
            names |= self._streams.write_inputs(self.graph, number)
        for instr in group.instrs:
            b, before = Builder(self.graph, _origin(instr)), len(self.graph.nodes)
            operands = [self._operand(b, v, names, part) for v in instr.ins]
            for val, name in zip(instr.outs, write_ops(b, instr, operands), strict=True):
                names[val] = name
            if instr.op is not None:
                new = itertools.islice(reversed(self.graph.nodes), len(self.graph.nodes) - before)
                self.ops |= dict.fromkeys(new, instr.op)
        for instr in group.instrs:
            for val in instr.outs:
                if val in crossing:
                    self._write(val, names[val], part, instr)
        if self._streams is not None:
            self._streams.write_outputs(self.graph, number, names)
        steps.append(hp.Run(part.program, (("p_loop_count", 1),)))
        return steps

    def _ram(self, slot: str, part: Part) -> str:
        """The node of a slot's ram in a part."""
        name = f"{slot}.p{part.number}"
        if name not in self.graph:
            own = self.slots[slot]
            attrs = {ROLE: CACHE, RAM: slot}
            own.slices = Slices.of(own.shape)
            shape = own.shape if own.slices is None else own.slices.shape
            value = np.zeros(shape, np.int32 if own.dtype == "int32" else np.float32)
            self.graph.add(Node(name, NodeKind.PARAMETER, shape, value=value, attrs=attrs))
            own.rams.append(name)
        return name

    def _operand(self, b: Builder, val: Val, names: dict[Val, str], part: Part) -> str:
        """The node of an operand: made in the part, a constant, or read from a ram."""
        if val in names:
            return names[val]
        if val.const is not None:
            names[val] = b.constant(grid_array(val.const))
            return names[val]
        slot = self._slot(val)
        part.reads.append(slot)
        names[val] = b.op(Buffer(), self._ram(slot, part))  # all read a ram through one op, before it is written
        slices = self.slots[slot].slices
        if slices is not None:
            names[val] = Ground(b).join(names[val], slices, val.shape)
        return names[val]

    def _write(self, val: Val, name: str, part: Part, instr: Instr) -> None:
        slot = self._slot(val)
        ram = self._ram(slot, part)
        slices = self.slots[slot].slices
        if slices is not None:
            name = Ground(Builder(self.graph, _origin(instr))).cut(name, slices)
        if self.graph[name].kind is not NodeKind.OP or any(
            name in o.sources for o in self.graph.outputs
        ):  # a ram of its own for each writer
            name = Builder(self.graph, _origin(instr)).op(Nop(), name)
        out = Node(self.graph.unique(f"{ram}.write"), NodeKind.OUTPUT, self.graph[ram].shape, inputs=(Edge(name),))
        out.attrs = {PHASE: forward_part(part.number), WRITES: ram, RAM: slot}
        self.graph.add(out)
        part.writes.append(slot)

    # -- steps of the host -----------------------------------------------------------------------------------
    def _host_steps(self, instr: Instr) -> list[hp.Step]:
        if instr.kind == "Loop":
            return self._loop(instr)
        if instr.kind == "If":
            return self._branch(instr)
        ins = tuple(self._host(v) for v in instr.ins)
        outs = tuple(self._host(v) for v in instr.outs)
        if instr.kind == "HostLoad":
            return [hp.LoadStream(instr.attrs["stream"].tensor_id, outs[0])]
        if instr.kind == "HostStore":
            return [hp.StoreStream(instr.attrs["stream"].tensor_id, ins[0])]
        if instr.kind == "RemoteLoad":
            return [hp.LoadRemote(_buffer(instr), ins[0], outs[0])]
        if instr.kind == "RemoteStore":
            return [hp.StoreRemote(_buffer(instr), ins[1], ins[0])]
        if instr.kind == "Collective":
            return [_exchange(instr, ins[0], outs[0])]
        if instr.kind == "PrintTensor":
            return [hp.Print(ins[0], plain(instr.attrs))]
        return [hp.HostOp(instr.kind, ins, outs, plain(instr.attrs))]

    def _loop(self, instr: Instr) -> list[hp.Step]:
        (body,) = instr.blocks
        begin: list[tuple[str, str]] = []
        for carried in instr.carried:
            source = self._slot(carried.init)
            # where what comes out is to be moved on, it has a slot already: the loop carries its value in that one
            slot = self.slot_of.setdefault(carried.inside, self._slot(carried.out))
            assert carried.after is not None
            body.final[slot] = carried.after
            begin.append((slot, source))
        count = instr.attrs["count"]
        self._streams = streams = _streams_of(instr)
        if streams is not None:
            body.instrs = [i for i in body.instrs if i not in streams.transfers]
        inner = self._steps(body)
        self._streams = None
        steps: list[hp.Step] = [hp.Move(tuple(begin))] if begin else []
        if len(inner) == 1 and isinstance(inner[0], hp.Run):  # a pure body is a loop of the program
            run = hp.Run(inner[0].program, (("p_loop_count", count),))
            return [*steps, *(streams.around(count, [run]) if streams is not None else [run])]
        if streams is not None:
            inner = streams.around(1, inner)
        return [*steps, hp.HostLoop(count, tuple(inner))] if inner else steps

    def _branch(self, instr: Instr) -> list[hp.Step]:
        condition = self._host(instr.ins[0])
        outs = [self._slot(v) for v in instr.outs]
        branches = []
        for block in instr.blocks:
            block.final |= dict(zip(outs, block.results, strict=True))
            block.results = []
            branches.append(tuple(self._steps(block)))
        return [hp.Branch(condition, branches[0], branches[1])]


MOST_QUEUED = 64 << 20
"""Bytes of the queues of a loop's streams; where they would be more, the host runs the loop."""


@dataclasses.dataclass
class _LoopStreams:
    """The streams of a loop's body that are queues of its program, an entry for each turn. loads and stores: of the
    body, in order; inputs and outputs: (node, stream) of each, once they are written."""

    loads: list[Instr]
    stores: list[Instr]
    count: int
    inputs: list[tuple[str, str]] = dataclasses.field(default_factory=list)
    outputs: list[tuple[str, str]] = dataclasses.field(default_factory=list)

    @property
    def transfers(self) -> list[Instr]:
        return [*self.loads, *self.stores]

    def write_inputs(self, graph: Graph, part: int) -> dict[Val, str]:
        """Inputs of a part; the node of each value that is loaded."""
        names = {}
        for load in self.loads:
            (val,), stream = load.outs, load.attrs["stream"].tensor_id
            attrs: dict[str, Any] = {"dtype": "float32", ENTRIES: self.count}
            name = graph.unique(f"{stream}.p{part}")
            graph.add(Node(name, NodeKind.INPUT, val.shape, attrs=attrs, origin=_origin(load)))
            self.inputs.append((name, stream))
            names[val] = name
        return names

    def write_outputs(self, graph: Graph, part: int, names: dict[Val, str]) -> None:
        for store in self.stores:
            (val,), stream = store.ins, store.attrs["stream"].tensor_id
            own = Builder(graph, _origin(store)).op(Nop(), names[val])  # a queue of its own for each store
            attrs = {PHASE: forward_part(part), ENTRIES: self.count}
            name = graph.unique(f"{stream}.p{part}")
            graph.add(Node(name, NodeKind.OUTPUT, val.shape, inputs=(Edge(own),), attrs=attrs))
            self.outputs.append((name, stream))

    def around(self, count: int, steps: list[hp.Step]) -> list[hp.Step]:
        """The steps between what fills the inputs and what empties the outputs."""
        before: list[hp.Step] = [hp.Feed(count, tuple(self.inputs))] if self.inputs else []
        after: list[hp.Step] = [hp.Drain(count, tuple(self.outputs))] if self.outputs else []
        return [*before, *steps, *after]


def _streams_of(loop: Instr) -> _LoopStreams | None:
    """The streams of a loop whose body is loads, what the grid makes of them, and stores of that. None for others, and
    where the queues would be too large."""
    (body,) = loop.blocks
    loads = [i for i in body.instrs if i.kind == "HostLoad"]
    stores = [i for i in body.instrs if i.kind == "HostStore"]
    rest = [i for i in body.instrs if i.kind not in ("HostLoad", "HostStore")]
    if not (loads or stores) or not rest or any(i.place != "grid" for i in rest):
        return None
    loaded = {v for i in loads for v in i.outs}
    made = {v for i in rest for v in i.outs}
    stored = [v for i in stores for v in i.ins]
    read = {v for i in rest for v in i.ins}
    carried = {c.after for c in loop.carried}
    moved = [*loaded, *stored]
    if any(v.dtype not in FLOATS or not v.size for v in moved) or not set(stored) <= made:
        return None
    if not loaded <= read or loaded & carried:
        return None
    count = loop.attrs["count"]
    tiles = sum(
        int(np.prod([-(-n // 32) * 32 for n in (1, 1, *v.shape)[-2:]])) * max(1, product(v.shape[:-2])) for v in moved
    )
    return _LoopStreams(loads, stores, count) if 4 * tiles * count <= MOST_QUEUED else None


def _exchange(instr: Instr, slot: str, into: str) -> hp.Exchange:
    kind, group, given = instr.attrs["kind"], instr.attrs["group"], instr.ins[0]
    attrs = {name: value for name, value in instr.attrs.items() if name not in ("group", "kind")}
    size = given.size * np.dtype(given.dtype.as_numpy()).itemsize
    return hp.Exchange(kind, tuple(group.assignment), slot, into, plain(attrs), size)


def _buffer(instr: Instr) -> int:
    return int(instr.attrs["buffer"].remote_buffer_id)


def plain(attrs: dict[str, Any]) -> str:
    """Attributes as JSON."""

    def default(value: Any) -> Any:
        return value.name if hasattr(value, "name") else str(value)

    return json.dumps(attrs, default=default, sort_keys=True)


def _origin(instr: Instr) -> Origin:
    op = instr.op
    if op is None:
        return Origin(source_op=f"popxl.{instr.kind}")
    return Origin(module=op.graph.id, source_op=f"popxl.{op.kind}", location=op.location)
