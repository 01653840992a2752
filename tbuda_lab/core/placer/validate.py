"""What no placement can honour is refused before any candidate is made, all of it at once: names of policies and
algorithms, overrides.

What depends on candidates (L1, edges) or on the finished placement is told later, by the stage that finds it.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable, Mapping, Sequence

from tbuda_lab.core.balancer.blocks import divisors
from tbuda_lab.core.balancer.enumerate import parallel_tiles
from tbuda_lab.core.balancer.models import MODEL_KINDS, choices
from tbuda_lab.core.balancer.profile import OpProfile, profile_of
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.errors import Diagnostic, OverrideError, need_known, quantity
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.phases import phases
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import OVERRIDE_KINDS, MalformedValue, Override, broken, target_text
from tbuda_lab.core.overrides.places import OpPin, QueuePin
from tbuda_lab.core.placer import policies
from tbuda_lab.core.placer.memory.dram import ALGORITHMS
from tbuda_lab.core.placer.model.schedule import POLICIES as SCHEDULERS
from tbuda_lab.core.placer.model.schedule import constrain_order, schedule
from tbuda_lab.core.placer.search import chip_stages

_ORDERED = ("schedule_constraint", "chip_break")


def refuse_unknown(options: CompileOptions) -> None:
    """Raises `PlacementError` with a diagnostic for each name of a policy or algorithm that there is not."""
    need_known(
        ("balancer policy", policies.full_name(options.balancer_policy), policies.NAMES),
        ("scheduler policy", options.scheduler_policy, SCHEDULERS),
        ("chip placement policy", options.chip_placement_policy, chip_stages.POLICIES),
        ("DRAM placement algorithm", options.dram_placement_algorithm, ALGORITHMS),
    )


def refuse_impossible(
    graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]
) -> None:
    """Looks at every override of a lowered (and edited) graph as far as that takes no candidates.

    Raises one `OverrideError` with a diagnostic for each thing that is wrong, naming what would be legal.
    """
    if not overrides:
        return
    diagnostics: list[Diagnostic] = []
    checks: tuple[Callable[..., None], ...] = (_kinds, _models, _pins, _queues, _order)
    for check in checks:
        try:
            check(graph, device, options, overrides)
        except OverrideError as error:
            diagnostics += [d for d in error.diagnostics if d not in diagnostics]
    if diagnostics:
        raise OverrideError(f"{quantity(len(diagnostics), 'override')} cannot be met", diagnostics)


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
    users, phase = (graph.users(), phases(graph)) if names else ({}, {})
    return {name: profile_of(graph, graph[name], options, users, phase) for name in ops if name in names}


def _models(graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]) -> None:
    choices(_profiles(graph, options, overrides, MODEL_KINDS), device, overrides)


def _pins(graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]) -> None:
    wrong: list[Diagnostic] = []
    profiles = _profiles(graph, options, overrides, ("op_placement",))
    names = list(profiles)
    sizes = {n: tuple(o.value) for o in overrides if o.kind == "op_size" and _pair(o.value) for n in o.matches(names)}
    for record in overrides:
        if record.kind == "op_placement":
            for name, profile in ((n, profiles[n]) for n in record.matches(names)):
                size = sizes.get(name)
                grids = [size] if size else [(r, c) for r, c in _grids(profile, device)]
                message = bad_pin(name, grids, device, record.value)
                wrong += [] if message is None else [message]
    if wrong:
        raise OverrideError("op placements cannot be met", wrong)


def _pair(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(v, int) for v in value)


def _grids(profile: OpProfile, device: DeviceSpec) -> list[tuple[int, int]]:
    rows, cols = parallel_tiles(profile)
    high, wide = (
        [d for d in divisors(n) if d <= most] for n, most in ((rows, device.rows), (cols, device.cols))
    )
    return [(r, c) for r in high for c in wide]


def bad_pin(name: str, grids: Sequence[tuple[int, ...]], device: DeviceSpec, value: object) -> Diagnostic | None:
    """What is wrong with a place that an op was given, or None. grids: (rows, columns) that it may take."""
    try:
        fault = OpPin.parse(value).on_device(grids, device)
    except MalformedValue as error:
        fault = error.fault
    return None if fault is None else Diagnostic("error", name, "override-op_placement", *fault)


def bad_queue_place(name: str, device: DeviceSpec, chip: object, channel: object) -> Diagnostic | None:
    """What is wrong with a chip and channel that a queue was given, or None."""
    result = QueuePin(chip, channel).on_device(device)  # type: ignore[arg-type]  # judged there
    return None if result is None else Diagnostic("error", name, f"queue-{result[0]}", *result[1])


def _queues(graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]) -> None:
    wrong: list[Diagnostic] = []
    for record in overrides:
        if record.kind == "queue_channel":
            value = record.value if isinstance(record.value, Mapping) else {}
            for name in record.matches(queue_names(graph)):
                entry = bad_queue_place(name, device, value.get("chip"), value.get("channel"))
                wrong += [] if entry is None else [entry]
    if wrong:
        raise OverrideError("queue placements cannot be met", wrong)


def queue_names(graph: Graph) -> list[str]:
    """Queues that there may be for a graph: of its inputs, parameters and outputs, behind ops, and of pickers."""
    ops = {n.name for n in graph.ops}
    return [
        *(n.name for n in graph if n.name not in ops),
        *(f"e2e_{n}_0" for n in graph.nodes if n in ops),
        *(f"lc.{k}.{n}" for k in ("sparse_tiles", "sparse_encoding") for n in graph.nodes if n in ops),
    ]


def _order(graph: Graph, device: DeviceSpec, options: CompileOptions, overrides: Sequence[Override]) -> None:
    ordered = [o for o in overrides if o.kind in _ORDERED]
    if ordered:
        order = constrain_order(graph, schedule(graph, options.scheduler_policy), ordered)
        chip_breaks(order, device, ordered)


def chip_breaks(order: Sequence[str], device: DeviceSpec, overrides: Sequence[Override]) -> frozenset[str]:
    """Ops that begin a stage. Raises `OverrideError` for more breaks than there are chips to break to."""
    chip_breaks = frozenset(n for o in overrides if o.kind == "chip_break" for n in broken(o, order))
    if len(chip_breaks) >= len(device.chips) > 1:
        needed = len(chip_breaks) + 1
        text = f"{len(chip_breaks)} chip breaks need {needed} chips; {device.name} has {len(device.chips)}"
        raise OverrideError(
            "too many chip breaks",
            [Diagnostic("error", min(chip_breaks), "override-chip_break", text,
                "remove some, or make them epoch breaks")],
        )
    return chip_breaks


def _unmatched_overrides(overrides: Sequence[Override], names: Iterable[str]) -> list[Diagnostic]:
    """A warning for every override that addresses no op or queue, and an error for every unknown kind."""
    op_names = list(names)
    result: list[Diagnostic] = []
    for record in overrides:
        if record.kind not in OVERRIDE_KINDS:
            result.append(
                Diagnostic(
                    "error",
                    target_text(record.target),
                    "override-kind",
                    f"unknown override {record.kind!r}",
                    f"known: {', '.join(OVERRIDE_KINDS)}",
                )
            )
            continue
        missing: list[str] = []
        if isinstance(record.target, tuple) and record.target:
            present = set(op_names)
            missing = [n for n in record.target if n not in present]
        elif not record.matches(op_names):
            missing = [target_text(record.target)]
        for name in missing:
            close = _closest(name, op_names)
            result.append(
                Diagnostic(
                    "warning",
                    name,
                    "override-unmatched",
                    f"{record.kind} addresses no op or queue of this graph",
                    f"did you mean {close!r}?" if close else "check the name in the op table",
                )
            )
    return result


def _closest(name: str, names: Sequence[str]) -> str:
    near = difflib.get_close_matches(name, names, n=1, cutoff=0.5)
    return near[0] if near else ""


def unmatched_targets(graph: Graph, overrides: Sequence[Override]) -> list[Diagnostic]:
    """Warnings for overrides that address nothing; unknown kinds raise `OverrideError`."""
    unmatched_targets = _unmatched_overrides(overrides, [*(n.name for n in graph.ops), *queue_names(graph)])
    errors = [d for d in unmatched_targets if d.severity == "error"]
    if errors:
        raise OverrideError("unknown overrides", errors)
    return unmatched_targets
