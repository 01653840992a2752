"""When a stack is sent in phases, and which layouts such a stack allows: integer expressions over candidates.

A reader that puts slices of t side by side (hstack, vstack) wants tiles of many t at once. Where the producer's buffer
holds all of them, tiles are addressed freely. Where it does not, the slices are sent one after the other, and then the
blocks of the stack must fall on whole cores, mblocks and ublocks of the reader, in the order in which it reads them
(routing.md#stacks-in-phases).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from tbuda_lab.core.netlist.routing.layout import Ints, OperandView, Step
from tbuda_lab.core.netlist.routing.rules import RouteRule

I64 = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]
Refuse = Callable[[Bools | bool, RouteRule], None]
"""Marks layouts with the rule that they break, unless they broke one before."""

_STACKS = ("hstack", "vstack")
_SLICES = ("hslice", "vslice", "z")


@dataclasses.dataclass(frozen=True)
class Chain:
    """What the TMs of an edge amount to. across, down: products of the hstack and vstack factors; cut: of slice and z
    broadcast factors. reordered: whether slices are stacked that were not next to each other in t before; by_rows:
    whether the columns are the inner direction of the stack. sorted_steps: whether nothing but one hstack, one vstack
    and a final pad follow the first stack."""

    across: int
    down: int
    cut: int
    reordered: bool
    by_rows: bool
    sorted_steps: bool

    @property
    def has_stack(self) -> bool:
        return self.reordered and self.across * self.down > 1


def chain_of(steps: Sequence[Step]) -> Chain:
    """The chain of TMs, in order of application."""
    adjacent, reordered = 1, False
    across = down = cut = 1
    by_rows = False
    for name, *arguments in steps:
        if name in _SLICES:
            cut *= arguments[0]
            adjacent *= arguments[0]
        elif name in _STACKS:
            n = arguments[0]
            if adjacent % n == 0:
                adjacent //= n
            else:
                adjacent, reordered = 1, True
            if name == "hstack":
                across, by_rows = across * n, down == 1
            else:
                down, by_rows = down * n, across > 1
    return Chain(across, down, cut, reordered, by_rows, _is_sorted([step[0] for step in steps]))


def breaking_step(rule: RouteRule, steps: Sequence[Step]) -> Step | None:
    """The TM of a chain by which an edge breaks a rule; None for a rule that is not about a TM."""
    names = [step[0] for step in steps]
    if rule is RouteRule.TRANSPOSE_OP:
        return _first(steps, ("transpose",))
    if rule is RouteRule.Z_BROADCAST_T:
        return _first(steps, ("z",))
    if rule in (RouteRule.PAD_THEN, RouteRule.STACK_PAD, RouteRule.PAD_ONLY):
        return _first(steps, ("pad",))
    if rule in (RouteRule.STACK_SLICE, RouteRule.STACK_SLICE_OUTER):
        return _first(steps[::-1], _SLICES)
    if not rule.of_stacks and rule is not RouteRule.UNFED_CORE:
        return None
    if rule is RouteRule.STACK_TM_ORDER:
        first = next((i for i, name in enumerate(names) if name in (*_STACKS, "pad")), len(names))
        tail = list(steps[first:])
        for i, step in enumerate(tail):
            before = names[first : first + i]
            if step[0] not in (*_STACKS, "pad") or step[0] in before or "pad" in before:
                return step
    adjacent = 1  # the first stack that takes slices which were not next to each other in t
    for step in steps:
        if step[0] in _SLICES:
            adjacent *= step[1]
        elif step[0] in _STACKS:
            if adjacent % step[1]:
                return step
            adjacent //= step[1]
    return _first(steps, _STACKS)


def _first(steps: Sequence[Step], names: Sequence[str]) -> Step | None:
    return next((step for step in steps if step[0] in names), None)


def step_text(step: Step) -> str:
    """A TM in words: "hstack 4", "broadcast c 2", "transpose"."""
    words = ("broadcast", *step) if step[0] in ("r", "c", "z") else step
    return " ".join(map(str, words))


def _is_sorted(names: Sequence[str]) -> bool:
    last = ("hstack", "vstack", "pad")
    first = next((i for i, name in enumerate(names) if name in last), len(names))
    tail = names[first:]
    if any(name not in last for name in tail) or any(tail.count(name) > 1 for name in last):
        return False
    return "pad" not in tail or tail[-1] == "pad"


def either(a: Ints, b: Ints) -> Bools:
    """Whether one of two positive numbers divides the other."""
    a, b = np.asarray(a), np.asarray(b)
    either: Bools = (a % b == 0) | (b % a == 0)
    return either


def sent_in_phases(chain: Chain, t: Ints, slots: Ints) -> Bools:
    """Whether the edge is sent in phases; t and slots (mblocks that a reader may address) of the producer."""
    slots, t = np.asarray(slots), np.asarray(t)
    phased: Bools = np.asarray(chain.has_stack) & (slots % (chain.across * chain.down) != 0) & (slots % t != 0)
    return phased


@dataclasses.dataclass(frozen=True)
class Phases:
    """The verdict on a phased stack, and its effective factors: how many steps (rows, columns) of the reader's cores a
    pipe goes through. uneven: where the tool divides the outer factor by the whole buffer although the inner factor
    took part of it; there cores may go unfed."""

    rule: I64
    rows: I64
    columns: I64
    uneven: Bools


def phases(
    chain: Chain,
    slots: Ints,
    shape: tuple[Ints, Ints],
    pad: tuple[Ints, Ints],
    seen: OperandView,
    kernel_broadcast: int = 0,
) -> Phases:
    """The rules of a stack that is sent in phases; of layouts where it is not, the result means nothing.

    slots: mblocks that a reader may address; shape: (rows, columns) in tiles after TMs and padding; pad: the padding
    in it; seen: the reader's view. All may be arrays.
    """
    slots = np.asarray(slots, np.int64)
    sizes = [np.asarray(x, np.int64) for x in (*shape, *pad, *seen.grid, *seen.mblock, *seen.ublock)]
    slots, rows, columns, pad_r, pad_c, grid_r, grid_c, m, n, u, v = np.broadcast_arrays(slots, *sizes)
    rule = np.zeros(slots.shape, np.int64)

    def refuse(where: Bools | bool, reason: RouteRule) -> None:
        rule[np.asarray(where) & (rule == 0)] = reason

    if kernel_broadcast:
        refuse(True, RouteRule.STACK_KERNEL_BCAST)
    if not chain.sorted_steps:
        refuse(True, RouteRule.STACK_TM_ORDER)

    inner, outer = _joined_slices(chain, refuse)
    block_r, block_c = (rows - pad_r) // chain.down, (columns - pad_c) // chain.across
    block_in, block_out = (block_c, block_r) if chain.by_rows else (block_r, block_c)
    block_in, block_out = block_in * inner.joined, block_out * outer.joined
    steps_in, steps_out = inner.steps, outer.steps

    # what the buffer holds at once needs no phase
    refuse(~either(steps_in, slots), RouteRule.STACK_BUF)
    beyond = steps_in > slots
    refuse(~beyond & ~either(steps_out, slots), RouteRule.STACK_BUF_OUTER)
    uneven = ~beyond & (steps_in > 1) & (steps_out > 1) & (slots % (steps_in * steps_out) != 0)
    left_in = np.where(beyond, steps_in // slots, 1)
    left_out = np.where(beyond, steps_out, np.maximum(1, steps_out // slots))
    if chain.by_rows:
        step_r, step_c, size_r, size_c = left_out, left_in, block_out, block_in
    else:
        step_r, step_c, size_r, size_c = left_in, left_out, block_in, block_out
    size_r, size_c = np.maximum(size_r, 1), np.maximum(size_c, 1)

    refuse((step_r > 1) & (pad_r % size_r != 0), RouteRule.STACK_PAD)
    refuse((step_c > 1) & (pad_c % size_c != 0), RouteRule.STACK_PAD)
    many_r, many_c = step_r > 1, step_c > 1
    step_r = np.where(many_r, step_r + pad_r // size_r, step_r)
    step_c = np.where(many_c, step_c + pad_c // size_c, step_c)
    size_r = np.where(many_r, size_r, size_r + pad_r)
    size_c = np.where(many_c, size_c, size_c + pad_c)

    refuse(~(either(grid_r, step_r) & either(grid_c, step_c)), RouteRule.STACK_GRID)
    refuse(~(either(size_r, m * u) & either(size_c, n * v)), RouteRule.STACK_MBLOCK)
    refuse(~(either(size_r, u) & either(size_c, v)), RouteRule.STACK_UBLOCK)
    _refuse_scans(chain, seen.scan == "r", (size_r, size_c), (step_r, step_c), (m, n), (u, v), refuse)
    return Phases(rule, step_r, step_c, uneven)


class _Direction(NamedTuple):
    """Of one direction of a stack: how many slices the cut of the reader joins, and the steps that are left."""

    joined: int
    steps: int


def _joined_slices(chain: Chain, refuse: Refuse) -> tuple[_Direction, _Direction]:
    """The inner and the outer direction of a stack: slices that a reader cuts come from the inner one first."""
    inner, outer = (chain.across, chain.down) if chain.by_rows else (chain.down, chain.across)
    if chain.cut % inner and inner % chain.cut:
        refuse(True, RouteRule.STACK_SLICE)
    if chain.cut % inner:
        return _Direction(chain.cut, max(1, inner // chain.cut)), _Direction(1, outer)
    rest = chain.cut // inner
    if rest % outer and outer % rest:
        refuse(True, RouteRule.STACK_SLICE_OUTER)
    taken = outer if rest % outer == 0 else rest
    return _Direction(inner, 1), _Direction(taken, max(1, outer // taken))


def _refuse_scans(
    chain: Chain,
    row_scan: bool,
    size: tuple[I64, I64],
    step: tuple[I64, I64],
    mblock: tuple[I64, I64],
    ublock: tuple[I64, I64],
    refuse: Refuse,
) -> None:
    """Blocks that end within a ublock, or that the reader's scan meets in another order than the pipe brings them. All
    as (rows, columns): size of a block, steps between blocks."""
    (size_r, size_c), (step_r, step_c), (m, n), (u, v) = size, step, mblock, ublock
    low, narrow = size_r < u, size_c < v
    if chain.by_rows:
        good = narrow & (size_r == 1) & ((n == 1) | ((u == 1) & (row_scan | (m == 1))))
    else:
        good = (size_c == v) & ((n == 1) | (not row_scan))
    refuse((low | narrow) & ~good, RouteRule.STACK_IN_UBLOCK)
    if row_scan:
        several = ~low & ~narrow & (size_c < n * v)
        refuse(several & ~(np.asarray(chain.by_rows) | (step_r == 1)), RouteRule.STACK_SCAN)
        refuse(several & (size_r != u), RouteRule.STACK_SCAN_ROW)
    else:
        several = ~low & ~narrow & (size_r < m * u)
        refuse(several & ~(np.asarray(not chain.by_rows) | (step_c == 1)), RouteRule.STACK_SCAN)
        refuse(several & (size_c != v), RouteRule.STACK_SCAN_COL)
