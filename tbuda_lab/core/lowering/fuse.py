"""Element-wise ops that feed each other become one fused op: one hop over the NoC and a set of cores less for each.

A group grows from its last op upwards: a producer joins when everything that reads it is in the group already, so that
nothing but the result leaves (lowering.md#fusing). Inside, a value goes on in the dest register or through a buffer of
one ublock; `plan` says which. A one-hot matmul that only fills tiles is not an op at all before arithmetic that can be
fused: there the unpacker does it, as it reads (`tile_broadcast`; see `_spread`).
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Collection, Mapping, Sequence

from tbuda_lab.core.graph import Edge, Graph, Node, NodeKind
from tbuda_lab.core.graph.phases import WRITES
from tbuda_lab.core.lowering.context import SPREADS
from tbuda_lab.core.lowering.hwops import HwBinary, HwFused, HwMatmul, HwUnary, tile_shape
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override

MAX_INPUTS = 8
"""Operands of a fused op. The format allows more; each takes an input buffer and a stream of every core."""

MAX_STEPS = 12
_UNARY = frozenset(
    ("exp", "log", "sqrt", "reciprocal", "sigmoid", "tanh", "gelu", "gelu_derivative", "lrelu", "abs", "power",
     "sine", "cosine", "square")
)  # fmt: skip
_BINARY = frozenset(("add", "subtract", "multiply", "maximum"))
_ARITHMETIC = frozenset(("add", "subtract", "multiply"))
_SYMMETRIC = frozenset(("add", "multiply"))
_KEPT_OUT_OF_DEST = frozenset(("maximum",))
_FACTS = ("intermed_df", "acc_df", "fidelity")

Users = Mapping[str, list[tuple[str, int]]]


def fuse(graph: Graph, options: CompileOptions, keep: Collection[str] = (), ends: Collection[str] = ()) -> None:
    """Fuse in place. A fused op has the name of its last op; `attrs["fused"]` lists the names of all, `attrs["steps"]`
    those of its steps where these are not all. Ops named in `keep` or `options.op_names_dont_fuse` stay as they are;
    the value of an op in `ends` leaves the fused op that it is in, so it is the last of it. With
    `options.fuse_outputs`, and where names were given by hand, the ops of an output fuse too: a nop untilizes it."""
    apart = {*keep, *options.op_names_dont_fuse}
    if options.op_names_manual_fuse:
        patterns = [re.compile(text) for text in options.op_names_manual_fuse]
        apart |= {node.name for node in graph.ops if not any(w.fullmatch(node.name) for w in patterns)}
    outputs = options.fuse_outputs or bool(options.op_names_manual_fuse)
    spread = _spread(graph, graph.users(), apart, outputs)
    users = graph.users()
    taken: set[str] = set()
    for node in reversed(graph.topological()):
        if node.name in taken or not _fusable(graph, node, users, apart, outputs):
            continue
        group = _grow(graph, node, users, apart, ends, spread)
        if len(group) > 1 or node.name in spread:
            taken.update(group)
            _replace(graph, node, group, spread)
            _untilize(graph, node, users)
            for source in node.sources:
                users[source] = [u for u in users[source] if u[0] not in group]
            for port, source in enumerate(node.sources):
                users[source].append((node.name, port))
    graph.resort()


def _untilize(graph: Graph, node: Node, users: Users) -> None:
    """A nop between a fused op and the host's queue: no fused op untilizes."""
    for name, _ in users[node.name]:
        if graph[name].kind is NodeKind.OUTPUT and WRITES not in graph[name].attrs:
            nop = Node(graph.unique(f"{node.name}_output_nop_0"), NodeKind.OP, node.shape, HwUnary("nop"),
                       (Edge(node.name),), origin=node.origin, df=node.df)  # fmt: skip
            nop.attrs = {"inserted": True, **{k: node.attrs[k] for k in _FACTS if k in node.attrs}}
            graph.add(nop)
            graph[name].inputs = (dataclasses.replace(graph[name].inputs[0], source=nop.name),)


def _spread(
    graph: Graph, users: Users, apart: Collection[str], outputs: bool
) -> dict[str, tuple[str, tuple[str, ...]]]:
    """Take out the matmuls that only fill tiles and are read by nothing but arithmetic that may be fused, as operand 1
    (netlist-format.md#fused-ops). Gives per reader which dim it fills itself, and the ops that it stands for beside its
    own: a matmul with several readers belongs to the first."""
    result: dict[str, tuple[str, tuple[str, ...]]] = {}
    for node in graph.topological():
        dim = node.attrs.get(SPREADS)
        if dim is None or node.name in apart or node.op != HwMatmul():
            continue
        readers = users[node.name]
        if not readers or len(dict(readers)) < len(readers):
            continue
        if not all(
            name not in result and _takes_spread(graph, name, port, users, apart, outputs) for name, port in readers
        ):
            continue
        filled = node.inputs[1 if dim == "r" else 0]
        for k, (name, port) in enumerate(sorted(readers)):
            reader = graph[name]
            edges = list(reader.inputs)
            edges[port] = Edge(filled.source, (*filled.tms, *edges[port].tms))
            reader.inputs = tuple(edges if port else reversed(edges))
            result[name] = dim, () if k else (node.name,)
        del graph.nodes[node.name]
    if result:
        graph.prune()
    return result


def _takes_spread(
    graph: Graph, name: str, port: int, users: Users, apart: Collection[str], outputs: bool
) -> bool:
    node = graph[name]
    if node.kind is not NodeKind.OP or not isinstance(node.op, HwBinary) or node.op.fn not in _ARITHMETIC:
        return False
    return (port == 1 or node.op.fn in _SYMMETRIC) and _fusable(graph, node, users, apart, outputs)


def _fusable(graph: Graph, node: Node, users: Users, apart: Collection[str], outputs: bool = False) -> bool:
    """outputs: whether an op that the host reads may be the last of a fused one."""
    op = node.op
    if node.name in apart or node.attrs.get("inserted"):
        return False
    if isinstance(op, HwUnary):
        if op.fn not in _UNARY or op.approximate:
            return False
    elif not isinstance(op, HwBinary) or op.fn not in _BINARY:
        return False
    read = any(graph[u].kind is NodeKind.OUTPUT and WRITES not in graph[u].attrs for u, _ in users[node.name])
    if read and not outputs:
        return False  # an untilized result comes from an op of its own
    return not any(tm.name == "transpose" for edge in node.inputs for tm in edge.tms)


def _grow(
    graph: Graph,
    last: Node,
    users: Users,
    apart: Collection[str],
    ends: Collection[str],
    spread: Mapping[str, object],
) -> set[str]:
    """Names of the ops that become one with `last`. What fills its tiles comes from outside."""
    group = {last.name}
    grown = True
    while grown and len(group) < MAX_STEPS:
        grown = False
        for name in sorted({e.source for member in group for e in graph[member].inputs} - group):
            node = graph[name]
            if (
                node.kind is NodeKind.OP
                and name not in ends
                and all(user in group for user, _ in users[name])
                and _fusable(graph, node, users, apart)
                and _alike(node, last)
                and not any(
                    e.tms or (port and member in spread)
                    for member in group
                    for port, e in enumerate(graph[member].inputs)
                    if e.source == name
                )
                and len(_operands(graph, group | {name})) <= MAX_INPUTS
            ):
                group.add(name)
                grown = True
                break
    return group


def _alike(node: Node, last: Node) -> bool:
    """Whether the op can be a step before `last`: one shape, one set of formats, and no relu, which the packer does."""
    return (
        getattr(node.op, "relu", None) is None
        and tile_shape(node.shape) == tile_shape(last.shape)
        and node.df == last.df
        and all(node.attrs.get(fact) == last.attrs.get(fact) for fact in _FACTS)
    )


def _operands(graph: Graph, group: Collection[str]) -> list[Edge]:
    return [e for name in group for e in graph[name].inputs if e.source not in group]


def _ordered(graph: Graph, last: str, group: Collection[str]) -> list[str]:
    """The group, producers first, each right before its reader where it can be."""
    order: list[str] = []

    def visit(name: str) -> None:
        if name in order:
            return
        # what takes longer to make comes first: then the value made last is at hand
        for edge in sorted(graph[name].inputs, key=lambda e: -_depth(graph, e.source, group)):
            if edge.source in group:
                visit(edge.source)
        order.append(name)

    visit(last)
    return order


def _depth(graph: Graph, name: str, group: Collection[str]) -> int:
    return 1 + max((_depth(graph, e.source, group) for e in graph[name].inputs), default=0) if name in group else 0


def _replace(
    graph: Graph, last: Node, group: Collection[str], spread: Mapping[str, tuple[str, tuple[str, ...]]]
) -> None:
    order = _ordered(graph, last.name, group)
    number = {name: k for k, name in enumerate(order)}
    inputs: list[Edge] = []
    steps: list[tuple[str, tuple[int, ...], float, int]] = []
    for name in order:
        op = graph[name].op
        assert isinstance(op, (HwUnary, HwBinary))
        refs: list[int] = []
        for edge in graph[name].inputs:
            if edge.source in number:
                refs.append(~number[edge.source])
            else:
                refs.append(len(inputs))
                inputs.append(edge)
        slope, exp = (op.slope, op.exp) if isinstance(op, HwUnary) else (0.0, 0)
        steps.append((op.fn, tuple(refs), slope, exp))
    relu = getattr(last.op, "relu", None)
    last.op = HwFused(tuple(steps), tuple((number[n], spread[n][0]) for n in order if n in spread), relu=relu)
    last.inputs = tuple(inputs)
    last.attrs["fused"] = tuple(n for name in order for n in (*spread.get(name, ("", ()))[1], name))
    if len(last.attrs["fused"]) > len(order):
        last.attrs["steps"] = tuple(order)
    for name in order[:-1]:
        del graph.nodes[name]


# -- ops that the user names ---------------------------------------------------------------------------------------
def inner_names(graph: Graph) -> tuple[str, ...]:
    """Ops that stand inside fused ops, without those whose name the fused op goes by; in graph order."""
    return tuple(name for node in graph.ops for name in node.attrs.get("fused", ()) if name != node.name)


def addressed(inner: Sequence[str], overrides: Sequence[Override]) -> frozenset[str]:
    """Ops inside fused ops (`inner_names`) that an override names: they have to stay ops of their own. The name that a
    fused op goes by means all of it."""
    cycle_ops: set[str] = set()
    for record in overrides:
        cycle_ops.update(record.matches(inner))
        value = record.value if isinstance(record.value, Mapping) else {}
        readers = value.get("dest") or ()
        cycle_ops.update({readers} if isinstance(readers, str) else readers)
    return frozenset(cycle_ops & set(inner)) if cycle_ops else frozenset()


# -- how the machine runs it ---------------------------------------------------------------------------------------
@dataclasses.dataclass(frozen=True)
class SubStep:
    """One sub-op: operands and result are `inputN`, `intermedN`, `dest` or `output`; `pop`: buffers it empties; spread:
    "r" or "c" where operand 1 fills its tiles (`HwFused.spread`)."""

    fn: str
    inputs: tuple[str, ...]
    output: str
    pop: tuple[str, ...]
    slope: float = 0.0
    exp: int = 0
    spread: str = ""

    @property
    def from_dest(self) -> bool:
        return "dest" in self.inputs


def plan(op: HwFused, arch: str) -> tuple[SubStep, ...]:
    """Where every value of a fused op lives: in dest if the very next sub-op is its only reader and may read dest
    (netlist-format.md#fused-ops), else in an intermediate buffer until its last reader."""
    readers: dict[int, list[int]] = {k: [] for k in range(len(op.steps))}
    for k, (_, refs, _, _) in enumerate(op.steps):
        for ref in refs:
            if ref < 0:
                readers[~ref].append(k)
    place: dict[int, str] = {}
    free: list[int] = []
    most = 0
    result: list[SubStep] = []
    spread = dict(op.spread)
    for k, (fn, refs, slope, exp) in enumerate(op.steps):
        names = [f"input{ref}" if ref >= 0 else place[~ref] for ref in refs]
        if arch == "grayskull" and "dest" in names[1:]:
            names.reverse()
        used = sorted({~ref for ref in refs if ref < 0})
        done = [place[j] for j in used if place[j] != "dest" and max(readers[j]) == k]
        if k == len(op.steps) - 1:
            place[k] = "output"
        elif _by_dest(op, k, readers[k], arch):
            place[k] = "dest"
        else:
            if not free:
                free.append(most)
                most += 1
            place[k] = f"intermed{free.pop(0)}"
        free = sorted([*free, *(int(name.removeprefix("intermed")) for name in done)])
        result.append(SubStep(fn, tuple(names), place[k], tuple(done), slope, exp, spread.get(k, "")))
    return tuple(result)


def _by_dest(op: HwFused, k: int, readers: Sequence[int], arch: str) -> bool:
    if list(readers) != [k + 1] or op.steps[k][0] in _KEPT_OUT_OF_DEST:
        return False
    fn, refs, _, _ = op.steps[k + 1]
    if fn in _KEPT_OUT_OF_DEST:
        return False
    return arch != "grayskull" or refs[0] == ~k or fn in _SYMMETRIC


def unsaved(op: HwFused, arch: str) -> tuple[int, ...]:
    """Steps, by number, whose value goes on inside without making its reader cheaper: only arithmetic on a value in
    dest takes less than it would on its own (placement.md#kernel-cycles)."""
    steps = plan(op, arch)
    unsaved: list[int] = []
    for k, (_, refs, _, _) in enumerate(op.steps):
        cheaper = steps[k].from_dest and steps[k].fn in _ARITHMETIC
        unsaved.extend(~ref for ref in refs if ref < 0 and not (cheaper and steps[~ref].output == "dest"))
    return tuple(sorted(set(unsaved)))


def intermediates(steps: Sequence[SubStep]) -> int:
    """Number of intermediate buffers."""
    return len({s.output for s in steps if s.output.startswith("intermed")})
