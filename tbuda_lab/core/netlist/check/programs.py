"""Rules P: instructions, queue settings, variables."""

from __future__ import annotations

from collections.abc import Iterator

from tbuda_lab.core.netlist.check.context import CheckContext, ProgramSetting
from tbuda_lab.core.netlist.check.registry import Issue, Issues, rule
from tbuda_lab.core.netlist.op_spec import SETTING_FIELDS
from tbuda_lab.core.netlist.schema import (
    Allocate,
    Deallocate,
    EndLoop,
    Execute,
    Loop,
    Param,
    Program,
    Value,
    Var,
    VarInst,
)

_OPERANDS = {"set": 1, "add": 2, "mul": 2, "inc": 1, "incwrap": 2}
_FORBIDDEN = {"queue": ("wr_ptr_global",), "ram": ("rd_ptr_local",)}
_REQUIRED = {"queue": ("rd_ptr_global", "rd_ptr_local"), "ram": ("rd_ptr_global", "wr_ptr_global")}


@rule("P0", "netlist", "programs", "note")
def some_programs(c: CheckContext) -> Issues:
    """There is at least one program."""
    if not c.n.programs:
        yield ("programs",), "no programs", "write at least one program"


@rule("P1", "program", "programs")
def opcodes(c: CheckContext, p: Program) -> Issues:
    """varinst has a known opcode and as many operands as it takes."""
    for k, item in enumerate(p.instructions):
        if not isinstance(item, VarInst):
            continue
        if item.opcode not in _OPERANDS:
            yield str(k), f"unknown varinst opcode {item.opcode!r} for {item.out!r}", f"known: {', '.join(_OPERANDS)}"
        elif len(item.args) != _OPERANDS[item.opcode]:
            yield (
                str(k),
                f"{item.opcode} of {item.out!r} with {len(item.args)} operands",
                f"it takes {_OPERANDS[item.opcode]}",
            )


@rule("P2", "program", "programs")
def queue_names(c: CheckContext, p: Program) -> Issues:
    """Queues that are allocated and deallocated exist."""
    for k, item in enumerate(p.instructions):
        if isinstance(item, (Allocate, Deallocate)):
            for name in item.queues:
                if name not in c.n.queues:
                    yield str(k), f"queue {name!r} does not exist", "name a queue of the queues section"


@rule("P3", "program", "programs")
def graph_names(c: CheckContext, p: Program) -> Issues:
    """Graphs that are executed exist."""
    for k, item in enumerate(p.instructions):
        if isinstance(item, Execute) and item.graph not in c.n.graphs:
            yield str(k), f"graph {item.graph!r} does not exist", f"there are {', '.join(list(c.n.graphs)[:8])}"


@rule("P4", "setting", "programs")
def setting_target(c: CheckContext, s: ProgramSetting) -> Issues:
    """A setting is for a queue that exists and that the executed graph reads or writes; its fields are known."""
    if s.queue not in c.n.queues:
        yield "", f"setting for queue {s.queue!r}, which does not exist", "name a queue of the queues section"
    elif s.graph in c.n.graphs:
        reads = any(r.graph.name == s.graph for r in c.readers.get(s.queue, ()))
        writes = c.n.queues[s.queue].input in c.n.graphs[s.graph].ops
        if not reads and not writes:
            yield "", f"setting for queue {s.queue!r}, which graph {s.graph!r} neither reads nor writes", "leave it out"
    for key in s.setting.fields:
        if key not in SETTING_FIELDS:
            yield key, f"unknown setting {key!r}", f"known: {', '.join(SETTING_FIELDS)}"


@rule("P5", "setting", "programs")
def pointers(c: CheckContext, s: ProgramSetting) -> Issues:
    """A queue has rd_ptr_local and rd_ptr_global, a ram rd_ptr_global and wr_ptr_global."""
    kind = c.n.queues[s.queue].type if s.queue in c.n.queues else ""
    for key in _REQUIRED.get(kind, ()):
        if key not in s.setting.fields:
            yield "", f"no {key} for {kind} {s.queue!r}", f"a {kind} needs {' and '.join(_REQUIRED[kind])}"
    for key in _FORBIDDEN.get(kind, ()):
        if key in s.setting.fields:
            yield key, f"{key} for {kind} {s.queue!r}", f"a {kind} has {' and '.join(_REQUIRED[kind])}"


@rule("P6", "setting", "programs")
def epilogue(c: CheckContext, s: ProgramSetting) -> Issues:
    """A queue that an op writes has no epilogue."""
    queue = c.n.queues.get(s.queue)
    if queue is None or queue.type != "queue" or queue.input not in c.ops:
        return
    if s.setting.fields.get("epilogue") is True:
        yield (
            "epilogue",
            f"epilogue for queue {s.queue!r}, which op {queue.input!r} writes",
            "use a ram, or write false",
        )


@rule("P7", "setting", "programs")
def autoincs(c: CheckContext, s: ProgramSetting) -> Issues:
    """Local and global read pointer advance by the same number if both are made to."""
    local, both = (s.setting.fields.get(key, 0) for key in ("rd_ptr_autoinc", "global_rdptr_autoinc"))
    if isinstance(local, int) and isinstance(both, int) and local and both and int(local) != int(both):
        yield (
            "global_rdptr_autoinc",
            f"rd_ptr_autoinc {local}, global_rdptr_autoinc {both}",
            "make them equal, or one 0",
        )


@rule("P8", "program", "programs")
def settings_complete(c: CheckContext, p: Program) -> Issues:
    """Every host-fed queue that an executed graph reads has a setting, and so has what gradient ops write."""
    for k, item in enumerate(p.instructions):
        graph = c.n.graphs.get(item.graph) if isinstance(item, Execute) else None
        if not isinstance(item, Execute) or graph is None:
            continue
        settings = item.settings or {}
        read = dict.fromkeys(i.source for op in graph.ops.values() for i in op.inputs)
        for name in read:
            queue = c.n.queues.get(name)
            if queue is not None and queue.type == "queue" and queue.input == "HOST" and name not in settings:
                yield (
                    str(k),
                    f"no setting for queue {name!r}, which graph {graph.name!r} reads",
                    f"write `{name}: {{rd_ptr_local: ..., rd_ptr_global: ...}}`",
                )
        for op in graph.ops.values():
            for queue in c.queues_by_writer.get(op.name, ()) if op.gradient_op else ():
                if queue.name not in settings:
                    yield (
                        str(k),
                        f"no setting for {queue.type} {queue.name!r}, which gradient op {op.name!r} writes",
                        f"write `{queue.name}: {{prologue: true, epilogue: true, zero: ..., ...}}`",
                    )


@rule("P10", "program", "programs")
def param_first(c: CheckContext, p: Program) -> Issues:
    """param is the first instruction, once; no parameter is declared twice."""
    for k, item in enumerate(p.instructions):
        if isinstance(item, Param):
            if k:
                yield str(k), "param is not the first instruction", "move it to the front"
            for name in {n for n in item.names if item.names.count(n) > 1}:
                yield str(k), f"parameter {name!r} is declared twice", "declare each once"


def _known_counts(p: Program) -> dict[int, int]:
    """{instruction: turns} of the loops over a variable whose value is plain to see: a number it was declared with or
    set to, not in a loop, and nothing that depends on a parameter, on arithmetic or on an earlier run."""
    statics = {name for item in p.instructions if isinstance(item, Var) and item.static for name in item.values}
    inside, looped = 0, set[str]()
    for item in p.instructions:
        inside += isinstance(item, Loop) - isinstance(item, EndLoop)
        if isinstance(item, VarInst) and (inside > 0 or item.out in statics):
            looped.add(item.out)
    value: dict[str, int] = {}
    counts: dict[int, int] = {}
    for k, item in enumerate(p.instructions):
        match item:
            case Var(_, values):
                value.update(
                    (name, 0 if first is None else int(first))
                    for name, first in values.items()
                    if first is None or isinstance(first, int)
                )
            case VarInst(out, "set", [int(number)]):
                value[out] = number
            case VarInst(out):
                value.pop(out, None)
            case Loop(str(name)) if name in value and name not in looped:
                counts[k] = value[name]
    return counts


@rule("P13", "program", "programs")
def loops(c: CheckContext, p: Program) -> Issues:
    """Loops run at least once and are closed by an endloop each."""
    open_loops: list[int] = []
    counts = _known_counts(p)
    for k, item in enumerate(p.instructions):
        if isinstance(item, Loop):
            open_loops.append(k)
            count = item.count if not isinstance(item.count, str) else counts.get(k)
            if count is not None and count < 1:
                named = f" ({item.count})" if isinstance(item.count, str) else ""
                yield str(k), f"loop of {count}{named}", "a loop runs once or more"
        elif isinstance(item, EndLoop):
            if not open_loops:
                yield str(k), "endloop without loop", "drop it"
            else:
                open_loops.pop()


@rule("P14", "program", "programs", "strict")
def loops_closed(c: CheckContext, p: Program) -> Issues:
    """Every loop has its endloop; without one the body runs once."""
    open_loops: list[int] = []
    for k, item in enumerate(p.instructions):
        if isinstance(item, Loop):
            open_loops.append(k)
        elif isinstance(item, EndLoop) and open_loops:
            open_loops.pop()
    for k in open_loops:
        yield str(k), "loop without endloop", "write `- endloop`"


@rule("P15", "program", "programs")
def variables(c: CheckContext, p: Program) -> Issues:
    """Variables are declared before they are used, and only once; `varinst` with set declares too."""
    declared: dict[str, str] = {}
    loop_counts: list[Value | None] = []
    counts = _known_counts(p)
    for k, item in enumerate(p.instructions):
        match item:
            case Param(names):
                declared.update((name, "param") for name in names)
            case Var(static, values):
                kind = "staticvar" if static else "var"
                for name, value in values.items():
                    old = declared.get(name)
                    if old is not None and not static:
                        yield str(k), f"{kind} {name!r} hides the {old} of that name", "give it another name"
                    elif not static and any(isinstance(n, int) and n > 1 for n in loop_counts):
                        yield (
                            str(k),
                            f"var {name!r} is declared again in every round of the loop",
                            "declare it before the loop",
                        )
                    declared[name] = kind
                    if value is not None:
                        yield from _check_value(value, declared, str(k), f"the value of {name!r}")
            case VarInst(out, opcode, args):
                if opcode == "set" and isinstance(out, str) and out.startswith("$"):
                    declared.setdefault(out, "var")  # set declares what is not declared yet
                yield from _check_value(out, declared, str(k), "varinst", variable=True)
                for value in args:
                    yield from _check_value(value, declared, str(k), f"varinst {opcode}")
                if opcode == "incwrap" and len(args) == 2 and isinstance(args[1], (int, float)) and args[1] < 1:
                    yield str(k), f"incwrap modulo {args[1]}", "wrap at a positive number"
            case Loop(count):
                loop_counts.append(counts.get(k) if isinstance(count, str) else count)
                yield from _check_value(count, declared, str(k), "the loop count")
            case EndLoop():
                del loop_counts[-1:]
            case Execute(_, settings):
                for queue, setting in (settings or {}).items():
                    for key, value in setting.fields.items():
                        yield from _check_value(value, declared, (str(k), "queue_settings", queue, key), key)


def _check_value(
    value: Value, declared: dict[str, str], where: str | tuple[str, ...], what: str, *, variable: bool = False
) -> Iterator[Issue]:
    if isinstance(value, float):
        yield where, f"{what}: {value} is not a whole number", "write a whole number or a variable"
    elif isinstance(value, str) and value not in declared:
        if value.startswith("$"):
            yield where, f"{what}: variable {value!r} is not declared", "declare it with param, var or staticvar"
        else:
            yield where, f"{what}: {value!r} is neither a number nor a variable", "variables start with $"
    elif variable and not isinstance(value, str):
        yield where, f"{what}: {value} is not a variable", "name the variable that is to be changed"
