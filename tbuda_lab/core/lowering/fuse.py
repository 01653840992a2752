"""Element-wise ops that feed each other become one fused op: one hop over the NoC and a set of cores less for each.

A group grows from its last op upwards: a producer joins when everything that reads it is in the group already, so that
nothing but the result leaves (lowering.md#fusing). Inside, a value goes on in the dest register or through a buffer of
one ublock; `fused_steps` says which. A one-hot matmul that only fills tiles is not an op at all before arithmetic that
can be fused: there the unpacker does it, as it reads (`tile_broadcast`; see `_spread`).

With `CompileOptions.fuse_reduces`, sums and means over rows or columns join, too, and what works on their results, up
to the op that reads these by a broadcast. A core then holds the whole dimension that is summed over.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from tbuda_lab.core.device import StreamLimits
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.graph import TM, Edge, Graph, Node, NodeKind, TileShape, apply_shapes
from tbuda_lab.core.graph.phases import READ_FROM_QUEUE, WRITES
from tbuda_lab.core.lowering.context import SPREADS, SUMS
from tbuda_lab.core.lowering.eltwise import HARDWARE_NAME
from tbuda_lab.core.lowering.fused_steps import ARITHMETIC, SYMMETRIC, schedules
from tbuda_lab.core.lowering.hw_ops import HwBinary, HwFused, HwMatmul, HwUnary, tile_shape
from tbuda_lab.core.name_patterns import name_pattern
from tbuda_lab.core.ops.unary import SFPU
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override, names_meant

MAX_INPUTS = 8
"""Operands of a fused op. The format allows more; each takes an input buffer and a stream of every core."""

MAX_STEPS = 12
_BUFFERS = 2
"""Blocks in an output buffer: each has phases of its own."""
MAX_SUMS = 2
"""Sums in a fused op: of each one operand goes to a whole row or column of cores, and no more than two inputs of a
fused op can (routing.md, N16)."""
_UNARY = frozenset((*(HARDWARE_NAME.get(name, name) for name in SFPU if name != "buffer"), "square"))
_BINARY = frozenset(("add", "subtract", "multiply", "maximum"))
_FACTS = ("intermed_df", "acc_df", "fidelity")

Users = Mapping[str, list[tuple[str, int]]]


def fuse(graph: Graph, options: CompileOptions, keep: Collection[str] = (), ends: Collection[str] = ()) -> None:
    """Fuse in place. A fused op has the name of its last op, or with `options.number_fused_ops` a number, in the order
    of the graph; `attrs["fused"]` lists the names of all, `attrs["steps"]` those of its steps where these are not all,
    `attrs["schedules"]` the same by schedules. Ops named in `keep` or `options.op_names_dont_fuse` stay as they are;
    the value of an op in `ends` leaves the fused op that it is in, so it is the last of it. With
    `options.fuse_outputs`, and where names were given by hand, the ops of an output fuse too: a nop untilizes it."""
    apart = {*keep, *options.op_names_dont_fuse}
    if options.op_names_manual_fuse:
        patterns = [name_pattern(text) for text in options.op_names_manual_fuse]
        apart |= {node.name for node in graph.ops if not any(w.fullmatch(node.name) for w in patterns)}
    outputs = options.fuse_outputs or bool(options.op_names_manual_fuse)
    spread = _spread(graph, graph.users(), apart, outputs)
    _join_fills(graph, graph.users(), apart)
    users = graph.users()
    taken: set[str] = set()
    for node in reversed(graph.topological()):
        if node.name in taken or not _fusable(graph, node, users, apart, outputs):
            continue
        found: _Lengths | None = None
        if options.fuse_reduces:
            group, found = _grow(graph, node, users, apart, ends, spread, _Lengths(tile_shape(node.shape)))
        if found is None:
            group, _ = _grow(graph, node, users, apart, ends, spread, None)
        if _repeats_too_often(graph, node, group, users):
            group = {node.name}
        if len(group) > 1 or node.name in spread:
            taken.update(group)
            _replace(graph, node, group, spread, found)
            _untilize(graph, node, users)
            for source in node.sources:
                users[source] = [u for u in users[source] if u[0] not in group]
            for port, source in enumerate(node.sources):
                users[source].append((node.name, port))
    graph.resort()
    if options.number_fused_ops:
        _number(graph)


def _number(graph: Graph) -> None:
    """Name the fused ops `_fused_op_<n>`, and their nops for the host's queues after them."""
    new: dict[str, str] = {}
    numbers = itertools.count()
    taken = {name for node in graph for name in (node.name, *node.attrs.get("fused", ()))}
    free = (name for name in map("_fused_op_{}".format, numbers) if name not in taken)
    for node in graph:
        if "fused" in node.attrs:
            old, new[node.name] = node.name, next(free)
            new.update(
                {
                    n.name: n.name.replace(old, new[old], 1)
                    for n in graph
                    if n.sources == (old,) and n.attrs.get("inserted") and n.name.startswith(f"{old}_output_nop")
                }
            )
    for node in graph:
        node.name = new.get(node.name, node.name)
        node.inputs = tuple(dataclasses.replace(e, source=new.get(e.source, e.source)) for e in node.inputs)
    graph.nodes = {node.name: node for node in graph}


def _untilize(graph: Graph, node: Node, users: Users) -> None:
    """A nop between a fused op and the host's queue: no fused op untilizes."""
    for name, _ in users[node.name]:
        if graph[name].kind is NodeKind.OUTPUT and WRITES not in graph[name].attrs:
            nop = Node(
                graph.unique(f"{node.name}_output_nop_0"),
                NodeKind.OP,
                node.shape,
                HwUnary("nop"),
                (Edge(node.name),),
                origin=node.origin,
                df=node.df,
            )
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
        filled = node.inputs[1 if dim == "r" else 0]
        if any(tm.name == "transpose" for tm in filled.tms):  # legal on a matmul's operand 1, not on a reader's
            continue
        if not all(
            name not in result and _takes_spread(graph, name, port, users, apart, outputs) for name, port in readers
        ):
            continue
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


def _filled_before(graph: Graph, node: Node, users: Users, apart: Collection[str]) -> Node | None:
    """The op that fills the tiles of what `node` fills along the other dimension, if both may be one op."""
    if SPREADS not in node.attrs or node.op != HwMatmul() or node.name in apart:
        return None
    edge = node.inputs[1 if node.attrs[SPREADS] == "r" else 0]
    first = graph[edge.source]
    if first.op != HwMatmul() or first.attrs.get(SPREADS) in (None, node.attrs[SPREADS]) or first.name in apart:
        return None
    if any(tm.name == "transpose" for edge in first.inputs for tm in edge.tms):
        return None  # legal on a matmul's operand 1, not on a fused op's
    alone = len(users[first.name]) == 1 and not edge.tms and _alike(first, node)
    return first if alone and not any(graph[u].kind is NodeKind.OUTPUT for u, _ in users[node.name]) else None


def _join_fills(graph: Graph, users: Users, apart: Collection[str]) -> None:
    """Two matmuls that fill the tiles of one value, along rows and along columns, as one op of two schedules."""
    for node in graph.topological():
        first = _filled_before(graph, node, users, apart) if node.kind is NodeKind.OP else None
        if first is not None:
            dim = str(node.attrs[SPREADS])
            _replace(graph, node, {first.name, node.name}, {}, _Lengths(tile_shape(node.shape), dim, 2))
            del node.attrs[SPREADS]


def _takes_spread(graph: Graph, name: str, port: int, users: Users, apart: Collection[str], outputs: bool) -> bool:
    node = graph[name]
    if node.kind is not NodeKind.OP or not isinstance(node.op, HwBinary) or node.op.fn not in ARITHMETIC:
        return False
    edge = node.inputs[port]
    repeated = {tm.args[0] for tm in edge.tms if tm.name == "broadcast"}
    if {"r", "c"} <= repeated and _filled_before(graph, graph[edge.source], users, apart) is not None:
        return False  # one tile goes everywhere: `_join_fills` makes one op of both fills
    return (port == 1 or node.op.fn in SYMMETRIC) and _fusable(graph, node, users, apart, outputs)


def _fusable(graph: Graph, node: Node, users: Users, apart: Collection[str], outputs: bool = False) -> bool:
    """outputs: whether an op that the host reads may be the last of a fused one."""
    op = node.op
    if node.name in apart or node.attrs.get("inserted") or node.df is DataFormat.Int32:
        return False  # sums and maxima of Int32 leave nothing in the dest register (netlist-format.md#fused-ops)
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
    lengths: _Lengths | None,
) -> tuple[set[str], _Lengths | None]:
    """Names of the ops that become one with `last`. What fills its tiles comes from outside. lengths: those of the
    group, where sums may join it; given back with what was found out of them, or None where there is no sum in it."""
    group = {last.name}
    grows = True
    while grows and len(group) < MAX_STEPS:
        grows = False
        for name in sorted({e.source for member in group for e in graph[member].inputs} - group):
            node = graph[name]
            if (
                node.kind is not NodeKind.OP
                or name in ends
                or not all(user in group for user, _ in users[name])
                or not (_fusable(graph, node, users, apart) or (lengths and _sums(node, users, apart, graph)))
                or not _alike(node, last)
                or any(port and member in spread for member, port in users[name])
            ):
                continue
            joint = _joins(graph, node, users[name], lengths)
            if joint is None or _operand_count(graph, group | {name}, shared=lengths is None) > MAX_INPUTS:
                continue
            lengths = joint if lengths is not None else None
            group.add(name)
            grows = True
            break
    if lengths is None or not lengths.sums:
        return group, None
    return group, lengths


@dataclasses.dataclass(frozen=True)
class _Lengths:
    """Tile shapes in a group with sums. dim: along which they sum, "" while nothing says so; full: of the ops of full
    length; sums: how many there are. An op of the group has that shape, or one tile along `dim`."""

    full: TileShape
    dim: str = ""
    sums: int = 0

    @property
    def short(self) -> TileShape:
        z, rt, ct = self.full
        return (z, 1, ct) if self.dim == "r" else (z, rt, 1)

    @property
    def length(self) -> int:
        return self.full[1 if self.dim == "r" else 2]


def _joins(graph: Graph, node: Node, readers: Sequence[tuple[str, int]], lengths: _Lengths | None) -> _Lengths | None:
    """The lengths of a group once `node` is in it, which only ops of the group read; None if it cannot be."""
    if lengths is None:
        edges = [graph[name].inputs[port] for name, port in readers]
        shapes = {tile_shape(graph[name].shape) for name, _ in readers}
        return (
            _Lengths(tile_shape(node.shape))
            if not any(e.tms for e in edges) and shapes == {tile_shape(node.shape)}
            else None
        )
    result: _Lengths | None = lengths
    for name, port in readers:
        result = _reads(node, graph[name], port, result) if result is not None else None
    if result is None or SUMS not in node.attrs:
        return result
    dim = str(node.attrs[SUMS])
    x = node.inputs[_summed_port(dim)]
    full = apply_shapes(x.tms, tile_shape(graph[x.source].shape))
    if result.dim not in ("", dim) or result.sums == MAX_SUMS or full[1 if dim == "r" else 2] == 1:
        return None
    if not result.dim:
        result = _Lengths(full, dim) if result.full == _Lengths(full, dim).short else None
    elif result.full != full or result.short != tile_shape(node.shape):
        result = None
    return dataclasses.replace(result, sums=result.sums + 1) if result is not None else None


def _reads(node: Node, reader: Node, port: int, lengths: _Lengths) -> _Lengths | None:
    """The lengths, if `reader`, an op of the group, may take operand `port` from `node` inside of it."""
    shape, tms = tile_shape(node.shape), reader.inputs[port].tms
    if SUMS in reader.attrs:
        # operand 1 of a sum over rows has to come from outside, where it goes through its operands in several passes;
        # an exponential may go on a larger grid than a fused op that holds all that is summed over
        hidden = reader.attrs[SUMS] == "r" or port != 0
        exponential = isinstance(node.op, HwUnary) and node.op.fn == "exp"
        return None if tms or hidden or exponential or SUMS in node.attrs or shape != lengths.full else lengths
    if not tms:
        return lengths if shape == tile_shape(reader.shape) else None
    if len(tms) > 1 or tms[0].name != "broadcast" or tms[0].args[0] not in ("r", "c"):
        return None
    dim = str(tms[0].args[0])
    if lengths.dim not in ("", dim) or tile_shape(reader.shape) != lengths.full:
        return None
    result = dataclasses.replace(lengths, dim=dim)
    return result if shape == result.short and tms == (TM("broadcast", (dim, result.length)),) else None


def _summed_port(dim: str) -> int:
    """Which operand of a matmul is summed along `dim`; the other is the constant."""
    return 0 if dim == "c" else 1


def _sums(node: Node, users: Users, apart: Collection[str], graph: Graph) -> bool:
    """Whether a node is a sum that can be a step."""
    if SUMS not in node.attrs or node.op != HwMatmul() or node.name in apart or node.attrs.get("inserted"):
        return False
    if any(tm.name == "transpose" for edge in node.inputs for tm in edge.tms):
        return False
    return not any(graph[u].kind is NodeKind.OUTPUT for u, _ in users[node.name])


def _alike(node: Node, last: Node) -> bool:
    """Whether the op can be a step before `last`: its value has the format of the result or of the intermediates, all
    else is the same, and there is no relu, which the packer does."""
    return (
        getattr(node.op, "relu", None) is None
        and node.df in (last.df, last.attrs.get("intermed_df"))
        and all(node.attrs.get(fact) == last.attrs.get(fact) for fact in _FACTS)
    )


def _operand_count(graph: Graph, group: Collection[str], *, shared: bool) -> int:
    """Operands of a fused op of that group. shared: whether several steps that read the same share an operand."""
    edges = [[e for e in graph[name].inputs if e.source not in group] for name in group]
    if not shared:
        return sum(map(len, edges))
    most: Counter[Edge] = Counter()
    for of_step in edges:
        most |= Counter(of_step)
    return most.total()


def _repeats_too_often(graph: Graph, last: Node, group: Collection[str], users: Users) -> bool:
    """Whether the group writes a ram and an op's tiles are repeated for it more often than a stream has phases. What
    writes a ram has the ram's blocks: it does not stream, and all repeats are phases of one pass (placement.md#edges);
    apart from it the other steps can stream."""
    if not any(WRITES in graph[user].attrs for user, _ in users[last.name]):
        return False
    repeats = any(
        graph[edge.source].kind is NodeKind.OP
        and READ_FROM_QUEUE not in graph[edge.source].attrs
        and any(tm.name == "broadcast" for tm in edge.tms)
        for name in group
        for edge in graph[name].inputs
        if edge.source not in group
    )
    return repeats and _BUFFERS * math.prod(tile_shape(last.shape)) > StreamLimits().phases


def _order_group(graph: Graph, last: str, group: Collection[str]) -> list[str]:
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
    graph: Graph,
    last: Node,
    group: Collection[str],
    spread: Mapping[str, tuple[str, tuple[str, ...]]],
    lengths: _Lengths | None,
) -> None:
    order = _order_group(graph, last.name, group)
    number = {name: k for k, name in enumerate(order)}
    inputs: list[Edge] = []
    steps: list[tuple[str, tuple[int, ...], float, int]] = []
    for name in order:
        op = graph[name].op
        assert isinstance(op, (HwUnary, HwBinary, HwMatmul))
        refs: list[int] = []
        for edge in graph[name].inputs:
            if edge.source in number:
                refs.append(~number[edge.source])
                continue
            again = (k for k, e in enumerate(inputs) if e == edge and k not in refs)
            refs.append(next(again, len(inputs)) if lengths is None else len(inputs))
            if refs[-1] == len(inputs):
                inputs.append(edge)
        slope, exp = (op.slope, op.exp) if isinstance(op, HwUnary) else (0.0, 0)
        steps.append((op.netlist_type, tuple(refs), slope, exp))
    relu = getattr(last.op, "relu", None)
    fills = tuple((number[n], spread[n][0]) for n in order if n in spread)
    if lengths is None:
        last.op = HwFused(tuple(steps), fills, relu=relu)
    else:
        short = [n for n in order if tile_shape(graph[n].shape) == lengths.short]
        sums = tuple(number[n] for n in order if isinstance(graph[n].op, HwMatmul))
        last.op = HwFused(
            tuple(steps),
            fills,
            sums,
            lengths.dim,
            lengths.length,
            tuple(number[n] for n in short),
            relu=relu,
        )
    last.inputs = tuple(inputs)
    last.attrs["fused"] = tuple(n for name in order for n in (*spread.get(name, ("", ()))[1], name))
    if len(last.attrs["fused"]) > len(order):
        last.attrs["steps"] = tuple(order)
    numbers = schedules(last.op)
    last.attrs["schedules"] = tuple(
        tuple(n for n, at in zip(order, numbers, strict=True) if at == s) for s in range(numbers[-1] + 1)
    )
    for name in order[:-1]:
        del graph.nodes[name]


# -- ops that the user names ---------------------------------------------------------------------------------------
def inner_names(graph: Graph) -> tuple[str, ...]:
    """Ops that stand inside fused ops, without those whose name the fused op goes by; in graph order."""
    return tuple(name for node in graph.ops for name in node.attrs.get("fused", ()) if name != node.name)


def inner_targets(inner: Sequence[str], overrides: Sequence[Override]) -> frozenset[str]:
    """Ops inside fused ops (`inner_names`) that an override names: they have to stay ops of their own. The name that a
    fused op goes by means all of it."""
    named: set[str] = set()
    for record in overrides:
        named.update(names_meant(record.target, inner))
        value = record.value if isinstance(record.value, Mapping) else {}
        readers = value.get("dest") or ()
        named.update(names_meant((readers,) if isinstance(readers, str) else tuple(readers), inner))
    return frozenset(named & set(inner))
