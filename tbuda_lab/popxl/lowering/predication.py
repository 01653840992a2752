"""Conditionals on the grid: both branches are calculated, and a selection keeps what the condition says.

A selection is `Where`, which on the device is 1 times what is kept and 0 times the rest, and 0 times anything is 0
there (`core.ops.binary.Where`): so no infinity and no NaN of the branch that is not taken gets through.
"""

from __future__ import annotations

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.popxl.lowering.placement import FLOATS, place_one
from tbuda_lab.popxl.lowering.values import Block, Instr, Val


def select_branches(block: Block, device: DeviceSpec) -> int:
    """Replace conditionals, those of blocks inside first, by both branches and a selection of each result. How many
    there were whose branches the grid does alone. Instructions have their places already."""
    made: list[Instr] = []
    count = 0
    for instr in block.instrs:
        count += sum(select_branches(inner, device) for inner in instr.blocks)
        parts = _selected(instr, device) if instr.kind == "If" else None
        made += [instr] if parts is None else parts
        count += parts is not None
    block.instrs = made
    return count


def _selected(instr: Instr, device: DeviceSpec) -> list[Instr] | None:
    """Both branches and the selections; None where something in them is not the grid's alone."""
    (condition,) = instr.ins
    inside = [i for branch in instr.blocks for i in branch.instrs]
    whole = all(i.place == "grid" and not i.tokens and not i.blocks for i in inside)
    if not whole or not _is_float(condition) or condition.size != 1 or not all(map(_is_float, instr.outs)):
        return None
    then, otherwise = (branch.results for branch in instr.blocks)
    selections = []
    for kept, other, out in zip(then, otherwise, instr.outs, strict=True):
        one = Instr("Where", {}, [condition, kept, other], [out], instr.op)
        place_one(one, device)
        if one.place != "grid":
            return None
        selections.append(one)
    return [*inside, *selections]


def _is_float(val: Val) -> bool:
    return val.dtype in FLOATS and val.size > 0
