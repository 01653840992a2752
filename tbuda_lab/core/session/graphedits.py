"""Edits that remake the graph: queues and nops on edges, formats and fidelities of ops."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.options import Override
from tbuda_lab.core.session.calls import override_python
from tbuda_lab.core.session.command import Command, readers, refuse, whole


@dataclasses.dataclass(frozen=True)
class InsertQueue(Command):
    """Cut the edges from an op to some of its readers (all of them by default): they go through a DRAM queue."""

    op: str
    to: tuple[str, ...] = ()
    port: int | None = None
    name: ClassVar[str] = "insert-queue"

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", readers(self.op, self.to))
        if self.port is not None and not whole(self.port, 0):
            raise refuse(self.op, f"an operand is a number, not {self.port!r}", "operands count from 0")

    @property
    def label(self) -> str:
        return f"queue between {self.op} and {', '.join(self.to) or 'its readers'}"

    def overrides(self) -> tuple[Override, ...]:
        value: dict[str, Any] = {"dest": self.to or None}
        if self.port is not None:
            value["port"] = self.port
        return (Override("insert_queue", self.op, value, "edit"),)

    def python(self) -> str:
        return override_python(self.overrides()[0])


@dataclasses.dataclass(frozen=True)
class InsertNop(Command):
    """Put nops between an op and some of its readers (all of them by default); see `lowering.edits`."""

    op: str
    to: tuple[str, ...] = ()
    count: int = 1
    hoist_tms: bool = True
    daisy_chain: bool = False
    name: ClassVar[str] = "insert-nop"

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", readers(self.op, self.to))
        if not whole(self.count, 1):
            raise refuse(self.op, f"a number of nops, not {self.count!r}", "a whole number from 1")
        for what in ("hoist_tms", "daisy_chain"):
            if not isinstance(getattr(self, what), bool):
                raise refuse(self.op, f"{what} is true or false, not {getattr(self, what)!r}", "leave it out")

    @property
    def label(self) -> str:
        nops = "nop" if self.count == 1 else f"{self.count} nops"
        return f"{nops} between {self.op} and {', '.join(self.to) or 'its readers'}"

    def overrides(self) -> tuple[Override, ...]:
        value = {
            "dest": self.to or None,
            "hoist_tms": self.hoist_tms,
            "nop_count": self.count,
            "daisy_chain": self.daisy_chain,
        }
        return (Override("insert_nop", self.op, value, "edit"),)

    def python(self) -> str:
        return override_python(self.overrides()[0])


@dataclasses.dataclass(frozen=True)
class FormatOp(Command):
    """Give an op's output a data format, or the op a fidelity, by their names; the graph is lowered with them."""

    op: str
    data_format: str | None = None
    fidelity: str | None = None
    name: ClassVar[str] = "format"

    def __post_init__(self) -> None:
        for what, value, known in (
            ("data format", self.data_format, DataFormat),
            ("fidelity", self.fidelity, MathFidelity),
        ):
            if value is not None and value not in known.__members__:
                raise refuse(self.op, f"there is no {what} {value!r}", f"known: {', '.join(known.__members__)}")
        if self.data_format is None and self.fidelity is None:
            raise refuse(self.op, "a format without a format", "give a data format or a fidelity")

    @property
    def label(self) -> str:
        parts = [] if self.data_format is None else [f"format of {self.op} = {self.data_format}"]
        parts += [] if self.fidelity is None else [f"fidelity of {self.op} = {self.fidelity}"]
        return ", ".join(parts)

    def overrides(self) -> tuple[Override, ...]:
        fields = (("data_format", self.data_format), ("math_fidelity", self.fidelity))
        return tuple(Override(kind, self.op, value, "edit") for kind, value in fields if value is not None)

    def python(self) -> str:
        return "\n".join(override_python(o) for o in self.overrides())
