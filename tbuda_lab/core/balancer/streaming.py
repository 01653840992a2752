"""t-streaming as TMs: how a producer's stored form is undone and how a consumer's operands are cut.

An op that streams `f` ways along rows computes t = z * f slices, each with 1/f of the rows. "r" and "c" keep the slices
of one z together (z outer); "rz" puts the slices outside (slice outer, z inner), which is what a reader needs that
stacks the z slices side by side (hstack) and streams along rows itself.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tbuda_lab.core.balancer.profile import Candidate, OpProfile
from tbuda_lab.core.graph import TM, TileShape, apply_shape
from tbuda_lab.core.graph.tm import broadcast, hslice, hstack, vslice, vstack


def stored_shape(profile: OpProfile, row: Candidate) -> TileShape:
    """(t, rt, ct) of an op's output as it leaves the cores (and as an epoch-to-epoch queue holds it)."""
    z, rt, ct = profile.out
    return z * int(row["stream_r"]) * int(row["stream_c"]), rt // int(row["stream_r"]), ct // int(row["stream_c"])


def unstream_tms(profile: OpProfile, row: Candidate) -> tuple[TM, ...]:
    """TMs from the stored form of a producer's output to its logical tensor."""
    z = profile.out[0]
    fr, fc = int(row["stream_r"]), int(row["stream_c"])
    if str(row["stream"]) == "rz" and z > 1:
        return (hstack(z), vstack(fr), hslice(z))
    tms: tuple[TM, ...] = ()
    if fc > 1:
        tms += (hstack(fc),)
    if fr > 1:
        tms += (vstack(fr),)
    return tms


def stream_tms(profile: OpProfile, port: int, row: Candidate) -> tuple[TM, ...]:
    """TMs that follow the edge's own: they cut an operand for the streaming of its reader."""
    fr, fc = int(row["stream_r"]), int(row["stream_c"])
    operand = profile.operands[port]
    z, rt, _ = operand.tiles
    if profile.kind == "sparse_matmul":
        return ()  # it streams along rows alone, where the encoding is cut and the activations are read whole
    tms: tuple[TM, ...] = ()
    if fr > 1:
        if operand.role == "in1" or (operand.role == "bias" and rt == 1):
            # the weights are read again for every slice of rows
            tms += (broadcast("z", fr),) if z == 1 else (broadcast("c", fr), hslice(fr))
        else:
            tms += (vslice(fr),)
    if fc > 1:
        if operand.role == "in0":
            tms += (broadcast("z", fc),) if z == 1 else (broadcast("r", fc), vslice(fc))
        else:
            tms += (hslice(fc),)
    return tms


_PAIRS = {"hslice": "hstack", "hstack": "hslice", "vslice": "vstack", "vstack": "vslice"}


def _merge(first: TM, second: TM) -> tuple[TM, ...] | None:
    """Two neighbours as one or none, if the rules allow it."""
    if first.name == "transpose" == second.name:
        return ()
    if first.name not in _PAIRS or second.name not in _PAIRS:
        return None
    a, b = int(first.args[0]), int(second.args[0])
    if first.name == second.name:
        return (TM(first.name, (a * b,)),)
    if _PAIRS[first.name] == second.name:
        if a == b:
            return ()
        if a % b == 0:
            return (TM(first.name, (a // b,)),)
        if b % a == 0:
            return (TM(second.name, (b // a,)),)
    return None


def _commute(first: TM, second: TM) -> bool:
    """Whether a row slice or stack may pass a broadcast along columns (and the other way round)."""
    if first.name != "broadcast" or second.name not in _PAIRS:
        return False
    return first.args[0] == ("c" if second.name[0] == "v" else "r")


def simplify(tms: Sequence[TM]) -> tuple[TM, ...]:
    """The same mapping with slices and stacks of one axis merged or cancelled."""
    chain = [tm for tm in tms if not (tm.name in _PAIRS and int(tm.args[0]) == 1)]
    changed = True
    while changed:
        changed = False
        for i in range(1, len(chain)):
            j = i - 1
            while j >= 0 and _commute(chain[j], chain[i]):
                j -= 1
            if j < 0:
                continue
            merged = _merge(chain[j], chain[i])
            if merged is not None:
                chain[j : i + 1] = [*merged, *chain[j + 1 : i]]
                changed = True
                break
    return tuple(chain)


def edge_tms(
    producer: OpProfile | None, producer_row: Candidate | None, consumer: OpProfile, port: int, consumer_row: Candidate
) -> tuple[TM, ...]:
    """All TMs between what the producer stores and what the consumer's cores read: the netlist's `input_N_tms`.

    `producer` None: the operand comes from a queue that holds the logical tensor.
    """
    before = unstream_tms(producer, producer_row) if producer is not None and producer_row is not None else ()
    return simplify((*before, *consumer.operands[port].tms, *stream_tms(consumer, port, consumer_row)))


def shapes_along(tms: Sequence[TM], shape: TileShape) -> list[TileShape]:
    """The shape before each TM, and the final one."""
    shapes = [shape]
    for tm in tms:
        shapes.append(apply_shape(tm, shapes[-1]))
    return shapes


def to_source(
    tms: Sequence[TM], source: TileShape, z: np.ndarray, r: np.ndarray, c: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Tile coordinates before the TMs of tiles addressed after them. Padding tiles get coordinates outside `source`."""
    before = shapes_along(tms, source)
    for tm, (sz, srt, sct) in zip(reversed(tms), reversed(before[:-1]), strict=True):
        if tm.name == "transpose":
            r, c = c, r
        elif tm.name == "broadcast":
            z, r, c = z % sz, r % srt, c % sct
        elif tm.name == "hslice":
            n = int(tm.args[0])
            z, c = z // n, c + (z % n) * (sct // n)
        elif tm.name == "vslice":
            n = int(tm.args[0])
            z, r = z // n, r + (z % n) * (srt // n)
        elif tm.name == "hstack":
            n = int(tm.args[0])
            z, c = z * n + c // sct, c % sct
        elif tm.name == "vstack":
            n = int(tm.args[0])
            z, r = z * n + r // srt, r % srt
    return z, r, c
