"""Edits as values: each knows the state it makes, its label, its inverse, and its call in PyBuda's `config` module."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Sequence
from typing import Any, ClassVar

from tbuda_lab.core.errors import Diagnostic, OverrideError
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.options import FIRST, CompileOptions, Override
from tbuda_lab.core.session.state import State

STREAM_DIRECTIONS = ("n", "r", "c", "rz", "cz")


def refuse(where: str, message: str, fix: str) -> OverrideError:
    """The error of an edit that no model could take."""
    return OverrideError(f"{where}: {message}", [Diagnostic("error", where, "edit", message, fix)])


def _whole(value: object, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _pair(op: str, what: str, value: object, least: int) -> tuple[int, int]:
    if isinstance(value, (tuple, list)) and len(value) == 2 and all(_whole(v, least) for v in value):
        return int(value[0]), int(value[1])
    raise refuse(op, f"{what} is (rows, columns), not {value!r}", f"two whole numbers from {least}")


def _readers(op: str, names: object) -> tuple[str, ...]:
    found = (names,) if isinstance(names, str) else names
    if isinstance(found, (tuple, list)) and all(isinstance(n, str) and n for n in found):
        return tuple(found)
    raise refuse(op, f"readers are names, not {names!r}", "a name, several, or none for all readers")


@dataclasses.dataclass(frozen=True)
class Command:
    """An edit. Values are checked when it is made (`OverrideError`); names are checked by the compile."""

    name: ClassVar[str] = ""

    @property
    def label(self) -> str:
        """What a person reads in the undo list."""
        raise NotImplementedError

    def overrides(self) -> tuple[Override, ...]:
        """The records this edit adds; none where it only takes away or changes options."""
        return ()

    def apply(self, state: State) -> State:
        """The state after this edit."""
        for override in self.overrides():
            state = state.put(override)
        return state

    def inverse(self, state: State) -> Command:
        """The edit that leads from `apply(state)` back to `state`."""
        return Restore(state, self)

    def python(self) -> str:
        """The same in PyBuda's words; a comment where PyBuda has none."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Restore(Command):
    """Back to a state: the inverse of every edit. It lives in memory only; a journal holds the edits themselves."""

    state: State
    undone: Command
    name: ClassVar[str] = "restore"

    @property
    def label(self) -> str:
        return f"undo {self.undone.label}"

    def apply(self, state: State) -> State:
        return self.state

    def inverse(self, state: State) -> Command:
        return self.undone

    def python(self) -> str:
        return f"# undone: {self.undone.python()}"


@dataclasses.dataclass(frozen=True)
class ResizeOp(Command):
    """Give an op a grid of (rows, columns) cores."""

    op: str
    size: tuple[int, int]
    name: ClassVar[str] = "resize"

    def __post_init__(self) -> None:
        object.__setattr__(self, "size", _pair(self.op, "a size", self.size, 1))

    @property
    def label(self) -> str:
        return f"resize {self.op} to {self.size[0]}x{self.size[1]}"

    def overrides(self) -> tuple[Override, ...]:
        return (Override("op_size", self.op, self.size, "edit"),)

    def python(self) -> str:
        return f"pybuda.config.override_op_size({self.op!r}, {self.size!r})"


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
            object.__setattr__(self, "start", _pair(self.op, "a start", self.start, 0))
        if self.transpose is not None and not isinstance(self.transpose, bool):
            raise refuse(self.op, f"transpose is true or false, not {self.transpose!r}", "leave it out to let it free")
        if self.chip is not None and not _whole(self.chip, 0):
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
        fields = (("start", self.start), ("transpose_op", self.transpose), ("chip_id", self.chip))
        words = ", ".join(f"{k}={v!r}" for k, v in fields if v is not None)
        return f"pybuda.config.override_op_placement({self.op!r}, {words})"


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
        call = f"pybuda.config.set_{self.kind}({self.op!r})"
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
            object.__setattr__(self, "shape", _pair(self.op, "a t-stream shape", self.shape, 1))
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
        if not _whole(self.u_kt, 1):
            raise refuse(self.op, f"u_kt is a number of tiles, not {self.u_kt!r}", "a whole number from 1")

    @property
    def label(self) -> str:
        return f"u_kt of {self.op} = {self.u_kt}"

    def overrides(self) -> tuple[Override, ...]:
        return (Override("u_kt", self.op, self.u_kt, "edit"),)

    def python(self) -> str:
        return f"pybuda.config.override_u_kt({self.op!r}, {self.u_kt})"


@dataclasses.dataclass(frozen=True)
class QueueChannel(Command):
    """Put a queue into a DRAM channel, or on a chip."""

    queue: str
    channel: int | None = None
    chip: int | None = None
    name: ClassVar[str] = "queue"

    def __post_init__(self) -> None:
        given = [v for v in (self.channel, self.chip) if v is not None]
        if not given or not all(_whole(v, 0) for v in given):
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
class InsertQueue(Command):
    """Cut the edges from an op to some of its readers (all of them by default): they go through a DRAM queue."""

    op: str
    to: tuple[str, ...] = ()
    port: int | None = None
    name: ClassVar[str] = "insert-queue"

    def __post_init__(self) -> None:
        object.__setattr__(self, "to", _readers(self.op, self.to))
        if self.port is not None and not _whole(self.port, 0):
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
        object.__setattr__(self, "to", _readers(self.op, self.to))
        if not _whole(self.count, 1):
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
        return f"# without the overrides of {self.op!r}"


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
        if not (_whole(self.at, 0) and _whole(self.to, 0)):
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
        object.__setattr__(self, "ops", _readers("a schedule constraint", self.ops))
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
        call = f"pybuda.config.add_schedule_constraint({list(self.ops)!r})"
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
        parts = []
        for key, value in self.changes:
            text = f"pybuda.{type(value).__name__}.{value.name}" if hasattr(value, "name") else repr(value)
            parts.append(f"{names.get(key, key)}={text}")
        return f"pybuda.config.set_configuration_options({', '.join(parts)})"


COMMANDS: dict[str, type[Command]] = {
    c.name: c
    for c in (
        ResizeOp, PlaceOp, EpochBreak, ChipBreak, StreamOp, SetUkt, QueueChannel, InsertNop, InsertQueue, FormatOp,
        ClearOp, Disable, SetOverride, Reorder, Constrain, Optimise, SetOptions,
    )
}  # fmt: skip
"""Edits that a journal may hold, by name."""


_MIXED = {"data_format": ("output_df", "DataFormat"), "math_fidelity": ("math_fidelity", "MathFidelity")}
"""Kinds that PyBuda sets by regular expressions of names: its keyword, and where the value comes from."""


def target_text(target: Any) -> str:
    """A target as a person reads it."""
    if isinstance(target, str):
        return target
    if isinstance(target, tuple):
        return ", ".join(target)
    return f"/{target.pattern}/" if hasattr(target, "pattern") else "a predicate"


def override_python(override: Override) -> str:
    """An override as a call of PyBuda's `config` module; several names give one call each."""
    kind, target, value = override.kind, override.target, override.value
    if isinstance(target, tuple):
        if kind in ("epoch_break", "chip_break"):
            return f"pybuda.config.set_{kind}({list(target)!r})"
        if kind == "schedule_constraint":
            return f"pybuda.config.add_schedule_constraint({list(target)!r})"
        return "\n".join(override_python(dataclasses.replace(override, target=name)) for name in target)
    if not isinstance(target, str):
        return f"# {kind} of {target_text(target)}: {value!r}"
    if kind in ("epoch_break", "chip_break"):
        return f"pybuda.config.set_{kind}({target!r})"
    if kind == "op_placement":
        return PlaceOp(target, value.get("start"), value.get("transpose"), value.get("chip")).python()
    if kind == "queue_channel":
        names = {"chip": "chip_id", "channel": "channel"}
        words = ", ".join(f"{names[k]}={v!r}" for k, v in sorted(value.items()))
        return f"pybuda.config.override_dram_queue_placement({target!r}, {words})"
    if kind == "insert_nop" or kind == "insert_queue":
        return _edit_python(kind, target, dict(value))
    if kind in _MIXED:
        word, kinds = _MIXED[kind]
        words = f"name_regex={re.escape(target)!r}, {word}=pybuda.{kinds}.{value}"
        return f"pybuda.config.configure_mixed_precision({words})"
    if kind == "input_buffer_multiplier":
        call = "pybuda.config.override_input_buffer_multiplier"
        return "\n".join(f"{call}({target!r}, {k}, multiplier={v})" for k, v in sorted(value.items()))
    if kind == "output_buffer_multiplier":
        return f"pybuda.config.internal_override_output_buffer_multiplier({target!r}, multiplier={value!r})"
    return f"pybuda.config.override_{kind}({target!r}, {value!r})"


def named_python(override: Override, names: Sequence[str]) -> str:
    """The calls for a pattern or predicate once it is known which of `names` it matches."""
    if isinstance(override.target, (str, tuple)):
        return override_python(override)
    found = override.matches(names)
    if override.value == FIRST:
        found = found[:1]
    calls = [override_python(dataclasses.replace(override, target=name)) for name in found]
    return "\n".join([f"# {override.kind} of {target_text(override.target)}, which matches {len(found)}:", *calls])


def _edit_python(kind: str, source: str, value: dict[str, Any]) -> str:
    dest = value.get("dest")
    if dest is None:
        return f"# {kind} between {source!r} and all its readers"
    names = [dest] if isinstance(dest, str) else list(dest)
    if kind == "insert_nop":
        plain = {"hoist_tms": True, "nop_count": 1, "daisy_chain": False}
        words = "".join(f", {k}={value[k]!r}" for k, v in plain.items() if value.get(k, v) != v)
        return f"pybuda.config.insert_nop({source!r}, {(names[0] if len(names) == 1 else names)!r}{words})"
    port = value.get("port")
    call = "pybuda.config._get_global_compiler_config().insert_queues.append"
    return "\n".join(f"{call}(({source!r}, {name!r}, {port!r}))" for name in names)
