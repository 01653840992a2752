"""Forks whose branches meet again within an epoch: where (found once per graph, whatever epochs it is cut into), and
whether the shorter branch can wait for the longer one."""

from __future__ import annotations

import dataclasses
import math
import weakref
from collections.abc import Mapping
from typing import NamedTuple

import numpy as np

from tbuda_lab.core.balancer.bandwidth import NOC
from tbuda_lab.core.balancer.l1 import ordinary_tiles
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.errors import Diagnostic, quantity
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.lowering.edits import BETWEEN
from tbuda_lab.core.placer.model.problem import Problem
from tbuda_lab.core.placer.model.segment import Segment
from tbuda_lab.core.placer.stalls.first_results import L1_SHARE

Step = tuple[int, int]
"""An op and the operand through which a branch enters it."""


@dataclasses.dataclass(frozen=True)
class Reconvergence:
    """Two branches from a fork that meet at a join for the first time: the ops of each and the join's operand last.
    `long` is the one that has to give its first result before the join takes what came over `short`. The ops stand in
    the schedule's order, so an epoch that holds fork and join holds them all."""

    fork: int
    join: int
    short: tuple[Step, ...]
    long: tuple[Step, ...]


def reconvergences(problem: Problem) -> Mapping[int, tuple[Reconvergence, ...]]:
    """By join, all of a graph within the ops that one epoch may hold. A branch through a DRAM queue of the user's never
    has to wait and is none."""
    entry = _cache.get(problem)
    if entry is None:
        entry = _cache[problem] = reconvergences_of(problem, range(len(problem.order)))
    return entry


def reconvergences_of(problem: Problem, forks: range) -> dict[int, tuple[Reconvergence, ...]]:
    """The same of some forks alone."""
    by_join: dict[int, list[Reconvergence]] = {}
    for fork in forks:
        for meeting in _of(problem, fork):
            by_join.setdefault(meeting.join, []).append(meeting)
    return {join: tuple(some) for join, some in by_join.items()}


_cache: weakref.WeakKeyDictionary[Problem, dict[int, tuple[Reconvergence, ...]]] = weakref.WeakKeyDictionary()

_Ends = tuple[tuple[Step, ...], tuple[Step, ...]]
"""The shortest and the longest way of a branch to an op, by the number of ops."""


def _of(problem: Problem, fork: int) -> list[Reconvergence]:
    facts = problem.facts
    readers = [(r, p) for r, p in facts[fork].readers if p not in facts[r].queued_in]
    if len({r for r, _ in readers}) < 2:
        return []
    result: list[Reconvergence] = []
    reached: dict[int, dict[int, _Ends]] = {}  # by op, and by the reader that a branch begins with
    heads = {r for r, _ in readers}
    apart = set(heads)  # branches that have not met another one yet
    open_until = {fork: max(heads)}
    end = min(len(problem.order), fork + problem.cores)
    for op in range(fork + 1, end):
        if op > max(open_until.values()):
            break
        ways: dict[int, _Ends] = {}
        for port, producer in enumerate(facts[op].producers):
            if port in facts[op].queued_in:
                continue
            step: tuple[Step, ...] = ((op, port),)
            if producer == fork:
                ways[op] = _merge(ways.get(op), (step, step))
            for way, (short, long) in reached.get(producer, {}).items():
                ways[way] = _merge(ways.get(way), ((*short, *step), (*long, *step)))
        if not ways:
            continue
        if len(ways) > 1:
            for a, (short, _) in ways.items():
                others = [long for b, (_, long) in ways.items() if b != a]
                long = max(others, key=len)
                if len(long) > 1:
                    result.append(Reconvergence(fork, op, short, long))
            apart -= set(ways)
            apart.add(min(ways))
            ways = {min(ways): ways[min(ways)]}
            if len(apart) < 2:
                break
        reached[op] = ways
        if facts[op].readers:
            open_until[op] = facts[op].readers[-1][0]
    return result


def _merge(before: _Ends | None, new: _Ends) -> _Ends:
    if before is None:
        return new
    return min(before[0], new[0], key=len), max(before[1], new[1], key=len)


NOP_CORES = 1.25
"""Cores of nops that hold so much, over those whose L1 would do: grids divide a tensor evenly."""


class Branch(NamedTuple):
    """One way from a fork to an operand of the join: the ops in between, what it needs and what it holds (tiles of the
    fork's output, the join's own input buffer included)."""

    ops: tuple[int, ...]
    port: int
    needs: float
    holds: float


@dataclasses.dataclass(frozen=True)
class ForkJoin:
    """`short`: the branch that holds too little; `missing` tiles of the fork's output, 0 when it holds enough."""

    fork: int
    join: int
    short: Branch
    long: Branch

    @property
    def missing(self) -> int:
        return max(0, math.ceil(self.long.needs - self.short.holds))


@dataclasses.dataclass(frozen=True)
class Buffering:
    """input_tiles: op -> least tiles per core of each input buffer (0: as the op model has it). unmet: of each short
    branch that still holds too little, the fork and the tiles that it lacks."""

    input_tiles: dict[str, tuple[int, ...]]
    diagnostics: tuple[Diagnostic, ...]
    unmet: tuple[tuple[int, int], ...] = ()


def _cores(profile: OpProfile, port: int, row: np.void) -> int:
    """Cores that hold a different part of an operand."""
    role = profile.operands[port].role
    if role == "in0":
        return int(row["grid_r"])
    return int(row["grid_c"]) if role in ("in1", "bias") else int(row["cores"])


@dataclasses.dataclass(frozen=True)
class RowTiles:
    """What a candidate takes and holds (placement.md#forks-and-joins). In tiles: volume, of its output; block, of one
    core's block of it; output_buffers, of the output buffers of all cores; widest, by operand, of all of it; inputs, by
    operand, of a core's input buffer; granules, of what is released of it at once. grid: rows and columns of cores;
    cores: by operand, that hold a different part of it.

    As parts of a whole: passes, of the output in the output buffers; holds, by operand, in the input buffers; needs, by
    operand, that has to arrive before the op goes on: two slices of a matmul's or reduction's, as many together as a
    slice on the way to it or a stack behind it ties to each other, a t-th of them for a picker; of other ops what their
    output buffers take. joins: by operand, that a join takes before it frees the other: two blocks on all its cores.
    """

    t: int
    grid: tuple[int, int]
    l1_total: int
    l1_staged: int
    volume: int
    block: int
    output_buffers: int
    passes: float
    widest: tuple[int, ...]
    inputs: tuple[int, ...]
    granules: tuple[int, ...]
    cores: tuple[int, ...]
    holds: tuple[float, ...]
    needs: tuple[float, ...]
    joins: tuple[float, ...]

    @classmethod
    def of(cls, profile: OpProfile, row: np.void) -> RowTiles:
        """Of one candidate of an op."""
        z, rt, ct = profile.out
        volume = max(1, z * rt * ct)
        block = int(row["mblock_m"]) * int(row["mblock_n"]) * int(row["ublock_r"]) * int(row["ublock_c"])
        all_cores, times = int(row["cores"]), int(row["t"])
        buffered = block * int(row["buf_size_mb"]) * all_cores
        ports = range(len(profile.operands))
        widest = tuple(math.prod(operand.tiles) for operand in profile.operands)
        granules, inputs = zip(*(ordinary_tiles(profile, port, row) for port in ports), strict=True)
        cores = tuple(_cores(profile, port, row) for port in ports)
        holds = tuple(min(1.0, i * c / max(1, w)) for i, c, w in zip(inputs, cores, widest, strict=True))
        if profile.matmul_like or profile.kind == "reduce":
            parts = times if profile.kind == "sparse_matmul" else 1
            needs = tuple(min(1.0, 2.0 * _together(profile, p) / _slices(profile, p) / parts) for p in ports)
            joins = needs
        else:
            needs = tuple(min(1.0, buffered / volume) for _ in ports)
            joins = tuple(min(1.0, 2.0 * block * all_cores / max(1, w)) for w in widest)
        passes = min(1.0, buffered / volume)
        grid, bytes_ = (int(row["grid_r"]), int(row["grid_c"])), (int(row["l1_total"]), int(row["l1_staged"]))
        sizes = (widest, inputs, granules, cores)
        return cls(times, grid, *bytes_, volume, block, buffered, passes, *sizes, holds, needs, joins)


def _slices(profile: OpProfile, port: int) -> int:
    """Slices of an operand that are taken one after the other."""
    return max(1, profile.operands[port].tiles[0] if profile.z_group == 1 else 1)


def _together(profile: OpProfile, port: int) -> int:
    """Of these, how many are tied to each other."""
    sliced = math.prod(int(tm.args[0]) for tm in profile.operands[port].tms if tm.name in ("hslice", "vslice"))
    return max(sliced, *profile.user_stacks, 1)


def row_tiles(problem: Problem, op: int, row: int) -> RowTiles:
    """Of the candidate in row `row` of an op's table, once for all that share the table."""
    table = problem.tables[op]
    key = ("row tiles", table.signature, row)
    entry = problem.costs.answers.get(key)
    if not isinstance(entry, RowTiles):
        entry = problem.costs.answers[key] = RowTiles.of(problem.profiles[op], table.rows[row])
    return entry


class _Epoch:
    """Needs and holdings of the ops of one placed epoch."""

    def __init__(self, problem: Problem, segment: Segment) -> None:
        self.problem, self.segment = problem, segment
        self.ops = range(segment.first, segment.last)
        self.tiles = {op: row_tiles(problem, op, row) for op, row in zip(self.ops, segment.rows, strict=True)}
        self.l1 = int(L1_SHARE * problem.device.l1_usable)

    def last_reader(self, op: int) -> int:
        """The last op that reads another one; -1 where none does."""
        readers = self.problem.facts[op].readers
        return readers[-1][0] if readers else -1

    def needs(self, op: int, port: int) -> float:
        """As `RowTiles` has it; an inserted nop passes on whatever comes."""
        problem = self.problem
        return 0.0 if BETWEEN in problem.graph[problem.order[op]].attrs else self.tiles[op].needs[port]

    def room(self, op: int) -> int:
        """Bytes of a core's L1 that larger buffers may take."""
        problem, first, last = self.problem, self.segment.first, self.segment.last
        where, _ = problem.places(op, first, last)
        operands = problem.profiles[op].operands
        queued = any(place != NOC and o.feed != "parameter" for place, o in zip(where, operands, strict=True))
        tiles = self.tiles[op]
        return max(0, self.l1 - tiles.l1_total - (tiles.l1_staged if queued else 0))


def find(problem: Problem, segment: Segment) -> list[ForkJoin]:
    """All pairs of branches of an epoch that meet at an op for the first time, the short one first; only pairs in which
    it holds too little."""
    return _pairs(_Epoch(problem, segment))


def _pairs(epoch: _Epoch) -> list[ForkJoin]:
    problem, segment, tiles = epoch.problem, epoch.segment, epoch.tiles
    # by op, its operands from the epoch; a DRAM queue holds whatever has to wait there
    operands = {
        op: [(port, p) for port, p in enumerate(fact.producers) if p >= segment.first and port not in fact.queued_in]
        for op, fact in ((op, problem.facts[op]) for op in epoch.ops)
    }
    readers: dict[int, list[tuple[int, int]]] = {op: [] for op in epoch.ops}
    for op, taken in operands.items():
        for port, producer in taken:
            readers[producer].append((op, port))
    forks: dict[tuple[int, int, int], ForkJoin] = {}
    for fork, branches in readers.items():
        if len(branches) < 2:
            continue
        volume = tiles[fork].volume
        heads = {i: op for i, (op, _) in enumerate(branches)}
        # per op: by branch it was reached through, the branch with the greatest need and that with the least room
        reached: dict[int, dict[int, tuple[Branch, Branch]]] = {}
        for op in range(fork + 1, segment.last):
            arriving: dict[int, list[tuple[int, Branch, Branch]]] = {}
            for port, producer in operands[op]:
                if producer == fork:
                    start = Branch((), port, 0.0, tiles[fork].output_buffers / volume)
                    arriving.setdefault(branches.index((op, port)), []).append((port, start, start))
                elif producer in reached:
                    for way, (most, least) in reached[producer].items():
                        arriving.setdefault(way, []).append((port, most, least))
            if not arriving:
                continue
            ways = {way: _at(epoch, op, parts) for way, parts in arriving.items()}
            if len(ways) > 1:
                for a, (_, least) in ways.items():
                    longest = max((m for b, (m, _) in ways.items() if b != a), key=lambda m: m.needs)
                    if longest.ops:  # what comes straight from the fork needs no more than the short branch holds
                        longest = longest._replace(needs=longest.needs + tiles[op].joins[longest.port])
                    if longest.needs > least.holds:
                        pair = ForkJoin(fork, op, _scale(least, volume), _scale(longest, volume))
                        if pair.missing:
                            forks.setdefault((fork, op, least.port), pair)
                merged = next(iter(ways))
                ways = {merged: ways[merged]}  # beyond the join the branches are one
                left = {way for way, head in heads.items() if head > op}
                left.update(way for at, some in reached.items() if epoch.last_reader(at) > op for way in some)
                if left <= {merged}:  # no other branch goes on
                    break
            reached[op] = {way: _past(epoch, op, ends) for way, ends in ways.items()}
    return list(forks.values())


def _at(epoch: _Epoch, op: int, parts: list[tuple[int, Branch, Branch]]) -> tuple[Branch, Branch]:
    """The greediest and the tightest branch at an op's inputs; one object where they are the same."""
    holds = epoch.tiles[op].holds
    if len(parts) == 1:
        ((port, most, least),) = parts
        entered = Branch(most.ops, port, most.needs, most.holds + holds[port])
        if least is most:
            return entered, entered
        return entered, Branch(least.ops, port, least.needs, least.holds + holds[port])
    most = max((Branch(m.ops, p, m.needs, m.holds + holds[p]) for p, m, _ in parts), key=lambda b: b.needs)
    least = min((Branch(h.ops, p, h.needs, h.holds + holds[p]) for p, _, h in parts), key=lambda b: b.holds)
    return most, least


def _past(epoch: _Epoch, op: int, ends: tuple[Branch, Branch]) -> tuple[Branch, Branch]:
    """Branches that go on through an op."""
    most, least = ends
    passes = epoch.tiles[op].passes
    needs = min(1.0, most.needs + epoch.needs(op, most.port))
    further = Branch((*most.ops, op), most.port, needs, most.holds + passes)
    if least is most:
        return further, further
    needs = min(1.0, least.needs + epoch.needs(op, least.port))
    return further, Branch((*least.ops, op), least.port, needs, least.holds + passes)


def _scale(branch: Branch, volume: int) -> Branch:
    return Branch(branch.ops, branch.port, branch.needs * volume, branch.holds * volume)


def buffer(problem: Problem, segment: Segment, index: int) -> Buffering:
    """Larger input buffers along branches that hold too little, as far as L1 has room; and what was done or is missing,
    one diagnostic for an epoch."""
    epoch = _Epoch(problem, segment)
    room = {op: epoch.room(op) for op in epoch.ops}
    extra: dict[tuple[int, int], int] = {}
    unmet: list[tuple[int, ForkJoin]] = []
    widened: set[str] = set()
    for pair in sorted(_pairs(epoch), key=lambda f: -f.missing):
        part = pair.missing / epoch.tiles[pair.fork].volume
        places = [(pair.join, pair.short.port)]
        for op in reversed(pair.short.ops):
            ports = [p for p, s in enumerate(problem.facts[op].producers) if s == pair.fork or s in pair.short.ops]
            places += [(op, p) for p in ports[:1]]
        for op, port in places:
            tiles = epoch.tiles[op]
            own, cores, block = tiles.widest[port], tiles.cores[port], tiles.granules[port]
            already = extra.get((op, port), 0)
            lacking = max(0, math.ceil(part * own / cores / block) * block - already)
            tile = tile_bytes(problem.profiles[op].operands[port].df, align=problem.device.tile_align)
            add = min(lacking, room[op] // tile // block * block)
            if add > 0:
                extra[op, port] = already + add
                room[op] -= add * tile
                widened.add(problem.order[op])
            part -= min(part, (already + max(0, add)) * cores / own)
            if part <= 1e-9:
                break
        if part > 1e-9:
            unmet.append((math.ceil(part * epoch.tiles[pair.fork].volume), pair))
    readers = _widen_readers(epoch, room, extra)
    sizes: dict[str, tuple[int, ...]] = {}
    for op in sorted({op for op, _ in extra}):
        sizes[problem.order[op]] = tuple(
            tiles + extra[op, p] if (op, p) in extra else 0 for p, tiles in enumerate(epoch.tiles[op].inputs)
        )
    by_branch: dict[tuple[int, int, int], int] = {}
    for missing, pair in unmet:
        branch = pair.fork, pair.join, pair.short.port
        by_branch[branch] = max(missing, by_branch.get(branch, 0))
    notes = _notes(problem, f"epoch {index}", widened, readers, unmet)
    return Buffering(sizes, notes, tuple((fork, missing) for (fork, _, _), missing in by_branch.items()))


def _notes(
    problem: Problem, where: str, widened: set[str], readers: set[str], unmet: list[tuple[int, ForkJoin]]
) -> tuple[Diagnostic, ...]:
    """What was done in an epoch, or is missing: a diagnostic of each kind."""
    notes: list[Diagnostic] = []
    if widened:
        names = sorted(widened)
        text = (
            f"input buffers of {quantity(len(names), 'op')} enlarged so that the short branch of a fork does not "
            f"stall: {_name_list(names)}"
        )
        notes.append(
            Diagnostic("note", where, "fork-join", text, "a larger output buffer of the fork has the same effect")
        )
    if readers:
        text = (
            f"input buffers of {quantity(len(readers), 'op')} enlarged so that what streams to them need not wait: "
            f"{_name_list(sorted(readers))}"
        )
        notes.append(Diagnostic("note", where, "stream-reader", text, "the L1 was free; nothing is to be done"))
    if unmet:
        missing, pair = max(unmet, key=lambda u: u[0])
        fork, join = problem.order[pair.fork], problem.order[pair.join]
        through = _name_list([problem.order[op] for op in pair.long.ops]) or "nothing"
        text = (
            f"{quantity(len(unmet), 'fork')} may stall: {fork} -> {join} waits for {through}; its short branch lacks "
            f"buffer space for {missing} tiles, even with all free L1"
        )
        notes.append(
            Diagnostic("warning", where, "fork-join", text, f"an epoch break before {join}, or more cores for it")
        )
    return tuple(notes)


def nop_cores(problem: Problem, segment: Segment) -> int:
    """Cores of nops in whose L1 all has room that the short branches of an epoch's forks lack."""
    cores = 0
    for fork, missing in buffer(problem, segment, 0).unmet:
        tile = tile_bytes(problem.profiles[fork].df, align=problem.device.tile_align)
        cores += math.ceil(NOP_CORES * missing * tile / (L1_SHARE * problem.device.l1_usable))
    return cores


def _widen_readers(epoch: _Epoch, room: dict[int, int], extra: dict[tuple[int, int], int]) -> set[str]:
    """Gives L1 that is left to readers of what streams, and returns their names. A producer that packs an input in t
    parts has buffers for two of them; a picker that goes back over its operand, or a matmul that takes it slice by
    slice, then holds on to what the producer has no other place for, and the two take turns. A picker gets room for a
    whole input, a matmul for two of its own parts, as far as there is room."""
    problem, inside = epoch.problem, epoch.ops
    readers: set[str] = set()
    for op in inside:
        profile, tiles = problem.profiles[op], epoch.tiles[op]
        if not profile.matmul_like:
            continue
        for port, producer in enumerate(problem.facts[op].producers):
            if producer not in inside or port in problem.facts[op].queued_in or epoch.tiles[producer].t == 1:
                continue
            share = 1.0 if profile.kind == "sparse_matmul" else min(1.0, 2.0 / tiles.t)
            least = tiles.inputs[port]
            block, already = tiles.granules[port], extra.get((op, port), 0)
            missing = math.ceil((share * tiles.widest[port] / tiles.cores[port] - least - already) / block) * block
            tile = tile_bytes(profile.operands[port].df, align=problem.device.tile_align)
            add = min(missing, room[op] // tile // block * block)
            if add > 0:
                extra[op, port] = already + add
                room[op] -= add * tile
                readers.add(problem.order[op])
    return readers


def _name_list(names: list[str]) -> str:
    return ", ".join(names[:4]) + (f" and {len(names) - 4} more" if len(names) > 4 else "")
