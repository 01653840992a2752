"""Overrides that no placement can honour are refused before any candidate is made, all of them at once.

What depends on candidates (L1, edges) or on the finished placement is told later, by the stage that finds it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tbuda_lab.core.balancer.blocks import divisors
from tbuda_lab.core.balancer.enumerate import parallel_tiles
from tbuda_lab.core.balancer.overrides import MODEL_KINDS, choices
from tbuda_lab.core.balancer.profile import OpProfile, profile_of
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, OverrideError, counted
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.options import OVERRIDE_KINDS, CompileOptions, Override, broken, target_text
from tbuda_lab.core.placer.model.schedule import constrained, schedule

_ORDERED = ("schedule_constraint", "chip_break")


def refuse_impossible(
    graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]
) -> None:
    """Looks at every override of a lowered (and edited) graph as far as that takes no candidates.

    Raises one `OverrideError` with a diagnostic for each thing that is wrong, naming what would be legal.
    """
    if not overrides:
        return
    found: list[Diagnostic] = []
    checks: tuple[Callable[..., None], ...] = (_kinds, _models, _pins, _queues, _order)
    for check in checks:
        try:
            check(graph, device, options, overrides)
        except OverrideError as error:
            found += [d for d in error.diagnostics if d not in found]
    if found:
        raise OverrideError(f"{counted(len(found), 'override')} cannot be honoured", found)


def _kinds(graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]) -> None:
    fix = f"known: {', '.join(OVERRIDE_KINDS)}"
    wrong = [
        Diagnostic("error", target_text(o.target), "override-kind", f"unknown override {o.kind!r}", fix)
        for o in overrides
        if o.kind not in OVERRIDE_KINDS
    ]
    if wrong:
        raise OverrideError("unknown overrides", wrong)


def _profiles(
    graph: Graph, options: CompileOptions, overrides: Sequence[Override], kinds: Sequence[str] | frozenset[str]
) -> dict[str, OpProfile]:
    """Of the ops that overrides of these kinds address."""
    ops = [n.name for n in graph.ops]
    names = {n for o in overrides if o.kind in kinds for n in o.matches(ops)}
    users = graph.users() if names else {}
    return {name: profile_of(graph, graph[name], options, users[name]) for name in ops if name in names}


def _models(graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]) -> None:
    choices(_profiles(graph, options, overrides, MODEL_KINDS), device, overrides)


def _pins(graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]) -> None:
    wrong: list[Diagnostic] = []
    profiles = _profiles(graph, options, overrides, ("op_placement",))
    names = list(profiles)
    sizes = {n: tuple(o.value) for o in overrides if o.kind == "op_size" and _pair(o.value) for n in o.matches(names)}
    for record in overrides:
        if record.kind == "op_placement":
            value = record.value if isinstance(record.value, Mapping) else {}
            for name, profile in ((n, profiles[n]) for n in record.matches(names)):
                size = sizes.get(name)
                grids = [size] if size else [(r, c) for r, c in _grids(profile, device)]
                said = bad_pin(name, grids, device, value)
                wrong += [] if said is None else [said]
    if wrong:
        raise OverrideError("op placements that cannot be honoured", wrong)


def _pair(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(v, int) for v in value)


def _grids(profile: OpProfile, device: DeviceSpec) -> list[tuple[int, int]]:
    rows, cols = parallel_tiles(profile)
    high, wide = (
        [d for d in divisors(n) if d <= most] for n, most in ((rows, device.rows), (cols, device.cols))
    )
    return [(r, c) for r in high for c in wide]


def bad_pin(
    name: str, grids: Sequence[tuple[int, ...]], device: DeviceSpec, value: Mapping[str, Any]
) -> Diagnostic | None:
    """What is wrong with a place that an op was given, or None. grids: (rows, columns) that it may take."""
    start, transpose, chip = value.get("start"), value.get("transpose"), value.get("chip")

    def error(message: str, fix: str) -> Diagnostic:
        return Diagnostic("error", name, "override-op_placement", message, fix)

    if chip is not None and chip not in device.chips:
        return error(f"{device.name} has no chip {chip!r}", f"chips: {', '.join(map(str, device.chips))}")
    if transpose is not None and not isinstance(transpose, bool):
        return error(f"transpose is true or false, not {transpose!r}", "leave it out to let the placer decide")
    stand = [g[::-1] if transpose else g for g in grids]
    if not any(r <= device.rows and c <= device.cols for r, c in stand):
        return error("transposed, none of its legal grids fits the device", "leave the transposition out")
    if start is None:
        return None
    if not (isinstance(start, (tuple, list)) and len(start) == 2 and all(isinstance(v, int) and v >= 0 for v in start)):
        return error(f"a start is (row, column), not {start!r}", "row and column from 0")
    if not any(r + start[0] <= device.rows and c + start[1] <= device.cols for r, c in stand):
        return error(
            f"no legal grid of this op fits at ({start[0]}, {start[1]}) on {device.rows}x{device.cols} cores",
            "choose a smaller row or column, or another op size",
        )
    return None


def bad_queue_place(name: str, device: DeviceSpec, chip: object, channel: object) -> Diagnostic | None:
    """What is wrong with a chip and channel that a queue was given, or None."""
    if chip is not None and chip not in device.chips:
        text = f"{device.name} has no chip {chip!r}"
        return Diagnostic("error", name, "queue-chip", text, f"chips: {', '.join(map(str, device.chips))}")
    if channel is not None and not (isinstance(channel, int) and 0 <= channel < device.dram_channels):
        text = f"there is no DRAM channel {channel!r}"
        return Diagnostic("error", name, "queue-channel", text, f"channels 0 to {device.dram_channels - 1}")
    return None


def _queues(graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]) -> None:
    wrong: list[Diagnostic] = []
    for record in overrides:
        if record.kind == "queue_channel":
            value = record.value if isinstance(record.value, Mapping) else {}
            for name in record.matches(queue_names(graph)):
                said = bad_queue_place(name, device, value.get("chip"), value.get("channel"))
                wrong += [] if said is None else [said]
    if wrong:
        raise OverrideError("queue placements that cannot be honoured", wrong)


def queue_names(graph: Graph) -> list[str]:
    """Queues that there may be for a graph: of its inputs, parameters and outputs, behind ops, and of pickers."""
    ops = {n.name for n in graph.ops}
    return [
        *(n.name for n in graph if n.name not in ops),
        *(f"e2e_{n}_0" for n in graph.nodes if n in ops),
        *(f"lc.{k}.{n}" for k in ("sparse_tiles", "sparse_encoding") for n in graph.nodes if n in ops),
    ]


def _order(graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]) -> None:
    asked = [o for o in overrides if o.kind in _ORDERED]
    if asked:
        order = constrained(graph, schedule(graph, options.scheduler_policy), asked)
        chip_breaks(order, device, asked)


def chip_breaks(order: Sequence[str], device: DeviceSpec, overrides: Sequence[Override]) -> frozenset[str]:
    """Ops that begin a stage. Raises `OverrideError` for more breaks than there are chips to break to."""
    found = frozenset(n for o in overrides if o.kind == "chip_break" for n in broken(o, order))
    if len(found) >= len(device.chips) > 1:
        text = f"{len(found)} chip breaks need {len(found) + 1} chips; {device.name} has {len(device.chips)}"
        raise OverrideError(
            "too many chip breaks",
            [Diagnostic("error", min(found), "override-chip_break", text, "remove some, or make them epoch breaks")],
        )
    return found
