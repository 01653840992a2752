"""The truth about overrides: what each asked, for how many ops, and what they got."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from tbuda_lab.core.balancer.l1 import preloads, preloads_large
from tbuda_lab.core.compiler import CompileResult
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.lowering.edits import cut_edges, nops_between
from tbuda_lab.core.overrides import KINDS, Override, named_python, override_python, target_text
from tbuda_lab.core.overrides.places import EpochStart


@dataclasses.dataclass(frozen=True)
class OverrideRecord:
    """One override after a compile.

    state: "obtained" (all it addresses has what it asked), "missed" (some has not: `because`), "vetoed" (it stopped
    the compile: `because`), "unmatched" (it addresses nothing), "pending" (not compiled yet). obtained: by name.
    """

    override: Override
    target: str
    kind: str
    requested: Any
    matched: tuple[str, ...]
    obtained: dict[str, Any]
    state: str
    because: str
    python: str

    @property
    def matches(self) -> int:
        return len(self.matched)


def records_of(
    overrides: tuple[Override, ...], result: CompileResult | None, *, pending: bool
) -> tuple[OverrideRecord, ...]:
    """Records of overrides that were compiled, or wait for it."""
    if result is None or pending:
        return tuple(_record(o, (), {}, "pending", "") for o in overrides)
    return tuple(_judge(o, result) for o in overrides)


def _judge(override: Override, result: CompileResult) -> OverrideRecord:
    kind, placement = KINDS[override.kind], result.placement
    names: Iterable[str] = {
        "ops": list(placement.ops),
        "queues": list(placement.queues),
        "nodes": list(result.lowered.nodes),
        "schedule": list(placement.schedule),
    }[kind.addresses]
    matched = tuple(override.matches(names))
    obtained = {name: kind.obtained_value(_CompileFacts(name, result), override.value) for name in matched}
    about = [d for d in result.diagnostics if d.rule.startswith("override") and _addresses(override, d.where)]
    if not matched:
        because = "; ".join(f"{d.message}; {d.fix}" for d in about) or _absent(override, result)
        return _record(override, matched, obtained, "unmatched", because)
    targets = matched
    if issubclass(kind, EpochStart) and kind.parse(override.value).stands_once(override.target):
        targets = matched[:1]
    wrong = [name for name in targets if not kind.met(override.value, obtained[name])]
    state = "missed" if wrong else "obtained"
    if wrong:
        parts = [f"{name} has {obtained[name]!r}" for name in wrong[:3]]
        because = "; ".join([*parts, *(f"... and {len(wrong) - 3} more" for _ in wrong[3:4])])
    else:
        because = "; ".join(d.message for d in about)
    return _record(override, matched, obtained, state, because)


def _absent(override: Override, result: CompileResult) -> str:
    """Why an override addresses nothing, though its name is one that there may be."""
    name = override.target if isinstance(override.target, str) else ""
    writer = name.removeprefix("e2e_").rpartition("_")[0]
    if name.startswith("e2e_") and writer in result.placement.ops:
        return f"{writer} is read in its own epoch only, so there is no such queue; a break before a reader makes it"
    return "no op or queue of that name"


def veto_records(overrides: tuple[Override, ...], error: TbudaError) -> tuple[OverrideRecord, ...]:
    """Records after a compile that failed: which overrides its diagnostics name."""
    result = []
    for override in overrides:
        named = [d for d in error.diagnostics if _addresses(override, d.where)]
        exact = [d for d in named if d.rule == f"override-{override.kind}"]
        about = exact or [d for d in named if not d.rule.startswith("override-")]
        because = "; ".join(f"{d.message}; {d.fix}" if d.fix else d.message for d in about)
        matched = tuple(dict.fromkeys(d.where for d in about))
        result.append(_record(override, matched, {}, "vetoed" if about else "pending", because))
    return tuple(result)


def _record(
    override: Override, matched: tuple[str, ...], obtained: dict[str, Any], state: str, because: str
) -> OverrideRecord:
    return OverrideRecord(
        override,
        target_text(override.target),
        override.kind,
        override.value,
        matched,
        obtained,
        state,
        because,
        named_python(override, matched) if matched else override_python(override),
    )


def _addresses(override: Override, where: str) -> bool:
    return bool(override.matches([where]))


@dataclasses.dataclass(frozen=True)
class _CompileFacts:
    """What a compile made of one op or queue, as `overrides.kind.CompileFacts` asks for it."""

    name: str
    result: CompileResult

    @property
    def row(self) -> Any:
        return self.result.placement.candidate(self.name)

    @property
    def place(self) -> dict[str, Any]:
        spot = self.result.placement.ops[self.name]
        return {"start": spot.start, "transpose": spot.transposed, "chip": spot.chip}

    @property
    def begins_epoch(self) -> bool:
        placement = self.result.placement
        return placement.epochs[placement.ops[self.name].epoch].ops[0] == self.name

    @property
    def position(self) -> int:
        return self.result.placement.schedule.index(self.name)

    @property
    def least_input_buffers(self) -> tuple[int, ...]:
        return self.result.placement.input_buffers.get(self.name, ())

    @property
    def output_format(self) -> str:
        return str(self.result.lowered[self.name].df)

    @property
    def fidelity(self) -> str:
        return str(self.result.lowered[self.name].attrs.get("fidelity"))

    @property
    def queue(self) -> dict[str, Any]:
        queue = self.result.placement.queues[self.name]
        channels = sorted({channel for channel, _ in queue.buffers})
        return {"chip": queue.chip, "channel": channels[0] if len(channels) == 1 else tuple(channels)}

    def preloads(self, port: int | None) -> bool:
        placement = self.result.placement
        table, at = placement.models[self.name], placement.ops[self.name].row
        rows = table.rows[at : at + 1]
        if table.profile is None or (port is not None and port >= len(table.profile.operands)):
            return False
        result = preloads_large(table.profile, rows) if port is None else preloads(table.profile, port, rows)
        return bool(result[0])

    def nops(self, readers: Sequence[str] | None) -> tuple[str, ...]:
        return nops_between(self.result.lowered, self.name, readers)

    def cuts(self, readers: Sequence[str] | None) -> tuple[tuple[str, int], ...]:
        return cut_edges(self.result.lowered, self.name, readers)
