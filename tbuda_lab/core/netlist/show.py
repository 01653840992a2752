"""A netlist as text for the terminal: grid of each epoch, queues, programs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tbuda_lab.core.errors import InputError, quantity
from tbuda_lab.core.netlist.check.registry import NetlistFacts, facts_of, leading_arch
from tbuda_lab.core.netlist.check.special import rectangle
from tbuda_lab.core.netlist.dump import program_lines
from tbuda_lab.core.netlist.schema import Execute, NetGraph, Netlist, NetOp, Queue
from tbuda_lab.core.netlist.sizes import queue_buffer_bytes
from tbuda_lab.core.netlist.tables import Tables, linked_graphs, queue_groups

_DIGITS = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_MOST_SIDE = 64  # cores of a drawn grid; ops beyond are listed only


def show(n: Netlist, graph: str | None = None, arch: str | None = None) -> str:
    """The text that `tbuda netlist show` prints; with `graph` that graph alone, its queues and no programs.

    Works for netlists that are not valid. Raises InputError for an unknown graph, UnknownDevice for an unknown arch.
    """
    if graph is not None and graph not in n.graphs:
        raise InputError(f"no graph {graph!r}; there are {', '.join(n.graphs) or 'none'}")
    facts = facts_of(arch or leading_arch(n))
    tables = Tables(n)
    lines: list[str] = []
    if graph is None:
        parts = (
            (n.queues, "queue"),
            (n.graphs, "graph"),
            (tables.ops, "op"),
            (n.fused_ops, "fused op"),
            (n.programs, "program"),
        )
        lines += [
            f"arch {', '.join(n.arch) or 'not written'}: "
            + ", ".join(quantity(len(items), noun) for items, noun in parts),
            "",
        ]
    for number, group in enumerate(linked_graphs(n)):
        for name in group:
            if graph in (None, name):
                together = f", together with {', '.join(g for g in group if g != name)}" if len(group) > 1 else ""
                lines += [
                    f"epoch {number}, graph {name}: chip {n.graphs[name].target_device}, "
                    f"input_count {n.graphs[name].input_count}{together}",
                    *_graph(n.graphs[name], facts),
                    "",
                ]
    used = _queues_of(n.graphs[graph]) if graph is not None else None
    queues = [q for q in n.queues.values() if used is None or q.name in used or q.input in n.graphs[graph or ""].ops]
    lines += ["queues", *_queues(tables, queues, facts.align), ""]
    if graph is None:
        for program in n.programs:
            executes = sum(isinstance(i, Execute) for i in program.instructions)
            lines += [
                f"program {program.name}: {len(program.instructions)} instructions, {executes} executes",
                *program_lines(program),
                "",
            ]
    return "\n".join(lines).rstrip() + "\n"


def _queues_of(graph: NetGraph) -> set[str]:
    return {i.source for op in graph.ops.values() for i in op.inputs}


def _symbol(number: int) -> str:
    """0 to ZZ: two characters for up to 1296 ops."""
    return _DIGITS[number // 36 % 36] + _DIGITS[number % 36]


def _graph(graph: NetGraph, facts: NetlistFacts) -> Iterator[str]:
    ops = list(graph.ops.values())
    boxes = [rectangle(op) for op in ops]
    rows = min(max([facts.device.rows, *(b[0] + b[2] for b in boxes if b)]), _MOST_SIDE)
    cols = min(max([facts.device.cols, *(b[1] + b[3] for b in boxes if b)]), _MOST_SIDE)
    cells = [["." * 2] * cols for _ in range(rows)]
    for number, box in enumerate(boxes):
        for r in range(max(box[0], 0), min(box[0] + box[2], rows)) if box else ():
            for c in range(max(box[1], 0), min(box[1] + box[3], cols)) if box else ():
                cells[r][c] = _symbol(number) if cells[r][c] == ".." else "##"
    yield "     " + " ".join(f"{c:2d}" for c in range(cols))
    for r, row in enumerate(cells):
        yield f"  {r:2d} " + " ".join(row)
    yield from _table(
        [
            (
                _symbol(k),
                op.name,
                op.type,
                _place(op),
                _blocking(op),
                str(op.out_df),
                ", ".join(i.source for i in op.inputs),
            )
            for k, op in enumerate(ops)
        ]
    )


def _place(op: NetOp) -> str:
    size = f"{op.grid_size[0]}x{op.grid_size[1]}{' transposed' if op.grid_transpose else ''}"
    return f"{size} at {op.grid_loc[0]},{op.grid_loc[1]}" if op.grid_loc else f"{size}, no core"


def _blocking(item: NetOp | Queue) -> str:
    b = item.blocking
    return f"t{b.t} m{b.mblock[0]}x{b.mblock[1]} u{b.ublock[0]}x{b.ublock[1]}"


def _queues(tables: Tables, queues: Sequence[Queue], align: int) -> Iterator[str]:
    groups = queue_groups(tables.n)
    rows = []
    for q in queues:
        size = queue_buffer_bytes(tables, q, align)
        places = sorted({b.channel for b in q.buffers})
        channels = ",".join(map(str, places)) if len(places) <= 8 else f"{places[0]}..{places[-1]}"
        rows.append(
            (
                q.name,
                groups[q.name],
                q.type,
                f"{q.entries} entries",
                f"{q.grid_size[0]}x{q.grid_size[1]}",
                _blocking(q),
                str(q.df),
                f"{q.loc} {channels} of chip {q.target_device}",
                f"{size * len(q.buffers)} bytes",
                f"from {q.input}",
            )
        )
    yield from _table(rows)


def _table(rows: Sequence[tuple[str, ...]]) -> Iterator[str]:
    widths = [min(max(map(len, column)), 48) for column in zip(*rows, strict=True)]
    for row in rows:
        yield "  " + "  ".join(f"{cell:<{width}}" for cell, width in zip(row, widths, strict=True)).rstrip()
