"""Which parts of an op's work come before its first tiles leave and after the last ones of its operands come, at least.

Source: placement.md#firings.
"""

from __future__ import annotations

import functools

import numpy as np

from tbuda_lab.core.balancer.pickers import streamed_picker
from tbuda_lab.core.balancer.profile import OpProfile
from tbuda_lab.core.epochsim.network import EpochConstants
from tbuda_lab.core.graph import TILE, Payload, TileShape
from tbuda_lab.core.lowering.hw_ops import HwReduce, HwSparseMatmul, HwSplice
from tbuda_lab.core.placer.model.problem import Problem

_MOST_STEPS = 2 * EpochConstants().max_steps
_KEEPS_ALL = frozenset({"broadcast", "transpose", "hslice", "vslice", "hstack", "vstack"})
"""TMs after which every tile is still there."""


def first_part(profile: OpProfile, rows: np.ndarray) -> np.ndarray:
    """Part of an op's cycles before its first tiles leave, at least (placement.md#firings), in either order of
    ublocks."""
    m, n = rows["mblock_m"].astype(np.int64), rows["mblock_n"].astype(np.int64)
    op = profile.op
    parts = m * n
    if isinstance(op, HwSparseMatmul) or profile.kind == "depthwise":
        parts = np.ones(len(rows), dtype=np.int64)
    elif profile.matmul_like:
        parts = np.where(profile.z_group * np.maximum(rows["m_k"], 1) == 1, m, 1)
    elif isinstance(op, HwReduce):
        parts = {"r": n, "c": m}.get(op.dim, np.ones(len(rows), dtype=np.int64))
    elif isinstance(op, HwSplice):
        parts = np.maximum(m, n)
    part: np.ndarray = 1.0 / (rows["t"].astype(np.int64) * parts)
    return part


def last_part(profile: OpProfile, rows: np.ndarray) -> np.ndarray:
    """Part of an op's cycles that it still has to do when the last tiles of an operand come, at least."""
    op = profile.op
    t = rows["t"].astype(np.int64)
    m, n = rows["mblock_m"].astype(np.int64), rows["mblock_n"].astype(np.int64)
    k = np.maximum(rows["m_k"].astype(np.int64), 1)
    if isinstance(op, HwSparseMatmul):
        streams = np.stack([rows["stream"] == "rz", rows["stream_r"]], axis=1).astype(np.int64)
        kinds, which = np.unique(streams, axis=0, return_inverse=True)
        picker, out = op.picker, profile.out
        needed = np.array([picked_strips(picker, out, bool(rz), int(factor))[2] for rz, factor in kinds.tolist()])
        left = np.maximum(0, t - 1 - needed[which.reshape(-1)])
        part: np.ndarray = (left + 1.0 / k) / t
        return part
    if profile.kind == "depthwise":
        parts = max(1, profile.inner) * m * n
    elif profile.matmul_like:
        parts = np.where(profile.z_group * k == 1, m, profile.z_group * k * m)
    elif isinstance(op, HwReduce):
        parts = profile.z_group * m * n if op.dim == "z" else (n if op.dim == "r" else m) * k
    elif isinstance(op, HwSplice):
        parts = np.ones(len(rows), dtype=np.int64) if op.axis == "z" else np.maximum(m, n)
    else:
        parts = m * n
    part = 1.0 / np.minimum(t * parts, _MOST_STEPS)
    return part


@functools.lru_cache(maxsize=1024)
def picked_strips(picker: Payload, out: TileShape, inside: bool, factor: int) -> tuple[np.ndarray, np.ndarray, int]:
    """Of a picker that streams `factor` ways along rows (inside: with all slices of one part together): (blocks,) first
    and last strip of one tile that each block picks rows of, -1 where it picks none; and the block at the latest before
    which all strips that it picks from have to be there."""
    picked = streamed_picker(picker.array, out, "rz" if inside else "r", factor)
    blocks, strip = picked[:, 0], picked[:, 2] // TILE
    never = np.iinfo(np.int64).max
    low, high = np.full(out[0] * factor, never), np.full(out[0] * factor, -1)
    np.minimum.at(low, blocks, strip)
    np.maximum.at(high, blocks, strip)
    soonest = np.full(int(strip.max(initial=0)) + 1, never)
    np.minimum.at(soonest, strip, blocks)
    return np.where(high < 0, -1, low), high, int(soonest[soonest < never].max(initial=0))


def reads_at_once(op: object) -> bool:
    """Whether an op reads of its operand before it gives its first tiles: a picker may begin with a block of zeros."""
    return _picks_at_once(op.picker) if isinstance(op, HwSparseMatmul) else True


@functools.lru_cache(maxsize=512)
def _picks_at_once(picker: Payload) -> bool:
    block, row = picker.array[:, 0], picker.array[:, 1]
    return bool(((block == 0) & (row < TILE)).any())


def reads_all(problem: Problem, op: int, port: int) -> bool:
    """Whether an op reads every tile of an operand."""
    key = ("reads all", problem.tables[op].signature, port)
    entry = problem.costs.answers.get(key)
    if isinstance(entry, bool):
        return entry
    profile = problem.profiles[op]
    operand, op_type = profile.operands[port], profile.op
    entry = all(tm.name in _KEEPS_ALL for tm in operand.tms)
    if isinstance(op_type, HwSplice):
        entry = entry and all(index == 0 and stride == 0 for index, _, stride in op_type.ranges)
    elif isinstance(op_type, HwSparseMatmul):
        strips = np.count_nonzero(np.bincount(op_type.picker.array[:, 2] // TILE))
        entry = entry and strips == operand.tiles[0] * operand.tiles[1]
    problem.costs.answers[key] = entry
    return entry
