"""What every kind of override is: a typed value with its checks, its words, and how to read what came of it."""

from __future__ import annotations

import dataclasses
import numbers
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Protocol, Self

from tbuda_lab.core.literals import python_literal

Fault = tuple[str, str]
"""What is wrong, and what would work."""


class MalformedValue(ValueError):
    """A value that a kind of override cannot read. `fault`: what is wrong, and what would work."""

    def __init__(self, message: str, fix: str) -> None:
        super().__init__(f"{message}; {fix}")
        self.fault: Fault = message, fix


@dataclasses.dataclass(frozen=True)
class OpLimits:
    """What an op can have at all, candidates apart.

    rows, cols: tiles that a grid divides among its rows and columns. grid_rows, grid_cols: legal sizes of a grid;
    device: (rows, columns) of cores. stream_dirs: directions of t-streaming. steps: legal u_kt, empty without an inner
    dimension. operands: how many. parameters: those of them that are parameters. l1_tiles: as many of the
    smallest tiles as L1 holds.
    """

    rows: int
    cols: int
    grid_rows: tuple[int, ...]
    grid_cols: tuple[int, ...]
    device: tuple[int, int]
    stream_dirs: tuple[str, ...]
    steps: tuple[int, ...]
    operands: int
    parameters: tuple[int, ...]
    l1_tiles: int


class CompileFacts(Protocol):
    """What a compile made of one op or queue, by name; each question is for the names it makes sense for."""

    @property
    def row(self) -> Any:
        """The candidate of an op: one row of its table."""

    @property
    def place(self) -> dict[str, Any]:
        """start, transpose and chip of an op."""

    @property
    def begins_epoch(self) -> bool: ...

    @property
    def position(self) -> int:
        """Place of an op in the schedule."""

    @property
    def least_input_buffers(self) -> tuple[int, ...]:
        """Least tiles of the input buffers of an op, by operand (0: none that an override could enlarge)."""

    @property
    def output_format(self) -> str: ...

    @property
    def fidelity(self) -> str: ...

    @property
    def queue(self) -> dict[str, Any]:
        """chip and channel of a queue (a tuple of channels where there are several)."""

    def preloads(self, port: int | None) -> bool:
        """Whether an op preloads this parameter, or all of them (None)."""

    def nops(self, readers: Sequence[str] | None) -> Any:
        """Names of the nops between an op and readers."""

    def cuts(self, readers: Sequence[str] | None) -> Any:
        """(reader, operand) of the edges from an op that go through a queue."""


@dataclasses.dataclass(frozen=True)
class Kind:
    """The value of an override, read. A kind is one subclass: its fields are what can be asked, the class variables
    where it belongs. A new kind needs nothing else but its place in `KINDS`, and the stage that honours it.

    kind: its name in records and files. early: whether its form is judged before there is a graph (else the compile
    judges it, and can say what is legal for the op). choice: the field of `balancer.enumerate.Choice` that it fixes.
    turn: its turn among the kinds that change the lowered graph (0: it changes none). addresses: what its targets name:
    "ops", "queues", "nodes" (of the lowered graph) or "schedule". in_one_call: whether one call takes a list of names.
    call: PyBuda's function. of_parts: what it means for the name of an op that passes have made several of ("all": each
    of them; "first": before whichever is scheduled first; "last": the one that gives its result; "one": it is refused,
    for it can be had by one alone).
    """

    kind: ClassVar[str] = ""
    early: ClassVar[bool] = False
    choice: ClassVar[str] = ""
    turn: ClassVar[int] = 0
    addresses: ClassVar[str] = "ops"
    in_one_call: ClassVar[bool] = False
    call: ClassVar[str] = ""
    of_parts: ClassVar[str] = "all"

    @classmethod
    def parse(cls, value: Any) -> Self:
        """The value of an `Override`, read. Raises `MalformedValue`."""
        raise NotImplementedError

    @property
    def value(self) -> Any:
        """As an `Override` holds it; `parse` reads it."""
        raise NotImplementedError

    # -- for one op ------------------------------------------------------------------------------------------
    def validate(self, limits: OpLimits) -> Fault | None:
        """What is wrong with it for an op, or None."""
        return None

    @classmethod
    def legal(cls, limits: OpLimits) -> str:
        """What would be legal for an op, in words ("": see `MalformedValue`)."""
        return ""

    def new_choice(self, before: Any) -> Any:
        """What the field `choice` becomes; `before`: what it was, of earlier overrides of the same op."""
        return self.value

    # -- words -----------------------------------------------------------------------------------------------
    def label(self, target: str) -> str:
        """What a person reads in the undo list."""
        return f"{self.kind} of {target} = {self.text(self.value)}"

    @classmethod
    def text(cls, value: Any) -> str:
        """A requested or obtained value as a person reads it."""
        if isinstance(value, Mapping):
            return ", ".join(f"{k} {cls.text(v)}" for k, v in value.items() if v is not None)
        if isinstance(value, bool):
            return "yes" if value else "no"
        return ", ".join(map(str, value)) if isinstance(value, tuple | list) else str(value)

    def python(self, target: str | list[str]) -> str:
        """A call of PyBuda's `config` module, or a comment where no call has it."""
        return python_call(self.call, target, self.value)

    # -- files -----------------------------------------------------------------------------------------------
    @classmethod
    def to_json(cls, value: Any) -> Any:
        """A value as plain JSON data, whatever it is."""
        if isinstance(value, Mapping):
            return {str(k): cls.to_json(v) for k, v in value.items()}
        return list(value) if isinstance(value, tuple) else value

    @classmethod
    def from_json(cls, data: Any) -> Any:
        """What `to_json` wrote, as a value. It is not judged."""
        if isinstance(data, dict):
            return {k: tuple(v) if isinstance(v, list) else v for k, v in data.items()}
        return tuple(data) if isinstance(data, list) else data

    # -- what came of it -------------------------------------------------------------------------------------
    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        """What an op or queue has of what was asked (`value`: that of the override)."""
        raise NotImplementedError

    @classmethod
    def met(cls, value: Any, got: Any) -> bool:
        """Whether what was obtained is what was asked."""
        if isinstance(value, Mapping) and isinstance(got, Mapping):
            return {k: got.get(k) for k in value} == {k: _to_tuples(v) for k, v in value.items()}
        return bool(got == _to_tuples(value))


def _to_tuples(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


# -- reading values ----------------------------------------------------------------------------------------------------
def is_whole(value: Any, least: int) -> bool:
    """A whole number that is large enough (and no bool)."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool) and int(value) >= least


def read_pair(what: str, value: Any, least: int) -> tuple[int, int]:
    """Two whole numbers: a size (rows, columns) from 1, or a place (row, column) from 0."""
    if isinstance(value, tuple | list) and len(value) == 2 and all(is_whole(v, least) for v in value):
        return int(value[0]), int(value[1])
    numbers_wanted = "two positive numbers (rows, columns)" if least else "two whole numbers from 0 (row, column)"
    raise MalformedValue(f"{what} is {numbers_wanted}, not {value!r}", f"two whole numbers from {least}")


def read_fields(kind: type[Kind], value: Any) -> dict[str, Any]:
    """A mapping of the fields of a kind."""
    names = [f.name for f in dataclasses.fields(kind)]
    fix = f"{kind.kind} takes a mapping with {', '.join(map(repr, names))}"
    if not isinstance(value, Mapping):
        raise MalformedValue(f"{value!r} is not a mapping", fix)
    strange = [name for name in value if name not in names]
    if strange:
        raise MalformedValue(f"it has no key {strange[0]!r}", fix)
    return dict(value)


def read_ports(value: Any, good: str) -> dict[int, Any]:
    """A mapping from numbers of operands; `good`: what it maps them to, in words."""
    if isinstance(value, Mapping) and value and all(is_whole(k, 0) for k in value):
        return {int(k): v for k, v in sorted(value.items())}
    raise MalformedValue(f"{value!r} is not a map of operand index to {good}", "operands count from 0")


def ports_from_json(data: Any) -> Any:
    """A mapping whose keys are numbers of operands; JSON has them as text."""
    if not isinstance(data, dict):
        return tuple(data) if isinstance(data, list) else data
    return {int(k) if k.isdecimal() and k.isascii() and len(k) <= 4 else k: v for k, v in data.items()}


def python_call(function: str, *arguments: Any, **keywords: Any) -> str:
    """A call of PyBuda's `config` module; every argument is a literal (see `python_literal`)."""
    words = [python_literal(value) for value in arguments]
    words += [f"{name}={python_literal(value)}" for name, value in keywords.items()]
    return f"pybuda.config.{function}({', '.join(words)})"


def without_none(**words: Any) -> dict[str, Any]:
    """Those that are not None."""
    return {name: value for name, value in words.items() if value is not None}
