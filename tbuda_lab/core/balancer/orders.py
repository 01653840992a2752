"""ublock orders: in which order a core writes its ublocks, chosen by what the readers need
(lowering.md#ublock-order)."""

from __future__ import annotations

from tbuda_lab.core.graph import TM, Graph, NodeKind
from tbuda_lab.core.lowering.hwops import HwReduce, HwSplice, is_matmul_like


def _through(tms: tuple[TM, ...], wanted: str) -> str:
    """The order before the TMs that gives `wanted` after them."""
    for tm in reversed(tms):
        if tm.name == "transpose":
            wanted = "c" if wanted == "r" else "r"
    names = [tm.name for tm in tms]
    if names == ["vslice"]:
        return "r"
    if names == ["hslice"]:
        return "c"
    return wanted


def ublock_orders(graph: Graph) -> dict[str, str]:
    """ "r" or "c" for every op and queue node of a lowered graph.

    A matmul reads its first operand by columns and the others by rows and always writes rows, as a reduce does, which
    reads columns if it goes over r; a splice works along its axis; what is written to the host (untilized) is in rows.
    Others take what their readers need, and rows when the readers disagree.
    """
    users = graph.users()
    orders: dict[str, str] = {}
    for node in reversed(graph.topological()):
        op = node.op
        if is_matmul_like(op) or isinstance(op, HwReduce):
            orders[node.name] = "r"  # the router takes no other
            continue
        if isinstance(op, HwSplice):
            orders[node.name] = "c" if op.axis == "r" else "r"
            continue
        wanted: set[str] = set()
        for name, port in users[node.name]:
            user = graph[name]
            if user.kind is NodeKind.OUTPUT:
                wanted.add("r")
                continue
            if is_matmul_like(user.op):
                need = "c" if port == 0 and user.op is not None and user.op.type != "hw.sparse_matmul" else "r"
            elif isinstance(user.op, HwReduce) and user.op.dim in "rc":
                need = "c" if user.op.dim == "r" else "r"
            else:
                need = orders.get(name, "r")
            wanted.add(_through(user.inputs[port].tms, need))
        orders[node.name] = "c" if wanted == {"c"} else "r"
    return orders


def read_order(graph: Graph, orders: dict[str, str], name: str) -> str:
    """The order in which an op reads its eltwise operands: its own; that of a reduce is its dimension's."""
    op = graph[name].op
    if isinstance(op, HwReduce) and op.dim in "rc":
        return "c" if op.dim == "r" else "r"
    return orders[name]
