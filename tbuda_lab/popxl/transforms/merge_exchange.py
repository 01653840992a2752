"""Loads and stores that belong together."""

from __future__ import annotations

import contextlib
from collections.abc import Generator

from tbuda_lab.popxl.context import get_current_context, io_tiles
from tbuda_lab.popxl.graph import Graph, Op

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
    """The first exchange and those after it that need nothing which is made from it on."""
    first = exchanges[0]
    behind: set[Op] = set()
    chosen = [first]
    for op in graph._ops[graph._ops.index(first) + 1 :]:
        needs = {t._producer for t in op.inputs} | ({*op.after} - {*chosen} if op.kind in _MERGED else set())
        if needs & (behind | {*chosen}):
            behind.add(op)
        elif op in exchanges:
            chosen.append(op)
    return chosen


def _merge(graph: Graph, together: list[Op]) -> None:
    """One op in the place of the last of them."""
    merged = Op("MultiExchange", graph, [t for op in together for t in op.inputs], {"parts": list(together)})
    merged.outputs = [t for op in together for t in op.outputs]
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
