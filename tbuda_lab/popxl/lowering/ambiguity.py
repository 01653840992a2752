"""Whether the order of a graph's ops decides what they calculate: then the program has to say it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import NamedTuple

import numpy as np

from tbuda_lab.popxl.errors import popart_exception
from tbuda_lab.popxl.graph import Graph, Op
from tbuda_lab.popxl.ir import Ir
from tbuda_lab.popxl.kinds import INPLACE, KINDS, calculates_as
from tbuda_lab.popxl.tensor import Tensor

LARGEST = 1 << 20
"""Elements of a tensor of which it is worked out which ones a view has."""


def refuse_ambiguity(ir: Ir) -> None:
    """Raises `popart_exception` naming two ops that use the same elements, one of which changes them, while neither has
    to run before the other."""
    for graph in ir._graphs.values():
        _check(graph)


class Use(NamedTuple):
    """What an op uses of a tensor: positions, None for any of them, and whether it changes them."""

    root: Tensor
    at: np.ndarray | None
    writes: bool


class Storages:
    """By tensor the tensors that it is elements of, and which: positions in each of them, None for any."""

    def __init__(self) -> None:
        self.parts: dict[Tensor, dict[Tensor, np.ndarray | None]] = {}

    def of(self, t: Tensor) -> dict[Tensor, np.ndarray | None]:
        if t not in self.parts:
            self.parts[t] = {t: np.arange(t.nelms).reshape(t.shape) if t.nelms <= LARGEST else None}
        return self.parts[t]

    def uses(self, op: Op) -> list[Use]:
        """Of the ops of a graph in their order: what this one reads and changes."""
        found = [
            Use(root, at, k in op.modifies)
            for k, t in enumerate(op.inputs)
            if k not in op.views
            for root, at in self.of(t).items()
        ]
        for part in op.attrs.get("parts", (op,)):  # loads and stores that were merged one by one
            writes_over = part.modifies and (part.kind in INPLACE or part.kind.endswith("Inplace"))
            if part.outputs and (part.views or writes_over):
                self._view(part)
        return found

    def _view(self, op: Op) -> None:
        """The output of a view, or of an op that writes over an input."""
        out = op.outputs[0]
        if not op.views:
            self.parts[out] = self.of(op.inputs[op.modifies[0]])
            return
        bases = [self.of(op.inputs[k]) for k in op.views]
        if len(bases) == 1:
            run = KINDS[calculates_as(op.kind)]
            self.parts[out] = {
                root: None if at is None else run.run(op.attrs, [at])[0] for root, at in bases[0].items()
            }
            return
        merged: dict[Tensor, np.ndarray | None] = {}
        for base in bases:
            for root, at in base.items():
                seen = merged.get(root)
                merged[root] = (
                    None
                    if at is None or (root in merged and seen is None)
                    else (at.reshape(-1) if seen is None else np.concatenate([seen.reshape(-1), at.reshape(-1)]))
                )
        self.parts[out] = merged


def conflict(some: Iterable[Use], others: Iterable[Use]) -> bool:
    """Whether two ops use the same elements, and one of them changes them."""
    theirs = list(others)
    return any(
        one.root is other.root and (one.writes or other.writes) and _overlap(one.at, other.at)
        for one in some
        for other in theirs
    )


def _check(graph: Graph) -> None:
    storages = Storages()
    uses: dict[Tensor, list[tuple[Op, np.ndarray | None, bool]]] = defaultdict(list)
    for op in graph._ops:
        for root, at, writes in storages.uses(op):
            uses[root].append((op, at, writes))
    if not any(write for found in uses.values() for _, _, write in found):
        return
    before = _before(graph)
    number = {op: k for k, op in enumerate(graph._ops)}
    for root, found in uses.items():
        for i, (first, one, writes) in enumerate(found):
            for second, other, also in found[i + 1 :]:
                if first.context is not second.context or not (writes or also) or first is second:
                    continue
                if number[first] in before[second]:
                    continue
                if number[second] in before[first] or not _overlap(one, other):
                    continue
                raise popart_exception(
                    f"Inplacing ambiguity detected. {first.where()} and {second.where()} use {root.id!r}, "
                    "one of them changes it, and nothing says which runs first: write popxl.in_sequence() around them"
                )


def _overlap(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is None or b is None or bool(np.intersect1d(a, b).size)


def _before(graph: Graph) -> dict[Op, set[int]]:
    """By op the numbers of the ops that have to run before it."""
    number = {op: k for k, op in enumerate(graph._ops)}
    before: dict[Op, set[int]] = {}
    for op in graph._ops:
        needs = {t._producer for t in op.inputs if t._producer is not None} | op.after
        found: set[int] = set()
        for other in needs:
            if other in before:
                found.add(number[other])
                found |= before[other]
        before[op] = found
    return before
