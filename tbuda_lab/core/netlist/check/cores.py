"""Rules R6 and N17: the L1 of a core and its extra streams, counted as router and pipe generator count them
(routing.md#l1-of-a-core)."""

from __future__ import annotations

from tbuda_lab.core.netlist.check.context import CheckContext
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.cores import buffers
from tbuda_lab.core.netlist.cores.advice import what_fits
from tbuda_lab.core.netlist.cores.epochs import EpochCores, epoch_cores
from tbuda_lab.core.netlist.schema import NetGraph, NetOp

KIND_TEXTS = {
    "output": "output buffer",
    "dram_io": "output to DRAM and staging of reads",
    "intermediates": "intermediates",
    "prologue_before_tms": "preloaded as it lies in its queue",
    "prologue_share": "share of a preloaded operand",
    "gather_relays": "relays of gathers",
    "relay": "relays",
    "multicast_relay": "relays of multicasts",
    "tile_headers": "tile headers",
    "queue_state": "state of queues",
    "overlay": "overlay",
}


def kind_text(kind: str) -> str:
    """A kind of buffer in words."""
    if kind.startswith("input_"):
        return f"buffer of input {kind.removeprefix('input_')}"
    if kind.startswith("prologue_after_tms_in"):
        return f"preloaded input {kind.removeprefix('prologue_after_tms_in')}"
    return KIND_TEXTS.get(kind, kind)


def _cores(c: CheckContext, g: NetGraph) -> EpochCores:
    """The cores of a graph, counted once for all rules that ask."""
    graphs: dict[str, EpochCores] = c.__dict__.setdefault("_epoch_cores", {})
    entry = graphs.get(g.name)
    if entry is None:
        preloads = {op.name: c.preloads(op) for op in g.ops.values()}
        entry = graphs[g.name] = epoch_cores(c, (g.name,), c.facts.align, preloads, c.facts.arch)
    return entry


@rule("R6", "graph", "placement")
def l1_fits(c: CheckContext, g: NetGraph) -> Issues:
    """The buffers of every core fit its L1."""
    if not g.ops:
        return
    cores = _cores(c, g)
    for op in g.ops.values():
        at, size = cores.fullest(op.name)
        if size <= c.facts.l1_limit or op.type == "ethernet_datacopy":
            continue
        parts = sorted(
            ((sum(sizes), kind_text(kind)) for kind, sizes in cores.kinds(op.name, at).items()), reverse=True
        )
        listed = f" ({', '.join(f'{text} {part:,}' for part, text in parts)})" if parts else ""
        yield (
            (op.name,),
            f"core [{at[0]}, {at[1]}] of the op needs {size:,} bytes of L1{listed}, {c.facts.arch} has "
            f"{c.facts.l1_limit:,} for buffers",
            _fix(c, cores, op),
        )


def _fix(c: CheckContext, cores: EpochCores, op: NetOp) -> str:
    general = "take a larger grid, smaller blocks or fewer output buffers"
    core = cores.ops.get(op.name)
    if core is None:
        return general
    room = c.facts.l1_limit - cores.headers - cores.overlay[op.name]
    readers = cores.readers[op.name]
    ways = what_fits(
        core,
        readers,
        c.input_count(op),
        c.facts.arch,
        room,
        [i.source for i in op.inputs],
        c.facts.device.cols,
        c.facts.device.rows,
    )
    return f"it fits {ways}" if ways else general


@rule("N17", "graph", "route")
def extra_streams(c: CheckContext, g: NetGraph) -> Issues:
    """A core takes at most 24 extra streams, as the router counts them and as the pipe generator does."""
    if not g.ops:
        return
    cores = _cores(c, g)
    for op in g.ops.values():
        if op.name not in cores.of_op:
            continue
        counts = {"the router": cores.router[op.name], "the pipe generator": int(cores.of_op[op.name].streams.max())}
        for tool, count in counts.items():
            if count > buffers.EXTRA_STREAMS:
                ahead = [i.source for i in op.inputs if i.source in c.preloads(op)]
                fix = f"write `prologue: false` for {ahead[0]!r}" if ahead else "take fewer cores, or a nop between"
                yield (
                    (op.name,),
                    f"{tool} counts {count} extra streams on one core, which has {buffers.EXTRA_STREAMS}",
                    fix,
                )
                break
