"""Mixed precision: rules that give groups of ops other formats and fidelities, and what each of them did.

A rule selects lowered ops by name and type and asks for formats; what the device cannot have is left as it is and said.
`amp_rules` are PyBuda's levels (compiler.md 6.3), `light_rules` its cheaper weights.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import DataFormat, MathFidelity
from tbuda_lab.core.graph import Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import ACCUMULATES, FORWARD, phases
from tbuda_lab.core.lowering.data_formats import assign_op, in_family, partial_format, set_fidelity, set_format
from tbuda_lab.core.lowering.hw_ops import HwMatmul, HwOp, HwSparseMatmul, HwSplice, HwUnary
from tbuda_lab.core.name_patterns import NamePattern, name_pattern
from tbuda_lab.core.options import CompileOptions, PrecisionRule

_BITS = {8: "Bfp8", 4: "Bfp4", 2: "Bfp2"}
_SAID = "precision"
"""Attribute of a node: what rules did to it, a tuple of lines."""


def amp_rules(level: int, family: str) -> tuple[PrecisionRule, ...]:
    """The rules of an AMP level; family: "a" or "b" of the format that was asked for, "" for the level's own (level 1
    is "b", level 2 is "a")."""
    if level == 0:
        return ()
    if (family or "ba"[level - 1]) == "b":
        sixteen, eight = DataFormat.Float16_b, DataFormat.Bfp8_b
        return (
            PrecisionRule(
                "AMP 1: products in 8-bit blocks",
                op_type="matmul",
                output_df=eight,
                intermediate_df=sixteen,
                accumulate_df=sixteen,
                math_fidelity=MathFidelity.HiFi2,
                inputs=((1, eight, False), (2, eight, False)),
            ),
            PrecisionRule("AMP 1: softmax keeps 16 bits", op_type="softmax", output_df=sixteen),
            PrecisionRule("AMP 1: layernorm keeps 16 bits", op_type="layernorm", output_df=sixteen),
        )
    sixteen, eight = DataFormat.Float16, DataFormat.Bfp8
    return (
        PrecisionRule(
            "AMP 2: products in 8-bit blocks",
            op_type="matmul",
            output_df=eight,
            intermediate_df=sixteen,
            accumulate_df=sixteen,
            inputs=((0, eight, False), (1, eight, False), (2, eight, False)),
        ),
        PrecisionRule("AMP 2: softmax keeps 16 bits", op_type="softmax", output_df=sixteen),
        PrecisionRule("AMP 2: layernorm keeps 16 bits", op_type="layernorm", output_df=sixteen),
        PrecisionRule("AMP 2: copies keep 16 bits", op_type="buffer", output_df=sixteen),
    )


def light_rules(level: int) -> tuple[PrecisionRule, ...]:
    """Cheaper weights of all matmuls: 1: 8-bit blocks and HiFi2, 2: 4-bit and HiFi2, 3: 4-bit and LoFi."""
    if level == 0:
        return ()
    bits, fidelity = {1: (8, MathFidelity.HiFi2), 2: (4, MathFidelity.HiFi2), 3: (4, MathFidelity.LoFi)}[level]
    return (
        PrecisionRule(
            f"AMP light {level}: weights of products",
            op_type="matmul",
            math_fidelity=fidelity,
            weight_bits=((1, bits), (2, bits)),
        ),
    )


def apply_rules(graph: Graph, passed: Graph, device: DeviceSpec, options: CompileOptions) -> None:
    """Apply `options.precision` to a lowered graph whose formats are assigned, in place and in order: the last wins.
    passed: the nD graph that it was lowered from, which knows the types that ops had in the model."""
    part = phases(graph)
    summed = {node.sources[0] for node in graph.outputs if node.attrs.get(ACCUMULATES)}
    summed |= {graph[name].sources[0] for name in summed if graph[name].op == HwUnary("nop")}  # what makes the summand
    for rule in options.precision:
        pattern = None if rule.name is None else name_pattern(rule.name)
        for name in [n.name for n in graph.topological()]:
            node = graph[name]
            if not _in_part(node, rule, part.get(name, FORWARD), name in summed):
                continue
            if _selects(node, passed, rule, pattern):
                changes = tuple(_apply(graph, device, options, node, rule))
                if changes:
                    line = f"{rule.reason}: {', '.join(changes)}"
                    node.attrs[_SAID] = (*node.attrs.get(_SAID, ()), line)


def precision_report(graph: Graph) -> tuple[tuple[str, str], ...]:
    """(op, what a rule changed there and why), in graph order."""
    return tuple((node.name, line) for node in graph.topological() for line in node.attrs.get(_SAID, ()))


def _in_part(node: Node, rule: PrecisionRule, part: str, summed: bool) -> bool:
    """Whether a rule for a part of the graph, or for sums of gradients, means the op."""
    if rule.part is None and rule.gradients is None:
        return True
    return (
        node.kind is NodeKind.OP
        and rule.part in (None, FORWARD if part.startswith(FORWARD) else part)
        and (rule.gradients is None or rule.gradients == summed)
    )


def _selects(node: Node, passed: Graph, rule: PrecisionRule, pattern: NamePattern | None) -> bool:
    source = passed.nodes.get(str(node.attrs.get("source", "")))
    names = {node.name} | ({source.name, str(source.attrs.get("original_op_name", ""))} if source else set())
    if pattern is not None and not any(pattern.fullmatch(name) for name in names):
        return False
    if node.kind is not NodeKind.OP:
        return pattern is not None and rule.op_type is None and node.kind is not NodeKind.OUTPUT
    if rule.op_type is None:
        return True
    types = {node.op.netlist_type, getattr(node.op, "fn", "")} if isinstance(node.op, HwOp) else set()
    if source is not None:
        types |= {source.op.type if source.op else "", str(source.attrs.get("original_op_type", ""))}
    picks = isinstance(node.op, HwSparseMatmul)  # it moves rows; its netlist op is a matmul all the same
    return rule.op_type in types and not (picks and rule.op_type == "matmul")


def _apply(graph: Graph, device: DeviceSpec, options: CompileOptions, node: Node, rule: PrecisionRule) -> Iterator[str]:
    if node.kind is not NodeKind.OP:  # the name of a parameter or input: its own format
        if rule.output_df is not None:
            node.df = in_family(rule.output_df, options.data_format)
            yield f"stored as {node.df.name}"
        return
    for index, df, activations in rule.inputs:
        yield from _operand(graph, device, options, node, index, df, activations)
    for index, bits in rule.weight_bits:
        like = graph[node.sources[0]].df or options.data_format
        df = DataFormat[_BITS[bits] + ("" if like.family == "a" else "_b")]
        yield from _operand(graph, device, options, node, index, df, False)
    if rule.output_df is not None:
        yield _or_fault(
            f"output {rule.output_df.name}", set_format(graph, device, options, node.name, rule.output_df.name)
        )
    if rule.accumulate_df is not None:
        if device.supports_accumulate(rule.accumulate_df) and _one_family(device, node, rule.accumulate_df):
            node.attrs["acc_df"] = rule.accumulate_df
            yield f"accumulates in {rule.accumulate_df.name}"
        else:
            accumulator = node.attrs["acc_df"].name
            yield f"accumulation stays {accumulator}: {device.arch} has no {rule.accumulate_df.name} there"
    if rule.intermediate_df is not None and not isinstance(node.op, HwSparseMatmul):
        sums = isinstance(node.op, HwMatmul)
        if sums and partial_format(rule.intermediate_df) is not rule.intermediate_df:
            least = partial_format(rule.intermediate_df).name
            yield f"intermediates stay {node.attrs['intermed_df'].name}: partial results take {least} or wider"
        elif _one_family(device, node, rule.intermediate_df):
            node.attrs["intermed_df"] = rule.intermediate_df
            yield f"intermediates {rule.intermediate_df.name}"
        else:
            yield f"intermediates stay {node.attrs['intermed_df'].name}: their exponents are the output's"
    if rule.math_fidelity is not None:
        yield _or_fault(rule.math_fidelity.name, set_fidelity(graph, node.name, rule.math_fidelity.name))


def _one_family(device: DeviceSpec, node: Node, df: DataFormat) -> bool:
    """Where the destination is 16 bits wide, spilled and final results have one exponent (netlist-format O14)."""
    if df is DataFormat.Float32:
        return device.supports_accumulate(df)
    return device.wide_accumulate or node.df is None or df.family == node.df.family


def _operand(
    graph: Graph, device: DeviceSpec, options: CompileOptions, node: Node, index: int, df: DataFormat, activations: bool
) -> Iterator[str]:
    if index >= len(node.inputs):
        return
    source = graph[node.sources[index]]
    if any(isinstance(graph[u].op, HwSplice) for u, _ in graph.users()[source.name]):
        yield f"operand {index} stays {source.df}: a splice joins operands of one format"
        return
    if source.kind is NodeKind.OP:
        if activations:
            fault = set_format(graph, device, options, source.name, df.name)
            yield _or_fault(f"operand {index} ({source.name}) {df.name}", fault)
        return
    if source.kind is NodeKind.CONSTANT:
        return  # the compiler's own pickers and sums
    if source.kind is NodeKind.INPUT and df.is_bfp:
        yield f"operand {index} stays {source.df}: the host sends plain numbers"
        return
    source.df = in_family(df, options.data_format)
    fidelity = node.attrs.get("fidelity")
    assign_op(graph, node, device, options)
    node.attrs["fidelity"] = fidelity
    yield f"operand {index} ({source.name}) {source.df.name}"


def _or_fault(done: str, fault: tuple[str, str] | None) -> str:
    return done if fault is None else fault[0]


def rules_of(records: Sequence[PrecisionRule], level: int | None, light: int, family: str) -> tuple[PrecisionRule, ...]:
    """All rules of a compile in order: AMP level, light AMP, then those that the user wrote, which win."""
    return (*amp_rules(level or 0, family), *light_rules(light), *records)
