"""Splice: pieces of several inputs in turn, by ublocks of each core or by slices."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbuda_lab.sim.arrays import Array, shape_text
from tbuda_lab.sim.context import Kernel, OpContext

Triple = tuple[int, int, int]


def build_splice(context: OpContext) -> Kernel:
    """Over and over, of each input in turn: skip `index` units, copy `length`, and go on `stride` units after `index`.

    A unit is an ublock of the output on one core, in the op's ublock order (granularity "ublock"), or a slice ("t").
    """
    op = context.op
    triples: list[Triple] = []
    for i in range(len(op.inputs)):
        written = op.attributes.get(f"input{i}")
        if written is None:
            raise context.error("O15", f"attribute input{i} is missing", "[index, length, stride] for every input")
        index, length, stride = (int(v) for v in written)
        triples.append((index, length, stride))
    return _by_slice(context, triples) if context.text("granularity", "ublock") == "t" else _by_ublock(context, triples)


def sequence(context: OpContext, triples: list[Triple], limits: list[int]) -> list[Array]:
    """For each input its units in the order in which they are copied, one row per turn: (turns, length).

    Raises `NetlistError` where the triples do not use up all inputs in the same number of turns.
    """
    turns = []
    for i, ((index, length, stride), limit) in enumerate(zip(triples, limits, strict=True)):
        if index < 0 or length <= 0 or stride < length or limit % (index + stride):
            raise context.error(
                "splice",
                f"input{i}: [{index}, {length}, {stride}] does not divide its {limit} units",
                f"index >= 0, 0 < length <= stride, and {limit} a multiple of index + stride",
            )
        turns.append(limit // (index + stride))
    if len(set(turns)) != 1:
        raise context.error("splice", f"its inputs last for {turns} turns", "every input must last equally long")
    return [
        np.arange(turns[0])[:, None] * (index + stride) + index + np.arange(length) for index, length, stride in triples
    ]


def _by_slice(context: OpContext, triples: list[Triple]) -> Kernel:
    def run(args: Sequence[Array], free: int | None) -> Array:
        if any(x.shape[2:] != args[0].shape[2:] for x in args[1:]):
            raise context.error("G8", "its inputs differ in rows or columns: " + ", ".join(map(shape_text, args)))
        units = sequence(context, triples, [x.shape[1] for x in args])
        args = _same_count(args)
        if units[0].shape[0] == 1:
            return np.concatenate([x[:, u[0, 0] : u[0, -1] + 1] for x, u in zip(args, units, strict=True)], axis=1)
        begin = np.cumsum([0, *(x.shape[1] for x in args)])
        order = np.concatenate([u + b for u, b in zip(units, begin, strict=False)], axis=1).reshape(-1)
        return np.concatenate(args, axis=1)[:, order]

    return run


def _by_ublock(context: OpContext, triples: list[Triple]) -> Kernel:
    op = context.op
    (gr, gc), (ur, uc) = op.grid_size, op.blocking.ublock
    h, w = context.tile_dim
    height, width = ur * h, uc * w  # of an ublock, in elements
    t, rows, columns = context.shape
    by_rows = op.blocking.order != "c"

    def run(args: Sequence[Array], free: int | None) -> Array:
        args = _same_count(args)
        sizes = []  # ublocks of each input on a core
        for i, x in enumerate(args):
            if x.shape[2] % (gr * height) or x.shape[3] % (gc * width) or x.shape[1] != t:
                raise context.error(
                    "G8",
                    f"input {i} is (z, R, C) = {shape_text(x)}",
                    f"it must be {t} slices of whole ublocks of {height} x {width} elements on each "
                    f"of {gr} x {gc} cores",
                )
            sizes.append((x.shape[2] // (gr * height), x.shape[3] // (gc * width)))
        units = sequence(context, triples, [m * n for m, n in sizes])
        n = args[0].shape[0]
        whole = all(u.size == a * b for u, (a, b) in zip(units, sizes, strict=True))
        along_c, along_r = (len({a for a, _ in sizes}) == 1, len({b for _, b in sizes}) == 1)
        turns = units[0].shape[0]
        if whole and along_c and by_rows and turns == sizes[0][0]:
            parts = [x.reshape(n, t, x.shape[2], gc, x.shape[3] // gc) for x in args]
            return np.concatenate(parts, axis=4).reshape(n, t, rows, columns)
        if whole and along_r and ((by_rows and turns == 1) or (not by_rows and turns == sizes[0][1])):
            parts = [x.reshape(n, t, gr, x.shape[2] // gr, x.shape[3]) for x in args]
            return np.concatenate(parts, axis=3).reshape(n, t, rows, columns)
        pieces = []
        for x, (a, b), unit in zip(args, sizes, units, strict=True):
            blocks = x.reshape(n, t, gr, a, height, gc, b, width)
            blocks = blocks.transpose((0, 1, 2, 5, 3, 6, 4, 7) if by_rows else (0, 1, 2, 5, 6, 3, 4, 7))
            pieces.append(blocks.reshape(n, t, gr, gc, a * b, height, width)[:, :, :, :, unit])
        # (n, t, gr, gc, turns, units of a turn, height, width), the output's ublocks in their order
        joined = np.concatenate(pieces, axis=5)
        m, k = rows // (gr * height), columns // (gc * width)
        if joined.shape[4] * joined.shape[5] != m * k:
            raise context.error(
                "splice",
                f"its inputs give {joined.shape[4] * joined.shape[5]} ublocks per core",
                f"the output has {m} x {k}",
            )
        split, back = ((m, k), (0, 1, 2, 4, 6, 3, 5, 7)) if by_rows else ((k, m), (0, 1, 2, 5, 6, 3, 4, 7))
        return joined.reshape(n, t, gr, gc, *split, height, width).transpose(back).reshape(n, t, rows, columns)

    return run


def _same_count(args: Sequence[Array]) -> list[Array]:
    """All inputs with the largest number of inputs side by side."""
    n = max(x.shape[0] for x in args)
    return [np.broadcast_to(x, (n, *x.shape[1:])) if x.shape[0] != n else x for x in args]
