"""Rules Q: queues."""

from __future__ import annotations

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.check.context import CheckContext
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.op_spec import TILE_DIMS
from tbuda_lab.core.netlist.schema import Queue


@rule("Q4", "queue", "parse")
def has_buffers(c: CheckContext, q: Queue) -> Issues:
    """The list that `loc` names is written and not empty."""
    if q.loc in ("dram", "host") and not q.buffers:
        yield q.loc, f"loc is {q.loc} but no {q.loc} buffers are listed", f"write `{q.loc}: [[channel, address], ...]`"


@rule("Q5", "queue", "parse")
def blackhole_address(c: CheckContext, q: Queue) -> Issues:
    """DRAM addresses on blackhole are multiples of 64."""
    if c.facts.arch != "blackhole" or q.loc != "dram":
        return
    for b in q.buffers:
        if b.address % 64:
            yield (
                "dram",
                f"address {b.address:#x} is not aligned to 64 bytes",
                f"{b.address // 64 * 64:#x} or {-(-b.address // 64) * 64:#x} is",
            )


@rule("Q6", "queue", "parse")
def ports(c: CheckContext, q: Queue) -> Issues:
    """Read and write ports: not on grayskull, one for each buffer, each 0, 1 or 2."""
    for key, ports in (("read_ports", q.read_ports), ("write_ports", q.write_ports)):
        if ports is None:
            continue
        if c.facts.grayskull:
            yield key, f"{key} on grayskull", "leave it out"
        if len(ports) != len(q.buffers):
            yield key, f"{len(ports)} ports for {len(q.buffers)} buffers", "write one for each buffer"
        if any(not 0 <= p <= 2 for p in ports):
            yield key, f"port {next(p for p in ports if not 0 <= p <= 2)}", "ports are 0, 1 and 2"


@rule("Q7", "queue", "parse")
def tile_dim(c: CheckContext, q: Queue) -> Issues:
    """The tile size exists; grayskull has 32x32 only."""
    if q.tile_dim is not None and q.tile_dim not in TILE_DIMS:
        yield "tile_dim", f"tile_dim {list(q.tile_dim)}", f"legal: {', '.join(str(list(d)) for d in TILE_DIMS)}"
    elif c.facts.grayskull and q.tile_dim not in (None, (32, 32)):
        yield "tile_dim", f"tile_dim {list(q.tile_dim or ())} on grayskull", "grayskull has 32x32 tiles only"


@rule("Q9.any", "netlist")
def some_queues(c: CheckContext) -> Issues:
    """There is at least one queue."""
    if not c.n.queues:
        yield ("queues",), "no queues", "every netlist reads and writes queues"


@rule("Q9.type", "queue")
def kind(c: CheckContext, q: Queue) -> Issues:
    """type is queue or ram."""
    if q.type not in ("queue", "ram"):
        yield "type", f"type {q.type!r}" if q.type else "no type", "write `type: queue` or `type: ram`"


@rule("Q9.target_device", "queue")
def target_device(c: CheckContext, q: Queue) -> Issues:
    """target_device is a chip id."""
    devices = q.target_device if isinstance(q.target_device, list) else [q.target_device]
    if not devices or min(devices) < 0:
        yield (
            "target_device",
            "no target_device" if q.target_device == -1 else f"target_device {q.target_device}",
            "write a chip id, 0 or more",
        )


@rule("Q9.entries", "queue")
def entries(c: CheckContext, q: Queue) -> Issues:
    """entries is at least 1."""
    if q.entries < 1:
        yield (
            "entries",
            "no entries" if q.entries == -1 else f"entries {q.entries}",
            "write the number of slots, 1 or more",
        )


@rule("Q9.blocking", "queue")
def blocking(c: CheckContext, q: Queue) -> Issues:
    """t, mblock and ublock are positive."""
    b = q.blocking
    for key, values in (("t", (b.t,)), ("mblock", b.mblock), ("ublock", b.ublock)):
        if min(values) < 1:
            written = "not written" if set(values) == {-1} else str(list(values) if len(values) > 1 else values[0])
            yield key, f"{key} is {written}", "write positive numbers"


@rule("Q9.grid", "queue")
def grid(c: CheckContext, q: Queue) -> Issues:
    """grid_size is positive."""
    if min(q.grid_size) < 1:
        yield (
            "grid_size",
            "no grid_size" if q.grid_size == (0, 0) else f"grid_size {list(q.grid_size)}",
            "write [rows, columns], both positive",
        )


@rule("Q9.df", "queue")
def data_format(c: CheckContext, q: Queue) -> Issues:
    """df is written."""
    if q.df is DataFormat.Invalid and ("queues", q.name, "df") not in c.n.source:
        yield "df", "no df", "write a data format"


@rule("Q9.layout", "queue")
def layout(c: CheckContext, q: Queue) -> Issues:
    """layout is tilized or flat."""
    if q.layout not in (None, "tilized", "flat"):
        yield "layout", f"layout {q.layout!r}", "layouts are tilized and flat"


@rule("Q9.buffers", "queue")
def buffer_count(c: CheckContext, q: Queue) -> Issues:
    """There is one buffer for each core of the grid."""
    cores = max(q.grid_size[0], 0) * max(q.grid_size[1], 0)
    if len(q.buffers) != cores and not (q.loc in ("dram", "host") and not q.buffers):
        missing = "" if q.loc in ("dram", "host") else f"; loc is {q.loc!r}" if q.loc else "; loc is not written"
        yield (
            q.loc or "loc",
            f"{len(q.buffers)} buffers for a grid of {q.grid_size[0]}x{q.grid_size[1]}{missing}",
            f"list {cores} buffers" if q.loc in ("dram", "host") else "write `loc: dram` or `loc: host`",
        )


@rule("Q10.producer", "queue")
def producer(c: CheckContext, q: Queue) -> Issues:
    """A queue is fed by the host or by an op that exists."""
    if q.input == "HOST" or "net2net" in q.input or q.input in c.ops:
        return
    yield "input", f"the producer {q.input!r} does not exist" if q.input else "no input", "name an op, or write HOST"


@rule("Q10.tile_dim", "queue")
def producer_tile(c: CheckContext, q: Queue) -> Issues:
    """A queue has the tile size of the op that feeds it."""
    op = c.ops.get(q.input)
    if op is not None and (op.tile_dim or (32, 32)) != (q.tile_dim or (32, 32)):
        yield (
            "tile_dim",
            f"tile_dim {list(q.tile_dim or (32, 32))}, but op {op.name!r} makes {list(op.tile_dim or (32, 32))}",
            "make them equal",
        )


@rule("Q11", "queue", "parse")
def input_tms(c: CheckContext, q: Queue) -> Issues:
    """TMs into a queue: no pad, no transpose, no tile_broadcast."""
    for tm in q.input_tms or ():
        if tm.name in ("pad", "transpose", "tile_broadcast"):
            yield "input_tms", f"{tm.name} on the way into a queue", "slices, stacks and broadcast are legal there"


@rule("Q12", "queue")
def alias(c: CheckContext, q: Queue) -> Issues:
    """An alias is another view of the bytes of a ram: same buffers, same number of elements."""
    if not q.alias:
        return
    base = c.n.queues.get(q.alias)
    if q.alias == q.name:
        yield "alias", "the queue is an alias of itself", "name another ram"
    elif base is None:
        yield "alias", f"alias of {q.alias!r}, which does not exist", "name another ram"
    elif base.alias:
        yield "alias", f"alias of {q.alias!r}, which is an alias itself", f"name {base.alias!r}"
    elif q.type != "ram" or base.type != "ram":
        yield "alias", f"alias between {q.type} {q.name!r} and {base.type} {base.name!r}", "both must be ram"
    elif [(b.channel, b.address) for b in q.buffers] != [(b.channel, b.address) for b in base.buffers]:
        yield "alias", f"its buffers are not those of {base.name!r}", "list the same buffers"
    elif _elements(c, q) != _elements(c, base):
        yield (
            "alias",
            f"{_elements(c, q)} elements in all, but {base.name!r} has {_elements(c, base)}",
            "make entries x tensor size equal",
        )
    elif q.entries > 0 and base.entries > 0 and max(q.entries, base.entries) % min(q.entries, base.entries):
        yield (
            "entries",
            f"{q.entries} entries do not divide the {base.entries} of {base.name!r}",
            "one number of entries must divide the other",
        )


def _elements(c: CheckContext, q: Queue) -> int:
    z, rt, ct = q.blocking.tiles(q.grid_size)
    h, w = q.tile_dim or (32, 32)
    return q.entries * z * rt * ct * h * w


@rule("Q13", "queue")
def one_input_count(c: CheckContext, q: Queue) -> Issues:
    """All graphs that read a queue have the same input_count."""
    if q.type != "queue":
        return
    counts = {r.graph.input_count: r.graph.name for r in c.readers.get(q.name, ())}
    if len(counts) > 1:
        yield (
            "",
            "read by graphs of different input_count: "
            + ", ".join(f"{name} {count}" for count, name in sorted(counts.items())),
            "make them equal, or use a ram",
        )
