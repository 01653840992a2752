"""The truth about overrides: what each asked, for how many ops, and what they got."""

from __future__ import annotations

import dataclasses
from typing import Any

from tbuda_lab.core.compiler.pipeline import CompileResult
from tbuda_lab.core.errors import TbudaError
from tbuda_lab.core.lowering.edits import cut_edges, is_edit, nops_between
from tbuda_lab.core.lowering.opformats import FORMAT_KINDS
from tbuda_lab.core.options import Override, broken, target_text
from tbuda_lab.core.session.calls import named_python, override_python


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
    return tuple(_judged(o, result) for o in overrides)


def _judged(override: Override, result: CompileResult) -> OverrideRecord:
    placement = result.placement
    names = list(placement.queues if override.kind == "queue_channel" else placement.ops)
    if is_edit(override):
        names = list(result.lowered.nodes)
    elif override.kind in ("epoch_break", "chip_break"):
        names = list(placement.schedule)
    matched = tuple(override.matches(names))
    obtained = {name: _obtained(override, name, result) for name in matched}
    said = [d for d in result.diagnostics if d.rule.startswith("override") and _addresses(override, d.where)]
    if not matched:
        because = "; ".join(f"{d.message}; {d.fix}" for d in said) or _absent(override, result)
        return _record(override, matched, obtained, "unmatched", because)
    asked = broken(override, matched) if override.kind in ("epoch_break", "chip_break") else matched
    wrong = [name for name in asked if not _as_asked(override, obtained[name])]
    state = "missed" if wrong else "obtained"
    if wrong:
        parts = [f"{name} has {obtained[name]!r}" for name in wrong[:3]]
        because = "; ".join([*parts, *(f"... and {len(wrong) - 3} more" for _ in wrong[3:4])])
    else:
        because = "; ".join(d.message for d in said)
    return _record(override, matched, obtained, state, because)


def _absent(override: Override, result: CompileResult) -> str:
    """Why an override addresses nothing, though its name is one that there may be."""
    name = override.target if isinstance(override.target, str) else ""
    writer = name.removeprefix("e2e_").rpartition("_")[0]
    if name.startswith("e2e_") and writer in result.placement.ops:
        return f"{writer} is read in its own epoch only, so there is no such queue; a break before a reader makes it"
    return "no op or queue of that name"


def vetoed(overrides: tuple[Override, ...], error: TbudaError) -> tuple[OverrideRecord, ...]:
    """Records after a compile that failed: which overrides its diagnostics name."""
    found = []
    for override in overrides:
        named = [d for d in error.diagnostics if _addresses(override, d.where)]
        exact = [d for d in named if d.rule == f"override-{override.kind}"]
        about = exact or [d for d in named if not d.rule.startswith("override-")]
        because = "; ".join(f"{d.message}; {d.fix}" if d.fix else d.message for d in about)
        matched = tuple(dict.fromkeys(d.where for d in about))
        found.append(_record(override, matched, {}, "vetoed" if about else "pending", because))
    return tuple(found)


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


def _obtained(override: Override, name: str, result: CompileResult) -> Any:
    """What an op or queue has of what the override asks: for a nop or queue on an edge, the names of the nops or of the
    reading ops and their operands; for a schedule constraint, when the op runs."""
    kind, placement = override.kind, result.placement
    if kind in FORMAT_KINDS:
        node = result.lowered[name]
        return str(node.df if kind == "data_format" else node.attrs.get("fidelity"))
    if is_edit(override):
        dest = override.value.get("dest") if isinstance(override.value, dict) else None
        readers = (dest,) if isinstance(dest, str) else dest
        found = nops_between if kind == "insert_nop" else cut_edges
        return found(result.lowered, name, readers)
    if kind == "schedule_constraint":
        return placement.schedule.index(name)
    if kind == "queue_channel":
        queue = placement.queues[name]
        channels = sorted({channel for channel, _ in queue.buffers})
        return {"chip": queue.chip, "channel": channels[0] if len(channels) == 1 else tuple(channels)}
    spot, row = placement.ops[name], placement.candidate(name)
    if kind == "op_size":
        return int(row["grid_r"]), int(row["grid_c"])
    if kind == "t_stream_dir":
        return str(row["stream"]) or "n"
    if kind == "t_stream_shape":
        return int(row["stream_r"]), int(row["stream_c"])
    if kind == "u_kt":
        return int(row["u_kt"])
    if kind == "output_buffer_multiplier":
        return int(row["buf_size_mb"])
    if kind == "dram_parameters":
        return not bool(row["prologue"])
    if kind == "op_placement":
        return {"start": spot.start, "transpose": spot.transposed, "chip": spot.chip}
    if kind in ("epoch_break", "chip_break"):
        return placement.epochs[spot.epoch].ops[0] == name
    # an operand that waits in L1 from before the first input, as preloaded weights do, has no buffer to make larger
    sizes = placement.input_buffers.get(name, ())
    return {port: factor if port < len(sizes) and sizes[port] else 0 for port, factor in override.value.items()}


def _as_asked(override: Override, got: Any) -> bool:
    wanted = override.value
    if is_edit(override) and override.kind not in FORMAT_KINDS:
        return bool(got)
    if override.kind == "schedule_constraint":
        return True  # an order that cannot be had stops the compile
    if override.kind in ("epoch_break", "chip_break"):
        return bool(got) or not wanted
    if isinstance(wanted, dict) and isinstance(got, dict):
        return {k: got.get(k) for k in wanted} == {k: tuple(v) if isinstance(v, list) else v for k, v in wanted.items()}
    if isinstance(wanted, list):
        wanted = tuple(wanted)
    return bool(got == wanted)
