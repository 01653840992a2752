"""Executions of an epoch, whose pointers move at once and whose tensors may be computed later, several together.

An execution knows which entries it reads. One that another execution has yet to compute is a `Pending`, so what needs
what is exact: rams, fifos that are read again, and queues that come and go need no rule of their own. Executions of one
epoch that don't need one another, as the turns of a program's loop over inputs, go through its ops side by side; where
each turn needs what the last one left (a cache, a running sum), they form a chain and are computed one by one.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence

from tbuda_lab.sim.arrays import Array
from tbuda_lab.sim.io import Entry, Pending, QueueIo
from tbuda_lab.sim.plan import EpochPlan, Write


@dataclasses.dataclass
class Execution:
    """One execution of an epoch whose inputs can be computed side by side.

    reads, for each of the plan's: the entries of all inputs, a single one where all read the same; none where the epoch
    itself makes them. stamps: the entry that other executions may read again, None where what is made of it should not
    be kept. pushes and slots, for each of the plan's writes: the entries that it makes, and where. through: see
    `passed_on`. on_end: called when all is computed. level: as of `Pending`.
    """

    plan: EpochPlan
    reads: list[list[Entry]]
    stamps: list[object]
    pushes: list[list[Pending]]
    slots: list[list[int]]
    through: dict[int, Write]
    on_end: Callable[[], None] | None = None
    level: int = 1


def passed_on(plan: EpochPlan) -> dict[int, Write] | None:
    """By value that is read, the writes of fifos through which ops of an epoch hand each input on to others of it;
    None where more than that passes from one input to the next, so that they go one by one. Such a fifo is empty
    before, and what is read of it is what was pushed for the same input."""
    if plan.gradient:
        return None
    written = {write.io.memory: write for write in plan.writes}
    written_now = {number: (io, written[io.memory]) for io, number in plan.reads if io.memory in written}
    for io, write in written_now.values():
        if not isinstance(io, QueueIo) or io is not write.io or io.sink is not None:
            return None
        if io.prologue or io.epilogue or io.rd_autoinc != 1:
            return None
        if io.occupancy or io.rd_local % (2 * io.entries) != io.wr:
            return None
    return {number: write for number, (_, write) in written_now.items()}


def execution(plan: EpochPlan, through: dict[int, Write], after: int, ended: Callable[[], None] | None) -> Execution:
    """Moves the pointers of an epoch as its inputs do, one after the other. after: the least level that is allowed.
    Raises `QueueError`."""
    reads: list[list[Entry]] = [[] for _ in plan.reads]
    pushes: list[list[int]] = [[] for _ in plan.writes]
    for number, ram in plan.rams:
        reads[number] = ram.read_entries(plan.input_count)
    for _ in range(plan.input_count):
        for number, fifo in plan.fifos:
            if number not in through:
                reads[number].append(fifo.entry(fifo.read_slot()))
        for places, write in zip(pushes, plan.writes, strict=True):
            places.append(write.io.push_slot())
        for number, fifo in plan.fifos if through else ():
            if number in through:
                fifo.read_slot()
        pop_global(plan)
    stamps: list[object] = [entries[0] if len(entries) == 1 else None for entries in reads]
    for number, fifo in plan.fifos:
        entries = reads[number]
        if len(entries) > 1 and all(entry is entries[0] for entry in entries):
            reads[number] = entries[:1]
        still = len(reads[number]) == 1 and (fifo.prologue or not fifo.rd_autoinc)
        stamps[number] = entries[0] if still else None
    level = after
    for entries in reads:
        for entry in entries:
            if isinstance(entry, Pending) and entry.value is None:
                level = max(level, entry.level + 1)
    pushed = [[Pending(level) for _ in places] for places in pushes]
    if not plan.views:
        for write, places, pending in zip(plan.writes, pushes, pushed, strict=True):
            for slot, entry in zip(places, pending, strict=True):
                write.io.store(slot, entry)
    return Execution(plan, reads, stamps, pushed, pushes, through, ended, level)


def pop_global(plan: EpochPlan) -> None:
    """Moves the global read pointers of what an epoch reads, after one input."""
    for _, fifo in plan.fifos:
        for _ in range(fifo.global_rd_autoinc):
            fifo.pop_slot()


def groups(waiting: Sequence[Execution]) -> list[list[Execution]]:
    """Executions that can be computed together, in an order in which all that a group reads is computed before it.
    Those of one epoch keep their order."""
    by_plan: dict[tuple[int, int], list[Execution]] = {}
    for each in sorted(waiting, key=lambda e: e.level):
        by_plan.setdefault((each.level, id(each.plan)), []).append(each)
    return list(by_plan.values())


def side_by_side(group: Sequence[Execution], index: int) -> tuple[list[Entry], object]:
    """What the plan's read `index` is for all inputs of a group of several: the entries, a single one where all read
    the same, and the stamp by which it may be kept."""
    first = group[0]
    if all(len(e.reads[index]) == 1 and e.reads[index][0] is first.reads[index][0] for e in group):
        stamp = first.stamps[index]
        return first.reads[index], stamp if all(e.stamps[index] is stamp for e in group) else None
    count = first.plan.input_count
    entries = [
        entry for e in group for entry in (e.reads[index] if len(e.reads[index]) == count else e.reads[index] * count)
    ]
    return entries, None


def deliver(group: Sequence[Execution], results: Sequence[Sequence[Array]]) -> None:
    """Hands the results, for each of the plan's writes one array per input, to those who wait for them."""
    for index, arrays in enumerate(results):
        pending = [entry for e in group for entry in e.pushes[index]]
        for entry, array in zip(pending, arrays, strict=True):
            entry.value = array
    for each in group:
        if each.plan.views:
            for write, slots, entries in zip(each.plan.writes, each.slots, each.pushes, strict=True):
                for slot, entry in zip(slots, entries, strict=True):
                    write.io.store(slot, entry)
        if each.on_end is not None:
            each.on_end()
