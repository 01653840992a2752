"""Edits as sentences, for tests, tutorials and the command line of a view."""

from __future__ import annotations

import re
from collections.abc import Callable

from tbuda_lab.core.errors import Diagnostic, InputError
from tbuda_lab.core.session.commands import (
    ChipBreak,
    ClearOp,
    Command,
    EpochBreak,
    FormatOp,
    InsertNop,
    InsertQueue,
    Optimise,
    PlaceOp,
    Preload,
    QueueChannel,
    ResizeOp,
    SetUkt,
    StreamOp,
)

GRAMMAR = (
    "resize OP to ROWSxCOLUMNS",
    "move OP to ROW,COLUMN [transposed|upright] [on chip N]",
    "transpose OP",
    "pin OP to chip N",
    "break at OP",
    "unbreak at OP",
    "chip break at OP",
    "chip unbreak at OP",
    "stream OP n|r|c|rz|cz [ROWSxCOLUMNS]",
    "u_kt of OP = N",
    "preload|stream operand N of OP",
    "queue QUEUE to channel N [on chip N]",
    "[N] nop[s] between OP and OP",
    "queue between OP and OP",
    "format of OP = FORMAT",
    "fidelity of OP = FIDELITY",
    "clear OP",
    "optimise",
    "undo",
    "redo",
)
"""What `parse` understands. Names may stand in quotes."""

_OP = r"(?P<op>\"[^\"]+\"|'[^']+'|\S+)"
_TO = _OP.replace("<op>", "<to>")
_PATTERNS: tuple[tuple[str, Callable[[dict[str, str]], Command | str]], ...] = (
    (rf"resize {_OP} to (?P<a>\d+) ?x ?(?P<b>\d+)", lambda m: ResizeOp(m["op"], (int(m["a"]), int(m["b"])))),
    (
        rf"move {_OP} to \(?(?P<a>\d+) ?, ?(?P<b>\d+)\)?(?: (?P<turn>transposed|upright))?(?: on chip (?P<chip>\d+))?",
        lambda m: PlaceOp(
            m["op"],
            (int(m["a"]), int(m["b"])),
            m["turn"] == "transposed" if m.get("turn") else None,
            int(m["chip"]) if m.get("chip") else None,
        ),
    ),
    (rf"transpose {_OP}", lambda m: PlaceOp(m["op"], transpose=True)),
    (rf"pin {_OP} to chip (?P<chip>\d+)", lambda m: PlaceOp(m["op"], chip=int(m["chip"]))),
    (rf"chip break (?:at )?{_OP}", lambda m: ChipBreak(m["op"])),
    (rf"chip unbreak (?:at )?{_OP}", lambda m: ChipBreak(m["op"], on=False)),
    (rf"break (?:at )?{_OP}", lambda m: EpochBreak(m["op"])),
    (rf"unbreak (?:at )?{_OP}", lambda m: EpochBreak(m["op"], on=False)),
    (
        rf"stream {_OP} (?P<dir>n|r|c|rz|cz)(?: (?P<a>\d+) ?x ?(?P<b>\d+))?",
        lambda m: StreamOp(m["op"], m["dir"], (int(m["a"]), int(m["b"])) if m.get("a") else None),
    ),
    (
        rf"(?P<a>preload|stream) operand (?P<b>\d+) of {_OP}",
        lambda m: Preload(m["op"], int(m["b"]), m["a"] == "preload"),
    ),
    (rf"u_kt of {_OP} ?=? ?(?P<a>\d+)", lambda m: SetUkt(m["op"], int(m["a"]))),
    (
        rf"queue {_OP} to channel (?P<a>\d+)(?: on chip (?P<chip>\d+))?",
        lambda m: QueueChannel(m["op"], int(m["a"]), int(m["chip"]) if m.get("chip") else None),
    ),
    (
        rf"(?:(?P<a>\d+) )?nops? between {_OP} and {_TO}",
        lambda m: InsertNop(m["op"], (m["to"],), int(m.get("a", "1"))),
    ),
    (rf"queue between {_OP} and {_TO}", lambda m: InsertQueue(m["op"], (m["to"],))),
    (rf"format of {_OP} = (?P<a>\w+)", lambda m: FormatOp(m["op"], m["a"])),
    (rf"fidelity of {_OP} = (?P<a>\w+)", lambda m: FormatOp(m["op"], fidelity=m["a"])),
    (rf"clear {_OP}", lambda m: ClearOp(m["op"])),
    (r"optimi[sz]e", lambda _: Optimise()),
    (r"undo", lambda _: "undo"),
    (r"redo", lambda _: "redo"),
)


def parse(text: str) -> Command | str:
    """The command a sentence means, or "undo" or "redo". Raises `InputError` listing `GRAMMAR`."""
    words = " ".join(text.split())
    for pattern, make in _PATTERNS:
        match = re.fullmatch(pattern, words)
        if match is not None:
            parts = {k: v for k, v in match.groupdict().items() if v is not None}
            for name in ("op", "to"):
                if parts.get(name, "")[:1] in ("'", '"'):
                    parts[name] = parts[name][1:-1]
            return make(parts)
    fix = "; ".join(GRAMMAR)
    raise InputError(f"{text!r} is not an edit", [Diagnostic("error", text, "gesture", "not understood", fix)])
