"""The `queues` section, and what ops have too: TM lists, blocking, tile sizes."""

from __future__ import annotations

import dataclasses
from typing import Any

import yaml

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.op_spec import QUEUE_FIELDS, TILE_DIMS, TMS
from tbuda_lab.core.netlist.reader import scalars
from tbuda_lab.core.netlist.reader.core import NetlistReader, Node, Where, is_null, kind_of
from tbuda_lab.core.netlist.schema import Blocking, NoTms, Queue, QueueBuffer, TileDim, Tm


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
                r.problem(
                    item,
                    where,
                    "O9",
                    f"{scalars.clip(item.value)} is not a TM without arguments",
                    "only `transpose` takes no argument",
                )
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


_FIELDS = frozenset(QUEUE_FIELDS)


def read_queues(r: NetlistReader, node: Node) -> dict[str, Queue]:
    """The section `queues`, by name. What is wrong is noted in the reader (rules Q...)."""
    where = ("queues",)
    return {
        name: _read_queue(r, name, item, (*where, name)) for name, item in r.named_entries(node, where, "queue", "Q2")
    }


def _read_queue(r: NetlistReader, name: str, node: Node, where: Where) -> Queue:
    if is_null(node):
        r.problem(node, where, "Y3", f"queue {name!r} has no fields", "write `{input: HOST, type: queue, ...}`")
    f = r.fields(node, where, "a queue", _FIELDS, "Q1")
    entries = r.whole(f, "entries", where)
    queue = Queue(
        name=name,
        type=r.text(f, "type", where) or "",
        input=r.text(f, "input", where) or "",
        entries=-1 if entries is None else entries,
        grid_size=r.pair(f, "grid_size", where, "Q3", (0, 0)),
        blocking=read_blocking(r, f, where, "Q3"),
        df=r.df(f["df"], (*where, "df")) if "df" in f else DataFormat.Invalid,
        target_device=r.device(f, where),
        loc=(r.text(f, "loc", where) or "").lower(),
        tile_dim=read_tile_dim(r, f, where, "Q7"),
        layout=r.text(f, "layout", where),
        alias=r.text(f, "alias", where),
    )
    if "input_tms" in f:
        queue.input_tms = read_tms(r, f["input_tms"], (*where, "input_tms"))
    for key in ("read_ports", "write_ports"):
        if key in f:
            setattr(queue, key, r.ints(f[key], (*where, key), key))
    for key in ("dram", "host"):
        if key not in f:
            continue
        if key == queue.loc:
            queue.buffers = _read_buffers(r, f[key], (*where, key))
        else:  # the backend reads only the list that `loc` names
            queue.other[key] = r.plain(f[key])
    return queue


def read_blocking(r: NetlistReader, f: dict[str, Node], where: Where, rule: str) -> Blocking:
    """t, mblock, ublock and ublock_order; -1 for what is not written."""
    t = r.whole(f, "t", where)
    order = r.text(f, "ublock_order", where)
    if order is not None and order not in ("r", "c"):
        r.problem(
            f["ublock_order"],
            (*where, "ublock_order"),
            "Y4",
            f"ublock_order {scalars.clip(order)}",
            "ublock_order is r or c",
        )
    return Blocking(
        -1 if t is None else t,
        r.pair(f, "mblock", where, rule, (-1, -1)),
        r.pair(f, "ublock", where, rule, (-1, -1)),
        order,
    )


def read_tile_dim(r: NetlistReader, f: dict[str, Node], where: Where, rule: str) -> TileDim | None:
    """(rows, columns) of a tile; None where it is not written. A size that no tile has breaks `rule`."""
    if "tile_dim" not in f:
        return None
    dim = r.pair(f, "tile_dim", where, rule, (32, 32))
    if dim not in TILE_DIMS:
        r.problem(
            f["tile_dim"],
            (*where, "tile_dim"),
            rule,
            f"tile_dim {list(dim)} does not exist",
            f"legal: {', '.join(str(list(d)) for d in TILE_DIMS)}",
        )
    return dim


def _read_buffers(r: NetlistReader, node: Node, where: Where) -> list[QueueBuffer]:
    """`[[channel, address], ...]`; a host buffer may be an address alone."""

    def address(text: str) -> int:
        return scalars.parse_int(text, 64)

    def bare(item: Any) -> QueueBuffer:
        return QueueBuffer(0, r.scalar(item, where, "Y4", address, 0), bare=True)

    host = where[-1] == "host"
    if host and isinstance(node, yaml.ScalarNode) and not is_null(node):
        return [dataclasses.replace(bare(node), alone=True)]
    out = []
    for item in r.sequence(node, where, where[-1]):
        if isinstance(item, yaml.ScalarNode) and host:
            out.append(bare(item))
            continue
        values = r.ints(item, where, "a buffer", bits=64)
        if len(values) != 2:
            r.problem(item, where, "Q4", f"a buffer of {len(values)} values", "write [channel, address]")
            values = [*values, 0, 0][:2]
        out.append(QueueBuffer(values[0], values[1]))
    return out
