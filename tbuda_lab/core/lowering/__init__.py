"""From the canonical nD graph to hardware ops on tiles."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import HOST_FIX, Diagnostic, UnsupportedOp
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import ACCUMULATES, RAM, READ_FROM_QUEUE, WRITES
from tbuda_lab.core.lowering import conv, eltwise, matmul, movement
from tbuda_lab.core.lowering.context import LOWERERS, LoweringContext, stored_value
from tbuda_lab.core.lowering.data_formats import assign
from tbuda_lab.core.lowering.edits import QUEUED
from tbuda_lab.core.lowering.fuse import fuse, inner_names, inner_targets
from tbuda_lab.core.lowering.grow import grow
from tbuda_lab.core.lowering.hw_ops import HwSparseMatmul, HwUnary
from tbuda_lab.core.lowering.legalise import legalise, needs_output_nop, separate
from tbuda_lab.core.lowering.precision import apply_rules
from tbuda_lab.core.lowering.split import split_pairs, split_parts
from tbuda_lab.core.lowering.values import collapse
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override

__all__ = ["lower", "lower_for"]

_FAMILIES = (conv, eltwise, matmul, movement)  # imported for the lowerings they register


def lower_for(
    lowered: Graph,
    graph: Graph,
    device: DeviceSpec,
    options: CompileOptions,
    overrides: Sequence[Override],
    ends: Collection[str] = (),
) -> Graph:
    """`lowered`, which `lower` made of `graph`, with the ops that overrides name on their own: what is fused into
    another op has no name any more. ends: what `lowered` was made with."""
    named = inner_targets(inner_names(lowered), overrides)
    return lower(graph, device, options, named, ends) if named else lowered


def lower(
    graph: Graph,
    device: DeviceSpec,
    options: CompileOptions,
    keep: Collection[str] = (),
    ends: Collection[str] = (),
) -> Graph:
    """The lowered graph of a canonical nD graph: hardware ops, TMs on edges, data formats set, legal on `device`.

    keep: ops that are not fused with others; ends: ops whose value leaves the fused op they are in.

    Raises `UnsupportedOp` that lists every op without a lowering, with its place in the model, and `OverrideError` for
    options that name ops which cannot be lowered as asked.
    """
    _check_canonical(graph)
    parts = split_parts(graph, device, options)
    ctx = LoweringContext(graph, options.data_format, parts, options.fill_tiles_on_host)
    pairs = split_pairs(graph, device, options)
    with_second = {name for pair in pairs.values() for name in (pair.first, *pair.between)}
    for node in graph.topological():
        ctx.begin(node)
        if node.kind is NodeKind.INPUT:
            ctx.out.add(
                Node(
                    node.name,
                    NodeKind.INPUT,
                    (1, *collapse(node.shape)),
                    origin=node.origin,
                    attrs={**node.attrs, "logical": node.shape},
                    recipe=node.recipe,
                    df=node.df,
                )
            )
            ctx.values[node.name] = stored_value(node.name, node.shape)
        elif node.name in pairs:
            ctx.values[node.name] = matmul.pair_of_matmuls(ctx, pairs[node.name])
        elif node.kind is NodeKind.OP and node.name not in with_second:
            assert node.op is not None
            operands = [
                ctx.operand(s) if not _is_weight(node, port) else stored_value(s, graph[s].shape)
                for port, s in enumerate(node.sources)
            ]
            ctx.values[node.name] = LOWERERS[node.op.type](ctx, node.op, operands, node.shape)
            if READ_FROM_QUEUE in node.attrs:
                ctx.out[ctx.values[node.name].node].attrs[READ_FROM_QUEUE] = True
        elif node.kind is NodeKind.OUTPUT:
            (_lower_write if WRITES in node.attrs else _lower_output)(ctx, node)
    ctx.out.prune()
    separate(ctx.out)
    legalise(ctx.out, device.arch)
    if options.enable_row_padding or options.op_names_pad or options.op_rows:
        grow(ctx.out, device, options)
    assign(ctx.out, device, options)
    if options.precision:
        apply_rules(ctx.out, graph, device, options)
    if options.enable_auto_fusing:
        fuse(ctx.out, options, keep, ends)
    _read_from_queues(ctx.out)
    return ctx.out


def _read_from_queues(graph: Graph) -> None:
    """Marks the operands that come from a queue because their producer says so."""
    for node in graph.ops:
        ports = [k for k, source in enumerate(node.sources) if READ_FROM_QUEUE in graph[source].attrs]
        if ports:
            node.attrs[QUEUED] = tuple(ports)


def _lower_write(ctx: LoweringContext, node: Node) -> None:
    """A value that goes into a ram: in the form in which readers expect it (see `stored_value`), through an op of its
    own.

    An accumulator holds what comes, and its readers expect no more.
    """
    value = ctx.operand(node.sources[0])
    ctx.after(ctx.source[node.sources[0]])
    accumulates = bool(node.attrs.get(ACCUMULATES))
    _, rows, cols = value.zrc
    if not accumulates:
        value = ctx.fill(value, rows=rows == 1, cols=cols == 1)
        value = ctx.mask_padding(value, rows=rows != 1, cols=cols != 1)
    producer = ctx.out[value.node]
    own = producer.kind is NodeKind.OP and collapse(node.shape) == tuple(producer.shape[1:])
    if accumulates or RAM in node.attrs or value.tms or not own or isinstance(producer.op, HwSparseMatmul):
        name = ctx.out.unique(f"{value.node}_gradient_accumulator" if accumulates else f"{value.node}_write_nop")
        nop = Node(name, NodeKind.OP, (1, *collapse(node.shape)), HwUnary("nop"), (ctx.edge(value),))
        nop.origin, nop.attrs = producer.origin, {"inserted": True}
        producer = ctx.out.add(nop)
    out = Node(node.name, NodeKind.OUTPUT, (1, *collapse(node.shape)), inputs=(Edge(producer.name),))
    out.origin, out.attrs = node.origin, {**node.attrs, "logical": node.shape}
    ctx.out.add(out)


def _is_weight(node: Node, port: int) -> bool:
    """Convolution weights are rearranged by their lowering, so they are not read as they are."""
    return node.op is not None and node.op.type == "conv2d_rows" and port == 1


def _lower_output(ctx: LoweringContext, node: Node) -> None:
    value = ctx.operand(node.sources[0])
    producer = ctx.out[value.node]
    readers = len(ctx.users[node.sources[0]]) - 1 + sum(value.node in n.sources for n in ctx.out)
    alias = producer.attrs.get("source") != node.sources[0]
    if value.tms or alias or needs_output_nop(ctx.out, producer, readers):
        ctx.node = node
        nop = Node(
            ctx.out.unique(f"{value.node}_output_nop_0"),
            NodeKind.OP,
            (1, *collapse(node.shape)),
            HwUnary("nop"),
            (ctx.edge(value),),
            origin=producer.origin,
            attrs={"inserted": True},
        )
        ctx.out.add(nop)
        producer = nop
    ctx.out.add(
        Node(
            node.name,
            NodeKind.OUTPUT,
            (1, *collapse(node.shape)),
            inputs=(Edge(producer.name),),
            origin=node.origin,
            attrs={**node.attrs, "logical": node.shape},
            recipe=node.recipe,
        )
    )


def _check_canonical(graph: Graph) -> None:
    missing = [n for n in graph.ops if n.op is None or n.op.type not in LOWERERS]
    if not missing:
        return
    findings = []
    for node in missing:
        kind = node.op.type if node.op else "?"
        findings.append(
            Diagnostic(
                "error",
                node.where,
                "lowering",
                f"{kind} has no hardware form",
                f"{HOST_FIX}; CPU fallback (add_cpu_fallback_ops) does the latter",
            )
        )
    raise UnsupportedOp(
        f"{len(missing)} op(s) of graph {graph.name!r} cannot be lowered", findings, [node.name for node in missing]
    )
