"""The host program of a dialect: which tensors the host pushes, which programs of the netlist it runs, what it pops.

It is data, stored as JSON in an image (`core.files.codec` reads it), and `execute` is the only way in which a dialect
runs anything. The word `step` of each says what it is.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any, Literal, cast

import numpy as np
import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.files.codec import of_plain, to_plain
from tbuda_lab.core.runner import join_elements as _joined
from tbuda_lab.dialects.replicas import Replica, average_gradients, collective
from tbuda_lab.dialects.slots import SlotValues


@dataclasses.dataclass(frozen=True)
class Push:
    """The host writes the next entry of an input's queue on every replica."""

    tensor: str
    step: Literal["push"] = "push"


@dataclasses.dataclass(frozen=True)
class Run:
    """Every replica runs a program of the netlist. params: its run-time numbers by name."""

    program: str
    params: tuple[tuple[str, int], ...] = ()
    step: Literal["run"] = "run"


@dataclasses.dataclass(frozen=True)
class Pop:
    """The host takes one entry of an output's queue from every replica."""

    tensor: str
    step: Literal["pop"] = "pop"


@dataclasses.dataclass(frozen=True)
class Collective:
    """The replicas' gradients of some weights become their mean, summed in order of the replicas."""

    tensors: tuple[str, ...]
    step: Literal["collective"] = "collective"


@dataclasses.dataclass(frozen=True)
class Load:
    """An input that the caller left out takes the tensor that lies in a region, which several graphs share; one that
    was given is put there."""

    tensor: str
    region: str
    step: Literal["load"] = "load"


@dataclasses.dataclass(frozen=True)
class Store:
    """An output stays in a region, where other graphs find it."""

    tensor: str
    region: str
    step: Literal["store"] = "store"


@dataclasses.dataclass(frozen=True)
class SetScalar:
    """A number of the optimizer ("lr", "momentum", ...) takes the value that the caller gives for it."""

    name: str
    step: Literal["set_scalar"] = "set_scalar"


@dataclasses.dataclass(frozen=True)
class HostLoop:
    """The body runs `count` times, with the next slice of every input each time. Loops nest."""

    count: int
    body: tuple[Step, ...]
    step: Literal["loop"] = "loop"


# -- steps on slots (see `slots`): what writes a slot writes both copies, the host's and the device's ------------------
@dataclasses.dataclass(frozen=True)
class LoadStream:
    """A slot takes the next tensor of a stream from the host; behind its last one comes the first again."""

    stream: str
    slot: str
    step: Literal["load_stream"] = "load_stream"


@dataclasses.dataclass(frozen=True)
class StoreStream:
    """The next tensor of a stream to the host is that of a slot."""

    stream: str
    slot: str
    step: Literal["store_stream"] = "store_stream"


@dataclasses.dataclass(frozen=True)
class Feed:
    """The next `count` tensors of streams from the host go into queues: (input, stream) pairs, turn by turn."""

    count: int
    pairs: tuple[tuple[str, str], ...]
    step: Literal["feed"] = "feed"


@dataclasses.dataclass(frozen=True)
class Drain:
    """What a program's loop has left in queues are the next `count` tensors of streams to the host: (output, stream)
    pairs, turn by turn."""

    count: int
    pairs: tuple[tuple[str, str], ...]
    step: Literal["drain"] = "drain"


@dataclasses.dataclass(frozen=True)
class Take:
    """The host takes what a program has left in a slot."""

    slot: str
    step: Literal["take"] = "take"


@dataclasses.dataclass(frozen=True)
class Move:
    """Slots take the tensors of others, all at once: (target, source) pairs."""

    pairs: tuple[tuple[str, str], ...]
    step: Literal["move"] = "move"


@dataclasses.dataclass(frozen=True)
class HostOp:
    """The host calculates: `kind` names a function that a dialect has registered (`register`), attrs are JSON."""

    kind: str
    ins: tuple[str, ...]
    outs: tuple[str, ...]
    attrs: str
    step: Literal["host_op"] = "host_op"


@dataclasses.dataclass(frozen=True)
class LoadRemote:
    """A slot takes an entry of a remote buffer; the slot `offset` holds its number."""

    buffer: int
    offset: str
    slot: str
    step: Literal["load_remote"] = "load_remote"


@dataclasses.dataclass(frozen=True)
class StoreRemote:
    """An entry of a remote buffer becomes the tensor of a slot."""

    buffer: int
    offset: str
    slot: str
    step: Literal["store_remote"] = "store_remote"


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A collective between replicas: each gives a slot's tensor and takes one. groups: by replica that of its group;
    size: of what each gives, in bytes."""

    kind: str
    groups: tuple[int, ...]
    slot: str
    into: str
    attrs: str
    size: int
    step: Literal["exchange"] = "exchange"


@dataclasses.dataclass(frozen=True)
class Print:
    """A slot's tensor goes to stderr."""

    slot: str
    attrs: str
    step: Literal["print"] = "print"


@dataclasses.dataclass(frozen=True)
class Branch:
    """The first steps where the slot `condition` holds a number other than 0, else the others."""

    condition: str
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]
    step: Literal["branch"] = "branch"


Step = (
    Push
    | Run
    | Pop
    | Load
    | Store
    | Collective
    | SetScalar
    | HostLoop
    | LoadStream
    | StoreStream
    | Feed
    | Drain
    | Take
    | Move
    | HostOp
    | LoadRemote
    | StoreRemote
    | Exchange
    | Print
    | Branch
)
_BLOCKS = {HostLoop: ("body",), Branch: ("then", "otherwise")}
MAX_TURNS = 1 << 16
"""Turns of a loop in a program that is read."""
MAX_DEPTH = 32
"""Loops and branches inside each other in a program that is read."""


@dataclasses.dataclass(frozen=True)
class HostProgram:
    """Steps in order, each with the section that it belongs to ("fwd", "bckwd", "gradnorm", "opt")."""

    steps: tuple[tuple[str, Step], ...]

    def only(self, sections: Sequence[str]) -> HostProgram:
        """The steps of some sections."""
        return HostProgram(tuple(pair for pair in self.steps if pair[0] in sections))

    def to_json(self) -> list[dict[str, Any]]:
        return [{"section": section, **to_plain(step)} for section, step in self.steps]

    @classmethod
    def from_json(cls, data: Any, nests: bool = False) -> HostProgram:
        """nests: whether loops and branches may be inside others. Raises `InputError` for anything that `to_json` would
        not write, and for loops of more than `MAX_TURNS` altogether."""
        if not isinstance(data, list):
            raise InputError("a host program is a list of steps")
        steps = []
        for number, entry in enumerate(data):
            where = f"step {number} of the host program"
            if not isinstance(entry, dict):
                raise InputError(f"{where} is a map, not {type(entry).__name__}")
            section: str = of_plain(str, entry.get("section", ""), f"{where}: section")
            own = {name: value for name, value in entry.items() if name != "section"}
            step: Step = of_plain(cast(Any, Step), own, where)
            _refuse_excess(step, where, MAX_DEPTH if nests else 1)
            steps.append((section, step))
        return cls(tuple(steps))


def _refuse_excess(step: Step, where: str, depth: int, turns: int = 1) -> None:
    """Raises `InputError` for numbers out of range, and for loops that are too deep or take too long. depth: how many
    blocks may be inside each other; turns: how often the loops around a step run it."""
    if type(step) in _BLOCKS and depth < 1:
        raise InputError(f"{where}: loops inside each other are too many here; write one after the other")
    least, most = (1, MAX_TURNS) if isinstance(step, HostLoop | Feed | Drain) else (0, 1 << 31)
    numbers = [v for f in dataclasses.fields(step) for v in _numbers(getattr(step, f.name))]
    wrong = next((n for n in numbers if not least <= n <= most), None)
    if wrong is not None:
        raise InputError(f"{where}: {wrong} is no whole number from {least} to {most}")
    if isinstance(step, HostLoop):
        turns *= step.count
        if turns > MAX_TURNS:
            raise InputError(f"{where}: loops inside each other run {turns} times, more than {MAX_TURNS}")
    for name in _BLOCKS.get(type(step), ()):
        for inner in getattr(step, name):
            _refuse_excess(inner, where, depth - 1, turns)


def _numbers(value: Any) -> list[int]:
    """The whole numbers in a field that holds no steps."""
    if isinstance(value, tuple):
        return [n for part in value for n in _numbers(part)]
    return [value] if isinstance(value, int) else []


HOST_FUNCTIONS: dict[str, Callable[[Mapping[str, Any], Sequence[np.ndarray]], Sequence[np.ndarray]]] = {}
"""What `HostOp` steps may name."""


def register(kind: str, function: Callable[[Mapping[str, Any], Sequence[np.ndarray]], Sequence[np.ndarray]]) -> None:
    """Let host programs name a function of attributes and arrays."""
    HOST_FUNCTIONS[kind] = function


class Machine:
    """Replicas in step with each other, and what the host holds for them: it runs host programs.

    feeds: per replica, for every turn of a program's loop (one where there is none), the elements of a microbatch: a
    map of inputs by name for each. scalars: values of `SetScalar` steps by name. regions: by name the tensor of each
    replica. slots: of each replica. streams: per replica by stream the tensors to load; what is stored is
    appended to `stored`. buffers: per replica by number (entries, ...). `current`: the step that was begun last;
    `overwritten`: entries of remote buffers as they were before stores to them, in order: (buffer, number, entry);
    None where nobody asks.
    """

    def __init__(
        self,
        replicas: Sequence[Replica] = (),
        feeds: Sequence[Sequence[Sequence[Mapping[str, torch.Tensor]]]] = (),
        scalars: Mapping[str, float] | None = None,
        regions: MutableMapping[str, list[torch.Tensor]] | None = None,
        slots: Sequence[SlotValues] = (),
        buffers: Sequence[dict[int, np.ndarray]] = (),
        progress: Callable[[Step, int], None] | None = None,
    ) -> None:
        self.replicas, self.scalars, self.progress = replicas, scalars, progress
        self.regions = {} if regions is None else regions
        self.popped: list[list[dict[str, torch.Tensor]]] = [[{} for _ in turns] for turns in feeds]
        self.fed = [[[dict(one) for one in turn] for turn in turns] for turns in feeds]
        self.slots, self.buffers = slots, buffers
        self.overwritten: list[tuple[np.ndarray, int, np.ndarray]] | None = None
        self.current: Step | None = None
        self.streams: list[dict[str, Sequence[np.ndarray]]] = [{} for _ in slots]
        self.cursors: dict[tuple[str, int], int] = {}
        self.stored: list[dict[str, list[np.ndarray]]] = [{} for _ in slots]

    def run(self, program: HostProgram) -> None:
        """Raises `InputError` for an empty region, for names that there are not, and for a collective in a branch that
        only some of the replicas take."""
        everyone = tuple(range(max(len(self.slots), len(self.replicas))))
        self._steps([step for _, step in program.steps], 0, everyone)

    def _steps(self, steps: Sequence[Step], turn: int, active: Sequence[int]) -> None:
        """active: the replicas that run these."""
        for step in steps:
            if isinstance(step, HostLoop):
                for k in range(step.count):
                    self._steps(step.body, turn * step.count + k, active)
                continue
            self.current = step
            if self.progress is not None:
                self.progress(step, turn)
            if isinstance(step, Branch):
                taken = [k for k in active if np.any(self.slots[k].read(step.condition))]
                self._steps(step.then, turn, taken)
                self._steps(step.otherwise, turn, [k for k in active if k not in taken])
            elif active and not self._on_slots(step, active):
                self._on_queues(step, turn, active)

    # -- queues ----------------------------------------------------------------------------------------------
    def _on_queues(self, step: Step, turn: int, active: Sequence[int]) -> None:
        if isinstance(step, Load):
            _load(step, self.regions, self.fed, turn)
            return
        if isinstance(step, Store):
            if any(step.tensor not in popped[turn] for popped in self.popped):
                raise InputError(f"the host program keeps {step.tensor!r} in a region before it loads it")
            self.regions[step.region] = [popped[turn][step.tensor] for popped in self.popped]
            return
        if isinstance(step, Collective):
            average_gradients(self.replicas, step.tensors)
            return
        for k in active:
            replica = self.replicas[k]
            if isinstance(step, Feed):
                for _ in range(step.count):
                    for name, stream in step.pairs:
                        value = np.array(self._next(stream, k), np.float32)
                        replica.push(name, {name: torch.from_numpy(value)})
            elif isinstance(step, Drain):
                for _ in range(step.count):
                    for name, stream in step.pairs:
                        self.stored[k].setdefault(stream, []).append(replica.pop(name).numpy())
            elif isinstance(step, Push):
                for element in self.fed[k][turn]:
                    replica.push(step.tensor, element)
            elif isinstance(step, Run):
                replica.run(step.program, dict(step.params))
            elif isinstance(step, Pop):
                self.popped[k][turn][step.tensor] = join_elements([replica.pop(step.tensor) for _ in self.fed[k][turn]])
            elif isinstance(step, SetScalar) and self.scalars is not None and step.name in self.scalars:
                replica.set_scalar(step.name, self.scalars[step.name])

    # -- slots -----------------------------------------------------------------------------------------------
    def _on_slots(self, step: Step, active: Sequence[int]) -> bool:
        """Whether it is a step on slots."""
        if isinstance(step, Exchange):
            self._exchange(step, active)
        elif isinstance(step, Print):  # of the first replica alone
            print_slot(self.slots[active[0]].read(step.slot), json.loads(step.attrs))
        elif isinstance(step, LoadStream | StoreStream | Take | Move | HostOp | LoadRemote | StoreRemote):
            for k in active:
                self._on_slots_of(step, k)
        else:
            return False
        return True

    def _on_slots_of(self, step: Step, k: int) -> None:
        values = self.slots[k]
        if isinstance(step, LoadStream):
            values.write(step.slot, self._next(step.stream, k))
        elif isinstance(step, StoreStream):
            self.stored[k].setdefault(step.stream, []).append(np.array(values.read(step.slot)))
        elif isinstance(step, Take):
            values.take(step.slot)
        elif isinstance(step, Move):
            read = [np.array(values.read(source)) for _, source in step.pairs]
            for (target, _), value in zip(step.pairs, read, strict=True):
                values.write(target, value)
        elif isinstance(step, HostOp):
            if step.kind not in HOST_FUNCTIONS:
                raise InputError(f"the host program names {step.kind!r}, which the host cannot calculate")
            made = HOST_FUNCTIONS[step.kind](json.loads(step.attrs), [values.read(name) for name in step.ins])
            for name, value in zip(step.outs, made, strict=False):
                values.write(name, value)
        elif isinstance(step, LoadRemote):
            values.write(step.slot, self._entries(step.buffer, k)[self._offset(step, k)])
        elif isinstance(step, StoreRemote):
            entries, offset = self._entries(step.buffer, k), self._offset(step, k)
            if self.overwritten is not None:
                self.overwritten.append((entries, offset, np.array(entries[offset])))
            entries[offset] = values.read(step.slot)

    def _next(self, stream: str, k: int) -> np.ndarray:
        """The next tensor of a stream to a replica; behind its last one comes the first again."""
        at = self.cursors.get((stream, k), 0)
        self.cursors[stream, k] = at + 1
        if stream not in self.streams[k]:
            raise InputError(f"the host program names stream {stream!r}, which nothing was given for")
        given = self.streams[k][stream]
        return given[at % len(given)]

    def _entries(self, buffer: int, k: int) -> np.ndarray:
        if buffer not in self.buffers[k]:
            raise InputError(f"the host program names remote buffer {buffer}, which there is not")
        return self.buffers[k][buffer]

    def _offset(self, step: LoadRemote | StoreRemote, k: int) -> int:
        offset = int(self.slots[k].read(step.offset).reshape(-1)[0])
        if not 0 <= offset < len(self._entries(step.buffer, k)):
            entries = len(self.buffers[k][step.buffer])
            raise InputError(f"remote buffer {step.buffer} has {entries} entries, and none at {offset}")
        return offset

    def _exchange(self, step: Exchange, active: Sequence[int]) -> None:
        if len(active) != len(self.slots):
            raise InputError(
                f"a collective in a branch that some replicas do not reach ({step.kind} of {step.slot!r}): the others "
                "would wait for ever; put it behind the conditional"
            )
        if len(step.groups) != len(self.slots):
            raise InputError(f"a collective of {len(step.groups)} replicas on {len(self.slots)}")
        given = [values.read(step.slot) for values in self.slots]
        attrs = json.loads(step.attrs)
        for group in dict.fromkeys(step.groups):
            members = [k for k, own in enumerate(step.groups) if own == group]
            results = collective(step.kind, attrs, [given[k] for k in members])
            for k, value in zip(members, results, strict=True):
                self.slots[k].write(step.into, value)


def execute(
    program: HostProgram,
    replicas: Sequence[Replica],
    feeds: Sequence[Sequence[Sequence[Mapping[str, torch.Tensor]]]],
    scalars: Mapping[str, float] | None = None,
    regions: MutableMapping[str, list[torch.Tensor]] | None = None,
    progress: Callable[[Step, int], None] | None = None,
) -> list[list[dict[str, torch.Tensor]]]:
    """Run a program of queues on all replicas in step with each other; see `Machine` for the arguments.

    progress: called before every step with it and the number of its turn. Returns per replica and turn what was popped,
    by output. Raises `InputError` for an empty region, and for names that the graph does not have.
    """
    machine = Machine(replicas, feeds, scalars, regions, progress=progress)
    machine.run(program)
    return machine.popped


def _load(
    step: Load,
    regions: MutableMapping[str, list[torch.Tensor]],
    feeds: Sequence[Sequence[Sequence[dict[str, torch.Tensor]]]],
    turn: int,
) -> None:
    """A region's tensor becomes the input of every replica, or takes it over from the caller."""
    values = [[one[step.tensor] for one in turns[turn] if step.tensor in one] for turns in feeds]
    if all(len(parts) == len(turns[turn]) for parts, turns in zip(values, feeds, strict=True)):
        regions[step.region] = [parts[0] if parts[0] is parts[-1] else join_elements(parts) for parts in values]
        return
    if len(regions.get(step.region, ())) < len(feeds):
        raise InputError(f"region {step.region!r} holds nothing for input {step.tensor!r}: run a graph that fills it")
    for turns, value in zip(feeds, regions[step.region], strict=False):
        for k, one in enumerate(turns[turn]):
            one[step.tensor] = slice_of(value, k, len(turns[turn]))


def slice_of(value: torch.Tensor, k: int, count: int) -> torch.Tensor:
    """Element k of the `count` of a microbatch: dim 0 becomes 1 where it has as many."""
    return value[k : k + 1] if count > 1 and value.shape[:1] == (count,) else value


def join_elements(parts: list[torch.Tensor]) -> torch.Tensor:
    """Results of the elements of a microbatch along dim 0; numbers become a vector."""
    return _joined(parts) if len(parts) == 1 or parts[0].dim() else torch.stack(parts)


def steps_of(program: HostProgram) -> Iterator[Step]:
    """All steps, those of loops and branches once."""
    pending = [step for _, step in reversed(program.steps)]
    while pending:
        step = pending.pop()
        yield step
        for name in _BLOCKS.get(type(step), ()):
            pending += reversed(getattr(step, name))


def print_slot(value: np.ndarray, attrs: Mapping[str, Any]) -> None:
    """A tensor on stderr as `attrs` say: title, digits, brackets, how much of it."""
    digits = int(attrs["digits"])
    form = {"scientific": f".{digits}e", "fixed": f".{digits}f"}.get(str(attrs["float_format"]))
    text = np.array2string(
        value,
        threshold=int(attrs["threshold"]),
        edgeitems=int(attrs["edge_items"]),
        max_line_width=int(attrs["width"]),
        precision=digits,
        separator=str(attrs["separator"]),
        formatter=None if form is None else {"float_kind": lambda v: format(v, form)},
    )
    text = "".join({"[": str(attrs["open"]), "]": str(attrs["close"])}.get(c, c) for c in text)
    print(f"{attrs['title']}: {text}", file=sys.stderr)
