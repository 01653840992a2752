"""The host program of a dialect: which tensors the host pushes, which programs of the netlist it runs, what it pops.

It is data, stored as JSON in an image, and `execute` is the only way in which a dialect runs anything.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, MutableMapping, Sequence
from typing import Any

import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.runner import join_elements as _joined
from tbuda_lab.dialects.replicas import Replica, average_gradients


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
    """The body runs `count` times, with the next slice of every input each time."""

    count: int
    body: tuple[Step, ...]


Step = Push | Run | Pop | Load | Store | Collective | SetScalar | HostLoop
_KINDS: dict[str, type[Any]] = {
    "push": Push, "run": Run, "pop": Pop, "load": Load, "store": Store, "collective": Collective,
    "set_scalar": SetScalar, "loop": HostLoop,
}  # fmt: skip
_WORDS = {kind: word for word, kind in _KINDS.items()}
MAX_TURNS = 1 << 16
"""Turns of a loop in a program that is read."""


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
    def from_json(cls, data: Any) -> HostProgram:
        """Raises `InputError` for anything that `to_json` would not write, and for a loop of more than `MAX_TURNS`."""
        if not isinstance(data, list):
            raise InputError("a host program is a list of steps")
        return cls(tuple((_text(entry.get("section", "")), _step(entry)) for entry in map(_entry, data)))


def _entry(data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InputError(f"a step of a host program is a map, not {type(data).__name__}")
    return data


def _plain(step: Step) -> dict[str, Any]:
    if isinstance(step, HostLoop):
        return {"step": "loop", "count": step.count, "body": [_plain(inner) for inner in step.body]}
    fields = {f.name: getattr(step, f.name) for f in dataclasses.fields(step)}
    if isinstance(step, Run):
        fields["params"] = dict(step.params)
    if isinstance(step, Collective):
        fields["tensors"] = list(step.tensors)
    return {"step": _WORDS[type(step)], **fields}


def _step(data: Mapping[str, Any]) -> Step:
    word = data.get("step")
    kind = _KINDS.get(word) if isinstance(word, str) else None
    names = () if kind is None else tuple(f.name for f in dataclasses.fields(kind))
    if kind is None or set(data) - {"step", "section"} != set(names):
        raise InputError(f"no step of a host program: {str(data)[:80]}; there are {', '.join(_KINDS)}")
    if kind is HostLoop:
        body = [_entry(inner) for inner in _list(data["body"])]
        if any(inner.get("step") == "loop" for inner in body):
            raise InputError("a host program cannot nest loops; write one after the other")
        return HostLoop(_whole(data["count"], 1, MAX_TURNS), tuple(map(_step, body)))
    if kind is Run:
        params = _entry(data["params"])
        return Run(_text(data["program"]), tuple((k, _whole(v, 0, 1 << 31)) for k, v in params.items()))
    if kind is Collective:
        return Collective(tuple(map(_text, _list(data["tensors"]))))
    step: Step = kind(*(_text(data[name]) for name in names))
    return step


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
        raise InputError(f"a step of a host program has {shown} where a whole number from {least} to {most} is "
                         "expected")
    return value


def execute(
    program: HostProgram,
    replicas: Sequence[Replica],
    feeds: Sequence[Sequence[Sequence[Mapping[str, torch.Tensor]]]],
    scalars: Mapping[str, float] | None = None,
    regions: MutableMapping[str, list[torch.Tensor]] | None = None,
    progress: Callable[[Step, int], None] | None = None,
) -> list[list[dict[str, torch.Tensor]]]:
    """Run a program on all replicas in step with each other.

    feeds: per replica, for every turn of the program's loop (one where there is no loop), the elements of a microbatch:
    a map of inputs by name for each. scalars: values of `SetScalar` steps by name; a scalar that is not given keeps its
    value. regions: by name the tensor of each replica that lies there, read and written. progress: called before every
    step with it and the number of its turn. Returns per replica and turn what was popped, by output. Raises
    `InputError` for an empty region, and for names that the graph does not have.
    """
    buffers = {} if regions is None else regions
    results: list[list[dict[str, torch.Tensor]]] = [[{} for _ in turns] for turns in feeds]
    fed = [[[dict(one) for one in turn] for turn in turns] for turns in feeds]
    for turn, step in _flat([step for _, step in program.steps]):
        if progress is not None:
            progress(step, turn)
        if isinstance(step, Load):
            _load(step, buffers, fed, turn)
            continue
        if isinstance(step, Store):
            if any(step.tensor not in popped[turn] for popped in results):
                raise InputError(f"the host program keeps {step.tensor!r} in a region before it loads it")
            buffers[step.region] = [popped[turn][step.tensor] for popped in results]
            continue
        if isinstance(step, Collective):
            average_gradients(replicas, step.tensors)
            continue
        for replica, turns, popped in zip(replicas, fed, results, strict=True):
            if isinstance(step, Push):
                for element in turns[turn]:
                    replica.push(step.tensor, element)
            elif isinstance(step, Run):
                replica.run(step.program, dict(step.params))
            elif isinstance(step, Pop):
                popped[turn][step.tensor] = join_elements([replica.pop(step.tensor) for _ in turns[turn]])
            elif isinstance(step, SetScalar) and scalars is not None and step.name in scalars:
                replica.set_scalar(step.name, scalars[step.name])
    return results


def _load(
    step: Load, regions: MutableMapping[str, list[torch.Tensor]],
    feeds: Sequence[Sequence[Sequence[dict[str, torch.Tensor]]]], turn: int,
) -> None:  # fmt: skip
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
    """All steps, those of loops once."""
    pending = [step for _, step in reversed(program.steps)]
    while pending:
        step = pending.pop()
        yield step
        if isinstance(step, HostLoop):
            pending += reversed(step.body)


def _flat(steps: Sequence[Step]) -> Iterator[tuple[int, Step]]:
    """Steps with the number of the turn that they run in."""
    for step in steps:
        if isinstance(step, HostLoop):
            yield from ((turn, inner) for turn in range(step.count) for inner in step.body)
        else:
            yield 0, step
