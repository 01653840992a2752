"""Between the model's tensors and the device's queues: what the host does before pushing and after popping."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np
import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.graph import TILE, TM, Graph, Node, Shape
from tbuda_lab.core.lowering.values import collapse, tiles_of
from tbuda_lab.core.ops.evaluate import evaluate


def host_tensor(value: np.ndarray) -> np.ndarray:
    """A (z, R, C) tensor as the host writes it: zeros up to whole tiles, a size of 1 replicated through its tile."""
    z, rows, cols = value.shape
    if rows != 1 and cols != 1 and rows % TILE == 0 and cols % TILE == 0:
        return np.ascontiguousarray(value, np.float32)
    out = np.zeros((z, tiles_of(rows) * TILE, tiles_of(cols) * TILE), np.float32)
    # A size of 1 broadcasts into the whole tile here, any other size lands at the top left.
    out[:, : rows if rows > 1 else None, : cols if cols > 1 else None] = value
    return out


@dataclasses.dataclass(frozen=True)
class InputBinding:
    """A queue the host fills for every input; `recipe`, if any, computes its tensor from the model's inputs."""

    name: str
    queue: str
    shape: Shape
    sources: tuple[str, ...]
    recipe: Graph | None = None

    def encode(self, feeds: Mapping[str, torch.Tensor]) -> np.ndarray:
        """(t, R, C) float32, padded to tiles, for the model inputs `feeds` by name."""
        if self.recipe is None:
            value = feeds[self.sources[0]]
        else:
            missing = [s for s in self.sources if s not in feeds]
            if missing:
                raise InputError(f"input {self.name!r} needs {', '.join(missing)}")
            value = next(iter(evaluate(self.recipe, {s: feeds[s] for s in self.sources}).values()))
        array = value.detach().to(torch.float32).numpy()
        if array.size != np.prod(self.shape, dtype=np.int64):
            raise InputError(f"input {self.name!r} has shape {tuple(array.shape)}, the device expects {self.shape}")
        z, rows, cols = collapse(self.shape)
        return host_tensor(array.reshape(z, rows, cols))


@dataclasses.dataclass(frozen=True)
class OutputBinding:
    """A queue the host drains. `shape` is the device's logical nD shape; `recipe` goes on to the model's output."""

    name: str
    queue: str
    shape: Shape
    tms: tuple[TM, ...] = ()
    recipe: Graph | None = None

    def decode(self, array: np.ndarray) -> torch.Tensor:
        """The model's output from one popped entry (t, R, C)."""
        for tm in self.tms:
            array = unstacked(array, tm)
        z, rows, cols = collapse(self.shape)
        logical = np.ascontiguousarray(array[:z, :rows, :cols], np.float32).reshape(self.shape)
        value = torch.from_numpy(logical)
        if self.recipe is None:
            return value
        feed = self.recipe.inputs[0].name
        return next(iter(evaluate(self.recipe, {feed: value}).values()))


def unstacked(array: np.ndarray, tm: TM) -> np.ndarray:
    """Undo the streaming of an output: stacks and slices on a host array (t, R, C)."""
    z, rows, cols = array.shape
    n = int(tm.args[0])
    if tm.name == "vstack":
        return array.reshape(z // n, n * rows, cols)
    if tm.name == "hstack":
        return array.reshape(z // n, n, rows, cols).swapaxes(1, 2).reshape(z // n, rows, n * cols)
    if tm.name == "hslice":
        return array.reshape(z, rows, n, cols // n).swapaxes(1, 2).reshape(z * n, rows, cols // n)
    return array.reshape(z * n, rows // n, cols)


def input_binding(node: Node) -> InputBinding:
    """From a lowered INPUT node; its nD shape stands in attrs["logical"]."""
    sources = tuple(n.name for n in node.recipe.inputs) if node.recipe is not None else (node.name,)
    return InputBinding(node.name, node.name, tuple(node.attrs["logical"]), sources, node.recipe)


def output_binding(node: Node, queue: str, tms: Sequence[TM]) -> OutputBinding:
    """From a lowered OUTPUT node."""
    return OutputBinding(node.name, queue, tuple(node.attrs["logical"]), tuple(tms), node.recipe)
