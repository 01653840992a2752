"""Queues and rams: slots, pointers, and what the host sees of them.

Pointers of a queue with N entries run modulo 2N: it is empty when both are equal and full when they differ by N.
Those of a ram run modulo N. A slot holds one entry (z, R, C); it is replaced, never written into, so that a slot may
share memory with the tensor that was pushed.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from tbuda_lab.core.errors import InputError, QueueError
from tbuda_lab.core.formats import DataFormat, quantise, tile_bytes
from tbuda_lab.core.netlist.schema import Queue
from tbuda_lab.sim.arrays import (
    FULL_TILE,
    Array,
    TileDim,
    queue_shape,
    repeat_to,
    repeated_row,
    rows_to_words,
    shape_text,
    too_large,
    words_to_rows,
)
from tbuda_lab.sim.kernels.matmul import spread_rows


class Pending:
    """An entry that an epoch pushes and computes later: `value` is None until then. level: how many executions of
    epochs must be computed one after the other before it is there."""

    __slots__ = ("level", "value")

    def __init__(self, level: int) -> None:
        self.level = level
        self.value: Array | None = None


Entry = Array | Pending
"""What a slot holds."""


class Io:
    """State that queues and rams share. `readers`: names of the ops that read it, for messages. exact: the host's
    conversion rounds nothing (see `numerics`)."""

    def __init__(self, spec: Queue, readers: Sequence[str] = (), exact: bool = False) -> None:
        self.spec = spec
        self.exact = exact
        self.name = spec.name
        self.entries = spec.entries
        self.df = spec.df
        self.shape = queue_shape(spec)
        self.tile_dim: TileDim = spec.tile_dim or FULL_TILE
        self.readers = tuple(readers)
        self.from_host = is_host_fed(spec)
        self.is_weight = False  # whether products read it, and nothing else, as their second operand
        self.slots: dict[int, Entry] = {}  # those that were written
        self._blank: Array | None = None
        self.sink: list[Entry] | None = None  # entries that a listening host took as they came
        self.prologue = False
        self.epilogue = False
        self.rd_autoinc = 0
        self.global_rd_autoinc = 0

    # -- slots ----------------------------------------------------------------------------------------------------
    def slot(self, index: int) -> Array:
        """What slot `index` holds; zeros if nothing was ever written to it."""
        return self.compute(self.entry(index))

    def entry(self, index: int) -> Entry:
        """As `slot`, but what is not computed yet as it is. The same object as long as the slot holds the same."""
        entry = self.slots.get(index)
        return self.blank() if entry is None else entry

    def compute(self, entry: Entry) -> Array:
        """The tensor of an entry; zeros if the run that would have computed it was stopped."""
        value = entry.value if isinstance(entry, Pending) else entry
        return self.blank() if value is None else value

    def store(self, index: int, value: Entry) -> None:
        """Writes an entry to a slot; where the host listens, it takes the entry at once."""
        if self.sink is not None:
            problem = too_large((len(self.sink) + 1) * 4 * math.prod(self.shape))
            if problem:
                raise QueueError(f"the host took {len(self.sink)} entries of {self.describe()}: {problem}")
            self.sink.append(value)
            return
        self.slots[index] = value

    @property
    def memory(self) -> str:
        """The name of the queue or ram whose memory it is."""
        return self.name

    def blank(self) -> Array:
        if self._blank is None:
            dtype = np.int32 if self.df.is_raw or self.df.is_integer else np.float32
            self._blank = np.broadcast_to(np.zeros((), dtype), self.shape)
        return self._blank

    def clear(self) -> None:
        """Zero in every slot."""
        self.slots = {}

    def gather(self, entries: Sequence[Entry]) -> Array:
        """(n, z, R, C): entries side by side; (1, z, R, C) of a single one, and where all are the same one."""
        values = [self.compute(e) for e in entries]
        if all(value is values[0] for value in values):
            return values[0][None]
        return np.stack(values)

    # -- the host's side ------------------------------------------------------------------------------------------
    def encode(self, array: Array) -> list[Array]:
        """Entries as the device holds them, of a host array (z, R, C) or (n, z, R, C): converted to the data format, a
        row that stands for all rows once; raw words, which the host gives tile after tile, in rows. Raises `InputError`
        for a wrong shape or dtype."""
        source = np.asarray(array)
        if source.ndim == 3:
            source = source[None]
        if source.ndim != 4 or source.shape[1:] != self.shape:
            raise InputError(
                f"{self.describe()} takes (n, t, R, C) = (n, {shape_text(self.shape)[1:]}, not "
                f"{shape_text(np.asarray(array).shape)}"
            )
        if self.df.is_raw:
            if source.dtype.kind not in "iu" or source.dtype.itemsize > 4:
                raise InputError(f"{self.describe()} holds {self.df} words: give int32, not {source.dtype}")
            words = np.ascontiguousarray(source).astype(np.int32, copy=False)
            return list(words_to_rows(words, self.tile_dim))
        if source.dtype.kind not in "fiub":
            raise InputError(f"{self.describe()} takes numbers, not {source.dtype}")
        if self.df.is_integer and not (self.exact and source.dtype.kind == "f"):
            if source.dtype.kind == "f":
                source = round_half_away(source.astype(np.float64))
            return list(clip_integer(source, self.df).astype(np.int32))
        rows = source[:, :, :1] if repeated_row(source) else source
        values = np.ascontiguousarray(rows, dtype=np.float32)
        values = values if self.exact else quantise(values, self.df)
        if rows is not source:
            return list(repeat_to(values.copy() if values is rows else values, source.shape))
        spread = spread_rows(values) if self.is_weight else values
        if spread is source or np.shares_memory(spread, source):
            spread = spread.copy()  # the caller may go on writing into its array
        return list(spread)

    def decode(self, value: Array) -> Array:
        """An entry as the host reads it, (z, R, C): rounded to the data format, float32; int32 for integer formats
        and, tile after tile, for raw words."""
        if self.df.is_raw:
            return rows_to_words(value.astype(np.int64).astype(np.int32), self.tile_dim)
        if self.df.is_integer and not (self.exact and value.dtype.kind == "f"):
            number = value if value.dtype.kind in "iu" else round_half_away(value.astype(np.float64))
            return clip_integer(number, self.df).astype(np.int32)
        result: Array = np.ascontiguousarray(value, dtype=np.float32)
        result = result if self.exact else quantise(result, self.df)
        return result.copy() if result is value else result

    def describe(self) -> str:
        """ "queue 'q' (fed by HOST, read by ops a and b)"."""
        source = "HOST" if self.from_host else f"op {self.spec.input!r}"
        readers = f"op{'s' if len(self.readers) > 1 else ''} {', '.join(self.readers)}" if self.readers else "HOST"
        return f"{self.spec.type} {self.name!r} (fed by {source}, read by {readers})"


class QueueIo(Io):
    """A fifo. `rd` and `wr` are the global pointers, `rd_local` the one that moves while a graph runs."""

    def __init__(self, spec: Queue, readers: Sequence[str] = (), exact: bool = False) -> None:
        super().__init__(spec, readers, exact)
        self.rd = self.wr = self.rd_local = self.rd_base = 0
        self.rd_autoinc = 1

    @property
    def occupancy(self) -> int:
        """Entries that were pushed and not yet popped."""
        return (self.wr - self.rd) % (2 * self.entries)

    def reset(self) -> None:
        """Empty; slots keep what they hold."""
        self.rd = self.wr = self.rd_local = self.rd_base = 0

    def push_slot(self) -> int:
        """The slot of the next push; moves the write pointer."""
        if self.sink is not None:
            return 0
        if self.occupancy >= self.entries:
            raise QueueError(
                f"push to full {self.describe()}: it holds {self.occupancy} of {self.entries} entries and "
                f"no entry was popped (read pointer {self.rd}, write pointer {self.wr})"
            )
        index = self.wr % self.entries
        self.wr = (self.wr + 1) % (2 * self.entries)
        return index

    def read_slot(self) -> int:
        """The slot a graph reads next; moves the local pointer unless the queue is prologued.

        An entry behind the global pointer is popped, but still in its slot: it can be read again.
        """
        ahead = (self.rd_local - self.rd) % (2 * self.entries)
        if ahead <= self.entries and ahead % self.entries >= self.occupancy:
            raise QueueError(
                f"read from empty {self.describe()}: entry {ahead + 1} after the read pointer {self.rd} "
                f"is read, but only {self.occupancy} of {self.entries} are filled"
            )
        index = self.rd_local % self.entries
        if not (self.prologue or self.epilogue):
            self.rd_local = (self.rd_local + self.rd_autoinc) % (2 * self.entries)
        return index

    def pop_slot(self) -> int:
        """The oldest entry's slot; moves the global read pointer."""
        if self.occupancy == 0:
            raise QueueError(f"pop from empty {self.describe()} (read and write pointer {self.rd})")
        index = self.rd % self.entries
        self.rd = (self.rd + 1) % (2 * self.entries)
        return index

    def set_local(self, pointer: int) -> None:
        self.rd_local = self.rd_base = pointer % (2 * self.entries)

    def set_global(self, pointer: int) -> None:
        self.rd = pointer % (2 * self.entries)

    def propagate_global(self, pointer: int) -> None:
        """Moves the read pointer as a program's variable does: one that overtakes the write pointer pops all."""
        new = pointer % (2 * self.entries)
        crossed = (new >= self.entries) != (self.rd >= self.entries)
        if crossed and new >= self.wr:
            self.wr = new
        self.rd = new


class RamIo(Io):
    """Random access: a read and a write pointer that name slots."""

    def __init__(self, spec: Queue, readers: Sequence[str] = (), exact: bool = False) -> None:
        super().__init__(spec, readers, exact)
        self.rd = self.wr = 0
        self.wr_autoinc = 0

    def reset(self) -> None:
        self.rd = self.wr = 0

    def push_slot(self) -> int:
        index = self._check_pointer(self.wr, "write")
        self.wr = (self.wr + self.wr_autoinc) % self.entries
        return index

    def read_slot(self) -> int:
        index = self._check_pointer(self.rd, "read")
        if not (self.prologue or self.epilogue):
            self.rd = (self.rd + self.global_rd_autoinc) % self.entries
        return index

    def read_entries(self, count: int) -> list[Entry]:
        """What `count` inputs of a graph read, one after the other; a single entry where all read the same."""
        if self.prologue or self.epilogue or not self.global_rd_autoinc:
            return [self.entry(self._check_pointer(self.rd, "read"))]
        entries = [self.entry(self.read_slot()) for _ in range(count)]
        return entries if any(entry is not entries[0] for entry in entries) else entries[:1]

    def _check_pointer(self, pointer: int, what: str) -> int:
        if not 0 <= pointer < self.entries:
            raise QueueError(f"{what} pointer {pointer} of {self.describe()} is outside its {self.entries} entries")
        return pointer


class ViewIo(RamIo):
    """Another ram's memory in another blocking: slot i is the base's slots from i * k on, k of them."""

    def __init__(self, spec: Queue, base: RamIo, readers: Sequence[str] = ()) -> None:
        super().__init__(spec, readers, base.exact)
        self.base = base
        self.per_slot = base.entries // self.entries
        self._viewed: dict[int, tuple[list[Array], Array]] = {}  # by slot: the base's entries, and what they make

    def entry(self, index: int) -> Array:
        parts = [self.base.slot(i) for i in range(index * self.per_slot, (index + 1) * self.per_slot)]
        view = self._viewed.get(index)
        if view is None or any(a is not b for a, b in zip(view[0], parts, strict=True)):
            streams = np.concatenate([to_stream(p, self.base.spec) for p in parts], axis=1)
            view = self._viewed[index] = parts, from_stream(streams, self.spec)
        return view[1]

    def store(self, index: int, value: Entry) -> None:
        streams = to_stream(self.compute(value), self.spec)
        parts = np.split(streams, self.per_slot, axis=1)
        for i, part in enumerate(parts):  # slots of the base
            self.base.store(index * self.per_slot + i, from_stream(part, self.base.spec))

    @property
    def memory(self) -> str:
        return self.base.name

    def clear(self) -> None:
        self.base.clear()


def to_stream(x: Array, spec: Queue) -> Array:
    """(z, R, C) as each buffer of the queue holds it: (buffers, tiles, h, w), tiles in storage order."""
    h, w = spec.tile_dim or FULL_TILE
    (gr, gc), (m, n), (ur, uc) = spec.grid_size, spec.blocking.mblock, spec.blocking.ublock
    cores = x.reshape(x.shape[0], gr, m, ur, h, gc, n, uc, w)
    order = (1, 5, 0, 2, 6, 3, 7, 4, 8) if spec.blocking.order != "c" else (1, 5, 0, 6, 2, 3, 7, 4, 8)
    return cores.transpose(order).reshape(gr * gc, -1, h, w)


def from_stream(streams: Array, spec: Queue) -> Array:
    """Inverse of `to_stream`; the number of slices follows from the number of tiles."""
    h, w = spec.tile_dim or FULL_TILE
    (gr, gc), (m, n), (ur, uc) = spec.grid_size, spec.blocking.mblock, spec.blocking.ublock
    outer, inner, back = (
        ((m, n), (ur, uc), (2, 0, 3, 5, 7, 1, 4, 6, 8))
        if spec.blocking.order != "c"
        else ((n, m), (ur, uc), (2, 0, 4, 5, 7, 1, 3, 6, 8))
    )
    cores = streams.reshape(gr, gc, -1, *outer, *inner, h, w).transpose(back)
    return cores.reshape(cores.shape[0], gr * m * ur * h, gc * n * uc * w)


def is_host_fed(spec: Queue) -> bool:
    """Fed by the host, directly or from a queue of another network."""
    return spec.input == "HOST" or "net2net" in spec.input


def overlap(one: Queue, other: Queue) -> bool:
    """Whether two queues of one device have buffers that share bytes."""
    if one.target_device != other.target_device or one.loc != other.loc:
        return False
    sizes = []
    for q in (one, other):
        (m, n), (ur, uc) = q.blocking.mblock, q.blocking.ublock
        tile = tile_bytes(q.df, q.tile_dim or FULL_TILE, header=q.layout != "flat")
        sizes.append(q.blocking.t * m * n * ur * uc * tile * q.entries)
    return any(
        a.channel == b.channel and a.address < b.address + sizes[1] and b.address < a.address + sizes[0]
        for a in one.buffers
        for b in other.buffers
    )


def round_half_away(x: Array) -> Array:
    """float64 to whole numbers, halves away from zero, NaN to 0."""
    rounded: Array = np.trunc(x + np.copysign(0.5, x))
    return np.nan_to_num(rounded, copy=False, nan=0.0, posinf=np.inf, neginf=-np.inf)


def clip_integer(x: Array, df: DataFormat) -> Array:
    """Limits whole numbers to the range of an integer format. Integers are 32-bit words in Int32, -2**31 among them."""
    lowest = -(2**31) if x.dtype.kind in "iu" else -(2**31) + 1
    low, high = {DataFormat.Int8: (-127, 127), DataFormat.UInt8: (0, 255), DataFormat.UInt16: (0, 65535)}.get(
        df, (lowest, 2**31 - 1)
    )
    limited: Array = np.clip(x, low, high)
    return limited


def build(
    queues: Iterable[Queue], readers: dict[str, list[str]], dynamic: set[str], exact: bool = False
) -> dict[str, QueueIo | RamIo]:
    """The state of all queues and rams of a netlist.

    Rams with the same buffers (written as `alias`, or found by their addresses) share memory: the one with most
    entries is the base, the others are views. `dynamic`: names that a program allocates; those are never views.
    """
    listed = list(queues)
    base_of = _bases(listed, dynamic)
    queues_by_name: dict[str, QueueIo | RamIo] = {}
    for spec in listed:
        users = readers.get(spec.name, ())
        if spec.type == "queue":
            queues_by_name[spec.name] = QueueIo(spec, users, exact)
        elif spec.name not in base_of:
            queues_by_name[spec.name] = RamIo(spec, users, exact)
    for spec in listed:
        if spec.name in base_of:
            base = queues_by_name[base_of[spec.name]]
            assert isinstance(base, RamIo)
            queues_by_name[spec.name] = ViewIo(spec, base, readers.get(spec.name, ()))
    return {spec.name: queues_by_name[spec.name] for spec in listed}


def _bases(queues: list[Queue], dynamic: set[str]) -> dict[str, str]:
    """View name -> base name."""
    groups: dict[tuple[object, ...], list[Queue]] = {}
    by_name = {q.name: q for q in queues}
    for q in queues:
        if q.type != "ram" or q.name in dynamic or not q.buffers:
            continue
        leader = by_name.get(q.alias or "", q)
        z, rows, columns = queue_shape(q)
        key = (
            str(leader.target_device),
            leader.loc,
            tuple((b.channel, b.address) for b in leader.buffers),
            z * rows * columns * q.entries,
        )
        groups.setdefault(key, []).append(q)
    views: dict[str, str] = {}
    for group in groups.values():
        base = max(group, key=lambda q: q.entries)
        for q in group:
            if q is not base and base.entries % q.entries == 0 and _same_pieces(q, base):
                views[q.name] = base.name
    return views


def _same_pieces(one: Queue, other: Queue) -> bool:
    """Whether both are cut into as many buffers, however those are arranged, of tiles of one size."""
    tiles = (one.tile_dim or FULL_TILE, other.tile_dim or FULL_TILE)
    return math.prod(one.grid_size) == math.prod(other.grid_size) and tiles[0] == tiles[1]
