"""Loads and stores that belong together."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from tbuda_lab.popxl.context import get_current_context, io_tiles
from tbuda_lab.popxl.graph import Graph, Op
from tbuda_lab.popxl.lowering.ambiguity import Storages, Use, conflict

_MERGED = ("HostLoad", "HostStore", "RemoteLoad", "RemoteLoadInplace", "RemoteStore")


@contextlib.contextmanager
def merge_exchange() -> Generator[None, None, None]:
    """Loads and stores inside become one op, `MultiExchange`, as far as none needs what is between them."""
    context = get_current_context()
    graph = context.graph
    made: list[Op] = []
    handle = context.register_op_created_hook(made.append)
    try:
        yield
    finally:
        context.remove_op_created_hook(handle)
    exchanges = [op for op in made if op.kind in _MERGED and op.graph is graph]
    while len(exchanges) > 1:
        together = _independent(graph, exchanges)
        exchanges = [op for op in exchanges if op not in together]
        if len(together) > 1:
            _merge(graph, together)


def _independent(graph: Graph, exchanges: list[Op]) -> list[Op]:
    """The first exchange and those after it that need nothing of what is done from it on. What does need it comes to
    stand behind them: what reads a result, uses elements that one of them changes or changes what one of them reads,
    moves the same stream or buffer, or writes to the terminal after them."""
    first = exchanges[0]
    storages = Storages()
    uses = {op: storages.uses(op) for op in graph._ops}
    at = graph._ops.index(first)
    chosen: list[Op] = [first]
    behind: list[Op] = []
    between: list[Op] = []
    for op in graph._ops[at + 1 :]:
        late = [other for other in (*chosen, *behind) if _needs(op, other, uses)]
        if op in exchanges and not any(other in behind for other in late) and _joins(op, chosen, behind, uses):
            chosen.append(op)
        else:
            (behind if late or op in exchanges else between).append(op)
    last = graph._ops.index(chosen[-1])
    still = {*graph._ops[last + 1 :]}
    graph._ops = [
        *graph._ops[:at],
        *(op for op in between if op not in still),
        *chosen,
        *(op for op in behind if op not in still),
        *graph._ops[last + 1 :],
    ]
    return chosen


def _joins(op: Op, chosen: list[Op], behind: list[Op], uses: dict[Op, list[Use]]) -> bool:
    """Whether an exchange can be done together with others: it needs none of their results, nor what is behind them."""
    made_by = {t._producer for t in op.inputs}
    return not made_by & {*chosen} and not {*op.after} & {*behind}


def _needs(op: Op, other: Op, uses: dict[Op, list[Use]]) -> bool:
    """Whether an op has to stay behind another one that stands before it."""
    if any(t._producer is other for t in op.inputs) or _moves(op) & _moves(other):
        return True
    return conflict(uses[op], uses[other])


def _moves(op: Op) -> set[object]:
    """The streams and buffers that an op moves, "terminal" where it prints, of graphs that it calls too."""
    ops, seen, found = [op], set(), set[object]()
    while ops:
        one = ops.pop()
        found |= {one.attrs[name] for name in ("stream", "buffer") if name in one.attrs}
        found |= {"terminal"} if one.kind == "PrintTensor" else set()
        ops += [inner for graph in one.calls if graph not in seen for inner in graph._ops]
        seen |= {*one.calls}
        ops += [part for part in one.attrs.get("parts", ()) if part is not one]
    return found


def _merge(graph: Graph, together: list[Op]) -> None:
    """One op in the place of the last of them."""
    merged = Op("MultiExchange", graph, [t for op in together for t in op.inputs], {"parts": list(together)})
    merged.outputs = [t for op in together for t in op.outputs]
    before = [sum(len(op.inputs) for op in together[:k]) for k in range(len(together))]
    merged.modifies = tuple(first + k for first, op in zip(before, together, strict=True) for k in op.modifies)
    merged.after = {before for op in together for before in op.after} - {*together}
    merged.io_tiles = together[0].io_tiles
    merged.ipu = together[0].ipu
    for t in merged.outputs:
        t._producer = merged
    graph._ops.insert(graph._ops.index(together[-1]), merged)
    graph._ops = [op for op in graph._ops if op not in together]
    for op in graph._ops:
        if op.after & {*together}:
            op.after = (op.after - {*together}) | {merged}
    for sequence in get_current_context()._sequences:
        for key, last in sequence.last.items():
            if any(op in together for op in last):
                sequence.last[key] = [*(op for op in last if op not in together), merged]


@contextlib.contextmanager
def io_tile_exchange(verify_overlap: bool = True) -> Generator[None, None, None]:
    """Loads and stores inside go by the tiles that are kept for them. Raises `RuntimeError` where other ops are inside,
    which would keep them from going on beside calculations, unless `verify_overlap` is False."""
    context = get_current_context()
    made: list[Op] = []
    handle = context.register_op_created_hook(made.append)
    try:
        with io_tiles(), merge_exchange():
            yield
    finally:
        context.remove_op_created_hook(handle)
    left = [
        op
        for op in get_current_context().graph._ops
        if op in made or ("parts" in op.attrs and op.attrs["parts"][0] in made)
    ]
    others = [op for op in left if op.kind != "Init"]
    if verify_overlap and len(others) > 1:
        raise RuntimeError(
            f"io_tile_exchange holds more than one op, which cannot go on beside calculations: {others[1].where()}"
        )
