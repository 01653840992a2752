"""Rules F: fused ops, their shapes, their dest register, broadcasts inside, and the life of intermediate buffers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from tbuda_lab.core.formats import DataFormat
from tbuda_lab.core.netlist.check.context import CheckContext, whole, word
from tbuda_lab.core.netlist.check.registry import Issue, Issues, rule
from tbuda_lab.core.netlist.op_spec import ARITY, BINARY, NOP, QUANT, SFPU
from tbuda_lab.core.netlist.schema import FusedOp, NetOp, SubOp, Tm

SUB_OP_TYPES = BINARY | NOP | SFPU | {"matmul", "reduce"}
Place = tuple[str, ...]


def sub_ops(f: FusedOp) -> Iterator[tuple[Place, list[SubOp], int]]:
    """(place, schedule, position) of every sub-op in order."""
    for s, schedule in enumerate(f.schedules):
        for k, sub in enumerate(schedule):
            yield ("schedules", str(s), sub.name), schedule, k


def index_after(name: str, prefix: str) -> int | None:
    """N of `inputN` or `intermedN`."""
    digits = name[len(prefix) :] if name.startswith(prefix) else ""
    return int(digits) if digits.isascii() and digits.isdigit() and len(digits) < 4 else None


def base_ops(c: CheckContext, id: str) -> list[NetOp]:
    """The ops that run the fused op of that id."""
    return [op for op in c.ops.values() if op.type == "fused_op" and str(op.attributes.get("fused_op_id")) == id]


@rule("F1", "op", "fused")
def exists(c: CheckContext, op: NetOp) -> Issues:
    """A fused_op names a fused op that exists, and has as many inputs."""
    if op.type != "fused_op":
        return
    id = op.attributes.get("fused_op_id")
    if id is None:
        yield "attributes", "no fused_op_id", "write `attributes: {fused_op_id: ...}`"
    elif str(id) not in c.n.fused_ops:
        yield (
            ("attributes", "fused_op_id"),
            f"fused op {str(id)!r} does not exist",
            f"there are {', '.join(c.n.fused_ops) or 'none'}",
        )
    elif c.n.fused_ops[str(id)].inputs != len(op.inputs):
        yield (
            "inputs",
            f"{len(op.inputs)} inputs, but fused op {str(id)!r} has {c.n.fused_ops[str(id)].inputs}",
            "make them equal",
        )


@rule("F2", "fused_op", "fused")
def complete(c: CheckContext, f: FusedOp) -> Issues:
    """A fused op has inputs, at most 8 intermediates, schedules and sub-ops; each sub-op type, inputs and output."""
    if f.inputs < 0:
        yield "inputs", "no number of inputs", "write `inputs: n`"
    if not 0 <= f.intermediates <= 8:
        yield (
            "intermediates",
            "no number of intermediates" if f.intermediates == -1 else f"{f.intermediates} intermediates",
            "write 0 to 8",
        )
    if not f.schedules:
        yield "schedules", "no schedules", "write at least one"
    for s, schedule in enumerate(f.schedules):
        if not schedule:
            yield ("schedules", str(s)), "a schedule without sub-ops", "write at least one sub-op"
    for place, schedule, k in sub_ops(f):
        yield from _complete(f, place, schedule[k])


def _complete(f: FusedOp, place: Place, sub: SubOp) -> Iterator[Issue]:
    if sub.type not in SUB_OP_TYPES:
        yield (
            (*place, "type"),
            f"sub-op of type {sub.type!r}" if sub.type else "a sub-op without type",
            f"known: {', '.join(sorted(SUB_OP_TYPES))}",
        )
    elif not ARITY[sub.type][0] <= len(sub.inputs) <= (ARITY[sub.type][1] or 8):
        yield (*place, "inputs"), f"{len(sub.inputs)} inputs for {sub.type}", f"it takes {ARITY[sub.type][0]}"
    for key, values in (("mblock", sub.mblock), ("ublock", sub.ublock)):
        if min(values) < 1:
            yield (
                (*place, key),
                f"{key} is not written" if values == (-1, -1) else f"{key} {list(values)}",
                "write positive numbers",
            )
    for name in sub.inputs:
        n, m = index_after(name, "input"), index_after(name, "intermed")
        if name != "dest" and n is None and m is None:
            yield (*place, "inputs"), f"input {name!r}", "inputs are inputN, intermedN and dest"
        elif (n is not None and n >= f.inputs) or (m is not None and m >= f.intermediates):
            yield (
                (*place, "inputs"),
                f"{name} does not exist",
                f"there are {f.inputs} inputs and {f.intermediates} intermediates",
            )
    m = index_after(sub.output, "intermed")
    if sub.output not in ("dest", "output") and m is None:
        yield (
            (*place, "output"),
            f"output {sub.output!r}" if sub.output else "no output",
            "outputs are dest, intermedN and output",
        )
    elif m is not None and m >= f.intermediates:
        yield (*place, "output"), f"{sub.output} does not exist", f"there are {f.intermediates} intermediates"


@rule("F3", "fused_op", "fused")
def matmul_place(c: CheckContext, f: FusedOp) -> Issues:
    """matmul and reduce end their schedule; with m_k > 1 they write an intermediate, and matmul input 1 is external."""
    for place, schedule, k in sub_ops(f):
        sub = schedule[k]
        if sub.type not in ("matmul", "reduce"):
            continue
        if k + 1 < len(schedule):
            yield place, f"{sub.type} is not the last sub-op of its schedule", "start a new schedule after it"
        passes = whole(sub, "m_k", 1)
        if passes > 1 and index_after(sub.output, "intermed") is None:
            yield (*place, "output"), f"{sub.type} with m_k {passes} writes {sub.output}", "write an intermediate"
        if sub.type == "matmul" and passes > 1 and len(sub.inputs) > 1 and index_after(sub.inputs[1], "input") is None:
            yield (
                (*place, "inputs"),
                f"input 1 of a matmul with m_k {passes} is {sub.inputs[1]}",
                "input 1 must be an input of the fused op, or m_k 1",
            )


@rule("F4", "fused_op", "fused")
def dest(c: CheckContext, f: FusedOp) -> Issues:
    """dest hands a value to the very next sub-op; not to matmul, reduce, maximum; not from sfpu binary ops."""
    bases = base_ops(c, f.id)
    for place, schedule, k in sub_ops(f):
        sub, before = schedule[k], schedule[k - 1] if k else None
        if "dest" in sub.inputs:
            if before is None or before.output != "dest":
                yield (
                    (*place, "inputs"),
                    "reads dest, but no sub-op just before it wrote dest",
                    "read an intermediate, or let the sub-op before write dest",
                )
            if sub.type in ("matmul", "reduce", "maximum"):
                yield (*place, "inputs"), f"{sub.type} reads dest", "hand it an intermediate"
            if c.facts.grayskull and "dest" in sub.inputs[1:]:
                yield (*place, "inputs"), "dest as input 1 on grayskull", "make it input 0"
        if sub.output == "dest":
            if k + 1 == len(schedule) or "dest" not in schedule[k + 1].inputs:
                yield (
                    (*place, "output"),
                    "writes dest, but the next sub-op does not read it",
                    "write an intermediate, or read dest next",
                )
            integer = any(op.acc_df is DataFormat.Int32 for op in bases)
            if sub.type in QUANT | {"maximum"} or (sub.type == "add" and integer):
                yield (*place, "output"), f"{sub.type} writes dest", "write an intermediate"


@rule("F5", "op", "fused")
def output_size(c: CheckContext, op: NetOp) -> Issues:
    """The sub-op that writes `output` has the blocking of the op; there is one."""
    fused = c.n.fused_ops.get(str(op.attributes.get("fused_op_id"))) if op.type == "fused_op" else None
    if fused is None:
        return
    writers = [sub for schedule in fused.schedules for sub in schedule if sub.output == "output"]
    if not writers:
        yield ("attributes", "fused_op_id"), f"no sub-op of fused op {fused.id!r} writes output", "let the last one do"
    for sub in writers:
        for key, mine, its in (("mblock", op.blocking.mblock, sub.mblock), ("ublock", op.blocking.ublock, sub.ublock)):
            if mine != its:
                yield key, f"{key} {list(mine)}, but sub-op {sub.name!r} writes {list(its)}", "make them equal"


@rule("F8", "fused_op", "fused")
def dims(c: CheckContext, f: FusedOp) -> Issues:
    """Sizes of intermediates and dest agree with the sub-ops that read them."""
    sizes: dict[str, SubOp] = {}
    for place, schedule, k in sub_ops(f):
        sub = schedule[k]
        for n, name in enumerate(sub.inputs):
            maker = sizes.get(name)
            if maker is not None and sub.type in SUB_OP_TYPES:
                issue = _fits(sub, n, maker)
                if issue:
                    yield (
                        (*place, "inputs"),
                        f"input {n} ({name}) is mblock {list(maker.mblock)} ublock {list(maker.ublock)}: {issue}",
                        f"sub-op {maker.name!r} and this one must agree",
                    )
        if sub.type == "reduce":
            rows = word(sub, "dim") == "r"
            axis = 0 if rows else 1
            if word(sub, "dim") in ("r", "c") and (sub.mblock[axis], sub.ublock[axis]) != (1, 1):
                yield (*place, "mblock"), f"a reduce over {word(sub, 'dim')} gives one tile there", "write 1 and 1"
        if sub.output == "dest" or index_after(sub.output, "intermed") is not None:
            sizes[sub.output] = sub


def _broadcast_factor(sub: SubOp, n: int, axis: int) -> int:
    factor = 1
    for tm in sub.tms.get(n, ()):
        for dim, times in tm.args if tm.name == "broadcast" else ():
            factor *= times if dim == "rc"[axis] else 1
    return factor


def _fits(sub: SubOp, n: int, maker: SubOp) -> str:
    """Why an input does not fit, or ""."""
    m_k, u_kt = whole(sub, "m_k", 1), whole(sub, "u_kt", 1)
    for axis, dim in enumerate("rc"):
        m, u = maker.mblock[axis], maker.ublock[axis]
        spread = m * u * _broadcast_factor(sub, n, axis)
        if sub.type == "matmul" and axis == 1 - n:  # the inner dimension
            if (m, u) != (m_k, u_kt) and not (spread != m * u and spread == m_k * u_kt):
                return f"inner dimension {m}x{u}, but m_k {m_k} and u_kt {u_kt}"
            continue
        if sub.type == "reduce" and word(sub, "dim") == dim:
            if "m_k" in sub.attributes and (m, u) != (m_k, u_kt):
                return f"reduced dimension {m}x{u}, but m_k {m_k} and u_kt {u_kt}"
            continue
        if spread != sub.mblock[axis] * sub.ublock[axis] or m > sub.mblock[axis] or u > sub.ublock[axis]:
            return f"{m}x{u} along {dim}, but the output is {sub.mblock[axis]}x{sub.ublock[axis]}"
    return ""


@rule("F9", "op", "fused")
def integer(c: CheckContext, op: NetOp) -> Issues:
    """An integer fused op (acc_df Int32): not on grayskull, of binary ops and nops only."""
    fused = c.n.fused_ops.get(str(op.attributes.get("fused_op_id"))) if op.type == "fused_op" else None
    if fused is None or op.acc_df is not DataFormat.Int32:
        return
    if c.facts.grayskull:
        yield "acc_df", "acc_df Int32 on grayskull", "use a floating format"
    for _, schedule, k in sub_ops(fused):
        if schedule[k].type not in BINARY | NOP:
            yield (
                "acc_df",
                f"acc_df Int32, but sub-op {schedule[k].name!r} is {schedule[k].type}",
                "integer fused ops have binary ops and nops only",
            )


@rule("F10", "fused_op", "fused")
def names(c: CheckContext, f: FusedOp) -> Issues:
    """Sub-op names are unique."""
    seen: set[str] = set()
    for place, schedule, k in sub_ops(f):
        name = schedule[k].name
        if name in seen:
            yield place, f"sub-op {name!r} is defined twice", "give each its own name"
        seen.add(name)


@rule("F11", "op", "fused")
def reduce_format(c: CheckContext, op: NetOp) -> Issues:
    """A fused op that reduces and accumulates in Float32 has no input with a 5-bit exponent."""
    fused = c.n.fused_ops.get(str(op.attributes.get("fused_op_id"))) if op.type == "fused_op" else None
    if fused is None or op.acc_df is not DataFormat.Float32:
        return
    if any(sub.type == "reduce" for schedule in fused.schedules for sub in schedule) and any(
        i.df.family == "a" for i in op.inputs
    ):
        yield "in_df", "a-format input of a fused reduce with acc_df Float32", "use a format of the b family"


@rule("F13", "op", "fused")
def sub_ublocks(c: CheckContext, op: NetOp) -> Issues:
    """Every ublock of a fused op fits half of dst."""
    fused = c.n.fused_ops.get(str(op.attributes.get("fused_op_id"))) if op.type == "fused_op" else None
    if fused is None:
        return
    limit = c.facts.dst_limit(op.acc_df)
    for _, schedule, k in sub_ops(fused):
        rt, ct = schedule[k].ublock
        if rt > 0 and ct > 0 and rt * ct > limit:
            yield (
                ("attributes", "fused_op_id"),
                f"sub-op {schedule[k].name!r} has ublock [{rt}, {ct}], {rt * ct} "
                f"tiles; dst holds {limit} with acc_df {op.acc_df}",
                f"make the ublock at most {limit} tiles",
            )


@rule("F14", "fused_op", "fused")
def sub_attributes(c: CheckContext, f: FusedOp) -> Issues:
    """Attributes of sub-ops have legal values: reduce names dim and type, matmul m_k and u_kt, relu a mode."""
    for place, schedule, k in sub_ops(f):
        sub = schedule[k]
        at = (*place, "attributes")
        if sub.type == "reduce" and (word(sub, "dim") not in ("r", "c") or word(sub, "type") != "max"):
            yield at, f"reduce of dim {word(sub, 'dim')!r} and type {word(sub, 'type')!r}", "write dim r or c, type max"
        if sub.type == "matmul" and (whole(sub, "m_k") < 1 or whole(sub, "u_kt") < 1):
            yield at, "a matmul without m_k and u_kt", "write both, positive"
        if "relu_mode" in sub.attributes and word(sub, "relu_mode").lower() not in ("min", "max", "none"):
            yield at, f"relu_mode {word(sub, 'relu_mode')!r}", "write min, max or none"
        if "vector" in sub.attributes and word(sub, "vector") not in ("r", "c", "rc"):
            yield at, f"vector {word(sub, 'vector')!r}", "write r, c or rc"


_FPU_BINARY = BINARY - QUANT - {"maximum"}


@rule("F6", "fused_op", "fused")
def broadcasts(c: CheckContext, f: FusedOp) -> Issues:
    """Fused ops broadcast, over r or c, an intermediate of one tile there; tile_broadcast is for fpu binary input 1."""
    producers: dict[str, SubOp] = {}
    for place, schedule, k in sub_ops(f):
        sub = schedule[k]
        for n, tms in sub.tms.items():
            source = sub.inputs[n] if n < len(sub.inputs) else ""
            at = (*place, f"input_{n}_tms")
            for tm in tms:
                yield from _tm(sub, n, source, tm, producers.get(source), at)
            dims = {dim for tm in tms if tm.name == "broadcast" for dim, _ in tm.args}
            if {"r", "c"} <= dims:
                yield at, "broadcast over r and c at once", "broadcast in two sub-ops"
        if index_after(sub.output, "intermed") is not None:
            producers[sub.output] = sub


def _tm(sub: SubOp, n: int, source: str, tm: Tm, maker: SubOp | None, at: Place) -> Iterator[Issue]:
    if tm.name == "tile_broadcast":
        if sub.type not in _FPU_BINARY or n != 1:
            yield at, f"tile_broadcast on input {n} of {sub.type}", "it is legal on input 1 of add, subtract, multiply"
        return
    if tm.name != "broadcast":
        yield at, f"{tm.name} inside a fused op", "only broadcast and tile_broadcast are legal there"
        return
    if index_after(source, "intermed") is None:
        yield (
            at,
            f"broadcast of {source or 'no input'}",
            "broadcast an intermediate: let a sub-op write it to intermedN first",
        )
        return
    for dim, _ in tm.args:
        if dim == "z":
            yield at, "broadcast over z inside a fused op", "only r and c are legal"
        elif maker is not None:
            yield from _broadcast_issues(sub, n, dim, maker, at)


def _broadcast_issues(sub: SubOp, n: int, dim: str, maker: SubOp, at: Place) -> Iterator[Issue]:
    (m, n_), (rt, ct) = maker.mblock, maker.ublock
    if dim == "r":
        if sub.type == "matmul":
            yield at, "broadcast over r into a matmul", "only c on input 0 is legal"
        elif m != 1 or rt != 1:
            yield (
                at,
                f"broadcast over r of {m * rt} rows of tiles",
                "the intermediate must have mblock_m 1 and ublock_rt 1",
            )
        elif sub.mblock[0] > 1 and n_ != 1:
            yield (
                at,
                f"broadcast over r grows mblock_m to {sub.mblock[0]} with mblock_n {n_}",
                "grow ublock_rt instead, or make mblock_n 1",
            )
    elif sub.type == "matmul":
        if n != 0 or ct != 1 or n_ not in (1, whole(sub, "m_k", 1)):
            yield (
                at,
                f"broadcast over c into matmul input {n}",
                "only on input 0, with ublock_ct 1 and mblock_n 1 or m_k",
            )
    elif n_ != 1 or ct != 1:
        yield (
            at,
            f"broadcast over c of {n_ * ct} columns of tiles",
            "the intermediate must have mblock_n 1 and ublock_ct 1",
        )


@dataclasses.dataclass
class _Live:
    sub: SubOp
    schedule: int
    place: Place


@rule("F7", "fused_op", "fused")
def intermediates(c: CheckContext, f: FusedOp) -> Issues:
    """An intermediate is written, read and popped, in that order, before it is written again; in the end all are."""
    live: dict[str, _Live] = {}
    for place, schedule, k in sub_ops(f):
        sub, s = schedule[k], int(place[1])
        for name in dict.fromkeys(sub.inputs):
            if index_after(name, "intermed") is None:
                continue
            if name not in live:
                yield (
                    (*place, "inputs"),
                    f"{name} is read, but not written before or popped already",
                    "write it first, pop it at its last use",
                )
            elif live[name].schedule != s:
                yield from _across(f, name, live[name], place)
        yield from _pops(sub, place)
        for name in (*(sub.pop or ()), *(sub.pop_last or ())):
            live.pop(name, None)
        if index_after(sub.output, "intermed") is not None:
            if sub.output in live:
                yield (
                    (*place, "output"),
                    f"{sub.output} is written again before it was popped",
                    f"pop it where it is read last after sub-op {live[sub.output].sub.name!r}",
                )
            live[sub.output] = _Live(sub, s, place)
    for name, item in live.items():
        yield item.place, f"{name} is never popped", f"write `pop: [{name}]` where it is read last"


def _across(f: FusedOp, name: str, item: _Live, place: Place) -> Iterator[Issue]:
    ends = f.schedules[item.schedule][-1].type
    if item.sub.type in ("matmul", "reduce") or item.sub.mblock == (1, 1) or ends not in ("matmul", "reduce"):
        return
    yield (
        (*place, "inputs"),
        f"{name} of mblock {list(item.sub.mblock)} is read in another schedule than that of "
        f"{item.sub.name!r}, which ends in a {ends}",
        "read it in the same schedule, or make its mblock [1, 1]",
    )


def _pops(sub: SubOp, place: Place) -> Iterator[Issue]:
    for key, names in (("pop", sub.pop), ("pop_last", sub.pop_last)):
        for name in names or ():
            if name not in sub.inputs:
                yield (*place, key), f"{key} of {name}, which is not an input", f"inputs are {', '.join(sub.inputs)}"
            if key == "pop_last" and index_after(name, "intermed") is None:
                yield (*place, key), f"pop_last of {name}", "only intermediates can be popped last"
    both = set(sub.pop or ()) & set(sub.pop_last or ())
    if both:
        yield (*place, "pop_last"), f"{', '.join(sorted(both))} in pop and pop_last", "keep one"
