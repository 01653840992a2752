"""The passes in order, and the functions that run them: all at once, or one by one, with the graph after each, what it
changed and how long it took."""

from __future__ import annotations

import dataclasses
import threading
import time
from collections.abc import Callable

from tbuda_lab.core.errors import Cancelled, TbudaError
from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.diff import GraphDiff, diff
from tbuda_lab.core.graph.verify import verify
from tbuda_lab.core.ops.builder import DEFAULTS
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes.autograd.training import Autograd, Differentiable, RunningStatistics
from tbuda_lab.core.passes.base import Pass, Report
from tbuda_lab.core.passes.canonical import (
    Decompose,
    DropImplicitBroadcasts,
    RankFour,
    RemoveNoOps,
    ShareEqual,
    TameConstants,
)
from tbuda_lab.core.passes.consteval import ConstEval, NameParameters
from tbuda_lab.core.passes.finite_rows import FiniteRows
from tbuda_lab.core.passes.fold_scale import FoldScale, FuseBias
from tbuda_lab.core.passes.fracture import Fracture
from tbuda_lab.core.passes.fuse_gelu import FuseGelu
from tbuda_lab.core.passes.host import HostMoves, HostPrologue
from tbuda_lab.core.passes.long_rows import LongRows
from tbuda_lab.core.passes.prestride import FusePadConv, Prestride
from tbuda_lab.core.passes.rows_layout import ExpandRows, FlatRows, RowsLayout
from tbuda_lab.core.passes.tms import SimplifyMoves
from tbuda_lab.core.passes.whole_numbers import WholeNumbers
from tbuda_lab.core.passes.wide_matmuls import SplitMatmul, WidenHeads

PIPELINE: tuple[Pass, ...] = (
    Fracture(),
    ConstEval(),
    WholeNumbers(),
    TameConstants(),
    FuseGelu(),
    HostPrologue(),
    TameConstants(integers=True),
    RemoveNoOps(),
    FiniteRows(),
    FusePadConv(),
    # Slices and pads of images wait: in rows layout they are gathers of rows.
    Decompose(keep=("index", "pad")),
    RowsLayout(),
    Decompose(),
    ExpandRows(),
    ConstEval(),
    RankFour(),
    DropImplicitBroadcasts(),
    SimplifyMoves(),
    FlatRows(),
    SimplifyMoves(),
    ConstEval(),
    RemoveNoOps(),
    ShareEqual(),
    SplitMatmul(),
    ConstEval(),
    FoldScale(),
    ConstEval(),
    FuseBias(),
    WidenHeads(),
    Prestride(),
    ConstEval(),
    HostMoves(),
    LongRows(),
    ConstEval(),
    HostMoves(),
    NameParameters(),
)

WITH_RULES = (
    "greater",
    "greater_equal",
    "less",
    "less_equal",
    "equal",
    "not_equal",
    "logical_and",
    "logical_not",
    "heaviside",
    "where",
    "clip",
    "divide",
    "minimum",
    "power",
    "pow",
    "softmax",
    "log_softmax",
    "layernorm",
    "erf",
    "gelu",
    "gelu_derivative",
    "stop_gradient",
    "gradient_seed",
    "own_gradient",
)
"""Ops that wait for their gradients before they are written in canonical ones: their rules are shorter, and exact where
those of the canonical forms are not."""

TRAINING_PIPELINE: tuple[Pass, ...] = (
    RunningStatistics(),
    Fracture(),
    ConstEval(),
    TameConstants(),
    FuseGelu(),
    HostPrologue(),
    TameConstants(integers=True),
    RemoveNoOps(),
    FusePadConv(),
    Decompose(keep=("index", "pad", *WITH_RULES)),
    RowsLayout(),
    Decompose(keep=WITH_RULES),
    Differentiable(),
    ExpandRows(),
    Decompose(keep=WITH_RULES),
    ConstEval(),
    RemoveNoOps(),
    ShareEqual(),
    NameParameters(),
    Autograd(),
    # From here on weights are written by the device: nothing is folded into them any more.
    Decompose(),
    ConstEval(),
    RankFour(),
    DropImplicitBroadcasts(),
    SimplifyMoves(),
    ConstEval(),
    RemoveNoOps(),
    ShareEqual(),
    FuseBias(),
    ConstEval(),
    HostMoves(),
    LongRows(),
    ConstEval(),
    HostMoves(),
)


@dataclasses.dataclass(frozen=True)
class PassResult:
    """The passed graph, one report per pass, and, if asked for, the graph after each pass."""

    graph: Graph
    reports: tuple[Report, ...]
    snapshots: tuple[Graph, ...] = ()


def run(
    graph: Graph,
    options: CompileOptions = DEFAULTS,
    on_pass: Callable[[Pass, Report, Graph], None] | None = None,
    snapshots: bool = False,
) -> PassResult:
    """All passes of the pipeline on a copy of `graph`; the graph is verified after each that rewrote something, and at
    the end.

    `on_pass` is called after every pass (and may raise to stop). Raises `UnsupportedOp` for ops the device cannot run.
    """
    work = graph.clone()
    reports: list[Report] = []
    graphs: list[Graph] = []
    for step in PIPELINE if options.training is None else TRAINING_PIPELINE:
        report = dataclasses.replace(step, options=options).apply(work)
        if report.rewrites:
            verify(work, after=step.name)
        reports.append(report)
        if snapshots:
            graphs.append(work.clone())
        if on_pass is not None:
            on_pass(step, report, work)
    verify(work, after="all passes")
    return PassResult(work, tuple(reports), tuple(graphs))


@dataclasses.dataclass(frozen=True)
class PassStep:
    """One pass of the pipeline. before, after: number of nodes; seconds: of the pass and the check after it; `graph`:
    the graph after it, without the values of parameters and constants."""

    index: int
    name: str
    doc: str
    before: int
    after: int
    rewrites: int
    seconds: float
    changes: GraphDiff
    graph: Graph


@dataclasses.dataclass(frozen=True)
class PassTrace:
    """All passes of a graph, in order. `first`: the graph they began with; `error`: what ended them early, or ""."""

    first: Graph
    steps: tuple[PassStep, ...]
    error: str = ""

    def before(self, index: int) -> Graph:
        """The graph that a step began with."""
        return self.steps[index - 1].graph if index else self.first

    @property
    def labels(self) -> tuple[str, ...]:
        """A name of its own for every step: a pass that runs again is "name#2", "name#3", ..."""
        count: dict[str, int] = {}
        labels = []
        for step in self.steps:
            count[step.name] = count.get(step.name, 0) + 1
            labels.append(step.name if count[step.name] == 1 else f"{step.name}#{count[step.name]}")
        return tuple(labels)

    def find(self, name: str | int) -> int:
        """The number of a step, given by its label or number. Raises `KeyError` naming those there are."""
        labels = self.labels
        if type(name) is int and 0 <= name < len(labels):
            return name
        if name in labels:
            return labels.index(str(name))
        raise KeyError(f"no pass {name!r}; there are {', '.join(labels)}")

    def neighbour(self, name: str | int | None, by: int) -> int:
        """The step that is `by` steps that changed something away from another, as far as there are any; without a name
        counted from before the first (`by` > 0) or after the last. Raises `KeyError`."""
        at = (-1 if by > 0 else len(self.steps)) if name is None else self.find(name)
        indices = [s.index for s in self.steps if s.changes and ((s.index > at) if by > 0 else (s.index < at))]
        if by < 0:
            indices.reverse()
        if not indices or by == 0:
            if 0 <= at < len(self.steps):
                return at
            raise KeyError("no pass changed anything")
        return indices[min(abs(by), len(indices)) - 1]


def trace_passes(graph: Graph, options: CompileOptions = DEFAULTS, cancel: threading.Event | None = None) -> PassTrace:
    """Run the pipeline again and keep every step. A pass that refuses ends it; what was done until then is there.

    Raises `Cancelled` once `cancel` is set.
    """
    steps: list[PassStep] = []
    latest = graph.clone()
    first = light(latest)
    began = time.perf_counter()

    def done(step: Pass, report: Report, work: Graph) -> None:
        nonlocal latest, began
        seconds = time.perf_counter() - began
        if cancel is not None and cancel.is_set():
            raise Cancelled(f"cancelled after pass {step.name!r}")
        now = work.clone()
        changes = diff(latest, now)
        count = len(steps), step.name, step.doc, len(latest), len(now)
        steps.append(PassStep(*count, report.rewrites, seconds, changes, light(now)))
        latest = now
        began = time.perf_counter()

    try:
        run(graph, options, done)
    except Cancelled:
        raise
    except TbudaError as error:
        return PassTrace(first, tuple(steps), str(error))
    return PassTrace(first, tuple(steps))


def light(graph: Graph) -> Graph:
    """A copy without values: thirty graphs would otherwise keep thirty sets of folded parameters alive."""
    copy = graph.clone()
    for name, node in copy.nodes.items():
        if node.value is not None or node.recipe is not None:
            copy.nodes[name] = dataclasses.replace(node, value=None, recipe=None)
    return copy
