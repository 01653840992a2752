"""The kinds of edit, and their names in a journal."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from tbuda_lab.core.compiler import Request
from tbuda_lab.core.literals import python_comment, shown_value
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import (
    OVERRIDE_KINDS,
    Kind,
    Override,
    refuse_malformed,
    target_text,
)
from tbuda_lab.core.overrides.candidates import InnerStep, OpSize, Prologue, StreamDirection, StreamShape
from tbuda_lab.core.overrides.graphs import Fidelity, NopOnEdge, OutputFormat, QueueOnEdge
from tbuda_lab.core.overrides.kind import is_whole, python_call, without_none
from tbuda_lab.core.overrides.places import ChipStart, EpochStart, OpPin, QueuePin, ScheduleConstraint
from tbuda_lab.core.session.command import Command, read_readers, refuse


@dataclasses.dataclass(frozen=True)
class ResizeOp(Command):
    """Give an op a grid of (rows, columns) cores."""

    op: str
    size: tuple[int, int]
    name: ClassVar[str] = "resize"

    def __post_init__(self) -> None:
        self._check(self.op)
        object.__setattr__(self, "size", OpSize.parse(self.size).value)

    def asks(self) -> tuple[tuple[str, Kind], ...]:
        return ((self.op, OpSize.parse(self.size)),)


@dataclasses.dataclass(frozen=True)
class PlaceOp(Command):
    """Pin an op: the (row, column) of its top left core, its turned grid, its chip; None leaves a part free."""

    op: str
    start: tuple[int, int] | None = None
    transpose: bool | None = None
    chip: int | None = None
    name: ClassVar[str] = "place"

    def __post_init__(self) -> None:
        if self.start is None and self.transpose is None and self.chip is None:
            fix = "give one of them; ClearOp removes a pin"
            raise refuse(self.op, "start, transposition and chip are all missing", fix)
        if isinstance(self.start, list):
            object.__setattr__(self, "start", tuple(self.start))
        fault = self._pin.parts()
        if fault is not None:
            raise refuse(self.op, *fault)

    @property
    def _pin(self) -> OpPin:
        return OpPin(self.start, self.transpose, self.chip)

    def asks(self) -> tuple[tuple[str, Kind], ...]:
        return ((self.op, self._pin),)


@dataclasses.dataclass(frozen=True)
class EpochBreak(Command):
    """Start a new epoch at an op; `on=False` takes the break away."""

    op: str
    on: bool = True
    name: ClassVar[str] = "break"
    override: ClassVar[type[EpochStart]] = EpochStart

    @property
    def label(self) -> str:
        return self.override(self.on).label(self.op)

    def asks(self) -> tuple[tuple[str, Kind], ...]:
        return ((self.op, self.override()),) if self.on else ()

    def apply(self, state: Request) -> Request:
        return super().apply(state) if self.on else state.drop(self.op, (self.override.kind,))

    def python(self) -> str:
        call = self.override().python(self.op)
        return call if self.on else f"# without {call}"


@dataclasses.dataclass(frozen=True)
class ChipBreak(EpochBreak):
    """Start placing on the next chip at an op; `on=False` takes the break away."""

    name: ClassVar[str] = "chip-break"
    override: ClassVar[type[EpochStart]] = ChipStart


@dataclasses.dataclass(frozen=True)
class StreamOp(Command):
    """Fix the t-streaming of an op: direction ("n" none, "r", "c", "rz", "cz") and pieces (rows, columns)."""

    op: str
    direction: str | None = None
    shape: tuple[int, int] | None = None
    name: ClassVar[str] = "stream"

    def __post_init__(self) -> None:
        if self.direction is None and self.shape is None:
            fix = "give one; ClearOp removes both"
            raise refuse(self.op, "neither direction nor shape of the t-streaming is given", fix)
        self._check(self.op)
        if self.shape is not None:
            object.__setattr__(self, "shape", StreamShape.parse(self.shape).value)

    @property
    def label(self) -> str:
        words = [self.direction or "", StreamShape.text(self.shape) if self.shape else ""]
        return f"stream {self.op} {' '.join(w for w in words if w)}"

    def asks(self) -> tuple[tuple[str, Kind], ...]:
        return (
            *(() if self.direction is None else ((self.op, StreamDirection.parse(self.direction)),)),
            *(() if self.shape is None else ((self.op, StreamShape.parse(self.shape)),)),
        )


@dataclasses.dataclass(frozen=True)
class SetUkt(Command):
    """Fix how many tiles of the inner dimension an op takes at once."""

    op: str
    u_kt: int
    name: ClassVar[str] = "u_kt"

    def __post_init__(self) -> None:
        self._check(self.op)

    def asks(self) -> tuple[tuple[str, Kind], ...]:
        return ((self.op, InnerStep.parse(self.u_kt)),)


@dataclasses.dataclass(frozen=True)
class Preload(Command):
    """Keep a parameter of an op in L1 from before the first input of an epoch (a prologue), or stream it from DRAM for
    every input. operand: which of the op's operands it is."""

    op: str
    operand: int
    on: bool = True
    name: ClassVar[str] = "prologue"

    def __post_init__(self) -> None:
        self._check(self.op)

    @property
    def label(self) -> str:
        return f"{'preload' if self.on else 'stream'} operand {self.operand} of {self.op}"

    def asks(self) -> tuple[tuple[str, Kind], ...]:
        return ((self.op, Prologue.parse({self.operand: self.on})),)

    def apply(self, state: Request) -> Request:
        prologue = state.find(Prologue.kind, self.op)
        value = {**(prologue.value if prologue is not None else {}), self.operand: self.on}
        return state.put(Override(Prologue.kind, self.op, value, "edit"))


@dataclasses.dataclass(frozen=True)
class QueueChannel(Command):
    """Put a queue into a DRAM channel, or on a chip."""

    queue: str
    channel: int | None = None
    chip: int | None = None
    name: ClassVar[str] = "queue"

    def __post_init__(self) -> None:
        numbers = [v for v in (self.channel, self.chip) if v is not None]
        if not numbers or not all(is_whole(v, 0) for v in numbers):
            raise refuse(self.queue, "channel and chip of a queue are numbers", "give whole numbers from 0")

    def asks(self) -> tuple[tuple[str, Kind], ...]:
        return ((self.queue, QueuePin(self.chip, self.channel)),)


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
        object.__setattr__(self, "to", read_readers(self.op, self.to))
        if not is_whole(self.count, 1):
            raise refuse(self.op, f"{self.count!r} is not a number of nops", "give a whole number from 1")
        self._check(self.op)

    def asks(self) -> tuple[tuple[str, Kind], ...]:
        return ((self.op, NopOnEdge(self.to or None, self.hoist_tms, self.count, self.daisy_chain)),)


@dataclasses.dataclass(frozen=True)
class InsertQueue(Command):
    """Cut the edges from an op to some of its readers (all of them by default): they go through a DRAM queue."""

    op: str
    to: tuple[str, ...] = ()
    port: int | None = None
    name: ClassVar[str] = "insert-queue"

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", read_readers(self.op, self.to))
        if self.port is not None and not is_whole(self.port, 0):
            raise refuse(self.op, f"an operand is a number, not {self.port!r}", "operands count from 0")

    def asks(self) -> tuple[tuple[str, Kind], ...]:
        return ((self.op, QueueOnEdge(self.to or None, self.port)),)


@dataclasses.dataclass(frozen=True)
class FormatOp(Command):
    """Give an op's output a data format, or the op a fidelity, by their names; the graph is lowered with them."""

    op: str
    data_format: str | None = None
    fidelity: str | None = None
    name: ClassVar[str] = "format"

    def __post_init__(self) -> None:
        if self.data_format is None and self.fidelity is None:
            raise refuse(self.op, "neither data format nor fidelity is given", "give one of them")
        self._check(self.op)

    def asks(self) -> tuple[tuple[str, Kind], ...]:
        return (
            *(() if self.data_format is None else ((self.op, OutputFormat.parse(self.data_format)),)),
            *(() if self.fidelity is None else ((self.op, Fidelity.parse(self.fidelity)),)),
        )


@dataclasses.dataclass(frozen=True)
class ClearOp(Command):
    """Take away what was fixed for an op or a queue by its name (all of it, or these kinds of override)."""

    op: str
    kinds: tuple[str, ...] = ()
    name: ClassVar[str] = "clear"

    def __post_init__(self) -> None:
        valid = isinstance(self.kinds, tuple) and all(isinstance(k, str) and k in OVERRIDE_KINDS for k in self.kinds)
        if not valid:
            fix = f"kinds are among {', '.join(OVERRIDE_KINDS)}"
            raise refuse(self.op, f"kinds is a list of kinds of override, not {self.kinds!r}", fix)

    @property
    def label(self) -> str:
        return f"clear {self.op}" + (f" ({', '.join(self.kinds)})" if self.kinds else "")

    def apply(self, state: Request) -> Request:
        return state.drop(self.op, self.kinds)

    def python(self) -> str:
        return python_comment(f"without the overrides of {self.op}")


@dataclasses.dataclass(frozen=True)
class Disable(ClearOp):
    """Switch overrides off for now: taken away like `ClearOp`, and remembered (see `history.disabled_overrides`)."""

    name: ClassVar[str] = "disable"

    @property
    def label(self) -> str:
        return f"switch off {', '.join(self.kinds) or 'the overrides'} of {self.op}"


@dataclasses.dataclass(frozen=True)
class SetOverride(Command):
    """Add any override record: by several names, a pattern or a predicate, and of kinds that have no edit here."""

    override: Override
    name: ClassVar[str] = "override"

    def __post_init__(self) -> None:
        refuse_malformed((self.override,))

    @property
    def label(self) -> str:
        return f"{self.override.kind} of {target_text(self.override.target)}"

    def overrides(self) -> tuple[Override, ...]:
        return (self.override,)


@dataclasses.dataclass(frozen=True)
class Reorder(Command):
    """Move an override to another place of the list, both counted from 0: of several for one thing the last one holds,
    and nops and queues are inserted in their order."""

    at: int
    to: int
    name: ClassVar[str] = "reorder"

    def __post_init__(self) -> None:
        if not (is_whole(self.at, 0) and is_whole(self.to, 0)):
            raise refuse("overrides", f"positions are numbers, not {self.at!r} and {self.to!r}", "they count from 0")

    @property
    def label(self) -> str:
        return f"override {self.at + 1} to place {self.to + 1}"

    def apply(self, state: Request) -> Request:
        result = list(state.overrides)
        if max(self.at, self.to) >= len(result):
            message = f"there is no position {max(self.at, self.to)}"
            raise refuse("overrides", message, f"there are {len(result)}, from 0")
        result.insert(self.to, result.pop(self.at))
        return dataclasses.replace(state, overrides=tuple(result))

    def python(self) -> str:
        return f"# {self.label}"


@dataclasses.dataclass(frozen=True)
class Constrain(Command):
    """These ops run in this order; `on=False` takes that constraint away."""

    ops: tuple[str, ...]
    on: bool = True
    name: ClassVar[str] = "constrain"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", read_readers("a schedule constraint", self.ops))
        if len(self.ops) < 2:
            fix = "names, in the order they are to run"
            raise refuse("a schedule constraint", "an order takes two ops or more", fix)

    @property
    def label(self) -> str:
        first, rest = self.ops[0], self.ops[1:]
        order = f"{first} before {', '.join(rest[:2])}" + (f" and {len(rest) - 2} more" if len(rest) > 2 else "")
        return order if self.on else f"lift the order of {order}"

    def asks(self) -> tuple[tuple[tuple[str, ...], Kind], ...]:
        return ((self.ops, ScheduleConstraint()),) if self.on else ()

    def apply(self, state: Request) -> Request:
        if self.on:
            return super().apply(state)
        result = tuple(o for o in state.overrides if o.kind != ScheduleConstraint.kind or o.target != self.ops)
        return dataclasses.replace(state, overrides=result)

    def python(self) -> str:
        call = ScheduleConstraint().python(list(self.ops))
        return call if self.on else f"# without {call}"


@dataclasses.dataclass(frozen=True)
class Optimise(Command):
    """Choose the epochs of the whole model anew, with the overrides there are. Edits keep the epochs they find."""

    name: ClassVar[str] = "optimise"

    @property
    def label(self) -> str:
        return "place all epochs again"

    def apply(self, state: Request) -> Request:
        return dataclasses.replace(state, base=state.overrides)

    def python(self) -> str:
        return "# all epochs are placed again from here"


_PYBUDA_OPTIONS = {
    "default_accumulate_df": "accumulate_df",
    "default_math_fidelity": "math_fidelity",
} | {
    name: name
    for name in (
        "default_df_override",
        "balancer_policy",
        "enable_t_streaming",
        "manual_t_streaming",
        "enable_consteval",
        "enable_enumerate_u_kt",
        "enable_stable_softmax",
        "enable_conv_prestride",
        "enable_auto_fusing",
        "enable_auto_transposing_placement",
        "place_on_one_row",
        "input_queues_on_host",
        "output_queues_on_host",
        "dram_placement_algorithm",
        "chip_placement_policy",
    )
}
"""Options that `set_configuration_options` takes, with the names that they have there."""


@dataclasses.dataclass(frozen=True, init=False)
class SetOptions(Command):
    """Change compile options by name; everything that depends on them is done anew."""

    changes: tuple[tuple[str, Any], ...]
    name: ClassVar[str] = "options"

    def __init__(self, **changes: Any) -> None:
        option_names = [f.name for f in dataclasses.fields(CompileOptions)]
        for key in changes:
            if key not in option_names:
                raise refuse(key, "unknown option", f"known: {', '.join(option_names)}")
        object.__setattr__(self, "changes", tuple(sorted(changes.items())))

    @property
    def label(self) -> str:
        return "set " + ", ".join(f"{k} = {getattr(v, 'name', v)}" for k, v in self.changes)

    def apply(self, state: Request) -> Request:
        options = dataclasses.replace(state.options, **dict(self.changes))
        return Request(options, state.overrides, state.overrides)

    def python(self) -> str:
        """PyBuda's calls; what PyBuda has no option for stands in a comment."""
        plain = {_PYBUDA_OPTIONS[k]: v for k, v in self.changes if k in _PYBUDA_OPTIONS}
        lines = [python_call("set_configuration_options", **plain)] if plain else []
        ours = {k: v for k, v in self.changes if k not in _PYBUDA_OPTIONS and k != "precision"}
        if ours:
            text = ", ".join(f"{name}={shown_value(value)}" for name, value in ours.items())
            lines.append(python_comment(f"PyBuda has no such options: session.apply(SetOptions({text}))"))
        for rule in dict(self.changes).get("precision", ()):
            arguments = without_none(
                op_type=rule.op_type,
                name_regex=rule.name,
                output_df=rule.output_df,
                accumulate_df=rule.accumulate_df,
                intermediate_df=rule.intermediate_df,
                math_fidelity=rule.math_fidelity,
                input_df={k: (df, also) for k, df, also in rule.inputs} or None,
                input_parameter_indices_to_optimize=list(rule.weight_bits) or None,
                epoch_type=rule.part,
                is_gradient_op=rule.gradients,
            )
            lines.append(python_call("configure_mixed_precision", **arguments))
        return "\n".join(lines)


COMMANDS: dict[str, type[Command]] = {
    c.name: c
    for c in (
        ResizeOp,
        PlaceOp,
        EpochBreak,
        ChipBreak,
        StreamOp,
        SetUkt,
        Preload,
        QueueChannel,
        InsertNop,
        InsertQueue,
        FormatOp,
        ClearOp,
        Disable,
        SetOverride,
        Reorder,
        Constrain,
        Optimise,
        SetOptions,
    )
}
"""Edits that a journal may hold, by name."""
