"""Overrides that fix something of an op's candidates: grid, t-streaming, inner steps, buffers, parameters."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar, Self

from tbuda_lab.core.literals import python_comment
from tbuda_lab.core.overrides.kind import (
    CompileFacts,
    Fault,
    Kind,
    MalformedValue,
    OpLimits,
    is_whole,
    ports_from_json,
    python_call,
    read_pair,
    read_ports,
)

STREAM_DIRECTIONS = ("n", "r", "c", "rz", "cz")


class _Shape(Kind):
    """Kinds whose value is (rows, columns)."""

    @classmethod
    def text(cls, value: Any) -> str:
        return "x".join(map(str, value)) if isinstance(value, tuple | list) else Kind.text(value)


@dataclasses.dataclass(frozen=True)
class OpSize(_Shape):
    """The grid of an op: (rows, columns) of cores, before any transposition."""

    rows: int
    cols: int
    kind: ClassVar[str] = "op_size"
    choice: ClassVar[str] = "grid"
    call: ClassVar[str] = "override_op_size"

    @classmethod
    def parse(cls, value: Any) -> Self:
        return cls(*read_pair("a size", value, 1))

    @property
    def value(self) -> tuple[int, int]:
        return self.rows, self.cols

    def validate(self, limits: OpLimits) -> Fault | None:
        if self.rows in limits.grid_rows and self.cols in limits.grid_cols:
            return None
        text = (
            f"grid {self.rows}x{self.cols} is illegal for {limits.rows}x{limits.cols} tiles on a device of "
            f"{limits.device[0]}x{limits.device[1]} cores"
        )
        return text, self.legal(limits)

    @classmethod
    def legal(cls, limits: OpLimits) -> str:
        rows, cols = (", ".join(map(str, sizes)) for sizes in (limits.grid_rows, limits.grid_cols))
        return f"legal rows: {rows}; legal columns: {cols}"

    def label(self, target: str) -> str:
        return f"resize {target} to {self.rows}x{self.cols}"

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return int(got.row["grid_r"]), int(got.row["grid_c"])


@dataclasses.dataclass(frozen=True)
class StreamDirection(Kind):
    """How an op is cut over time: "n" not at all, by "r"ows or "c"olumns, with z inside ("rz", "cz")."""

    direction: str
    kind: ClassVar[str] = "t_stream_dir"
    choice: ClassVar[str] = "stream_dir"
    call: ClassVar[str] = "override_t_stream_dir"

    @classmethod
    def parse(cls, value: Any) -> Self:
        if value not in STREAM_DIRECTIONS:
            raise MalformedValue(f"unknown direction {value!r}", f"known: {', '.join(STREAM_DIRECTIONS)}")
        return cls(value)

    @property
    def value(self) -> str:
        return self.direction

    def validate(self, limits: OpLimits) -> Fault | None:
        if self.direction in ("n", *limits.stream_dirs):
            return None
        return f"direction {self.direction!r} is illegal here", self.legal(limits)

    @classmethod
    def legal(cls, limits: OpLimits) -> str:
        return f"legal: {', '.join(('n', *limits.stream_dirs))}"

    def label(self, target: str) -> str:
        return f"stream {target} {self.direction}"

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return str(got.row["stream"]) or "n"


@dataclasses.dataclass(frozen=True)
class StreamShape(_Shape):
    """Into how many (row, column) pieces the output of an op is cut over time; one of the two is 1."""

    rows: int
    cols: int
    kind: ClassVar[str] = "t_stream_shape"
    choice: ClassVar[str] = "stream_shape"
    call: ClassVar[str] = "override_t_stream_shape"

    @classmethod
    def parse(cls, value: Any) -> Self:
        return cls(*read_pair("a t-stream shape", value, 1))

    @property
    def value(self) -> tuple[int, int]:
        return self.rows, self.cols

    def validate(self, limits: OpLimits) -> Fault | None:
        if limits.rows % self.rows or limits.cols % self.cols or min(self.rows, self.cols) != 1:
            text = f"t-stream shape {self.value!r} is illegal for {limits.rows}x{limits.cols} tiles"
            return text, self.legal(limits)
        direction = "r" if self.rows > 1 else "c" if self.cols > 1 else ""
        if direction and direction not in {d[0] for d in limits.stream_dirs}:
            text = f"this op cannot stream along {'rows' if direction == 'r' else 'columns'}"
            return text, f"legal directions: {', '.join(('n', *limits.stream_dirs))}"
        return None

    @classmethod
    def legal(cls, limits: OpLimits) -> str:
        return f"rows must divide {limits.rows} and columns {limits.cols}; one of the two must be 1"

    def label(self, target: str) -> str:
        return f"stream {target} {self.rows}x{self.cols}"

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return int(got.row["stream_r"]), int(got.row["stream_c"])


@dataclasses.dataclass(frozen=True)
class InnerStep(Kind):
    """How many tiles of the inner dimension a matmul or reduce takes at once."""

    tiles: int
    kind: ClassVar[str] = "u_kt"
    choice: ClassVar[str] = "u_kt"
    call: ClassVar[str] = "override_u_kt"

    @classmethod
    def parse(cls, value: Any) -> Self:
        if not is_whole(value, 1):
            raise MalformedValue(f"u_kt is a number of tiles, not {value!r}", "a whole number from 1")
        return cls(int(value))

    @property
    def value(self) -> int:
        return self.tiles

    def validate(self, limits: OpLimits) -> Fault | None:
        if not limits.steps:
            return "this op has no inner dimension", self.legal(limits)
        return None if self.tiles in limits.steps else (f"u_kt {self.tiles!r} is illegal", self.legal(limits))

    @classmethod
    def legal(cls, limits: OpLimits) -> str:
        if not limits.steps:
            return "u_kt is for matmul and reduce"
        return f"legal: {', '.join(map(str, limits.steps))}"

    def label(self, target: str) -> str:
        return f"u_kt of {target} = {self.tiles}"

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return int(got.row["u_kt"])


@dataclasses.dataclass(frozen=True)
class InputBuffers(Kind):
    """By what factor the input buffers of an op are larger: (operand, factor) pairs."""

    factors: tuple[tuple[int, int], ...]
    kind: ClassVar[str] = "input_buffer_multiplier"
    choice: ClassVar[str] = "input_multiplier"
    call: ClassVar[str] = "override_input_buffer_multiplier"
    of_parts: ClassVar[str] = "one"

    @classmethod
    def parse(cls, value: Any) -> Self:
        ports = read_ports(value, "factor")
        if not all(is_whole(factor, 1) for factor in ports.values()):
            raise MalformedValue(
                f"{value!r} is not a map of operand index to factor", "factors are whole numbers from 1"
            )
        return cls(tuple((port, int(factor)) for port, factor in ports.items()))

    @property
    def value(self) -> dict[int, int]:
        return dict(self.factors)

    def validate(self, limits: OpLimits) -> Fault | None:
        if all(port < limits.operands and factor <= limits.l1_tiles for port, factor in self.factors):
            return None
        return f"{self.value!r} is not a map of operand index to factor", self.legal(limits)

    @classmethod
    def legal(cls, limits: OpLimits) -> str:
        return f"operands 0 to {limits.operands - 1}, factors from 1 to {limits.l1_tiles}, as many tiles as L1 holds"

    def new_choice(self, before: Any) -> Any:
        return tuple(sorted({**dict(before), **self.value}.items()))

    def python(self, target: str | list[str]) -> str:
        return "\n".join(python_call(self.call, target, port, multiplier=factor) for port, factor in self.factors)

    from_json = staticmethod(ports_from_json)

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        # an operand that waits in L1 from before the first input, as preloaded weights do, has no buffer to enlarge
        sizes = got.least_input_buffers
        return {port: factor if port < len(sizes) and sizes[port] else 0 for port, factor in value.items()}


@dataclasses.dataclass(frozen=True)
class OutputBuffer(Kind):
    """How many macro blocks the output buffer of an op holds."""

    blocks: int
    kind: ClassVar[str] = "output_buffer_multiplier"
    choice: ClassVar[str] = "output_multiplier"
    call: ClassVar[str] = "internal_override_output_buffer_multiplier"

    @classmethod
    def parse(cls, value: Any) -> Self:
        if not is_whole(value, 1):
            raise MalformedValue(f"{value!r} is not a number of macro blocks", "a whole number from 1")
        return cls(int(value))

    @property
    def value(self) -> int:
        return self.blocks

    def validate(self, limits: OpLimits) -> Fault | None:
        if self.blocks <= limits.l1_tiles:
            return None
        return f"{self.blocks!r} is not a number of macro blocks", self.legal(limits)

    @classmethod
    def legal(cls, limits: OpLimits) -> str:
        return f"a whole number from 1 to {limits.l1_tiles}, which is how many tiles L1 holds"

    def python(self, target: str | list[str]) -> str:
        return python_call(self.call, target, multiplier=self.blocks)

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return int(got.row["buf_size_mb"])


@dataclasses.dataclass(frozen=True)
class DramParameters(Kind):
    """Whether the parameters of an op stay in DRAM instead of being preloaded into L1."""

    in_dram: bool
    kind: ClassVar[str] = "dram_parameters"
    early: ClassVar[bool] = True
    choice: ClassVar[str] = "dram_parameters"
    call: ClassVar[str] = "override_dram_parameters"

    @classmethod
    def parse(cls, value: Any) -> Self:
        if value not in (True, False):
            fix = "True keeps the parameters of the op in DRAM"
            raise MalformedValue(f"dram_parameters is true or false, not {value!r}", fix)
        return cls(bool(value))

    @property
    def value(self) -> bool:
        return self.in_dram

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return not got.preloads(None)


@dataclasses.dataclass(frozen=True)
class Prologue(Kind):
    """Which parameters of an op wait in L1 from before the first input: (operand, preloaded or streamed) pairs."""

    operands: tuple[tuple[int, bool], ...]
    kind: ClassVar[str] = "prologue"
    choice: ClassVar[str] = "prologue"

    @classmethod
    def parse(cls, value: Any) -> Self:
        ports = read_ports(value, "True (preload) or False (stream)")
        if not all(isinstance(on, bool) for on in ports.values()):
            raise MalformedValue(
                f"{value!r} is not a map of operand index to True or False", "True preloads, False streams"
            )
        return cls(tuple(ports.items()))

    @property
    def value(self) -> dict[int, bool]:
        return dict(self.operands)

    def validate(self, limits: OpLimits) -> Fault | None:
        strange = [port for port, _ in self.operands if port not in limits.parameters]
        if not strange:
            return None
        return f"operand {strange[0]!r} is not a parameter, so there is nothing to preload", self.legal(limits)

    @classmethod
    def legal(cls, limits: OpLimits) -> str:
        names = ", ".join(f"operand {port}" for port in limits.parameters) or "none"
        return f"parameters of this op: {names}; True preloads them, False streams them"

    def new_choice(self, before: Any) -> Any:
        return tuple(sorted({**dict(before), **self.value}.items()))

    def python(self, target: str | list[str]) -> str:
        wishes = [f"{'preload' if on else 'stream'} operand {port}" for port, on in self.operands]
        return python_comment(f"{', '.join(wishes)} of {target}")

    from_json = staticmethod(ports_from_json)

    @classmethod
    def obtained_value(cls, got: CompileFacts, value: Any) -> Any:
        return {port: got.preloads(port) for port in value}
