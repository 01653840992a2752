"""Buffers that a model's forward writes: rams that its programs read and write, run after run.

All that reads a ram does so through one op, and what is written comes through an op of its own, so both are ops of the
device like any other where sections are cut. Whole numbers are kept by the host, whose arithmetic theirs is.
"""

from __future__ import annotations

from collections.abc import Collection

from tbuda_lab.core.errors import Diagnostic, InputError, UnsupportedOp
from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import WRITES, by_rank, keeps_state, writes_by_parameter
from tbuda_lab.core.ops.host import HostCall
from tbuda_lab.core.ops.unary import Buffer

KEPT_WHOLE = "whole numbers that are kept from run to run"


def with_ram_ends(graph: Graph) -> tuple[Graph, dict[str, str], dict[str, str]]:
    """The graph with an op before and behind each ram that it keeps; by op of the host's the reason; by ram the op that
    gives what is written."""
    if not keeps_state(graph):
        return graph, {}, {}
    own, why, written = graph.clone(), dict[str, str](), dict[str, str]()
    for name, output in writes_by_parameter(own).items():
        whole = not str(output.attrs.get("dtype", "float32")).startswith(("float", "bfloat"))
        users = own.users().get(name, [])
        if name in own and users:
            read = _add(own, f"{name}.read", name, whole)
            for user, port in users:
                edges = list(own[user].inputs)
                edges[port] = Edge(read)
                own[user].inputs = tuple(edges)
            why |= {read: KEPT_WHOLE} if whole else {}
        new = written[name] = _add(own, f"{name}.new", output.sources[0], whole)
        own[new].origin = output.origin
        output.inputs = (Edge(new),)
        why |= {new: KEPT_WHOLE} if whole else {}
    own.resort()
    return own, why, written


def _add(graph: Graph, name: str, source: str, whole: bool) -> str:
    op = HostCall("clone", ("$0",)) if whole else Buffer()
    origin, shape = graph[source].origin, graph[source].shape
    node = Node(graph.unique(name), NodeKind.OP, shape, op, (Edge(source),), origin=origin)
    return graph.add(node).name


def unordered_writes(lowered: Graph) -> set[str]:
    """Rams of a lowered graph that a part writes by an op which does not depend on every op that reads them there: it
    may run before them."""
    part = by_rank(lowered)
    users, unordered = lowered.users(), set[str]()
    for name, output in writes_by_parameter(lowered).items():
        before, stack = set[str](), [output.name]
        while stack:
            for source in lowered[stack.pop()].sources:
                if source not in before:
                    before.add(source)
                    stack.append(source)
        readers = [user for user, _ in users.get(name, []) if part[user] == part[output.name]]
        if any(reader not in before for reader in readers):
            unordered.add(name)
    return unordered


def refuse_unordered(graph: Graph, names: Collection[str]) -> None:
    """Raises `UnsupportedOp` for rams whose writes nothing orders behind what reads them, where sections may not."""
    if names:
        writes = writes_by_parameter(graph)
        findings = [
            Diagnostic(
                "error",
                writes[n].where,
                "state",
                f"{n!r} may be written before it is read",
                "cpu_fallback='automatic', so that its write is a section of its own",
            )
            for n in names
        ]
        raise UnsupportedOp(f"nothing orders the writes of {graph.name!r} behind its reads", findings)


def refuse_microbatch(graph: Graph, microbatch: int) -> None:
    """Raises `InputError` for several inputs at a time, which would all read what the one before them left."""
    if microbatch > 1 and keeps_state(graph):
        names = list(writes_by_parameter(graph))
        raise InputError(
            f"{graph.name!r} keeps {', '.join(names)} from one input to the next, so it runs one at a time; a "
            f"microbatch of {microbatch} was asked for",
            [
                Diagnostic("error", node.where, "state", "it is written by the forward", "microbatch=1")
                for node in graph.outputs
                if WRITES in node.attrs
            ],
        )


__all__ = ["keeps_state", "refuse_microbatch", "refuse_unordered", "unordered_writes", "with_ram_ends"]
