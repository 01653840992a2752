"""The `queues` section."""

from __future__ import annotations

import dataclasses
from typing import Any

import yaml

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.opspec import QUEUE_FIELDS, TILE_DIMS
from tbuda_lab.core.netlist.reader import scalars
from tbuda_lab.core.netlist.reader.core import NetlistReader, Node, Where, is_null
from tbuda_lab.core.netlist.reader.tms import read_tms
from tbuda_lab.core.netlist.schema import Blocking, Buffer, Queue, TileDim

_FIELDS = frozenset(QUEUE_FIELDS)


def read_queues(r: NetlistReader, node: Node) -> dict[str, Queue]:
    """The section `queues`, by name. What is wrong is noted in the reader (rules Q...)."""
    where = ("queues",)
    return {name: _read_queue(r, name, item, (*where, name)) for name, item in r.named(node, where, "queue", "Q2")}


def _read_queue(r: NetlistReader, name: str, node: Node, where: Where) -> Queue:
    if is_null(node):
        r.problem(node, where, "Y3", f"queue {name!r} has no fields", "write `{input: HOST, type: queue, ...}`")
    f = r.fields(node, where, "a queue", _FIELDS, "Q1")
    entries = r.whole(f, "entries", where)
    queue = Queue(
        name=name, type=r.text(f, "type", where) or "", input=r.text(f, "input", where) or "",
        entries=-1 if entries is None else entries, grid_size=r.pair(f, "grid_size", where, "Q3", (0, 0)),
        blocking=read_blocking(r, f, where, "Q3"),
        df=r.df(f["df"], (*where, "df")) if "df" in f else DataFormat.Invalid,
        target_device=r.device(f, where), loc=(r.text(f, "loc", where) or "").lower(),
        tile_dim=read_tile_dim(r, f, where, "Q7"), layout=r.text(f, "layout", where), alias=r.text(f, "alias", where),
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
        r.problem(f["ublock_order"], (*where, "ublock_order"), "Y4", f"ublock_order {scalars.clip(order)}",
                  "ublock_order is r or c")
    return Blocking(-1 if t is None else t, r.pair(f, "mblock", where, rule, (-1, -1)),
                    r.pair(f, "ublock", where, rule, (-1, -1)), order)


def read_tile_dim(r: NetlistReader, f: dict[str, Node], where: Where, rule: str) -> TileDim | None:
    """(rows, columns) of a tile; None where it is not written. A size that no tile has breaks `rule`."""
    if "tile_dim" not in f:
        return None
    dim = r.pair(f, "tile_dim", where, rule, (32, 32))
    if dim not in TILE_DIMS:
        r.problem(f["tile_dim"], (*where, "tile_dim"), rule, f"tile_dim {list(dim)} does not exist",
                  f"legal: {', '.join(str(list(d)) for d in TILE_DIMS)}")
    return dim


def _read_buffers(r: NetlistReader, node: Node, where: Where) -> list[Buffer]:
    """`[[channel, address], ...]`; a host buffer may be an address alone."""
    def address(text: str) -> int:
        return scalars.parse_int(text, 64)

    def bare(item: Any) -> Buffer:
        return Buffer(0, r.scalar(item, where, "Y4", address, 0), bare=True)

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
        out.append(Buffer(values[0], values[1]))
    return out
