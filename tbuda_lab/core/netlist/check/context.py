"""What a rule sees besides its element."""

from __future__ import annotations

from functools import cached_property
from typing import Any

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.check.registry import NetlistFacts
from tbuda_lab.core.netlist.schema import NetOp, Param, Program, SubOp, TileDim
from tbuda_lab.core.netlist.tables import ProgramSetting, Tables, linked_graphs, merged_graphs

WIDE = frozenset((DataFormat.Float32, DataFormat.Int32))
INTEGERS = frozenset((DataFormat.Int8, DataFormat.UInt8, DataFormat.UInt16, DataFormat.Int32))
BYTES = frozenset((DataFormat.Int8, DataFormat.UInt8))
RAWS = frozenset((DataFormat.RawUInt8, DataFormat.RawUInt16, DataFormat.RawUInt32))

_NONE: frozenset[str] = frozenset()

__all__ = ["BYTES", "INTEGERS", "RAWS", "WIDE", "CheckContext", "ProgramSetting", "flag", "number", "whole", "word"]


class CheckContext(Tables):
    """The lookups of the netlist and the facts of the device it is checked for."""

    def __init__(self, tables: Tables, facts: NetlistFacts) -> None:
        super().__init__(tables.n)
        self.__dict__.update(tables.__dict__)  # the lookups do not depend on the device
        self.facts = facts

    def preloads(self, op: NetOp) -> frozenset[str]:
        """The queues with a prologue that an op reads."""
        of = self._prologues.get(self.graph_of[op.name].name, _NONE)
        return frozenset([i.source for i in op.inputs if i.source in of]) if of else _NONE

    def input_count(self, op: NetOp) -> int:
        """How many inputs the graph of an op works on at a time."""
        return self.graph_of[op.name].input_count

    @cached_property
    def linked_graphs(self) -> list[tuple[str, ...]]:
        """`epochs.linked_graphs` of the netlist."""
        return linked_graphs(self.n)

    @cached_property
    def merged_graphs(self) -> list[tuple[str, ...]]:
        """`epochs.merged_graphs` of the netlist."""
        return merged_graphs(self.n)

    def params(self, program: Program) -> frozenset[str]:
        """The parameters of a program."""
        by_graph: dict[int, frozenset[str]] = self.__dict__.setdefault("_params", {})
        entry = by_graph.get(id(program))
        if entry is None:
            names = (name for item in program.instructions if isinstance(item, Param) for name in item.names)
            entry = by_graph[id(program)] = frozenset(names)
        return entry

    @cached_property
    def _prologues(self) -> dict[str, set[str]]:
        """By graph the queues with a prologue."""
        prologues: dict[str, set[str]] = {}
        for s in self.settings:
            if s.setting.fields.get("prologue") is True:
                prologues.setdefault(s.graph, set()).add(s.queue)
        return prologues

    def input_tiles(self, op: NetOp) -> list[TileDim]:
        """The tile size of each input of an op, as its producer makes it."""
        return [self.tile_dim(i.source) for i in op.inputs]


def whole(op: NetOp | SubOp, name: str, default: int = 0) -> int:
    """An attribute as an int; the default where it is not written or no int."""
    value: Any = op.attributes.get(name, default)
    return value if isinstance(value, int) else default


def number(op: NetOp | SubOp, name: str, default: float = 0.0) -> float:
    """An attribute that is a number; the default where it is not written or is none."""
    value: Any = op.attributes.get(name, default)
    return value if isinstance(value, (int, float)) else default


def flag(op: NetOp | SubOp, name: str) -> bool:
    """Whether an attribute is written as true."""
    return op.attributes.get(name) is True


def word(op: NetOp | SubOp, name: str) -> str:
    """An attribute as text; "" where it is not written."""
    return str(op.attributes.get(name, ""))
