"""Moves in time: an op into a neighbouring epoch, an epoch break along the schedule.

Epochs are runs of the schedule. An op goes to another epoch by moving the break between the two, and what lies between
op and break goes along. Only a break that somebody set can be moved; where the placer chose to end an epoch, an op can
begin an epoch of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.session.commands import ChipBreak, Command, EpochBreak, PlaceOp, refuse

if TYPE_CHECKING:
    from tbuda_lab.core.session.placing import Placed
    from tbuda_lab.core.session.session import Session
    from tbuda_lab.core.session.state import State

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
    session: Session, op: str, epoch: int, start: tuple[int, int] | None = None, transpose: bool | None = None
) -> tuple[Command, ...]:
    """The edits that take an op to another epoch (numbered as now), and there to a place if one is given.

    Raises `InputError` for an unknown op or epoch, `OverrideError` where the schedule has no such move.
    """
    placed = session.placed()
    order, number = placed.problem.order, placed.problem.number
    if op not in number:
        raise InputError(f"{op!r} is not an op of the placed graph")
    if not 0 <= epoch < len(placed.segments):
        raise InputError(f"there is no epoch {epoch}; there are {len(placed.segments)}")
    at = number[op]
    here = _epoch_of(placed, at)
    pin = (PlaceOp(op, start, transpose),) if start is not None else ()
    if epoch == here:
        return pin
    if abs(epoch - here) > 1:
        side = here + (1 if epoch > here else -1)
        raise refuse(
            op, f"epoch {epoch} is not next to epoch {here}, and an op cannot pass the epochs between",
            f"move it to epoch {side} first",
        )  # fmt: skip
    later = epoch > here
    border = order[placed.segments[max(here, epoch)].first]
    mine = any(o.kind == "epoch_break" and o.target == border for o in session.overrides)
    if later:
        if at == placed.segments[here].first and mine:
            return (EpochBreak(border, on=False), *pin)
        cut = EpochBreak(op)
        if at == placed.segments[here].first:
            raise refuse(op, f"it begins epoch {here} already", "move the ops after it instead")
        return (EpochBreak(border, on=False), cut, *pin) if mine else (cut, *pin)
    if not mine:
        raise refuse(
            op, f"the placer ended epoch {epoch} before {border}, because more did not fit or would be slower",
            "make ops of that epoch smaller, or let all epochs be chosen anew",
        )  # fmt: skip
    after = at + 1
    if after < placed.segments[here].last:
        return (EpochBreak(border, on=False), EpochBreak(order[after]), *pin)
    return (EpochBreak(border, on=False), *pin)


def state_after(session: Session, *edits: Command) -> State:
    """The current state with edits made to it, for `Session.placed`; nothing is done."""
    state: State = session._history.state
    for edit in edits:
        state = edit.apply(state)
    return state


def _epoch_of(placed: Placed, number: int) -> int:
    return next(i for i, s in enumerate(placed.segments) if s.first <= number < s.last)


def shift_break(op: str, to: str, kind: str = "epoch_break") -> tuple[Command, ...]:
    """The edits that take a break from before `op` to before `to`."""
    if kind not in BREAKS:
        raise InputError(f"no break {kind!r}; known: {', '.join(BREAKS)}")
    return (BREAKS[kind](op, on=False), BREAKS[kind](to))


def stops(session: Session, op: str, kind: str = "epoch_break", names: Sequence[str] = ()) -> Iterator[Stop]:
    """What a break that stands before `op` would make of the schedule elsewhere, one op at a time, nearest first.

    names: only before these ops. Raises `InputError` for an op that is not placed.
    """
    placed = session.placed()
    order, number = placed.problem.order, placed.problem.number
    if op not in number:
        raise InputError(f"{op!r} is not an op of the placed graph")
    at = number[op]
    wanted = [number[n] for n in names if n in number] if names else range(1, len(order))
    for there in sorted(wanted, key=lambda n: (abs(n - at), n)):
        name = order[there]
        try:
            after = placed if there == at else session.placed(state_after(session, *shift_break(op, name, kind)))
        except TbudaError as error:
            first = error.diagnostics[0].message if error.diagnostics else str(error).splitlines()[0]
            yield Stop(name, 0, 0, 0, first)
        else:
            cycles = after.limiter_cycles
            yield Stop(name, len(cycles), max(cycles), sum(cycles), "")
