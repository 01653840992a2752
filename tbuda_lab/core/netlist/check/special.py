"""Rules O12, O13, O17 and O18: untilized outputs, cores, embedding, tilizer, depthwise, forks."""

from __future__ import annotations

from tbuda_lab.core.netlist.check.context import CheckContext, whole
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.schema import NetGraph, NetOp


@rule("O12", "op")
def untilize_target(c: CheckContext, op: NetOp) -> Issues:
    """An op that untilizes feeds exactly one queue of grid 1x1, which no op reads, and no op."""
    if not op.untilize_output:
        return
    queues = c.queues_by_writer.get(op.name, [])
    if len(queues) != 1:
        yield "untilize_output", f"an untilized output feeds {len(queues)} queues", "it must feed exactly one"
    for reader in c.readers.get(op.name, ())[:1]:
        yield (
            "untilize_output",
            f"an untilized output feeds op {reader.op.name!r}",
            "put a nop that untilizes beside it",
        )
    for queue in queues:
        if queue.grid_size != (1, 1):
            yield (
                "untilize_output",
                f"an untilized output feeds queue {queue.name!r} of grid {queue.grid_size[0]}x{queue.grid_size[1]}",
                "make the grid of the queue [1, 1]",
            )
        for reader in c.readers.get(queue.name, ())[:1]:
            yield (
                "untilize_output",
                f"op {reader.op.name!r} reads queue {queue.name!r}, which holds untilized data",
                "only the host reads untilized queues",
            )


_MOST_AT_ONCE = 1024  # ops compared with each one; no grid has more cores


def rectangle(op: NetOp) -> tuple[int, int, int, int] | None:
    """(row, column, rows, columns) of the cores of an op, grid_transpose respected; None where it has no core."""
    if op.grid_loc is None or op.type == "ethernet_datacopy" or min(op.grid_size) < 1:
        return None
    rows, cols = reversed(op.grid_size) if op.grid_transpose else op.grid_size
    return op.grid_loc[0], op.grid_loc[1], rows, cols


@rule("O13", "graph")
def cores_overlap(c: CheckContext, g: NetGraph) -> Issues:
    """No core belongs to two ops of one graph."""
    placed = sorted((box, name) for name, op in g.ops.items() if (box := rectangle(op)) is not None)
    rank = {name: k for k, name in enumerate(g.ops)}
    open_boxes: list[tuple[tuple[int, int, int, int], str]] = []
    for box, name in placed:
        open_boxes = [o for o in open_boxes if o[0][0] + o[0][2] > box[0]][-_MOST_AT_ONCE:]
        for other, other_name in open_boxes:
            if box[1] < other[1] + other[3] and other[1] < box[1] + box[3]:
                later = max(name, other_name, key=rank.__getitem__)
                earlier = other_name if later == name else name
                row, col = max(box[0], other[0]), max(box[1], other[1])
                yield (
                    (later, "grid_loc"),
                    f"op {later!r} and op {earlier!r} share core [{row}, {col}]",
                    "move or shrink one of them",
                )
                break  # one partner is enough to find it
        open_boxes.append((box, name))


@rule("O17.embedding", "op")
def embedding(c: CheckContext, op: NetOp) -> Issues:
    """An embedding: num_indices a multiple of 32 and 32 x mblock_m, ublock_rt 1."""
    if op.type != "embedding":
        return
    count = whole(op, "num_indices")
    where = ("attributes", "num_indices") if "num_indices" in op.attributes else "attributes"
    if count < 1 or count % 32:
        yield where, f"num_indices {count}" if count else "no num_indices", "write a positive multiple of 32"
    elif count // 32 != op.blocking.mblock[0]:
        yield "mblock", f"mblock_m {op.blocking.mblock[0]}, but num_indices {count}", f"write {count // 32}"
    if op.blocking.ublock[0] != 1:
        yield "ublock", f"ublock_rt {op.blocking.ublock[0]} on an embedding", "write 1"


@rule("O17.tilizer", "op")
def tilizer(c: CheckContext, op: NetOp) -> Issues:
    """A tilizer has no TMs; ublocks of source and op are equal if one is higher than a tile."""
    if op.type != "tilizer":
        return
    for n, i in enumerate(op.inputs):
        if i.tms:
            yield f"input_{n}_tms", "TMs on a tilizer", "put them on the next op"
        queue = c.n.queues.get(i.source)
        if (
            queue is not None
            and max(queue.blocking.ublock[0], op.blocking.ublock[0]) > 1
            and queue.blocking.ublock != op.blocking.ublock
        ):
            yield (
                "ublock",
                f"ublock {list(op.blocking.ublock)}, but {queue.name!r} has {list(queue.blocking.ublock)}",
                "make them equal",
            )


@rule("O17.depthwise", "op")
def depthwise(c: CheckContext, op: NetOp) -> Issues:
    """A depthwise has u_kt 1 and a positive m_k."""
    if op.type != "depthwise":
        return
    if whole(op, "u_kt") != 1:
        yield "attributes", f"u_kt {op.attributes.get('u_kt', 'not written')}", "write 1"
    if whole(op, "m_k") < 1:
        yield "attributes", f"m_k {op.attributes.get('m_k', 'not written')}", "write the number of blocks, 1 or more"


@rule("O18", "op")
def forked_inputs(c: CheckContext, op: NetOp) -> Issues:
    """A forked input is a queue that the op reads, and its sibling is an op of the same graph."""
    for item in op.forked_dram_inputs or ():
        for queue, sibling in item.items():
            if queue not in c.n.queues:
                yield "forked_dram_inputs", f"queue {queue!r} does not exist", "name a queue that the op reads"
            elif all(i.source != queue for i in op.inputs):
                yield "forked_dram_inputs", f"{queue!r} is not an input of the op", "name a queue that the op reads"
            if sibling not in c.graph_of[op.name].ops:
                yield "forked_dram_inputs", f"op {sibling!r} is not in the same graph", "name an op of this graph"
