"""Addresses of planned queues: what each one asks of DRAM or host memory, and what it gets (placement.md#dram)."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.types import OpModels, OpPlacement, QueuePlacement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.device.noc import fewest_hops
from tbuda_lab.core.errors import Diagnostic, OverrideError, PlacementError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.phases import direction_of
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides.places import QueuePin
from tbuda_lab.core.placer.memory.dram import BufferRequest, allocate, allocate_host


class Addresses:
    """Gives the queues of a placement their addresses. planned: by name a plan and the queue that was made of it; where
    the same plan comes out the same, the result is that very queue. pins: by queue what is fixed of its place. phase:
    by op the part of the graph that it is in, empty where there is one."""

    def __init__(
        self,
        graph: Graph,
        models: Mapping[str, OpModels],
        placed: Mapping[str, OpPlacement],
        users: Mapping[str, Sequence[tuple[str, int]]],
        phase: Mapping[str, str],
        device: DeviceSpec,
        options: CompileOptions,
        pins: Mapping[str, QueuePin],
        planned: Mapping[str, tuple[QueuePlacement, QueuePlacement]],
    ) -> None:
        self.graph, self.models, self.placed, self.users, self.phase = graph, models, placed, users, phase
        self.device, self.options, self.planned = device, options, planned
        self.pins = pins

    def of(self, plans: Sequence[QueuePlacement]) -> dict[str, QueuePlacement]:
        """Planned queues with their addresses, in their order. Raises `PlacementError` and `OverrideError`."""
        fixed = self._user_places(plans) if self.pins else {}
        dram: list[BufferRequest] = []
        host: list[BufferRequest] = []
        algorithm = self.options.dram_placement_algorithm
        grayskull = self.device.arch == "grayskull"
        leaders = _leaders(plans)
        for q in plans:
            if leaders.get(q.name, q.name) != q.name:
                continue
            chip, channel = fixed.get(q.name, (q.chip, None))
            first, last = self._life(q)
            request = BufferRequest(q.name, chip, q.grid[0] * q.grid[1], q.bytes_per_buffer, channel, first, last)
            writer = q.writer or (q.source if q.kind == "e2e" else "")
            if grayskull and writer and self.placed[writer].chip != chip:
                request = dataclasses.replace(request, window=True)
            if q.location == "dram" and algorithm == "CLOSEST":
                request = dataclasses.replace(request, hops=self.hops(q, chip))
            (host if q.location == "host" else dram).append(request)
        addresses = allocate(dram, self.device, algorithm)
        buffers = addresses.buffers | allocate_host(host, self.device)
        result: dict[str, QueuePlacement] = {}
        for q in plans:
            leader = leaders.get(q.name, q.name)
            chip = fixed[leader][0] if leader in fixed else q.chip
            alias = leader if leader != q.name else ""
            result[q.name] = self._queue_placement(q, chip, buffers[leader], addresses.lifetimes.get(q.name), alias)
        return result

    def _queue_placement(
        self,
        q: QueuePlacement,
        chip: int,
        buffers: tuple[tuple[int, int], ...],
        lifetime: tuple[int, int] | None,
        alias: str,
    ) -> QueuePlacement:
        plan, entry = self.planned.get(q.name, (None, q))
        if plan is q and (entry.chip, entry.buffers, entry.lifetime, entry.alias) == (chip, buffers, lifetime, alias):
            return entry
        return dataclasses.replace(q, chip=chip, buffers=buffers, lifetime=lifetime, alias=alias)

    def _life(self, q: QueuePlacement) -> tuple[int, int]:
        """(epoch of the op that writes a queue, -1 for the host; epoch of the last reader of a queue between epochs of
        one chip and one program, -1 where the queue has to stay)."""
        if q.kind == "output":
            return self.placed[self.graph[q.source].inputs[0].source].epoch, -1
        if q.kind != "e2e":
            return -1, -1
        writer, last = self.placed[q.source], -1
        own = self.phase.get(q.source, "forward")
        if direction_of(own) != q.direction:  # other programs run between its writer and its readers
            return writer.epoch, -1
        for reader, _ in self.users[q.source]:
            spot = self.placed.get(reader)
            if spot is None or self.phase.get(reader, own) != own:
                continue
            if spot.chip != writer.chip:
                return writer.epoch, -1
            last = max(last, spot.epoch)
        return writer.epoch, last

    def hops(self, q: QueuePlacement, chip: int) -> np.ndarray:
        """(buffers, channels) hops from all cores on the chip that read or write each buffer."""
        total = np.zeros((q.grid[0] * q.grid[1], self.device.dram_channels), dtype=np.int64)
        users: list[tuple[str, str]] = []  # op, role of the operand ("elt": the whole grid)
        if q.kind == "e2e":
            users.append((q.source, "elt"))
        elif q.kind == "output":
            users.append((self.graph[q.source].inputs[0].source, "elt"))
        if q.kind in ("sparse_tiles", "sparse_encoding"):
            users.append((q.source, "in0"))
        elif q.kind != "output":
            for reader, port in self.users[q.source]:
                if reader not in self.placed:
                    continue
                profile = self.models[reader].profile
                assert profile is not None
                users.append((reader, profile.operands[port].role))
        for op, role in users:
            spot = self.placed[op]
            if spot.chip != chip:
                continue
            rows, cols = spot.size[::-1] if spot.transposed else spot.size
            # a matmul's first operand enters at the first column, its others at the last row
            taking = {"in0": (rows, 1), "in1": (1, cols), "bias": (1, cols)}.get(role, (rows, cols))
            cores, buffer = sharing(taking, q.grid)
            if role in ("in1", "bias"):
                cores[:, 0] += rows - 1
            if spot.transposed:
                cores = cores[:, ::-1]
            np.add.at(total, buffer, hops(self.device, chip, cores + np.array(spot.start)))
        return total

    def _user_places(self, plans: Sequence[QueuePlacement]) -> dict[str, tuple[int, int | None]]:
        """(chip, channel) that the user chose, by queue."""
        leaders = _leaders(plans)
        fixed: dict[str, tuple[int, int | None]] = {}
        wrong: list[Diagnostic] = []
        for q in plans:
            pin = self.pins.get(q.name)
            if pin is None:
                continue
            chip = q.chip if pin.chip is None else pin.chip
            fault = self._pin_fault(q, chip, leaders.get(q.name, q.name))
            if fault is None:
                fixed[q.name] = (chip, pin.channel)
            else:
                wrong.append(Diagnostic("error", q.name, *fault))
        if wrong:
            raise OverrideError("queue placements cannot be met", wrong)
        return fixed

    def _pin_fault(self, q: QueuePlacement, chip: int, leader: str) -> tuple[str, str, str] | None:
        """(rule, message, fix) where a queue cannot be on the chip that was asked for, or be placed at all."""
        if self.device.arch == "grayskull" and chip != q.chip:
            return (
                "queue-chip",
                f"it is read on chip {q.chip}, and a grayskull chip reads its own DRAM only",
                f"leave it on chip {q.chip}, or pin its readers to chip {chip}",
            )
        if q.prologue and chip != q.chip:
            return (
                "queue-chip",
                f"it is preloaded on chip {q.chip}; ops preload queues of their own chip only",
                f"leave it on chip {q.chip}, stream it to its readers (prologue off), or pin them to chip {chip}",
            )
        if leader != q.name:
            return "queue-channel", f"it is a view of {leader}, and lies there", f"place {leader}"
        if q.location == "host":
            fix = "turn input_queues_on_host or output_queues_on_host off first"
            return "queue-channel", "this queue lies in host memory", fix
        return None


def _leaders(plans: Sequence[QueuePlacement]) -> dict[str, str]:
    """By view of a ram that subgraphs share the first of its views, which has the buffers. Raises `PlacementError` for
    views that do not lie alike."""
    first: dict[str, QueuePlacement] = {}
    leaders: dict[str, str] = {}
    for q in plans:
        if not q.ram:
            continue
        leader = first.setdefault(q.ram, q)
        leaders[q.name] = leader.name
        differ = [name for name, of in _LIES.items() if of(q) != of(leader)]
        if differ:
            raise PlacementError(
                f"the subgraphs do not find the cache {q.ram!r} in one place",
                [
                    Diagnostic(
                        "error",
                        q.name,
                        "shared-ram",
                        f"in {' and '.join(differ)} it differs from {leader.name}",
                        "take one chip for the device, and one format for what the subgraphs write into it",
                    )
                ],
            )
    return leaders


_LIES: dict[str, Callable[[QueuePlacement], object]] = {
    "chip": lambda q: q.chip,
    "format": lambda q: q.df,
    "blocks": lambda q: (q.grid, q.t, q.mblock, q.ublock, q.ublock_order),
}


def hops(device: DeviceSpec, chip: int, cores: np.ndarray) -> np.ndarray:
    """(cores, channels) hops between logical cores (n, 2) of a chip and each channel's nearest DRAM core, by the
    shorter way of the two NoCs (placement.md#noc-distances)."""
    at = device.chips.index(chip)
    rows = np.array([device.physical_row(r, at) for r in range(device.rows)])
    columns = np.array(device.worker_cols)
    dram = np.array(device.dram_cores)  # (channels, subchannels, 2)
    nodes = np.stack([columns[cores[:, 1]], rows[cores[:, 0]]], axis=1)
    nearest: np.ndarray = fewest_hops(nodes[:, None, None], dram, device.noc_size).min(axis=2)
    return nearest


def sharing(cores: tuple[int, int], buffers: tuple[int, int]) -> tuple[np.ndarray, np.ndarray]:
    """For a grid of cores that share a grid of buffers evenly: (core row, core column) of every core, and the number of
    the buffer it uses, row by row."""
    r, c = (a.reshape(-1) for a in np.indices(cores))
    return np.stack([r, c], axis=1), r * buffers[0] // cores[0] * buffers[1] + c * buffers[1] // cores[1]
