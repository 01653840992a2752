"""Running the rules over a netlist."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any

from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.netlist.check.cache import CheckCache
from tbuda_lab.core.netlist.check.context import CheckContext
from tbuda_lab.core.netlist.check.facts import ARCHS, NetlistFacts, facts_of, leading_arch
from tbuda_lab.core.netlist.check.fused import base_ops
from tbuda_lab.core.netlist.check.registry import PROFILES, Issue, Rule, ordered
from tbuda_lab.core.netlist.expand import expand
from tbuda_lab.core.netlist.schema import Finding, Netlist, NetOp
from tbuda_lab.core.netlist.tables import Tables

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
        findings.append(Finding("error", "D3", ("devices", "arch"), f"{arch!r} is not a device: {error}",
                                f"name an arch ({', '.join(ARCHS)}), a board or a descriptor file", *place))
        return default, []
    if n.arch_as_list and facts.arch not in n.archs:
        findings.append(Finding("error", "D3", ("devices", "arch"), f"the netlist is not for {facts.arch}",
                                f"it is for {', '.join(n.arch)}", *place))
    return facts, []


def _run(c: CheckContext, profile: str, cache: CheckCache | None = None) -> Iterator[Finding]:
    elements = _elements(c)
    rules = ordered()
    selected = {} if cache is None else _selected(c, rules, cache)
    for rule in rules:
        severity = rule.severity(profile)
        if rule.id in selected:
            for prefix, op, issues in selected[rule.id]:
                yield from _findings(c, rule, severity, prefix, rule.check(c, op) if issues is None else issues)
            continue
        for prefix, arguments in elements[rule.scope]:
            yield from _findings(c, rule, severity, prefix, rule.check(c, *arguments))


def _selected(
    c: CheckContext, rules: list[Rule], cache: CheckCache
) -> dict[str, list[tuple[Where, NetOp, tuple[Issue, ...] | None]]]:
    """By op rule the ops that it has something to say of; None where it has to look again."""
    of_ops = [rule for rule in rules if rule.scope == "op"]
    findings: list[list[tuple[Where, NetOp, tuple[Issue, ...] | None]]] = [[] for _ in of_ops]
    pairs = list(c.n.ops())
    for (graph, op), existing in zip(pairs, cache.check(c, of_ops, (op for _, op in pairs)), strict=True):
        where = ("graphs", graph.name, op.name)
        for number in existing.beyond:
            findings[number].append((where, op, None))
        for number, issues in existing.issues:
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
