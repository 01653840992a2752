"""Overrides that change the lowered graph: nops and queues on edges, formats and fidelities of ops."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.literals import python_comment, python_literal
from tbuda_lab.core.overrides.kind import CompileFacts, Kind, MalformedValue, python_call, read_fields, without_none


def _readers(value: Any) -> tuple[str, ...] | None:
    """Names of readers; None for all of them."""
    if value is None:
        return None
    names = (value,) if isinstance(value, str) else value
    if isinstance(names, tuple | list) and names and all(isinstance(n, str) and n for n in names):
        return tuple(names)
    raise MalformedValue(f"readers are names, not {value!r}", "a name, several, or none for all readers")


class _OnEdge(Kind):
    """Kinds on the edges from an op to readers (`dest`); the value True is all of them."""

    dest: tuple[str, ...] | None
    of_parts: ClassVar[str] = "last"

    @classmethod
    def met(cls, value: Any, got: Any) -> bool:
        return bool(got)

    @staticmethod
    def readers_of(value: Any) -> tuple[str, ...] | None:
        return _readers(value.get("dest")) if isinstance(value, Mapping) else None


@dataclasses.dataclass(frozen=True)
class NopOnEdge(_OnEdge):
    """Nops between an op and (some of) its readers; see `lowering.edits`."""

    dest: tuple[str, ...] | None = None
    hoist_tms: bool = True
    nop_count: int = 1
    daisy_chain: bool = False
    kind: ClassVar[str] = "insert_nop"
    early: ClassVar[bool] = True
    turn: ClassVar[int] = 3
    addresses: ClassVar[str] = "nodes"
    call: ClassVar[str] = "insert_nop"

    @classmethod
    def parse(cls, value: Any) -> Self:
        if value is True:
            return cls()
        fields = read_fields(cls, value)
        fields["dest"] = _readers(fields.get("dest"))
        for name in ("hoist_tms", "daisy_chain"):
            if not isinstance(fields.get(name, True), bool):
                raise MalformedValue(f"{name} is true or false, not {fields[name]!r}", "leave it out for the usual")
        return cls(**fields)

    @property
    def value(self) -> dict[str, Any]:
        return {
            "dest": self.dest,
            "hoist_tms": self.hoist_tms,
            "nop_count": self.nop_count,
            "daisy_chain": self.daisy_chain,
        }

    def label(self, target: str) -> str:
        nops = "nop" if self.nop_count == 1 else f"{self.nop_count} nops"
        return f"{nops} between {target} and {', '.join(self.dest or ()) or 'its readers'}"

    def python(self, target: str | list[str]) -> str:
        if self.dest is None:
            return python_comment(f"insert_nop between {target} and all its readers")
        readers = self.dest[0] if len(self.dest) == 1 else list(self.dest)
        words = without_none(
            hoist_tms=None if self.hoist_tms else False,
            nop_count=None if self.nop_count == 1 else self.nop_count,
            daisy_chain=True if self.daisy_chain else None,
        )
        return python_call(self.call, target, readers, **words)

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return got.nops(cls.readers_of(value))


@dataclasses.dataclass(frozen=True)
class QueueOnEdge(_OnEdge):
    """A DRAM queue between an op and (some of) its readers. port: the operand, where a reader reads it twice."""

    dest: tuple[str, ...] | None = None
    port: int | None = None
    kind: ClassVar[str] = "insert_queue"
    early: ClassVar[bool] = True
    turn: ClassVar[int] = 4
    addresses: ClassVar[str] = "nodes"

    @classmethod
    def parse(cls, value: Any) -> Self:
        if value is True:
            return cls()
        fields = read_fields(cls, value)
        fields["dest"] = _readers(fields.get("dest"))
        return cls(**fields)

    @property
    def value(self) -> dict[str, Any]:
        return {"dest": self.dest} | ({} if self.port is None else {"port": self.port})

    def label(self, target: str) -> str:
        return f"queue between {target} and {', '.join(self.dest or ()) or 'its readers'}"

    def python(self, target: str | list[str]) -> str:
        if self.dest is None:
            return python_comment(f"insert_queue between {target} and all its readers")
        call = "pybuda.config._get_global_compiler_config().insert_queues.append"
        return "\n".join(f"{call}({python_literal((target, name, self.port))})" for name in self.dest)

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return got.cuts(cls.readers_of(value))


class _EnumKind(Kind):
    """Kinds whose value is the name of a member of an enumeration. PyBuda sets them by regular expressions of names."""

    name: str
    addresses: ClassVar[str] = "nodes"
    keyword: ClassVar[str] = ""
    what: ClassVar[str] = ""
    members: ClassVar[type[DataFormat] | type[MathFidelity]]

    @classmethod
    def parse(cls, value: Any) -> Self:
        names = [name for name in cls.members.__members__ if name != "Invalid"]
        if isinstance(value, cls.members) and value.name in names:
            return cls(value.name)  # type: ignore[call-arg]
        if not isinstance(value, str) or value not in names:
            raise MalformedValue(f"there is no {cls.what} {value!r}", f"known: {', '.join(names)}")
        return cls(value)  # type: ignore[call-arg]

    @property
    def value(self) -> str:
        return self.name

    def label(self, target: str) -> str:
        return f"{self.what.removeprefix('data ')} of {target} = {self.name}"

    def python(self, target: str | list[str]) -> str:
        words = {self.keyword: self.members[self.name]}
        return python_call("configure_mixed_precision", name_regex=re.escape(str(target)), **words)


@dataclasses.dataclass(frozen=True)
class OutputFormat(_EnumKind):
    """The data format of an op's output."""

    name: str
    kind = "data_format"
    turn = 1
    keyword = "output_df"
    what = "data format"
    members = DataFormat

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return got.output_format


@dataclasses.dataclass(frozen=True)
class Fidelity(_EnumKind):
    """The math fidelity of an op."""

    name: str
    kind = "math_fidelity"
    turn = 2
    keyword = "math_fidelity"
    what = "fidelity"
    members = MathFidelity

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return got.fidelity
