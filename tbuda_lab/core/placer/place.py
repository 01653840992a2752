"""From candidate tables to a placement: schedule, epochs, rectangles, queues, addresses, report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from tbuda_lab.core.balancer.models import op_models
from tbuda_lab.core.balancer.overrides import unmatched
from tbuda_lab.core.balancer.types import OpModels, Placement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Cancelled, Diagnostic, OverrideError
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.options import CompileOptions, Override, broken
from tbuda_lab.core.placer.assemble import assemble
from tbuda_lab.core.placer.policies import policy
from tbuda_lab.core.placer.problem import Pin, Problem
from tbuda_lab.core.placer.schedule import constrained, outputs_last, schedule

Progress = Callable[[float, str], None]


def place(
    graph: Graph,
    models: Mapping[str, OpModels],
    device: DeviceSpec,
    options: CompileOptions,
    overrides: Sequence[Override] = (),
    cancel: threading.Event | None = None,
    on_progress: Progress | None = None,
) -> Placement:
    """Places a lowered graph.

    models: of `op_models` for the same graph and overrides. cancel: once set, `Cancelled` is raised at the next step.
    on_progress: called with (fraction done, what is going on).

    Raises `OverrideError` for a pin or queue placement that cannot be honoured, `PlacementError` when an op fits no
    epoch, or queues do not fit DRAM; both say what would be legal.
    """
    name, run = policy(options.balancer_policy)

    def check(fraction: float, what: str = "choosing epochs") -> None:
        if cancel is not None and cancel.is_set():
            raise Cancelled("placing was cancelled")
        if on_progress is not None:
            on_progress(min(1.0, fraction), what)

    check(0.0, "scheduling")
    diagnostics = unmatched_targets(graph, overrides)
    order = schedule(graph, options.scheduler_policy)
    if len(device.chips) > 1 and device.arch != "grayskull":
        order = outputs_last(graph, order)
    order = constrained(graph, order, overrides)
    pins, breaks = pins_and_breaks(graph, models, device, overrides, order)
    problem = Problem(graph, models, device, options, order, pins, breaks, _chip_breaks(order, device, overrides))
    segments = run(problem, lambda fraction: check(0.05 + 0.85 * fraction))
    placement = assemble(problem, segments, name, overrides, diagnostics, check=check)
    check(1.0, "placed")
    return placement


def unmatched_targets(graph: Graph, overrides: Sequence[Override]) -> list[Diagnostic]:
    """Warnings for overrides that address nothing; unknown kinds raise `OverrideError`."""
    ops = [n.name for n in graph.ops]
    names = [
        *ops,
        *(n.name for n in graph if n.kind is not NodeKind.OP),
        *(f"e2e_{n}_0" for n in ops),
        *(f"lc.{k}.{n}" for k in ("sparse_tiles", "sparse_encoding") for n in ops),
    ]
    found = unmatched(overrides, names)
    errors = [d for d in found if d.severity == "error"]
    if errors:
        raise OverrideError("unknown overrides", errors)
    return found


def _chip_breaks(order: Sequence[str], device: DeviceSpec, overrides: Sequence[Override]) -> frozenset[str]:
    """Ops that begin a stage. Raises `OverrideError` for more breaks than there are chips to break to."""
    found = frozenset(n for o in overrides if o.kind == "chip_break" for n in broken(o, order))
    if len(found) >= len(device.chips) > 1:
        text = f"{len(found)} chip breaks need {len(found) + 1} chips; {device.name} has {len(device.chips)}"
        raise OverrideError(
            "too many chip breaks",
            [Diagnostic("error", min(found), "override-chip_break", text, "remove some, or make them epoch breaks")],
        )
    return found


def pins_and_breaks(
    graph: Graph,
    models: Mapping[str, OpModels],
    device: DeviceSpec,
    overrides: Sequence[Override],
    order: Sequence[str] = (),
) -> tuple[dict[str, Pin], frozenset[str]]:
    """Pinned places and epoch breaks. order: the schedule, which tells the first op of a list (else the graph's)."""
    names = [n.name for n in graph.ops]
    pins: dict[str, Pin] = {}
    breaks: set[str] = set()
    wrong: list[Diagnostic] = []
    for record in overrides:
        if record.kind in ("epoch_break", "chip_break"):
            breaks.update(broken(record, order or names))
        if record.kind != "op_placement":
            continue
        value = record.value if isinstance(record.value, Mapping) else {}
        start, transpose, chip = value.get("start"), value.get("transpose"), value.get("chip")
        for name in record.matches(names):
            problem = _bad_pin(name, models[name], device, start, transpose, chip)
            if problem is not None:
                wrong.append(problem)
                continue
            pins[name] = Pin(None if start is None else (int(start[0]), int(start[1])), transpose, chip)
    if wrong:
        raise OverrideError("op placements that cannot be honoured", wrong)
    return pins, frozenset(breaks)


def _bad_pin(
    name: str, table: OpModels, device: DeviceSpec, start: object, transpose: object, chip: object
) -> Diagnostic | None:
    def error(message: str, fix: str) -> Diagnostic:
        return Diagnostic("error", name, "override-op_placement", message, fix)

    if chip is not None and chip not in device.chips:
        return error(f"{device.name} has no chip {chip!r}", f"chips: {', '.join(map(str, device.chips))}")
    if transpose is not None and not isinstance(transpose, bool):
        return error(f"transpose is true or false, not {transpose!r}", "leave it out to let the placer decide")
    rows = table.rows[table.legal()]
    height, width = (rows["grid_c"], rows["grid_r"]) if transpose else (rows["grid_r"], rows["grid_c"])
    if not ((height <= device.rows) & (width <= device.cols)).any():
        return error("transposed, none of its legal grids fits the device", "leave the transposition out")
    if start is None:
        return None
    if not (isinstance(start, (tuple, list)) and len(start) == 2 and all(isinstance(v, int) and v >= 0 for v in start)):
        return error(f"a start is (row, column), not {start!r}", "row and column from 0")
    if not ((height + start[0] <= device.rows) & (width + start[1] <= device.cols)).any():
        return error(
            f"no legal grid of this op fits at ({start[0]}, {start[1]}) on {device.rows}x{device.cols} cores",
            "choose a smaller row or column, or another op size",
        )
    return None


def balance_and_place(
    graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override] = ()
) -> Placement:
    """`op_models` and `place` in one call."""
    return place(graph, op_models(graph, device, options, overrides), device, options, overrides)
