"""What the user asks of ops, queues and their order, resolved once against a lowered graph and a device.

An override is a record: a kind, a target that may be a pattern, a value as somebody wrote it. `resolve` reads each of
them once; the balancer, the placer and the simulator of epochs read `Constraints`, by the name of an op or queue, and
never a record. After the graph was edited the records are resolved against it again: a pattern may mean its nops, too.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from tbuda_lab.core.balancer.blocks import divisors
from tbuda_lab.core.balancer.enumerate import Choice, legal_stream_dirs, parallel_tiles
from tbuda_lab.core.balancer.profile import OpProfile, profile_of
from tbuda_lab.core.balancer.types import copy_name
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, OverrideError, quantity
from tbuda_lab.core.formats import DataFormat, tile_bytes
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.graph.phases import phases
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import (
    KINDS,
    OVERRIDE_KINDS,
    Kind,
    MalformedValue,
    OpLimits,
    Override,
    Target,
    names_meant,
    parts_of,
    target_text,
)
from tbuda_lab.core.overrides.candidates import InputBuffers, OpSize
from tbuda_lab.core.overrides.kind import Fault
from tbuda_lab.core.overrides.places import ChipStart, EpochStart, OpPin, QueuePin, ScheduleConstraint

_STORED = (NodeKind.PARAMETER, NodeKind.CONSTANT)

NOP = "buffer_"
"""What names of inserted nops begin with."""


@dataclasses.dataclass(frozen=True)
class Break:
    """A new epoch, or with `chip` the next chip, at each of some ops; with `first` at whichever is scheduled first."""

    ops: frozenset[str]
    first: bool
    chip: bool

    def starts(self, order: Iterable[str]) -> Iterator[str]:
        """The ops of a schedule before which it stands."""
        found = (name for name in order if name in self.ops)
        return itertools.islice(found, 1) if self.first else found


@dataclasses.dataclass(frozen=True)
class RunOrder:
    """Ops that run one after the other: as named, or with `scheduled` as the schedule has them already."""

    ops: tuple[str, ...]
    scheduled: bool

    def pairs(self, order: Sequence[str]) -> Iterator[tuple[str, str]]:
        """(an op, the one to run after it)."""
        ops = frozenset(self.ops)
        return itertools.pairwise([name for name in order if name in ops] if self.scheduled else self.ops)


@dataclasses.dataclass(frozen=True, eq=False)
class Constraints:
    """choices: by op what is fixed of its candidates. pins: by op what is fixed of its place. breaks, orders: of the
    schedule. queues: by queue what is fixed of its place. unmatched: warnings of what addresses nothing. faults: what
    no placement can honour; see `checked`. records: what all this was resolved from. tells_equal_ops_apart: whether
    epochs of equal ops may fare differently: by their input buffers, or because a nop that is inserted into one of them
    may be addressed."""

    records: tuple[Override, ...] = ()
    choices: Mapping[str, Choice] = dataclasses.field(default_factory=dict)
    pins: Mapping[str, OpPin] = dataclasses.field(default_factory=dict)
    breaks: tuple[Break, ...] = ()
    orders: tuple[RunOrder, ...] = ()
    queues: Mapping[str, QueuePin] = dataclasses.field(default_factory=dict)
    unmatched: tuple[Diagnostic, ...] = ()
    faults: tuple[Diagnostic, ...] = ()
    tells_equal_ops_apart: bool = False

    def __bool__(self) -> bool:
        return bool(self.records)

    @functools.cached_property
    def input_factors(self) -> dict[str, dict[int, int]]:
        """By op and operand: how often the smallest input buffer is to fit into the one that it gets."""
        return {name: dict(c.input_multiplier) for name, c in self.choices.items() if c.input_multiplier}

    def epoch_starts(self, order: Sequence[str]) -> frozenset[str]:
        """Ops of a schedule that begin an epoch, those that begin a chip included."""
        return frozenset(name for one in self.breaks for name in one.starts(order))

    def chip_starts(self, order: Sequence[str]) -> frozenset[str]:
        """Ops of a schedule from which on the next chip is used."""
        return frozenset(name for one in self.breaks if one.chip for name in one.starts(order))

    @functools.cached_property
    def at_breaks(self) -> frozenset[str]:
        """Ops at which a break may stand: which of several is the first holds as long as they keep their order."""
        return frozenset(name for one in self.breaks for name in one.ops)

    def pairs(self, order: Sequence[str]) -> list[tuple[str, str]]:
        """Ops of which the first has to run before the second."""
        return [pair for one in self.orders for pair in one.pairs(order)]

    def with_op(self, name: str, profile: OpProfile, device: DeviceSpec) -> Constraints:
        """For the graph with one op more. Raises `OverrideError` for what it cannot have."""
        fixed = choices({name: profile}, device, self.records) if self.tells_equal_ops_apart else {}
        return dataclasses.replace(self, choices={**self.choices, **fixed}) if fixed else self

    def checked(self) -> Constraints:
        """The same. Raises `OverrideError` with all faults, each with what would be legal."""
        if self.faults:
            raise OverrideError(f"{quantity(len(self.faults), 'override')} cannot be met", list(self.faults))
        return self


FREE = Constraints()
"""Nothing is asked."""


def resolve(
    overrides: Sequence[Override],
    graph: Graph,
    device: DeviceSpec,
    options: CompileOptions,
    profiles: Mapping[str, OpProfile] | None = None,
) -> Constraints:
    """What overrides mean for the ops and queues of a lowered (and edited) graph. profiles: of its ops, if they are
    known. What is wrong is in `faults`; nothing is raised. Later records win over earlier ones of the same kind."""
    return _Resolution(graph, device, options, profiles).run(tuple(overrides)) if overrides else FREE


class _Wish(NamedTuple):
    """A record, read. ops: those that its target means."""

    kind: type[Kind]
    target: Target
    value: Any
    ops: list[str]


class _Resolution:
    """Faults are told kind by kind: unknown kinds, candidates, pins, queues, orders."""

    def __init__(
        self, graph: Graph, device: DeviceSpec, options: CompileOptions, profiles: Mapping[str, OpProfile] | None
    ) -> None:
        self.graph, self.device, self.options, self._profiles = graph, device, options, profiles
        self.ops = [node.name for node in graph.ops]
        self.queues = queue_names(graph, device)
        self.breaks: list[Break] = []
        self.orders: list[RunOrder] = []
        self.places: dict[str, QueuePin] = {}
        self.unmatched: list[Diagnostic] = []
        self.unknown: list[Diagnostic] = []
        self.malformed: list[Diagnostic] = []
        self.bad_places: list[Diagnostic] = []
        self.bad_orders: list[Diagnostic] = []

    def run(self, records: tuple[Override, ...]) -> Constraints:
        wishes = [wish for record in records if (wish := self._read(record)) is not None]
        profiles = self._profiles_of({name for w in wishes if w.kind.choice or w.kind is OpPin for name in w.ops})
        candidates = _Choices(profiles, self.device)
        for wish in wishes:
            if wish.kind.choice:
                candidates.add(wish.kind, wish.value, wish.ops)
            elif wish.kind is ScheduleConstraint:
                self._order(wish)
            elif wish.kind is QueuePin:
                self._queue(wish)
            elif issubclass(wish.kind, EpochStart):
                self._break(wish.kind, wish)
            self._note_unmatched(wish)
        pins, bad_pins = self._pins([wish for wish in wishes if wish.kind is OpPin], profiles, candidates.sizes)
        faults = (*self.unknown, *self.malformed, *candidates.finish(), *bad_pins, *self.bad_places, *self.bad_orders)
        by_name = any(w.kind is InputBuffers or not isinstance(w.target, str | tuple) for w in wishes)
        return Constraints(
            records,
            candidates.table,
            pins,
            tuple(self.breaks),
            tuple(self.orders),
            self.places,
            tuple(self.unmatched),
            tuple(dict.fromkeys(faults)),
            by_name or any(NOP in str(wish.target) for wish in wishes),
        )

    def _read(self, record: Override) -> _Wish | None:
        kind, target, value = record.kind, record.target, record.value
        if kind in KINDS:
            ops = names_meant(target, self.ops)
            return None if self._refuse_parts(KINDS[kind], target, ops) else _Wish(KINDS[kind], target, value, ops)
        text, fix = f"unknown override {kind!r}", f"known: {', '.join(OVERRIDE_KINDS)}"
        self.unknown.append(Diagnostic("error", target_text(target), "override-kind", text, fix))
        return None

    def _refuse_parts(self, kind: type[Kind], target: Target, ops: Sequence[str]) -> bool:
        """Whether a name that means several ops, made of one by passes, is refused: only one of them can have it."""
        refused = kind.of_parts == "one" and self._means_parts(target) and len(ops) > 1
        if refused:
            text = f"{target} is {quantity(len(ops), 'op')} after the passes, and only one can have it"
            self.malformed.append(
                Diagnostic("error", str(target), f"override-{kind.kind}", text, f"name one of {', '.join(ops)}")
            )
        return refused

    def _means_parts(self, target: Target) -> bool:
        """Whether a target is the name of an op that passes have made others of."""
        return isinstance(target, str) and target not in self.ops

    def _profiles_of(self, names: set[str]) -> Mapping[str, OpProfile]:
        if self._profiles is not None or not names:
            return self._profiles or {}
        users, phase = self.graph.users(), phases(self.graph)
        return {n: profile_of(self.graph, self.graph[n], self.options, users, phase) for n in self.ops if n in names}

    # -- the schedule ----------------------------------------------------------------------------------------
    def _break(self, kind: type[EpochStart], wish: _Wish) -> None:
        try:
            start = kind.parse(wish.value)
        except MalformedValue as error:
            where, rule = target_text(wish.target), f"override-{kind.kind}"
            self.malformed.append(Diagnostic("error", where, rule, *error.fault))
            return
        if start.on and wish.ops:
            once = start.stands_once(wish.target) or self._means_parts(wish.target)
            self.breaks.append(Break(frozenset(wish.ops), once, issubclass(kind, ChipStart)))

    def _order(self, wish: _Wish) -> None:
        listed = isinstance(wish.target, tuple)
        named = wish.target if isinstance(wish.target, tuple) else tuple(wish.ops)
        names = tuple(part for n in named for part in ([n] if n in self.ops else parts_of(n, self.ops) or [n]))
        missing = [n for n in names if n not in self.ops]
        if not missing and 1 < len(names) == len(set(names)):
            self.orders.append(RunOrder(names, not listed))
            return
        near = difflib.get_close_matches(missing[0], self.ops, n=1, cutoff=0.5) if missing else []
        text = f"{', '.join(missing)} is not an op of this graph" if missing else "an order takes two ops or more, once"
        fix = f"did you mean {near[0]!r}?" if near else "names of ops, in the order they are to run"
        where = missing[0] if missing else ", ".join(names)
        self.bad_orders.append(Diagnostic("error", where, "override-schedule_constraint", text, fix))

    # -- places ----------------------------------------------------------------------------------------------
    def _pins(
        self, wishes: Sequence[_Wish], profiles: Mapping[str, OpProfile], sizes: Mapping[str, tuple[int, int]]
    ) -> tuple[dict[str, OpPin], list[Diagnostic]]:
        """By op its pin, and what is wrong with pins whatever candidates there are."""
        pins: dict[str, OpPin] = {}
        faults: list[Diagnostic] = []
        for wish in wishes:
            for name in wish.ops:
                limits = limits_of(profiles[name], self.device)
                grids = [sizes[name]] if name in sizes else itertools.product(limits.grid_rows, limits.grid_cols)
                try:
                    pin = OpPin.parse(wish.value)
                    fault = pin.on_device(list(grids), self.device)
                except MalformedValue as error:
                    fault = error.fault
                if fault is None:
                    start = None if pin.start is None else (int(pin.start[0]), int(pin.start[1]))
                    pins[name] = dataclasses.replace(pin, start=start)
                else:
                    faults.append(Diagnostic("error", name, "override-op_placement", *fault))
        return pins, faults

    def _queue(self, wish: _Wish) -> None:
        for name in self._queues_meant(wish.target):
            try:
                pin = QueuePin.parse(wish.value)
            except MalformedValue as error:
                self.bad_places.append(Diagnostic("error", name, "override-queue_channel", *error.fault))
                continue
            fault = pin.on_device(self.device)
            if fault is None:
                self.places[name] = pin
            else:
                self.bad_places.append(Diagnostic("error", name, f"queue-{fault[0]}", *fault[1]))

    def _queues_meant(self, target: Target) -> list[str]:
        """The queues that a target means. The name of an op that passes have made others of means no queue: theirs are
        those of their constants."""
        return [] if isinstance(target, str) and target not in self.queues else names_meant(target, self.queues)

    # -- nothing of that name --------------------------------------------------------------------------------
    def _note_unmatched(self, wish: _Wish) -> None:
        missing: list[str] = []
        if isinstance(wish.target, tuple) and wish.target:
            names = {*self.ops, *self.queues}
            missing = [n for n in wish.target if n not in names and not parts_of(n, self.ops)]
        elif not self._queues_meant(wish.target) and (not wish.ops or wish.kind.addresses == "queues"):
            missing = [target_text(wish.target)]
        for name in missing:
            near = difflib.get_close_matches(name, [*self.ops, *self.queues], n=1, cutoff=0.5)
            text = f"{wish.kind.kind} addresses no op or queue of this graph"
            fix = f"did you mean {near[0]!r}?" if near else "check the name in the op table"
            self.unmatched.append(Diagnostic("warning", name, "override-unmatched", text, fix))


def queue_names(graph: Graph, device: DeviceSpec) -> list[str]:
    """Queues that there may be for a graph: of its inputs, parameters (with copies on further chips) and outputs,
    behind ops (one for each program that reads), and of pickers."""
    ops = {n.name for n in graph.ops}
    programs = max(1, len(set(phases(graph).values())))
    chips = device.chips if len(device.chips) > 1 else ()
    return [
        *(n.name for n in graph if n.name not in ops),
        *(f"e2e_{n}_{number}" for n in graph.nodes if n in ops for number in range(programs)),
        *(f"lc.{k}.{n}" for k in ("sparse_tiles", "sparse_encoding") for n in graph.nodes if n in ops),
        *(copy_name(n.name, chip) for n in graph.of_kind(*_STORED) for chip in chips),
    ]


# -- candidates --------------------------------------------------------------------------------------------------------
def choices(
    profiles: Mapping[str, OpProfile], device: DeviceSpec, overrides: Sequence[Override]
) -> Mapping[str, Choice]:
    """What overrides fix for the candidates of these ops. Raises `OverrideError` with one diagnostic for each illegal
    value, naming what would be legal."""
    names, table = list(profiles), _Choices(profiles, device)
    for record in overrides:
        if record.kind in KINDS and KINDS[record.kind].choice:
            table.add(KINDS[record.kind], record.value, record.matches(names))
    return Constraints(choices=table.table, faults=tuple(table.finish())).checked().choices


class _Choices:
    """Collects what overrides fix, by op. sizes: the grids asked for, also where an op cannot have them."""

    def __init__(self, profiles: Mapping[str, OpProfile], device: DeviceSpec) -> None:
        self.profiles, self.device = profiles, device
        self.table: dict[str, Choice] = {}
        self.sizes: dict[str, tuple[int, int]] = {}
        self.faults: list[Diagnostic] = []

    def add(self, kind: type[Kind], value: object, names: Sequence[str]) -> None:
        for name in names:
            parsed = self._read(kind, value, name)
            if isinstance(parsed, Kind):
                choice = self.table.get(name, Choice())
                field = parsed.choice
                self.table[name] = dataclasses.replace(choice, **{field: parsed.new_choice(getattr(choice, field))})
            else:
                self.faults.append(Diagnostic("error", name, f"override-{kind.kind}", *parsed))

    def _read(self, kind: type[Kind], value: object, name: str) -> Kind | Fault:
        """The value of an override of one op, or what is wrong with it."""
        limits = limits_of(self.profiles[name], self.device)
        try:
            parsed = kind.parse(value)
        except MalformedValue as error:
            message, fix = error.fault
            return message, kind.legal(limits) or fix
        if isinstance(parsed, OpSize):
            self.sizes[name] = parsed.value
        return parsed.validate(limits) or parsed

    def finish(self) -> list[Diagnostic]:
        """All faults, with what of one op's overrides does not go together."""
        apart = (_apart(name, choice, self.profiles[name]) for name, choice in self.table.items())
        return [*self.faults, *(fault for fault in apart if fault is not None)]


def limits_of(profile: OpProfile, device: DeviceSpec) -> OpLimits:
    """What an op can have at all on a device."""
    rows, cols = parallel_tiles(profile)
    return OpLimits(
        rows,
        cols,
        tuple(d for d in divisors(rows) if d <= device.rows),
        tuple(d for d in divisors(cols) if d <= device.cols),
        (device.rows, device.cols),
        legal_stream_dirs(profile),
        tuple(divisors(profile.inner_run)) if profile.inner else (),
        len(profile.operands),
        tuple(port for port, operand in enumerate(profile.operands) if operand.feed == "parameter"),
        device.l1_usable // tile_bytes(DataFormat.Bfp2, align=device.tile_align),  # the smallest tiles
    )


def _apart(name: str, choice: Choice, profile: OpProfile) -> Diagnostic | None:
    """What of one op's overrides does not go together, each of which could be had alone; None if all of it does."""
    if choice.stream_shape is None:
        return None

    def error(message: str, fix: str) -> Diagnostic:
        return Diagnostic("error", name, "override-t_stream_shape", message, fix)

    (down, along), direction = choice.stream_shape, choice.stream_dir
    text = f"t-stream shape {down}x{along}"
    if (down > 1 and direction in ("n", "c", "cz")) or (along > 1 and direction in ("n", "r", "rz")):
        return error(f"{text} and direction {direction!r} do not go together", "take one of the two away")
    if choice.grid is not None:
        rows, cols = parallel_tiles(profile)
        (high, wide) = choice.grid
        if rows % (high * down) or cols % (wide * along):
            return error(
                f"{text} on a grid of {high}x{wide} does not divide {rows}x{cols} tiles",
                "rows of grid times pieces must divide the rows of tiles, and columns the columns",
            )
    return None
