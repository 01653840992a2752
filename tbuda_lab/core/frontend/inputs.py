"""What goes into a model: binding sample inputs to a forward's arguments, microbatch, and checks of later inputs."""

from __future__ import annotations

import dataclasses
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch._subclasses import FakeTensor
from torch.utils import _pytree as pytree

from tbuda_lab.core.errors import InputError, quantity
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import DROPOUT

FIXED = "fixed"
"""Attribute of an INPUT that decides shapes, axes or counts of the graph: its elements. No others may be fed."""

PLAIN = "plain"
"""Attribute of the first INPUT of a torch model: [path, value] of the numbers, truth values and texts among the
arguments of its forward, defaults too, in its order. The trace holds for them; others are refused."""

INDEX_RANGES = "index_ranges"
"""Attribute of an INPUT of indices: by reader [the least, the largest, others allowed, the line that reads it].
A look-up by a product with rows of 0 and 1 finds nothing beyond them, where the framework raises."""

SINGLE = "single"
"""Attribute of an INPUT of one element whose model mixes the elements of a batch, of a graph that is read without its
model: no more than one may be fed."""


@dataclasses.dataclass(frozen=True)
class BoundInputs:
    """Sample inputs bound to the arguments of a forward, in its order.

    `args` and `kwargs` as they are passed; `leaves`: (path, tensor) of every tensor in them, in order of flattening;
    a path is "hidden_states" for a plain argument and "states[0]" or "state['h']" inside a nested one. `plain`: so
    of numbers, truth values and texts, defaults of the forward too. `batched`: paths of the leaves that hold the
    microbatch in dim 0 where a trace tells them; else they are told from the shapes.
    """

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    leaves: tuple[tuple[str, torch.Tensor], ...]
    plain: tuple[tuple[str, Any], ...] = ()
    batched: frozenset[str] | None = None

    @property
    def microbatch(self) -> int:
        """Dim 0 that the inputs of rank 2 and more (or those that a trace tells) share, or 1 (some may have 1 there,
        and broadcast)."""
        known = self.batched
        sizes = {int(t.shape[0]) for path, t in self.leaves if (t.dim() > 1 if known is None else path in known)}
        larger = sizes - {1}
        return larger.pop() if len(larger) == 1 else 1

    def cut(self, at: int = 0) -> BoundInputs:
        """One element of the microbatch: dim 0 of every input that has the microbatch there is cut to 1."""
        return self if self.microbatch == 1 else self._each(lambda value: value[at : at + 1])

    def elements(self, at: Sequence[int]) -> BoundInputs:
        """Some elements of the microbatch."""
        return self._each(lambda value: value[list(at)])

    def of(self, batched: frozenset[str]) -> BoundInputs:
        """The same, of which the leaves at these paths hold the microbatch."""
        return dataclasses.replace(self, batched=batched)

    def of_batch(self) -> list[torch.Tensor]:
        """The inputs that have the microbatch in dim 0."""
        if self.batched is not None:
            return [t for path, t in self.leaves if path in self.batched]
        return [t for _, t in self.leaves if t.dim() and t.shape[0] == self.microbatch]

    def map(self, change: Callable[[torch.Tensor], torch.Tensor]) -> BoundInputs:
        """Other tensors in place of the inputs, each changed once, so that leaves stay the arguments."""
        new = {id(tensor): change(tensor) for _, tensor in self.leaves}

        def one(value: Any) -> Any:
            return new.get(id(value), value) if isinstance(value, torch.Tensor) else value

        args, kwargs = pytree.tree_map(one, (self.args, self.kwargs))
        leaves = tuple((path, new[id(tensor)]) for path, tensor in self.leaves)
        return dataclasses.replace(self, args=args, kwargs=kwargs, leaves=leaves)

    def _each(self, change: Callable[[torch.Tensor], torch.Tensor]) -> BoundInputs:
        """A change of every input that has the microbatch in dim 0."""
        cut = set(map(id, self.of_batch()))
        return self.map(lambda tensor: change(tensor) if id(tensor) in cut else tensor)


def as_tensor(value: Any) -> Any:
    """A torch tensor from an array or from anything with `to_pytorch` (PyBuda's Tensor); other values unchanged.

    Raises `InputError` for arrays and tensors that are not plain numbers one by one in host memory.
    """
    if isinstance(value, np.ma.MaskedArray):
        raise InputError("a masked array is not an input, for the mask would be lost; fill it with .filled(value)")
    if isinstance(value, np.ndarray):
        try:
            return torch.from_numpy(np.asarray(value, value.dtype.newbyteorder("="), order="C"))
        except (TypeError, ValueError) as error:
            fix = "convert it with .astype(numpy.float32)"
            raise InputError(f"an array of {value.dtype} is not an input; {fix}") from error
    if isinstance(value, torch.Tensor):
        return _dense(value)
    convert = getattr(value, "to_pytorch", None)
    return _dense(convert()) if callable(convert) else value


def _dense(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_nested:
        raise InputError("a nested tensor is not an input; pad it with torch.nested.to_padded_tensor")
    if value.layout is not torch.strided:
        raise InputError(f"a tensor of layout {value.layout} is not an input; convert it with .to_dense()")
    if value.is_floating_point() and value.element_size() == 1:
        raise InputError(f"a tensor of {value.dtype} is not an input: no format of the device holds it; .float() does")
    return value


def bind(forward: Callable[..., Any], sample_inputs: Any, kwargs: Mapping[str, Any] | None = None) -> BoundInputs:
    """Sample inputs (a tensor, a tuple or list of arguments, or a dict of keyword arguments) as `forward` takes them.

    Raises `InputError` when they do not fit the signature, or when an argument is not a tensor, number, string, None or
    container of those.
    """
    if isinstance(sample_inputs, Mapping):
        args: tuple[Any, ...] = ()
        named = {**sample_inputs, **(kwargs or {})}
    elif isinstance(sample_inputs, tuple | list):
        args, named = tuple(sample_inputs), dict(kwargs or {})
    else:
        args, named = (sample_inputs,), dict(kwargs or {})
    tensors_by_id: dict[int, torch.Tensor] = {}

    def own(value: Any) -> Any:
        """A tensor given for two arguments is two tensors: a trace takes one object for one input."""
        tensor = as_tensor(value)
        if not isinstance(tensor, torch.Tensor):
            return tensor
        if id(tensor) in tensors_by_id:
            return tensor.detach()
        tensors_by_id[id(tensor)] = tensor
        return tensor

    args, named = pytree.tree_map(own, (args, named))
    if len(args) > 1 and not named and _takes_one(forward):
        args = (list(args),)  # a forward of one list of tensors, given the tensors
    try:
        signature = inspect.signature(forward)
        bound = signature.bind(*args, **named)
    except TypeError as error:
        raise InputError(
            f"the sample inputs do not fit forward{_signature_text(forward)}: {error}; "
            "give a tuple of positional inputs or a dict of keyword inputs"
        ) from None
    leaves: list[tuple[str, torch.Tensor]] = []
    for name, value in bound.arguments.items():
        kind = signature.parameters[name].kind
        if kind is inspect.Parameter.VAR_KEYWORD:
            for key, inner in value.items():
                leaves.extend(_tensors(key, inner))
        else:
            leaves.extend(_tensors(name, value))
    if not leaves:
        raise InputError("the sample inputs hold no tensor; a model is traced on one tensor per input")
    passed = bound.args, bound.kwargs
    bound.apply_defaults()
    plain = (pair for name, value in bound.arguments.items() for pair in _plain(name, value))
    return BoundInputs(*passed, tuple(leaves), tuple(plain))


def _takes_one(forward: Callable[..., Any]) -> bool:
    """Whether a function has one parameter, which is positional and not declared to be a single tensor."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        return False
    if len(parameters) != 1 or parameters[0].annotation in (torch.Tensor, "torch.Tensor", "Tensor"):
        return False
    return parameters[0].kind in (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def _signature_text(forward: Callable[..., Any]) -> str:
    try:
        return str(inspect.signature(forward))
    except (TypeError, ValueError):
        return "(...)"


def _tensors(path: str, value: Any) -> list[tuple[str, torch.Tensor]]:
    tensors = []
    for key, leaf in pytree.tree_flatten_with_path(value)[0]:
        where = path + pytree.keystr(key)
        if isinstance(leaf, torch.Tensor):
            tensors.append((where, leaf))
        elif not (leaf is None or isinstance(leaf, bool | int | float | str | torch.dtype | torch.device)):
            raise InputError(
                f"input {where!r} is a {type(leaf).__name__}; inputs are tensors, numbers, strings or None"
            )
    return tensors


def _plain(path: str, value: Any) -> list[tuple[str, Any]]:
    """Numbers, truth values and texts in an argument, by path."""
    leaves = pytree.tree_flatten_with_path(value)[0]
    return [(path + pytree.keystr(key), leaf) for key, leaf in leaves if isinstance(leaf, bool | int | float | str)]


def _refuse_other_plain(nodes: Sequence[Node], inputs: Any) -> None:
    """Raise `InputError` for a number, a truth value or a text that is not the one of the trace."""
    known = next((node.attrs[PLAIN] for node in nodes if PLAIN in node.attrs), None)
    if known is None:
        return
    if isinstance(inputs, Mapping):
        traced = {str(path): value for path, value in known}
        given = [(*pair, traced.get(pair[0])) for name, value in inputs.items() for pair in _plain(str(name), value)]
    else:
        values = [value for _, value in _plain("", list(inputs) if isinstance(inputs, tuple) else inputs)]
        pairs = itertools.zip_longest(known[: len(values)], values, fillvalue=("one more argument", None))
        given = [(path, value, before) for (path, before), value in pairs]
    for path, value, before in given:
        truth = isinstance(value, bool) is not isinstance(before, bool)  # True is 1, and another thing to a model
        if truth or (value != before and (value == value or before == before)):
            raise InputError(f"{path} is {value!r}; the model was traced with {before!r}: trace it again for another")


def dtype_name(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def feeds(graph: Graph, inputs: Any) -> dict[str, torch.Tensor]:
    """Tensors for every INPUT node of a traced graph but the masks of dropouts, checked.

    inputs: a tensor, a tuple or list in forward order (nested containers are flattened, None is skipped), or a dict by
    argument or node name. Dim 0 may hold any number of microbatch elements, the same for all; the other sizes must be
    those of the trace. Raises `InputError` for a wrong count, name, shape or dtype.
    """
    return feeds_of(fed_inputs(graph), inputs)


def fed_inputs(graph: Graph) -> list[Node]:
    """The INPUT nodes that are given tensors: all but the masks of dropouts."""
    return [node for node in graph.inputs if DROPOUT not in node.attrs]


def feeds_of(nodes: Sequence[Node], inputs: Any) -> dict[str, torch.Tensor]:
    """As `feeds`, of the `fed_inputs` of a graph."""
    _refuse_other_plain(nodes, inputs)
    by_name: dict[str, Any] = {}
    if isinstance(inputs, Mapping):
        by_path = {str(node.attrs.get("argument", node.name)): node.name for node in nodes}
        for key, value in inputs.items():
            for path, tensor in _tensors(str(key), as_tensor(value)):
                name = by_path.get(path, path)
                if name not in {n.name for n in nodes}:
                    raise InputError(f"the model has no input {path!r}; its inputs are {', '.join(by_path)}")
                by_name[name] = tensor
        missing = [node.name for node in nodes if node.name not in by_name]
        if missing:
            raise InputError(f"missing input(s): {', '.join(missing)}")
    else:
        many = inputs if isinstance(inputs, tuple | list) else (inputs,)
        if not all(isinstance(v, torch.Tensor) for v in many):
            many = _leaves_in_order(nodes, many)
        tensors = [t for v in many if isinstance(t := as_tensor(v), torch.Tensor)]
        if len(tensors) != len(nodes):
            names = ", ".join(f"{n.name} {tuple(n.shape)}" for n in nodes)
            raise InputError(f"{quantity(len(tensors), 'input tensor')} for a model of {len(nodes)}: {names}")
        by_name = {node.name: tensor for node, tensor in zip(nodes, tensors, strict=True)}
    for node in nodes:
        check_input(node, by_name[node.name])
        if by_name[node.name].is_meta:
            raise InputError(f"input {node.name!r} is on the meta device and has no values; make it on the CPU")
    _check_microbatch(nodes, by_name)
    return {node.name: _as_traced(node, by_name[node.name]) for node in nodes}


def _leaves_in_order(nodes: Sequence[Node], inputs: Sequence[Any]) -> list[Any]:
    """What arguments hold, in the order of the inputs of the trace. The values of a dict, which may come in another
    order than the one that was traced, go by their keys. Raises `InputError` for other keys."""
    result: list[Any] = []
    for value in inputs:
        leaves = pytree.tree_flatten_with_path(value)[0]
        held = {pytree.keystr(key): t for key, v in leaves if isinstance(t := as_tensor(v), torch.Tensor)}
        paths = [str(node.attrs.get("argument", node.name)) for node in nodes[len(result) : len(result) + len(held)]]
        roots = (path.removesuffix(next(iter(held))) for path in paths)
        root = next((r for r in roots if {r + key for key in held} == set(paths)), None)
        if root is not None:
            result += [held[path.removeprefix(root)] for path in paths]
        elif any("['" in key for key in held):
            raise InputError(f"an argument holds {', '.join(held)}; the model was traced with {', '.join(paths)}")
        else:
            result += held.values()
    return result


def _as_traced(node: Node, tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of whole numbers in the type of the trace, which has room for them."""
    wanted = getattr(torch, str(node.attrs.get("dtype", "float32")))
    return tensor if tensor.dtype == wanted or wanted.is_floating_point else tensor.to(wanted)


def check_input(node: Node, tensor: torch.Tensor) -> None:
    """Raise `InputError` unless `tensor` may be fed to `node`."""
    shape, actual = tuple(node.shape), tuple(tensor.shape)
    if FIXED in node.attrs and (actual != shape or tensor.reshape(-1).tolist() != node.attrs[FIXED]):
        raise InputError(
            f"input {node.name!r} decides shapes or counts of the model, which was traced for "
            f"{node.attrs[FIXED]}; trace it again for other values"
        )
    fits = actual == shape or (
        shape and shape[0] == 1 and actual[1:] == shape[1:] and len(actual) == len(shape) and actual[0] >= 1
    )
    if not fits:
        expected = f"(microbatch, {', '.join(map(str, shape[1:]))})" if shape and shape[0] == 1 else str(shape)
        raise InputError(f"input {node.name!r} has shape {actual}; the model was traced for {expected}")
    if SINGLE in node.attrs and actual != shape:
        raise InputError(
            f"input {node.name!r} holds {actual[0]} elements of a model that was traced on 1 and that answers a batch "
            "otherwise than its elements; give the samples one by one"
        )
    wanted_dtype = getattr(torch, str(node.attrs.get("dtype", "float32")))
    if wanted_dtype != tensor.dtype and wanted_dtype.is_floating_point != tensor.dtype.is_floating_point:
        raise InputError(
            f"input {node.name!r} has dtype {dtype_name(tensor)}; the model was traced with {node.attrs.get('dtype')}; "
            f"convert it with .to(torch.{node.attrs.get('dtype')})"
        )
    narrow = [d for d in (wanted_dtype, tensor.dtype) if d in (torch.int8, torch.uint8, torch.int16)]
    if narrow and wanted_dtype != tensor.dtype:
        raise InputError(
            f"input {node.name!r} has dtype {dtype_name(tensor)}; the model was traced with {node.attrs.get('dtype')}, "
            f"whose sums wrap elsewhere; convert it with .to(torch.{node.attrs.get('dtype')})"
        )
    refuse_beyond_float32(tensor, f"input {node.name!r}")
    for least, largest, others, where in node.attrs.get(INDEX_RANGES, ()) if tensor.numel() else ():
        outside = (tensor < least) | (tensor > largest)
        for other in others:
            outside &= tensor != other
        if bool(outside.any()):
            raise InputError(
                f"input {node.name!r} holds the index {int(tensor[outside][0])}; {where} reads {least} to {largest}"
            )


def refuse_beyond_float32(tensor: torch.Tensor, what: str) -> None:
    """Raise `InputError` for a finite number of float64 that float32 has not, and so no format of a device."""
    if tensor.dtype != torch.float64 or tensor.is_meta or isinstance(tensor, FakeTensor):
        return
    beyond = tensor.isfinite() & (tensor.abs() > torch.finfo(torch.float32).max)
    if bool(beyond.any()):
        raise InputError(
            f"{what} holds {float(tensor[beyond][0]):.6g}, which would be infinite on the device: its widest format is "
            "float32; scale it"
        )


def elements(graph: Graph, feed: Mapping[str, torch.Tensor]) -> Iterator[dict[str, torch.Tensor]]:
    """The elements of a microbatch: inputs that hold several are cut; others go with each."""
    cut = cut_inputs(graph, feed)
    size = int(feed[cut[0]].shape[0]) if cut else 1
    for i in range(size):
        yield {name: t[i : i + 1] if name in cut else t for name, t in feed.items()}


def draw_masks(graph: Graph, microbatch: int, active: bool = True) -> dict[str, torch.Tensor]:
    """A new mask for every dropout of a graph, (microbatch, *its shape): 0 with the dropout's probability p, else
    1 / (1 - p), drawn from torch's generator (`torch.manual_seed`); ones where it is not active."""
    masks = {}
    for node in graph.inputs:
        if DROPOUT in node.attrs:
            ones = torch.ones((microbatch, *node.shape[1:]))
            masks[node.name] = torch.nn.functional.dropout(ones, float(node.attrs[DROPOUT]), training=active)
    return masks


def cut_inputs(graph: Graph, feed: Mapping[str, torch.Tensor]) -> list[str]:
    """Inputs that hold several elements of a microbatch: traced with 1 in dim 0, and given with more."""
    single = [
        name
        for name in feed
        if name in graph and graph[name].kind is NodeKind.INPUT and (graph[name].shape[:1] == (1,))
    ]
    return [name for name in single if feed[name].shape[0] > 1]


def _check_microbatch(nodes: Sequence[Node], tensors: Mapping[str, torch.Tensor]) -> None:
    sizes = {n.name: int(tensors[n.name].shape[0]) for n in nodes if n.shape and n.shape[0] == 1}
    if len(set(sizes.values()) - {1}) > 1:
        raise InputError(f"inputs differ in dim 0, the microbatch: {sizes}; it must be the same for all, or 1")
