"""From candidate tables to a placement: schedule, epochs, rectangles, queues, addresses, report."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence

from tbuda_lab.core.balancer.models import op_models
from tbuda_lab.core.balancer.overrides import unmatched
from tbuda_lab.core.balancer.types import Epoch, OpModels, OpPlacement, Placement
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Cancelled, Diagnostic, OverrideError
from tbuda_lab.core.graph import Graph, NodeKind
from tbuda_lab.core.options import CompileOptions, Override
from tbuda_lab.core.placer.forkjoin import buffer
from tbuda_lab.core.placer.policies import policy
from tbuda_lab.core.placer.problem import Pin, Problem
from tbuda_lab.core.placer.queues import QueuePlanner
from tbuda_lab.core.placer.report import blocked_reasons, report
from tbuda_lab.core.placer.schedule import outputs_last, schedule
from tbuda_lab.core.placer.segment import Segment
from tbuda_lab.core.placer.stages import check_reach, chips_of, pipeline_note, temporal_epochs

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
    order = schedule(graph, options.scheduler_policy)
    if len(device.chips) > 1 and device.arch != "grayskull":
        order = outputs_last(graph, order)
    diagnostics = _names(graph, overrides)
    pins, breaks = _pins(graph, models, device, overrides)
    problem = Problem(graph, models, device, options, order, pins, breaks, _chip_breaks(graph, device, overrides))
    segments = run(problem, lambda fraction: check(0.05 + 0.85 * fraction))
    check(0.92, "placing queues")
    chips = chips_of(problem, segments)
    diagnostics += pipeline_note(problem, segments, chips)
    ops, epochs = _placed(problem, segments, chips)
    check_reach(graph, ops, device)
    queues = QueuePlanner(graph, models, ops, problem.orders, device, options, overrides).run()
    waiting = [buffer(problem, segment, i) for i, segment in enumerate(segments)]
    diagnostics += [d for one in waiting for d in one.diagnostics]
    check(0.98, "reporting")
    summary = report(problem, segments, name, blocked_reasons(problem, segments, problem.refusals))
    check(1.0, "placed")
    return Placement(
        ops,
        epochs,
        queues,
        dict(models),
        order,
        tuple(e.kernel_cycles for e in summary.epochs),
        problem.orders,
        summary,
        tuple(diagnostics),
        {op: tiles for one in waiting for op, tiles in one.input_tiles.items()},
    )


def _placed(
    problem: Problem, segments: Sequence[Segment], chips: Sequence[int]
) -> tuple[dict[str, OpPlacement], tuple[Epoch, ...]]:
    ops: dict[str, OpPlacement] = {}
    epochs: list[Epoch] = []
    temporal = temporal_epochs(chips, problem.device.arch)
    for index, (segment, chip) in enumerate(zip(segments, chips, strict=True)):
        names = problem.order[segment.first : segment.last]
        for name, row, (top, left, turned) in zip(names, segment.rows, segment.spots, strict=True):
            candidate = problem.models[name].rows[row]
            size = (int(candidate["grid_r"]), int(candidate["grid_c"]))
            ops[name] = OpPlacement(name, index, chip, (top, left), size[::-1] if turned else size, turned, row)
        epochs.append(Epoch(index, temporal[index], chip, tuple(names)))
    return ops, tuple(epochs)


def _names(graph: Graph, overrides: Sequence[Override]) -> list[Diagnostic]:
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


def _chip_breaks(graph: Graph, device: DeviceSpec, overrides: Sequence[Override]) -> frozenset[str]:
    """Ops that begin a stage. Raises `OverrideError` for more breaks than there are chips to break to."""
    names = [n.name for n in graph.ops]
    found = frozenset(n for o in overrides if o.kind == "chip_break" and o.value for n in o.matches(names))
    if len(found) >= len(device.chips) > 1:
        text = f"{len(found)} chip breaks need {len(found) + 1} chips; {device.name} has {len(device.chips)}"
        raise OverrideError(
            "too many chip breaks",
            [Diagnostic("error", min(found), "override-chip_break", text, "remove some, or make them epoch breaks")],
        )
    return found


def _pins(
    graph: Graph, models: Mapping[str, OpModels], device: DeviceSpec, overrides: Sequence[Override]
) -> tuple[dict[str, Pin], frozenset[str]]:
    """Pinned places and epoch breaks. A list of names breaks before each op it addresses."""
    names = [n.name for n in graph.ops]
    pins: dict[str, Pin] = {}
    breaks: set[str] = set()
    wrong: list[Diagnostic] = []
    for record in overrides:
        if record.kind in ("epoch_break", "chip_break") and record.value:
            breaks.update(record.matches(names))
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
