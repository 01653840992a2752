"""Loads and stores: streams of the host, remote buffers, code of graphs; and prints."""

from __future__ import annotations

import operator
from typing import Any

from tbuda_lab.popxl import dtypes
from tbuda_lab.popxl.graph import Graph
from tbuda_lab.popxl.ops.moves import init
from tbuda_lab.popxl.ops.utils import make, need_tensor, one
from tbuda_lab.popxl.remote_buffer import RemoteBuffer
from tbuda_lab.popxl.streams import DeviceToHostStream, HostToDeviceStream
from tbuda_lab.popxl.tensor import Tensor, constant
from tbuda_lab.popxl.utils import product


def host_load(h2d_stream: HostToDeviceStream, name: str | None = None) -> Tensor:
    """The next tensor of a stream."""
    if not isinstance(h2d_stream, HostToDeviceStream):
        raise TypeError(f"host_load takes a HostToDeviceStream, not {type(h2d_stream).__name__}")
    own = name or h2d_stream.tensor_id
    place = init(h2d_stream.shape, h2d_stream.dtype, f"{own}_init", "undef")
    return one(
        "HostLoad",
        {"t": place},
        h2d_stream.shape,
        h2d_stream.dtype,
        {"stream": h2d_stream},
        name=f"{own}_hostload",
    )


def host_store(d2h_stream: DeviceToHostStream, t: Tensor) -> None:
    """The next tensor of a stream is t. Raises `ValueError` for another shape or type."""
    if not isinstance(d2h_stream, DeviceToHostStream):
        raise TypeError(f"host_store takes a DeviceToHostStream, not {type(d2h_stream).__name__}")
    need_tensor("t", t)
    if t.dtype is not d2h_stream.dtype:
        raise ValueError(f"host_store: the stream takes {d2h_stream.dtype}, and tensor {t.id!r} is {t.dtype}")
    if t.shape != d2h_stream.shape:
        raise ValueError(f"host_store: the stream takes shape {d2h_stream.shape}, and tensor {t.id!r} has {t.shape}")
    make("HostStore", {"t": t}, [], {"stream": d2h_stream})


def _offset(offset: int | Tensor) -> Tensor:
    if isinstance(offset, Tensor) and not (offset.nelms == 1 and offset.dtype.is_int):
        raise ValueError(f"an offset is one whole number: {offset.id!r} is {offset.dtype} of shape {offset.shape}")
    return offset if isinstance(offset, Tensor) else constant(offset, dtypes.uint32, name="offset")


def multiply_tuple(tup: tuple[int, ...]) -> int:
    """The product of its numbers."""
    return product(tup)


def _check_offset(buffer: RemoteBuffer, offset: int | Tensor) -> None:
    if not isinstance(buffer, RemoteBuffer):
        raise TypeError(f"a remote buffer is a RemoteBuffer, not {type(buffer).__name__}")
    if not isinstance(offset, Tensor) and not 0 <= operator.index(offset) < buffer.entries:
        raise ValueError(f"the remote buffer has {buffer.entries} entries, and none at {offset}")


def remote_load(remote_buffer: RemoteBuffer, offset: int | Tensor, name: str | None = None) -> Tensor:
    """A copy of an entry of a remote buffer."""
    _check_offset(remote_buffer, offset)
    own = name or f"id_{remote_buffer.remote_buffer_id}_remote_buffer_entry"
    place = init(
        remote_buffer.tensor_shape, remote_buffer.tensor_dtype, f"{own}_init", "undef", remote_buffer.meta_shape
    )
    return one(
        "RemoteLoad",
        {"t": place, "offset": _offset(offset)},
        place.shape,
        place.dtype,
        {"buffer": remote_buffer},
        name=f"{own}_remote_loaded",
        meta_shape=remote_buffer.meta_shape,
    )


def remote_load_(remote_buffer: RemoteBuffer, offset: int | Tensor, t: Tensor) -> Tensor:
    """An entry of a remote buffer, written over t. Raises `ValueError` where t is no entry of it."""
    _check_offset(remote_buffer, offset)
    need_tensor("t", t)
    remote_buffer.validate_tensor_matches_buffer(t)
    return one(
        "RemoteLoadInplace",
        {"t": t, "offset": _offset(offset)},
        t.shape,
        t.dtype,
        {"buffer": remote_buffer},
        name=f"{t.name}_remote_loaded",
        modifies=(0,),
        meta_shape=remote_buffer.meta_shape,
    )


def remote_store(remote_buffer: RemoteBuffer, offset: int | Tensor, t: Tensor) -> None:
    """An entry of a remote buffer becomes t. Raises `ValueError` where t is no entry of it."""
    _check_offset(remote_buffer, offset)
    need_tensor("t", t)
    remote_buffer.validate_tensor_matches_buffer(t)
    if t.meta_shape:
        remote_buffer.meta_shape = t.meta_shape
    make("RemoteStore", {"t": t, "offset": _offset(offset)}, [], {"buffer": remote_buffer})


_DESTINATIONS = ("executable", "buffer")


def remote_code_load(graph: Graph, destination: str) -> None:
    """Bring a graph's code to the chip before it is called. It is always there here: the call checks, and does nothing
    else. Raises `ValueError` for the current graph or another destination, `NotImplementedError` for "buffer"."""
    from tbuda_lab.popxl.context import get_current_context

    current = get_current_context().graph
    if not isinstance(graph, Graph):
        raise TypeError(f"remote_code_load takes a Graph, not {type(graph).__name__}")
    if graph is current:
        raise ValueError(
            "The remote_code_load op cannot load the code of the graph that it is in: call it from another one"
        )
    if destination == "buffer":
        raise NotImplementedError("code is loaded to 'executable', not into a buffer")
    if destination not in _DESTINATIONS:
        raise ValueError(f"destination is 'executable', not {destination!r}")
    make("RemoteCodeLoad", {}, [], {"graph": graph.id, "destination": destination})


def code_copy(graph: Graph, source: Any, destination: Any) -> None:
    """Only remote_code_load has a form. Raises `NotImplementedError`."""
    raise NotImplementedError("code_copy: use remote_code_load(graph, 'executable')")


def print_tensor(
    t: Tensor,
    title: str | None = None,
    print_self: bool = True,
    print_gradient: bool = False,
    summarise_threshold: int = 1000,
    edge_items: int = 3,
    max_line_width: int = 75,
    digits: int = 8,
    float_format: str = "auto",
    separator: str = " ",
    open_bracket: str = "[",
    close_bracket: str = "]",
) -> Tensor:
    """Print a tensor to stderr when the program gets there, and its gradient where a gradient graph comes by; returns a
    copy. Raises `ValueError` for separators and brackets of several characters, `KeyError` for a format that there is
    not."""
    need_tensor("t", t)
    for name, text in (("separator", separator), ("open_bracket", open_bracket), ("close_bracket", close_bracket)):
        if len(text) != 1:
            raise ValueError(f"{name} is one character, not {text!r}")
    for name, number in (("digits", digits), ("edge_items", edge_items), ("summarise_threshold", summarise_threshold)):
        if number < 0:
            raise ValueError(f"{name} is from 0 on, not {number}")
    if float_format not in ("auto", "fixed", "scientific", "none"):
        raise KeyError(f"float_format is auto, fixed, scientific or none, not {float_format!r}")
    attrs = {
        "title": title or f"print_{t.name}",
        "print_self": print_self,
        "print_gradient": print_gradient,
        "threshold": summarise_threshold,
        "edge_items": edge_items,
        "width": max_line_width,
        "digits": digits,
        "float_format": float_format,
        "separator": separator,
        "open": open_bracket,
        "close": close_bracket,
    }
    return one("PrintTensor", {"t": t}, t.shape, t.dtype, attrs)
