"""Moves in time: an op into another epoch, an epoch break along the schedule.

Epochs are runs of the schedule. An op goes to a neighbouring epoch by moving the break between the two, and what lies
between op and break goes along; or alone, to any epoch that its operands and readers allow, by a schedule constraint:
later behind the first op of that epoch, earlier before all that would else run in between. Only a break that somebody
set can be moved; where the placer chose to end an epoch, an op can begin an epoch of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tbuda_lab.core.errors import InputError, OverrideError, TbudaError
from tbuda_lab.core.placer.model.schedule import sparse_pairs
from tbuda_lab.core.session.command import Command, refuse
from tbuda_lab.core.session.commands import ChipBreak, Constrain, EpochBreak, PlaceOp
from tbuda_lab.core.session.compiles import Compiles

if TYPE_CHECKING:
    from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps

BREAKS: dict[str, type[EpochBreak]] = {"epoch_break": EpochBreak, "chip_break": ChipBreak}


class Stop(NamedTuple):
    """A break before `op`: how many epochs that makes, and the cycles per input of the slowest and of all of them.
    `against`: why it cannot be there; the numbers are 0 then."""

    op: str
    epochs: int
    slowest: int
    total: int
    against: str


def into_epoch(
    compiles: Compiles, op: str, epoch: int, start: tuple[int, int] | None = None, transpose: bool | None = None
) -> tuple[Command, ...]:
    """The edits that take an op to another epoch (numbered as now), and there to a place if one is given.

    Raises `InputError` for an unknown op or epoch, `OverrideError` where the schedule has no such move.
    """
    placed = compiles.placed()
    number = placed.problem.number
    if op not in number:
        raise InputError(f"{op!r} is not an op of the placed graph")
    if not 0 <= epoch < len(placed.segments):
        raise InputError(f"there is no epoch {epoch}; there are {len(placed.segments)}")
    at = number[op]
    own_epoch = _epoch_of(placed, at)
    pin = (PlaceOp(op, start, transpose),) if start is not None else ()
    if epoch == own_epoch:
        return pin
    if abs(epoch - own_epoch) > 1:
        return (*_alone(compiles, placed, op, epoch), *pin)
    try:
        return (*_beside(compiles, placed, op, epoch), *pin)
    except OverrideError as refused:
        if epoch not in epochs_of(placed, op):
            raise
        try:
            return (*_alone(compiles, placed, op, epoch), *pin)
        except OverrideError:
            raise refused from None


def epochs_of(placed: PlacedOps, op: str) -> tuple[int, ...]:
    """The epochs that an op may go to alone: not before the last of its operands, not behind the first of its readers.
    A sparse matmul and the matmul that reads it go together."""
    problem = placed.problem
    members = [problem.number[n] for n in _together(placed, op)]
    facts = [problem.facts[m] for m in members]
    before = [_epoch_of(placed, p) for f in facts for p in f.producers if p >= 0 and p not in members]
    behind = [_epoch_of(placed, r) for f in facts for r, _ in f.readers if r not in members]
    return tuple(range(max(before, default=0), min(behind, default=len(placed.segments) - 1) + 1))


def _together(placed: PlacedOps, op: str) -> tuple[str, ...]:
    pairs = sparse_pairs(placed.problem.graph)
    first = next((a for a, b in pairs.items() if b == op), op if op in pairs else None)
    return (op,) if first is None else (first, pairs[first])


def _alone(compiles: Compiles, placed: PlacedOps, op: str, epoch: int) -> tuple[Command, ...]:
    """Without the ops around it. Raises `OverrideError` naming the epochs that it could go to."""
    problem, segments = placed.problem, placed.segments
    order, number = problem.order, problem.number
    legal = epochs_of(placed, op)
    own_epoch = _epoch_of(placed, number[op])
    if epoch not in legal:
        if epoch < own_epoch:
            facts = [problem.facts[number[m]] for m in _together(placed, op)]
            late = max((p for f in facts for p in f.producers if p >= 0), key=lambda p: (_epoch_of(placed, p), p))
            why = f"it reads {order[late]}, which runs in epoch {_epoch_of(placed, late)}"
        else:
            facts = [problem.facts[number[m]] for m in _together(placed, op)]
            soon = min((r for f in facts for r, _ in f.readers), key=lambda r: (_epoch_of(placed, r), r))
            why = f"{order[soon]} reads it in epoch {_epoch_of(placed, soon)}"
        rest = [e for e in legal if e != own_epoch]
        text = f"epochs {', '.join(map(str, rest))}" if len(rest) > 1 else f"epoch {rest[0]}" if rest else "no other"
        raise refuse(op, f"it cannot run in epoch {epoch}: {why}", f"legal for it alone: {text}")
    together = _together(placed, op)
    old = [
        o.target
        for o in compiles.request.overrides
        if o.kind == "schedule_constraint" and isinstance(o.target, tuple) and set(together) & set(o.target)
    ]
    edits: list[Command] = [Constrain(names, on=False) for names in old]
    home = segments[own_epoch]
    if order[home.first] in together and any(
        o.kind == "epoch_break" and o.target == order[home.first] for o in compiles.request.overrides
    ):  # the break stays with those that stay
        edits.append(EpochBreak(order[home.first], on=False))
        rest_of = [order[n] for n in range(home.first, home.last) if order[n] not in together]
        edits += [EpochBreak(rest_of[0])] if rest_of else []
    order_kept = _order_of(placed, op, together, own_epoch, epoch)
    start = order[segments[epoch].first]
    if (
        epoch > own_epoch
        and order_kept.ops[0] != start
        and any(o.kind == "epoch_break" and o.target == start for o in compiles.request.overrides)
    ):  # it goes before the op that begins the epoch, and so does the break
        edits += [EpochBreak(start, on=False), EpochBreak(together[0])]
    edits.append(order_kept)
    after = compiles.placed_after(*edits)
    stays = {order[n] for n in range(segments[epoch].first, segments[epoch].last)}
    there = _epoch_of(after, after.problem.number[op])
    segment = after.segments[there]
    if not stays & {after.problem.order[n] for n in range(segment.first, segment.last)}:
        raise refuse(
            op,
            f"epoch {epoch} has no room for it: the placer would put it into an epoch of its own",
            f"make ops of epoch {epoch} smaller first",
        )
    return tuple(edits)


def _order_of(placed: PlacedOps, op: str, together: tuple[str, ...], here: int, epoch: int) -> Constrain:
    """The schedule constraint that takes ops from one epoch to another."""
    problem, segments = placed.problem, placed.segments
    order = problem.order
    members = {problem.number[n] for n in together}
    if epoch > here:
        target = segments[epoch]
        if not members & set(problem.facts[target.first].producers):
            return Constrain((order[target.first], *together))
        if epoch > here + 1:
            return Constrain((order[segments[epoch - 1].last - 1], *together))
        raise refuse(
            op,
            f"{order[target.first]} reads it and begins epoch {epoch}, so no epoch break can put it there",
            f"set an epoch break before {op}, or move {order[target.first]} later",
        )
    between = range(segments[epoch].last, min(members))
    inner = set(between)
    roots = [n for n in between if not inner & set(problem.facts[n].producers)]
    if not roots:
        lead = _leading_to(placed, members)
        roots = [n for n in range(segments[epoch].first, segments[epoch].last) if n not in lead][-1:]
    if not roots:
        raise refuse(
            op,
            f"all of epoch {epoch} leads to it, so no epoch break can put it there",
            "remove the epoch break between them, or place all epochs again",
        )
    return Constrain((*together, *(order[n] for n in roots)))


def _leading_to(placed: PlacedOps, ops: set[int]) -> set[int]:
    """The ops that must run before these."""
    result: set[int] = set()
    stack = list(ops)
    while stack:
        for producer in placed.problem.facts[stack.pop()].producers:
            if producer >= 0 and producer not in result:
                result.add(producer)
                stack.append(producer)
    return result


def _beside(compiles: Compiles, placed: PlacedOps, op: str, epoch: int) -> tuple[Command, ...]:
    """Into a neighbouring epoch, by the break between the two."""
    order = placed.problem.order
    at = placed.problem.number[op]
    own_epoch = _epoch_of(placed, at)
    later = epoch > own_epoch
    border = order[placed.segments[max(own_epoch, epoch)].first]
    mine = any(o.kind == "epoch_break" and o.target == border for o in compiles.request.overrides)
    if later:
        if at == placed.segments[own_epoch].first and mine:
            return (EpochBreak(border, on=False),)
        cut = EpochBreak(op)
        if at == placed.segments[own_epoch].first:
            raise refuse(op, f"it begins epoch {own_epoch} already", "move the ops after it instead")
        return (EpochBreak(border, on=False), cut) if mine else (cut,)
    if not mine:
        raise refuse(
            op,
            f"the placer ended epoch {epoch} before {border}, because more did not fit or would be slower",
            "make ops of that epoch smaller, or place all epochs again",
        )
    after = at + 1
    if after < placed.segments[own_epoch].last:
        return (EpochBreak(border, on=False), EpochBreak(order[after]))
    return (EpochBreak(border, on=False),)


def _epoch_of(placed: PlacedOps, number: int) -> int:
    return next(i for i, s in enumerate(placed.segments) if s.first <= number < s.last)


def shift_break(op: str, to: str, kind: str = "epoch_break") -> tuple[Command, ...]:
    """The edits that take a break from before `op` to before `to`."""
    if kind not in BREAKS:
        raise InputError(f"no break {kind!r}; known: {', '.join(BREAKS)}")
    return (BREAKS[kind](op, on=False), BREAKS[kind](to))


def stops(compiles: Compiles, op: str, kind: str = "epoch_break", names: Sequence[str] = ()) -> Iterator[Stop]:
    """What a break that stands before `op` would make of the schedule elsewhere, one op at a time, nearest first.

    names: only before these ops. Raises `InputError` for an op that is not placed.
    """
    placed = compiles.placed()
    order, number = placed.problem.order, placed.problem.number
    if op not in number:
        raise InputError(f"{op!r} is not an op of the placed graph")
    at = number[op]
    numbers = [number[n] for n in names if n in number] if names else range(1, len(order))
    for position in sorted(numbers, key=lambda n: (abs(n - at), n)):
        name = order[position]
        try:
            after = placed if position == at else compiles.placed_after(*shift_break(op, name, kind))
        except TbudaError as error:
            first = error.diagnostics[0].message if error.diagnostics else str(error).splitlines()[0]
            yield Stop(name, 0, 0, 0, first)
        else:
            cycles = after.limiter_cycles
            yield Stop(name, len(cycles), max(cycles), sum(cycles), "")
