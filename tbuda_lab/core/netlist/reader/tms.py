"""TM lists: `[transpose, broadcast: {r: 4}, hslice: 2, pad: [1, 0, 0.0]]`."""

from __future__ import annotations

from typing import Any

import yaml

from tbuda_lab.core.netlist.opspec import TMS
from tbuda_lab.core.netlist.reader import scalars
from tbuda_lab.core.netlist.reader.core import NetlistReader, Node, Where, is_null, kind_of
from tbuda_lab.core.netlist.schema import NoTms, Tm


def read_tms(r: NetlistReader, node: Node, where: Where) -> list[Tm]:
    """TMs in order of application. A scalar (`None`, nothing) is an empty list, as iterating one yields nothing."""
    if isinstance(node, yaml.ScalarNode):
        return NoTms("" if is_null(node) else node.value)
    if not isinstance(node, yaml.SequenceNode):
        r.problem(node, where, "O9", "TMs must be a list, not a map", "write `[broadcast: {r: 2}, transpose]`")
        return []
    out: list[Tm] = []
    for item in node.value:
        if isinstance(item, yaml.ScalarNode):
            if item.value == "transpose":
                out.append(Tm("transpose"))
            else:
                r.problem(item, where, "O9", f"{scalars.clip(item.value)} is not a TM without arguments",
                          "only `transpose` takes no argument")
            continue
        for name, key, value in r.items(item, where, "a TM", rule="O9"):
            if name not in TMS or name == "transpose":
                r.problem(key, where, "O9", f"unknown TM {scalars.clip(name)}", f"known: {', '.join(TMS)}")
                continue
            tm = _read_tm(r, name, value, where)
            if tm is not None:
                out.append(tm)
    return out


def _read_tm(r: NetlistReader, name: str, node: Node, where: Where) -> Tm | None:
    if name == "broadcast":
        pairs = []
        for dim, key, value in r.items(node, where, "broadcast", rule="O9"):
            if dim in ("r", "c", "z"):
                pairs.append((dim, r.scalar(value, where, "O9", scalars.parse_int, -1)))
            else:
                r.problem(key, where, "O9", f"broadcast over {scalars.clip(dim)}", "broadcast dims are r, c and z")
        if is_null(node):
            r.problem(node, where, "O9", "broadcast without a dim", "write `broadcast: {r: n}`")
        return Tm(name, tuple(pairs)) if pairs else None
    if name == "tile_broadcast":
        dim = r.scalar(node, where, "O9", str, "r")
        if dim not in ("r", "c", "rc"):
            r.problem(node, where, "O9", f"tile_broadcast over {scalars.clip(dim)}", "tile_broadcast takes r, c or rc")
            return None
        return Tm(name, (dim,))
    if name == "pad":
        args = [r.scalar(item, where, "O9", scalars.parse_float, 0) for item in r.sequence(node, where, "pad", "O9")]
        if len(args) != 3 or not all(isinstance(a, int) for a in args[:2]):
            r.problem(node, where, "O9", "pad takes three values", "write `pad: [row tiles, column tiles, value]`")
            return None
        return Tm(name, tuple(args))
    if not isinstance(node, yaml.ScalarNode):
        r.problem(node, where, "O9", f"{name} must be given a single number, not {kind_of(node)}", f"write `{name}: n`")
        return None
    return Tm(name, (r.scalar(node, where, "O9", scalars.parse_int, 0),))


def read_pad(r: NetlistReader, node: Node, where: Where, *, value: bool) -> dict[str, Any]:
    """`input_N_pad: {rt, ct, pad_value}` or, without a value, `input_N_unpad: {rt, ct}`."""
    keys = ("rt", "ct", "pad_value") if value else ("rt", "ct")
    fields = r.fields(node, where, "the padding", keys, "O1")
    out: dict[str, Any] = {}
    for key, item in fields.items():
        parse = scalars.parse_float if key == "pad_value" else scalars.parse_int
        out[key] = r.scalar(item, (*where, key), "Y4", parse, 0)
    return out
