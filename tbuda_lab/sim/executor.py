"""The executor: a netlist's queues, graphs and programs, run with NumPy."""

from __future__ import annotations

import collections
import dataclasses
import math
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence

import numpy as np

from tbuda_lab.core.errors import Cancelled, InputError, QueueError
from tbuda_lab.core.netlist.check.registry import facts_of, leading_arch
from tbuda_lab.core.netlist.expand import expand
from tbuda_lab.core.netlist.schema import Blocking, Execute, Netlist
from tbuda_lab.sim import executions, topology
from tbuda_lab.sim import io as io_module
from tbuda_lab.sim.arrays import Array, misfit, shape_text, too_large
from tbuda_lab.sim.executions import Execution
from tbuda_lab.sim.io import QueueIo, RamIo
from tbuda_lab.sim.numerics import Numerics
from tbuda_lab.sim.plan import EpochPlan, PlanStep, Write, check_shape, plan_epoch
from tbuda_lab.sim.program import Cancel, ProgramRun, Progress, WrittenSettings, check_params
from tbuda_lab.sim.sparse import as_array

OnOp = Callable[[str, Array], None]
OnStep = Callable[[str, int], None]

_TURNS = 64
_HELD = 1 << 28  # bytes


@dataclasses.dataclass
class Stats:
    """Counts since the executor was made; `op_seconds` is the time spent in each op."""

    executes: int = 0
    inputs: int = 0
    ops: int = 0
    op_seconds: dict[str, float] = dataclasses.field(default_factory=lambda: collections.defaultdict(float))


class Executor:
    """Runs a netlist.

    mode: "exact" (float32, no rounding), "golden" (float32 arithmetic on rounded inputs) or "device" (rounding at every
    pack); see `numerics`. arch: an arch, board or device descriptor, by default the netlist's own; decides the details
    in which archs differ (Tf32, what runs together). seed: of dropout and stochastic rounding. keep: names of ops whose
    outputs `kept` holds after a run, or "all". on_op: called with the name and output (n, z, R, C) of every op; the
    array is only valid during the call. on_step, an attribute: called with the name of an op and for how many inputs it
    has worked. reread: False leaves out golden mode's rounding of what ops read (Tf32 on wormhole, small block
    formats), as PyBuda's own verification does.

    Raises `NetlistError` for a netlist that cannot run, `UnknownDevice`, and `QueueError` when a queue over- or
    underflows.
    """

    def __init__(
        self,
        netlist: Netlist,
        *,
        mode: str = "golden",
        arch: str | None = None,
        seed: int = 0,
        keep: Collection[str] | str = (),
        on_op: OnOp | None = None,
        reread: bool = True,
    ) -> None:
        if mode not in ("exact", "golden", "device"):
            raise InputError(f"unknown mode {mode!r}: exact, golden or device")
        self.arch = facts_of(arch).arch if arch else leading_arch(netlist)
        self.original = netlist
        self.netlist = expand(netlist)
        self.numerics = Numerics(mode, self.arch, seed, reread)
        self.on_op = on_op
        self.on_step: OnStep | None = None
        self.keep = keep
        self.intermediates: dict[str, Array] = {}
        self.stats = Stats()
        for queue in self.netlist.queues.values():
            if queue.entries < 1 or queue.type not in ("queue", "ram"):
                raise misfit(
                    f"queue {queue.name!r}",
                    "Q9",
                    f"{queue.entries} entries of type {queue.type!r}",
                    "type queue or ram, at least one entry",
                )
            _check_blocking(f"queue {queue.name!r}", queue.blocking, queue.grid_size)
        for graph in self.netlist.graphs.values():
            if graph.input_count < 1:
                raise misfit(f"graph {graph.name!r}", "G1", f"input_count is {graph.input_count}", "at least 1")
            for op in graph.ops.values():
                _check_blocking(f"op {op.name!r}", op.blocking, op.grid_size)
        readers: dict[str, list[str]] = {}
        others: set[str] = set()  # what is read otherwise than as the second operand of a product
        for graph in self.netlist.graphs.values():
            for op in graph.ops.values():
                for index, port in enumerate(op.inputs):
                    readers.setdefault(port.source, []).append(op.name)
                    if index != 1 or op.type != "matmul" or op.attributes.get("identity"):
                        others.add(port.source)
        self.dynamic = topology.dynamic_queues(self.netlist)
        self.io: dict[str, QueueIo | RamIo] = io_module.build(
            self.netlist.queues.values(), readers, self.dynamic, self.numerics.exact
        )
        for name in readers.keys() - others:
            if name in self.io:
                self.io[name].is_weight = True
        self._allocated: set[str] = set()
        self._epochs = topology.epochs(self.netlist, self.arch)
        self.plans: dict[tuple[str, ...], EpochPlan] = {}
        self._statics: dict[str, dict[str, int]] = {}
        self.written_settings: dict[int, WrittenSettings] = {}  # by the id of an execute of the netlist
        self._backlog: dict[str, list[Array]] = {}
        self._together = False  # whether executions wait for those that can be computed with them
        self._waiting: list[Execution] = []
        self._turns: dict[tuple[tuple[str, ...], tuple[str, ...]], int] = {}  # by inputs and outputs
        self._least: dict[tuple[str, ...], int] = {}  # the level of the last one of an epoch that waits

    # -- the host's side ------------------------------------------------------------------------------------------
    def push(self, queue: str, array: Array, times: int = 1) -> None:
        """Puts one entry (t, R, C) or several (n, t, R, C) into a queue, float32, int32 for integer formats and raw
        words (tile after tile), each so many times: inputs that are the same entry are computed once. Into a ram: slots
        0, 1, ... Raises `QueueError` when it is full."""
        io = self._find(queue)
        if isinstance(io, RamIo):
            self.write(queue, array)
            return
        for entry in io.encode(array):
            for _ in range(times):
                io.store(io.push_slot(), entry)

    def feed(self, queue: str, array: Array) -> None:
        """As `push`, but what does not fit is pushed later, as soon as programs have popped."""
        io = self._find(queue)
        if isinstance(io, RamIo):
            self.write(queue, array)
            return
        self._backlog.setdefault(queue, []).extend(io.encode(array))
        self._refill()

    def write(self, ram: str, array: Array, slot: int = 0) -> None:
        """Writes one entry (t, R, C) to a slot, or several to consecutive ones."""
        io = self._find(ram)
        entries = io.encode(array)
        if not 0 <= slot <= io.entries - len(entries):
            raise QueueError(f"slots {slot} to {slot + len(entries) - 1} of {io.describe()}, which has {io.entries}")
        for i, entry in enumerate(entries):
            io.store(slot + i, entry)

    def pop(self, queue: str) -> Array:
        """The oldest entry of a queue, (t, R, C), rounded to its format; of a ram, slot 0. Raises `QueueError` when
        there is none."""
        io = self._find(queue)
        if isinstance(io, RamIo):
            return self.read(queue)
        return io.decode(io.slot(io.pop_slot()))

    def listen(self, queue: str) -> None:
        """From now on the host takes every entry of a queue that only the host reads as soon as it is pushed, so
        that the queue never fills; `pop_all` hands them over."""
        io = self._find(queue)
        if not isinstance(io, QueueIo) or io.readers or io.from_host:
            raise InputError(f"only the host may read {io.describe()} for the host to empty it during a run")
        io.sink = io.sink or []

    def pop_all(self, queue: str) -> Array:
        """All entries of a queue, (n, t, R, C), oldest first; of a ram, all slots."""
        io = self._find(queue)
        count = len(io.sink or ()) if io.sink is not None else io.occupancy if isinstance(io, QueueIo) else io.entries
        problem = too_large(4 * max(count, 1) * math.prod(io.shape))
        if problem:
            raise misfit(
                io.describe(),
                "memory",
                f"{count} entries of (z, R, C) = {shape_text(io.shape)}: {problem}",
                "give it fewer entries",
            )
        if io.sink is not None:
            taken, io.sink = io.sink, []
            return np.stack([io.decode(io.compute(x)) for x in [*taken, io.blank()]])[: len(taken)]
        entries = [self.pop(queue) if isinstance(io, QueueIo) else self.read(queue, i) for i in range(count)]
        return np.stack(entries) if entries else io.decode(io.blank())[None][:0]

    def read(self, name: str, slot: int = 0) -> Array:
        """What a slot of a ram or queue holds, (t, R, C), without moving a pointer."""
        io = self._find(name)
        if not 0 <= slot < io.entries:
            raise QueueError(f"slot {slot} of {io.describe()}, which has {io.entries}")
        return io.decode(io.slot(slot))

    # -- programs -------------------------------------------------------------------------------------------------
    def run(
        self,
        program: str | None = None,
        params: Mapping[str, int] | None = None,
        progress: Progress | None = None,
        cancel: Cancel | threading.Event | None = None,
        max_steps: int | None = None,
    ) -> None:
        """Runs one program, or all in file order. Params that are not given are 1; static variables keep their
        values from call to call. progress(executes so far, graph) is called between graphs; cancel, an event or a
        function, is asked between instructions and ops, and if it is set or true, `Cancelled` is raised.
        max_steps: a program that runs more instructions and inputs is refused with a `NetlistError`, a loop that must
        take more before its first turn."""
        cancelled = cancel.is_set if isinstance(cancel, threading.Event) else cancel
        chosen = [p for p in self.netlist.programs if program is None or p.name == program]
        if not chosen:
            names = ", ".join(p.name for p in self.netlist.programs) or "none"
            raise InputError(f"there is no program {program!r}; there are {names}")
        values = dict(params or {})
        check_params(chosen, values)
        with np.errstate(all="ignore"):
            for each in chosen:
                statics = self._statics.setdefault(each.name, {})
                try:
                    ProgramRun(each, self, statics, values, progress, cancelled, max_steps).run()
                except Cancelled:
                    self._waiting = []
                    raise
                finally:
                    self._compute(cancelled)

    def at_once(self, inputs: Sequence[str], outputs: Sequence[str]) -> int:
        """How many turns of the program's loop over inputs `stream` is given best: 1 where that gains nothing (large
        tensors; ops or outputs that somebody watches) or cannot be (several programs; inputs or outputs that are rams
        or that ops read), at most 64, and fewer where what the epochs of all those turns hand on would take more than
        256 MB."""
        if self.on_op is not None or self.keep or len(self.netlist.programs) != 1:
            return 1
        key = (tuple(inputs), tuple(outputs))
        if key not in self._turns:
            self._turns[key] = self._useful_turns(*key)
        return self._turns[key]

    def _useful_turns(self, inputs: tuple[str, ...], outputs: tuple[str, ...]) -> int:
        ends = [self._find(name) for name in (*inputs, *outputs)]
        if any(isinstance(io, RamIo) for io in ends) or any(io.readers for io in ends[len(inputs) :]):
            return 1
        executed = [i.graph for i in self.netlist.programs[0].instructions if isinstance(i, Execute)]
        plans = [self.plan(each) for each in dict.fromkeys(self._epochs[graph] for graph in executed)]
        useful = max((p.chunk // p.input_count for p in plans if not p.sequential), default=1)
        held = sum(4 * math.prod(io.shape) for io in ends[: len(inputs)])
        held += sum(4 * p.input_count * math.prod(w.io.shape) for p in plans for w in p.writes)
        return max(1, min(useful, _TURNS, _HELD // max(held, 1)))

    def stream(
        self,
        inputs: Mapping[str, Array],
        outputs: Sequence[str],
        params: Mapping[str, int],
        progress: Progress | None = None,
        cancel: Cancel | threading.Event | None = None,
    ) -> list[Array]:
        """Feeds entries (n, t, R, C), runs the programs with `params` (a loop count) and returns all entries of each
        output. The results are those of `run`, but executions of an epoch that need nothing of one another, as the
        turns of a loop over inputs, go through its ops side by side: faster where an op's tensors are small. All that
        epochs hand on is held until the end. progress is called when what it speaks of is computed. Raises what `feed`,
        `listen` and `run` raise."""
        for name in outputs:
            self.listen(name)
        self._together = True
        try:
            for name, array in inputs.items():
                self.feed(name, array)
            self.run(params=params, progress=progress, cancel=cancel)
            return [self.pop_all(name) for name in outputs]
        finally:
            self._together = False
            self._backlog.clear()
            for name in outputs:
                self._find(name).sink = None

    def epoch_of(self, graph: str) -> tuple[str, ...] | None:
        """The graphs that run together with this one, or None if there is no such graph."""
        return self._epochs.get(graph)

    def input_count(self, graph: str) -> int:
        return self.netlist.graphs[graph].input_count

    def zero(self, queue: str) -> None:
        """Forgets the accumulated value of the gradient op that fills a queue."""
        producer = self.netlist.queues[queue].input
        for plan in self.plans.values():
            history = plan.gradient.get(producer)
            if history is not None:
                history.last = None

    def allocate(self, queue: str) -> None:
        """Dynamic allocation: pointers start at zero. Raises `QueueError` if it is allocated already or lies on
        another one that is."""
        io = self._find(queue)
        if queue in self._allocated:
            raise QueueError(f"{io.describe()} is allocated twice")
        for other in sorted(self._allocated):
            if io_module.overlap(io.spec, self.io[other].spec):
                raise QueueError(f"{io.describe()} is allocated over {self.io[other].describe()}, which is in use")
        self._allocated.add(queue)
        io.reset()

    def deallocate(self, queue: str) -> None:
        """Raises `QueueError` if the queue is not allocated."""
        io = self._find(queue)
        if queue not in self._allocated:
            raise QueueError(f"{io.describe()} is deallocated and was not allocated")
        self._allocated.remove(queue)
        if isinstance(io, QueueIo):
            io.clear()

    def state(self) -> Callable[[], None]:
        """What lies in queues and rams, which are allocated, and static variables: called, the result puts all of it
        back as it is now. Entries are kept, not copied."""
        held = {name: {**vars(io), "slots": dict(io.slots)} for name, io in self.io.items()}
        allocated, statics = set(self._allocated), {name: dict(own) for name, own in self._statics.items()}

        def put_back() -> None:
            for name, own in held.items():
                vars(self.io[name]).update({**own, "slots": dict(own["slots"])})
            self._allocated = set(allocated)
            self._statics = {name: dict(own) for name, own in statics.items()}
            self._waiting, self._least = [], {}

        return put_back

    def statics(self, program: str) -> dict[str, int]:
        """A program's static variables as they stand."""
        return dict(self._statics.get(program, {}))

    # -- epochs ---------------------------------------------------------------------------------------------------
    def run_epoch(
        self, graphs: tuple[str, ...], cancel: Cancel | None = None, ended: Callable[[], None] | None = None
    ) -> None:
        """Run the graphs of an epoch for all their inputs. ended: called when all is computed, which is after this call
        where epochs are computed together."""
        plan = self.plan(graphs)
        self._refill()
        self.stats.executes += 1
        self.stats.inputs += plan.input_count
        if plan.sequential or plan.views:
            self._compute(cancel)  # what it reads
        through = executions.passed_on(plan) if plan.sequential else {}
        if through is None:
            seen: dict[str, list[Array]] = {}
            self._one_by_one(plan, seen, cancel)
            self._remember(seen)
            if ended is not None:
                ended()
            return
        self._waiting.append(executions.execution(plan, through, self._least.get(graphs, 1), ended))
        self._least[graphs] = self._waiting[-1].level
        if not self._together or plan.views:
            self._compute(cancel)

    def _compute(self, cancel: Cancel | None) -> None:
        """Computes all executions that wait, those of one epoch that need nothing of one another together."""
        if not self._waiting:
            return
        waiting, self._waiting = self._waiting, []
        self._least = {}
        for group in executions.groups(waiting):
            seen: dict[str, list[Array]] = {}
            self._side_by_side(group, seen, cancel)
            self._remember(seen)

    def _remember(self, seen: dict[str, list[Array]]) -> None:
        self.intermediates.update({name: np.concatenate(parts) for name, parts in seen.items()})

    def plan(self, graphs: tuple[str, ...]) -> EpochPlan:
        """The plan of an epoch, made at its first use."""
        plan = self.plans.get(graphs)
        if plan is None:
            plan = self.plans[graphs] = plan_epoch(self.netlist, graphs, self.io, self.numerics, self._is_recorded)
        return plan

    def _side_by_side(self, group: list[Execution], seen: dict[str, list[Array]], cancel: Cancel | None) -> None:
        """All inputs of executions of one epoch, several at a time."""
        plan, through = group[0].plan, group[0].through
        count = plan.input_count * len(group)
        reads, stamps = group[0].reads, group[0].stamps
        if len(group) > 1:
            together = [executions.side_by_side(group, i) for i in range(len(plan.reads))]
            reads, stamps = [entries for entries, _ in together], [stamp for _, stamp in together]
        fed = [(io, number) for io, number in plan.reads if stamps[number] is None and number not in through]
        stamps = [*stamps, *[None] * len(plan.steps)]
        results: list[list[Array]] = [[] for _ in plan.writes]
        for start in range(0, count, plan.chunk):
            stop = min(start + plan.chunk, count)
            values: list[Array | None] = [None] * plan.values
            for io, number in fed:
                entries = reads[number]
                values[number] = io.gather(entries if len(entries) == 1 else entries[start:stop])
            for step in filter(self._owns, plan.steps):
                for port in step.ports if through else ():
                    if port.value in through and values[port.value] is None:
                        values[port.value] = np.stack(self._entries(through[port.value], values, stop - start))
                self._run_step(step, values, stamps, stop - start, seen, cancel)
            for result, write in zip(results, plan.writes, strict=True):
                result.extend(self._entries(write, values, stop - start))
        executions.deliver(group, results)

    def _one_by_one(self, plan: EpochPlan, seen: dict[str, list[Array]], cancel: Cancel | None) -> None:
        """Input by input: for state that passes from one to the next."""
        producers: dict[int, list[int]] = {}
        for i, write in enumerate(plan.writes):
            producers.setdefault(write.value, []).append(i)
        late = {w.io.name for w in plan.writes if isinstance(w.io, QueueIo)}
        for _ in range(plan.input_count):
            values: list[Array | None] = [None] * plan.values
            stamps: list[object] = [None] * plan.values
            later = {}
            for io, number in plan.reads:
                if io.name in late:
                    later[number] = io
                    continue
                entry = io.entry(io.read_slot())
                values[number] = io.compute(entry)[None]
                if isinstance(io, RamIo) or io.prologue or not io.rd_autoinc:
                    stamps[number] = entry
            for step in plan.steps:
                for port in step.ports:
                    if port.value in later:  # its producer has pushed by now
                        io = later.pop(port.value)
                        values[port.value] = io.slot(io.read_slot())[None]
                if self._owns(step):
                    self._run_step(step, values, stamps, 1, seen, cancel, producers.get(step.value) is not None)
                for i in producers.get(step.value, ()):
                    write = plan.writes[i]
                    for entry in self._entries(write, values, 1):
                        write.io.store(write.io.push_slot(), entry)
            executions.pop_global(plan)

    def _run_step(
        self,
        step: PlanStep,
        values: list[Array | None],
        stamps: list[object],
        count: int,
        seen: dict[str, list[Array]],
        cancel: Cancel | None,
        hold: bool = False,
    ) -> None:
        name, value = step.op.name, step.value
        if cancel is not None and cancel():
            raise Cancelled(f"cancelled before op {name!r}")
        begin = time.perf_counter()
        values[value] = out = step.kernel([port.fetch(values, stamps) for port in step.ports], step.free)
        stats = self.stats
        stats.op_seconds[name] += time.perf_counter() - begin
        stats.ops += 1
        if self.on_op is not None:
            self.on_op(name, as_array(out))
        if self.on_step is not None:
            self.on_step(name, count)
        if self.keep and self._is_recorded(name):
            seen.setdefault(name, []).append(np.broadcast_to(as_array(out), (count, *out.shape[1:])))
        for dead in step.last_use:
            if not (hold and dead == value):
                values[dead] = None

    def _owns(self, step: PlanStep) -> bool:
        """Whether this executor runs an op; for executors of a part of the chips."""
        return True

    def _entries(self, write: Write, values: list[Array | None], count: int) -> list[Array]:
        """What goes into a queue, one array per input."""
        x = values[write.value]
        assert x is not None
        x = as_array(x)
        if write.move is not None:
            x = write.move(x)
        check_shape(write, x)
        return [x[0]] * count if x.shape[0] == 1 else [x[i] for i in range(count)]

    def _refill(self) -> None:
        for name, entries in self._backlog.items():
            io = self.io[name]
            assert isinstance(io, QueueIo)
            while entries and io.occupancy < io.entries:
                io.store(io.push_slot(), entries.pop(0))

    def _is_recorded(self, op: str) -> bool:
        return self.keep == "all" or (not isinstance(self.keep, str) and op in self.keep)

    def _find(self, name: str) -> QueueIo | RamIo:
        entry = self.io.get(name)
        if entry is None:
            raise InputError(f"there is no queue or ram {name!r}; there are {', '.join(self.io) or 'none'}")
        return entry


def _check_blocking(where: str, blocking: Blocking, grid: tuple[int, int]) -> None:
    if min(blocking.t, *blocking.mblock, *blocking.ublock, *grid) < 1:
        raise misfit(
            where,
            "O4",
            f"t {blocking.t}, mblock {list(blocking.mblock)}, ublock {list(blocking.ublock)}, grid_size {list(grid)}",
            "all must be positive",
        )
