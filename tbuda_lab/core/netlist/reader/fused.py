"""The `fused_ops` section."""

from __future__ import annotations

from tbuda_lab.core.netlist.opspec import SUB_OP_ATTRIBUTES, SUB_OP_FIELDS
from tbuda_lab.core.netlist.reader import scalars
from tbuda_lab.core.netlist.reader.core import NetlistReader, Node, Where, is_null
from tbuda_lab.core.netlist.reader.graphs import read_attributes
from tbuda_lab.core.netlist.reader.tms import read_tms
from tbuda_lab.core.netlist.schema import FusedOp, SubOp, Tm

_FIELDS = frozenset(SUB_OP_FIELDS)


def read_fused_ops(r: NetlistReader, node: Node) -> dict[str, FusedOp]:
    """The section `fused_ops`, by name. What is wrong is noted in the reader (rules F...)."""
    where = ("fused_ops",)
    return {name: _read_fused(r, name, item, (*where, name)) for name, item in r.named(node, where, "fused op", "F1")}


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
        fused.schedules = [_read_schedule(r, item, (*place, str(i)))
                           for i, item in enumerate(r.sequence(fields["schedules"], place, "schedules"))]
    return fused


def _read_schedule(r: NetlistReader, node: Node, where: Where) -> list[SubOp]:
    return [_read_sub_op(r, name, key, value, (*where, name))
            for item in r.sequence(node, where, "a schedule")
            for name, key, value in r.items(item, where, "a sub-op")]


def _read_sub_op(r: NetlistReader, name: str, key_node: Node, node: Node, where: Where) -> SubOp:
    tms: dict[int, list[Tm]] = {}
    r.mark(where, key_node)
    order: list[str] = []

    def per_input(key: str, key_node: Node, value: Node) -> bool:
        if "input" not in key or "tms" not in key:
            return False
        place = (*where, key)
        index = key[key.find("_") + 1:key.rfind("_")]
        if not index.isascii() or not index.isdigit() or len(index) > 4:
            r.problem(key_node, place, "F6", f"{scalars.clip(key)} names no input", "write input_<number>_tms")
            return True
        r.mark(place, key_node)
        result = read_tms(r, value, place)
        tms[int(index)] = tms[int(index)] + result if int(index) in tms else result
        return True

    if is_null(node):
        r.problem(node, where, "F2", f"sub-op {name!r} has no fields", "write `{type: add, inputs: [...], ...}`")
    f = r.fields(node, where, "a sub-op", _FIELDS, "F12", per_input)
    order.extend(f)
    op_type = r.text(f, "type", where) or ""
    if "type" in f and "attributes" in f and order.index("type") > order.index("attributes"):
        r.problem(f["attributes"], (*where, "attributes"), "F12", "attributes stand before the type",
                  "write `type` first: which attributes are legal depends on it")
    inputs = r.texts(f["inputs"], (*where, "inputs"), "inputs") if "inputs" in f else []
    for n in tms:
        if n >= len(inputs):
            r.problem(node, where, "F6", f"TMs for input {n}", f"the sub-op has {len(inputs)} inputs, counted from 0")

    def names(key: str) -> list[str] | None:
        return r.texts(f[key], (*where, key), key) if key in f else None

    return SubOp(
        name=name, type=op_type, inputs=inputs, output=r.text(f, "output", where) or "",
        mblock=r.pair(f, "mblock", where, "F12", (-1, -1)), ublock=r.pair(f, "ublock", where, "F12", (-1, -1)),
        tms=dict(sorted(tms.items())), pop=names("pop"), pop_last=names("pop_last"),
        zero_point=None if "zero_point" not in f
        else r.scalar(f["zero_point"], (*where, "zero_point"), "Y4", scalars.parse_float, 0),
        attributes=read_attributes(r, f["attributes"], (*where, "attributes"), op_type, SUB_OP_ATTRIBUTES)
        if "attributes" in f else {},
    )
