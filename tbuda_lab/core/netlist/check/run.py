"""Running the rules over a netlist. Findings of op rules are cached as long as an op and what it reads are the same
objects."""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, NoReturn, cast

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.netlist.check.context import CheckContext
from tbuda_lab.core.netlist.check.fused import base_ops
from tbuda_lab.core.netlist.check.registry import (
    ARCHS,
    PROFILES,
    Issue,
    NetlistFacts,
    Rule,
    facts_of,
    leading_arch,
    ordered_rules,
)
from tbuda_lab.core.netlist.expand import expand
from tbuda_lab.core.netlist.schema import Finding, Netlist, NetOp, Queue, QueueBuffer
from tbuda_lab.core.netlist.tables import Tables


class _Beyond(Exception):
    """A rule asked for more than an op and its sources."""


class _Only:
    """Lookups of a mapping by the names of an op's sources, and nothing else."""

    def __init__(self, names: Collection[str], whole: Mapping[str, Any]) -> None:
        self._names, self._whole = names, whole

    def __getitem__(self, name: str) -> Any:
        return self._whole[self._checked_name(name)]

    def __contains__(self, name: str) -> bool:
        return self._checked_name(name) in self._whole

    def get(self, name: str, default: Any = None) -> Any:
        return self._whole.get(self._checked_name(name), default)

    def _checked_name(self, name: str) -> str:
        if name not in self._names:
            raise _Beyond(name)
        return name

    def _no(self, *_: Any) -> NoReturn:
        raise _Beyond

    __iter__ = __len__ = __bool__ = __eq__ = __hash__ = __reversed__ = __or__ = _no

    def __getattr__(self, name: str) -> NoReturn:
        raise _Beyond(name)


class _Addresses:
    """The buffers of a queue, which may not be looked at."""

    def _no(self, *_: Any) -> NoReturn:
        raise _Beyond("buffers")

    __iter__ = __len__ = __bool__ = __eq__ = __hash__ = __getitem__ = __contains__ = __reversed__ = __add__ = _no

    def __getattr__(self, name: str) -> NoReturn:
        raise _Beyond(name)


class _Queues:
    """A netlist of which only the queues that an op reads can be seen, and the fused op that it runs."""

    def __init__(self, queues: _Only, fused_ops: _Only) -> None:
        self.queues, self.fused_ops = queues, fused_ops

    def __getattr__(self, name: str) -> NoReturn:
        raise _Beyond(name)


class Near(CheckContext):
    """A context that knows the device, and of the netlist the sources of one op. queues: as they are shown; preloaded:
    those with a prologue that the op reads."""

    def __init__(
        self, c: CheckContext, op: NetOp, queues: Mapping[str, Queue], preloaded: frozenset[str], count: int
    ) -> None:
        names = frozenset(i.source for i in op.inputs)
        self.facts = c.facts
        fused = frozenset((str(op.attributes.get("fused_op_id")),))
        self.n = cast(Netlist, _Queues(_Only(names, queues), _Only(fused, c.n.fused_ops)))
        self.__dict__["ops"] = _Only(names, c.ops)
        self._about, self._preloaded, self._count = op, preloaded, count

    def preloads(self, op: NetOp) -> frozenset[str]:
        if op is not self._about:
            raise _Beyond(op.name)
        return self._preloaded

    def input_count(self, op: NetOp) -> int:
        if op is not self._about:
            raise _Beyond(op.name)
        return self._count


@dataclasses.dataclass(frozen=True)
class OpFindings:
    """What the rules found in an op, by number of the rule; `beyond`: those that have to run again. sources (with the
    fused op that it runs), preloaded_queues, count (inputs of its graph): what else was looked at."""

    op: NetOp
    sources: tuple[Any, ...]
    preloaded_queues: frozenset[str]
    count: int
    issues: tuple[tuple[int, tuple[Issue, ...]], ...]
    beyond: tuple[int, ...]


class CheckCache:
    """Findings about the ops of the last netlist, by name. Elements of a netlist that was checked with it must not
    be changed in place."""

    def __init__(self) -> None:
        self._findings: dict[str, OpFindings] = {}
        self._shown: dict[str, tuple[Queue, Queue]] = {}  # a queue, and what is shown of it
        self._about: tuple[NetlistFacts, tuple[str, ...]] | None = None

    def check(self, c: CheckContext, rules: Sequence[Rule], ops: Iterable[NetOp]) -> list[OpFindings]:
        """For each op what `rules`, all of scope "op", find in it on the device of `c`."""
        about = c.facts, tuple(rule.id for rule in rules)
        if about != self._about:
            self._about, self._findings, self._shown = about, {}, {}
        queues, producers = self._queues(c), c.ops
        findings = {}
        out: list[OpFindings] = []
        for op in ops:
            sources: tuple[Any, ...] = tuple([queues.get(i.source) or producers.get(i.source) for i in op.inputs])
            # a name that is a queue and an op: the rules may look at both, so both must be the same
            sources += tuple([producers[i.source] for i in op.inputs if i.source in queues and i.source in producers])
            if op.type == "fused_op":
                sources += (c.n.fused_ops.get(str(op.attributes.get("fused_op_id"))),)
            seen = c.preloads(op), c.input_count(op)
            entry = self._findings.get(op.name)
            if (
                entry is None
                or entry.op is not op
                or (entry.preloaded_queues, entry.count) != seen
                or not _same(entry.sources, sources)
            ):
                entry = _look(c, rules, op, sources, queues, *seen)
            findings[op.name] = entry
            out.append(entry)
        self._findings = findings
        return out

    def _queues(self, c: CheckContext) -> dict[str, Queue]:
        """What is shown of the queues: the same objects as before where only addresses differ."""
        shown: dict[str, tuple[Queue, Queue]] = {}
        for name, queue in c.n.queues.items():
            before = self._shown.get(name)
            if before is None or not (before[0] is queue or _alike(before[0], queue)):
                before = queue, dataclasses.replace(queue, buffers=cast(list[QueueBuffer], _Addresses()))
            shown[name] = queue, before[1]
        self._shown = shown
        return {name: face for name, (_, face) in shown.items()}


def _alike(a: Queue, b: Queue) -> bool:
    """Whether two queues differ in their addresses at most."""
    one, other = vars(a), vars(b)
    return {**one, "buffers": None} == {**other, "buffers": None}


def _same(a: tuple[Any, ...], b: tuple[Any, ...]) -> bool:
    return len(a) == len(b) and all([x is y for x, y in zip(a, b, strict=True)])


def _look(
    c: CheckContext,
    rules: Sequence[Rule],
    op: NetOp,
    sources: tuple[Any, ...],
    queues: Mapping[str, Queue],
    preloaded: frozenset[str],
    count: int,
) -> OpFindings:
    near = Near(c, op, queues, preloaded, count)
    issues: list[tuple[int, tuple[Issue, ...]]] = []
    beyond: list[int] = []
    for number, rule in enumerate(rules):
        try:
            failures = tuple(rule.check(near, op))
        except _Beyond:
            beyond.append(number)
            continue
        if failures:
            issues.append((number, failures))
    return OpFindings(op, sources, preloaded, count, tuple(issues), tuple(beyond))


Where = tuple[str, ...]


def check(
    n: Netlist, arch: str | DeviceSpec | None = None, profile: str = "backend", cache: CheckCache | None = None
) -> list[Finding]:
    """All findings, errors of reading first, then rule by rule as the backend works.

    `profile` decides what is an error: "backend" what no machine can run: what parser, router and golden model refuse,
    shapes that do not fit, cores and channels that do not exist, queues that overlap, buffers beyond L1; "strict" also
    what they let pass and ought to refuse (loops without end, inputs that nothing reads, addresses that are not
    aligned). What only "strict" refuses is a warning in "backend".

    `arch` (an arch, a board, a device descriptor file or a device) chooses among the archs of the netlist. Without it
    the first one decides, but wormhole_b0 where the list has it beside its early stepping `wormhole`; what only the
    others refuse is a warning. Raises ValueError for an unknown profile; no netlist makes it raise.

    `cache`: of checks of netlists that share elements with this one; the findings are the same, sooner.
    """
    if profile not in PROFILES:
        raise ValueError(f"unknown profile {profile!r}; one of {', '.join(PROFILES)}")
    findings = list(n.problems)
    chosen, others = _archs(n, arch, findings)
    tables = Tables(expand(n, chosen.align))
    first = list(_run(CheckContext(tables, chosen), profile, cache))
    findings += first
    already = {(f.rule, f.where) for f in first}
    for other in others:
        for f in _run(CheckContext(tables, other), profile):
            if (f.rule, f.where) not in already:
                already.add((f.rule, f.where))
                message = f"on {other.arch}: {f.message}"
                findings.append(dataclasses.replace(f, severity="warning", message=message))
    return findings


def _archs(
    n: Netlist, arch: str | DeviceSpec | None, findings: list[Finding]
) -> tuple[NetlistFacts, list[NetlistFacts]]:
    """The device that decides, and the others that are listed."""
    default = facts_of(leading_arch(n))
    if arch is None:
        return default, [facts_of(a) for a in dict.fromkeys(n.archs) if a in ARCHS and a != default.arch]
    span = n.span(("devices", "arch"))
    place = (span.line, span.column) if span else (None, None)
    try:
        facts = NetlistFacts(arch.arch, arch) if isinstance(arch, DeviceSpec) else facts_of(arch)
    except TbudaError as error:
        findings.append(
            Finding(
                "error",
                "D3",
                ("devices", "arch"),
                f"{arch!r} is not a device: {error}",
                f"name an arch ({', '.join(ARCHS)}), a board or a descriptor file",
                *place,
            )
        )
        return default, []
    if n.arch_as_list and facts.arch not in n.archs:
        findings.append(
            Finding(
                "error",
                "D3",
                ("devices", "arch"),
                f"the netlist is not for {facts.arch}",
                f"it is for {', '.join(n.arch)}",
                *place,
            )
        )
    return facts, []


def _run(c: CheckContext, profile: str, cache: CheckCache | None = None) -> Iterator[Finding]:
    elements = _elements(c)
    rules = ordered_rules()
    selected = {} if cache is None else _findings_by_rule(c, rules, cache)
    for rule in rules:
        severity = rule.severity(profile)
        if rule.id in selected:
            for prefix, op, issues in selected[rule.id]:
                yield from _findings(c, rule, severity, prefix, rule.check(c, op) if issues is None else issues)
            continue
        for prefix, arguments in elements[rule.scope]:
            yield from _findings(c, rule, severity, prefix, rule.check(c, *arguments))


def _findings_by_rule(
    c: CheckContext, rules: list[Rule], cache: CheckCache
) -> dict[str, list[tuple[Where, NetOp, tuple[Issue, ...] | None]]]:
    """By op rule the ops that it has something to say of; None where it has to look again."""
    of_ops = [rule for rule in rules if rule.scope == "op"]
    findings: list[list[tuple[Where, NetOp, tuple[Issue, ...] | None]]] = [[] for _ in of_ops]
    pairs = list(c.n.ops())
    for (graph, op), verdict in zip(pairs, cache.check(c, of_ops, (op for _, op in pairs)), strict=True):
        where = ("graphs", graph.name, op.name)
        for number in verdict.beyond:
            findings[number].append((where, op, None))
        for number, issues in verdict.issues:
            findings[number].append((where, op, issues))
    return {rule.id: rule_findings for rule, rule_findings in zip(of_ops, findings, strict=True)}


def _findings(c: CheckContext, rule: Rule, severity: str, prefix: Where, issues: Iterable[Issue]) -> Iterator[Finding]:
    for place, message, fix in issues:
        if rule.scope == "fused_op":
            message += _users(c, prefix[1])
        below = (place,) if isinstance(place, str) else place
        where = prefix + tuple(part for part in below if part)
        span = c.n.span(where)
        yield Finding(severity, rule.id, where, message, fix, *(span or (None, None)))


def _users(c: CheckContext, id: str) -> str:
    """The ops that run a fused op."""
    names = [op.name for op in base_ops(c, id)]
    return f" (fused op of {', '.join(map(repr, names[:4]))}{', ...' if len(names) > 4 else ''})" if names else ""


def _elements(c: CheckContext) -> dict[str, list[tuple[Where, tuple[Any, ...]]]]:
    """What each scope runs over: (path of the element, arguments of the rule)."""
    n = c.n
    return {
        "netlist": [((), ())],
        "queue": [(("queues", q.name), (q,)) for q in n.queues.values()],
        "graph": [(("graphs", g.name), (g,)) for g in n.graphs.values()],
        "op": [(("graphs", g.name, op.name), (op,)) for g, op in n.ops()],
        "fused_op": [(("fused_ops", f.id), (f,)) for f in n.fused_ops.values()],
        "program": [(("programs", p.name), (p,)) for p in n.programs],
        "setting": [(("programs", s.program.name, str(s.index), "queue_settings", s.queue), (s,)) for s in c.settings],
    }
