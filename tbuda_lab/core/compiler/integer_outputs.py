"""Outputs of whole numbers: 32-bit ones are the device's where its format has the ops; formats of floats round what is
beyond their mantissa, so the host computes the rest, or a warning says so."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping

import numpy as np
import torch

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import WRITES
from tbuda_lab.core.ops import Cast
from tbuda_lab.core.ops.base import NdOp
from tbuda_lab.core.ops.binary import Add, ComparisonOp, Maximum, Minimum, Multiply, Subtract, Where
from tbuda_lab.core.ops.evaluate import GRID_WHOLE, WHOLE_TYPE
from tbuda_lab.core.ops.reduce import Argmax, CumSum, Reduce, ReduceMax, ReduceSum
from tbuda_lab.core.ops.tm import MOVES, Concatenate
from tbuda_lab.core.ops.unary import Buffer, Clip, LogicalNot, Nop, Relu
from tbuda_lab.core.passes.finite_rows import Bounds, bounds_of
from tbuda_lab.core.passes.host import host_values
from tbuda_lab.core.passes.whole_numbers import HIGHEST, LOWEST, sums_slices

WHOLE = "an output of whole numbers, which formats of the device would round"
EXACT_WHOLE = {
    DataFormat.Float16: 2**11,
    DataFormat.Float16_b: 2**8,
    DataFormat.Bfp8: 2**7,
    DataFormat.Bfp8_b: 2**7,
    DataFormat.Bfp4: 2**3,
    DataFormat.Bfp4_b: 2**3,
    DataFormat.Bfp2: 2,
    DataFormat.Bfp2_b: 2,
}
"""The largest n for which a format holds every whole number up to n, of the formats coarser than Float32."""


def rounded_outputs(graph: Graph, df: DataFormat) -> list[Diagnostic]:
    """A warning for each output that counts further than the format holds whole numbers."""
    fix = "default_df_override=Float32 and accumulate_df=Float32 (not on Grayskull), or count outside the model"
    counts = {o.sources[0] for o in graph.outputs}
    return [
        Diagnostic("warning", name, "whole-numbers", reason, fix)
        for name, reason in counting_ops(graph, df).items()
        if name in counts
    ]


def counting_ops(graph: Graph, df: DataFormat) -> dict[str, str]:
    """Ops of outputs that count (`Argmax`, a sum of truth values) further than the format holds whole numbers, with the
    data moves behind them."""
    most = EXACT_WHOLE.get(df, 2**24)
    why: dict[str, str] = {}
    for output in graph.outputs:
        if is_float(output):
            continue
        chain, node = [], graph[output.sources[0]]
        while isinstance(node.op, (*MOVES, Cast)):
            chain.append(node.name)
            node = graph[node.sources[0]]
        count = counted_to(graph, node)
        if count is not None and count > most:
            reason = f"an output of whole numbers up to {count}; {df.name} holds them exactly up to {most}"
            why |= dict.fromkeys((node.name, *chain), reason)
    return why


def beyond_format(graph: Graph, df: DataFormat) -> dict[str, str]:
    """Ops on whole numbers that the device would make, and that may exceed what its format counts to: sums and
    products, and choices of numbers that it does not hold. Of formats of 16 bits and fewer only those from which
    outputs of whole numbers are made: what goes on as floats is rounded as floats are."""
    most = EXACT_WHOLE.get(df, 2**24)
    ends = _whole_ends(graph) if df in EXACT_WHOLE else None
    bounds: dict[str, Bounds] = {}
    why: dict[str, str] = {}
    for node in graph.topological():
        sources = [graph[s] for s in node.sources]
        bounds[node.name] = _counted_bounds(node, [bounds[s] for s in node.sources], sources)
        low, high = bounds[node.name]
        if WHOLE_TYPE not in node.attrs or GRID_WHOLE in node.attrs or (ends is not None and node.name not in ends):
            continue
        counts = isinstance(node.op, (*SUMS, Argmax)) and max(-low, high) > most
        if counts or (isinstance(node.op, CHOICES) and any(_exceeds(s, most) for s in sources)):
            text = "2^24, of which no format of the device holds all" if ends is None else f"the {most} of {df.name}"
            why[node.name] = f"whole numbers beyond {text}"
    return why


def _whole_ends(graph: Graph) -> set[str]:
    """Values of whole numbers from which, through others, outputs of whole numbers are made."""
    users, ends = graph.users(), set()
    for node in reversed(graph.topological()):
        whole = node.kind is NodeKind.OUTPUT and not is_float(node)
        if whole or (WHOLE_TYPE in node.attrs and any(user in ends for user, _ in users[node.name])):
            ends.add(node.name)
    return ends


def _exceeds(node: Node, most: int) -> bool:
    """Whether a constant has whole numbers beyond this that float32 does not hold, or that no shorter format may."""
    if node.value is None or not node.value.size:
        return False
    large = node.value[np.abs(node.value.astype(np.float64)) > most]
    return bool(large.size) and (most < 2**24 or bool((large.astype(np.float32).astype(np.float64) != large).any()))


CHOICES = (Where, Maximum, Minimum, Concatenate)
SUMS = (Add, Subtract, Multiply, ReduceSum, CumSum)


def _counted_bounds(node: Node, x: list[Bounds], sources: list[Node]) -> Bounds:
    if isinstance(node.op, ComparisonOp | LogicalNot):
        return 0.0, 1.0
    if isinstance(node.op, Argmax):
        return 0.0, float(sources[0].shape[node.op.dim] - 1)
    if isinstance(node.op, CumSum):
        terms = sources[0].shape[node.op.axis]
        return min(0.0, terms * x[0][0]), max(0.0, terms * x[0][1])
    return bounds_of(node, x, sources)


def counted_to(graph: Graph, node: Node) -> int | None:
    """The largest whole number that an op which counts can give; None for an op that does not count."""
    if isinstance(node.op, Argmax):
        return graph[node.sources[0]].shape[node.op.dim] - 1
    truths = isinstance(node.op, ReduceSum) and _without_casts(graph, node.sources[0]).op
    if isinstance(truths, ComparisonOp | LogicalNot):
        return math.prod(graph[node.sources[0]].shape) // max(1, math.prod(node.shape))
    return None


def _without_casts(graph: Graph, name: str) -> Node:
    node = graph[name]
    while isinstance(node.op, (*MOVES, Cast)):
        node = graph[node.sources[0]]
    return node


WORD = torch.int32
INTEGER_ARITHMETIC = "integer arithmetic"
"""What the reason begins with why an op on 32-bit whole numbers is not the device's."""
_SUMS = (Add, Subtract, Maximum, Relu, Clip, ReduceSum, ReduceMax)
_COPIES = (Nop, Buffer, Concatenate, *MOVES)


def with_grid_integers(graph: Graph, device: DeviceSpec, refused: Collection[str] = ()) -> Graph:
    """The graph with a mark on the ops of 32-bit whole numbers that the device does: sums, maxima, selections and moves
    whose results, through others of them, end in outputs. What any other op reads (an embedding, a mask) the host makes
    before the device runs, as all integers that inputs alone decide. refused: ops that a stage had no form for.
    """
    if not device.supports_accumulate(DataFormat.Int32):
        return graph
    ends = (*graph.inputs, *graph.outputs)
    if not any(str(end.attrs.get("dtype", "")) == "int32" or WRITES in end.attrs for end in ends):
        return graph
    chosen = _words_of_outputs(graph, refused)
    if not chosen:
        return graph
    marked = graph.clone()
    for name in chosen:
        marked[name].attrs = {**marked[name].attrs, GRID_WHOLE: True}
    for output in marked.outputs:  # PyBuda's face says float32 of all
        if output.sources[0] in chosen and WRITES not in output.attrs:
            output.attrs = {**output.attrs, "dtype": "int32"}
    return marked


def sections_of_host(refused: Mapping[str, str]) -> dict[str, str]:
    """Of ops that stages refused, those that need a section of the host: not integers that inputs alone decide."""
    return {name: reason for name, reason in refused.items() if not reason.startswith(INTEGER_ARITHMETIC)}


def meant_by(graph: Graph, reasons: Mapping[str, str], refused: Collection[str]) -> dict[str, str]:
    """The same reasons by the ops that they mean: where arithmetic of 32-bit numbers reads moves, those, for they are
    done as it reads. refused: before."""
    meant: dict[str, str] = {}
    for name, reason in reasons.items():
        moves = [s for s in graph[name].sources if isinstance(graph[s].op, MOVES) and s not in refused]
        words = reason.startswith(INTEGER_ARITHMETIC) and not isinstance(graph[name].op, _COPIES)
        meant |= dict.fromkeys(moves if words and moves else [name], reason)
    return meant


def _words_of_outputs(graph: Graph, refused: Collection[str]) -> set[str]:
    dtypes = value_dtypes(graph, named=True)
    light, stored, _ = host_values(graph)
    known = light | stored | {n.name for n in graph.of_kind(NodeKind.PARAMETER)}
    chosen: set[str] = set()
    order = graph.topological()
    without = stored.union(refused)
    for node in order:
        whole = node.kind is NodeKind.OP and node.name not in without and dtypes[node.name] is WORD
        if whole and _has_form(graph, node, dtypes, known, chosen):
            chosen.add(node.name)
    users = graph.users()
    for node in reversed(order):
        ends = all(u in chosen or (graph[u].kind is NodeKind.OUTPUT and dtypes[u] is WORD) for u, _ in users[node.name])
        if node.name in chosen and not (users[node.name] and ends):
            chosen.discard(node.name)
    return chosen


def _has_form(graph: Graph, node: Node, dtypes: Mapping[str, torch.dtype], known: set[str], chosen: set[str]) -> bool:
    """Whether sums and maxima of 32-bit numbers, or copies of them, make the result. known: values of the host."""
    sources = node.sources
    if any(name not in known and name not in chosen for name in sources):
        return False
    if isinstance(node.op, Where):
        condition, sources = sources[0], sources[1:]
        if condition not in known:
            return False
    elif isinstance(node.op, Clip):
        if node.op.max is not None or node.op.min is None or not _is_word(node.op.min):
            return False
    elif isinstance(node.op, Relu):
        if node.op.mode != "min" or node.op.threshold != 0:
            return False
    elif not isinstance(node.op, (*_SUMS, *_COPIES)) or (
        isinstance(node.op, Reduce) and not sums_slices(node.op, graph[sources[0]].shape)
    ):
        return False
    constant = [graph[name].value if graph[name].kind is NodeKind.CONSTANT else None for name in sources]
    if isinstance(node.op, Subtract) and constant[1] is None:
        return False
    return all(
        dtypes[name] is WORD if value is None else _all_words(value)
        for name, value in zip(sources, constant, strict=True)
    )


def _all_words(value: np.ndarray) -> bool:
    return (
        bool(value.size) and bool((value == np.trunc(value)).all()) and _is_word(value.min()) and _is_word(value.max())
    )


def _is_word(number: float) -> bool:
    return LOWEST <= number <= HIGHEST and float(number).is_integer()


def value_dtypes(graph: Graph, named: bool = False) -> dict[str, torch.dtype]:
    """The type of every value, by the rules of its op (see `NdOp.result_dtype`); nothing is computed. named: of sums
    with numbers what the front says, for there the number is written as a float."""
    dtypes: dict[str, torch.dtype] = {}
    for node in graph.topological():
        if node.kind is NodeKind.OUTPUT:
            dtypes[node.name] = dtypes[node.sources[0]]
        elif named and WHOLE_TYPE in node.attrs:
            dtypes[node.name] = getattr(torch, str(node.attrs[WHOLE_TYPE]))
        elif node.kind is not NodeKind.OP:
            own = getattr(torch, str(node.attrs.get("dtype", "float32")))
            dtypes[node.name] = own if node.value is None else torch.from_numpy(np.empty(0, node.value.dtype)).dtype
        else:
            assert isinstance(node.op, NdOp)
            dtypes[node.name] = node.op.result_dtype(
                [graph[s].shape for s in node.sources], [dtypes[s] for s in node.sources]
            )
    return dtypes


def is_float(node: Node) -> bool:
    """Whether an INPUT or OUTPUT holds floats, by its attribute."""
    return str(node.attrs.get("dtype", "float32")).startswith(("float", "bfloat"))


def fallback_note(node: Node, reason: str) -> Diagnostic:
    """A note that the host runs an op, or gives an output, and why."""
    kind = node.op.type if node.op is not None else node.kind.value
    return Diagnostic("note", node.where, "cpu-fallback", f"{kind} {node.name!r} runs on the host: {reason}")


__all__ = [
    "EXACT_WHOLE",
    "INTEGER_ARITHMETIC",
    "WHOLE",
    "beyond_format",
    "counting_ops",
    "fallback_note",
    "is_float",
    "meant_by",
    "rounded_outputs",
    "sections_of_host",
    "value_dtypes",
    "with_grid_integers",
]
