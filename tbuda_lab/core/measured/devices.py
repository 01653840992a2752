"""Which ops of several devices are the same op, and which are parts of one run.

A device's ops are its lane. Lanes of the same ops are copies, of which the slowest counts: one op was launched on all
of them. Lanes of other ops are parts of one run, as of a model that is cut into stages, and all of them count. Lanes of
the same ops that lie one behind the other may be either; they are taken for copies unless a model says otherwise.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from tbuda_lab.core.errors import Diagnostic, quantity

Lane = list[int]
"""Places of a device's ops among all, in order."""
COPIES = "profile-copies"
"""Rule of the finding that lanes one behind the other are taken for copies."""
_LAUNCH = 10
"""Bits of the device in a global call count of new files; above them it is the same for all devices of a launch."""
MOST_DEVICES = 1 << _LAUNCH
"""Devices of one run, at most: lanes are compared in pairs, so a file may not have as many as it has ops."""
_NAMED = 4


class Launched(Protocol):
    """What is asked of an op: see `MeasuredOp`."""

    @property
    def code(self) -> str: ...
    @property
    def device(self) -> int: ...
    @property
    def call(self) -> int: ...
    @property
    def duration(self) -> float: ...
    @property
    def signature(self) -> tuple[object, ...]: ...


Op = TypeVar("Op", bound=Launched)


class Devices(Generic[Op]):
    """The lanes of a run. groups: lanes by what they run, the longest of each first; a lane belongs to one that it is
    the same as, or the begin of. parts: lanes one behind the other are no copies, even of the same ops."""

    def __init__(self, ops: Sequence[Op], parts: bool = False) -> None:
        self._ops = ops
        self._facts = functools.cache(self._facts_of)  # by device
        lanes: dict[int, Lane] = {}
        for at, op in enumerate(ops):
            lanes.setdefault(op.device, []).append(at)
        self._lanes = lanes
        self.groups: list[list[Lane]] = []
        for lane in sorted(lanes.values(), key=len, reverse=True):
            home = next((g for g in self.groups if self._same_ops(g[0], lane, parts)), None)
            if home is None:
                self.groups.append([lane])
            else:
                home.append(lane)

    def _facts_of(self, device: int) -> tuple[list[str], tuple[int, int], tuple[int, int] | None]:
        """Of a lane its codes, its first and last place, and its first and last launch, None where the file does not
        say them."""
        lane = self._lanes[device]
        ops, bits = [self._ops[at] for at in lane], (1 << _LAUNCH) - 1
        known = all(op.call >> _LAUNCH and op.call & bits == op.device for op in ops)
        launches = [op.call >> _LAUNCH for op in ops]
        return [op.code for op in ops], (lane[0], lane[-1]), (min(launches), max(launches)) if known else None

    def _of(self, lane: Lane) -> tuple[list[str], tuple[int, int], tuple[int, int] | None]:
        return self._facts(self._ops[lane[0]].device)

    def _same_ops(self, long: Lane, lane: Lane, parts: bool) -> bool:
        codes, others = self._of(long)[0], self._of(lane)[0]
        if codes[0] != others[0] or codes[: len(others)] != others:
            return False
        if not self._apart(long, lane):
            return True  # of other shapes, too: shares of one tensor
        pairs = zip(long, lane, strict=False)
        return not parts and all(self._ops[i].signature == self._ops[k].signature for i, k in pairs)

    def _apart(self, one: Lane, other: Lane) -> bool:
        """Whether a lane is all behind the other: by launches where the file numbers them, else by its order."""
        a, b = self._of(one), self._of(other)
        (first, last), (begin, end) = (a[2], b[2]) if a[2] is not None and b[2] is not None else (a[1], b[1])
        return last < begin or end < first

    def run(self) -> tuple[Op, ...]:
        """The ops of one run in order; of copies the slowest each time."""
        if all(len(lanes) == 1 for lanes in self.groups):
            return tuple(self._ops)
        found: dict[int, Op] = {}
        for lanes in self.groups:
            for each in itertools.zip_longest(*lanes):
                places = [at for at in each if at is not None]
                found[min(places)] = max((self._ops[at] for at in places), key=lambda op: op.duration)
        return tuple(found[at] for at in sorted(found))

    def copies_behind(self) -> str:
        """That copies lie one behind the other; "" where none do."""
        pairs = (pair for lanes in self.groups for pair in itertools.combinations(lanes, 2))
        behind = next((pair for pair in pairs if self._apart(*pair)), None)
        if behind is None:
            return ""
        return (
            f"{self._named(behind)} run the same ops one behind the other: taken for copies, of which the slowest "
            "counts; of parts of a model all would"
        )

    def mixed(self) -> str:
        """That devices run different ops in turn; "" where none do."""
        pairs = itertools.combinations([lanes[0] for lanes in self.groups], 2)
        mixed = next((pair for pair in pairs if not self._apart(*pair)), None)
        if mixed is None:
            return ""
        return f"{self._named(mixed)} run different ops in turn: whether at the same time, the file does not say"

    def findings(self, name: str) -> list[Diagnostic]:
        """What is taken for copies and for parts, and devices whose ops end while others, which began with the same, go
        on. name: of the file."""
        found = [
            Diagnostic(
                "warning",
                f"{name}, device {self._ops[lane[0]].device}",
                "profile-device",
                f"it has {len(lane)} of the {len(lanes[0])} ops of device {self._ops[lanes[0][0]].device}, and ends "
                "there",
                "profile again, or leave its rows out",
            )
            for lanes in self.groups
            for lane in lanes[1:]
            if len(lane) < len(lanes[0])
        ]
        if len(self.groups) > 1:
            runs = [f"{quantity(len(lanes[0]), 'op')} on {self._named(lanes)}" for lanes in self.groups]
            text = f"devices run different ops: {'; '.join(runs[:_NAMED])}{' ...' if len(runs) > _NAMED else ''}"
            found.append(Diagnostic("note", name, "profile-parts", text, "parts of one run: all of them are in sums"))
        told = ((COPIES, self.copies_behind()), ("profile-mixed", self.mixed()))
        return found + [Diagnostic("warning", name, rule, text) for rule, text in told if text]

    def _named(self, lanes: Sequence[Lane]) -> str:
        numbers = [str(self._ops[lane[0]].device) for lane in lanes]
        if len(numbers) == 1:
            return f"device {numbers[0]}"
        return f"devices {', '.join(numbers[:_NAMED])}{' ...' if len(numbers) > _NAMED else ''}"
