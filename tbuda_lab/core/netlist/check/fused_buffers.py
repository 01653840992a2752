"""Rules F6 and F7: broadcasts inside fused ops, and the life of intermediate buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tbuda_lab.core.netlist.check.context import CheckContext, whole
from tbuda_lab.core.netlist.check.fused import Place, indexed, sub_ops
from tbuda_lab.core.netlist.check.registry import Issue, Issues, rule
from tbuda_lab.core.netlist.opspec import BINARY, QUANT
from tbuda_lab.core.netlist.schema import FusedOp, SubOp, Tm

_FPU_BINARY = BINARY - QUANT - {"maximum"}


@rule("F6", "fused_op", "fused")
def broadcasts(c: CheckContext, f: FusedOp) -> Issues:
    """Fused ops broadcast, over r or c, an intermediate of one tile there; tile_broadcast is for fpu binary input 1."""
    producers: dict[str, SubOp] = {}
    for place, schedule, k in sub_ops(f):
        sub = schedule[k]
        for n, tms in sub.tms.items():
            source = sub.inputs[n] if n < len(sub.inputs) else ""
            at = (*place, f"input_{n}_tms")
            for tm in tms:
                yield from _tm(sub, n, source, tm, producers.get(source), at)
            dims = {dim for tm in tms if tm.name == "broadcast" for dim, _ in tm.args}
            if {"r", "c"} <= dims:
                yield at, "broadcast over r and c at once", "broadcast in two sub-ops"
        if indexed(sub.output, "intermed") is not None:
            producers[sub.output] = sub


def _tm(sub: SubOp, n: int, source: str, tm: Tm, maker: SubOp | None, at: Place) -> Iterator[Issue]:
    if tm.name == "tile_broadcast":
        if sub.type not in _FPU_BINARY or n != 1:
            yield at, f"tile_broadcast on input {n} of {sub.type}", "it is legal on input 1 of add, subtract, multiply"
        return
    if tm.name != "broadcast":
        yield at, f"{tm.name} inside a fused op", "only broadcast and tile_broadcast are legal there"
        return
    if indexed(source, "intermed") is None:
        yield at, f"broadcast of {source or 'no input'}", \
            "broadcast an intermediate: let a sub-op write it to intermedN first"
        return
    for dim, _ in tm.args:
        if dim == "z":
            yield at, "broadcast over z inside a fused op", "only r and c are legal"
        elif maker is not None:
            yield from _broadcast(sub, n, dim, maker, at)


def _broadcast(sub: SubOp, n: int, dim: str, maker: SubOp, at: Place) -> Iterator[Issue]:
    (m, n_), (rt, ct) = maker.mblock, maker.ublock
    if dim == "r":
        if sub.type == "matmul":
            yield at, "broadcast over r into a matmul", "only c on input 0 is legal"
        elif m != 1 or rt != 1:
            yield at, f"broadcast over r of {m * rt} rows of tiles", \
                "the intermediate must have mblock_m 1 and ublock_rt 1"
        elif sub.mblock[0] > 1 and n_ != 1:
            yield at, f"broadcast over r grows mblock_m to {sub.mblock[0]} with mblock_n {n_}", \
                "grow ublock_rt instead, or make mblock_n 1"
    elif sub.type == "matmul":
        if n != 0 or ct != 1 or n_ not in (1, whole(sub, "m_k", 1)):
            yield at, f"broadcast over c into matmul input {n}", \
                "only on input 0, with ublock_ct 1 and mblock_n 1 or m_k"
    elif n_ != 1 or ct != 1:
        yield at, f"broadcast over c of {n_ * ct} columns of tiles", \
            "the intermediate must have mblock_n 1 and ublock_ct 1"


@dataclasses.dataclass
class _Live:
    sub: SubOp
    schedule: int
    place: Place


@rule("F7", "fused_op", "fused")
def intermediates(c: CheckContext, f: FusedOp) -> Issues:
    """An intermediate is written, read and popped, in that order, before it is written again; in the end all are."""
    live: dict[str, _Live] = {}
    for place, schedule, k in sub_ops(f):
        sub, s = schedule[k], int(place[1])
        for name in dict.fromkeys(sub.inputs):
            if indexed(name, "intermed") is None:
                continue
            if name not in live:
                yield (*place, "inputs"), f"{name} is read, but not written before or popped already", \
                    "write it first, pop it at its last use"
            elif live[name].schedule != s:
                yield from _across(f, name, live[name], place)
        yield from _pops(sub, place)
        for name in (*(sub.pop or ()), *(sub.pop_last or ())):
            live.pop(name, None)
        if indexed(sub.output, "intermed") is not None:
            if sub.output in live:
                yield (*place, "output"), f"{sub.output} is written again before it was popped", \
                    f"pop it where it is read last after sub-op {live[sub.output].sub.name!r}"
            live[sub.output] = _Live(sub, s, place)
    for name, item in live.items():
        yield item.place, f"{name} is never popped", f"write `pop: [{name}]` where it is read last"


def _across(f: FusedOp, name: str, item: _Live, place: Place) -> Iterator[Issue]:
    ends = f.schedules[item.schedule][-1].type
    if item.sub.type in ("matmul", "reduce") or item.sub.mblock == (1, 1) or ends not in ("matmul", "reduce"):
        return
    yield (*place, "inputs"), f"{name} of mblock {list(item.sub.mblock)} is read in another schedule than that of " \
        f"{item.sub.name!r}, which ends in a {ends}", "read it in the same schedule, or make its mblock [1, 1]"


def _pops(sub: SubOp, place: Place) -> Iterator[Issue]:
    for key, names in (("pop", sub.pop), ("pop_last", sub.pop_last)):
        for name in names or ():
            if name not in sub.inputs:
                yield (*place, key), f"{key} of {name}, which is not an input", f"inputs are {', '.join(sub.inputs)}"
            if key == "pop_last" and indexed(name, "intermed") is None:
                yield (*place, key), f"pop_last of {name}", "only intermediates can be popped last"
    both = set(sub.pop or ()) & set(sub.pop_last or ())
    if both:
        yield (*place, "pop_last"), f"{', '.join(sorted(both))} in pop and pop_last", "keep one"
