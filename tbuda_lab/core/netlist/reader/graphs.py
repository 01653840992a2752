"""The sections `graphs` and `fused_ops`: graphs, ops, op attributes."""

from __future__ import annotations

from typing import Any

import yaml

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.op_spec import (
    ATTRIBUTES,
    OP_FIELDS,
    SUB_OP_ATTRIBUTES,
    SUB_OP_FIELDS,
    Attribute,
    attributes_of,
)
from tbuda_lab.core.netlist.reader import scalars
from tbuda_lab.core.netlist.reader.core import NetlistReader, Node, Where, is_null, kind_of
from tbuda_lab.core.netlist.reader.queues import read_blocking, read_pad, read_tile_dim, read_tms
from tbuda_lab.core.netlist.schema import FusedOp, NetGraph, NetOp, OpInput, SubOp, Tm

_OP_FIELDS = frozenset(OP_FIELDS)


def read_graphs(r: NetlistReader, node: Node) -> dict[str, NetGraph]:
    """The section `graphs`, by name. What is wrong is noted in the reader (rules G...)."""
    where = ("graphs",)
    names: dict[str, str] = {}  # op names are global over all graphs
    return {
        name: _read_graph(r, name, item, (*where, name), names)
        for name, item in r.named_entries(node, where, "graph", "G2")
    }


def _read_graph(r: NetlistReader, name: str, node: Node, where: Where, names: dict[str, str]) -> NetGraph:
    graph = NetGraph(name, -1, -1)
    if is_null(node):
        r.problem(node, where, "Y3", f"graph {name!r} is empty", "write target_device, input_count and ops")
    fields: dict[str, Node] = {}
    for key, key_node, item in r.items(node, where, "a graph"):
        place = (*where, key)
        if key in ("target_device", "input_count"):
            if key in fields:
                r.problem(key_node, place, "Y2", f"field {key!r} of a graph is written twice", "keep one")
                continue
            r.mark(place, key_node)
            fields[key] = item
        elif key in names:
            r.problem(
                key_node,
                place,
                "G2",
                f"op {key!r} is defined twice, first in graph {names[key]!r}",
                "op names are global: give each its own",
            )
        else:
            names[key] = name
            r.mark(place, key_node)
            graph.ops[key] = _read_op(r, key, item, place)
    graph.target_device = r.device(fields, where)
    count = r.whole(fields, "input_count", where)
    graph.input_count = -1 if count is None else count
    return graph


class _InputKeys:
    """Keys of an op that name an input: `input_N_tms` (several add up) and, of a whole op, `input_N_pad` and
    `input_N_unpad`. rule: that of a key that names no input."""

    def __init__(self, r: NetlistReader, where: Where, rule: str, words: tuple[str, ...] = ("tms",)) -> None:
        self._r, self._where, self._rule, self._words = r, where, rule, words
        self.tms: dict[int, list[Tm]] = {}
        self.pads: dict[int, dict[str, Any]] = {}
        self.unpads: dict[int, dict[str, Any]] = {}
        self.read: list[tuple[int, Node, Where]] = []  # input, key and its place, in their order

    def take(self, key: str, key_node: Node, value: Node) -> bool:
        """Whether it is such a key; what it says is read."""
        if "input" not in key or not any(word in key for word in self._words):
            return False
        r, place = self._r, (*self._where, key)
        index = key[key.find("_") + 1 : key.rfind("_")]
        if not index.isascii() or not index.isdigit() or len(index) > 4:
            r.problem(key_node, place, self._rule, f"{scalars.clip(key)} names no input", "write input_<number>_tms")
            return True
        n = int(index)
        self.read.append((n, key_node, place))
        if "tms" in key:
            own = read_tms(r, value, place)
            self.tms[n] = self.tms[n] + own if n in self.tms else own
        else:
            pads = self.unpads if "unpad" in key else self.pads
            if n in pads:
                r.problem(key_node, place, "Y2", f"field {key!r} of an op is written twice", "keep one")
            pads[n] = read_pad(r, value, place, value=pads is self.pads)
        r.mark(place, key_node)
        return True


def _read_op(r: NetlistReader, name: str, node: Node, where: Where) -> NetOp:
    keys = _InputKeys(r, where, "O9", ("tms", "pad"))
    if is_null(node) or isinstance(node, (yaml.ScalarNode, yaml.SequenceNode)):
        r.problem(
            node,
            where,
            "Y3",
            f"op {name!r} must be a map of fields, not {kind_of(node)}",
            "write `{type: nop, ...}`; a graph's own fields are target_device and input_count",
        )
        node = yaml.MappingNode("", [], node.start_mark, node.end_mark)
    f = r.fields(node, where, "an op", _OP_FIELDS, "O1", keys.take)

    inputs = _op_inputs(r, f, node, where, keys)

    def df(key: str) -> DataFormat | None:
        return r.df(f[key], (*where, key)) if key in f else None

    def ints(key: str) -> list[int] | None:
        return r.ints(f[key], (*where, key), key) if key in f else None

    op_type = r.text(f, "type", where) or ""
    return NetOp(
        name=name,
        type=op_type,
        grid_size=r.pair(f, "grid_size", where, "O2", (0, 0)),
        inputs=inputs,
        blocking=read_blocking(r, f, where, "O2"),
        out_df=df("out_df") or DataFormat.Invalid,
        grid_loc=_grid_loc(r, f, where, op_type),
        grid_transpose=r.truth(f, "grid_transpose", where),
        intermed_df=df("intermed_df"),
        acc_df=df("acc_df"),
        math_fidelity=r.text(f, "math_fidelity", where),
        tile_dim=read_tile_dim(r, f, where, "Q7"),
        buf_size_mb=r.whole(f, "buf_size_mb", where),
        overlay_size=r.whole(f, "overlay_size", where),
        input_buf_min_size_tiles=ints("input_buf_min_size_tiles"),
        input_dram_io_buf_size_tiles=ints("input_dram_io_buf_size_tiles"),
        untilize_output=r.truth(f, "untilize_output", where),
        gradient_op=r.truth(f, "gradient_op", where),
        forked_dram_inputs=_forked_inputs(r, f, where),
        attributes=read_attributes(r, f["attributes"], (*where, "attributes"), op_type, ATTRIBUTES)
        if "attributes" in f
        else {},
    )


def _op_inputs(r: NetlistReader, f: dict[str, Node], node: Node, where: Where, keys: _InputKeys) -> list[OpInput]:
    sources = r.texts(f["inputs"], (*where, "inputs"), "inputs") if "inputs" in f else []
    place = (*where, "in_df")
    dfs = [r.df(item, place) for item in r.sequence(f["in_df"], place, "in_df")] if "in_df" in f else []
    if len(dfs) != len(sources):
        r.problem(
            f.get("in_df", node),
            place,
            "O4",
            f"{len(dfs)} in_df for {len(sources)} inputs",
            f"write {len(sources)} data formats, one for each input",
        )
    for n, key_node, place in keys.read:
        if n >= len(sources):
            r.problem(
                key_node, place, "O9", f"the op has no input {n}", f"it has {len(sources)} inputs, counted from 0"
            )
    return [
        OpInput(
            source,
            dfs[i] if i < len(dfs) else DataFormat.Invalid,
            keys.tms.get(i),
            keys.pads.get(i),
            keys.unpads.get(i),
        )
        for i, source in enumerate(sources)
    ]


def _grid_loc(r: NetlistReader, f: dict[str, Node], where: Where, op_type: str) -> tuple[int, int] | None:
    if "grid_loc" not in f:
        return None
    values = r.ints(f["grid_loc"], (*where, "grid_loc"), "grid_loc")
    if len(values) == 2:
        return values[0], values[1]
    if op_type != "ethernet_datacopy" or values:
        r.problem(
            f["grid_loc"], (*where, "grid_loc"), "O4", f"grid_loc has {len(values)} values", "write [row, column]"
        )
    return None


def _forked_inputs(r: NetlistReader, f: dict[str, Node], where: Where) -> list[dict[str, str]] | None:
    if "forked_dram_inputs" not in f:
        return None
    place = (*where, "forked_dram_inputs")
    out = []
    for item in r.sequence(f["forked_dram_inputs"], place, "forked_dram_inputs"):
        pairs = {}
        for queue, _, op in r.items(item, place, "a forked input"):
            pairs[queue] = r.scalar(op, place, "Y4", str, "")
        out.append(pairs)
    return out


def read_attributes(
    r: NetlistReader, node: Node, where: Where, op_type: str, table: dict[str, Attribute]
) -> dict[str, Any]:
    """Attributes in written order, each of the kind that the table says."""
    if is_null(node) or (isinstance(node, yaml.MappingNode) and not node.value):
        r.problem(node, where, "O1", "attributes are empty", "leave the field out")
        return {}
    out: dict[str, Any] = {}
    for name, key, value in r.items(node, where, "attributes"):
        place = (*where, name)
        if name in out:
            r.problem(key, place, "Y2", f"attribute {name!r} is written twice", "keep one")
            continue
        r.mark(place, key)
        spec = table.get(name)
        if spec is None or (spec.types is not None and op_type not in spec.types):
            _refuse(r, key, place, name, op_type, spec, table)
            continue
        out[name] = _attribute(r, value, place, spec.kind)
    return out


def _refuse(
    r: NetlistReader,
    key: Node,
    place: Where,
    name: str,
    op_type: str,
    spec: Attribute | None,
    table: dict[str, Attribute],
) -> None:
    if table is ATTRIBUTES and op_type == "splice" and name.startswith("input") and name[5:].isdigit():
        r.problem(key, place, "O8", f"splice attribute {name!r}", "a splice has at most 8 inputs: input0 to input7")
        return
    legal = attributes_of(op_type) if table is ATTRIBUTES else list(table)
    what = f"attribute {name!r} " + ("is not known" if spec is None else f"does not go with {op_type!r} ops")
    fix = (
        f"legal here: {', '.join(legal)}"
        if spec is None or spec.types is None
        else f"only {', '.join(sorted(spec.types))} ops take it"
    )
    r.problem(key, place, "O1" if table is ATTRIBUTES else "F12", what, fix)


def _attribute(r: NetlistReader, node: Node, where: Where, kind: str) -> Any:
    match kind:
        case "int" | "uint":
            return r.scalar(node, where, "Y4", scalars.parse_int, -1)
        case "float":
            return r.scalar(node, where, "Y4", scalars.parse_float, 0)
        case "bool":
            return r.scalar(node, where, "Y4", scalars.parse_bool, False)
        case "text":
            return r.scalar(node, where, "Y4", str, "")
        case "value":
            return r.scalar(node, where, "Y4", scalars.parse_value, 0)
        case "counts":
            return _counts(r, node, where)
    values = r.ints(node, where, where[-1])
    if kind == "triple" and len(values) != 3:
        r.problem(node, where, "O8", f"{where[-1]} has {len(values)} values", "write [index, length, stride]")
        return [0, 1, 1]
    return values


def _counts(r: NetlistReader, node: Node, where: Where) -> dict[str, int]:
    """`{input_0: 4, ...}` of kernel_broadcast."""
    out: dict[str, int] = {}
    for name, key, value in r.items(node, where, where[-1]):
        if name in out:
            r.problem(key, where, "O8", f"{where[-1]} names {name!r} twice", "keep one")
            continue
        out[name] = r.scalar(value, where, "Y4", scalars.parse_int, -1)
    return out


_SUB_OP_FIELDS = frozenset(SUB_OP_FIELDS)


def read_fused_ops(r: NetlistReader, node: Node) -> dict[str, FusedOp]:
    """The section `fused_ops`, by name. What is wrong is noted in the reader (rules F...)."""
    where = ("fused_ops",)
    return {
        name: _read_fused(r, name, item, (*where, name))
        for name, item in r.named_entries(node, where, "fused op", "F1")
    }


def _read_fused(r: NetlistReader, name: str, node: Node, where: Where) -> FusedOp:
    fused = FusedOp(name, -1, -1, [])
    fields: dict[str, Node] = {}
    for key, key_node, value in r.items(node, where, "a fused op"):
        if key in fields or key in fused.other:
            r.problem(key_node, (*where, key), "Y2", f"field {key!r} of a fused op is written twice", "keep one")
        elif key in ("inputs", "intermediates", "schedules"):
            r.mark((*where, key), key_node)
            fields[key] = value
        else:  # ignored by the backend
            fused.other[key] = r.plain(value)
    for key in ("inputs", "intermediates"):
        count = r.whole(fields, key, where)
        setattr(fused, key, -1 if count is None else count)
    if "schedules" in fields:
        place = (*where, "schedules")
        fused.schedules = [
            _read_schedule(r, item, (*place, str(i)))
            for i, item in enumerate(r.sequence(fields["schedules"], place, "schedules"))
        ]
    return fused


def _read_schedule(r: NetlistReader, node: Node, where: Where) -> list[SubOp]:
    return [
        _read_sub_op(r, name, key, value, (*where, name))
        for item in r.sequence(node, where, "a schedule")
        for name, key, value in r.items(item, where, "a sub-op")
    ]


def _read_sub_op(r: NetlistReader, name: str, key_node: Node, node: Node, where: Where) -> SubOp:
    keys = _InputKeys(r, where, "F6")
    r.mark(where, key_node)
    order: list[str] = []

    if is_null(node):
        r.problem(node, where, "F2", f"sub-op {name!r} has no fields", "write `{type: add, inputs: [...], ...}`")
    f = r.fields(node, where, "a sub-op", _SUB_OP_FIELDS, "F12", keys.take)
    order.extend(f)
    op_type = r.text(f, "type", where) or ""
    if "type" in f and "attributes" in f and order.index("type") > order.index("attributes"):
        r.problem(
            f["attributes"],
            (*where, "attributes"),
            "F12",
            "attributes stand before the type",
            "write `type` first: which attributes are legal depends on it",
        )
    inputs = r.texts(f["inputs"], (*where, "inputs"), "inputs") if "inputs" in f else []
    for n in keys.tms:
        if n >= len(inputs):
            r.problem(node, where, "F6", f"TMs for input {n}", f"the sub-op has {len(inputs)} inputs, counted from 0")

    def names(key: str) -> list[str] | None:
        return r.texts(f[key], (*where, key), key) if key in f else None

    return SubOp(
        name=name,
        type=op_type,
        inputs=inputs,
        output=r.text(f, "output", where) or "",
        mblock=r.pair(f, "mblock", where, "F12", (-1, -1)),
        ublock=r.pair(f, "ublock", where, "F12", (-1, -1)),
        tms=dict(sorted(keys.tms.items())),
        pop=names("pop"),
        pop_last=names("pop_last"),
        zero_point=None
        if "zero_point" not in f
        else r.scalar(f["zero_point"], (*where, "zero_point"), "Y4", scalars.parse_float, 0),
        attributes=read_attributes(r, f["attributes"], (*where, "attributes"), op_type, SUB_OP_ATTRIBUTES)
        if "attributes" in f
        else {},
    )
