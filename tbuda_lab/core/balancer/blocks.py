"""Small integer helpers: divisors, ublock shapes.

ublock orders: in which order a core writes its ublocks, chosen by what the readers need
(lowering.md#ublock-order).
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from tbuda_lab.core.graph import TM, Graph, NodeKind
from tbuda_lab.core.graph.phases import RAM
from tbuda_lab.core.lowering.fused_steps import operand_uses
from tbuda_lab.core.lowering.hw_ops import HwFused, HwReduce, HwSplice, is_matmul_like


@functools.cache
def divisors(n: int) -> tuple[int, ...]:
    """All divisors of n, ascending."""
    small = [d for d in range(1, int(n**0.5) + 1) if n % d == 0]
    return tuple(small + [n // d for d in reversed(small) if d * d != n])


@functools.cache
def ublock_shapes(rows: int, cols: int, dst_tiles: int) -> tuple[tuple[int, int], ...]:
    """(u_r, u_c) that divide a block of rows x cols tiles and fit DST, largest first.

    For each budget dst, dst/2, ..., 1: the shapes to which neither side can be enlarged within the budget. The smaller
    budgets serve L1 and the legality of edges.
    """
    shapes = [(r, c) for r in divisors(rows) if r <= dst_tiles for c in divisors(cols) if r * c <= dst_tiles]
    chosen: list[tuple[int, int]] = []
    budget = dst_tiles
    while budget >= 1:
        inside = [s for s in shapes if s[0] * s[1] <= budget]
        for s in inside:
            larger = any(o != s and o[0] >= s[0] and o[1] >= s[1] for o in inside)
            if not larger and s not in chosen:
                chosen.append(s)
        budget //= 2
    return tuple(sorted(chosen, key=lambda s: (-s[0] * s[1], -s[1])))


def expand(counts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """For a ragged product: indices of the owner and of the position within the owner, `counts[i]` of each i."""
    counts = np.asarray(counts, np.int64)  # an empty list would be one of floats
    owner = np.repeat(np.arange(len(counts)), counts)
    starts = np.cumsum(counts) - counts
    return owner, np.arange(len(owner)) - starts[owner]


def group_numbers(*columns: np.ndarray) -> np.ndarray:
    """(n,) which of the distinct rows of these columns each row is, counted in ascending order, the first column before
    the second. Columns hold integers >= 0, or short strings."""
    numbers: np.ndarray = np.zeros(len(columns[0]), dtype=np.int64)
    count = 1
    for column in columns:
        digits = [column]
        if column.dtype.kind == "U":
            digits = list(np.ascontiguousarray(column).view(np.uint32).reshape(len(column), column.itemsize // 4).T)
        for digit in digits:
            values = digit.astype(np.int64)
            numbers = numbers * (span := int(values.max(initial=0)) + 1) + values
            count *= span
            if count > 8 * len(numbers) + 1024:
                numbers = np.unique(numbers, return_inverse=True)[1].reshape(-1)
                count = int(numbers.max(initial=0)) + 1
    seen = np.zeros(count, dtype=np.int64)
    seen[numbers] = 1
    dense: np.ndarray = (seen.cumsum() - 1)[numbers]
    return dense


def _through(tms: tuple[TM, ...], order: str) -> str:
    """The order before the TMs that gives `order` after them."""
    for tm in reversed(tms):
        if tm.name == "transpose":
            order = "c" if order == "r" else "r"
    names = [tm.name for tm in tms]
    if names == ["vslice"]:
        return "r"
    if names == ["hslice"]:
        return "c"
    return order


def ublock_orders(graph: Graph) -> dict[str, str]:
    """ "r" or "c" for every op and queue node of a lowered graph.

    A matmul reads its first operand by columns and the others by rows and always writes rows, as a reduce does, which
    reads columns if it goes over r; a fused op with sums reads their operands the other way round; a splice works along
    its axis; what is written to the host (untilized), or lies in a ram that subgraphs share, is in rows. Others take
    what their readers need, and rows when the readers disagree.
    """
    users = graph.users()
    orders: dict[str, str] = {}
    for node in reversed(graph.topological()):
        op = node.op
        if is_matmul_like(op) or isinstance(op, HwReduce) or (isinstance(op, HwFused) and op.sums) or RAM in node.attrs:
            orders[node.name] = "r"  # the router takes no other
            continue
        if isinstance(op, HwSplice):
            orders[node.name] = "c" if op.axis == "r" else "r"
            continue
        orders[node.name] = order_for(graph, users[node.name], orders)
    return orders


def order_for(graph: Graph, readers: Sequence[tuple[str, int]], orders: Mapping[str, str]) -> str:
    """The order of a node that has none of its own, by what its readers, as (name, operand), need. orders: of them."""
    preferred: set[str] = set()
    for name, port in readers:
        user = graph[name]
        if user.kind is NodeKind.OUTPUT:
            preferred.add("r")
            continue
        if is_matmul_like(user.op):
            need = "c" if port == 0 and user.op is not None and user.op.type != "hw.sparse_matmul" else "r"
        elif isinstance(user.op, HwFused) and user.op.sums:
            use = operand_uses(user.op, len(user.inputs))[port]
            need = "c" if use.role == "in1" else "r"
        elif isinstance(user.op, HwReduce) and user.op.dim in "rc":
            need = "c" if user.op.dim == "r" else "r"
        else:
            need = orders.get(name, "r")
        preferred.add(_through(user.inputs[port].tms, need))
    return "c" if preferred == {"c"} else "r"


def read_order(graph: Graph, orders: dict[str, str], name: str) -> str:
    """The order in which an op reads its eltwise operands: its own; that of a reduce is its dimension's."""
    op = graph[name].op
    if isinstance(op, HwReduce) and op.dim in "rc":
        return "c" if op.dim == "r" else "r"
    return orders[name]
