"""Graphs as text: short, stable, and read back by `parse_graph`.

One node per line, in the graph's order::

    graph 'mlp' {
      x = input : (1, 32) {dtype: 'float32'}
      w = parameter : (32, 64) = float32 #9f86d081884c7d65
      half = constant : (1,) = float32 [0.5]
      h = matmul(x, w) : (1, 64)
      s = index[dim=-1, start=0, stop=32](h) : (1, 32) @ {module: 'head', op: 'aten.slice.Tensor'}
      y = output(s) : (1, 32)
    }

Lowered graphs show TMs behind the operand (`x|hslice(12)|transpose`) and the data format (`df Float16_b`). Arrays of
up to eight elements are written out, uniform ones of at most 16 MiB as `fill`, others by digest; the parser is given
the arrays for the digests or leaves the value out; those of constants stand there deflated (`packed`) where that is
asked for. Names that are not words are quoted.
"""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import re
import zlib
from collections.abc import Iterator
from enum import Enum
from typing import Any

import numpy as np

from tbuda_lab.core.graph.graph import Edge, Graph, Node, NodeKind, Origin
from tbuda_lab.core.graph.op import Payload

WORD = re.compile(r"[A-Za-z_][\w.\-/]*\Z")
INLINE = 8
"""Arrays of at most so many elements are written out."""
PACKED = 1 << 16
"""Payloads of at most so many entries are written in full, longer ones by digest."""
MAX_FILL = 16 << 20
"""Bytes of an array that `fill` makes; what is larger goes by digest, so that no line asks for more than its file."""
DIGEST = "value_digest"
"""Attribute of a parsed node whose array the parser was not given: element type and digest."""
ORIGIN_KEYS = {"module": "module", "class": "module_class", "op": "source_op", "at": "location"}


def print_graph(graph: Graph, *, origins: bool = True, constants: bool = False) -> str:
    """The text of `graph`; without `origins` the lines say only what is computed. constants: whether their arrays are
    in the text whatever their size, so that only those of parameters go by digest."""
    return "\n".join(_lines(graph, "", origins, constants)) + "\n"


def array_digest(value: np.ndarray) -> str:
    """16 hex digits that identify an array's type, shape and bits."""
    digest = hashlib.sha256(f"{value.dtype.str}{value.shape}".encode())
    digest.update(np.ascontiguousarray(value).reshape(-1).view(np.uint8).data)
    return digest.hexdigest()[:16]


def array_table(graph: Graph) -> dict[str, np.ndarray]:
    """Arrays by digest, as `parse_graph` takes them: the values and payloads of a graph and its recipes."""
    table: dict[str, np.ndarray] = {}
    for node in graph:
        if node.value is not None:
            table[array_digest(node.value)] = node.value
        for field in dataclasses.fields(node.op) if node.op is not None else ():
            payload = getattr(node.op, field.name)
            if isinstance(payload, Payload):
                table[payload.digest] = payload.array
        if node.recipe is not None:
            table.update(array_table(node.recipe))
    return table


def equal(a: Graph, b: Graph) -> bool:
    """Whether two graphs have the same text: names, order, ops, edges, attributes, origins, arrays by digest."""
    return print_graph(a) == print_graph(b)


def quote(name: str) -> str:
    """A name as the parser reads it: as it is, in quotes where it is not one word."""
    return name if WORD.match(name) else repr(name)


def literal(value: Any) -> str:
    """A plain value as the parser reads it."""
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if isinstance(value, Payload):
        return payload(value)
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = ", ".join(f"{f.name}={literal(getattr(value, f.name))}" for f in dataclasses.fields(value))
        return f"{type(value).__name__}({fields})"
    if isinstance(value, tuple):
        inner = ", ".join(map(literal, value))
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    if isinstance(value, list):
        return f"[{', '.join(map(literal, value))}]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quote(str(k))}: {literal(v)}" for k, v in value.items()) + "}"
    if isinstance(value, np.floating):
        return str(value)  # the shortest digits that give the same number back in its own type
    if isinstance(value, np.generic):
        return literal(value.item())
    if value is None or isinstance(value, (bool, int, float, str)):
        return repr(value)
    raise TypeError(f"{value!r} of type {type(value).__name__} has no text form")


def payload(value: Payload) -> str:
    """Small: `ints [...]`; medium: `packed <dtype> <shape> ~<differences, deflated, base64>`; large: `#digest`."""
    array = value.array
    if array.size == 0 or array.size > PACKED:
        return f"#{value.digest}"
    if array.ndim == 1 and array.size <= 2 * INLINE:
        return f"ints {array.dtype} {literal([int(n) for n in array])}"
    steps = np.diff(array.reshape(-1).astype(np.int64), prepend=0).astype("<i8")
    packed = base64.b64encode(zlib.compress(steps.tobytes(), 9)).decode()
    return f"packed {array.dtype} {literal(array.shape)} ~{packed}"


def _value(node: Node, constants: bool) -> str:
    value = node.value
    if value is None:
        return f" = {node.attrs[DIGEST]}" if DIGEST in node.attrs else ""
    if value.size <= INLINE:
        return f" = {value.dtype} {literal(list(value.flat))}"
    if value.nbytes <= MAX_FILL and _is_uniform(value):
        return f" = {value.dtype} fill {literal(value.flat[0])}"
    if constants and node.kind is NodeKind.CONSTANT:
        raw = np.ascontiguousarray(value, value.dtype.newbyteorder("<")).tobytes()
        return f" = {value.dtype} packed ~{base64.b64encode(zlib.compress(raw, 9)).decode()}"
    return f" = {value.dtype} #{array_digest(value)}"


def _is_uniform(value: np.ndarray) -> bool:
    """Whether all elements have the same bits, whatever order they lie in; most arrays differ within the first few."""
    flat = value.ravel(order="K")
    words = flat.view(f"u{flat.itemsize}")
    return bool((words[:64] == words[0]).all() and (words == words[0]).all())


def _operand(edge: Edge) -> str:
    moves = (quote(tm.name) + (f"({', '.join(map(literal, tm.args))})" if tm.args else "") for tm in edge.tms)
    return "|".join([quote(edge.source), *moves])


def _origin(origin: Origin) -> str:
    shown = {key: getattr(origin, field) for key, field in ORIGIN_KEYS.items() if getattr(origin, field)}
    return f" @ {literal(shown)}" if shown else ""


def _lines(graph: Graph, indent: str, origins: bool, constants: bool) -> Iterator[str]:
    yield f"{indent}graph {graph.name!r} {{"
    for node in graph:
        kind = node.op.type if node.kind is NodeKind.OP and node.op is not None else node.kind.value
        fields = node.op.attributes() if node.op is not None else {}
        inside = ", ".join(f"{name}={literal(value)}" for name, value in fields.items())
        line = f"{indent}  {quote(node.name)} = {kind}" + (f"[{inside}]" if inside else "")
        if node.inputs:
            line += f"({', '.join(map(_operand, node.inputs))})"
        line += f" : {literal(tuple(node.shape))}"
        if node.df is not None:
            line += f" df {node.df.name}"
        line += _value(node, constants)
        attrs = {key: value for key, value in node.attrs.items() if key != DIGEST}
        if attrs:
            line += f" {literal(attrs)}"
        if origins:
            line += _origin(node.origin)
        if node.recipe is None:
            yield line
            continue
        yield line + " recipe"
        yield from _lines(node.recipe, indent + "    ", origins, constants)
    yield indent + "}"
