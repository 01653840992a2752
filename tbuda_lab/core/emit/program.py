"""The programs of a netlist: in which order a pass executes the epochs, and with which settings of their queues."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

from tbuda_lab.core.balancer.l1 import preloads
from tbuda_lab.core.balancer.types import Epoch, Placement, QueuePlacement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.phases import ACCUMULATES, ONCE, inputs_of_run, netlist_part
from tbuda_lab.core.netlist import schema
from tbuda_lab.core.netlist.chips import needed_chips


def accumulating_ops(graph: Graph) -> set[str]:
    """Ops whose results are added up over the inputs of a batch: sums of gradients."""
    return {n.inputs[0].source for n in graph.outputs if n.attrs.get(ACCUMULATES)}


@dataclasses.dataclass(frozen=True)
class IdleGraphs:
    """Empty graphs that are executed before an epoch's own, and after it."""

    before: list[schema.NetGraph] = dataclasses.field(default_factory=list)
    after: list[schema.NetGraph] = dataclasses.field(default_factory=list)


class ProgramWriter:
    """Writes the programs that execute emitted graphs. graphs, queues: of the netlist, by name; the graphs in the order
    of the placement's epochs."""

    def __init__(
        self,
        graph: Graph,
        placement: Placement,
        device: DeviceSpec,
        microbatch: int,
        graphs: Mapping[str, schema.NetGraph],
        queues: Mapping[str, schema.Queue],
    ) -> None:
        self.graph, self.placement, self.device, self.microbatch = graph, placement, device, microbatch
        self.nets = tuple(graphs.values())
        self.accumulates = accumulating_ops(graph)
        self.rams: dict[str, list[QueuePlacement]] = {}  # by op the rams that it writes
        self.born: dict[int, list[str]] = {}  # by epoch the queues whose life begins with it
        self.freed: dict[int, list[str]] = {}
        for q in placement.queues.values():
            if q.writer:
                self.rams.setdefault(q.writer, []).append(q)
            if q.lifetime is not None:
                self.born.setdefault(q.lifetime[0], []).append(q.name)
                self.freed.setdefault(q.lifetime[1], []).append(q.name)
        self.idle = self._idle(queues)

    def _idle(self, queues: Mapping[str, schema.Queue]) -> dict[int, IdleGraphs]:
        """By epoch the empty graphs that are executed before and after it: those that the rules of several chips ask
        for in its temporal epoch (routing.md#rules-of-a-netlist, N10, N18, P12.programs), each with the input_count of
        the graphs beside it.

        A temporal epoch needs a graph on every chip whose DRAM it reads or writes and on the chips between; the first
        and the last of a program on every chip, for what runs last in one program and first in another would else be
        merged. For the same reason an epoch begins on a chip of the one before: with an empty graph, if with none of
        its own."""
        if self.device.arch == "grayskull" or len(self.device.chips) == 1:
            return {}
        temporal: dict[int, list[tuple[Epoch, schema.NetGraph]]] = {}
        for epoch, net in zip(self.placement.epochs, self.nets, strict=True):
            if net.ops:
                temporal.setdefault(epoch.temporal, []).append((epoch, net))
        filled: dict[str, list[schema.Queue]] = {}
        for queue in queues.values():
            filled.setdefault(queue.input, []).append(queue)
        needed = [
            needed_chips([net for _, net in members], queues, filled, self.device) for members in temporal.values()
        ]
        directions = [members[0][0].direction for members in temporal.values()]
        if len(set(directions)) > 1:
            every: set[int] = set().union(*needed)
            for at, direction in enumerate(directions):
                if direction not in directions[:at] or direction not in directions[at + 1 :]:
                    needed[at] |= every
        idle: dict[int, IdleGraphs] = {}
        before: set[int] = set()  # the chips of the temporal epoch before
        for members, chips in zip(temporal.values(), needed, strict=True):
            (first, begin), (last, end) = members[0], members[-1]
            busy = {epoch.chip for epoch, _ in members}
            apart = before and first.chip not in before
            if apart and not (chips - busy) & before:
                chips.add(min(before - busy, default=min(before)))
            count = begin.input_count
            graphs = [schema.NetGraph(f"{end.name}_idle_chip_{chip}", chip, count) for chip in sorted(chips - busy)]
            graphs.sort(key=lambda g: g.target_device not in before)
            if graphs:
                place = idle.setdefault((first if apart else last).index, IdleGraphs())
                (place.before if apart else place.after).extend(graphs)
            before = chips | busy
        return idle

    def write(self, direction: str) -> schema.Program:
        """`run_fwd_0` and `run_bwd_0`: a loop over microbatches that executes the epochs in order and then moves the
        pointers of the queues that they read; `run_opt_0` executes its epochs once. `run_fwd_1` and on are those of
        other subgraphs, such as that which decodes a token.

        `$p_zero_grad` of `run_bwd_0`: whether the sums of gradients begin anew with the first microbatch.
        """
        mine = [(e, net) for e, net in zip(self.placement.epochs, self.nets, strict=True) if e.direction == direction]
        read = {i.source for _, net in mine for op in net.ops.values() for i in op.inputs}
        streams = [q for q in self.placement.queues.values() if self._streams(q)]
        if any(e.direction != "fwd" for e in self.placement.epochs):
            streams = [q for q in streams if q.name in read]
        depths = sorted({q.entries for q in streams})
        pointer = {depth: i for i, depth in enumerate(depths)}
        static: dict[str, schema.Value | None] = {}
        for i in range(len(depths)):
            static[f"$lptr_q{i}"] = 0
            static[f"$gptr_q{i}"] = 0
        once, zeroes = direction == ONCE, direction == "bwd" and bool(self.accumulates)
        count = inputs_of_run(direction, self.microbatch)
        constants: dict[str, schema.Value | None] = {"$c_one": 1, "$c_zero": 0, "$c_microbatch_size": count}
        instructions: list[schema.Instruction] = []
        if not once:
            instructions.append(schema.Param(["$p_zero_grad", "$p_loop_count"] if zeroes else ["$p_loop_count"]))
        if zeroes:
            constants["$v_zero_grad"] = 0
        instructions.append(schema.Var(False, constants))
        if zeroes:
            instructions.append(schema.VarInst("$v_zero_grad", "set", ["$p_zero_grad"]))
        if static or not once:
            instructions.append(schema.Var(True, static))
        if not once:
            instructions.append(schema.Loop("$p_loop_count"))
        for epoch, net in mine:
            born, freed = self.born.get(epoch.index), self.freed.get(epoch.index)
            if born:
                instructions.append(schema.Allocate(born))
            idle = self.idle.get(epoch.index, IdleGraphs())
            instructions += [schema.Execute(empty.name) for empty in idle.before]
            if net.ops:
                instructions.append(schema.Execute(net.name, self._settings(net, pointer)))
            instructions += [schema.Execute(empty.name) for empty in idle.after]
            if freed:
                instructions.append(schema.Deallocate(freed))
        for depth, i in pointer.items():
            for which in ("gptr", "lptr"):
                name = f"${which}_q{i}"
                instructions.append(schema.VarInst(name, "incwrap", ["$c_microbatch_size", 2 * depth]))
        if zeroes:
            instructions.append(schema.VarInst("$v_zero_grad", "set", ["$c_zero"]))
        if not once:
            instructions.append(schema.EndLoop())
        return schema.Program(f"run_{netlist_part(direction)}", instructions)

    def _direction(self, op: str) -> str:
        return self.placement.epochs[self.placement.ops[op].epoch].direction

    def _streams(self, q: QueuePlacement) -> bool:
        return q.kind in ("input", "e2e") and q.access == "queue" and q.lifetime is None

    def _settings(self, net: schema.NetGraph, pointer: dict[int, int]) -> dict[str, schema.QueueSetting] | None:
        used = dict.fromkeys(i.source for op in net.ops.values() for i in op.inputs)
        used |= dict.fromkeys(q.name for op in net.ops for q in self.rams.get(op, ()))
        added = {q.name for op in net.ops if op in self.accumulates for q in self.rams[op]}
        settings = {}
        for name in used:
            if name not in self.placement.queues:
                continue
            q = self.placement.queues[name]
            prologue = q.prologue and self._is_preloaded(net, q)
            fields: dict[str, schema.Value] = {"prologue": prologue, "epilogue": False, "zero": False}
            if name in added:
                fields = {"prologue": True, "epilogue": True, "zero": "$v_zero_grad"}
            if q.access == "ram":
                fields |= {"rd_ptr_global": "$c_zero", "wr_ptr_global": "$c_zero"}
            elif q.lifetime is not None:
                # Allocated anew in every pass of the loop, so its pointers start at 0 each time.
                fields |= {"rd_ptr_local": "$c_zero", "rd_ptr_global": "$c_zero"}
            elif self._streams(q):
                i = pointer[q.entries]
                fields |= {"rd_ptr_local": f"$lptr_q{i}", "rd_ptr_global": f"$gptr_q{i}"}
            else:
                fields |= {"rd_ptr_local": "$c_zero", "rd_ptr_global": "$c_zero"}
                if not prologue:
                    fields["rd_ptr_autoinc"] = 0  # a constant is read again for every input
            settings[name] = schema.QueueSetting(fields)
        return settings or None

    def _is_preloaded(self, net: schema.NetGraph, q: QueuePlacement) -> bool:
        """Whether all readers in a graph keep a queue's contents in L1; others may stream the same queue. A program
        does not load ahead what it changes."""
        if q.kind not in ("parameter", "constant"):
            return True
        if q.writer and self._direction(q.writer) == self._direction(next(iter(net.ops))):
            return False
        for op in net.ops:
            for port, edge in enumerate(self.graph[op].inputs):
                table, at = self.placement.models[op], self.placement.ops[op].row
                if edge.source != q.source or table.profile is None:
                    continue
                if not preloads(table.profile, port, table.rows[at : at + 1])[0]:
                    return False
        return True
