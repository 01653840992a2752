"""Between the model's tensors and the device's queues: what the host does before pushing and after popping."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Collection, Mapping, Sequence

import numpy as np
import torch

from tbuda_lab.core.errors import InputError
from tbuda_lab.core.formats import DataFormat, quantise, round_to
from tbuda_lab.core.graph import TILE, TM, Graph, Node, NodeKind, Shape
from tbuda_lab.core.graph.phases import ACCUMULATES, LOSS, OPTIMIZER_OF, PHASE, ROLE, STATISTIC, WRITES
from tbuda_lab.core.lowering.values import collapse, tiles_of
from tbuda_lab.core.ops.evaluate import Evaluation, evaluate
from tbuda_lab.core.ops.tm import Reshape
from tbuda_lab.sim.arrays import repeat_to


def array_type(value: np.ndarray) -> type[np.int32] | type[np.float32]:
    """What the device is given, and gives: int32 of whole numbers in 32 bits, float32 of anything else."""
    return np.int32 if value.dtype == np.int32 else np.float32


def host_tensor(value: np.ndarray) -> np.ndarray:
    """A (z, R, C) tensor as the host writes it, int32 or float32: zeros up to whole tiles, a size of 1 replicated
    through its tile. A single row is once in memory, and read-only."""
    z, rows, cols = value.shape
    kind = array_type(value)
    if rows != 1 and cols != 1 and rows % TILE == 0 and cols % TILE == 0:
        return np.ascontiguousarray(value, kind)
    out = np.zeros((z, tiles_of(rows) * TILE if rows > 1 else 1, tiles_of(cols) * TILE), kind)
    # A size of 1 broadcasts into the whole tile here, any other size lands at the top left.
    out[:, :rows, : cols if cols > 1 else None] = value
    return out if rows > 1 else repeat_to(out, (z, TILE, out.shape[2]))


def nearest(value: np.ndarray, df: DataFormat | None) -> np.ndarray:
    """Numbers as the nearest ones of a format of 16 bits, as they are of any other; what is finite stays so, as the
    lowest float32 of a mask."""
    if df not in (DataFormat.Float16, DataFormat.Float16_b):
        return value
    rounded = round_to(value, df)
    beyond = np.isinf(rounded) & np.isfinite(value)
    return np.where(beyond, quantise(value, df), rounded) if beyond.any() else rounded


def _evaluation(recipe: Graph | None) -> Evaluation | None:
    """A recipe made ready for all runs; None where all that is done is to give a tensor another shape."""
    if recipe is None or all(
        isinstance(node.op, Reshape) or (node.kind in (NodeKind.INPUT, NodeKind.OUTPUT) and node.recipe is None)
        for node in recipe
    ):
        return None
    return Evaluation(recipe)


class _Binding:
    """What both kinds of binding work out once. shape: on the device; recipe: what the host evaluates on the way."""

    shape: Shape
    recipe: Graph | None

    @functools.cached_property
    def _recipe(self) -> Evaluation | None:
        return _evaluation(self.recipe)

    @functools.cached_property
    def _zrc(self) -> tuple[int, int, int]:
        return collapse(self.shape)


@dataclasses.dataclass(frozen=True)
class InputBinding(_Binding):
    """A queue the host fills for every input; `recipe`, if any, computes its tensor from the model's inputs.

    gradient_of: the output by which this is the gradient, which the backward program reads; "" for inputs of the model.
    words: whether its queue holds 32-bit whole numbers; df: the format of its queue.
    """

    name: str
    queue: str
    shape: Shape
    sources: tuple[str, ...]
    recipe: Graph | None = None
    gradient_of: str = ""
    words: bool = False
    df: DataFormat | None = None

    @functools.cached_property
    def _recipe_inputs(self) -> list[tuple[str, Shape]]:
        """Inputs of the recipe with their shapes."""
        return [] if self.recipe is None else [(node.name, node.shape) for node in self.recipe.inputs]

    def encode(self, feeds: Mapping[str, torch.Tensor], rounded: bool = False) -> np.ndarray:
        """(t, R, C) float32, or int32 of words, padded to tiles, for the model inputs `feeds` by name. rounded: to
        nearest where the queue's format has 16 bits, for the machine's own conversion cuts what is too much."""
        zrc = self._zrc
        for name, shape in self._recipe_inputs:
            if name not in feeds:
                raise InputError(f"input {self.name!r} needs {', '.join(self.sources)}; given were {sorted(feeds)}")
            if feeds[name].shape != shape:
                raise InputError(f"input {name!r} takes shape {shape}, not {tuple(feeds[name].shape)}")
        if self._recipe is None:
            value = feeds[self.sources[0]]
        else:
            (value,) = self._recipe.run({name: feeds[name] for name in self.sources}).values()
        wanted = torch.int32 if self.words else torch.float32
        if value.dtype is not wanted or value.requires_grad:
            value = value.detach().to(wanted)
        array = value.numpy()
        if array.size != math.prod(zrc):
            raise InputError(f"input {self.name!r} has shape {tuple(array.shape)}, the device expects {self.shape}")
        if rounded and not self.words:
            array = nearest(array, self.df)
        return host_tensor(array.reshape(zrc))


@dataclasses.dataclass(frozen=True)
class OutputBinding(_Binding):
    """A queue the host drains. `shape` is the device's logical nD shape; `recipe` goes on to the model's output.

    phase: the part of the graph that fills it, "forward" or "backward"; gradients by inputs come from the latter.
    dtype: of the model's output, which whole numbers and truth values come back in; floats are float32.
    """

    name: str
    queue: str
    shape: Shape
    tms: tuple[TM, ...] = ()
    recipe: Graph | None = None
    phase: str = "forward"
    dtype: str = "float32"

    @functools.cached_property
    def _popped_shape(self) -> Shape:
        """The shape of what is popped; that of the model's output where the recipe is not evaluated."""
        return self.shape if self.recipe is None or self._recipe is not None else self.recipe.outputs[0].shape

    def decode(self, array: np.ndarray) -> torch.Tensor:
        """The model's output from one popped entry (t, R, C)."""
        for tm in self.tms:
            array = unstack(array, tm)
        z, rows, cols = self._zrc
        values = np.ascontiguousarray(array[:z, :rows, :cols], array_type(array)).reshape(self._popped_shape)
        value = torch.from_numpy(values)
        if self.recipe is not None and self._recipe is not None:
            (value,) = self._recipe.run({self.recipe.inputs[0].name: value}).values()
        return as_type(value, self.dtype)


def as_type(value: torch.Tensor, dtype: str) -> torch.Tensor:
    """Whole numbers and truth values, which the device has as floats, in their own type; floats as they are."""
    if dtype.startswith(("float", "bfloat", "complex")):
        return value
    if dtype == "bool":
        return value != 0
    return (value.round() if value.is_floating_point() else value).to(getattr(torch, dtype))


def output_dtype(output: Node) -> torch.dtype:
    """The float type in which an output node leaves: the model's own. A loss leaves as float32."""
    dtype = getattr(torch, str(output.attrs.get("dtype", "float32")))
    return dtype if dtype.is_floating_point and not output.attrs.get(LOSS) else torch.float32


def in_model_dtypes(
    graph: Graph, outputs: Sequence[torch.Tensor], names: Sequence[str] | None = None
) -> tuple[torch.Tensor, ...]:
    """What the device computed, in the dtypes of the model's own outputs where these are other floats than float32.

    names: of the outputs' nodes; None: all that the model gives. The executor gives float32. A float32 above 65,504
    becomes an infinity in float16, as in torch. A loss and outputs of whole numbers stay as they are.
    """
    given = [node for node in graph.outputs if WRITES not in node.attrs]  # what writes a cache stays on the device
    if names is not None:
        given = [graph[name] for name in names]
    return tuple(
        v.to(output_dtype(node)) if v.dtype == torch.float32 else v for v, node in zip(outputs, given, strict=True)
    )


def unstack(array: np.ndarray, tm: TM) -> np.ndarray:
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
    gradient_of = str(node.attrs.get("gradient_of", "")) if node.attrs.get(ROLE) == "gradient" else ""
    words = node.df is DataFormat.Int32
    return InputBinding(
        node.name, node.name, tuple(node.attrs["logical"]), sources, node.recipe, gradient_of, words, node.df
    )


def output_binding(node: Node, queue: str, tms: Sequence[TM]) -> OutputBinding:
    """From a lowered OUTPUT node."""
    phase = str(node.attrs.get(PHASE, "forward"))
    dtype = str(node.attrs.get("dtype", "float32"))
    return OutputBinding(node.name, queue, tuple(node.attrs["logical"]), tuple(tms), node.recipe, phase, dtype)


@dataclasses.dataclass(frozen=True)
class StateBinding:
    """State of an optimizer in a ram of the device: its suffix ("lr", "mean", ...), its ram, its nD shape."""

    suffix: str
    queue: str
    shape: Shape


@dataclasses.dataclass(frozen=True)
class WeightBinding:
    """A parameter that is trained. shape: its nD shape on the device; recipe: how that is made of the model's own, a
    new order of its elements (None: as it is); gradient: the ram with its accumulated gradient, "" where nothing flows
    back to it."""

    name: str
    queue: str
    shape: Shape
    gradient: str = ""
    recipe: Graph | None = None
    states: tuple[StateBinding, ...] = ()

    @functools.cached_property
    def _order(self) -> tuple[Shape, np.ndarray] | None:
        """The shape in the model, and by element there where it lies on the device."""
        if self.recipe is None:
            return None
        (source,) = self.recipe.inputs
        numbered = torch.arange(math.prod(source.shape), dtype=torch.float64).reshape(source.shape)
        (placed,) = evaluate(self.recipe, {source.name: numbered}, torch.float64).values()
        return source.shape, np.argsort(placed.reshape(-1).numpy())

    def encode(self, value: torch.Tensor) -> np.ndarray:
        """What the host writes for a value of the model's parameter: (t, R, C) float32, padded to tiles."""
        if self.recipe is not None:
            (value,) = evaluate(self.recipe, {self.recipe.inputs[0].name: value.detach()}).values()
        return encode(value, self.shape, self.name)

    def decode(self, array: np.ndarray) -> torch.Tensor:
        """A value, gradient or state in the order of the model's parameter, from what the ram holds."""
        return self.to_model_order(decode(array, self.shape))

    @property
    def size(self) -> int:
        """Elements of the parameter."""
        return math.prod(self.shape)

    def to_model_order(self, value: torch.Tensor) -> torch.Tensor:
        """A tensor of the device's shape in the order of the model's parameter."""
        if self._order is None:
            return value
        shape, where = self._order
        return value.reshape(-1)[torch.from_numpy(where)].reshape(shape)


def encode(value: torch.Tensor, shape: Shape, name: str) -> np.ndarray:
    """A tensor of this nD shape as the host writes it: int32 stays so. Raises `InputError` for another size."""
    array = value.detach().numpy() if value.dtype is torch.int32 else value.detach().to(torch.float32).numpy()
    if array.size != math.prod(shape):
        raise InputError(f"{name!r} has shape {tuple(array.shape)}, the device expects {tuple(shape)}")
    return host_tensor(array.reshape(collapse(shape)))


def decode(array: np.ndarray, shape: Shape) -> torch.Tensor:
    """The logical tensor in what a ram holds, (t, R, C) in whole tiles."""
    z, rows, cols = collapse(shape)
    return torch.from_numpy(np.ascontiguousarray(array[:z, :rows, :cols], array_type(array)).reshape(shape).copy())


def weight_bindings(passed: Graph, queues: Collection[str]) -> tuple[WeightBinding, ...]:
    """The trained parameters and running statistics of a passed graph, in its order; queues: those of the netlist."""
    states: dict[str, list[StateBinding]] = {}
    gradients: dict[str, str] = {}
    for node in passed.of_kind(NodeKind.PARAMETER):
        if node.attrs.get(ROLE) == "state":
            state = StateBinding(str(node.attrs["state"]), node.name, node.shape)
            for weight in node.attrs[OPTIMIZER_OF]:
                states.setdefault(weight, []).append(state)
    for output in passed.outputs:
        if output.attrs.get(ACCUMULATES):
            gradients[str(output.attrs["gradient_of"])] = str(output.attrs[WRITES])
    return tuple(
        WeightBinding(
            node.name if node.recipe is None else node.recipe.inputs[0].name,
            node.name,
            node.shape,
            gradients.get(node.name, ""),
            node.recipe,
            tuple(states.get(node.name, ())),
        )
        for node in passed.of_kind(NodeKind.PARAMETER)
        if node.attrs.get(ROLE) in ("weight", STATISTIC) and node.name in queues
    )
