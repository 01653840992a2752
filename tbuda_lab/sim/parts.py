"""Parts of a device, each with an executor of its own: it runs the ops of its chips and the whole program, so that all
parts move all pointers alike; what an op of another part makes and one of its own reads comes as a message.

A message has a name that both sides work out (what, of which epoch, the how manieth), so messages need no order.
"""

from __future__ import annotations

import collections
import dataclasses
import struct
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tbuda_lab.core.errors import Cancelled, InputError, NotSupported, not_supported
from tbuda_lab.core.netlist.expand import expand
from tbuda_lab.core.netlist.schema import Netlist
from tbuda_lab.sim.arrays import Array
from tbuda_lab.sim.executions import Execution
from tbuda_lab.sim.executor import Executor
from tbuda_lab.sim.io import Io
from tbuda_lab.sim.plan import EpochPlan, PlanStep, Write
from tbuda_lab.sim.program import Cancel
from tbuda_lab.sim.sparse import as_array

_POLL = 0.05
"""Seconds between two looks at whether a part that waits was cancelled."""
_MOST_SIDES = 8
_KINDS = {"f": np.float32, "i": np.int32}


class Link(Protocol):
    """How parts reach each other."""

    def send(self, part: int, name: str, data: bytes) -> None:
        """Give a message to another part; does not wait for it."""

    def receive(self, name: str, timeout: float) -> bytes | None:
        """The message of that name; None where it has not come within `timeout` seconds."""


class Inbox:
    """Messages that have come, by name."""

    def __init__(self) -> None:
        self._there: dict[str, bytes] = {}
        self._changed = threading.Condition()

    def put(self, name: str, data: bytes) -> None:
        """A message has come."""
        with self._changed:
            self._there[name] = data
            self._changed.notify_all()

    def take(self, name: str, timeout: float) -> bytes | None:
        """See `Link.receive`."""
        with self._changed:
            self._changed.wait_for(lambda: name in self._there, timeout)
            return self._there.pop(name, None)


class Inboxes:
    """The `Link` of parts that are threads of one process. part: whose link it is."""

    def __init__(self, boxes: Sequence[Inbox], part: int) -> None:
        self._boxes, self._part = boxes, part

    def send(self, part: int, name: str, data: bytes) -> None:
        self._boxes[part].put(name, data)

    def receive(self, name: str, timeout: float) -> bytes | None:
        return self._boxes[self._part].take(name, timeout)


def pack(entries: Sequence[Array]) -> bytes:
    """Arrays as bytes. What memory holds once for many rows or columns stays so, as does the order of the axes: a
    kernel takes another way where equal numbers lie elsewhere."""
    parts = [struct.pack("<I", len(entries))]
    for entry in entries:
        entry = np.asarray(entry)
        kind = entry.dtype.kind
        if kind not in _KINDS or entry.dtype != _KINDS[kind]:
            raise NotSupported(f"a tensor of {entry.dtype} between chips")
        once = [s == 0 and n > 1 for s, n in zip(entry.strides, entry.shape, strict=True)]
        small = entry[tuple(slice(0, 1) if one else slice(None) for one in once)]
        order = sorted(range(entry.ndim), key=lambda k: (-small.strides[k], k))
        parts.append(struct.pack(f"<cB{entry.ndim}Q", kind.encode(), entry.ndim, *entry.shape))
        parts.append(bytes([*once, *order]))
        parts.append(np.ascontiguousarray(small.transpose(order)).tobytes())
    return b"".join(parts)


def unpack(data: bytes) -> list[Array]:
    """What `pack` was given. Raises `InputError` for bytes that are not of it."""
    try:
        return _unpack(data)
    except (struct.error, ValueError, KeyError, IndexError) as error:
        raise InputError(f"a message between chips is damaged: {error}") from None


def _unpack(data: bytes) -> list[Array]:
    (count,) = struct.unpack_from("<I", data)
    at, entries = 4, []
    for _ in range(count):
        kind, sides = struct.unpack_from("<cB", data, at)
        dtype = np.dtype(_KINDS[kind.decode("ascii", "replace")])
        if sides > _MOST_SIDES:
            raise ValueError(f"{sides} dimensions")
        shape = struct.unpack_from(f"<{sides}Q", data, at + 2)
        at += struct.calcsize(f"<cB{sides}Q")
        once, order = data[at : at + sides], list(data[at + sides : at + 2 * sides])
        at += 2 * sides
        small = [1 if one else n for one, n in zip(once, shape, strict=True)]
        size = int(np.prod(small, dtype=np.int64))
        array = np.frombuffer(data, dtype, size, at).reshape([small[k] for k in order])
        at += size * dtype.itemsize
        entries.append(np.broadcast_to(array.transpose(np.argsort(order)), shape))
    if at != len(data):
        raise ValueError("it has another length")
    return entries


@dataclasses.dataclass(frozen=True)
class Interval:
    """What a chip did from begin to end (s, of `time.time`): worked on a graph (`source` is -1), or waited for what
    chip `source` puts into a queue."""

    chip: int
    what: str
    source: int
    begin: float
    end: float


def chips_of(netlist: Netlist) -> dict[str, int]:
    """The chip of every op. Raises `NotSupported` for a graph that is on several."""
    found: dict[str, int] = {}
    for graph in expand(netlist).graphs.values():
        if not isinstance(graph.target_device, int):
            raise not_supported(f"graph {graph.name!r} on chips {graph.target_device}", "give each chip its own graph")
        found.update({op.name: graph.target_device for op in graph.ops.values()})
    return found


@dataclasses.dataclass(frozen=True)
class _Exchange:
    """What a part hands on and takes in one epoch. made: the op of every value; foreign: of those of other parts;
    links: by value, the other parts whose ops read it without a queue; exports: by value, the writes that other parts
    read; reader: by queue, the chip that waits for it."""

    plan: str
    made: dict[int, str]
    foreign: dict[int, str]
    links: dict[int, set[int]]
    exports: dict[int, list[Write]]
    reader: dict[str, int]


class PartExecutor(Executor):
    """An executor of some chips of a netlist. parts: of every chip the number of its part; part: which one this is;
    link: to the others. What it answers for queues that ops of other parts fill is not to be read. Intervals of work
    and waiting are in `intervals`."""

    def __init__(self, netlist: Netlist, parts: Mapping[int, int], part: int, link: Link, **settings: Any) -> None:
        super().__init__(netlist, **settings)
        self._chips = chips_of(netlist)
        self._part, self._parts, self._link = part, dict(parts), link
        self._graphs = {op.name: graph.name for graph in self.netlist.graphs.values() for op in graph.ops.values()}
        self.intervals: list[Interval] = []
        self._readers: dict[str, set[int]] = {}  # by memory: the parts that read it
        for io in self.io.values():
            self._readers.setdefault(io.memory, set()).update(self._part_of(op) for op in io.readers)
        self._counts: collections.Counter[str] = collections.Counter()
        self._stopped: Cancel | None = None
        self._exchanges: dict[int, _Exchange] = {}  # by the id of a plan
        self._now: _Exchange | None = None
        self._chunk: object = None
        self._known: dict[int, list[Array]] = {}  # by the id of a write: its entries of this chunk

    def _part_of(self, op: str) -> int:
        return self._parts[self._chips[op]]

    def reads(self, queue: str) -> bool:
        """Whether an op of this part reads a queue."""
        return self._part in self._readers[self._find(queue).memory]

    def fills(self, queue: str) -> bool:
        """Whether an op of this part fills a queue."""
        producer = self.netlist.queues[queue].input
        return producer in self._chips and self._part_of(producer) == self._part

    def blank(self, queue: str) -> Array:
        """An entry that stands for one that no op of this part reads."""
        return self._find(queue).blank()

    def advance(self, queue: str) -> None:
        """As `push`, where no op of this part reads the entry."""
        io: Io = self._find(queue)
        io.store(self.io[queue].push_slot(), io.blank())

    # -- the executor's steps --------------------------------------------------------------------------------------
    def _side_by_side(self, group: list[Execution], seen: dict[str, list[Array]], cancel: Cancel | None) -> None:
        self._begin(group[0].plan, cancel)
        super()._side_by_side(group, seen, cancel)

    def _one_by_one(self, plan: EpochPlan, seen: dict[str, list[Array]], cancel: Cancel | None) -> None:
        self._begin(plan, cancel)
        super()._one_by_one(plan, seen, cancel)

    def _begin(self, plan: EpochPlan, cancel: Cancel | None) -> None:
        self._stopped = cancel
        if id(plan) not in self._exchanges:
            self._exchanges[id(plan)] = self._exchange(plan)
        self._now = self._exchanges[id(plan)]

    def _exchange(self, plan: EpochPlan) -> _Exchange:
        made = {step.value: step for step in plan.steps}
        links: dict[int, set[int]] = {}
        for step in plan.steps:
            for port in step.ports:
                if port.value in made:
                    links.setdefault(port.value, set()).add(self._part_of(step.op.name))
        foreign = {value: step.op.name for value, step in made.items() if not self._owns(step)}
        writes = [(w, self._readers[w.io.memory] - {self._part}) for w in plan.writes]
        reader = {
            w.io.name: next(
                (
                    self._chips[s.op.name]
                    for s in plan.steps
                    if self._owns(s) and any(p.io is not None and p.io.memory == w.io.memory for p in s.ports)
                ),
                min(chip for chip, part in self._parts.items() if part == self._part),
            )
            for w in plan.writes
        }
        return _Exchange(
            plan.name,
            {value: step.op.name for value, step in made.items()},
            foreign,
            {value: parts - {self._part} for value, parts in links.items() if parts - {self._part}},
            {v: [w for w, others in writes if w.value == v and others] for v in made},
            reader,
        )

    def _owns(self, step: PlanStep) -> bool:
        return self._part_of(step.op.name) == self._part

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
        now = self._now
        assert now is not None
        op = step.op.name
        for port in step.ports:
            if port.value in now.foreign and values[port.value] is None:
                made = now.foreign[port.value]
                (values[port.value],) = self._receive(f"{now.plan}/op/{made}", self._chips[op], made, made)
        begin = time.time()
        super()._run_step(step, values, stamps, count, seen, cancel, True)
        self._note(self._chips[op], self._graphs[op], -1, begin)
        value = values[step.value]
        if value is not None and step.value in now.links:
            self._send(f"{now.plan}/op/{op}", now.links[step.value], [as_array(value)])
        for write in now.exports[step.value]:  # at once: what another part makes of it may be read here again
            self._entries(write, values, count)
        if not hold and step.value in step.last_use:
            values[step.value] = None

    def _entries(self, write: Write, values: list[Array | None], count: int) -> list[Array]:
        now = self._now
        assert now is not None
        if self._chunk is not values:
            self._chunk, self._known = values, {}
        entries_of_write = self._known.get(id(write))
        if entries_of_write is not None:
            return entries_of_write
        name = f"{now.plan}/queue/{write.io.name}"
        readers = self._readers[write.io.memory]
        if write.value not in now.foreign:
            entries = super()._entries(write, values, count)
            if readers - {self._part}:
                self._send(name, readers, entries)
        elif self._part in readers:
            entries = self._receive(name, now.reader[write.io.name], now.made[write.value], write.io.name)
        else:
            return [write.io.blank()] * count
        self._known[id(write)] = entries
        return entries

    # -- messages --------------------------------------------------------------------------------------------------
    def _send(self, name: str, parts: Collection[int], entries: Sequence[Array]) -> None:
        number, data = self._counts[name], pack(entries)
        self._counts[name] += 1
        for part in sorted(set(parts) - {self._part}):
            self._link.send(part, f"{name}/{number}", data)

    def _receive(self, name: str, chip: int, producer: str, what: str) -> list[Array]:
        """What the op `producer` of another part sent; `chip` waits for it."""
        number, begin = self._counts[name], time.time()
        self._counts[name] += 1
        while (data := self._link.receive(f"{name}/{number}", _POLL)) is None:
            if self._stopped is not None and self._stopped():
                raise Cancelled(f"cancelled while chip {chip} waited for {what!r}")
        self._note(chip, what, self._chips[producer], begin)
        return unpack(data)

    def _note(self, chip: int, what: str, source: int, begin: float) -> None:
        """Add an interval; work that follows work on the same graph makes one."""
        end = time.time()
        last = self.intervals[-1] if self.intervals else None
        if last is not None and (last.chip, last.what, last.source) == (chip, what, source) and source < 0:
            self.intervals[-1] = dataclasses.replace(last, end=end)
        else:
            self.intervals.append(Interval(chip, what, source, begin, end))


def run_part(
    executor: PartExecutor,
    inputs: Mapping[str, Array],
    outputs: Sequence[str],
    microbatch: int,
    at_once: int,
    cancel: Callable[[], bool],
) -> dict[str, list[Array]]:
    """All entries (n, t, R, C) of the inputs through the program, as many at a time as `Runner` takes; those of the
    outputs that this part fills, oldest first. inputs: of queues that this part does not read (n,) of anything."""
    total = len(next(iter(inputs.values()))) if inputs else microbatch
    found: dict[str, list[Array]] = {name: [] for name in outputs if executor.fills(name)}
    done = 0
    while done < total:
        several = min(max(1, at_once) * microbatch, total - done)
        passes = several // microbatch
        batch = {k: v[done : done + several] for k, v in inputs.items()}
        if passes == 1:
            for name, array in batch.items():
                for entry in array:
                    if executor.reads(name):
                        executor.push(name, entry)
                    else:
                        executor.advance(name)
            executor.run(params={"p_loop_count": 1}, cancel=cancel)
            popped = {name: [executor.pop(name) for _ in range(several)] for name in outputs}
        else:
            arrays = {
                k: v if executor.reads(k) else np.broadcast_to(executor.blank(k), (several, *executor.blank(k).shape))
                for k, v in batch.items()
            }
            streamed = executor.stream(arrays, outputs, {"p_loop_count": passes}, cancel=cancel)
            popped = {name: list(each) for name, each in zip(outputs, streamed, strict=True)}
        for name, entries in popped.items():
            if name in found:
                found[name] += entries
        done += several
    return found
