"""A block cut into groups: instructions of the grid that make one program, and single ones of the host between them."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tbuda_lab.popxl.lowering.values import Block, Instr, Val

_EFFECTS = frozenset(("HostLoad", "HostStore", "RemoteStore", "PrintTensor"))
"""What is done even where nobody reads a result. A load moves its stream on."""


@dataclasses.dataclass(eq=False)
class Group:
    """device: whether all instructions are the grid's; else there is one."""

    instrs: list[Instr]
    device: bool


def drop_unread(block: Block) -> None:
    """Remove instructions that nothing needs, in blocks inside too."""
    needed: set[Val] = {*block.final.values(), *block.results}
    kept: list[Instr] = []
    for instr in reversed(block.instrs):
        wanted = any(v in needed for v in instr.outs) or bool(instr.tokens) or instr.kind in _EFFECTS
        if instr.kind == "Loop":
            drop_unread_of_loop(instr, needed)
            wanted = wanted or bool(instr.carried)
        if not wanted:
            continue
        for inner in instr.blocks if instr.kind == "If" else ():
            drop_unread(inner)
        kept.append(instr)
        needed.update(instr.ins)
        needed.update(v for c in instr.carried for v in c.reads)
        for inner in instr.blocks:
            needed.update(inner.reads())
    block.instrs = kept[::-1]


def drop_unread_of_loop(instr: Instr, needed: set[Val]) -> None:
    """Remove what a loop carries where neither a later instruction nor the loop itself reads it."""
    (body,) = instr.blocks
    body.results = [c.after for c in instr.carried if c.after is not None]
    while True:
        wanted = [c for c in instr.carried if c.out in needed or _read_inside(body, c.inside, instr)]
        body.results = [c.after for c in wanted if c.after is not None]
        before = len(body.instrs), len(instr.carried)
        instr.carried = wanted
        drop_unread(body)
        if (len(body.instrs), len(instr.carried)) == before:
            break
    body.results = []
    instr.outs = [c.out for c in instr.carried]


def _read_inside(body: Block, inside: Val, loop: Instr) -> bool:
    others = [c.after for c in loop.carried if c.inside is not inside]
    reads = [
        v
        for i in body.instrs
        for v in (*i.ins, *(r for c in i.carried for r in c.reads), *(r for b in i.blocks for r in b.reads()))
    ]
    return inside in reads or inside in others


def needs_of(instr: Instr) -> set[Val]:
    """All values of outside that an instruction reads, its blocks included."""
    return {*instr.ins, *(v for c in instr.carried for v in c.reads), *(v for b in instr.blocks for v in b.reads())}


def cut(block: Block) -> list[Group]:
    """Groups in the order in which they run: first all that the host can do, then all that the grid can, and so on.

    So a block is cut only where the grid waits for the host."""
    made_by = {v: instr for instr in block.instrs for v in instr.outs}
    before: dict[Instr, set[Instr]] = {}
    last: dict[object, list[Instr]] = {}
    for instr in block.instrs:
        before[instr] = {made_by[v] for v in needs_of(instr) if v in made_by} - {instr}
        for token in instr.tokens:
            before[instr].update(last.get(token, ())[-1:])
            last.setdefault(token, []).append(instr)
    waiting: list[Instr] = list(block.instrs)
    done: set[Instr] = set()
    groups: list[Group] = []
    while waiting:
        waiting, taken = _take(waiting, before, done, device=False)
        groups += [Group([instr], False) for instr in taken]
        waiting, taken = _take(waiting, before, done, device=True)
        if taken:
            groups.append(Group(taken, True))
    return groups


def _take(
    waiting: Sequence[Instr], before: dict[Instr, set[Instr]], done: set[Instr], device: bool
) -> tuple[list[Instr], list[Instr]]:
    """Instructions of one side that can run now, each after what it needs; and the rest."""
    rest, taken = [], []
    for instr in waiting:
        if (instr.place == "grid") == device and before[instr] <= done:
            taken.append(instr)
            done.add(instr)
        else:
            rest.append(instr)
    return rest, taken
