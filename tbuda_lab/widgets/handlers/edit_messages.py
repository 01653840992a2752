"""What a page may ask to be edited, as commands: one place that reads messages, and trusts none of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.session import (
    ChipBreak,
    ClearOp,
    Command,
    Constrain,
    EpochBreak,
    FormatOp,
    PlaceOp,
    Preload,
    QueueChannel,
    Reorder,
    ResizeOp,
    Session,
    SetUkt,
    StreamOp,
)
from tbuda_lab.core.session.commands import Disable, InsertNop, InsertQueue, SetOverride
from tbuda_lab.core.session.history import disabled
from tbuda_lab.core.session.journal import parse_overrides
from tbuda_lab.core.session.temporal import into_epoch, shift_break

MANY = 512
"""Edits of one gesture at most."""


def commands_of(content: Mapping[str, Any], session: Session) -> tuple[Command, ...]:
    """The edits that a message asks for, one undo step. Raises `InputError` or `OverrideError` for one that makes no
    sense."""
    do = content.get("do")
    if do == "many":
        parts = content.get("edits")
        if not isinstance(parts, list) or not 0 < len(parts) <= MANY or not all(isinstance(p, Mapping) for p in parts):
            raise InputError(f"a gesture is a list of 1 to {MANY} edits")
        if any(p.get("do") == "many" for p in parts):
            raise InputError("a gesture holds edits, not gestures")
        return tuple(c for p in parts for c in commands_of(p, session))
    if do in _LISTS:
        return _LISTS[str(do)](content, session)
    op = content.get("op")
    if not isinstance(op, str) or not op:
        raise InputError("an edit names its op")
    make = _EDITS.get(str(do))
    if make is None:
        raise InputError(f"unknown edit {do!r}; known: many, {', '.join((*_LISTS, *_EDITS))}")
    return make(op, content, session)


def label_of(content: Mapping[str, Any], commands: tuple[Command, ...]) -> str:
    """What a person reads in the undo list: the page's own words for a gesture of many edits, else the edits'."""
    label = content.get("label")
    if isinstance(label, str) and label.strip() and len(commands) > 1:
        return label.strip()[:200]
    return ", ".join(c.label for c in commands[:3]) + (f" and {len(commands) - 3} more" if len(commands) > 3 else "")


def pin_of(session: Session, op: str) -> dict[str, Any]:
    """The parts of an op's place that an override fixes."""
    return next((dict(o.value) for o in session.overrides if o.kind == "op_placement" and o.target == op), {})


Commands = tuple[Command, ...]


def _resize(op: str, content: Mapping[str, Any], _session: Session) -> Commands:
    return (ResizeOp(op, _pair(content.get("size"))),)


def _move(op: str, content: Mapping[str, Any], session: Session) -> Commands:
    """To a start; `transposed`: whether its grid is to be turned, left as it is when it isn't said."""
    pin = pin_of(session, op)
    turned = content.get("transposed")
    if turned is None:
        turned = pin.get("transpose")
    place = PlaceOp(op, _pair(content.get("start")), True if turned else None, pin.get("chip"))
    return (place,)


def _pin(op: str, content: Mapping[str, Any], session: Session) -> Commands:
    """Where it stands, or not any more."""
    if content.get("on") is False:
        return (ClearOp(op, ("op_placement",)),)
    spot = session.placed().ops().get(op)
    if spot is None:
        raise InputError(f"{op!r} is not an op of the placed graph")
    return (
        PlaceOp(op, (spot.start[0], spot.start[1]), True if spot.transposed else None, pin_of(session, op).get("chip")),
    )


def _chip(op: str, content: Mapping[str, Any], session: Session) -> Commands:
    """To a chip; the place on it is free again."""
    chip = content.get("chip")
    if type(chip) is not int:
        raise InputError(f"a chip is a number, not {chip!r}")
    chips = len(session.device.chips)
    if not 0 <= chip < chips:
        raise InputError(f"there is no chip {chip}; the device has {chips}")
    return (PlaceOp(op, None, pin_of(session, op).get("transpose"), chip),)


def _epoch(op: str, content: Mapping[str, Any], session: Session) -> Commands:
    epoch = content.get("epoch")
    if type(epoch) is not int:
        raise InputError(f"an epoch is a number, not {epoch!r}")
    start = content.get("start")
    return into_epoch(session, op, epoch, None if start is None else _pair(start))


def _break(op: str, content: Mapping[str, Any], _session: Session) -> Commands:
    return (EpochBreak(op, content.get("on") is not False),)


def _chip_break(op: str, content: Mapping[str, Any], _session: Session) -> Commands:
    return (ChipBreak(op, content.get("on") is not False),)


def _shift(op: str, content: Mapping[str, Any], _session: Session) -> Commands:
    to = content.get("to")
    if not isinstance(to, str) or not to:
        raise InputError("a break is moved before an op")
    return shift_break(op, to, str(content.get("kind") or "epoch_break"))


def _clear(op: str, content: Mapping[str, Any], _session: Session) -> Commands:
    return (ClearOp(op, _kinds(content)),)


def _switch(op: str, content: Mapping[str, Any], session: Session) -> Commands:
    kinds = _kinds(content)
    if content.get("on") is not True:
        return (Disable(op, kinds),)
    off = [o for o in disabled(session.history) if o.target == op and (not kinds or o.kind in kinds)]
    if not off:
        raise InputError(f"no override of {op!r} is switched off")
    return tuple(SetOverride(o) for o in off)


def _ukt(op: str, content: Mapping[str, Any], _session: Session) -> Commands:
    value = content.get("value")
    if value is None:
        return (ClearOp(op, ("u_kt",)),)
    return (SetUkt(op, value),)


def _stream(op: str, content: Mapping[str, Any], _session: Session) -> Commands:
    way, shape = content.get("direction"), content.get("shape")
    if way is None and shape is None:
        return (ClearOp(op, ("t_stream_dir", "t_stream_shape")),)
    return (StreamOp(op, way, None if shape is None else _pair(shape)),)


def _buffer(op: str, content: Mapping[str, Any], session: Session) -> Commands:
    """The multiplier of one operand's buffer; null: as without."""
    operand, factor = content.get("operand"), content.get("factor")
    if type(operand) is not int or not (factor is None or type(factor) is int):
        raise InputError("a buffer is an operand's number and a factor")
    kind = "input_buffer_multiplier"
    now = next((dict(o.value) for o in session.overrides if o.kind == kind and o.target == op), {})
    now.pop(operand, None)
    if factor is not None:
        now[operand] = factor
    if not now:
        return (ClearOp(op, (kind,)),)
    return (SetOverride(Override(kind, op, dict(sorted(now.items())), "edit")),)


def _prologue(op: str, content: Mapping[str, Any], _session: Session) -> Commands:
    """A parameter kept in L1 from before the first input, or streamed for every input."""
    operand, on = content.get("operand"), content.get("on")
    if type(operand) is not int or type(on) is not bool:
        raise InputError("a parameter is an operand's number, and on is true (preload) or false (stream)")
    return (Preload(op, operand, on),)


def _channel(queue: str, content: Mapping[str, Any], session: Session) -> Commands:
    """A queue to a DRAM channel, and to a chip where one is given."""
    if session.result is None or queue not in session.result.placement.queues:
        raise InputError(f"{queue!r} is not a queue of the placement")
    return (QueueChannel(queue, content.get("channel"), content.get("chip")),)


def _edge(kind: type[InsertNop | InsertQueue]) -> Callable[[str, Mapping[str, Any], Session], Commands]:
    """An edit of the edge from the op to a reader."""

    def make(op: str, content: Mapping[str, Any], _session: Session) -> Commands:
        to = content.get("to")
        if not isinstance(to, str) or not to:
            raise InputError("an edge has an op at its end")
        return (kind(op, (to,)),)

    return make


def _format(op: str, content: Mapping[str, Any], _session: Session) -> Commands:
    """A data format, or a fidelity; null: as without."""
    kind = "math_fidelity" if content.get("of") == "fidelity" else "data_format"
    value = content.get("value")
    if value is None:
        return (ClearOp(op, (kind,)),)
    if not isinstance(value, str):
        raise InputError(f"a format has a name, not {value!r}")
    return (FormatOp(op, fidelity=value) if kind == "math_fidelity" else FormatOp(op, value),)


def _reorder(content: Mapping[str, Any], session: Session) -> Commands:
    """An override to another place of the list; places count from 0."""
    at, to = content.get("at"), content.get("to")
    if type(at) is not int or type(to) is not int or not 0 <= min(at, to) <= max(at, to) < len(session.overrides):
        raise InputError(f"places of overrides are numbers below {len(session.overrides)}, not {at!r} and {to!r}")
    return (Reorder(at, to),) if at != to else ()


def _constrain(content: Mapping[str, Any], _session: Session) -> Commands:
    ops = content.get("ops")
    if not isinstance(ops, list) or not all(isinstance(n, str) for n in ops):
        raise InputError("an order is a list of names")
    return (Constrain(tuple(ops), content.get("on") is not False),)


def _load(content: Mapping[str, Any], _session: Session) -> Commands:
    """The text of a file of overrides."""
    text, name = content.get("text"), content.get("name")
    if not isinstance(text, str):
        raise InputError("the text of a file is wanted")
    result = parse_overrides(text, name if isinstance(name, str) and name else "overrides")
    if not result:
        raise InputError("there are no overrides in that file")
    return tuple(SetOverride(o) for o in result)


_LISTS = {"reorder": _reorder, "constrain": _constrain, "load": _load}
"""Edits that are not about one op."""

_EDITS = {
    "resize": _resize, "move": _move, "pin": _pin, "chip": _chip, "epoch": _epoch, "break": _break,
    "chip_break": _chip_break, "shift_break": _shift, "clear": _clear, "switch": _switch, "u_kt": _ukt,
    "stream": _stream, "buffer": _buffer, "prologue": _prologue, "channel": _channel, "format": _format,
    "nop": _edge(InsertNop), "queue": _edge(InsertQueue),
}  # fmt: skip


def _kinds(content: Mapping[str, Any]) -> tuple[str, ...]:
    kinds = content.get("kinds") or ()
    return tuple(str(k) for k in kinds) if isinstance(kinds, (list, tuple)) else (str(kinds),)


def _pair(value: Any) -> tuple[int, int]:
    if not isinstance(value, (list, tuple)) or len(value) != 2 or not all(type(v) is int for v in value):
        raise InputError(f"two whole numbers are wanted, not {value!r}")
    return value[0], value[1]


def message_of(command: Command) -> dict[str, Any]:
    """The message that asks for a command: `commands_of` turned round. Raises `InputError` for one that pages have no
    message for."""
    if isinstance(command, ResizeOp):
        return {"do": "resize", "op": command.op, "size": list(command.size)}
    if isinstance(command, ChipBreak):
        return {"do": "chip_break", "op": command.op, "on": command.on}
    if isinstance(command, EpochBreak):
        return {"do": "break", "op": command.op, "on": command.on}
    if isinstance(command, Constrain):
        return {"do": "constrain", "ops": list(command.ops), "on": command.on}
    if isinstance(command, SetUkt):
        return {"do": "u_kt", "op": command.op, "value": command.u_kt}
    if isinstance(command, StreamOp):
        shape = None if command.shape is None else list(command.shape)
        return {"do": "stream", "op": command.op, "direction": command.direction, "shape": shape}
    if isinstance(command, Preload):
        return {"do": "prologue", "op": command.op, "operand": command.operand, "on": command.on}
    if isinstance(command, InsertNop) and len(command.to) == 1:
        return {"do": "nop", "op": command.op, "to": command.to[0]}
    if type(command) is ClearOp:
        return {"do": "clear", "op": command.op, "kinds": list(command.kinds)}
    raise InputError(f"a page cannot ask for {command.label}")


def needless(commands: tuple[Command, ...], session: Session) -> bool:
    """Whether edits would be an undo step that changes nothing."""
    state = session._state.history.state
    after = state
    for command in commands:
        after = command.apply(after)
    return after.key == state.key
