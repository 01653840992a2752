"""Extra streams that preloaded parameters take of a core, of which it has few (routing.md#extra-streams), and which of
them a candidate preloads therefore."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.balancer.l1 import kernel_buffer, preloads, tiles_read
from tbuda_lab.core.balancer.profile import OpProfile, as_read
from tbuda_lab.core.balancer.types import Reason
from tbuda_lab.core.formats import tile_bytes
from tbuda_lab.core.netlist.cores import buffers


def within_streams(
    profile: OpProfile, rows: np.ndarray, block: np.ndarray, requested: Mapping[int, bool], align: int
) -> tuple[np.ndarray, np.ndarray]:
    """(candidates, block of each) of which every core has its streams; where what is asked for takes too many alone
    they are refused. block: by row a number that rows alike but for their prologue share, and by which they are
    ordered. There are candidates, too, that preload nothing which is read element by element, for where the queues, or
    the readers of the op, leave too few streams."""
    ports = [port for port, operand in enumerate(profile.operands) if operand.feed == "parameter"]
    if not ports:
        return rows, block
    before = rows["prologue"].copy()
    rows["reason"][_limit_preloads(profile, rows, ports, requested, align)] = Reason.EXTRA_STREAMS
    small = sum(1 << p for p in ports if profile.operands[p].role == "elt" and p not in requested)
    scarce = np.flatnonzero(rows["prologue"] & np.uint32(small))
    scarce = scarce[most_streams(profile, rows[scarce], align) > buffers.EXTRA_STREAMS - FORKS]
    if not len(scarce) and (rows["prologue"] == before).all():
        return rows, block
    more = rows[scarce].copy()
    more["prologue"] &= ~np.uint32(small)
    rows, block = np.concatenate([rows, more]), np.concatenate([block, block[scarce]])
    _, first = np.unique(block.astype(np.int64) << 32 | rows["prologue"], return_index=True)
    first = first[np.lexsort((first, block[first]))]
    return rows[first], block[first]


def _limit_preloads(
    profile: OpProfile, rows: np.ndarray, ports: Sequence[int], requested: Mapping[int, bool], align: int
) -> np.ndarray:
    """Clears bits of `prologue` until every core has its streams; bool (n,): rows in which what is asked for takes too
    many alone. What is asked for stays, then operands of matmuls; after these the others, by number. What is streamed
    takes one stream."""
    room = np.full(len(rows), buffers.EXTRA_STREAMS - len(profile.operands))
    for port in sorted(ports, key=lambda p: (not requested.get(p), profile.operands[p].role == "elt", p)):
        ahead = preloads(profile, port, rows)
        more = preload_streams(profile, port, rows, align) - 1
        keep = ahead & ((more <= room) | requested.get(port, False))
        room -= np.where(keep, more, 0)
        rows["prologue"] &= ~np.where(ahead & ~keep, np.uint32(1 << port), np.uint32(0))
    short: np.ndarray = room < 0
    return short


FORKS = 4
"""Streams that readers of an op may take beside its operands where it has rows for that."""


def most_streams(profile: OpProfile, rows: np.ndarray, align: int) -> np.ndarray:
    """Extra streams that the operands of an op take of a core at most, however their queues are laid out."""
    total = np.zeros(len(rows), dtype=np.int64)
    for port in range(len(profile.operands)):
        ahead = preloads(profile, port, rows)
        total += np.where(ahead, preload_streams(profile, port, rows, align, most=True), buffers.RELAYS)
    return total


def preload_streams(profile: OpProfile, port: int, rows: np.ndarray, align: int, most: bool = False) -> np.ndarray:
    """Extra streams of the fullest core if an operand is preloaded, for every row: of `netlist.cores` for a queue that
    is laid out as this op reads it, or at `most` for any. What fits its buffer takes none; what a column of cores
    shares, one and its gather; what is kept as it lies in the queue, one for each list that reads a buffer of it and
    one more."""
    operand = profile.operands[port]
    rows = as_read(profile, port, rows)
    _, kernel = kernel_buffer(profile, port, rows, {}, tile_bytes(operand.df, align=align))
    length = tiles_read(profile, port, rows)
    along_r, along_c = (rows[f].astype(np.int64) for f in ("grid_r", "grid_c"))
    one = np.ones_like(along_r)
    if operand.role == "in0":
        along_c = one
    elif operand.role == "in1":
        along_r = one
    blocks = one if operand.role == "bias" else along_r, along_c
    turned = sum(tm.name == "transpose" for tm in operand.tms) % 2 == 1
    _, rt, ct = operand.source_tiles
    across = [
        buffers.largest_divisor(extent, most)
        for extent, most in zip((rt, ct), blocks[::-1] if turned else blocks, strict=True)
    ]
    stored_r, stored_c = across[::-1] if turned else across
    streamed = (rows["stream_r"] > 1) | (rows["stream_c"] > 1)
    mixed = streamed | most | any(tm.name not in ("broadcast", "transpose") for tm in operand.tms)
    lists = np.where(mixed, along_r * along_c, -(-along_r // stored_r) * -(-along_c // stored_c))
    gather = np.where(mixed & ((stored_r * stored_c > 1) | most), buffers.RELAYS, 0)
    before = lists + 1 + gather
    if operand.role == "in1" and not operand.tms and not profile.fused_sums:
        before = np.where(streamed, before, 1 + np.where(most | (rows["grid_r"] > 1), buffers.RELAYS, 0))
    streams: np.ndarray = np.where(length <= kernel, gather, before)
    return streams
