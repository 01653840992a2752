"""What filling an epoch costs at least, every op with one row for its work and for its share of the way of the first
input.

Source of what an op does when: placement.md#firings. The argument that it is a bound: placement.md#lower-bounds.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import numpy as np

from tbuda_lab.core.balancer.bandwidth import DRAM, HOST, demands, dram_divider
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.lowering.hw_ops import HwReduce, HwSparseMatmul, HwSplice
from tbuda_lab.core.placer.model.op_parts import first_part, last_part, picked_strips, reads_all, reads_at_once
from tbuda_lab.core.placer.model.problem import Problem

_CONSTANTS = EpochConstants()
_HOP, _READY = _CONSTANTS.noc_latency, _CONSTANTS.dram_latency
_SHARES = np.array([0.0, 0.25, 0.5, 1.0])
"""Of an output's rows of tiles (the first one at least): the events that are followed are that so many have left."""
_K = len(_SHARES)
_BEGUN, _WHOLE, _FRONT, _NOTHING = 0, 1, 1 + _K, 1 + 2 * _K
"""Events of an op: any tile has left; from `_WHOLE` on all tiles of the first rows, the last of them all of its output;
from `_FRONT` on those of slice 0 and column 0 among them; and one that is there from the start."""
_EVENTS = 1 + 2 * _K
_DONE = _WHOLE + _K - 1
_NEVER = 1 << 60
"""Inputs of a batch by which what is fetched once costs nothing."""
_PRICES = np.array([0.0, 500.0, 4000.0])
"""Cycles that a core may cost."""
_ROUNDS = 7
_ENOUGH = 1e-3


@dataclasses.dataclass(frozen=True)
class _Progress:
    """Rows of an op, of those that are alike but for cores and cycles only the ones that no other beats. cores, cycles,
    last (cycles from when the last tiles of its operands are there until it is done): (rows,). own: (rows, events)
    cycles from its beginning until each event. after, cycles_after: (conditions, rows, 2 x `_K`) an event of what it
    reads, and cycles that are left to do from there (a message included) until `_WHOLE`, `_FRONT`."""

    cores: np.ndarray
    cycles: np.ndarray
    last: np.ndarray
    own: np.ndarray
    after: np.ndarray
    cycles_after: np.ndarray

    def only(self, which: np.ndarray) -> _Progress:
        """Some of the rows."""
        at = np.flatnonzero(which)
        after, cycles_after = self.after.take(at, axis=1), self.cycles_after.take(at, axis=1)
        return _Progress(self.cores[at], self.cycles[at], self.last[at], self.own[at], after, cycles_after)


class FillingBound:
    """Runs of a problem as epochs of a batch. most: cycles for an input beyond which no run is asked about."""

    def __init__(self, problem: Problem, most: float) -> None:
        self.problem, self.most = problem, most
        self._feeds = [self._feeds_of(op) for op in range(len(problem.order))]
        self._readers = [
            [reader for reader, port in fact.readers if reads_all(problem, reader, port)] for fact in problem.facts
        ]
        self._tables: dict[tuple[object, ...], _Progress] = {}
        self._of: dict[int, _Progress] = {}

    def excludes(self, first: int, last: int, cycles: float) -> bool:
        """Whether ops [first, last) cannot work on a batch in so many cycles as one epoch.

        If they could, no op would take longer for an input than `limit`, at first its share of the cycles. With the
        fewest cores that this allows some are spare, and no op is done with its first input before `end`: whatever
        price a core has, ops on the way cost it more than what they are spared. From then on it works on the others,
        and those that read it still have to do with the last one. So its limit is lower; and so forth, until an op has
        no row or there are not enough cores.
        """
        problem, inputs = self.problem, self.problem.inputs(first)
        limit = dict.fromkeys(range(first, last), cycles / inputs)
        if inputs < 2 or cycles > inputs * self.most:
            return False
        for _ in range(_ROUNDS):
            tables = {op: self._progress(op) for op in range(first, last)}
            within = {op: table.cycles <= limit[op] for op, table in tables.items()}
            if not all(some.any() for some in within.values()):
                return True
            fewest = {op: int(table.cores[within[op]].min()) for op, table in tables.items()}
            spare = problem.cores - sum(fewest.values())
            if spare < 0:
                return True
            rows = {op: t.only(within[op] & (t.cores <= fewest[op] + spare)) for op, t in tables.items()}
            prices = _PRICES if spare else _PRICES[:1]  # with no core to spare each has its fewest
            end, after = self._ends(rows, fewest, prices, spare), self._afters(rows)
            lower = {op: (cycles - end[op] - after[op]) / (inputs - 1) for op in rows}
            if min(lower.values()) < 0:
                return True
            moved = max(limit[op] - lower[op] for op in rows)
            limit = {op: min(limit[op], lower[op]) for op in rows}
            if moved <= _ENOUGH * cycles / inputs:
                break
        return False

    def _ends(
        self, rows: Mapping[int, _Progress], fewest: Mapping[int, int], prices: np.ndarray, spare: int
    ) -> dict[int, float]:
        """By op, when it is done with the first input at the earliest. prices: of a core; spare: cores."""
        problem, first = self.problem, min(rows)
        events: dict[int, np.ndarray] = {}
        ends: dict[int, float] = {}
        for op, mine in rows.items():
            producers, op_type = problem.facts[op].producers, problem.profiles[op].op
            begun = [events[p][_BEGUN] + _HOP for p in producers if p >= first]
            start = np.full(len(prices), float(_READY))
            if isinstance(op_type, HwSplice):
                if len(begun) == len(producers):
                    start = np.min(begun, axis=0)
            elif begun and reads_at_once(op_type):
                start = np.max(begun, axis=0)
            times = start + mine.own[:, :, None]
            for kind, p in self._feeds[op]:
                if p < first:
                    continue
                if kind in ("all", "done"):
                    done, now = events[p][_DONE] + (_HOP + mine.last[:, None]), times[:, _WHOLE:_FRONT]
                    now = now if kind == "all" else now[:, -1:]
                    np.maximum(now, done[:, None], out=now)
                    continue
                now, after, left = times[:, _WHOLE:], mine.after, mine.cycles_after
                if kind == "whole":
                    now, after, left = now[:, :_K], after[:1, :, :_K], left[:1, :, :_K]
                there = events[p].take(after, axis=0)
                there += left[..., None]
                for one in there:
                    np.maximum(now, one, out=now)
            times += (prices * (mine.cores - fewest[op])[:, None])[:, None]
            least = np.full((_EVENTS + 1, len(prices)), -np.inf)
            least[:_EVENTS] = times.min(axis=0)
            events[op] = least
            ends[op] = float((least[_DONE] - prices * spare).max())
        return ends

    def _afters(self, rows: Mapping[int, _Progress]) -> dict[int, float]:
        """By op, from when it is done with an input until all that reads it is, at least."""
        problem, last = self.problem, max(rows) + 1
        least = {op: float(mine.last.min()) for op, mine in rows.items()}
        after: dict[int, float] = {}
        for op in range(last - 1, min(rows) - 1, -1):
            late = float(_READY) if problem.places(op, min(rows), last)[1] in (DRAM, HOST) else 0.0
            for reader in self._readers[op]:
                if reader < last:
                    late = max(late, _HOP + least[reader] + after[reader])
            after[op] = late
        return after

    def _feeds_of(self, op: int) -> list[tuple[str, int]]:
        """(how rows of tiles of the output rest on those of an operand, producer): "rows" where the first ones need the
        first ones, "whole" where that holds for whole rows at their end alone, "all" where each row needs every tile,
        "done" where all of them together do."""
        problem, profile = self.problem, self.problem.profiles[op]
        feeds: list[tuple[str, int]] = []
        for port, producer in enumerate(problem.facts[op].producers):
            if producer < 0:
                continue
            kind = _kind(profile, port)
            if not kind and reads_all(problem, op, port):
                op_type, role = profile.op, profile.operands[port].role
                summed = isinstance(op_type, HwReduce) and op_type.dim == "r"
                weights = profile.kind == "matmul" and role == "in1"
                kind = "all" if summed or weights else "done"
            if kind:
                feeds.append((kind, producer))
        return feeds

    def _progress(self, op: int) -> _Progress:
        """Worked out once for equal ops that read from and write to the same places."""
        if op in self._of:
            return self._of[op]
        problem, table = self.problem, self.problem.tables[op]
        places = problem.places(op, op, op + 1), problem.places(op, 0, len(problem.order))
        entry = self._tables.get((table.signature, places))
        if entry is None:
            legal = problem.legal[table.signature]
            cycles = np.ceil(np.minimum(*(self._cycles(op, *place)[legal] for place in places)))
            quick = cycles <= max(self.most, float(cycles.min()))
            entry = _progress(problem.profiles[op], table.rows[legal[quick]], cycles[quick])
            self._tables[table.signature, places] = entry
        self._of[op] = entry
        return entry

    def _cycles(self, op: int, where: tuple[str, ...], output: str) -> np.ndarray:
        """(rows,) cycles for an input once all is loaded that is fetched once, with DRAM to itself."""
        problem = self.problem
        all_ = demands(
            problem.profiles[op], problem.tables[op].rows, problem.device, where, output, 0, _NEVER, problem.traffic(op)
        )
        rate = problem.device.dram_bytes_per_cycle / dram_divider(problem.device, 0)
        cycles: np.ndarray = np.maximum(all_.cycles[:-1].max(axis=0), all_.shared.max(axis=0) / rate)
        return cycles  # the last row of those that are not shared is an encoding, which is fetched once


def _kind(profile: OpProfile, port: int) -> str:
    """See `FillingBound._feeds_of`; "" where rows do not say it."""
    op, operand = profile.op, profile.operands[port]
    if any(tm.name != "hstack" for tm in operand.tms):
        return ""
    if isinstance(op, HwSparseMatmul):
        return "" if operand.tms or operand.tiles[0] != 1 else "rows"
    if operand.role in ("in1", "bias") or (isinstance(op, HwReduce) and op.dim == "r"):
        return ""
    if operand.tiles[1] != profile.out[1] or profile.fused_sums == "r":
        return ""
    if isinstance(op, HwSplice):
        index, count, _ = op.ranges[port]
        return "whole" if op.axis == "c" and index == 0 and count >= operand.tiles[2] else ""
    return "rows"


def _rows_of(height: int) -> np.ndarray:
    """(`_K`,) rows of tiles of each event."""
    rows: np.ndarray = np.maximum(1, np.floor(_SHARES * height)).astype(np.int64)
    return rows


def _progress(profile: OpProfile, rows: np.ndarray, cycles: np.ndarray) -> _Progress:
    """Of all rows that an op may have, with their cycles for an input."""
    names = _PICKER_FIELDS if isinstance(profile.op, HwSparseMatmul) else _FIELDS
    fields = np.column_stack([rows[name] for name in names] + [rows["stream"] == "rz"]).astype(np.int32)
    _, kinds, alike = _unique(fields)
    own, after, left, last = _parts(profile, rows[kinds])
    _, _, same = _unique(np.column_stack([last, own, *left, *after]))
    cores = rows["cores"].astype(np.int64)
    keep = _unbeaten(same[alike], cores, cycles)
    kind, its_cycles = alike[keep], cycles[keep]

    def lasts(part: np.ndarray) -> np.ndarray:
        """Cycles of a part of the work, at least: steps are whole cycles."""
        per_row = its_cycles.reshape(-1, *[1] * (part.ndim - 1))
        whole: np.ndarray = np.maximum(0.0, np.floor(per_row * part[kind]) - 1.0)
        return whole

    return _Progress(
        cores[keep],
        its_cycles,
        lasts(last),
        lasts(own),
        after[:, kind].astype(np.intp),
        np.stack([lasts(part) for part in left]) + _HOP,
    )


_FIELDS = ("stream_r", "stream_c", "t", "grid_r", "mblock_m", "mblock_n", "m_k")
_PICKER_FIELDS = ("stream_r", "t", "grid_r", "m_k", "u_kt")
"""What of a row decides how its work goes on, beside the order of its slices."""


def _parts(profile: OpProfile, rows: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """`own`, `after`, `cycles_after` and `last` of a `_Progress`, the cycles as parts of all."""
    parts = _PickerParts(profile, rows) if isinstance(profile.op, HwSparseMatmul) else _Parts(profile, rows)
    count = len(rows)
    own = np.zeros((count, _EVENTS))
    own[:, _BEGUN] = first_part(profile, rows)
    after = np.full((parts.conditions, count, 2 * _K), _NOTHING, dtype=np.int8)
    left = np.zeros(after.shape)
    source = _rows_of(profile.operands[0].tiles[1] if isinstance(parts, _PickerParts) else profile.out[1])
    for k, height in enumerate(_rows_of(profile.out[1]).tolist()):
        for front in (False, True):
            event = k + _K * front
            own[:, _WHOLE + event] = parts.own(height, front)
            for i, (its_front, needed, part) in enumerate(parts.needs(height, front)):
                at = np.searchsorted(source, needed, side="right")
                after[i, :, event] = np.where(at > 0, (_FRONT if its_front else _WHOLE) + at - 1, _NOTHING)
                left[i, :, event] = np.where(at > 0, part, 0.0)
    return _coarse(own), after, _coarse(left), _coarse(last_part(profile, rows))


def _coarse(parts: np.ndarray) -> np.ndarray:
    """Rounded down to a few digits, so that more rows are alike."""
    digits, power = np.frexp(parts)
    coarse: np.ndarray = np.ldexp(np.floor(digits * _DIGITS) / _DIGITS, power)
    return coarse


_DIGITS = 64


def _unique(values: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The different ones among the rows of a matrix, where each is first, and which of them each is."""
    whole = np.ascontiguousarray(values)
    flat = whole.view(f"V{whole.shape[1] * whole.itemsize}").reshape(-1)
    unique, first, which = np.unique(flat, return_index=True, return_inverse=True)
    return unique, first, which.reshape(-1)


def _unbeaten(alike: np.ndarray, cores: np.ndarray, cycles: np.ndarray) -> np.ndarray:
    """Of rows of one kind those of which no other has no more cores and no more cycles, or comes first."""
    order = np.lexsort((cycles, cores, alike))
    apart = float(cycles.max()) + 1.0
    value = cycles[order] - alike[order] * apart  # every kind begins below all before it
    least = np.minimum.accumulate(value)
    keep: np.ndarray = order[np.concatenate([[True], value[1:] < least[:-1]])]
    return keep


class _Parts:
    """How ops that are no pickers go through their work, by row; all in parts of it, each at least.

    An output has t blocks; along rows `slices` of them, of `slice_height` rows of tiles, of which a core has
    `core_height`. What has summed up over all of an operand leaves with a block, other ops let go row by row.
    """

    conditions = 4

    def __init__(self, profile: OpProfile, rows: np.ndarray) -> None:
        def of(field: str) -> np.ndarray:
            values: np.ndarray = rows[field].astype(np.int64)
            return values

        op = profile.op
        self.profile, self.t = profile, of("t")
        self.height, self.slices, self.columns = profile.out[1], of("stream_r"), of("stream_c")
        self.slice_height = self.height // self.slices
        self.core_height = np.maximum(1, self.slice_height // of("grid_r"))
        self.z = np.maximum(1, self.t // (self.slices * self.columns))
        self.z_inside = rows["stream"] == "rz"
        self.m, self.n, self.k = of("mblock_m"), of("mblock_n"), np.maximum(1, of("m_k")) * profile.z_group
        if profile.kind == "depthwise":
            self.k = np.full(len(rows), max(1, profile.inner))
        if isinstance(op, HwSparseMatmul) or profile.kind == "depthwise" or profile.fused_sums:
            self.gradual = np.zeros(len(rows), dtype=bool)
        elif profile.matmul_like:
            self.gradual = self.k == 1
        elif isinstance(op, HwReduce):
            self.gradual = np.full(len(rows), op.dim != "z")
        else:
            self.gradual = np.full(len(rows), not (isinstance(op, HwSplice) and op.axis == "z"))

    def _block(self, rows: int, front: bool) -> np.ndarray:
        """Which block, in the order in which they are made, is the last that has one of these tiles."""
        at = (rows - 1) // self.slice_height
        if front:
            block: np.ndarray = np.where(self.z_inside, at * self.z, np.minimum(at * self.columns, at))
        else:
            one, other = at * self.columns + self.columns - 1, (self.columns - 1) * self.slices + at
            rest = (self.z - 1) * self.slices * self.columns + np.minimum(one, other)
            block = np.where(self.z_inside, at * self.z + self.z - 1, rest)
        return block

    def own(self, rows: int, front: bool) -> np.ndarray:
        """Until the first `rows` rows of tiles have left. front: of slice 0 and column 0 alone."""
        at = (rows - 1) // self.slice_height
        share = np.minimum(rows - at * self.slice_height, self.core_height) / self.core_height
        if front and not self.profile.matmul_like:  # by rows of ublocks, or by columns of them
            share = np.minimum(np.maximum(0.0, share - 1.0 / self.m), share / self.n)
        part: np.ndarray = (self._block(rows, front) + np.where(self.gradual, share, 1.0)) / self.t
        return part

    def needs(self, rows: int, front: bool) -> list[tuple[bool, np.ndarray, np.ndarray]]:
        """What of an operand has to be there: (whether of slice 0 and column 0 alone, the first so many of its rows of
        tiles, part of the work that is still to be done then)."""
        at = (rows - 1) // self.slice_height
        own, one = self.own(rows, front), np.ones(len(self.t), dtype=np.int64)
        begun = -(-(rows - at * self.slice_height) // self.core_height)  # cores along rows that take part
        block_end = np.minimum(self.height, at * self.slice_height + begun * self.core_height)
        single = 1.0 / (self.t * self.k * self.m * self.n)
        # a product takes whole rows of its operand, and all slices where it has one slice itself
        whole_rows = self.profile.kind == "matmul" and self.profile.out[0] == 1
        needs = [
            (front and not whole_rows, np.where(self.gradual, rows, block_end), single),
            (True, one, own),
        ]
        if self.profile.matmul_like:
            again = (self.k - 1) / self.k + 1.0 / (self.k * self.m * self.n)  # from the last rows' first step on
            core_end = at * self.slice_height + self.core_height
            needs += [
                (not whole_rows, np.where(self.gradual, one, 0), own),
                (True, np.where(self.gradual, 0, core_end), again / self.t),
            ]
        return needs


class _PickerParts(_Parts):
    """The same of pickers: for every block strips from the first to the last that it picks rows of, in k parts."""

    def needs(self, rows: int, front: bool) -> list[tuple[bool, np.ndarray, np.ndarray]]:
        count = len(self.t)
        needed, part = np.zeros((4, count), dtype=np.int64), np.zeros((4, count))
        end = self._block(rows, front)
        for (_, inside, strip), where, low, high, read in self._kinds:
            at, block = (rows - 1) // int(self.slice_height[where[0]]), int(end[where[0]])
            begin = int((high >= 0).argmax())  # the first block that reads anything
            latest = int((read >= read[block]).argmax())
            same = at * self.profile.out[0] if inside else block
            for i, one in enumerate((latest, begin, same)):
                if one <= block:
                    needed[i, where] = read[one] * strip
                    part[i, where] = (block - one + 1.0 / self.k[where]) / self.t[where]
            if begin <= block and low[begin] == 0:  # of the first block the first of k parts
                needed[3, where] = -(-int(high[begin] + 1) // self.k[where]) * strip
                part[3, where] = (block - begin + 1.0) / self.t[where]
        return [(front, needed[i], part[i]) for i in range(4)]

    def __init__(self, profile: OpProfile, rows: np.ndarray) -> None:
        super().__init__(profile, rows)
        kinds, which = np.unique(
            np.column_stack([self.slices, self.z_inside, np.maximum(1, rows["u_kt"])]), axis=0, return_inverse=True
        )
        op = profile.op
        assert isinstance(op, HwSparseMatmul)
        self._kinds = []
        for i, (factor, inside, strip) in enumerate(kinds.tolist()):
            low, high = (s // strip for s in picked_strips(op.picker, profile.out, bool(inside), factor)[:2])
            where = np.flatnonzero(which.reshape(-1) == i)
            self._kinds.append(((factor, bool(inside), strip), where, low, high, _read(low, high)))


def _read(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    """(blocks,) how many strips, from the first one on without a gap, all blocks up to each one read."""
    reach, waiting, read = 0, [], []
    for begin, end in zip(low.tolist(), high.tolist(), strict=True):
        if end >= 0:
            waiting.append((begin, end + 1))
            while near := [one for one in waiting if one[0] <= reach]:
                reach = max(reach, *(stop for _, stop in near))
                waiting = [one for one in waiting if one[0] > reach]
        read.append(reach)
    return np.array(read)
