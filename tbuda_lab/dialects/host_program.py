"""The host program of a dialect: which tensors the host pushes, which programs of the netlist it runs, what it pops.

It is data, stored as JSON in an image, and `execute` is the only way in which a dialect runs anything.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.runner import join_elements as _joined
from tbuda_lab.dialects.replicas import Replica, average_gradients, collective
from tbuda_lab.dialects.slots import SlotValues


@dataclasses.dataclass(frozen=True)
class Push:
    """The host writes the next entry of an input's queue on every replica."""

    tensor: str


@dataclasses.dataclass(frozen=True)
class Run:
    """Every replica runs a program of the netlist. params: its run-time numbers by name."""

    program: str
    params: tuple[tuple[str, int], ...] = ()


@dataclasses.dataclass(frozen=True)
class Pop:
    """The host takes one entry of an output's queue from every replica."""

    tensor: str


@dataclasses.dataclass(frozen=True)
class Collective:
    """The replicas' gradients of some weights become their mean, summed in order of the replicas."""

    tensors: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class Load:
    """An input that the caller left out takes the tensor that lies in a region, which several graphs share; one that
    was given is put there."""

    tensor: str
    region: str


@dataclasses.dataclass(frozen=True)
class Store:
    """An output stays in a region, where other graphs find it."""

    tensor: str
    region: str


@dataclasses.dataclass(frozen=True)
class SetScalar:
    """A number of the optimizer ("lr", "momentum", ...) takes the value that the caller gives for it."""

    name: str


@dataclasses.dataclass(frozen=True)
class HostLoop:
    """The body runs `count` times, with the next slice of every input each time. Loops nest."""

    count: int
    body: tuple[Step, ...]


# -- steps on slots (see `slots`): what writes a slot writes both copies, the host's and the device's ------------------
@dataclasses.dataclass(frozen=True)
class LoadStream:
    """A slot takes the next tensor of a stream from the host; behind its last one comes the first again."""

    stream: str
    slot: str


@dataclasses.dataclass(frozen=True)
class StoreStream:
    """The next tensor of a stream to the host is that of a slot."""

    stream: str
    slot: str


@dataclasses.dataclass(frozen=True)
class Take:
    """The host takes what a program has left in a slot."""

    slot: str


@dataclasses.dataclass(frozen=True)
class Move:
    """Slots take the tensors of others, all at once: (target, source) pairs."""

    pairs: tuple[tuple[str, str], ...]


@dataclasses.dataclass(frozen=True)
class HostOp:
    """The host calculates: `kind` names a function that a dialect has registered (`register`), attrs are JSON."""

    kind: str
    ins: tuple[str, ...]
    outs: tuple[str, ...]
    attrs: str


@dataclasses.dataclass(frozen=True)
class LoadRemote:
    """A slot takes an entry of a remote buffer; the slot `offset` holds its number."""

    buffer: int
    offset: str
    slot: str


@dataclasses.dataclass(frozen=True)
class StoreRemote:
    """An entry of a remote buffer becomes the tensor of a slot."""

    buffer: int
    offset: str
    slot: str


@dataclasses.dataclass(frozen=True)
class Exchange:
    """A collective between replicas: each gives a slot's tensor and takes one. groups: by replica that of its group."""

    kind: str
    groups: tuple[int, ...]
    slot: str
    into: str
    attrs: str


@dataclasses.dataclass(frozen=True)
class Print:
    """A slot's tensor goes to stderr."""

    slot: str
    attrs: str


@dataclasses.dataclass(frozen=True)
class Branch:
    """The first steps where the slot `condition` holds a number other than 0, else the others."""

    condition: str
    then: tuple[Step, ...]
    otherwise: tuple[Step, ...]


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
    | Take
    | Move
    | HostOp
    | LoadRemote
    | StoreRemote
    | Exchange
    | Print
    | Branch
)
_KINDS: dict[str, type[Any]] = {
    "push": Push,
    "run": Run,
    "pop": Pop,
    "load": Load,
    "store": Store,
    "collective": Collective,
    "set_scalar": SetScalar,
    "loop": HostLoop,
    "load_stream": LoadStream,
    "store_stream": StoreStream,
    "take": Take,
    "move": Move,
    "host_op": HostOp,
    "load_remote": LoadRemote,
    "store_remote": StoreRemote,
    "exchange": Exchange,
    "print": Print,
    "branch": Branch,
}
_WORDS = {kind: word for word, kind in _KINDS.items()}
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
        return [{"section": section, **_plain(step)} for section, step in self.steps]

    @classmethod
    def from_json(cls, data: Any, nests: bool = False) -> HostProgram:
        """nests: whether loops and branches may be inside others. Raises `InputError` for anything that `to_json` would
        not write, and for loops of more than `MAX_TURNS` altogether."""
        if not isinstance(data, list):
            raise InputError("a host program is a list of steps")
        depth = 0 if nests else MAX_DEPTH
        return cls(tuple((_text(entry.get("section", "")), _step(entry, depth)) for entry in map(_entry, data)))


def _entry(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InputError(f"a step of a host program is a map, not {type(data).__name__}")
    return data


def _plain(step: Step) -> dict[str, Any]:
    fields = {f.name: getattr(step, f.name) for f in dataclasses.fields(step)}
    for name in _BLOCKS.get(type(step), ()):
        fields[name] = [_plain(inner) for inner in fields[name]]
    if isinstance(step, Run):
        fields["params"] = dict(step.params)
    return {"step": _WORDS[type(step)], **{k: _listed(v) for k, v in fields.items()}}


def _listed(value: Any) -> Any:
    return [_listed(v) for v in value] if isinstance(value, tuple) else value


def _step(data: Mapping[str, Any], depth: int = 0, turns: int = 1) -> Step:
    """turns: how often the loops around it run it."""
    word = data.get("step")
    kind = _KINDS.get(word) if isinstance(word, str) else None
    fields = {} if kind is None else {f.name: str(f.type) for f in dataclasses.fields(kind)}
    if kind is None or set(data) - {"step", "section"} != set(fields):
        raise InputError(f"no step of a host program: {str(data)[:80]}; there are {', '.join(_KINDS)}")
    if depth > MAX_DEPTH and kind in _BLOCKS:
        raise InputError("loops inside each other are too many here; write one after the other")
    values: dict[str, Any] = {}
    if kind is HostLoop:
        turns *= _whole(data["count"], 1, MAX_TURNS)
        if turns > MAX_TURNS:
            raise InputError(f"loops inside each other run {turns} times, more than {MAX_TURNS}")
    for name, form in fields.items():
        value = data[name]
        if form == "tuple[Step, ...]":
            values[name] = tuple(_step(_entry(inner), depth + 1, turns) for inner in _list(value))
        elif name == "params":
            values[name] = tuple((k, _whole(v, 0, 1 << 31)) for k, v in _entry(value).items())
        elif form == "int":
            values[name] = _whole(value, 1, MAX_TURNS if kind is HostLoop else 1 << 31)
        elif form == "tuple[int, ...]":
            values[name] = tuple(_whole(v, 0, MAX_TURNS) for v in _list(value))
        elif form == "tuple[tuple[str, str], ...]":
            values[name] = tuple(_pair(v) for v in _list(value))
        elif form == "tuple[str, ...]":
            values[name] = tuple(map(_text, _list(value)))
        else:
            values[name] = _text(value)
    step: Step = kind(**values)
    return step


def _pair(value: Any) -> tuple[str, str]:
    texts = [_text(v) for v in _list(value)]
    if len(texts) != 2:
        raise InputError(f"a step of a host program has {str(value)[:80]} where two names are expected")
    return texts[0], texts[1]


def _list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise InputError(f"a step of a host program has {str(value)[:80]} where a list is expected")
    return value


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise InputError(f"a step of a host program has {str(value)[:80]} where a name is expected")
    return value


def _whole(value: Any, least: int, most: int) -> int:
    if type(value) is not int or not least <= value <= most:
        shown = str(value)[:80] if not isinstance(value, int) or value.bit_length() < 200 else "a huge number"
        raise InputError(
            f"a step of a host program has {shown} where a whole number from {least} to {most} is expected"
        )
    return value


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
    appended to `stored`. buffers: per replica by number (entries, ...).
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
        self.streams: list[dict[str, Sequence[np.ndarray]]] = [{} for _ in slots]
        self.cursors: dict[str, int] = {}
        self.stored: list[dict[str, list[np.ndarray]]] = [{} for _ in slots]

    def run(self, program: HostProgram) -> None:
        """Raises `InputError` for an empty region, and for names that there are not."""
        self._steps([step for _, step in program.steps], 0)

    def _steps(self, steps: Sequence[Step], turn: int) -> None:
        for step in steps:
            if isinstance(step, HostLoop):
                for k in range(step.count):
                    self._steps(step.body, turn * step.count + k)
                continue
            if self.progress is not None:
                self.progress(step, turn)
            if isinstance(step, Branch):
                taken = any(bool(np.any(values.read(step.condition))) for values in self.slots)
                self._steps(step.then if taken else step.otherwise, turn)
            elif not self._on_slots(step):
                self._on_queues(step, turn)

    # -- queues ----------------------------------------------------------------------------------------------
    def _on_queues(self, step: Step, turn: int) -> None:
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
        for k, replica in enumerate(self.replicas):
            if isinstance(step, Push):
                for element in self.fed[k][turn]:
                    replica.push(step.tensor, element)
            elif isinstance(step, Run):
                replica.run(step.program, dict(step.params))
            elif isinstance(step, Pop):
                self.popped[k][turn][step.tensor] = join_elements([replica.pop(step.tensor) for _ in self.fed[k][turn]])
            elif isinstance(step, SetScalar) and self.scalars is not None and step.name in self.scalars:
                replica.set_scalar(step.name, self.scalars[step.name])

    # -- slots -----------------------------------------------------------------------------------------------
    def _on_slots(self, step: Step) -> bool:
        """Whether it is a step on slots."""
        if isinstance(step, LoadStream):
            at = self.cursors.get(step.stream, 0)
            self.cursors[step.stream] = at + 1
            for values, streams in zip(self.slots, self.streams, strict=True):
                given = streams[step.stream]
                values.write(step.slot, given[at % len(given)])
        elif isinstance(step, Exchange):
            self._exchange(step)
        elif isinstance(step, StoreStream | Take | Move | HostOp | LoadRemote | StoreRemote | Print):
            for k in range(len(self.slots)):
                self._on_slots_of(step, k)
        else:
            return False
        return True

    def _on_slots_of(self, step: Step, k: int) -> None:
        values = self.slots[k]
        if isinstance(step, StoreStream):
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
            self._entries(step.buffer, k)[self._offset(step, k)] = values.read(step.slot)
        elif isinstance(step, Print) and k == 0:
            print_slot(values.read(step.slot), json.loads(step.attrs))

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

    def _exchange(self, step: Exchange) -> None:
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
