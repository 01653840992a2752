"""Formats and fidelity of single ops, as the user asks for them: what may be asked, and what else changes with it.

An op's output format is also that of its queues and of its readers' operands, so the readers accumulate accordingly;
sparse matmuls, reductions over z and padding keep the format of what they read, and hand the change on.
"""

from __future__ import annotations

from collections.abc import Iterator

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import FIDELITIES, DataFormat, MathFidelity
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.lowering.dataformats import assign_op, sixteen_bit
from tbuda_lab.core.lowering.hwops import HwReduce, HwSparseMatmul, HwSplice
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides.graphs import Fidelity, OutputFormat

FORMAT_KINDS = (OutputFormat.kind, Fidelity.kind)
"""Kinds of override of this room."""

_BLOCKS = {
    "a": (DataFormat.Bfp8, DataFormat.Bfp4, DataFormat.Bfp2),
    "b": (DataFormat.Bfp8_b, DataFormat.Bfp4_b, DataFormat.Bfp2_b),
}

Fault = tuple[str, str]
"""What is wrong, and what would work."""


def legal_formats(graph: Graph, name: str, device: DeviceSpec) -> tuple[DataFormat, ...]:
    """The formats an op's output may have, widest first; one alone where the op has no choice.

    A change of the exponent family on the way through the device is not offered; what the host reads is plain numbers.
    """
    node = graph[name]
    now = node.df or DataFormat.Float16_b
    if _follows(node) or not now.is_float:
        return (now,)
    plain = sixteen_bit(now)
    if now is DataFormat.Float32:
        plain = DataFormat.Float16_b
    wide = (DataFormat.Float32,) if device.supports_accumulate(DataFormat.Float32) else ()
    if any(graph[u].kind is NodeKind.OUTPUT for u, _ in graph.users()[name]):
        return (*wide, plain)
    return (*wide, plain, *_BLOCKS["a" if plain is DataFormat.Float16 else "b"])


def legal_fidelities(graph: Graph, name: str) -> tuple[MathFidelity, ...]:
    """The fidelities an op may have: picking rows of a wide activation takes two passes."""
    node = graph[name]
    wide = isinstance(node.op, HwSparseMatmul) and not (graph[node.sources[0]].df or DataFormat.Float16_b).is_bfp
    return tuple(f for f in FIDELITIES if not (wide and f is MathFidelity.LoFi))


def set_format(graph: Graph, device: DeviceSpec, options: CompileOptions, name: str, value: object) -> Fault | None:
    """Give an op's output a format, in place, and its readers what follows from it."""
    node = graph[name]
    if node.kind is not NodeKind.OP:
        return "only ops have a format of their own to set", "name the op that writes or reads this queue"
    legal = legal_formats(graph, name, device)
    if value not in [f.name for f in legal]:
        if _follows(node):
            return f"its output keeps {legal[0]}: it moves what it reads", f"set the format of {node.sources[0]}"
        if len(legal) == 1:
            return f"its output keeps {legal[0]}: the host reads it", "set the formats of the ops before it"
        return f"its output cannot be {value}", f"legal: {', '.join(f.name for f in legal)}"
    node.df = DataFormat[str(value)]
    changed = {name}
    for other in graph.topological():
        if other.kind is NodeKind.OUTPUT and other.sources[0] in changed:
            other.df = graph[other.sources[0]].df
        if other.kind is not NodeKind.OP or (other is not node and not changed & set(other.sources)):
            continue
        before, fidelity = other.df, other.attrs.get("fidelity")
        assign_op(graph, other, device, options)
        if fidelity is not None:
            other.attrs["fidelity"] = fidelity
        if other.df != before:
            changed.add(other.name)
    return None


def set_fidelity(graph: Graph, name: str, value: object) -> Fault | None:
    """Give an op a fidelity, in place."""
    node = graph[name]
    if node.kind is not NodeKind.OP:
        return "only ops calculate", "name an op"
    legal = [f.name for f in legal_fidelities(graph, name)]
    if value not in legal:
        return f"its fidelity cannot be {value}", f"legal: {', '.join(legal)}"
    node.attrs["fidelity"] = MathFidelity[str(value)]
    return None


def _follows(node: Node) -> bool:
    """Ops that have no format of their own."""
    return isinstance(node.op, HwSparseMatmul) or (isinstance(node.op, HwReduce) and node.op.dim == "z")


def mismatched(graph: Graph) -> Iterator[tuple[str, str, str]]:
    """(op, what is wrong, what would work) where formats that were set do not go together: a splice joins one format
    (rule O15.splice), and the host reads plain numbers."""
    for node in graph.ops:
        if isinstance(node.op, HwSplice):
            formats = {s: graph[s].df for s in node.sources if graph[s].kind is not NodeKind.CONSTANT}
            if len(set(formats.values())) > 1:
                text = ", ".join(f"{s} ({f})" for s, f in formats.items())
                yield node.name, f"it joins {text}", "set all of them together, as one edit"
    for output in graph.outputs:
        source = graph[output.sources[0]]
        if source.df is not None and source.df.is_bfp:
            fix = f"leave what it reads in {sixteen_bit(source.df)}"
            yield source.name, f"it would hand {source.df} to the host", fix
