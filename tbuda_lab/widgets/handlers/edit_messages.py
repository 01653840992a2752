"""Edits between page and kernel: messages become commands (none is trusted), legal shapes and
edits become frames."""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import numpy as np

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files.codec import fields_of
from tbuda_lab.core.frames import Frame
from tbuda_lab.core.overrides import Override, override_python, value_text
from tbuda_lab.core.overrides.candidates import InputBuffers
from tbuda_lab.core.overrides.places import OpPin
from tbuda_lab.core.session import ClearOp, Command, LegalTable, OverrideRecord, PlaceOp, QueueChannel, Session
from tbuda_lab.core.session.commands import COMMANDS, SetOptions, SetOverride
from tbuda_lab.core.session.history import disabled_overrides, sources
from tbuda_lab.core.session.journal import command_data, command_of, parse_overrides
from tbuda_lab.core.session.temporal import into_epoch, shift_break

MAX_EDITS = 512
"""Edits of one message at most."""

ENVELOPE = ("type", "do", "label", "compile", "echo")
"""Keys of a message beside the fields of its edit: how it is sent, and what is done with it afterwards."""

PAGE_COMMANDS: dict[str, type[Command]] = {
    name: kind for name, kind in COMMANDS.items() if kind not in (SetOptions, SetOverride)
}
"""Commands that a page sends as they are, by name: those whose fields are their JSON."""


@dataclasses.dataclass(frozen=True)
class Gesture:
    """An edit of a page that needs the session to become commands. Its fields are those of the message."""

    name: ClassVar[str] = ""

    def commands(self, session: Session) -> tuple[Command, ...]:
        """Raises `InputError` or `OverrideError` for one that makes no sense here."""
        raise NotImplementedError


@dataclasses.dataclass(frozen=True)
class Move(Gesture):
    """An op to a start (row, column); what else is pinned of its place stays. transposed: None leaves that too."""

    op: str
    start: tuple[int, int]
    transposed: bool | None = None
    name: ClassVar[str] = "move"

    def commands(self, session: Session) -> tuple[Command, ...]:
        pin = pin_of(session, self.op)
        transposed = pin.get("transpose") if self.transposed is None else self.transposed
        return (PlaceOp(self.op, self.start, True if transposed else None, pin.get("chip")),)


@dataclasses.dataclass(frozen=True)
class Pin(Gesture):
    """An op stays where it stands now."""

    op: str
    name: ClassVar[str] = "pin"

    def commands(self, session: Session) -> tuple[Command, ...]:
        spot = session.placed().ops().get(self.op)
        if spot is None:
            raise InputError(f"{self.op!r} is not an op of the placed graph")
        start, chip = (spot.start[0], spot.start[1]), pin_of(session, self.op).get("chip")
        return (PlaceOp(self.op, start, True if spot.transposed else None, chip),)


@dataclasses.dataclass(frozen=True)
class ToChip(Gesture):
    """An op to a chip; its place there is for the placer to choose."""

    op: str
    chip: int
    name: ClassVar[str] = "chip"

    def commands(self, session: Session) -> tuple[Command, ...]:
        chips = len(session.device.chips)
        if not 0 <= self.chip < chips:
            raise InputError(f"there is no chip {self.chip}; the device has {chips}")
        return (PlaceOp(self.op, None, pin_of(session, self.op).get("transpose"), self.chip),)


@dataclasses.dataclass(frozen=True)
class ToEpoch(Gesture):
    """An op to another epoch, and there to a start if one is given."""

    op: str
    epoch: int
    start: tuple[int, int] | None = None
    name: ClassVar[str] = "epoch"

    def commands(self, session: Session) -> tuple[Command, ...]:
        return into_epoch(session.compiles, self.op, self.epoch, self.start)


@dataclasses.dataclass(frozen=True)
class ShiftBreak(Gesture):
    """The break before an op to before another op. kind: that of the override."""

    op: str
    to: str
    kind: str = "epoch_break"
    name: ClassVar[str] = "shift-break"

    def commands(self, session: Session) -> tuple[Command, ...]:
        return shift_break(self.op, self.to, self.kind)


@dataclasses.dataclass(frozen=True)
class BufferFactor(Gesture):
    """The factor of one operand's input buffer; None takes it away. Those of other operands stay."""

    op: str
    operand: int
    factor: int | None
    name: ClassVar[str] = "buffer"

    def commands(self, session: Session) -> tuple[Command, ...]:
        kind = InputBuffers.kind
        factors = next((dict(o.value) for o in session.overrides if o.kind == kind and o.target == self.op), {})
        factors.pop(self.operand, None)
        if self.factor is not None:
            factors[self.operand] = self.factor
        if not factors:
            return (ClearOp(self.op, (kind,)),)
        return (SetOverride(Override(kind, self.op, dict(sorted(factors.items())), "edit")),)


@dataclasses.dataclass(frozen=True)
class Enable(Gesture):
    """The overrides of an op that were switched off hold again: all, or those of these kinds."""

    op: str
    kinds: tuple[str, ...] = ()
    name: ClassVar[str] = "enable"

    def commands(self, session: Session) -> tuple[Command, ...]:
        off = [
            o
            for o in disabled_overrides(session.history)
            if o.target == self.op and (not self.kinds or o.kind in self.kinds)
        ]
        if not off:
            raise InputError(f"no override of {self.op!r} is switched off")
        return tuple(SetOverride(o) for o in off)


@dataclasses.dataclass(frozen=True)
class LoadOverrides(Gesture):
    """The overrides in the text of a file. file: its name, for errors."""

    text: str
    file: str = "overrides"
    name: ClassVar[str] = "load"

    def commands(self, session: Session) -> tuple[Command, ...]:
        result = parse_overrides(self.text, self.file)
        if not result:
            raise InputError("there are no overrides in that file")
        return tuple(SetOverride(o) for o in result)


GESTURES: dict[str, type[Gesture]] = {
    g.name: g for g in (Move, Pin, ToChip, ToEpoch, ShiftBreak, BufferFactor, Enable, LoadOverrides)
}
MANY = "many"
"""The name of a message whose `edits` are one undo step; `label`: what a person reads in the undo list."""


def commands_of(content: Mapping[str, Any], session: Session) -> tuple[Command, ...]:
    """The edits that a message asks for, one undo step. Raises `InputError` or `OverrideError` for one that makes no
    sense."""
    name = content.get("do")
    if name == MANY:
        parts = content.get("edits")
        if not isinstance(parts, list) or not 0 < len(parts) <= MAX_EDITS:
            raise InputError(f"{MANY!r} is a list of 1 to {MAX_EDITS} edits")
        if not all(isinstance(p, Mapping) and p.get("do") != MANY for p in parts):
            raise InputError(f"{MANY!r} holds single edits")
        return tuple(c for p in parts for c in commands_of(p, session))
    fields = {k: v for k, v in content.items() if k not in ENVELOPE}
    if name in GESTURES:
        return read_gesture(GESTURES[name], fields).commands(session)
    if name not in PAGE_COMMANDS:
        raise InputError(f"unknown edit {name!r}; known: {', '.join((MANY, *GESTURES, *PAGE_COMMANDS))}")
    command = command_of(str(name), fields)
    queues = () if session.result is None else session.result.placement.queues
    if isinstance(command, QueueChannel) and command.queue not in queues:
        raise InputError(f"{command.queue!r} is not a queue of the placement")
    return (command,)


def message_of(command: Command) -> dict[str, Any]:
    """The message that asks for a command. Raises `InputError` for one that pages cannot ask for."""
    if command.name not in PAGE_COMMANDS:
        raise InputError(f"a page cannot ask for {command.label}")
    return command_data(command, lambda _: ())


def read_gesture(kind: type[Gesture], fields: Mapping[str, Any]) -> Gesture:
    """A gesture from the fields of its message. Raises `InputError` for a field that is missing, unknown or of another
    type."""
    values = fields_of(kind, fields, kind.name)
    for name, value in values.items():
        if value == "" or (isinstance(value, tuple) and "" in value):
            raise InputError(f"{kind.name}.{name} is a name, not an empty text")
    return kind(**values)


def type_text(hint: Any) -> str:
    """The type of a field in TypeScript."""
    if isinstance(hint, types.UnionType):
        return " | ".join(map(type_text, typing.get_args(hint)))
    if typing.get_origin(hint) is tuple:
        parts = typing.get_args(hint)
        return f"{type_text(parts[0])}[]" if parts[1:] == (...,) else f"[{', '.join(map(type_text, parts))}]"
    return {str: "string", int: "number", bool: "boolean", types.NoneType: "null"}[hint]


def label_of(words: Any, commands: tuple[Command, ...]) -> str:
    """What a person reads in the undo list: the page's own words for several edits, else the edits'."""
    if isinstance(words, str) and words.strip() and len(commands) > 1:
        return words.strip()[:200]
    return ", ".join(c.label for c in commands[:3]) + (f" and {len(commands) - 3} more" if len(commands) > 3 else "")


def pin_of(session: Session, op: str) -> dict[str, Any]:
    """The parts of an op's place that an override fixes."""
    pins = (o for o in session.overrides if o.kind == OpPin.kind and o.target == op)
    return next((dict(o.value) for o in pins), {})


_NAMES_SHOWN = 20
_COLUMNS = (
    "limiter",
    "epoch_op",
    "edge",
    "cycles",
    "limiter_cycles",
    "epoch_kernel_cycles",
    "epoch_cycles",
    "time",
    "l1_bytes",
    "cores",
)


def legal_frame(table: LegalTable, rev: int, seq: int) -> Frame:
    """Everything a drag of one op needs, in one frame; at most 6 KB for 10 x 12 cores.

    Columns, one value per shape, row by row: `verdict` (0 legal, else a key of meta `reasons`); cycles per input of the
    kernel (`cycles`, as tiles of the grid show them) and with its data (`limiter_cycles`; `limiter`: of meta
    `limiters`), of the epoch's slowest kernel (`epoch_kernel_cycles`) and slowest op (`epoch_cycles`; `epoch_op`: of
    meta `ops`), of the whole model (`time`, an estimate); `edge` (0, or a key of meta `edges`), `l1_bytes`, `cores`.
    `anchors`: for every shape one bit mask per row of the grid, bit x is set where the shape may start. seq: the
    question's number, so that an older answer can be told.
    """
    shapes = table.shapes.reshape(-1)
    masks = table.anchors.reshape(-1)
    narrow = table.shapes.shape[1] <= 16
    columns = {
        "verdict": np.ascontiguousarray(shapes["verdict"]),
        **{name: np.ascontiguousarray(shapes[name]) for name in _COLUMNS},
        "anchors": masks.astype("<u2" if narrow else "<u4"),
    }
    reasons = {str(k): {"name": r.name, "meaning": r.meaning, "fix": r.fix} for k, r in table.reasons.items()}
    meta = {
        "op": table.op,
        "rev": rev,
        "seq": seq,
        "rows": table.shapes.shape[0],
        "cols": table.shapes.shape[1],
        "grid": list(table.grid),
        "start": list(table.start),
        "transposed": table.transposed,
        "reasons": reasons,
        "limiters": list(table.limiters),
        "ops": list(table.ops),
        "edges": {str(k): text for k, text in table.edges.items()},
    }
    return Frame("legal", meta, columns)


def edits_frame(session: Session, busy: bool, shown: str = "", first: bool = False) -> Frame:
    """Undo and redo labels, whether the picture is older than the edits, and every override with what it obtained.

    shown: the edit that the other frames show although it is not made. first: they show the first placement, before a
    better one is found. `order` of an override: whether its place among
    the others matters; `at`: that place.
    """
    history, future = session.history, session.future
    by, records = sources(history), session.records
    meta = {
        "rev": session.rev,
        "stale": bool(session.stale),
        "busy": busy,
        "undo": history[-1].label if history else "",
        "redo": future[0].label if future else "",
        "overrides": [_record(r, by) | placed for r, placed in zip(records, _order(records), strict=True)]
        + [_off(o, by) for o in disabled_overrides(history)],
        **({"shown": shown} if shown else {}),
        **({"first": True} if first else {}),
    }
    return Frame("edits", meta)


def _order(records: Sequence[OverrideRecord]) -> list[dict[str, Any]]:
    """Order matters between overrides of a kind that reach the same op, and among nops, and among queues."""
    reach: dict[tuple[str, str], int] = {}
    for record in records:
        for name in {*record.matched, *((record.target,) if isinstance(record.override.target, str) else ())}:
            reach[record.kind, name] = reach.get((record.kind, name), 0) + 1
    kinds = [r.kind for r in records]
    return [
        {
            "at": at,
            "order": (r.kind in ("insert_nop", "insert_queue") and kinds.count(r.kind) > 1)
            or any(reach.get((r.kind, name), 0) > 1 for name in (r.target, *r.matched)),
        }
        for at, r in enumerate(records)
    ]


_BY = {"page": "drag", "gesture": "gesture"}


def _source(override: Override, by: Mapping[tuple[str, str], str]) -> str:
    """Who asked: drag, gesture, code, file, or what the step's source says ("cell [12]")."""
    entry = by.get((override.kind, override.target), override.source) if isinstance(override.target, str) else "code"
    return _BY.get(entry, entry)


def _off(override: Override, by: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    """An override that is switched off."""
    target = str(override.target)
    return {
        "target": target,
        "field": override.kind,
        "requested": value_text(override.kind, override.value),
        "obtained": "",
        "state": "off",
        "because": "",
        "python": override_python(override),
        "matches": 0,
        "names": [target],
        "removable": True,
        "enabled": False,
        "source": _source(override, by),
    }


def _record(record: OverrideRecord, by: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    kind, target = record.kind, record.override.target
    requested = record.requested
    got = set()
    for value in record.obtained.values():
        if isinstance(value, dict) and isinstance(requested, dict):  # a pin asks for parts of a place
            value = {k: v for k, v in value.items() if k in requested}
        got.add(value_text(kind, value))
    return {
        "target": record.target,
        "field": kind,
        "requested": value_text(kind, requested),
        "obtained": ", ".join(sorted(got)),
        "state": record.state,
        "because": record.because,
        "python": record.python,
        "matches": record.matches,
        "names": list(record.matched[:_NAMES_SHOWN]),
        "removable": isinstance(record.override.target, str),
        "enabled": True,
        **({"ops": list(target)} if kind == "schedule_constraint" and isinstance(target, tuple) else {}),
        "source": _source(record.override, by),
    }
