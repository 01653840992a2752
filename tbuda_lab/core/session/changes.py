"""What a search changed, as single edits of the placement before it: a part of them can be made without the rest."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tbuda_lab.core.balancer.types import OpPlacement
from tbuda_lab.core.compiler import Request
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.options import LOWERING, options_changed
from tbuda_lab.core.placer.interactive.placed_ops import PlacedOps
from tbuda_lab.core.session.command import Command
from tbuda_lab.core.session.commands import EpochBreak, ResizeOp, SetOptions
from tbuda_lab.core.session.whatif import time_of

if TYPE_CHECKING:
    from tbuda_lab.core.session.compiles import Compiles

MAX_CHANGES = 400
MAX_PRICED = 64
"""Changes of which it is worked out what each gains alone."""
PRICING_SECONDS = 4.0


@dataclasses.dataclass(frozen=True)
class PlacementChange:
    """One difference of a placement from the one before it. kind: "lowering" (other ops for the same model), "shape" or
    "epoch". op: whose; epoch: of the placement before, -1 where the op was not in it. gain: cycles per input that it
    saves alone, None where that was not worked out, or it is refused alone."""

    kind: str
    text: str
    command: Command
    op: str = ""
    epoch: int = -1
    gain: float | None = None


def changes_of(compiles: Compiles, before: Request, after: Request) -> tuple[PlacementChange, ...]:
    """The differences between two states of a session that were placed: options of the lowering first, then what gains
    most alone. An edit has to be one of the state before, so shapes of ops that only the other lowering has are not
    told apart from it."""
    old, new = compiles.placed(before), compiles.placed(after)
    changes = [*_lowering(before, after), *_shapes(old, new), *_epochs(old, new)][:MAX_CHANGES]
    end, priced = time.monotonic() + PRICING_SECONDS, []
    cycles = time_of(old).per_input
    for number, change in enumerate(changes):
        gain = None
        if number < MAX_PRICED and time.monotonic() < end:
            try:
                gain = cycles - time_of(compiles.placed(change.command.apply(before))).per_input
            except TbudaError:  # not without the others
                gain = None
        priced.append(dataclasses.replace(change, gain=gain))
    known = [c for c in priced if c.kind != "lowering"]
    known.sort(key=lambda c: (c.gain is None, -(c.gain or 0.0)))
    return (*(c for c in priced if c.kind == "lowering"), *known)


def _lowering(before: Request, after: Request) -> Iterator[PlacementChange]:
    for name, value in options_changed(before.options, after.options).items():
        if name in LOWERING:
            shown = ", ".join(f"{op}: {n}" for op, n in value[:3]) if isinstance(value, tuple) else str(value)
            more = f" and {len(value) - 3} more" if isinstance(value, tuple) and len(value) > 3 else ""
            yield PlacementChange("lowering", f"{name} = {shown}{more}", SetOptions(**{name: value}))


def own_grid(spot: OpPlacement) -> tuple[int, int]:
    """Rows and columns of an op's own grid, which is turned where it stands transposed."""
    rows, columns = spot.size
    return (columns, rows) if spot.transposed else (rows, columns)


def _shapes(old: PlacedOps, new: PlacedOps) -> Iterator[PlacementChange]:
    spots = new.ops()
    for op, spot in old.ops().items():
        if op in spots and own_grid(spot) != own_grid(spots[op]):
            (r, c), (rows, columns) = own_grid(spot), own_grid(spots[op])
            yield PlacementChange(
                "shape", f"{op}: {r}×{c} → {rows}×{columns}", ResizeOp(op, (rows, columns)), op, spot.epoch
            )


def _epochs(old: PlacedOps, new: PlacedOps) -> Iterator[PlacementChange]:
    """Ops that begin an epoch now and did not before."""
    before, after = _first_ops(old), _first_ops(new)
    places = old.ops()
    for op in after:
        if op not in before and op in places:
            yield PlacementChange("epoch", f"{op} begins an epoch", EpochBreak(op), op, places[op].epoch)


def _first_ops(placed: PlacedOps) -> list[str]:
    return [placed.problem.order[s.first] for s in placed.segments[1:]]
