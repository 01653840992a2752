"""What a timeline is told besides its trace: the stretch of time, which rows are open, which ops, cursors, playing."""

from __future__ import annotations

import math
import numbers
from typing import Any

import traitlets

from tbuda_lab.core.errors import InputError

LEVELS = ("", "epochs", "ops", "cores")


class TraceTraits(traitlets.HasTraits):
    """Traits of the timeline, settable from Python; the page sets them when somebody moves about, once it rests.

    t0, t1: the stretch of cycles in sight, from `t0` to before `t1` (None: to the end); `window` sets both at once.
    level: which rows are open: "epochs" none, "ops" all epochs, "cores" all ops too; "" for those that somebody opened,
    or that the view opens at first. lanes: names of the only ops shown, () for all. cursors: the cycles of at most two
    cursors. play: whether the playhead moves, a window in twelve seconds.
    """

    t0 = traitlets.Float(0.0).tag(sync=True, echo_update=False)
    t1 = traitlets.Float(None, allow_none=True).tag(sync=True, echo_update=False)
    level = traitlets.Enum(LEVELS, "").tag(sync=True)
    lanes = traitlets.List(traitlets.Unicode()).tag(sync=True)
    cursors = traitlets.List(traitlets.Float(), maxlen=2).tag(sync=True, echo_update=False)
    play = traitlets.Bool(False).tag(sync=True)

    def window(self, t0: float = 0.0, t1: float | None = None) -> None:
        """Show the cycles from `t0` to before `t1` (default: to the end). Raises `InputError` for no stretch."""
        if not _cycle(t0) or not (t1 is None or _cycle(t1)) or (t1 is not None and t0 >= t1):
            raise InputError(f"a stretch of time goes from a cycle to a later one, not from {t0} to {t1}")
        with self.hold_trait_notifications():
            self.t0, self.t1 = t0, t1

    @traitlets.validate("t0", "t1")
    def _stretch(self, proposal: Any) -> float | None:
        value: float | None = proposal["value"]
        name = proposal["trait"].name
        if value is None:
            return None
        if not _cycle(value):
            raise traitlets.TraitError(f"{name} is a cycle, 0 or later, not {value}")
        t0, t1 = (value, self.t1) if name == "t0" else (self.t0, value)
        if t1 is not None and t0 >= t1:
            raise traitlets.TraitError(f"cycle {t0:g} (t0) is not before {t1:g} (t1); window(t0, t1) sets both at once")
        return value

    @traitlets.validate("cursors")
    def _cycles(self, proposal: Any) -> list[float]:
        value: list[float] = proposal["value"]
        if not all(map(_cycle, value)):
            raise traitlets.TraitError(f"cursors stand on cycles, 0 or later, not {value}")
        return value


def _cycle(value: object) -> bool:
    return isinstance(value, numbers.Real) and math.isfinite(value) and float(value) >= 0
