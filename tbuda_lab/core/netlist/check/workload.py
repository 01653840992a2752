"""Rules P11, P12 and G: constants, temporal epochs, and what the golden model refuses at run time."""

from __future__ import annotations

import itertools

from tbuda_lab.core.netlist.check.context import CheckContext, ProgramSetting
from tbuda_lab.core.netlist.check.registry import Issues, rule
from tbuda_lab.core.netlist.schema import (
    Allocate,
    Deallocate,
    EndLoop,
    Execute,
    Loop,
    Program,
    QueueSetting,
    Var,
    VarInst,
)


@rule("P11", "program", "workload")
def constants(c: CheckContext, p: Program) -> Issues:
    """Constants (`$c_...`) do not change inside loops; a static one is only ever set."""
    depth, statics = 0, set[str]()
    for k, item in enumerate(p.instructions):
        match item:
            case Loop():
                depth += 1
            case EndLoop():
                depth -= 1
            case Var(static, values):
                statics.update(values if static else ())
                for name in values:
                    if depth > 0 and name.startswith("$c_"):
                        yield str(k), f"constant {name!r} is declared inside a loop", "declare it before the loop"
            case VarInst(out, opcode, args) if out.startswith("$c_"):
                if depth > 0:
                    yield str(k), f"constant {out!r} is changed inside a loop", "constants start with $c_: rename it"
                if out in statics and opcode != "set":
                    yield str(k), f"static constant {out!r} is changed by {opcode}", "only set is legal"
                moving = [a for a in args if isinstance(a, str) and a in statics and not a.startswith("$c_")]
                if out in statics and moving:
                    yield (
                        str(k),
                        f"static constant {out!r} is set from {moving[0]!r}, which changes",
                        "set it from a constant",
                    )


def _links(c: CheckContext) -> dict[str, tuple[str, ...]]:
    """The linked group of each graph that has one."""
    return {g: group for group in c.linked_graphs if len(group) > 1 for g in group}


def _implied_groups(c: CheckContext) -> list[tuple[str, ...]]:
    """The groups that only follow from the order of executes, on archs where that merges graphs."""
    if c.facts.grayskull:
        return []
    linked = set(c.linked_graphs)
    return [group for group in c.merged_graphs if group not in linked]


@rule("P12", "program", "workload")
def epochs_whole(c: CheckContext, p: Program) -> Issues:
    """Graphs linked op to op are executed together, none twice; between them only graphs that run at the same time."""
    beside = {} if c.facts.grayskull else {g: frozenset(group) for group in c.merged_graphs for g in group}
    yield from _whole(p, _links(c), beside, "linked")


@rule("P12.merged", "program", "workload", "strict")
def merged_whole(c: CheckContext, p: Program) -> Issues:
    """Graphs that one program runs side by side (neighbours on different chips) run together in every program."""
    groups = {g: group for group in _implied_groups(c) for g in group}
    if any(isinstance(item, Execute) and item.graph in groups for item in p.instructions):
        yield from _whole(p, groups, {}, "merged")


def _whole(p: Program, links: dict[str, tuple[str, ...]], beside: dict[str, frozenset[str]], how: str) -> Issues:
    """links: the group of a graph; beside: graphs on other chips that may be executed before its group is complete."""
    pending: dict[tuple[str, ...], list[str]] = {}
    for k, item in enumerate(p.instructions):
        if not isinstance(item, Execute):
            continue
        group = links.get(item.graph, (item.graph,))
        for other, run in list(pending.items()):
            if other != group and item.graph not in beside.get(run[0], ()):
                missing = [g for g in other if g not in run]
                yield (
                    str(k),
                    f"graph {item.graph!r} is executed before {', '.join(map(repr, missing))}, which run "
                    f"together with {run[0]!r}",
                    f"execute {how} graphs one after the other",
                )
                del pending[other]
        run = pending.setdefault(group, [])
        if item.graph in run:
            yield (
                str(k),
                f"graph {item.graph!r} is executed again before the graphs {how} with it",
                f"execute {how} graphs once each",
            )
            continue
        run.append(item.graph)
        if len(run) == len(group):
            del pending[group]
    for group, run in pending.items():
        missing = [g for g in group if g not in run]
        yield "", f"{', '.join(map(repr, missing))} never run, but are {how} with {run[0]!r}", "execute them too"


@rule("G5.group", "netlist", "workload")
def epoch_members(c: CheckContext) -> Issues:
    """Graphs linked op to op have one input_count and a chip of their own each."""
    for group in c.linked_graphs:
        graphs = [c.n.graphs[g] for g in group]
        if len({g.input_count for g in graphs}) > 1:
            yield (
                ("graphs", graphs[-1].name, "input_count"),
                "linked graphs have different input_count: "
                + ", ".join(f"{g.name} {g.input_count}" for g in graphs[:6]),
                "make them equal",
            )
        chips: dict[str, str] = {}
        for g in graphs:
            other = chips.setdefault(str(g.target_device), g.name)
            if other != g.name:
                yield (
                    ("graphs", g.name, "target_device"),
                    f"linked graphs {other!r} and {g.name!r} are both on chip {g.target_device}",
                    "put a queue between them, or move one",
                )


@rule("G5.merged", "netlist", "workload", "strict")
def merged_members(c: CheckContext) -> Issues:
    """Graphs that run side by side, as neighbours in a program on different chips, have one input_count."""
    for group in _implied_groups(c):
        graphs = [c.n.graphs[g] for g in group]
        odd = next((g for g in graphs if g.input_count != graphs[0].input_count), None)
        if odd is not None:
            yield (
                ("graphs", odd.name, "input_count"),
                f"input_count {odd.input_count}, but "
                f"{graphs[0].input_count} in graph {graphs[0].name!r}, which runs at the same time",
                "make them equal, or execute a graph of the same chips in between",
            )


@rule("P12.programs", "netlist", "workload", "strict")
def programs_apart(c: CheckContext) -> Issues:
    """What a program runs last shares a chip with what another runs first; else the two are merged into one epoch."""
    if c.facts.grayskull:
        return
    group_of = {g: group for group in c.merged_graphs for g in group}
    ends: list[tuple[Program, str, str]] = []
    for p in c.n.programs:
        run = [item.graph for item in p.instructions if isinstance(item, Execute) and item.graph in group_of]
        ends += [(p, run[0], run[-1])] if run else []
    for (one, _, last), (other, first, _) in itertools.permutations(ends, 2):
        if not _chips(c, group_of[last]) & _chips(c, group_of[first]):
            yield (
                ("programs", one.name),
                f"graph {last!r}, which it runs last, and graph {first!r}, which program "
                f"{other.name!r} runs first, share no chip: they become one epoch",
                "begin or end with an empty graph on every other chip, executed directly before or after it",
            )


def _chips(c: CheckContext, group: tuple[str, ...]) -> set[int]:
    """The chips of graphs."""
    targets = (c.n.graphs[name].target_device for name in group)
    return {chip for target in targets for chip in (target if isinstance(target, list) else [target])}


def _differ(one: QueueSetting, other: QueueSetting) -> bool:
    """Whether two settings surely differ; a variable may hold what the other setting says."""
    for key in {**one.fields, **other.fields}:
        if key == "rd_ptr_autoinc" and not (key in one.fields and key in other.fields):
            continue  # its default depends on the kind of queue
        a, b = one.fields.get(key, 0), other.fields.get(key, 0)
        if a != b and not isinstance(a, str) and not isinstance(b, str):
            return True
    return False


@rule("G5.settings", "program", "workload")
def same_settings(c: CheckContext, p: Program) -> Issues:
    """Settings of one queue in graphs that run together are equal."""
    links = _links(c)
    seen: dict[str, QueueSetting] = {}
    current: tuple[str, ...] = ()
    done: set[str] = set()
    for k, item in enumerate(p.instructions):
        if not isinstance(item, Execute):
            continue
        group = links.get(item.graph, (item.graph,))
        if group != current or item.graph in done:
            seen, current, done = {}, group, set()
        done.add(item.graph)
        for name, setting in (item.settings or {}).items():
            if name in seen and _differ(seen[name], setting):
                yield (
                    (str(k), "queue_settings", name),
                    f"queue {name!r} is set otherwise for a graph that runs together with {item.graph!r}",
                    "make the settings equal",
                )
            seen[name] = setting


@rule("G1.zero", "setting", "golden")
def zero_needs_prologue(c: CheckContext, s: ProgramSetting) -> Issues:
    """zero clears what a prologue loads: it needs one."""
    if s.setting.fields.get("zero") is True and s.setting.fields.get("prologue", False) is False:
        yield "zero", "zero without prologue", "write `prologue: true`"


@rule("G2.wrptr", "setting", "golden")
def ram_autoinc(c: CheckContext, s: ProgramSetting) -> Issues:
    """A ram whose write pointer advances has no prologue, epilogue or zero."""
    queue, fields = c.n.queues.get(s.queue), s.setting.fields
    if queue is None or queue.type != "ram" or not fields.get("global_wrptr_autoinc", 0):
        return
    for key in ("prologue", "epilogue", "zero"):
        if fields.get(key) is True:
            yield (
                key,
                f"{key} for a ram with global_wrptr_autoinc {fields['global_wrptr_autoinc']}",
                "drop one of the two",
            )


@rule("G3.stream", "setting", "golden")
def streaming(c: CheckContext, s: ProgramSetting) -> Issues:
    """A streamed queue holds a whole number of executes: entries a multiple of input_count."""
    queue, graph, fields = c.n.queues.get(s.queue), c.n.graphs.get(s.graph), s.setting.fields
    if queue is None or graph is None or queue.type != "queue" or queue.entries < 1 or graph.input_count < 1:
        return
    still = (fields.get("prologue", False), fields.get("epilogue", False), fields.get("global_rdptr_autoinc", 0))
    step = fields.get("rd_ptr_autoinc", 1)
    reads = any(r.graph is graph for r in c.readers.get(s.queue, ()))
    if any(still) or isinstance(step, str) or not step or not reads:
        return
    if queue.entries % graph.input_count:
        yield (
            "",
            f"queue {s.queue!r} of {queue.entries} entries, graph {s.graph!r} of input_count {graph.input_count}",
            "make entries a multiple of input_count",
        )


@rule("G4.bound", "setting", "golden")
def bound_to_param(c: CheckContext, s: ProgramSetting) -> Issues:
    """prologue and epilogue do not depend on a parameter of the program."""
    params = c.params(s.program)
    for key in ("prologue", "epilogue"):
        if s.setting.fields.get(key) in params:
            yield key, f"{key} is bound to parameter {s.setting.fields[key]!r}", "write true or false"


@rule("G7.lifetime", "netlist", "golden")
def lifetimes(c: CheckContext) -> Issues:
    """A dynamic queue is allocated before it is deallocated, and not twice."""
    alive: set[str] = set()
    for program in c.n.programs:
        for k, item in enumerate(program.instructions):
            where = ("programs", program.name, str(k))
            if isinstance(item, Allocate):
                for name in item.queues:
                    if name in alive:
                        yield where, f"queue {name!r} is allocated already", "deallocate it first"
                    alive.add(name)
            elif isinstance(item, Deallocate):
                for name in item.queues:
                    if name not in alive:
                        yield where, f"queue {name!r} is not allocated", "allocate it first"
                    alive.discard(name)
