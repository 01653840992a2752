"""Findings of op rules that hold as long as an op and what it reads are the same objects.

A session checks netlist after netlist in which an edit changed a few ops of a thousand. Most op rules look at nothing
but the op, its sources and the device. Which ones do is not declared, it is seen: a rule is first run with a `Near`
context, which shows no more than that and stops a rule that asks for more. What it found there depends on nothing else
and can be kept; a rule that was stopped runs on the whole netlist each time.

Of a queue it shows everything but its addresses: an edit moves many of them, and they are nothing to the ops.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, NoReturn, cast

from tbuda_lab.core.netlist.check.context import CheckContext
from tbuda_lab.core.netlist.check.facts import NetlistFacts
from tbuda_lab.core.netlist.check.registry import Issue, Rule
from tbuda_lab.core.netlist.schema import Buffer, Netlist, NetOp, Queue


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

    def __init__(self, c: CheckContext, op: NetOp, queues: Mapping[str, Queue], preloaded: frozenset[str],
                 count: int) -> None:
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
    fused op that it runs), preloaded, count (inputs of its graph): what else was looked at."""

    op: NetOp
    sources: tuple[Any, ...]
    preloaded: frozenset[str]
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
            if entry is None or entry.op is not op or (entry.preloaded, entry.count) != seen \
                    or not _same(entry.sources, sources):
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
                before = queue, dataclasses.replace(queue, buffers=cast(list[Buffer], _Addresses()))
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
            message = tuple(rule.check(near, op))
        except _Beyond:
            beyond.append(number)
            continue
        if message:
            issues.append((number, message))
    return OpFindings(op, sources, preloaded, count, tuple(issues), tuple(beyond))
