"""What became of every op of an Ir."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tbuda_lab.dialects.realisation import ALLOWED, Realisation, refuse_host
from tbuda_lab.popxl.graph import Op
from tbuda_lab.popxl.lowering.values import Block, Instr

CONSTANT = "calculated of constants when the program is compiled"


def realisations_of(
    blocks: Mapping[str, Block], strict: bool = False, folded: Sequence[Op] = ()
) -> tuple[Realisation, ...]:
    """One entry for each op and call site, in order, behind those of `folded` ops. strict: raise `UnsupportedOp` where
    the host calculates what has no reason of `ALLOWED`."""
    entries = tuple(entries_by_op(blocks, folded).values())
    if strict:
        refuse_host(entries)
    return entries


def entries_by_op(blocks: Mapping[str, Block], folded: Sequence[Op] = ()) -> dict[Op, Realisation]:
    """By op and call site what became of it, in order; what nothing reads is not among them. folded: ops of constants
    alone, which are calculated when the program is compiled; one that is called with others too is told by those."""
    by_op: dict[Op, list[Instr]] = {}
    for block in blocks.values():
        for instr in block.all_instrs():
            if instr.op is not None:
                by_op.setdefault(instr.op, []).append(instr)
    constant = {op: _constant(op) for op in folded if op not in by_op}
    return constant | {op: _entry(op, instrs) for op, instrs in by_op.items()}


def _constant(op: Op) -> Realisation:
    name = op.outputs[0].id if op.outputs else f"{op.graph.id}/{op.kind}"
    return Realisation(name, op.kind, "host", CONSTANT, op.location, "weights")


def _entry(op: Op, instrs: list[Instr]) -> Realisation:
    name = op.outputs[0].id if op.outputs else f"{op.graph.id}/{op.kind}"
    places = {i.place for i in instrs}
    on_host = next((i for i in instrs if i.place == "host" and i.reason != "integer encoding"), None)
    if on_host is not None:
        reason = on_host.reason
        return Realisation(name, op.kind, "host", reason, op.location, reason if reason in ALLOWED else "")
    if "program" in places:
        return Realisation(name, op.kind, "program", "a step of the host program", op.location)
    encoded = any(i.place == "host" for i in instrs)
    if "grid" not in places:
        return Realisation(name, op.kind, "host", "integer encoding", op.location, "integer encoding")
    count = sum(i.place == "grid" for i in instrs)
    what = "integers are encoded by the host" if encoded else "" if count == 1 else f"{count} instructions"
    return Realisation(name, op.kind, "grid" if count == 1 and not encoded else "decomposed", what, op.location)
