"""Data formats and fidelity of every lowered node, and those of single ops as the user asks for them
(lowering.md#data-formats)."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, InputError, UnsupportedOp, quantity
from tbuda_lab.core.formats import FIDELITIES, DataFormat, MathFidelity
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import ACCUMULATES, ROLE, STATISTIC, WRITES, phases
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwMatmul, HwOp, HwReduce, HwSparseMatmul, HwSplice, HwUnary
from tbuda_lab.core.ops.evaluate import GRID_WHOLE
from tbuda_lab.core.options import ACCUMULATORS, CompileOptions
from tbuda_lab.core.overrides.graphs import Fidelity, OutputFormat


def assign(graph: Graph, device: DeviceSpec, options: CompileOptions) -> None:
    """Set `df` of every node and `acc_df`, `intermed_df`, `fidelity` of every op, in place. Raises `UnsupportedOp` for
    weights that are stored as integers: ops calculate in floats; `InputError` for a fallback of Float32 that the device
    has not either."""
    _refuse_integers(graph)
    default = options.data_format
    wide = sixteen_bit(default)
    precise = _optimizer_nodes(graph) if default.family != "a" else ()
    words = whole_values(graph)
    for node in graph.topological():
        if node.name in words:
            node.df = DataFormat.Int32
        elif node.name in precise:
            node.df = DataFormat.Float32
        elif node.df is not None:  # asked for by the model: a parameter's dev_data_format
            node.df = in_family(device_format(node.df, device, options), default)
        else:
            # Masks and selections mix large and small numbers in one block: not for a shared exponent.
            node.df = wide if node.kind is NodeKind.CONSTANT else default
        if node.kind is NodeKind.OP:
            assign_op(graph, node, device, options)
    if words:
        _refuse_words(graph, words, device)
    for output in graph.outputs:
        producer = graph[output.inputs[0].source]
        if WRITES in output.attrs:
            _assign_write(graph, output, producer)
            continue
        producer.df = sixteen_bit(producer.df or default)  # untilised results are plain numbers
        output.df = producer.df


def whole_values(graph: Graph) -> set[str]:
    """The values of 32-bit whole numbers: stored and fed ones of that type, and what ops make of them."""
    words: set[str] = set()
    for node in graph.topological():
        if node.kind is NodeKind.INPUT:
            whole = GRID_WHOLE in node.attrs
        elif node.kind in (NodeKind.PARAMETER, NodeKind.CONSTANT):
            whole = node.value is not None and node.value.dtype == np.int32
        else:
            whole = any(source in words for source in node.sources)
        if whole:
            words.add(node.name)
    return words


def _refuse_words(graph: Graph, words: set[str], device: DeviceSpec) -> None:
    """Raises `UnsupportedOp` for ops on 32-bit whole numbers that the Int32 format has not
    (netlist-format.md#op-rules, O9 and O16)."""
    users = graph.users()
    refused: dict[str, Diagnostic] = {}
    for node in graph.ops:
        fault = _fault_of_words(graph, node, words, device) if node.name in words else ""
        if not fault:
            continue
        own = str(node.attrs.get("source", ""))
        readers = [str(graph[user].attrs.get("source", user)) for user, _ in users[node.name]]
        for name in (own,) if own else readers or (node.name,):
            fix = "the host does it; keep to sums, maxima and selections, and to moves of whole tiles"
            refused[name] = Diagnostic("error", name, "whole-numbers", fault, fix)
    if refused:
        raise UnsupportedOp(
            f"{quantity(len(refused), 'op')} on 32-bit whole numbers have no form on the device",
            list(refused.values()),
            list(refused),
        )


def _fault_of_words(graph: Graph, node: Node, words: set[str], device: DeviceSpec) -> str:
    """Why the device does not do an op that reads 32-bit whole numbers; empty where it does."""
    if not device.supports_accumulate(DataFormat.Int32):
        return f"integer arithmetic: {device.arch} has none"
    if any(source not in words for source in node.sources):
        return "integer arithmetic: whole numbers and floats do not meet in one op of the device"
    turned = any(tm.name == "transpose" for edge in node.inputs for tm in edge.tms)
    legal = isinstance(node.op, HwSplice) or node.op in (HwUnary("nop"), HwBinary("add"), HwBinary("maximum"))
    if legal and not turned:
        return ""
    if turned:
        return "integer arithmetic: the device does not transpose Int32"
    kind = node.op.netlist_type if isinstance(node.op, HwOp) else "?"
    return f"integer arithmetic: it needs {kind} of Int32, which the device does not have"


def _refuse_integers(graph: Graph) -> None:
    users = graph.users()
    faults = [
        Diagnostic(
            "error",
            reader,
            "integer-weight",
            f"it reads {node.name} as {node.df.name}, and its arithmetic is of floats",
            "give the weight a float dev_data_format, such as Bfp8_b, or use op.Quantize and op.Dequantize",
        )
        for node in graph.of_kind(NodeKind.PARAMETER)
        if node.df is not None and not node.df.is_float
        for reader, _ in users[node.name]
        if isinstance(graph[reader].op, HwMatmul | HwBinary | HwUnary | HwReduce)
    ]
    if faults:
        raise UnsupportedOp(f"{quantity(len(faults), 'op')} would calculate with integers", faults)


def _optimizer_nodes(graph: Graph) -> set[str]:
    """The ops, state and constants of the optimizer, and running statistics with the ops that change them: they
    calculate in Float32, for 0.999, its distance to 1 and means of squares have no place in 16 bits. (With exponents
    of 5 bits they have the default, which mixes with no others.)"""
    phase = phases(graph)
    optimizer_nodes = {name for name, part in phase.items() if part == "optimizer"}
    users = graph.users() if phase else {}
    for node in graph.outputs:
        target = graph.nodes.get(str(node.attrs.get(WRITES, "")))
        if target is not None and target.attrs.get(ROLE) == STATISTIC:
            optimizer_nodes |= {target.name, *_between(graph, target.name, node.sources[0])}
    for node in graph.of_kind(NodeKind.PARAMETER, NodeKind.CONSTANT) if phase else ():
        readers = [name for name, _ in users[node.name]]
        own = node.kind is NodeKind.CONSTANT and bool(readers) and all(name in optimizer_nodes for name in readers)
        if own or node.attrs.get(ROLE) == "state":
            optimizer_nodes.add(node.name)
    return optimizer_nodes


def _between(graph: Graph, first: str, last: str) -> set[str]:
    """The ops on the way from one value to another, the last one included."""
    reached = {first}
    order = graph.topological()
    for node in order:
        if any(source in reached for source in node.sources):
            reached.add(node.name)
    needed = {last}
    for node in reversed(order):
        if node.name in needed:
            needed.update(node.sources)
    return (reached & needed) - {first}


def _assign_write(graph: Graph, output: Node, producer: Node) -> None:
    """A ram has the format in which it is read, and the op that writes it packs it so; an op that accumulates spills
    in that format too."""
    target = graph.nodes.get(str(output.attrs[WRITES]))
    if target is not None and target.df is not None:
        producer.df = target.df
    output.df = producer.df
    if output.attrs.get(ACCUMULATES):
        producer.attrs["intermed_df"] = partial_format(producer.df) if producer.df is not None else None
        if producer.df is not DataFormat.Float32 and producer.attrs.get("acc_df") is DataFormat.Float32:
            producer.attrs["acc_df"] = sixteen_bit(producer.df or DataFormat.Float16_b)


def device_format(df: DataFormat, device: DeviceSpec, options: CompileOptions) -> DataFormat:
    """Float32 is the fallback's format where nothing on the device accumulates in 32 bits. Raises `InputError` where
    that is Float32, too."""
    if df is not DataFormat.Float32 or device.supports_accumulate(df):
        return df
    if options.fp32_fallback is DataFormat.Float32:
        what = f"{device.arch} accumulates in 16 bits, so what would be Float32 needs another format"
        fix = "Float16_b, Float16 or a block format; or a device that accumulates in Float32"
        raise InputError(
            "fp32_fallback cannot be Float32 here", [Diagnostic("error", "fp32_fallback", "option-value", what, fix)]
        )
    return options.fp32_fallback


def in_family(df: DataFormat, like: DataFormat) -> DataFormat:
    """`df`, or the format of as many bits with `like`'s exponent: operands of one op share it (compiler.md 6.2, 4)."""
    if DataFormat.Float32 in (df, like) or not df.is_float or df.family == like.family:
        return df
    name = df.name.removesuffix("_b") if like.family == "a" else f"{df.name}_b"
    return DataFormat[name]


def assign_op(graph: Graph, node: Node, device: DeviceSpec, options: CompileOptions) -> None:
    """Set the formats and the fidelity of one op whose operands have theirs."""
    assert node.df is not None
    if isinstance(node.op, HwSplice):
        formats = [graph[s].df for s in node.sources]
        for source in node.sources:
            if graph[source].kind is NodeKind.CONSTANT and len(set(formats)) > 1:
                graph[source].df = next(
                    f for s, f in zip(node.sources, formats, strict=True) if graph[s].kind is not NodeKind.CONSTANT
                )
    if node.df is DataFormat.Int32:
        node.attrs |= {"acc_df": node.df, "intermed_df": node.df, "fidelity": MathFidelity.HiFi4}
        return
    activation = graph[node.sources[0]].df or node.df
    accumulate = options.default_accumulate_df or _accumulate_for(activation, node.df)
    if not device.supports_accumulate(accumulate):
        accumulate = device_format(accumulate, device, options)
        if accumulate not in ACCUMULATORS:
            accumulate = sixteen_bit(accumulate) if accumulate.is_bfp else DataFormat.Float16_b
    if isinstance(node.op, HwReduce) and accumulate is DataFormat.Float32 and activation.family == "a":
        accumulate = DataFormat.Float16  # a wide reduction reads no 5-bit exponents (netlist-format.md#op-rules)
    if isinstance(node.op, HwSparseMatmul) or (isinstance(node.op, HwReduce) and node.op.dim == "z"):
        node.df = activation
        intermed = activation if isinstance(node.op, HwReduce) else partial_format(activation)
    else:
        intermed = accumulate
        if not device.wide_accumulate and (accumulate.family == "a") != (node.df.family == "a"):
            # A 16-bit destination: spilled and final results have one exponent (netlist-format.md#op-rules).
            accumulate = intermed = DataFormat.Float16 if node.df.family == "a" else DataFormat.Float16_b
    node.attrs["acc_df"] = accumulate
    node.attrs["intermed_df"] = intermed
    node.attrs["fidelity"] = options.default_math_fidelity
    if (
        isinstance(node.op, HwSparseMatmul)
        and options.default_math_fidelity is MathFidelity.LoFi
        and not activation.is_bfp
    ):
        node.attrs["fidelity"] = MathFidelity.HiFi2  # a wide activation needs two passes


def _accumulate_for(activation: DataFormat, output: DataFormat) -> DataFormat:
    if DataFormat.Float32 in (activation, output):
        return DataFormat.Float32
    return DataFormat.Float16 if "a" in (activation.family,) else DataFormat.Float16_b


def sixteen_bit(df: DataFormat) -> DataFormat:
    """The plain float format of the same exponent family, for formats with a shared exponent; others as they are."""
    if df.is_bfp:
        return DataFormat.Float16 if df.family == "a" else DataFormat.Float16_b
    return df


def partial_format(df: DataFormat) -> DataFormat:
    """The format in which partial results of an op are kept that writes `df`: blocks of 4 and 2 bits are too small for
    sums (netlist-format.md#op-rules, O14)."""
    blocks = _BLOCKS["a" if df.family == "a" else "b"]
    return blocks[0] if df in blocks else df


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


def mismatches(graph: Graph) -> Iterator[tuple[str, str, str]]:
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
