"""What a flattened program is made of: values that are written once, and instructions in blocks."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from tbuda_lab.popxl.dtypes import dtype
from tbuda_lab.popxl.graph import Op

_NUMBERS = itertools.count()


@dataclasses.dataclass(eq=False)
class Val:
    """A value. const: what it is, where it is known; state: the slot that holds it when its block begins."""

    shape: tuple[int, ...]
    dtype: dtype
    const: np.ndarray | None = None
    state: str = ""
    label: str = ""
    number: int = dataclasses.field(default_factory=lambda: next(_NUMBERS))

    @property
    def size(self) -> int:
        return int(np.prod(self.shape)) if self.shape else 1

    def __repr__(self) -> str:
        return f"%{self.number}"


@dataclasses.dataclass(eq=False)
class Carried:
    """What a loop hands on from turn to turn: its value before, inside at the beginning and the end, and behind."""

    init: Val
    inside: Val
    after: Val | None
    out: Val

    @property
    def reads(self) -> list[Val]:
        """What the loop hands on first, and after each turn: that may be a value from outside it."""
        return [self.init] if self.after is None else [self.init, self.after]


@dataclasses.dataclass(eq=False)
class Instr:
    """One instruction. kind: of the table, or HostLoad, HostStore, RemoteLoad, RemoteStore, Collective, PrintTensor,
    Loop, If. tokens: what it has to keep its order by (streams, buffers, the terminal)."""

    kind: str
    attrs: dict[str, Any]
    ins: list[Val]
    outs: list[Val]
    op: Op | None = None
    encoded: bool = False
    tokens: frozenset[Any] = frozenset()
    blocks: tuple[Block, ...] = ()
    carried: list[Carried] = dataclasses.field(default_factory=list)
    place: str = ""
    reason: str = ""


@dataclasses.dataclass(eq=False)
class Block:
    """Instructions in order. final: by state the value that it holds at the end. results: what a branch gives."""

    instrs: list[Instr] = dataclasses.field(default_factory=list)
    final: dict[str, Val] = dataclasses.field(default_factory=dict)
    results: list[Val] = dataclasses.field(default_factory=list)

    def reads(self) -> Iterator[Val]:
        """Every value that it, or a block inside, reads."""
        for instr in self.instrs:
            yield from instr.ins
            for carried in instr.carried:
                yield from carried.reads
            for block in instr.blocks:
                yield from block.reads()
        yield from self.final.values()
        yield from self.results

    def all_instrs(self) -> Iterator[Instr]:
        """Those of blocks inside too."""
        for instr in self.instrs:
            yield instr
            for block in instr.blocks:
                yield from block.all_instrs()
