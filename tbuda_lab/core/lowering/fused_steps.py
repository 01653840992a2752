"""How the machine runs a fused op: its schedules, where each value lives, and how large its blocks and buffers are.

A schedule is a loop over the ublocks of a core. A sum is a matmul with a constant: it is a schedule of its own, and so
is what comes before and after it (netlist-format.md#fused-ops). What it gives is one tile wide along the dimension that
it sums over; so are the steps that work on that, until one reads it by a broadcast to the full length again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.lowering.hw_ops import HwFused, HwOp

ARITHMETIC = frozenset(("add", "subtract", "multiply"))
SYMMETRIC = frozenset(("add", "multiply"))
_KEPT_OUT_OF_DEST = frozenset(("maximum",))

Ints = Any
"""An int, or an integer array over candidates."""
Block = tuple[Ints, Ints, Ints, Ints]
"""(mblock_m, mblock_n, ublock_r, ublock_c) of one core."""


@dataclasses.dataclass(frozen=True)
class SubStep:
    """One sub-op: operands and result are `inputN`, `intermedN`, `dest` or `output`.

    pop: buffers it empties ublock by ublock, operands among them that a step before it has read, too; pop_last: those
    that it, or a step before it, has read again and again. spread: "r" or "c" where operand 1 fills its tiles
    (`HwFused.spread`). wide_operands: operands that are one tile wide and are read by a broadcast; narrow: its own
    result is one tile wide. schedule: the number of its schedule.
    """

    fn: str
    inputs: tuple[str, ...]
    output: str
    pop: tuple[str, ...]
    slope: float = 0.0
    exp: int = 0
    spread: str = ""
    wide_operands: tuple[int, ...] = ()
    narrow: bool = False
    schedule: int = 0
    pop_last: tuple[str, ...] = ()

    @property
    def from_dest(self) -> bool:
        return "dest" in self.inputs


def schedules(op: HwFused) -> tuple[int, ...]:
    """The number of the schedule of every step: a sum stands alone in its own."""
    numbers: list[int] = []
    for k in range(len(op.steps)):
        new = k > 0 and (k in op.sums or k - 1 in op.sums)
        numbers.append(numbers[-1] + new if numbers else 0)
    return tuple(numbers)


def plan(op: HwFused, arch: str) -> tuple[SubStep, ...]:
    """Where every value of a fused op lives: in dest if the very next sub-op is its only reader and may read dest
    (netlist-format.md#fused-ops), else in an intermediate buffer until its last reader."""
    readers = _readers(op)
    numbers = schedules(op)
    place: dict[int, str] = {}
    free: dict[bool, list[int]] = {False: [], True: []}  # buffers of full length, and of one tile
    most = 0
    steps: list[SubStep] = []
    spread = dict(op.spread)
    reads = [(ref, k) for k, (_, refs, _, _) in enumerate(op.steps) for ref in refs if ref >= 0]
    first_of, last_of = dict(reversed(reads)), dict(reads)
    for k, (fn, refs, slope, exp) in enumerate(op.steps):
        operands = [(f"input{ref}" if ref >= 0 else place[~ref], _is_widened(op, k, ref)) for ref in refs]
        if arch == "grayskull" and "dest" in [name for name, _ in operands[1:]]:
            operands.reverse()
        names = tuple(name for name, _ in operands)
        done = [j for j in sorted({~ref for ref in refs if ref < 0}) if place[j] != "dest" and max(readers[j]) == k]
        inputs_done = tuple(f"input{ref}" for ref in sorted(refs) if ref >= 0 and last_of[ref] == k > first_of[ref])
        repeated = [j for j in done if any(_is_widened(op, reader, ~j) for reader in readers[j])]
        if k == len(op.steps) - 1:
            place[k] = "output"
        elif _by_dest(op, k, readers[k], arch, numbers):
            place[k] = "dest"
        else:
            pool = free[k in op.narrow]
            if not pool:
                pool.append(most)
                most += 1
            place[k] = f"intermed{pool.pop(0)}"
        for j in done:
            free[j in op.narrow].append(int(place[j].removeprefix("intermed")))
        for pool in free.values():
            pool.sort()
        steps.append(
            SubStep(
                fn,
                names,
                place[k],
                (*(place[j] for j in done if j not in repeated), *inputs_done),
                slope,
                exp,
                spread.get(k, ""),
                tuple(port for port, (_, widened) in enumerate(operands) if widened),
                k in op.narrow,
                numbers[k],
                tuple(place[j] for j in repeated),
            )
        )
    return tuple(steps)


def _readers(op: HwFused) -> dict[int, list[int]]:
    readers: dict[int, list[int]] = {k: [] for k in range(len(op.steps))}
    for k, (_, refs, _, _) in enumerate(op.steps):
        for ref in refs:
            if ref < 0:
                readers[~ref].append(k)
    return readers


def _is_widened(op: HwFused, reader: int, ref: int) -> bool:
    """Whether a step reads an operand by a broadcast: the value of a narrow step, at full length."""
    return ref < 0 and ~ref in op.narrow and reader not in op.narrow and reader not in op.sums


def _by_dest(op: HwFused, k: int, readers: Sequence[int], arch: str, numbers: Sequence[int]) -> bool:
    if list(readers) != [k + 1] or op.steps[k][0] in _KEPT_OUT_OF_DEST or numbers[k] != numbers[k + 1]:
        return False
    fn, refs, _, _ = op.steps[k + 1]
    if fn in _KEPT_OUT_OF_DEST or _is_widened(op, k + 1, ~k):
        return False
    return arch != "grayskull" or refs[0] == ~k or fn in SYMMETRIC


def steps_without_gain(op: HwFused, arch: str) -> tuple[int, ...]:
    """Steps, by number, whose value goes on inside without making its reader cheaper: only arithmetic on a value in
    dest takes less than it would on its own (placement.md#kernel-cycles). None where there are sums: these are fused
    because they were asked for."""
    if op.sums:
        return ()
    steps = plan(op, arch)
    unsaved: list[int] = []
    for k, (_, refs, _, _) in enumerate(op.steps):
        cheaper = steps[k].from_dest and steps[k].fn in ARITHMETIC
        unsaved.extend(~ref for ref in refs if ref < 0 and not (cheaper and steps[~ref].output == "dest"))
    return tuple(sorted(set(unsaved)))


def intermediates(steps: Sequence[SubStep]) -> int:
    """Number of intermediate buffers."""
    return len({s.output for s in steps if s.output.startswith("intermed")})


# -- blocks --------------------------------------------------------------------------------------------------------
def inner_block(op: HwFused, mblock: tuple[Ints, Ints], ublock: tuple[Ints, Ints], dst: int) -> tuple[Ints, Ints]:
    """(m_k, u_kt) by which an op with sums goes through the dimension that it sums over: as its output has it if that
    is of full length, else in the largest ublocks that fit dst. mblock, ublock: of the output."""
    along = "rc".index(op.dim)
    if len(op.steps) - 1 not in op.narrow:
        return mblock[along], ublock[along]
    sizes = np.array([d for d in range(1, op.length + 1) if op.length % d == 0])
    room = np.maximum(1, dst // np.asarray(ublock[1 - along]))
    u_kt = sizes[np.searchsorted(sizes, room, side="right") - 1]
    return op.length // u_kt, u_kt


def step_block(op: HwFused, narrow: bool, block: Block, m_k: Ints, u_kt: Ints) -> Block:
    """The block of a step of full length or of one tile. block: of the op's output; m_k, u_kt: `inner_block`."""
    m, n, u, v = block
    if not op.dim:
        return block
    if narrow:
        return (m, 1, u, 1) if op.dim == "c" else (1, n, 1, v)
    return (m, m_k, u, u_kt) if op.dim == "c" else (m_k, n, u_kt, v)


def intermediate_tiles(op: HwFused, arch: str, block: Block, m_k: Ints, u_kt: Ints) -> Ints:
    """Tiles of all intermediate buffers of one core: a ublock each; all of the block where another schedule reads it,
    or the same one again and again."""
    steps, readers = plan(op, arch), _readers(op)
    sizes: dict[str, Ints] = {}
    for k, step in enumerate(steps):
        if not step.output.startswith("intermed"):
            continue
        m, n, u, v = step_block(op, step.narrow, block, m_k, u_kt)
        whole = any(steps[j].schedule != step.schedule or _is_widened(op, j, ~k) for j in readers[k])
        sizes[step.output] = np.maximum(sizes.get(step.output, 0), u * v * (m * n if whole else 1))
    return sum(sizes.values())


def intermediate_ublocks(op: HwFused, arch: str, block: Block, m_k: Ints, u_kt: Ints) -> list[int]:
    """Tiles of a ublock of each intermediate buffer, the largest that a step writes into it."""
    sizes: dict[str, int] = {}
    for step in plan(op, arch):
        if step.output.startswith("intermed"):
            _, _, u, v = step_block(op, step.narrow, block, m_k, u_kt)
            sizes[step.output] = max(sizes.get(step.output, 0), int(u * v))
    return list(sizes.values())


# -- operands ------------------------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class OperandUse:
    """How the first step that reads an operand does it. role: "in0" or "in1" of a sum, else "elt"; narrow: that step
    gives one tile along the dimension; late: it is read after a sum has taken all of its own operand."""

    role: str
    narrow: bool
    late: bool


def operand_uses(op: HwOp, count: int) -> tuple[OperandUse, ...]:
    """Of every operand of a fused op."""
    assert isinstance(op, HwFused)
    uses: dict[int, OperandUse] = {}
    for k, (_, refs, _, _) in enumerate(op.steps):
        for port, ref in enumerate(refs):
            role = f"in{port}" if k in op.sums else "elt"
            late = role == "elt" and any(step < k for step in op.sums)
            uses.setdefault(ref, OperandUse(role, k in op.narrow, late))
    return tuple(uses.get(port, OperandUse("elt", False, False)) for port in range(count))
