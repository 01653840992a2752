"""Edits as values: each knows the state it makes, its label, its inverse, and its call in PyBuda's `config` module."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from tbuda_lab.core.literals import python_comment
from tbuda_lab.core.options import CompileOptions, Override, target_text
from tbuda_lab.core.overrideforms import refuse_misshapen
from tbuda_lab.core.session.calls import override_python, placement_python, python_call
from tbuda_lab.core.session.command import Command, pair, readers, refuse, whole
from tbuda_lab.core.session.graphedits import FormatOp, InsertNop, InsertQueue
from tbuda_lab.core.session.state import State

STREAM_DIRECTIONS = ("n", "r", "c", "rz", "cz")


@dataclasses.dataclass(frozen=True)
class ResizeOp(Command):
    """Give an op a grid of (rows, columns) cores."""

    op: str
    size: tuple[int, int]
    name: ClassVar[str] = "resize"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", pair(self.op, "a size", self.size, 1))

    @property
    def label(self) -> str:
        return f"resize {self.op} to {self.size[0]}x{self.size[1]}"

    def overrides(self) -> tuple[Override, ...]:
        return (Override("op_size", self.op, self.size, "edit"),)

    def python(self) -> str:
        return python_call("override_op_size", self.op, self.size)


@dataclasses.dataclass(frozen=True)
class PlaceOp(Command):
    """Pin an op: the (row, column) of its top left core, its turned grid, its chip; None leaves a part free."""

    op: str
    start: tuple[int, int] | None = None
    transpose: bool | None = None
    chip: int | None = None
    name: ClassVar[str] = "place"

    def __post_init__(self) -> None:
        if self.start is not None:
            object.__setattr__(self, "start", pair(self.op, "a start", self.start, 0))
        if self.transpose is not None and not isinstance(self.transpose, bool):
            raise refuse(self.op, f"transpose is true or false, not {self.transpose!r}", "leave it out to let it free")
        if self.chip is not None and not whole(self.chip, 0):
            raise refuse(self.op, f"a chip is a number, not {self.chip!r}", "chips count from 0")
        if self.start is None and self.transpose is None and self.chip is None:
            raise refuse(self.op, "a place without start, transposition and chip", "give one; ClearOp takes a pin away")

    @property
    def label(self) -> str:
        parts = [f"to {self.start[0]},{self.start[1]}"] if self.start is not None else []
        parts += [] if self.transpose is None else ["transposed" if self.transpose else "upright"]
        parts += [] if self.chip is None else [f"on chip {self.chip}"]
        return f"move {self.op} {' '.join(parts)}"

    def overrides(self) -> tuple[Override, ...]:
        fields = (("start", self.start), ("transpose", self.transpose), ("chip", self.chip))
        return (Override("op_placement", self.op, {k: v for k, v in fields if v is not None}, "edit"),)

    def python(self) -> str:
        return placement_python(self.op, self.overrides()[0].value)


@dataclasses.dataclass(frozen=True)
class EpochBreak(Command):
    """Start a new epoch at an op; `on=False` takes the break away."""

    op: str
    on: bool = True
    name: ClassVar[str] = "break"
    kind: ClassVar[str] = "epoch_break"

    @property
    def label(self) -> str:
        what = self.kind.replace("_", " ")
        return f"{what} before {self.op}" if self.on else f"no {what} before {self.op}"

    def overrides(self) -> tuple[Override, ...]:
        return (Override(self.kind, self.op, True, "edit"),) if self.on else ()

    def apply(self, state: State) -> State:
        return super().apply(state) if self.on else state.drop(self.op, (self.kind,))

    def python(self) -> str:
        call = python_call(f"set_{self.kind}", self.op)
        return call if self.on else f"# without {call}"


@dataclasses.dataclass(frozen=True)
class ChipBreak(EpochBreak):
    """Start placing on the next chip at an op; `on=False` takes the break away."""

    name: ClassVar[str] = "chip-break"
    kind: ClassVar[str] = "chip_break"


@dataclasses.dataclass(frozen=True)
class StreamOp(Command):
    """Fix the t-streaming of an op: direction ("n" none, "r", "c", "rz", "cz") and pieces (rows, columns)."""

    op: str
    direction: str | None = None
    shape: tuple[int, int] | None = None
    name: ClassVar[str] = "stream"

    def __post_init__(self) -> None:
        if self.direction is not None and self.direction not in STREAM_DIRECTIONS:
            raise refuse(self.op, f"unknown direction {self.direction!r}", f"known: {', '.join(STREAM_DIRECTIONS)}")
        if self.shape is not None:
            object.__setattr__(self, "shape", pair(self.op, "a t-stream shape", self.shape, 1))
        if self.direction is None and self.shape is None:
            raise refuse(self.op, "t-streaming without direction and shape", "give one; ClearOp takes it away")

    @property
    def label(self) -> str:
        parts = [self.direction or "", f"{self.shape[0]}x{self.shape[1]}" if self.shape else ""]
        return f"stream {self.op} {' '.join(p for p in parts if p)}"

    def overrides(self) -> tuple[Override, ...]:
        fields = (("t_stream_dir", self.direction), ("t_stream_shape", self.shape))
        return tuple(Override(kind, self.op, value, "edit") for kind, value in fields if value is not None)

    def python(self) -> str:
        return "\n".join(override_python(o) for o in self.overrides())


@dataclasses.dataclass(frozen=True)
class SetUkt(Command):
    """Fix how many tiles of the inner dimension an op takes at once."""

    op: str
    u_kt: int
    name: ClassVar[str] = "u_kt"

    def __post_init__(self) -> None:
        if not whole(self.u_kt, 1):
            raise refuse(self.op, f"u_kt is a number of tiles, not {self.u_kt!r}", "a whole number from 1")

    @property
    def label(self) -> str:
        return f"u_kt of {self.op} = {self.u_kt}"

    def overrides(self) -> tuple[Override, ...]:
        return (Override("u_kt", self.op, self.u_kt, "edit"),)

    def python(self) -> str:
        return python_call("override_u_kt", self.op, self.u_kt)


@dataclasses.dataclass(frozen=True)
class QueueChannel(Command):
    """Put a queue into a DRAM channel, or on a chip."""

    queue: str
    channel: int | None = None
    chip: int | None = None
    name: ClassVar[str] = "queue"

    def __post_init__(self) -> None:
        given = [v for v in (self.channel, self.chip) if v is not None]
        if not given or not all(whole(v, 0) for v in given):
            raise refuse(self.queue, "a queue goes to a channel or a chip, both numbers", "whole numbers from 0")

    @property
    def label(self) -> str:
        parts = [] if self.channel is None else [f"to channel {self.channel}"]
        parts += [] if self.chip is None else [f"on chip {self.chip}"]
        return f"queue {self.queue} {' '.join(parts)}"

    def overrides(self) -> tuple[Override, ...]:
        fields = (("chip", self.chip), ("channel", self.channel))
        return (Override("queue_channel", self.queue, {k: v for k, v in fields if v is not None}, "edit"),)

    def python(self) -> str:
        return override_python(self.overrides()[0])


@dataclasses.dataclass(frozen=True)
class ClearOp(Command):
    """Take away what was fixed for an op or a queue by its name (all of it, or these kinds of override)."""

    op: str
    kinds: tuple[str, ...] = ()
    name: ClassVar[str] = "clear"

    @property
    def label(self) -> str:
        return f"clear {self.op}" + (f" ({', '.join(self.kinds)})" if self.kinds else "")

    def apply(self, state: State) -> State:
        return state.drop(self.op, self.kinds)

    def python(self) -> str:
        return python_comment(f"without the overrides of {self.op}")


@dataclasses.dataclass(frozen=True)
class Disable(ClearOp):
    """Switch overrides off for now: taken away like `ClearOp`, and remembered (see `switches.disabled`)."""

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
        refuse_misshapen((self.override,))

    @property
    def label(self) -> str:
        return f"{self.override.kind} of {target_text(self.override.target)}"

    def overrides(self) -> tuple[Override, ...]:
        return (self.override,)

    def python(self) -> str:
        return override_python(self.override)


@dataclasses.dataclass(frozen=True)
class Reorder(Command):
    """Move an override to another place of the list, both counted from 0: of several for one thing the last one holds,
    and nops and queues are inserted in their order."""

    at: int
    to: int
    name: ClassVar[str] = "reorder"

    def __post_init__(self) -> None:
        if not (whole(self.at, 0) and whole(self.to, 0)):
            raise refuse("overrides", f"places are numbers, not {self.at!r} and {self.to!r}", "they count from 0")

    @property
    def label(self) -> str:
        return f"override {self.at + 1} to place {self.to + 1}"

    def apply(self, state: State) -> State:
        found = list(state.overrides)
        if max(self.at, self.to) >= len(found):
            raise refuse("overrides", f"there is no place {max(self.at, self.to)}", f"there are {len(found)}, from 0")
        found.insert(self.to, found.pop(self.at))
        return dataclasses.replace(state, overrides=tuple(found))

    def python(self) -> str:
        return f"# {self.label}"


@dataclasses.dataclass(frozen=True)
class Constrain(Command):
    """These ops run in this order; `on=False` takes that constraint away."""

    ops: tuple[str, ...]
    on: bool = True
    name: ClassVar[str] = "constrain"

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", readers("a schedule constraint", self.ops))
        if len(self.ops) < 2:
            fix = "names, in the order they are to run"
            raise refuse("a schedule constraint", "an order takes two ops or more", fix)

    @property
    def label(self) -> str:
        first, rest = self.ops[0], self.ops[1:]
        order = f"{first} before {', '.join(rest[:2])}" + (f" and {len(rest) - 2} more" if len(rest) > 2 else "")
        return order if self.on else f"no order of {order}"

    def overrides(self) -> tuple[Override, ...]:
        return (Override("schedule_constraint", self.ops, True, "edit"),) if self.on else ()

    def apply(self, state: State) -> State:
        if self.on:
            return super().apply(state)
        kept = tuple(o for o in state.overrides if o.kind != "schedule_constraint" or o.target != self.ops)
        return dataclasses.replace(state, overrides=kept)

    def python(self) -> str:
        call = python_call("add_schedule_constraint", list(self.ops))
        return call if self.on else f"# without {call}"


@dataclasses.dataclass(frozen=True)
class Optimise(Command):
    """Choose the epochs of the whole model anew, with the overrides there are. Edits keep the epochs they find."""

    name: ClassVar[str] = "optimise"

    @property
    def label(self) -> str:
        return "choose all epochs anew"

    def apply(self, state: State) -> State:
        return dataclasses.replace(state, base=state.overrides)

    def python(self) -> str:
        return "# all epochs are chosen anew from here"


@dataclasses.dataclass(frozen=True, init=False)
class SetOptions(Command):
    """Change compile options by name; everything that depends on them is done anew."""

    changes: tuple[tuple[str, Any], ...]
    name: ClassVar[str] = "options"

    def __init__(self, **changes: Any) -> None:
        known = [f.name for f in dataclasses.fields(CompileOptions)]
        for key in changes:
            if key not in known:
                raise refuse(key, "unknown option", f"known: {', '.join(known)}")
        object.__setattr__(self, "changes", tuple(sorted(changes.items())))

    @property
    def label(self) -> str:
        return "set " + ", ".join(f"{k} = {getattr(v, 'name', v)}" for k, v in self.changes)

    def apply(self, state: State) -> State:
        options = dataclasses.replace(state.options, **dict(self.changes))
        return State(options, state.overrides, state.overrides)

    def python(self) -> str:
        names = {"default_accumulate_df": "accumulate_df", "default_math_fidelity": "math_fidelity"}
        return python_call("set_configuration_options", **{names.get(k, k): v for k, v in self.changes})


COMMANDS: dict[str, type[Command]] = {
    c.name: c
    for c in (
        ResizeOp, PlaceOp, EpochBreak, ChipBreak, StreamOp, SetUkt, QueueChannel, InsertNop, InsertQueue, FormatOp,
        ClearOp, Disable, SetOverride, Reorder, Constrain, Optimise, SetOptions,
    )
}  # fmt: skip
"""Edits that a journal may hold, by name."""
