"""Frames of editing: the legal shapes of one op, and the edits with what came of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from tbuda_lab.core.frames import Frame
from tbuda_lab.core.overrides import Override, override_python, value_text
from tbuda_lab.core.session import LegalTable, OverrideRecord, Session
from tbuda_lab.core.session.history import disabled, sources

_NAMES_SHOWN = 20
_COLUMNS = (
    "limiter", "epoch_op", "edge", "cycles", "limiter_cycles", "epoch_kernel_cycles", "epoch_cycles", "time",
    "l1_bytes", "cores",
)  # fmt: skip


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
        "op": table.op, "rev": rev, "seq": seq, "rows": table.shapes.shape[0], "cols": table.shapes.shape[1],
        "grid": list(table.grid), "start": list(table.start), "transposed": table.transposed, "reasons": reasons,
        "limiters": list(table.limiters), "ops": list(table.ops),
        "edges": {str(k): text for k, text in table.edges.items()},
    }  # fmt: skip
    return Frame("legal", meta, columns)


def edits_frame(session: Session, busy: bool, shown: str = "") -> Frame:
    """Undo and redo labels, whether the picture is older than the edits, and every override with what it obtained.

    shown: the edit that the other frames show although it is not made. `order` of an override: whether its place among
    the others matters; `at`: that place.
    """
    history, future = session.history, session.future
    by, records = sources(history), session.records
    meta = {
        "rev": session.rev, "stale": bool(session.stale), "busy": busy,
        "undo": history[-1].label if history else "", "redo": future[0].label if future else "",
        "overrides": [_record(r, by) | placed for r, placed in zip(records, _order(records), strict=True)]
        + [_off(o, by) for o in disabled(history)],
        **({"shown": shown} if shown else {}),
    }  # fmt: skip
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
        "target": target, "field": override.kind, "requested": value_text(override.kind, override.value),
        "obtained": "", "state": "off", "because": "", "python": override_python(override), "matches": 0,
        "names": [target], "removable": True, "enabled": False, "source": _source(override, by),
    }  # fmt: skip


def _record(record: OverrideRecord, by: Mapping[tuple[str, str], str]) -> dict[str, Any]:
    kind, target = record.kind, record.override.target
    requested = record.requested
    got = set()
    for value in record.obtained.values():
        if isinstance(value, dict) and isinstance(requested, dict):  # a pin asks for parts of a place
            value = {k: v for k, v in value.items() if k in requested}
        got.add(value_text(kind, value))
    return {
        "target": record.target, "field": kind, "requested": value_text(kind, requested),
        "obtained": ", ".join(sorted(got)), "state": record.state, "because": record.because, "python": record.python,
        "matches": record.matches, "names": list(record.matched[:_NAMES_SHOWN]),
        "removable": isinstance(record.override.target, str), "enabled": True,
        **({"ops": list(target)} if kind == "schedule_constraint" and isinstance(target, tuple) else {}),
        "source": _source(record.override, by),
    }  # fmt: skip
