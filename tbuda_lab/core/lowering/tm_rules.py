"""Normal form of the TM list on an edge: transposes in front, neighbours merged, identities gone."""

from __future__ import annotations

from collections.abc import Iterable

from tbuda_lab.core.graph import TM, TileShape, apply_shape

_FLIPPED = {"hslice": "vslice", "vslice": "hslice", "hstack": "vstack", "vstack": "hstack"}
_INVERSE = {"hslice": "hstack", "hstack": "hslice", "vslice": "vstack", "vstack": "vslice"}


def simplify(tms: Iterable[TM], shape: TileShape) -> tuple[TM, ...]:
    """An equivalent, usually shorter list for a producer of tile shape (z, rt, ct).

    Rules, to a fixed point: factor-1 moves vanish; transpose . transpose = identity; a transpose moves in front of
    slices, stacks and broadcasts (which swap rows and columns); slice a . slice b = slice a*b, the same for stacks;
    slice n . stack n = identity (and the larger absorbs the smaller where it divides); broadcasts of one dim multiply.
    """
    items = [tm for tm in tms if not _is_identity(tm)]
    changed = True
    while changed:
        changed = False
        for i in range(len(items) - 1):
            merged = _merge(items[i], items[i + 1])
            if merged is not None:
                items[i : i + 2] = [tm for tm in merged if not _is_identity(tm)]
                changed = True
                break
    check = shape
    for tm in items:
        check = apply_shape(tm, check)
    return tuple(items)


def _is_identity(tm: TM) -> bool:
    if tm.name == "broadcast":
        return tm.args[1] == 1
    return tm.name in _FLIPPED and tm.args[0] == 1


def _merge(first: TM, second: TM) -> tuple[TM, ...] | None:
    """What two neighbours become, or None where they stay as they are."""
    if second.name == "transpose":
        if first.name == "transpose":
            return ()
        if first.name in _FLIPPED:
            return TM("transpose"), TM(_FLIPPED[first.name], first.args)
        if first.name == "broadcast":
            dim = {"r": "c", "c": "r", "z": "z"}[str(first.args[0])]
            return TM("transpose"), TM("broadcast", (dim, first.args[1]))
        return None
    if first.name == second.name and first.name in _FLIPPED:
        return (TM(first.name, (int(first.args[0]) * int(second.args[0]),)),)
    if first.name == "broadcast" == second.name and first.args[0] == second.args[0]:
        return (TM("broadcast", (first.args[0], int(first.args[1]) * int(second.args[1]))),)
    if first.name in ("hslice", "vslice") and second.name == _INVERSE[first.name]:
        a, b = int(first.args[0]), int(second.args[0])
        if a % b == 0:
            return (TM(first.name, (a // b,)),)
        if b % a == 0:
            return (TM(second.name, (b // a,)),)
    if first.name in ("hstack", "vstack") and second.name == _INVERSE[first.name]:
        a, b = int(first.args[0]), int(second.args[0])
        if a == b:
            return ()
    return None
