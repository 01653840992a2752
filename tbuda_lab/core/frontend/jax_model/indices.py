"""JAX primitives that read or write at indices, and that sort."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch

from tbuda_lab.core.frontend.aten.call import CannotMap, FoldedValue
from tbuda_lab.core.frontend.calls import Tensor
from tbuda_lab.core.frontend.jax_model.primitives import Equation, translates
from tbuda_lab.core.graph import Shape

DROPPED = -1
"""Stands for a place outside the array."""


@translates("gather")
def gather(e: Equation) -> Any:
    """At known indices any gather; at those of an input such as `x[ids]`, `take` and `take_along_axis` make."""
    if isinstance(e.x(1), FoldedValue):
        return _at_known_places(e)
    d, shape, sizes = e.params["dimension_numbers"], e.shape(), tuple(int(n) for n in e.params["slice_sizes"])
    places, starts, collapsed = e.shape(1), tuple(map(int, d.start_index_map)), tuple(map(int, d.collapsed_slice_dims))
    apart = tuple(map(int, d.operand_batching_dims))
    at = e.aten._to_copy(e.aten.reshape(e.x(1), list(places[:-1])), dtype=torch.int64) if places[-1] == 1 else None
    if at is None or len(starts) != 1 or collapsed != starts or sizes[starts[0]] != 1:
        raise CannotMap("a gather along several dims at indices that depend on an input; index one dim at a time")
    (dim,) = starts
    if e.params["mode"] == type(e.params["mode"]).CLIP:
        at = e.aten.clamp(at, 0, shape[dim] - 1)
    others = tuple(k for k in range(len(shape)) if k != dim)
    if apart and all(k in apart or shape[k] == 1 for k in others) and len(places) == len(apart) + 2:
        (free,) = {*range(len(apart) + 1)} - {*map(int, d.start_indices_batching_dims)}
        of_dim = {dim: free, **dict(zip(apart, map(int, d.start_indices_batching_dims), strict=True))}
        if [of_dim[k] for k in sorted(of_dim)] == list(range(len(of_dim))):
            lengths = [places[of_dim[k]] if k in of_dim else 1 for k in range(len(shape))]
            y = e.aten.gather(e.x(), dim, e.aten.reshape(at, lengths))
            return e.aten.reshape(y, [int(n) for n in e.out[0].shape])
    if apart or any(sizes[k] != shape[k] for k in others):
        raise CannotMap("a gather of parts of a dim; take whole rows")
    lead, rank = places[:-1], len(e.out[0].shape)
    offsets = [k for k in range(rank) if k not in d.offset_dims]
    if dim == 0 and len(shape) == 2 and offsets == list(range(len(lead))):
        return e.aten.embedding(e.x(), at)
    rows = e.aten.index_select(e.x(), dim, e.aten.reshape(at, [-1]))
    rest = [shape[k] for k in others]
    split_up = e.aten.reshape(e.aten.permute(rows, [dim, *others]), [*lead, *rest])
    order = iter(range(len(lead), len(lead) + len(rest)))
    head = iter(range(len(lead)))
    return e.aten.permute(split_up, [next(head) if k in offsets else next(order) for k in range(rank)])


def _places(shape: Shape, indices: torch.Tensor, numbers: Any, sizes: Any, mode: Any) -> np.ndarray:
    """The flat place in an array of this shape of every element that a gather reads: JAX's own gather, of places."""
    import jax

    with jax.ensure_compile_time_eval():
        flat = jax.numpy.arange(math.prod(shape), dtype=np.int32).reshape(shape)
        at = jax.numpy.asarray(indices.to(torch.int32).numpy())
        read = jax.lax.gather(flat, at, numbers, tuple(sizes), mode=mode, fill_value=DROPPED)
    return np.asarray(read, np.int64)


def _at_known_places(e: Equation) -> Any:
    indices = e.constant_operand(1, "indices")
    places = _places(e.shape(), indices, e.params["dimension_numbers"], e.params["slice_sizes"], e.params["mode"])
    if (places == DROPPED).any():
        raise CannotMap("a gather outside the array, which JAX fills with NaN; clip the indices")
    flat = e.aten.reshape(e.x(), [math.prod(e.shape())])
    rows = e.aten.index_select(flat, 0, e.calls.constant(places.reshape(-1)))
    return e.aten.reshape(rows, list(places.shape))


def written_at(e: Equation, x: Tensor, places: np.ndarray, values: Tensor) -> Tensor:
    """x (flat) with values (flat) at places; where a place is named twice the last one stays."""
    (count,) = e.calls.shape(x)
    source = np.arange(count)
    source[places] = count + np.arange(places.size)
    return e.aten.index_select(e.aten.cat([x, values], 0), 0, e.calls.constant(source))  # type: ignore[no-any-return]


COMBINED = {
    "scatter-add": "add",
    "scatter-mul": "mul",
    "scatter-min": "minimum",
    "scatter-max": "maximum",
    "scatter-sub": "sub",
}


@translates("scatter", *COMBINED)
def scatter(e: Equation) -> Any:
    """Writing at known indices. What lies outside the array is left out, as JAX does."""
    import jax

    d, shape = e.params["dimension_numbers"], e.shape()
    indices = e.constant_operand(1, "indices")
    inserted = {*map(int, d.inserted_window_dims), *map(int, d.operand_batching_dims)}
    window = iter(e.shape(2)[k] for k in d.update_window_dims)
    sizes = [1 if k in inserted else next(window) for k in range(len(shape))]
    numbers = jax.lax.GatherDimensionNumbers(
        offset_dims=d.update_window_dims,
        collapsed_slice_dims=d.inserted_window_dims,
        start_index_map=d.scatter_dims_to_operand_dims,
        operand_batching_dims=d.operand_batching_dims,
        start_indices_batching_dims=d.scatter_indices_batching_dims,
    )
    places = _places(shape, indices, numbers, sizes, e.params["mode"]).reshape(-1)
    x, update = e.aten.reshape(e.x(), [-1]), e.aten.reshape(e.x(2), [-1])
    inside = np.flatnonzero(places != DROPPED)
    if inside.size < places.size:
        update, places = e.aten.index_select(update, 0, e.calls.constant(inside)), places[inside]
    if e.kind in COMBINED:
        if np.unique(places).size < places.size:
            if e.kind != "scatter-add":
                raise CannotMap("one place named twice; combine its values before")
            return e.aten.reshape(e.aten.scatter_add(x, 0, e.calls.constant(places), update), list(shape))
        held = e.aten.index_select(x, 0, e.calls.constant(places))
        update = getattr(e.aten, COMBINED[e.kind])(held, update)
    return e.aten.reshape(written_at(e, x, places, update), list(shape))


@translates("dynamic_update_slice")
def dynamic_update_slice(e: Equation) -> Any:
    shape, update = e.shape(0), e.shape(1)
    starts = [int(e.constant_operand(d + 2, "starts")) for d in range(len(shape))]
    starts = [min(max(s, 0), n - u) for s, n, u in zip(starts, shape, update, strict=True)]
    where = tuple(slice(s, s + u) for s, u in zip(starts, update, strict=True))
    places = np.arange(math.prod(shape)).reshape(shape)[where].reshape(-1)
    y = written_at(e, e.aten.reshape(e.x(0), [-1]), places, e.aten.reshape(e.x(1), [-1]))
    return e.aten.reshape(y, list(shape))


@translates("sort")
def sort(e: Equation) -> Any:
    """One array, and others in the order of the first."""
    if e.params.get("num_keys", 1) != 1:
        raise CannotMap("a sort by several keys; sort by one")
    dim = e.params["dimension"]
    values, order = e.aten.sort(e.x(), stable=True, dim=dim, descending=False)
    return [values, *(e.aten.gather(x, dim, order) for x in e.operands[1:])]


@translates("top_k")
def top_k(e: Equation) -> Any:
    axis = int(e.params["axis"]) if "axis" in e.params else -1  # older versions of JAX name none
    values, places = e.aten.topk(e.x(), int(e.params["k"]), axis, True, True)
    return values, e.aten._to_copy(places, dtype=torch.int32)
