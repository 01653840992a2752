"""What a rule sees besides its element."""

from __future__ import annotations

from typing import Any

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.check.facts import Facts
from tbuda_lab.core.netlist.schema import NetOp, SubOp, TileDim
from tbuda_lab.core.netlist.tables import Setting, Tables

WIDE = frozenset((DataFormat.Float32, DataFormat.Int32))
INTEGERS = frozenset((DataFormat.Int8, DataFormat.UInt8, DataFormat.UInt16, DataFormat.Int32))
BYTES = frozenset((DataFormat.Int8, DataFormat.UInt8))
RAWS = frozenset((DataFormat.RawUInt8, DataFormat.RawUInt16, DataFormat.RawUInt32))

__all__ = ["BYTES", "INTEGERS", "RAWS", "WIDE", "Context", "Setting", "flag", "number", "whole", "word"]


class Context(Tables):
    """The lookups of the netlist and the facts of the device it is checked for."""

    def __init__(self, tables: Tables, facts: Facts) -> None:
        super().__init__(tables.n)
        self.__dict__.update(tables.__dict__)  # the lookups do not depend on the device
        self.facts = facts

    def input_tiles(self, op: NetOp) -> list[TileDim]:
        """The tile size of each input of an op, as its producer makes it."""
        return [self.tile_dim(i.source) for i in op.inputs]


def whole(op: NetOp | SubOp, name: str, default: int = 0) -> int:
    """An attribute as an int; the default where it is not written or no int."""
    value: Any = op.attributes.get(name, default)
    return value if isinstance(value, int) else default


def number(op: NetOp | SubOp, name: str, default: float = 0.0) -> float:
    value: Any = op.attributes.get(name, default)
    return value if isinstance(value, (int, float)) else default


def flag(op: NetOp | SubOp, name: str) -> bool:
    return op.attributes.get(name) is True


def word(op: NetOp | SubOp, name: str) -> str:
    """An attribute as text; "" where it is not written."""
    return str(op.attributes.get(name, ""))
