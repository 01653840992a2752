"""Replicas: several simulated devices with one netlist and different inputs, and how long they take together."""

from __future__ import annotations

import dataclasses
import math
import os
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

from tbuda_lab.core.bindings import WeightBinding, decode, encode
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import InputError, not_supported
from tbuda_lab.core.runner import Runner

Named = TypeVar("Named")
MODES = ("normal", "inorder", "optimal")
"""How gradients are synchronised: after the backward sections; beside them; and with updates in order of readiness."""

TOTAL = "POPDIST_NUM_TOTAL_REPLICAS"
INSTANCES = ("POPDIST_NUM_LOCAL_REPLICAS", "POPDIST_NUM_INSTANCES")
MOST_REPLICAS = 1 << 10


class Replica:
    """One device with its own copy of weights, gradients and optimizer state."""

    def __init__(self, result: CompileResult, mode: str = "golden") -> None:
        self.result = result
        self.executor = Runner(result, mode).executor
        self._inputs = {b.name: b for b in result.inputs}
        self._outputs = {b.name: b for b in result.outputs}
        self.weights: dict[str, WeightBinding] = {w.name: w for w in result.weights}

    def push(self, name: str, feed: Mapping[str, torch.Tensor]) -> None:
        """Raises `InputError` where there is no such input, and where the feed lacks a tensor that it needs."""
        binding = _by_name(self._inputs, name, "input")
        self.executor.push(binding.queue, binding.encode(feed))

    def run(self, program: str, params: Mapping[str, int]) -> None:
        self.executor.run(program, dict(params))

    def pop(self, name: str) -> torch.Tensor:
        """Raises `InputError` where there is no such output."""
        binding = _by_name(self._outputs, name, "output")
        return binding.decode(self.executor.pop(binding.queue))

    def take_over(self, other: Replica) -> None:
        """Weights and the optimizer's state of a replica of the same graph, placed in whatever way."""
        for name, weight in self.weights.items():
            before = other.weights[name]
            value = before.decode(other.executor.read(before.queue))
            self.executor.write(weight.queue, weight.encode(value))
            states = {s.suffix: s for s in before.states}
            for state in weight.states:
                old = states[state.suffix]
                tensor = decode(other.executor.read(old.queue), old.shape)
                self.executor.write(state.queue, encode(tensor, state.shape, state.queue))

    def states(self, weight: str) -> dict[str, torch.Tensor]:
        """The optimizer's state of a weight by suffix, as long as the weight in the order of the model's parameter."""
        binding = self.weights[weight]
        values = {s.suffix: decode(self.executor.read(s.queue), s.shape) for s in binding.states}
        return {k: binding.to_model_order(v) if v.shape == torch.Size(binding.shape) else v for k, v in values.items()}

    def write_state(self, weight: str, values: Mapping[str, torch.Tensor]) -> None:
        """Write some of the optimizer's state of a weight, by suffix, in the form that `states` gives."""
        binding = self.weights[weight]
        for state in binding.states:
            if state.suffix in values:
                own = state.shape == binding.shape
                value = values[state.suffix]
                array = binding.encode(value) if own else encode(value, state.shape, state.queue)
                self.executor.write(state.queue, array)

    def scalar(self, name: str) -> float:
        """A number of the optimizer as the device holds it: that of the first weight that has it, 0 where none has."""
        states = (s for w in self.weights.values() for s in w.states if s.suffix == name)
        state = next(states, None)
        return 0.0 if state is None else float(decode(self.executor.read(state.queue), state.shape).reshape(-1)[0])

    def set_scalar(self, name: str, value: float) -> None:
        """Write a number of the optimizer for all weights. Raises `InputError` where no weight has it."""
        states = [s for w in self.weights.values() for s in w.states if s.suffix == name]
        if not states:
            raise InputError(f"the optimizer has no run-time number {name!r}")
        for state in states:
            self.executor.write(state.queue, encode(torch.tensor([float(value)]), state.shape, state.queue))


def _by_name(there: Mapping[str, Named], name: str, what: str) -> Named:
    if name not in there:
        raise InputError(
            f"the host program names {what} {name!r}, which the graph does not have; it has "
            f"{', '.join(there) or 'none'}"
        )
    return there[name]


def average_gradients(replicas: Sequence[Replica], names: Sequence[str]) -> None:
    """Every replica's gradients of the weights `names` become the mean, summed in Float32 in order of the replicas."""
    if len(replicas) < 2:
        return
    for name in names:
        queues = [_by_name(replica.weights, name, "weight").gradient for replica in replicas]
        total = replicas[0].executor.read(queues[0]).astype(np.float32)
        for replica, queue in zip(replicas[1:], queues[1:], strict=True):
            total = total + replica.executor.read(queue)
        mean = total / np.float32(len(replicas))
        for replica, queue in zip(replicas, queues, strict=True):
            replica.executor.write(queue, mean)


_PUT_TOGETHER: dict[str, Any] = {
    "add": np.add,
    "mean": np.add,
    "square_add": np.add,
    "mul": np.multiply,
    "min": np.minimum,
    "max": np.maximum,
    "and": np.logical_and,
    "or": np.logical_or,
}


def put_together(op: str, tensors: Sequence[np.ndarray]) -> np.ndarray:
    """The tensors of a group's replicas as one, in order of the replicas."""
    parts = [np.square(t) for t in tensors] if op == "square_add" else list(tensors)
    total = parts[0]
    for part in parts[1:]:
        total = _PUT_TOGETHER[op](total, part)
    if op == "mean":
        total = total / np.asarray(len(parts), total.dtype) if total.dtype.kind == "f" else total // len(parts)
    return np.asarray(total).astype(tensors[0].dtype)


def shards(tensor: np.ndarray, count: int) -> list[np.ndarray]:
    """`count` parts of ceil(n / count) elements in row-major order, the last ones filled with zeros."""
    flat = tensor.reshape(-1)
    size = -(-flat.size // count)
    padded = np.concatenate([flat, np.zeros(size * count - flat.size, flat.dtype)])
    return list(padded.reshape(count, size))


def collective(kind: str, attrs: Mapping[str, Any], tensors: Sequence[np.ndarray]) -> list[np.ndarray]:
    """What each replica of a group gets of a collective. kind: ReplicatedAllReduce, ReplicatedAllGather,
    ReplicatedReduceScatter or ReplicatedSlice. Raises `InputError` for another one."""
    count = len(tensors)
    if kind == "ReplicatedAllReduce":
        return [put_together(attrs["op"], tensors)] * count
    if kind == "ReplicatedAllGather":
        axis = int(attrs["axis"])
        if attrs["form"] == "new_axis":
            return [np.stack(tensors, axis)] * count
        flat = attrs["form"] == "meta_shape" or not tensors[0].ndim
        whole = [t.reshape(-1) for t in tensors] if flat else list(tensors)
        joined = np.concatenate(whole, 0 if whole[0].ndim == 1 else axis)
        if attrs["form"] == "meta_shape":  # without what fills the last shard
            joined = joined[: math.prod(attrs["shape"])].reshape(attrs["shape"])
        return [joined] * count
    if kind == "ReplicatedReduceScatter":
        if attrs["op"] == "local":
            return [shards(t, count)[k] for k, t in enumerate(tensors)]
        return shards(put_together(attrs["op"], tensors), count)
    if kind == "ReplicatedSlice":
        axis, part = int(attrs["axis"]), int(attrs["part"])
        picked = [np.take(t, range(k * part, (k + 1) * part), axis) for k, t in enumerate(tensors)]
        return [p.squeeze(axis) for p in picked] if part == 1 else picked
    raise InputError(f"there is no collective {kind!r}")


@dataclasses.dataclass(frozen=True)
class SectionTime:
    """An epoch in the time model. kind: "fwd", "bckwd", "gradnorm" or "opt"; cycles: of one run; weights: those whose
    gradient is complete after it (bckwd), or that it updates (opt); needs_all: it waits for all gradients."""

    kind: str
    cycles: float
    weights: tuple[str, ...] = ()
    needs_all: bool = False


@dataclasses.dataclass(frozen=True)
class RunSchedule:
    """One run in cycles. device: (number of the section, start, end) in the order in which they run; link: (what
    it is, start, end) of each synchronisation of gradients ("mean of w"), or of each collective."""

    mode: str
    cycles: float
    device: tuple[tuple[int, float, float], ...]
    link: tuple[tuple[str, float, float], ...]


def ring_bytes(kind: str, size: int, members: int, local: bool = False) -> float:
    """Bytes that go over each hop of a ring of so many replicas in a collective. size: of what each gives.

    An all-reduce moves 2 (n - 1) / n of it (a reduce-scatter and an all-gather of the parts), a reduce-scatter half of
    that, an all-gather n - 1 times it; a slice, and shards of what each has (local), nothing. These are the ring
    algorithms of Thakur, Rabenseifner and Gropp, Optimization of Collective Communication Operations in MPICH
    (IJHPCA 19, 2005), without their term for the start of a message. Raises `InputError` for another kind.
    """
    shares = {
        "ReplicatedAllReduce": 2 * (members - 1) / members,
        "ReplicatedReduceScatter": 0.0 if local else (members - 1) / members,
        "ReplicatedAllGather": members - 1.0,
        "ReplicatedSlice": 0.0,
    }
    if kind not in shares:
        raise InputError(f"there is no collective {kind!r}")
    return shares[kind] * size


def rings_over_a_link(groups: Sequence[int]) -> int:
    """How many rings share the busiest link where replicas stand in a row, each linked to the next, and the members of
    every group make a ring in order. groups: by replica that of its group."""
    over = np.zeros(len(groups) + 1, np.int64)
    for group in dict.fromkeys(groups):
        members = [k for k, own in enumerate(groups) if own == group]
        np.add.at(over, members[:-1], 1)  # the way back from the last to the first has links of its own direction
        np.subtract.at(over, members[1:], 1)
    return int(np.cumsum(over).max(initial=0))


def collective_cycles(
    kind: str, size: int, groups: Sequence[int], device: DeviceSpec, attrs: Mapping[str, Any] | None = None
) -> float:
    """Cycles of a collective: `ring_bytes` over links of ethernet, which `rings_over_a_link` share. All groups run at
    once. Raises `InputError` for another kind."""
    members = sum(own == groups[0] for own in groups)
    local = attrs is not None and attrs.get("op") == "local"
    return ring_bytes(kind, size, members, local) * rings_over_a_link(groups) / device.eth_bytes_per_cycle


def sync_cycles(
    sizes: Mapping[str, int], device: DeviceSpec, replicas: int, reduce_on_device: bool = False
) -> dict[str, float]:
    """Cycles to average the gradient of each weight over the replicas. sizes: bytes by weight.

    On the devices it is an all-reduce (`collective_cycles`). By the host every device sends its gradient over its own
    PCIe link and takes the mean back. One replica has nothing to synchronise.
    """
    if replicas < 2:
        return dict.fromkeys(sizes, 0.0)
    if reduce_on_device:
        everyone = (0,) * replicas
        return {w: collective_cycles("ReplicatedAllReduce", n, everyone, device) for w, n in sizes.items()}
    return {w: 2 * n / device.pcie_bytes_per_cycle for w, n in sizes.items()}


def schedule(sections: Sequence[SectionTime], sync: Mapping[str, float], mode: str) -> RunSchedule:
    """When a run's sections and synchronisations take place. sync: cycles to average the gradient of each weight.

    normal: device sections in order, all synchronisation between backward and update. inorder: a gradient is averaged,
    one after the other on the link, as soon as it is complete; sections keep their order, and an update waits for its
    gradients. optimal: updates go in the order in which their gradients are ready. A gradnorm section, and an update
    that holds the norm, need all gradients. Raises `InputError` for an unknown mode.
    """
    if mode not in MODES:
        raise InputError(f"data_parallel_mode is one of {', '.join(MODES)}, not {mode!r}")
    numbered = list(enumerate(sections))
    rest = [(k, s) for k, s in numbered if s.kind in ("gradnorm", "opt")]
    on_device: list[tuple[int, float, float]] = []
    on_link: list[tuple[str, float, float]] = []
    time, link = 0.0, 0.0
    ready: dict[str, float] = {}

    def synchronise(weight: str, since: float) -> None:
        nonlocal link
        start = max(link, since)
        link = start + sync.get(weight, 0.0)
        ready[weight] = link
        if link > start:
            on_link.append((f"mean of {weight}", start, link))

    for k, section in numbered:
        if section.kind in ("gradnorm", "opt"):
            continue
        on_device.append((k, time, time + section.cycles))
        time += section.cycles
        if section.kind == "bckwd" and mode != "normal":
            for weight in section.weights:
                synchronise(weight, time)
    for weight in sync:  # all of them in mode normal, and those that no section is known to complete
        if weight not in ready:
            synchronise(weight, time)
    everything = max(ready.values(), default=time)

    def start_of(section: SectionTime) -> float:
        if mode == "normal" or section.needs_all or section.kind == "gradnorm":
            return everything
        return max((ready.get(w, time) for w in section.weights), default=time)

    if mode == "optimal" and not any(s.kind == "gradnorm" for _, s in rest):
        rest.sort(key=lambda pair: start_of(pair[1]))
    for k, section in rest:
        start = max(time, start_of(section))
        time = start + section.cycles
        on_device.append((k, start, time))
    return RunSchedule(mode, max(time, everything), tuple(on_device), tuple(on_link))


def makespan(sections: Sequence[SectionTime], sync: Mapping[str, float], mode: str) -> float:
    """Cycles of one run on replicas that synchronise gradients; see `schedule`."""
    return schedule(sections, sync, mode).cycles


# -- instances ---------------------------------------------------------------------------------------------------------
def total_replicas() -> int:
    """How many replicas an `Ir(replication="popdist")` has: those of all instances, which are one process here.

    Raises `NotSupported` where a launcher has divided them among several processes, which do not know each other, and
    `InputError` for what is no number of replicas."""
    _taken.add(TOTAL)
    total = _number(TOTAL, 1)
    if _number(INSTANCES[0], total) != total or _number(INSTANCES[1], 1) != 1:
        raise not_supported(
            f"one of several instances ({', '.join(f'{n}={os.environ.get(n)}' for n in (TOTAL, *INSTANCES))})",
            f"all replicas run in one process: tbuda script --replicas {total} FILE",
        )
    return total


_taken: set[str] = set()
"""Variables that a program has asked for."""


def asked_for_replicas() -> bool:
    """Whether some program took the number of all instances' replicas."""
    return TOTAL in _taken


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, str(default))
    if not (text.isascii() and text.isdecimal() and len(text) < 6 and 1 <= int(text) <= MOST_REPLICAS):
        raise InputError(f"{name} is a whole number from 1 to {MOST_REPLICAS}, not {text[:40]!r}")
    return int(text)
