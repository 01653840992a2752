"""Which candidates of an epoch go together: their edges, one op after the other.

Rows for an op and all of its producers at once, where its edges from several of them are illegal.

An op on many cores that reads two ops on one core each needs both of them wider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tbuda_lab.core.balancer.edges import (
    MAX_DRAM_IN_QUEUES,
    MAX_FAN_OUT_STREAMS,
    MAX_PHASES,
    MAX_USERS,
    EdgeCost,
    EdgeReason,
)
from tbuda_lab.core.balancer.routes import net_steps
from tbuda_lab.core.netlist.routing.edge import EXTRA_STREAMS, streams_of
from tbuda_lab.core.netlist.routing.rules import RouteRule
from tbuda_lab.core.netlist.routing.stacks import breaking_step, step_text
from tbuda_lab.core.placer.model.problem import Problem


def refusal_text(problem: Problem, producer: int, consumer: int, reason: EdgeReason) -> str:
    """A refused edge in words: both ops; for a rule of the router on stacks also the operand, the TM that breaks it and
    what would be legal."""
    names = f"{problem.order[producer]} -> {problem.order[consumer]}"
    rule = RouteRule.__members__.get(reason.name, RouteRule.OK)
    if not (rule.of_stacks or rule is RouteRule.UNFED_CORE):
        return f"{names}: {reason.value}"
    ports = [port for port, source in enumerate(problem.facts[consumer].producers) if source == producer]
    steps = {port: breaking_step(rule, net_steps(problem.profiles[consumer].operands[port].tms)) for port in ports}
    named = [(port, step) for port, step in steps.items() if step is not None]
    if named:
        names = f"{names}, operand {named[0][0]} through {step_text(named[0][1])}"
    elif ports:  # slices that only t-streaming makes
        names = f"{names}, operand {ports[0]} through the stack of its t-stream"
    return f"{names}: {reason.value}; {rule.fix}"


Refused = tuple[int, int, EdgeReason | EdgeCost]
"""The two ops of a refused edge and why it is refused, or the edge that says so."""
Repair = tuple[dict[int, int], Refused | None]
"""Rows that replace others, none where none do; and the refusal that was met last."""


class EdgeCompatibility:
    """Checks candidates one op after the other against those already chosen, within the limits of streams, phases and
    DRAM buffers. `upstream_rows`: rows of ops of earlier epochs, where they are known. `repairs`: what other books of
    the same problem and epoch found out about rows that had to give way; what is found is added."""

    def __init__(
        self,
        problem: Problem,
        first: int,
        last: int,
        upstream_rows: Mapping[int, int],
        repairs: dict[tuple[object, ...], Repair] | None = None,
    ) -> None:
        self.problem, self.first, self.last, self.upstream_rows = problem, first, last, upstream_rows
        self.repairs = {} if repairs is None else repairs
        self.rows: dict[int, int] = {}
        self.refused: Refused | None = None

    @property
    def refusal(self) -> tuple[int, int, EdgeReason] | None:
        """(producer, consumer, reason) of the last failure."""
        if self.refused is None:
            return None
        producer, consumer, why = self.refused
        return producer, consumer, why if isinstance(why, EdgeReason) else why.reason

    def reason(self) -> EdgeReason | None:
        """Why the last candidate was refused, if one was."""
        refusal = self.refusal
        return None if refusal is None else refusal[2]

    def visible_rows(self, op: int) -> tuple[object, ...]:
        """Everything that `check` of an op, or of one of its producers, sees of the rows chosen so far."""
        facts = self.problem.facts
        near = {op, *(p for p in facts[op].producers if p >= 0)}
        for end in tuple(near):
            before = [p for p in facts[end].producers if p >= 0]
            readers = {r for at in (end, *before) for r, _ in facts[at].readers}
            near.update(before, readers, (p for r in readers for p in facts[r].producers if p >= 0))
        rows, upstream_rows = self.rows, self.upstream_rows
        return (self.first, self.last, *(rows.get(at, upstream_rows.get(at, -1)) for at in sorted(near)))

    def streams_directly(self, reader: int, port: int) -> bool:
        """Whether an operand of an op of this epoch comes straight from another one."""
        return self.first <= reader < self.last and self.problem.facts[reader].by_noc(port, self.first, self.last)

    def users_ok(self) -> int | None:
        """The first op with more readers than an op may have, if any: readers here, and one queue for the rest."""
        for op in range(self.first, self.last):
            fact = self.problem.facts[op]
            inside = sum(self.streams_directly(r, p) for r, p in fact.readers)
            queues = int(inside < len(fact.readers)) + int(fact.host_output or fact.dram_output)
            if inside + queues > MAX_USERS:
                return op
        return None

    def check(self, op: int, row: int) -> bool:
        """Whether `row` of `op` is legal with the rows chosen so far (producers and consumers alike)."""
        problem = self.problem
        fact = problem.facts[op]
        dram_in = phases = 0
        for port, producer in enumerate(fact.producers):
            if producer < 0:
                dram_in += 1
            elif producer in self.rows and self.streams_directly(op, port):
                cost = problem.edges(op, port).cost(self.rows[producer], row)
                if cost.verdict is not EdgeReason.LEGAL:
                    self.refused = (producer, op, cost)
                    return False
                phases += cost.consumer_phases
                if not self._room(producer, self.rows[producer], (op, port), cost):
                    return False
            elif (p_row := self.rows.get(producer, self.upstream_rows.get(producer))) is not None:
                cost = problem.edges(op, port, True).cost(p_row, row)
                dram_in += cost.fan_in
                if dram_in > MAX_DRAM_IN_QUEUES:
                    self.refused = (producer, op, EdgeReason.DRAM_QUEUES)
                    return False
        if phases > MAX_PHASES:
            self.refused = (op, op, EdgeReason.PHASES)
            return False
        streams = written = 0  # streams out of the op's cores, and phases of them
        for reader, port in fact.readers:
            if reader not in self.rows or not self.first <= reader < self.last:
                continue
            if not self.streams_directly(reader, port):
                if self._buffers(reader, {op: row}) > MAX_DRAM_IN_QUEUES:
                    self.refused = (op, reader, EdgeReason.DRAM_QUEUES)
                    return False
            else:
                cost = problem.edges(reader, port).cost(row, self.rows[reader])
                if cost.verdict is not EdgeReason.LEGAL:
                    self.refused = (op, reader, cost)
                    return False
                streams += cost.fan_out
                written += cost.producer_phases
        return self._within(op, row, streams, written)

    def _buffers(self, op: int, new: Mapping[int, int]) -> int:
        """DRAM buffers that a core of an op with a row reads, with the rows of `new` beside those chosen."""
        fact, total = self.problem.facts[op], 0
        for port, producer in enumerate(fact.producers):
            row = new.get(producer, self.rows.get(producer, self.upstream_rows.get(producer)))
            if producer < 0:
                total += 1
            elif row is not None and not self.streams_directly(op, port):
                total += self.problem.edges(op, port, True).cost(row, self.rows[op]).fan_in
        return total

    def _queues(self, op: int) -> int:
        """Queues that an op writes, each with a stream of its own: one for readers elsewhere, one for an output."""
        fact = self.problem.facts[op]
        elsewhere = any(not self.streams_directly(r, p) for r, p in fact.readers)
        return int(elsewhere) + int(fact.host_output or fact.dram_output)

    def _streams_in(self, op: int, row: int) -> int:
        """Extra streams that the inputs of an op take on one of its cores: reads from DRAM, and gathers from ops whose
        rows are chosen. An op of at most three inputs has room for them beside all readers that it may have."""
        producers = self.problem.facts[op].producers
        if len(producers) <= 3:
            return 0
        dram, gathers = 0, []
        for port, producer in enumerate(producers):
            p_row = self.rows.get(producer)
            if p_row is not None and self.streams_directly(op, port):
                gathers.append(self.problem.edges(op, port).cost(p_row, row).fan_in)
            else:
                dram += 1
        return dram + streams_of(gathers, self.problem.device.arch)

    def _within(self, op: int, row: int, streams: int, phases: int) -> bool:
        more = self._streams_in(op, row)
        if streams > MAX_FAN_OUT_STREAMS - 2 or more:  # with fewer there is room for both queues
            streams += self._queues(op)
        if streams > MAX_FAN_OUT_STREAMS or streams - 1 + more > EXTRA_STREAMS:
            self.refused = (op, op, EdgeReason.FAN_OUT)
            return False
        if phases > MAX_PHASES:
            self.refused = (op, op, EdgeReason.PHASES)
            return False
        return True

    def _room(self, producer: int, p_row: int, new: tuple[int, int], cost: EdgeCost) -> bool:
        """Streams and phases of a producer over all its readers, with one more."""
        fan_out, phases = cost.fan_out, cost.producer_phases
        for reader, port in self.problem.facts[producer].readers:
            if (reader, port) != new and reader in self.rows and self.streams_directly(reader, port):
                other = self.problem.edges(reader, port).cost(p_row, self.rows[reader])
                fan_out += other.fan_out
                phases += other.producer_phases
        return self._within(producer, p_row, fan_out, phases)


_OPTIONS = 6
"""Rows of the op that are tried."""


def repair_around(
    book: EdgeCompatibility, op: int, options: Sequence[int], others: Mapping[int, Sequence[int]]
) -> dict[int, int]:
    """Rows to change so that one of `options` is legal for the op, none where that does not suffice. The first row of
    the op that works is taken, with the first row of each producer that is legal then.

    others: rows of its producers in the epoch, those that take the fewest cores first. The book is left as it was.
    """
    selected, refused = {producer: book.rows[producer] for producer in others}, book.refused
    for row in options[:_OPTIONS]:
        book.rows[op] = row
        for producer, theirs in others.items():
            del book.rows[producer]
            if book.check(producer, selected[producer]):
                book.rows[producer] = selected[producer]
                continue
            other_row = next((other for other in theirs if book.check(producer, other)), None)
            if other_row is None:
                break
            book.rows[producer] = other_row
        else:
            del book.rows[op]
            changed = {p: book.rows[p] for p in others if book.rows[p] != selected[p]}
            fits = book.check(op, row)
            book.rows.update(selected)
            if fits:
                return {**changed, op: row}
            continue
        del book.rows[op]
        book.rows.update(selected)
    book.refused = refused
    return {}
