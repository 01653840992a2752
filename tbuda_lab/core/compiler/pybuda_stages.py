"""A compile stage by stage, under PyBuda's names, with what each leaves to look at: its graph and a report.

`compile_until` stops after any of them. The first stages are groups of our passes, cut where PyBuda's stages end; later
ones are lowering, placement and emission.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from tbuda_lab.core import passes
from tbuda_lab.core.compiler.pipeline import compile_graph
from tbuda_lab.core.compiler.result import CompileResult
from tbuda_lab.core.device import DeviceSpec
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.lowering import lower, lower_for
from tbuda_lab.core.lowering.edits import edit
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.overrides import Override
from tbuda_lab.core.passes.base import Report

DEPTHS = (
    "init_compile",
    "generate_initial_graph",
    "post_initial_graph_pass",
    "consteval_graph",
    "post_pattern_matcher",
    "optimized_graph",
    "autograd",
    "post_autograd_pass",
    "pre_lowering_pass",
    "buda_graph_pre_placer",
    "balancer_pass",
    "pre_netlist_pass",
    "generate_netlist",
    "backend_golden_verify",
)
"""In order. The last one runs the netlist, which is the caller's."""

_LAST_PASS = (
    ("post_initial_graph_pass", "expand_rows"),
    ("consteval_graph", "consteval"),
    ("optimized_graph", "fuse_bias"),
    ("autograd", "autograd"),
    ("post_autograd_pass", "prestride"),
)
"""Stage and the pass that ends it. A stage whose pass is not in the pipeline (autograd in inference) changes nothing;
what is left belongs to pre_lowering_pass."""


@dataclasses.dataclass(frozen=True)
class StageResult:
    """What a stage left. graph: after it; report: one line per pass that ran, or what was placed or written."""

    name: str
    graph: Graph | None
    report: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class StagedCompile:
    """The stages that have run, in order, and the whole result where the netlist was reached."""

    stages: tuple[StageResult, ...]
    result: CompileResult | None = None

    def __getitem__(self, name: str) -> StageResult:
        """Raises `KeyError` for a stage that was not reached."""
        for stage in self.stages:
            if stage.name == name:
                return stage
        raise KeyError(f"stage {name!r} was not reached; the last was {self.last.name!r}")

    def graph(self, name: str) -> Graph | None:
        """The graph after a stage; None where it was not reached or has none."""
        return next((s.graph for s in self.stages if s.name == name), None)

    @property
    def last(self) -> StageResult:
        return self.stages[-1]


def compile_until(
    graph: Graph,
    device: DeviceSpec,
    options: CompileOptions,
    overrides: Sequence[Override] = (),
    until: str = "generate_netlist",
) -> StagedCompile:
    """Compile `graph` up to the end of stage `until`. Raises as `compile_graph` does, and `ValueError` for a name that
    is no stage."""
    end = DEPTHS.index(until)
    stages = [
        StageResult(DEPTHS[0], None, (f"device {device.name}",)),
        StageResult(DEPTHS[1], graph, (f"{len(graph.ops)} ops",)),
    ]
    if end >= DEPTHS.index("post_initial_graph_pass"):
        stages += _pass_stages(graph, options, end)
    if end >= DEPTHS.index("buda_graph_pre_placer"):
        passed = stages[-1].graph
        assert passed is not None
        if end < DEPTHS.index("balancer_pass"):
            lowered = lower_for(lower(passed, device, options), passed, device, options, overrides)
            lowered = edit(lowered, device, options, overrides).graph
            stages.append(StageResult("buda_graph_pre_placer", lowered, (f"{len(lowered.ops)} hardware ops",)))
    if end < DEPTHS.index("balancer_pass"):
        return StagedCompile(tuple(stages[: end + 1]))
    result = compile_graph(graph, device, options, overrides)
    return StagedCompile((*stages, *placed_stages(result))[: end + 1], result)


def placed_stages(result: CompileResult) -> tuple[StageResult, ...]:
    """The stages from lowering on, of a finished compile."""
    placement, netlist = result.placement, result.netlist
    epochs = tuple(f"epoch {e.index}: {len(e.ops)} ops on chip {e.chip}" for e in placement.epochs)
    written = tuple(f"graph {name}: {len(g.ops)} ops" for name, g in netlist.graphs.items())
    return (
        StageResult("buda_graph_pre_placer", result.lowered, (f"{len(result.lowered.ops)} hardware ops",)),
        StageResult("balancer_pass", result.lowered, epochs),
        StageResult("pre_netlist_pass", result.lowered, tuple(str(d) for d in result.diagnostics)),
        StageResult("generate_netlist", result.lowered, (*written, f"{len(netlist.queues)} queues")),
        StageResult("backend_golden_verify", result.lowered, ()),
    )


def all_stages(result: CompileResult) -> tuple[StageResult, ...]:
    """Every stage of a finished compile; the passes run again to keep the graph after each."""
    begin = (
        StageResult(DEPTHS[0], None, (f"device {result.device.name}",)),
        StageResult(DEPTHS[1], result.graph, (f"{len(result.graph.ops)} ops",)),
    )
    return (*begin, *_pass_stages(result.graph, result.options, len(DEPTHS)), *placed_stages(result))


def _pass_stages(graph: Graph, options: CompileOptions, end: int) -> list[StageResult]:
    """The stages that are passes, up to the one numbered `end` at most."""
    done = passes.run(graph, options, snapshots=True)
    names = [r.name for r in done.reports]
    passed: list[StageResult] = []
    begin = 0

    def add(stage: str, stop: int) -> None:
        after = done.snapshots[stop - 1] if stop else graph
        passed.append(StageResult(stage, after, tuple(_line(r) for r in done.reports[begin:stop])))

    for stage in DEPTHS[2:8]:
        name = dict(_LAST_PASS).get(stage)
        stop = begin
        if name == "consteval":
            stop = begin + 1 if names[begin : begin + 1] == ["consteval"] else begin
        elif stage == "optimized_graph" and "autograd" in names:
            stop = names.index("autograd")
        elif name in names[begin:]:
            stop = len(names) - names[::-1].index(name)
        add(stage, max(begin, stop))
        begin = max(begin, stop)
    add("pre_lowering_pass", len(names))
    return passed


def _line(report: Report) -> str:
    return f"{report.name}: {report.rewrites}" + "".join(f"; {note}" for note in report.notes)
