"""Limiter cycles: how long the operands and outputs of a candidate take to move (placement.md#limiter-cycles).

An op cannot be faster than its slowest operand or output. Bytes are those of one core per input; a link of the NoC
gives half its peak, DRAM is shared by all cores of the epoch that read or write it, the host link likewise.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.l1 import fetched, preloads, preloads_encoding
from tbuda_lab.core.balancer.pickers import ENCODING_DF, SPARSE_TILE_DF, encoding_tiles, picker_profile
from tbuda_lab.core.balancer.profile import OpProfile, as_read
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.lowering.hw_ops import HwSparseMatmul

NOC, DRAM, HOST = "noc", "dram", "host"

NEVER = 1e10
"""Cycles of a candidate that cannot be."""

_WAYS = {DRAM: "DRAM", HOST: "host link", NOC: "NoC"}


def spoken(limiter: str) -> str:
    """What limits an op, in words: "DRAM reads (input 1)" for "input 1 dram", "NoC writes (output)" for
    "output noc"."""
    subject, _, way = limiter.rpartition(" ")
    if not subject or way not in (NOC, DRAM, HOST):
        return limiter
    return f"{_WAYS[way]} {'writes' if subject == 'output' else 'reads'} ({subject})"


@dataclasses.dataclass(frozen=True)
class EpochLoad:
    """How many cores of an epoch use DRAM and the host link."""

    dram_cores: int = 0
    host_cores: int = 0


@dataclasses.dataclass(frozen=True)
class Traffic:
    """Per candidate: bytes that one core takes of each operand and gives, and how many cores take part."""

    operand_bytes: tuple[np.ndarray, ...]
    operand_cores: tuple[np.ndarray, ...]
    output_bytes: np.ndarray
    output_cores: np.ndarray
    picker_bytes: np.ndarray | None = None  # sparse tiles and encodings of a sparse matmul


def traffic(profile: OpProfile, rows: np.ndarray, device: DeviceSpec) -> Traffic:
    """Bytes per input and core for every row. A matmul's first operand enters once per grid row, its others once per
    grid column, and is read again for every slice of t; a preloaded parameter counts once, on the cores that fetch it
    (`l1.fetched`)."""
    t = rows["t"].astype(np.int64) * profile.z_group
    out_r = rows["mblock_m"].astype(np.int64) * rows["ublock_r"]
    out_c = rows["mblock_n"].astype(np.int64) * rows["ublock_c"]
    grid_r, grid_c = rows["grid_r"].astype(np.int64), rows["grid_c"].astype(np.int64)
    cores = rows["cores"].astype(np.int64)
    sizes: list[np.ndarray] = []
    readers: list[np.ndarray] = []
    for port, operand in enumerate(profile.operands):
        tile = tile_bytes(operand.df, align=device.tile_align)
        read = as_read(profile, port, rows)
        block_r = read["mblock_m"].astype(np.int64) * read["ublock_r"]
        block_c = read["mblock_n"].astype(np.int64) * read["ublock_c"]
        z, rt, ct = operand.tiles
        whole = z * rt * ct
        if operand.role == "in0":
            columns = profile.inner * (block_c if profile.kind == "depthwise" else 1)
            count, cores_in = t * block_r * columns, grid_r
        elif operand.role == "in1" and profile.kind == "sparse_matmul":
            count, cores_in = z * rt * block_c * rows["stream_r"].astype(np.int64), grid_c
        elif operand.role == "in1":
            count, cores_in = t * rt * block_c, grid_c
        elif operand.role == "bias":
            count, cores_in = t * block_c, grid_c
        else:
            count, cores_in = -(-whole // cores), cores
        if operand.feed == "parameter":
            # a preloaded parameter is fetched once, however often it is used
            once, fetching = fetched(profile, port, rows, cores_in, device.tile_align)
            preloading = preloads(profile, port, rows)
            count, cores_in = np.where(preloading, once, count), np.where(preloading, fetching, cores_in)
        sizes.append(count * tile)
        readers.append(cores_in)
    out = rows["t"].astype(np.int64) * out_r * out_c * tile_bytes(profile.df, align=device.tile_align)
    picker = None
    if isinstance(profile.op, HwSparseMatmul):
        distinct = picker_profile(profile.op.picker).distinct(max(1, profile.out[1]))
        words = encoding_tiles(rows) * tile_bytes(ENCODING_DF, align=device.tile_align)
        picker = distinct * tile_bytes(SPARSE_TILE_DF, align=device.tile_align) + words
    return Traffic(tuple(sizes), tuple(readers), out, cores, picker)


def dram_divider(device: DeviceSpec, dram_cores: int) -> int:
    """By how much the bandwidth of one DRAM access is divided when so many cores use DRAM at once."""
    together = device.dram_channels * device.dram_subchannels / 1.5
    return max(2, math.ceil(dram_cores / together))


def dram_rate(device: DeviceSpec) -> float:
    """Bytes per cycle that DRAM gives to all cores together, where many use it."""
    return device.dram_bytes_per_cycle * device.dram_channels * device.dram_subchannels / 1.5


def cores_at_divider(device: DeviceSpec, divider: int) -> int:
    """Most cores that may use DRAM before `dram_divider` exceeds `divider`."""
    return int(divider * device.dram_channels * device.dram_subchannels / 1.5)


@dataclasses.dataclass(frozen=True)
class Demands:
    """(3 + operands, rows) each, of the kernel, of each operand, of the output, of a sparse matmul's picker. cycles:
    what holds however many cores use DRAM; shared: bytes of one core over the shared part of DRAM's bandwidth."""

    cycles: np.ndarray
    shared: np.ndarray


def demands(
    profile: OpProfile,
    rows: np.ndarray,
    device: DeviceSpec,
    where: Sequence[str],
    output: str,
    host_cores: int = 0,
    microbatch: int = 1,
    move: Traffic | None = None,
) -> Demands:
    """What every row asks for. `where` and `output` say over what each operand and the output move: "noc", "dram" or
    "host" ("" for an output nobody waits for). Rows that L1 has no room for if operands come from queues, and rows that
    are meant for these alone, take `NEVER`."""
    move = move or traffic(profile, rows, device)
    noc = device.noc_bytes_per_cycle / 2
    base = device.dram_bytes_per_cycle
    cycles, shared = (np.zeros((3 + len(where), len(rows))) for _ in range(2))
    cycles[0] = rows["cycles"]
    queued = any(place != NOC and o.feed != "parameter" for place, o in zip(where, profile.operands, strict=True))
    unfit = rows["l1_total"] + rows["l1_staged"] > device.l1_usable if queued else rows["queued"]
    cycles[0] = np.where(unfit, NEVER, cycles[0])
    for port, place in enumerate(where):
        size = move.operand_bytes[port]
        if place == DRAM and profile.operands[port].feed == "parameter":
            preloading = preloads(profile, port, rows)
            cycles[1 + port] = np.where(preloading, size / (base / 2) / microbatch, 0.0)
            shared[1 + port] = np.where(preloading, 0, size)
        elif place == DRAM:
            shared[1 + port] = size
        elif place == HOST:
            cores = np.maximum(move.operand_cores[port], host_cores)
            cycles[1 + port] = size / (device.pcie_bytes_per_cycle / cores)
        else:
            cycles[1 + port] = size / noc
    if move.picker_bytes is not None:
        # preloaded like a parameter, or streamed where L1 has no room for it
        preloading = preloads_encoding(rows)
        cycles[-1] = np.where(preloading, move.picker_bytes / (base / 2), 0.0)
        shared[-1] = np.where(preloading, 0, move.picker_bytes)
    if output == DRAM:
        shared[-2] = move.output_bytes
    elif output == HOST:
        cycles[-2] = move.output_bytes / (device.pcie_bytes_per_cycle / np.maximum(move.output_cores, host_cores))
    elif output == NOC:
        cycles[-2] = move.output_bytes / noc
    return Demands(cycles, shared)


def limits(
    profile: OpProfile,
    rows: np.ndarray,
    device: DeviceSpec,
    where: Sequence[str],
    output: str,
    load: EpochLoad,
    microbatch: int = 1,
    move: Traffic | None = None,
) -> np.ndarray:
    """(3 + operands, rows): cycles of the kernel, of each operand, of the output, of a sparse matmul's picker.

    `where` and `output` say over what each moves: "noc", "dram" or "host" ("" for an output nobody waits for).
    """
    loads = demands(profile, rows, device, where, output, load.host_cores, microbatch, move)
    rate = device.dram_bytes_per_cycle / dram_divider(device, load.dram_cores)
    slowest: np.ndarray = np.maximum(loads.cycles, loads.shared / rate)
    return slowest


def limiter_name(index: int, where: Sequence[str], output: str) -> str:
    """What row `index` of `limits` stands for."""
    if index == 0:
        return "kernel"
    if index <= len(where):
        return f"input {index - 1} {where[index - 1]}"
    return f"output {output}" if index == len(where) + 1 else "picker dram"
