"""Faults of 20 kinds, planted in a copy of an emitted netlist. Each breaks the format for certain, by what its
documents say; whether the check names the element is what is tried."""

from __future__ import annotations

import copy
import dataclasses
import itertools
import random
from collections.abc import Callable

from tbuda_lab.core import netlist as netlists
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.schema import EndLoop, Execute, Netlist, NetOp, Tm


@dataclasses.dataclass(frozen=True)
class Planted:
    """A netlist with a fault, of a kind, and the names of the elements of which one must be named."""

    kind: str
    netlist: Netlist
    names: tuple[str, ...]


Plant = Callable[[Netlist, DeviceSpec, random.Random], "tuple[str, ...] | None"]
KINDS: dict[str, Plant] = {}


def kind(plant: Plant) -> Plant:
    KINDS[plant.__name__.replace("_", " ")] = plant
    return plant


def _ops(n: Netlist, rng: random.Random, of: Callable[[NetOp], object] = lambda op: True) -> list[NetOp]:
    ops = [op for _, op in n.ops() if of(op)]
    rng.shuffle(ops)
    return ops


@kind
def place_outside_the_grid(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    op = _ops(n, rng)[0]
    op.grid_loc = (device.rows, device.cols)
    return (op.name,)


@kind
def ops_on_the_same_cores(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    for graph in n.graphs.values():
        if len(graph.ops) > 1:
            a, b = rng.sample(list(graph.ops.values()), 2)
            a.grid_loc = b.grid_loc
            return a.name, b.name
    return None


@kind
def odd_output_buffer(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    op = _ops(n, rng, lambda op: not op.gradient_op)[0]
    op.buf_size_mb = 3
    return (op.name,)


@kind
def output_beyond_l1(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    read = {i.source for _, op in n.ops() for i in op.inputs}
    ops = _ops(n, rng, lambda op: op.name not in read and not op.untilize_output and not op.gradient_op)
    if not ops:
        return None
    ops[0].buf_size_mb = 1 << 14
    return (ops[0].name,)


@kind
def ublock_beyond_dest(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    op = _ops(n, rng)[0]
    op.blocking.ublock = (op.blocking.ublock[0] * 3, op.blocking.ublock[1] * 6)
    return (op.name,)


@kind
def input_that_nobody_makes(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    op = _ops(n, rng)[0]
    op.inputs[0] = dataclasses.replace(op.inputs[0], source="nobody")
    return (op.name,)


@kind
def input_of_another_shape(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    op = _ops(n, rng, lambda op: not op.attributes.get("identity"))[0]
    op.inputs[0] = dataclasses.replace(op.inputs[0], tms=[*(op.inputs[0].tms or ()), Tm("broadcast", (("r", 3),))])
    return (op.name,)


@kind
def inner_dimension_too_long(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    ops = _ops(n, rng, lambda op: op.type == "matmul" and "identity" not in op.attributes)
    if not ops:
        return None
    ops[0].attributes["m_k"] = 7 * int(ops[0].attributes["m_k"])
    return (ops[0].name,)


@kind
def partial_results_in_small_blocks(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    ops = _ops(n, rng, lambda op: op.type == "matmul" and (op.attributes.get("bias") or op.attributes["m_k"] > 1))
    if not ops:
        return None
    ops[0].intermed_df = DataFormat.Bfp2_b if ops[0].out_df.family == "b" else DataFormat.Bfp2
    return (ops[0].name,)


@kind
def missing_bias(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    ops = _ops(n, rng, lambda op: op.type == "matmul" and op.attributes.get("bias"))
    if not ops:
        return None
    del ops[0].inputs[2]
    return (ops[0].name,)


@kind
def unknown_op_type(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    op = _ops(n, rng)[0]
    op.type = "convolution"
    return (op.name,)


@kind
def order_of_a_product(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    ops = _ops(n, rng, lambda op: op.type in ("matmul", "reduce"))
    if not ops:
        return None
    ops[0].blocking.order = "c"
    return (ops[0].name,)


@kind
def queues_on_the_same_bytes(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    fixed = [q for q in n.queues.values() if q.loc == "dram" and q.input == "HOST" and not q.alias]
    if len(fixed) < 2:
        return None
    a = rng.choice(fixed)
    others = [q for q in fixed if q is not a and q.target_device == a.target_device]
    if not others:
        return None
    b = rng.choice(others)
    a.buffers[0] = b.buffers[0]
    return a.name, b.name


@kind
def channel_that_does_not_exist(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    q = rng.choice([q for q in n.queues.values() if q.loc == "dram"])
    q.buffers[0] = dataclasses.replace(q.buffers[0], channel=device.dram_channels)
    return (q.name,)


@kind
def address_in_what_is_reserved(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    q = rng.choice([q for q in n.queues.values() if q.loc == "dram"])
    q.buffers[0] = dataclasses.replace(q.buffers[0], address=device.dram_end(q.buffers[0].channel))
    return (q.name,)


@kind
def queue_of_other_blocks(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    q = rng.choice([q for q in n.queues.values() if q.input != "HOST"])
    q.blocking.mblock = (q.blocking.mblock[0] * 5, q.blocking.mblock[1])
    return q.name, q.input


@kind
def setting_left_out(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    for p in n.programs:
        for i in p.instructions:
            if isinstance(i, Execute) and i.settings:
                fed = [q for q in i.settings if n.queues[q].input == "HOST" and n.queues[q].type == "queue"]
                if fed:
                    del i.settings[fed[0]]
                    return p.name, fed[0]
    return None


@kind
def loop_without_end(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    for p in n.programs:
        ends = [k for k, i in enumerate(p.instructions) if isinstance(i, EndLoop)]
        if ends:
            del p.instructions[ends[-1]]
            return (p.name,)
    return None


@kind
def graph_that_does_not_exist(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    for p in n.programs:
        for k, i in enumerate(p.instructions):
            if isinstance(i, Execute):
                p.instructions[k] = Execute("elsewhere", i.settings)
                return p.name, i.graph
    return None


@kind
def inputs_of_a_chip(n: Netlist, device: DeviceSpec, rng: random.Random) -> tuple[str, ...] | None:
    """Of graphs that run at the same time one takes another number of inputs; on one chip, not what a queue streams."""
    graphs = list(n.graphs.values())
    if device.arch == "grayskull" or len({str(g.target_device) for g in graphs}) < 2:
        return None
    for p in n.programs:
        run = [n.graphs[i.graph] for i in p.instructions if isinstance(i, Execute)]
        for a, b in itertools.pairwise(run):
            if a.target_device != b.target_device:
                b.input_count += 1
                return a.name, b.name
    return None


def plant(kind: str, n: Netlist, device: DeviceSpec, rng: random.Random) -> Planted | None:
    """A fault of a kind; None where the netlist has no place for it."""
    faulty = copy.deepcopy(n)
    names = KINDS[kind](faulty, device, rng)
    return None if names is None else Planted(kind, faulty, names)


def found(planted: Planted, device: DeviceSpec) -> list[str]:
    """The errors that name one of the elements; each has a rule, a message and what would be legal."""
    errors = [f for f in netlists.check(planted.netlist, device, "strict") if f.severity == "error"]
    return [
        str(f)
        for f in errors
        if f.fix and any(name in (*f.where, f.message) or f"'{name}'" in f.message for name in planted.names)
    ]
