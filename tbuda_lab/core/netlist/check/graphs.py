"""Rules G and O4: graphs, and what every op must have."""

from __future__ import annotations

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.check.context import CheckContext, flag
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.op_spec import ARITY, ATTRIBUTES, MATH_FIDELITIES, OP_TYPES, TILE_DIMS, attributes_of
from tbuda_lab.core.netlist.schema import NetGraph, NetOp


@rule("G1.any", "netlist")
def some_graphs(c: CheckContext) -> Issues:
    """There is at least one graph."""
    if not c.n.graphs:
        yield ("graphs",), "no graphs", "write at least one"


@rule("G1", "graph")
def graph_fields(c: CheckContext, g: NetGraph) -> Issues:
    """A graph has a target_device and an input_count of 1 or more."""
    devices = g.target_device if isinstance(g.target_device, list) else [g.target_device]
    if not devices or min(devices) < 0:
        yield (
            "target_device",
            "no target_device" if g.target_device == -1 else f"target_device {g.target_device}",
            "write a chip id, 0 or more",
        )
    if g.input_count < 1:
        yield (
            "input_count",
            "no input_count" if g.input_count == -1 else f"input_count {g.input_count}",
            "write the number of inputs of one execute, 1 or more",
        )


@rule("G2", "netlist", "parse")
def op_names(c: CheckContext) -> Issues:
    """Op names are unique over all graphs."""
    seen: dict[str, str] = {}
    for graph, op in c.n.ops():
        if op.name in seen:
            yield ("graphs", graph.name, op.name), f"op {op.name!r} is also in graph {seen[op.name]!r}", "rename one"
        seen[op.name] = graph.name


@rule("G3", "op")
def inputs_exist(c: CheckContext, op: NetOp) -> Issues:
    """Every input is a queue or an op."""
    for i in op.inputs:
        if i.source not in c.n.queues and i.source not in c.ops:
            yield "inputs", f"input {i.source!r} does not exist", "name a queue or an op"


@rule("G3.link", "op")
def linked_graphs(c: CheckContext, op: NetOp) -> Issues:
    """Graphs that hand data to each other without a queue run on different chips."""
    graph = c.graph_of[op.name]
    for i in op.inputs:
        source = c.graph_of.get(i.source)
        if source is not None and source.name != graph.name and source.target_device == graph.target_device:
            yield (
                "inputs",
                f"reads op {i.source!r} of graph {source.name!r} on the same chip {graph.target_device}",
                "put a queue between the graphs, or the ops into one graph",
            )


@rule("G3.cycle", "graph", "verify")
def acyclic(c: CheckContext, g: NetGraph) -> Issues:
    """Ops do not wait for each other in a circle."""
    waiting = {op.name: {i.source for i in op.inputs if i.source in g.ops} for op in g.ops.values()}
    users: dict[str, list[str]] = {}
    for name, sources in waiting.items():
        for source in sources:
            users.setdefault(source, []).append(name)
    ready = [name for name, sources in waiting.items() if not sources]
    while ready:
        done = ready.pop()
        for user in users.get(done, ()):
            waiting[user].discard(done)
            if not waiting[user]:
                ready.append(user)
    stuck = [name for name, sources in waiting.items() if sources]
    if stuck:
        yield (
            (stuck[0], "inputs"),
            f"ops wait for each other in a circle: {', '.join(stuck[:6])}",
            "break it with a queue",
        )


@rule("O4.type", "op")
def op_type(c: CheckContext, op: NetOp) -> Issues:
    """The op type exists."""
    if op.type not in OP_TYPES or op.type == "drainer":
        yield (
            "type",
            f"unknown op type {op.type!r}" if op.type else "no type",
            f"known: {', '.join(sorted(OP_TYPES - {'drainer'}))}",
        )


@rule("O1", "op", "parse")
def attributes_known(c: CheckContext, op: NetOp) -> Issues:
    """Every attribute is known and goes with the op type."""
    for name in op.attributes:
        spec = ATTRIBUTES.get(name)
        if spec is None or (spec.types is not None and op.type not in spec.types):
            yield (
                ("attributes", name),
                f"attribute {name!r} does not go with {op.type!r} ops",
                f"legal here: {', '.join(attributes_of(op.type))}",
            )


@rule("O4.arity", "op", "verify")
def arity(c: CheckContext, op: NetOp) -> Issues:
    """An op has as many inputs as its type and attributes ask for."""
    count = len(op.inputs)
    least, most = _arity(op)
    if op.type in ("matmul", "depthwise"):
        most = count  # those beyond are never read: O4.unread
    if not least <= count <= most:
        yield (
            "inputs",
            f"{count} inputs for {op.type}",
            f"it takes {least}" if least == most else f"it takes {least} to {most}",
        )


@rule("O4.unread", "op", "verify", "strict")
def unread_inputs(c: CheckContext, op: NetOp) -> Issues:
    """A matmul or depthwise has no input that its attributes do not call for (bias, identity, requant, dequant)."""
    if op.type in ("matmul", "depthwise") and len(op.inputs) > _arity(op)[1]:
        yield (
            "inputs",
            f"{len(op.inputs)} inputs, of which {_arity(op)[1]} are read",
            "drop the rest, or write the attribute that uses it, such as `bias: true`",
        )


def _arity(op: NetOp) -> tuple[int, int]:
    """Inputs that an op takes, (least, most)."""
    if op.type == "matmul":
        expected = 2 + flag(op, "identity") + flag(op, "bias") + (flag(op, "requant") or flag(op, "dequant"))
        return expected, expected
    if op.type == "depthwise":
        return 2 + flag(op, "bias"), 2 + flag(op, "bias")
    least, most = ARITY.get(op.type, (0, None))
    return least, most if most is not None else len(op.inputs)


@rule("O4.formats", "op")
def formats_written(c: CheckContext, op: NetOp) -> Issues:
    """out_df and intermed_df are written, and one in_df for each input."""
    where = ("graphs", c.graph_of[op.name].name, op.name)
    for key, df in (("out_df", op.out_df), ("intermed_df", op.intermed_df)):
        if df in (None, DataFormat.Invalid) and (*where, key) not in c.n.source:
            yield key, f"no {key}", "write a data format"
    for n, i in enumerate(op.inputs):
        if i.df is DataFormat.Invalid and not c.n.problems:
            yield "in_df", f"no format for input {n}", "write one data format for each input"


@rule("O4.fidelity", "op")
def fidelity(c: CheckContext, op: NetOp) -> Issues:
    """math_fidelity is written and known."""
    if op.math_fidelity not in MATH_FIDELITIES:
        yield (
            "math_fidelity",
            f"math_fidelity {op.math_fidelity!r}" if op.math_fidelity else "no math_fidelity",
            f"known: {', '.join(MATH_FIDELITIES)}",
        )


@rule("O4.buf_size_mb", "op")
def buf_size(c: CheckContext, op: NetOp) -> Issues:
    """buf_size_mb is written and not negative."""
    if op.buf_size_mb is None or op.buf_size_mb < 0:
        yield (
            "buf_size_mb",
            "no buf_size_mb" if op.buf_size_mb is None else f"buf_size_mb {op.buf_size_mb}",
            "write the output buffer in mblocks; 2 is a double buffer",
        )


@rule("O4.blocking", "op")
def blocking(c: CheckContext, op: NetOp) -> Issues:
    """t, mblock and ublock are positive, ublock_order is written."""
    b = op.blocking
    for key, values in (("t", (b.t,)), ("mblock", b.mblock), ("ublock", b.ublock)):
        if min(values) < 1:
            written = "not written" if set(values) == {-1} else str(list(values) if len(values) > 1 else values[0])
            yield key, f"{key} is {written}", "write positive numbers"
    if b.order not in ("r", "c"):
        yield "ublock_order", "no ublock_order" if b.order is None else f"ublock_order {b.order!r}", "write r or c"


@rule("O4.grid", "op")
def grid(c: CheckContext, op: NetOp) -> Issues:
    """grid_size is positive, and grid_loc is written (but for ethernet_datacopy)."""
    if min(op.grid_size) < 1:
        yield (
            "grid_size",
            "no grid_size" if op.grid_size == (0, 0) else f"grid_size {list(op.grid_size)}",
            "write [rows, columns], both positive",
        )
    if op.grid_loc is None and op.type != "ethernet_datacopy":
        yield "grid_loc", "no grid_loc", "write [row, column] of the first core"


@rule("O4.matmul_order", "op")
def matmul_order(c: CheckContext, op: NetOp) -> Issues:
    """A matmul has ublock_order r."""
    if op.type == "matmul" and op.blocking.order == "c":
        yield "ublock_order", "ublock_order c on a matmul", "write r"


@rule("O4.forks", "op")
def fork_count(c: CheckContext, op: NetOp) -> Issues:
    """There are no more forked inputs than inputs."""
    if op.forked_dram_inputs and len(op.forked_dram_inputs) > len(op.inputs):
        yield "forked_dram_inputs", f"{len(op.forked_dram_inputs)} for {len(op.inputs)} inputs", "one each at most"


@rule("O4.per_input", "op", "verify", "strict")
def per_input_lists(c: CheckContext, op: NetOp) -> Issues:
    """Lists of buffer sizes have one entry for each input, none negative."""
    for key, sizes in (
        ("input_buf_min_size_tiles", op.input_buf_min_size_tiles),
        ("input_dram_io_buf_size_tiles", op.input_dram_io_buf_size_tiles),
    ):
        if sizes is None:
            continue
        if len(sizes) != len(op.inputs):
            yield (
                key,
                f"{len(sizes)} sizes for {len(op.inputs)} inputs",
                "write one for each input, 0 for the usual size",
            )
        if sizes and min(sizes) < 0:
            yield key, f"size {min(sizes)}", "sizes are in tiles, 0 for the usual size"


@rule("O7.tile_dim", "op", "parse")
def tile_dim(c: CheckContext, op: NetOp) -> Issues:
    """The tile size exists; grayskull has 32x32 only."""
    if op.tile_dim is not None and op.tile_dim not in TILE_DIMS:
        yield "tile_dim", f"tile_dim {list(op.tile_dim)}", f"legal: {', '.join(str(list(d)) for d in TILE_DIMS)}"
    elif c.facts.grayskull and op.tile_dim not in (None, (32, 32)):
        yield "tile_dim", f"tile_dim {list(op.tile_dim or ())} on grayskull", "grayskull has 32x32 tiles only"
