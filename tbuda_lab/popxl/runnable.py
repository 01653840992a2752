"""What is left of an Ir when it is compiled: replicas that run its host programs, and what the host reads and writes.

It knows tensors by name alone, so it is the same whether the Ir is there or a file was read (`popxl.archive`).
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.dialects import host_program as hp
from tbuda_lab.dialects.host_program import HostProgram, Machine
from tbuda_lab.dialects.replicas import Replica, shards
from tbuda_lab.dialects.slots import Slot, SlotValues
from tbuda_lab.popxl import dtypes, kinds
from tbuda_lab.popxl.kinds.picking import loss_rows, mask_words, one_hot_rows
from tbuda_lab.popxl.utils import product

NUMPY = {t.name: t.as_numpy() for t in dtypes._ALL}
"""The type of a slot's array by the name of its dtype."""


@dataclasses.dataclass(frozen=True)
class StoredVariable:
    """A variable. shape: on one replica; assignment: by replica the number of its group; shards: of how many replicas
    each holds a part; remote: the remote buffer and its entry where it lies there."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    assignment: tuple[int, ...]
    shards: int = 1
    remote: tuple[int, int] | None = None

    @functools.cached_property
    def groups(self) -> list[list[int]]:
        """The replicas of each group in order."""
        return [
            [k for k, own in enumerate(self.assignment) if own == group] for group in dict.fromkeys(self.assignment)
        ]

    @property
    def host_shape(self) -> tuple[int, ...]:
        """With the groups as dim 0 where there are several."""
        return (len(self.groups), *self.shape) if len(self.groups) > 1 else self.shape


@dataclasses.dataclass(frozen=True)
class BufferForm:
    """A remote buffer by its number. shape and dtype: of an entry."""

    number: int
    entries: int
    shape: tuple[int, ...]
    dtype: str


@dataclasses.dataclass(frozen=True)
class StreamForm:
    """A stream: what one load or store moves."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    to_host: bool


@dataclasses.dataclass(frozen=True)
class Interface:
    """What the host reads and writes of a program. transfers: tensors of each stream in a run."""

    replicas: int
    transfers: int
    variables: tuple[StoredVariable, ...]
    buffers: tuple[BufferForm, ...]
    streams: tuple[StreamForm, ...]


def register_kinds() -> None:
    """Let host programs name the kinds of PopXL."""
    for name, kind in kinds.KINDS.items():
        hp.register(name, _host_form(kind))
    hp.register("OneHotRows", lambda attrs, arrays: (one_hot_rows(arrays[0], attrs["size"]),))
    hp.register("LossRows", _loss_rows)
    hp.register("MaskWords", lambda attrs, arrays: mask_words(arrays[0], attrs["shape"]))


def _host_form(kind: kinds.Kind) -> Callable[[Mapping[str, Any], Sequence[np.ndarray]], Sequence[np.ndarray]]:
    return lambda attrs, arrays: kind.run(dict(attrs), arrays)


def _loss_rows(attrs: Mapping[str, Any], arrays: Any) -> tuple[np.ndarray, ...]:
    rows, counts = loss_rows(dict(attrs), arrays[0], attrs["classes"])
    return rows, counts[-1:], counts[:-1, None]


class Runnable:
    """Replicas of a compiled program. programs by name: "weights_in", "main", "weights_out"."""

    def __init__(
        self,
        result: CompileResult | None,
        programs: Mapping[str, HostProgram],
        slots: Mapping[str, Slot],
        interface: Interface,
        mode: str,
    ) -> None:
        register_kinds()
        self.programs, self.interface = programs, interface
        self.variables = {v.name: v for v in interface.variables}
        self.replicas = [None if result is None else Replica(result, mode) for _ in range(interface.replicas)]
        executors = [r.executor if r is not None else None for r in self.replicas]
        self.values = [SlotValues(slots, e, NUMPY) for e in executors]
        self.buffers = [
            {b.number: np.zeros((b.entries, *b.shape), NUMPY[b.dtype]) for b in interface.buffers} for _ in self.values
        ]
        self.machine = Machine([r for r in self.replicas if r is not None], slots=self.values, buffers=self.buffers)

    # -- weights ---------------------------------------------------------------------------------------------
    def load(self, data: Mapping[str, np.ndarray]) -> None:
        """Write variables, each replica's part of them, and run what belongs to it."""
        sharded = False
        for name, value in data.items():
            v = self.variables[name]
            for k in range(len(self.values)):
                part = value[v.assignment[k]] if len(v.groups) > 1 else value
                if v.remote is None:
                    self.values[k].write(name, part)
                    continue
                sharded = True
                number, entry = v.remote
                own = shards(part, v.shards)[self._rank(v, k) % v.shards] if v.shards > 1 else part
                target = self.buffers[k][number]
                target[entry] = own.reshape(target.shape[1:])
        if sharded:
            self.machine.run(self.programs["weights_in"])

    @staticmethod
    def _rank(v: StoredVariable, replica: int) -> int:
        """The place of a replica in its group."""
        return v.groups[v.assignment[replica]].index(replica)

    def store(self, names: Sequence[str]) -> dict[str, np.ndarray]:
        """Read variables, of each group the first replica's."""
        self.machine.run(self.programs["weights_out"])
        result = {}
        for v in (self.variables[name] for name in names):
            parts = [self._read(v, group) for group in v.groups]
            result[v.name] = np.stack(parts) if len(parts) > 1 else parts[0]
        return result

    def _read(self, v: StoredVariable, group: list[int]) -> np.ndarray:
        if v.remote is None:
            return self.values[group[0]].fetch(v.name)
        number, entry = v.remote
        if v.shards == 1:
            return np.array(self.buffers[group[0]][number][entry]).reshape(v.shape)
        parts = [self.buffers[k][number][entry].reshape(-1) for k in group[: v.shards]]
        return np.concatenate(parts)[: product(v.shape)].reshape(v.shape)

    def all_replicas(self, name: str) -> np.ndarray:
        """A variable of every replica."""
        v = self.variables[name]
        return np.stack(
            [self._read(v, [k] if v.shards == 1 else v.groups[group]) for k, group in enumerate(v.assignment)]
        )

    def _state(self) -> Callable[[], None]:
        """What puts devices, slots and remote buffers back as they are now."""
        devices = [r.executor.state() for r in self.replicas if r is not None]
        hosts = [dict(own.host) for own in self.values]
        overwritten: list[tuple[np.ndarray, int, np.ndarray]] = []
        self.machine.overwritten = overwritten

        def put_back() -> None:
            for device in devices:
                device()
            for own, host in zip(self.values, hosts, strict=True):
                own.host = host
            for entries, offset, value in reversed(overwritten):
                entries[offset] = value

        return put_back

    # -- a run -----------------------------------------------------------------------------------------------
    def run(self, inputs: Mapping[str, np.ndarray], outputs: Mapping[str, np.ndarray], frames: tuple[int, int]) -> None:
        """One run of the main program, of streams by name. frames: transfers and replicas. Where it fails or is
        stopped, variables, remote buffers and queues are as they were before it."""
        transfers, replicas = frames
        machine, streams = self.machine, {s.name: s for s in self.interface.streams}
        machine.cursors.clear()
        for k in range(replicas):
            machine.streams[k] = {
                name: _slots_of(streams[name].shape, NUMPY[streams[name].dtype], value, frames, k)
                for name, value in inputs.items()
            }
            machine.stored[k] = {}
        put_back = self._state()
        try:
            machine.run(self.programs["main"])
        except BaseException:
            put_back()
            raise
        finally:
            machine.overwritten = None
        for name, target in outputs.items():
            stream = streams[name]
            form = NUMPY[stream.dtype]
            whole = np.zeros((transfers, replicas, *stream.shape), form)
            for k in range(replicas):
                for at, value in enumerate(machine.stored[k].get(name, ())):
                    whole[at % transfers, k] = value
            if target.dtype == np.uint8 and np.dtype(form).names:
                whole = whole.view(np.uint8)
            own = whole.reshape((*(n for n in frames if n > 1), *stream.shape))
            if target.shape[:1] > own.shape[:1]:  # the caller's array may have room for more
                target[: own.shape[0]] = own
            else:
                target[...] = own.reshape(target.shape)


def _slots_of(
    shape: tuple[int, ...], form: Any, value: np.ndarray, frames: tuple[int, int], k: int
) -> list[np.ndarray]:
    """What a replica loads of a stream, transfer after transfer."""
    transfers, replicas = frames
    array = np.asarray(value)
    if array.dtype == np.uint8 and np.dtype(form).names:
        array = array.view(form)
    if transfers > 1:
        array = array[:transfers] if array.shape[:1] != (1,) or transfers == 1 else array
    elif replicas > 1:
        array = array[:replicas][None]
    else:
        array = array[None]
    if replicas > 1:
        array = array[:, k]
    return [np.asarray(one).reshape(shape) for one in array]
