"""Inputs that a device keeps from run to run and writes outputs into (`loopback_outputs`): caches of a generation."""

from __future__ import annotations

import re
import warnings
from collections.abc import Mapping
from typing import Any

import torch

from tbuda_lab.core.errors import PipelineError
from tbuda_lab.core.graph import Graph
from tbuda_lab.pybuda.stage import Inputs, Outputs


def input_names(graph: Graph) -> list[str]:
    """By which a script may give the inputs of a model: the names of the forward's arguments, in their order."""
    return [str(node.attrs.get("argument", node.name)) for node in graph.inputs]


def loops_by_place(graph: Graph, loops: Mapping[str, int]) -> dict[str, int]:
    """The loops by names of the model's inputs.

    TVM numbers inputs beside ops (`input__56`, `k_past_9`), in the order in which they are read. Where no name is an
    input's and all end in numbers, they are taken in that order for as many inputs that are longer than their outputs
    along one dim, the same for all; where there are none, for those as large as their outputs. A warning says what was
    taken for what. Names that cannot be told stay.
    """
    names = input_names(graph)
    numbered = sorted((int(m[1]), name) for name in loops if (m := _NUMBERED.fullmatch(name)))
    known = any(name in names for name in loops) or any(not 0 <= k < len(graph.outputs) for k in loops.values())
    if known or len(numbered) != len(loops):
        return dict(loops)
    asked = [(name, graph.outputs[loops[name]].shape) for _, name in numbered]
    shapes = {name: node.shape for name, node in zip(names, graph.inputs, strict=True)}
    longer = {(name, _longer_in(shape, new)) for name, shape in shapes.items() for _, new in asked}
    dims = sorted({dim for _, dim in longer if dim is not None})
    found = [[name for name in names if (name, dim) in longer] for dim in dims]
    found = [places for places in found if len(places) == len(asked)]
    if not dims:
        found = [[name for name, shape in shapes.items() if any(shape == new for _, new in asked)]]
    if len(found) != 1 or len(found[0]) != len(asked):
        return dict(loops)
    pairs = [(name, place) for (name, _), place in zip(asked, found[0], strict=True)]
    shown = ", ".join(f"{name} is taken for {place}" for name, place in pairs)
    warnings.warn(f"loopback_outputs: names of TVM's graph: {shown}", UserWarning, stacklevel=4)
    return {place: loops[name] for name, place in pairs}


_NUMBERED = re.compile(r".*_(\d+)")


def _longer_in(cache: tuple[int, ...], new: tuple[int, ...]) -> int | None:
    """The one dim in which a cache is longer than what is written into it; None where there is no such. It is not the
    last, which has the numbers of one place: of a mask that has the places."""
    apart = [d for d, (c, n) in enumerate(zip(cache, new, strict=False)) if c != n]
    fits = len(cache) == len(new) and len(apart) == 1 and apart[0] < len(cache) - 1 and cache[apart[0]] > new[apart[0]]
    return apart[0] if fits else None


class LoopbackCaches:
    """The inputs that a device keeps, by their names. `loops` below: {input: number of the output written into it}."""

    def __init__(self, device: str) -> None:
        self.device = device
        self._values: dict[str, Any] = {}
        self._asked: tuple[int, dict[str, int]] = 0, {}
        self._loops: dict[str, int] = {}

    def _named(self, graph: Graph, loops: Mapping[str, int]) -> dict[str, int]:
        """`loops_by_place`, found once for a graph."""
        if self._asked != (id(graph), loops):
            self._asked, self._loops = (id(graph), dict(loops)), loops_by_place(graph, loops)
        return self._loops

    def begin(self, graph: Graph, sample: Inputs, loops: Mapping[str, int]) -> None:
        """Caches begin with the values that the pipeline was set up with."""
        loops = self._named(graph, loops)
        if loops:
            by_name = sample if isinstance(sample, dict) else dict(zip(input_names(graph), sample, strict=False))
            self._values = {name: by_name[name] for name in loops if name in by_name}

    def fill_in(self, graph: Graph, inputs: Inputs, loops: Mapping[str, int]) -> tuple[Any, ...]:
        """Inputs in the model's order: those given, and the caches for the rest. Raises `PipelineError` where one is
        missing or too many are given."""
        names, loops = input_names(graph), self._named(graph, loops)
        own = [n for n in names if n not in loops]
        by_name = (
            inputs
            if isinstance(inputs, dict)
            else dict(zip(names if len(inputs) == len(names) else own, inputs, strict=False))
        )
        values = {**self._values, **by_name}
        missing = [n for n in names if n not in values]
        if missing or len(by_name) != len(inputs):
            raise PipelineError(
                f"device {self.device!r} takes {', '.join(own)} and keeps {', '.join(loops)}; "
                f"{missing[0] if missing else 'too much'} {'is missing' if missing else 'is given'}"
            )
        return tuple(values[n] for n in names)

    def write(
        self, graph: Graph, inputs: tuple[Any, ...], outputs: Outputs, loops: Mapping[str, int], start: int
    ) -> Outputs:
        """Write outputs of a run into the caches that it had (all of its inputs, in the model's order), from place
        `start` on; returns the other outputs. Raises `PipelineError` for names and shapes that do not fit."""
        names, loops = input_names(graph), self._named(graph, loops)
        caches = dict(zip(names, inputs, strict=True))
        for name, index in loops.items():
            if name not in caches or not 0 <= index < len(outputs):
                raise PipelineError(
                    f"loopback_outputs: {name!r} is to be one of the inputs {', '.join(names)}, "
                    f"and its output a number below {len(outputs)}, not {index}"
                )
            self._values[name] = _write_rows(name, caches[name], outputs[index], start)
        return tuple(o for k, o in enumerate(outputs) if k not in loops.values())


def _write_rows(name: str, cache: torch.Tensor, new: torch.Tensor, start: int) -> torch.Tensor:
    """A cache with new rows from `start` on, along the one dim in which the sizes differ. Raises `PipelineError`."""
    if new.shape == cache.shape:
        return new.clone()
    dims = [d for d in range(cache.dim()) if new.dim() == cache.dim() and new.shape[d] != cache.shape[d]]
    if len(dims) != 1 or new.shape[dims[0]] > cache.shape[dims[0]]:
        raise PipelineError(
            f"loop-back input {name!r} has shape {tuple(cache.shape)}; an output of "
            f"{tuple(new.shape)} has no place in it"
        )
    count = int(new.shape[dims[0]])
    if not 0 <= start <= cache.shape[dims[0]] - count:
        raise PipelineError(
            f"loop-back input {name!r} has {cache.shape[dims[0]]} places; {count} from {start} on are "
            "more than that: give a longer cache"
        )
    written = cache.clone()
    written.narrow(dims[0], start, count).copy_(new)
    return written
