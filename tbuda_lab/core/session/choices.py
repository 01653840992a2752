"""What else an op could be told, at the shape it has: inner steps, t-streaming, buffers. Legal values only."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, TypedDict

import numpy as np

from tbuda_lab.core.balancer.types import OpModels, Reason
from tbuda_lab.core.errors import InputError, TbudaError
from tbuda_lab.core.overrides import Override

if TYPE_CHECKING:
    from tbuda_lab.core.placer.interactive.placed import Placed
    from tbuda_lab.core.session.session import Session

FACTORS = (1, 2, 3, 4, 6, 8)
"""Buffer multipliers that are offered."""


class Now(TypedDict):
    """What an op has: its u_kt (0 without an inner dimension), its stream, and the buffer multipliers that are set."""

    u_kt: int
    stream: tuple[str, int, int]
    buffers: dict[int, int]


@dataclasses.dataclass(frozen=True)
class OpChoices:
    """Each list holds (value, kernel cycles per input of the best candidate with it), values ascending.

    `u_kt`: empty for ops without an inner dimension. `streams`: ((direction, rows, columns), cycles), "n" for none.
    `buffers[operand]`: multipliers.
    """

    op: str
    u_kt: tuple[tuple[int, int], ...]
    streams: tuple[tuple[tuple[str, int, int], int], ...]
    buffers: tuple[tuple[tuple[int, int], ...], ...]
    now: Now


def choices_of(session: Session, op: str) -> OpChoices:
    """What an op could be told at the shape it has. Raises `InputError` for a name that is not placed."""
    placed, row = _now(session, op)
    grid = (int(row["grid_r"]), int(row["grid_c"]))
    profile = placed.problem.profiles[placed.problem.number[op]]
    buffers = []
    for operand in range(len(profile.operands)):
        matches = []
        for factor in FACTORS:
            extra = Override("input_buffer_multiplier", op, {operand: factor})
            try:
                rows = _at(_table(session, op, ("op_size",), extra), grid)
            except TbudaError:
                continue
            if len(rows):
                matches.append((factor, int(rows["cycles"].min())))
        buffers.append(tuple(matches))
    asked = {o.kind: o.value for o in session.overrides if o.matches([op])}
    return OpChoices(
        op,
        inner_steps(session, op),
        streams_of(session, op),
        tuple(buffers),
        {
            "u_kt": int(row["u_kt"]),
            "stream": (str(row["stream"]) or "n", int(row["stream_r"]), int(row["stream_c"])),
            "buffers": dict(asked.get("input_buffer_multiplier", {})),
        },
    )


def inner_steps(session: Session, op: str) -> tuple[tuple[int, int], ...]:
    """`Choices.u_kt` of a placed op."""
    row = _now(session, op)[1]
    if not int(row["u_kt"]):
        return ()
    steps = _at(_table(session, op, ("op_size", "u_kt")), (int(row["grid_r"]), int(row["grid_c"])))
    return _best(steps["u_kt"], steps["cycles"])


def streams_of(session: Session, op: str) -> tuple[tuple[tuple[str, int, int], int], ...]:
    """`Choices.streams` of a placed op."""
    row = _now(session, op)[1]
    kinds = ("op_size", "t_stream_dir", "t_stream_shape")
    flows = _at(_table(session, op, kinds), (int(row["grid_r"]), int(row["grid_c"])))
    streams: dict[tuple[str, int, int], int] = {}
    for way, r, c, cycles in zip(
        flows["stream"].tolist(), flows["stream_r"].tolist(), flows["stream_c"].tolist(), flows["cycles"].tolist(),
        strict=True,
    ):  # fmt: skip
        key = (way or "n", r, c)
        streams[key] = min(cycles, streams.get(key, cycles))
    return tuple(sorted(streams.items(), key=lambda s: (s[0][1] * s[0][2], s[0])))


def _now(session: Session, op: str) -> tuple[Placed, np.void]:
    """The placement and the op's candidate in it."""
    placed = session.placed()
    if op not in placed.problem.number:
        raise InputError(f"{op!r} is not an op of the placed graph")
    number = placed.problem.number[op]
    row: np.void = placed.problem.tables[number].rows[placed.epoch(placed.epoch_of(number)).rows[number]]
    return placed, row


def _table(session: Session, op: str, kinds: tuple[str, ...], *extra: Override) -> OpModels:
    """The op's candidates without overrides of these kinds, and with others."""
    state = session._state.history.state
    rest = tuple(o for o in state.overrides if not (o.kind in kinds and o.matches([op])))
    front = session.compiles.front(state)
    return session._state.pipeline.free_table(front, state.options, (*rest, *extra), op)


def _at(table: OpModels, grid: tuple[int, int]) -> np.ndarray:
    """The legal candidates of a shape."""
    rows = table.rows
    same = (rows["reason"] == Reason.LEGAL) & (rows["grid_r"] == grid[0]) & (rows["grid_c"] == grid[1])
    result: np.ndarray = rows[same]
    return result


def _best(values: np.ndarray, cycles: np.ndarray) -> tuple[tuple[int, int], ...]:
    """(value, fewest cycles) for every value, ascending."""
    order = np.lexsort((cycles, values))
    keep, first = np.unique(values[order], return_index=True)
    return tuple(zip(keep.tolist(), cycles[order][first].tolist(), strict=True))
