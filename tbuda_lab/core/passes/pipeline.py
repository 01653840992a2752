"""The passes in order, and the one function that runs them."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

from tbuda_lab.core.graph import Graph
from tbuda_lab.core.graph.verify import verify
from tbuda_lab.core.ops.builder import DEFAULTS
from tbuda_lab.core.options import CompileOptions
from tbuda_lab.core.passes.autograd.training import Autograd, Differentiable, RunningStatistics
from tbuda_lab.core.passes.base import Pass, Report
from tbuda_lab.core.passes.cleanup import DropImplicitBroadcasts, RemoveNoOps, ShareEqual, TameConstants
from tbuda_lab.core.passes.consteval import ConstEval, NameParameters
from tbuda_lab.core.passes.decompose import Decompose
from tbuda_lab.core.passes.finite_rows import FiniteRows
from tbuda_lab.core.passes.flat_rows import FlatRows
from tbuda_lab.core.passes.fold_scale import FoldScale, FuseBias
from tbuda_lab.core.passes.fracture import Fracture
from tbuda_lab.core.passes.fuse_gelu import FuseGelu
from tbuda_lab.core.passes.host_moves import HostMoves
from tbuda_lab.core.passes.pad_conv import FusePadConv
from tbuda_lab.core.passes.prestride import Prestride
from tbuda_lab.core.passes.prologue import HostPrologue
from tbuda_lab.core.passes.rank import RankFour
from tbuda_lab.core.passes.rows_layout import ExpandRows, RowsLayout
from tbuda_lab.core.passes.split_matmul import SplitMatmul
from tbuda_lab.core.passes.tms import SimplifyMoves
from tbuda_lab.core.passes.widen_heads import WidenHeads

PIPELINE: tuple[Pass, ...] = (
    Fracture(),
    ConstEval(),
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
    NameParameters(),
)


WITH_RULES = (
    "greater", "greater_equal", "less", "less_equal", "equal", "not_equal", "logical_and", "logical_not", "heaviside",
    "where", "clip", "divide", "minimum", "power", "pow", "softmax", "log_softmax", "layernorm",
)  # fmt: skip
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
    result: list[Graph] = []
    for step in PIPELINE if options.training is None else TRAINING_PIPELINE:
        report = dataclasses.replace(step, options=options).apply(work)
        if report.rewrites:
            verify(work, after=step.name)
        reports.append(report)
        if snapshots:
            result.append(work.clone())
        if on_pass is not None:
            on_pass(step, report, work)
    verify(work, after="all passes")
    return PassResult(work, tuple(reports), tuple(result))
