"""The programs of a netlist: in which order a pass executes the epochs, and with which settings of their queues."""

from __future__ import annotations

from collections.abc import Mapping

from tbuda_lab.core.balancer.l1 import preloads
from tbuda_lab.core.balancer.types import Placement, QueuePlacement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.phases import ACCUMULATES, ONCE, inputs_of_run, netlist_part
from tbuda_lab.core.netlist import schema


def accumulating_ops(graph: Graph) -> set[str]:
    """Ops whose results are added up over the inputs of a batch: sums of gradients."""
    return {n.inputs[0].source for n in graph.outputs if n.attrs.get(ACCUMULATES)}


class ProgramWriter:
    """Writes the programs that execute emitted graphs. graphs, queues: of the netlist, by name; the graphs in the order
    of the placement's epochs."""

    def __init__(
        self, graph: Graph, placement: Placement, device: DeviceSpec, microbatch: int,
        graphs: Mapping[str, schema.NetGraph], queues: Mapping[str, schema.Queue],
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

    def _idle(self, queues: Mapping[str, schema.Queue]) -> dict[int, list[schema.NetGraph]]:
        """By epoch the empty graphs that are executed after it: the router wants a graph on every chip whose queues
        the ops of a temporal epoch read or write. They follow its last graph."""
        if self.device.arch == "grayskull" or len(self.device.chips) == 1:
            return {}
        written: dict[str, set[int]] = {}
        for q in queues.values():
            if q.loc == "dram" and isinstance(q.target_device, int):
                written.setdefault(q.input, set()).add(q.target_device)
        reserved: dict[int, set[int]] = {}
        last: dict[int, tuple[int, str]] = {}
        busy: dict[int, set[int]] = {}
        for epoch, net in zip(self.placement.epochs, self.nets, strict=True):
            if not net.ops:
                continue
            chips = reserved.setdefault(epoch.temporal, set())
            for op in net.ops.values():
                chips |= written.get(op.name, set())
                for source in (queues[i.source] for i in op.inputs if i.source in queues):
                    if source.loc == "dram" and isinstance(source.target_device, int):
                        chips.add(source.target_device)
            busy.setdefault(epoch.temporal, set()).add(epoch.chip)
            last[epoch.temporal] = epoch.index, net.name
        idle: dict[int, list[schema.NetGraph]] = {}
        for temporal, (index, name) in last.items():
            missing = sorted(reserved[temporal] - busy[temporal])
            if missing:
                idle[index] = [schema.NetGraph(f"{name}_idle_chip_{chip}", chip, self.microbatch) for chip in missing]
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
            if net.ops:
                instructions.append(schema.Execute(net.name, self._settings(net, pointer)))
            instructions += [schema.Execute(idle.name) for idle in self.idle.get(epoch.index, ())]
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
